/* exec.c - `cove exec` and `cove shell`: a command in a sandbox that is there already. */
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/remote.h"
#include "cli/session.h"
#include "cli/terminal.h"

struct exec_options {
    struct remote_options remote;
    const char *user, *workdir;
    struct args_list env;
    bool tty, no_tty, detach;
};

#define EXEC_OPTIONS                                                                               \
    OPTION(struct exec_options, user, "user", ARGS_TEXT, .letter = 'u', .value = "NAME",           \
           .help = "run as (default user)"),                                                       \
        OPTION(struct exec_options, workdir, "workdir", ARGS_TEXT, .letter = 'w', .value = "DIR",  \
               .help = "run in (default: the user's home)"),                                       \
        OPTION(struct exec_options, env, "env", ARGS_TEXT, .letter = 'e', .value = "NAME[=VALUE]", \
               .flags = ARGS_REPEAT, .help = "set a variable; without a value: ours")

static const struct args_option exec_options[] = {
    EXEC_OPTIONS,
    OPTION(struct exec_options, tty, "tty", ARGS_SWITCH, .letter = 't',
           .help = "give it a terminal even if ours is none (default: if ours is one)"),
    OPTION(struct exec_options, no_tty, "no-tty", ARGS_SWITCH, .letter = 'T',
           .help = "give it none"),
    OPTION(struct exec_options, detach, "detach", ARGS_SWITCH, .letter = 'd',
           .help = "print its pid and leave; `cove logs ID PID` shows its output"),
    REMOTE_OPTIONS(struct exec_options, "print output, exit code and pid as one JSON object"),
    {}
};

static const struct args_option shell_options[] = {
    EXEC_OPTIONS, REMOTE_OPTIONS(struct exec_options, "print exit code and pid at the end"), {}
};

static const struct args_word exec_words[] = {
    { "ID", "the sandbox", ARGS_TEXT, NULL, 0 },
    { "COMMAND", "program, looked for along the sandbox's PATH", ARGS_TEXT, NULL, 0 },
    { "ARGUMENT", "its arguments", ARGS_TEXT, NULL, ARGS_OPTIONAL | ARGS_MANY },
    {}
};

static const struct args_word shell_words[] = { { "ID", "the sandbox", ARGS_TEXT, NULL, 0 }, {} };

static const struct args_exit exec_exits[] = {
    { "125", "the sandbox or the server failed; a line on standard error says why" },
    { "126", "the command cannot be executed" },
    { "127", "there is no such command inside" },
    { "128+N", "the command was ended by signal N" },
    { "other", "the command's own" },
    {}
};

static void print_json(const struct session *s, const char *id, const struct err *err, int status)
{
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_str(&b, "id", id);
    if (s->pid)
        json_kv_int(&b, "pid", s->pid);
    if (s->capture) {
        session_put_json(s, err, status, &b);
    } else {
        if (!s->detach)
            json_kv_int(&b, "exit_code", status);
        if (err)
            json_kv_str(&b, "error", err->msg);
    }
    json_close(&b, '}');
    remote_print(&b);
}

/* The status of a session that is over; the error is said here, so that --json has it too. */
static int report(struct remote *r, const struct session *s, const char *id, int failed,
                  const struct err *err)
{
    int status = session_status(s, failed ? err : NULL);

    if (r->o->json)
        print_json(s, id, failed ? err : NULL, status);
    else if (failed)
        args_fail(r->args, status, err);
    else if (s->detach)
        printf("%lld\n", (long long)s->pid);
    return status;
}

/* candidates: what to execute, the first that is there. */
static int session(struct remote *r, const struct session *how, char **const *candidates,
                   struct err *err)
{
    const struct exec_options *o = r->args->values;
    struct remote_guest g;
    struct session s = *how;
    int failed = remote_guest_open(r, r->args->words[0], &g, err), status;

    s.envd = &g.envd;
    s.env = &o->env;
    s.user = o->user;
    s.workdir = o->workdir;
    if (!failed)
        failed = session_catch_signals(&s, err);
    for (bool again = !failed; again;) {
        *err = (struct err){ 0 };
        s.argv = *candidates++;
        failed = session_run(&s, err);
        again = failed && *candidates && session_status(&s, err) == SESSION_NOT_FOUND;
    }
    if (failed && (err->code == ERR_UPSTREAM || err->code == ERR_GONE))
        remote_guest_explain(r, &g, err);
    session_leave(&s);
    status = report(r, &s, g.sandbox.id ? g.sandbox.id : r->args->words[0], failed, err);
    session_finish(&s);
    remote_guest_close(&g);
    return status;
}

static int exec(struct remote *r, struct err *err)
{
    const struct exec_options *o = r->args->values;
    char **const candidates[] = { r->args->words + 1, NULL };
    struct session s = { .detach = o->detach, .capture = o->remote.json && !o->detach };

    s.terminal = !o->detach && !o->no_tty && (o->tty || (!s.capture && terminal_wanted()));
    return session(r, &s, candidates, err);
}

static int shell(struct remote *r, struct err *err)
{
    static char bash[] = "bash", sh[] = "sh", login[] = "-l";
    char *with_bash[] = { bash, login, NULL }, *with_sh[] = { sh, login, NULL };
    char **const candidates[] = { with_bash, with_sh, NULL };
    struct session s = { .terminal = terminal_wanted() };

    return session(r, &s, candidates, err);
}

static int run_exec(struct args *a)
{
    const struct exec_options *o = a->values;
    struct err err = { 0 };

    if (o->tty && (o->no_tty || o->detach))
        err_set(&err, ERR_INVALID, "--tty and --%s do not go together",
                o->detach ? "detach" : "no-tty");
    return err.code ? args_fail(a, args_usage_status(a), &err)
                    : remote_command(a, &o->remote, exec);
}

static int run_shell(struct args *a)
{
    const struct exec_options *o = a->values;

    return remote_command(a, &o->remote, shell);
}

const struct command command_exec = {
    .name = "exec",
    .help = "run a command in a sandbox",
    .about = "Standard input, output and error are passed through; where input and output are a "
             "terminal the command has a terminal of its own. Signals are forwarded.",
    .options = exec_options,
    .size = sizeof(struct exec_options),
    .words = exec_words,
    .exits = exec_exits,
    .usage_status = SESSION_FAILED,
    .flags = ARGS_SECOND,
    .run = run_exec,
};

const struct command command_shell = {
    .name = "shell",
    .help = "a shell in a sandbox, on this terminal",
    .about = "bash as a login shell, or sh where there is none. The window's size and its changes "
             "go along, Ctrl-C and Ctrl-Z are the shell's, and the terminal is itself again "
             "afterwards. Without a terminal the shell reads its commands from standard input.",
    .options = shell_options,
    .size = sizeof(struct exec_options),
    .words = shell_words,
    .exits = exec_exits,
    .usage_status = SESSION_FAILED,
    .run = run_shell,
};
