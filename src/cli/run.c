/* run.c - `cove run`: a sandbox for one command, with everything of it gone when it returns.
 *
 * Uses the keeper that runs on this machine, or starts one of its own. */
#include "cli/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/network_allow.h"
#include "cli/settings.h"
#include "cli/terminal.h"
#include "jail/idmap.h"
#include "jail/ids.h"

static const char *const networks[] = { "none", "open", NULL };

#define LIMIT(mem, name, type, unit, ...)                                                          \
    OPTION(struct run_options, limits.mem, name, type, .value = unit, __VA_ARGS__)

static const struct args_option run_options[] = {
    OPTION(struct run_options, template, "template", ARGS_TEXT, .letter = 't', .value = "NAME",
           .def = "host", .help = "what its files begin as: a template, or a directory"),
    LIMIT(memory, "memory", ARGS_SIZE, "SIZE", .letter = 'm', .help = "memory (default 2G)"),
    LIMIT(cpus, "cpus", ARGS_CPUS, "N", .help = "processors' worth of time (default 2)"),
    LIMIT(disk, "disk", ARGS_SIZE, "SIZE", .help = "disk it may fill (default 10G)"),
    LIMIT(pids, "pids", ARGS_COUNT, "N", .help = "processes and threads (default 1024)"),
    LIMIT(files, "files", ARGS_COUNT, "N", .help = "open files per process (default 4096)"),
    LIMIT(io_weight, "io-weight", ARGS_COUNT, "N", .help = "share of disk time (default 100)"),
    LIMIT(log, "log", ARGS_SIZE, "SIZE", .help = "output kept while nobody reads (default 1M)"),
    LIMIT(timeout, "timeout", ARGS_DURATION, "TIME", .help = "end it after this long (default 1d)"),
    OPTION(struct run_options, network, "network", ARGS_CHOICE, .letter = 'n', .value = "MODE",
           .def = "none", .choices = networks,
           .help = "none, or open: the internet without this machine and private networks"),
    NETWORK_ALLOW_OPTION(struct run_options),
    OPTION(struct run_options, mounts, "mount", ARGS_TEXT, .letter = 'v',
           .value = "HOST:GUEST[:ro|:root|:group]", .flags = ARGS_REPEAT,
           .help = "show a directory or file of this machine inside"),
    OPTION(struct run_options, forwards, "forward", ARGS_TEXT, .letter = 'p', .value = "HOST:PORT",
           .flags = ARGS_REPEAT,
           .help = "let a port of this machine's loopback lead to one inside"),
    OPTION(struct run_options, env, "env", ARGS_TEXT, .letter = 'e', .value = "NAME[=VALUE]",
           .flags = ARGS_REPEAT, .help = "set a variable; without a value: ours"),
    OPTION(struct run_options, user, "user", ARGS_TEXT, .letter = 'u', .value = "NAME",
           .help = "run as (default user)"),
    OPTION(struct run_options, workdir, "workdir", ARGS_TEXT, .letter = 'w', .value = "DIR",
           .help = "run in (default: the user's home)"),
    OPTION(struct run_options, strict, "strict", ARGS_SWITCH,
           .help = "no capability, and none to be gained: sudo does not work"),
    OPTION(struct run_options, durable, "durable", ARGS_SWITCH,
           .help = "let fsync inside reach the disk"),
    OPTION(struct run_options, ping, "ping", ARGS_SWITCH,
           .help = "let programs inside open ping sockets"),
    OPTION(struct run_options, json, "json", ARGS_SWITCH,
           .help = "print output, exit code, times and limits as one JSON object"),
    OPTION(struct run_options, private, "private", ARGS_SWITCH,
           .help = "with a keeper of its own even if one runs"),
    OPTION(struct run_options, set, "set", ARGS_TEXT, .value = "NAME=VALUE", .flags = ARGS_REPEAT,
           .help = "change a bound of its own keeper, the network or the volume"),
    OPTION(struct run_options, data_dir, "data-dir", ARGS_DIR, .value = "DIR",
           .help = "where layers and templates are (default /var/lib/cove)"),
    OPTION(struct run_options, run_dir, "run-dir", ARGS_DIR, .value = "DIR",
           .help = "where a keeper may run (default /run/cove)"),
    {}
};

static const struct args_word run_words[] = {
    { "COMMAND", "program, looked for along the sandbox's PATH", ARGS_TEXT, NULL, 0 },
    { "ARGUMENT", "its arguments", ARGS_TEXT, NULL, ARGS_OPTIONAL | ARGS_MANY },
    {}
};

static const struct args_exit run_exits[] = {
    { "124", "the time limit was reached" },
    { "125", "the sandbox could not be made; a line on standard error says why" },
    { "126", "the command cannot be executed" },
    { "127", "there is no such command inside" },
    { "128+N", "the command was ended by signal N" },
    { "other", "the command's own" },
    {}
};

/* ---- the request ---- */

static int parse_mode(struct str modes, uint32_t *flags, struct err *err)
{
    static const struct {
        const char *word;
        uint32_t flag;
    } known[] = { { "rw", 0 },
                  { "ro", ORDER_MOUNT_READ_ONLY },
                  { "root", ORDER_MOUNT_ROOT },
                  { "group", ORDER_MOUNT_GROUP } };
    struct str word;
    size_t i;

    while (str_next(&modes, ',', &word)) {
        for (i = 0; i < ARRAY_LEN(known) && !str_is(word, known[i].word); i++)
            ;
        if (i == ARRAY_LEN(known))
            return err_set(err, ERR_INVALID, "--mount: '%.*s' is none of ro, rw, root, group",
                           STR_ARG(word));
        *flags |= known[i].flag;
    }
    return 0;
}

static int parse_mount(const char *text, struct order_mount *m, struct err *err)
{
    struct str host, rest, guest, modes;

    if (!str_cut(str_of(text), ':', &host, &rest))
        return err_set(err, ERR_INVALID, "--mount: '%s' is not HOST:GUEST or HOST:GUEST:ro", text);
    *m = (struct order_mount){ 0 };
    if (!str_cut(rest, ':', &guest, &modes))
        guest = rest;
    else if (parse_mode(modes, &m->flags, err))
        return -1;
    if (host.n >= sizeof(m->host) || guest.n >= sizeof(m->guest))
        return err_set(err, ERR_INVALID, "--mount: '%s': a path has at most %d bytes", text,
                       ORDER_PATH - 1);
    memcpy(m->host, host.p, host.n);
    memcpy(m->guest, guest.p, guest.n);
    return 0;
}

/* At a terminal somebody can still say more. Else its file system is not asked: it may be silent.
 */
static void warn_of_owner(const struct order_mount *m, const char *host)
{
    struct stat st;

    if (m->flags & (ORDER_MOUNT_READ_ONLY | ORDER_MOUNT_ROOT) || geteuid() || !isatty(2) ||
        stat(host, &st))
        return;
    if (!st.st_uid || !st.st_gid)
        fprintf(stderr, "cove run: %s belongs to root and can only be read inside (see :root)\n",
                host);
    else if (st.st_gid < IDS_PEOPLE && !(m->flags & ORDER_MOUNT_GROUP))
        fprintf(stderr,
                "cove run: %s belongs to group %u, one of the machine's own, and can only be read "
                "inside (see :group)\n",
                host, st.st_gid);
}

/* Relative paths are ours to make absolute: the keeper has another working directory. */
static int absolute_host(struct order_mount *m, struct err *err)
{
    AUTO(freep) char *full = realpath(m->host, NULL);

    if (!full)
        return err_sys(err, "--mount %s", m->host);
    warn_of_owner(m, full);
    if (strlen(full) >= sizeof(m->host))
        return err_set(err, ERR_INVALID, "--mount %s: the path is too long", m->host);
    memcpy(m->host, full, strlen(full) + 1);
    return 0;
}

static int fill_template(const struct run_options *o, struct order *c, struct err *err)
{
    AUTO(freep)
    char *full = strchr(o->template, '/') ? realpath(o->template, NULL) : xstrdup(o->template);

    if (!full)
        full = xstrdup(o->template); /* qemux/qemu is a name with a slash */
    if (strlen(full) >= sizeof(c->template))
        return err_set(err, ERR_INVALID, "--template: '%s' is too long", full);
    memcpy(c->template, full, strlen(full) + 1);
    return 0;
}

static int fill_request(const struct run *r, struct keep_request *q, struct err *err)
{
    const struct run_options *o = r->o;
    struct order *c = &q->u.create;
    struct limits l;

    q->verb = KEEP_CREATE;
    memcpy(q->id, r->id, sizeof(q->id));
    c->limits = limit_args_read(&o->limits);
    l = c->limits;
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) /* in a request 0 stands for the default */
        if (!limits_get(&l, id) && args_given(r->args, limit_rows[id].name))
            return err_set(err, ERR_INVALID, "--%s: 0 is no limit", limit_rows[id].name);
    c->network = strcmp(o->network, "open") ? ORDER_NET_NONE : ORDER_NET_OPEN;
    c->flags = ORDER_TIED | ORDER_EAGER | (o->strict ? ORDER_STRICT : 0) |
               (o->durable ? ORDER_DURABLE : 0) | (o->ping ? ORDER_PING : 0);
    if (o->mounts.n > ORDER_MOUNTS)
        return err_set(err, ERR_LIMIT, "--mount: more than %d", ORDER_MOUNTS);
    for (; c->nmounts < o->mounts.n; c->nmounts++)
        if (parse_mount(o->mounts.items[c->nmounts], &c->mounts[c->nmounts], err) ||
            absolute_host(&c->mounts[c->nmounts], err))
            return -1;
    return limits_fill(&l, NULL, err) || fill_template(o, c, err) ? -1 : 0;
}

static int run_all(struct run *r, struct run_session *s, const char *data_dir, const char *run_dir,
                   struct err *err)
{
    struct keep_request q = { 0 };
    struct keep_reply reply;
    size_t nfirst = 1;

    for (size_t i = 0; i < r->o->set.n; i++)
        if (setting_set(settings_of_keep, r->o->set.items[i], err))
            return err_in(err, "--set");
    if (fill_request(r, &q, err))
        return -1;
    for (size_t i = 0; i < r->o->forwards.n; i++)
        if (run_forward_open(r, r->o->forwards.items[i], err))
            return -1;
    if (run_keeper_find(r, data_dir, run_dir, err) || session_catch_signals(&r->session, err))
        return -1;
    if (keep_call(&r->keep, &q, &reply, &r->first, &nfirst, run_event, r, err))
        return -1;
    if (!nfirst)
        r->first = -1;
    r->state = reply.u.state;
    if (!r->keep.pid && r->state.pid > 0)
        r->pidfd = (int)syscall(SYS_pidfd_open, r->state.pid, 0);
    r->created_us = clock_us();
    if (co_run(run_session, s))
        return err_sys(err, "start the event loop");
    r->ended_us = clock_us();
    run_keeper_end(r);
    if (r->ended && r->reason == ENDED_FAILED)
        return err_set(err, r->why.code, "%s", r->why.msg);
    /* why it ended by itself says more than what broke for that; our own request says nothing */
    if (s->failed && !r->session.done && (!r->ended || r->reason == ENDED_BY_REQUEST))
        return err_set(err, s->err.code, "%s", s->err.msg);
    return 0;
}

static int run_run(struct args *a)
{
    struct run_options *o = a->values;
    AUTO(freep) char *data_dir = o->data_dir ? xstrdup(o->data_dir) : dirs_data();
    AUTO(freep) char *run_dir = o->run_dir ? xstrdup(o->run_dir) : dirs_run();
    struct run r = {
        .args = a, .o = o, .keep.fd = -1, .first = -1, .pidfd = -1, .started_us = clock_us()
    };
    struct run_session s = { .run = &r };
    struct err err = { 0 };
    uint32_t ignored;
    int failed, status;

    r.id[0] = 'r';
    id_random(r.id + 1, 19);
    r.rootless = geteuid() != 0;
    if (r.rootless && !o->user && idmap_ranges(&ignored, &ignored))
        o->user = "root"; /* the only id there is inside */
    r.session = (struct session){ .envd = &r.envd,
                                  .argv = a->words,
                                  .env = &o->env,
                                  .user = o->user,
                                  .workdir = o->workdir,
                                  .terminal = !o->json && terminal_wanted(),
                                  .capture = o->json };
    log_level = LOG_ERROR; /* the keeper's remarks are not for whoever runs a command */
    failed = args_environment(a, &err) || network_allow(&o->network_allow, &err) ||
             run_all(&r, &s, data_dir, run_dir, &err);
    keep_close(&r.keep);
    closep(&r.pidfd);
    free(r.place);
    if (r.mover)
        waitpid(r.mover, NULL, 0);
    r.gone_us = clock_us();
    status = run_status(&r, failed ? &err : NULL);
    run_report(&r, failed ? &err : NULL, status);
    session_finish(&r.session);
    return status;
}

const struct command command_run = {
    .name = "run",
    .help = "run a command in a new sandbox",
    .about =
        "Makes a sandbox with every limit in force, runs the command in it and removes it. Standard "
        "input, output and error are passed through; where input and output are a terminal the "
        "command has a terminal of its own. Signals are forwarded.",
    .options = run_options,
    .size = sizeof(struct run_options),
    .words = run_words,
    .exits = run_exits,
    .usage_status = SESSION_FAILED,
    .flags = ARGS_STOP,
    .run = run_run,
};
