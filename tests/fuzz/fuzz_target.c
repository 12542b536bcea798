/* fuzz_target.c - where a request goes: its head, a path, a guest's route. The first byte says what
 * the rest is. Promises: an id has the form of one, a port is one, slices lie within the input,
 * what is refused says why, and no spelling of a control route gets past. */
#include "router/target.h"

#include "fuzz.h"

static struct http_head h;

static void check_id(const struct target *t)
{
    size_t n = strlen(t->id);

    MUST(n && n <= TARGET_ID && t->port);
    for (size_t i = 0; i < n; i++)
        MUST((t->id[i] >= 'a' && t->id[i] <= 'z') || (t->id[i] >= '0' && t->id[i] <= '9') ||
             t->id[i] == '-');
    if (t->by != BY_CLUSTER)
        MUST(sandbox_id_valid(str_of(t->id)));
}

static void fuzz_head(const char *p, size_t n, struct str domain)
{
    struct target_fields f;
    struct target t;
    struct err err;

    if (http_parse(p, n, HTTP_REQUEST, &h, &err) <= 0)
        return;
    target_read(&h, &f);
    target_find(&f, domain, &t);
    MUST(t.by < BY_PATH && t.timeout_ms >= 0);
    if (t.by == BY_NONE)
        MUST(!t.bad && !f.e2b_id.p && !f.id.p);
    else if (!t.bad)
        check_id(&t);
    for (int i = 0; i < h.count; i++) /* no key gets through */
        if (str_iis(h.field[i].name, "x-api-key"))
            MUST(target_is_ours(&h.field[i]));
}

static void fuzz_path(const char *p, size_t n)
{
    struct target t;

    if (!target_find_path((struct str){ p, n }, &t))
        return;
    check_id(&t);
    MUST(t.by == BY_PATH && t.prefix.p == p && t.prefix.n <= n);
    MUST(!memchr(t.prefix.p, '?', t.prefix.n));
    if (t.rest.n)
        MUST(t.rest.p == p + t.prefix.n && t.rest.p + t.rest.n == p + n && t.rest.p[0] == '/');
}

/* With one more spelling of the same the verdict stays. */
static void fuzz_control(const char *p, size_t n)
{
    bool is = target_is_control((struct str){ p, n });
    char *longer = calloc(1, n + 4);

    MUST(longer);
    memcpy(longer, "/./", 3);
    if (n)
        memcpy(longer + 3, p, n);
    if (is)
        MUST(target_is_control((struct str){ longer, n + 3 }));
    if (n == 5 && !memcmp(p, "/init", 5))
        MUST(is);
    free(longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *p;

    if (!size)
        return 0;
    p = fuzz_copy(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0: fuzz_head(p, size - 1, STR("cove.test")); break;
    case 1: fuzz_head(p, size - 1, STR("localhost")); break;
    case 2: fuzz_path(p, size - 1); break;
    default: fuzz_control(p, size - 1);
    }
    free(p);
    return 0;
}
