/* commands.c - the table of commands, and `cove` without one: its help or its version. */
#include "cli/commands.h"

#include "cli/help.h"

/* In the order the help shows them. */
static const struct command *const commands[] = {
    &command_run,        &command_keep, &command_template,
    &command_doctor,     &command_help, &command_version,
    &command_completion, &command_man,  NULL,
};

struct cove_options {
    bool version;
};

static const struct args_option cove_options[] = {
    OPTION(struct cove_options, version, "version", ARGS_SWITCH, .letter = 'V', .flags = ARGS_ENDS,
           .help = "print the version"),
    {}
};

static int run_version(struct args *a)
{
    (void)a;
    puts("cove " COVE_VERSION);
    return 0;
}

static int run_cove(struct args *a)
{
    const struct cove_options *o = a->values;

    if (o->version)
        return run_version(a);
    help_print(a->command, a->path);
    return 0;
}

const struct command command_version = {
    .name = "version",
    .help = "print the version",
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
