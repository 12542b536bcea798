/* bench_floor.c - bench-floor ROOT DIR COUNT PROGRAM: a sandbox straight from system calls, run and
 * taken down, COUNT times. What the kernel asks for a sandbox of this kind, without a keeper, a
 * guest, a request or a reply: the yardstick for ours.
 *
 * Each one: seven namespaces; 65,536 ids; overlay of ROOT, a root file system, with
 * upper and work directory in DIR (userxattr, volatile); proc; a /dev of six bound nodes; a scratch
 * tmpfs; pivot_root; lo up; host name; five cgroups (or one of version 2) with three limits;
 * bounding set; our own filter; the program; then everything away again. */
#include "bench.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/seccomp.h"

enum { WARM_UP = 20, FIRST_ID = 0x2fff0000 };

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (x)                                                                                     \
            die("%s: %s", #x, strerror(errno));                                                    \
    } while (0)

static const struct {
    const char *dir, *file, *value;
} cgroups[] = {
    { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "2147483648" },
    { "/sys/fs/cgroup/pids", "pids.max", "1024" },
    { "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "200000" },
    { "/sys/fs/cgroup/freezer", NULL, NULL },
    { "/sys/fs/cgroup/devices", NULL, NULL },
};

static const char *lower, *work;
static char *program;

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

    if (fd >= 0)
        close(fd);
    return n < 0 ? -1 : 0;
}

/* ---- inside ---- */

static void bind_node(const char *name)
{
    char from[32], to[32];
    int fd;

    snprintf(from, sizeof(from), "/dev/%s", name);
    snprintf(to, sizeof(to), "dev/%s", name);
    fd = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    close(fd);
    MUST(mount(from, to, NULL, MS_BIND, NULL));
}

static void build_root(const char *dir)
{
    static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
    char options[1024], target[256];

    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    snprintf(options, sizeof(options),
             "lowerdir=%s,upperdir=%s/up,workdir=%s/wk,userxattr,volatile", lower, dir, dir);
    snprintf(target, sizeof(target), "%s/mn", dir);
    MUST(mount("floor", target, "overlay", 0, options));
    MUST(chdir(target));
    MUST(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    MUST(mount("tmpfs", "dev", "tmpfs", MS_NOSUID, "size=64k,mode=755"));
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        bind_node(nodes[i]);
    MUST(mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m"));
    MUST(syscall(SYS_pivot_root, ".", "."));
    MUST(umount2(".", MNT_DETACH));
    MUST(chdir("/"));
}

static void loopback_up(void)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP };

    MUST(s < 0 || ioctl(s, SIOCSIFFLAGS, &r));
    close(s);
}

static _Noreturn void inside(const char *dir, int go)
{
    char *argv[] = { program, NULL }, path[] = "PATH=/usr/bin:/bin", *envp[] = { path, NULL };
    struct err err;
    char c;

    if (read(go, &c, 1) != 1)
        _exit(98);
    MUST(syscall(SYS_setresgid, 0, 0, 0) || syscall(SYS_setresuid, 0, 0, 0));
    build_root(dir);
    MUST(sethostname("floor", 5));
    loopback_up();
    if (seccomp_load(&err))
        die("%s", err.msg);
    for (int cap = 0; cap < 41; cap++)
        if (cap != 0 && cap != 6 && cap != 7)
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    execve(program, argv, envp);
    die("%s: %s", program, strerror(errno));
}

/* ---- outside ---- */

static void make_dirs(const char *dir)
{
    static const char *const names[] = { "", "/up", "/wk", "/mn" };
    char path[256];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s%s", dir, names[i]);
        MUST(mkdir(path, 0755) || chown(path, FIRST_ID, FIRST_ID));
    }
}

static void remove_dirs(const char *dir)
{
    static const char *const names[] = { "/wk/work/incompat/volatile/dirty",
                                         "/wk/work/incompat/volatile",
                                         "/wk/work/incompat",
                                         "/wk/work",
                                         "/wk",
                                         "/up",
                                         "/mn",
                                         "" };
    char path[256];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s%s", dir, names[i]);
        if (rmdir(path) && errno == ENOTDIR)
            unlink(path);
    }
}

static void join_cgroups(pid_t pid, const char *name)
{
    char path[256], text[16];

    snprintf(text, sizeof(text), "%d", pid);
    for (size_t i = 0; i < ARRAY_LEN(cgroups); i++) {
        if (access(cgroups[i].dir, F_OK))
            continue;
        snprintf(path, sizeof(path), "%s/%s", cgroups[i].dir, name);
        MUST(mkdir(path, 0755));
        if (cgroups[i].file) {
            snprintf(path, sizeof(path), "%s/%s/%s", cgroups[i].dir, name, cgroups[i].file);
            MUST(put(path, cgroups[i].value));
        }
        snprintf(path, sizeof(path), "%s/%s/cgroup.procs", cgroups[i].dir, name);
        MUST(put(path, text));
    }
}

static void leave_cgroups(const char *name)
{
    char path[256];

    for (size_t i = 0; i < ARRAY_LEN(cgroups); i++) {
        snprintf(path, sizeof(path), "%s/%s", cgroups[i].dir, name);
        for (int tries = 0; tries < 1000 && rmdir(path) && errno == EBUSY; tries++)
            usleep(50);
    }
}

static void write_maps(pid_t pid)
{
    static const char *const files[] = { "uid_map", "gid_map" };
    char path[64], map[64];

    snprintf(map, sizeof(map), "0 %d 65536", FIRST_ID);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", pid, files[i]);
        MUST(put(path, map));
    }
}

static void one(int i)
{
    char dir[200], name[64];
    int go[2], pidfd, status;
    struct clone_args a = { .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
                                     CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET | CLONE_PIDFD,
                            .pidfd = (uint64_t)(uintptr_t)&pidfd,
                            .exit_signal = SIGCHLD };
    pid_t pid;

    snprintf(name, sizeof(name), "floor%d.%d", getpid(), i);
    snprintf(dir, sizeof(dir), "%s/%s", work, name);
    make_dirs(dir);
    MUST(pipe2(go, O_CLOEXEC));
    pid = (pid_t)syscall(SYS_clone3, &a, sizeof(a));
    MUST(pid < 0);
    if (!pid) {
        close(go[1]);
        inside(dir, go[0]);
    }
    close(go[0]);
    write_maps(pid);
    join_cgroups(pid, name);
    MUST(write(go[1], "g", 1) != 1);
    close(go[1]);
    MUST(waitpid(pid, &status, 0) != pid);
    close(pidfd);
    leave_cgroups(name);
    remove_dirs(dir);
    if (status)
        die("%s ended with status %d", program, status);
}

int main(int argc, char **argv)
{
    int count;

    if (argc != 5)
        die("usage: bench-floor ROOT DIR COUNT PROGRAM");
    lower = argv[1];
    work = argv[2];
    count = count_of(argv[3]);
    program = argv[4];
    MUST(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    for (int i = -WARM_UP; i < count; i++) {
        int64_t began = now_ns();

        one(i + WARM_UP);
        if (i >= 0)
            sample("floor", now_ns() - began);
    }
    return 0;
}
