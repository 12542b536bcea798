/* net_filter.h - the packet filter of the sandbox network, loaded once by the program nft.
 *
 * Two tables named after the bridge. `inet` decides by address: what reaches the host, what is
 * forwarded, what is private. `bridge` holds each port to its own MAC and addresses. Which ports
 * and addresses are ours is in sets, see net_element.h, and stays when the rules are loaded anew.
 */
#ifndef JAIL_NET_FILTER_H
#define JAIL_NET_FILTER_H

#include "base/buf.h"
#include "jail/net_plan.h"

/* fresh: start from nothing instead of keeping the sets. */
void net_filter_text(const struct net_plan *p, bool fresh, struct buf *out);
int net_filter_load(const struct net_plan *p, bool fresh, struct err *err);
int net_filter_remove(const struct net_plan *p, struct err *err);
/* Does another table translate addresses? Then somebody else on this host routes, too. */
bool net_filter_others_route(const struct net_plan *p);
/* Chains of other tables that drop what we let pass, one line each. */
int net_filter_obstacles(struct buf *out, struct err *err);

#endif
