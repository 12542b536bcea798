/* create.c - `cove create`: a sandbox that lives until its time is over or somebody ends it. */
#include <stdlib.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/limit_args.h"
#include "cli/remote.h"

struct create_options {
    struct remote_options remote;
    const char *template, *network, *label;
    struct limit_args limits;
    int64_t idle;
    struct args_list env, metadata, mounts, forwards;
    const char *on_expiry, *restart;
    bool strict, private, ping, auto_resume;
};

static const char *const expiries[] = { "kill", "pause", "pause-files", NULL };
static const char *const restarts[] = { "no", "always", NULL };
static const char *const networks[] = { "none", "open", NULL };

#define LIMIT(mem, name, type, unit, ...)                                                          \
    OPTION(struct create_options, limits.mem, name, type, .value = unit, __VA_ARGS__)

static const struct args_option create_options[] = {
    OPTION(struct create_options, template, "template", ARGS_TEXT, .letter = 't', .value = "NAME",
           .help = "what its files begin as (default base)"),
    LIMIT(timeout, "timeout", ARGS_DURATION, "TIME",
          .help = "end it after this long; 0: never (default 5m)"),
    OPTION(struct create_options, idle, "idle", ARGS_DURATION, .value = "TIME",
           .help = "end it when nothing has used it for so long"),
    OPTION(struct create_options, on_expiry, "on-expiry", ARGS_CHOICE, .value = "WHAT",
           .choices = expiries, .help = "kill, pause or pause-files then (default kill)"),
    OPTION(struct create_options, auto_resume, "auto-resume", ARGS_SWITCH,
           .help = "a request for one of its ports lets a paused one go on"),
    OPTION(struct create_options, restart, "restart", ARGS_CHOICE, .value = "WHEN",
           .choices = restarts,
           .help = "always: when its first process dies it is started again on its files "
                   "(default no)"),
    LIMIT(memory, "memory", ARGS_SIZE, "SIZE", .letter = 'm', .help = "memory (default 2G)"),
    LIMIT(cpus, "cpus", ARGS_CPUS, "N", .help = "processors' worth of time (default 2)"),
    LIMIT(disk, "disk", ARGS_SIZE, "SIZE", .help = "disk it may fill (default 10G)"),
    LIMIT(pids, "pids", ARGS_COUNT, "N", .help = "processes and threads (default 1024)"),
    LIMIT(files, "files", ARGS_COUNT, "N", .help = "open files per process (default 4096)"),
    LIMIT(io_weight, "io-weight", ARGS_COUNT, "N", .help = "share of disk time (default 100)"),
    LIMIT(log, "log", ARGS_SIZE, "SIZE", .help = "output kept while nobody reads (default 1M)"),
    OPTION(struct create_options, network, "network", ARGS_CHOICE, .letter = 'n', .value = "MODE",
           .choices = networks,
           .help = "none, or open: the internet without this machine and private networks "
                   "(default open)"),
    OPTION(struct create_options, env, "env", ARGS_TEXT, .letter = 'e', .value = "NAME[=VALUE]",
           .flags = ARGS_REPEAT, .help = "set a variable for all commands; without a value: ours"),
    OPTION(struct create_options, metadata, "metadata", ARGS_TEXT, .value = "KEY=VALUE",
           .flags = ARGS_REPEAT, .help = "remember this with it, to find it by"),
    OPTION(struct create_options, label, "label", ARGS_TEXT, .value = "TEXT",
           .help = "whom it is for, in your words"),
    OPTION(struct create_options, mounts, "mount", ARGS_TEXT, .letter = 'v',
           .value = "HOST:GUEST[:ro]", .flags = ARGS_REPEAT,
           .help = "show a directory of the server's machine inside, if it allows that"),
    OPTION(struct create_options, forwards, "forward", ARGS_TEXT, .letter = 'p',
           .value = "HOST:PORT[:public]", .flags = ARGS_REPEAT,
           .help =
               "let a port of the server's loopback (0: a free one) lead to one inside; public: "
               "also to one that runs code for everybody who connects, 8765 say"),
    OPTION(struct create_options, strict, "strict", ARGS_SWITCH,
           .help = "no capability, and none to be gained: sudo does not work"),
    OPTION(struct create_options, private, "private", ARGS_SWITCH,
           .help = "its ports answer only to who has its traffic token"),
    OPTION(struct create_options, ping, "ping", ARGS_SWITCH,
           .help = "let programs inside open ping sockets"),
    REMOTE_OPTIONS(struct create_options, "print all of it as a JSON object"),
    {}
};

/* ---- the request ---- */

static int put_pairs(struct buf *b, const char *name, const struct args_list *list, bool ours,
                     struct err *err)
{
    if (!list->n)
        return 0;
    json_key(b, name);
    json_open(b, '{');
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->items[i], *eq = strchr(text, '=');
        AUTO(freep) char *key = eq ? xstrndup(text, (size_t)(eq - text)) : xstrdup(text);

        if (!*key || (!eq && !ours))
            return err_set(err, ERR_INVALID, "--%s: '%.100s' is not NAME=VALUE", name, text);
        json_kv_str(b, key, eq ? eq + 1 : getenv(key) ? getenv(key) : "");
    }
    json_close(b, '}');
    return 0;
}

static int put_mount(struct buf *b, const char *text, struct err *err)
{
    struct str host, rest, guest, mode = { 0 };
    bool two = str_cut(str_of(text), ':', &host, &rest);
    bool three = two && str_cut(rest, ':', &guest, &mode);

    if (!two || !host.n || !guest.n || (three && !str_is(mode, "ro") && !str_is(mode, "rw")))
        return err_set(err, ERR_INVALID, "--mount: '%.150s' is not HOST:GUEST or HOST:GUEST:ro",
                       text);
    json_open(b, '{');
    json_key(b, "host");
    json_put_str(b, host);
    json_key(b, "guest");
    json_put_str(b, guest);
    json_kv_bool(b, "ro", three && str_is(mode, "ro"));
    json_close(b, '}');
    return 0;
}

static int put_forward(struct buf *b, const char *text, struct err *err)
{
    struct str host, rest, inner, mode;
    uint64_t outer, port;
    bool two = str_cut(str_of(text), ':', &host, &rest);
    bool three = str_cut(rest, ':', &inner, &mode);

    if (!two || str_u64(host, &outer) || str_u64(inner, &port) || outer > 65535 || !port ||
        port > 65535 || (three && !str_is(mode, "public")))
        return err_set(err, ERR_INVALID,
                       "--forward: '%.100s' is not HOST-PORT:PORT or HOST-PORT:PORT:public (try "
                       "8080:80)",
                       text);
    json_open(b, '{');
    json_kv_int(b, "host_port", (int64_t)outer);
    json_kv_int(b, "port", (int64_t)port);
    if (three)
        json_kv_bool(b, "public", true);
    json_close(b, '}');
    return 0;
}

static int put_list(struct buf *b, const char *name, const struct args_list *list,
                    int (*put)(struct buf *b, const char *text, struct err *err), struct err *err)
{
    if (!list->n)
        return 0;
    json_key(b, name);
    json_open(b, '[');
    for (size_t i = 0; i < list->n; i++)
        if (put(b, list->items[i], err))
            return -1;
    json_close(b, ']');
    return 0;
}

static int put_limits(struct buf *b, const struct args *a, const struct limit_args *l,
                      struct err *err)
{
    const struct {
        const char *option, *name;
        int64_t value;
    } rows[] = {
        { "memory", "memory_bytes", l->memory }, { "cpus", "cpu_milli", l->cpus },
        { "disk", "disk_bytes", l->disk },       { "pids", "pids", l->pids },
        { "files", "open_files", l->files },     { "io-weight", "io_weight", l->io_weight },
        { "log", "log_bytes", l->log },
    };

    json_key(b, "limits");
    json_open(b, '{');
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!args_given(a, rows[i].option))
            continue;
        if (!rows[i].value) /* in a request 0 stands for the default */
            return err_set(err, ERR_INVALID, "--%s: 0 is no limit", rows[i].option);
        json_kv_int(b, rows[i].name, rows[i].value);
    }
    json_close(b, '}');
    return 0;
}

static int put_request(const struct args *a, struct buf *b, struct err *err)
{
    const struct create_options *o = a->values;

    json_open(b, '{');
    json_kv_str(b, "template", o->template);
    json_kv_str(b, "network", o->network);
    json_kv_str(b, "label", o->label);
    if (args_given(a, "timeout"))
        json_kv_int(b, "timeout", o->limits.timeout);
    if (args_given(a, "idle"))
        json_kv_int(b, "idle", o->idle);
    json_kv_str(b, "on_expiry", o->on_expiry);
    json_kv_str(b, "restart", o->restart);
    if (o->auto_resume)
        json_kv_bool(b, "auto_resume", true);
    if (o->strict)
        json_kv_bool(b, "strict", true);
    if (o->private)
        json_kv_bool(b, "public", false);
    if (o->ping)
        json_kv_bool(b, "ping", true);
    if (put_pairs(b, "env", &o->env, true, err) ||
        put_pairs(b, "metadata", &o->metadata, false, err) ||
        put_list(b, "mounts", &o->mounts, put_mount, err) ||
        put_list(b, "forwards", &o->forwards, put_forward, err) ||
        put_limits(b, a, &o->limits, err))
        return -1;
    json_close(b, '}');
    return 0;
}

/* ---- the command ---- */

static int create(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf body = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    struct arena a = { 0 };
    struct remote_sandbox s = { 0 };
    int failed;

    if (put_request(r->args, &body, err) ||
        remote_call(r, "POST", "/v1/sandboxes", &body, &reply, err))
        return -1;
    failed = field_decode_text(remote_sandbox_fields, FIELDS_PROTO, buf_str(&reply), &a, &s, err);
    if (!failed && !s.id)
        failed = err_set(err, ERR_UPSTREAM, "the server's answer has no id");
    if (!failed && r->o->json)
        remote_print(&reply);
    else if (!failed)
        puts(s.id);
    arena_free(&a);
    return failed;
}

static int run_create(struct args *a)
{
    const struct create_options *o = a->values;

    return remote_command(a, &o->remote, create);
}

const struct command command_create = {
    .name = "create",
    .help = "make a sandbox and print its id",
    .about =
        "The sandbox runs on the server until its time is over, or until `cove kill`. Commands "
        "find the server by COVE_URL and COVE_API_KEY; without them they use the one that "
        "runs on this machine's data directory.",
    .options = create_options,
    .size = sizeof(struct create_options),
    .run = run_create,
};
