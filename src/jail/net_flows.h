/* net_flows.h - connections that the host remembers ("flows"), by the sandbox address that opened
 * them. The next owner of an address must not get packets that were meant for the last.
 *
 * To forget the flows of one address the kernel walks its whole table, 2 ms on a machine of any
 * size: twice that for each sandbox was most of what a network cost. So the filter notes each
 * address that opens a flow (sets seen4 and seen6), and only those are walked for. The gateway's
 * own address in a set says that the set is complete; without it every address counts as seen. */
#ifndef JAIL_NET_FLOWS_H
#define JAIL_NET_FLOWS_H

#include "jail/net_plan.h"
#include "jail/netlink.h"

/* nl is NETLINK_NETFILTER. Makes the sets complete, after the filter was loaded: flows may be
 * older than it. What fails leaves them incomplete: slow, and as safe. */
void net_flows_settle(struct netlink *nl, const struct net_plan *p);
/* Whoever has this address next finds no flow of it. Nobody may be using it. */
int net_flows_clear(struct netlink *nl, const struct net_plan *p, const struct net_ip *ip);
/* The walk, whatever the sets say; for an address that is in use: it stays noted. */
int net_flows_forget(struct netlink *nl, const struct net_ip *ip);

#endif
