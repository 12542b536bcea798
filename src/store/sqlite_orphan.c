/* sqlite_orphan.c - machines that no sandbox's row knows, in SQLite: since when, for how long, and
 * why. */
#include "store/sqlite.h"

int sqlite_orphan_put(struct store *s, const struct orphan_row *o, struct err *err)
{
    /* there may be thousands at once; lost with the power, its time begins again */
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_ORPHAN_PUT);

    query_text(&q, o->id);
    query_int(&q, o->found_ms);
    query_int(&q, o->kept_ms);
    query_text(&q, o->reason);
    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_orphan_list(struct store *s, store_orphan_fn *fn, void *arg, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_ORPHAN_LIST);
    int r, stop = 0;

    while (!stop && (r = query_step(&q, err))) {
        struct orphan_row o = { 0 };

        if (r < 0 || query_get_chars(&q, o.id, sizeof(o.id), err))
            return -1;
        o.found_ms = query_get_int(&q);
        o.kept_ms = query_get_int(&q);
        if (query_get_chars(&q, o.reason, sizeof(o.reason), err))
            return -1;
        stop = fn(arg, &o);
    }
    return 0;
}

int sqlite_orphan_remove(struct store *s, const char *id, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_ORPHAN_REMOVE);

    query_text(&q, id);
    return query_run(&q, err) < 0 ? -1 : 0;
}
