/* netrange.h - address prefixes: which addresses belong to the public internet, and lists of them
 * that an operator writes ("10.1.0.0/16,fd00:1::/64"). No I/O but netrange_own(). */
#ifndef IO_NETRANGE_H
#define IO_NETRANGE_H

#include <stdbool.h>

#include "base/buf.h"
#include "io/sock.h"

struct netrange {
    unsigned char addr[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;          /* of those 128 */
};

enum { NETRANGE_LIST = 64 };

struct netrange_list {
    struct netrange item[NETRANGE_LIST];
    size_t n;
};

/* "10.0.0.0/8", "192.0.2.7", "fd00::/8"; bits behind the prefix must be 0, so that a slip shows. */
int netrange_parse(struct str text, struct netrange *out, struct err *err);
/* Adds all of a comma list, or none of it. */
int netrange_list_add(struct netrange_list *list, struct str text, struct err *err);
bool netrange_has(const struct netrange *r, const unsigned char addr[static 16]);

/* NULL: a host of the public internet, or in allow (may be NULL). Else what it is instead: "is
 * private". What carries an IPv4 address within (mapped, NAT64) is judged by that. */
const char *netrange_refuse(const struct addr *a, const struct netrange_list *allow);
/* The same judgement for a packet filter: what it refuses of AF_INET or AF_INET6 as prefixes, with
 * ", " between them. Of IPv6 NETRANGE_ISATAP has to be refused besides, which is no prefix. */
void netrange_print(int family, struct buf *out);
#define NETRANGE_ISATAP "& ::fdff:ffff:0:0 == ::5efe:0:0" /* address, mask and value */
/* The same for an address of this machine, asked of the kernel now; -1 with err. In allow: false */
int netrange_own(const struct addr *a, const struct netrange_list *allow, struct err *err);

#endif
