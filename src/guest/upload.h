/* upload.h - writing a file that a client sends. Blocks: for workers.
 *
 * The bytes go to an unnamed file first. A new name then appears whole; an existing file is written
 * in place once all bytes are here and its space is reserved, so that its links, mode, attributes
 * and watchers stay, and a client that vanishes or a full disk leaves the old content. */
#ifndef GUEST_UPLOAD_H
#define GUEST_UPLOAD_H

#include "base/arena.h"
#include "base/err.h"
#include "base/field.h"
#include "guest/inode.h"

struct user;

struct upload {
    struct arena *arena;
    int root;
    const char *path; /* as resolved for the answer */
    char *name;       /* its last component */
    const struct user *user;
    const struct map *metadata; /* replaces the file's; NULL or empty: none */
    int dir, fd;                /* the parent, and the unnamed file */
    char temporary[40];         /* its name, where the file system has no unnamed files */
    int64_t size;
    int mode; /* permission bits it gets; -1: as the umask says, or what it had */
    const struct inodes *earlier; /* files that must not be written over; NULL: any may */
    struct inode written;         /* after the commit: the file that has the bytes */
};

/* mode is -1 after it, earlier NULL: set them before upload_commit(). */
int upload_begin(struct upload *u, struct arena *a, int root, const char *path,
                 const struct user *user, const struct map *metadata, struct err *err);
int upload_write(struct upload *u, struct str data, struct err *err);
int upload_commit(struct upload *u, struct err *err);
void upload_finish(struct upload *u); /* always; without a commit nothing is left */

#endif
