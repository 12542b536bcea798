/* url.c - see url.h. */
#include "io/url.h"

#include <arpa/inet.h>

#include "base/buf.h"

static bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static struct str rest_of(struct str s, size_t n) { return (struct str){ s.p + n, s.n - n }; }

static int wrong(struct err *err, const char *what)
{
    return err_set(err, ERR_INVALID, "the URL %s", what);
}

/* ---- hosts ---- */

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_digit(s.p[i]))
            return false;
    return s.n > 0;
}

static bool all_hex(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_digit(s.p[i]) && ((s.p[i] | 32) < 'a' || (s.p[i] | 32) > 'f'))
            return false;
    return true;
}

/* The C library reads a name whose last label is a number as an address, in forms that few know. */
static bool ends_in_number(struct str host)
{
    const char *dot = memrchr(host.p, '.', host.n);
    struct str last = dot ? rest_of(host, (size_t)(dot + 1 - host.p)) : host;

    return all_digits(last) ||
           (last.n > 1 && last.p[0] == '0' && (last.p[1] | 32) == 'x' && all_hex(rest_of(last, 2)));
}

static int check_name(struct str host, struct err *err)
{
    size_t label = 0;

    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];

        if (c == '.' && !label)
            return wrong(err, "has a host with an empty label");
        if (c != '.' && !is_alpha(c) && !is_digit(c) && c != '-' && c != '_')
            return wrong(err, "has a host with a byte that no host name has (write a name of other "
                              "letters in its xn-- form)");
        label = c == '.' ? 0 : label + 1;
        if (label > 63)
            return wrong(err, "has a host with a label of more than 63 bytes");
    }
    return label ? 0 : wrong(err, "has a host with an empty label");
}

static int set_host(struct str host, bool bracket, struct url *out, struct err *err)
{
    unsigned char scratch[16];

    if (!host.n || host.n > URL_HOST)
        return wrong(err, host.n ? "has a host of more than 253 bytes" : "has no host");
    for (size_t i = 0; i < host.n; i++)
        out->host[i] = (char)(host.p[i] >= 'A' && host.p[i] <= 'Z' ? host.p[i] | 32 : host.p[i]);
    out->host[host.n] = 0;
    out->literal = true;
    if (bracket)
        return memchr(host.p, 0, host.n) || inet_pton(AF_INET6, out->host, scratch) != 1
                   ? wrong(err, "has brackets around what is no IPv6 address")
                   : 0;
    if (check_name(host, err))
        return -1;
    if (inet_pton(AF_INET, out->host, scratch) == 1)
        return 0;
    out->literal = false;
    return ends_in_number(host)
               ? wrong(err, "has an address that is not four decimal numbers from 0 to 255")
               : 0;
}

static int set_port(struct str port, struct url *out, struct err *err)
{
    uint64_t n;

    if (!port.n) /* "host:" is "host" */
        return 0;
    if (port.n > 5 || str_u64(port, &n) || !n || n > 65535)
        return wrong(err, "has a port that is no number from 1 to 65535");
    out->port = (uint16_t)n;
    return 0;
}

static int set_host_port(struct str s, struct url *out, struct err *err)
{
    struct str host, port = { 0 };
    const char *end;

    if (s.n && s.p[0] == '[') {
        end = memchr(s.p, ']', s.n);
        if (!end)
            return wrong(err, "has a bracket without its other half");
        host = (struct str){ s.p + 1, (size_t)(end - s.p - 1) };
        port = rest_of(s, host.n + 2);
        if (port.n && port.p[0] != ':')
            return wrong(err, "has something between its host and its port");
        if (port.n)
            port = rest_of(port, 1);
        return set_host(host, true, out, err) ? -1 : set_port(port, out, err);
    }
    str_cut(s, ':', &host, &port);
    if (host.n > 1 && host.p[host.n - 1] == '.') /* "example.org." is the whole name */
        host.n--;
    return set_host(host, false, out, err) ? -1 : set_port(port, out, err);
}

static int set_user(struct str s, struct arena *a, struct url *out, struct err *err)
{
    struct str user, password = STR("");

    str_cut(s, ':', &user, &password);
    if (str_percent_decode(a, user, false, &out->user) ||
        str_percent_decode(a, password, false, &out->password))
        return wrong(err, "has a user name or password with a broken percent escape");
    for (size_t i = 0; i < out->user.n; i++)
        if (out->user.p[i] == ':') /* it would end the name in the header too */
            return wrong(err, "has a user name with a colon");
    return 0;
}

static int set_authority(struct str s, struct arena *a, struct url *out, struct err *err)
{
    const char *at = s.n ? memrchr(s.p, '@', s.n) : NULL;
    size_t before = at ? (size_t)(at - s.p) : 0;

    if (s.n && memchr(s.p, '\\', s.n)) /* a slash to some */
        return wrong(err, "has a backslash before its path");
    if (at && memchr(s.p, '@', before))
        return wrong(err, "has more than one @ before its path");
    if (at && set_user((struct str){ s.p, before }, a, out, err))
        return -1;
    return set_host_port(at ? rest_of(s, before + 1) : s, out, err);
}

/* ---- paths ---- */

/* What may stand in a request line as it is; the rest is escaped, as browsers do. */
static bool plain(unsigned char c) { return c > ' ' && c < 0x7f && !strchr("\"<>\\^`{|}", c); }

static struct str encode_target(struct str path, struct str query, struct arena *a)
{
    static const char hex[] = "0123456789ABCDEF";
    struct str part[] = { path, query };
    char *start = arena_alloc(a, 3 * (path.n + query.n) + 2), *p = start;

    if (!path.n || path.p[0] != '/')
        *p++ = '/';
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < part[k].n; i++) {
            unsigned char c = (unsigned char)part[k].p[i];

            *p++ = plain(c) ? (char)c : '%';
            if (plain(c))
                continue;
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];
        }
    return (struct str){ start, (size_t)(p - start) };
}

/* Up to one of these bytes, or the end. */
static size_t until(struct str s, const char *ends)
{
    size_t n = 0;

    while (n < s.n && (!s.p[n] || !strchr(ends, s.p[n])))
        n++;
    return n;
}

/* "." and ".." as RFC 3986 5.2.4 has it: of the path alone, which begins with '/'. */
static struct str remove_dots(struct str path, struct arena *a)
{
    char *out = arena_alloc(a, path.n + 1);
    size_t n = 0;

    while (path.n) {
        size_t len = 1 + until(rest_of(path, 1), "/");
        struct str segment = { path.p + 1, len - 1 };
        bool last = len == path.n, up = str_is(segment, "..");

        if (up)
            while (n && out[--n] != '/')
                ;
        else if (!str_is(segment, ".")) {
            memcpy(out + n, path.p, len);
            n += len;
        }
        if (last && (up || str_is(segment, ".")))
            out[n++] = '/';
        path = rest_of(path, len);
    }
    return (struct str){ out, n };
}

static int check_bytes(struct str text, struct err *err)
{
    if (!text.n)
        return wrong(err, "is empty");
    if (text.n > URL_MAX)
        return err_set(err, ERR_INVALID, "the URL is longer than %d bytes", URL_MAX);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < ' ' || text.p[i] == 0x7f)
            return wrong(err, "has a control byte");
    return 0;
}

/* Behind "scheme:"; out->https is known. */
static int parse_rest(struct str s, struct arena *a, struct url *out, struct err *err)
{
    size_t n;
    struct str authority, path;

    if (!str_starts(s, "//"))
        return wrong(err, "must have // behind its scheme");
    s = rest_of(s, 2);
    n = until(s, "/?#");
    authority = (struct str){ s.p, n };
    out->port = out->https ? 443 : 80;
    if (set_authority(authority, a, out, err))
        return -1;
    s = rest_of(s, n);
    s.n = until(s, "#"); /* the fragment is the client's own business */
    path = (struct str){ s.p, until(s, "?") };
    out->target = encode_target(path, rest_of(s, path.n), a);
    return 0;
}

/* Its scheme, when it has one: bytes with the colon. 0: relative. */
static size_t scheme_of(struct str s)
{
    size_t n = 0;

    while (n < s.n && (is_alpha(s.p[n]) || (n && (is_digit(s.p[n]) || strchr("+-.", s.p[n])))))
        n++;
    return n && n < s.n && s.p[n] == ':' ? n + 1 : 0;
}

int url_parse(struct str text, struct arena *a, struct url *out, struct err *err)
{
    struct url u = { 0 };
    size_t n;

    if (check_bytes(text, err))
        return -1;
    n = scheme_of(text);
    u.https = str_iis((struct str){ text.p, n }, "https:");
    if (!u.https && !str_iis((struct str){ text.p, n }, "http:"))
        return wrong(err, "must begin with https:// or http://");
    if (parse_rest(rest_of(text, n), a, &u, err))
        return -1;
    *out = u;
    return 0;
}

int url_join(const struct url *base, struct str location, struct arena *a, struct url *out,
             struct err *err)
{
    struct url u = *base;
    struct str path, old = { base->target.p, until(base->target, "?") };
    size_t dir = old.n;

    if (check_bytes(location, err))
        return -1;
    if (scheme_of(location))
        return url_parse(location, a, out, err);
    if (str_starts(location, "//")) {
        u.user = u.password = (struct str){ 0 };
        if (parse_rest(location, a, &u, err))
            return -1;
        *out = u;
        return 0;
    }
    location.n = until(location, "#");
    path = (struct str){ location.p, until(location, "?") };
    location = rest_of(location, path.n);
    while (dir && old.p[dir - 1] != '/')
        dir--;
    if (!path.n)
        path = old;
    else if (path.p[0] != '/')
        path = str_of(arena_printf(a, "%.*s%.*s", (int)dir, old.p, STR_ARG(path)));
    if (path.n > (size_t)2 * URL_MAX)
        return wrong(err, "grows with every redirect");
    u.target = encode_target(remove_dots(path, a), location, a);
    *out = u;
    return 0;
}

/* ---- for people, and for headers ---- */

bool url_same_origin(const struct url *a, const struct url *b)
{
    return a->https == b->https && a->port == b->port && !strcmp(a->host, b->host);
}

static void put_host(const struct url *u, struct buf *out)
{
    bool six = strchr(u->host, ':') != NULL;

    buf_printf(out, "%s%s%s", six ? "[" : "", u->host, six ? "]" : "");
}

void url_host_port(const struct url *u, struct buf *out)
{
    put_host(u, out);
    if (u->port != (u->https ? 443 : 80))
        buf_printf(out, ":%u", u->port);
}

void url_origin(const struct url *u, struct buf *out)
{
    buf_puts(out, u->https ? "https://" : "http://");
    url_host_port(u, out);
}
