/* opening.c - host directories that a sandbox is built on, opened by a child: the file system that
 * one is on may not answer (a network's whose server is gone), and then that child waits.
 *
 * What it has opened, and what it had to ask about it, comes back one by one. When its time is up
 * the sandbox is not built, and the child is killed and left to the kernel, which may be unable to
 * end it until the file system answers or is taken down. So it holds nothing of ours, nobody waits
 * for it, and there are only so many of them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "keep/box_parts.h"

enum { AT_ONCE = 16, MOST = 64 /* with those that hang and are not waited for */ };

struct opening {
    struct source source; /* what its child says; fd -1: nobody listens */
    struct list all;
    struct keeper *keeper;
    struct box *box; /* NULL: nobody waits for it any more */
    pid_t pid;       /* 0: it has not begun */
    size_t opened;   /* how many of the directories */
    int64_t began, until;
    char at[ORDER_PATH]; /* the directory that it was left at; "": none */
};

struct answer { /* about one directory, which comes with it */
    struct err err;
    struct jail_mount mount;
};

/* ---- what is opened: a directory as template, then the mounts ---- */

bool box_path_allowed(const struct box *b, const char *host_path)
{
    return order_mount_allowed(b->keeper->o.allow_mounts, host_path) != NULL;
}

/* Beneath the prefix, so that no link inside it leads out of what was allowed. */
static int open_beneath(struct str prefix, const char *path, struct err *err)
{
    AUTO(freep) char *dir = xstrndup(prefix.p, prefix.n);
    struct open_how how = { .flags = O_PATH | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    AUTO(closep) int top = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *rest = path + prefix.n;
    int fd;

    while (*rest == '/')
        rest++;
    if (top < 0)
        return err_sys(err, "open %s", dir);
    fd = (int)syscall(SYS_openat2, top, *rest ? rest : ".", &how, sizeof(how));
    if (fd < 0 && errno == EXDEV)
        return err_set(err, ERR_DENIED, "%s leads out of %s, which is all that is allowed", path,
                       dir);
    return fd < 0 ? err_sys(err, "open %s", path) : fd;
}

/* A link in there may lead to where another directory of the list decides. */
static bool group_there(const struct box *b, int fd)
{
    char path[32], real[PATH_MAX];
    const char *allowed;
    bool group = false;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, real, sizeof(real) - 1);
    if (n <= 0)
        return false;
    real[n] = 0;
    allowed = order_mount_allowed(b->keeper->o.allow_mounts, real);
    if (!allowed)
        return true; /* the directory of the list is behind a link itself */
    order_mount_prefix(allowed, &group);
    return group;
}

static int open_mount(const struct box *b, const struct order_mount *m, struct jail_mount *out,
                      struct err *err)
{
    const char *allowed = order_mount_allowed(b->keeper->o.allow_mounts, m->host);
    bool private = b->keeper->o.socket >= 0, asked = m->flags & ORDER_MOUNT_GROUP, group = false;
    struct str dir = allowed ? order_mount_prefix(allowed, &group) : (struct str){ 0 };
    struct stat st;

    if (m->flags & ORDER_MOUNT_ROOT && !private)
        return err_set(err, ERR_DENIED, "mount %s: root's own only with a keeper of one's own",
                       m->host);
    if (!allowed)
        return err_set(err, ERR_DENIED, "mount %s: not below a directory that --allow-mount names",
                       m->host);
    if (asked && !private && !group)
        return err_set(err, ERR_DENIED,
                       "mount %s: its group only where the keeper has --allow-mount %s:group",
                       m->host, allowed);
    *out = (struct jail_mount){ .fd = open_beneath(dir, m->host, err),
                                .system_group = group || asked };
    if (out->fd < 0)
        return err_in(err, "mount");
    out->system_group = out->system_group && (private || group_there(b, out->fd));
    if (fstat(out->fd, &st) || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))) {
        close(out->fd);
        return err_set(err, ERR_INVALID, "mount %s: neither a directory nor a file", m->host);
    }
    out->file = S_ISREG(st.st_mode);
    out->owner = st.st_uid;
    out->group = st.st_gid;
    return 0;
}

static bool has_template(const struct box *b) { return b->template.kind == TEMPLATE_DIRECTORY; }

static size_t count(const struct box *b) { return has_template(b) + b->order.nmounts; }

static const char *path_of(const struct box *b, size_t i)
{
    return has_template(b) && !i ? b->template.root_path
                                 : b->order.mounts[i - has_template(b)].host;
}

static int open_one(const struct box *b, size_t i, struct jail_mount *out, struct err *err)
{
    if (!has_template(b) || i)
        return open_mount(b, &b->order.mounts[i - has_template(b)], out, err);
    out->fd = template_open_root(&b->template, err);
    return out->fd < 0 ? err_in(err, "template") : 0;
}

bool opening_needed(const struct box *b) { return count(b) > 0; }

/* ---- the child ---- */

/* Whatever it held would be held for as long as it hangs: locks, connections, where messages go. */
static _Noreturn void run(const struct box *b, pid_t parent, int sock)
{
    if (dup2(sock, 0) || close_range(1, ~0U, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) ||
        getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < count(b); i++) {
        struct answer a = { .mount.fd = -1 };
        int r = open_one(b, i, &a.mount, &a.err);

        if (fdpass_send(0, &a, sizeof(a), &a.mount.fd, !r, 0) < 0 || r)
            _exit(1);
        close(a.mount.fd);
    }
    _exit(0);
}

static void on_answer(struct source *s);

static int begin(struct opening *o, struct err *err)
{
    pid_t parent = getpid();
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    o->began = clock_ms();
    o->pid = fork();
    if (!o->pid)
        run(o->box, parent, pair[1]);
    close(pair[1]);
    if (o->pid < 0) {
        close(pair[0]);
        o->pid = 0;
        return err_sys(err, "fork");
    }
    o->source = (struct source){ pair[0], on_answer };
    return loop_add(&o->keeper->loop, &o->source, EPOLLIN, err);
}

/* ---- what it says ---- */

/* Nobody waits for it from here on; it is collected when it has ended. */
static void leave(struct opening *o)
{
    loop_remove(&o->keeper->loop, &o->source);
    closep(&o->source.fd);
    o->source.fd = -1;
    if (!o->box)
        return;
    if (o->opened < count(o->box)) {
        snprintf(o->at, sizeof(o->at), "%s", path_of(o->box, o->opened));
        if (o->pid)
            kill(o->pid, SIGKILL); /* not collected yet: nobody else has its number */
    }
    o->box->opening = NULL;
    o->box = NULL;
}

void opening_forget(struct box *b)
{
    if (b->opening)
        leave(b->opening);
    while (b->nsources)
        close(b->sources[--b->nsources].fd);
    freep(&b->sources);
    b->sources = NULL;
}

void opening_forked(const struct box *b)
{
    for (size_t i = 0; i < b->nsources; i++)
        close(b->sources[i].fd);
}

static void keep(struct box *b, const struct answer *a, int fd)
{
    if (has_template(b) && b->template.root < 0) {
        b->template.root = fd;
        return;
    }
    if (!b->sources)
        b->sources = xcalloc(ORDER_MOUNTS, sizeof(*b->sources));
    b->sources[b->nsources] = a->mount;
    b->sources[b->nsources++].fd = fd;
}

static void on_answer(struct source *s)
{
    struct opening *o = CONTAINER_OF(s, struct opening, source);
    struct box *b = o->box;
    struct answer a = { 0 };
    int fd = -1;
    size_t nfds = 1;
    ssize_t n = fdpass_recv(s->fd, &a, sizeof(a), &fd, &nfds, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == sizeof(a) && !a.err.code && !nfds)
        err_set(&a.err, ERR_LIMIT, "too many open files for %.150s to be taken",
                path_of(b, o->opened));
    else if (n != sizeof(a))
        err_set(&a.err, ERR_INTERNAL, "the process that opens %.150s has died",
                path_of(b, o->opened));
    if (!a.err.code) {
        keep(b, &a, fd);
        if (++o->opened < count(b))
            return;
    } else if (nfds)
        closep(&fd);
    leave(o);
    box_opened(b, a.err.code ? &a.err : NULL);
}

/* ---- many of them ---- */

static bool is_stuck(const struct opening *o, int64_t now) { return !o->box && o->until <= now; }

static void collect(struct keeper *k)
{
    struct opening *o;

    list_each(o, &k->openings, all)
        if (!o->box && (!o->pid || waitpid(o->pid, NULL, WNOHANG))) {
            list_remove(&o->all);
            free(o);
        }
}

/* In the order in which they came. */
static void begin_next(struct keeper *k)
{
    struct err err = { 0 };
    struct opening *o;
    size_t waited_for = 0, processes = 0;

    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what collect() freed has left the list
    list_each(o, &k->openings, all) {
        waited_for += o->box && o->pid;
        processes += o->pid > 0;
    }
    list_each(o, &k->openings, all) {
        struct box *b = o->box;

        if (!b || o->pid)
            continue;
        if (waited_for++ >= AT_ONCE || processes++ >= MOST)
            return;
        if (begin(o, &err)) {
            leave(o);
            box_opened(b, &err);
        }
    }
}

static int silent(const struct opening *o, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE,
                   "%.120s: its file system does not answer (%lld ms, keep.mount-ms)", o->at,
                   (long long)(clock_ms() - o->began));
}

/* What hung a moment ago and does so still need not be waited for again. */
static int check_stuck(const struct box *b, struct err *err)
{
    const struct opening *o;
    int64_t now = clock_ms();
    size_t n = 0;

    collect(b->keeper);
    list_each(o, &b->keeper->openings, all) {
        if (!is_stuck(o, now))
            continue;
        for (size_t i = 0; i < count(b); i++)
            if (!strcmp(o->at, path_of(b, i)))
                return silent(o, err);
        if (++n >= MOST) {
            silent(o, err);
            return err_in(err, "%zu processes wait for host directories already", n);
        }
    }
    return 0;
}

int opening_begin(struct box *b, struct err *err)
{
    struct keeper *k = b->keeper;
    struct opening *o;

    if (check_stuck(b, err))
        return -1;
    o = xcalloc(1, sizeof(*o));
    *o = (struct opening){ .source = { -1, on_answer },
                           .keeper = k,
                           .box = b,
                           .until = clock_ms() + keep_limits.mount_ms };
    b->opening = o;
    list_push(&k->openings, &o->all);
    begin_next(k);
    return 0;
}

static void give_up(struct opening *o)
{
    struct box *b = o->box;
    struct err err;

    leave(o);
    if (o->pid)
        silent(o, &err);
    else
        err_set(&err, ERR_UNAVAILABLE,
                "%.120s: not opened within %lld ms (keep.mount-ms): others are waited for", o->at,
                (long long)keep_limits.mount_ms);
    log_warn("a host directory cannot be opened", KV("sandbox", b->id), KV("error", err.msg));
    box_opened(b, &err);
}

int64_t openings_due(const struct keeper *k)
{
    const struct opening *o;
    int64_t due = INT64_MAX;

    list_each(o, &k->openings, all)
        if (o->box)
            due = MIN(due, o->until);
    return due;
}

void openings_tick(struct keeper *k)
{
    struct opening *o;
    int64_t now;

    if (list_empty(&k->openings))
        return;
    now = clock_ms();
    list_each(o, &k->openings, all)
        if (o->box && o->until <= now)
            give_up(o);
    collect(k);
    begin_next(k);
}

/* At our end: whatever hangs still is somebody else's child then. */
void openings_finish(struct keeper *k)
{
    struct opening *o;

    list_each(o, &k->openings, all) {
        if (o->box)
            leave(o);
        list_remove(&o->all);
        free(o);
    }
}
