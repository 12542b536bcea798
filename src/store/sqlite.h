/* sqlite.h - what the files of the SQLite store share; nobody else includes it but its tests.
 *
 * Three connections to one file in WAL mode, each under a lock of its own:
 *   writer  every change. SQLite allows one writer, so waiting for our own lock is fairer and
 *           cheaper than its polling for the file's.
 *   reader  every question: never waits for a writer, nor for its fsync.
 *   spare   what takes long: checkpoints and backups.
 * A file with more than one process is guarded by SQLite's own locks. */
#ifndef STORE_SQLITE_H
#define STORE_SQLITE_H

#include <pthread.h>
#include <sqlite3.h>

#include "base/lazy.h"
#include "store/store.h"

enum {
    DB_APPLICATION = 0x436f7665, /* "Cove", in the file's header */
    DB_BUSY_MS = 5000,           /* so long another process may hold the file */
    /* Pages of 2 KiB in the log. A checkpoint costs two fsyncs, however few it moves. */
    DB_WAL_PAGES = 2000,     /* so many new ones wake the checkpointer */
    DB_WAL_PAGES_MAX = 8000, /* from here on writers wait for the last part of it */
};

/* Every statement, prepared once per connection on first use; sqlite_sql.c has their text. */
enum sql {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_SANDBOX_ADD,
    SQL_SANDBOX_SAVE,
    SQL_SANDBOX_END,
    SQL_SANDBOX_STATE,
    SQL_SANDBOX_BY_ID,
    SQL_SANDBOX_BY_UUID,
    SQL_SANDBOX_BY_KEY,
    SQL_SANDBOX_LIVE,
    SQL_SANDBOX_ENDED,
    SQL_SANDBOX_ENDED_OF,
    SQL_SANDBOX_PRUNE,
    SQL_ORPHAN_PUT,
    SQL_ORPHAN_LIST,
    SQL_ORPHAN_REMOVE,
    SQL_EVENT_ADD,
    SQL_EVENT_FLOOR,
    SQL_EVENT_LIST,
    SQL_USER_ADD,
    SQL_USER_CHANGE,
    SQL_USER_BY_NAME,
    SQL_USER_BY_ID,
    SQL_USER_LIST,
    SQL_KEY_ADD,
    SQL_KEY_BY_HASH,
    SQL_KEY_LIST,
    SQL_KEY_USED,
    SQL_KEY_REMOVE,
    SQL_SESSION_ADD,
    SQL_SESSION_RENEW,
    SQL_SESSION_GET,
    SQL_SESSION_REMOVE,
    SQL_SESSION_CLEAR,
    SQL_SESSION_CLEAR_OTHERS,
    SQL_SESSION_PRUNE,
    SQL_VALUE_GET,
    SQL_VALUE_SET,
    SQL_VALUE_ONCE,
    SQL_JOB_PUSH,
    SQL_JOB_PUSH_STAY,
    SQL_JOB_EXHAUST,
    SQL_JOB_DUE,
    SQL_JOB_TAKE,
    SQL_JOB_DONE,
    SQL_JOB_EXTEND,
    SQL_JOB_RETRY,
    SQL_JOB_BURY,
    SQL_JOB_REMOVE,
    SQL_JOB_NEXT,
    SQL_JOB_DEAD,
    SQL_JOB_REQUEUE,
    SQL_JOB_FORGET,
    SQLS
};

extern struct lazy lazy_sqlite;

struct conn {
    sqlite3 *db;
    const char *path; /* the store's, for error texts */
    pthread_mutex_t lock;
    bool full; /* each commit waits for the disk, until unlocked */
    int rc;    /* what went wrong in locking: every query fails with it */
    sqlite3_stmt *stmts[SQLS];
};

struct sqlite {
    struct store store;
    char *path;
    struct conn writer, reader, spare;
    struct {
        pthread_mutex_t lock;
        pthread_t thread; /* of the last checkpoint */
        bool started;     /* it has to be joined */
        bool running;     /* it has not ended yet */
        int pages;        /* of the log when it was started */
    } checkpoint;
};

/* ---- sqlite_query.c ---- */

int sqlite_open(struct conn *c, const char *path, const char *const *pragmas, struct err *err);
void sqlite_shut(struct conn *c);
int sqlite_exec(struct conn *c, const char *sql, struct err *err);
int sqlite_sync_directory(const char *path, struct err *err); /* the one that path is in */
int sqlite_error(const struct conn *c, int rc, struct err *err);

/* AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&q->writer); */
struct conn *sqlite_lock(struct conn *c);
struct conn *sqlite_lock_full(struct conn *c); /* what is committed survives power loss */
void sqlite_unlockp(struct conn **c);

/* One use of a statement: bind in order, step, read columns in order. Binding keeps pointers. */
struct query {
    struct conn *conn;
    sqlite3_stmt *stmt;
    int bound, read, rc;
};
struct query sqlite_query(struct conn *c, enum sql which);
void query_endp(struct query *q);
void query_int(struct query *q, int64_t v);
void query_text(struct query *q, const char *s); /* NULL: NULL */
void query_blob(struct query *q, struct str s);
int query_step(struct query *q, struct err *err); /* 1: a row, 0: no more, -1 */
int query_run(struct query *q, struct err *err);  /* for what gives no rows: how many changed, -1 */
bool query_get_is_int(const struct query *q);     /* of the next column */
int64_t query_get_int(struct query *q);
const char *query_get_text(struct query *q); /* valid until the next step */
struct str query_get_blob(struct query *q);
int query_get_chars(struct query *q, char *out, size_t size, struct err *err);

int sqlite_begin(struct conn *c, struct err *err);
int sqlite_end(struct conn *c, int result, struct err *err); /* commits when 0; else undoes, -1 */

/* ---- sqlite_session.c ---- */
int sqlite_session_clear(struct conn *c, int64_t user, struct err *err);

/* ---- sqlite_sql.c ---- */
void sqlite_sql(enum sql which, struct buf *out);

/* ---- sqlite_schema.c: is it ours, whole, of a version we know; makes it the newest ---- */
struct migration {
    const char *sql;
};
extern const struct migration sqlite_migrations[]; /* [i] leads to version i + 1; {} ends it */
int sqlite_check(struct conn *c, int newest, struct err *err);
int sqlite_migrate(struct conn *c, const struct migration *m, struct err *err);
int sqlite_newest(const struct migration *m);
int sqlite_version(struct conn *c, int64_t *out, struct err *err);

/* ---- sqlite_checkpoint.c ---- */
void sqlite_checkpoint_watch(struct sqlite *q);
void sqlite_checkpoint_finish(struct sqlite *q);

/* ---- sqlite_backup.c ---- */
int sqlite_backup(struct store *s, const char *path, struct err *err);
/* Before the tables change: <path>.schema-N, for who has to go back. Those of older ones go. */
int sqlite_keep(struct conn *c, int version, struct err *err);

/* ---- the ops, by file ---- */
#define SELF(s) CONTAINER_OF(s, struct sqlite, store)

int sqlite_sandbox_add(struct store *s, const struct sandbox *b, const struct event *e,
                       char existing[SANDBOX_ID + 1], struct err *err);
int sqlite_sandbox_save(struct store *s, const struct sandbox *b, enum sandbox_state expect,
                        const struct event *e, struct err *err);
int sqlite_sandbox_get(struct store *s, const char *id, struct sandbox *out, struct err *err);
int sqlite_sandbox_by_key(struct store *s, int64_t owner, const char *key, struct sandbox *out,
                          struct err *err);
int sqlite_sandbox_live(struct store *s, const char *node, store_sandbox_fn *fn, void *arg,
                        struct err *err);
int sqlite_sandbox_ended(struct store *s, int64_t owner, int64_t limit, store_sandbox_fn *fn,
                         void *arg, struct err *err);
int64_t sqlite_sandbox_prune(struct store *s, int64_t ended_before_ms, struct err *err);

int sqlite_orphan_put(struct store *s, const struct orphan_row *o, struct err *err);
int sqlite_orphan_list(struct store *s, store_orphan_fn *fn, void *arg, struct err *err);
int sqlite_orphan_remove(struct store *s, const char *id, struct err *err);

int sqlite_event_put(struct conn *c, const char *sandbox, const struct event *e, struct err *err);
int sqlite_event_floor(struct conn *c, struct err *err); /* before any are forgotten */
int sqlite_event_add(struct store *s, const struct event *e, struct err *err);
int sqlite_event_list(struct store *s, const char *sandbox, int64_t after_seq, int64_t limit,
                      store_event_fn *fn, void *arg, struct err *err);

int sqlite_user_add(struct store *s, struct user *u, struct err *err);
int sqlite_user_get(struct store *s, const char *name, struct user *out, struct err *err);
int sqlite_user_by_id(struct store *s, int64_t id, struct user *out, struct err *err);
int sqlite_user_change(struct store *s, int64_t id, const struct user_change *u, struct err *err);
int sqlite_user_list(struct store *s, store_user_fn *fn, void *arg, struct err *err);

int sqlite_key_add(struct store *s, const struct api_key *k, struct err *err);
int sqlite_key_by_hash(struct store *s, const char *hash, struct api_key *out, struct err *err);
int sqlite_key_list(struct store *s, int64_t user, store_key_fn *fn, void *arg, struct err *err);
int sqlite_key_used(struct store *s, const char *id, int64_t at_ms, struct err *err);
int sqlite_key_remove(struct store *s, int64_t user, const char *id, struct err *err);

int sqlite_session_add(struct store *s, const struct session *x, const char *password, bool alone,
                       struct err *err);
int sqlite_session_renew(struct store *s, const char *old, const struct session *x, bool alone,
                         struct err *err);
int sqlite_session_get(struct store *s, const char *id, struct session *out, struct err *err);
int sqlite_session_remove(struct store *s, const char *id, struct err *err);

int sqlite_value_get(struct store *s, const char *name, struct buf *out, struct err *err);
int sqlite_value_set(struct store *s, const char *name, struct str value, struct err *err);
int sqlite_value_once(struct store *s, const char *name, struct str value, struct buf *out,
                      struct err *err);

int sqlite_job_push(struct store *s, const struct job *j, enum job_push how, int64_t now_ms,
                    struct err *err);
int sqlite_job_claim(struct store *s, const char *topic, int64_t now_ms, int64_t lease_ms, int max,
                     struct job *out, struct arena *a, struct err *err);
int sqlite_job_done(struct store *s, const struct job *j, struct err *err);
int sqlite_job_extend(struct store *s, const struct job *j, int64_t until_ms, struct err *err);
int sqlite_job_retry(struct store *s, const struct job *j, int64_t due_ms, const char *error,
                     struct err *err);
int sqlite_job_bury(struct store *s, const struct job *j, const char *error, int64_t now_ms,
                    struct err *err);
int sqlite_job_remove(struct store *s, const char *topic, const char *key, struct err *err);
int sqlite_job_next(struct store *s, const char *topic, int64_t *due_ms, struct err *err);
int sqlite_job_dead(struct store *s, const char *topic, int64_t limit, store_job_fn *fn, void *arg,
                    struct err *err);
int sqlite_job_requeue(struct store *s, const char *topic, const char *key, int64_t now_ms,
                       struct err *err);
int64_t sqlite_job_forget(struct store *s, int64_t dead_before_ms, struct err *err);

#endif
