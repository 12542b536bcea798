/* doctor_ask.c - one row: a probe's child and its time limit.
 *
 * The child leads a process group of its own, so that Ctrl-C at the terminal ends doctor and not a
 * probe in the middle: it always comes to its own end, at the latest by its alarm. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/probe.h"

enum { PROBE_SECONDS = 5, DEEP_SECONDS = 30 };

static int limit_s(const struct doctor *d) { return d->deep ? DEEP_SECONDS : PROBE_SECONDS; }

static void probe_child(const struct doctor *d, struct finding *f)
{
    setpgid(0, 0);
    alarm((unsigned)limit_s(d)); /* for the case that nobody is left who would kill it */
    probe_say(f, DOCTOR_FAIL, "the probe ended without an answer");
    d->check->probe(d, f);
    _exit(0);
}

/* Waits for SIGCHLD, which is blocked, so no time is lost between two looks. The child stays a
 * zombie: as long as it is one, its number is nobody else's and its group can be killed safely. */
static bool wait_for_end(pid_t pid, int64_t deadline)
{
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        int64_t left = deadline - clock_ms();
        struct timespec t = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };

        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            return true;
        if (left <= 0)
            return false;
        sigtimedwait(&child, NULL, &t);
    }
}

static void watch_child(const struct doctor *d, pid_t pid, struct finding *f)
{
    bool ended = wait_for_end(pid, clock_ms() + limit_s(d) * 1000), late;
    int status = 0;

    kill(-pid, SIGKILL); /* a hung program of the probe's; mostly nobody is left in the group */
    /* What sleeps uninterruptibly survives even that for a while: then we go on without it. */
    if (ended || wait_for_end(pid, clock_ms() + 1000))
        waitpid(pid, &status, 0);
    late = !ended || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    if (late)
        probe_say(f, DOCTOR_FAIL, "no answer within %d s", limit_s(d));
    else if (WIFSIGNALED(status))
        probe_say(f, DOCTOR_FAIL, "the probe ended by SIG%s", sigabbrev_np(WTERMSIG(status)));
}

void doctor_ask(struct doctor *d, const struct doctor_check *check, struct finding *out)
{
    struct finding *f =
        /* cppcheck-suppress invalidFunctionArg ; what an anonymous mapping wants */
        mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned mode = d->root ? DOCTOR_ROOT : DOCTOR_ROOTLESS;
    sigset_t child, before;
    pid_t pid;

    if (f == MAP_FAILED) {
        probe_fail(out, "memory to share with a probe");
        return;
    }
    d->check = check;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    pid = fork();
    if (pid == 0)
        probe_child(d, f);
    else if (pid < 0)
        probe_fail(f, "fork");
    else
        watch_child(d, pid, f);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (check->after)
        check->after(d);
    *out = *f;
    munmap(f, sizeof(*f));
    /* Another process wrote it: the texts end where the arrays do, whatever it wrote. */
    out->seen[sizeof(out->seen) - 1] = out->fix[sizeof(out->fix) - 1] = 0;
    if (out->status == DOCTOR_FAIL && !(check->need & mode))
        out->status = DOCTOR_WARN;
    if (out->status == DOCTOR_OK)
        out->fix[0] = 0;
}
