/* jobs.c - work that takes over a millisecond runs in a child, so that the keeper goes on serving.
 * The child sends one struct err back (code 0: it worked); if it dies without, that is an error. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/keeper.h"

struct job {
    struct source source;
    struct list all;
    struct keeper *keeper;
    pid_t pid;
    job_done *done;
    void *arg;             /* owned */
    struct pending *reply; /* inside arg */
};

static void finish(struct source *s)
{
    struct job *j = CONTAINER_OF(s, struct job, source);
    struct err result = { .code = ERR_INTERNAL, .msg = "a helper process died" };
    ssize_t n = recv(s->fd, &result, sizeof(result), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    loop_remove(&j->keeper->loop, s);
    close(s->fd);
    waitpid(j->pid, NULL, 0);
    list_remove(&j->all);
    result.msg[sizeof(result.msg) - 1] = 0;
    j->done(j->keeper, j->arg, n == sizeof(result) && !result.code ? NULL : &result);
    free(j->arg);
    free(j);
}

static _Noreturn void run(struct keeper *k, job_work *work, void *arg, int sock)
{
    struct err e = { 0 };

    signal(SIGTERM, SIG_IGN); /* what was begun is finished */
    if (!work(k, arg, &e))
        e.code = ERR_NONE;
    if (write(sock, &e, sizeof(e)) < 0)
        _exit(1);
    _exit(0);
}

int job_start(struct keeper *k, job_work *work, job_done *done, void *arg, struct pending *reply,
              struct err *err)
{
    struct job *j;
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        free(arg);
        return err_sys(err, "socketpair");
    }
    pid = fork();
    if (!pid) {
        close(pair[0]);
        keeper_forked(k);
        keeper_let_go(k);
        run(k, work, arg, pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        free(arg);
        return err_sys(err, "fork");
    }
    j = xcalloc(1, sizeof(*j));
    *j = (struct job){ .source = { pair[0], finish },
                       .keeper = k,
                       .pid = pid,
                       .done = done,
                       .arg = arg,
                       .reply = reply };
    list_push(&k->jobs, &j->all);
    if (loop_add(&k->loop, &j->source, EPOLLIN, err))
        abort(); /* a descriptor just made, an epoll of our own: memory is gone */
    return 0;
}

void jobs_finish(struct keeper *k)
{
    while (!list_empty(&k->jobs)) {
        struct job *j = CONTAINER_OF(k->jobs.next, struct job, all);

        waitpid(j->pid, NULL, 0);
        loop_remove(&k->loop, &j->source);
        close(j->source.fd);
        list_remove(&j->all);
        free(j->arg);
        free(j);
    }
}

void jobs_forget(struct keeper *k, const struct client *c)
{
    struct job *j;

    list_each(j, &k->jobs, all)
        if (j->reply && j->reply->client == c)
            j->reply->client = NULL;
}
