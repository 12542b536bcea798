/* commands.c - the table of commands, and `cove` without one: its help or its version. */
#include "cli/commands.h"

#include "cli/help.h"

/* In the order the help shows them, one a line. */
/* clang-format off */
static const struct command *const commands[] = {
    &command_serve,
    &command_run,
    &command_create,
    &command_ps,
    &command_exec,
    &command_shell,
    &command_cp,
    &command_logs,
    &command_events,
    &command_pause,
    &command_resume,
    &command_kill,
    &command_forward,
    &command_url,
    &command_template,
    &command_layer,
    &command_user,
    &command_key,
    &command_tls,
    &command_backup,
    &command_restore,
    &command_orphans,
    &command_config,
    &command_doctor,
    &command_keep,
    &command_help,
    &command_version,
    &command_completion,
    &command_man,
    NULL,
};
/* clang-format on */

struct cove_options {
    bool version;
};

static const struct args_option cove_options[] = {
    OPTION(struct cove_options, version, "version", ARGS_SWITCH, .letter = 'V', .flags = ARGS_ENDS,
           .help = "print the version"),
    {}
};

struct version_options {
    bool json;
};

static const struct args_option version_options[] = {
    OPTION(struct version_options, json, "json", ARGS_SWITCH, .help = "print it as a JSON object"),
    {}
};

static int run_version(struct args *a)
{
    const struct version_options *o = a->values;

    puts(o->json ? "{\"name\":\"cove\",\"version\":\"" COVE_VERSION "\"}" : "cove " COVE_VERSION);
    return 0;
}

static int run_cove(struct args *a)
{
    const struct cove_options *o = a->values;

    if (o->version) {
        puts("cove " COVE_VERSION);
        return 0;
    }
    help_print(a->command, a->path);
    return 0;
}

const struct command command_version = {
    .name = "version",
    .help = "print the version",
    .options = version_options,
    .size = sizeof(struct version_options),
    .run = run_version,
};

static const struct args_exit cove_exits[] = {
    { "0", "it worked" },
    { "1", "it failed, and a line on standard error says why" },
    { "2", "the command line is wrong" },
    {}
};

const struct command command_cove = {
    .name = "cove",
    .help = "gives programs that write and run code a computer of their own",
    .about = "Cove makes sandboxes on this machine: each has its own files, processes, users and "
             "network, is ready in about a millisecond and leaves nothing behind. It needs no "
             "container engine, no daemon of somebody else's and no image to download.",
    .options = cove_options,
    .size = sizeof(struct cove_options),
    .subs = commands,
    .exits = cove_exits,
    .run = run_cove,
};
