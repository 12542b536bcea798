/* sqlite_schema.c - the tables, as a list of steps from nothing to now, and what is looked at
 * before the first of them: whose file it is, of which version, and whether it is whole.
 *
 * A step that was released is never edited: files out there have taken it. Add one behind it. */
#include "store/sqlite.h"

const struct migration sqlite_migrations[] = {
    { "CREATE TABLE users ("
      " id INTEGER PRIMARY KEY,"
      " name TEXT NOT NULL UNIQUE,"
      " role TEXT NOT NULL,"
      " password TEXT NOT NULL,"
      " locked INTEGER NOT NULL,"
      " created_ms INTEGER NOT NULL) STRICT;"

      "CREATE TABLE keys ("
      " id TEXT PRIMARY KEY,"
      " user INTEGER NOT NULL REFERENCES users (id),"
      " hash TEXT NOT NULL UNIQUE,"
      " shown TEXT NOT NULL,"
      " name TEXT NOT NULL,"
      " created_ms INTEGER NOT NULL,"
      " used_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"

      "CREATE TABLE node_values (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;"

      /* n grows, so that new rows and their events lie together at the end of their tables. */
      "CREATE TABLE sandboxes ("
      " n INTEGER PRIMARY KEY,"
      " id TEXT NOT NULL UNIQUE,"
      " uuid TEXT NOT NULL UNIQUE,"
      " owner INTEGER NOT NULL REFERENCES users (id),"
      " idem_key TEXT, idem_hash TEXT,"
      " live INTEGER NOT NULL,"
      " state TEXT NOT NULL,"
      " template TEXT NOT NULL, provider TEXT NOT NULL, node TEXT NOT NULL,"
      " network TEXT NOT NULL, facade TEXT NOT NULL, label TEXT,"
      " memory_bytes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, pids INTEGER NOT NULL,"
      " io_weight INTEGER NOT NULL, open_files INTEGER NOT NULL, disk_bytes INTEGER NOT NULL,"
      " log_bytes INTEGER NOT NULL, lifetime_ms INTEGER NOT NULL,"
      " timeout_ms INTEGER NOT NULL, idle_ms INTEGER NOT NULL, expiry TEXT NOT NULL,"
      " auto_resume INTEGER NOT NULL,"
      " secure INTEGER NOT NULL, strict INTEGER NOT NULL, public INTEGER NOT NULL,"
      " token TEXT NOT NULL, traffic_token TEXT NOT NULL,"
      " created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
      " end_ms INTEGER NOT NULL,"
      " metadata TEXT, env TEXT, mounts TEXT, forwards TEXT,"
      " reason TEXT) STRICT;"

      /* All of them partial: a sandbox that is made and saved pays for sandboxes_live once. */
      "CREATE UNIQUE INDEX sandboxes_idem ON sandboxes (owner, idem_key)"
      " WHERE idem_key IS NOT NULL;"
      "CREATE INDEX sandboxes_live ON sandboxes (n) WHERE live = 1;"
      "CREATE INDEX sandboxes_ended ON sandboxes (ended_ms) WHERE live = 0;"
      "CREATE INDEX sandboxes_ended_of ON sandboxes (owner, ended_ms) WHERE live = 0;"

      "CREATE TABLE events ("
      " seq INTEGER PRIMARY KEY,"
      " sandbox INTEGER NOT NULL REFERENCES sandboxes (n) ON DELETE CASCADE,"
      " at_ms INTEGER NOT NULL,"
      " kind TEXT NOT NULL, actor TEXT NOT NULL, text TEXT NOT NULL, detail TEXT) STRICT;"
      "CREATE INDEX events_sandbox ON events (sandbox);"

      /* The highest number of an event that was forgotten: none is given again, or a client that
       * follows by number would miss the next ones. AUTOINCREMENT does the same at the price of a
       * page in every commit, a quarter of what a save writes. */
      "CREATE TABLE event_floor (seq INTEGER NOT NULL) STRICT;"
      "INSERT INTO event_floor VALUES (0);" },

    /* The embedded queue: model/job.h says what each state looks like. Few rows, short lives. */
    { "CREATE TABLE jobs ("
      " topic TEXT NOT NULL, key TEXT NOT NULL, payload BLOB NOT NULL,"
      " due_ms INTEGER NOT NULL, first_ms INTEGER NOT NULL,"
      " attempts INTEGER NOT NULL, attempts_max INTEGER NOT NULL,"
      " ticket INTEGER NOT NULL, dead_ms INTEGER NOT NULL, error TEXT NOT NULL,"
      " PRIMARY KEY (topic, key)) STRICT, WITHOUT ROWID;"
      "CREATE INDEX jobs_due ON jobs (topic, due_ms) WHERE dead_ms = 0;"
      "CREATE INDEX jobs_dead ON jobs (dead_ms) WHERE dead_ms > 0;" },

    { "ALTER TABLE users ADD COLUMN multi_login INTEGER NOT NULL DEFAULT 0;"
      "CREATE TABLE sessions ("
      " id TEXT PRIMARY KEY,"
      " user INTEGER NOT NULL REFERENCES users (id),"
      " created_ms INTEGER NOT NULL,"
      " expires_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
      "CREATE INDEX sessions_user ON sessions (user);" },

    { "ALTER TABLE sandboxes ADD COLUMN restart INTEGER NOT NULL DEFAULT 0;" },

    { "CREATE TABLE orphans ("
      " id TEXT PRIMARY KEY,"
      " found_ms INTEGER NOT NULL,"
      " kept_ms INTEGER NOT NULL,"
      " reason TEXT NOT NULL) STRICT, WITHOUT ROWID;"

      /* Of a store that was in use and has not just been put back from a backup, which would have
       * given it a mark: it knows whoever was told of a machine that has none. */
      "INSERT INTO node_values (name, value)"
      " SELECT '" STORE_FORMER "', CAST(lower(hex(randomblob(8))) AS BLOB)"
      " WHERE EXISTS (SELECT 1 FROM node_values WHERE name = 'node')"
      " AND NOT EXISTS (SELECT 1 FROM node_values WHERE name = '" STORE_MARK "');"
      "INSERT INTO node_values (name, value)"
      " SELECT '" STORE_MARK "', value FROM node_values WHERE name = '" STORE_FORMER "';" },
    {},
};

int sqlite_newest(const struct migration *m)
{
    int n = 0;

    while (m[n].sql)
        n++;
    return n;
}

/* The first column of the first row, as number or text; used a few times at start. */
static int ask(struct conn *c, const char *sql, int64_t *number, struct buf *text, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && number)
        *number = sqlite3_column_int64(stmt, 0);
    if (rc == SQLITE_ROW && text)
        buf_puts(text, (const char *)sqlite3_column_text(stmt, 0));
    if (rc != SQLITE_ROW)
        sqlite_error(c, rc, err);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : -1;
}

int sqlite_version(struct conn *c, int64_t *out, struct err *err)
{
    return ask(c, "PRAGMA user_version", out, NULL, err);
}

static int check_owner(struct conn *c, int64_t version, struct err *err)
{
    int64_t application, things;

    if (ask(c, "PRAGMA application_id", &application, NULL, err) ||
        ask(c, "SELECT count(*) FROM sqlite_schema", &things, NULL, err))
        return -1;
    if (application == DB_APPLICATION || (!application && !version && !things))
        return 0;
    return err_set(
        err, ERR_PRECONDITION,
        "%s is a database of another program: choose another data directory, or move the "
        "file away",
        c->path);
}

int sqlite_check(struct conn *c, int newest, struct err *err)
{
    AUTO(buf_free) struct buf said = { 0 };
    int64_t version;

    if (ask(c, "PRAGMA user_version", &version, NULL, err) || check_owner(c, version, err))
        return -1;
    if (version < 0 || version > newest)
        return err_set(err, ERR_PRECONDITION,
                       "%s is of version %lld, this program knows up to %d: use the program that "
                       "wrote it or a newer one, or put a backup in its place",
                       c->path, (long long)version, newest);
    if (sqlite3_db_readonly(c->db, "main"))
        return sqlite_error(c, SQLITE_READONLY, err);
    if (ask(c, "PRAGMA quick_check(1)", NULL, &said, err))
        return -1;
    if (strcmp(buf_cstr(&said), "ok"))
        return err_set(
            err, ERR_INTERNAL,
            "%s is damaged and was left as it is: put a backup in its place (cove restore "
            "FILE), or move it away to start with nothing (%.80s)",
            c->path, buf_cstr(&said));
    return 0;
}

/* One step under the file's lock: another process may have taken it in the meantime. */
static int step(struct conn *c, const struct migration *m, int version, struct err *err)
{
    char stamp[96];
    int64_t now;

    snprintf(stamp, sizeof(stamp), "PRAGMA application_id=%d; PRAGMA user_version=%d",
             DB_APPLICATION, version);
    if (ask(c, "PRAGMA user_version", &now, NULL, err))
        return -1;
    if (now >= version)
        return 0;
    if (sqlite_exec(c, m->sql, err) || sqlite_exec(c, stamp, err))
        return err_in(err, "change the tables to version %d", version);
    return 0;
}

int sqlite_migrate(struct conn *c, const struct migration *m, struct err *err)
{
    for (int version = 1; m->sql; m++, version++)
        if (sqlite_begin(c, err) || sqlite_end(c, step(c, m, version, err), err))
            return -1;
    return 0;
}
