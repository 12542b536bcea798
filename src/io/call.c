/* call.c - what a handler does with its request and its answer; see httpd.h. */
#include <errno.h>

#include "base/id.h"
#include "io/connect.h"
#include "io/gzip.h"
#include "io/httpd.h"

/* ---- the request ---- */

static bool usable_id(struct str s, size_t max)
{
    if (!s.n || s.n > max)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~' || s.p[i] == '"' || s.p[i] == '\\')
            return false;
    return true;
}

const char *call_id(struct call *c)
{
    struct str given;

    if (c->id[0])
        return c->id;
    given = http_get(&c->head, "x-request-id");
    if (usable_id(given, sizeof(c->id) - 1)) {
        memcpy(c->id, given.p, given.n);
        c->id[given.n] = 0;
    } else {
        id_random(c->id, 20);
    }
    return c->id;
}

struct str call_query(struct call *c, const char *name, struct err *err)
{
    struct str rest = c->query, pair, key, value, none = { NULL, 0 };

    while (rest.p) {
        str_cut(rest, '&', &pair, &rest);
        str_cut(pair, '=', &key, &value);
        if (!str_is(key, name))
            continue;
        if (!str_percent_decode(&c->arena, value, true, &value))
            return value;
        err_set(err, ERR_INVALID, "query parameter '%s' has a bad %% escape", name);
        return none;
    }
    return none;
}

static ssize_t raw_body(void *arg, void *buf, size_t n, struct err *err)
{
    struct call *c = arg;

    return http_body_read(&c->body, buf, n, err);
}

static int start_decoding(struct call *c, struct err *err)
{
    struct str coding = http_get(&c->head, "content-encoding");

    if (!coding.n || str_iis(coding, "identity"))
        return 0;
    if (!str_iis(coding, "gzip"))
        return err_set(err, ERR_INVALID, "Content-Encoding '%.*s' is not gzip or identity",
                       (int)MIN(coding.n, (size_t)40), coding.p);
    c->gunzip = gunzip_create(raw_body, c);
    return 0;
}

ssize_t call_read(struct call *c, void *buf, size_t n, struct err *err)
{
    if (!c->body.total && !c->gunzip && start_decoding(c, err))
        return -1;
    return c->gunzip ? gunzip_read(c->gunzip, buf, n, err) : http_body_read(&c->body, buf, n, err);
}

static int64_t body_max(const struct call *c)
{
    return c->route && c->route->body_max ? c->route->body_max : http_limits.body_bytes;
}

static const char *body_max_name(const struct call *c)
{
    return c->route && c->route->body_max ? "this call's body-bytes" : "http.body-bytes";
}

int call_read_all(struct call *c, struct buf *out, struct err *err)
{
    int64_t max = body_max(c);

    if (c->head.length > max)
        return err_set(err, ERR_TOO_LARGE, "body of %lld bytes is larger than %s=%lld",
                       (long long)c->head.length, body_max_name(c), (long long)max);
    for (;;) {
        size_t room = c->body.left > 0 ? (size_t)MIN(c->body.left, (int64_t)64 << 10) : 2048;
        ssize_t r;

        buf_reserve(out, room);
        r = call_read(c, out->data + out->len, out->cap - out->len - 1, err);
        if (r <= 0) {
            out->data[out->len] = 0;
            return (int)r;
        }
        out->len += (size_t)r;
        if (out->len > (size_t)max)
            return err_set(err, ERR_TOO_LARGE, "body larger than %s=%lld", body_max_name(c),
                           (long long)max);
    }
}

/* A body that arrived whole with its head is decoded where it lies. */
static bool body_in_buffer(struct call *c, struct str *text)
{
    struct str ready = conn_peek(c->conn);

    if (c->body.chunked || c->body.left <= 0 || c->body.left > (int64_t)ready.n ||
        c->body.left > body_max(c) || http_get(&c->head, "content-encoding").n)
        return false;
    *text = (struct str){ ready.p, (size_t)c->body.left };
    c->conn->pos += text->n;
    c->body.left = 0;
    c->body.done = true;
    return true;
}

int call_read_json(struct call *c, const struct field *table, enum field_mode mode, void *out,
                   struct err *err)
{
    AUTO(buf_free) struct buf body = { 0 };
    struct str text;

    if (!body_in_buffer(c, &text)) {
        if (call_read_all(c, &body, err))
            return -1;
        text = buf_str(&body);
    }
    if (!text.n)
        text = STR("{}"); /* an absent body is an empty message; required fields still say so */
    return field_decode_text(table, mode, text, &c->arena, out, err);
}

/* ---- the answer ---- */

void call_header(struct call *c, const char *name, const char *value)
{
    buf_puts(&c->headers, name);
    buf_add(&c->headers, ": ", 2);
    buf_puts(&c->headers, value);
    buf_add(&c->headers, "\r\n", 2);
}

static void put_status(struct buf *b, int status)
{
    if (LIKELY(status == 200)) {
        buf_add_str(b, STR("HTTP/1.1 200 OK\r\nDate: "));
    } else {
        buf_add_str(b, STR("HTTP/1.1 "));
        buf_put_u64(b, (uint64_t)status);
        buf_putc(b, ' ');
        buf_puts(b, http_reason(status));
        buf_add_str(b, STR("\r\nDate: "));
    }
    buf_puts(b, clock_http_date());
    buf_add(b, "\r\n", 2);
}

static int put_head(struct call *c, int status, const char *type, int64_t length)
{
    struct buf *b = &c->scratch;
    bool bodyless = status == 204 || status == 304 || status < 200;

    b->len = 0;
    c->status = status;
    c->conn->patience = 0; /* what the handler asks for holds for its own answer */
    put_status(b, status);
    if (type && !bodyless) {
        buf_add_str(b, STR("Content-Type: "));
        buf_puts(b, type);
        buf_add(b, "\r\n", 2);
    }
    if (length >= 0 && !bodyless) {
        buf_add_str(b, STR("Content-Length: "));
        buf_put_u64(b, (uint64_t)length);
        buf_add(b, "\r\n", 2);
    } else if (!bodyless && c->head.minor) {
        c->chunked = !c->head_only;
        buf_add_str(b, STR("Transfer-Encoding: chunked\r\n"));
    } else if (!bodyless) {
        c->close = true; /* HTTP/1.0: the body ends with the connection */
    }
    if (!c->head.keep)
        c->close = true;
    if (c->close)
        buf_add_str(b, STR("Connection: close\r\n"));
    else if (!c->head.minor)
        buf_add_str(b, STR("Connection: keep-alive\r\n"));
    if (c->server->cors)
        buf_add_str(b, STR("Access-Control-Allow-Origin: *\r\n"));
    if (c->server->tell_id) {
        buf_add_str(b, STR("X-Request-ID: "));
        buf_puts(b, call_id(c));
        buf_add(b, "\r\n", 2);
    }
    if (c->headers.len)
        buf_add_str(b, buf_str(&c->headers));
    buf_add(b, "\r\n", 2);
    return http_put(c->conn, buf_str(b));
}

int call_reply(struct call *c, int status, const char *type, struct str body)
{
    if (put_head(c, status, type, (int64_t)body.n))
        return -1;
    return body.n && !c->head_only ? http_put(c->conn, body) : 0;
}

int call_reply_json(struct call *c, int status, const struct buf *json)
{
    return call_reply(c, status, "application/json", buf_str(json));
}

int call_begin(struct call *c, int status, const char *type, int64_t length)
{
    return put_head(c, status, type, length);
}

int call_send(struct call *c, const void *p, size_t n)
{
    if (!n || c->head_only)
        return 0;
    return c->chunked ? http_put_chunk(c->conn, p, n) : http_put(c->conn, (struct str){ p, n });
}

int call_end(struct call *c)
{
    return c->chunked ? http_put_last_chunk(c->conn, (struct str){ 0 }) : 0;
}

int call_flush(struct call *c) { return http_flush(c->conn); }

static void fail_rest(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    /* 408 where the client was slow, 504 where somebody behind us was */
    int status = err->code == ERR_TIMEOUT && !c->body.done ? 408 : err_status(err->code);

    json_open(&json, '{');
    json_kv_int(&json, "code", status);
    json_kv_str(&json, "message", err->msg);
    json_close(&json, '}');
    call_reply_json(c, status, &json);
}

void call_fail(struct call *c, const struct err *err)
{
    if (c->server->refuse && c->server->refuse(c, err))
        return;
    switch (c->route ? c->route->kind : ROUTE_RAW) {
    case ROUTE_JSON:
    case ROUTE_RAW: fail_rest(c, err); break;
    case ROUTE_UNARY: connect_reply_error(c, err); break;
    case ROUTE_STREAM:
    case ROUTE_UPSTREAM: connect_end_error(c, err); break;
    }
}
