/* sqlite_job.c - the embedded queue's rows in SQLite. A claim is a due time in the future and a
 * ticket: nothing has to notice that a lease has ended. */
#include "base/id.h"
#include "store/sqlite.h"

static int64_t new_ticket(void)
{
    uint64_t n;

    id_bytes(&n, sizeof(n));
    return (int64_t)(n >> 2) + 1; /* never 0, which is no claim */
}

/* One row changed, or the reason why none did. */
static int one(int changed, enum err_code code, const char *topic, const char *key, struct err *err)
{
    if (changed < 0)
        return -1;
    if (changed)
        return 0;
    return err_set(err, code,
                   code == ERR_CONFLICT ? "the job %s of %s was taken over, replaced or cancelled"
                                        : "there is no such job %s of %s",
                   key, topic);
}

int sqlite_job_push(struct store *s, const struct job *j, enum job_push how, int64_t now_ms,
                    struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp)
    struct query q = sqlite_query(c, how == JOB_STAY ? SQL_JOB_PUSH_STAY : SQL_JOB_PUSH);

    query_text(&q, j->topic);
    query_text(&q, j->key);
    query_blob(&q, j->payload);
    query_int(&q, j->due_ms);
    query_int(&q, now_ms);
    query_int(&q, j->attempts_max);
    return query_run(&q, err);
}

/* ---- claiming ---- */

static int bury_exhausted(struct conn *c, const char *topic, int64_t now_ms, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_EXHAUST);

    query_text(&q, topic);
    query_int(&q, now_ms);
    return query_run(&q, err) < 0 ? -1 : 0;
}

static void read_job(struct query *q, struct job *j)
{
    *j = (struct job){ 0 };
    j->topic = query_get_text(q);
    j->key = query_get_text(q);
    j->payload = query_get_blob(q);
    j->due_ms = query_get_int(q);
    j->first_ms = query_get_int(q);
    j->attempts = query_get_int(q);
    j->attempts_max = query_get_int(q);
    j->ticket = query_get_int(q);
    j->dead_ms = query_get_int(q);
    j->error = query_get_text(q);
}

static void keep_job(struct job *j, struct arena *a)
{
    j->topic = arena_strdup(a, str_of(j->topic));
    j->key = arena_strdup(a, str_of(j->key));
    j->payload.p = arena_strdup(a, j->payload);
    j->error = arena_strdup(a, str_of(j->error));
}

static int find_due(struct conn *c, const char *topic, int64_t now_ms, int max, struct job *out,
                    struct arena *a, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_DUE);
    int n = 0, r;

    query_text(&q, topic);
    query_int(&q, now_ms);
    query_int(&q, max);
    while ((r = query_step(&q, err)) > 0) {
        read_job(&q, &out[n]);
        keep_job(&out[n++], a);
    }
    return r < 0 ? -1 : n;
}

static int take(struct conn *c, struct job *j, int64_t until_ms, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_TAKE);

    j->ticket = new_ticket();
    j->due_ms = until_ms;
    j->attempts++;
    query_int(&q, j->due_ms);
    query_int(&q, j->ticket);
    query_text(&q, j->topic);
    query_text(&q, j->key);
    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_job_claim(struct store *s, const char *topic, int64_t now_ms, int64_t lease_ms, int max,
                     struct job *out, struct arena *a, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    int n, r;

    if (sqlite_begin(c, err))
        return -1;
    r = bury_exhausted(c, topic, now_ms, err);
    n = r ? -1 : find_due(c, topic, now_ms, max, out, a, err);
    for (int i = 0; i < n && !r; i++)
        r = take(c, &out[i], now_ms + lease_ms, err);
    return sqlite_end(c, n < 0 ? -1 : r, err) ? -1 : n;
}

/* ---- what a claim may do ---- */

int sqlite_job_done(struct store *s, const struct job *j, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_DONE);

    query_text(&q, j->topic);
    query_text(&q, j->key);
    query_int(&q, j->ticket);
    return one(query_run(&q, err), ERR_CONFLICT, j->topic, j->key, err);
}

static int change(struct store *s, const struct job *j, enum sql how, int64_t at_ms,
                  const char *error, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, how);
    char text[JOB_ERROR + 1];

    snprintf(text, sizeof(text), "%s", error ? error : "");
    query_int(&q, at_ms);
    if (error)
        query_text(&q, text);
    query_text(&q, j->topic);
    query_text(&q, j->key);
    query_int(&q, j->ticket);
    return one(query_run(&q, err), ERR_CONFLICT, j->topic, j->key, err);
}

int sqlite_job_extend(struct store *s, const struct job *j, int64_t until_ms, struct err *err)
{
    return change(s, j, SQL_JOB_EXTEND, until_ms, NULL, err);
}

int sqlite_job_retry(struct store *s, const struct job *j, int64_t due_ms, const char *error,
                     struct err *err)
{
    return change(s, j, SQL_JOB_RETRY, due_ms, error, err);
}

int sqlite_job_bury(struct store *s, const struct job *j, const char *error, int64_t now_ms,
                    struct err *err)
{
    return change(s, j, SQL_JOB_BURY, now_ms, error, err);
}

/* ---- without one ---- */

int sqlite_job_remove(struct store *s, const char *topic, const char *key, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_REMOVE);

    query_text(&q, topic);
    query_text(&q, key);
    return one(query_run(&q, err), ERR_NOT_FOUND, topic, key, err);
}

int sqlite_job_next(struct store *s, const char *topic, int64_t *due_ms, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_NEXT);
    int r;

    query_text(&q, topic);
    r = query_step(&q, err);
    if (r < 0)
        return -1;
    *due_ms = r ? query_get_int(&q) : INT64_MAX;
    return 0;
}

int sqlite_job_dead(struct store *s, const char *topic, int64_t limit, store_job_fn *fn, void *arg,
                    struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_DEAD);
    int r;

    query_text(&q, topic);
    query_int(&q, limit);
    while ((r = query_step(&q, err)) > 0) {
        struct job j;

        read_job(&q, &j);
        if (fn(arg, &j))
            return 0;
    }
    return r;
}

int sqlite_job_requeue(struct store *s, const char *topic, const char *key, int64_t now_ms,
                       struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_REQUEUE);

    query_int(&q, now_ms);
    query_text(&q, topic);
    query_text(&q, key);
    return one(query_run(&q, err), ERR_NOT_FOUND, topic, key, err);
}

int64_t sqlite_job_forget(struct store *s, int64_t dead_before_ms, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_JOB_FORGET);

    query_int(&q, dead_before_ms);
    return query_run(&q, err);
}
