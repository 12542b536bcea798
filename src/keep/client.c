/* client.c - the other end: see keep.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/fdpass.h"
#include "keep/keep.h"
#include "keep/rundir.h"
#include "keep/wire.h"

static int connect_to(struct keep *k, const char *dir, int flags, struct err *err)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    AUTO(closep) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

    if (snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/keep.sock", dir) >= (int)sizeof(sa.sun_path))
        return err_set_host(err, ERR_INVALID, "the path %s is too long for a socket", dir);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return err_set_host(err, ERR_NOT_FOUND, "no keeper runs in %s", dir);
        return err_sys(err, "connect to %s", sa.sun_path);
    }
    *k = (struct keep){ .fd = TAKE(fd, -1) };
    return 0;
}

/* ---- agreeing on a version ---- */

int keep_hello(struct keep *k, struct err *err)
{
    struct keep_request hello = { .verb = KEEP_HELLO,
                                  .u.hello = { KEEP_VERSION, KEEP_VERSION_OLDEST, COVE_VERSION } };

    if (k->owner)
        hello.u.hello.owner = *k->owner;
    k->version = KEEP_VERSION;
    return keep_send(k, &hello, err);
}

/* One of a release that knows no hello takes it for a broken record, and says so in its own form.
 */
int keep_agree(struct keep *k, const struct keep_reply *hello, struct err *err)
{
    if (k->heard == KEEP_VERSION && hello->code)
        return err_set_host(err, (enum err_code)hello->code, "%s", hello->message);
    if (k->heard == KEEP_VERSION && hello->u.hello.oldest > KEEP_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the keeper (release %s) speaks versions %u to %u of the protocol, and we "
                       "%d to %d: start the same release of both",
                       hello->u.hello.release, hello->u.hello.oldest, hello->u.hello.newest,
                       KEEP_VERSION_OLDEST, KEEP_VERSION);
    if (k->owner && k->heard == KEEP_VERSION && *hello->u.hello.owner.identity &&
        !keep_owner_same(k->owner, &hello->u.hello.owner))
        return keep_not_ours(&hello->u.hello.owner, k->owner, err);
    k->version = k->heard;
    return 0;
}

static int greet(struct keep *k, struct err *err)
{
    struct keep_reply reply;
    struct pollfd p = { .fd = k->fd, .events = POLLIN };
    size_t none = 0;
    int more = 0;

    if (keep_hello(k, err))
        return -1;
    while (!more) {
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return err_sys(err, "wait for the keeper");
        more = keep_next(k, &reply, NULL, &none, err);
    }
    return more < 0 ? -1 : keep_agree(k, &reply, err);
}

int keep_connect(struct keep *k, const char *dir, const struct keep_owner *owner, struct err *err)
{
    if (connect_to(k, dir, 0, err))
        return -1;
    k->owner = owner;
    if (!greet(k, err))
        return 0;
    close(TAKE(k->fd, -1));
    return -1;
}

int keep_connect_now(struct keep *k, const char *dir, const struct keep_owner *owner,
                     struct err *err)
{
    if (connect_to(k, dir, SOCK_NONBLOCK, err))
        return -1;
    k->owner = owner;
    return 0;
}

/* If it cannot start, its last word is a reply without a serial that says why. */
static _Noreturn void run_private(const struct keep_options *o, int fd)
{
    struct keep_options own = *o;
    struct keep_reply last = { .kind = KEEP_REPLY };
    struct buf bytes = { 0 };
    struct err err = { 0 };

    own.socket = fd;
    setsid(); /* a Ctrl-C in our terminal is the client's business */
    if (!keep_run(&own, &err))
        _exit(0);
    last.code = err.code;
    snprintf(last.message, sizeof(last.message), "%s", err.msg);
    if (wire_write_reply(&last, KEEP_VERSION, &bytes, &err) ||
        send(fd, bytes.data, bytes.len, MSG_NOSIGNAL) < 0)
        _exit(2);
    _exit(1);
}

int keep_private(struct keep *k, const struct keep_options *o, struct err *err)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    pid = fork();
    if (!pid) {
        close(pair[0]);
        run_private(o, pair[1]);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return err_sys(err, "start a keeper");
    }
    *k = (struct keep){ .fd = pair[0], .pid = pid, .version = KEEP_VERSION };
    return 0;
}

void keep_close(struct keep *k)
{
    if (k->fd >= 0)
        close(k->fd);
    k->fd = -1;
    while (k->pid && waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    k->pid = 0;
}

int keep_send(struct keep *k, struct keep_request *r, struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    r->serial = ++k->serial;
    if (wire_write_request(r, k->version, &bytes, err))
        return -1;
    if (fdpass_send(k->fd, bytes.data, bytes.len, NULL, 0, 0) != (ssize_t)bytes.len)
        return errno == EPIPE || errno == ECONNRESET
                   ? err_set(err, ERR_GONE, "the keeper has ended")
                   : err_sys(err, "ask the keeper");
    return 0;
}

int keep_send_now(const struct keep *k, const struct keep_request *r)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct err err;

    if (wire_write_request(r, k->version, &bytes, &err)) {
        errno = EINVAL;
        return -1;
    }
    return fdpass_send(k->fd, bytes.data, bytes.len, NULL, 0, MSG_DONTWAIT) == (ssize_t)bytes.len
               ? 0
               : -1;
}

int keep_next(struct keep *k, struct keep_reply *out, int *fds, size_t *nfds, struct err *err)
{
    char bytes[WIRE_MAX];
    size_t room = *nfds;
    ssize_t n = fdpass_recv(k->fd, bytes, sizeof(bytes), fds, nfds, MSG_DONTWAIT);

    /* a keeper that ended with our request unread: its last word waits behind this error */
    if (n < 0 && errno == ECONNRESET) {
        *nfds = room;
        n = fdpass_recv(k->fd, bytes, sizeof(bytes), fds, nfds, MSG_DONTWAIT);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        *nfds = 0;
        return 0;
    }
    if (n <= 0)
        return err_set(err, ERR_GONE, "the keeper has ended");
    if (wire_read_reply((struct str){ bytes, (size_t)n }, out, &k->heard, err)) {
        for (size_t i = 0; fds && i < *nfds; i++)
            close(fds[i]);
        return -1;
    }
    return 1;
}

int keep_no_socket(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE,
                   "the keeper's connection could not be taken: too many open files in this "
                   "process (RLIMIT_NOFILE); try again, or raise the limit");
}

static int refused(const struct keep_reply *r, struct err *err)
{
    if (!r->code)
        return 0;
    err_set_host(err, (enum err_code)r->code, "%s", r->message);
    err->reason = (enum err_reason)(r->why < ERR_REASONS ? r->why : ERR_REASON_NONE);
    return -1;
}

int keep_call(struct keep *k, struct keep_request *r, struct keep_reply *reply, int *fds,
              size_t *nfds, keep_on_event *on_event, void *arg, struct err *err)
{
    size_t room = nfds ? *nfds : 0;
    int sent = keep_send(k, r, err);

    if (sent && err->code != ERR_GONE)
        return -1; /* if it has ended, its last word may be waiting */
    for (;;) {
        struct pollfd p = { .fd = k->fd, .events = POLLIN };
        size_t got = room;
        int more;

        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return err_sys(err, "wait for the keeper");
        more = keep_next(k, reply, fds, &got, err);
        if (more < 0)
            return -1;
        if (!more)
            continue;
        if (reply->kind == KEEP_REPLY && (reply->serial == k->serial || !reply->serial)) {
            if (nfds)
                *nfds = got;
            return refused(reply, err);
        }
        for (size_t i = 0; fds && i < got; i++)
            close(fds[i]);
        if (on_event)
            on_event(reply, arg);
    }
}

void keep_leave(struct keep *k, keep_on_event *on_event, void *arg)
{
    struct pollfd p = { .fd = k->fd, .events = POLLIN };
    struct keep_reply event;
    struct err ignored;

    if (!k->pid || shutdown(k->fd, SHUT_WR))
        return;
    for (;;) {
        size_t none = 0;
        int more;

        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return;
        more = keep_next(k, &event, NULL, &none, &ignored);
        if (more < 0)
            return;
        if (more)
            on_event(&event, arg);
    }
}
