/* orphans.c - see orphans.h. */
#include "guest/kernels/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "base/log.h"
#include "io/co.h"
#include "io/spawn.h"

static unsigned held;
static int signals = -1;

static void collect(void *arg)
{
    struct signalfd_siginfo info;

    (void)arg;
    while (co_read(signals, &info, sizeof(info), NEVER) == sizeof(info))
        if (!held)
            spawn_reap_orphans();
    co_close(TAKE(signals, -1));
}

/* The signal is blocked already: since before there were other threads, which would take it
 * (guest/serve.c). */
int orphans_open(struct err *err)
{
    sigset_t set;

    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) /* kernels are then started one by one */
        log_warn("not who orphans fall to: kernels cannot be forked");
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals < 0)
        return err_sys(err, "signalfd");
    if (co_go(collect, NULL, NULL))
        return err_set(err, ERR_INTERNAL, "no memory for a coroutine");
    return 0;
}

void orphans_hold(void) { held++; }

void orphans_release(void)
{
    if (!--held)
        spawn_reap_orphans();
}
