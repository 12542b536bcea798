/* run_session.c - one command in one sandbox: its output to ours, our input to it, signals, size.
 *
 * The first coroutine follows the command's events; others read our input, our signals and what the
 * keeper has to say. They look at r->done and end with it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/run.h"
#include "io/sock.h"

enum { INPUT_BYTES = 16 << 10, CAPTURE_BYTES = 16 << 20 };

/* ---- the keeper ---- */

void run_event(const struct keep_reply *event, void *run)
{
    struct run *r = run;

    if (strcmp(event->id, r->id))
        return;
    if (event->kind == KEEP_LIMIT_MET) {
        r->met[event->u.limit.limit] = event->u.limit;
        r->was_met[event->u.limit.limit] = true;
    } else if (event->kind == KEEP_ENDED) {
        r->ended = true;
        r->reason = (enum keep_reason)event->reason;
        if (r->reason == ENDED_FAILED)
            err_set(&r->why, (enum err_code)event->code, "%s", event->message);
        r->state = event->u.state;
    }
}

static void watch_keeper(void *arg)
{
    struct run_session *s = arg;
    struct run *r = s->run;
    struct keep_reply event;
    size_t none = 0;
    int more;

    while (!co_wait(r->keep.fd, CO_IN, NEVER)) {
        while ((more = keep_next(&r->keep, &event, NULL, &none, &s->err)) > 0)
            run_event(&event, r);
        if (more < 0)
            s->failed = true;
        if (more < 0 || r->ended)
            break;
    }
    if (!co_cancelled())
        co_cancel_all(); /* there is nobody left to hear from */
}

static int dial(void *arg, int64_t until, struct err *err)
{
    struct run *r = arg;
    struct keep_request q = { .verb = KEEP_SOCKET, .u.socket = { .count = 1 } };
    struct keep_reply reply;
    size_t n = 1;
    int fd;

    (void)until;
    if (r->first >= 0)
        return TAKE(r->first, -1);
    memcpy(q.id, r->id, sizeof(q.id));
    if (keep_call(&r->keep, &q, &reply, &fd, &n, run_event, r, err))
        return -1;
    return n == 1 ? fd : err_set(err, ERR_UPSTREAM, "the keeper gave no connection");
}

/* ---- input, signals ---- */

static void pump_input(void *arg)
{
    struct run *r = arg;
    char *bytes = xmalloc(INPUT_BYTES);
    struct err err;
    ssize_t n;

    while ((n = run_read(0, bytes, INPUT_BYTES)) > 0)
        if (envd_input(&r->envd, r->pid, r->terminal, bytes, (size_t)n, &err))
            break; /* it does not read any more, or is gone: its end comes by the other way */
    if (!co_cancelled() && !r->terminal && n <= 0)
        (void)!envd_end_input(&r->envd, r->pid, &err);
    free(bytes);
}

static void forward_signal(struct run *r, int signo)
{
    struct err err;
    int64_t cols, rows;

    if (signo == SIGWINCH && r->terminal && r->pid) {
        run_terminal_size(&cols, &rows);
        (void)!envd_resize(&r->envd, r->pid, cols, rows, &err);
    } else if (signo != SIGWINCH && r->pid)
        (void)!envd_signal(&r->envd, r->pid, signo, &err);
    else if (signo != SIGWINCH)
        r->early = signo;
}

static void watch_signals(void *arg)
{
    struct run *r = arg;
    struct signalfd_siginfo info;

    while (co_read(r->signals, &info, sizeof(info), NEVER) == sizeof(info))
        forward_signal(r, (int)info.ssi_signo);
}

/* ---- output ---- */

static void capture(struct run *r, struct buf *b, struct str data)
{
    size_t room = b->len < CAPTURE_BYTES ? CAPTURE_BYTES - b->len : 0;

    r->truncated |= data.n > room;
    buf_add(b, data.p, MIN(data.n, room));
}

static int put_output(struct run *r, const struct envd_event *e)
{
    bool err = e->kind == ENVD_STDERR;

    if (r->o->json) {
        capture(r, err ? &r->err : &r->out, e->data);
        return 0;
    }
    return run_write(err ? 2 : 1, e->data.p, e->data.n);
}

static void on_start(struct run *r, int64_t pid)
{
    r->pid = pid;
    if (r->early)
        forward_signal(r, r->early);
    if (r->input && co_go(pump_input, r, NULL))
        abort();
}

/* /dev/null is the usual "no input": the command gets it from the start. */
static bool has_input(void)
{
    struct stat st;

    return !fstat(0, &st) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

static int follow(struct run *r, struct envd_stream *stream, struct err *err)
{
    struct envd_event e;
    int more;

    while ((more = envd_next(stream, &e, err)) > 0)
        switch (e.kind) {
        case ENVD_START: on_start(r, e.pid); break;
        case ENVD_STDOUT:
        case ENVD_STDERR:
        case ENVD_PTY:
            if (put_output(r, &e)) { /* whoever read us has left: end as a pipe's writer does */
                r->closed = true;
                return 0;
            }
            break;
        case ENVD_LOST: break;
        case ENVD_END:
            r->code = e.exited ? e.exit_code : e.signal;
            r->exited = e.exited;
            r->done = true;
            break;
        }
    if (!more && !r->done)
        return err_set(err, ERR_UPSTREAM, "the guest does not say how the command ended");
    return more;
}

static void fill_command(const struct run *r, struct envd_command *c, struct envd_env *env)
{
    *c = (struct envd_command){ .cmd = r->argv[0],
                                .args = r->argv + 1,
                                .env = env,
                                .cwd = r->o->workdir,
                                .user = r->o->user,
                                .pty = r->terminal,
                                .stdin_open = r->input };
    for (size_t i = 0; i < r->o->env.n; i++) {
        const char *text = r->o->env.items[i], *eq = strchr(text, '=');

        env[c->nenv++] = eq ? (struct envd_env){ xstrndup(text, (size_t)(eq - text)), eq + 1 }
                            : (struct envd_env){ xstrdup(text), getenv(text) ? getenv(text) : "" };
    }
    if (r->terminal && getenv("TERM"))
        env[c->nenv++] = (struct envd_env){ xstrdup("TERM"), getenv("TERM") };
    if (r->terminal)
        run_terminal_size(&c->cols, &c->rows);
}

void run_session(void *session)
{
    struct run_session *s = session;
    struct run *r = s->run;
    struct envd_command c;
    AUTO(freep) struct envd_env *env = xcalloc(r->o->env.n + 2, sizeof(*env));
    struct envd_stream *stream;
    struct err err = { 0 };

    client_init(&r->client);
    r->envd =
        (struct envd){ .client = &r->client,
                       .to = { .dial = dial, .arg = r, .key = r->id, .answer_ms = INT32_MAX } };
    r->input = has_input();
    fill_command(r, &c, env);
    if (co_go(watch_keeper, s, NULL) || co_go(watch_signals, r, NULL))
        abort();
    run_forward_serve(r);
    if (r->terminal)
        run_terminal_raw();
    stream = envd_start(&r->envd, &c, &err);
    if ((!stream || follow(r, stream, &err) < 0) && !r->ended && !s->failed) {
        s->err = err;
        s->failed = true;
    }
    run_terminal_restore();
    envd_close(stream);
    client_finish(&r->client);
    for (size_t i = 0; i < c.nenv; i++)
        free((void *)(size_t)env[i].name);
    co_cancel_all();
}
