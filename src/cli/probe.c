/* probe.c - see probe.h. Nothing here is for use outside the child that doctor_ask() makes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/probe.h"

void probe_say(struct finding *f, enum doctor_status status, const char *fmt, ...)
{
    va_list ap;

    f->status = status;
    va_start(ap, fmt);
    vsnprintf(f->seen, sizeof(f->seen), fmt, ap);
    va_end(ap);
}

void probe_fail(struct finding *f, const char *fmt, ...)
{
    const char *what = strerrordesc_np(errno);
    size_t n;
    va_list ap;

    f->status = DOCTOR_FAIL;
    va_start(ap, fmt);
    vsnprintf(f->seen, sizeof(f->seen), fmt, ap);
    va_end(ap);
    n = strlen(f->seen);
    snprintf(f->seen + n, sizeof(f->seen) - n, ": %s", what ? what : "unknown error");
}

void probe_fix(struct finding *f, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(f->fix, sizeof(f->fix), fmt, ap);
    va_end(ap);
}

void probe_fix_root(const struct doctor *d, struct finding *f, const char *fmt, ...)
{
    size_t n = (size_t)snprintf(f->fix, sizeof(f->fix), "%s", d->root ? "" : "sudo ");
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(f->fix + n, sizeof(f->fix) - n, fmt, ap);
    va_end(ap);
}

/* clone3, never unshare or setns: they refuse a process that has threads, and a sanitizer's
 * run-time has one. The child runs on a copy of our stack, as after fork(). */
pid_t probe_clone(uint64_t namespaces, int cgroup, int *pidfd)
{
    struct clone_args args = { .flags = namespaces, .exit_signal = SIGCHLD };
    pid_t pid;

    if (cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup;
    }
    if (pidfd) {
        args.flags |= CLONE_PIDFD;
        args.pidfd = (uint64_t)(uintptr_t)pidfd;
    }
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

int probe_wait(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One id is what an ordinary user may map, and enough to be root inside. */
static int map_self(uid_t uid, gid_t gid)
{
    char line[32];

    if (probe_write("/proc/self/setgroups", "deny"))
        return -1;
    snprintf(line, sizeof(line), "0 %u 1", gid);
    if (probe_write("/proc/self/gid_map", line))
        return -1;
    snprintf(line, sizeof(line), "0 %u 1", uid);
    return probe_write("/proc/self/uid_map", line);
}

static void enter(const struct doctor *d, uint64_t namespaces, uid_t uid, gid_t gid,
                  void (*inside)(const struct doctor *d, struct finding *f), struct finding *f)
{
    if (namespaces & CLONE_NEWUSER && map_self(uid, gid))
        probe_fail(f, "map an id in a new user namespace");
    else if (namespaces & CLONE_NEWNS && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        probe_fail(f, "make mounts private in a new mount namespace");
    else
        inside(d, f);
}

bool probe_inside(const struct doctor *d, uint64_t namespaces,
                  void (*inside)(const struct doctor *d, struct finding *f), struct finding *f)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    pid_t pid = probe_clone(namespaces, -1, NULL);
    int status;

    if (pid < 0) {
        probe_fail(f, "clone3 with new namespaces");
        return false;
    }
    if (pid == 0) {
        enter(d, namespaces, uid, gid, inside, f);
        _exit(0);
    }
    status = probe_wait(pid);
    if (status > 128)
        probe_say(f, DOCTOR_FAIL, "the probe ended by SIG%s", sigabbrev_np(status - 128));
    return status == 0;
}

int probe_read(const char *path, char *out, size_t n)
{
    return probe_read_at(AT_FDCWD, path, out, n);
}

int probe_read_at(int dir, const char *path, char *out, size_t n)
{
    AUTO(closep) int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got = fd < 0 ? -1 : 0;

    while (fd >= 0 && len < n - 1 && (got = read(fd, out + len, n - 1 - len)) > 0)
        len += (size_t)got;
    if (got < 0)
        return -1;
    out[len] = 0;
    return (int)len;
}

int probe_read_number(const char *path, int64_t *out)
{
    char text[64];

    if (probe_read(path, text, sizeof(text)) < 0)
        return -1;
    text[strcspn(text, " \t\n")] = 0;
    return str_i64(str_of(text), out);
}

int probe_write(const char *path, const char *text) { return probe_write_at(AT_FDCWD, path, text); }

int probe_write_at(int dir, const char *path, const char *text)
{
    AUTO(closep) int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* ---- programs ---- */

bool probe_find_program(const char *name, char *path, size_t n)
{
    const char *given = getenv("PATH");
    /* An ordinary user's PATH has no sbin on Debian; root's cron and units often have neither. */
    const char *lists[] = { given ? given : "", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin" };

    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct str rest = str_of(lists[i]), dir;

        while (str_next(&rest, ':', &dir)) {
            if (!dir.n || dir.p[0] != '/')
                continue;
            snprintf(path, n, "%.*s/%s", STR_ARG(dir), name);
            if (!access(path, X_OK))
                return true;
        }
    }
    return false;
}

static void become(const char *path, const char *const *argv, int output)
{
    AUTO(closep) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(output, 2) == 2)
        execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Standard error goes to a memfd, not a pipe: nobody has to read while the program runs. */
int probe_program(const char *const *argv, char *message, size_t n)
{
    AUTO(closep) int output = memfd_create("stderr", MFD_CLOEXEC);
    char path[512];
    ssize_t got;
    pid_t pid;
    int status;

    if (!probe_find_program(argv[0], path, sizeof(path))) {
        snprintf(message, n, "the program %s is missing", argv[0]);
        return -1;
    }
    pid = probe_clone(0, -1, NULL);
    if (pid == 0)
        become(path, argv, output);
    status = pid < 0 ? -1 : probe_wait(pid);
    if (!status)
        return 0;
    got = pread(output, message, n - 1, 0);
    message[MAX(got, (ssize_t)0)] = 0;
    message[strcspn(message, "\n")] = 0;
    if (!message[0])
        snprintf(message, n, "%s ended with status %d", argv[0], status);
    return -1;
}

enum { MANAGERS = 5 };

void probe_fix_package(const struct doctor *d, struct finding *f, const char *program)
{
    static const struct {
        const char *program, *install;
    } managers[MANAGERS] = {
        { "apt-get", "apt-get install" }, { "dnf", "dnf install" },
        { "pacman", "pacman -S" },        { "apk", "apk add" },
        { "zypper", "zypper install" },
    };
    static const struct {
        const char *program, *packages[MANAGERS];
    } rows[] = {
        { "nft", { "nftables", "nftables", "nftables", "nftables", "nftables" } },
        { "mkfs.btrfs",
          { "btrfs-progs", "btrfs-progs", "btrfs-progs", "btrfs-progs", "btrfsprogs" } },
        { "newuidmap", { "uidmap", "shadow-utils", "shadow", "shadow-uidmap", "shadow" } },
        { "newgidmap", { "uidmap", "shadow-utils", "shadow", "shadow-uidmap", "shadow" } },
    };
    char path[512];
    size_t row = 0;

    while (row < ARRAY_LEN(rows) && strcmp(rows[row].program, program) != 0)
        row++;
    for (size_t m = 0; row < ARRAY_LEN(rows) && m < MANAGERS; m++)
        if (probe_find_program(managers[m].program, path, sizeof(path))) {
            probe_fix_root(d, f, "%s %s", managers[m].install, rows[row].packages[m]);
            return;
        }
    probe_fix(f, "install the package that has the program %s", program);
}
