/* main.c - the process that every sandbox's pid 1 is a copy of.
 *
 * Loading the guest costs more than copying a process that has loaded it, so one waits here, with
 * the keeper's privileges and none of its knowledge: it reads fixed records from the keeper's
 * socket on descriptor 0, and answers each with a new process in new namespaces. The copy builds
 * the sandbox around itself (jail/inside.c) and becomes the guest. It ends with the keeper. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/serve.h"
#include "io/fdpass.h"
#include "jail/birth.h"
#include "jail/net_bare.h"
#include "jail/weaken.h"

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

enum { KEEPER = 0 };

struct request {
    struct birth birth;
    int sock, listener, netns, cgroup; /* the last two may be -1 */
};

/* The keeper's child, not ours: it is the keeper who waits for its end. */
static pid_t birth(const struct request *r, int *pidfd)
{
    struct clone_args a = {
        .flags = (weakened("ipcns") ? NAMESPACES & ~CLONE_NEWIPC : NAMESPACES) | CLONE_PIDFD |
                 CLONE_PARENT | (r->netns < 0 && !(r->birth.flags & BIRTH_HOME) ? CLONE_NEWNET : 0),
        .pidfd = (uint64_t)(uintptr_t)pidfd,
    };

    if (r->cgroup >= 0) {
        a.flags |= CLONE_INTO_CGROUP;
        a.cgroup = (uint64_t)r->cgroup;
    }
    return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

static int set_effective_id(uid_t id)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2];

    if (syscall(SYS_setresuid, -1, id, -1) || syscall(SYS_capget, &header, caps))
        return -1;
    caps[0].effective = caps[0].permitted; /* giving up root's id took them away */
    caps[1].effective = caps[1].permitted;
    return (int)syscall(SYS_capset, &header, caps);
}

/* What the kernel counts by user (inotify instances, timers, queued signals, message queues) it
 * counts for the owner of the user namespace as well, up to the owner's own limits. Owned by root,
 * one sandbox could use up what root has, and with it every other sandbox's and the host's share.
 * So each is owned by its own first id, which nobody outside has. */
static pid_t birth_owned(const struct request *r, int *pidfd)
{
    pid_t pid;
    int error;

    if (r->birth.flags & BIRTH_ROOTLESS || weakened("owner"))
        return birth(r, pidfd);
    pid = set_effective_id(r->birth.first_id) ? -1 : birth(r, pidfd);
    if (!pid)
        return 0;
    error = errno;
    if (set_effective_id(0))
        abort();
    errno = error;
    return pid;
}

/* The child cannot enter the ready network namespace itself once it is in its user namespace, so we
 * do, for the moment of the clone. Staying in it would be worse than ending. */
static pid_t birth_in_network(const struct request *r, int *pidfd)
{
    static int home = -1;
    pid_t pid;
    int error;

    if (r->netns < 0 || weakened("netns"))
        return birth_owned(r, pidfd);
    if (home < 0)
        home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(r->netns, CLONE_NEWNET))
        return -1;
    pid = birth_owned(r, pidfd);
    if (!pid)
        return 0;
    error = errno;
    if (setns(home, CLONE_NEWNET))
        abort();
    errno = error;
    return pid;
}

/* 1 a birth; 0 the keeper has gone; -1 it asks for what we do not understand. */
static int receive(struct request *r, struct err *err)
{
    static char bytes[BIRTH_MAX];
    int fds[4];
    size_t want, n = ARRAY_LEN(fds);
    ssize_t got = fdpass_recv(KEEPER, bytes, sizeof(bytes), fds, &n, 0);
    int bad;

    r->sock = r->listener = r->netns = r->cgroup = -1;
    if (got <= 0)
        return 0;
    bad = birth_read((struct str){ bytes, (size_t)got }, &r->birth, err);
    want = bad ? 0 : 2 + !!(r->birth.flags & BIRTH_NETNS) + !!(r->birth.flags & BIRTH_CGROUP);
    if (bad || n != want) {
        while (n)
            close(fds[--n]);
        return bad ? -1 : err_set(err, ERR_INVALID, "other than %zu descriptors came along", want);
    }
    r->sock = fds[0];
    r->listener = fds[1];
    r->netns = r->birth.flags & BIRTH_NETNS ? fds[2] : -1;
    r->cgroup = r->birth.flags & BIRTH_CGROUP ? fds[n - 1] : -1;
    return 1;
}

/* false: the keeper has gone. */
static bool answer(const struct birth_reply *r, int pidfd)
{
    static struct buf bytes;
    struct err err;

    bytes.len = 0;
    return !birth_write_reply(r, &bytes, &err) &&
           fdpass_send(KEEPER, bytes.data, bytes.len, &pidfd, pidfd >= 0, 0) > 0;
}

static void forget(const struct request *r)
{
    closep(&r->sock);
    closep(&r->listener);
    closep(&r->netns);
    closep(&r->cgroup);
}

/* A canary of its own: what leaks from one sandbox's pid 1 does not help against the next. Whoever
 * calls this must not return. */
static inline __attribute__((always_inline)) void change_canary(void)
{
#ifdef __x86_64__
    unsigned long canary;

    if (getrandom(&canary, sizeof(canary), 0) == sizeof(canary))
        __asm__ volatile("mov %0, %%fs:0x28" : : "r"(canary & ~0xfful));
#endif
}

static _Noreturn void become_guest(const struct request *r)
{
    static char name[] = "cove-guest", listen[] = "--listen-fd", three[] = "3", oom[] = "--oom-fd",
                four[] = "4", level[] = "--log-level", off[] = "off", set[] = "--set",
                services[] = "--services", strict[] = "--strict", warm[] = "--warm",
                kernels[] = "kernels";
    char log[64];
    char *argv[14] = { name, listen, three, oom, four, level, off, set, log, services };
    int argc = 10;

    if (r->birth.order.flags & ORDER_STRICT)
        argv[argc++] = strict;
    if (r->birth.flags & BIRTH_KERNELS) {
        argv[argc++] = warm;
        argv[argc++] = kernels;
    }
    close(KEEPER); /* or a dead keeper would never show as end of file */
    inside_build(&r->birth, r->sock, r->listener);
    snprintf(log, sizeof(log), "process.output-bytes=%llu",
             (unsigned long long)r->birth.order.limits.log_bytes);
    change_canary();
    exit(guest_main(argc, argv));
}

/* A root with nothing in it but a place to mount on, so that each copy of our mounts is small and
 * nothing of the machine is ever inside: and /proc, without which a namespace may not mount its
 * own. */
static int make_own_root(void)
{
    static const char dir[] = "/dev"; /* any directory does: only we see it */

    return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
           mount("cove", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,mode=755") ||
           chdir(dir) || mkdir("proc", 0755) || mkdir(&ZYGOTE_STAGE[1], 0755) ||
           mount("/proc", "proc", NULL, MS_BIND, NULL) || syscall(SYS_pivot_root, ".", ".") ||
           umount2(".", MNT_DETACH) || chdir("/");
}

int main(int argc, char **argv)
{
    static struct request r;
    struct birth_reply reply = { 0 };
    unsigned flags;
    struct err err;
    int got;

    if (argc > 1 && !strcmp(argv[1], "services")) /* pid 1 starts a service: itself, as executed */
        return guest_main(argc, argv);
    prctl(PR_SET_NAME, "cove-zygote");
    flags = argc > 1 ? (unsigned)(argv[1][0] - '0') : 0;
    if (flags & ZYGOTE_OWN_NETWORK && !weakened("netns") && net_bare(&err))
        return 1;
    if (flags & ZYGOTE_OWN_ROOT && !weakened("pivot") && make_own_root())
        return 1;
    while ((got = receive(&r, &reply.said))) {
        int pidfd = -1;

        if (got > 0) {
            reply.pid = birth_in_network(&r, &pidfd);
            if (!reply.pid)
                become_guest(&r);
            reply.error = reply.pid < 0 ? errno : 0;
        }
        forget(&r);
        if (!answer(&reply, pidfd))
            return 1;
        closep(&pidfd);
        reply = (struct birth_reply){ 0 };
    }
    return 0;
}
