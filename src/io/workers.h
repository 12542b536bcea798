/* workers.h - threads for what blocks: file systems, databases, name look-ups. */
#ifndef COVE_IO_WORKERS_H
#define COVE_IO_WORKERS_H

#include <stdbool.h>

struct work {
    void (*fn)(void *arg);
    void *arg;
    void (*done)(struct work *); /* on the worker's thread; the work is the owner's again */
    struct work *next;
};

/* Queues it for a thread. False when there is none to be had: the caller then does it himself. */
bool workers_take(struct work *w);

#endif
