/* net_element.c - see net_element.h. */
#include "jail/net_element.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

struct element {
    const char *set;
    unsigned char family; /* of the table */
    unsigned char key[IFNAMSIZ + 8 + 16];
    size_t size;
};

static void put_head(struct nlmsghdr *h, unsigned type, unsigned char family, unsigned resource)
{
    struct nfgenmsg *g;

    h->nlmsg_type = (uint16_t)type;
    h->nlmsg_flags |= NLM_F_REQUEST;
    g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
    g->nfgen_family = family;
    g->version = NFNETLINK_V0;
    g->res_id = htons((uint16_t)resource);
}

static void put_element(struct nlmsghdr *h, unsigned type, const char *table,
                        const struct element *e)
{
    struct nlattr *list, *item, *key;

    put_head(h, (NFNL_SUBSYS_NFTABLES << 8) | type, e->family, 0);
    h->nlmsg_flags |= NLM_F_ACK | (type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0);
    mnl_attr_put_strz(h, NFTA_SET_ELEM_LIST_TABLE, table);
    mnl_attr_put_strz(h, NFTA_SET_ELEM_LIST_SET, e->set);
    list = mnl_attr_nest_start(h, NFTA_SET_ELEM_LIST_ELEMENTS);
    item = mnl_attr_nest_start(h, NFTA_LIST_ELEM);
    key = mnl_attr_nest_start(h, NFTA_SET_ELEM_KEY);
    mnl_attr_put(h, NFTA_DATA_VALUE, e->size, e->key);
    mnl_attr_nest_end(h, key);
    mnl_attr_nest_end(h, item);
    mnl_attr_nest_end(h, list);
}

/* A concatenated key: each part begins at a multiple of four bytes. */
static struct element port_element(const char *set, const char *port, const unsigned char *mac,
                                   const struct net_ip *ip)
{
    struct element e = { .set = set, .family = NFPROTO_BRIDGE };

    memcpy(e.key, port, strlen(port));
    memcpy(e.key + IFNAMSIZ, mac, NET_MAC);
    memcpy(e.key + IFNAMSIZ + 8, ip->b, net_ip_size(ip->family));
    e.size = IFNAMSIZ + 8 + net_ip_size(ip->family);
    return e;
}

static struct element open_element(const char *set, const struct net_ip *ip)
{
    struct element e = { .set = set, .family = NFPROTO_INET, .size = net_ip_size(ip->family) };

    memcpy(e.key, ip->b, e.size);
    return e;
}

static int change(struct netlink *nl, const struct net_plan *p, unsigned type,
                  const struct element *e, size_t n)
{
    union netlink_request r;
    struct mnl_nlmsg_batch *batch = mnl_nlmsg_batch_start(r.space, sizeof(r.space));
    int result;

    put_head(mnl_nlmsg_put_header(mnl_nlmsg_batch_current(batch)), NFNL_MSG_BATCH_BEGIN, AF_UNSPEC,
             NFNL_SUBSYS_NFTABLES);
    mnl_nlmsg_batch_next(batch);
    for (size_t i = 0; i < n; i++) {
        put_element(mnl_nlmsg_put_header(mnl_nlmsg_batch_current(batch)), type, p->bridge, &e[i]);
        mnl_nlmsg_batch_next(batch);
    }
    put_head(mnl_nlmsg_put_header(mnl_nlmsg_batch_current(batch)), NFNL_MSG_BATCH_END, AF_UNSPEC,
             NFNL_SUBSYS_NFTABLES);
    mnl_nlmsg_batch_next(batch);
    result =
        netlink_ask_all(nl, mnl_nlmsg_batch_head(batch), mnl_nlmsg_batch_size(batch), (unsigned)n);
    mnl_nlmsg_batch_stop(batch);
    return result;
}

static int change_index(struct netlink *nl, const struct net_plan *p, unsigned type, uint32_t index)
{
    struct net_ip v4 = net_plan_address(p, index), v6 = net_plan_address6(p, index);
    unsigned char mac[NET_MAC];
    char port[IFNAMSIZ];

    net_plan_port(p, index, port);
    net_plan_mac(&v4, mac);
    return change(nl, p, type,
                  (const struct element[]){ port_element("ports4", port, mac, &v4),
                                            port_element("ports6", port, mac, &v6),
                                            open_element("open4", &v4),
                                            open_element("open6", &v6) },
                  4);
}

int net_element_add(struct netlink *nl, const struct net_plan *p, uint32_t index)
{
    return change_index(nl, p, NFT_MSG_NEWSETELEM, index);
}

int net_element_remove(struct netlink *nl, const struct net_plan *p, uint32_t index)
{
    int r = change_index(nl, p, NFT_MSG_DELSETELEM, index);

    return r && errno == ENOENT ? 0 : r;
}

/* ---- which ports are known ---- */

struct ports {
    void (*fn)(const char *port, void *arg);
    void *arg;
};

/* An element's key, a name first; NULL for one without. */
static const char *port_of(const struct nlattr *element)
{
    const struct nlattr *key = netlink_part(element, NFTA_SET_ELEM_KEY);
    const struct nlattr *value = key ? netlink_part(key, NFTA_DATA_VALUE) : NULL;
    const char *port = value ? mnl_attr_get_payload(value) : NULL;

    return port && mnl_attr_get_payload_len(value) >= IFNAMSIZ && memchr(port, 0, IFNAMSIZ) ? port
                                                                                            : NULL;
}

static int see_elements(const struct nlmsghdr *h, void *arg)
{
    const struct ports *p = arg;
    const struct nlattr *a = NULL;
    struct nlattr *element; /* libmnl walks it by a cast that drops const */

    while ((a = netlink_next(h, sizeof(struct nfgenmsg), a)))
        if (mnl_attr_get_type(a) == NFTA_SET_ELEM_LIST_ELEMENTS)
            mnl_attr_for_each_nested(element, a)
            {
                const char *port = port_of(element);

                if (port)
                    p->fn(port, p->arg);
            }
    return MNL_CB_OK;
}

int net_element_ports(const struct net_plan *p, void (*fn)(const char *port, void *arg), void *arg)
{
    union netlink_request r;
    struct nfgenmsg *g =
        netlink_begin(&r, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETSETELEM, 0, sizeof(*g));

    g->nfgen_family = NFPROTO_BRIDGE;
    mnl_attr_put_strz(&r.head, NFTA_SET_ELEM_LIST_TABLE, p->bridge);
    mnl_attr_put_strz(&r.head, NFTA_SET_ELEM_LIST_SET, "ports4");
    return netlink_dump(NETLINK_NETFILTER, &r, see_elements, &(struct ports){ fn, arg });
}

/* ---- single addresses ---- */

static int nothing(const struct nlmsghdr *h, void *arg)
{
    (void)h;
    (void)arg;
    return MNL_CB_OK;
}

int net_element_put(struct netlink *nl, const struct net_plan *p, const char *set,
                    const struct net_ip *ip)
{
    return change(nl, p, NFT_MSG_NEWSETELEM, (const struct element[]){ open_element(set, ip) }, 1);
}

int net_element_drop(struct netlink *nl, const struct net_plan *p, const char *set,
                     const struct net_ip *ip)
{
    int r = change(nl, p, NFT_MSG_DELSETELEM, (const struct element[]){ open_element(set, ip) }, 1);

    return r && errno == ENOENT ? 0 : r;
}

int net_element_has(struct netlink *nl, const struct net_plan *p, const char *set,
                    const struct net_ip *ip)
{
    struct element e = open_element(set, ip);
    union netlink_request r;

    put_element(mnl_nlmsg_put_header(r.space), NFT_MSG_GETSETELEM, p->bridge, &e);
    r.head.nlmsg_flags = NLM_F_REQUEST; /* one answer, not an acknowledgement behind it */
    if (!netlink_get(nl, &r, nothing, NULL))
        return 1;
    return errno == ENOENT ? 0 : -1;
}

/* ---- are the tables there ---- */

int net_element_watch(struct netlink *nl, struct err *err)
{
    int group = NFNLGRP_NFTABLES;

    if (netlink_open(nl, NETLINK_NETFILTER, err))
        return -1;
    if (mnl_socket_setsockopt(nl->sock, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group))) {
        err_sys(err, "watch the packet filter");
        netlink_close(nl);
        return -1;
    }
    return 0;
}

static bool deletes_ours(const struct nlmsghdr *h, const struct net_plan *p)
{
    const struct nlattr *a = NULL;

    if (h->nlmsg_type != ((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_DELTABLE))
        return false;
    while ((a = netlink_next(h, sizeof(struct nfgenmsg), a)))
        if (mnl_attr_get_type(a) == NFTA_TABLE_NAME && !strcmp(mnl_attr_get_str(a), p->bridge))
            return true;
    return false;
}

bool net_element_lost(struct netlink *watch, const struct net_plan *p)
{
    union {
        char space[16 << 10];
        struct nlmsghdr head;
    } in;
    bool lost = false;

    for (;;) {
        ssize_t n = recv(mnl_socket_get_fd(watch->sock), in.space, sizeof(in), MSG_DONTWAIT);
        const struct nlmsghdr *h = &in.head;
        int left = (int)n;

        if (n < 0 && errno == ENOBUFS)
            lost = true; /* more happened than we were told */
        else if (n < 0 && errno != EINTR)
            return lost;
        for (; n > 0 && mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left))
            lost = lost || deletes_ours(h, p);
    }
}

bool net_element_tables_there(struct netlink *nl, const struct net_plan *p)
{
    static const unsigned char families[] = { NFPROTO_INET, NFPROTO_BRIDGE };

    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        union netlink_request r;
        struct nfgenmsg *g =
            netlink_begin(&r, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETTABLE, 0, sizeof(*g));

        g->nfgen_family = families[i];
        mnl_attr_put_strz(&r.head, NFTA_TABLE_NAME, p->bridge);
        if (netlink_get(nl, &r, nothing, NULL))
            return false;
    }
    return true;
}
