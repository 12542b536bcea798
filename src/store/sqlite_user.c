/* sqlite_user.c - users and their keys in SQLite. What is told to a person as done (a key made, a
 * user locked) is on the disk before it is told. */
#include "store/sqlite.h"

/* ---- users ---- */

static void bind_user(struct query *q, const struct user *u)
{
    query_text(q, u->name);
    query_text(q, (uint64_t)u->role < USER_ROLES ? user_role_names[u->role] : NULL);
    query_text(q, u->password);
    query_int(q, u->locked);
    query_int(q, u->multi_login);
    query_int(q, u->created_ms);
}

static int read_role(const struct query *q, const char *name, int64_t *role, struct err *err)
{
    for (int i = 0; name && i < USER_ROLES; i++)
        if (!strcmp(name, user_role_names[i])) {
            *role = i;
            return 0;
        }
    return err_set(err, ERR_INTERNAL, "%s: a user has a role that this program does not know",
                   q->conn->path);
}

static int read_user(struct query *q, struct user *out, struct err *err)
{
    struct user u = { .id = query_get_int(q) };

    if (query_get_chars(q, u.name, sizeof(u.name), err) ||
        read_role(q, query_get_text(q), &u.role, err) ||
        query_get_chars(q, u.password, sizeof(u.password), err))
        return -1;
    u.locked = query_get_int(q) != 0;
    u.multi_login = query_get_int(q) != 0;
    u.created_ms = query_get_int(q);
    *out = u;
    return 0;
}

static int name_taken(const struct user *u, struct err *err)
{
    return err->code == ERR_CONFLICT
               ? err_set(err, ERR_CONFLICT, "there is a user '%s' already", u->name)
               : -1;
}

int sqlite_user_add(struct store *s, struct user *u, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_USER_ADD);

    bind_user(&q, u);
    if (query_run(&q, err) < 0)
        return name_taken(u, err);
    u->id = sqlite3_last_insert_rowid(c->db);
    return 0;
}

static void bind_flag(struct query *q, int64_t v)
{
    if (v < 0)
        query_text(q, NULL);
    else
        query_int(q, v != 0);
}

static int change(struct conn *c, int64_t id, const struct user_change *u, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_USER_CHANGE);
    int n;

    query_text(&q, u->role < 0 ? NULL : user_role_names[u->role]);
    query_text(&q, u->password);
    bind_flag(&q, u->locked);
    bind_flag(&q, u->multi_login);
    query_int(&q, id);
    n = query_run(&q, err);
    if (n < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_NOT_FOUND, "there is no user %lld", (long long)id);
}

int sqlite_user_change(struct store *s, int64_t id, const struct user_change *u, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    int r;

    if (u->role >= USER_ROLES)
        return err_set(err, ERR_INVALID, "there is no role %lld", (long long)u->role);
    if (sqlite_begin(c, err))
        return -1;
    r = change(c, id, u, err);
    if (!r && (u->password || u->locked > 0))
        r = sqlite_session_clear(c, id, err);
    return sqlite_end(c, r, err);
}

int sqlite_user_get(struct store *s, const char *name, struct user *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_USER_BY_NAME);
    int r;

    query_text(&q, name);
    r = query_step(&q, err);
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no user '%.64s'", name);
    return r < 0 ? -1 : read_user(&q, out, err);
}

int sqlite_user_by_id(struct store *s, int64_t id, struct user *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_USER_BY_ID);
    int r;

    query_int(&q, id);
    r = query_step(&q, err);
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no user %lld", (long long)id);
    return r < 0 ? -1 : read_user(&q, out, err);
}

int sqlite_user_list(struct store *s, store_user_fn *fn, void *arg, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_USER_LIST);
    int r, stop = 0;

    while (!stop && (r = query_step(&q, err))) {
        struct user u;

        if (r < 0 || read_user(&q, &u, err))
            return -1;
        stop = fn(arg, &u);
    }
    return 0;
}

/* ---- keys ---- */

static int read_key(struct query *q, struct api_key *out, struct err *err)
{
    struct api_key k;

    if (query_get_chars(q, k.id, sizeof(k.id), err))
        return -1;
    k.user = query_get_int(q);
    if (query_get_chars(q, k.hash, sizeof(k.hash), err) ||
        query_get_chars(q, k.shown, sizeof(k.shown), err) ||
        query_get_chars(q, k.name, sizeof(k.name), err))
        return -1;
    k.created_ms = query_get_int(q);
    k.used_ms = query_get_int(q);
    *out = k;
    return 0;
}

int sqlite_key_add(struct store *s, const struct api_key *k, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_KEY_ADD);

    query_text(&q, k->id);
    query_int(&q, k->user);
    query_text(&q, k->hash);
    query_text(&q, k->shown);
    query_text(&q, k->name);
    query_int(&q, k->created_ms);
    query_int(&q, k->used_ms);
    if (query_run(&q, err) >= 0)
        return 0;
    if (err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "there is no user %lld to own the key",
                       (long long)k->user);
    if (err->code == ERR_CONFLICT)
        return err_set(err, ERR_CONFLICT, "the key '%s' exists already", k->id);
    return -1;
}

int sqlite_key_by_hash(struct store *s, const char *hash, struct api_key *out, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_KEY_BY_HASH);
    int r;

    query_text(&q, hash);
    r = query_step(&q, err);
    if (!r)
        return err_set(err, ERR_NOT_FOUND, "there is no such key");
    return r < 0 ? -1 : read_key(&q, out, err);
}

int sqlite_key_list(struct store *s, int64_t user, store_key_fn *fn, void *arg, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->reader);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_KEY_LIST);
    int r, stop = 0;

    query_int(&q, user);
    while (!stop && (r = query_step(&q, err))) {
        struct api_key k;

        if (r < 0 || read_key(&q, &k, err))
            return -1;
        stop = fn(arg, &k);
    }
    return 0;
}

static int changed_key(struct query *q, const char *id, struct err *err)
{
    int n = query_run(q, err);

    if (n < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_NOT_FOUND, "there is no key '%.64s'", id);
}

int sqlite_key_used(struct store *s, const char *id, int64_t at_ms, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_KEY_USED);

    query_int(&q, at_ms);
    query_text(&q, id);
    return changed_key(&q, id, err);
}

int sqlite_key_remove(struct store *s, int64_t user, const char *id, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    AUTO(query_endp) struct query q = sqlite_query(c, SQL_KEY_REMOVE);

    query_text(&q, id);
    query_int(&q, user);
    return changed_key(&q, id, err);
}
