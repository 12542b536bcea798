/* path.h - names from clients become descriptors, always inside the guest's root.
 *
 * Every look-up is one openat2 with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS: "..", absolute
 * links and links swapped during the call stay inside, and /proc's magic links lead nowhere. All
 * of it may block: call it on a worker, except where said. */
#ifndef GUEST_PATH_H
#define GUEST_PATH_H

#include "base/arena.h"
#include "base/err.h"

struct user;

/* The text rules: empty is the working directory, ~ and relative names are the user's home. */
char *path_expand(struct arena *a, const char *path, const struct user *u, const char *workdir);
int path_open(int root, const char *path, int flags, mode_t mode); /* -1 with errno */
/* A directory descriptor for all but the last component, which *name then points at in path's
 * copy. make: missing parents are made, mode 0755, owned by u. */
int path_open_parent(struct arena *a, int root, const char *path, const struct user *make,
                     char **name, struct err *err);
int path_make_dirs(struct arena *a, int root, const char *path, const struct user *owner,
                   struct err *err); /* a descriptor of the innermost */
/* Where an open descriptor lies, as seen from root; NULL when /proc cannot tell. */
char *path_of_fd(struct arena *a, int root, int fd);
int path_reopen(int fd, int flags); /* an O_PATH descriptor for real use */

#endif
