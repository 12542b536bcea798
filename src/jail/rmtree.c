/* rmtree.c - see rmtree.h. */
#include "jail/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

enum { LEVELS = 300 };

static int open_directory(int dir, const char *name)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
    int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));

    if (fd >= 0 || errno != EACCES)
        return fd;
    /* an ordinary user's own directory of mode 0: no reason to keep it for ever */
    if (fchmodat(dir, name, 0700, 0))
        return -1;
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

static int remove_entry(int dir, const char *name, int level);

static int empty(int fd, int level)
{
    DIR *d = fdopendir(fd);
    int result = 0, error;

    if (!d) {
        close(fd);
        return -1;
    }
    if (fchmod(fd, 0700) && errno != EPERM && errno != EROFS)
        result = -1;
    for (struct dirent *e; !result && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            result = remove_entry(fd, e->d_name, level);
    error = errno;
    closedir(d);
    errno = error;
    return result;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by LEVELS
static int remove_entry(int dir, const char *name, int level)
{
    int fd;

    if (!unlinkat(dir, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM) /* POSIX says EPERM for a directory, Linux EISDIR */
        return -1;
    if (!unlinkat(dir, name, AT_REMOVEDIR) || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    if (level >= LEVELS) {
        errno = ELOOP;
        return -1;
    }
    fd = open_directory(dir, name);
    if (fd < 0)
        return -1;
    if (empty(fd, level + 1))
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR);
}

int rmtree(int dir, const char *name) { return remove_entry(dir, name, 0); }
