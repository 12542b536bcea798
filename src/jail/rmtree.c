/* rmtree.c - see rmtree.h.
 *
 * No recursion and no descriptor per level: a directory that is not empty is moved up to the top of
 * the tree first, under a name of ours, until the top is flat. Nobody else is in there: whoever
 * filled it has ended. */
#include "jail/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/idmap.h"

static int open_beneath(int dir, const char *name, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };

    return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

/* A directory, made ours to change: an ordinary user's may have any mode. */
static int open_directory(int dir, const char *name)
{
    int fd = open_beneath(dir, name, O_RDONLY);
    AUTO(closep) int handle = -1;
    char self[40];

    if (fd >= 0 && !fchmod(fd, 0700))
        return fd;
    if (fd >= 0 || errno != EACCES) /* somebody else's: then it is as it is */
        return fd;
    /* by way of /proc: chmod by name would follow a link, and fchmod wants a readable directory */
    handle = open_beneath(dir, name, O_PATH);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", handle);
    return handle < 0 || chmod(self, 0700)
               ? -1
               : openat(handle, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* 0: gone; 1: a directory with something in it. */
static int unlink_entry(int dir, const char *name)
{
    if (!unlinkat(dir, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (!unlinkat(dir, name, AT_REMOVEDIR) || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
}

static int move_up(int dir, const char *name, int top, unsigned *serial)
{
    AUTO(closep) int fd = open_directory(dir, name); /* its ".." changes: it must be writable */
    char flat[32];
    int result;

    if (fd < 0)
        return -1;
    do {
        snprintf(flat, sizeof(flat), ".removed-%u", (*serial)++);
        result = renameat2(dir, name, top, flat, RENAME_NOREPLACE);
    } while (result && errno == EEXIST);
    return result;
}

/* Empties and removes a directory at the top; what is not empty in it goes up. */
static int remove_flat(int top, const char *name, unsigned *serial)
{
    int fd = open_directory(top, name), result = 0, error;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        closep(&fd);
        return -1;
    }
    for (struct dirent *e; result >= 0 && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        result = unlink_entry(fd, e->d_name);
        if (result == 1)
            result = move_up(fd, e->d_name, top, serial);
    }
    error = errno;
    closedir(d);
    errno = error;
    return result < 0 ? -1 : unlinkat(top, name, AT_REMOVEDIR);
}

/* One pass. 1: it removed a directory, which may have left others here; 0: the top is empty. */
static int flatten(int top, unsigned *serial)
{
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = 0, found = 0, error;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        closep(&fd);
        return -1;
    }
    for (struct dirent *e; result >= 0 && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        result = unlink_entry(top, e->d_name);
        if (result == 1) {
            found = 1;
            result = remove_flat(top, e->d_name, serial);
        }
    }
    error = errno;
    closedir(d);
    errno = error;
    return result < 0 ? -1 : found;
}

int rmtree(int dir, const char *name)
{
    AUTO(closep) int top = -1;
    unsigned serial = 0;
    int more;

    more = unlink_entry(dir, name);
    if (more <= 0)
        return more;
    top = open_directory(dir, name);
    if (top < 0)
        return -1;
    do
        more = flatten(top, &serial);
    while (more > 0);
    return more < 0 ? -1 : unlinkat(dir, name, AT_REMOVEDIR);
}

static int wait_status(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return ECHILD;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* The same by a child that is root over the caller's subordinate ids. */
static int remove_mapped(int dir, const char *name)
{
    struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    struct err err = { 0 };
    int go[2], status;
    pid_t pid;
    char byte = 0;

    if (pipe2(go, O_CLOEXEC))
        return -1;
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (!pid) {
        close(go[1]); /* else a parent that died would never show as the end */
        _exit(read(go[0], &byte, 1) == 1 && !rmtree(dir, name) ? 0 : errno ? errno : EACCES);
    }
    close(go[0]);
    if (pid > 0 && !idmap_write(pid, IDMAP_OWN, &err) && write(go[1], &byte, 1) < 0)
        err_sys(&err, "begin");
    close(go[1]);
    status = pid < 0 ? EACCES : wait_status(pid);
    errno = status;
    return status ? -1 : 0;
}

int rmtree_foreign(int dir, const char *name)
{
    uint32_t users, groups;

    if (!rmtree(dir, name))
        return 0;
    if ((errno != EACCES && errno != EPERM) || !geteuid() || idmap_ranges(&users, &groups))
        return -1;
    return remove_mapped(dir, name);
}
