/* browser.c - see browser.h. */
#include "router/browser.h"

#include <string.h>

/* ---- cookies ---- */

bool browser_next(struct str *rest, struct browser_cookie *out)
{
    struct str pair;

    while (rest->n) {
        str_cut(*rest, ';', &pair, rest);
        pair = str_trim(pair);
        if (!pair.n)
            continue;
        out->whole = pair;
        if (!str_cut(pair, '=', &out->name, &out->value)) { /* without "=" it is a value */
            out->name = STR("");
            out->value = pair;
        }
        out->name = str_trim(out->name);
        out->value = str_trim(out->value);
        return true;
    }
    return false;
}

static bool begins(struct str name, struct str with)
{
    return name.n >= with.n && str_ieq((struct str){ name.p, with.n }, with);
}

bool browser_is_ours(struct str name)
{
    return begins(name, STR("__Host-cove")) || begins(name, STR(BROWSER_COOKIE));
}

bool browser_keep(struct str field, bool (*keep)(void *arg, const struct browser_cookie *c),
                  void *arg, struct buf *out)
{
    struct browser_cookie c;

    out->len = 0;
    while (browser_next(&field, &c)) {
        if (!keep(arg, &c))
            continue;
        if (out->len)
            buf_puts(out, "; ");
        buf_add_str(out, c.whole);
    }
    return out->len > 0;
}

bool browser_has_domain(struct str set_cookie)
{
    struct str rest, part, name, value;

    str_cut(set_cookie, ';', &part, &rest); /* the cookie itself */
    while (rest.n) {
        str_cut(rest, ';', &part, &rest);
        str_cut(part, '=', &name, &value);
        if (str_iis(str_trim(name), "domain"))
            return true;
    }
    return false;
}

struct str browser_set_name(struct str set_cookie)
{
    struct browser_cookie c;

    return browser_next(&set_cookie, &c) ? c.name : (struct str){ 0 };
}

/* ---- the query ---- */

static bool is_named(struct str pair, const char *name)
{
    struct str key, value;

    str_cut(pair, '=', &key, &value);
    return str_is(key, name);
}

struct str browser_query(struct str target, const char *name)
{
    struct str path, rest, pair, key, value;

    if (!str_cut(target, '?', &path, &rest))
        return (struct str){ 0 };
    while (rest.n) {
        str_cut(rest, '&', &pair, &rest);
        if (!is_named(pair, name))
            continue;
        return str_cut(pair, '=', &key, &value) ? value : STR("");
    }
    return (struct str){ 0 };
}

void browser_cut(struct str target, const char *name, struct buf *out)
{
    struct str path, rest, pair;
    char mark = '?';

    str_cut(target, '?', &path, &rest);
    out->len = 0;
    buf_add_str(out, path);
    while (rest.n) {
        str_cut(rest, '&', &pair, &rest);
        if (is_named(pair, name))
            continue;
        buf_putc(out, mark);
        buf_add_str(out, pair);
        mark = '&';
    }
}

/* ---- which page ---- */

static bool is_reading(const struct http_head *h)
{
    return str_is(h->method, "GET") || str_is(h->method, "HEAD");
}

/* "https://host:port"; the scheme may be that of a proxy before us. */
static bool same_origin(struct str origin, struct str host)
{
    struct str scheme, rest;

    return str_cut(origin, ':', &scheme, &rest) && str_starts(rest, "//") &&
           str_ieq((struct str){ rest.p + 2, rest.n - 2 }, host);
}

bool browser_own(const struct http_head *h)
{
    struct str site = http_get(h, "sec-fetch-site"), origin = http_get(h, "origin");

    if (origin.p && !same_origin(origin, http_get(h, "host")))
        return false;
    if (site.p && !str_is(site, "same-origin") && !str_is(site, "none"))
        return is_reading(h) && str_is(http_get(h, "sec-fetch-mode"), "navigate") &&
               str_is(http_get(h, "sec-fetch-dest"), "document"); /* and not in a frame of it */
    return site.p || origin.p || is_reading(h);
}
