/* net.h - the network of a sandbox: namespaces made ahead, alone or on the shared bridge.
 *
 * Making one costs about a millisecond, so a child of the keeper does it and hands the descriptors
 * over a socket. Start it before the keeper leaves the host's mount namespace: it needs /proc, and
 * the program nft the first time a sandbox asks for the network. Everything the bridge needs is
 * made on that first use, shared by all keepers of the machine, and removed by the last.
 *
 * A namespace belongs to one sandbox for ever. Its port, MAC and addresses follow from the
 * sandbox's number alone, so nothing about it has to be remembered. */
#ifndef JAIL_NET_H
#define JAIL_NET_H

#include <netinet/in.h>

#include "base/buf.h"
#include "jail/net_plan.h"

enum net_mode {
    NET_NONE, /* lo, and nothing else */
    NET_OPEN, /* the internet through the bridge, without private networks and the host */
};

struct netmaker {
    struct net_plan plan;
    int fd; /* readable: netmaker_take() has something to say */
    int pidfd;
    pid_t pid;
};

struct net_slot {
    int ns; /* owned; every other descriptor of the namespace keeps it alive, too */
    enum net_mode mode;
    uint32_t index;
    uint32_t address; /* network order, as gateway; 0 for NET_NONE */
    uint32_t gateway; /* the name server, too */
    struct in6_addr address6;
    bool has6; /* the host reaches the IPv6 internet */
    char port[IFNAMSIZ];
    unsigned link;          /* the port's interface on the host */
    struct netmaker *maker; /* borrowed: told when the slot is released */
};

int netmaker_start(struct netmaker *m, const struct net_options *o, struct err *err);
/* Asks for one slot; the answer comes by netmaker_take(), in the order asked. ERR_LIMIT: too many
 * are asked for already, take some first. */
int netmaker_ask(struct netmaker *m, enum net_mode mode, uint32_t index, struct err *err);
/* 0: *out is a slot. 1: nothing yet. -1: the slot out->index could not be made; with ERR_GONE the
 * maker itself has ended: stop it and start another. */
int netmaker_take(struct netmaker *m, struct net_slot *out, struct err *err);
/* For a sandbox that outlived its keeper: a slot around its namespace, which it owns from now on.
 * Keeps bridge and name server alive, and puts back what the filter must know. */
int netmaker_adopt(struct netmaker *m, int ns, enum net_mode mode, uint32_t index,
                   struct net_slot *out, struct err *err);
/* The child sees that, and ends; netmaker_stop() waits for it. */
void netmaker_hang_up(struct netmaker *m);
/* The child removes what is shared if nobody needs it any more, and ends; when sandboxes still
 * live, or are just ending, it goes on alone for up to a second. */
void netmaker_stop(struct netmaker *m);

void net_slot_release(struct net_slot *s); /* never waits */

/* A non-blocking socket inside the namespace, for dialling a sandbox's ports. */
int net_socket(int ns, int domain, int type, struct err *err);
/* The same where the caller is not root, but made the user namespace that this one belongs to. */
int net_socket_owned(int ns, int domain, int type, struct err *err);
int net_allow_ping(int ns, struct err *err); /* for everybody inside */

/* Bytes into the sandbox and out of it, ever; 0 for one without a network. Does not wait. */
void net_slot_traffic(const struct net_slot *s, uint64_t *in, uint64_t *out);

/* What on this machine stands in the way of NET_OPEN, one line each; nothing: all is well. */
int net_doctor(const struct net_options *o, struct buf *out, struct err *err);

#endif
