/* place.c - see place.h. */
#include "guest/kernels/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "bash_py.h"
#include "guest/kernels/kernels.h"

#define PREFIX "cove-kernels-"
#define OWNER  "owner"

static int owner = -1; /* locked */

/* ---- what others have left behind ---- */

static bool is_ours(int fd)
{
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid();
}

/* What we make is flat: anything else is somebody's, and stays with its directory. */
static void remove_all(int base, int dir, const char *name)
{
    DIR *d = fdopendir(dup(dir));
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (e->d_name[0] != '.' && unlinkat(dir, e->d_name, 0))
            log_debug("left behind", KV("file", e->d_name));
    if (d)
        closedir(d);
    if (unlinkat(base, name, AT_REMOVEDIR))
        log_debug("left behind", KV("directory", name));
}

/* Only where there is a lock that could be had: a directory without one is an older release's, or
 * one that is being made. */
static void sweep_one(int base, const char *name)
{
    AUTO(closep)
    int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO(closep) int lock = -1;

    if (!is_ours(dir))
        return;
    lock = openat(dir, OWNER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (!is_ours(lock) || flock(lock, LOCK_EX | LOCK_NB))
        return;
    log_info("swept", KV("directory", name));
    remove_all(base, dir, name);
}

static void sweep(const char *path)
{
    AUTO(closep) int base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = base < 0 ? NULL : fdopendir(dup(base));
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, PREFIX, sizeof(PREFIX) - 1))
            sweep_one(base, e->d_name);
    if (d)
        closedir(d);
}

/* ---- ours ---- */

/* Visible under its name only once it is locked. */
static int take_lock(struct err *err)
{
    AUTO(buf_free) struct buf begun = { 0 }, path = { 0 };
    int fd;

    buf_printf(&begun, "%s/." OWNER, kernels.dir);
    buf_printf(&path, "%s/" OWNER, kernels.dir);
    fd = open(buf_cstr(&begun), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || rename(buf_cstr(&begun), buf_cstr(&path))) {
        err_sys(err, "lock %s", buf_cstr(&path));
        closep(&fd);
        return -1;
    }
    closep(&owner);
    owner = fd;
    return 0;
}

static int write_bash_kernel(struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(closep) int fd = -1;

    buf_printf(&path, "%s/bash.py", kernels.dir);
    fd = open(buf_cstr(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, bash_py, sizeof(bash_py) - 1) != (ssize_t)sizeof(bash_py) - 1)
        return err_sys(err, "write %s", buf_cstr(&path));
    return 0;
}

int place_open(struct err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    AUTO(buf_free) struct buf b = { 0 };

    /* Socket names have a hundred bytes in all: a long directory is no use. */
    if (!base || !*base || strlen(base) > 60 || access(base, W_OK))
        base = "/tmp";
    sweep(base);
    buf_printf(&b, "%s/" PREFIX "XXXXXX", base);
    if (!mkdtemp(b.data))
        return err_sys(err, "make %s", b.data);
    kernels.dir = xstrdup(b.data);
    return take_lock(err) || write_bash_kernel(err) ? -1 : 0;
}

int place_renew(struct err *err)
{
    if (!mkdir(kernels.dir, 0700)) {
        log_warn("made again: somebody has removed it", KV("directory", kernels.dir));
        return take_lock(err) || write_bash_kernel(err) ? -1 : 0;
    }
    return errno == EEXIST ? 0 : err_sys(err, "make %s", kernels.dir);
}

void place_close(void)
{
    static const char *const names[] = { "warm.py", "bash.py", OWNER };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(buf_free) struct buf path = { 0 };

        buf_printf(&path, "%s/%s", kernels.dir, names[i]);
        unlink(buf_cstr(&path));
    }
    if (rmdir(kernels.dir))
        log_debug("left behind", KV("directory", kernels.dir));
    closep(&owner);
    owner = -1;
}
