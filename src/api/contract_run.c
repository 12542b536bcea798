/* contract_run.c - the contract's commands. One that fails is an answer like any other: what it
 * printed and its exit code are what the caller needs most then. */
#include <signal.h>

#include "api/contract.h"
#include "api/tables.h"

enum { COMMAND_MAX = 1 << 20, SHORT_MS = 5000 };

struct run {
    char *sandbox_id, *command;
    bool background;
};
static const struct field run_body[] = {
    FIELD(struct run, sandbox_id, F_STR, .flags = F_REQUIRED, .min = 1, .max = CONTRACT_ID_MAX,
          .help = "its sandbox_id or provider_sandbox_id"),
    FIELD(struct run, command, F_STR, .flags = F_REQUIRED, .max = COMMAND_MAX,
          .help = "for a login shell (bash), in the user's home"),
    FIELD(struct run, background, F_BOOL,
          .help = "answer at once; /v1/sandboxes/{id}/processes shows and ends it"),
    {},
};

struct ran {
    bool success, truncated;
    struct bytes output, out, err;
    const char *message;
    int64_t exit_code, pid;
};
static const struct field ran[] = {
    FIELD(struct ran, success, F_BOOL, .flags = F_REQUIRED, .help = "it exited with 0"),
    FIELD(struct ran, output, F_TEXT, .flags = F_REQUIRED,
          .help = "what it printed on both streams, in the order of arrival"),
    FIELD(struct ran, message, F_STR, .flags = F_REQUIRED | F_NULL),
    FIELD(struct ran, exit_code, F_INT, .flags = F_REQUIRED,
          .help = "128 and the signal for one that was killed; 0 in the background"),
    FIELD_AS(struct ran, out, "stdout", F_TEXT, .flags = F_REQUIRED),
    FIELD_AS(struct ran, err, "stderr", F_TEXT, .flags = F_REQUIRED),
    FIELD(struct ran, pid, F_INT, .flags = F_REQUIRED),
    FIELD(struct ran, truncated, F_BOOL, .flags = F_REQUIRED,
          .help = "it printed more than contract.output-bytes: the rest is left out"),
    {},
};

/* ---- following one ---- */

struct following {
    struct buf both, out, err;
    struct envd_event end; /* but for its text */
    int64_t pid;
    bool ended, truncated;
};

static void following_free(struct following *f)
{
    buf_free(&f->both);
    buf_free(&f->out);
    buf_free(&f->err);
}

/* What is beyond the bound is read and forgotten, or the command would wait for us. */
static void keep(struct following *f, struct buf *into, struct str data)
{
    size_t room = (size_t)contract_limits.output_bytes - into->len;

    f->truncated |= data.n > room;
    buf_add(into, data.p, MIN(data.n, room));
}

static void take(struct following *f, const struct envd_event *e)
{
    switch (e->kind) {
    case ENVD_START: f->pid = e->pid; break;
    case ENVD_STDOUT:
    case ENVD_STDERR:
    case ENVD_PTY:
        keep(f, e->kind == ENVD_STDERR ? &f->err : &f->out, e->data);
        keep(f, &f->both, e->data);
        break;
    case ENVD_LOST: f->truncated = true; break;
    case ENVD_END:
        f->end = *e;
        f->end.status = (struct str){ 0 };
        f->ended = true;
        break;
    }
}

static int follow(struct envd_stream *s, struct following *f, bool background, struct err *err)
{
    struct envd_event e;
    int r;

    while ((r = envd_next(s, &e, err)) > 0) {
        take(f, &e);
        if (f->ended || (background && e.kind == ENVD_START))
            return 0;
    }
    return r < 0 ? -1 : err_set(err, ERR_UPSTREAM, "the guest forgot the end of the command");
}

/* ---- running one ---- */

static const char *message_of(struct call *c, const struct following *f)
{
    if (f->end.exited && !f->end.exit_code)
        return "Command executed successfully";
    return f->end.exited ? arena_printf(&c->arena, "Command failed with exit code %lld",
                                        (long long)f->end.exit_code)
                         : arena_printf(&c->arena, "Command was ended by signal %lld",
                                        (long long)f->end.signal);
}

static struct bytes text_of(const struct buf *b)
{
    static unsigned char none[1];

    return (struct bytes){ b->len, b->len ? (unsigned char *)b->data : none };
}

static int reply_ran(struct call *c, const struct following *f, bool background)
{
    struct ran view = { .success = background || (f->end.exited && !f->end.exit_code),
                        .output = text_of(&f->both),
                        .out = text_of(&f->out),
                        .err = text_of(&f->err),
                        .message = "Command started in the background",
                        .pid = f->pid,
                        .truncated = f->truncated };

    if (!background) {
        view.message = message_of(c, f);
        view.exit_code = f->end.exited ? f->end.exit_code : 128 + f->end.signal;
    }
    return contract_reply(c, &view);
}

/* The stream has its own silence bound (the guest sends signs of life); ours is on the whole. */
struct alarm {
    struct contract_box *box;
    struct following *run;
    struct co_ref self;
    struct co_cond gone;
    bool rang, runs;
};

static void ring(void *arg)
{
    struct alarm *a = arg;
    struct err ignored = { 0 };

    if (!co_sleep(co_in(contract_limits.command_s * 1000)) && a->run->pid) {
        a->rang = true;
        (void)envd_signal(&a->box->guest, a->run->pid, SIGKILL, &ignored);
    }
    a->runs = false;
    co_cond_wake(&a->gone);
}

static void silence(struct alarm *a)
{
    if (a->runs)
        co_cancel(a->self);
    while (a->runs)
        if (co_cond_wait(&a->gone, NEVER))
            co_pass();
}

static int run_to_its_end(struct contract_box *box, struct envd_stream *s, struct following *f,
                          struct err *err)
{
    struct alarm a = { .box = box, .run = f };
    int r;

    co_cond_init(&a.gone);
    a.runs = true;
    if (co_go(ring, &a, &a.self))
        return a.runs = false, err_set(err, ERR_UNAVAILABLE, "no memory for one more command");
    r = follow(s, f, false, err);
    silence(&a);
    if (!a.rang)
        return r;
    return err_set(err, ERR_TIMEOUT,
                   "the command was ended after %lld s (contract.command-s): run it in the "
                   "background",
                   (long long)contract_limits.command_s);
}

static int run_inside(struct contract_box *box, const struct run *b, struct err *err)
{
    char login[] = "-l", script[] = "-c";
    char *args[] = { login, script, b->command, NULL };
    struct envd_command command = { .cmd = "/bin/bash", .args = args };
    AUTO(envd_closep) struct envd_stream *s = NULL;
    AUTO(following_free) struct following f = { 0 };

    /* A silent command is no silent guest. */
    box->guest.to.answer_ms = contract_limits.command_s * 1000 + SHORT_MS;
    s = envd_start(&box->guest, &command, err);
    if (!s || (b->background ? follow(s, &f, true, err) : run_to_its_end(box, s, &f, err)))
        return -1;
    return reply_ran(box->call, &f, b->background);
}

static int run_cmd(struct call *c, void *body, struct err *err)
{
    const struct run *b = body;
    struct contract_box box;

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    return contract_leave(&box, run_inside(&box, b, err), err);
}

const struct route contract_run_routes[] = {
    { "POST", CONTRACT "/run-cmd", ROUTE_JSON, ROUTE_LENIENT, run_body, sizeof(struct run), run_cmd,
      "run_cmd", "Run a command; one that fails is a 200 with success false.", .reply = ran,
      .body_max = 8 * COMMAND_MAX, .tag = CONTRACT_TAGS },
    {}
};
