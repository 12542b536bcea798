/* pack_tree.h - what the parts of the packer share: pack.c walks, pack_file.c has the bytes of one
 * file and its attributes. */
#ifndef JAIL_PACK_TREE_H
#define JAIL_PACK_TREE_H

#include "jail/pack.h"
#include "jail/pack_head.h"

struct pack_link { /* the first name of a file that has several */
    uint64_t device, inode;
    char *name; /* owned */
};

struct packer {
    const struct pack_request *request;
    struct pack_stats *stats;
    struct buf out; /* not written yet */
    struct pack_link *links;
    size_t nlinks, room; /* room: a power of two */
    struct buf removed;
    struct err *err;
};

int pack_flush(struct packer *p, size_t above); /* when more bytes than that wait */
/* The attributes worth having, as records. */
void pack_attributes(struct packer *p, int fd, struct buf *records);
bool pack_is_opaque(int fd);
/* Head and bytes of a regular file. h has everything but the size. */
int pack_file(struct packer *p, int fd, const struct stat *st, struct pack_head *h);

#endif
