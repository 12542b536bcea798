/* logs.c - `cove logs`: a sandbox's life as lines, or the output of one of its processes.
 *
 * The guest keeps the newest output of every process it started for as long as the process runs, so
 * what `cove exec --detach` left behind can be read later. */
#include <unistd.h>

#include "cli/commands.h"
#include "cli/events.h"
#include "cli/terminal.h"

static const struct args_option logs_options[] = {
    OPTION(struct events_options, follow, "follow", ARGS_SWITCH, .letter = 'f',
           .help = "wait for more, until the sandbox or the process has ended"),
    OPTION(struct events_options, tail, "tail", ARGS_COUNT, .value = "N", .min = 1,
           .help = "begin with the last N lines of the log (default: all)"),
    REMOTE_OPTIONS(struct events_options, "print a JSON object for each, one a line"),
    {}
};

static const struct args_word logs_words[] = {
    { .name = "ID", .help = "the sandbox" },
    { .name = "PID", .help = "a process in it: its output instead", .flags = ARGS_OPTIONAL },
    {}
};

static void print(const struct events_event *e)
{
    printf("%s %s: %s%s%s%s\n", e->at, e->kind, e->text, *e->actor ? " (" : "", e->actor,
           *e->actor ? ")" : "");
}

/* ---- a process ---- */

static void print_json(const struct envd_event *e)
{
    static const char *const names[] = {
        [ENVD_STDOUT] = "stdout", [ENVD_STDERR] = "stderr", [ENVD_PTY] = "pty"
    };
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    if (e->kind == ENVD_END) {
        json_kv_int(&b, "exit_code", e->exited ? e->exit_code : 128 + e->signal);
    } else if (e->kind == ENVD_LOST) {
        json_kv_int(&b, "lost_bytes", e->lost);
    } else {
        json_key(&b, names[e->kind]);
        json_put_str(&b, e->data);
    }
    json_close(&b, '}');
    remote_print(&b);
    fflush(stdout);
}

/* 1: nobody reads us any more */
static int show(const struct remote *r, const struct envd_event *e)
{
    if (e->kind == ENVD_START)
        return 0;
    if (r->o->json) {
        print_json(e);
        return ferror(stdout) ? 1 : 0;
    }
    if (e->kind == ENVD_LOST)
        fprintf(stderr, "%s: %lld bytes before this are not kept any more\n", r->args->path,
                (long long)e->lost);
    else if (e->kind != ENVD_END)
        return terminal_write(e->kind == ENVD_STDERR ? 2 : 1, e->data.p, e->data.n) ? 1 : 0;
    return 0;
}

/* Without --follow: what is there now. The guest sends that first and then looks at the time. */
static int follow_process(struct remote *r, struct remote_guest *g, int64_t pid, struct err *err)
{
    const struct events_options *o = r->args->values;
    AUTO(envd_closep)
    struct envd_stream *s = envd_connect(&g->envd, pid, o->follow ? 0 : 1, err);
    struct envd_event e;
    int more = s ? 1 : -1;

    while (more > 0 && (more = envd_next(s, &e, err)) > 0)
        if (show(r, &e))
            return 0;
    if (more < 0 && !o->follow && err->code == ERR_TIMEOUT)
        return 0;
    if (more < 0 && err->code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND,
                       "no process %lld runs in sandbox %s (it has ended, or never was)",
                       (long long)pid, g->sandbox.id);
    return more;
}

static int logs(struct remote *r, struct err *err)
{
    const char *id = r->args->words[0];
    struct remote_guest g;
    uint64_t pid;
    int failed;

    if (r->args->n < 2)
        return events_read(r, id, r->args->values, print, err);
    if (str_u64(str_of(r->args->words[1]), &pid) || !pid || pid > INT32_MAX)
        return err_set(err, ERR_INVALID, "'%.60s' is no process id", r->args->words[1]);
    failed = remote_guest_open(r, id, &g, err) || follow_process(r, &g, (int64_t)pid, err);
    if (failed && (err->code == ERR_UPSTREAM || err->code == ERR_GONE))
        remote_guest_explain(r, &g, err);
    remote_guest_close(&g);
    return failed ? -1 : 0;
}

static int run_logs(struct args *a)
{
    const struct events_options *o = a->values;

    return remote_command(a, &o->remote, logs);
}

const struct command command_logs = {
    .name = "logs",
    .help = "a sandbox's log, or the output of a process in it",
    .about = "Without PID: what happened to the sandbox, one line each. With the pid of a running "
             "process (`cove exec --detach` prints it): the output of it that is kept; how much "
             "that is, `cove create --log` decides.",
    .options = logs_options,
    .size = sizeof(struct events_options),
    .words = logs_words,
    .run = run_logs,
};
