/* net_element.h - which ports and addresses the filter knows, and whether it is still there at all.
 *
 * By raw netlink: the program nft takes 4 ms for what the kernel does in a tenth of one. */
#ifndef JAIL_NET_ELEMENT_H
#define JAIL_NET_ELEMENT_H

#include "jail/net_plan.h"
#include "jail/netlink.h"

/* nl is NETLINK_NETFILTER. What is there already (or gone already) is no error. */
int net_element_add(struct netlink *nl, const struct net_plan *p, uint32_t index);
int net_element_remove(struct netlink *nl, const struct net_plan *p, uint32_t index);
/* The ports that the filter knows, by name; fn changes nothing. -1 with errno. */
int net_element_ports(const struct net_plan *p, void (*fn)(const char *port, void *arg), void *arg);
/* One address in one set of the table of addresses. */
int net_element_put(struct netlink *nl, const struct net_plan *p, const char *set,
                    const struct net_ip *ip);
int net_element_drop(struct netlink *nl, const struct net_plan *p, const char *set,
                     const struct net_ip *ip);
int net_element_has(struct netlink *nl, const struct net_plan *p, const char *set,
                    const struct net_ip *ip); /* 1 yes, 0 no, -1 with errno */

/* Somebody who reloads the host's firewall ("flush ruleset") takes our tables along. A socket that
 * becomes readable when tables change: */
int net_element_watch(struct netlink *nl, struct err *err);
bool net_element_lost(struct netlink *watch, const struct net_plan *p); /* reads it empty */
bool net_element_tables_there(struct netlink *nl, const struct net_plan *p);

#endif
