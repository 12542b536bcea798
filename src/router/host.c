/* host.c - see host.h. */
#include "router/host.h"

#include <arpa/inet.h>
#include <string.h>

struct str host_name(struct str host)
{
    struct str name, port;

    if (!host.n || host.p[0] == '[')
        return (struct str){ 0 };
    str_cut(host, ':', &name, &port);
    if (name.n && name.p[name.n - 1] == '.')
        name.n--;
    return name;
}

static size_t span(struct str s, const char *also)
{
    size_t i = 0;

    while (i < s.n &&
           ((s.p[i] >= '0' && s.p[i] <= '9') ||
            ((s.p[i] | 0x20) >= 'a' && (s.p[i] | 0x20) <= 'z') || (s.p[i] && strchr(also, s.p[i]))))
        i++;
    return i;
}

/* Of a host and a port alone: what we answer may lead there, so it must mean to a browser what it
 * means to us. "localhost:@evil.example" is another host to one. */
static bool is_plain(struct str host)
{
    size_t n;

    if (!str_starts(host, "[")) {
        n = span(host, "-._");
    } else {
        n = 1 + span((struct str){ host.p + 1, host.n - 1 }, ":.%-_~");
        if (n == host.n || host.p[n++] != ']')
            return false;
    }
    if (n < host.n && host.p[n++] != ':')
        return false;
    while (n < host.n && host.p[n] >= '0' && host.p[n] <= '9')
        n++;
    return n == host.n;
}

/* "cove.test" itself, or "x.cove.test". */
static bool is_or_below(struct str name, struct str parent)
{
    if (!parent.n || name.n < parent.n ||
        !str_ieq((struct str){ name.p + name.n - parent.n, parent.n }, parent))
        return false;
    return name.n == parent.n || name.p[name.n - parent.n - 1] == '.';
}

static bool is_address(struct str name)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr a;

    if (name.n >= sizeof(text))
        return false;
    memcpy(text, name.p, name.n);
    text[name.n] = 0;
    return inet_pton(AF_INET, text, &a) == 1;
}

static bool is_machine(struct str name, struct str machine)
{
    struct str local = STR(".local");

    if (!machine.n)
        return false;
    if (name.n == machine.n + local.n &&
        str_ieq((struct str){ name.p + machine.n, local.n }, local))
        name.n = machine.n;
    return str_ieq(name, machine);
}

bool host_is_ours(const struct host_names *h, struct str host)
{
    struct str name = host_name(host);

    if (!is_plain(host))
        return false;
    if (!name.n) /* none, as HTTP/1.0 may; or [::1] */
        return !host.n || host.p[0] == '[';
    if (is_address(name) || !memchr(name.p, '.', name.n) || is_or_below(name, STR("localhost")) ||
        is_or_below(name, STR("internal")) || is_or_below(name, h->domain) ||
        is_machine(name, h->machine))
        return true;
    for (const char *const *n = h->names; n && *n; n++) {
        struct str list = str_of(*n), item;

        while (str_next(&list, ',', &item))
            if (is_or_below(name, host_name(item)))
                return true;
    }
    return false;
}
