/* inode.h - which file it is, whatever name led to it, and a set of such. */
#ifndef GUEST_INODE_H
#define GUEST_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct inode {
    dev_t dev;
    ino_t ino; /* 0: none */
};

struct inodes { /* zeroed: empty */
    struct inode *slots;
    size_t n, cap;
};

static inline bool inode_same(struct inode a, struct inode b)
{
    return a.dev == b.dev && a.ino == b.ino;
}

void inode_add(struct inodes *all, struct inode one);
bool inode_known(const struct inodes *all, struct inode one);
void inode_free(struct inodes *all);

#endif
