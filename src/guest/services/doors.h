/* doors.h - the services' ports, held by whoever starts the services: pid 1 of a sandbox, or
 * `cove-guest services` on any machine.
 *
 * A door is one service's listening sockets. Nobody accepts on them here: the first connection
 * only shows as readable, then the service is started and given the sockets, and the connection
 * waits for it in the kernel's queue. Until that moment a service is three descriptors.
 *
 * A port that somebody else has is left alone. One that a command names as its own (lend.h) is lent
 * to it, and taken back when it is free again. In all other cases a port can be had by
 *   - the variable COVE_SERVICES, "none" or the names to keep, of the sandbox or of one command
 *   - DELETE /services/{name} of the guest
 *   - SIGUSR1 to the service's process, from inside */
#ifndef GUEST_SERVICES_DOORS_H
#define GUEST_SERVICES_DOORS_H

#include "guest/guest.h"
#include "guest/process.h"

/* Listens for all services that the environment of g wants, and starts the coroutine that waits.
 * A port that cannot be had is told in the status only. */
void doors_open(struct guest *g, bool sandbox);
int doors_warm(const char *name, struct err *err); /* starts one at once, and keeps it */
void doors_configure(void); /* the sandbox's environment has changed; may park */
/* A command is about to start: what its COVE_SERVICES says is so from now on, and ports that it
 * names are lent to it. */
void doors_before(const struct process_config *c);
void doors_after(void); /* one has ended: what was lent may be free again */
void doors_stop(void);  /* ends the services, and lets go of all ports; parks */

void doors_put_status(struct buf *json); /* an array, one object for each service */
int doors_release(const char *name, struct err *err);
int doors_claim(const char *name, struct err *err); /* listen (again) */
size_t doors_held(void);                            /* how many services have their ports */

extern const struct route doors_routes[];

#endif
