/* procfs.h - a /proc of the sandbox's own, without what concerns the whole machine. */
#ifndef JAIL_PROCFS_H
#define JAIL_PROCFS_H

#include "base/err.h"

int procfs_mount(int root, struct err *err);
int procfs_mask(int root, struct err *err); /* needs root's /dev/null */

#endif
