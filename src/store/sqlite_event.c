/* sqlite_event.c - what happened to a sandbox, in SQLite: rows that go when their sandbox goes. */
#include "store/sqlite.h"

int sqlite_event_put(struct conn *c, const char *sandbox, const struct event *e, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_EVENT_ADD);
    int n;

    query_int(&q, e->at_ms);
    query_text(&q, e->kind);
    query_text(&q, e->actor);
    query_text(&q, e->text);
    query_text(&q, e->detail);
    query_text(&q, sandbox);
    n = query_run(&q, err);
    if (n < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_NOT_FOUND, "there is no sandbox %s", sandbox);
}

int sqlite_event_floor(struct conn *c, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_EVENT_FLOOR);

    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_event_add(struct store *s, const struct event *e, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);

    return sqlite_event_put(c, e->sandbox, e, err);
}

int sqlite_event_list(struct store *s, const char *sandbox, int64_t after_seq, int64_t limit,
                      store_event_fn *fn, void *arg, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_EVENT_LIST);
    int r, stop = 0;

    query_text(&q, sandbox);
    query_int(&q, after_seq);
    query_int(&q, MAX(limit, (int64_t)0));
    while (!stop && (r = query_step(&q, err))) {
        struct event e;

        if (r < 0)
            return -1;
        e.seq = query_get_int(&q);
        e.at_ms = query_get_int(&q);
        e.kind = query_get_text(&q);
        e.actor = query_get_text(&q);
        e.text = query_get_text(&q);
        e.detail = query_get_text(&q);
        if (query_get_chars(&q, e.sandbox, sizeof(e.sandbox), err))
            return -1;
        stop = fn(arg, &e);
    }
    return 0;
}
