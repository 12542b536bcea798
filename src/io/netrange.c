/* netrange.c - see netrange.h. */
#include "io/netrange.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* What is not a host of the public internet: IANA's registries of special addresses (RFC 6890 and
 * its updates), and the two metadata addresses that lie outside of them. Of IPv6 only 2000::/3 has
 * been given out, so that all else needs no rows. */
static const struct special {
    const char *range, *what;
} special[] = {
    { "0.0.0.0/8", "is unspecified" },
    { "10.0.0.0/8", "is private" },
    { "100.64.0.0/10", "is a carrier's own" },
    { "127.0.0.0/8", "is this machine" },
    { "169.254.0.0/16", "is link-local, as clouds use for metadata" },
    { "172.16.0.0/12", "is private" },
    { "192.0.0.0/24", "is reserved for protocols" },
    { "192.0.2.0/24", "is for documentation" },
    { "192.88.99.0/24", "is a relay of 6to4" },
    { "192.168.0.0/16", "is private" },
    { "198.18.0.0/15", "is for benchmarks" },
    { "198.51.100.0/24", "is for documentation" },
    { "203.0.113.0/24", "is for documentation" },
    { "168.63.129.16", "is a cloud's metadata" },
    { "224.0.0.0/4", "is multicast" },
    { "240.0.0.0/4", "is reserved" },
    { "::/128", "is unspecified" },
    { "::1/128", "is this machine" },
    { "fc00::/7", "is private" },
    { "fe80::/10", "is link-local" },
    { "fec0::/10", "is private" },
    { "ff00::/8", "is multicast" },
    { "2001::/23", "is reserved for protocols" }, /* Teredo among them */
    { "2001:db8::/32", "is for documentation" },
    { "2002::/16", "is 6to4, which hides an IPv4 address" },
    { "3fff::/20", "is for documentation" },
};

static const struct netrange mapped = { { [10] = 0xff, [11] = 0xff }, 96 };
static const struct netrange nat64 = { { 0, 0x64, 0xff, 0x9b }, 96 };
static const struct netrange global = { { 0x20 }, 3 };

bool netrange_has(const struct netrange *r, const unsigned char addr[static 16])
{
    unsigned bytes = r->bits / 8, rest = r->bits % 8;

    return !memcmp(r->addr, addr, bytes) &&
           (!rest || !((r->addr[bytes] ^ addr[bytes]) >> (8 - rest)));
}

/* ---- text ---- */

static int set_address(const char *text, struct netrange *out)
{
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, out->addr + 12) == 1) {
        out->addr[10] = out->addr[11] = 0xff;
        return 32;
    }
    return inet_pton(AF_INET6, text, out->addr) == 1 ? 128 : -1;
}

static bool clean_behind(const struct netrange *r)
{
    for (unsigned i = r->bits; i < 128; i++)
        if (r->addr[i / 8] >> (7 - i % 8) & 1)
            return false;
    return true;
}

int netrange_parse(struct str text, struct netrange *out, struct err *err)
{
    struct str host, bits_text;
    char buf[INET6_ADDRSTRLEN];
    struct netrange r;
    uint64_t bits;
    int most = -1;
    bool some;

    text = str_trim(text);
    some = str_cut(text, '/', &host, &bits_text);
    if (host.n && host.n < sizeof(buf) && !memchr(host.p, 0, host.n)) {
        memcpy(buf, host.p, host.n);
        buf[host.n] = 0;
        most = set_address(buf, &r);
    }
    if (most < 0)
        return err_set(err, ERR_INVALID,
                       "'%.*s' is no address prefix (write 10.0.0.0/8 or fd00::/8)",
                       (int)MIN(text.n, (size_t)60), text.p);
    bits = (uint64_t)most;
    if (some && (bits_text.n > 3 || str_u64(bits_text, &bits) || bits > (uint64_t)most))
        return err_set(err, ERR_INVALID, "'%.*s': behind the / there must be a number up to %d",
                       STR_ARG(text), most);
    r.bits = (unsigned)(128 - most) + (unsigned)bits;
    if (!clean_behind(&r))
        return err_set(err, ERR_INVALID, "'%.*s' has bits behind its prefix of %u", STR_ARG(text),
                       (unsigned)bits);
    *out = r;
    return 0;
}

int netrange_list_add(struct netrange_list *list, struct str text, struct err *err)
{
    struct netrange_list next = *list;
    struct str item;

    while (str_next(&text, ',', &item)) {
        if (!item.n)
            continue;
        if (next.n == NETRANGE_LIST)
            return err_set(err, ERR_LIMIT, "a list has at most %d address prefixes", NETRANGE_LIST);
        if (netrange_parse(item, &next.item[next.n++], err))
            return -1;
    }
    *list = next;
    return 0;
}

/* ---- judging ---- */

/* As 16 bytes, IPv4 mapped; false: neither. */
static bool bytes_of(const struct addr *a, unsigned char out[static 16])
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a->sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&a->sa;

    if (a->sa.ss_family == AF_INET6) {
        memcpy(out, &in6->sin6_addr, 16);
        return true;
    }
    memcpy(out, mapped.addr, 12);
    memcpy(out + 12, &in->sin_addr, 4);
    return a->sa.ss_family == AF_INET;
}

static bool listed(const struct netrange_list *list, const unsigned char addr[static 16])
{
    for (size_t i = 0; list && i < list->n; i++)
        if (netrange_has(&list->item[i], addr))
            return true;
    return false;
}

/* Of an address that a translator will take an IPv4 address out of: that one. */
static void unwrap(unsigned char addr[static 16])
{
    if (netrange_has(&nat64, addr))
        memcpy(addr, mapped.addr, 12);
}

/* Behind any prefix of 64 bits: a tunnel to the IPv4 address at the end. */
static bool is_isatap(const unsigned char addr[static 16])
{
    static const unsigned char mark[] = { 0x5e, 0xfe };

    return !memcmp(addr + 10, mark, sizeof(mark)) && !(addr[8] & 0xfd) && !addr[9];
}

static const char *judge(const unsigned char addr[static 16])
{
    for (size_t i = 0; i < ARRAY_LEN(special); i++) {
        struct netrange r;
        struct err impossible;

        if (!netrange_parse(str_of(special[i].range), &r, &impossible) && netrange_has(&r, addr))
            return special[i].what;
    }
    if (is_isatap(addr))
        return "is ISATAP, which hides an IPv4 address";
    return netrange_has(&mapped, addr) || netrange_has(&global, addr) ? NULL : "is reserved";
}

const char *netrange_refuse(const struct addr *a, const struct netrange_list *allow)
{
    unsigned char addr[16];

    if (!bytes_of(a, addr))
        return "is no address of the internet";
    if (listed(allow, addr))
        return NULL;
    unwrap(addr);
    return listed(allow, addr) ? NULL : judge(addr);
}

/* ---- as a list ---- */

static void put_prefix(struct buf *out, int family, const unsigned char *addr, unsigned bits)
{
    char text[INET6_ADDRSTRLEN];

    inet_ntop(family, addr, text, sizeof(text));
    buf_printf(out, "%s%s/%u", out->len ? ", " : "", text, bits);
}

/* All of a prefix but what lies in a longer one within: at each bit between, the other half. */
static void put_around(struct buf *out, const struct netrange *hole, unsigned bits)
{
    for (; bits < hole->bits; bits++) {
        unsigned char addr[16] = { 0 }, flip = (unsigned char)(0x80 >> bits % 8);

        memcpy(addr, hole->addr, bits / 8 + 1);
        addr[bits / 8] ^= flip;
        addr[bits / 8] &= (unsigned char)~(flip - 1);
        put_prefix(out, AF_INET6, addr, bits + 1);
    }
}

void netrange_print(int family, struct buf *out)
{
    static const unsigned char outside[][2] = { { 0x40, 2 }, { 0x80, 1 } }; /* above 2000::/3 */

    for (size_t i = 0; i < ARRAY_LEN(special); i++) {
        struct netrange r;
        struct err impossible;
        bool v4 = !strchr(special[i].range, ':');

        if (netrange_parse(str_of(special[i].range), &r, &impossible))
            continue;
        if (v4 && family == AF_INET)
            put_prefix(out, AF_INET, r.addr + 12, r.bits - 96);
        if (v4 && family == AF_INET6) {
            memcpy(r.addr, nat64.addr, 12);
            put_prefix(out, AF_INET6, r.addr, r.bits);
        } else if (family == AF_INET6 && netrange_has(&global, r.addr))
            put_prefix(out, AF_INET6, r.addr, r.bits);
    }
    if (family != AF_INET6)
        return;
    put_around(out, &nat64, global.bits); /* below 2000::/3 */
    for (size_t i = 0; i < ARRAY_LEN(outside); i++)
        put_prefix(out, AF_INET6, (unsigned char[16]){ outside[i][0] }, outside[i][1]);
}

/* ---- this machine ---- */

static void set_any_port(struct addr *a)
{
    /* both kinds have it at the same place */
    ((struct sockaddr_in *)(void *)&a->sa)->sin_port = 0;
}

/* 1 it can be bound, 0 not, -1 */
static int bindable(const struct addr *a, struct err *err)
{
    AUTO(closep) int fd = socket(a->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 && errno == EAFNOSUPPORT) /* no such address is anybody's here */
        return 0;
    if (fd < 0)
        return err_sys(err, "socket");
    if (!bind(fd, (const struct sockaddr *)&a->sa, a->len))
        return 1;
    return errno == EADDRNOTAVAIL ? 0 : err_sys(err, "ask whether an address is this machine's");
}

/* Does a packet for it stay here? The source the kernel chooses is then that address. */
static bool loops_back(const struct addr *a)
{
    AUTO(closep) int fd = socket(a->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct addr to = *a, from = { .len = sizeof(from.sa) };
    unsigned char mine[16], theirs[16];

    ((struct sockaddr_in *)(void *)&to.sa)->sin_port = htons(9);
    return fd >= 0 && !connect(fd, (const struct sockaddr *)&to.sa, to.len) &&
           !getsockname(fd, (struct sockaddr *)&from.sa, &from.len) && bytes_of(&from, mine) &&
           bytes_of(&to, theirs) && !memcmp(mine, theirs, 16);
}

/* Asked by bind() and not of the list of interfaces: that needs a netlink socket, which the server
 * may not have, and leaves out what a route makes local (ip route add local ...). Where any address
 * may be bound (net.ipv4.ip_nonlocal_bind), one that is nobody's tells. */
int netrange_own(const struct addr *a, const struct netrange_list *allow, struct err *err)
{
    struct addr probe = *a, nobody;
    unsigned char addr[16];
    int r;

    if (bytes_of(a, addr) && listed(allow, addr))
        return 0;
    set_any_port(&probe);
    r = bindable(&probe, err);
    if (r <= 0)
        return r;
    if (addr_parse(a->sa.ss_family == AF_INET ? STR("192.0.2.255:0") : STR("[2001:db8:ffff::1]:0"),
                   &nobody, err))
        return -1;
    r = bindable(&nobody, err);
    if (r < 0)
        return -1;
    return r ? loops_back(a) : 1;
}
