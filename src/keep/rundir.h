/* rundir.h - what the keeper has in the run directory. Each data directory has a place of its own
 * in it, <run>/<identity>: socket, lock, records. Numbers, network and filter, which all keepers of
 * the machine share, are beside those.
 *
 * Releases before had all of it in <run> itself. What is left there of our data directory is taken
 * over at the start, one sandbox after the other; what is another's stays. */
#ifndef KEEP_RUNDIR_H
#define KEEP_RUNDIR_H

#include "keep/keeper.h"

int rundir_take(struct keeper *k, struct err *err); /* our place, and its lock */
int rundir_open(struct keeper *k, struct err *err); /* the records and sockets in it */
int rundir_listen(struct keeper *k, struct source *out, struct err *err); /* not watched yet */

/* takeover.c */
int takeover_begin(struct keeper *k, struct err *err); /* no older keeper works there meanwhile */
void takeover_end(struct keeper *k);                   /* without having taken any */
int takeover_all(struct keeper *k, struct err *err);   /* the volume is open; then it is over */

int keep_not_ours(const struct keep_owner *theirs, const struct keep_owner *ours, struct err *err);
int keep_make_dirs(const char *path, mode_t mode, struct err *err);

/* The lock file of a place says who has it: pid, device and inode of the data directory, its path.
 */
struct place_holder {
    int pid;
    struct keep_owner owner; /* without its identity */
};
int place_read_holder(int lock, struct place_holder *out); /* -1: it does not say */

#endif
