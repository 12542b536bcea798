/* path.c - see path.h. */
#include "guest/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/user.h"

char *path_expand(struct arena *a, const char *path, const struct user *u, const char *workdir)
{
    if (!*path)
        return path_expand(a, workdir && *workdir ? workdir : "~", u, NULL);
    if (*path == '/')
        return arena_strdup(a, str_of(path));
    if (*path == '~' && (!path[1] || path[1] == '/'))
        return arena_printf(a, "%s%s", u->home, path + 1);
    return arena_printf(a, "%s/%s", u->home, path);
}

int path_open(int root, const char *path, int flags, mode_t mode)
{
    /* openat2 refuses flags that mean nothing together: O_NOCTTY is none of O_PATH's */
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY)),
        .mode = flags & (O_CREAT | __O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };

    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

        /* EAGAIN: a rename somewhere raced with ".."; the kernel asks to be asked again */
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || tries == 64)
            return (int)fd;
    }
}

/* Splits a copy of path at its last component; trailing slashes do not count. */
static int split(struct arena *a, const char *path, const char **dir, char **name, struct err *err)
{
    char *copy = arena_strdup(a, str_of(path)), *slash;
    size_t n = strlen(copy);

    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    slash = strrchr(copy, '/');
    *name = slash ? slash + 1 : copy;
    *dir = !slash ? "." : slash == copy ? "/" : copy;
    if (slash && slash != copy)
        *slash = 0;
    if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
        return err_set(err, ERR_INVALID, "path '%.100s' does not end in a name", path);
    if (strlen(*name) > NAME_MAX)
        return err_set(err, ERR_INVALID, "name in path is longer than %d bytes", NAME_MAX);
    return 0;
}

/* Makes one directory below dir; true when it is ours now and needs its owner. */
static int make_one(int dir, const char *name, const struct user *owner, struct err *err)
{
    AUTO(closep) int fd = -1; /* given by name, it could be anybody's file by then */

    if (mkdirat(dir, name, 0755)) {
        if (errno == EEXIST)
            return 0;
        return err_sys(err, "make directory '%.100s'", name);
    }
    if (!owner->switchable)
        return 0;
    fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchownat(fd, "", owner->uid, owner->gid, AT_EMPTY_PATH))
        return err_sys(err, "give directory '%.100s' to %s", name, owner->name);
    return 0;
}

int path_make_dirs(struct arena *a, int root, const char *path, const struct user *owner,
                   struct err *err)
{
    char *copy = arena_printf(a, "%s/", path), *p = copy;
    AUTO(closep) int dir = path_open(root, "/", O_PATH | O_DIRECTORY, 0);

    if (dir < 0)
        return err_sys(err, "open the root");
    while (*p) {
        char *name = p + strspn(p, "/"), *end = strchr(name, '/');
        int next;

        if (!end)
            break;
        *end = 0;
        next =
            path_open(root, copy, O_PATH | O_DIRECTORY, 0); /* a link leads on, inside the root */
        if (next < 0 && errno == ENOENT) {
            if (make_one(dir, name, owner, err))
                return -1;
            next = path_open(root, copy, O_PATH | O_DIRECTORY, 0);
        }
        if (next < 0)
            return err_sys(err, "open directory '%.150s'", copy);
        close(dir);
        dir = next;
        *end = '/';
        p = end;
    }
    return TAKE(dir, -1);
}

int path_open_parent(struct arena *a, int root, const char *path, const struct user *make,
                     char **name, struct err *err)
{
    const char *dir;
    int fd;

    if (split(a, path, &dir, name, err))
        return -1;
    fd = path_open(root, dir, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT && make)
        return path_make_dirs(a, root, dir, make, err);
    return err_sys(err, "open directory '%.150s'", dir);
}

char *path_of_fd(struct arena *a, int root, int fd)
{
    char link[40], base[PATH_MAX], target[PATH_MAX];
    ssize_t n, m;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target));
    snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
    m = readlink(link, base, sizeof(base));
    if (n <= 0 || m <= 0 || target[0] != '/')
        return NULL;
    if (m > 1 && n >= m && !memcmp(target, base, (size_t)m)) /* our root lies below the real one */
        return n == m ? arena_strdup(a, STR("/"))
                      : arena_strdup(a, (struct str){ target + m, (size_t)(n - m) });
    return arena_strdup(a, (struct str){ target, (size_t)n });
}

int path_reopen(int fd, int flags)
{
    char link[40];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return open(link, flags | O_CLOEXEC | O_NOCTTY);
}
