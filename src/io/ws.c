/* ws.c - WebSocket over a connection: the two handshakes, messages, control frames. See ws.h.
 *
 * Reading: the decoder unmasks in the connection's buffer, and a message that lies there whole is
 * handed out from there; a large payload goes from the socket straight into the message. Writing:
 * header and payload in one system call, under a lock, since the reader writes too (pongs). It does
 * not use the connection's output buffer, which belongs to one coroutine at a time.
 *
 * After a Close was sent, or a write broke off in the middle of a frame, nothing more is sent. */
#include "io/ws.h"

#include <errno.h>
#include <sys/random.h>

#include "base/mem.h"

enum { LARGE = 64 << 10, CLOSE_MS = 3000, LINGER_MS = 2000, REASON_MAX = WS_CONTROL_MAX - 2 };
enum { KEY_BYTES = 16, KEY_LEN = 24 };

struct ws_limits ws_limits = { .message_bytes = 16 << 20, .ping_ms = 30000, .idle_ms = 90000 };

const struct setting ws_settings[] = {
    { "ws.message-bytes", &ws_limits.message_bytes, 125, INT64_MAX,
      "bytes of one WebSocket message that is held in memory" },
    { "ws.ping-ms", &ws_limits.ping_ms, 10, INT32_MAX,
      "time without a word from a WebSocket's peer before it is sent a ping" },
    { "ws.idle-ms", &ws_limits.idle_ms, 10, INT32_MAX,
      "time without a word from a WebSocket's peer before it is given up" },
    { 0 },
};

/* ---- writing ---- */

static void random_bytes(void *p, size_t n)
{
    if (getrandom(p, n, 0) != (ssize_t)n)
        abort(); /* up to 256 bytes always come whole */
}

static int write_plain(struct ws *ws, struct ws_frame *f, const void *p, int64_t ms)
{
    unsigned char head[WS_HEADER_MAX];
    struct iovec v[2] = { { head, ws_encode_header(head, f) },
                          { (void *)(uintptr_t)p, (size_t)f->size } };

    return conn_writev(ws->conn, v, f->size ? 2 : 1, co_in(ms));
}

/* A client masks (5.3): a copy, since the payload is the caller's, but never all of it at once. */
static int write_masked(struct ws *ws, struct ws_frame *f, const void *p, int64_t ms)
{
    size_t cap = (size_t)MIN(f->size + WS_HEADER_MAX, (uint64_t)CONN_BUF), used;
    AUTO(freep) unsigned char *b = xmalloc(cap);
    uint64_t at = 0;

    f->masked = true;
    random_bytes(f->mask, sizeof(f->mask));
    used = ws_encode_header(b, f);
    do {
        size_t n = (size_t)MIN(f->size - at, (uint64_t)(cap - used));

        if (n)
            memcpy(b + used, (const char *)p + at, n);
        ws_mask(b + used, n, f->mask, at);
        if (conn_writev(ws->conn, &(struct iovec){ b, used + n }, 1, co_in(ms)))
            return -1;
        at += n;
        used = 0;
    } while (at < f->size);
    return 0;
}

/* Whoever writes already has a time-out of its own, which grows with what the peer takes. Only the
 * last word does not wait for that. */
static int send_frame(struct ws *ws, struct ws_frame f, const void *p, int64_t ms)
{
    int64_t until = f.op == WS_CLOSE ? co_in(ms) : NEVER;
    int r;

    while (ws->writing)
        if (co_cond_wait(&ws->changed, until) < 0)
            return -1;
    if (ws->close_sent) {
        errno = EPIPE;
        return -1;
    }
    ws->writing = true;
    r = ws->in.role == WS_CLIENT ? write_masked(ws, &f, p, ms) : write_plain(ws, &f, p, ms);
    if (r || f.op == WS_CLOSE) {
        ws->close_sent = true;
        ws->close_at = co_in(r ? 0 : CLOSE_MS);
    }
    ws->writing = false;
    co_cond_wake(&ws->changed);
    return r;
}

int ws_send_piece(struct ws *ws, enum ws_op op, const void *p, size_t n, bool end)
{
    return send_frame(ws, (struct ws_frame){ .fin = end, .op = op, .size = n }, p,
                      http_limits.write_ms);
}

int ws_send(struct ws *ws, enum ws_op op, const void *p, size_t n)
{
    return ws_send_piece(ws, op, p, n, true);
}

void ws_close(struct ws *ws, enum ws_code code, const char *reason)
{
    unsigned char b[WS_CONTROL_MAX] = { (unsigned char)(code >> 8), (unsigned char)code };
    size_t n = MIN(strlen(reason), (size_t)REASON_MAX);

    while (n && reason[n] && ((unsigned char)reason[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    memcpy(b + 2, reason, n);
    n = code == WS_NO_CODE ? 0 : n + 2;
    send_frame(ws, (struct ws_frame){ .fin = true, .op = WS_CLOSE, .size = n }, b, CLOSE_MS);
}

/* ---- reading ---- */

static int fail(struct ws *ws, enum ws_code code, const struct err *err)
{
    ws->code = code;
    ws->ended = true;
    if (code != WS_LOST)
        ws_close(ws, code, err->msg);
    return -1;
}

static int input_failed(struct ws *ws, ssize_t r, struct err *err)
{
    enum ws_code code = WS_LOST;

    if (r == 0) {
        err_set(err, ERR_GONE, "the peer left without a Close");
    } else if (errno == ETIMEDOUT && ws->close_sent) {
        err_set(err, ERR_TIMEOUT, "the peer did not answer the Close");
    } else if (errno == ETIMEDOUT) {
        err_set(err, ERR_TIMEOUT, "no word from the peer for ws.idle-ms=%lld",
                (long long)ws_limits.idle_ms);
        code = WS_GOING_AWAY;
    } else {
        code = errno == ECANCELED ? WS_GOING_AWAY : WS_LOST;
        err_sys(err, "reading a WebSocket");
    }
    return fail(ws, code, err);
}

/* A ping is due; while somebody writes, the peer has enough to prove itself alive with. */
static void ping(struct ws *ws)
{
    if (!ws->writing && !ws->close_sent)
        ws_send(ws, WS_PING, "", 0);
}

/* Waits for bytes: in the connection's buffer, or with large straight at the message's end. */
static ssize_t input(struct ws *ws, bool large)
{
    int64_t idle_at = co_in(ws_limits.idle_ms);
    size_t want = (size_t)MIN(ws->in.left, (uint64_t)LARGE);

    if (large)
        buf_reserve(&ws->message, want);
    for (;;) {
        int64_t give_up = ws->close_sent ? MIN(ws->close_at, idle_at) : idle_at;
        int64_t until = MIN(give_up, co_in(ws_limits.ping_ms));
        ssize_t r = large ? conn_read(ws->conn, ws->message.data + ws->message.len, want, until)
                          : conn_fill_idle(ws->conn, until);

        if (r >= 0 || errno != ETIMEDOUT)
            return r;
        if (until == give_up) {
            errno = ETIMEDOUT;
            return -1;
        }
        ping(ws);
    }
}

/* 1 go on, 0 that was the Close, -1 with err. */
static int control(struct ws *ws, const struct ws_message *m, struct err *err)
{
    if (m->op == WS_CLOSE) {
        ws->code = ws->in.code;
        ws->reason = m->data.n > 2 ? (struct str){ m->data.p + 2, m->data.n - 2 } : STR("");
        ws->ended = ws->closed = true;
        if (!ws->close_sent)
            ws_close(ws, ws->code, "");
        return 0;
    }
    if (m->op == WS_PING && !ws->close_sent && ws_send(ws, WS_PONG, m->data.p, m->data.n)) {
        err_sys(err, "answering a ping");
        return fail(ws, WS_LOST, err);
    }
    return 1;
}

/* One step of the decoder over what is buffered: 1 went on (m->op says with what), 0, -1. */
static int step(struct ws *ws, struct ws_message *m, struct err *err)
{
    struct conn *c = ws->conn;
    ssize_t r;

    if (!conn_ready(c) && (r = input(ws, false)) <= 0)
        return input_failed(ws, r, err);
    r = ws_feed(&ws->in, c->in + c->pos, conn_ready(c), m, err);
    if (r < 0)
        return fail(ws, ws->in.code, err);
    c->pos += (size_t)r;
    return m->op > WS_BINARY ? control(ws, m, err) : 1;
}

/* What the socket has of a large payload becomes part of the message where it arrived. */
static int step_large(struct ws *ws, struct ws_message *m, struct err *err)
{
    ssize_t r = input(ws, true);

    if (r <= 0)
        return input_failed(ws, r, err);
    if (ws_feed(&ws->in, ws->message.data + ws->message.len, (size_t)r, m, err) < 0)
        return fail(ws, ws->in.code, err);
    ws->message.len += (size_t)r;
    m->data.n = 0;
    return 1;
}

static bool is_data(enum ws_op op) { return op == WS_TEXT || op == WS_BINARY; }

static int after_end(const struct ws *ws, struct err *err)
{
    return ws->closed ? 0 : err_set(err, ERR_GONE, "the WebSocket has ended");
}

int ws_read(struct ws *ws, struct ws_message *m, struct err *err)
{
    buf_free(&ws->message); /* a peer that now says nothing for hours costs no buffer */
    ws->in.max = (uint64_t)ws_limits.message_bytes;
    while (!ws->ended) {
        bool large = ws->in.left >= CONN_BUF && !conn_ready(ws->conn);
        int r = large ? step_large(ws, m, err) : step(ws, m, err);

        if (r <= 0)
            return r;
        if (!is_data(m->op))
            continue;
        if (m->end && !ws->message.len)
            return 1; /* whole, where it lies */
        buf_add_str(&ws->message, m->data);
        if (m->end) {
            m->data = buf_str(&ws->message);
            return 1;
        }
    }
    return after_end(ws, err);
}

int ws_read_piece(struct ws *ws, struct ws_message *m, struct err *err)
{
    ws->in.max = UINT64_MAX;
    while (!ws->ended) {
        int r = step(ws, m, err);

        if (r <= 0 || is_data(m->op))
            return r;
    }
    return after_end(ws, err);
}

/* ---- the server's handshake ---- */

void ws_init(struct ws *ws, struct conn *c, enum ws_role role)
{
    *ws = (struct ws){ .conn = c, .in = { .role = role } };
    co_cond_init(&ws->changed);
}

static int upgrade_required(struct call *c, struct err *err)
{
    call_header(c, "Connection", "Upgrade");
    call_header(c, "Upgrade", "websocket");
    call_header(c, "Sec-WebSocket-Version", "13");
    if (call_reply(c, 426, "application/json",
                   STR("{\"code\":426,\"message\":\"this is for WebSocket, version 13\"}")))
        return err_sys(err, "refusing a WebSocket");
    return 0;
}

static bool is_upgrade(const struct http_head *h)
{
    return str_is(h->method, "GET") && h->minor && h->upgrade &&
           str_has_item(http_get(h, "upgrade"), "websocket") &&
           str_is(http_get(h, "sec-websocket-version"), "13");
}

static bool offers(const struct http_head *h, const char *protocol)
{
    for (int i = 0; i < h->count; i++) {
        struct str rest = h->field[i].value, item;

        if (!str_iis(h->field[i].name, "sec-websocket-protocol"))
            continue;
        while (str_next(&rest, ',', &item))
            if (str_is(item, protocol))
                return true;
    }
    return false;
}

static int switch_protocols(struct call *c, struct str key, const char *protocol)
{
    char answer[WS_ACCEPT_LEN + 1];

    ws_accept_key(key, answer);
    call_header(c, "Connection", "Upgrade");
    call_header(c, "Upgrade", "websocket");
    call_header(c, "Sec-WebSocket-Accept", answer);
    if (protocol)
        call_header(c, "Sec-WebSocket-Protocol", protocol);
    c->head.keep = true; /* else the answer would say "close" beside "upgrade" */
    return call_begin(c, 101, NULL, -1) || call_flush(c) ? -1 : 0;
}

int ws_accept(struct call *c, struct ws *ws, const char *const *protocols, struct err *err)
{
    struct str key = http_get(&c->head, "sec-websocket-key");
    unsigned char raw[KEY_LEN / 4 * 3];

    if (!is_upgrade(&c->head))
        return upgrade_required(c, err);
    if (key.n != KEY_LEN || base64_decode(key, raw) != KEY_BYTES)
        return err_set(err, ERR_INVALID, "Sec-WebSocket-Key is not 16 bytes in base64");
    if (!c->body.done)
        return err_set(err, ERR_INVALID, "a WebSocket handshake has no body");
    while (protocols && *protocols && !offers(&c->head, *protocols))
        protocols++;
    if (switch_protocols(c, key, protocols ? *protocols : NULL))
        return err_sys(err, "accepting a WebSocket");
    c->close = true; /* whatever comes of it, no further request does */
    ws_init(ws, c->conn, WS_SERVER);
    ws->protocol = protocols ? *protocols : NULL;
    return 1;
}

/* ---- the client's handshake ---- */

static int send_request(struct conn *c, const struct ws_request *r, const char *key)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_printf(&b,
               "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
               "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s",
               r->target, r->host, key, r->headers ? r->headers : "");
    for (const char *const *p = r->protocols; p && *p; p++)
        buf_printf(&b, "Sec-WebSocket-Protocol: %s\r\n", *p);
    buf_puts(&b, "\r\n");
    return http_put(c, buf_str(&b)) || http_flush(c) ? -1 : 0;
}

static int check_answer(const struct http_head *h, const struct ws_request *r, const char *key,
                        const char **protocol, struct err *err)
{
    char expected[WS_ACCEPT_LEN + 1];
    struct str chosen = http_get(h, "sec-websocket-protocol");
    const char *const *p = r->protocols;

    if (h->status != 101)
        return err_set(err, ERR_UPSTREAM, "the server answered a WebSocket handshake with %d",
                       h->status);
    ws_accept_key(str_of(key), expected);
    if (!h->upgrade || !str_iis(http_get(h, "upgrade"), "websocket") ||
        !str_is(http_get(h, "sec-websocket-accept"), expected))
        return err_set(err, ERR_UPSTREAM, "the server did not understand the WebSocket handshake");
    if (http_get(h, "sec-websocket-extensions").n)
        return err_set(err, ERR_UPSTREAM, "the server uses an extension nobody offered");
    while (p && *p && !str_is(chosen, *p))
        p++;
    if (chosen.p && (!p || !*p))
        return err_set(err, ERR_UPSTREAM, "the server chose a subprotocol nobody offered");
    *protocol = chosen.p ? *p : NULL;
    return 0;
}

int ws_connect(struct ws *ws, struct conn *c, const struct ws_request *r, struct err *err)
{
    AUTO(freep) struct http_head *h = xmalloc(sizeof(*h)); /* too large for the stack */
    unsigned char raw[KEY_BYTES];
    char key[KEY_LEN + 1];
    const char *protocol = NULL;
    int n;

    random_bytes(raw, sizeof(raw));
    key[base64_encode(raw, sizeof(raw), key)] = 0;
    if (send_request(c, r, key))
        return err_sys(err, "sending a WebSocket handshake");
    n = http_read_head(c, HTTP_RESPONSE, h, err);
    if (n <= 0)
        return n < 0 ? -1 : err_set(err, ERR_GONE, "the server left during the handshake");
    if (check_answer(h, r, key, &protocol, err))
        return -1;
    ws_init(ws, c, WS_CLIENT);
    ws->protocol = protocol;
    return 0;
}

/* ---- the end ---- */

void ws_finish(struct ws *ws)
{
    struct ws_message m;
    struct err ignored;

    if (!ws->conn)
        return;
    if (!ws->close_sent)
        ws_close(ws, WS_INTERNAL, "");
    /* The clock itself: the loop's time stands still while a peer floods us. */
    while (!ws->ended && clock_ms() < ws->close_at && step(ws, &m, &ignored) > 0)
        ;
    conn_linger(ws->conn, co_in(LINGER_MS));
    buf_free(&ws->message);
    ws->conn = NULL;
}
