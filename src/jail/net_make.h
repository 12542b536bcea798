/* net_make.h - one network namespace, ready for a sandbox. Used by the netmaker's process only: it
 * moves the whole process into the new namespace and back. */
#ifndef JAIL_NET_MAKE_H
#define JAIL_NET_MAKE_H

#include "jail/net_bridge.h"

/* Both return the namespace's descriptor; the caller is in `host` again, whatever happened. */
int net_make_none(int host, struct err *err);
int net_make_open(int host, struct net_bridge *b, const struct net_plan *p, uint32_t index,
                  struct err *err);
/* For a namespace whose last process has ended: connections that nobody holds any more, but that
 * still try to deliver, would keep it for minutes; this makes it a second. */
void net_make_wind_up(int host, int ns);

#endif
