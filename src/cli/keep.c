/* keep.c - `cove keep`: the keeper as a service of its own. */
#include "keep/keep.h"

#include <pwd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/network_allow.h"
#include "cli/settings.h"

struct keep_args {
    const char *data_dir, *run_dir, *client;
    struct args_list allow_mounts, network_allow, set;
    const char *log_level, *log_format;
};

static const struct args_option keep_options[] = {
    OPTION(struct keep_args, data_dir, "data-dir", ARGS_DIR, .value = "DIR",
           .help = "where layers and templates are (default /var/lib/cove)"),
    OPTION(struct keep_args, run_dir, "run-dir", ARGS_DIR, .value = "DIR",
           .help = "where its socket is (default /run/cove)"),
    OPTION(struct keep_args, client, "client", ARGS_TEXT, .value = "USER",
           .help = "who may use it besides root"),
    OPTION(struct keep_args, allow_mounts, "allow-mount", ARGS_DIR, .value = "DIR[:group]",
           .flags = ARGS_REPEAT,
           .help = "host directories that sandboxes may be shown; none without it. With :group "
                   "what belongs to one of the machine's own groups (below 1000) can be written, "
                   "too"),
    NETWORK_ALLOW_OPTION(struct keep_args),
    OPTION(struct keep_args, set, "set", ARGS_TEXT, .value = "NAME=VALUE", .flags = ARGS_REPEAT,
           .help = "change a bound of the keeper, the network or the volume"),
    OPTION(struct keep_args, log_level, "log-level", ARGS_TEXT, .value = "LEVEL", .def = "info",
           .help = "debug, info, warn, error or off"),
    OPTION(struct keep_args, log_format, "log-format", ARGS_TEXT, .value = "FORMAT",
           .def = "logfmt", .help = "logfmt or json"),
    {}
};

static int configure(const struct keep_args *o, struct keep_options *k, struct err *err)
{
    // cppcheck-suppress getpwnamCalled  ; the keeper has no threads
    const struct passwd *p = o->client ? getpwnam(o->client) : NULL;

    if (o->client && !p)
        return err_set(err, ERR_INVALID, "--client: no user '%s'", o->client);
    if (log_set_level(o->log_level) || log_set_format(o->log_format))
        return err_set(err, ERR_INVALID, "--log-level or --log-format: no such one");
    for (size_t i = 0; i < o->set.n; i++)
        if (setting_set(settings_of_keep, o->set.items[i], err))
            return -1;
    if (network_allow(&o->network_allow, err))
        return -1;
    k->client_uid = p ? p->pw_uid : 0;
    k->allow_mounts = o->allow_mounts.items;
    if (geteuid() != 0)
        return err_set(err, ERR_DENIED,
                       "a keeper that others use needs root; `cove run` works without");
    return 0;
}

static int run_keep(struct args *a)
{
    const struct keep_args *o = a->values;
    AUTO(freep) char *data_dir = o->data_dir ? xstrdup(o->data_dir) : dirs_data();
    AUTO(freep) char *run_dir = o->run_dir ? xstrdup(o->run_dir) : dirs_run();
    struct keep_options k = { .data_dir = data_dir, .run_dir = run_dir, .socket = -1 };
    struct err err = { 0 };

    if (args_environment(a, &err) || configure(o, &k, &err) || keep_run(&k, &err))
        return args_fail(a, 1, &err);
    return 0;
}

const struct command command_keep = {
    .name = "keep",
    .help = "build and end sandboxes for others; the only privileged part",
    .about =
        "Listens on a socket in the run directory for the records of `cove serve` and `cove run`. "
        "Sandboxes go on when it ends; the next one adopts them.",
    .options = keep_options,
    .size = sizeof(struct keep_args),
    .run = run_keep,
};
