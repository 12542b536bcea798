/* net_plan.c - see net_plan.h. */
#include "jail/net_plan.h"

#include <arpa/inet.h>
#include <ctype.h>

/* All keepers of a machine share one bridge, so they must agree. */
static char configured_subnet[sizeof("255.255.0.0/16")] = "10.201.0.0/16";
static char configured_bridge[NET_BRIDGE_MAX + 1] = "cove0";
static char configured_allow[1024];
const struct net_options net_configured = { .subnet = configured_subnet,
                                            .bridge = configured_bridge,
                                            .allow = configured_allow };

static int check_subnet(const char *value, struct err *err)
{
    struct net_plan p;

    return net_plan_init(&p, &(struct net_options){ .subnet = value }, err);
}

static int check_bridge(const char *value, struct err *err)
{
    struct net_plan p;

    return net_plan_init(&p, &(struct net_options){ .bridge = value }, err);
}

static int check_allow(const char *value, struct err *err)
{
    struct net_plan p;

    return net_plan_init(&p, &(struct net_options){ .allow = value }, err);
}

const struct setting net_settings[] = {
    { "network.subnet", .text = configured_subnet, .max = sizeof(configured_subnet),
      .check = check_subnet,
      .help =
          "the IPv4 /16 that sandboxes with a network are in; one for all keepers of a machine" },
    { "network.bridge", .text = configured_bridge, .max = sizeof(configured_bridge),
      .check = check_bridge, .help = "the bridge they are connected to" },
    { "network.allow", .text = configured_allow, .max = sizeof(configured_allow),
      .check = check_allow,
      .help = "networks they may reach though not of the public internet, with commas between" },
    {}
};

size_t net_ip_size(int family) { return family == AF_INET ? 4 : 16; }

/* Clears the bits behind the prefix; false when some were set. */
static bool mask(struct net_cidr *c)
{
    bool clean = true;

    for (unsigned i = 0; i < net_ip_size(c->ip.family); i++) {
        unsigned keep = c->prefix > i * 8 ? MIN(c->prefix - i * 8, 8u) : 0;
        unsigned char kept = (unsigned char)(c->ip.b[i] & (0xff00u >> keep));

        clean = clean && kept == c->ip.b[i];
        c->ip.b[i] = kept;
    }
    return clean;
}

int net_cidr_parse(struct str text, struct net_cidr *out, struct err *err)
{
    struct net_cidr c = { .prefix = 0 };
    char address[INET6_ADDRSTRLEN];
    struct str host, tail;
    bool has_prefix = str_cut(text, '/', &host, &tail);
    uint64_t prefix;

    if (host.n >= sizeof(address))
        return err_set(err, ERR_INVALID, "'%.*s' is not a network", (int)MIN(text.n, 60u), text.p);
    memcpy(address, host.p, host.n);
    address[host.n] = 0;
    c.ip.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    prefix = net_ip_size(c.ip.family) * 8;
    if (inet_pton(c.ip.family, address, c.ip.b) != 1 ||
        (has_prefix && (str_u64(tail, &prefix) || prefix > net_ip_size(c.ip.family) * 8)))
        return err_set(err, ERR_INVALID, "'%.*s' is not a network such as 10.1.0.0/16 or fd12::/16",
                       (int)MIN(text.n, 60u), text.p);
    c.prefix = (unsigned)prefix;
    if (!mask(&c))
        return err_set(err, ERR_INVALID, "network '%.*s' has bits set behind its prefix",
                       STR_ARG(text));
    *out = c;
    return 0;
}

void net_cidr_print(const struct net_cidr *c, char *out, size_t n)
{
    char address[INET6_ADDRSTRLEN];

    inet_ntop(c->ip.family, c->ip.b, address, sizeof(address));
    snprintf(out, n, "%s/%u", address, c->prefix);
}

bool net_cidr_overlap(const struct net_cidr *a, const struct net_cidr *b)
{
    struct net_cidr x = *a, y = *b;

    x.prefix = y.prefix = MIN(a->prefix, b->prefix);
    mask(&x);
    mask(&y);
    return a->ip.family == b->ip.family && !memcmp(x.ip.b, y.ip.b, net_ip_size(a->ip.family));
}

static int copy_text(char *out, size_t n, const char *text, const char *what, struct err *err)
{
    if (strlen(text) >= n)
        return err_set(err, ERR_INVALID, "%s must be shorter than %zu bytes", what, n);
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

/* The name goes into the filter's text: nothing but letters and digits. */
static int init_bridge(struct net_plan *p, const char *name, struct err *err)
{
    bool good = isalpha((unsigned char)name[0]) && strlen(name) <= NET_BRIDGE_MAX;

    for (const char *c = name; *c; c++)
        good = good && isalnum((unsigned char)*c);
    if (!good)
        return err_set(err, ERR_INVALID,
                       "network.bridge must be 1 to %d letters and digits, a letter first",
                       NET_BRIDGE_MAX);
    memcpy(p->bridge, name, strlen(name) + 1);
    return 0;
}

static int init_subnet(struct net_plan *p, const char *text, struct err *err)
{
    if (net_cidr_parse(str_of(text), &p->subnet, err))
        return err_in(err, "network.subnet");
    if (p->subnet.ip.family != AF_INET || p->subnet.prefix != 16)
        return err_set(err, ERR_INVALID,
                       "network.subnet must be an IPv4 /16 such as 10.201.0.0/16");
    p->gateway = p->subnet.ip;
    p->gateway.b[3] = 1;
    /* A unique local prefix that follows from the IPv4 one: fd, "cov", its two bytes. */
    p->subnet6 = (struct net_cidr){ .ip = { .family = AF_INET6 }, .prefix = 64 };
    memcpy(p->subnet6.ip.b,
           "\xfd"
           "cov",
           4);
    memcpy(p->subnet6.ip.b + 4, p->subnet.ip.b, 2);
    p->gateway6 = p->subnet6.ip;
    p->gateway6.b[15] = 1;
    return 0;
}

static int init_allow(struct net_plan *p, const char *list, struct err *err)
{
    struct str rest = str_of(list), item;

    while (str_next(&rest, ',', &item)) {
        if (!item.n)
            continue;
        if (p->nallow == NET_ALLOW_MAX)
            return err_set(err, ERR_INVALID, "network.allow has more than %d networks",
                           NET_ALLOW_MAX);
        if (net_cidr_parse(item, &p->allow[p->nallow], err))
            return err_in(err, "network.allow");
        p->nallow++;
    }
    return 0;
}

int net_plan_init(struct net_plan *p, const struct net_options *o, struct err *err)
{
    const struct net_options none = { 0 };
    struct net_plan plan = { .nallow = 0 };

    o = o ? o : &none;
    if (copy_text(plan.run_dir, sizeof(plan.run_dir), o->run_dir ? o->run_dir : "/run/cove",
                  "the run directory's path", err) ||
        copy_text(plan.resolv_conf, sizeof(plan.resolv_conf),
                  o->resolv_conf ? o->resolv_conf : "/etc/resolv.conf", "resolv.conf's path",
                  err) ||
        init_bridge(&plan, o->bridge ? o->bridge : "cove0", err) ||
        init_subnet(&plan, o->subnet ? o->subnet : "10.201.0.0/16", err) ||
        init_allow(&plan, o->allow, err))
        return -1;
    *p = plan;
    return 0;
}

/* .0.0 is the network's, .0.1 the gateway's; 49,152 numbers never reach .255.255. */
static void put_host(unsigned char *end, uint32_t index)
{
    end[0] = (unsigned char)((index + 2) >> 8);
    end[1] = (unsigned char)(index + 2);
}

struct net_ip net_plan_address(const struct net_plan *p, uint32_t index)
{
    struct net_ip ip = p->subnet.ip;

    put_host(ip.b + 2, index);
    return ip;
}

struct net_ip net_plan_address6(const struct net_plan *p, uint32_t index)
{
    struct net_ip ip = p->subnet6.ip;

    put_host(ip.b + 14, index);
    return ip;
}

void net_plan_port(const struct net_plan *p, uint32_t index, char out[static IFNAMSIZ])
{
    snprintf(out, IFNAMSIZ, "%s-%u", p->bridge, index % NET_INDEXES);
}

int net_plan_index(const struct net_plan *p, const char *port, uint32_t *index)
{
    struct str name, number;
    uint64_t v;

    if (!str_cut(str_of(port), '-', &name, &number) || !str_is(name, p->bridge) ||
        str_u64(number, &v) || v >= NET_INDEXES)
        return -1;
    *index = (uint32_t)v;
    return 0;
}

void net_plan_mac(const struct net_ip *ip, unsigned char out[static NET_MAC])
{
    out[0] = 0x02; /* locally administered */
    out[1] = 0xc0;
    memcpy(out + 2, ip->b, 4);
}
