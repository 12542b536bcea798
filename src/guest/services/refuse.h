/* refuse.h - an honest answer for clients of a service that cannot be started. */
#ifndef GUEST_SERVICES_REFUSE_H
#define GUEST_SERVICES_REFUSE_H

#include "base/buf.h"
#include "guest/services/service.h"

/* Takes every connection that waits now and answers it with 503 and the reason. */
void refuse_waiting(const int listener[SERVICE_PORTS], const char *service, const char *why);
/* Pure: the whole answer. */
void refuse_write(struct buf *out, const char *service, const char *why);

#endif
