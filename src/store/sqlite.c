/* sqlite.c - the store in one file of the data directory: opening it, refusing one that is not ours
 * to use, and the table of its functions. A file is never deleted or emptied here. */
#include "store/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* page_size: a commit writes four to eight pages to the log, each with a checksum. With 2 KiB it
 * takes a third less time than with SQLite's 4; 1 KiB gains little more, and long rows would not
 * fit. journal_size_limit: that of DB_WAL_PAGES_MAX, so that a log is only cut after an exception.
 * temp_store: the server may not open files in /tmp. The caches are small because the kernel has
 * the same pages. Each connection must see foreign_keys: it is not kept in the file. */
static const char *const first_pragmas[] = { "PRAGMA trusted_schema=OFF", "PRAGMA page_size=2048",
                                             NULL };
static const char *const writer_pragmas[] = {
    "PRAGMA synchronous=NORMAL",          "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",           "PRAGMA cache_size=-1024",
    "PRAGMA journal_size_limit=16777216", NULL,
};
static const char *const reader_pragmas[] = {
    "PRAGMA trusted_schema=OFF", "PRAGMA query_only=ON",      "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-512",    "PRAGMA cell_size_check=ON", NULL,
};
static const char *const spare_pragmas[] = {
    "PRAGMA trusted_schema=OFF",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA cache_size=-64",
    NULL,
};

/* SQLite would make it readable for all; the WAL takes the file's own mode. One that exists is not
 * opened here: closing it would drop the locks that another store of this process has on it. */
static int make_file(const char *path, struct err *err)
{
    AUTO(closep) int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;

    if (fd >= 0)
        return sqlite_sync_directory(path, err);
    if (errno != EEXIST)
        return err_sys(err, "make the database %s", path);
    if (stat(path, &st))
        return err_sys(err, "look at the database %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_PRECONDITION, "the database %s is not a file", path);
    if (st.st_mode & 077 && chmod(path, st.st_mode & 0700))
        return err_sys(err, "keep others from reading the database %s", path);
    return 0;
}

static int to_wal(struct conn *c, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(c->db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL);
    bool is_wal = false;

    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        is_wal = !sqlite3_stricmp((const char *)sqlite3_column_text(stmt, 0), "wal");
    if (rc != SQLITE_ROW)
        sqlite_error(c, rc, err);
    else if (!is_wal)
        err_set(err, ERR_PRECONDITION,
                "%s: its file system cannot share memory between programs (network file systems "
                "cannot): choose a data directory on a local disk",
                c->path);
    sqlite3_finalize(stmt);
    return is_wal ? 0 : -1;
}

/* An upgrade is one way: the release before does not open what this one has changed. */
static int keep_copy(struct conn *c, struct err *err)
{
    int64_t version;

    if (sqlite_version(c, &version, err))
        return -1;
    return version && version < sqlite_newest(sqlite_migrations) ? sqlite_keep(c, (int)version, err)
                                                                 : 0;
}

static int open_writer(struct sqlite *q, struct err *err)
{
    struct conn *c = &q->writer;

    if (sqlite_open(c, q->path, first_pragmas, err) ||
        sqlite_check(c, sqlite_newest(sqlite_migrations), err) || to_wal(c, err))
        return -1;
    for (const char *const *p = writer_pragmas; *p; p++)
        if (sqlite_exec(c, *p, err))
            return -1;
    return keep_copy(c, err) || sqlite_migrate(c, sqlite_migrations, err) ? -1 : 0;
}

static void close_sqlite(struct store *s)
{
    struct sqlite *q = SELF(s);

    sqlite_checkpoint_finish(q);
    sqlite_shut(&q->reader);
    sqlite_shut(&q->spare);
    sqlite_shut(&q->writer); /* the last one moves the log into the file and removes it */
    free(q->path);
    free(q);
}

static const struct store_ops ops = {
    .name = "sqlite",
    .close = close_sqlite,
    .sandbox_add = sqlite_sandbox_add,
    .sandbox_save = sqlite_sandbox_save,
    .sandbox_get = sqlite_sandbox_get,
    .sandbox_by_key = sqlite_sandbox_by_key,
    .sandbox_live = sqlite_sandbox_live,
    .sandbox_ended = sqlite_sandbox_ended,
    .sandbox_prune = sqlite_sandbox_prune,
    .orphan_put = sqlite_orphan_put,
    .orphan_list = sqlite_orphan_list,
    .orphan_remove = sqlite_orphan_remove,
    .event_add = sqlite_event_add,
    .event_list = sqlite_event_list,
    .user_add = sqlite_user_add,
    .user_get = sqlite_user_get,
    .user_by_id = sqlite_user_by_id,
    .user_change = sqlite_user_change,
    .user_list = sqlite_user_list,
    .key_add = sqlite_key_add,
    .key_by_hash = sqlite_key_by_hash,
    .key_list = sqlite_key_list,
    .key_used = sqlite_key_used,
    .key_remove = sqlite_key_remove,
    .session_add = sqlite_session_add,
    .session_renew = sqlite_session_renew,
    .session_get = sqlite_session_get,
    .session_remove = sqlite_session_remove,
    .value_get = sqlite_value_get,
    .value_set = sqlite_value_set,
    .value_once = sqlite_value_once,
    .job_push = sqlite_job_push,
    .job_claim = sqlite_job_claim,
    .job_done = sqlite_job_done,
    .job_extend = sqlite_job_extend,
    .job_retry = sqlite_job_retry,
    .job_bury = sqlite_job_bury,
    .job_remove = sqlite_job_remove,
    .job_next = sqlite_job_next,
    .job_dead = sqlite_job_dead,
    .job_requeue = sqlite_job_requeue,
    .job_forget = sqlite_job_forget,
    .backup = sqlite_backup,
};

int store_open_sqlite(const char *path, struct store **out, struct err *err)
{
    struct sqlite *q;
    AUTO(store_closep) struct store *s = NULL;

    if (lazy_load(&lazy_sqlite, err) || make_file(path, err))
        return -1;
    q = xcalloc(1, sizeof(*q));
    q->store.ops = &ops;
    q->path = xstrdup(path);
    s = &q->store;
    if (open_writer(q, err) || sqlite_open(&q->reader, q->path, reader_pragmas, err) ||
        sqlite_open(&q->spare, q->path, spare_pragmas, err))
        return -1;
    sqlite_checkpoint_watch(q);
    *out = TAKE(s, NULL);
    return 0;
}
