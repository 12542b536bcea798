/* test_spawn.c - starting programs and learning how they ended. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/spawn.h"
#include "test.h"

static int null_fd, cwd;

static int start(char *const *paths, char *const *argv, struct child *c, struct err *err)
{
    static char *env[] = { NULL };
    struct spawn s = { .paths = paths,
                       .argv = argv,
                       .envp = env,
                       .root = -1,
                       .cwd = cwd,
                       .stdio = { null_fd, null_fd, null_fd } };

    return spawn_start(&s, c, err);
}

static void run_cases(void *arg)
{
    struct child c;
    struct err err = { 0 };
    char *sh[] = { (char[]){ "/nowhere/sh" }, (char[]){ "/bin/sh" }, NULL };
    char *missing[] = { (char[]){ "/nowhere/at/all" }, NULL };
    char *denied[] = { (char[]){ "/etc" }, NULL };
    char *exits[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "exit 7" }, NULL };
    char *sleeps[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "exec sleep 60" }, NULL };

    (void)arg;
    CHECK_INT(start(sh, exits, &c, &err), 0);
    CHECK_INT(child_wait(&c, co_in(5000)), 0);
    CHECK(WIFEXITED(c.status));
    CHECK_INT(WEXITSTATUS(c.status), 7);
    child_forget(&c);

    CHECK_INT(start(sh, sleeps, &c, &err), 0);
    CHECK_INT(child_wait(&c, co_in(20)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK_INT(getpgid(c.pid), c.pid);
    CHECK_INT(kill(-c.pid, SIGKILL), 0);
    CHECK_INT(child_wait(&c, co_in(5000)), 0);
    CHECK_INT(WTERMSIG(c.status), SIGKILL);
    child_forget(&c);

    CHECK_INT(start(missing, exits, &c, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(start(denied, exits, &c, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); /* what could not start left no zombie */
    CHECK_INT(errno, ECHILD);
}

static void reap_case(void *arg)
{
    struct child c;
    struct err err = { 0 };
    char *sh[] = { (char[]){ "/bin/sh" }, NULL };
    char *exits[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "exit 3" }, NULL };

    (void)arg;
    CHECK_INT(start(sh, exits, &c, &err), 0);
    CHECK_INT(co_sleep(co_in(100)), 0);
    spawn_reap_orphans(); /* pid 1's reaper comes first: the status is not lost */
    CHECK_INT(child_wait(&c, co_in(1000)), 0);
    CHECK_INT(WEXITSTATUS(c.status), 3);
    child_forget(&c);
}

static void in_loop(void (*fn)(void *))
{
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    cwd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    test_co(fn, NULL);
    close(null_fd);
    close(cwd);
}

/* A grandchild whose parent has ended: it has fallen to us. */
static pid_t make_orphan(void)
{
    int told[2];
    pid_t between, pid = 0;

    CHECK_INT(pipe(told), 0);
    between = fork();
    if (!between) {
        pid = fork();
        if (!pid) {
            close(told[0]);
            close(told[1]);
            pause();
        }
        _exit(write(told[1], &pid, sizeof(pid)) != sizeof(pid));
    }
    CHECK_INT(read(told[0], &pid, sizeof(pid)), sizeof(pid));
    CHECK_INT(waitpid(between, NULL, 0), between);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void adopt_cases(void *arg)
{
    struct rlimit was, low = { 0 };
    struct err err = { 0 };
    struct child c = { 0 };
    pid_t pid;

    (void)arg;
    CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    CHECK_INT(child_adopt(&c, getppid(), &err), -1); /* somebody else's */
    pid = make_orphan();
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    low.rlim_max = was.rlim_max;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &low), 0);
    CHECK_INT(child_adopt(&c, pid, &err), -1); /* no descriptor to be had: it lives all the same */
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
    CHECK_INT(child_adopt(&c, pid, &err), 0);
    CHECK_INT(child_wait(&c, co_in(20)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK_INT(kill(pid, SIGTERM), 0);
    CHECK_INT(child_wait(&c, co_in(5000)), 0);
    CHECK_INT(WTERMSIG(c.status), SIGTERM);
    child_forget(&c);
    CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

#ifndef CO_THREADS /* there poll() takes any descriptor */
static void blind_case(void *arg)
{
    struct child c;
    struct err err = { 0 };
    char *sh[] = { (char[]){ "/bin/sh" }, NULL };
    char *sleeps[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "sleep 0.2; exit 7" }, NULL };
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)arg;
    CHECK_INT(start(sh, sleeps, &c, &err), 0);
    co_close(c.pidfd);
    c.pidfd = nothing; /* epoll refuses it, as it does when there is no room */
    CHECK_INT(child_wait(&c, co_in(20)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK_INT(child_wait(&c, co_in(10000)), 0);
    CHECK_INT(WEXITSTATUS(c.status), 7);
    child_forget(&c);
}

TEST(an_end_that_epoll_cannot_tell_is_seen_all_the_same) { in_loop(blind_case); }
#endif

TEST(exit_codes_signals_and_failures_to_start_are_told_exactly) { in_loop(run_cases); }

TEST(a_status_that_the_reaper_collected_reaches_its_waiter) { in_loop(reap_case); }

TEST(a_process_that_has_fallen_to_us_is_waited_for_as_one_of_ours) { in_loop(adopt_cases); }
