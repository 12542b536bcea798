/* process_rpc.c - process.Process of envd: its messages and methods. */
#include <signal.h>

#include "guest/auth.h"
#include "guest/process.h"
#include "guest/services/doors.h"
#include "io/connect.h"

enum { ARGS_MAX = 65536 };

/* ---- messages ---- */

struct selector {
    int64_t pid; /* 0: none */
    char *tag;
};

struct size {
    int64_t cols, rows;
};

struct pty {
    struct size *size;
};

struct input {
    struct bytes stdin_bytes, pty_bytes;
};

struct start_request {
    struct process_config *process;
    struct pty *pty;
    char *tag;
    bool stdin_open;
};

struct process_request { /* Connect, Update, SendInput, SendSignal, CloseStdin */
    struct selector *process;
    struct pty *pty;
    struct input *input;
    int64_t signal;
};

struct stream_start {
    struct selector *process;
};

struct stream_data {
    struct input *input;
};

struct stream_request {
    struct stream_start *start;
    struct stream_data *data;
};

static const struct field selector_fields[] = {
    FIELD(struct selector, pid, F_INT, .max = UINT32_MAX, .help = "process id"),
    FIELD(struct selector, tag, F_STR, .max = 1024, .help = "tag given at the start"),
    {},
};

static const struct field size_fields[] = {
    FIELD(struct size, cols, F_INT, .max = 65535, .help = "columns"),
    FIELD(struct size, rows, F_INT, .max = 65535, .help = "rows"),
    {},
};

static const struct field pty_fields[] = {
    FIELD(struct pty, size, F_OBJ, .sub = size_fields, .sub_size = sizeof(struct size)),
    {},
};

static const struct field input_fields[] = {
    FIELD_AS(struct input, stdin_bytes, "stdin", F_BYTES, .help = "bytes for standard input"),
    FIELD_AS(struct input, pty_bytes, "pty", F_BYTES, .help = "bytes for the terminal"),
    {},
};

static const struct field config_fields[] = {
    FIELD(struct process_config, cmd, F_STR, .flags = F_REQUIRED, .min = 1, .max = 4096,
          .help = "program, looked for along PATH when it has no slash"),
    FIELD(struct process_config, args, F_STRS, .max = ARGS_MAX),
    FIELD(struct process_config, envs, F_MAP, .max = ARGS_MAX),
    FIELD(struct process_config, cwd, F_STR, .max = 4096, .help = "working directory"),
    {},
};

static const struct field start_fields[] = {
    FIELD(struct start_request, process, F_OBJ, .flags = F_REQUIRED, .sub = config_fields,
          .sub_size = sizeof(struct process_config)),
    FIELD(struct start_request, pty, F_OBJ, .sub = pty_fields, .sub_size = sizeof(struct pty)),
    FIELD(struct start_request, tag, F_STR, .max = 1024),
    FIELD_AS(struct start_request, stdin_open, "stdin", F_BOOL, .def = 1),
    {},
};

#define SELECTOR                                                                                   \
    FIELD(struct process_request, process, F_OBJ, .flags = F_REQUIRED, .sub = selector_fields,     \
          .sub_size = sizeof(struct selector))

static const struct field select_fields[] = { SELECTOR, {} };

static const struct field update_fields[] = {
    SELECTOR,
    FIELD(struct process_request, pty, F_OBJ, .sub = pty_fields, .sub_size = sizeof(struct pty)),
    {},
};

static const struct field send_input_fields[] = {
    SELECTOR,
    FIELD(struct process_request, input, F_OBJ, .flags = F_REQUIRED, .sub = input_fields,
          .sub_size = sizeof(struct input)),
    {},
};

static const struct field_name signal_names[] = {
    { "SIGNAL_UNSPECIFIED", 0 },
    { "SIGNAL_SIGTERM", SIGTERM },
    { "SIGNAL_SIGKILL", SIGKILL },
    { "SIGNAL_SIGHUP", SIGHUP }, /* from here on ours: E2B's protocol has the two above */
    { "SIGNAL_SIGINT", SIGINT },
    { "SIGNAL_SIGQUIT", SIGQUIT },
    { "SIGNAL_SIGUSR1", SIGUSR1 },
    { "SIGNAL_SIGUSR2", SIGUSR2 },
    { "SIGNAL_SIGCONT", SIGCONT },
    { "SIGNAL_SIGTSTP", SIGTSTP },
    {},
};

static const struct field signal_fields[] = {
    SELECTOR,
    FIELD(struct process_request, signal, F_ENUM, .names = signal_names),
    {},
};

static const struct field stream_start_fields[] = {
    FIELD(struct stream_start, process, F_OBJ, .flags = F_REQUIRED, .sub = selector_fields,
          .sub_size = sizeof(struct selector)),
    {},
};

static const struct field stream_data_fields[] = {
    FIELD(struct stream_data, input, F_OBJ, .flags = F_REQUIRED, .sub = input_fields,
          .sub_size = sizeof(struct input)),
    {},
};

static const struct field stream_fields[] = {
    FIELD(struct stream_request, start, F_OBJ, .sub = stream_start_fields,
          .sub_size = sizeof(struct stream_start)),
    FIELD(struct stream_request, data, F_OBJ, .sub = stream_data_fields,
          .sub_size = sizeof(struct stream_data)),
    {},
};

static struct process *find(struct guest *g, const struct selector *s, struct err *err)
{
    struct process *p = s->pid   ? process_by_pid(g, s->pid)
                        : s->tag ? process_by_tag(g, s->tag)
                                 : NULL;

    if (p)
        return p;
    if (s->pid)
        err_set(err, ERR_NOT_FOUND, "process with pid %lld not found", (long long)s->pid);
    else if (s->tag)
        err_set(err, ERR_NOT_FOUND, "process with tag '%.64s' not found", s->tag);
    else
        err_set(err, ERR_INVALID, "field 'process' needs a pid or a tag");
    return NULL;
}

static struct process *find_running(struct guest *g, const struct selector *s, struct err *err)
{
    struct process *p = find(g, s, err);

    if (p && p->ended) {
        err_set(err, ERR_NOT_FOUND, "process with pid %d not found: it has ended", p->child.pid);
        return NULL;
    }
    return p;
}

/* ---- methods ---- */

static int rpc_start(struct call *c, void *body, struct err *err)
{
    const struct start_request *req = body;
    const struct size *size = req->pty ? req->pty->size : NULL;
    struct user *user = arena_alloc(&c->arena, sizeof(*user));
    struct process_start start = {
        .config = req->process,
        .user = user,
        .tag = req->tag,
        .stdin_open = req->stdin_open || req->pty,
        .pty = req->pty != NULL,
        .cols = (unsigned short)(size && size->cols ? size->cols : 80),
        .rows = (unsigned short)(size && size->rows ? size->rows : 24),
    };
    static const uint64_t from_the_start = 0;
    struct process *p;

    if (connect_timeout(&c->head, &start.timeout_ms, err) || auth_user(c, user, err))
        return -1;
    doors_before(req->process); /* it may want their ports */
    if (process_start(call_guest(c), &start, &p, err))
        return -1;
    return process_follow(c, p, &from_the_start, false, NEVER, err);
}

static int rpc_connect(struct call *c, void *body, struct err *err)
{
    const struct process_request *req = body;
    struct str given = http_get(&c->head, "cove-output-offset");
    bool gaps = str_iis(http_get(&c->head, "cove-output-lost"), "tell");
    struct process *p = find(call_guest(c), req->process, err);
    const char *first;
    int64_t ms;
    uint64_t offset = 0;

    if (!p || connect_timeout(&c->head, &ms, err))
        return -1;
    if (given.p && (str_u64(given, &offset) || offset > p->ring.end))
        return err_set(err, ERR_INVALID,
                       "Cove-Output-Offset must be a number up to %llu, the bytes written so far",
                       (unsigned long long)p->ring.end);
    if (given.p && !gaps && offset < p->ring.first) {
        first = arena_printf(&c->arena, "%llu", (unsigned long long)p->ring.first);
        call_header(c, "Cove-Output-Offset", first);
        return err_set(err, ERR_DATA_LOSS,
                       "the output of process %d is not kept from byte %llu on any more: the first "
                       "that is left is at Cove-Output-Offset %s",
                       p->child.pid, (unsigned long long)offset, first);
    }
    return process_follow(c, p, given.p ? &offset : NULL, gaps, co_in(ms), err);
}

static int reply_empty(struct call *c) { return call_reply(c, 200, "application/json", STR("{}")); }

static int rpc_list(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct process *p;

    (void)body, (void)err;
    json_open(&json, '{');
    json_key(&json, "processes");
    json_open(&json, '[');
    list_each(p, &call_guest(c)->processes, all) {
        if (p->ended)
            continue;
        json_open(&json, '{');
        json_key(&json, "config");
        json_put_raw(&json, buf_str(&p->config));
        json_kv_int(&json, "pid", p->child.pid);
        json_kv_str(&json, "tag", p->tag);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

static int rpc_update(struct call *c, void *body, struct err *err)
{
    const struct process_request *req = body;
    struct process *p = find_running(call_guest(c), req->process, err);

    if (!p)
        return -1;
    if (req->pty && req->pty->size &&
        process_resize(p, (unsigned short)req->pty->size->cols,
                       (unsigned short)req->pty->size->rows, err))
        return -1;
    return reply_empty(c);
}

static int write_input(struct process *p, const struct input *in, int64_t until, size_t *taken,
                       struct err *err)
{
    const struct bytes *bytes = in->pty_bytes.data ? &in->pty_bytes : &in->stdin_bytes;

    *taken = 0;
    if (!bytes->data)
        return err_set(err, ERR_INVALID, "field 'input' needs stdin or pty");
    if (p->pty != (in->pty_bytes.data != NULL))
        return err_set(err, ERR_INTERNAL, "process %d %s a terminal: send '%s' instead",
                       p->child.pid, p->pty ? "has" : "does not have", p->pty ? "pty" : "stdin");
    if (!p->stdin_open)
        return err_set(err, ERR_INTERNAL, "process %d was started without input", p->child.pid);
    return process_write(p, bytes->data, bytes->n, until, taken, err);
}

static int64_t input_until(int64_t ms) { return co_in(ms < 0 ? http_limits.write_ms : ms); }

static int rpc_send_input(struct call *c, void *body, struct err *err)
{
    const struct process_request *req = body;
    struct process *p = find_running(call_guest(c), req->process, err);
    char text[24];
    size_t taken;
    int64_t ms;

    if (!p || connect_timeout(&c->head, &ms, err))
        return -1;
    if (!write_input(p, req->input, input_until(ms), &taken, err))
        return reply_empty(c);
    if (err->code == ERR_TIMEOUT) { /* it reads slowly: the client may go on behind these */
        snprintf(text, sizeof(text), "%zu", taken);
        call_header(c, "Cove-Input-Taken", text);
    }
    return -1;
}

static int stream_message(struct call *c, struct process **p, struct str text, int64_t ms,
                          struct err *err)
{
    struct arena a = { 0 };
    struct stream_request req = { 0 };
    size_t taken;
    int r = field_decode_text(stream_fields, FIELDS_PROTO, text, &a, &req, err);

    if (!r && req.start && !(*p = find_running(call_guest(c), req.start->process, err)))
        r = -1;
    if (!r && req.data) {
        if (!*p)
            r = err_set(err, ERR_INVALID, "the first message must be 'start'");
        else
            r = write_input(*p, req.data->input, input_until(ms), &taken, err);
    }
    arena_free(&a);
    return r;
}

static int rpc_stream_input(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf message = { 0 };
    struct process *p = NULL;
    pid_t pid = 0;
    int64_t ms;
    int r;

    (void)body;
    if (connect_timeout(&c->head, &ms, err))
        return -1;
    while ((r = connect_read(c, &message, err)) > 0) {
        if (pid && !(p = process_by_pid(call_guest(c), pid))) /* forgotten while we waited */
            return err_set(err, ERR_NOT_FOUND, "process with pid %d not found", pid);
        if (stream_message(c, &p, message.len ? buf_str(&message) : STR("{}"), ms, err))
            return -1;
        pid = p ? p->child.pid : 0;
    }
    if (r < 0)
        return -1;
    if (connect_begin(c))
        return -1;
    buf_puts(connect_message(c), "{}");
    return connect_send(c) || connect_end(c) ? -1 : 0;
}

static int rpc_send_signal(struct call *c, void *body, struct err *err)
{
    const struct process_request *req = body;
    struct process *p = find_running(call_guest(c), req->process, err);

    if (!p)
        return -1;
    if (!req->signal)
        return err_set(err, ERR_UNSUPPORTED,
                       "field 'signal' must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
    process_signal(p, (int)req->signal);
    return reply_empty(c);
}

static int rpc_close_stdin(struct call *c, void *body, struct err *err)
{
    const struct process_request *req = body;
    struct process *p = find_running(call_guest(c), req->process, err);

    return p && !process_close_input(p, err) ? reply_empty(c) : -1;
}

#define RPC(name, kind, fields, type, fn, help)                                                    \
    {                                                                                              \
        "POST", "/process.Process/" name, kind, 0, fields, type, fn, "Process" name, help, 0       \
    }

const struct route process_routes[] = {
    RPC("List", ROUTE_UNARY, NULL, 0, rpc_list, "The processes that run"),
    RPC("Start", ROUTE_STREAM, start_fields, sizeof(struct start_request), rpc_start,
        "Start a process and follow its events"),
    RPC("Connect", ROUTE_STREAM, select_fields, sizeof(struct process_request), rpc_connect,
        "Follow the events of a process that was started before"),
    RPC("Update", ROUTE_UNARY, update_fields, sizeof(struct process_request), rpc_update,
        "Resize a terminal"),
    RPC("SendInput", ROUTE_UNARY, send_input_fields, sizeof(struct process_request), rpc_send_input,
        "Write to a process"),
    RPC("StreamInput", ROUTE_UPSTREAM, stream_fields, sizeof(struct stream_request),
        rpc_stream_input, "Write to a process, many times in one request"),
    RPC("SendSignal", ROUTE_UNARY, signal_fields, sizeof(struct process_request), rpc_send_signal,
        "Signal a process and its group"),
    RPC("CloseStdin", ROUTE_UNARY, select_fields, sizeof(struct process_request), rpc_close_stdin,
        "Close the standard input of a process"),
    {},
};
