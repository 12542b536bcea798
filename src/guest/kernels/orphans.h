/* orphans.h - kernels are forked by a warmed parent and are children of the service all the same:
 * it is the subreaper of everything below it, so that the end of a parent is nothing to them, and
 * their own end comes to us. So does that of whatever their users leave behind. */
#ifndef GUEST_KERNELS_ORPHANS_H
#define GUEST_KERNELS_ORPHANS_H

#include "base/err.h"

int orphans_open(struct err *err);
/* In between no process is collected that nobody waits for: it may be the kernel whose number is
 * still on its way to us, and the number must not become another's. */
void orphans_hold(void);
void orphans_release(void);

#endif
