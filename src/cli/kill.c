/* kill.c - `cove kill`: ends sandboxes, with everything in them. */
#include "cli/commands.h"
#include "cli/remote.h"

struct kill_options {
    struct remote_options remote;
    bool all, everybody;
};

static const struct args_option kill_options[] = {
    OPTION(struct kill_options, all, "all", ARGS_SWITCH, .letter = 'a', .help = "all of yours"),
    OPTION(struct kill_options, everybody, "everybody", ARGS_SWITCH,
           .help = "with --all: everybody's, for admins"),
    REMOTE_OPTIONS(struct kill_options, "print what was ended as a JSON object"),
    {}
};

static const struct args_word kill_words[] = {
    { .name = "ID", .help = "which", .flags = ARGS_OPTIONAL | ARGS_MANY }, {}
};

struct ended {
    int64_t ended;
};
static const struct field ended_fields[] = { FIELD(struct ended, ended, F_INT, .max = INT32_MAX),
                                             {} };

static int kill_all(struct remote *r, struct err *err)
{
    const struct kill_options *o = r->args->values;
    AUTO(buf_free) struct buf reply = { 0 };
    struct arena a = { 0 };
    struct ended e = { 0 };
    int failed;

    if (remote_call(r, "DELETE", o->everybody ? "/v1/sandboxes?all=true" : "/v1/sandboxes", NULL,
                    &reply, err))
        return -1;
    failed = field_decode_text(ended_fields, FIELDS_PROTO, buf_str(&reply), &a, &e, err);
    arena_free(&a);
    if (failed)
        return err_in(err, "the server's answer");
    if (o->remote.json)
        remote_print(&reply);
    else
        printf("%lld ended\n", (long long)e.ended);
    return 0;
}

static int kill_one(struct remote *r, const char *id, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };

    if (remote_sandbox_target(id, "", &target, err))
        return -1;
    return remote_call(r, "DELETE", target.data, NULL, NULL, err);
}

/* All are tried: one that is gone already must not keep the others alive. */
static int kill_named(struct remote *r, struct err *err)
{
    const struct kill_options *o = r->args->values;
    AUTO(buf_free) struct buf json = { 0 };
    size_t ended = 0, failed = 0;

    json_open(&json, '{');
    json_key(&json, "ids");
    json_open(&json, '[');
    for (size_t i = 0; i < r->args->n; i++) {
        const char *id = r->args->words[i];

        *err = (struct err){ 0 };
        if (kill_one(r, id, err)) {
            failed++;
            if (r->args->n > 1)
                args_fail(r->args, 1, err);
            continue;
        }
        ended++;
        json_put_str(&json, str_of(id));
        if (!o->remote.json)
            puts(id);
    }
    json_close(&json, ']');
    json_kv_int(&json, "ended", (int64_t)ended);
    json_close(&json, '}');
    if (failed && r->args->n == 1)
        return -1;
    if (o->remote.json)
        remote_print(&json);
    return failed ? 1 : 0;
}

static int run_kill(struct args *a)
{
    const struct kill_options *o = a->values;
    struct err err = { 0 };

    if (o->all && a->n)
        err_set(&err, ERR_INVALID, "--all and ids do not go together");
    else if (!o->all && !a->n)
        err_set(&err, ERR_INVALID, "ID is missing (or --all; see --help)");
    else if (o->everybody && !o->all)
        err_set(&err, ERR_INVALID, "--everybody needs --all");
    if (err.code)
        return args_fail(a, args_usage_status(a), &err);
    return remote_command(a, &o->remote, o->all ? kill_all : kill_named);
}

const struct command command_kill = {
    .name = "kill",
    .help = "end sandboxes",
    .about = "Everything in them ends and is removed. Prints the ids of those that it ended.",
    .options = kill_options,
    .size = sizeof(struct kill_options),
    .words = kill_words,
    .run = run_kill,
};
