/* unpack_ns.c - see unpack_ns.h. */
#include "jail/unpack_ns.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/idmap.h"
#include "jail/ids.h"
#include "jail/mounts.h"
#include "jail/seccomp.h"

/* Below the ranges of sandboxes: no process of theirs has an id of ours. */
#define FIRST_ID (IDS_FIRST - 2 * IDS_RANGE)

/* The mount does the refusing, whatever the code in the child does: no link of the archive's is
 * ever followed, nothing it brought is run (a library of its own, loaded by iconv, would be). */
#define TREE_FLAGS                                                                                 \
    (MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSYMFOLLOW)

/* What writing files with owners, modes and file capabilities takes, over our own ids only. */
#define KEPT_CAPABILITIES                                                                          \
    (1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID |              \
     1u << CAP_SETFCAP)

int unpack_ns_clone(struct unpack_ns *ns, struct err *err)
{
    struct clone_args args = { .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
                                        CLONE_NEWNET | CLONE_NEWUTS,
                               .exit_signal = SIGCHLD };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "make a socket pair");
    ns->sock = pair[0];
    ns->other = pair[1];
    ns->pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (ns->pid < 0) {
        err_sys(err, "make namespaces to unpack in (an ordinary user needs unprivileged user "
                     "namespaces, which this machine may forbid)");
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    close(pair[ns->pid ? 1 : 0]); /* else a dead peer would never show as the end */
    ns->sock = pair[ns->pid ? 0 : 1];
    ns->other = -1;
    return ns->pid;
}

static int open_target(const char *target, int userns, struct err *err)
{
    int tree = mounts_clone(AT_FDCWD, target, TREE_FLAGS, userns, false, err);

    if (tree < 0 && userns >= 0 && errno == EINVAL)
        return err_set(err, ERR_UNSUPPORTED,
                       "the file system of %.120s cannot map ids: move the data directory to ext4, "
                       "xfs, btrfs or (Linux 6.3) tmpfs",
                       target);
    return tree;
}

int unpack_ns_admit(struct unpack_ns *ns, struct err *err)
{
    AUTO(closep) int userns = -1;
    AUTO(closep) int tree = -1;
    char path[64];

    if (idmap_write(ns->pid, ns->privileged ? FIRST_ID : IDMAP_OWN, err) < 0)
        return -1;
    if (ns->privileged) { /* an id map is the file system owner's to give: only we can */
        snprintf(path, sizeof(path), "/proc/%d/ns/user", ns->pid);
        userns = open(path, O_RDONLY | O_CLOEXEC);
        if (userns < 0)
            return err_sys(err, "open %s", path);
        tree = open_target(ns->target, userns, err);
        if (tree < 0)
            return -1;
    }
    if (fdpass_send(ns->sock, "g", 1, &tree, tree >= 0, 0) != 1)
        return err_sys(err, "tell the unpacker to begin");
    return 0;
}

/* The message says that the id maps are written; it brings the directory where we may not open it.
 */
static int receive_tree(const struct unpack_ns *ns, struct err *err)
{
    size_t n = ns->privileged;
    int tree = -1;
    char go;

    if (fdpass_recv(ns->sock, &go, 1, &tree, &n, 0) != 1)
        return err_set(err, ERR_INTERNAL, "the process that started the unpacker is gone");
    if (!ns->privileged)
        return open_target(ns->target, -1, err);
    return n == 1 ? tree : err_set(err, ERR_INTERNAL, "the unpacker was given no directory");
}

static int become_root(const struct unpack_ns *ns, struct err *err)
{
    if (ns->privileged && (setgroups(0, NULL) || setresgid(0, 0, 0) || setresuid(0, 0, 0)))
        return err_sys(err, "take the namespace's ids");
    return 0;
}

static int pivot(int tree, struct err *err)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return err_sys(err, "make the mounts private");
    /* Onto "/" itself: the one path that needs no permission to reach. pivot_root with both names
     * alike then leaves the old root on top, and one detach drops all of it. */
    if (move_mount(tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH))
        return err_sys(err, "attach the directory");
    if (fchdir(tree) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
        return err_sys(err, "make the directory the root");
    return 0;
}

static int drop_capabilities(struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { { .effective = KEPT_CAPABILITIES,
                                                .permitted = KEPT_CAPABILITIES } };
    static_assert(CAP_SETFCAP < 32, "all in the first word");

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capset, &head, data))
        return err_sys(err, "drop capabilities");
    return 0;
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

/* Everything else goes, the terminal first of all: 0, 1 and 2 lead nowhere. */
static int close_others(const int *keep, size_t n, struct err *err)
{
    int sorted[8], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    unsigned from = 3;

    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        return err_sys(err, "open /dev/null");
    memcpy(sorted, keep, n * sizeof(*keep));
    qsort(sorted, n, sizeof(*sorted), compare);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned)sorted[i] > from)
            close_range(from, (unsigned)sorted[i] - 1, 0);
        from = (unsigned)sorted[i] + 1;
    }
    close_range(from, ~0u, 0);
    return 0;
}

int unpack_ns_enter(struct unpack_ns *ns, const int *keep, size_t n, struct err *err)
{
    AUTO(closep) int tree = -1;
    int all[8];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setlocale(LC_CTYPE, "C.UTF-8"); /* libarchive drops names that the locale cannot spell */
    tree = receive_tree(ns, err);
    if (tree < 0 || become_root(ns, err) < 0)
        return -1;
    /* a change of ids clears it; what died in between shows as the end of the pipe */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memcpy(all, keep, n * sizeof(*keep));
    all[n] = tree;
    if (close_others(all, n + 1, err) < 0 || pivot(tree, err) < 0 || drop_capabilities(err) < 0)
        return -1;
    return seccomp_load(err); /* a sandbox's filter: made for worse than an unpacker */
}
