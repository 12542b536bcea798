/* attack_filter.c - around the system call filter: other entries to the kernel, threads, programs
 * without a file, and the ioctls of terminals and namespaces. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "attack.h"

/* ---- other entries ---- */

static void on_fault(int signo) { held("SIG%s", sigabbrev_np(signo)); }

/* getpid, socketcall, ipc: three of the numbers that mean something else there. */
static long call_i386(const struct attempt *a)
{
#ifdef __x86_64__
    long result = a->nr;

    signal(SIGSEGV, on_fault); /* a kernel without that entry */
    signal(SIGSYS, on_fault);
    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "b"(0), "c"(0), "d"(0), "S"(0), "D"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    if ((int)result >= 0)
        return result;
    errno = -(int)result;
    return -1;
#else
    held("no such entry");
#endif
}

static long call_x32(const struct attempt *a) { return syscall(a->nr | 0x40000000); }

/* ---- everything the process becomes is filtered ---- */

static void expect_filtered(const char *file)
{
    char mode[8];

    if (!status_field(file, "Seccomp", mode, sizeof(mode)))
        unclear("%s has no line Seccomp", file);
    if (strcmp(mode, "2"))
        escaped("%s: Seccomp %s", file, mode);
}

static void *thread(void *arg)
{
    /* a filter that is missing in one thread is missing in all */
    if (!unshare(CLONE_NEWUSER))
        escaped("a thread could unshare");
    pause();
    return arg;
}

static long threads(const struct attempt *a)
{
    DIR *dir = opendir(a->path);
    const struct dirent *e;
    pthread_t ids[3];
    char file[64];
    int n = 0;

    for (size_t i = 0; i < 3; i++)
        if (pthread_create(&ids[i], NULL, thread, NULL))
            unclear("no thread");
    usleep(20000);
    while (dir && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.') {
            snprintf(file, sizeof(file), "%s/%.20s/status", a->path, e->d_name);
            expect_filtered(file);
            n++;
        }
    if (n != 4)
        unclear("%d threads of 4", n);
    held("4 threads");
}

/* A program in memory, executed without a path: the filter and the rights stay. */
static long memory_program(const struct attempt *a)
{
    int self = open("/proc/self/exe", O_RDONLY), memory = memfd_create(a->path, 0);
    char *const argv[] = { (char *)(size_t) "attacker", (char *)(size_t) "run",
                           (char *)(size_t) "threads", NULL };
    struct stat st;
    int status;
    pid_t pid;

    if (self < 0 || memory < 0 || fstat(self, &st) ||
        sendfile(memory, self, NULL, (size_t)st.st_size) != st.st_size)
        unclear("cannot fill a memfd");
    if (!(pid = fork())) {
        dup2(open("/dev/null", O_WRONLY), 1);
        syscall(SYS_execveat, memory, "", argv, environ, AT_EMPTY_PATH);
        _exit(UNCLEAR);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) == UNCLEAR)
        unclear("it did not run");
    if (WEXITSTATUS(status) == ESCAPED)
        escaped("a program in memory is not filtered");
    held("filtered as well");
}

/* ---- terminals ---- */

/* A terminal of our own that controls us: nothing else stands in the way of these calls. */
static int own_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave;

    if (master < 0 || grantpt(master) || unlockpt(master))
        unclear("no terminal: %s", strerrorname_np(errno));
    setsid();
    slave = open(ptsname(master), O_RDWR);
    if (slave < 0 || (ioctl(slave, TIOCSCTTY, 0) && errno != EPERM))
        unclear("no controlling terminal: %s", strerrorname_np(errno));
    return slave;
}

/* TIOCSETD to the discipline it has already; TIOCSTI types one letter to ourselves. */
static long terminal_call(const struct attempt *a)
{
    static char letter = 'x';
    static int discipline = 0;
    unsigned long request = (unsigned long)a->nr;

    return syscall(SYS_ioctl, own_terminal(), request,
                   (unsigned)request == TIOCSETD ? (void *)&discipline : &letter);
}

/* With a terminal as standard input it is one of the sandbox's own, never the caller's. */
static long caller_terminal(const struct attempt *a)
{
    struct stat ours, tree;

    if (!isatty(0))
        unclear("standard input is no terminal");
    if (fstat(0, &ours) || stat(a->path, &tree))
        return -1;
    if (ours.st_dev != tree.st_dev)
        escaped("the terminal is not one of %s", a->path);
    if (syscall(SYS_ioctl, 0, TIOCSTI, "x") == 0)
        escaped("typed into it");
    held("%s", strerrorname_np(errno));
}

static long namespace_call(const struct attempt *a)
{
    int ns = open(a->path, O_RDONLY);

    if (ns < 0)
        unclear("cannot open %s", a->path);
    return ioctl(ns, (unsigned long)a->nr);
}

/* As many as there are on the machine would leave none to the other sandboxes. */
static long all_terminals(const struct attempt *a)
{
    long n = 0;

    while (n <= a->nr && open(a->path, O_RDWR | O_NOCTTY) >= 0)
        n++;
    if (n > a->nr)
        escaped("%ld terminals", n);
    if (n < 8 || errno != ENOSPC)
        unclear("%ld terminals, then %s", n, strerrorname_np(errno));
    held("ENOSPC after %ld", n);
}

#define HIGH(x) ((x) | 1l << 32)
enum { NS_TYPE = 0xb703, NS_FIRST = 0xb80b };

const struct attempt attack_filter[] = {
    { "i386-getpid", call_i386, { ENOSYS }, NULL, 20 },
    { "i386-socketcall", call_i386, { ENOSYS }, NULL, 102 },
    { "i386-ipc", call_i386, { ENOSYS }, NULL, 117 },
    { "x32-getpid", call_x32, { ENOSYS }, NULL, 39 },
    { "threads", threads, {}, "/proc/self/task" },
    { "memory-program", memory_program, {}, "attack" },
    { "tiocsti", terminal_call, { EPERM }, NULL, TIOCSTI },
    { "tiocsti-high", terminal_call, { EPERM }, NULL, HIGH(TIOCSTI) },
    { "tioclinux", terminal_call, { EPERM }, NULL, TIOCLINUX },
    { "tiocsetd", terminal_call, { EPERM }, NULL, TIOCSETD },
    { "tiocsetd-high", terminal_call, { EPERM }, NULL, HIGH(TIOCSETD) },
    { "tioccons", terminal_call, { EPERM }, NULL, TIOCCONS },
    { "caller-terminal", caller_terminal, {}, "/dev/pts" },
    { "namespace-ioctl", namespace_call, { EPERM }, "/proc/self/ns/user", NS_TYPE },
    { "all-terminals", all_terminals, {}, "/dev/ptmx", 300 },
    {}
};
