/* idmap.h - the id maps of a new user namespace. */
#ifndef JAIL_IDMAP_H
#define JAIL_IDMAP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define IDMAP_OWN                                                                                  \
    UINT32_MAX /* the caller as 0, and its subordinate ranges above where it has some */

/* Writes both maps of a process that was just cloned: ids 0..65535 from first on. */
int idmap_write(pid_t pid, uint32_t first, struct err *err);
struct idmap_line {
    uint32_t on_disk, seen, count; /* as host ids */
};

enum { IDMAP_LINES = 3 }; /* of each map; those with count 0 are left out */

/* A user namespace that exists for its maps alone: owners and groups on a mount mapped by it. */
int idmap_namespace(const struct idmap_line *users, const struct idmap_line *groups,
                    struct err *err);
/* Does the caller have 65,535 subordinate ids and the programs that write such maps? */
int idmap_ranges(uint32_t *first_uid, uint32_t *first_gid); /* 0: yes */

#endif
