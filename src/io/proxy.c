/* proxy.c - see proxy.h.
 *
 * The call's own coroutine sends the request's head, waits for the answer and passes it on. A
 * second one, the call's side, exists only where it is needed: while a request body is still
 * arriving it sends that on, and once an answer takes its time it watches for the client's leaving,
 * which it reports by breaking the upstream connection. A small request on a quick upstream thus
 * costs one coroutine and one write in each direction.
 *
 * Never: pass on framing as it came (each side's is made anew), retry what may have been carried
 * out, end a broken answer as if it were whole, write to one connection from both coroutines: to
 * the client only the call's own writes, to the upstream the side as soon as there is one. */
#include "io/proxy.h"

#include <errno.h>
#include <poll.h>

#include "io/proxy_head.h"

enum { WATCH_AFTER_MS = 20, EXPECT_MS = 1000, PEEK_MS = 100, BURST = 32 };

struct proxy_limits proxy_limits = { .tunnel_ms = 3600000 };

const struct setting proxy_settings[] = {
    { "proxy.tunnel-ms", &proxy_limits.tunnel_ms, 10, INT32_MAX,
      "time an upgraded connection may be silent in both directions" },
    { 0 },
};

struct pass { /* one call on its way */
    struct proxy *p;
    struct call *c;
    struct exchange *x;
    struct co_ref side;
    struct co_cond side_ended, stream_begun;
    bool side_runs, side_was; /* now; ever */
    bool upgraded;            /* the side carries a tunnel */
    bool streams;             /* the answer has no length and is waited for */
    struct err client;        /* why the client's side ended the exchange */
};

/* ---- bodies ---- */

enum relayed { RELAYED, SOURCE_FAILED, SINK_FAILED };

struct relay {
    struct pass *s;
    struct http_body *from;
    struct conn *to;
    bool chunked;                                 /* what goes out */
    int (*wait)(struct pass *s, struct err *err); /* for more of the source */
};

static enum relayed finish_relay(const struct relay *r, struct err *err)
{
    AUTO(buf_free) struct buf trailers = { 0 };
    bool answer = r->from == &r->s->x->body;

    if (!r->chunked)
        return RELAYED;
    if (r->from->trailers.len &&
        proxy_head_trailers(r->s->p, answer, &r->from->trailers, &trailers, err))
        return SOURCE_FAILED;
    return http_put_last_chunk(r->to, buf_str(&trailers)) ? SINK_FAILED : RELAYED;
}

/* Passes a body on piece by piece, from buffer to buffer. What was put is sent before the source is
 * waited for; and since sending may park, during which an event of the source would be lost, the
 * source is tried once more before the wait. */
static enum relayed relay(const struct relay *r, struct err *err)
{
    struct str piece;
    unsigned burst = 0;
    ssize_t n;

    while ((n = http_body_next(r->from, &piece, err))) {
        if (n > 0) {
            if (r->chunked ? http_put_chunk(r->to, piece.p, piece.n) : http_put(r->to, piece))
                return SINK_FAILED;
            r->s->p->moved_at = co_now();
            if (++burst % BURST == 0)
                co_pass(); /* a fast source and a fast sink must not keep the others from running */
        } else if (err->code) {
            return SOURCE_FAILED;
        } else if (r->to->used) {
            if (http_flush(r->to))
                return SINK_FAILED;
        } else if (r->wait(r->s, err)) {
            return SOURCE_FAILED;
        }
    }
    if (r->s->client.code) { /* the side broke the upstream: an end it did not mean */
        err_set(err, ERR_GONE, "the client left");
        return SOURCE_FAILED;
    }
    return finish_relay(r, err);
}

/* ---- the call's side: the request's body, then the watch ---- */

static int wait_client(struct pass *s, struct err *err)
{
    if (!conn_wait(s->c->conn, co_in(http_limits.body_ms)))
        return 0;
    if (errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "the body paused longer than http.body-ms=%lld",
                       (long long)http_limits.body_ms);
    return err_set(err, ERR_GONE, "cancelled");
}

/* true when all went out; false leaves the answer, if there is one, to tell why */
static bool send_body(struct pass *s)
{
    struct relay r = { s, &s->c->body, s->x->conn, s->c->head.chunked, wait_client };
    struct err err = { 0 };
    enum relayed end;

    s->c->conn->nowait = true;
    end = relay(&r, &err);
    s->c->conn->nowait = false;
    if (end == RELAYED && !http_flush(s->x->conn)) {
        s->x->sent = true;
        s->p->moved_at = co_now();
        return true;
    }
    if (end == SOURCE_FAILED && !co_cancelled()) {
        s->client = err;
        conn_break(s->x->conn);
    }
    return false;
}

/* Returns when the client has left, or -1 when cancelled. Input that waits (the next request) would
 * hide the end from a read, so poll() is asked. */
static int watch_client(struct pass *s)
{
    struct pollfd p = { .fd = s->c->conn->fd, .events = POLLIN | POLLRDHUP };

    for (;;) {
        poll(&p, 1, 0);
        if (p.revents & (POLLRDHUP | POLLHUP | POLLERR))
            return 0;
        if (p.revents ? co_sleep(co_in(PEEK_MS)) : co_wait(p.fd, CO_IN, NEVER))
            return -1;
    }
}

/* A quick answer needs no watch. A stream is watched from its first wait on: its client may leave
 * and come back at once, and what we pass to the connection that it has left is lost to the next.
 */
static bool watch_is_due(struct pass *s)
{
    int64_t until = co_in(WATCH_AFTER_MS);

    while (!s->streams)
        if (co_cond_wait(&s->stream_begun, until))
            return errno == ETIMEDOUT;
    return true;
}

static int pump(struct pass *s, struct conn *from, struct conn *to);

static void side(void *arg)
{
    struct pass *s = arg;

    if (co_cancelled()) {
        /* stopped before it began */
    } else if (s->upgraded) {
        if (pump(s, s->c->conn, s->x->conn))
            conn_break(s->x->conn);
    } else if (s->x->sent || s->x->answered || (send_body(s) && watch_is_due(s))) {
        if (!watch_client(s)) {
            err_set(&s->client, ERR_GONE, "the client left");
            conn_break(s->x->conn);
            conn_break(s->c->conn); /* one that only said so would not end a write to it */
        }
    }
    s->side_runs = false;
    co_cond_wake(&s->side_ended);
}

static int start_side(struct pass *s, struct err *err)
{
    s->side_runs = s->side_was = true;
    if (!co_go(side, s, &s->side))
        return 0;
    s->side_runs = false;
    return err_set(err, ERR_UNAVAILABLE, "no memory for another coroutine");
}

/* Asks a client that waits to be asked for its body, and starts the side that sends it on. The side
 * itself must not ask: it would write between the interim answers that pass here. */
static int start_body(struct pass *s, struct err *err)
{
    if (!http_body_want(&s->c->body, err))
        return start_side(s, err);
    s->p->fault = PROXY_CLIENT;
    return -1;
}

/* Cancelled or not ourselves, we may not leave before the side has: it uses our variables. */
static void stop_side(struct pass *s)
{
    if (s->side_runs)
        co_cancel(s->side);
    while (s->side_runs)
        co_pass();
}

/* ---- the answer ---- */

static int begin_stream(struct pass *s, struct err *err)
{
    s->streams = true;
    co_cond_wake(&s->stream_begun);
    return s->side_was ? 0 : start_side(s, err);
}

/* Waits until the upstream can be read. */
static int wait_upstream(struct pass *s, struct err *err)
{
    conn_rest(s->x->conn); /* few buffers, all of them warm */
    if (!s->streams && s->x->answered && s->x->head.chunked && begin_stream(s, err))
        return -1;
    for (;;) {
        int64_t until = s->p->moved_at + s->x->answer_ms, first = until;

        if (!s->side_was && (s->x->sent || s->x->answered))
            first = MIN(until, co_in(WATCH_AFTER_MS));
        else if (!s->side_was && s->c->body.expect)
            first = MIN(until, co_in(EXPECT_MS)); /* a server that does not know 100 Continue */
        if (!conn_wait(s->x->conn, first))
            return 0;
        if (errno != ETIMEDOUT)
            return err_set(err, ERR_GONE, "cancelled");
        if (s->p->moved_at + s->x->answer_ms <= co_now())
            return err_set(err, ERR_TIMEOUT, "no answer within client.answer-ms=%lld",
                           (long long)s->x->answer_ms);
        if (first == until)
            continue; /* the other direction has moved meanwhile */
        if (s->x->sent || s->x->answered ? start_side(s, err) : start_body(s, err))
            return -1;
    }
}

/* 1 a head, 0 closed before it, -1; err says why */
static int read_head(struct pass *s, struct err *err)
{
    struct conn *u = s->x->conn;
    int r;

    while (!conn_ready(u)) {
        u->nowait = true;
        r = conn_fill(u, CONN_BUF, NEVER) < 0 && errno == EAGAIN;
        u->nowait = false;
        if (!r)
            break; /* bytes, the end or an error: client_head() tells them apart */
        if (wait_upstream(s, err)) {
            s->p->fault = err->code == ERR_TIMEOUT ? PROXY_TIMEOUT : PROXY_CLIENT;
            return -1;
        }
    }
    r = client_head(s->x, NEVER, err);
    if (r <= 0)
        s->p->fault = r == 0                     ? PROXY_CLOSED
                      : err->code == ERR_TIMEOUT ? PROXY_TIMEOUT
                                                 : PROXY_BROKEN;
    return r;
}

/* Reads heads up to the final one. 100 Continue is the signal to send the body, which tells the
 * client to go on; other interim answers are passed to those who know them. */
static int read_answer(struct pass *s, struct err *err)
{
    for (;;) {
        int r = read_head(s, err);

        if (r <= 0 || s->x->answered)
            return r;
        if (s->x->head.status == 100) {
            if (!s->x->sent && !s->side_was && start_body(s, err))
                return -1;
        } else if (s->c->head.minor) {
            proxy_head_interim(s->p, s->c, s->x);
            if (http_put(s->c->conn, buf_str(&s->c->scratch)) || http_flush(s->c->conn)) {
                s->p->fault = PROXY_CLIENT;
                return err_set(err, ERR_GONE, "the client left");
            }
        }
    }
}

static int broke_off(struct pass *s, struct err *err)
{
    /* A body that ends with its connection would look whole: only a reset tells the client. */
    if (!s->c->chunked && s->x->to_the_end)
        conn_cut(s->c->conn);
    s->p->fault = PROXY_BROKEN;
    err->code = ERR_UPSTREAM;
    return err_in(err, "the upstream's answer broke off");
}

static int pass_answer(struct pass *s, struct err *err)
{
    struct relay r = { s, &s->x->body, s->c->conn, false, wait_upstream };
    enum relayed end;

    proxy_head_answer(s->p, s->c, s->x);
    r.chunked = s->c->chunked;
    if (http_put(s->c->conn, buf_str(&s->c->scratch)))
        return err_set(err, ERR_GONE, "the client left");
    if (s->x->body.done)
        return 0;
    s->x->conn->nowait = true;
    end = relay(&r, err);
    s->x->conn->nowait = false;
    if (end == SINK_FAILED)
        return err_set(err, ERR_GONE, "the client left");
    return end == RELAYED ? 0 : broke_off(s, err);
}

/* ---- upgrades ---- */

/* One direction of a tunnel, to its end; -1 when it broke. */
static int pump(struct pass *s, struct conn *from, struct conn *to)
{
    for (;;) {
        struct str piece;
        int64_t until = s->p->moved_at + proxy_limits.tunnel_ms;
        ssize_t n = conn_ready(from) ? 1 : conn_fill(from, CONN_BUF, until);

        if (n < 0 && errno == ETIMEDOUT && s->p->moved_at + proxy_limits.tunnel_ms > co_now())
            continue; /* the other direction is alive */
        if (n < 0)
            return -1;
        if (n == 0) {
            conn_end_output(to);
            return 0;
        }
        piece = conn_peek(from);
        from->pos += piece.n;
        if (http_put(to, piece) || http_flush(to))
            return -1;
        s->p->moved_at = co_now();
    }
}

static int tunnel(struct pass *s, struct err *err)
{
    struct call *c = s->c;

    if (!proxy_head_upgrades(&c->head) || !s->x->sent) {
        s->p->fault = PROXY_BROKEN;
        return err_set(err, ERR_UPSTREAM, "broken answer: an upgrade that was not asked for");
    }
    stop_side(s);
    http_head_keep(&c->head, &c->arena); /* the client's buffer is read on; logs still want these */
    c->path.p = arena_strdup(&c->arena, c->path);
    proxy_head_answer(s->p, c, s->x);
    c->close = true;
    s->upgraded = true;
    if (http_put(c->conn, buf_str(&c->scratch)) || http_flush(c->conn) || start_side(s, err))
        return err_set(err, ERR_GONE, "the client left");
    if (pump(s, s->x->conn, c->conn))
        conn_break(c->conn);
    while (s->side_runs && !co_cond_wait(&s->side_ended, NEVER))
        ;
    return 0;
}

/* ---- the request ---- */

/* Sends the head, and the body too if it is here already. Otherwise the head waits in the buffer
 * for the body's first piece, unless the client waits to be told to send it. */
static int send_request(struct pass *s, struct err *err)
{
    struct call *c = s->c;
    struct conn *u = s->x->conn;
    struct str piece;

    s->x->head_only = c->head_only;
    proxy_head_request(s->p, c);
    if (http_put(u, buf_str(&c->scratch)))
        return 0;
    if (!c->body.done && !c->body.expect && !c->body.chunked &&
        c->body.left <= (int64_t)conn_ready(c->conn) && http_body_next(&c->body, &piece, err) > 0 &&
        http_put(u, piece))
        return 0;
    s->p->moved_at = co_now();
    if (!c->body.done && !c->body.expect)
        return start_side(s, err);
    if (!http_flush(u))
        s->x->sent = c->body.done;
    return 0;
}

/* Opens, sends, reads the answer's head; once more when a kept connection was a dead one. A failed
 * write is no reason not to read: a server may refuse early and close. */
static int ask(struct pass *s, struct err *err)
{
    bool untouched = s->c->body.done || s->c->body.expect;

    for (bool fresh = false;; fresh = true) {
        int r;

        s->x = client_open(s->p->client, &s->p->to, fresh, err);
        if (!s->x) {
            s->p->fault = err->code == ERR_TIMEOUT ? PROXY_CONNECT_TIMEOUT : PROXY_CONNECT;
            return -1;
        }
        if (send_request(s, err))
            return -1;
        r = read_answer(s, err);
        if (r > 0)
            return 0;
        if (r < 0 || !untouched || s->side_was ||
            !client_may_repeat(s->x, s->c->head.method, s->x->sent))
            return -1;
        client_close(TAKE(s->x, NULL));
        *err = (struct err){ 0 };
    }
}

static int pass(struct pass *s, struct err *err)
{
    if (ask(s, err))
        return -1;
    return s->x->head.status == 101 ? tunnel(s, err) : pass_answer(s, err);
}

int proxy_call(struct proxy *p, struct call *c, struct err *err)
{
    struct pass s = { .p = p, .c = c };
    int r;

    p->fault = PROXY_OK;
    p->moved_at = co_now();
    err->code = ERR_NONE; /* relay() tells a pause from a failure by it */
    co_cond_init(&s.side_ended);
    co_cond_init(&s.stream_begun);
    r = pass(&s, err);
    stop_side(&s);
    if (r < 0 && s.client.code) {
        p->fault = PROXY_CLIENT;
        *err = s.client;
    }
    if (s.side_was && !c->body.done)
        c->close = true; /* the rest of the body is not worth reading */
    if (s.x)
        client_close(s.x);
    return r;
}
