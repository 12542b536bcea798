/* keeper_rig.h - a keeper for a test program, which can be killed and started again.
 *
 * A keeper must not be forked from a program with a loop under way, so a nurse is forked first: it
 * starts keepers, kills them and adopts their orphans, as the monitor does, and tidies up when the
 * test program has ended, well or not. */
#ifndef TESTS_KEEPER_RIG_H
#define TESTS_KEEPER_RIG_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "jail/rmtree.h"
#include "jail/volume.h"
#include "keep/keep.h"
#include "test.h"

enum rig_word { RIG_START = 's', RIG_KILL = 'k' };

static struct keeper_rig {
    char dir[64], data[80], run[80], place[100];
    struct keep_owner whose;
    int nurse; /* a socket */
    pid_t pid, owner;
} keeper_rig = { .nurse = -1 };

static pid_t keeper_rig_fork(int sock)
{
    pid_t pid = fork();

    if (!pid) {
        struct keep_options o = { .data_dir = keeper_rig.data,
                                  .run_dir = keeper_rig.run,
                                  .socket = -1 };
        struct err err = { 0 };

        close(sock);
        signal(SIGCHLD, SIG_DFL);
        if (!keep_run(&o, &err))
            _exit(0);
        fprintf(stderr, "# keeper: %s\n", err.msg);
        _exit(1);
    }
    return pid;
}

static void keeper_rig_kill_all(void)
{
    struct keep k;
    struct keep_request q = { .verb = KEEP_LIST };
    struct keep_reply list, reply;
    struct err err = { 0 };

    if (keep_connect(&k, keeper_rig.place, &keeper_rig.whose, &err))
        return;
    while (!keep_call(&k, &q, &list, NULL, NULL, NULL, NULL, &err) && list.u.list.count)
        for (uint32_t i = 0; i < list.u.list.count; i++) {
            struct keep_request end = { .verb = KEEP_KILL };

            memcpy(end.id, list.u.list.ids[i], sizeof(end.id));
            (void)!keep_call(&k, &end, &reply, NULL, NULL, NULL, NULL, &err);
        }
    keep_close(&k);
}

static void keeper_rig_stop(pid_t keeper, int signo)
{
    if (keeper > 0)
        kill(keeper, signo);
    while (keeper > 0 && !kill(keeper, 0))
        usleep(1000);
}

/* The test has ended, well or not: no sandbox, mount, loop device or file stays. */
static void keeper_rig_tidy(pid_t keeper)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = { 0 };

    keeper_rig_kill_all();
    keeper_rig_stop(keeper, SIGTERM);
    for (int i = 0; i < 100 && volume_detach(keeper_rig.data, &err); i++)
        usleep(50000);
    for (int i = 0; i < 100 && rmtree(tmp, keeper_rig.dir + strlen("/tmp/")); i++)
        usleep(50000);
}

static _Noreturn void keeper_rig_nurse(int sock)
{
    pid_t keeper = 0;
    char word;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN); /* nobody's exit status matters here, orphans' least of all */
    log_level = LOG_OFF;
    while (read(sock, &word, 1) == 1) {
        if (word == RIG_START)
            keeper = keeper_rig_fork(sock);
        else
            keeper_rig_stop(keeper, SIGKILL);
        if (write(sock, &word, 1) != 1)
            break;
    }
    keeper_rig_tidy(keeper);
    _exit(0);
}

static void keeper_rig_say(enum rig_word word)
{
    char c = (char)word;

    CHECK_INT(write(keeper_rig.nurse, &c, 1), 1);
    CHECK_INT(read(keeper_rig.nurse, &c, 1), 1);
}

static void keeper_rig_end(void)
{
    if (getpid() != keeper_rig.owner)
        return;
    close(keeper_rig.nurse);
    waitpid(keeper_rig.pid, NULL, 0);
}

/* The run directory; NULL: why not was printed. */
static const char *keeper_rig_start(void)
{
    int pair[2];
    pid_t pid;
    struct err err = { 0 };

    if (keeper_rig.nurse >= 0)
        return keeper_rig.run;
    if (geteuid()) {
        printf("# skipped: a shared keeper needs root\n");
        return NULL;
    }
    snprintf(keeper_rig.dir, sizeof(keeper_rig.dir), "/tmp/cove-provider-XXXXXX");
    CHECK(mkdtemp(keeper_rig.dir));
    snprintf(keeper_rig.data, sizeof(keeper_rig.data), "%s/data", keeper_rig.dir);
    snprintf(keeper_rig.run, sizeof(keeper_rig.run), "%s/run", keeper_rig.dir);
    CHECK_INT(mkdir(keeper_rig.data, 0700), 0);
    CHECK_INT(keep_owner_make(keeper_rig.data, keeper_rig.run, &keeper_rig.whose, &err), 0);
    snprintf(keeper_rig.place, sizeof(keeper_rig.place), "%s/%s", keeper_rig.run,
             keeper_rig.whose.identity);
    volume_options.initial_bytes = 256 << 20;
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        close(pair[0]);
        keeper_rig_nurse(pair[1]);
    }
    CHECK(pid > 0);
    close(pair[1]);
    keeper_rig.nurse = pair[0];
    keeper_rig.pid = pid;
    keeper_rig.owner = getpid();
    atexit(keeper_rig_end);
    keeper_rig_say(RIG_START);
    return keeper_rig.run;
}

#endif
