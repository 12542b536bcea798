/* inside.c - the sandbox's first process, from its birth to the moment it becomes the guest.
 *
 * Order: wait for id maps and layers; become root of the user namespace; overlay, /usr, /proc,
 * /dev, masks, the caller's mounts; pivot_root; wait for the cgroups; limits, filter, capabilities.
 * Every failure ends the process with one sentence for the parent.
 *
 * A layer must be attached to this mount namespace before overlay takes it: one that is still
 * detached belongs to the parent's user namespace and is refused. They are stacked on one
 * directory, which pivot_root leaves behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/birth.h"
#include "jail/host_accounts.h"
#include "jail/mounts.h"
#include "jail/privilege.h"
#include "jail/procfs.h"
#include "jail/seccomp.h"
#include "jail/weaken.h"

enum { WORK_DIRS = 1000 };

struct inside {
    const struct birth *b;
    int sock, listener;
    int trees[FDPASS_MAX]; /* layer, root's, usr's, dev, shm, mounts: as jail.c sends them */
    size_t ntrees, taken;
    int root;    /* the new root's mount */
    int boot_id; /* what becomes /proc/sys/kernel/random/boot_id */
};

static int next_tree(struct inside *in) { return in->trees[in->taken++]; }

static int wait_for(const struct inside *in, char what, int *fds, size_t *nfds, struct err *err)
{
    char got = 0;
    ssize_t n = fdpass_recv(in->sock, &got, 1, fds, nfds, 0);

    if (n == 0)
        _exit(0); /* the parent has died: nobody to tell */
    if (n != 1 || got != what)
        return err_set(err, ERR_INTERNAL, "unexpected message from the keeper");
    return 0;
}

static int become_root(struct err *err)
{
    /* refused where only one id is mapped: then there are no groups to lose either */
    if (setgroups(0, NULL) && errno != EPERM)
        return err_sys(err, "drop groups");
    if (syscall(SYS_setresgid, 0, 0, 0) || syscall(SYS_setresuid, 0, 0, 0))
        return err_sys(err, "become root of the user namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return err_sys(err, "make mounts private");
    return 0;
}

/* ---- the root file system ---- */

static int stage_tree(const struct inside *in, int tree, struct err *err)
{
    if (move_mount(tree, "", AT_FDCWD, in->b->stage, MOVE_MOUNT_F_EMPTY_PATH))
        return err_sys(err, "attach a layer at %s", in->b->stage);
    return 0;
}

/* A work directory that was mounted volatile is never mounted again: take the next one. */
static int open_work(int layer, const char *prefix, struct err *err)
{
    char name[16];
    int fd;

    for (int i = 0; i < WORK_DIRS; i++) {
        snprintf(name, sizeof(name), "%s%d", prefix, i);
        if (!mkdirat(layer, name, 0700)) {
            fd = openat(layer, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
            return fd < 0 ? err_sys(err, "open work directory") : fd;
        }
        if (errno != EEXIST)
            break;
    }
    return err_sys(err, "make a work directory in the layer");
}

static int open_upper(int layer, const char *name, struct err *err)
{
    int fd = openat(layer, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? err_sys(err, "open upper directory") : fd;
}

struct lowers { /* of one overlay, the topmost first */
    int fds[JAIL_LOWERS];
    size_t n;
    bool data; /* see jail_stack */
};

static struct mount_option lower_option(const struct inside *in, const struct lowers *l, size_t i)
{
    if (in->b->flags & BIRTH_ROOTLESS)
        return (struct mount_option){ "lowerdir+", in->b->root[i], -1 };
    return (struct mount_option){ l->data && i + 1 == l->n ? "datadir+" : "lowerdir+", NULL,
                                  l->fds[i] };
}

static int mount_overlay(const struct inside *in, const struct lowers *l, int upper, int work,
                         struct err *err)
{
    struct mount_option o[JAIL_LOWERS + 8];
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        o[n++] = lower_option(in, l, i);
    o[n++] = (struct mount_option){ "upperdir", NULL, upper };
    o[n++] = (struct mount_option){ "workdir", NULL, work };
    o[n++] = (struct mount_option){ "userxattr", NULL, -1 };
    o[n++] = (struct mount_option){ "xino", "on", -1 };
    if (!(in->b->order.flags & ORDER_DURABLE))
        o[n++] = (struct mount_option){ "volatile", NULL, -1 };
    o[n] = (struct mount_option){ 0 };
    /* never nosuid: sudo inside leads to the sandbox's root only */
    return mounts_new("overlay", o, weakened("nodev") ? 0 : MOUNT_ATTR_NODEV, err);
}

static int build_overlay(struct inside *in, int layer, struct lowers l, const char *name,
                         struct err *err)
{
    char work_prefix[8];
    AUTO(closep) int upper = -1;
    AUTO(closep) int work = -1;

    for (size_t i = 0; i < l.n && !(in->b->flags & BIRTH_ROOTLESS); i++)
        l.fds[i] = next_tree(in);
    snprintf(work_prefix, sizeof(work_prefix), "%sw", name);
    upper = open_upper(layer, name, err);
    work = upper < 0 ? -1 : open_work(layer, work_prefix, err);
    return work < 0 ? -1 : mount_overlay(in, &l, upper, work, err);
}

/* All of them, before the new root is attached on top: what came after it would cover it. */
static int open_layer(struct inside *in, struct err *err)
{
    int layer;

    for (size_t i = 0; i < 1 + in->b->nroot + in->b->nusr && !(in->b->flags & BIRTH_ROOTLESS); i++)
        if (stage_tree(in, in->trees[i], err))
            return -1;
    if (!(in->b->flags & BIRTH_ROOTLESS))
        return next_tree(in);
    layer = open(in->b->layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return layer < 0 ? err_sys(err, "open %s", in->b->layer) : layer;
}

/* Without privilege the host's /usr belongs to ids that do not exist inside: readable, executable,
 * and nothing in it can be replaced, so it is bound read-only. */
static int bind_usr(const struct inside *in, int where, struct err *err)
{
    AUTO(closep)
    int tree =
        mounts_clone(AT_FDCWD, in->b->usr, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID,
                     -1, true, err);

    return tree < 0 ? -1 : mounts_attach(tree, where, err);
}

static int build_root(struct inside *in, struct err *err)
{
    AUTO(closep) int layer = open_layer(in, err);
    AUTO(closep) int usr = -1;
    int mount;

    if (layer < 0)
        return -1;
    in->root = build_overlay(in, layer, (struct lowers){ .n = in->b->nroot }, "r", err);
    if (in->root < 0)
        return err_in(err, "root file system");
    if (stage_tree(in, in->root, err))
        return -1;
    if (!in->b->nusr)
        return 0;
    usr = mounts_target(in->root, "/usr", false, err);
    if (usr < 0)
        return -1;
    if ((in->b->flags & BIRTH_ROOTLESS))
        return bind_usr(in, usr, err);
    mount = build_overlay(in, layer,
                          (struct lowers){ .n = in->b->nusr, .data = in->b->flags & BIRTH_DATA },
                          "u", err);
    return mount < 0 ? err_in(err, "/usr") : mounts_attach(mount, usr, err);
}

/* A directory without links in between: what the root holds may be a stranger's. */
static int open_home(int root)
{
    AUTO(closep) int above = openat(root, "home", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return above < 0 ? -1 : openat(above, "user", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* An ordinary user cannot make templates with owners: all in them is root's, and a user inside
 * could not write to its own home. What is in there, too; not what is deeper, each file of which
 * would be copied. Where there is no range of ids nobody else is inside. Before the caller's
 * mounts, which are not ours to give. */
static int give_home(const struct inside *in, struct err *err)
{
    int home = open_home(in->root);
    struct stat st;
    DIR *d;

    if (home < 0)
        return 0;
    if (fstat(home, &st) || st.st_uid || fchown(home, HOST_USER_ID, HOST_USER_ID)) {
        close(home);
        return 0;
    }
    d = fdopendir(home);
    if (!d) {
        close(home);
        return err_sys(err, "read /home/user");
    }
    for (struct dirent *e; !err->code && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            fchownat(home, e->d_name, HOST_USER_ID, HOST_USER_ID, AT_SYMLINK_NOFOLLOW))
            err_sys(err, "give /home/user/%.60s to its user", e->d_name);
    closedir(d);
    return err->code ? -1 : 0;
}

/* ---- /dev and the caller's mounts ---- */

static int attach_new(int root, const char *path, const char *type,
                      const struct mount_option *options, unsigned attributes, struct err *err)
{
    AUTO(closep) int mount = mounts_new(type, options, attributes, err);
    AUTO(closep) int where = mount < 0 ? -1 : mounts_target(root, path, false, err);

    return where < 0 ? -1 : mounts_attach(mount, where, err);
}

static int bind_host_nodes(const struct inside *in, struct err *err)
{
    static const char *const names[] = { "null", "zero", "full", "tty", "random", "urandom" };
    struct mount_option options[] = { { "size", "64k", -1 }, { "mode", "755", -1 }, { 0 } };
    char path[32], guest[32];

    if (attach_new(in->root, "/dev", "tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(closep) int tree = -1;
        AUTO(closep) int where = -1;

        snprintf(path, sizeof(path), "/dev/%s", names[i]);
        snprintf(guest, sizeof(guest), "/dev/%s", names[i]);
        where = mounts_target(in->root, guest, true, err);
        tree = where < 0 ? -1 : mounts_clone(AT_FDCWD, path, 0, -1, false, err);
        if (tree < 0 || mounts_attach(tree, where, err))
            return -1;
    }
    {
        AUTO(closep) int dev = mounts_target(in->root, "/dev", false, err);

        if (dev < 0 || symlinkat("/proc/self/fd", dev, "fd") ||
            symlinkat("/proc/self/fd/0", dev, "stdin") ||
            symlinkat("/proc/self/fd/1", dev, "stdout") ||
            symlinkat("/proc/self/fd/2", dev, "stderr") || symlinkat("pts/ptmx", dev, "ptmx"))
            return err_sys(err, "links in /dev");
    }
    return 0;
}

static int attach_given(struct inside *in, const char *path, struct err *err)
{
    AUTO(closep) int where = mounts_target(in->root, path, false, err);

    return where < 0 ? -1 : mounts_attach(next_tree(in), where, err);
}

static int mount_own_shm(const struct inside *in, struct err *err)
{
    char size[24];
    struct mount_option shm[] = { { "size", size, -1 }, { "mode", "1777", -1 }, { 0 } };

    snprintf(size, sizeof(size), "%llu", (unsigned long long)jail_shm_bytes(&in->b->order));
    return attach_new(in->root, "/dev/shm", "tmpfs", shm, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                      err);
}

/* In /dev/pts while nothing covers that: the keeper's, or where there is none one of our own. */
static int open_boot_id(struct inside *in, struct err *err)
{
    AUTO(closep) int pts = mounts_target(in->root, "/dev/pts", false, err);

    if (pts < 0 || (in->b->flags & BIRTH_ROOTLESS && procfs_boot_id(pts, err)))
        return -1;
    in->boot_id = openat(pts, PROCFS_BOOT_ID, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return in->boot_id < 0 ? err_sys(err, "open the boot id") : 0;
}

static int mount_dev(struct inside *in, struct err *err)
{
    bool rootless = in->b->flags & BIRTH_ROOTLESS;
    /* terminals are counted for the whole machine: without "max" one sandbox could have them all */
    struct mount_option pts[] = {
        { "newinstance", NULL, -1 }, { "ptmxmode", "0666", -1 },
        { "mode", "0620", -1 },      { "max", weakened("terminals") ? "4096" : "256", -1 },
        { "gid", "5", -1 },          { 0 }
    };

    if (rootless && syscall(SYS_setresgid, 0, 5, 0))
        pts[4] = (struct mount_option){ 0 }; /* no such group where one id is mapped */
    else if (rootless && syscall(SYS_setresgid, 0, 0, 0))
        return err_sys(err, "become root again");
    if (rootless ? bind_host_nodes(in, err) || mount_own_shm(in, err)
                 : attach_given(in, "/dev", err) || attach_given(in, "/dev/shm", err))
        return -1;
    if (open_boot_id(in, err))
        return -1;
    return attach_new(in->root, "/dev/pts", "devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
                      err);
}

static int mount_callers(struct inside *in, struct err *err)
{
    for (size_t i = 0; i < in->b->order.nmounts; i++) {
        const struct order_mount *m = &in->b->order.mounts[i];
        AUTO(closep)
        int where = mounts_target(in->root, m->guest, in->b->files >> i & 1, err);
        int tree;

        if (where < 0)
            return -1;
        tree = !(in->b->flags & BIRTH_ROOTLESS)
                   ? next_tree(in)
                   : mounts_clone(AT_FDCWD, m->host,
                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                      (m->flags & ORDER_MOUNT_READ_ONLY ? MOUNT_ATTR_RDONLY : 0),
                                  -1, true, err);
        if (tree < 0 || mounts_attach(tree, where, err))
            return err_in(err, "mount %s at %s", m->host, m->guest);
    }
    return 0;
}

static int enter_root(const struct inside *in, struct err *err)
{
    if (fchdir(in->root) || syscall(SYS_pivot_root, ".", ".") ||
        (!weakened("pivot") && umount2(".", MNT_DETACH)) || chdir("/"))
        return err_sys(err, "enter the new root");
    if (sethostname(in->b->id, strlen(in->b->id)))
        return err_sys(err, "set the host name");
    return 0;
}

/* A namespace that was made with the sandbox, not ahead, is as the kernel makes it: lo is down. */
static int loopback_up(const struct inside *in, struct err *err)
{
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    AUTO(closep) int s = -1;

    if (in->b->flags & (BIRTH_NETNS | BIRTH_HOME))
        return 0;
    s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return s < 0 || ioctl(s, SIOCSIFFLAGS, &r) ? err_sys(err, "bring up lo") : 0;
}

/* ---- the last steps ---- */

/* Of the sandbox's own cgroups, so only now; its path then reads "/" inside. */
static int enter_cgroup_namespace(struct err *err)
{
    if (!weakened("cgroupns") && unshare(CLONE_NEWCGROUP))
        return err_sys(err, "make a cgroup namespace");
    return 0;
}

static int lower_limits(const struct birth *b, struct err *err)
{
    /* with 0 a core still goes to a pipe, if the machine has its cores sent to a program; with 1
     * not */
    struct rlimit files, none = { 1, 1 };

    if (getrlimit(RLIMIT_NOFILE, &files))
        return err_sys(err, "limits");
    files.rlim_max = MIN(files.rlim_max, (rlim_t)b->order.limits.open_files);
    files.rlim_cur = files.rlim_max;
    if (weakened("rlimits"))
        return 0;
    if (setrlimit(RLIMIT_NOFILE, &files) || setrlimit(RLIMIT_CORE, &none))
        return err_sys(err, "limits");
    return 0;
}

/* 0..2 lead nowhere, 3 is the guest's listener, 4 its own out-of-memory score, which it cannot open
 * itself once it is untraceable. Nothing else stays open but the socket we report by, last. */
static int place_descriptors(struct inside *in, struct err *err)
{
    enum { ABOVE = 16, SOCK = 5 };
    /* changing ids made us unreadable to ourselves; nobody else is here yet */
    int dumpable = prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    int low[] = { open("/dev/null", O_RDWR | O_CLOEXEC),
                  -1,
                  -1,
                  in->listener,
                  open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC),
                  in->sock };
    int high[ARRAY_LEN(low)];

    if (dumpable)
        return err_sys(err, "read our own /proc files");
    low[1] = low[2] = low[0];
    for (size_t i = 0; i < ARRAY_LEN(low); i++)
        if ((high[i] = fcntl(low[i], F_DUPFD_CLOEXEC, ABOVE)) < 0)
            return err_sys(err, "place descriptor %zu", i);
    for (size_t i = 0; i < ARRAY_LEN(high); i++)
        if (dup2(high[i], (int)i) < 0)
            return err_sys(err, "place descriptor %zu", i);
    in->sock = SOCK;
    /* weakened, it keeps what it was sent; not the copies, or its report would never end */
    if (close_range(weakened("descriptors") ? ABOVE : ARRAY_LEN(high), ~0U, 0))
        return err_sys(err, "close descriptors");
    return 0;
}

/* The memory of this process belongs to the machine's own user namespace, where it was loaded; not
 * dumpable, only whoever may trace there can trace, read or look into it: nobody inside, root with
 * CAP_SYS_PTRACE included. */
static int become_untraceable(struct err *err)
{
    if (!weakened("guest") && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
        return err_sys(err, "become untraceable");
    return 0;
}

/* A keeper that dies from now on takes us along. One that has died closed its end before it let its
 * children go, whatever it had said until then. */
static int tie_to_keeper(const struct inside *in, struct err *err)
{
    struct pollfd p = { .fd = in->sock };

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        return err_sys(err, "tie the sandbox to its keeper");
    if (poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
        _exit(0);
    return 0;
}

static int build(struct inside *in, struct err *err)
{
    size_t none = 0;

    in->ntrees = FDPASS_MAX;
    if (wait_for(in, 't', in->trees, &in->ntrees, err))
        return -1;
    if (!in->ntrees && !(in->b->flags & BIRTH_ROOTLESS)) /* there are none without root */
        return err_set(err, ERR_LIMIT, "too many open files for the sandbox's mounts to be taken");
    if (become_root(err))
        return -1;
    if (in->b->flags & BIRTH_MORTAL && tie_to_keeper(in, err))
        return -1;
    if (build_root(in, err) || (in->b->flags & BIRTH_ROOTLESS && give_home(in, err)) ||
        procfs_mount(in->root, err) || mount_dev(in, err) ||
        procfs_mask(in->root, in->boot_id, err) || mount_callers(in, err) || enter_root(in, err) ||
        loopback_up(in, err))
        return -1;
    if (wait_for(in, 'g', NULL, &none, err) || enter_cgroup_namespace(err) ||
        lower_limits(in->b, err) || place_descriptors(in, err))
        return -1;
    /* the filter first: loading it without no_new_privs needs a capability that the next drops */
    return seccomp_load(err) || privilege_drop(in->b->order.flags & ORDER_STRICT, err) ||
           become_untraceable(err);
}

void inside_build(const struct birth *b, int sock, int listener)
{
    struct inside in = { .b = b, .sock = sock, .listener = listener, .root = -1, .boot_id = -1 };
    struct birth_reply last = { 0 };
    struct buf bytes = { 0 };
    struct err ignored;

    if (!build(&in, &last.said)) {
        close(in.sock); /* the word that it worked */
        return;
    }
    if (birth_write_reply(&last, &bytes, &ignored) || write(in.sock, bytes.data, bytes.len) < 0)
        _exit(126);
    _exit(127);
}
