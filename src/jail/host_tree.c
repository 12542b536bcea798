/* host_tree.c - reading the machine's files and writing the layers, through no link on either side.
 *
 * Owners: the layers are mounted idmapped, so an id on disk is the id inside. An ordinary user
 * cannot give files away; that is noted in b->owners and is no failure. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"

enum { COPY_MAX = 256 << 20, CHUNK = 64 << 10 };

int host_tree_open(int root, const char *path, int flags)
{
    /* O_NONBLOCK: a fifo in place of a file must not hold us; O_PATH knows neither flag */
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW |
                                      (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY)),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };

    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

        if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || tries == 64)
            return (int)fd;
    }
}

bool host_tree_absent(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
           error == EPERM || error == ESTALE;
}

bool host_tree_has(const struct host_build *b, const char *path)
{
    struct stat st;

    return !fstatat(b->source, path, &st, AT_SYMLINK_NOFOLLOW);
}

bool host_tree_public(const struct host_build *b, const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path), to = 0;
    struct stat st;

    if (n >= sizeof(part))
        return false;
    do {
        to = (size_t)(strchrnul(path + to + (to > 0), '/') - path);
        memcpy(part, path, to);
        part[to] = 0;
        if (fstatat(b->source, part, &st, AT_SYMLINK_NOFOLLOW) ||
            !(st.st_mode & (to == n ? S_IROTH : S_IXOTH)) || (to < n && !S_ISDIR(st.st_mode)))
            return false;
    } while (to < n);
    return true;
}

static uid_t system_id(const struct host_build *b, unsigned id)
{
    return host_accounts_system(&b->accounts, id) ? id : 0;
}

/* 0, or -1 with errno. */
static int give(struct host_build *b, int fd, uid_t uid, gid_t gid, mode_t mode)
{
    if (fchown(fd, uid, gid)) {
        if (errno != EPERM && errno != EINVAL) /* EINVAL: an id that our namespace does not have */
            return -1;
        if (uid != geteuid() || gid != getegid())
            b->owners = false;
    }
    /* after the owner, which takes the setuid bit away */
    return fchmod(fd, mode);
}

static int make_dir(struct host_build *b, int at, const char *name, const struct stat *like)
{
    AUTO(closep) int fd = -1;

    if (mkdirat(at, name, 0700) && errno != EEXIST)
        return -1;
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    return give(b, fd, like->st_uid, like->st_gid, like->st_mode & 07777);
}

int host_tree_layer(int at, const char *name, int model, struct host_layer *l)
{
    if (mkdirat(at, name, 0755) || fchmodat(at, name, 0755, 0)) /* whatever the umask */
        return -1;
    *l = (struct host_layer){ openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), model };
    return l->fd < 0 ? -1 : 0;
}

/* Mode and owner for a directory that nobody spoke of: those of the machine's. */
static void like_model(const struct host_build *b, const struct host_layer *l, const char *path,
                       struct stat *like)
{
    if (fstatat(l->model, path, like, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(like->st_mode))
        *like = (struct stat){ .st_mode = 0755 };
    like->st_mode |= 0700; /* an ordinary user has to get into what it makes */
    like->st_uid = system_id(b, like->st_uid);
    like->st_gid = system_id(b, like->st_gid);
}

int host_tree_dir(struct host_build *b, const struct host_layer *l, const char *path)
{
    int at = host_tree_open(l->fd, *path ? path : ".", O_PATH | O_DIRECTORY);
    char part[PATH_MAX];
    size_t n = strlen(path), from = 0;

    if (at >= 0 || errno != ENOENT)
        return at;
    if (n >= sizeof(part))
        return errno = ENAMETOOLONG, -1;
    at = host_tree_open(l->fd, ".", O_PATH | O_DIRECTORY);
    while (at >= 0 && from < n) {
        AUTO(closep) int above = at;
        size_t to = (size_t)(strchrnul(path + from, '/') - path);
        struct stat like;

        memcpy(part, path, to);
        part[to] = 0;
        at = openat(above, part + from, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (at < 0 && errno == ENOENT) {
            like_model(b, l, part, &like);
            if (!make_dir(b, above, part + from, &like))
                at = openat(above, part + from, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        from = to + 1;
    }
    return at;
}

/* The directory a path is in, and its name there. */
static int parent(struct host_build *b, const struct host_layer *l, const char *path,
                  const char **name)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];

    *name = slash ? slash + 1 : path;
    if (!slash)
        return host_tree_dir(b, l, "");
    if ((size_t)(slash - path) >= sizeof(dir))
        return errno = ENAMETOOLONG, -1;
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = 0;
    return host_tree_dir(b, l, dir);
}

int host_tree_mkdir(struct host_build *b, const struct host_node *n, struct err *err)
{
    struct stat like = { .st_mode = n->mode, .st_uid = n->uid, .st_gid = n->gid };
    const char *name;
    AUTO(closep) int at = parent(b, &b->base, n->path, &name);

    if (at < 0 || make_dir(b, at, name, &like))
        return errno == ENOTDIR || errno == ELOOP ? 0 : err_sys(err, "make %.150s", n->path);
    return 0;
}

/* A new file in place of anything but a directory. */
static int create(int at, const char *name)
{
    for (int tries = 0;; tries++) {
        int fd =
            openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode_t)0600);

        if (fd >= 0 || errno != EEXIST || tries == 2 || unlinkat(at, name, 0))
            return fd;
    }
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

int host_tree_put(struct host_build *b, const struct host_layer *l, const struct host_node *n,
                  struct err *err)
{
    const char *name;
    AUTO(closep) int at = parent(b, l, n->path, &name);
    AUTO(closep) int fd = -1;

    if (at < 0 && (errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (at >= 0)
        fd = create(at, name);
    if (fd < 0 || write_all(fd, n->bytes.p, n->bytes.n) || give(b, fd, n->uid, n->gid, n->mode))
        return err_sys(err, "write %.150s", n->path);
    return 0;
}

int host_tree_symlink(struct host_build *b, const char *path, const char *target, struct err *err)
{
    const char *name;
    AUTO(closep) int at = parent(b, &b->base, path, &name);

    if (at < 0 && (errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (at < 0)
        return err_sys(err, "make %.150s", path);
    for (int tries = 0; symlinkat(target, at, name); tries++)
        if (errno != EEXIST || tries || unlinkat(at, name, 0)) {
            if (errno == EISDIR || errno == EPERM) /* a directory has the name: it stays */
                return 0;
            return err_sys(err, "link %.150s", path);
        }
    return 0;
}

int host_tree_read(const struct host_build *b, const char *path, size_t max, struct buf *out,
                   struct stat *st)
{
    AUTO(closep) int fd = host_tree_open(b->source, path, O_RDONLY);

    if (fd < 0 || fstat(fd, st))
        return -1;
    if (!S_ISREG(st->st_mode))
        return errno = EINVAL, -1;
    for (;;) {
        ssize_t k;

        buf_reserve(out, CHUNK);
        k = read(fd, out->data + out->len, CHUNK);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        out->len += (size_t)k;
        out->data[out->len] = 0;
        if (out->len > max)
            return errno = EFBIG, -1;
    }
}

static int pour(struct host_build *b, int in, int to, off_t size)
{
    char chunk[CHUNK];

    if (size > CHUNK && !b->no_clone) {
        if (!ioctl(to, FICLONE, in))
            return 0;
        b->no_clone = true;
    }
    for (;;) {
        ssize_t k = read(in, chunk, sizeof(chunk));

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        if (write_all(to, chunk, (size_t)k))
            return -1;
    }
}

/* What a program may do beyond its owner; only a machine with its own /bin needs it. */
static void copy_capability(int in, int to)
{
    char value[64];
    ssize_t n = fgetxattr(in, "security.capability", value, sizeof(value));

    if (n > 0 && fsetxattr(to, "security.capability", value, (size_t)n, 0))
        return; /* an ordinary user's copy has no capability, as it has no setuid owner */
}

static int copy_open(struct host_build *b, int in, const struct stat *st, int at, const char *name)
{
    AUTO(closep) int to = create(at, name);
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };

    if (to < 0 || pour(b, in, to, st->st_size) ||
        give(b, to, system_id(b, st->st_uid), system_id(b, st->st_gid), st->st_mode & 07777))
        return -1;
    if (st->st_mode & 0111)
        copy_capability(in, to);
    return futimens(to, times);
}

/* 1: linked. A file that an ordinary user may not link, or on another file system, is copied. */
static int try_link(struct host_build *b, const char *path, int at, const char *name)
{
    struct stat st;

    if (b->no_link || fstatat(b->source, path, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
        !(st.st_mode & S_IROTH))
        return 0;
    if (!linkat(b->source, path, at, name, 0))
        return 1;
    b->no_link = errno != EEXIST && errno != ENOENT;
    return 0;
}

int host_tree_copy(struct host_build *b, const char *path, unsigned flags, struct err *err)
{
    const char *name;
    AUTO(closep) int at = -1;
    AUTO(closep) int in = -1;
    struct stat st;

    if (flags & HOST_COPY_LINK) {
        at = parent(b, &b->base, path, &name);
        if (at >= 0 && try_link(b, path, at, name))
            return 1;
    }
    in = host_tree_open(b->source, path, O_RDONLY);
    if (in < 0)
        return host_tree_absent(errno) ? 0 : err_sys(err, "open /%.150s", path);
    if (fstat(in, &st))
        return err_sys(err, "stat /%.150s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > COPY_MAX ||
        (flags & HOST_COPY_PUBLIC && !(st.st_mode & S_IROTH)))
        return 0;
    if (at < 0)
        at = parent(b, &b->base, path, &name);
    if (at < 0 && (errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (at < 0 || copy_open(b, in, &st, at, name))
        return err_sys(err, "copy /%.150s", path);
    return 1;
}

struct copy_all {
    struct host_build *b;
    unsigned flags;
    const char *top;
    struct buf raw, target;
};

static int copy_entry(void *arg, const struct host_entry *e, struct err *err)
{
    struct copy_all *c = arg;

    if (S_ISREG(e->st.st_mode))
        return host_tree_copy(c->b, e->path, c->flags, err) < 0 ? -1 : 0;
    if (host_walk_readlink(e, &c->raw) &&
        host_walk_resolve(e->path, buf_str(&c->raw), &c->target) &&
        (host_in_usr(c->target.data) || host_below(c->target.data, c->top)))
        return host_tree_symlink(c->b, e->path, c->raw.data, err);
    return S_ISDIR(e->st.st_mode) && (!(c->flags & HOST_COPY_PUBLIC) || (e->st.st_mode & 05) == 05);
}

int host_tree_copy_all(struct host_build *b, const char *path, unsigned flags, struct err *err)
{
    struct copy_all c = { .b = b, .flags = flags, .top = path };
    int r = host_walk(b->source, path, copy_entry, &c, err);

    buf_free(&c.raw);
    buf_free(&c.target);
    return r;
}
