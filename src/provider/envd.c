/* envd.c - see envd.h. */
#include "provider/envd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "base/mem.h"
#include "io/connect.h"

enum {
    SIGN_OF_LIFE_S = 20,
    MESSAGE_MAX = 4 << 20,
    REPLY_MAX = 96 << 20
}; /* a list of files is the longest */

struct envd_stream {
    struct exchange *x;
    struct arena arena; /* of the last event */
    struct buf in;      /* bytes not yet decoded */
    bool ended;
};

/* ---- requests ---- */

void envd_put_headers(const struct envd *e, const char *user, const char *type, struct buf *b)
{
    buf_printf(b, "Content-Type: application/%s\r\nConnect-Protocol-Version: 1\r\n", type);
    if (e->headers)
        buf_puts(b, e->headers);
    if (e->token)
        buf_printf(b, "X-Access-Token: %s\r\n", e->token);
    if (user) {
        char text[256], code[400];
        int n = snprintf(text, sizeof(text), "%s:", user);

        buf_printf(b, "Authorization: Basic %.*s\r\n",
                   (int)base64_encode(text, (size_t)MIN(n, (int)sizeof(text) - 1), code), code);
    }
}

static void put_command(const struct envd_command *c, struct buf *b)
{
    json_open(b, '{');
    json_key(b, "process");
    json_open(b, '{');
    json_kv_str(b, "cmd", c->cmd);
    json_key(b, "args");
    json_open(b, '[');
    for (char *const *a = c->args; a && *a; a++)
        json_put_str(b, str_of(*a));
    json_close(b, ']');
    json_key(b, "envs");
    json_open(b, '{');
    for (size_t i = 0; i < c->nenv; i++)
        json_kv_str(b, c->env[i].name, c->env[i].value);
    json_close(b, '}');
    json_kv_str(b, "cwd", c->cwd);
    json_close(b, '}');
    if (c->pty) {
        json_key(b, "pty");
        json_open(b, '{');
        json_key(b, "size");
        json_open(b, '{');
        json_kv_int(b, "cols", c->cols);
        json_kv_int(b, "rows", c->rows);
        json_close(b, '}');
        json_close(b, '}');
    }
    json_kv_bool(b, "stdin", c->stdin_open);
    json_close(b, '}');
}

struct problem {
    char *code, *message;
};

/* Two tables: a router's code is a number, and must not cost us the sentence. */
static const struct field code_fields[] = { FIELD(struct problem, code, F_STR, .max = 64), {} };
static const struct field message_only[] = { FIELD(struct problem, message, F_STR, .max = 4096),
                                             {} };

static enum err_code code_of_status(int status)
{
    for (enum err_code k = ERR_INVALID; k < ERR_CODES; k++)
        if (err_status(k) == status)
            return k;
    return ERR_UPSTREAM;
}

int envd_problem(int status, struct str text, struct err *err)
{
    struct arena a = { 0 };
    struct problem p = { 0 };
    struct err ignored;
    enum err_code code = ERR_UPSTREAM;

    if (field_decode_text(message_only, FIELDS_PROTO, text, &a, &p, &ignored))
        p.message = NULL;
    else if (p.message && status != 200)
        code = code_of_status(status);
    if (field_decode_text(code_fields, FIELDS_PROTO, text, &a, &p, &ignored))
        p.code = NULL;
    for (enum err_code k = ERR_INVALID; k < ERR_CODES && p.code; k++)
        if (!strcmp(p.code, err_name(k))) {
            code = k;
            break;
        }
    err_set(err, code, "%s", p.message ? p.message : "the guest refused without a reason");
    arena_free(&a);
    return -1;
}

static struct str host_of(const struct envd *e) { return e->host ? str_of(e->host) : STR("guest"); }

int envd_call(struct envd *e, const char *path, const char *user, const struct buf *body,
              struct buf *reply, struct err *err)
{
    AUTO(buf_free) struct buf headers = { 0 };
    AUTO(buf_free) struct buf own = { 0 };
    AUTO(client_closep) struct exchange *x = NULL;
    struct client_request rq = {
        .method = STR("POST"), .target = str_of(path), .host = host_of(e), .body = buf_str(body)
    };

    if (!reply)
        reply = &own;
    envd_put_headers(e, user, "json", &headers);
    rq.headers = buf_str(&headers);
    x = client_do(e->client, &e->to, &rq, err);
    if (!x)
        return -1;
    x->body.max = REPLY_MAX;
    if (http_body_read_all(&x->body, reply, err))
        return -1;
    return x->head.status == 200 ? 0 : envd_problem(x->head.status, buf_str(reply), err);
}

static int call(struct envd *e, const char *method, const struct buf *body, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/process.Process/%s", method);
    return envd_call(e, path, NULL, body, NULL, err);
}

static void open_selected(struct buf *b, int64_t pid)
{
    json_open(b, '{');
    json_key(b, "process");
    json_open(b, '{');
    json_kv_int(b, "pid", pid);
    json_close(b, '}');
}

int envd_input(struct envd *e, int64_t pid, bool pty, const void *p, size_t n, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_selected(&b, pid);
    json_key(&b, "input");
    json_open(&b, '{');
    json_key(&b, pty ? "pty" : "stdin");
    json_put_base64(&b, p, n);
    json_close(&b, '}');
    json_close(&b, '}');
    return call(e, "SendInput", &b, err);
}

int envd_end_input(struct envd *e, int64_t pid, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_selected(&b, pid);
    json_close(&b, '}');
    return call(e, "CloseStdin", &b, err);
}

int envd_resize(struct envd *e, int64_t pid, int64_t cols, int64_t rows, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_selected(&b, pid);
    json_key(&b, "pty");
    json_open(&b, '{');
    json_key(&b, "size");
    json_open(&b, '{');
    json_kv_int(&b, "cols", cols);
    json_kv_int(&b, "rows", rows);
    json_close(&b, '}');
    json_close(&b, '}');
    json_close(&b, '}');
    return call(e, "Update", &b, err);
}

int envd_signal(struct envd *e, int64_t pid, int signo, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    char name[32];

    snprintf(name, sizeof(name), "SIGNAL_SIG%s", sigabbrev_np(signo));
    open_selected(&b, pid);
    json_kv_str(&b, "signal", name);
    json_close(&b, '}');
    return call(e, "SendSignal", &b, err);
}

/* ---- the stream of events ---- */

struct data_event {
    struct bytes out, err, pty;
};
struct start_event {
    int64_t pid;
};
struct end_event {
    int64_t exit_code, signal;
    bool exited;
    char *status;
};
struct lost_event {
    int64_t bytes;
};
struct any_event {
    struct start_event *start;
    struct data_event *data;
    struct end_event *end;
    struct lost_event *lost;
};
struct message {
    struct any_event *event;
};

#define SUB(name) .sub = name##_fields, .sub_size = sizeof(struct name##_event)

static const struct field start_fields[] = {
    FIELD(struct start_event, pid, F_INT, .max = INT32_MAX), {}
};
static const struct field data_fields[] = {
    FIELD_AS(struct data_event, out, "stdout", F_BYTES, .max = MESSAGE_MAX),
    FIELD_AS(struct data_event, err, "stderr", F_BYTES, .max = MESSAGE_MAX),
    FIELD(struct data_event, pty, F_BYTES, .max = MESSAGE_MAX),
    {},
};
static const struct field end_fields[] = {
    FIELD_AS(struct end_event, exit_code, "exitCode", F_INT, .min = INT32_MIN, .max = INT32_MAX),
    FIELD(struct end_event, exited, F_BOOL),
    FIELD(struct end_event, signal, F_INT, .max = 64),
    FIELD(struct end_event, status, F_STR, .max = 256),
    {},
};
static const struct field lost_fields[] = {
    FIELD(struct lost_event, bytes, F_INT, .max = INT64_MAX), {}
};
static const struct field any_fields[] = {
    FIELD(struct any_event, start, F_OBJ, SUB(start)),
    FIELD(struct any_event, data, F_OBJ, SUB(data)),
    FIELD(struct any_event, end, F_OBJ, SUB(end)),
    FIELD(struct any_event, lost, F_OBJ, SUB(lost)),
    {},
};
static const struct field message_fields[] = {
    FIELD(struct message, event, F_OBJ, .sub = any_fields, .sub_size = sizeof(struct any_event)),
    {},
};

/* body: the message behind five bytes for its envelope. A silent command is no silent guest: it
 * gives signs of life well within http.body-ms, after which we would take it for gone. */
static struct envd_stream *open_stream(struct envd *e, const char *path, struct buf *headers,
                                       struct buf *body, struct err *err)
{
    struct client_request rq = {
        .method = STR("POST"), .target = str_of(path), .host = host_of(e), .body = buf_str(body)
    };
    int64_t sign_s = MIN(http_limits.body_ms / 3000, (int64_t)SIGN_OF_LIFE_S);
    struct envd_stream *s;
    struct exchange *x;

    buf_printf(headers, "Keepalive-Ping-Interval: %lld\r\n", (long long)MAX(sign_s, (int64_t)1));
    rq.headers = buf_str(headers);
    connect_encode_header((unsigned char *)body->data, 0, (uint32_t)(body->len - CONNECT_HEADER));
    x = client_do(e->client, &e->to, &rq, err);
    if (!x)
        return NULL;
    x->body.max = UINT64_MAX; /* a stream has no size */
    s = xcalloc(1, sizeof(*s));
    s->x = x;
    if (x->head.status != 200) {
        AUTO(buf_free) struct buf reply = { 0 };

        x->body.max = MESSAGE_MAX;
        if (!http_body_read_all(&x->body, &reply, err))
            envd_problem(x->head.status, buf_str(&reply), err);
        envd_close(s);
        return NULL;
    }
    return s;
}

struct envd_stream *envd_start(struct envd *e, const struct envd_command *c, struct err *err)
{
    AUTO(buf_free) struct buf headers = { 0 };
    AUTO(buf_free) struct buf body = { 0 };

    envd_put_headers(e, c->user, "connect+json", &headers);
    buf_add(&body, "\0\0\0\0\0", CONNECT_HEADER);
    put_command(c, &body);
    return open_stream(e, "/process.Process/Start", &headers, &body, err);
}

struct envd_stream *envd_connect(struct envd *e, int64_t pid, int64_t wait_ms, struct err *err)
{
    AUTO(buf_free) struct buf headers = { 0 };
    AUTO(buf_free) struct buf body = { 0 };

    envd_put_headers(e, NULL, "connect+json", &headers);
    buf_puts(&headers, "Cove-Output-Offset: 0\r\nCove-Output-Lost: tell\r\n");
    if (wait_ms)
        buf_printf(&headers, "Connect-Timeout-Ms: %lld\r\n", (long long)wait_ms);
    buf_add(&body, "\0\0\0\0\0", CONNECT_HEADER);
    open_selected(&body, pid);
    json_close(&body, '}');
    return open_stream(e, "/process.Process/Connect", &headers, &body, err);
}

void envd_close(struct envd_stream *s)
{
    if (!s)
        return;
    client_close(s->x);
    buf_free(&s->in);
    arena_free(&s->arena);
    free(s);
}

void envd_closep(struct envd_stream **s) { envd_close(*s); }

/* One whole envelope at the front of s->in: 1, 0 when the stream has ended before one. */
static int read_envelope(struct envd_stream *s, struct connect_frame *f, struct err *err)
{
    for (;;) {
        struct str more;
        ssize_t n;
        int r = connect_decode_header((const unsigned char *)s->in.data, s->in.len, MESSAGE_MAX, f,
                                      err);

        if (r < 0)
            return err_in(err, "the guest's answer");
        if (r && s->in.len >= CONNECT_HEADER + (size_t)f->size)
            return 1;
        n = http_body_next(&s->x->body, &more, err);
        if (n < 0)
            return -1;
        if (!n)
            return s->in.len ? err_set(err, ERR_UPSTREAM, "the guest stopped in the middle") : 0;
        buf_add_str(&s->in, more);
    }
}

/* {"error": {...}} or {} */
static int take_end(struct envd_stream *s, struct str text, struct err *err)
{
    AUTO(json_dropp) json_t *j = json_read(text, err);
    json_t *e = j ? json_object_get(j, "error") : NULL;
    AUTO(freep) char *dumped = e ? json_dumps(e, JSON_COMPACT) : NULL;

    s->ended = true;
    if (!j)
        return -1;
    return dumped ? envd_problem(200, str_of(dumped), err) : 0;
}

static bool data_event(const struct data_event *d, struct envd_event *out)
{
    const struct bytes *b = d->out.data ? &d->out : d->err.data ? &d->err : &d->pty;

    if (!b->data)
        return false;
    out->kind = d->out.data ? ENVD_STDOUT : d->err.data ? ENVD_STDERR : ENVD_PTY;
    out->data = (struct str){ (const char *)b->data, b->n };
    return true;
}

/* false: nothing that our caller wants (a keep-alive, or something newer than we are) */
static bool translate(const struct any_event *e, struct envd_event *out)
{
    *out = (struct envd_event){ 0 };
    if (!e)
        return false;
    if (e->start) {
        out->kind = ENVD_START;
        out->pid = e->start->pid;
    } else if (e->data)
        return data_event(e->data, out);
    else if (e->lost) {
        out->kind = ENVD_LOST;
        out->lost = e->lost->bytes;
    } else if (e->end) {
        out->kind = ENVD_END;
        out->exit_code = e->end->exit_code;
        out->exited = e->end->exited;
        out->signal = e->end->signal;
        out->status = str_of(e->end->status);
    } else
        return false;
    return true;
}

int envd_next(struct envd_stream *s, struct envd_event *out, struct err *err)
{
    for (bool wanted = false; !wanted;) {
        struct connect_frame f;
        struct message m = { 0 };
        struct str text;
        int r;

        if (s->ended)
            return 0;
        r = read_envelope(s, &f, err);
        if (r <= 0)
            return r;
        text = (struct str){ s->in.data + CONNECT_HEADER, f.size };
        if (f.flags & CONNECT_END)
            return take_end(s, text, err);
        arena_reset(&s->arena);
        r = field_decode_text(message_fields, FIELDS_PROTO, text, &s->arena, &m, err);
        buf_drop(&s->in, CONNECT_HEADER + (size_t)f.size);
        if (r)
            return err_in(err, "the guest's event");
        wanted = translate(m.event, out);
    }
    return 1;
}
