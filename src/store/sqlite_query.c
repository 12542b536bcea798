/* sqlite_query.c - connections, their locks, statements that are prepared once, and what SQLite's
 * codes mean to us. The only file that knows how a statement is bound and stepped. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "store/sqlite.h"

static const struct {
    int rc; /* SQLite's primary code, or an extended one, which then comes first */
    enum err_code code;
    const char *what;
} meanings[] = {
    { SQLITE_CONSTRAINT_FOREIGNKEY, ERR_NOT_FOUND, "it refers to what is not there" },
    { SQLITE_CONSTRAINT_NOTNULL, ERR_INVALID, "a value that is needed is missing" },
    { SQLITE_CONSTRAINT_UNIQUE, ERR_CONFLICT, "it exists already" },
    { SQLITE_CONSTRAINT_PRIMARYKEY, ERR_CONFLICT, "it exists already" },
    { SQLITE_IOERR_SHMSIZE, ERR_NO_SPACE, "no space is left for it: make room on its disk" },
    { SQLITE_FULL, ERR_NO_SPACE, "no space is left for it: make room on its disk" },
    { SQLITE_BUSY, ERR_UNAVAILABLE, "another program is using it: try again" },
    { SQLITE_LOCKED, ERR_UNAVAILABLE, "another program is using it: try again" },
    { SQLITE_CORRUPT, ERR_INTERNAL,
      "it is damaged: stop the server and put a backup in its place (cove restore FILE)" },
    { SQLITE_NOTADB, ERR_INTERNAL,
      "it is damaged, or no database: put a backup in its place (cove restore FILE), or move it away" },
    { SQLITE_READONLY, ERR_INTERNAL,
      "it cannot be written: give this user the right to write it and its directory" },
    { SQLITE_CANTOPEN, ERR_INTERNAL,
      "it cannot be opened: give this user the right to write it and its directory" },
    { SQLITE_PERM, ERR_INTERNAL, "it may not be opened" },
    { SQLITE_TOOBIG, ERR_TOO_LARGE, "a value is larger than a database takes" },
    { SQLITE_NOMEM, ERR_INTERNAL, "out of memory" },
};

/* A quota or a bound on file sizes is a full disk too; SQLite only knows ENOSPC. */
static bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

/* Why the file or its log failed last. sqlite3_system_errno() is 0 after a commit that failed. */
static int last_errno(sqlite3 *db)
{
    sqlite3_file *log = NULL;
    int error = 0;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (log && log->pMethods)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
    if (!error)
        sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &error);
    return error;
}

/* SQLite counts the file's locks for the whole process. Where the kernel refused to change one
 * (ENOLCK), that count is wrong from then on, and every query fails after ten seconds. A new
 * process counts anew: whoever watches us starts one. */
static void leave_disorder(const struct conn *c)
{
    log_error("the locks of the database are in disorder: the server starts again",
              KV("database", c->path));
    _exit(EXIT_FAILURE);
}

int sqlite_error(const struct conn *c, int rc, struct err *err)
{
    int error = c->db && (rc & 0xff) == SQLITE_IOERR ? last_errno(c->db) : 0;

    if ((rc & 0xff) == SQLITE_PROTOCOL)
        leave_disorder(c);

    if (is_full(error))
        rc = SQLITE_FULL;
    for (size_t i = 0; i < ARRAY_LEN(meanings); i++)
        if (rc == meanings[i].rc || (rc & 0xff) == meanings[i].rc)
            return err_set(err, meanings[i].code, "%s: %s (%s)", c->path, meanings[i].what,
                           c->db ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc));
    return err_set(err, ERR_INTERNAL, "%s: %s%s%s (SQLite %d)", c->path,
                   c->db ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc), error ? ": " : "",
                   error ? strerrordesc_np(error) : "", rc);
}

int sqlite_sync_directory(const char *path, struct err *err)
{
    AUTO(freep) char *text = xstrdup(path);
    AUTO(closep) int dir = open(dirname(text), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return dir < 0 || fsync(dir) ? err_sys(err, "write the directory of %s to the disk", path) : 0;
}

int sqlite_exec(struct conn *c, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : sqlite_error(c, rc, err);
}

int sqlite_open(struct conn *c, const char *path, const char *const *pragmas, struct err *err)
{
    AUTO(buf_free) struct buf name = { 0 };
    int rc;

    /* SQLite takes ":memory:" and "file:" for more than names. */
    buf_printf(&name, "%s%s", path[0] == '/' ? "" : "./", path);
    *c = (struct conn){ .path = path, .lock = PTHREAD_MUTEX_INITIALIZER };
    /* Its own lock around every call is not needed under ours. */
    rc =
        sqlite3_open_v2(buf_cstr(&name), &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return sqlite_error(c, rc, err);
    sqlite3_extended_result_codes(c->db, 1);
    sqlite3_busy_timeout(c->db, DB_BUSY_MS);
    sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    for (; *pragmas; pragmas++)
        if (sqlite_exec(c, *pragmas, err))
            return -1;
    return 0;
}

void sqlite_shut(struct conn *c)
{
    for (size_t i = 0; i < SQLS; i++)
        sqlite3_finalize(c->stmts[i]);
    sqlite3_close_v2(c->db);
    *c = (struct conn){ 0 };
}

struct conn *sqlite_lock(struct conn *c)
{
    pthread_mutex_lock(&c->lock);
    c->rc = SQLITE_OK;
    return c;
}

/* A pragma and not a second connection: each would throw its page cache away whenever the other
 * wrote. It acts while it is compiled, so it cannot be prepared ahead; that costs 3 us, beside an
 * fsync of milliseconds. */
struct conn *sqlite_lock_full(struct conn *c)
{
    sqlite_lock(c);
    c->rc = sqlite3_exec(c->db, "PRAGMA synchronous=FULL", NULL, NULL, NULL);
    c->full = true;
    return c;
}

void sqlite_unlockp(struct conn **c)
{
    if ((*c)->full) /* failing is harmless: commits stay slow and safe */
        sqlite3_exec((*c)->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    (*c)->full = false;
    pthread_mutex_unlock(&(*c)->lock);
}

struct query sqlite_query(struct conn *c, enum sql which)
{
    struct query q = { .conn = c, .rc = c->rc };

    if (!c->stmts[which] && q.rc == SQLITE_OK) {
        AUTO(buf_free) struct buf text = { 0 };

        sqlite_sql(which, &text);
        q.rc = sqlite3_prepare_v3(c->db, text.data, (int)text.len + 1, SQLITE_PREPARE_PERSISTENT,
                                  &c->stmts[which], NULL);
    }
    q.stmt = c->stmts[which];
    return q;
}

void query_endp(struct query *q) { sqlite3_reset(q->stmt); }

static void bound(struct query *q, int rc)
{
    if (rc != SQLITE_OK)
        q->rc = rc;
}

void query_int(struct query *q, int64_t v)
{
    if (q->rc == SQLITE_OK)
        bound(q, sqlite3_bind_int64(q->stmt, ++q->bound, v));
}

void query_text(struct query *q, const char *s)
{
    if (q->rc == SQLITE_OK)
        bound(q,
              s ? sqlite3_bind_text64(q->stmt, ++q->bound, s, strlen(s), SQLITE_STATIC, SQLITE_UTF8)
                : sqlite3_bind_null(q->stmt, ++q->bound));
}

void query_blob(struct query *q, struct str s)
{
    if (q->rc == SQLITE_OK) /* no pointer would be NULL, which is not an empty value */
        bound(q, sqlite3_bind_blob64(q->stmt, ++q->bound, s.n ? s.p : "", s.n, SQLITE_STATIC));
}

int query_step(struct query *q, struct err *err)
{
    if (q->rc != SQLITE_OK)
        return sqlite_error(q->conn, q->rc, err);
    q->read = 0;
    q->rc = sqlite3_step(q->stmt);
    if (q->rc != SQLITE_ROW && q->rc != SQLITE_DONE)
        return sqlite_error(q->conn, q->rc, err);
    return TAKE(q->rc, SQLITE_OK) == SQLITE_ROW;
}

int query_run(struct query *q, struct err *err)
{
    int r;

    while ((r = query_step(q, err)) > 0)
        ;
    return r < 0 ? -1 : sqlite3_changes(q->conn->db);
}

bool query_get_is_int(const struct query *q)
{
    return sqlite3_column_type(q->stmt, q->read) == SQLITE_INTEGER;
}

int64_t query_get_int(struct query *q) { return sqlite3_column_int64(q->stmt, q->read++); }

const char *query_get_text(struct query *q)
{
    return (const char *)sqlite3_column_text(q->stmt, q->read++);
}

struct str query_get_blob(struct query *q)
{
    const char *p = sqlite3_column_blob(q->stmt, q->read);

    return (struct str){ p, (size_t)sqlite3_column_bytes(q->stmt, q->read++) };
}

int query_get_chars(struct query *q, char *out, size_t size, struct err *err)
{
    const char *name = sqlite3_column_name(q->stmt, q->read), *text = query_get_text(q);

    if (!text || strlen(text) >= size)
        return err_set(err, ERR_INTERNAL, "%s: column '%s' has no text, or too much of it",
                       q->conn->path, name);
    memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int run(struct conn *c, enum sql which, struct err *err)
{
    AUTO(query_endp) struct query q = sqlite_query(c, which);

    return query_run(&q, err) < 0 ? -1 : 0;
}

int sqlite_begin(struct conn *c, struct err *err) { return run(c, SQL_BEGIN, err); }

int sqlite_end(struct conn *c, int result, struct err *err)
{
    struct err unused;

    if (!result)
        result = run(c, SQL_COMMIT, err);
    /* On a full disk or failing one SQLite has undone it already. */
    if (result && !sqlite3_get_autocommit(c->db))
        run(c, SQL_ROLLBACK, &unused);
    return result ? -1 : 0;
}
