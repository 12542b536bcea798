/* run_terminal.c - our own standard streams: a terminal in raw mode, or pipes and files. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cli/run.h"

enum { SAFE_WRITE = 4096 }; /* what a pipe that polls as writable takes without blocking */

static struct termios before;
static bool raw;

bool run_terminal_wanted(void) { return isatty(0) && isatty(1); }

void run_terminal_restore(void)
{
    if (raw)
        tcsetattr(0, TCSADRAIN, &before);
    raw = false;
}

void run_terminal_raw(void)
{
    struct termios t;

    if (tcgetattr(0, &before))
        return;
    t = before;
    cfmakeraw(&t);
    raw = !tcsetattr(0, TCSADRAIN, &t);
    atexit(run_terminal_restore);
}

void run_terminal_size(int64_t *cols, int64_t *rows)
{
    struct winsize w = { 0 };

    if (ioctl(1, TIOCGWINSZ, &w) || !w.ws_col || !w.ws_row)
        w = (struct winsize){ .ws_col = 80, .ws_row = 24 };
    *cols = w.ws_col;
    *rows = w.ws_row;
}

/* epoll refuses plain files: they are always ready. Ready now: no edge will come for it. */
static int wait_ready(int fd, enum co_dir dir)
{
    struct pollfd p = { .fd = fd, .events = dir == CO_IN ? POLLIN : POLLOUT };

    while (poll(&p, 1, 0) == 0)
        if (co_wait(fd, dir, NEVER))
            return errno == EPERM ? 0 : -1;
    return 0;
}

ssize_t run_read(int fd, void *p, size_t n)
{
    ssize_t r;

    do
        r = wait_ready(fd, CO_IN) ? -1 : read(fd, p, n);
    while (r < 0 && (errno == EINTR || errno == EAGAIN));
    return r;
}

int run_write(int fd, const void *p, size_t n)
{
    const char *at = p;
    struct stat st;
    size_t most = !fstat(fd, &st) && S_ISREG(st.st_mode) ? n : SAFE_WRITE;

    while (n) {
        ssize_t r = wait_ready(fd, CO_OUT) ? -1 : write(fd, at, MIN(n, most));

        if (r < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (r < 0)
            return -1;
        at += r;
        n -= (size_t)r;
    }
    return 0;
}
