/* net_link.h - links, addresses, routes and neighbours, by rtnetlink. All return -1 with errno. */
#ifndef JAIL_NET_LINK_H
#define JAIL_NET_LINK_H

#include "jail/net_plan.h"
#include "jail/netlink.h"

int net_link_add_bridge(struct netlink *nl, const char *name, const unsigned char *mac);
/* A pair of virtual interfaces: `name` here, `peer` with this MAC in the other namespace. */
int net_link_add_pair(struct netlink *nl, const char *name, const char *peer, int peer_ns,
                      const unsigned char *mac);
int net_link_join(struct netlink *nl, unsigned index,
                  unsigned bridge); /* a silent, isolated port */
int net_link_up(struct netlink *nl, unsigned index);
int net_link_down(struct netlink *nl, unsigned index);
/* Up is one thing, passing packets another: the kernel gets a link going on a thread of its own,
 * and drops what is sent before. Waits for that; ETIMEDOUT. */
int net_link_wait(struct netlink *nl, unsigned index);
int net_link_delete(struct netlink *nl, unsigned index);

/* What exists already is no error for the next four. */
int net_link_add_address(struct netlink *nl, unsigned index, const struct net_cidr *c);
int net_link_add_route(struct netlink *nl, unsigned index, const struct net_cidr *to,
                       const struct net_ip *via);
int net_link_set_neighbour(struct netlink *nl, unsigned index, const struct net_ip *ip,
                           const unsigned char *mac);
int net_link_set_forwarding(struct netlink *nl, unsigned port, const unsigned char *mac);
int net_link_drop_neighbour(struct netlink *nl, unsigned index, const struct net_ip *ip);

int net_link_traffic(struct netlink *nl, unsigned index, uint64_t *received, uint64_t *sent);

/* The rest looks at the namespace the caller is in. */
struct net_link_info {
    char name[IFNAMSIZ]; /* looked for */
    unsigned index;      /* 0: no such link */
    bool is_bridge;
};

int net_link_find(struct net_link_info *info);
/* The number of ports; fn (or NULL) sees the name of each, perhaps more than once. */
int net_link_ports(unsigned bridge, void (*fn)(const char *name, void *arg), void *arg);

struct net_link_routes {
    struct net_cidr wanted; /* looked for; its family is the one that is read */
    unsigned own;           /* routes through this interface do not count */
    bool overlaps, has_default;
    struct net_cidr route; /* the first that overlaps */
    unsigned uplinks[8];   /* interfaces of default routes */
    size_t nuplinks;
};

int net_link_read_routes(struct net_link_routes *r);
/* How many IPv4 addresses the interface has besides this one. */
int net_link_other_addresses(unsigned index, const struct net_ip *own);

#endif
