/* sqlite_backup.c - a copy of the database while it is used, and putting one back.
 *
 * A copy is one file, whole or absent. Putting one back deletes nothing: what was there is moved
 * beside it, so that a wrong choice can be undone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "store/sqlite.h"

static int copy(struct conn *from, struct conn *to, struct err *err)
{
    sqlite3_backup *b = sqlite3_backup_init(to->db, "main", from->db, "main");
    int rc;

    if (!b)
        return sqlite_error(to, sqlite3_errcode(to->db), err);
    sqlite3_backup_step(b, -1); /* one read transaction: one moment; nobody waits for it */
    rc = sqlite3_backup_finish(b);
    return rc == SQLITE_OK ? 0 : sqlite_error(to, rc, err);
}

static int copy_to(struct conn *from, const char *path, struct err *err)
{
    static const char *const pragmas[] = { NULL };
    struct conn to;
    int r = sqlite_open(&to, path, pragmas, err);

    if (!r)
        r = copy(from, &to, err);
    sqlite_shut(&to);
    return r;
}

static int publish(const char *part, const char *path, struct err *err)
{
    if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE))
        return err_sys(err, "name the backup %s", path);
    return sqlite_sync_directory(path, err);
}

static int backup(struct conn *c, const char *path, struct err *err)
{
    AUTO(buf_free) struct buf part = { 0 };
    int fd;

    if (!access(path, F_OK))
        return err_set(err, ERR_CONFLICT, "%s exists: choose a name that is free", path);
    buf_printf(&part, "%s.part", path);
    unlink(part.data); /* of a backup that was interrupted */
    fd = open(part.data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "make %s", part.data);
    close(fd);
    if (!copy_to(c, part.data, err) && !publish(part.data, path, err))
        return 0;
    unlink(part.data);
    return -1;
}

static void name_kept(const struct conn *c, int version, struct buf *out)
{
    buf_printf(out, "%s.schema-%d", c->path, version);
}

/* A copy that is there is of an attempt that failed, or of before somebody went back: this one is
 * newer, and takes its place when it is whole. */
int sqlite_keep(struct conn *c, int version, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 }, fresh = { 0 };

    name_kept(c, version, &path);
    buf_printf(&fresh, "%s.new", path.data);
    if ((unlink(fresh.data) && errno != ENOENT) || backup(c, fresh.data, err)) {
        unlink(fresh.data);
        return err_in(err, "keep a copy of the database before its tables change");
    }
    if (rename(fresh.data, path.data)) {
        err_sys(err, "name the copy %s", path.data);
        unlink(fresh.data);
        return -1;
    }
    if (sqlite_sync_directory(path.data, err))
        return -1;
    for (int older = 1; older < version; older++) {
        AUTO(buf_free) struct buf gone = { 0 };

        name_kept(c, older, &gone);
        unlink(gone.data);
    }
    return 0;
}

int sqlite_backup(struct store *s, const char *path, struct err *err)
{
    AUTO(sqlite_unlockp) struct conn *c = sqlite_lock(&SELF(s)->spare);

    return backup(c, path, err);
}

/* Not by opening a store: that would change the tables of a server that may be older than we are.
 */
static int open_whole(struct conn *c, const char *path, struct err *err)
{
    static const char *const pragmas[] = { "PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON",
                                           NULL };

    return sqlite_open(c, path, pragmas, err) ||
                   sqlite_check(c, sqlite_newest(sqlite_migrations), err)
               ? -1
               : 0;
}

int store_sqlite_backup(const char *path, const char *to, struct err *err)
{
    struct conn c;
    int r;

    if (access(path, F_OK))
        return err_sys(err, "the database %s", path);
    if (lazy_load(&lazy_sqlite, err))
        return -1;
    r = open_whole(&c, path, err) || backup(&c, to, err) ? -1 : 0;
    sqlite_shut(&c);
    return r;
}

/* ---- putting one back ---- */

static int copy_file(int from, const char *to, struct err *err)
{
    AUTO(closep) int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    ssize_t n = 1;

    if (fd < 0)
        return err_sys(err, "make %s", to);
    while (n > 0)
        n = sendfile(fd, from, NULL, 1 << 30);
    return n < 0 || fsync(fd) ? err_sys(err, "write %s", to) : 0;
}

/* One that is in use has its newest rows in a log beside it: alone it would be old, or torn. */
static int open_backup(const char *from, struct err *err)
{
    AUTO(buf_free) struct buf log = { 0 };
    AUTO(closep) int fd = open(from, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "open the backup %s", from);
    if (!S_ISREG(st.st_mode) || !st.st_size)
        return err_set(err, ERR_PRECONDITION, "%s is empty, or no file: it is no backup", from);
    buf_printf(&log, "%s-wal", from);
    if (!access(log.data, F_OK))
        return err_set(err, ERR_PRECONDITION,
                       "%s has a log beside it (%s-wal), so it is a database in use, not a backup: "
                       "`cove backup` makes one",
                       from, from);
    return TAKE(fd, -1);
}

/* What was made since the backup was is not its own: machines that are marked with the name that it
 * had then may be anybody's (control/orphans.c). */
static int name_anew(struct conn *c, struct err *err)
{
    char name[17], text[160];
    int64_t version;

    if (sqlite_version(c, &version, err) || !version)
        return version ? -1 : 0;
    id_random(name, sizeof(name) - 1);
    snprintf(text, sizeof(text),
             "INSERT INTO node_values (name, value) VALUES ('" STORE_MARK "', CAST('%s' AS BLOB))"
             " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
             name);
    return sqlite_exec(c, text, err);
}

/* The copy is looked at, not the backup itself: that may be on a disk that cannot be written. */
static int copy_whole(int from, const char *to, struct err *err)
{
    struct conn c;
    int r;

    unlink(to); /* of one that was interrupted */
    if (copy_file(from, to, err))
        return -1;
    r = open_whole(&c, to, err) || name_anew(&c, err) ? -1 : 0;
    sqlite_shut(&c);
    return r;
}

static int move_aside(const char *path, const char *suffix, const char *aside, struct err *err)
{
    AUTO(buf_free) struct buf from = { 0 }, to = { 0 };

    buf_printf(&from, "%s%s", path, suffix);
    buf_printf(&to, "%s%s", aside, suffix);
    /* the file itself stays until another takes its name: never is there none, for which a start
     * would make an empty one */
    if (!*suffix ? link(from.data, to.data) : rename(from.data, to.data))
        return errno == ENOENT ? 0 : err_sys(err, "keep %s as %s", from.data, to.data);
    return 0;
}

static void name_aside(const char *path, struct buf *out)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];

    gmtime_r(&now, &tm);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
    buf_printf(out, "%s.replaced-%s", path, stamp);
}

int store_sqlite_restore(const char *from, const char *path, struct buf *aside, struct err *err)
{
    static const char *const suffixes[] = { "-shm", "-wal", "" };
    AUTO(buf_free) struct buf part = { 0 };
    AUTO(closep) int fd = open_backup(from, err);

    if (fd < 0 || lazy_load(&lazy_sqlite, err))
        return -1;
    buf_printf(&part, "%s.part", path);
    if (copy_whole(fd, part.data, err)) {
        unlink(part.data);
        return err_in(err, "%s", from);
    }
    name_aside(path, aside);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (move_aside(path, suffixes[i], aside->data, err))
            return -1;
    if (rename(part.data, path))
        return err_sys(err, "name the database %s", path);
    return sqlite_sync_directory(path, err);
}
