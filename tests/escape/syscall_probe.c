/* syscall_probe.c - calls every system call with zero arguments, and says what came back.
 *
 * usage: syscall-probe [native|x32|i386] [first [last]]          (0 to 600)
 *
 * One line per number, "39 =4711", "165 EPERM", "34 SIGALRM": the result, the error, or the signal
 * that ended it (SIGALRM: it would wait for ever). verdicts.py compares that with seccomp_table.h.
 * Each call is made in a child of its own, since some end, replace or wound the process. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

enum { LAST = 600, WAIT_US = 200000, GIVE_UP_S = 20 };

static struct report {
    bool returned;
    long result;
} * report; /* shared with the child */

static long call_native(long nr)
{
    long result = nr;

#ifdef __x86_64__
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(0), "S"(0), "d"(0), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    result = syscall(nr, 0, 0, 0, 0, 0, 0);
    if (result < 0)
        result = -errno;
#endif
    return result;
}

#ifdef __x86_64__
static long call_x32(long nr) { return call_native(nr | 0x40000000); }

static long call_i386(long nr)
{
    long result = nr;

    /* The sixth argument is in rbp, which stays what it is: no call with that many is harmful. */
    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "b"(0), "c"(0), "d"(0), "S"(0), "D"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}
#endif

static const struct mode {
    const char *name;
    long (*call)(long nr);
    long forks[3]; /* calls that return twice */
} modes[] = {
#ifdef __x86_64__
    { "native", call_native, { SYS_fork, SYS_vfork, SYS_clone } },
    { "x32", call_x32, { SYS_fork, SYS_vfork, SYS_clone } },
    { "i386", call_i386, { 2, 120, 190 } },
#else
    { "native", call_native, { SYS_clone, SYS_clone, SYS_clone } },
#endif
};

static bool returns_twice(const struct mode *mode, long nr)
{
    return nr == mode->forks[0] || nr == mode->forks[1] || nr == mode->forks[2];
}

/* In the child. Afterwards only exit and write may be possible: seccomp(0, 0, NULL) is strict mode.
 */
static void attempt(const struct mode *mode, long nr)
{
    struct itimerval soon = { .it_value = { .tv_usec = WAIT_US } };
    bool twice = returns_twice(mode, nr);
    long result;

    setitimer(ITIMER_REAL, &soon, NULL);
    result = mode->call(nr);
    if (twice && result == 0)
        syscall(SYS_exit,
                0); /* the second one; perhaps in the memory of the first: touch nothing */
    report->result = result;
    report->returned = true;
    if (twice && result > 0)
        waitpid((pid_t)result, NULL, __WALL);
    if (mode->call == call_native && nr == SYS_msgget && result >= 0)
        msgctl((int)result, IPC_RMID, NULL); /* key 0 made a queue that would outlive us */
    syscall(SYS_exit, 0);
}

/* Waits for the child; one that even SIGALRM does not end is killed. */
static int wait_for(pid_t pid)
{
    int status = 0;

    for (int i = 0; i < GIVE_UP_S * 1000; i++) {
        pid_t ended = waitpid(pid, &status, WNOHANG);

        if (ended == pid && !WIFSTOPPED(status))
            return status;
        if (ended == pid) /* ptrace(0): it is traced by us now, and has met a signal */
            kill(pid, SIGKILL);
        usleep(i < 50 ? 20 : 1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return status;
}

static void probe(const struct mode *mode, long nr)
{
    pid_t pid;
    int status;

    *report = (struct report){ 0 };
    pid = fork();
    if (pid < 0) {
        perror("syscall-probe: fork");
        exit(1);
    }
    if (pid == 0)
        attempt(mode, nr);
    status = wait_for(pid);
    if (report->returned && report->result < 0 && report->result > -4096)
        printf("%ld %s\n", nr, strerrorname_np((int)-report->result) ?: "E?");
    else if (report->returned)
        printf("%ld =%ld\n", nr, report->result);
    else if (WIFSIGNALED(status))
        printf("%ld SIG%s\n", nr, sigabbrev_np(WTERMSIG(status)) ?: "?");
    else
        printf("%ld exited\n", nr);
    fflush(stdout);
}

/* Without a filter some of these calls do something even with zeroes: sethostname(NULL, 0) takes
 * the host's name away. Without capabilities they do not. */
static void be_harmless(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };

    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0 && syscall(SYS_capset, &header, none)) {
        perror("syscall-probe: capset");
        exit(1);
    }
}

static const struct mode *find_mode(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (!strcmp(modes[i].name, name))
            return &modes[i];
    fprintf(stderr, "usage: syscall-probe [native|x32|i386] [first [last]]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    const struct mode *mode = find_mode(argc > 1 ? argv[1] : "native");
    long first = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    long last = argc > 3 ? strtol(argv[3], NULL, 10) : argc > 2 ? first : LAST;
    int input[2]; /* becomes descriptor 0: fchmod(0, 0) takes the rights off whatever that is */

    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED || pipe2(input, O_CLOEXEC) < 0 || dup2(input[0], 0) < 0) {
        perror("syscall-probe");
        return 1;
    }
    close(input[1]);
    if (fork() == 0) { /* in a session of its own: vhangup() and kill(0, 0) meet only itself */
        setsid();
        be_harmless();
        for (long nr = first; nr <= last; nr++)
            probe(mode, nr);
        _exit(0);
    }
    wait(NULL);
    return 0;
}
