/* mounts.h - the new mount API in the few shapes we need. Everything goes by descriptor: no path is
 * looked up twice, and nothing follows a link that a template put in the way. */
#ifndef JAIL_MOUNTS_H
#define JAIL_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mount_option {
    const char *key; /* NULL ends the list */
    const char *text;
    int fd; /* used when text is NULL; -1: a flag */
};

/* A detached mount of a new file system of this type. */
int mounts_new(const char *type, const struct mount_option *options, unsigned attributes,
               struct err *err);
/* A detached copy of what is at dir/path ("" : dir itself) with attributes added (MOUNT_ATTR_*);
 * userns >= 0: owners mapped by it. */
int mounts_clone(int dir, const char *path, uint64_t attributes, int userns, bool recursive,
                 struct err *err);
/* The same for a detached mount itself. */
int mounts_restrict(int mount, uint64_t attributes, int userns, struct err *err);
int mounts_attach(int mount, int where, struct err *err);
/* A directory below root for a mount point, made when missing; links are resolved inside root. */
int mounts_target(int root, const char *path, bool file, struct err *err);

#endif
