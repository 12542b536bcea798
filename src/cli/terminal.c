/* terminal.c - see terminal.h.
 *
 * A shell whose terminal stays raw is a shell that looks dead, so the modes come back on every way
 * out: a return, exit(), and the signals by which a bug of ours would end us. */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/co.h"

enum { SAFE_WRITE = 4096 }; /* what a pipe that polls as writable takes without blocking */

static struct termios before;
static bool raw, prepared;

bool terminal_wanted(void) { return isatty(0) && isatty(1); }

void terminal_restore(void)
{
    if (raw)
        tcsetattr(0, TCSADRAIN, &before);
    raw = false;
}

static const int deadly[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS };
static struct sigaction former[ARRAY_LEN(deadly)];

/* tcsetattr() is safe in a handler; TCSANOW, for whoever should read our output may be the one that
 * hangs. The signal then comes again for whoever had it before: the status tells the truth. */
static void restore_and_die(int signo)
{
    if (raw)
        tcsetattr(0, TCSANOW, &before);
    for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
        if (deadly[i] == signo)
            sigaction(signo, &former[i], NULL);
    raise(signo);
}

static void prepare(void)
{
    struct sigaction act = { .sa_handler = restore_and_die };

    if (prepared)
        return;
    prepared = true;
    atexit(terminal_restore);
    for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
        sigaction(deadly[i], &act, &former[i]);
}

void terminal_raw(void)
{
    struct termios t;

    if (tcgetattr(0, &t))
        return;
    if (!raw) /* after a stop of ours it may be raw in our eyes only */
        before = t;
    prepare();
    t = before;
    cfmakeraw(&t);
    raw = !tcsetattr(0, TCSADRAIN, &t);
}

void terminal_size(int64_t *cols, int64_t *rows)
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

ssize_t terminal_read(int fd, void *p, size_t n)
{
    ssize_t r;

    do
        r = wait_ready(fd, CO_IN) ? -1 : read(fd, p, n);
    while (r < 0 && (errno == EINTR || errno == EAGAIN));
    return r;
}

int terminal_write(int fd, const void *p, size_t n)
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
