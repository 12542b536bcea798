/* jail.c - see jail.h: the parent's side of a sandbox's birth. */
#include "jail/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/ids.h"
#include "jail/idmap.h"
#include "jail/mounts.h"
#include "jail/weaken.h"

#define NAMESPACES                                                                                 \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

static pid_t birth(const struct jail_spec *s, int *pidfd)
{
    struct clone_args a = {
        .flags = NAMESPACES | CLONE_PIDFD | (s->netns < 0 ? CLONE_NEWNET : 0),
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
    };

    if (s->cgroup >= 0) {
        a.flags |= CLONE_INTO_CGROUP;
        a.cgroup = (uint64_t)s->cgroup;
    }
    return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/* The child cannot enter the ready network namespace itself once it is in its user namespace, so we
 * do, for the moment of the clone. Staying in it would be worse than ending. */
static pid_t birth_in_network(const struct jail_spec *s, int *pidfd)
{
    static int home = -1;
    pid_t pid;
    int error;

    if (s->netns < 0 || weakened("netns"))
        return birth(s, pidfd);
    if (home < 0)
        home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(s->netns, CLONE_NEWNET))
        return -1;
    pid = birth(s, pidfd);
    if (!pid)
        return 0;
    error = errno;
    if (setns(home, CLONE_NEWNET))
        abort();
    errno = error;
    return pid;
}

/* ---- layers ---- */

struct trees {
    int fds[FDPASS_MAX];
    size_t n;
};

static void close_trees(struct trees *t)
{
    while (t->n)
        close(t->fds[--t->n]);
}

static int add_tree(struct trees *t, int fd, uint64_t attributes, int userns, struct err *err)
{
    int tree = mounts_clone(fd, "", attributes | MOUNT_ATTR_NODEV, userns, false, err);

    if (tree < 0)
        return -1;
    t->fds[t->n++] = tree;
    return 0;
}

static int add_stack(struct trees *t, const struct jail_stack *s, int userns, struct err *err)
{
    for (size_t i = 0; i < s->n; i++)
        if (add_tree(t, s->lowers[i].fd, MOUNT_ATTR_RDONLY, userns, err))
            return -1;
    return 0;
}

/* In the order in which inside.c takes them: layer, root, usr, dev, mounts. */
static int make_trees(const struct jail_spec *s, struct trees *t, pid_t pid, struct err *err)
{
    char path[64];
    AUTO(closep) int userns = -1;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return err_sys(err, "open %s", path);
    if (add_tree(t, s->layer, 0, userns, err) || add_stack(t, &s->root, userns, err) ||
        add_stack(t, &s->usr, userns, err))
        return -1;
    t->fds[t->n] = mounts_clone(s->dev, "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, userns, false, err);
    if (t->fds[t->n] < 0)
        return -1;
    t->n++;
    for (size_t i = 0; i < s->nmounts; i++)
        if (add_tree(t, s->mounts[i].fd,
                     MOUNT_ATTR_NOSUID | (s->mounts[i].read_only ? MOUNT_ATTR_RDONLY : 0), userns,
                     err))
            return err_in(err, "mount %s", s->mounts[i].host);
    return 0;
}

static int hand_over(const struct jail_spec *s, const struct jail *j, struct err *err)
{
    AUTO(close_trees) struct trees t = { .n = 0 };

    if (idmap_write(j->pid, s->rootless ? IDMAP_OWN : s->first_id, err))
        return -1;
    if (!s->rootless && make_trees(s, &t, j->pid, err))
        return -1;
    if (fdpass_send(j->sock, "t", 1, t.fds, t.n, 0) != 1)
        return err_sys(err, "hand layers over");
    return 0;
}

static void undo(struct jail *j)
{
    kill(j->pid, SIGKILL);
    waitpid(j->pid, NULL, 0);
    close(j->pidfd);
    close(j->sock);
    *j = (struct jail){ .pid = -1, .pidfd = -1, .sock = -1 };
}

int jail_start(const struct jail_spec *s, struct jail *out, struct err *err)
{
    struct jail j = { .pidfd = -1 };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    j.pid = birth_in_network(s, &j.pidfd);
    if (!j.pid) {
        close(pair[0]); /* or a dead parent would never show as end of file */
        inside_main(s, pair[1]);
    }
    close(pair[1]);
    j.sock = pair[0];
    if (j.pid < 0) {
        close(j.sock);
        return err_sys(err, "make namespaces");
    }
    if (hand_over(s, &j, err)) {
        undo(&j);
        return -1;
    }
    *out = j;
    return 0;
}

/* What the child said last, if it did. */
static int last_words(const struct jail *j, ssize_t n, struct err *said, struct err *err)
{
    if (n != sizeof(*said))
        return err_set(err, ERR_INTERNAL, "the first process of the sandbox (%d) ended without a word", j->pid);
    said->msg[sizeof(said->msg) - 1] = 0;
    *err = *said;
    return -1;
}

int jail_go(const struct jail *j, struct err *err)
{
    struct err said;

    if (fdpass_send(j->sock, "g", 1, NULL, 0, 0) == 1)
        return 0;
    return last_words(j, recv(j->sock, &said, sizeof(said), MSG_DONTWAIT), &said, err);
}

int jail_report(struct jail *j, struct err *err)
{
    struct err said;
    ssize_t n = recv(j->sock, &said, sizeof(said), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    close(TAKE(j->sock, -1));
    if (n == 0)
        return 1; /* closed by exec; if it died instead, its pidfd tells */
    return last_words(j, n, &said, err);
}

/* ---- made once ---- */

/* Owned by host root and execute-only: whoever runs it cannot read the file, so the kernel makes the
 * process untraceable for everything inside, root with CAP_SYS_PTRACE included. */
int jail_guest_memfd(const void *program, size_t n, struct err *err)
{
    AUTO(closep) int fd = memfd_create("cove-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *p = program;

    if (fd < 0)
        return err_sys(err, "memfd_create");
    for (size_t at = 0; at < n;) {
        ssize_t r = write(fd, p + at, n - at);

        if (r <= 0)
            return err_sys(err, "fill the guest's memfd");
        at += (size_t)r;
    }
    if (fchmod(fd, weakened("guest") ? 0555 : 0111) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
        return err_sys(err, "seal the guest's memfd");
    return TAKE(fd, -1);
}

static const struct node {
    const char *name;
    unsigned major, minor;
} nodes[] = {
    { "null", 1, 3 }, { "zero", 1, 5 },    { "full", 1, 7 },
    { "tty", 5, 0 },  { "random", 1, 8 }, { "urandom", 1, 9 },
};

static const char *const links[][2] = {
    { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" },
    { "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
    { "ptmx", "pts/ptmx" },
};

/* One for all sandboxes, read-only in each: terminals and shared memory are mounts of their own on
 * it, so a sandbox has no /dev file system of its own to pay for. */
int jail_make_dev(struct err *err)
{
    struct mount_option options[] = { { "size", "64k", -1 }, { "mode", "755", -1 }, { 0 } };
    AUTO(closep) int dev = mounts_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
    mode_t before;
    int r = 0;

    if (dev < 0)
        return -1;
    before = umask(0);
    for (size_t i = 0; i < ARRAY_LEN(nodes) && !r; i++)
        r = mknodat(dev, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor));
    if (!r && weakened("dev"))
        r = mknodat(dev, "kmsg", S_IFCHR | 0666, makedev(1, 11));
    for (size_t i = 0; i < ARRAY_LEN(links) && !r; i++)
        r = symlinkat(links[i][1], dev, links[i][0]);
    r = r || mkdirat(dev, "pts", 0755) || mkdirat(dev, "shm", 0755);
    umask(before);
    return r ? err_sys(err, "make device nodes") : TAKE(dev, -1);
}
