/* start.h - a service's process: this same program once more, as the sandbox's user. */
#ifndef GUEST_SERVICES_START_H
#define GUEST_SERVICES_START_H

#include "guest/guest.h"
#include "guest/services/service.h"
#include "io/spawn.h"

/* `said` becomes the reading end of what the service says first; the caller closes it. */
int start_service(struct guest *g, const struct service *s, const int listener[SERVICE_PORTS],
                  bool sandbox, struct child *out, int *said, struct err *err);

#endif
