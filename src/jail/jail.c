/* jail.c - see jail.h: the parent's side of a sandbox's birth. */
#include "jail/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "jail/birth.h"
#include "jail/idmap.h"
#include "jail/ids.h"
#include "jail/mounts.h"
#include "jail/oom.h"
#include "jail/procfs.h"
#include "jail/weaken.h"

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
    int tree = mounts_clone(fd, "", attributes | (weakened("nodev") ? 0 : MOUNT_ATTR_NODEV), userns,
                            false, err);

    if (tree < 0)
        return -1;
    t->fds[t->n++] = tree;
    return 0;
}

static int add_stack(struct trees *t, const struct jail_stack *s, int userns, struct err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        bool data = s->data && i + 1 == s->n; /* its owners are nobody's inside */

        if (add_tree(t, s->lowers[i].fd, MOUNT_ATTR_RDONLY, data ? -1 : userns, err))
            return -1;
    }
    return 0;
}

/* The mount itself, not a copy: a mount that was never attached is taken down by its last close,
 * which waits for an RCU grace period. Shm before: what has its owners mapped is not copied. */
static int add_dev(struct trees *t, int dev, int userns, struct err *err)
{
    uint64_t attributes = MOUNT_ATTR_NOSUID | (weakened("dev") ? 0 : MOUNT_ATTR_RDONLY);
    AUTO(closep)
    int shm = mounts_clone(dev, "shm", MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, userns, false, err);
    int own;

    if (shm < 0 || mounts_restrict(dev, attributes, userns, err))
        return -1;
    own = fcntl(dev, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return err_sys(err, "hand /dev over");
    t->fds[t->n++] = own;
    t->fds[t->n++] = TAKE(shm, -1);
    return 0;
}

static const uint32_t user = 1000;

/* Which owner of a mount may become the sandbox's user: not root, and no id of a sandbox. A group
 * below 1000 is the machine's own (disk, shadow, docker): a set-group-ID program made inside would
 * give it to everybody who runs the program outside. */
static bool mappable(uint32_t id) { return id && !ids_of_sandboxes(id); }

static bool group_mappable(const struct jail_mount *m)
{
    return mappable(m->group) && (m->group >= IDS_PEOPLE || m->system_group);
}

/* Who owns what on a mount: one id of the machine is the sandbox's user, all others are nobody
 * inside, readable by their mode and never written. What is made there by anybody else inside, root
 * too, belongs to the sandbox's own range: no set-id program of another id is left behind. */
static void fill_owners(uint32_t base, uint32_t owner, bool mapped,
                        struct idmap_line out[static IDMAP_LINES])
{
    const struct idmap_line lines[IDMAP_LINES] = {
        { base, base, mapped ? user : IDS_RANGE },
        { owner, base + user, mapped },
        { base + user + 1, base + user + 1, mapped ? IDS_RANGE - user - 1 : 0 },
    };

    memcpy(out, lines, sizeof(lines));
}

static int owners_of(const struct jail_spec *s, const struct jail_mount *m, struct err *err)
{
    struct idmap_line users[IDMAP_LINES], groups[IDMAP_LINES];

    fill_owners(s->first_id, m->owner, mappable(m->owner), users);
    fill_owners(s->first_id, m->group, group_mappable(m) || weakened("mount-group"), groups);
    return idmap_namespace(users, groups, err);
}

static int add_mount(struct trees *t, const struct jail_spec *s, const struct jail_mount *m,
                     uint32_t flags, int userns, struct err *err)
{
    bool plain = flags & ORDER_MOUNT_ROOT || weakened("mount-owner");
    AUTO(closep) int own = plain ? -1 : owners_of(s, m, err);

    if (!plain && own < 0)
        return -1;
    return add_tree(t, m->fd,
                    (weakened("nosuid") ? 0 : MOUNT_ATTR_NOSUID) |
                        (flags & ORDER_MOUNT_READ_ONLY ? MOUNT_ATTR_RDONLY : 0),
                    plain ? userns : own, err);
}

/* In the order in which inside.c takes them: layer, root, usr, dev, shm, mounts. */
static int make_trees(const struct jail_spec *s, struct trees *t, pid_t pid, struct err *err)
{
    char path[64];
    AUTO(closep) int userns = -1;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return err_sys(err, "open %s", path);
    if (add_tree(t, s->layer, 0, userns, err) || add_stack(t, &s->root, userns, err) ||
        add_stack(t, &s->usr, userns, err) || add_dev(t, s->dev, userns, err))
        return -1;
    for (size_t i = 0; i < s->order->nmounts; i++)
        if (add_mount(t, s, &s->mounts[i], s->order->mounts[i].flags, userns, err))
            return err_in(err, "mount %s", s->order->mounts[i].host);
    return 0;
}

/* For dialling its ports later: see become_untraceable() in inside.c. */
static int open_network(struct jail *j, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/net", j->pid);
    j->net = open(path, O_RDONLY | O_CLOEXEC);
    return j->net < 0 ? err_sys(err, "open %s", path) : 0;
}

static int hand_over(const struct jail_spec *s, struct jail *j, struct err *err)
{
    AUTO(close_trees) struct trees t = { .n = 0 };

    if (idmap_write(j->pid, s->rootless ? IDMAP_OWN : s->first_id, err))
        return -1;
    if (s->rootless ? open_network(j, err) : make_trees(s, &t, j->pid, err))
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
    closep(&j->net);
    *j = (struct jail){ .pid = -1, .pidfd = -1, .sock = -1, .net = -1 };
}

/* ---- asking for the process ---- */

static int copy_text(char *out, size_t room, const char *text, struct err *err)
{
    if (text && strlen(text) >= room)
        return err_set(err, ERR_INVALID, "the path %s is longer than %zu bytes", text, room - 1);
    memcpy(out, text ? text : "", text ? strlen(text) + 1 : 1);
    return 0;
}

static int copy_paths(const struct jail_spec *s, struct birth *b, struct err *err)
{
    if (copy_text(b->layer, sizeof(b->layer), s->layer_path, err))
        return -1;
    for (size_t i = 0; i < s->root.n; i++)
        if (copy_text(b->root[i], sizeof(b->root[i]), s->root.lowers[i].path, err))
            return -1;
    b->nroot_paths = (uint32_t)s->root.n;
    return copy_text(b->usr, sizeof(b->usr), s->usr.n ? s->usr.lowers[s->usr.n - 1].path : NULL,
                     err);
}

static int fill_birth(const struct jail_spec *s, struct birth *b, struct err *err)
{
    *b = (struct birth){
        .order = *s->order,
        .first_id = s->first_id,
        .flags = (s->rootless ? BIRTH_ROOTLESS : 0) | (s->mortal ? BIRTH_MORTAL : 0) |
                 (s->netns >= 0 ? BIRTH_NETNS : 0) | (s->cgroup >= 0 ? BIRTH_CGROUP : 0) |
                 (s->home_network ? BIRTH_HOME : 0) | (s->usr.data ? BIRTH_DATA : 0) |
                 (s->warm_kernels ? BIRTH_KERNELS : 0),
        .nroot = (uint32_t)s->root.n,
        .nusr = (uint32_t)s->usr.n,
    };
    if (copy_text(b->id, sizeof(b->id), s->id, err) ||
        copy_text(b->stage, sizeof(b->stage), s->stage, err) ||
        (s->rootless && copy_paths(s, b, err)))
        return -1;
    for (size_t i = 0; i < s->order->nmounts; i++)
        b->files |= s->mounts[i].file ? 1u << i : 0;
    return 0;
}

int jail_begin(const struct jail_spec *s, const struct zygote *z, struct jail *out, struct err *err)
{
    static struct buf bytes; /* of every birth: nothing is allocated once one was as long */
    struct birth b;
    int pair[2], fds[4];
    size_t n = 2;

    bytes.len = 0;
    if (fill_birth(s, &b, err) || birth_write(&b, &bytes, err))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    fds[0] = pair[1];
    fds[1] = s->listener;
    if (s->netns >= 0)
        fds[n++] = s->netns;
    if (s->cgroup >= 0)
        fds[n++] = s->cgroup;
    *out = (struct jail){ .pidfd = -1, .sock = pair[0], .net = -1 };
    if (fdpass_send(z->sock, bytes.data, bytes.len, fds, n, 0) != (ssize_t)bytes.len) {
        err_set(err, ERR_GONE, "the zygote has died");
        close(TAKE(out->sock, -1));
    }
    close(pair[1]);
    return out->sock < 0 ? -1 : 0;
}

/* The process is our child all the same: the zygote makes it its sibling. */
static int receive_child(const struct zygote *z, struct jail *j, struct err *err)
{
    char bytes[BIRTH_REPLY_MAX];
    struct birth_reply r;
    size_t got = 1;
    ssize_t n = fdpass_recv(z->sock, bytes, sizeof(bytes), &j->pidfd, &got, 0);

    if (n <= 0 || birth_read_reply((struct str){ bytes, (size_t)n }, &r, err)) {
        /* its answer may be there still, and the next one would take it for its own */
        shutdown(z->sock, SHUT_RDWR);
        return err_set(err, ERR_GONE, "the zygote has died");
    }
    if (r.said.code) {
        *err = r.said;
        return err_in(err, "the zygote");
    }
    if (r.error) {
        errno = r.error;
        return err_sys(err, "make namespaces");
    }
    if (got != 1) { /* without it nobody could wait for the process: it goes at once */
        kill(r.pid, SIGKILL);
        waitpid(r.pid, NULL, 0);
        return err_set(err, ERR_LIMIT, "too many open files for a sandbox's process to be taken");
    }
    j->pid = r.pid;
    return 0;
}

int jail_start(const struct jail_spec *s, const struct zygote *z, struct jail *j, struct err *err)
{
    if (receive_child(z, j, err)) {
        close(TAKE(j->sock, -1));
        return -1;
    }
    if (hand_over(s, j, err)) {
        undo(j);
        return -1;
    }
    return 0;
}

void jail_abandon(const struct zygote *z, struct jail *j)
{
    struct err ignored;

    if (receive_child(z, j, &ignored))
        close(TAKE(j->sock, -1));
    else
        undo(j);
}

/* What the child said last, if it did. */
static int last_words(const struct jail *j, const char *bytes, ssize_t n, struct err *err)
{
    struct birth_reply r;

    if (n <= 0 || birth_read_reply((struct str){ bytes, (size_t)n }, &r, err) || !r.said.code)
        return err_set(err, ERR_INTERNAL,
                       "the first process of the sandbox (%d) ended without a word", j->pid);
    *err = r.said;
    return -1;
}

/* A child that ends with a word of ours unread makes the first try fail; its own word is behind it.
 */
static ssize_t hear(const struct jail *j, char bytes[static BIRTH_REPLY_MAX])
{
    ssize_t n = recv(j->sock, bytes, BIRTH_REPLY_MAX, MSG_DONTWAIT);

    return n < 0 && errno == ECONNRESET ? recv(j->sock, bytes, BIRTH_REPLY_MAX, MSG_DONTWAIT) : n;
}

int jail_go(const struct jail *j, struct err *err)
{
    char bytes[BIRTH_REPLY_MAX];

    if (fdpass_send(j->sock, "g", 1, NULL, 0, 0) == 1)
        return 0;
    return last_words(j, bytes, hear(j, bytes), err);
}

int jail_report(struct jail *j, struct err *err)
{
    char bytes[BIRTH_REPLY_MAX];
    ssize_t n = hear(j, bytes);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    close(TAKE(j->sock, -1));
    if (n == 0)
        return 1; /* closed when it became the guest; if it died instead, its pidfd tells */
    return last_words(j, bytes, n, err);
}

/* ---- made once ---- */

/* Owned by host root and execute-only: nothing inside can read or replace the program of pid 1. */
static int sealed_memfd(const void *program, size_t n, struct err *err)
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
    /* unreadable, its process is root's in /proc, and without privilege we could not map its ids */
    if (fchmod(fd, weakened("guest") || geteuid() ? 0555 : 0111) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
        return err_sys(err, "seal the guest's memfd");
    return TAKE(fd, -1);
}

/* What the zygote's environment holds, and with it every pid 1: nothing of ours. */
static char **own_environment(void)
{
    static const char *const names[] = {
#ifdef COVE_WEAKEN
        "COVE_WEAKEN",
#endif
        "ASAN_OPTIONS",
        "UBSAN_OPTIONS",
        "TSAN_OPTIONS",
    };
    static char *env[ARRAY_LEN(names) + 1];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (getenv(names[i]) && asprintf(&env[n], "%s=%s", names[i], getenv(names[i])) > 0)
            n++;
    env[n] = NULL;
    return env;
}

static _Noreturn void run_zygote(int sock, const void *program, size_t n, unsigned flags)
{
    char name[] = "cove-guest", own[] = { (char)('0' + flags), 0 }, *argv[] = { name, own, NULL };
    char **env = own_environment();
    struct err err;
    sigset_t none;
    int fd;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    oom_expose(); /* sandboxes are copies of it */
    fd = sealed_memfd(program, n, &err);
    if (fd >= 0 && dup2(sock, 0) == 0 && !close_range(3, ~0U, CLOSE_RANGE_CLOEXEC))
        syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

int zygote_start(struct zygote *z, const void *program, size_t n, unsigned flags, struct err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    z->pid = fork();
    if (!z->pid)
        run_zygote(pair[1], program, n, flags);
    close(pair[1]);
    z->sock = pair[0];
    if (z->pid < 0) {
        close(TAKE(z->sock, -1));
        return err_sys(err, "start the zygote");
    }
    return 0;
}

void zygote_close(struct zygote *z)
{
    closep(&z->sock);
    z->sock = -1;
}

void zygote_stop(struct zygote *z)
{
    zygote_close(z);
    if (z->pid > 0)
        waitpid(z->pid, NULL, 0);
    z->pid = 0;
}

enum { DEV_BYTES = 64 << 10 }; /* for the nodes themselves */

static const struct node {
    const char *name;
    unsigned major, minor;
} nodes[] = {
    { "null", 1, 3 }, { "zero", 1, 5 },   { "full", 1, 7 },
    { "tty", 5, 0 },  { "random", 1, 8 }, { "urandom", 1, 9 },
};

static const char *const links[][2] = {
    { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" },
    { "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
    { "ptmx", "pts/ptmx" },
};

/* Below what /dev/pts will cover, so that it is seen only where it is bound to. */
static int make_boot_id(int dev, struct err *err)
{
    AUTO(closep) int pts = openat(dev, "pts", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return pts < 0 ? err_sys(err, "open pts") : procfs_boot_id(pts, err);
}

int jail_make_dev(const struct order *o, struct err *err)
{
    char size[24];
    struct mount_option options[] = { { "size", size, -1 }, { "mode", "755", -1 }, { 0 } };
    AUTO(closep) int dev = -1;
    mode_t before;
    int r = 0;

    snprintf(size, sizeof(size), "%llu",
             (unsigned long long)(weakened("limits") ? 0 : jail_shm_bytes(o) + DEV_BYTES));
    dev = mounts_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
    if (dev < 0)
        return -1;
    before = umask(0);
    for (size_t i = 0; i < ARRAY_LEN(nodes) && !r; i++)
        r = mknodat(dev, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor));
    if (!r && weakened("dev"))
        r = mknodat(dev, "kmsg", S_IFCHR | 0666, makedev(1, 11));
    for (size_t i = 0; i < ARRAY_LEN(links) && !r; i++)
        r = symlinkat(links[i][1], dev, links[i][0]);
    r = r || mkdirat(dev, "pts", 0755) || mkdirat(dev, "shm", 01777);
    if (r)
        err_sys(err, "make device nodes");
    else
        r = make_boot_id(dev, err);
    umask(before);
    return r ? -1 : TAKE(dev, -1);
}
