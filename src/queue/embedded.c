/* embedded.c - the queue in the store: no server of its own, and what it holds is backed up with
 * the rest. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "queue/queue.h"

struct embedded {
    struct queue queue;
    struct store *store;
};

#define STORE(q) (CONTAINER_OF(q, struct embedded, queue)->store)

static void close_embedded(struct queue *q) { free(CONTAINER_OF(q, struct embedded, queue)); }

static int push(struct queue *q, const struct job *j, enum job_push how, int64_t now_ms,
                struct err *err)
{
    struct store *s = STORE(q);

    return queue_check(j, err) ? -1 : s->ops->job_push(s, j, how, now_ms, err);
}

static int claim(struct queue *q, const char *topic, int64_t now_ms, int64_t lease_ms, int max,
                 struct job *out, struct arena *a, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_claim(s, topic, now_ms, lease_ms, MIN(max, (int)JOB_CLAIM), out, a, err);
}

static int done(struct queue *q, const struct job *j, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_done(s, j, err);
}

static int extend(struct queue *q, const struct job *j, int64_t until_ms, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_extend(s, j, until_ms, err);
}

static int retry(struct queue *q, const struct job *j, int64_t due_ms, const char *error,
                 int64_t now_ms, struct err *err)
{
    struct store *s = STORE(q);

    if (j->attempts_max && j->attempts >= j->attempts_max)
        return s->ops->job_bury(s, j, error, now_ms, err) ? -1 : 1;
    return s->ops->job_retry(s, j, due_ms, error, err);
}

static int bury(struct queue *q, const struct job *j, const char *error, int64_t now_ms,
                struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_bury(s, j, error, now_ms, err);
}

static int cancel(struct queue *q, const char *topic, const char *key, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_remove(s, topic, key, err);
}

static int next(struct queue *q, const char *topic, int64_t *due_ms, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_next(s, topic, due_ms, err);
}

static int dead(struct queue *q, const char *topic, int64_t limit, store_job_fn *fn, void *arg,
                struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_dead(s, topic, limit, fn, arg, err);
}

static int requeue(struct queue *q, const char *topic, const char *key, int64_t now_ms,
                   struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_requeue(s, topic, key, now_ms, err);
}

static int64_t forget(struct queue *q, int64_t dead_before_ms, struct err *err)
{
    struct store *s = STORE(q);

    return s->ops->job_forget(s, dead_before_ms, err);
}

static const struct queue_ops ops = {
    .name = "embedded",
    .close = close_embedded,
    .push = push,
    .claim = claim,
    .done = done,
    .extend = extend,
    .retry = retry,
    .bury = bury,
    .cancel = cancel,
    .next = next,
    .dead = dead,
    .requeue = requeue,
    .forget = forget,
};

/* ---- the clock ---- */

static int64_t wall_offset_ms(void) { return clock_wall_ms() - clock_ms(); }

/* "<boot> <offset>": the first who opens it after a start of the machine says what time it is, and
 * all that follow agree, whatever the wall clock was set to meanwhile. */
static int read_clock(struct store *s, const char *boot, int64_t *offset, struct err *err)
{
    AUTO(buf_free) struct buf value = { 0 };
    struct err missing = { 0 };
    struct str was, number;

    if (!s->ops->value_get(s, "queue.clock", &value, &missing)) {
        if (str_cut(buf_str(&value), ' ', &was, &number) && str_is(was, boot) &&
            !str_i64(number, offset))
            return 0;
        buf_drop(&value, value.len);
    } else if (missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    *offset = wall_offset_ms();
    buf_printf(&value, "%s %lld", boot, (long long)*offset);
    return s->ops->value_set(s, "queue.clock", buf_str(&value), err);
}

int queue_open_embedded(struct store *s, const char *boot, struct queue **out, struct err *err)
{
    struct embedded *e;
    int64_t offset = wall_offset_ms();

    if (boot[0] && read_clock(s, boot, &offset, err))
        return err_in(err, "the queue's clock");
    e = xcalloc(1, sizeof(*e));
    e->queue = (struct queue){ &ops, offset };
    e->store = s;
    *out = &e->queue;
    return 0;
}
