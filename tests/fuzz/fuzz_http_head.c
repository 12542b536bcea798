/* fuzz_http_head.c - message heads. The first byte says what the rest is: a request, a response or
 * field lines alone. Promises: slices lie within the head, values carry no control that could end a
 * line, one framing at most; a prefix of a head is never judged other than the head. */
#include "base/arena.h"
#include "fuzz.h"
#include "io/http.h"

static struct http_head h;

static ssize_t parse(const char *p, size_t n, int kind)
{
    struct err err = { 0 };
    ssize_t r = kind == 2 ? http_parse_fields(p, n, &h, &err)
                          : http_parse(p, n, kind ? HTTP_RESPONSE : HTTP_REQUEST, &h, &err);

    MUST(r <= (ssize_t)n);
    MUST((r < 0) == (err.code != ERR_NONE));
    MUST((r < 0) == (err.msg[0] != 0));
    return r;
}

static void check_slice(struct str s, const char *p, size_t n)
{
    MUST(s.p >= p && s.p + s.n <= p + n);
    for (size_t i = 0; i < s.n; i++)
        MUST(s.p[i] != '\r' && s.p[i] != '\n' && s.p[i] != 0);
}

static void check_head(const char *p, size_t n, int kind)
{
    struct arena a = { 0 };

    MUST(n >= 2 && !memcmp(p + n - 2, "\r\n", 2));
    MUST(h.count >= 0 && h.count <= HTTP_FIELDS && h.count <= http_limits.header_count);
    if (kind == 0) {
        check_slice(h.method, p, n);
        check_slice(h.target, p, n);
        MUST(h.method.n && h.target.n);
    }
    if (kind == 1)
        MUST(h.status >= 100 && h.status <= 999);
    MUST(kind == 2 || !h.chunked || h.length < 0);
    for (int i = 0; i < h.count; i++) {
        check_slice(h.field[i].name, p, n);
        check_slice(h.field[i].value, p, n);
        MUST(h.field[i].name.n && !memchr(h.field[i].name.p, ' ', h.field[i].name.n));
        MUST(str_trim(h.field[i].value).n == h.field[i].value.n);
    }
    http_head_keep(&h, &a);
    if (h.count)
        MUST(http_get(&h, h.field[0].name.p).p == h.field[0].value.p);
    arena_free(&a);
}

static void check_prefixes(const char *p, size_t n, ssize_t whole, int kind)
{
    bool failed = false;

    for (size_t k = 0; k < n; k++) {
        char *prefix = fuzz_copy(p, k);
        ssize_t r = parse(prefix, k, kind);

        free(prefix);
        if (whole > 0 && k < (size_t)whole)
            MUST(r == 0);
        else if (whole > 0)
            MUST(r == whole);
        else
            MUST(r == 0 || (r < 0 && whole < 0));
        MUST(!failed || r < 0); /* what is wrong stays wrong */
        failed = r < 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int kind = size ? data[0] % 3 : 0;
    ssize_t r;
    char *p;

    if (!size)
        return 0;
    p = fuzz_copy(data + 1, size - 1);
    r = parse(p, size - 1, kind);
    if (r > 0)
        check_head(p, (size_t)r, kind);
    if (size < 400)
        check_prefixes(p, size - 1, r, kind);
    free(p);
    return 0;
}
