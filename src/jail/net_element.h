/* net_element.h - which ports and addresses the filter knows, and flows it may have to forget.
 *
 * By raw netlink: the program nft takes 4 ms for what the kernel does in a tenth of one. */
#ifndef JAIL_NET_ELEMENT_H
#define JAIL_NET_ELEMENT_H

#include "jail/net_plan.h"
#include "jail/netlink.h"

/* nl is NETLINK_NETFILTER. What is there already (or gone already) is no error. */
int net_element_add(struct netlink *nl, const struct net_plan *p, uint32_t index);
int net_element_remove(struct netlink *nl, const struct net_plan *p, uint32_t index);
/* Forgets the flows of this address, so that its next owner gets no packet meant for the last. */
int net_element_forget_flows(struct netlink *nl, const struct net_ip *ip);

#endif
