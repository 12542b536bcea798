/* sqlite_value.c - single values in SQLite: the node's id, keys that sign. */
#include "store/sqlite.h"

static int get(struct conn *c, const char *name, struct buf *out, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_VALUE_GET);
    int r;

    query_text(&q, name);
    r = query_step(&q, err);
    if (r < 0)
        return -1;
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no value '%.64s'", name);
    buf_add_str(out, query_get_blob(&q));
    return 0;
}

static int set(struct conn *c, enum sql how, const char *name, struct str value, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, how);

    query_text(&q, name);
    query_blob(&q, value);
    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_value_get(struct store *s, const char *name, struct buf *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);

    return get(c, name, out, err);
}

int sqlite_value_set(struct store *s, const char *name, struct str value, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);

    return set(c, SQL_VALUE_SET, name, value, err);
}

int sqlite_value_once(struct store *s, const char *name, struct str value, struct buf *out,
                      struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);

    return set(c, SQL_VALUE_ONCE, name, value, err) ? -1 : get(c, name, out, err);
}
