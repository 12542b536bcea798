/* native_process.c - /v1: the commands that run in a sandbox, whichever API started them. */
#include <signal.h>

#include "api/native.h"
#include "api/tables.h"
#include "provider/envd.h"

enum { PROCESSES_MAX = 65536 };

/* ---- list ---- */

struct config { /* as the guest says it */
    char *cmd, *cwd;
    struct strs args;
};
struct process {
    struct config *config;
    int64_t pid;
    char *tag;
};
struct processes {
    struct objs processes;
};

static const struct field config_fields[] = {
    FIELD(struct config, cmd, F_STR, .max = INT32_MAX),
    FIELD(struct config, cwd, F_STR, .max = INT32_MAX),
    FIELD(struct config, args, F_STRS, .max = INT32_MAX),
    {},
};
static const struct field process_fields[] = {
    FIELD(struct process, config, F_OBJ, .flags = F_REQUIRED, .sub = config_fields,
          .sub_size = sizeof(struct config)),
    FIELD(struct process, pid, F_INT, .flags = F_REQUIRED, .max = INT32_MAX),
    FIELD(struct process, tag, F_STR, .max = 1024),
    {},
};
static const struct field processes_fields[] = {
    FIELD(struct processes, processes, F_OBJS, .sub = process_fields,
          .sub_size = sizeof(struct process), .max = PROCESSES_MAX),
    {},
};

struct shown {
    int64_t pid;
    const char *command, *cwd, *tag;
    struct strs args;
};
static const struct field shown[] = {
    FIELD(struct shown, pid, F_INT, .flags = F_REQUIRED, .help = "inside"),
    FIELD(struct shown, command, F_STR, .flags = F_REQUIRED),
    FIELD(struct shown, args, F_STRS, .flags = F_REQUIRED),
    FIELD(struct shown, cwd, F_STR, .flags = F_OMIT),
    FIELD(struct shown, tag, F_STR, .flags = F_OMIT),
    {},
};
struct shown_all {
    struct objs processes;
};
static const struct field shown_all[] = {
    FIELD(struct shown_all, processes, F_OBJS, .flags = F_REQUIRED, .sub = shown,
          .sub_size = sizeof(struct shown)),
    {},
};

/* A guest that stands still would keep us waiting, and asking is no reason to wake it. */
static int guest_of(struct call *c, struct sandbox *s, struct envd *out, struct err *err)
{
    struct control *control = api_of(c)->control;

    if (s->state != SANDBOX_RUNNING)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", s->id, sandbox_state_names[s->state]);
    *out =
        (struct envd){ .client = control_client(control), .token = s->token[0] ? s->token : NULL };
    control_to(control, s, PROVIDER_GUEST_PORT, &out->to);
    out->to.whole = true;
    return 0;
}

static int reply_processes(struct call *c, const struct processes *all)
{
    const struct process *p = all->processes.items;
    struct api_list a;

    api_list_begin(&a, c);
    for (size_t i = 0; i < all->processes.n; i++)
        api_list_add(&a, &(struct shown){ .pid = p[i].pid,
                                          .command = p[i].config->cmd,
                                          .cwd = p[i].config->cwd,
                                          .tag = p[i].tag,
                                          .args = p[i].config->args });
    return api_list_end(&a, 0);
}

static int ask_guest(struct call *c, struct sandbox *s, struct processes *out, struct err *err)
{
    AUTO(buf_free) struct buf body = { 0 }, reply = { 0 };
    struct envd guest;

    buf_puts(&body, "{}");
    if (guest_of(c, s, &guest, err) ||
        envd_call(&guest, "/process.Process/List", NULL, &body, &reply, err))
        return -1;
    if (!field_decode_text(processes_fields, FIELDS_PROTO, buf_str(&reply), &c->arena, out, err))
        return 0;
    err->code = ERR_UPSTREAM;
    return err_in(err, "the guest's answer to List");
}

static int list_processes(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);
    struct processes all = { 0 };
    int r;

    (void)body;
    if (!s)
        return -1;
    control_hold(s);
    r = ask_guest(c, s, &all, err);
    control_release(s);
    return r ? -1 : reply_processes(c, &all);
}

/* ---- end ---- */

static const struct field_name signals[] = {
    { "KILL", SIGKILL }, { "TERM", SIGTERM }, { "INT", SIGINT }, { "HUP", SIGHUP }, {}
};
struct end_query {
    int64_t signal;
};
static const struct field end_query[] = {
    FIELD(struct end_query, signal, F_ENUM, .names = signals, .def = SIGKILL,
          .help = "default KILL; goes to its whole group"),
    {},
};

static int end_process(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);
    struct end_query q = { 0 };
    struct envd guest;
    int64_t pid;
    int r;

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    if (str_i64(c->param[1], &pid) || pid < 1 || pid > INT32_MAX)
        return err_set(err, ERR_NOT_FOUND, "process '%.20s' not found",
                       arena_strdup(&c->arena, c->param[1]));
    control_hold(s);
    r = guest_of(c, s, &guest, err) || envd_signal(&guest, pid, (int)q.signal, err) ? -1 : 0;
    control_release(s);
    return r ? -1 : api_reply_empty(c);
}

#define TAG .body_max = API_BODY_MAX, .tag = "Sandboxes"

const struct route native_process_routes[] = {
    { "GET", "/v1/sandboxes/{id}/processes", ROUTE_RAW, .fn = list_processes,
      .operation = "listProcesses", .help = "The commands that run in it.", .reply = shown_all,
      TAG },
    { "DELETE", "/v1/sandboxes/{id}/processes/{pid}", ROUTE_RAW, .fn = end_process,
      .operation = "endProcess", .help = "End a command.", .query = end_query, .status = 204, TAG },
    {}
};
