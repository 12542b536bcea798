/* sqlite_backup.c - a copy of the database while it is used, and putting one back.
 *
 * A copy is one file, whole or absent. Putting one back deletes nothing: what was there is kept
 * beside it, so that a wrong choice can be undone. Whatever call fails, or is the last one before a
 * crash, the name leads to the old database with its newest rows or to the new one: a file and its
 * log cannot be replaced in one step, so the old log becomes part of the old file first. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* The copy is looked at, not the backup itself: that may be on a disk that cannot be written. */
static int copy_whole(int from, const char *to, struct err *err)
{
    struct conn c;
    int r;

    unlink(to); /* of one that was interrupted */
    if (copy_file(from, to, err))
        return -1;
    r = open_whole(&c, to, err);
    sqlite_shut(&c);
    return r;
}

static const char *const kept[] = { "-wal", "" }; /* -shm is made from the log */

static int keep_one(const char *from, const char *to, struct err *err)
{
    AUTO(closep) int fd = -1;

    if (!link(from, to) || errno == ENOENT)
        return 0;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return err_sys(err, "keep %s as %s", from, to);
    fd = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW); /* no second names there */
    if (fd < 0)
        return err_sys(err, "open %s", from);
    return copy_file(fd, to, err);
}

/* What there is gets second names; the first ones stay. All of it, or nothing. */
static int keep_old(const char *path, const char *aside, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        AUTO(buf_free) struct buf from = { 0 }, to = { 0 };

        buf_printf(&from, "%s%s", path, kept[i]);
        buf_printf(&to, "%s%s", aside, kept[i]);
        if (!keep_one(from.data, to.data, err))
            continue;
        while (i--) {
            to.len = 0;
            buf_printf(&to, "%s%s", aside, kept[i]);
            unlink(to.data);
        }
        return -1;
    }
    return sqlite_sync_directory(path, err);
}

static bool is_damaged(int rc)
{
    return (rc & 0xff) == SQLITE_NOTADB || (rc & 0xff) == SQLITE_CORRUPT;
}

/* The old file then needs no log. One that is damaged stays as it is: it is no database, with a log
 * or without, and beside it are both. */
static int fold_log(const char *path, struct err *err)
{
    static const char *const pragmas[] = { NULL };
    AUTO(buf_free) struct buf log = { 0 };
    struct conn c;
    int rc = SQLITE_OK, r = 0;

    buf_printf(&log, "%s-wal", path);
    if (access(path, F_OK) || access(log.data, F_OK))
        return 0;
    r = sqlite_open(&c, path, pragmas, err);
    if (!r) { /* opens the log, which the next line alone would not */
        rc = sqlite3_exec(c.db, "SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_wal_checkpoint_v2(c.db, NULL, SQLITE_CHECKPOINT_FULL, NULL, NULL);
        if (rc != SQLITE_OK && !is_damaged(rc))
            r = sqlite_error(&c, rc, err);
    }
    sqlite_shut(&c);
    return r ? err_in(err, "write the log of the database into it (one that is to be lost may be "
                           "moved away, with its -wal)")
             : 0;
}

/* On the disk before the new one has the name: a stranger's log would be taken for its own. */
static int drop_log(const char *path, struct err *err)
{
    static const char *const suffixes[] = { "-wal", "-shm" };

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        AUTO(buf_free) struct buf name = { 0 };

        buf_printf(&name, "%s%s", path, suffixes[i]);
        if (unlink(name.data) && errno != ENOENT)
            return err_sys(err, "remove %s", name.data);
    }
    return sqlite_sync_directory(path, err);
}

static bool is_taken(const char *aside)
{
    AUTO(buf_free) struct buf log = { 0 };

    buf_printf(&log, "%s-wal", aside);
    return !access(aside, F_OK) || !access(log.data, F_OK);
}

static void name_aside(const char *path, struct buf *out)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];

    gmtime_r(&now, &tm);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
    buf_printf(out, "%s.replaced-%s", path, stamp);
    for (int n = 2; is_taken(out->data); n++) { /* by one of the same second */
        out->len = 0;
        buf_printf(out, "%s.replaced-%s-%d", path, stamp, n);
    }
}

static int replace(const char *part, const char *path, const char *aside, struct err *err)
{
    if (keep_old(path, aside, err) || fold_log(path, err) || drop_log(path, err))
        return -1;
    if (rename(part, path))
        return err_sys(err, "name the database %s", path);
    return sqlite_sync_directory(path, err);
}

int store_sqlite_restore(const char *from, const char *path, struct buf *aside, struct err *err)
{
    AUTO(buf_free) struct buf part = { 0 };
    AUTO(closep) int fd = open_backup(from, err);

    if (fd < 0 || lazy_load(&lazy_sqlite, err))
        return -1;
    buf_printf(&part, "%s.part", path);
    if (drop_log(part.data, err)) /* of one that was interrupted */
        return -1;
    name_aside(path, aside);
    if (copy_whole(fd, part.data, err))
        err_in(err, "%s", from);
    else if (!replace(part.data, path, aside->data, err))
        return 0;
    unlink(part.data);
    return -1;
}
