/* queue.h - work for later that survives us: retries, mostly.
 *
 * One table of functions per kind of queue. Every call blocks: the caller runs it by co_call().
 * A queue may be called from several threads, and by several processes at once.
 *
 * At least once: who claims a job has it until its lease ends; if it was neither done nor put back
 * by then, it is given to the next who asks. A ticket tells the holders of one job apart, so that
 * one who comes late cannot finish what has become another's.
 *
 * A queue says when something should be looked at, never what is true: whoever claims a job asks
 * the record it is about whether there is still anything to do.
 *
 * Time is queue_now(): wall time as of the first opening since the machine started, and from there
 * on the monotonic clock. Setting the machine's clock makes nothing due, early or late. */
#ifndef QUEUE_QUEUE_H
#define QUEUE_QUEUE_H

#include "base/arena.h"
#include "model/job.h"
#include "store/store.h"

struct queue;

struct queue_ops {
    const char *name; /* "embedded" */
    void (*close)(struct queue *q);

    /* Of j: topic, key, payload, due_ms, attempts_max. 1: it is there, 0: one that was there stays
     * (JOB_STAY). ERR_INVALID: a text beyond the bounds of model/job.h. */
    int (*push)(struct queue *q, const struct job *j, enum job_push how, int64_t now_ms,
                struct err *err);
    /* The most overdue first, at most max (and JOB_CLAIM); how many. Their texts live in the arena.
     * One that was claimed attempts_max times, and never done, dies instead. */
    int (*claim)(struct queue *q, const char *topic, int64_t now_ms, int64_t lease_ms, int max,
                 struct job *out, struct arena *a, struct err *err);
    /* The four that need a claim: ERR_CONFLICT when the job is not that claim's any more. */
    int (*done)(struct queue *q, const struct job *j, struct err *err);
    int (*extend)(struct queue *q, const struct job *j, int64_t until_ms, struct err *err);
    /* Back, due then; or dead (1) when it was tried attempts_max times. */
    int (*retry)(struct queue *q, const struct job *j, int64_t due_ms, const char *error,
                 int64_t now_ms, struct err *err);
    int (*bury)(struct queue *q, const struct job *j, const char *error, int64_t now_ms,
                struct err *err);
    /* Whatever state it is in. ERR_NOT_FOUND. */
    int (*cancel)(struct queue *q, const char *topic, const char *key, struct err *err);
    /* When the next one of a topic may be claimed, NEVER: none. */
    int (*next)(struct queue *q, const char *topic, int64_t *due_ms, struct err *err);

    /* The latest first. topic NULL: of all. */
    int (*dead)(struct queue *q, const char *topic, int64_t limit, store_job_fn *fn, void *arg,
                struct err *err);
    /* A dead one, as if it had just been pushed, first_ms too. ERR_NOT_FOUND: none that is dead. */
    int (*requeue)(struct queue *q, const char *topic, const char *key, int64_t now_ms,
                   struct err *err);
    /* Forgets those that died before; how many. */
    int64_t (*forget)(struct queue *q, int64_t dead_before_ms, struct err *err);
};

struct queue {
    const struct queue_ops *ops;
    int64_t offset_ms; /* of queue_now() from the monotonic clock */
};

/* In the store. boot: names this start of the machine ("": unknown, then every opening begins the
 * clock anew). The store is borrowed, and closed after it. */
int queue_open_embedded(struct store *s, const char *boot, struct queue **out, struct err *err);
void queue_closep(struct queue **q);

int64_t queue_now(const struct queue *q);
/* How long to wait after so many attempts: first_ms, twice that, and so on, at most max_ms. */
int64_t queue_backoff_ms(int64_t attempts, int64_t first_ms, int64_t max_ms);
/* For the queues themselves. */
int queue_check(const struct job *j, struct err *err);

#endif
