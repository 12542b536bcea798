/* place.h - the directory of connection files, sockets and the programs that kernels run: ours
 * alone, below XDG_RUNTIME_DIR or /tmp. While we live we hold a lock on a file in it; what nobody
 * holds was left behind by a crash, and the next service takes it away. */
#ifndef GUEST_KERNELS_PLACE_H
#define GUEST_KERNELS_PLACE_H

#include "base/err.h"

int place_open(struct err *err);  /* sets kernels.dir */
int place_renew(struct err *err); /* it is there; again, if somebody has cleaned up */
void place_close(void);           /* after the last kernel */

#endif
