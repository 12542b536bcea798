/* inode.c - see inode.h. Open addressing, at most half full. */
#include "guest/inode.h"

#include <stdint.h>

#include "base/mem.h"

static struct inode *slot_of(const struct inodes *all, struct inode one)
{
    size_t at = (size_t)(((uint64_t)one.ino ^ (uint64_t)one.dev) * 0x9e3779b97f4a7c15ULL >> 20);

    for (;; at++) {
        struct inode *slot = &all->slots[at & (all->cap - 1)];

        if (!slot->ino || inode_same(*slot, one))
            return slot;
    }
}

static void grow(struct inodes *all)
{
    struct inodes larger = { .n = all->n, .cap = all->cap ? all->cap * 2 : 16 };

    larger.slots = xcalloc(larger.cap, sizeof(*larger.slots));
    for (size_t i = 0; i < all->cap; i++)
        if (all->slots[i].ino)
            *slot_of(&larger, all->slots[i]) = all->slots[i];
    free(all->slots);
    *all = larger;
}

void inode_add(struct inodes *all, struct inode one)
{
    struct inode *slot;

    if (!one.ino)
        return;
    if (all->n * 2 >= all->cap)
        grow(all);
    slot = slot_of(all, one);
    all->n += !slot->ino;
    *slot = one;
}

bool inode_known(const struct inodes *all, struct inode one)
{
    return one.ino && all->n && slot_of(all, one)->ino;
}

void inode_free(struct inodes *all)
{
    free(all->slots);
    *all = (struct inodes){ 0 };
}
