/* loop.h - the keeper's event loop: descriptors with a function each. Small, because what runs in
 * it is privileged: no coroutines, no threads. */
#ifndef KEEP_LOOP_H
#define KEEP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct source {
    int fd; /* -1: not watched */
    void (*ready)(struct source *s);
};

struct loop {
    int epoll;
    bool stop;
    struct source *batch[64]; /* of the turn under way: a removed source is struck out */
    int nbatch;
};

int loop_open(struct loop *l, struct err *err);
void loop_close(struct loop *l);
int loop_add(struct loop *l, struct source *s, uint32_t events, struct err *err);
void loop_remove(struct loop *l, struct source *s); /* does not close; harmless when not watched */
int loop_turn(struct loop *l, int timeout_ms, struct err *err);

#endif
