/* dns_relay.h - the name server of the sandbox network: a process without privileges that listens
 * on the gateway's address and asks the host's own name servers.
 *
 * Every keeper has one, and one of them works: it holds the lock, the others wait for it. */
#ifndef JAIL_DNS_RELAY_H
#define JAIL_DNS_RELAY_H

#include <sys/types.h>

#include "base/setting.h"
#include "jail/net_plan.h"

struct dns_relay { /* zeroed: none */
    pid_t pid;
    int pidfd;
    int line;     /* readable: dns_relay_answer() */
    int said;     /* how often it has asked ... */
    int64_t from; /* ... since then */
};

extern const struct setting dns_settings[];

/* Returns when it answers, or when another keeper's does. It ends with its parent. */
int dns_relay_start(struct dns_relay *r, const struct net_plan *p, struct err *err);
/* What it asks for that only root may do or see: its ports, the host's name servers. Does not wait;
 * -1: it has ended, or asks as no relay does. */
int dns_relay_answer(struct dns_relay *r, const struct net_plan *p);
void dns_relay_reap(struct dns_relay *r); /* after its end */
void dns_relay_stop(struct dns_relay *r);

#endif
