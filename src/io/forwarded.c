/* forwarded.c - see forwarded.h. */
#include "io/forwarded.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/util.h"

struct address {
    unsigned char bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
};

static bool digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n > 0;
}

/* "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80" */
static bool read_address(struct str text, struct address *out)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    char host[INET6_ADDRSTRLEN];
    struct str inner, rest;

    if (str_starts(text, "[")) {
        if (!str_cut((struct str){ text.p + 1, text.n - 1 }, ']', &inner, &rest))
            return false;
        if (rest.n && (rest.p[0] != ':' || !digits((struct str){ rest.p + 1, rest.n - 1 })))
            return false;
        text = inner;
    } else if (text.n && memchr(text.p, '.', text.n) && str_cut(text, ':', &inner, &rest) &&
               digits(rest)) {
        text = inner;
    }
    if (!text.n || text.n >= sizeof(host) || memchr(text.p, 0, text.n))
        return false;
    memcpy(host, text.p, text.n);
    host[text.n] = 0;
    if (inet_pton(AF_INET, host, out->bytes + 12) == 1) {
        memcpy(out->bytes, mapped, sizeof(mapped));
        return true;
    }
    return inet_pton(AF_INET6, host, out->bytes) == 1;
}

static void print(const struct address *a, char out[static FORWARDED_ADDRESS])
{
    struct in_addr v4;

    memcpy(&v4, a->bytes + 12, sizeof(v4));
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)a->bytes))
        inet_ntop(AF_INET, &v4, out, FORWARDED_ADDRESS);
    else
        inet_ntop(AF_INET6, a->bytes, out, FORWARDED_ADDRESS);
}

static bool trusts(const struct netrange_list *trusted, const struct address *a)
{
    for (size_t i = 0; trusted && i < trusted->n; i++)
        if (netrange_has(&trusted->item[i], a->bytes))
            return true;
    return false;
}

bool forwarded_trusts(const struct netrange_list *trusted, const char *address)
{
    struct address a;

    return read_address(str_of(address), &a) && trusts(trusted, &a);
}

/* Goes one address to the left, through this line: false when it has none more. */
static bool step(struct str *line, struct str *item)
{
    const char *comma = line->n ? memrchr(line->p, ',', line->n) : NULL;
    size_t at = comma ? (size_t)(comma - line->p) : 0;

    if (!line->p)
        return false;
    *item = comma ? (struct str){ comma + 1, line->n - at - 1 } : *line;
    *line = comma ? (struct str){ line->p, at } : (struct str){ 0 };
    *item = str_trim(*item);
    return true;
}

void forwarded_client(const struct http_head *h, const char *peer,
                      const struct netrange_list *trusted, char out[static FORWARDED_ADDRESS])
{
    struct address at;
    struct str item;
    int hops = 0;

    snprintf(out, FORWARDED_ADDRESS, "%s", peer);
    if (!trusted || !trusted->n || !read_address(str_of(peer), &at) || !trusts(trusted, &at))
        return;
    for (int i = h->count - 1; i >= 0; i--) {
        struct str line = h->field[i].value;

        if (!str_iis(h->field[i].name, "x-forwarded-for"))
            continue;
        while (step(&line, &item)) {
            if (!read_address(item, &at) || ++hops > FORWARDED_HOPS)
                return;
            print(&at, out);
            if (!trusts(trusted, &at))
                return;
        }
    }
}

bool forwarded_any(const struct http_head *h)
{
    static const char *const names[] = { "x-forwarded-for",   "forwarded", "x-forwarded-host",
                                         "x-forwarded-proto", "x-real-ip", "via" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (http_get(h, names[i]).p)
            return true;
    return false;
}
