/* process.c - the life of a process: started, read, waited for, kept a while, forgotten.
 *
 * Per process one coroutine waits for the exit (and its time limit) and one per stream moves output
 * into the ring. One of its readers sets the pace: the reading stops while that one lags a ring's
 * half behind or would lose bytes, for as long as it stays, as it does at a pipe that nobody reads.
 * Others are not waited for, and nobody is while nobody reads. */
#include "guest/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/process_env.h"
#include "guest/services/doors.h"
#include "guest/session.h"

enum { READ_PIPE = 32 << 10, READ_PTY = 16 << 10, PTY_HOLDS = 64 << 10 };

/* ---- keeping and forgetting ---- */

static void process_free(struct process *p)
{
    list_remove(&p->all);
    co_close(p->input);
    child_forget(&p->child);
    ring_clear(&p->ring);
    buf_free(&p->config);
    free(p->tag);
    free(p);
}

static bool unused(const struct process *p)
{
    return p->ended && !p->pumps && list_empty(&p->readers) && !p->input_busy && !p->input_waiting;
}

/* Ended processes go after process.keep-ms; before that, the oldest lose their output when all
 * together hold more than process.keep-bytes. Returns how many are still kept. */
static size_t forget_old(struct guest *g)
{
    struct process *p;
    int64_t held = 0;
    size_t kept = 0;

    list_each(p, &g->processes, all) {
        if (unused(p) && (co_now() - p->ended_ms >= guest_limits.keep_ms || g->stopping)) {
            process_free(p);
            continue;
        }
        kept += p->ended;
        held += unused(p) ? (int64_t)p->ring.bytes : 0;
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed is no longer in the list */
    list_each(p, &g->processes, all)
        if (held > guest_limits.keep_bytes && unused(p)) {
            held -= (int64_t)p->ring.bytes;
            ring_clear(&p->ring);
        }
    return kept;
}

/* Runs only while something is kept: a guest with nothing to forget sleeps. */
static void forget_later(void *arg)
{
    static bool running;

    if (running)
        return;
    running = true;
    while (!co_sleep(co_in(1000)) && forget_old(arg))
        ;
    running = false;
}

/* ---- output ---- */

/* Whom the process waits for: the last that began at an offset, since it may have come back while
 * its former connection is not known to be dead yet; else the one that came first. */
static struct process_reader *pacemaker(const struct process *p)
{
    struct process_reader *r, *found = NULL;

    list_each(r, &p->readers, all)
        if (!process_behind(p, r) && (!found || r->resumed))
            found = r;
    return found;
}

/* Before each read: waits while it could cost the reader that sets the pace any bytes. */
static int hold_back(struct process *p, int which)
{
    const struct process_reader *r;

    while (!p->discard && !p->owed[which] && (r = pacemaker(p)) != NULL &&
           (p->ring.end - r->offset > p->ring.max / 2 || ring_would_lose(&p->ring, r->offset)))
        if (co_cond_wait(&p->progress, NEVER))
            return -1; /* the guest is ending */
    return 0;
}

struct pump {
    struct process *p;
    int which;
};

static void pump_output(void *arg)
{
    struct pump pump = *(struct pump *)arg;
    struct process *p = pump.p;
    size_t size = p->pty ? READ_PTY : READ_PIPE;
    enum ring_stream stream = p->pty ? RING_PTY : pump.which ? RING_STDERR : RING_STDOUT;
    char *buf = NULL;

    free(arg);
    for (;;) {
        ssize_t n;

        if (hold_back(p, pump.which))
            break;
        if (!buf)
            buf = xmalloc(size);
        n = read(p->output[pump.which], buf, size);
        if (n < 0 && errno == EAGAIN) {
            free(TAKE(buf, NULL)); /* a quiet process costs no buffer */
            p->quiet[pump.which] = true;
            if (p->child.reaped)
                co_cond_wake(&p->changed); /* the end waits for this */
            if (co_wait(p->output[pump.which], CO_IN, NEVER))
                break;
            p->quiet[pump.which] = false;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* EIO: the last holder of the terminal is gone */
            break;
        if (!p->discard) {
            ring_append(&p->ring, stream, (struct str){ buf, (size_t)n });
            co_cond_wake(&p->changed);
        }
        p->owed[pump.which] -= MIN(p->owed[pump.which], n);
    }
    free(buf);
    if (!p->pty) /* a terminal's master is also the input: closed with the process */
        co_close(p->output[pump.which]);
    p->output[pump.which] = -1;
    p->pumps--;
    co_cond_wake(&p->changed);
}

/* ---- the end ---- */

static void describe_end(struct process *p)
{
    int status = p->child.status;

    p->exited = WIFEXITED(status);
    p->exit_code = p->exited ? WEXITSTATUS(status) : -1;
    if (p->exited)
        snprintf(p->status, sizeof(p->status), "exit status %d", p->exit_code);
    else
        snprintf(p->status, sizeof(p->status), "signal: %s%s",
                 process_signal_name(WTERMSIG(status)), WCOREDUMP(status) ? " (core dumped)" : "");
}

static bool output_open(const struct process *p) { return p->output[0] >= 0 || p->output[1] >= 0; }

/* What is in the pipes now is read, and kept beyond the ring's bound where the reader that sets the
 * pace is slow: a process that has ended is not kept from ending by it. A terminal holds more than
 * it tells of. */
static void owe_output(struct process *p)
{
    for (int i = 0; i < 2; i++) {
        int bytes = 0;

        if (p->output[i] < 0 || (!p->pty && ioctl(p->output[i], FIONREAD, &bytes)))
            continue;
        p->owed[i] = p->pty ? PTY_HOLDS : bytes;
        if (pacemaker(p))
            p->ring.max += (size_t)p->owed[i] + 2 * RING_APPEND_COST;
    }
    co_cond_wake(&p->progress);
}

/* Has everything been read that is owed? */
static bool output_drained(const struct process *p)
{
    for (int i = 0; i < 2; i++) {
        struct pollfd fd = { p->output[i], POLLIN, 0 };

        if (p->output[i] >= 0 && p->owed[i] && (!p->quiet[i] || poll(&fd, 1, 0)))
            return false;
    }
    return true;
}

static void drain_output(struct process *p)
{
    owe_output(p);
    while (!output_drained(p) && !co_cancelled())
        co_cond_wait(&p->changed, co_in(50)); /* the pump has yet to see what is there */
    p->owed[0] = p->owed[1] = 0;
}

/* What the process itself wrote is in the pipes when it has exited, and is read to the last byte
 * however slow the readers are. Children that still hold the pipes get a moment more; after that
 * they are read to nowhere, so that they neither block nor die of a closed pipe. */
static void finish_output(struct process *p)
{
    int64_t grace;

    drain_output(p);
    grace = co_in(p->timed_out ? 0 : guest_limits.pipe_grace_ms);
    while (output_open(p) && !co_cond_wait(&p->changed, grace))
        ;
    drain_output(p);
    p->discard = true;
}

static void wait_for_end(void *arg)
{
    struct process *p = arg;
    struct guest *g = p->guest;

    while (child_wait(&p->child, p->deadline)) {
        if (errno == ETIMEDOUT) {
            p->timed_out = true;
            p->deadline = NEVER;
            process_signal(p, SIGKILL);
        } else if (co_cancelled()) {
            p->pumps--;
            return; /* the guest is ending */
        }
    }
    describe_end(p);
    finish_output(p);
    if (!p->pty && !p->input_busy)
        co_close(TAKE(p->input, -1));
    p->ended = true;
    doors_after();
    p->ended_ms = co_now();
    p->pumps--;
    co_cond_wake(&p->progress);
    co_cond_wake(&p->changed);
    co_go(forget_later, g, NULL);
}

/* ---- starting ---- */

struct streams { /* our ends and the child's */
    int input, output[2];
    int child[3];
};

static void streams_close_child(struct streams *s)
{
    for (int i = 0; i < 3; i++) {
        if (s->child[i] >= 0 && (i == 0 || s->child[i] != s->child[0]))
            close(s->child[i]);
    }
    s->child[0] = s->child[1] = s->child[2] = -1;
}

static void streams_close(struct streams *s)
{
    streams_close_child(s);
    if (s->output[0] >= 0 && s->output[0] != s->input)
        close(s->output[0]);
    if (s->output[1] >= 0)
        close(s->output[1]);
    if (s->input >= 0)
        close(s->input);
}

static int make_pipe(int *ours, int *theirs, bool we_write)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC))
        return -1;
    *ours = p[we_write];
    *theirs = p[!we_write];
    return fcntl(*ours, F_SETFL, O_NONBLOCK);
}

static int open_pipes(struct streams *s, bool stdin_open, struct err *err)
{
    if (stdin_open ? make_pipe(&s->input, &s->child[0], true)
                   : (s->child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, "open standard input");
    if (make_pipe(&s->output[0], &s->child[1], false) ||
        make_pipe(&s->output[1], &s->child[2], false))
        return err_sys(err, "open standard output");
    return 0;
}

static int open_terminal(struct streams *s, const struct process_start *start, struct err *err)
{
    struct winsize size = { .ws_col = start->cols, .ws_row = start->rows };
    int unlock = 0, slave;

    s->input = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (s->input < 0)
        return err_sys(err, "open a terminal");
    s->output[0] = s->input;
    if (ioctl(s->input, TIOCSPTLCK, &unlock) || ioctl(s->input, TIOCSWINSZ, &size))
        return err_sys(err, "set up a terminal");
    slave = ioctl(s->input, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return err_sys(err, "open a terminal's other side");
    s->child[0] = s->child[1] = s->child[2] = slave;
    if (start->user->switchable && fchown(slave, start->user->uid, (gid_t)-1))
        return err_sys(err, "give the terminal to %s", start->user->name);
    return 0;
}

static int launch(struct guest *g, const struct process_start *start, struct streams *s,
                  struct child *child, struct err *err)
{
    AUTO(process_env_free) struct process_env env = { 0 };
    AUTO(closep) int cwd = process_env_build(&env, g, start, err);
    struct spawn spawn;

    if (cwd < 0)
        return -1;
    spawn = (struct spawn){
        .paths = env.paths,
        .argv = env.argv,
        .envp = env.envp,
        .stdio = { s->child[0], s->child[1], s->child[2] },
        .cwd = cwd,
        .root = g->chrooted ? g->root : -1,
        .tty = start->pty,
        .set_ids = start->user->switchable,
        .uid = start->user->uid,
        .gid = start->user->gid,
        .groups = start->user->groups,
        .ngroups = start->user->ngroups,
    };
    if (spawn_start(&spawn, child, err)) {
        if (err->code == ERR_NOT_FOUND || err->code == ERR_DENIED)
            err->code = ERR_INVALID; /* the request named something that cannot be run */
        return -1;
    }
    return 0;
}

static void start_pumps(struct process *p)
{
    p->pumps = 1; /* the one that waits for the end */
    for (int i = 0; i < 2; i++) {
        struct pump *pump;

        if (p->output[i] < 0)
            continue;
        pump = xmalloc(sizeof(*pump));
        *pump = (struct pump){ p, i };
        if (co_go(pump_output, pump, NULL)) {
            free(pump);
            if (!p->pty) /* a terminal's is the input as well */
                close(p->output[i]);
            p->output[i] = -1; /* no memory for a stack: its output is lost, it is not */
            continue;
        }
        p->pumps++;
    }
    if (co_go(wait_for_end, p, NULL))
        abort();
}

int process_start(struct guest *g, const struct process_start *start, struct process **out,
                  struct err *err)
{
    struct streams s = { -1, { -1, -1 }, { -1, -1, -1 } };
    struct process *p = xcalloc(1, sizeof(*p));

    if ((start->pty ? open_terminal(&s, start, err) : open_pipes(&s, start->stdin_open, err)) ||
        launch(g, start, &s, &p->child, err)) {
        streams_close(&s);
        free(p);
        return -1;
    }
    streams_close_child(&s);
    list_push(&g->processes, &p->all);
    p->guest = g;
    p->tag = start->tag ? xstrdup(start->tag) : NULL;
    p->input = s.input;
    p->output[0] = s.output[0];
    p->output[1] = s.output[1];
    p->pty = start->pty;
    p->stdin_open = start->stdin_open;
    p->deadline = co_in(start->timeout_ms);
    p->ring.max = (size_t)guest_limits.output_bytes;
    list_init(&p->readers);
    co_cond_init(&p->changed);
    co_cond_init(&p->progress);
    co_cond_init(&p->input_free);
    process_env_describe(&p->config, start->config);
    start_pumps(p);
    *out = p;
    return 0;
}

struct process *process_by_pid(struct guest *g, int64_t pid)
{
    struct process *p, *found = NULL;

    list_each(p, &g->processes, all) /* the newest: a pid may come round again while one is kept */
        if (p->child.pid == pid)
            found = p;
    return found;
}

struct process *process_by_tag(struct guest *g, const char *tag)
{
    struct process *p, *found = NULL;

    list_each(p, &g->processes, all)
        if (p->tag && !strcmp(p->tag, tag) && (!found || found->ended || !p->ended))
            found = p;
    return found;
}

/* ---- readers ---- */

void process_attach(struct process *p, struct process_reader *r, const uint64_t *offset, bool gaps)
{
    uint64_t from = offset ? *offset : list_empty(&p->readers) ? p->left : p->ring.end;

    *r = (struct process_reader){
        .offset = MAX(from, p->ring.first), .sent = from, .gaps = gaps, .resumed = offset && !gaps
    };
    r->lost = r->offset - from;
    list_push(&p->readers, &r->all);
    co_cond_wake(&p->progress); /* the one that set the pace may not do so any more */
}

void process_detach(struct process *p, struct process_reader *r)
{
    if (!process_behind(p, r))
        p->left = r->sent;
    list_remove(&r->all);
    co_cond_wake(&p->progress);
}

void process_took(struct process *p, struct process_reader *r, uint64_t offset)
{
    r->offset = offset;
    co_cond_wake(&p->progress);
}

/* ---- input and signals ---- */

static int input_turn(struct process *p, int64_t until, struct err *err)
{
    int r = 0;

    p->input_waiting++; /* keeps the process from being forgotten meanwhile */
    while (p->input_busy && !r)
        r = co_cond_wait(&p->input_free, until);
    p->input_waiting--;
    return r ? err_sys(err, "wait for earlier input to process %d", p->child.pid) : 0;
}

int process_write(struct process *p, const void *data, size_t n, int64_t until, size_t *taken,
                  struct err *err)
{
    struct iovec v = { (void *)(uintptr_t)data, n };
    int r;

    *taken = 0;
    if (input_turn(p, until, err))
        return -1;
    if (p->input < 0 || p->ended)
        return err_set(err, ERR_INTERNAL, "the input of process %d is closed", p->child.pid);
    p->input_busy = true;
    r = n ? co_writev(p->input, &v, 1, until) : 0;
    *taken = r ? n - v.iov_len : n;
    p->input_busy = false;
    co_cond_wake(&p->input_free);
    if (!r)
        return 0;
    if (errno == EPIPE || errno == EIO)
        return err_set(err, ERR_INTERNAL, "process %d does not read its input any more",
                       p->child.pid);
    return err_sys(err, "write to process %d", p->child.pid);
}

int process_close_input(struct process *p, struct err *err)
{
    if (p->pty)
        return err_set(err, ERR_UNKNOWN, "a terminal's input cannot be closed: send Ctrl-D (0x04)");
    if (!p->stdin_open)
        return err_set(err, ERR_INTERNAL, "process %d was started without input", p->child.pid);
    if (input_turn(p, NEVER, err))
        return -1;
    co_close(TAKE(p->input, -1));
    return 0;
}

int process_resize(struct process *p, unsigned short cols, unsigned short rows, struct err *err)
{
    struct winsize size = { .ws_col = cols, .ws_row = rows };

    if (!p->pty || p->input < 0)
        return err_set(err, ERR_INVALID, "process %d has no terminal", p->child.pid);
    if (ioctl(p->input, TIOCSWINSZ, &size))
        return err_sys(err, "resize the terminal of process %d", p->child.pid);
    return 0;
}

void process_signal(struct process *p, int signal)
{
    /* Until it is reaped the pid is its own, so none of these can meet a stranger. */
    if (p->child.reaped)
        return;
    kill(-p->child.pid, signal);
    if (signal == SIGKILL)
        session_kill(p->child.pid);
}

void process_stop_all(struct guest *g)
{
    int64_t until = co_in(guest_limits.stop_ms);
    struct process *p;
    bool alive = true;

    g->stopping = true;
    for (int signal = SIGTERM;; signal = 0) {
        alive = false;
        list_each(p, &g->processes, all)
            if (!p->ended) {
                alive = true;
                if (signal || co_now() >= until)
                    process_signal(p, signal ? signal : SIGKILL);
            }
        if (!alive || co_now() >= until + 1000 || co_sleep(co_in(10)))
            return;
    }
}
