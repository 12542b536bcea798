/* serve_monitor.c - starts the keeper and the server, and again when one dies: a crash of either is
 * a pause of milliseconds. Connections wait in the listeners, which are ours; sandboxes are
 * nobody's children but the kernel's, and go on.
 *
 * A subreaper: what a dead keeper leaves behind comes to us and is waited for. It has one thread,
 * speaks to nobody and parses nothing. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/serve.h"
#include "jail/oom.h"
#include "keep/keep.h"

enum {
    SOON_MS = 50,      /* the first restart of one that has worked */
    LATER_MS = 5000,   /* at most, of one that dies again and again */
    TLS_MS = 3000,     /* between two looks at the certificate */
    STEADY_MS = 10000, /* one that ran so long has worked */
    START_TRIES = 3,   /* a part that never worked is not tried for ever */
    STOP_MS = 15000,   /* then SIGKILL */
    TAKEN_MS = 1000,   /* between two looks whether the keeper that we use is still there */
};

enum { KEEPER_TAKEN = 3 }; /* a keeper's exit status: another one is there, and will do */

struct part {
    const char *name;
    int (*run)(struct serve *s); /* in the child; its exit status */
    pid_t pid;                   /* 0: not running */
    int64_t started, due;        /* due: when to start it again */
    int failures;                /* in a row, within STEADY_MS each */
    bool worked;                 /* once */
};

struct monitor {
    struct serve *s;
    struct part keep, server;
    int64_t tls_due; /* NEVER without TLS */
    bool stopping, broken;
    bool taken; /* somebody else runs our keeper */
};

static int run_keep(struct serve *s)
{
    bool taken = false;
    struct keep_options o = { .data_dir = s->data_dir,
                              .run_dir = s->run_dir,
                              .client_uid = s->uid,
                              .allow_mounts = s->o->allow_mounts.items,
                              .rootless = !s->root,
                              .lifeline = s->keeper_line[0],
                              .taken = &taken,
                              .socket = -1 };
    struct err err = { 0 };

    closep(&s->listener);
    closep(&s->preview);
    closep(&s->lifeline);
    close(s->keeper_line[1]);
    if (s->template_news) /* the server's */
        close(s->template_news);
    explicit_bzero(s->key, sizeof(s->key));
    explicit_bzero(s->password, sizeof(s->password));
    if (!keep_run(&o, &err))
        return 0;
    if (taken) {
        log_debug("no keeper of ours", KV("reason", err.msg));
        return KEEPER_TAKEN;
    }
    log_error("the keeper could not start", KV("error", err.msg));
    return 1;
}

static _Noreturn void run_part(struct monitor *m, const struct part *p)
{
    sigset_t none;

    prctl(PR_SET_CHILD_SUBREAPER, 0);
    /* what is typed at our terminal, or sent to our group, is for the monitor: the server may need
     * the keeper to the last */
    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    exit(p->run(m->s));
}

static void start(struct monitor *m, struct part *p)
{
    fflush(stdout);
    m->s->old_keeper = keep_old_one(m->s->run_dir, m->s->data_dir) == KEEP_OLD_OURS;
    p->started = clock_ms();
    p->due = NEVER;
    p->pid = fork();
    if (!p->pid)
        run_part(m, p);
    if (p->pid < 0) {
        log_error("fork", KV("error", strerrordesc_np(errno)));
        p->pid = 0;
        p->due = clock_ms() + LATER_MS;
    }
}

/* The server looks for it where it was when that one began. */
static void use_another(struct monitor *m)
{
    bool old = keep_old_one(m->s->run_dir, m->s->data_dir) == KEEP_OLD_OURS;

    if (!m->taken)
        log_info("another keeper works for this data directory, and is used");
    m->taken = true;
    if (old && !m->s->old_keeper && m->server.pid)
        kill(m->server.pid, SIGTERM);
}

static void died(struct monitor *m, struct part *p, int status)
{
    int64_t now = clock_ms(), wait = SOON_MS;

    p->pid = 0;
    if (m->stopping) { /* the server may need a keeper to the last */
        p->due = p == &m->keep && !m->broken && m->server.pid ? now + wait : NEVER;
        return;
    }
    if (p == &m->keep && WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_TAKEN) {
        use_another(m);
        p->due = now + TAKEN_MS;
        return;
    }
    if (p == &m->keep)
        m->taken = false;
    if (now - p->started >= STEADY_MS)
        p->failures = 0;
    /* once all of it has worked, what ends a part comes and goes: a full disk, a kill */
    p->worked |= *m->s->ready || now - p->started >= STEADY_MS;
    for (int i = 0; i < p->failures && wait < LATER_MS; i++)
        wait *= 2;
    p->failures++;
    log_warn("a part has ended and is started again", KV("part", p->name),
             KVI("status", WIFEXITED(status) ? WEXITSTATUS(status) : -1),
             KVI("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0), KVI("in_ms", wait));
    /* it said why: a wrong certificate or a damaged store does not mend itself */
    if (!p->worked && p->failures >= START_TRIES && WIFEXITED(status))
        m->stopping = m->broken = true;
    p->due = now + MIN(wait, (int64_t)LATER_MS);
}

static void reap(struct monitor *m)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == m->keep.pid)
            died(m, &m->keep, status);
        else if (pid == m->server.pid)
            died(m, &m->server, status);
        else
            log_debug("an orphan has ended", KVI("pid", pid));
    }
}

/* The server sees that its copies are new. */
static void look_at_tls(struct monitor *m)
{
    struct err err = { 0 };
    static bool said;
    int r = serve_tls_copy(m->s, &err);

    m->tls_due = clock_ms() + TLS_MS;
    if (r < 0 && !said)
        log_warn("the certificate cannot be read again", KV("error", err.msg));
    said = r < 0;
}

static void on_signals(struct monitor *m, int fd)
{
    struct signalfd_siginfo info;

    while (read(fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            reap(m);
        else if (info.ssi_signo != SIGHUP)
            m->stopping = true;
        else {
            look_at_tls(m);
            if (m->server.pid)
                kill(m->server.pid, SIGHUP);
        }
    }
}

/* Its end of file, and nothing else: data on it is somebody's mistake and is dropped. */
static void on_lifeline(struct monitor *m)
{
    char ignored[256];
    ssize_t n = read(m->s->lifeline, ignored, sizeof(ignored));

    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    log_info("the lifeline was cut");
    m->stopping = true;
}

/* Also while all of it ends. */
static bool needed(const struct monitor *m, const struct part *p)
{
    return p == &m->keep && !p->pid && m->server.pid && !m->broken;
}

static int wait_ms(const struct monitor *m, int64_t until)
{
    int64_t now = clock_ms(), next = until;

    if (!m->stopping || needed(m, &m->keep))
        next = MIN(next, m->keep.due);
    if (!m->stopping) {
        next = MIN(next, m->server.due);
        next = MIN(next, m->tls_due);
    }
    if (next == NEVER)
        return -1;
    return next <= now ? 0 : (int)(next - now);
}

static void turn(struct monitor *m, int signals, int64_t until)
{
    struct pollfd p[2] = { { .fd = signals, .events = POLLIN },
                           { .fd = m->stopping ? -1 : m->s->lifeline, .events = POLLIN } };

    if (poll(p, ARRAY_LEN(p), wait_ms(m, until)) > 0) {
        if (p[0].revents)
            on_signals(m, signals);
        if (p[1].revents)
            on_lifeline(m);
    }
    if (m->tls_due <= clock_ms() && !m->stopping)
        look_at_tls(m);
    for (size_t i = 0; i < 2; i++) {
        struct part *part = i ? &m->server : &m->keep;

        if (!part->pid && part->due <= clock_ms() && (!m->stopping || needed(m, part)))
            start(m, part);
    }
}

/* The server first: with --ephemeral it asks the keeper to end what it has. */
static void stop(struct monitor *m, struct part *p, int signals)
{
    int64_t until = clock_ms() + STOP_MS;

    if (p->pid)
        kill(p->pid, SIGTERM);
    while (p->pid && clock_ms() < until)
        turn(m, signals, until);
    if (!p->pid)
        return;
    log_error("a part did not end and is killed", KV("part", p->name));
    kill(p->pid, SIGKILL);
    while (p->pid)
        turn(m, signals, NEVER);
}

static int watch_signals(void)
{
    static const int watched[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(watched); i++)
        sigaddset(&set, watched[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* What the parts share with us and with each other. */
static void connect_parts(struct serve *s)
{
    s->monitor = getpid();
    s->ready =
        // cppcheck-suppress invalidFunctionArg  ; -1 is what mmap(2) asks for here
        mmap(NULL, sizeof(*s->ready), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->ready == MAP_FAILED || pipe2(s->keeper_line, O_CLOEXEC))
        abort(); /* a page and a pipe, at the very start */
}

int serve_monitor(struct serve *s)
{
    struct monitor m = { .s = s,
                         .tls_due = s->tls_chain && s->root ? 0 : NEVER,
                         .keep = { .name = "keeper", .run = run_keep },
                         .server = { .name = "server", .run = serve_run } };
    AUTO(closep) int signals = watch_signals();

    if (signals < 0)
        abort();
    prctl(PR_SET_NAME, "cove-monitor");
    oom_protect(); /* and with us both parts */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    connect_parts(s);
    serve_announce(s);
    while (!m.stopping)
        turn(&m, signals, NEVER);
    stop(&m, &m.server, signals);
    stop(&m, &m.keep, signals);
    reap(&m);
    serve_withdraw(s);
    serve_tls_forget(s);
    return m.broken ? 1 : 0;
}
