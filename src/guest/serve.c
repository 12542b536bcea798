/* serve.c - the whole life of a guest: pid 1 of every sandbox, or an ordinary process on any
 * machine.
 *
 * Listens, serves envd, reaps. SIGTERM and SIGINT end it: processes get SIGTERM, after
 * process.stop-ms SIGKILL. As pid 1 its end is the sandbox's end. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/setting.h"
#include "guest/auth.h"
#include "guest/options.h"
#include "guest/process.h"
#include "guest/serve.h"
#include "guest/services/doors.h"
#include "guest/services/run.h"
#include "io/sock.h"
#include "io/spawn.h"

static const struct route *const tables[] = {
    process_routes, system_routes, files_routes, filesystem_routes, watch_routes, doors_routes, NULL
};

static struct guest guest = { .root = -1,
                              .processes = LIST_INIT(guest.processes),
                              .watchers = LIST_INIT(guest.watchers) };
static struct httpd server = {
    .tables = tables, .ctx = &guest, .before = auth_before, .ahead = true, .cors = true
};

static void listen_on(void *arg) { httpd_listen(&server, (int)(intptr_t)arg); }

static void handle_signals(int fd)
{
    struct signalfd_siginfo info;

    for (;;) {
        if (co_read(fd, &info, sizeof(info), NEVER) != sizeof(info))
            return;
        if (info.ssi_signo == SIGCHLD) {
            if (guest.init)
                spawn_reap_orphans();
            continue;
        }
        log_info("ending", KV("signal", sigabbrev_np((int)info.ssi_signo)));
        return;
    }
}

static void stop(void)
{
    doors_stop();
    process_stop_all(&guest);
    if (getpid() == 1) /* what escaped our groups: everybody else in this pid namespace */
        kill(-1, SIGKILL);
    if (guest.init)
        spawn_reap_orphans();
}

static void trim_heap(void) { malloc_trim(0); }

static void run(void *arg)
{
    const struct options *o = arg;
    struct err err = { 0 };
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    for (size_t i = 0; i < o->nlisteners; i++)
        if (co_go(listen_on, (void *)(intptr_t)o->listeners[i], NULL))
            abort();
    if (o->services)
        doors_open(&guest, true);
    if (o->services && o->warm && doors_warm(o->warm, &err))
        log_warn("not warm", KV("service", o->warm), KV("error", err.msg));
    co_on_idle(trim_heap);
    options_announce(o);
    handle_signals(fd);
    stop();
    co_cancel_all();
    co_close(fd);
}

/* Whoever started us may have ignored some, and commands would inherit that. The raw call, because
 * glibc keeps two signals to itself. */
static void default_signals(void)
{
    static const unsigned long dfl[4]; /* the kernel's struct sigaction: handler, flags ... */
    unsigned long now[4];

    for (int i = 1; i <= 64; i++)
        if (!syscall(SYS_rt_sigaction, i, NULL, now, 8) && now[0] == (unsigned long)SIG_IGN)
            syscall(SYS_rt_sigaction, i, dfl, NULL, 8);
}

static void prepare_process(void)
{
    sigset_t set;

    default_signals();
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    umask(022);
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* large buffers go back to the kernel when freed */
}

int guest_main(int argc, char **argv)
{
    struct options o = { 0 };
    struct err err = { 0 };
    int r;

    prepare_process();
    if (argc > 1 && !strcmp(argv[1], "services"))
        return run_main(argc, argv);
    r = options_parse(&o, argc, argv, &guest, tables, &err);
    if (r < 0) {
        fprintf(stderr, "cove-guest: %s\n", err.msg);
        return 2;
    }
    if (r > 0)
        return 0; /* --help and its like have answered */
    /* A saved id of our own: prlimit(1, ...) of others with our user id is refused then. */
    if (getpid() == 1 && guest.privileged && syscall(SYS_setresuid, -1, -1, 65533))
        log_debug("no saved id of our own", KV("error", strerrordesc_np(errno)));
    if (guest.init && getpid() != 1)
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans come to us, as they come to pid 1 */
    if (co_run(run, &o)) {
        fprintf(stderr, "cove-guest: cannot start the event loop: %s\n", strerrordesc_np(errno));
        return 1;
    }
    return 0;
}
