/* httpd.c - accepting, the life of a connection, finding the route. See httpd.h. */
#include "io/httpd.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/connect.h"
#include "io/gzip.h"
#include "io/sock.h"

enum { SPARE_CALLS = 64, DRAIN = 256 << 10, LINGER_MS = 2000, BURST = 16 };

/* ---- calls are recycled: their head is too large for a coroutine's stack ---- */

static _Thread_local struct call *spare[SPARE_CALLS];
static _Thread_local int spares;

static struct call *call_get(struct httpd *d, struct conn *conn, struct seat *seat)
{
    struct call *c = spares ? spare[--spares] : xcalloc(1, sizeof(*c));

    c->server = d;
    c->conn = conn;
    c->seat = seat;
    return c;
}

static void call_clear(struct call *c)
{
    gunzip_destroy(TAKE(c->gunzip, NULL));
    http_body_finish(&c->body);
    c->body = (struct http_body){ 0 };
    arena_reset(&c->arena);
    c->headers.len = 0;
    if (c->scratch.cap > CONN_BUF)
        buf_free(&c->scratch);
    c->route = NULL;
    c->path = c->query = (struct str){ 0 };
    c->user = NULL;
    c->id[0] = 0;
    c->status = 0;
    c->head_only = c->chunked = c->close = false;
}

static void call_free(struct call *c)
{
    arena_free(&c->arena);
    buf_free(&c->headers);
    buf_free(&c->scratch);
    free(c);
}

static void trim_spares(void)
{
    while (spares)
        call_free(spare[--spares]);
}

static void call_put(struct call *c)
{
    call_clear(c);
    if (!spares)
        co_on_idle(trim_spares);
    if (spares < SPARE_CALLS)
        spare[spares++] = c;
    else
        call_free(c);
}

/* ---- routing ---- */

/* Matches one table path against the request's; {name} takes one segment. */
static bool path_matches(const char *pattern, struct str path, struct str *param)
{
    size_t i = 0;

    for (; *pattern; pattern++) {
        if (*pattern != '{') {
            if (i == path.n || path.p[i++] != *pattern)
                return false;
            continue;
        }
        *param = (struct str){ path.p + i, 0 };
        while (i < path.n && path.p[i] != '/')
            i++, param->n++;
        if (!param++->n)
            return false;
        pattern = strchr(pattern, '}');
    }
    return i == path.n;
}

/* Only now: an escaped '/' is part of a value, not the end of a segment. */
static int decode_params(struct call *c, struct err *err)
{
    size_t n = 0;

    for (const char *p = c->route->path; (p = strchr(p, '{')); p++, n++)
        if (str_percent_decode(&c->arena, c->param[n], false, &c->param[n]))
            return err_set(err, ERR_INVALID, "the path has a bad %% escape");
    return 0;
}

static int find_route(struct call *c, struct err *err)
{
    AUTO(buf_free) struct buf allow = { 0 };

    for (const struct route *const *t = c->server->tables; *t; t++)
        for (const struct route *r = *t; r->method; r++) {
            if (!path_matches(r->path, c->path, c->param))
                continue;
            if (str_is(c->head.method, r->method) || (c->head_only && !strcmp(r->method, "GET"))) {
                c->route = r;
                return decode_params(c, err);
            }
            buf_printf(&allow, "%s%s", allow.len ? ", " : "", r->method);
        }
    if (allow.len) {
        call_header(c, "Allow", buf_cstr(&allow));
        return err_set(err, ERR_METHOD, "method %.*s is not allowed here, only %s",
                       (int)MIN(c->head.method.n, (size_t)20), c->head.method.p, buf_cstr(&allow));
    }
    return err_set(err, ERR_NOT_FOUND, "there is nothing at %.*s", (int)MIN(c->path.n, (size_t)100),
                   c->path.p);
}

static int split_target(struct call *c, struct err *err)
{
    struct str path;

    str_cut(c->head.target, '?', &path, &c->query);
    if (!path.n || path.p[0] != '/')
        return err_set(err, ERR_INVALID, "the request target must begin with '/'");
    c->path = path;
    return 0;
}

/* ---- one request ---- */

static int preflight(struct call *c)
{
    struct str wanted = http_get(&c->head, "access-control-request-headers");

    call_header(c, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if (wanted.n)
        call_header(c, "Access-Control-Allow-Headers", arena_strdup(&c->arena, wanted));
    call_header(c, "Access-Control-Max-Age", "7200");
    return call_reply(c, 204, NULL, (struct str){ 0 });
}

static int run_route(struct call *c, struct err *err)
{
    const struct route *r = c->route;
    void *body = r->size ? arena_alloc(&c->arena, r->size) : NULL;

    switch (r->kind) {
    case ROUTE_JSON:
        if (r->fields &&
            call_read_json(c, r->fields, r->flags & ROUTE_LENIENT ? FIELDS_LENIENT : FIELDS_STRICT,
                           body, err))
            return -1;
        break;
    case ROUTE_UNARY:
        if (r->fields && call_read_json(c, r->fields, FIELDS_PROTO, body, err))
            return -1;
        break;
    case ROUTE_STREAM:
        if (connect_read_message(c, r->fields, body, err))
            return -1;
        break;
    case ROUTE_RAW:
    case ROUTE_UPSTREAM: break;
    }
    return r->fn(c, body, err);
}

static int answer(struct call *c, struct err *err)
{
    c->head_only = str_is(c->head.method, "HEAD");
    if (split_target(c, err))
        return -1;
    if (c->server->first) {
        int r = c->server->first(c, err);

        if (r)
            return r < 0 ? -1 : 0;
    }
    if (c->server->cors && str_is(c->head.method, "OPTIONS"))
        return preflight(c);
    if (find_route(c, err))
        return -1;
    if (c->server->before && c->server->before(c, err))
        return -1;
    return run_route(c, err);
}

static void log_call(struct call *c, int64_t began_us, const struct err *err)
{
    if (log_level > LOG_DEBUG)
        return;
    log_debug("request", KV("id", call_id(c)),
              KV("method", arena_strdup(&c->arena, c->head.method)),
              KV("path", arena_strdup(&c->arena, c->path)), KVI("status", c->status),
              KV("from", c->server->from ? c->server->from(c) : conn_peer(c->conn)),
              KVI("us", clock_us() - began_us), KV("error", err->code ? err->msg : ""));
}

/* A head too large to read whose last line is an endless Authorization is a wrong credential before
 * it is anything else. What little is known of the request is noted for who answers. */
static void judge_large_head(struct call *c, struct err *err)
{
    struct str seen = conn_peek(c->conn), line, method, target;
    const char *last = seen.p && seen.n ? memrchr(seen.p, '\n', seen.n) : NULL;

    if (err->code != ERR_HEADERS || !last)
        return;
    str_cut(seen, '\n', &line, &(struct str){ 0 });
    if (str_cut(line, ' ', &method, &line) && str_cut(line, ' ', &target, &line))
        str_cut(target, '?', &c->path, &(struct str){ 0 });
    line = (struct str){ last + 1, (size_t)(seen.p + seen.n - last) - 1 };
    if (str_cut(line, ':', &line, &(struct str){ 0 }) && str_iis(line, "authorization"))
        err_set(err, ERR_UNAUTHENTICATED, "the Authorization is larger than http.header-bytes=%lld",
                (long long)http_limits.header_bytes);
}

/* What a client that owes us nothing that anybody wants may still say: its place is free. */
static void hear_out(struct call *c)
{
    seat_is(c->seat, SEAT_SILENT);
    conn_linger(c->conn, co_in(LINGER_MS));
}

static void bad_head(struct call *c, struct err *err)
{
    c->head.keep = false;
    c->head.minor = 1;
    c->head.count = 0; /* what was parsed is the request before, or nonsense */
    judge_large_head(c, err);
    if (err->code != ERR_GONE)
        call_fail(c, err);
    http_flush(c->conn);
    hear_out(c);
}

/* Reads past a body that nobody wants. The answer goes out before we wait for it. */
static bool drain(struct call *c)
{
    if (http_flush(c->conn) || c->close)
        return false;
    seat_is(c->seat, SEAT_SILENT);
    return http_body_drain(&c->body, DRAIN);
}

/* Reads, answers and finishes one request: true when the connection goes on. */
static bool one_request(struct call *c)
{
    struct err err = { 0 };
    int64_t began_us = log_level > LOG_DEBUG ? 0 : clock_us();
    int r = http_read_head(c->conn, HTTP_REQUEST, &c->head, &err);

    if (r < 0)
        bad_head(c, &err);
    if (r <= 0 || co_cancelled()) /* it had to go before this request was read: try it again */
        return false;
    c->server->requests++;
    http_body_init(&c->body, c->conn, &c->head, HTTP_REQUEST);
    seat_is(c->seat, c->body.done ? SEAT_BUSY : SEAT_OWING);
    c->conn->owed_ms = 0;
    if (!c->body.done || c->head.upgrade) /* reading on moves what the head's slices point into */
        http_head_keep(&c->head, &c->arena);
    r = answer(c, &err);
    if (r < 0 && c->status && (c->route ? c->route->kind : ROUTE_RAW) < ROUTE_STREAM) {
        log_call(c, began_us, &err);
        return false; /* too late for an error: cutting the stream short is the only signal */
    }
    if (r < 0 && err.code == ERR_GONE)
        return false;
    if (r < 0) {
        c->close |= !c->body.done &&
                    (err.code == ERR_INVALID || err.code == ERR_TIMEOUT || c->body.left > DRAIN);
        if (c->server->failing)
            c->server->failing(c, &err);
        call_fail(c, &err);
    }
    log_call(c, began_us, &err);
    if (!c->body.done && !drain(c)) {
        hear_out(c);
        return false;
    }
    return !c->close;
}

/* ---- connections ---- */

struct serving {
    struct httpd *server;
    int fd;
    struct seat seat;
};

struct at_work { /* on the stack of each coroutine of a server */
    struct list in;
    struct co_ref co;
};

static void go_to_work(struct httpd *d, struct at_work *w)
{
    if (!d->serving.next) {
        list_init(&d->serving);
        co_cond_init(&d->less);
    }
    w->co = co_self();
    list_push(&d->serving, &w->in);
}

static void leave_work(struct httpd *d, struct at_work *w)
{
    list_remove(&w->in);
    if (d->closing)
        co_cond_wake(&d->less);
}

/* Somebody who speaks plain HTTP to a port with TLS is told so; others see the connection end. */
static bool guarded(struct conn *conn, struct conn_guard *g)
{
    struct err err = { 0 };
    char text[768];

    if (!g->begin(g, conn, NULL, co_in(http_limits.header_ms), &err))
        return true;
    log_debug("handshake", KV("peer", conn_peer(conn)), KV("error", err.msg));
    if (err.code != ERR_INVALID || conn->ops)
        return false;
    snprintf(text, sizeof(text),
             "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
             "Content-Length: %zu\r\nConnection: close\r\n\r\n%s\n",
             strlen(err.msg) + 1, err.msg);
    if (!http_put(conn, str_of(text)) && !http_flush(conn))
        conn_linger(conn, co_in(LINGER_MS));
    return false;
}

/* Is there a head that can be answered without a wait? */
static bool has_head(const struct conn *c)
{
    struct str s = conn_peek(c);

    return s.p && memmem(s.p, s.n, "\r\n\r\n", 4);
}

/* What was answered goes out before the next request is waited for. */
static bool await_request(struct serving *s, struct conn *c, bool first)
{
    bool soon = first && !s->server->ahead;
    ssize_t r;

    if (http_flush(c))
        return false;
    if (!first)
        seat_is(&s->seat, SEAT_KEPT);
    if (conn_ready(c))
        return true;
    r = conn_fill_idle(c, co_in(soon ? http_limits.header_ms : http_limits.idle_ms));
    if (r < 0 && soon && errno == ETIMEDOUT)
        seat_late();
    return r > 0;
}

static void serve(void *arg)
{
    struct serving *s = arg;
    struct httpd *d = s->server;
    struct at_work work;
    struct conn conn;
    bool more;

    go_to_work(d, &work);
    conn_init(&conn, s->fd);
    s->seat.conn = &conn;
    more = !d->closing && (!d->tls || guarded(&conn, d->tls));
    for (bool first = true; more && await_request(s, &conn, first); first = false) {
        struct call *c = call_get(d, &conn, &s->seat);

        do
            call_clear(c);
        while ((more = one_request(c)) && has_head(&conn));
        if (!more)
            seat_is(&s->seat, SEAT_SILENT);
        call_put(c);
    }
    http_flush(&conn);
    conn_finish(&conn);
    seat_leave(&s->seat);
    free(s);
    d->conns--;
    leave_work(d, &work);
}

/* As much as can be said without waiting for somebody who is one too many. */
static int turn_away(struct httpd *d, int fd, const struct err *err)
{
    char text[512], unread[1024];
    int n = snprintf(text, sizeof(text),
                     "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; "
                     "charset=utf-8\r\nRetry-After: 1\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n%s\n",
                     strlen(err->msg) + 1, err->msg);

    log_debug("connection refused", KV("error", err->msg));
    while (recv(fd, unread, sizeof(unread), MSG_DONTWAIT) == (ssize_t)sizeof(unread))
        ; /* closing with unread input would take the answer back */
    if (!d->tls)
        send(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    co_close(fd);
    return -1;
}

int httpd_serve(struct httpd *d, int fd)
{
    struct serving *s = xmalloc(sizeof(*s));
    struct err err = { 0 };

    *s = (struct serving){ .server = d, .fd = fd };
    if (seat_take(&s->seat, fd, &err)) {
        free(s);
        return turn_away(d, fd, &err);
    }
    d->conns++;
    if (!co_go(serve, s, &s->seat.co))
        return 0;
    d->conns--;
    seat_leave(&s->seat);
    free(s);
    co_close(fd);
    return -1;
}

void httpd_listen(struct httpd *d, int listener)
{
    struct at_work work;
    unsigned burst = 0;

    go_to_work(d, &work);
    sock_look_after(listener);
    while (!d->closing) {
        int fd = co_accept(listener);

        if (fd < 0)
            break;
        httpd_serve(d, fd);
        /* a queue that never runs empty must not keep the others from running, nor those that had
         * to make room from closing */
        if (++burst % BURST == 0)
            co_pass();
    }
    co_close(listener);
    leave_work(d, &work);
}

void httpd_close(struct httpd *d)
{
    struct at_work *w;

    d->closing = true;
    if (!d->serving.next)
        return;
    list_each(w, &d->serving, in)
        co_cancel(w->co);
    while (d->conns || !list_empty(&d->serving)) /* one that has not begun yet ends by itself */
        if (co_cond_wait(&d->less, NEVER))
            co_pass();
}
