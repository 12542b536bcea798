/* queue.c - what is the same for every kind of queue: its bounds, its waits, its clock. */
#include "queue/queue.h"

#include "base/clock.h"

int64_t queue_now(const struct queue *q) { return clock_ms() + q->offset_ms; }

int64_t queue_backoff_ms(int64_t attempts, int64_t first_ms, int64_t max_ms)
{
    int64_t ms = first_ms;

    for (int64_t i = 1; i < attempts && ms < max_ms; i++)
        ms *= 2;
    return MIN(ms, max_ms);
}

static int check_text(const char *what, const char *text, size_t max, struct err *err)
{
    size_t n = text ? strlen(text) : 0;

    if (n && n <= max)
        return 0;
    return err_set(err, ERR_INVALID, "a job's %s must have 1 to %zu bytes", what, max);
}

int queue_check(const struct job *j, struct err *err)
{
    if (check_text("topic", j->topic, JOB_TOPIC, err) || check_text("key", j->key, JOB_KEY, err))
        return -1;
    if (j->payload.n > JOB_PAYLOAD)
        return err_set(err, ERR_INVALID, "a job's payload must have at most %d bytes", JOB_PAYLOAD);
    return 0;
}

void queue_closep(struct queue **q)
{
    if (*q)
        (*q)->ops->close(*q);
    *q = NULL;
}
