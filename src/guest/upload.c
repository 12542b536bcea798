/* upload.c - see upload.h. */
#include "guest/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "guest/path.h"
#include "guest/user.h"

#define METADATA "user.e2b."

enum { TRIES = 64 }; /* while others make and remove a file of that name */

static int check_regular(const struct upload *u, const struct stat *st, struct err *err)
{
    if (S_ISREG(st->st_mode))
        return 0;
    return err_set(err, ERR_INVALID, "path '%.150s' is %s", u->path,
                   S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
}

/* An early word where the name is taken by something that cannot be written. */
static int check_target(const struct upload *u, struct err *err)
{
    AUTO(closep) int fd = path_open(u->root, u->path, O_PATH, 0);
    size_t n = strlen(u->path);
    struct stat st;

    if (n && u->path[n - 1] == '/')
        return err_set(err, ERR_INVALID, "path '%.150s' names a directory", u->path);
    if (fd < 0 || fstat(fd, &st))
        return 0; /* new, or a link whose target is yet to be made */
    return check_regular(u, &st, err);
}

static int open_unnamed(struct upload *u, struct err *err)
{
    u->fd = openat(u->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (u->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
        memcpy(u->temporary, ".cove-upload-", 13);
        id_random(u->temporary + 13, 16);
        u->fd =
            openat(u->dir, u->temporary, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (u->fd < 0)
            u->temporary[0] = 0;
    }
    if (u->fd < 0)
        return err_sys(err, "write '%.150s'", u->path);
    if (u->user->switchable && fchown(u->fd, u->user->uid, u->user->gid))
        return err_sys(err, "give '%.150s' to %s", u->path, u->user->name);
    return 0;
}

int upload_begin(struct upload *u, struct arena *a, int root, const char *path,
                 const struct user *user, const struct map *metadata, struct err *err)
{
    *u = (struct upload){ .arena = a,
                          .root = root,
                          .path = path,
                          .user = user,
                          .metadata = metadata,
                          .dir = -1,
                          .fd = -1,
                          .mode = -1 };
    if (check_target(u, err))
        return -1;
    u->dir = path_open_parent(a, root, path, user, &u->name, err);
    return u->dir < 0 ? -1 : open_unnamed(u, err);
}

int upload_write(struct upload *u, struct str data, struct err *err)
{
    while (data.n) {
        ssize_t n = write(u->fd, data.p, data.n);

        if (n < 0 && errno != EINTR)
            return err_sys(err, "write '%.150s'", u->path);
        if (n < 0)
            continue;
        data = (struct str){ data.p + n, data.n - (size_t)n };
        u->size += n;
    }
    return 0;
}

static int set_metadata(const struct upload *u, int fd, struct err *err)
{
    char names[16 << 10];
    ssize_t n = flistxattr(fd, names, sizeof(names));

    for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
        if (!strncmp(p, METADATA, strlen(METADATA)))
            fremovexattr(fd, p);
    for (size_t i = 0; u->metadata && i < u->metadata->n; i++) {
        const struct map_item *it = &u->metadata->items[i];
        char *name = arena_printf(u->arena, METADATA "%s", it->key);

        if (fsetxattr(fd, name, it->value, strlen(it->value), 0))
            return err_sys(err, "store metadata '%.64s' of '%.100s'", it->key, u->path);
    }
    return 0;
}

/* Copies the unnamed file's bytes over the named one, which has `size` bytes: shared blocks where
 * the file system can. It is shortened before the first of them, not after the last: whoever waits
 * for our write and then adds to the file keeps what he added. */
static int copy_over(struct upload *u, int to, off_t size, struct err *err)
{
    off_t from = 0;
    bool range = true;

    if (u->size && fallocate(to, FALLOC_FL_KEEP_SIZE, 0, u->size) && errno != EOPNOTSUPP &&
        errno != ENOSYS && errno != EINTR)
        return err_sys(err, "reserve %lld bytes for '%.150s'", (long long)u->size, u->path);
    if (size >= u->size && ftruncate(to, u->size))
        return err_sys(err, "write '%.150s'", u->path);
    while (from < u->size) {
        ssize_t n = range ? copy_file_range(u->fd, &from, to, NULL, (size_t)(u->size - from), 0)
                          : sendfile(to, u->fd, &from, (size_t)(u->size - from));

        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (!range || !n)
            return err_sys(err, "write '%.150s'", u->path);
        range = false; /* not between these two: an ordinary copy */
    }
    return 0;
}

/* The file that has the name, or the one a link of that name leads to, which may be yet to be made.
 * *gone: nothing has the name any more. */
static int open_named(const struct upload *u, bool *gone, struct err *err)
{
    AUTO(closep) int named = openat(u->dir, u->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int to;

    *gone = named < 0 && errno == ENOENT;
    if (named < 0 || fstat(named, &st))
        return err_sys(err, "write '%.150s'", u->path);
    if (S_ISLNK(st.st_mode))
        to = path_open(u->root, u->path, O_WRONLY | O_CREAT | O_NONBLOCK, 0666);
    else if (check_regular(u, &st, err)) /* before a real open: that alone can do harm */
        return -1;
    else
        to = path_reopen(named, O_WRONLY | O_NONBLOCK);
    return to < 0 ? err_sys(err, "write '%.150s'", u->path) : to;
}

/* 1: there is nothing to write over any more. */
static int write_in_place(struct upload *u, struct err *err)
{
    bool gone;
    AUTO(closep) int to = open_named(u, &gone, err);
    struct stat st;

    if (to < 0)
        return gone ? 1 : -1;
    if (fstat(to, &st))
        return err_sys(err, "write '%.150s'", u->path);
    if (check_regular(u, &st, err))
        return -1;
    u->written = (struct inode){ st.st_dev, st.st_ino };
    if (u->earlier && inode_known(u->earlier, u->written))
        return err_set(err, ERR_INVALID, "two parts of the upload lead to the file '%.150s'",
                       u->path);
    if (copy_over(u, to, st.st_size, err))
        return -1;
    if (u->user->switchable && (st.st_uid != u->user->uid || st.st_gid != u->user->gid) &&
        fchown(to, u->user->uid, u->user->gid))
        return err_sys(err, "give '%.150s' to %s", u->path, u->user->name);
    if (u->mode >= 0 && fchmod(to, (mode_t)u->mode))
        return err_sys(err, "mode of '%.150s'", u->path);
    return set_metadata(u, to, err);
}

static int link_unnamed(struct upload *u)
{
    char self[40];

    if (u->temporary[0]) {
        if (renameat2(u->dir, u->temporary, u->dir, u->name, RENAME_NOREPLACE))
            return -1;
        u->temporary[0] = 0;
        return 0;
    }
    snprintf(self, sizeof(self), "/proc/self/fd/%d", u->fd);
    return linkat(AT_FDCWD, self, u->dir, u->name, AT_SYMLINK_FOLLOW);
}

/* A watcher saw the name appear; clients wait for the write that an ordinary copy would show. A new
 * time of change shows as one, and takes nothing from whoever has written to the file since. The
 * name may be another's by now. */
static void announce_write(const struct upload *u)
{
    static const struct timespec now[] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
    AUTO(closep) int named = openat(u->dir, u->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    AUTO(closep) int fd = -1;
    struct stat st;

    if (named < 0 || fstat(named, &st) || st.st_dev != u->written.dev ||
        st.st_ino != u->written.ino)
        return;
    fd = path_reopen(named, O_WRONLY | O_NONBLOCK);
    if (fd >= 0 && futimens(fd, now))
        errno = 0; /* the file is there and whole: only the event is missing */
}

static int link_new(struct upload *u, struct err *err)
{
    struct stat st;

    if (fstat(u->fd, &st))
        return err_sys(err, "write '%.150s'", u->path);
    if (link_unnamed(u))
        return errno == EEXIST ? 1 : err_sys(err, "write '%.150s'", u->path);
    u->written = (struct inode){ st.st_dev, st.st_ino };
    announce_write(u);
    return 0;
}

int upload_commit(struct upload *u, struct err *err)
{
    int r = 1;

    if (u->metadata && u->metadata->n && set_metadata(u, u->fd, err))
        return -1;
    if (u->mode >= 0 && fchmod(u->fd, (mode_t)u->mode)) /* before it has a name: never wider */
        return err_sys(err, "mode of '%.150s'", u->path);
    for (int tries = 0; r > 0 && tries < TRIES; tries++) {
        *err = (struct err){ 0 };
        r = link_new(u, err);
        if (r > 0)
            r = write_in_place(u, err);
    }
    return r ? -1 : 0;
}

void upload_finish(struct upload *u)
{
    if (u->temporary[0])
        unlinkat(u->dir, u->temporary, 0);
    closep(&u->fd);
    closep(&u->dir);
    u->fd = u->dir = -1;
    u->temporary[0] = 0;
}
