/* net_flows.c - see net_flows.h. */
#include "jail/net_flows.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "base/log.h"
#include "jail/net_element.h"

/* Filters of ctnetlink live in an internal header of the kernel: bit 0 is "source address". */
enum { FILTER_SOURCE = 1 << 0 };

static const char *set_of(int family) { return family == AF_INET ? "seen4" : "seen6"; }

static const struct net_ip *gateway_of(const struct net_plan *p, int family)
{
    return family == AF_INET ? &p->gateway : &p->gateway6;
}

static bool is_complete(struct netlink *nl, const struct net_plan *p, int family)
{
    return net_element_has(nl, p, set_of(family), gateway_of(p, family)) > 0;
}

int net_flows_forget(struct netlink *nl, const struct net_ip *ip)
{
    union netlink_request r;
    struct nfgenmsg *g =
        netlink_begin(&r, (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_DELETE, 0, sizeof(*g));
    struct nlattr *tuple, *addresses, *filter;
    int result;

    g->nfgen_family = (unsigned char)ip->family;
    g->version = 1; /* "the family counts, too" */
    tuple = mnl_attr_nest_start(&r.head, CTA_TUPLE_ORIG);
    addresses = mnl_attr_nest_start(&r.head, CTA_TUPLE_IP);
    mnl_attr_put(&r.head, ip->family == AF_INET ? CTA_IP_V4_SRC : CTA_IP_V6_SRC,
                 net_ip_size(ip->family), ip->b);
    mnl_attr_nest_end(&r.head, addresses);
    mnl_attr_nest_end(&r.head, tuple);
    filter = mnl_attr_nest_start(&r.head, CTA_FILTER);
    mnl_attr_put_u32(&r.head, CTA_FILTER_ORIG_FLAGS, FILTER_SOURCE);
    mnl_attr_put_u32(&r.head, CTA_FILTER_REPLY_FLAGS, 0);
    mnl_attr_nest_end(&r.head, filter);
    result = netlink_ask(nl, &r);
    return result && errno == ENOENT ? 0 : result;
}

int net_flows_clear(struct netlink *nl, const struct net_plan *p, const struct net_ip *ip)
{
    int seen = net_element_has(nl, p, set_of(ip->family), ip);

    if (!seen && is_complete(nl, p, ip->family))
        return 0;
    if (net_flows_forget(nl, ip))
        return -1;
    return seen > 0 ? net_element_drop(nl, p, set_of(ip->family), ip) : 0;
}

/* ---- after the filter was loaded ---- */

struct settling {
    struct netlink *nl;
    const struct net_plan *p;
    int failed;
};

/* Who opened it, when that is one of ours and not the gateway: that says something else. */
static bool opener(const struct net_plan *p, const struct nlattr *tuple, struct net_ip *out)
{
    static const struct {
        unsigned type;
        int family;
    } kinds[] = { { CTA_IP_V4_SRC, AF_INET }, { CTA_IP_V6_SRC, AF_INET6 } };
    const struct nlattr *addresses = netlink_part(tuple, CTA_TUPLE_IP);

    for (size_t i = 0; addresses && i < ARRAY_LEN(kinds); i++) {
        const struct nlattr *a = netlink_part(addresses, kinds[i].type);
        size_t size = net_ip_size(kinds[i].family);
        const struct net_cidr *ours = kinds[i].family == AF_INET ? &p->subnet : &p->subnet6;
        struct net_cidr one = { .ip.family = kinds[i].family, .prefix = (unsigned)size * 8 };

        if (!a || mnl_attr_get_payload_len(a) < size)
            continue;
        memcpy(one.ip.b, mnl_attr_get_payload(a), size);
        *out = one.ip;
        return net_cidr_overlap(ours, &one) &&
               memcmp(one.ip.b, gateway_of(p, one.ip.family)->b, size) != 0;
    }
    return false;
}

static int note_flow(const struct nlmsghdr *h, void *arg)
{
    struct settling *s = arg;
    const struct nlattr *a = NULL;
    struct net_ip ip;

    while ((a = netlink_next(h, sizeof(struct nfgenmsg), a)))
        if (mnl_attr_get_type(a) == CTA_TUPLE_ORIG && opener(s->p, a, &ip) &&
            net_element_has(s->nl, s->p, set_of(ip.family), &ip) <= 0)
            s->failed |= net_element_put(s->nl, s->p, set_of(ip.family), &ip);
    return MNL_CB_OK;
}

void net_flows_settle(struct netlink *nl, const struct net_plan *p)
{
    struct settling s = { .nl = nl, .p = p };
    union netlink_request r;
    struct nfgenmsg *g;

    if (is_complete(nl, p, AF_INET) && is_complete(nl, p, AF_INET6))
        return;
    g = netlink_begin(&r, (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_GET, 0, sizeof(*g));
    g->nfgen_family = AF_UNSPEC;
    if (netlink_dump(NETLINK_NETFILTER, &r, note_flow, &s) || s.failed ||
        net_element_put(nl, p, set_of(AF_INET), &p->gateway) ||
        net_element_put(nl, p, set_of(AF_INET6), &p->gateway6))
        log_warn("flows of earlier sandboxes are unknown: making a network takes longer",
                 KV("error", strerrordesc_np(errno)));
}
