/* start.h - a service's process: this same program once more, as the sandbox's user. */
#ifndef GUEST_SERVICES_START_H
#define GUEST_SERVICES_START_H

#include "guest/guest.h"
#include "guest/services/service.h"
#include "io/spawn.h"

enum { START_SANDBOX = 1, START_KEEP = 2 /* it does not end for idleness */ };

struct started {
    struct child *child; /* given */
    int said;            /* what the service says first; the caller closes both */
    int tell;            /* for start_tell() */
};

int start_service(struct guest *g, const struct service *s, const int listener[SERVICE_PORTS],
                  unsigned flags, struct started *out, struct err *err);
/* The sandbox's environment, as it is now, for a service that runs. */
int start_tell(struct guest *g, int tell, struct err *err);

#endif
