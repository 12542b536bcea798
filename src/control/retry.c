/* retry.c - what failed when it was due and has to be tried again, in the queue: it outlives us, so
 * that what has failed for ten minutes has done so across a restart too.
 *
 * A job says that a sandbox should be looked at, never what to do: the sandbox's own record does.
 * One that was used, moved, paused or ended meanwhile has nothing left to do, and its job goes. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum {
    CLAIM_AT_ONCE = 10,
    LEASE_MS = 120000, /* longer than a pause may take */
    LOOK_MS = 10000,   /* after a failure of the store */
    RETRY_MS = 1000,   /* twice that the next time, and so on */
    RETRY_MAX_MS = 30000,
};

/* ---- the queue, always on a worker ---- */

struct asking {
    struct control *c;
    int (*fn)(struct queue *q, struct asking *w);
    const struct job *job;
    const char *error;
    int64_t at_ms;
    struct job *out;
    struct arena *arena;
    struct err err;
    int result;
};

static void ask(void *arg)
{
    struct asking *w = arg;

    w->result = w->fn(w->c->queue, w);
}

static int asked(struct asking *w, struct err *err)
{
    co_call(ask, w);
    if (w->result < 0)
        *err = w->err;
    return w->result;
}

static int do_push(struct queue *q, struct asking *w)
{
    return q->ops->push(q, w->job, JOB_STAY, queue_now(q), &w->err);
}

static int do_next(struct queue *q, struct asking *w)
{
    return q->ops->next(q, w->c->retries, &w->at_ms, &w->err);
}

static int do_claim(struct queue *q, struct asking *w)
{
    return q->ops->claim(q, w->c->retries, queue_now(q), LEASE_MS, CLAIM_AT_ONCE, w->out, w->arena,
                         &w->err);
}

static int do_done(struct queue *q, struct asking *w) { return q->ops->done(q, w->job, &w->err); }

static int do_retry(struct queue *q, struct asking *w)
{
    return q->ops->retry(q, w->job, w->at_ms, w->error, queue_now(q), &w->err);
}

static int do_bury(struct queue *q, struct asking *w)
{
    return q->ops->bury(q, w->job, w->error, queue_now(q), &w->err);
}

static int do_forget(struct queue *q, struct asking *w)
{
    return q->ops->forget(q, w->at_ms, &w->err) < 0 ? -1 : 0;
}

/* ---- opening ---- */

static int do_open(struct queue *unused, struct asking *w)
{
    (void)unused;
    return queue_open_embedded(w->c->store, w->error, &w->c->queue, &w->err);
}

int retry_open(struct control *c, const char *boot, struct err *err)
{
    struct asking w = { .c = c, .fn = do_open, .error = boot ? boot : "" };

    c->retries = xmalloc(JOB_TOPIC + 1);
    snprintf(c->retries, JOB_TOPIC + 1, "retry/%.50s", c->node); /* our own sandboxes */
    return asked(&w, err);
}

void retry_close(struct control *c)
{
    queue_closep(&c->queue);
    free(TAKE(c->retries, NULL));
}

/* What is in the queue has changed. */
static void tell(struct control *c)
{
    c->retry_news++;
    co_cond_wake(&c->retry_added);
}

/* ---- one job ---- */

struct trying {
    struct control *c;
    char key[JOB_KEY + 1], topic[JOB_TOPIC + 1];
    struct job job;
    int64_t end_ms; /* of the record when it failed first */
};

static void settle(struct trying *t, struct asking *w)
{
    struct err err = { 0 };

    w->c = t->c;
    w->job = &t->job;
    /* A conflict: somebody has it now who knows better. Else it comes again when its lease ends. */
    if (asked(w, &err) < 0 && err.code != ERR_CONFLICT)
        log_warn("a retry is not written down", KV("sandbox", t->key), KV("error", err.msg));
    tell(t->c); /* it is due before its lease would have ended */
}

static void try_sandbox(struct trying *t, struct live *l)
{
    struct queue *q = t->c->queue;
    struct err err = { 0 };
    struct asking w = { .fn = do_done };
    int r = life_retry(l, t->end_ms, queue_now(q) - t->job.first_ms, &err);

    if (r > 0) {
        w.fn = do_bury;
        w.error = err.msg;
    } else if (r < 0) {
        w.fn = do_retry;
        w.error = err.msg;
        w.at_ms = queue_now(q) + queue_backoff_ms(t->job.attempts, RETRY_MS, RETRY_MAX_MS);
    }
    settle(t, &w);
}

static void try_job(void *arg)
{
    AUTO(freep) struct trying *t = arg;
    AUTO(live_releasep) struct live *l = table_hold(t->c, t->key);
    struct asking w = { .fn = do_done };
    struct err err = { 0 };

    if (!l) {
        settle(t, &w);
        return;
    }
    if (live_lock(l, &err))
        return;
    try_sandbox(t, l);
    live_unlock(l);
}

static void start(struct control *c, const struct job *j)
{
    struct trying *t = xcalloc(1, sizeof(*t));

    t->c = c;
    t->job = *j;
    snprintf(t->key, sizeof(t->key), "%s", j->key);
    snprintf(t->topic, sizeof(t->topic), "%s", j->topic);
    t->job.key = t->key;
    t->job.topic = t->topic;
    if (str_i64(j->payload, &t->end_ms))
        t->end_ms = 0;
    t->job.payload = (struct str){ 0 };
    t->job.error = "";
    if (control_go(c, try_job, t)) /* no memory for it: it comes again when its lease ends */
        free(t);
}

/* ---- all of them ---- */

int retry_later(struct live *l, struct err *err)
{
    struct control *c = l->control;
    char end_ms[24];
    struct job j = { .topic = c->retries,
                     .key = l->s.id,
                     .due_ms = queue_now(c->queue) + RETRY_MS };
    struct asking w = { .c = c, .fn = do_push, .job = &j };

    snprintf(end_ms, sizeof(end_ms), "%lld", (long long)l->s.end_ms);
    j.payload = str_of(end_ms);
    if (asked(&w, err) < 0)
        return -1;
    tell(c);
    return 0;
}

static int serve_due(struct control *c, struct err *err)
{
    struct arena arena = { 0 };
    struct job *jobs = xcalloc(CLAIM_AT_ONCE, sizeof(*jobs));
    struct asking w = { .c = c, .fn = do_claim, .out = jobs, .arena = &arena };
    int n = asked(&w, err);

    for (int i = 0; i < n; i++)
        start(c, &jobs[i]);
    free(jobs);
    arena_free(&arena);
    return n;
}

/* When to look again: by the monotonic clock. */
static int64_t next_look(struct control *c)
{
    struct asking w = { .c = c, .fn = do_next };
    struct err err = { 0 };

    if (asked(&w, &err) < 0) {
        log_warn("the queue cannot be read", KV("error", err.msg));
        return co_in(LOOK_MS);
    }
    return w.at_ms == NEVER ? NEVER : co_now() + MAX(w.at_ms - queue_now(c->queue), (int64_t)0);
}

void retry_serve(void *control)
{
    struct control *c = control;

    while (!c->closing && !co_cancelled()) {
        uint64_t seen = c->retry_news;
        int64_t at = next_look(c);
        struct err err = { 0 };

        if (seen != c->retry_news)
            continue;
        if (at > co_now())
            co_cond_wait(&c->retry_added, at);
        else if (serve_due(c, &err) < 0) {
            log_warn("the queue cannot be read", KV("error", err.msg));
            co_sleep(co_in(LOOK_MS));
        }
    }
}

void retry_tend(struct control *c)
{
    struct asking w = { .c = c, .fn = do_forget };
    struct err err = { 0 };

    w.at_ms = queue_now(c->queue) - control_limits.ended_days * 86400000;
    if (asked(&w, &err) < 0)
        log_warn("old dead letters are not forgotten", KV("error", err.msg));
}
