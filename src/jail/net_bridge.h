/* net_bridge.h - what all sandboxes with a network share: the bridge, the filter, forwarding.
 *
 * Made on first use, kept while anybody on the machine uses it, removed by the last to leave. One
 * file in the run directory holds the locks, and what the kernel's settings were before. */
#ifndef JAIL_NET_BRIDGE_H
#define JAIL_NET_BRIDGE_H

#include "jail/net_plan.h"
#include "jail/netlink.h"

enum net_lock {                   /* bytes of the lock file */
                NET_LOCK_SETUP,   /* held while something is made or removed */
                NET_LOCK_USERS,   /* shared by all who use the bridge */
                NET_LOCK_ENTRIES, /* held while what the filter knows of one sandbox changes */
                NET_LOCK_RELAY,   /* held by the one name server relay */
};

struct net_bridge { /* zeroed is "not in use" */
    bool in_use;
    bool has6;
    int lock;
    unsigned index;
    struct netlink route, filter, watch; /* watch: see net_element.h */
};

int net_bridge_use(struct net_bridge *b, const struct net_plan *p, struct err *err);
/* What the filter and the host's tables have to know about a sandbox. */
int net_bridge_admit(struct net_bridge *b, const struct net_plan *p, uint32_t index,
                     struct err *err);
void net_bridge_forget(struct net_bridge *b, const struct net_plan *p, uint32_t index);
/* Makes again what somebody else removed, for all that live: 1, or 0 when all was there. When that
 * fails the bridge is down: sandboxes without network, rather than with one that nobody watches. */
int net_bridge_repair(struct net_bridge *b, const struct net_plan *p, struct err *err);
/* Waits up to a second for the ports of namespaces that are just ending. */
void net_bridge_leave(struct net_bridge *b, const struct net_plan *p);

int net_bridge_open_lock(const struct net_plan *p, struct err *err);
/* type: F_RDLCK, F_WRLCK, F_UNLCK; -1 with errno, EAGAIN when somebody has it and wait is false. */
int net_bridge_lock(int fd, enum net_lock what, int type, bool wait);

#endif
