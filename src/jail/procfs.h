/* procfs.h - a /proc of the sandbox's own, without what concerns the whole machine. */
#ifndef JAIL_PROCFS_H
#define JAIL_PROCFS_H

#include "base/err.h"

int procfs_mount(int root, struct err *err);
/* Needs root's /dev/null. boot_id: what procfs_boot_id() made. */
int procfs_mask(int root, int boot_id, struct err *err);

/* A boot id in a new file of this name below dir, read-only: random, so another for each start of a
 * sandbox. The machine's own would tell sandboxes of one machine from those of another. */
#define PROCFS_BOOT_ID "boot_id"
int procfs_boot_id(int dir, struct err *err);

#endif
