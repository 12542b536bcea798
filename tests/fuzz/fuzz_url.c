/* fuzz_url.c - URLs, Locations and address prefixes. The first byte says which. Promises: a host
 * has one reading, which the C library shares; a target can stand in a request line; what is
 * written out again is read as the same. */
#include "io/url.h"

#include <arpa/inet.h>

#include "fuzz.h"
#include "io/netrange.h"

static void check_host(const struct url *u)
{
    unsigned char six[16];
    struct in_addr four, odd;
    bool is_four = inet_pton(AF_INET, u->host, &four) == 1;

    MUST(u->host[0] && u->port);
    for (const char *p = u->host; *p; p++)
        MUST(*p > ' ' && *p < 0x7f && !strchr("%/\\@?#[]\"", *p) && !(*p >= 'A' && *p <= 'Z'));
    if (u->literal)
        MUST(is_four || inet_pton(AF_INET6, u->host, six) == 1);
    else
        MUST(!inet_aton(u->host, &odd)); /* the resolver takes it for a name too */
}

static void check(const struct url *u)
{
    check_host(u);
    MUST(u->target.n && u->target.p[0] == '/');
    for (size_t i = 0; i < u->target.n; i++)
        MUST(u->target.p[i] > ' ' && u->target.p[i] < 0x7f && u->target.p[i] != '#');
}

/* Once more, from what it was read as. */
static void again(const struct url *u, struct arena *a)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct url twice;
    struct err err;

    url_origin(u, &text);
    buf_add_str(&text, u->target);
    if (text.len > URL_MAX)
        return;
    MUST(!url_parse(buf_str(&text), a, &twice, &err));
    MUST(url_same_origin(u, &twice) && twice.literal == u->literal);
    MUST(str_eq(u->target, twice.target));
}

static void fuzz_parse(struct str text, struct arena *a)
{
    struct url u;
    struct err err = { 0 };

    if (url_parse(text, a, &u, &err)) {
        MUST(err.code == ERR_INVALID && err.msg[0]);
        return;
    }
    check(&u);
    again(&u, a);
}

static void fuzz_join(struct str text, struct arena *a)
{
    struct url base, next;
    struct err err = { 0 };

    MUST(!url_parse(STR("https://me:pw@example.org:444/a/b/c?d"), a, &base, &err));
    if (url_join(&base, text, a, &next, &err)) {
        MUST(err.code == ERR_INVALID && err.msg[0]);
        return;
    }
    check(&next);
    if (!url_same_origin(&base, &next) && next.user.p) /* only one that was written there */
        MUST(memchr(text.p, '@', text.n));
}

static void fuzz_range(struct str text)
{
    struct netrange r;
    struct netrange_list list = { .n = 0 };
    struct err err = { 0 };

    if (!netrange_parse(text, &r, &err))
        MUST(r.bits <= 128 && netrange_has(&r, r.addr));
    if (netrange_list_add(&list, text, &err))
        MUST(!list.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = { 0 };
    char *p;

    if (!size)
        return 0;
    p = fuzz_copy(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0: fuzz_parse((struct str){ p, size - 1 }, &a); break;
    case 1: fuzz_join((struct str){ p, size - 1 }, &a); break;
    default: fuzz_range((struct str){ p, size - 1 });
    }
    arena_free(&a);
    free(p);
    return 0;
}
