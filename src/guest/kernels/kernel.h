/* kernel.h - a kernel as its clients see it: an id, a state, and whoever listens. Behind it is one
 * engine at a time. */
#ifndef GUEST_KERNELS_KERNEL_H
#define GUEST_KERNELS_KERNEL_H

#include "guest/kernels/engine.h"

enum kernel_state {
    KERNEL_STARTING,
    KERNEL_IDLE,
    KERNEL_BUSY,
    KERNEL_RESTARTING,
    KERNEL_AUTORESTARTING,
    KERNEL_DEAD
};

struct listener { /* somebody who wants what a kernel says; embedded in his own struct */
    struct list node;
    /* Must not park: what cannot be passed on at once is queued and counted in `queued`. */
    void (*deliver)(struct listener *l, struct message *m);
    void (*changed)(struct listener *l); /* another engine, or none: its sockets are gone */
    size_t queued;                       /* bytes; while too many, the kernel is not read */
};

struct kernel {
    unsigned refs;
    struct list all;
    char id[37];
    struct kernelspec *spec;
    char *cwd;
    struct map env; /* owned: a restart gives it again */
    struct engine *engine;
    enum kernel_state state;
    int64_t active_us; /* wall clock, for people */
    int64_t active_at; /* the same as co_now(), for deadlines */
    char *reason;      /* why it is dead; NULL: it is not, or nobody knows */
    int64_t connections;
    struct list listeners;
    struct co_cond drained; /* a listener's queue got shorter, or he left */
    struct co_cond changed; /* engine or state */
    bool removed;           /* no longer in the table */
    bool hidden;            /* the interpreter's: not for Jupyter's clients to cull */
    bool restarting;
    int64_t restarts, restarted_at;
    int failures;     /* starts in a row that came to nothing */
    bool unforked;    /* the last of them was a fork: the next one is not */
    struct list kept; /* channels whose client is away, at most one (channels.c) */
};

struct kernel_spec { /* what a client asks for; all borrowed */
    const char *name, *path, *id;
    const struct map *env;
};

/* NULL with err; ERR_NOT_FOUND: no such kernel spec, ERR_DENIED: too many, ERR_CONFLICT: the id. */
struct kernel *kernel_create(const struct kernel_spec *s, struct err *err);
struct kernel *kernel_get(struct kernel *k);
void kernel_put(struct kernel *k);
void kernel_putp(struct kernel **k);
int kernel_restart(struct kernel *k, struct err *err); /* parks until the new one answers */
void kernel_remove(struct kernel *k);                  /* from the table, and ends it; parks */
/* An engine that answers, with a reference for the caller; NULL with err. */
struct engine *kernel_engine(struct kernel *k, int64_t until, struct err *err);

void kernel_listen(struct kernel *k, struct listener *l);
void kernel_unlisten(struct kernel *k, struct listener *l);
void kernel_say(struct kernel *k, const char *state); /* a status message of our own */
void kernel_new_id(char out[static 37]);              /* a UUID of version 4 */
const char *kernel_state_name(enum kernel_state s);
void kernel_write(const struct kernel *k, struct buf *json); /* the API's model */
void kernel_set_state(struct kernel *k, enum kernel_state s);

/* ---- for engines ---- */
void kernel_heard(struct kernel *k, struct message *m); /* parks while a listener is full */
void kernel_engine_died(struct kernel *k, struct engine *e);

#endif
