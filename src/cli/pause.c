/* pause.c - `cove pause` and `cove resume`: sandboxes that stand still, and go on. */
#include "cli/commands.h"
#include "cli/remote.h"

struct pause_options {
    struct remote_options remote;
    int64_t timeout;
    bool files_only;
};

static const struct args_option pause_options[] = {
    OPTION(struct pause_options, files_only, "files-only", ARGS_SWITCH,
           .help = "keep files alone: their processes end, and a resume starts them again"),
    REMOTE_OPTIONS(struct pause_options, "print what was paused as a JSON object"),
    {}
};
static const struct args_option resume_options[] = {
    OPTION(struct pause_options, timeout, "timeout", ARGS_DURATION, .value = "TIME",
           .help = "how long they may run from now; 0: no limit (default: as it was last set)"),
    OPTION(struct pause_options, files_only, "files-only", ARGS_SWITCH,
           .help = "start them again on their files, even where processes stand still"),
    REMOTE_OPTIONS(struct pause_options, "print what was resumed as a JSON object"),
    {}
};

static const struct args_word pause_words[] = {
    { .name = "ID", .help = "which", .flags = ARGS_MANY }, {}
};

static int ask_one(struct remote *r, const char *id, const char *verb, const struct buf *body,
                   struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 }, reply = { 0 };

    if (remote_sandbox_target(id, verb, &target, err))
        return -1;
    return remote_call(r, "POST", target.data, body, &reply, err);
}

/* All are tried: one that is gone must not keep the others from it. */
static int ask_all(struct remote *r, const char *verb, const struct buf *body, struct err *err)
{
    const struct pause_options *o = r->args->values;
    AUTO(buf_free) struct buf json = { 0 };
    size_t failed = 0;

    json_open(&json, '{');
    json_key(&json, "ids");
    json_open(&json, '[');
    for (size_t i = 0; i < r->args->n; i++) {
        const char *id = r->args->words[i];

        *err = (struct err){ 0 };
        if (ask_one(r, id, verb, body, err)) {
            failed++;
            if (r->args->n > 1)
                args_fail(r->args, 1, err);
            continue;
        }
        json_put_str(&json, str_of(id));
        if (!o->remote.json)
            puts(id);
    }
    json_close(&json, ']');
    json_close(&json, '}');
    if (failed && r->args->n == 1)
        return -1;
    if (o->remote.json)
        remote_print(&json);
    return failed ? 1 : 0;
}

static void put_memory(struct buf *body, const struct pause_options *o)
{
    if (o->files_only)
        json_kv_bool(body, "memory", false);
}

static int pause_all(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf body = { 0 };

    json_open(&body, '{');
    put_memory(&body, r->args->values);
    json_close(&body, '}');
    return ask_all(r, "/pause", &body, err);
}

static int resume_all(struct remote *r, struct err *err)
{
    const struct pause_options *o = r->args->values;
    AUTO(buf_free) struct buf body = { 0 };

    json_open(&body, '{');
    if (args_given(r->args, "timeout"))
        json_kv_int(&body, "timeout", o->timeout);
    put_memory(&body, o);
    json_close(&body, '}');
    return ask_all(r, "/resume", &body, err);
}

static int run_pause(struct args *a)
{
    return remote_command(a, &((const struct pause_options *)a->values)->remote, pause_all);
}

static int run_resume(struct args *a)
{
    return remote_command(a, &((const struct pause_options *)a->values)->remote, resume_all);
}

const struct command command_pause = {
    .name = "pause",
    .help = "let sandboxes stand still",
    .about = "Their files are written to disk, their processes stop where they are, and so does "
             "their time; they use no processor until `cove resume`, or a request where "
             "auto-resume is set, lets them go on. Prints the ids of those that it paused.",
    .options = pause_options,
    .size = sizeof(struct pause_options),
    .words = pause_words,
    .run = run_pause,
};

const struct command command_resume = {
    .name = "resume",
    .help = "let paused sandboxes go on",
    .about = "If the computer was restarted meanwhile, they start again on their files, and their "
             "processes are gone (`cove events ID` says so). Prints the ids of those that it "
             "resumed.",
    .options = resume_options,
    .size = sizeof(struct pause_options),
    .words = pause_words,
    .run = run_resume,
};
