/* host.h - which names this server goes by. A page in a browser can give a name of its own any
 * address, also ours, and is then the same origin as we are: by a name that is not ours nothing is
 * answered. Pure. */
#ifndef ROUTER_HOST_H
#define ROUTER_HOST_H

#include "base/str.h"

struct host_names {
    struct str domain;  /* and all below it; without a port */
    struct str machine; /* its own, and that with .local; and its first label */
    const char *const
        *names; /* --host: lists by comma; all below, too; ends with NULL; NULL: none */
};

/* A Host field's value without port and final dot; empty for an IPv6 literal. */
struct str host_name(struct str host);

/* Ours by nature: addresses (nobody can make a name of one), what no name server on the internet
 * answers for (localhost, single labels, .internal), and what the operator says. */
bool host_is_ours(const struct host_names *h, struct str host);

#endif
