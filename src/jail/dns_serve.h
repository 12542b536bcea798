/* dns_serve.h - the work of the name server relay, over sockets it is given. */
#ifndef JAIL_DNS_SERVE_H
#define JAIL_DNS_SERVE_H

#include <stdint.h>

#include "jail/dns_message.h"

struct dns_servers { /* whom to ask: one at least */
    size_t n;
    struct addr item[DNS_SERVERS_MAX];
};

/* The relay itself sees no file of the machine and binds nothing. It asks its parent, by a byte
 * over a line of records, and is answered by a struct dns_answer. */
enum {
    DNS_ASK_PORTS = 'p',   /* with the answer come two sockets, unless there is an error */
    DNS_ASK_SERVERS = 's', /* what resolv.conf says now */
};

struct dns_answer {
    int32_t error; /* errno of the binding */
    struct dns_servers servers;
};

struct dns_serve {
    int udp, tcp;    /* bound to the gateway's address; non-blocking */
    int line;        /* to the parent */
    uint32_t subnet; /* host order, a /16: whom to answer */
    struct dns_servers servers;
};

/* Bounds, set by their names; see dns_settings. */
struct dns_bounds {
    int64_t queries_per_s, burst, in_flight, in_flight_per_source, connections,
        connections_per_source, timeout_ms;
};
extern struct dns_bounds dns_bounds;
enum { DNS_IN_FLIGHT_MAX = 16384, DNS_CONNECTIONS_MAX = 1024 };

void dns_serve(const struct dns_serve *s); /* never returns, but for want of memory at the start */

#endif
