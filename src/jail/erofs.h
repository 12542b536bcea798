/* erofs.h - writes a read-only file system into one file: directories, links, and files that are
 * names with their contents elsewhere.
 *
 * Why: the layer that says what /usr looks like inside has an entry for each of 150,000 files. As
 * files of its own on ext4 that would take a minute and 500 MB, since the path of its contents does
 * not fit into an inode; as an image it takes a tenth of a second and 30 MB, and goes by one
 * unlink.
 *
 * A file "elsewhere" has the two attributes by which overlayfs finds contents in a data layer
 * below: user.overlay.metacopy and user.overlay.redirect, the path in there, which is the file's
 * own. */
#ifndef JAIL_EROFS_H
#define JAIL_EROFS_H

#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"

struct erofs_node {
    const char *name; /* in its directory; not looked at for the root */
    const struct stat *st;
    struct str bytes;      /* where a link leads; contents of a file, if they are not elsewhere */
    bool elsewhere;        /* of a file: st says how long it is */
    struct str capability; /* the attribute security.capability, as it is on disk; empty: none */
};

enum { EROFS_ROOT = 0 };

struct erofs;

struct erofs *erofs_create(const struct stat *root);
void erofs_destroy(struct erofs *e);
/* Its number, for what is in it. No name may be given twice in one directory. */
uint32_t erofs_add(struct erofs *e, uint32_t directory, const struct erofs_node *n);
/* To the beginning of an empty file. Once. */
int erofs_write(struct erofs *e, int fd, struct err *err);

#endif
