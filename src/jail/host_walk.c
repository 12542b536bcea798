/* host_walk.c - walking a tree of the machine, and where a link leads by its text alone.
 *
 * /usr has some 160,000 entries, so an entry costs one fstatat and a link not even that. A
 * directory stays open while its children are walked: DEPTH bounds descriptors and stack. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"

enum { DEPTH = HOST_WALK_DEPTH, CHUNK = 32 << 10 };

struct walk {
    host_visit *visit;
    void *arg;
    dev_t dev;
    struct buf path;
};

static int walk_dir(struct walk *w, int fd, unsigned depth, struct err *err);

static int descend(struct walk *w, const struct host_entry *e, struct err *err)
{
    AUTO(closep) int fd = -1;

    if (e->st.st_dev != w->dev) /* an overlay shows the empty directory below the mount */
        return 0;
    if (e->depth >= DEPTH)
        return err_set(err, ERR_LIMIT, "%.150s is nested deeper than %d directories", e->path,
                       DEPTH);
    fd = openat(e->dir, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && host_tree_absent(errno))
        return 0;
    if (fd < 0)
        return err_sys(err, "open %.150s", e->path);
    return walk_dir(w, fd, e->depth + 1, err);
}

static int walk_entry(struct walk *w, int dir, const struct dirent64 *d, unsigned depth,
                      struct err *err)
{
    struct host_entry e = { .dir = dir, .name = d->d_name, .depth = depth };
    size_t before = w->path.len;
    int r;

    if (d->d_type == DT_LNK)
        e.st.st_mode = S_IFLNK | 0777;
    else if (fstatat(dir, d->d_name, &e.st, AT_SYMLINK_NOFOLLOW))
        return host_tree_absent(errno) ? 0 : err_sys(err, "stat %.150s", d->d_name);
    if (before + strlen(d->d_name) + 2 >= PATH_MAX) /* with its slashes: nobody could name it */
        return 0;
    if (before)
        buf_putc(&w->path, '/');
    buf_puts(&w->path, d->d_name);
    e.path = w->path.data;
    r = w->visit(w->arg, &e, err);
    if (r > 0 && S_ISDIR(e.st.st_mode))
        r = descend(w, &e, err);
    w->path.len = before;
    if (w->path.data)
        w->path.data[before] = 0;
    return r < 0 ? -1 : 0;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Plain getdents64: fdopendir would cost three calls more for each of 20,000 directories. */
static int walk_dir(struct walk *w, int fd, unsigned depth, struct err *err)
{
    AUTO(freep) char *chunk = xmalloc(CHUNK);
    ssize_t n;

    while ((n = getdents64(fd, chunk, CHUNK)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *d = (const void *)(chunk + at);

            if (!is_dots(d->d_name) && walk_entry(w, fd, d, depth, err) < 0)
                return -1;
            at += d->d_reclen;
        }
    /* ENOENT: it was removed while we looked */
    return n < 0 && errno != ENOENT ? err_sys(err, "read %.150s", buf_cstr(&w->path)) : 0;
}

int host_walk(int root, const char *path, host_visit *visit, void *arg, struct err *err)
{
    struct walk w = { .visit = visit, .arg = arg };
    AUTO(closep) int fd = host_tree_open(root, *path ? path : ".", O_RDONLY | O_DIRECTORY);
    struct stat st;
    int r;

    if (fd < 0)
        return host_tree_absent(errno) ? 0 : err_sys(err, "open %.150s", path);
    if (fstat(fd, &st))
        return err_sys(err, "stat %.150s", path);
    w.dev = st.st_dev;
    buf_puts(&w.path, path);
    r = walk_dir(&w, fd, 1, err);
    buf_free(&w.path);
    return r;
}

/* One component of a target onto out. A ".." may take away what the link's own place or another
 * ".." left, never a name of the target: that name could be a link, or a person's. */
static bool step(struct buf *out, struct str part, bool *named)
{
    if (!part.n || str_is(part, "."))
        return true;
    if (!str_is(part, "..")) {
        *named = true;
        if (out->len)
            buf_putc(out, '/');
        buf_add_str(out, part);
        return true;
    }
    if (*named)
        return false;
    while (out->len && out->data[--out->len] != '/')
        ;
    if (out->data)
        out->data[out->len] = 0;
    return true;
}

bool host_walk_resolve(const char *link, struct str target, struct buf *out)
{
    const char *slash = strrchr(link, '/');
    struct str part;
    bool named = false;

    out->len = 0;
    if (!target.n)
        return false;
    if (target.p[0] != '/' && slash)
        buf_add(out, link, (size_t)(slash - link));
    do {
        str_cut(target, '/', &part, &target);
        if (!step(out, part, &named))
            return false;
    } while (target.p);
    return out->len > 0;
}

bool host_walk_readlink(const struct host_entry *e, struct buf *out)
{
    ssize_t n;

    out->len = 0;
    if (!S_ISLNK(e->st.st_mode))
        return false;
    buf_reserve(out, PATH_MAX);
    n = readlinkat(e->dir, e->name, out->data, PATH_MAX - 1);
    if (n <= 0)
        return false;
    out->len = (size_t)n;
    out->data[n] = 0;
    return true;
}

bool host_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

bool host_in_usr(const char *path)
{
    static const char *const dirs[] = { "usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32" };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (host_below(path, dirs[i]))
            return true;
    return false;
}
