/* logfile.c - see logfile.h. The sandbox's user may remove, replace or fill the files at any time:
 * each is opened without following links, and a log that cannot be written is no reason to stop. */
#include "guest/services/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/services/service.h"

struct logfile {
    int dir, fd;
    int64_t size;
    char *name, *older;
};

static struct logfile *sink;

static int open_file(struct logfile *l)
{
    /* O_NONBLOCK: a FIFO that somebody put there must not stop us */
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat st;

    l->fd = openat(l->dir, l->name, flags, 0644);
    if (l->fd < 0)
        return -1;
    if (!fstat(l->fd, &st) && S_ISREG(st.st_mode)) {
        l->size = st.st_size;
        return 0;
    }
    close(TAKE(l->fd, -1));
    errno = EINVAL;
    return -1;
}

static void rotate(struct logfile *l)
{
    if (l->fd >= 0)
        close(TAKE(l->fd, -1));
    if (renameat(l->dir, l->name, l->dir, l->older))
        unlinkat(l->dir, l->name, 0);
    l->size = 0;
    open_file(l);
}

struct logfile *logfile_open(int dir, const char *name, struct err *err)
{
    struct logfile *l;

    if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..")) {
        err_set(err, ERR_INVALID, "log file '%.100s': must be a name without '/'", name);
        return NULL;
    }
    l = xcalloc(1, sizeof(*l));
    l->fd = -1;
    l->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    l->name = xstrdup(name);
    if (asprintf(&l->older, "%s.1", name) < 0)
        abort();
    if (l->dir < 0 || open_file(l)) {
        err_sys(err, "log file %s", name);
        logfile_close(l);
        return NULL;
    }
    if (l->size >= service_limits.log_bytes)
        rotate(l);
    return l;
}

void logfile_write(struct logfile *l, struct str text)
{
    if (text.n > (size_t)service_limits.log_bytes)
        text = (struct str){ text.p + text.n - service_limits.log_bytes,
                             (size_t)service_limits.log_bytes };
    if (l->size + (int64_t)text.n > service_limits.log_bytes)
        rotate(l);
    if (l->fd >= 0 && write(l->fd, text.p, text.n) > 0)
        l->size += (int64_t)text.n;
}

void logfile_close(struct logfile *l)
{
    if (!l)
        return;
    if (sink == l)
        sink = NULL;
    closep(&l->fd);
    closep(&l->dir);
    free(l->name);
    free(l->older);
    free(l);
}

static void write_line(struct str line)
{
    if (sink)
        logfile_write(sink, line);
}

void logfile_take_log(struct logfile *l)
{
    sink = l;
    log_sink = write_line;
}

void logfile_raw(struct str text)
{
    if (sink)
        logfile_write(sink, text);
}
