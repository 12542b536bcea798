/* spawn.c - see spawn.h. Between clone and exec only system calls: other threads may hold locks. */
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

struct spawn_setup spawn_setup = { .oom_fd = -1 };

static struct list children = LIST_INIT(children);

struct failure { /* what a child that could not start tells its parent */
    int step, error;
};

enum { BRIEF_MS = 2, LOOK_MS = 100 };

enum step { STEP_STDIO, STEP_SESSION, STEP_ROOT, STEP_IDS, STEP_CWD, STEP_EXEC };

static const char *const step_names[] = {
    [STEP_STDIO] = "set up standard streams",   [STEP_SESSION] = "start a session",
    [STEP_ROOT] = "enter the root directory",   [STEP_IDS] = "become the user",
    [STEP_CWD] = "enter the working directory", [STEP_EXEC] = "execute",
};

static _Noreturn void give_up(int report, enum step step)
{
    struct failure f = { step, errno };

    if (write(report, &f, sizeof(f)) < 0)
        _exit(126);
    _exit(127);
}

/* Out of the way of 0, 1, 2 and those passed on, where dup2 puts them. */
static int above(int fd, int count) { return fd >= count ? fd : fcntl(fd, F_DUPFD_CLOEXEC, count); }

static int place_stdio(const struct spawn *s, int *report, int *program)
{
    int high[3 + SPAWN_PASS], count = 3 + (int)s->npass;

    *report = above(*report, count);
    *program = s->program ? above(s->program, count) : 0;
    for (int i = 0; i < count; i++) {
        high[i] = above(i < 3 ? s->stdio[i] : s->pass[i - 3], count);
        if (high[i] < 0)
            return -1;
    }
    for (int i = 0; i < count; i++)
        if (dup2(high[i], i) < 0)
            return -1;
    return *report < 0 || *program < 0 ? -1 : 0;
}

static void default_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    sigaction(SIGPIPE, &dfl, NULL);
    sigemptyset(&none);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
}

/* Commands die before the guest does when memory runs out. An untraceable pid 1 cannot open the
 * file and neither can its children before they execute, so it was given its own one open: raised
 * for the moment of the fork, the score is inherited. */
static void set_oom_score(int fd, const char *score)
{
    if (fd >= 0 && pwrite(fd, score, strlen(score), 0) < 0)
        errno = 0; /* only a preference */
}

static void raise_oom_score(void)
{
    int fd;

    if (spawn_setup.oom_fd >= 0)
        return;
    fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    set_oom_score(fd, "500");
    if (fd >= 0)
        close(fd);
}

static int drop_everything(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capset, &header, data) ? -1 : 0;
}

/* The raw calls: glibc's own would signal threads that this copy does not have. */
static int become(const struct spawn *s)
{
    bool same = s->uid == getuid() && s->gid == getgid();

    /* a user namespace with one id refuses setgroups: who stays himself keeps his groups then */
    if (syscall(SYS_setgroups, s->ngroups, s->groups) && !(same && errno == EPERM))
        return -1;
    return !same && (syscall(SYS_setresgid, s->gid, s->gid, s->gid) ||
                     syscall(SYS_setresuid, s->uid, s->uid, s->uid));
}

/* The end that is told is that of the thread which made the child, so it has to be the main one. */
static void die_with(pid_t parent, int report)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent)
        give_up(report, STEP_SESSION);
}

static _Noreturn void run_child(const struct spawn *s, int report, pid_t parent)
{
    int error = ENOENT, program;

    default_signals();
    if (parent)
        die_with(parent, report);
    raise_oom_score();
    umask(022);
    if (place_stdio(s, &report, &program))
        give_up(report, STEP_STDIO);
    if (setsid() < 0 || (s->tty && ioctl(0, TIOCSCTTY, 0)))
        give_up(report, STEP_SESSION);
    if (s->root >= 0 && (fchdir(s->root) || chroot(".")))
        give_up(report, STEP_ROOT);
    if (s->set_ids && become(s))
        give_up(report, STEP_IDS);
    if (fchdir(s->cwd))
        give_up(report, STEP_CWD);
    if (spawn_setup.strict && drop_everything())
        give_up(report, STEP_IDS);
    close_range(3 + (unsigned)s->npass, ~0U, CLOSE_RANGE_CLOEXEC);
    if (program) {
        syscall(SYS_execveat, program, "", s->argv, s->envp, AT_EMPTY_PATH);
        give_up(report, STEP_EXEC);
    }
    for (char *const *path = s->paths; *path; path++) {
        execve(*path, s->argv, s->envp);
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno; /* it is there, but not for us: worth more than "not found" */
    }
    errno = error;
    give_up(report, STEP_EXEC);
}

static int report_failure(const struct spawn *s, struct child *c, const struct failure *f,
                          struct err *err)
{
    if (!c->reaped)
        waitpid(c->pid, NULL, 0); /* it is past its last instruction */
    child_forget(c);
    errno = f->error;
    err_sys(err, "cannot %s%s%s", step_names[f->step], f->step == STEP_EXEC ? " " : "",
            f->step == STEP_EXEC ? s->argv[0] : "");
    return -1;
}

/* Did the program start? 0, or -1 with what the child said. End of file: exec closed its end. */
static int read_report(int fd, struct child *c, struct failure *f)
{
    ssize_t n;

    while ((n = read(fd, f, sizeof(*f))) < 0) {
        if (errno == EINTR || (errno == EAGAIN && !co_wait(fd, CO_IN, NEVER)))
            continue;
        *f = (struct failure){ STEP_EXEC, errno };
        if (!c->reaped)
            kill(c->pid, SIGKILL); /* cancelled between fork and exec: nothing may be left */
        return -1;
    }
    return n ? -1 : 0;
}

int spawn_start(const struct spawn *s, struct child *out, struct err *err)
{
    struct failure f;
    int report[2], pidfd = -1, failed;
    pid_t pid, us = s->die_with_us && gettid() == getpid() ? getpid() : 0;

    if (pipe2(report, O_CLOEXEC | O_NONBLOCK))
        return err_sys(err, "pipe");
    set_oom_score(spawn_setup.oom_fd, "500");
    pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &pidfd, NULL, 0);
    if (pid == 0)
        run_child(s, report[1], us);
    set_oom_score(spawn_setup.oom_fd, "0");
    close(report[1]);
    if (pid < 0) {
        close(report[0]);
        return err_sys(err, "fork");
    }
    *out = (struct child){ .pid = pid, .pidfd = pidfd };
    co_cond_init(&out->ended);
    list_push(&children, &out->all);
    /* A program that ends at once is collected here, and its start and end are one event for us and
     * one for the client; for any other the news of its start comes a moment later. */
    child_wait(out, co_in(BRIEF_MS));
    failed = read_report(report[0], out, &f);
    co_close(report[0]);
    return failed ? report_failure(s, out, &f, err) : 0;
}

int child_adopt(struct child *c, pid_t pid, struct err *err)
{
    siginfo_t info;
    int pidfd;

    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT))
        return err_sys(err, "process %d", pid);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return err_sys(err, "pidfd of process %d", pid);
    *c = (struct child){ .pid = pid, .pidfd = pidfd };
    co_cond_init(&c->ended);
    list_push(&children, &c->all);
    return 0;
}

/* Parks until there may be something to see. Where its end cannot be told, for want of memory or of
 * room in epoll, a look now and then does. */
static int wait_change(struct child *c, int64_t until)
{
    if (co_cond_wait_fd(&c->ended, c->pidfd, CO_IN, until) >= 0)
        return 0;
    if (errno == ETIMEDOUT || errno == ECANCELED)
        return -1;
    if (co_sleep(MIN(until, co_in(LOOK_MS))))
        return -1;
    errno = ETIMEDOUT;
    return co_now() < until ? 0 : -1;
}

int child_wait(struct child *c, int64_t until)
{
    while (!c->reaped) {
        pid_t r = waitpid(c->pid, &c->status, WNOHANG);

        if (r == c->pid || (r < 0 && errno == ECHILD)) /* collected by somebody: it has ended */
            c->reaped = true;
        else if (wait_change(c, until))
            return -1;
    }
    co_close(TAKE(c->pidfd, -1)); /* an ended child may be remembered for long, and by thousands */
    return 0;
}

void child_forget(struct child *c)
{
    co_close(TAKE(c->pidfd, -1));
    list_remove(&c->all);
}

void spawn_reap_orphans(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *c;

        list_each(c, &children, all)
            if (c->pid == pid && !c->reaped) {
                c->status = status;
                c->reaped = true;
                co_cond_wake(&c->ended);
            }
    }
}
