/* capture.c - see capture.h. One coroutine reads each stream, so that neither fills its pipe while
 * we look at the other. A child of the program may hold a stream open after its end: it is read a
 * moment longer, then let go. What is in the pipe by then is the program's own, and kept. */
#include "guest/services/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/mem.h"
#include "guest/session.h"
#include "io/spawn.h"

enum { CHUNK = 32 << 10, LOOK_MS = 500, GRACE_MS = 200 };

struct reader {
    int fd;
    struct buf *to;
    size_t max;
    bool cut, done;
    struct co_cond *ended;
    struct co_ref co;
};

static void keep(struct reader *r, const char *bytes, size_t n)
{
    size_t room = r->max - MIN(r->to->len, r->max);

    if (n > room)
        r->cut = true;
    buf_add(r->to, bytes, MIN(n, room));
}

/* Let go, it may not have had its turn since the program ended. Somebody may still write: no more
 * than what is there now is read. */
static void read_rest(struct reader *r, char *bytes)
{
    int left = 0;
    ssize_t n;

    if (ioctl(r->fd, FIONREAD, &left))
        return;
    for (; left > 0 && (n = read(r->fd, bytes, (size_t)MIN(left, CHUNK))) > 0; left -= (int)n)
        keep(r, bytes, (size_t)n);
}

static void read_stream(void *arg)
{
    struct reader *r = arg;
    char *bytes = xmalloc(CHUNK);
    ssize_t n;

    while ((n = co_read(r->fd, bytes, CHUNK, NEVER)) > 0)
        keep(r, bytes, (size_t)n);
    if (n < 0)
        read_rest(r, bytes);
    free(bytes);
    co_close(r->fd);
    r->done = true;
    co_cond_wake(r->ended);
}

static void end_readers(struct reader *r)
{
    int64_t until = co_in(GRACE_MS);

    for (int i = 0; i < 2; i++)
        while (!r[i].done && !co_cond_wait(r[i].ended, until))
            ;
    for (int i = 0; i < 2; i++) {
        if (!r[i].done)
            co_cancel(r[i].co);
        while (!r[i].done)
            co_pass(); /* it has our stack; cancelled, it parks no more */
    }
}

static void kill_all(const struct child *c)
{
    kill(-c->pid, SIGKILL);
    session_kill(c->pid);
}

static int wait_for_end(struct capture *c, struct child *child, struct err *err)
{
    int64_t until = co_in(c->timeout_ms);
    int r = 0;

    while (child_wait(child, MIN(until, co_in(LOOK_MS)))) {
        bool left = errno == ECANCELED || (c->peer && conn_peer_left(c->peer));

        if (!left && co_now() < until)
            continue;
        if (left)
            r = err_set(err, ERR_GONE, "nobody waits for %s any more", c->argv[0]);
        else
            c->timed_out = true;
        kill_all(child);
        while (!child->reaped && waitpid(child->pid, &child->status, 0) == child->pid)
            child->reaped = true; /* killed: it does not take long, and may not be put off */
        break;
    }
    c->status = child->status;
    child_forget(child);
    return r;
}

static const char *path_of(char *const *envp)
{
    for (; *envp; envp++)
        if (!strncmp(*envp, "PATH=", 5))
            return *envp + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

static char **find_paths(struct arena *a, const struct capture *c)
{
    struct str rest = str_of(path_of(c->envp)), dir;
    char **paths = arena_alloc(a, sizeof(*paths) * (rest.n + 2));
    size_t n = 0;

    if (strchr(c->argv[0], '/')) {
        paths[0] = c->argv[0];
        return paths;
    }
    while (str_next(&rest, ':', &dir))
        if (dir.n)
            paths[n++] = arena_printf(a, "%.*s/%s", STR_ARG(dir), c->argv[0]);
    return paths;
}

static int start(struct capture *c, int out, int log, struct child *child, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(closep) int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AUTO(closep) int cwd = open(c->cwd ? c->cwd : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (nowhere < 0 || cwd < 0)
        return err_sys(err, "%s", nowhere < 0 ? "/dev/null" : c->cwd ? c->cwd : ".");
    return spawn_start(&(struct spawn){ .paths = find_paths(&a, c),
                                        .argv = c->argv,
                                        .envp = c->envp,
                                        .stdio = { nowhere, out, log },
                                        .pass = c->pass,
                                        .npass = c->npass,
                                        .cwd = cwd,
                                        .root = -1 },
                       child, err);
}

static int make_pipe(int p[2])
{
    if (pipe2(p, O_CLOEXEC))
        return -1;
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    return 0;
}

int capture_run(struct capture *c, struct err *err)
{
    struct co_cond ended;
    struct child child;
    struct reader r[2] = { { .to = &c->out, .max = c->max, .ended = &ended },
                           { .to = &c->log, .max = c->max, .ended = &ended } };
    int out[2], log[2], result;

    if (make_pipe(out))
        return err_sys(err, "pipe");
    if (make_pipe(log)) {
        close(out[0]);
        close(out[1]);
        return err_sys(err, "pipe");
    }
    result = start(c, out[1], log[1], &child, err);
    close(out[1]);
    close(log[1]);
    r[0].fd = out[0];
    r[1].fd = log[0];
    co_cond_init(&ended);
    for (int i = 0; i < 2; i++)
        if (result || co_go(read_stream, &r[i], &r[i].co)) {
            co_close(r[i].fd);
            r[i].done = true;
        }
    if (result)
        return -1;
    result = wait_for_end(c, &child, err);
    end_readers(r);
    c->cut = r[0].cut || r[1].cut;
    return result;
}

bool capture_ok(const struct capture *c)
{
    return !c->timed_out && WIFEXITED(c->status) && !WEXITSTATUS(c->status);
}

void capture_finish(struct capture *c)
{
    buf_free(&c->out);
    buf_free(&c->log);
}
