/* fuzz_browser.c - what browsers bring: cookies, queries, names. The first byte says what the rest
 * is. Promises: what is cut out of a query or of cookies is not there any more, what is kept is as
 * it was and in its order, slices lie within the input, a name below a name that is not ours is not
 * ours. */
#include "router/browser.h"

#include "fuzz.h"
#include "router/host.h"

static bool within(struct str s, const char *p, size_t n)
{
    return !s.n || (s.p >= p && s.p + s.n <= p + n);
}

static bool keep_foreign(void *arg, const struct browser_cookie *c)
{
    ++*(int *)arg;
    return !browser_is_ours(c->name);
}

static void fuzz_cookies(const char *p, size_t n)
{
    AUTO(buf_free) struct buf kept = { 0 }, again = { 0 };
    struct str rest = { p, n };
    struct browser_cookie c;
    int seen = 0, count = 0;

    while (browser_next(&rest, &c)) {
        MUST(within(c.name, p, n) && within(c.value, p, n) && ++count <= (int)n);
        MUST(!memchr(c.name.n ? c.name.p : "", ';', c.name.n));
    }
    MUST(browser_keep((struct str){ p, n }, keep_foreign, &seen, &kept) == (kept.len > 0));
    MUST(seen == count && kept.len <= 2 * n);
    rest = buf_str(&kept);
    while (browser_next(&rest, &c))
        MUST(!browser_is_ours(c.name));
    browser_keep(buf_str(&kept), keep_foreign, &seen, &again);
    MUST(str_eq(buf_str(&kept), buf_str(&again)));
    MUST(within(browser_set_name((struct str){ p, n }), p, n));
    browser_has_domain((struct str){ p, n });
}

static void fuzz_query(const char *p, size_t n)
{
    AUTO(buf_free) struct buf left = { 0 };
    struct str target = { p, n }, value = browser_query(target, "t");

    MUST(within(value, p, n));
    browser_cut(target, "t", &left);
    MUST(left.len <= n && !browser_query(buf_str(&left), "t").p);
    if (!value.p && n && p[n - 1] != '?' && p[n - 1] != '&' && !memmem(p, n, "&&", 2) &&
        !memmem(p, n, "?&", 2))
        MUST(str_eq(buf_str(&left), target));
}

static void fuzz_host(const char *p, size_t n)
{
    static const char *const names[] = { "also.example", NULL };
    const struct host_names h = { STR("cove.test"), STR("box"), names };
    struct str host = { p, n }, name = host_name(host);
    AUTO(buf_free) struct buf below = { 0 };

    MUST(within(name, p, n) && !(name.n && memchr(name.p, ':', name.n)));
    host_is_ours(&h, host);
    buf_add_str(&below, name);
    buf_puts(&below, ".evil.example");
    MUST(!host_is_ours(&h, buf_str(&below)) || !name.n || p[0] == '[');
}

static void fuzz_head(const char *p, size_t n)
{
    static struct http_head h;
    struct err err;

    if (http_parse(p, n, HTTP_REQUEST, &h, &err) <= 0)
        return;
    if (browser_own(&h) && !str_is(h.method, "GET") && !str_is(h.method, "HEAD"))
        MUST(http_get(&h, "origin").p || http_get(&h, "sec-fetch-site").p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *p;

    if (!size)
        return 0;
    p = fuzz_copy(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0: fuzz_cookies(p, size - 1); break;
    case 1: fuzz_query(p, size - 1); break;
    case 2: fuzz_host(p, size - 1); break;
    default: fuzz_head(p, size - 1);
    }
    free(p);
    return 0;
}
