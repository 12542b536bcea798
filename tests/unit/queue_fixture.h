/* queue_fixture.h - the kinds of queue that the conformance cases (QUEUE_TEST) run over. A new kind
 * is a row in `queue_kinds`, and has to pass all of them. */
#ifndef TESTS_QUEUE_FIXTURE_H
#define TESTS_QUEUE_FIXTURE_H

#include "base/mem.h"
#include "queue/queue.h"
#include "store_fixture.h"

struct queue_place {    /* one queue, opened as often as a case likes; all zero is an empty one */
    struct place place; /* of the embedded one: its store */
    struct store *store;
    struct queue *queue; /* NULL: closed */
};

static inline int embedded_open(struct queue_place *p, const char *boot)
{
    int r = kind_of_store->open(&p->place, &p->store);

    return r ? r : queue_open_embedded(p->store, boot, &p->queue, &err);
}

static inline void embedded_close(struct queue_place *p)
{
    queue_closep(&p->queue);
    store_closep(&p->store);
}

__attribute__((unused)) static const struct queue_kind {
    const char *name;
    /* 1: not on this machine, and it said why */
    int (*open)(struct queue_place *p, const char *boot);
    void (*close)(struct queue_place *p);
    bool in_store;
} queue_kinds[] = {
    { "embedded", embedded_open, embedded_close, true },
};

/* The kind that the case runs over now. */
static const struct queue_kind *kind_now;

static inline void over_queue(const struct queue_kind *k,
                              void (*fn)(struct queue *q, struct queue_place *p))
{
    struct queue_place p = { 0 };
    int r;

    kind_now = k;
    r = k->open(&p, "boot");
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", k->name, err.msg);
    if (r)
        return;
    CHECK_STR(p.queue->ops->name, k->name);
    fn(p.queue, &p);
    k->close(&p);
    if (k->in_store && kind_of_store->remove)
        kind_of_store->remove(&p.place);
}

/* Those that live in a store, in each kind of store. */
static inline void over_queues(void (*fn)(struct queue *q, struct queue_place *p))
{
    for (size_t i = 0; i < ARRAY_LEN(queue_kinds); i++)
        for (size_t n = 0; n < (queue_kinds[i].in_store ? ARRAY_LEN(kinds) : 1); n++) {
            kind_of_store = &kinds[n];
            over_queue(&queue_kinds[i], fn);
        }
}

static inline struct queue *queue_again(struct queue_place *p, const char *boot)
{
    kind_now->close(p);
    OK(kind_now->open(p, boot));
    return p->queue;
}

#define QUEUE_TEST(case_name)                                                                      \
    static void on_##case_name(struct queue *q, struct queue_place *p);                            \
    TEST(case_name) { over_queues(on_##case_name); }                                               \
    static void on_##case_name(struct queue *q, __attribute__((unused)) struct queue_place *p)

#endif
