/* sqlite_session.c - logins in SQLite. A token is good while its row is there, so a login that was
 * ended stays ended: what is told as done is on the disk before it is told. */
#include "store/sqlite.h"

/* One statement looks at the user and logs in: a change of the password before it is seen, and one
 * behind it ends this login, too. */
static int put(struct conn *c, const struct session *x, const char *password, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_ADD);
    int n;

    query_text(&q, x->id);
    query_int(&q, x->user);
    query_int(&q, x->created_ms);
    query_int(&q, x->expires_ms);
    query_text(&q, password);
    n = query_run(&q, err);
    if (n < 0)
        return -1;
    return n ? 0
             : err_set(err, ERR_DENIED, "user %lld is gone, locked, or has another password",
                       (long long)x->user);
}

int sqlite_session_clear(struct conn *c, int64_t user, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_CLEAR);

    query_int(&q, user);
    return query_run(&q, err) < 0 ? -1 : 0;
}

static int prune(struct conn *c, const struct session *x, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_PRUNE);

    query_int(&q, x->user);
    query_int(&q, x->created_ms);
    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_session_add(struct store *s, const struct session *x, const char *password, bool alone,
                       struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    int r;

    if (sqlite_begin(c, err))
        return -1;
    r = alone ? sqlite_session_clear(c, x->user, err) : prune(c, x, err);
    if (!r)
        r = put(c, x, password, err);
    return sqlite_end(c, r, err);
}

/* One statement finds the old row and makes it the new one: the second of two that ask at once
 * finds none. */
static int renew(struct conn *c, const char *old, const struct session *x, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_RENEW);
    int n;

    query_text(&q, x->id);
    query_int(&q, x->created_ms);
    query_int(&q, x->expires_ms);
    query_text(&q, old);
    query_int(&q, x->user);
    n = query_run(&q, err);
    if (n < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such login");
}

static int clear_others(struct conn *c, const struct session *x, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_CLEAR_OTHERS);

    query_int(&q, x->user);
    query_text(&q, x->id);
    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_session_renew(struct store *s, const char *old, const struct session *x, bool alone,
                         struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    int r;

    if (sqlite_begin(c, err))
        return -1;
    r = renew(c, old, x, err);
    if (!r)
        r = alone ? clear_others(c, x, err) : prune(c, x, err);
    return sqlite_end(c, r, err);
}

int sqlite_session_get(struct store *s, const char *id, struct session *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_GET);
    struct session x;
    int r;

    query_text(&q, id);
    r = query_step(&q, err);
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no such login");
    if (r < 0 || query_get_chars(&q, x.id, sizeof(x.id), err))
        return -1;
    x.user = query_get_int(&q);
    x.created_ms = query_get_int(&q);
    x.expires_ms = query_get_int(&q);
    *out = x;
    return 0;
}

int sqlite_session_remove(struct store *s, const char *id, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_SESSION_REMOVE);
    int n;

    query_text(&q, id);
    n = query_run(&q, err);
    if (n < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such login");
}
