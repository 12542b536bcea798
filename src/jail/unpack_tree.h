/* unpack_tree.h - writing an archive's entries below one directory, in the unpacker's child.
 *
 * Paths come cleaned (unpack_entry.h); the kernel still resolves each beneath the root and refuses
 * symlinks on the way. A later entry of the same name wins, whatever the two are: the former is
 * unlinked, never written through. */
#ifndef JAIL_UNPACK_TREE_H
#define JAIL_UNPACK_TREE_H

#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "jail/unpack_entry.h"

struct tree_attr {
    mode_t mode; /* 07777 */
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
};

struct unpack_tree {
    int root;         /* its directory */
    bool squash;      /* owners stay what they are */
    uint64_t made;    /* names that were made, implied directories included */
    uint64_t entries; /* bound on made */
    size_t memory;    /* bound on times.len */
    struct buf times; /* of directories, for the end: their files' arrival would change them */
    int parent;       /* the directory of the last path, since archives go directory by directory */
    char parent_path[ENTRY_PATH];
};

void unpack_tree_init(struct unpack_tree *t, int root);
void unpack_tree_finish(struct unpack_tree *t);
/* All return -1 with an err that says what failed, without the entry's name. */
int unpack_tree_directory(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                          int *fd, struct err *err); /* *fd: for attributes; the caller closes it */
int unpack_tree_file(struct unpack_tree *t, const char *path, struct err *err); /* a descriptor */
int unpack_tree_file_attr(const struct unpack_tree *t, int fd, const struct tree_attr *attr,
                          struct err *err); /* when all bytes are written */
int unpack_tree_symlink(struct unpack_tree *t, const char *path, const char *link,
                        const struct tree_attr *attr, struct err *err);
int unpack_tree_fifo(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                     struct err *err);
int unpack_tree_whiteout(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                         struct err *err);
int unpack_tree_hardlink(struct unpack_tree *t, const char *path, const char *link,
                         struct err *err);
void unpack_tree_times(struct unpack_tree *t); /* at the end */

#endif
