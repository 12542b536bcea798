/* session.c - see session.h.
 *
 * The caller's coroutine follows the command's events; two others read our input and our signals.
 * They end by being cancelled: nothing else wakes a read of somebody's terminal. */
#include "cli/session.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/terminal.h"

enum { INPUT_BYTES = 16 << 10, CAPTURE_BYTES = 16 << 20 };

int session_catch_signals(struct session *s, struct err *err)
{
    static const int numbers[] = { SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                                   SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_sys(err, "signalfd") : 0;
}

/* ---- input, signals ---- */

/* Each says at its end that it has left. */
static void help(struct session *s, co_fn *fn)
{
    if (s->nhelpers == SESSION_HELPERS || co_go(fn, s, &s->helpers[s->nhelpers]))
        abort();
    s->nhelpers++;
    s->live++;
}

void session_leave(struct session *s)
{
    for (size_t i = 0; i < s->nhelpers; i++)
        co_cancel(s->helpers[i]);
    while (s->live)
        co_pass();
    s->nhelpers = 0;
}

static void pump_input(void *arg)
{
    struct session *s = arg;
    char *bytes = xmalloc(INPUT_BYTES);
    struct err err;
    ssize_t n;

    while ((n = terminal_read(0, bytes, INPUT_BYTES)) > 0)
        if (envd_input(s->envd, s->pid, s->terminal, bytes, (size_t)n, &err))
            break; /* it does not read any more, or is gone: its end comes by the other way */
    if (!co_cancelled() && n <= 0) /* a terminal's input has no end: what the user would type */
        (void)!(s->terminal ? envd_input(s->envd, s->pid, true, "\4", 1, &err)
                            : envd_end_input(s->envd, s->pid, &err));
    free(bytes);
    s->live--;
}

static void send_size(struct session *s)
{
    struct err err;
    int64_t cols, rows;

    if (!s->terminal || !s->pid)
        return;
    terminal_size(&cols, &rows);
    (void)!envd_resize(s->envd, s->pid, cols, rows, &err);
}

static void take_signal(struct session *s, int signo)
{
    struct err err;

    switch (signo) {
    case SIGCONT: /* whoever stopped us gave the terminal back its own modes */
        if (s->terminal)
            terminal_raw();
        send_size(s);
        break;
    case SIGWINCH: send_size(s); break;
    default:
        if (s->pid)
            (void)!envd_signal(s->envd, s->pid, signo, &err);
        else
            s->early = signo;
    }
}

static void watch_signals(void *arg)
{
    struct session *s = arg;
    struct signalfd_siginfo info;

    while (co_read(s->signals, &info, sizeof(info), NEVER) == sizeof(info))
        take_signal(s, (int)info.ssi_signo);
    s->live--;
}

/* ---- output ---- */

static void capture(struct session *s, struct buf *b, struct str data)
{
    size_t room = b->len < CAPTURE_BYTES ? CAPTURE_BYTES - b->len : 0;

    s->truncated |= data.n > room;
    buf_add(b, data.p, MIN(data.n, room));
}

static int put_output(struct session *s, const struct envd_event *e)
{
    bool err = e->kind == ENVD_STDERR;

    if (s->capture) {
        capture(s, err ? &s->err : &s->out, e->data);
        return 0;
    }
    return terminal_write(err ? 2 : 1, e->data.p, e->data.n);
}

static void on_start(struct session *s, int64_t pid)
{
    s->pid = pid;
    if (s->early)
        take_signal(s, s->early);
    if (s->input)
        help(s, pump_input);
}

/* /dev/null is the usual "no input": the command gets it from the start. */
static bool has_input(void)
{
    struct stat st;

    return !fstat(0, &st) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

static int follow(struct session *s, struct envd_stream *stream, struct err *err)
{
    struct envd_event e;
    int more;

    while ((more = envd_next(stream, &e, err)) > 0)
        switch (e.kind) {
        case ENVD_START:
            on_start(s, e.pid);
            if (s->detach)
                return 0;
            break;
        case ENVD_STDOUT:
        case ENVD_STDERR:
        case ENVD_PTY:
            if (put_output(s, &e)) { /* whoever read us has left: end as a pipe's writer does */
                s->closed = true;
                return 0;
            }
            break;
        case ENVD_LOST: break;
        case ENVD_END:
            s->code = e.exited ? e.exit_code : e.signal;
            s->exited = e.exited;
            s->done = true;
            break;
        }
    if (!more && !s->done)
        return err_set(err, ERR_UPSTREAM, "the guest does not say how the command ended");
    return more;
}

/* ---- the request ---- */

static void fill_command(const struct session *s, struct envd_command *c, struct envd_env *env)
{
    const char *term = s->terminal ? getenv("TERM") : NULL;

    *c = (struct envd_command){ .cmd = s->argv[0],
                                .args = s->argv + 1,
                                .env = env,
                                .cwd = s->workdir,
                                .user = s->user,
                                .pty = s->terminal,
                                .stdin_open = s->input };
    for (size_t i = 0; s->env && i < s->env->n; i++) {
        const char *text = s->env->items[i], *eq = strchr(text, '=');

        env[c->nenv++] = eq ? (struct envd_env){ xstrndup(text, (size_t)(eq - text)), eq + 1 }
                            : (struct envd_env){ xstrdup(text), getenv(text) ? getenv(text) : "" };
    }
    if (term)
        env[c->nenv++] = (struct envd_env){ xstrdup("TERM"), term };
    if (s->terminal)
        terminal_size(&c->cols, &c->rows);
}

int session_run(struct session *s, struct err *err)
{
    AUTO(freep) struct envd_env *env = xcalloc((s->env ? s->env->n : 0) + 2, sizeof(*env));
    struct envd_command c;
    struct envd_stream *stream;
    int r;

    s->input = !s->detach && has_input();
    fill_command(s, &c, env);
    if (!s->watched)
        help(s, watch_signals);
    s->watched = true; /* also by the next call, for another command */
    if (s->terminal)
        terminal_raw();
    stream = envd_start(s->envd, &c, err);
    r = stream ? follow(s, stream, err) : -1;
    terminal_restore();
    envd_close(stream);
    for (size_t i = 0; i < c.nenv; i++)
        free((void *)(size_t)env[i].name);
    return r < 0 ? -1 : 0;
}

void session_finish(struct session *s)
{
    buf_free(&s->out);
    buf_free(&s->err);
    if (s->signals > 0)
        close(s->signals);
    s->signals = 0;
}

/* ---- how it ended ---- */

int session_status(const struct session *s, const struct err *err)
{
    static const char refused[] = "cannot execute ";

    if (s->done)
        return s->exited ? (int)s->code & 0xff : 128 + (int)s->code;
    if (s->closed)
        return 128 + SIGPIPE;
    if (err && !strncmp(err->msg, refused, strlen(refused)))
        return strstr(err->msg, strerrordesc_np(ENOENT)) ? SESSION_NOT_FOUND
                                                         : SESSION_NOT_EXECUTABLE;
    return s->detach && !err ? 0 : SESSION_FAILED;
}

void session_put_json(const struct session *s, const struct err *err, int status, struct buf *b)
{
    json_kv_int(b, "exit_code", status);
    if (s->done && !s->exited)
        json_kv_str(b, "signal", sigabbrev_np(status - 128));
    if (err)
        json_kv_str(b, "error", err->msg);
    json_key(b, "stdout");
    json_put_str(b, buf_str(&s->out));
    json_key(b, "stderr");
    json_put_str(b, buf_str(&s->err));
    json_kv_bool(b, "truncated", s->truncated);
}
