/* netlink.h - requests to the kernel's network configuration, answered before the call returns. */
#ifndef JAIL_NETLINK_H
#define JAIL_NETLINK_H

#include <libmnl/libmnl.h>

#include "base/err.h"

enum { NETLINK_REQUEST = 2048 }; /* bytes; larger than any request we make */

struct netlink { /* belongs to the network namespace it was opened in, wherever its user goes */
    struct mnl_socket *sock;
    unsigned sequence;
    bool stale; /* an answer was not read: it must not be taken for the next one's */
};

union netlink_request {
    char space[NETLINK_REQUEST];
    struct nlmsghdr head;
};

int netlink_open(struct netlink *nl, int bus, struct err *err);
void netlink_close(struct netlink *nl); /* for AUTO(netlink_close); harmless when not open */

/* Starts a request that wants an answer; returns room of `extra` bytes behind the header. */
void *netlink_begin(union netlink_request *r, unsigned type, unsigned flags, size_t extra);
int netlink_ask(struct netlink *nl, union netlink_request *r); /* 0, or -1 with errno */
/* The same for `answers` requests that lie one behind the other (an nftables batch). */
int netlink_ask_all(struct netlink *nl, const void *p, size_t n, unsigned answers);
int netlink_get(struct netlink *nl, union netlink_request *r, mnl_cb_t fn, void *arg); /* one */
/* fn sees each message. -1 with errno; EINTR: the list changed meanwhile, and may be incomplete. It
 * has a socket of its own, so that a dump cut short leaves nothing for the next request to read. */
int netlink_dump(int bus, union netlink_request *r, mnl_cb_t fn, void *arg);

/* The attribute behind `last` (NULL: the first) of a message whose own header has `extra` bytes;
 * NULL at the end. */
const struct nlattr *netlink_next(const struct nlmsghdr *h, size_t extra,
                                  const struct nlattr *last);
/* The attribute of that type within another; NULL: there is none. */
const struct nlattr *netlink_part(const struct nlattr *nest, unsigned type);

#endif
