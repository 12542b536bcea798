/* list.h - an intrusive doubly linked list; a node is a member of the thing it links. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/util.h"

struct list {
    struct list *prev, *next;
};

#define LIST_INIT(l)                                                                               \
    {                                                                                              \
        &(l), &(l)                                                                                 \
    }

static inline void list_init(struct list *l) { l->prev = l->next = l; }

static inline bool list_empty(const struct list *l) { return l->next == l; }

static inline void list_push(struct list *l, struct list *node) /* at the end */
{
    node->prev = l->prev;
    node->next = l;
    l->prev->next = node;
    l->prev = node;
}

static inline void list_remove(struct list *node) /* harmless when already out */
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* The body may remove `it`, but nothing else, and must not park. */
#define list_each(it, l, mem)                                                                      \
    for (struct list *at_##it = (l)->next, *next_##it = at_##it->next;                             \
         (it) = CONTAINER_OF(at_##it, __typeof__(*(it)), mem), at_##it != (l);                     \
         at_##it = next_##it, next_##it = at_##it->next)

#endif
