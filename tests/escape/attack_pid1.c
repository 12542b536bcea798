/* attack_pid1.c - the sandbox's first process. Its program is a file that nobody may read, which
 * makes the process untraceable for everybody inside; a saved user id of its own closes prlimit;
 * and the kernel delivers no signal to a pid 1 from inside that it does not handle. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "attack.h"

static long open_file(const struct attempt *a) { return open(a->path, (int)a->nr); }

static long follow_link(const struct attempt *a)
{
    char target[256];

    return readlink(a->path, target, sizeof(target));
}

static long list(const struct attempt *a)
{
    DIR *dir = opendir(a->path);
    const struct dirent *e;
    int n = 0;

    if (!dir)
        return -1;
    errno = 0;
    while ((e = readdir(dir)) != NULL)
        n += e->d_name[0] != '.';
    return n ? n : -1;
}

/* Seizing, unlike attaching, does not stop it should it work. */
static long trace(const struct attempt *a)
{
    (void)a;
    return ptrace(PTRACE_SEIZE, 1, NULL, NULL);
}

static long read_memory(const struct attempt *a)
{
    char byte[16];
    struct iovec here = { byte, sizeof(byte) }, there = { (void *)a->args[0], sizeof(byte) };

    return process_vm_readv(1, &here, 1, &there, 1, 0);
}

static long change_limit(const struct attempt *a)
{
    struct rlimit64 now;

    (void)a;
    return syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &now);
}

static long take_descriptor(const struct attempt *a)
{
    long pidfd = syscall(SYS_pidfd_open, 1, 0);

    (void)a;
    if (pidfd < 0)
        unclear("pidfd_open: %s", strerrorname_np(errno));
    return syscall(SYS_pidfd_getfd, pidfd, 3, 0);
}

static long compare(const struct attempt *a) { return syscall(SYS_kcmp, 1, 1, a->nr, 0, 0); }

static char state(void)
{
    char text[64] = "";

    return status_field("/proc/1/status", "State", text, sizeof(text)) ? text[0] : '?';
}

/* Accepted from root, for nothing: pid 1 must neither stop nor end. */
static long signal_it(const struct attempt *a)
{
    if (kill(1, (int)a->nr))
        return -1;
    usleep(20000);
    if (!strchr("SR", state()))
        escaped("pid 1 is in state %c", state());
    held("ignored");
}

enum { COMPARE_FILE = 0 };
/* the guest is linked at a fixed address */
#define GUEST_TEXT 0x400000

const struct attempt attack_pid1[] = {
    { "pid1-environ", open_file, { EACCES, EPERM }, "/proc/1/environ", O_RDONLY },
    { "pid1-mem", open_file, { EACCES, EPERM }, "/proc/1/mem", O_RDWR },
    { "pid1-maps", open_file, { EACCES, EPERM }, "/proc/1/maps", O_RDONLY },
    { "pid1-auxv", open_file, { EACCES, EPERM }, "/proc/1/auxv", O_RDONLY },
    { "pid1-task-mem", open_file, { EACCES, EPERM }, "/proc/1/task/1/mem", O_RDWR },
    { "pid1-exe", open_file, { EACCES, EPERM }, "/proc/1/exe", O_RDONLY },
    { "pid1-exe-write", open_file, { EACCES, EPERM, ETXTBSY }, "/proc/1/exe", O_WRONLY },
    { "pid1-root", open_file, { EACCES, EPERM }, "/proc/1/root/", O_RDONLY },
    { "pid1-ns", open_file, { EACCES, EPERM }, "/proc/1/ns/user", O_RDONLY },
    { "pid1-cwd", follow_link, { EACCES, EPERM }, "/proc/1/cwd" },
    { "pid1-fd", list, { EACCES, EPERM }, "/proc/1/fd" },
    { "pid1-map-files", list, { EACCES, EPERM }, "/proc/1/map_files" },
    { "pid1-oom-score", open_file, { EACCES, EPERM }, "/proc/1/oom_score_adj", O_WRONLY },
    { "pid1-ptrace", trace, { EPERM }, NULL },
    { "pid1-vm-readv", read_memory, { EPERM }, NULL, 0, { GUEST_TEXT } },
    { "pid1-prlimit", change_limit, { EPERM }, NULL },
    { "pid1-getfd", take_descriptor, { EPERM }, NULL },
    { "pid1-kcmp", compare, { EPERM }, NULL, COMPARE_FILE },
    { "pid1-stop", signal_it, { EPERM }, NULL, SIGSTOP },
    { "pid1-kill", signal_it, { EPERM }, NULL, SIGKILL },
    {}
};
