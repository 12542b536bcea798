/* timers.c - see timers.h. */
#include "io/timers.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

static void put(struct timers *all, int i, struct timer *t)
{
    all->heap[i] = t;
    t->at = i;
}

static bool sooner(const struct timer *a, const struct timer *b) { return a->until < b->until; }

static void move_up(struct timers *all, int i, struct timer *t)
{
    for (; i && sooner(t, all->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(all, i, all->heap[(i - 1) / 2]);
    put(all, i, t);
}

static void move_down(struct timers *all, int i, struct timer *t)
{
    for (int k; (k = 2 * i + 1) < all->n; i = k) {
        if (k + 1 < all->n && sooner(all->heap[k + 1], all->heap[k]))
            k++;
        if (!sooner(all->heap[k], t))
            break;
        put(all, i, all->heap[k]);
    }
    put(all, i, t);
}

void timers_add(struct timers *all, struct timer *t, int64_t until)
{
    if (all->n == all->room) {
        all->room = all->room ? all->room * 2 : 16;
        all->heap = xrealloc(all->heap, sizeof(struct timer *) * (size_t)all->room);
    }
    t->until = until;
    move_up(all, all->n++, t);
}

void timers_remove(struct timers *all, struct timer *t)
{
    int i = t->at;
    struct timer *last;

    if (i == TIMER_OFF)
        return;
    t->at = TIMER_OFF;
    last = all->heap[--all->n];
    if (last == t)
        return;
    if (i && sooner(last, all->heap[(i - 1) / 2]))
        move_up(all, i, last);
    else
        move_down(all, i, last);
}

void timers_free(struct timers *all)
{
    free(all->heap);
    *all = (struct timers){ 0 };
}
