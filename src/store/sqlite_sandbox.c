/* sqlite_sandbox.c - sandboxes in SQLite: the rows that every request writes. */
#include <unistd.h>

#include "store/column.h"
#include "store/sqlite.h"

enum { PRUNE_ROWS = 200, PRUNE_PAUSE_US = 2000 };

static void bind_row(struct query *q, const struct sandbox *b, bool fixed_too, struct arena *a)
{
    for (const struct column *c = column_sandbox; c->name; c++) {
        struct column_value v;

        if (c->fixed && !fixed_too)
            continue;
        v = column_get(c, b, a);
        if (v.is_int)
            query_int(q, v.i);
        else
            query_text(q, v.text);
    }
}

static int read_row(struct query *q, struct sandbox *out, struct err *err)
{
    struct sandbox b = { 0 };

    for (const struct column *c = column_sandbox; c->name; c++) {
        struct column_value v = { .is_int = query_get_is_int(q) };

        if (v.is_int)
            v.i = query_get_int(q);
        else
            v.text = query_get_text(q);
        if (column_set(c, v, &b, err)) {
            err_in(err, "%s: sandbox '%s'", q->conn->path, b.id);
            sandbox_finish(&b);
            return -1;
        }
    }
    *out = b;
    return 0;
}

static int insert(struct conn *c, const struct sandbox *b, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_ADD);

    bind_row(&q, b, true, &a);
    query_int(&q, b->state != SANDBOX_ENDED);
    return query_run(&q, err) < 0 ? -1 : 0;
}

/* Why a row was refused: another of its owner has the key, or its owner is not there. */
static int explain_add(struct conn *c, const struct sandbox *b, char *existing, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_BY_KEY);
    struct err unused;

    if (err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "there is no user %lld to own sandbox %s",
                       (long long)b->owner, b->id);
    if (err->code != ERR_CONFLICT)
        return -1;
    query_int(&q, b->owner);
    query_text(&q, b->idem_key);
    if (!b->idem_key || query_step(&q, &unused) != 1)
        return err_set(err, ERR_CONFLICT, "sandbox %s exists already", b->id);
    if (existing)
        return query_get_chars(&q, existing, SANDBOX_ID + 1, err)
                   ? -1
                   : err_set(err, ERR_CONFLICT, "the idempotency key was used for sandbox %s",
                             existing);
    return err_set(err, ERR_CONFLICT, "the idempotency key was used before");
}

int sqlite_sandbox_add(struct store *s, const struct sandbox *b, const struct event *e,
                       char existing[SANDBOX_ID + 1], struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    int r;

    if (existing)
        existing[0] = 0;
    if (e && sqlite_begin(c, err))
        return -1;
    r = insert(c, b, err);
    if (r)
        explain_add(c, b, existing, err);
    else if (e)
        r = sqlite_event_put(c, b->id, e, err);
    return e ? sqlite_end(c, r, err) : r;
}

/* 0: it is as expected, and the row is written. */
static int update(struct conn *c, const struct sandbox *b, const char *expect, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(query_endp)
    struct query q =
        sqlite_query(c, b->state == SANDBOX_ENDED ? SQL_SANDBOX_END : SQL_SANDBOX_SAVE);
    int n;

    bind_row(&q, b, false, &a);
    query_text(&q, b->id);
    query_text(&q, expect);
    n = query_run(&q, err);
    return n < 0 ? -1 : !n;
}

static int explain_save(struct conn *c, const char *id, const char *expect, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_STATE);
    int r;

    query_text(&q, id);
    r = query_step(&q, err);
    if (r < 0)
        return -1;
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox %s", id);
    return err_set(err, ERR_CONFLICT, "sandbox %s is %s, not %s", id, query_get_text(&q), expect);
}

int sqlite_sandbox_save(struct store *s, const struct sandbox *b, enum sandbox_state expect,
                        const struct event *e, struct err *err)
{
    /* A paused one has nobody running who would miss it after a power loss: its row must not be. */
    AUTO(sqlite_unlockp)
    struct conn *c = b->state == SANDBOX_PAUSED ? sqlite_lock_full(&SELF(s)->writer)
                                                : sqlite_lock(&SELF(s)->writer);
    const char *was = sandbox_state_names[expect];
    int r;

    if (store_move(b, expect, err) || (e && sqlite_begin(c, err)))
        return -1;
    r = update(c, b, was, err);
    if (r > 0)
        r = explain_save(c, b->id, was, err);
    if (!r && e)
        r = sqlite_event_put(c, b->id, e, err);
    return e ? sqlite_end(c, r, err) : r;
}

/* ---- questions ---- */

static int one(struct query *q, const char *what, struct sandbox *out, struct err *err)
{
    int r = query_step(q, err);

    if (r < 0)
        return -1;
    return r ? read_row(q, out, err)
             : err_set(err, ERR_NOT_FOUND, "there is no sandbox %.64s", what);
}

static int each(struct query *q, store_sandbox_fn *fn, void *arg, struct err *err)
{
    int r, stop = 0;

    while (!stop && (r = query_step(q, err))) {
        struct sandbox b;

        if (r < 0 || read_row(q, &b, err))
            return -1;
        stop = fn(arg, &b);
        sandbox_finish(&b);
    }
    return 0;
}

int sqlite_sandbox_get(struct store *s, const char *id, struct sandbox *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp)
    struct query q =
        sqlite_query(c, strlen(id) == SANDBOX_UUID ? SQL_SANDBOX_BY_UUID : SQL_SANDBOX_BY_ID);

    query_text(&q, id);
    return one(&q, id, out, err);
}

int sqlite_sandbox_by_key(struct store *s, int64_t owner, const char *key, struct sandbox *out,
                          struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_BY_KEY);

    query_int(&q, owner);
    query_text(&q, key);
    return one(&q, "of that idempotency key", out, err);
}

int sqlite_sandbox_live(struct store *s, const char *node, store_sandbox_fn *fn, void *arg,
                        struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_LIVE);

    query_text(&q, node);
    return each(&q, fn, arg, err);
}

int sqlite_sandbox_ended(struct store *s, int64_t owner, int64_t limit, store_sandbox_fn *fn,
                         void *arg, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp)
    struct query q = sqlite_query(c, owner ? SQL_SANDBOX_ENDED_OF : SQL_SANDBOX_ENDED);

    if (owner)
        query_int(&q, owner);
    query_int(&q, MAX(limit, (int64_t)0)); /* to SQLite less than none is all */
    return each(&q, fn, arg, err);
}

static int delete_some(struct conn *c, int64_t before, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SANDBOX_PRUNE);

    query_int(&q, before);
    query_int(&q, PRUNE_ROWS);
    return query_run(&q, err);
}

static int prune_some(struct sqlite *q, int64_t before, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&q->writer);
    int n;

    if (sqlite_begin(c, err))
        return -1;
    n = sqlite_event_floor(c, err) ? -1 : delete_some(c, before, err);
    return sqlite_end(c, n < 0 ? -1 : 0, err) ? -1 : n;
}

/* In small steps, with a pause in which others get the lock: a million rows must not keep a
 * request waiting. */
int64_t sqlite_sandbox_prune(struct store *s, int64_t ended_before_ms, struct err *err)
{
    int64_t all = 0;
    int n;

    while ((n = prune_some(SELF(s), ended_before_ms, err)) == PRUNE_ROWS) {
        all += n;
        usleep(PRUNE_PAUSE_US);
    }
    return n < 0 ? -1 : all + n;
}
