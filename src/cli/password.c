/* password.c - see password.h. */
#include "cli/password.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"

enum { PASSWORD_BYTES = 1024 };

/* Byte by byte: what is behind the line is not ours, and stdio would keep a copy of it. */
static char *read_line(struct err *err)
{
    char *line = xcalloc(1, PASSWORD_BYTES + 1);
    size_t n = 0;
    ssize_t r;

    while ((r = read(0, line + n, 1)) != 0) {
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 || line[n] == '\n' || ++n == PASSWORD_BYTES)
            break;
    }
    if (n && line[n - 1] == '\r')
        n--;
    if (r >= 0 && n && n < PASSWORD_BYTES) {
        line[n] = 0;
        return line;
    }
    explicit_bzero(line, PASSWORD_BYTES);
    free(line);
    if (n == PASSWORD_BYTES)
        err_set(err, ERR_INVALID, "the password is longer than %d bytes", PASSWORD_BYTES - 1);
    else
        err_set(err, ERR_INVALID, "there is no password on standard input");
    return NULL;
}

static char *ask(const char *who, const char *what, struct err *err)
{
    char *line;

    fprintf(stderr, "%s: %s: ", who, what);
    line = read_line(err);
    fputc('\n', stderr);
    return line;
}

static char *ask_on_terminal(const char *who, bool twice, struct err *err)
{
    char *first = ask(who, "password", err), *second;

    if (!first || !twice)
        return first;
    second = ask(who, "once more", err);
    if (second && !strcmp(first, second)) {
        explicit_bzero(second, strlen(second));
        free(second);
        return first;
    }
    if (second)
        err_set(err, ERR_INVALID, "the two are not the same");
    explicit_bzero(first, strlen(first));
    free(first);
    free(second);
    return NULL;
}

/* Signals wait meanwhile: a terminal that does not echo must not be left behind. */
char *password_read(const char *who, bool twice, struct err *err)
{
    struct termios before, silent;
    sigset_t all, old;
    char *line;

    if (!isatty(0) || tcgetattr(0, &before))
        return read_line(err);
    silent = before;
    silent.c_lflag &= ~(tcflag_t)(ECHO | ISIG);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    tcsetattr(0, TCSAFLUSH, &silent);
    line = ask_on_terminal(who, twice, err);
    tcsetattr(0, TCSAFLUSH, &before);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return line;
}
