/* warm.c - see warm.h. Requests and answers are JSON over a SEQPACKET socket that is the parent's
 * standard input; each has the number of its request. With a request goes the end of a pipe, on
 * which the kernel is told to begin: it is only then that somebody looks after it, so one whose
 * answer came too late, or never, reads the pipe's end and is gone.
 *
 * A parent that dies is started again by the next prepare, unless it said that it cannot work at
 * all. Its end, however it comes, is none of its kernels' business (orphans.h). */
#include "guest/kernels/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/orphans.h"
#include "io/fdpass.h"
#include "warm_py.h"

enum { REQUEST_MAX = 120 << 10, ANSWER_MAX = 4096, RETRY_MS = 10000, STOP_MS = 3000 };
enum { REPLACE_MS = 60000, AGAIN_MS = 100 };

struct warm {
    struct list all;
    char *python;
    struct child child;
    int sock;
    bool running, ready, stopping;
    bool sending;      /* somebody waits for room in the socket, and all others for him */
    int64_t failed_at; /* co_now(); 0: it has not */
    int64_t silent_at; /* since when it has owed an answer; 0: it does not */
    char why[256];     /* what it said when it could not work; "": nothing */
    struct co_cond changed, sent;
    struct list waiting; /* for answers */
};

struct waiter {
    struct list node;
    uint64_t number;
    bool done;
    pid_t pid;     /* 0: there is none */
    char why[200]; /* ... because */
};

static struct list warms = LIST_INIT(warms);
static uint64_t numbers;

static struct warm *find(const char *python)
{
    struct warm *w;

    list_each(w, &warms, all)
        if (!strcmp(w->python, python))
            return w;
    return NULL;
}

/* ---- answers ---- */

struct answer {
    int64_t number, pid;
    bool ready;
    char *failed; /* this one request */
    char *error;  /* and all to come */
};

static const struct field answer_fields[] = {
    FIELD(struct answer, number, F_INT, .min = 0, .max = INT64_MAX),
    FIELD(struct answer, pid, F_INT, .min = 0, .max = INT32_MAX),
    FIELD(struct answer, ready, F_BOOL),
    FIELD(struct answer, failed, F_STR, .max = ANSWER_MAX),
    FIELD(struct answer, error, F_STR, .max = ANSWER_MAX),
    {},
};

static void finish_waiter(struct waiter *one, pid_t pid, const char *why)
{
    list_remove(&one->node);
    one->done = true;
    one->pid = pid;
    snprintf(one->why, sizeof(one->why), "%s", why ? why : "");
}

static void take_answer(struct warm *w, const struct answer *a)
{
    struct waiter *one;

    w->ready |= a->ready;
    w->silent_at = 0;
    if (a->error)
        snprintf(w->why, sizeof(w->why), "%s", a->error);
    list_each(one, &w->waiting, node) /* none: he has left, and so will the kernel */
        if (one->number == (uint64_t)a->number)
            finish_waiter(one, (pid_t)a->pid, a->failed);
    co_cond_wake(&w->changed);
}

static void take_text(struct warm *w, struct str text)
{
    struct answer a = { 0 };
    struct arena arena = { 0 };
    struct err err = { 0 };

    if (!field_decode_text(answer_fields, FIELDS_LENIENT, text, &arena, &a, &err))
        take_answer(w, &a);
    else
        log_warn("a warmed parent's answer", KV("python", w->python), KV("error", err.msg));
    arena_free(&arena);
}

/* One datagram: false when there is none to come any more. Only the end is an end: what cannot be
 * read or waited for just now is tried again. */
static bool receive(struct warm *w)
{
    char text[ANSWER_MAX];
    ssize_t n;

    while ((n = recv(w->sock, text, sizeof(text), MSG_DONTWAIT)) < 0) {
        /* ECONNRESET: once, and before what is queued: it has ended with a request unread */
        if (errno == EAGAIN && !co_wait(w->sock, CO_IN, NEVER))
            continue;
        if (co_cancelled() || errno == EBADF || errno == ENOTCONN)
            return false;
        if (errno != EINTR && errno != ECONNRESET)
            co_sleep(co_in(AGAIN_MS));
    }
    if (n > 0)
        take_text(w, (struct str){ text, (size_t)n });
    return n > 0;
}

static void give_up_waiting(struct warm *w)
{
    struct waiter *one;

    list_each(one, &w->waiting, node)
        finish_waiter(one, 0, "the warmed parent has ended");
    co_cond_wake(&w->changed);
    co_cond_wake(&w->sent);
}

static void look_after(void *arg)
{
    struct warm *w = arg;

    while (receive(w))
        ;
    co_close(TAKE(w->sock, -1)); /* it ends when it sees that, if it has not */
    give_up_waiting(w);
    if (child_wait(&w->child, co_in(2000)))
        kill(w->child.pid, SIGKILL);
    while (child_wait(&w->child, NEVER) && !co_cancelled())
        co_sleep(co_in(AGAIN_MS));
    child_forget(&w->child);
    log_debug("warmed parent ended", KV("python", w->python), KV("why", w->why));
    w->running = w->ready = false;
    w->silent_at = 0;
    w->failed_at = w->stopping ? 0 : co_now();
    w->stopping = false;
    co_cond_wake(&w->changed);
}

/* ---- starting ---- */

static int write_program(const char *dir, char *path, size_t n, struct err *err)
{
    AUTO(closep) int fd = -1;

    snprintf(path, n, "%s/warm.py", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, warm_py, sizeof(warm_py) - 1) != (ssize_t)sizeof(warm_py) - 1)
        return err_sys(err, "write %s", path);
    return 0;
}

static int start(struct warm *w, const char *dir, int log, struct err *err)
{
    static char frozen[] = "-Xfrozen_modules=off"; /* or ipykernel's debugger warns at import */
    AUTO(closep) int cwd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO(closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char program[128];
    char *argv[] = { w->python, frozen, program, NULL };
    char *paths[] = { w->python, NULL };
    int pair[2];
    struct spawn s = {
        .paths = paths, .argv = argv, .envp = environ, .cwd = cwd, .root = -1, .die_with_us = true
    };

    if (write_program(dir, program, sizeof(program), err))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    s.stdio[0] = pair[1];
    s.stdio[1] = s.stdio[2] = log >= 0 ? log : null;
    w->running = true; /* the start parks: nobody else may begin another, */
    w->sock = pair[0]; /* and who wants a kernel meanwhile can ask already */
    if (spawn_start(&s, &w->child, err)) {
        co_close(TAKE(w->sock, -1));
        close(pair[1]);
        w->running = w->stopping = false;
        give_up_waiting(w);
        return -1;
    }
    close(pair[1]);
    return 0;
}

static struct warm *create(const char *python)
{
    struct warm *w = xcalloc(1, sizeof(*w));

    w->python = xstrdup(python);
    w->sock = -1;
    co_cond_init(&w->changed);
    co_cond_init(&w->sent);
    list_init(&w->waiting);
    list_push(&warms, &w->all);
    return w;
}

/* One that has been silent for long makes place for another; its kernels do not notice. */
static void replace_silent(struct warm *w)
{
    if (!w->running || w->sock < 0 || !w->silent_at || co_now() - w->silent_at < REPLACE_MS)
        return;
    log_warn("warmed parent replaced: it has not answered for a minute", KV("python", w->python));
    w->stopping = true;
    shutdown(w->sock, SHUT_RDWR);
}

void warm_prepare(const char *python, const char *dir, int log)
{
    struct warm *w = find(python);
    struct err err = { 0 };

    if (!w)
        w = create(python);
    replace_silent(w);
    while (w->stopping && !co_cond_wait(&w->changed, co_in(STOP_MS)))
        ;
    if (w->running || (w->failed_at && co_now() < w->failed_at + RETRY_MS))
        return;
    w->why[0] = 0;
    if (start(w, dir, log, &err)) {
        log_warn("no warmed parent", KV("python", python), KV("error", err.msg));
        w->failed_at = co_now();
        co_cond_wake(&w->changed);
    } else if (co_go(look_after, w, NULL)) {
        abort();
    }
}

bool warm_is_ready(const char *python)
{
    const struct warm *w = find(python);

    return w && w->running && w->ready && !w->silent_at;
}

void warm_wait(const char *python, int64_t until)
{
    struct warm *w = find(python);

    while (w && w->running && !w->ready)
        if (co_cond_wait(&w->changed, until))
            return;
}

/* ---- requests ---- */

static void write_request(const struct warm_request *r, uint64_t number, struct buf *b)
{
    json_open(b, '{');
    json_kv_int(b, "number", (int64_t)number);
    json_kv_str(b, "file", r->file);
    json_kv_str(b, "cwd", r->cwd);
    json_key(b, "env");
    json_open(b, '{');
    for (char *const *e = r->envp; *e; e++) {
        const char *eq = strchr(*e, '=');
        AUTO(freep) char *name = eq ? xstrndup(*e, (size_t)(eq - *e)) : NULL;

        if (name)
            json_kv_str(b, name, eq + 1);
    }
    json_close(b, '}');
    json_close(b, '}');
}

/* One at a time waits for room, the others for that one. */
static int wait_to_send(struct warm *w, int64_t until)
{
    int r;

    if (w->sending)
        return co_cond_wait(&w->sent, until);
    w->sending = true;
    r = co_wait(w->sock, CO_OUT, until);
    w->sending = false;
    co_cond_wake(&w->sent);
    return r;
}

static int send_request(struct warm *w, const struct waiter *me, const struct buf *b, int begin,
                        int64_t until, struct err *err)
{
    /* he who waits is done when the parent has ended, and the socket may be another's then */
    while (!me->done) {
        if (w->sock < 0)
            return 0;
        if (!w->sending && fdpass_send(w->sock, b->data, b->len, &begin, 1, MSG_DONTWAIT) >= 0)
            return 0;
        if (!w->sending && (errno == EPIPE || errno == ECONNRESET))
            return 0; /* it has ended: look_after() hears its last word, and tells who waits */
        if (!w->sending && errno != EAGAIN)
            return err_sys(err, "asking for a kernel");
        if (wait_to_send(w, until))
            return err_sys(err, "asking for a kernel");
    }
    return 0;
}

/* The answer, one way or the other. */
static int await_answer(struct warm *w, struct waiter *me, int64_t until, struct err *err)
{
    while (!me->done)
        if (co_cond_wait(&w->changed, until))
            return err_sys(err, "waiting for a kernel to be forked");
    if (me->pid)
        return 0;
    return w->why[0] ? err_set(err, ERR_NOT_FOUND, "%s", w->why)
                     : err_set(err, ERR_UPSTREAM, "%s",
                               me->why[0] ? me->why : "the warmed parent could not fork");
}

static int ask(struct warm *w, const struct buf *b, int begin[2], struct waiter *me, int64_t until,
               struct err *err)
{
    int r;

    list_push(&w->waiting, &me->node);
    r = send_request(w, me, b, begin[0], until, err);
    closep(&begin[0]);
    begin[0] = -1;
    if (!r)
        r = await_answer(w, me, until, err);
    list_remove(&me->node);
    if (r && err->code == ERR_TIMEOUT && w->running && !w->silent_at)
        w->silent_at = co_now();
    return r;
}

int warm_fork(const struct warm_request *r, int64_t until, struct child *out, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct warm *w = find(r->python);
    struct waiter me = { .number = ++numbers };
    int begin[2], result;

    if (!w || !w->running || w->sock < 0)
        return w && w->why[0] ? err_set(err, ERR_NOT_FOUND, "%s", w->why)
                              : err_set(err, ERR_UNAVAILABLE, "no warmed parent");
    if (w->silent_at)
        return err_set(err, ERR_UNAVAILABLE, "the warmed parent has not answered for %lld ms",
                       (long long)(co_now() - w->silent_at));
    write_request(r, me.number, &b);
    if (b.len > REQUEST_MAX)
        return err_set(err, ERR_TOO_LARGE, "an environment of more than %d bytes", REQUEST_MAX);
    if (pipe2(begin, O_CLOEXEC))
        return err_sys(err, "pipe");
    orphans_hold();
    result = ask(w, &b, begin, &me, until, err);
    if (!result)
        result = child_adopt(out, me.pid, err);
    orphans_release();
    if (!result && write(begin[1], "b", 1) != 1)
        log_debug("a kernel has ended before it began", KVI("pid", me.pid));
    close(begin[1]);
    return result;
}

void warm_stop(void)
{
    struct warm *w;

    list_each(w, &warms, all)
        if (w->running && w->sock >= 0) {
            w->stopping = true;
            shutdown(w->sock, SHUT_RDWR);
        }
    list_each(w, &warms, all)
        while (w->stopping)
            if (co_cond_wait(&w->changed, co_in(STOP_MS)))
                return;
}
