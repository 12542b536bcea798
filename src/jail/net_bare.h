/* net_bare.h - the network namespace of a sandbox before anything is plugged into it: only lo. */
#ifndef JAIL_NET_BARE_H
#define JAIL_NET_BARE_H

#include "base/err.h"

/* Moves the calling thread into a new one. Needs /proc. */
int net_bare(struct err *err);
/* Lets everybody in the caller's namespace open ping sockets. */
int net_bare_ping(struct err *err);

#endif
