/* serve_database.c - a database that is missing is not taken for a first start.
 *
 * It is the only list of who owns which sandbox. Where something in the data directory says that
 * there was one, a start without it would serve nobody's sandboxes to nobody; so it is refused
 * until somebody has put a backup in its place, or said that he begins anew. A first start leaves
 * <state>/new until its database is there: one that was interrupted may be repeated. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/serve.h"
#include "store/store.h"

static void path_in(const char *dir, const char *name, struct buf *out)
{
    buf_printf(out, "%s/%s", dir, name);
}

/* Is there a file in it whose name begins so, and is not a draft's? */
static bool any_in(const char *data_dir, const char *dir, const char *prefix)
{
    AUTO(buf_free) struct buf path = { 0 };
    const struct dirent *e;
    bool found = false;
    DIR *d;

    path_in(data_dir, dir, &path);
    d = opendir(path.data);
    while (d && !found && (e = readdir(d)))
        found = *e->d_name != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    if (d)
        closedir(d);
    return found;
}

static bool is_there(const char *dir, const char *name)
{
    AUTO(buf_free) struct buf path = { 0 };

    path_in(dir, name, &path);
    return !faccessat(AT_FDCWD, path.data, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* NULL: nothing says that there ever was one. */
static const char *witness(const struct serve *s)
{
    if (any_in(s->data_dir, "paused", ""))
        return "there are paused sandboxes";
    if (any_in(s->data_dir, "volume/layers", "box-"))
        return "there are files of sandboxes";
    return is_there(s->data_dir, "admin.key") ? "there is an admin.key" : NULL;
}

static int make_marker(const struct serve *s, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(closep) int fd = -1;

    path_in(s->state_dir, "new", &path);
    /* a file of our own: nobody is given one that was put in its place */
    fd = open(path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return 0;
    return fd < 0 || fchown(fd, s->uid, s->gid) ? err_sys(err, "make %s", path.data) : 0;
}

/* A log without its database is nothing that SQLite would use; somebody may. */
static int keep_log(const char *database, struct err *err)
{
    AUTO(buf_free) struct buf log = { 0 }, aside = { 0 };

    buf_printf(&log, "%s-wal", database);
    buf_printf(&aside, "%s-wal.lost", database);
    return rename(log.data, aside.data) && errno != ENOENT ? err_sys(err, "keep %s", log.data) : 0;
}

static int refuse_new(const char *database, struct err *err)
{
    return err_set(err, ERR_PRECONDITION,
                   "--new: the database %.200s is there: start without it, or move it away",
                   database);
}

int serve_database(const struct serve *s, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    const char *why;
    int found;

    path_in(s->state_dir, "cove.db", &path);
    found = store_sqlite_found(path.data, err);
    if (found < 0)
        return -1;
    if (found)
        return s->o->new ? refuse_new(path.data, err) : 0;
    why = is_there(s->state_dir, "new") ? NULL : witness(s);
    if (why && !s->o->new)
        return err_set(err, ERR_PRECONDITION,
                       "the database %.150s is missing or empty, and %s: put a backup in its place "
                       "(cove restore FILE), or take the directory as new and set aside what is "
                       "there (cove serve --new)",
                       path.data, why);
    return keep_log(path.data, err) || make_marker(s, err) ? -1 : 0;
}

/* In the server, whose monitor has looked: it may have gone since. */
int serve_database_open(const struct serve *s, struct store **out, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 }, marker = { 0 };
    int found;

    path_in(s->state_dir, "cove.db", &path);
    path_in(s->state_dir, "new", &marker);
    found = store_sqlite_found(path.data, err);
    if (found < 0)
        return -1;
    if (!found && access(marker.data, F_OK))
        return err_set(err, ERR_PRECONDITION,
                       "the database %.150s is gone: end the server, and put a backup in its place "
                       "(cove restore FILE)",
                       path.data);
    if (store_open_sqlite(path.data, out, err))
        return -1;
    if (unlink(marker.data) && errno != ENOENT)
        log_warn("a mark of the first start stays", KV("file", marker.data),
                 KV("error", strerrordesc_np(errno)));
    return 0;
}
