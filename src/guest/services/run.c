/* run.c - see run.h.
 *
 *   cove-guest services             holds all ports and starts what is used: the documents'
 * start.sh cove-guest services NAME ...    the same for some of them
 *   ... services NAME --doors       the service itself, with its sockets from doors.c
 *
 * The last form says one line on descriptor 1, "ready" or why not, and logs into the shared
 * directory. SIGTERM ends a service; SIGUSR1 also makes it give up its ports. */
#include "guest/services/run.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/kernels.h"
#include "guest/path.h"
#include "guest/services/doors.h"
#include "guest/services/environment.h"
#include "guest/services/logfile.h"
#include "guest/services/service.h"
#include "guest/services/shared.h"
#include "guest/user.h"
#include "io/sock.h"
#include "model/door.h"

extern char **environ;

enum { LOOK_MIN_MS = 25, LOOK_MAX_MS = 15000 };

struct run {
    const struct service *service; /* NULL: all, by hand */
    struct buf names;              /* by hand: those wanted; empty: all */
    bool inherited, sandbox, keep;
    int status;
};

/* Before there is a second thread: one that does not block them would be ended by them. */
static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
    sigprocmask(SIG_BLOCK, set, NULL);
}

static int open_signals(void)
{
    sigset_t set;

    block_signals(&set);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* ---- one service in its own process ---- */

static struct service_context context;
static struct co_cond idle;

static int64_t asked(void)
{
    int64_t n = 0;

    for (int i = 0; i < SERVICE_PORTS; i++)
        n += context.server[i] ? context.server[i]->requests : 0;
    return n;
}

static bool in_use(void)
{
    for (int i = 0; i < SERVICE_PORTS; i++)
        if (context.server[i] && context.server[i]->conns)
            return true;
    return context.service->busy && context.service->busy();
}

static void watch_idle(void *arg)
{
    int64_t look = MIN(service_limits.idle_ms / 4, (int64_t)LOOK_MAX_MS);
    int64_t last = co_now(), seen = 0;

    while (!co_sleep(co_in(MAX(look, (int64_t)LOOK_MIN_MS)))) {
        if (in_use() || asked() != seen) {
            seen = asked();
            last = co_now();
        } else if (co_now() - last >= service_limits.idle_ms) {
            *(bool *)arg = true;
            co_cond_wake(&idle);
        }
    }
}

static void serve_port(void *arg)
{
    int i = (int)(intptr_t)arg;

    httpd_listen(context.server[i], SERVICE_LISTENERS + i);
}

static void say(const char *line)
{
    int nowhere;

    if (dprintf(STDOUT_FILENO, "%s\n", line) < 0)
        log_warn("nobody waits to hear that we are ready");
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0)
        close(nowhere);
}

/* The shared directory may be missing, full or somebody else's: then there is no log. */
static void open_log(const struct service *s)
{
    const char *name = service_env(s->log_variable, s->log_file);
    AUTO(closep) int dir = -1;
    struct err err = { 0 };
    char *path = NULL;

    dir = shared_open(context.sandbox, &path, &err);
    context.shared_dir = dir < 0 ? "/tmp" : path;
    logfile_take_log(dir < 0 ? NULL : logfile_open(dir, name, &err));
    if (err.code)
        log_warn("no log", KV("error", err.msg));
}

static int bring_up(const struct service *s, struct err *err)
{
    for (int i = 0; i < SERVICE_PORTS && s->ports[i].name; i++) {
        struct addr a = { .len = sizeof(a.sa) };
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a.sa;

        if (getsockname(SERVICE_LISTENERS + i, (struct sockaddr *)&a.sa, &a.len))
            return err_sys(err, "services %s --doors: descriptor %d", s->name,
                           SERVICE_LISTENERS + i);
        fcntl(SERVICE_LISTENERS + i, F_SETFD, FD_CLOEXEC);
        context.port[i] = ntohs(in->sin_port); /* at the same place for both families */
    }
    return s->start(&context, err);
}

/* Nothing parks between the last look and the end: a client that comes then is still in the
 * kernel's queue, and the service is started again for it. */
static void wait_for_end(struct run *r)
{
    AUTO(co_closep) int signals = open_signals();
    struct signalfd_siginfo info;
    bool idle_now = false;
    int caught = 0;

    co_cond_init(&idle);
    if (signals < 0 || (!r->keep && co_go(watch_idle, &idle_now, NULL)))
        return;
    while (!caught && !(idle_now && !in_use())) {
        idle_now = false;
        if (read(signals, &info, sizeof(info)) == sizeof(info))
            caught = (int)info.ssi_signo;
        else if (co_cond_wait_fd(&idle, signals, CO_IN, NEVER) < 0)
            break;
    }
    if (caught == SIGUSR1)
        r->status = SERVICE_YIELD;
    log_info("ending", KV("service", r->service->name),
             KV("why", caught ? sigabbrev_np(caught) : "idle"));
    co_cancel_all(); /* the watcher's argument lives here */
}

static void run_service(void *arg)
{
    struct run *r = arg;
    const struct service *s = r->service;
    struct err err = { 0 };

    context = (struct service_context){ .service = s, .sandbox = r->sandbox, .keep = r->keep };
    open_log(s);
    if (bring_up(s, &err)) {
        log_error("cannot start", KV("service", s->name), KV("error", err.msg));
        say(err.msg);
        r->status = 1;
        co_cancel_all();
        return;
    }
    log_info("serving", KV("service", s->name), KVI("port", context.port[0]),
             KV("version", COVE_VERSION));
    for (intptr_t i = 0; i < SERVICE_PORTS && s->ports[i].name; i++)
        if (co_go(serve_port, (void *)i, NULL))
            abort();
    environment_watch(s->environment);
    say("ready");
    wait_for_end(r);
    if (s->stop)
        s->stop();
    co_cancel_all();
}

/* ---- all of them, by hand ---- */

static struct guest place = { .root = -1,
                              .processes = LIST_INIT(place.processes),
                              .watchers = LIST_INIT(place.watchers) };

static void take_environment(const struct buf *names)
{
    size_t n = 0;

    while (environ[n])
        n++;
    place.env.items = xcalloc(n + 1, sizeof(*place.env.items));
    for (char **e = environ; *e; e++) {
        char *eq = strchr(*e, '=');

        if (eq && eq != *e)
            place.env.items[place.env.n++] =
                (struct map_item){ xstrndup(*e, (size_t)(eq - *e)), xstrdup(eq + 1) };
    }
    if (names->len)
        place.env.items[place.env.n++] =
            (struct map_item){ xstrdup(DOOR_SERVICES_VARIABLE), xstrdup(buf_cstr(names)) };
}

static void run_all(void *arg)
{
    struct run *r = arg;
    AUTO(co_closep) int signals = open_signals();
    AUTO(buf_free) struct buf status = { 0 };
    struct signalfd_siginfo info;

    doors_open(&place, false);
    doors_put_status(&status);
    log_info("services", KV("status", buf_cstr(&status)), KV("version", COVE_VERSION));
    if (!doors_held()) {
        fprintf(stderr, "cove-guest services: no port could be had: %s\n", buf_cstr(&status));
        r->status = 1;
    }
    while (!r->status && co_read(signals, &info, sizeof(info), NEVER) == sizeof(info))
        if (info.ssi_signo != SIGUSR1)
            break;
    doors_stop();
    co_cancel_all();
}

static int prepare_place(const struct run *r, struct err *err)
{
    place.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place.root < 0)
        return err_sys(err, "/");
    place.default_user = user_default(&place);
    take_environment(&r->names);
    return 0;
}

/* ---- the command line ---- */

static void print_services_help(void)
{
    static const struct setting *const tables[] = { service_settings, kernels_settings, NULL };
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, "usage: cove-guest services [NAME ...] [--set NAME=VALUE]\n\n"
                 "Holds the services' ports and starts each service at its first connection.\n\n");
    for (const struct service *const *s = services; *s; s++) {
        buf_printf(&b, "  %-10s", (*s)->name);
        for (int i = 0; i < SERVICE_PORTS && (*s)->ports[i].name; i++)
            buf_printf(&b, " port %d (%s),", (*s)->ports[i].port,
                       (*s)->ports[i].port_variable ? (*s)->ports[i].port_variable : "fixed");
        buf_printf(&b, " %s\n", (*s)->help);
    }
    buf_puts(&b, "\nlimits for --set, with their values:\n");
    setting_print(tables, &b);
    fputs(buf_cstr(&b), stdout);
}

/* 0 go on, 1 answered, -1 with err. */
static int parse(struct run *r, int argc, char **argv, struct err *err)
{
    static const struct setting *const tables[] = { service_settings, kernels_settings,
                                                    http_settings, NULL };

    for (int i = 2; i < argc; i++) {
        const struct service *s = service_find(argv[i]);

        if (!strcmp(argv[i], "--help")) {
            print_services_help();
            return 1;
        } else if (!strcmp(argv[i], "--doors")) {
            r->inherited = true;
        } else if (!strcmp(argv[i], "--in-sandbox")) {
            r->sandbox = true;
        } else if (!strcmp(argv[i], "--keep")) {
            r->keep = true;
        } else if (!strcmp(argv[i], "--set") && i + 1 < argc) {
            if (setting_set(tables, argv[++i], err))
                return -1;
        } else if (s) {
            r->service = s;
            buf_printf(&r->names, "%s%s", r->names.len ? "," : "", s->name);
        } else {
            return err_set(err, ERR_INVALID, "services: '%.64s' is neither a service nor an option",
                           argv[i]);
        }
    }
    if (r->inherited && !r->service)
        return err_set(err, ERR_INVALID, "services --doors: name the service");
    return 0;
}

int run_main(int argc, char **argv)
{
    struct run r = { 0 };
    struct err err = { 0 };
    int got = parse(&r, argc, argv, &err);
    sigset_t set;

    block_signals(&set);
    if (!got && !r.inherited)
        got = prepare_place(&r, &err);
    if (got < 0) {
        fprintf(stderr, "cove-guest: %s\n", err.msg);
        return 2;
    }
    if (!got && co_run(r.inherited ? run_service : run_all, &r))
        r.status = 1;
    buf_free(&r.names);
    return r.status;
}
