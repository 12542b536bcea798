/* queues.h - what waits in the sockets of a network namespace, most of which is charged to no
 * cgroup: the queues of netlink and ping sockets, connections that nobody has accepted yet, and
 * errors and times that are kept for their reader. (What UDP and TCP send and receive is: cgroup.c.
 * A unix socket's queues are memory.)
 *
 * A socket of UDP, TCP or ping that has no address any more (it was disconnected, or reset) is in
 * none of the kernel's lists, and keeps its queue. Those can only be counted: the namespace says
 * how many sockets it has, and each protocol how many it lists.
 *
 * The kernel has no limit for them but that of each socket. So they are looked at from outside, the
 * cheapest first: has the kernel's own memory grown, has a namespace many sockets, what do they
 * hold? */
#ifndef JAIL_QUEUES_H
#define JAIL_QUEUES_H

#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Of the whole machine: memory that is no process's, no file's and not free. Queues are a part of
 * it. text: /proc/meminfo. -1: it does not say. */
int queues_kernel_bytes(struct str text, uint64_t *out);

/* All sockets in the namespace of this process, in 10 us. -1 with errno: it has ended, say. */
int queues_sockets(pid_t pid, uint64_t *out);

/* How many the protocols list, of netlink and of all. text: /proc/net/protocols. */
void queues_protocols(struct str text, uint64_t *netlink, uint64_t *all);

struct queues {         /* bytes */
    uint64_t uncharged; /* and what the sockets themselves take */
    uint64_t inet;      /* of TCP and UDP: what is charged, and what their sockets keep besides */
    uint64_t unlisted;  /* sockets in no list */
};

/* What waits in them. The caller is moved into the namespace and stays there: for a child. Walks
 * over the machine's sockets. */
int queues_sum(pid_t pid, struct queues *out, struct err *err);

/* A line of /proc/net/icmp or icmp6: the bytes in both its queues; 0: it is the head. */
uint64_t queues_ping_line(struct str line);

#endif
