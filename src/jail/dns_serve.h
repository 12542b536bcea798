/* dns_serve.h - the work of the name server relay, over sockets it is given. */
#ifndef JAIL_DNS_SERVE_H
#define JAIL_DNS_SERVE_H

#include <stdint.h>

struct dns_serve {
    int udp, tcp;    /* bound to the gateway's address; non-blocking */
    uint32_t subnet; /* host order, a /16: whom to answer */
    uint32_t own;    /* the gateway, network order */
    const char *resolv_conf;
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
