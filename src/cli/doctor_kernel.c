/* doctor_kernel.c - is what every sandbox is started with there: clone3 and pidfd, the seccomp
 * filter, a sealed memfd as program, the new mount calls. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/probe.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3; glibc 2.36 does not know it */
#endif

/* Only shown: what works is asked below, and distributions carry features to old versions. */
static void probe_version(const struct doctor *d, struct finding *f)
{
    struct utsname u;

    (void)d;
    if (uname(&u))
        probe_fail(f, "uname");
    else
        probe_say(f, DOCTOR_OK, "%s %s, %s", u.sysname, u.release, u.machine);
}

/* Old container engines' filters answer clone3 with ENOSYS or EPERM whatever the kernel is. */
static void probe_pidfd(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int pidfd = -1;
    pid_t pid = probe_clone(0, -1, &pidfd);
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    int n;

    (void)d;
    if (pid == 0)
        _exit(7);
    if (pid < 0) {
        probe_fail(f, "clone3 with a pidfd");
        return;
    }
    n = poll(&p, 1, 2000);
    if (n == 1 && probe_wait(pid) == 7)
        probe_say(f, DOCTOR_OK, "a pidfd told of a child's end");
    else
        probe_say(f, DOCTOR_FAIL, "a pidfd did not tell of a child's end");
}

/* getpriority() is refused with an errno it never has: only the filter can have done it. */
static void probe_seccomp(const struct doctor *d, struct finding *f)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = ARRAY_LEN(code), .filter = code };

    (void)d;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)) {
        probe_fail(f, "load a filter");
        return;
    }
    errno = 0;
    if (syscall(SYS_getpriority, PRIO_PROCESS, 0) == -1 && errno == EXDEV)
        probe_say(f, DOCTOR_OK, "a filter refused a system call");
    else
        probe_say(f, DOCTOR_FAIL, "a filter was loaded and did not refuse the system call");
}

/* A program as bytes of ours would be one for one processor; this one is on every machine. */
static int program_in_memory(struct finding *f)
{
    AUTO(closep) int from = open("/bin/true", O_RDONLY | O_CLOEXEC);
    AUTO(closep) int fd = memfd_create("cove", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    const int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    struct stat st;

    if (fd < 0 && errno == EINVAL) /* before MFD_EXEC every memfd could be run */
        fd = memfd_create("cove", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        probe_fail(f, "memfd_create");
        return -1;
    }
    if (from < 0 || fstat(from, &st)) {
        probe_fail(f, "open /bin/true, to have a program to run");
        return -1;
    }
    for (off_t left = st.st_size; left > 0;) {
        ssize_t n = sendfile(fd, from, NULL, (size_t)left);

        if (n <= 0) {
            probe_fail(f, "copy /bin/true into a memfd");
            return -1;
        }
        left -= n;
    }
    if (fchmod(fd, 0111) || fcntl(fd, F_ADD_SEALS, seals)) {
        probe_fail(f, "seal a memfd of mode 0111");
        return -1;
    }
    return TAKE(fd, -1);
}

/* 2 forbids every program in a memfd; 1 only those whose maker did not ask for it, as we do. */
static void blame_noexec(const struct doctor *d, struct finding *f)
{
    int64_t v;

    if (!probe_read_number("/proc/sys/vm/memfd_noexec", &v) && v == 2)
        probe_fix_root(d, f, "sysctl -w vm.memfd_noexec=1");
}

/* Execute-only is the point: the kernel then keeps the running guest's memory and descriptors from
 * everybody in the sandbox, its root included. */
static void probe_memfd(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int fd = program_in_memory(f);
    char *argv[] = { (char[]){ "true" }, NULL }, *env[] = { NULL };
    pid_t pid;
    int status;

    if (fd < 0) {
        blame_noexec(d, f);
        return;
    }
    pid = probe_clone(0, -1, NULL);
    if (pid == 0) {
        /* Root may run what others may not. EINVAL: a user namespace that has no other id. */
        if (d->root && setresuid(65534, 65534, 65534) && errno != EINVAL)
            _exit(errno);
        execveat(fd, "", argv, env, AT_EMPTY_PATH);
        _exit(errno);
    }
    status = pid < 0 ? -1 : probe_wait(pid);
    if (!status) {
        probe_say(f, DOCTOR_OK, "a program that nobody can read ran from memory");
        return;
    }
    errno = status > 0 && status < 126 ? status : EINVAL; /* execveat's own came as the status */
    probe_fail(f, "execveat of a sealed memfd of mode 0111");
    blame_noexec(d, f);
}

/* The calls of Linux 5.2 and mount_setattr of 5.12: a layer is a descriptor before it has a path.
 */
static void inside_mount_api(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    AUTO(closep) int tree = -1;
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NODEV };

    (void)d;
    if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "size", "64k", 0) ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        probe_fail(f, "fsopen of a tmpfs");
    else if ((tree = fsmount(context, FSMOUNT_CLOEXEC, 0)) < 0)
        probe_fail(f, "fsmount of a tmpfs");
    else if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)))
        probe_fail(f, "mount_setattr of a tmpfs");
    else if (move_mount(tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH))
        probe_fail(f, "move_mount of a tmpfs");
    else
        probe_say(f, DOCTOR_OK, "fsopen, fsmount, mount_setattr and move_mount work");
}

static void probe_mount_api(const struct doctor *d, struct finding *f)
{
    probe_inside(d, CLONE_NEWUSER | CLONE_NEWNS, inside_mount_api, f);
}

const struct doctor_check doctor_kernel[] = {
    { "kernel.version", "kernel", .probe = probe_version },
    { "kernel.clone3", "clone3 and pidfd", .need = DOCTOR_BOTH, .probe = probe_pidfd,
      .without = "sandboxes" },
    { "kernel.seccomp", "seccomp filter", .need = DOCTOR_BOTH, .probe = probe_seccomp,
      .without = "the filter of system calls" },
    { "kernel.memfd_exec", "programs from a sealed, unreadable memfd", .need = DOCTOR_BOTH,
      .probe = probe_memfd, .without = "a guest that cannot be overwritten from inside" },
    { "kernel.mount_api", "new mount calls", .need = DOCTOR_BOTH, .probe = probe_mount_api,
      .without = "sandboxes" },
    {}
};
