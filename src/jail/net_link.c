/* net_link.c - see net_link.h. */
#include "jail/net_link.h"

#include <errno.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <unistd.h>

enum { WAIT_TRIES = 2000, WAIT_US = 500 };
/* RFC 2863; linux/if.h has them, but cannot be included beside net/if.h. */
enum { OPER_UNKNOWN = 0, OPER_DOWN = 2, OPER_UP = 6 };

static struct ifinfomsg *begin_link(union netlink_request *r, unsigned type, unsigned flags)
{
    struct ifinfomsg *i = netlink_begin(r, type, flags, sizeof(*i));

    i->ifi_family = AF_UNSPEC;
    return i;
}

static void put_ip(struct nlmsghdr *h, unsigned type, const struct net_ip *ip)
{
    mnl_attr_put(h, (uint16_t)type, net_ip_size(ip->family), ip->b);
}

int net_link_add_bridge(struct netlink *nl, const char *name, const unsigned char *mac)
{
    union netlink_request r;
    struct nlattr *info, *data;

    begin_link(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    mnl_attr_put_strz(&r.head, IFLA_IFNAME, name);
    mnl_attr_put(&r.head, IFLA_ADDRESS, NET_MAC, mac); /* else it changes with its ports */
    info = mnl_attr_nest_start(&r.head, IFLA_LINKINFO);
    mnl_attr_put_strz(&r.head, IFLA_INFO_KIND, "bridge");
    data = mnl_attr_nest_start(&r.head, IFLA_INFO_DATA);
    mnl_attr_put_u8(&r.head, IFLA_BR_MCAST_SNOOPING, 0);
    mnl_attr_nest_end(&r.head, data);
    mnl_attr_nest_end(&r.head, info);
    return netlink_ask(nl, &r);
}

/* One queue each way, which is what a pair uses anyhow. Not told so the kernel makes one per core
 * and takes them back, waiting for an RCU grace period at each end. */
static void put_queues(struct nlmsghdr *h)
{
    mnl_attr_put_u32(h, IFLA_NUM_TX_QUEUES, 1);
    mnl_attr_put_u32(h, IFLA_NUM_RX_QUEUES, 1);
}

int net_link_add_pair(struct netlink *nl, const char *name, const char *peer, int peer_ns,
                      const unsigned char *mac)
{
    union netlink_request r;
    struct nlattr *info, *data, *other;

    begin_link(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    mnl_attr_put_strz(&r.head, IFLA_IFNAME, name);
    put_queues(&r.head);
    info = mnl_attr_nest_start(&r.head, IFLA_LINKINFO);
    mnl_attr_put_strz(&r.head, IFLA_INFO_KIND, "veth");
    data = mnl_attr_nest_start(&r.head, IFLA_INFO_DATA);
    other = mnl_attr_nest_start(&r.head, VETH_INFO_PEER);
    mnl_nlmsg_put_extra_header(&r.head, sizeof(struct ifinfomsg)); /* up at once: ENOTCONN */
    mnl_attr_put_strz(&r.head, IFLA_IFNAME, peer);
    put_queues(&r.head);
    mnl_attr_put(&r.head, IFLA_ADDRESS, NET_MAC, mac);
    mnl_attr_put_u32(&r.head, IFLA_NET_NS_FD, (uint32_t)peer_ns);
    mnl_attr_nest_end(&r.head, other);
    mnl_attr_nest_end(&r.head, data);
    mnl_attr_nest_end(&r.head, info);
    return netlink_ask(nl, &r);
}

static int set_port(struct netlink *nl, unsigned index)
{
    /* Nothing is flooded to it and nothing learnt from it: it gets what is addressed to its MAC,
     * which net_link_set_forwarding() tells the bridge. */
    static const struct {
        uint16_t type;
        uint8_t value;
    } flags[] = {
        { IFLA_BRPORT_ISOLATED, 1 },      { IFLA_BRPORT_LEARNING, 0 },
        { IFLA_BRPORT_UNICAST_FLOOD, 0 }, { IFLA_BRPORT_MCAST_FLOOD, 0 },
        { IFLA_BRPORT_BCAST_FLOOD, 0 },
    };
    union netlink_request r;
    struct ifinfomsg *i = begin_link(&r, RTM_SETLINK, 0);
    struct nlattr *nest;

    i->ifi_family = AF_BRIDGE;
    i->ifi_index = (int)index;
    nest = mnl_attr_nest_start(&r.head, IFLA_PROTINFO | NLA_F_NESTED);
    for (size_t k = 0; k < ARRAY_LEN(flags); k++)
        mnl_attr_put_u8(&r.head, flags[k].type, flags[k].value);
    mnl_attr_nest_end(&r.head, nest);
    return netlink_ask(nl, &r);
}

int net_link_join(struct netlink *nl, unsigned index, unsigned bridge)
{
    union netlink_request r;

    begin_link(&r, RTM_SETLINK, 0)->ifi_index = (int)index;
    mnl_attr_put_u32(&r.head, IFLA_MASTER, bridge);
    return netlink_ask(nl, &r) || set_port(nl, index) ? -1 : 0;
}

static int set_flags(struct netlink *nl, unsigned index, unsigned flags)
{
    union netlink_request r;
    struct ifinfomsg *i = begin_link(&r, RTM_NEWLINK, 0);

    i->ifi_index = (int)index;
    i->ifi_flags = flags;
    i->ifi_change = IFF_UP;
    return netlink_ask(nl, &r);
}

int net_link_up(struct netlink *nl, unsigned index) { return set_flags(nl, index, IFF_UP); }

int net_link_down(struct netlink *nl, unsigned index) { return set_flags(nl, index, 0); }

static int see_state(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a = NULL;

    while ((a = netlink_next(h, sizeof(struct ifinfomsg), a)))
        if (mnl_attr_get_type(a) == IFLA_OPERSTATE)
            *(unsigned *)arg = mnl_attr_get_u8(a);
    return MNL_CB_OK;
}

static int see_traffic(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a = NULL;

    while ((a = netlink_next(h, sizeof(struct if_stats_msg), a)))
        if (mnl_attr_get_type(a) == IFLA_STATS_LINK_64 &&
            mnl_attr_get_payload_len(a) >= sizeof(struct rtnl_link_stats64))
            memcpy(arg, mnl_attr_get_payload(a), sizeof(struct rtnl_link_stats64));
    return MNL_CB_OK;
}

/* RTM_GETLINK would do, but tells fifty things more. */
int net_link_traffic(struct netlink *nl, unsigned index, uint64_t *received, uint64_t *sent)
{
    struct rtnl_link_stats64 s = { 0 }; /* copied: an attribute is aligned to 4 bytes only */
    union netlink_request r;
    struct if_stats_msg *m = netlink_begin(&r, RTM_GETSTATS, 0, sizeof(*m));

    m->ifindex = index;
    m->filter_mask = IFLA_STATS_FILTER_BIT(IFLA_STATS_LINK_64);
    if (netlink_get(nl, &r, see_traffic, &s))
        return -1;
    *received = s.rx_bytes;
    *sent = s.tx_bytes;
    return 0;
}

int net_link_wait(struct netlink *nl, unsigned index)
{
    unsigned state = OPER_DOWN;
    union netlink_request r;

    for (int i = 0; i < WAIT_TRIES; i++) {
        if (i)
            usleep(WAIT_US);
        begin_link(&r, RTM_GETLINK, 0)->ifi_index = (int)index;
        if (netlink_get(nl, &r, see_state, &state)) /* since 6.8 asking is enough to get it done */
            return -1;
        if (state == OPER_UP || state == OPER_UNKNOWN)
            return 0;
    }
    errno = ETIMEDOUT;
    return -1;
}

int net_link_delete(struct netlink *nl, unsigned index)
{
    union netlink_request r;

    begin_link(&r, RTM_DELLINK, 0)->ifi_index = (int)index;
    return netlink_ask(nl, &r);
}

static int unless_there(int result) { return result && errno == EEXIST ? 0 : result; }

int net_link_add_address(struct netlink *nl, unsigned index, const struct net_cidr *c)
{
    union netlink_request r;
    struct ifaddrmsg *a = netlink_begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*a));

    a->ifa_family = (uint8_t)c->ip.family;
    a->ifa_prefixlen = (uint8_t)c->prefix;
    a->ifa_index = index;
    put_ip(&r.head, IFA_LOCAL, &c->ip);
    put_ip(&r.head, IFA_ADDRESS, &c->ip);
    if (c->ip.family == AF_INET6) /* usable at once: nobody else can have it */
        mnl_attr_put_u32(&r.head, IFA_FLAGS, IFA_F_NODAD);
    return unless_there(netlink_ask(nl, &r));
}

int net_link_add_route(struct netlink *nl, unsigned index, const struct net_cidr *to,
                       const struct net_ip *via)
{
    union netlink_request r;
    struct rtmsg *m = netlink_begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));

    m->rtm_family = (uint8_t)to->ip.family;
    m->rtm_dst_len = (uint8_t)to->prefix;
    m->rtm_table = RT_TABLE_MAIN;
    m->rtm_protocol = RTPROT_BOOT;
    m->rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    m->rtm_type = RTN_UNICAST;
    if (to->prefix)
        put_ip(&r.head, RTA_DST, &to->ip);
    if (via)
        put_ip(&r.head, RTA_GATEWAY, via);
    mnl_attr_put_u32(&r.head, RTA_OIF, index);
    return unless_there(netlink_ask(nl, &r));
}

static struct ndmsg *begin_neighbour(union netlink_request *r, unsigned type, unsigned index,
                                     int family)
{
    struct ndmsg *n =
        netlink_begin(r, type, type == RTM_NEWNEIGH ? NLM_F_CREATE | NLM_F_REPLACE : 0, sizeof(*n));

    n->ndm_family = (uint8_t)family;
    n->ndm_ifindex = (int)index;
    n->ndm_state = NUD_PERMANENT;
    return n;
}

int net_link_set_neighbour(struct netlink *nl, unsigned index, const struct net_ip *ip,
                           const unsigned char *mac)
{
    union netlink_request r;

    begin_neighbour(&r, RTM_NEWNEIGH, index, ip->family);
    put_ip(&r.head, NDA_DST, ip);
    mnl_attr_put(&r.head, NDA_LLADDR, NET_MAC, mac);
    return netlink_ask(nl, &r);
}

int net_link_drop_neighbour(struct netlink *nl, unsigned index, const struct net_ip *ip)
{
    union netlink_request r;

    begin_neighbour(&r, RTM_DELNEIGH, index, ip->family);
    put_ip(&r.head, NDA_DST, ip);
    return netlink_ask(nl, &r);
}

int net_link_set_forwarding(struct netlink *nl, unsigned port, const unsigned char *mac)
{
    union netlink_request r;
    struct ndmsg *n = begin_neighbour(&r, RTM_NEWNEIGH, port, AF_BRIDGE);

    n->ndm_state = NUD_NOARP; /* the bridge's word for "static": never aged */
    n->ndm_flags = NTF_MASTER;
    mnl_attr_put(&r.head, NDA_LLADDR, NET_MAC, mac);
    return netlink_ask(nl, &r);
}

/* ---- reading ---- */

static int see_kind(const struct nlattr *a, void *arg)
{
    struct net_link_info *info = arg;

    if (mnl_attr_get_type(a) == IFLA_INFO_KIND)
        info->is_bridge = !strcmp(mnl_attr_get_str(a), "bridge");
    return MNL_CB_OK;
}

static int see_link(const struct nlmsghdr *h, void *arg)
{
    const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    struct net_link_info *info = arg, seen = { .index = (unsigned)i->ifi_index };
    const struct nlattr *a = NULL;
    bool ours = false;

    while ((a = netlink_next(h, sizeof(*i), a))) {
        if (mnl_attr_get_type(a) == IFLA_IFNAME)
            ours = !strcmp(mnl_attr_get_str(a), info->name);
        else if (mnl_attr_get_type(a) == IFLA_LINKINFO)
            mnl_attr_parse_nested(a, see_kind, &seen);
    }
    if (ours) {
        info->index = seen.index;
        info->is_bridge = seen.is_bridge;
    }
    return MNL_CB_OK;
}

/* Tries again while links come and go under the dump; *count starts from 0 each time. */
static int dump_links(mnl_cb_t fn, void *arg, unsigned master, int *count)
{
    union netlink_request r;
    int tries = 20;

    do {
        *count = 0;
        begin_link(&r, RTM_GETLINK, 0);
        if (master)
            mnl_attr_put_u32(&r.head, IFLA_MASTER, master);
        if (!netlink_dump(NETLINK_ROUTE, &r, fn, arg))
            return 0;
    } while (errno == EINTR && --tries);
    return -1;
}

int net_link_find(struct net_link_info *info)
{
    int unused;

    info->index = if_nametoindex(info->name);
    if (!info->index)
        return errno == ENODEV ? 0 : -1;
    return dump_links(see_link, info, 0, &unused);
}

struct ports {
    unsigned bridge;
    int count;
    void (*fn)(const char *name, void *arg);
    void *arg;
};

static int see_port(const struct nlmsghdr *h, void *arg)
{
    struct ports *p = arg;
    const struct nlattr *a = NULL;
    const char *name = "";
    bool ours = false;

    while ((a = netlink_next(h, sizeof(struct ifinfomsg), a))) {
        if (mnl_attr_get_type(a) == IFLA_IFNAME)
            name = mnl_attr_get_str(a);
        else if (mnl_attr_get_type(a) == IFLA_MASTER) /* a kernel may not know the filter */
            ours = mnl_attr_get_u32(a) == p->bridge;
    }
    p->count += ours;
    if (ours && p->fn)
        p->fn(name, p->arg);
    return MNL_CB_OK;
}

int net_link_ports(unsigned bridge, void (*fn)(const char *name, void *arg), void *arg)
{
    struct ports p = { .bridge = bridge, .fn = fn, .arg = arg };

    return dump_links(see_port, &p, bridge, &p.count) ? -1 : p.count;
}

static void see_default(struct net_link_routes *r, unsigned out)
{
    if (out && out == r->own)
        return;
    r->has_default = true; /* one with several next hops names no interface here */
    if (out && r->nuplinks < ARRAY_LEN(r->uplinks))
        r->uplinks[r->nuplinks++] = out;
}

static int see_route(const struct nlmsghdr *h, void *arg)
{
    const struct rtmsg *m = mnl_nlmsg_get_payload(h);
    struct net_link_routes *r = arg;
    struct net_cidr c = { .ip = { .family = m->rtm_family }, .prefix = m->rtm_dst_len };
    const struct nlattr *a = NULL;
    unsigned out = 0;

    if (m->rtm_family != r->wanted.ip.family ||
        (m->rtm_type != RTN_UNICAST && m->rtm_type != RTN_LOCAL))
        return MNL_CB_OK;
    while ((a = netlink_next(h, sizeof(*m), a))) {
        if (mnl_attr_get_type(a) == RTA_DST)
            memcpy(c.ip.b, mnl_attr_get_payload(a),
                   MIN((size_t)mnl_attr_get_payload_len(a), net_ip_size(c.ip.family)));
        else if (mnl_attr_get_type(a) == RTA_OIF)
            out = mnl_attr_get_u32(a);
    }
    if (!c.prefix)
        see_default(r, out);
    else if (!r->overlaps && out != r->own && net_cidr_overlap(&c, &r->wanted)) {
        r->overlaps = true;
        r->route = c;
    }
    return MNL_CB_OK;
}

int net_link_read_routes(struct net_link_routes *r)
{
    union netlink_request q;
    struct rtmsg *m = netlink_begin(&q, RTM_GETROUTE, 0, sizeof(*m));

    m->rtm_family = (uint8_t)r->wanted.ip.family;
    return netlink_dump(NETLINK_ROUTE, &q, see_route, r);
}

struct addresses {
    unsigned index;
    const struct net_ip *own;
    int others;
};

static int see_address(const struct nlmsghdr *h, void *arg)
{
    const struct ifaddrmsg *m = mnl_nlmsg_get_payload(h);
    struct addresses *w = arg;
    const struct nlattr *a = NULL;

    if (m->ifa_index != w->index || m->ifa_family != AF_INET)
        return MNL_CB_OK;
    while ((a = netlink_next(h, sizeof(*m), a)))
        if (mnl_attr_get_type(a) == IFA_LOCAL && memcmp(mnl_attr_get_payload(a), w->own->b, 4) != 0)
            w->others++;
    return MNL_CB_OK;
}

int net_link_other_addresses(unsigned index, const struct net_ip *own)
{
    union netlink_request q;
    struct addresses w = { .index = index, .own = own };
    struct ifaddrmsg *m = netlink_begin(&q, RTM_GETADDR, 0, sizeof(*m));

    m->ifa_family = AF_INET;
    return netlink_dump(NETLINK_ROUTE, &q, see_address, &w) ? -1 : w.others;
}
