/* timers.h - deadlines as a binary heap: the nearest is at hand, any can be taken out. */
#ifndef IO_TIMERS_H
#define IO_TIMERS_H

#include <stddef.h>
#include <stdint.h>

enum { TIMER_OFF = -1 };

struct timer { /* in what waits for it */
    int64_t until;
    int at; /* its place in the heap; TIMER_OFF: in none */
};

struct timers { /* all zero: empty */
    struct timer **heap;
    int n, room;
};

/* t must be off. */
void timers_add(struct timers *all, struct timer *t, int64_t until);
/* Nothing when it is off. */
void timers_remove(struct timers *all, struct timer *t);
void timers_free(struct timers *all);

/* NULL: there is none. */
static inline struct timer *timers_nearest(const struct timers *all)
{
    return all->n ? all->heap[0] : NULL;
}

#endif
