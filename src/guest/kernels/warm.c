/* warm.c - see warm.h. Requests and answers are JSON over a SEQPACKET socket that is the parent's
 * standard input; answers come in the order of the requests. A parent that dies is started again by
 * the next prepare, unless it said that it cannot work at all. */
#include "guest/kernels/warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "io/spawn.h"
#include "warm_py.h"

enum { REQUEST_MAX = 120 << 10, ANSWER_MAX = 4096, RETRY_MS = 10000, STOP_MS = 3000 };

struct warm {
    struct list all;
    char *python;
    struct child child;
    int sock;
    bool running, ready, stopping;
    int64_t failed_at; /* co_now(); 0: it has not */
    char why[256];     /* what it said when it could not work; "": nothing */
    struct co_cond changed;
    struct list waiting; /* for answers, oldest first */
};

struct waiter {
    struct list node;
    bool done;
    pid_t pid;
    int pidfd;
};

static struct list warms = LIST_INIT(warms);

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
    int64_t pid;
    bool ready;
    char *error;
};

static const struct field answer_fields[] = {
    FIELD(struct answer, pid, F_INT, .min = 0, .max = INT32_MAX),
    FIELD(struct answer, ready, F_BOOL),
    FIELD(struct answer, error, F_STR, .max = ANSWER_MAX),
    {},
};

static void take_answer(struct warm *w, const struct answer *a, int *fd)
{
    w->ready |= a->ready;
    if (a->error)
        snprintf(w->why, sizeof(w->why), "%s", a->error);
    if (a->pid && !list_empty(&w->waiting)) {
        struct waiter *first = CONTAINER_OF(w->waiting.next, struct waiter, node);

        list_remove(&first->node);
        first->done = true;
        first->pid = (pid_t)a->pid;
        first->pidfd = TAKE(*fd, -1);
    }
    co_cond_wake(&w->changed);
}

/* One datagram: false when there is none to come any more. */
static bool receive(struct warm *w)
{
    char text[ANSWER_MAX];
    struct answer a = { 0 };
    struct arena arena = { 0 };
    struct err err = { 0 };
    int fd = -1;
    size_t nfds = 1;
    ssize_t n;

    while ((n = fdpass_recv(w->sock, text, sizeof(text), &fd, &nfds, MSG_DONTWAIT)) < 0) {
        /* Once, and before what is queued: it has ended with a request unread. */
        if (errno != ECONNRESET && (errno != EAGAIN || co_wait(w->sock, CO_IN, NEVER)))
            return false;
        nfds = 1;
    }
    if (!nfds)
        fd = -1;
    if (n > 0 && !field_decode_text(answer_fields, FIELDS_LENIENT, (struct str){ text, (size_t)n },
                                    &arena, &a, &err))
        take_answer(w, &a, &fd);
    closep(&fd);
    arena_free(&arena);
    return n > 0;
}

static void give_up_waiting(struct warm *w)
{
    struct waiter *one;

    list_each(one, &w->waiting, node) {
        list_remove(&one->node);
        one->done = true;
    }
    co_cond_wake(&w->changed);
}

static void look_after(void *arg)
{
    struct warm *w = arg;

    while (receive(w))
        ;
    co_close(TAKE(w->sock, -1)); /* it ends when it sees that, if it has not */
    if (child_wait(&w->child, co_in(2000)))
        kill(w->child.pid, SIGKILL);
    child_wait(&w->child, NEVER);
    child_forget(&w->child);
    log_debug("warmed parent ended", KV("python", w->python), KV("why", w->why));
    w->running = w->ready = false;
    w->failed_at = w->stopping ? 0 : co_now();
    w->stopping = false;
    give_up_waiting(w);
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
    struct spawn s = { .paths = paths, .argv = argv, .envp = environ, .cwd = cwd, .root = -1 };

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
    list_init(&w->waiting);
    list_push(&warms, &w->all);
    return w;
}

void warm_prepare(const char *python, const char *dir, int log)
{
    struct warm *w = find(python);
    struct err err = { 0 };

    if (!w)
        w = create(python);
    while (w->stopping && !co_cond_wait(&w->changed, co_in(STOP_MS)))
        ;
    if (w->running || (w->failed_at && co_now() < w->failed_at + RETRY_MS))
        return;
    w->why[0] = 0;
    if (start(w, dir, log, &err)) {
        snprintf(w->why, sizeof(w->why), "%s", err.msg);
        w->failed_at = co_now();
        co_cond_wake(&w->changed);
    } else if (co_go(look_after, w, NULL)) {
        abort();
    }
}

bool warm_is_ready(const char *python)
{
    const struct warm *w = find(python);

    return w && w->running && w->ready;
}

void warm_wait(const char *python, int64_t until)
{
    struct warm *w = find(python);

    while (w && w->running && !w->ready)
        if (co_cond_wait(&w->changed, until))
            return;
}

/* ---- requests ---- */

static void write_request(const struct warm_request *r, struct buf *b)
{
    json_open(b, '{');
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

static int send_request(struct warm *w, const struct buf *b, int64_t until, struct err *err)
{
    while (send(w->sock, b->data, b->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return 0; /* it has ended: look_after() hears its last word, and tells who waits */
        if (errno != EAGAIN || co_wait(w->sock, CO_OUT, until))
            return err_sys(err, "asking for a kernel");
    }
    return 0;
}

int warm_fork(const struct warm_request *r, int64_t until, pid_t *pid, int *pidfd, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct warm *w = find(r->python);
    struct waiter me = { .pidfd = -1 };

    if (!w || !w->running || w->sock < 0)
        return w && w->why[0] ? err_set(err, ERR_NOT_FOUND, "%s", w->why)
                              : err_set(err, ERR_UNAVAILABLE, "no warmed parent");
    write_request(r, &b);
    if (b.len > REQUEST_MAX)
        return err_set(err, ERR_TOO_LARGE, "an environment of more than %d bytes", REQUEST_MAX);
    list_push(&w->waiting, &me.node);
    if (send_request(w, &b, until, err)) {
        list_remove(&me.node);
        return -1;
    }
    while (!me.done)
        if (co_cond_wait(&w->changed, until)) {
            /* Answers come by order, so this one would go to the next in line: end it all. */
            list_remove(&me.node);
            if (!w->child.reaped)
                kill(w->child.pid, SIGKILL);
            return err_sys(err, "waiting for a kernel to be forked");
        }
    if (me.pidfd < 0)
        return w->why[0] ? err_set(err, ERR_NOT_FOUND, "%s", w->why)
                         : err_set(err, ERR_UPSTREAM, "the warmed parent has ended");
    *pid = me.pid;
    *pidfd = me.pidfd;
    return 0;
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
