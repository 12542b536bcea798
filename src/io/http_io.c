/* http_io.c - heads and bodies over a connection: waiting, framing, bounds. */
#include <errno.h>

#include "io/http.h"

enum { CHUNK_LINE = 1024, TRAILER_BYTES = 8192, WRITE_PIECE = 256 << 10 };

static int64_t write_until(const struct conn *c)
{
    return c->patience ? c->patience : co_in(http_limits.write_ms);
}

/* ---- heads ---- */

static int fill_failed(struct err *err, ssize_t r, bool idle)
{
    if (r == 0)
        return err_set(err, ERR_GONE, "the peer closed in the middle of a message head");
    if (errno == ENOBUFS)
        return err_set(err, ERR_HEADERS, "message head larger than http.header-bytes=%lld",
                       (long long)http_limits.header_bytes);
    if (errno == ETIMEDOUT && !idle)
        return err_set(err, ERR_TIMEOUT, "message head not complete within http.header-ms=%lld",
                       (long long)http_limits.header_ms);
    return err_set(err, ERR_GONE, "reading a message head: %s", strerrordesc_np(errno));
}

/* Is there an end of head behind `from`? Saves parsing a slow head again at each byte. */
static bool may_be_complete(struct str s, size_t *from)
{
    size_t i = *from > 3 ? *from - 3 : 0;

    if (!s.p)
        return false;
    *from = s.n;
    for (; i + 1 < s.n; i++)
        if (s.p[i] == '\n' && (s.p[i + 1] == '\n' || s.p[i + 1] == '\r'))
            return true;
    return false;
}

int http_read_head(struct conn *c, enum http_kind kind, struct http_head *h, struct err *err)
{
    size_t seen = 0;
    bool idle = !conn_ready(c);
    int64_t until;

    if (idle) {
        ssize_t r = kind == HTTP_REQUEST ? conn_fill_idle(c, co_in(http_limits.idle_ms))
                                         : conn_fill(c, CONN_BUF, co_in(http_limits.body_ms));

        if (r <= 0)
            return r == 0 || kind == HTTP_REQUEST ? 0 : fill_failed(err, r, true);
    }
    until = co_in(http_limits.header_ms);
    for (;;) {
        struct str s = conn_peek(c);
        ssize_t n = !seen || may_be_complete(s, &seen) ? http_parse(s.p, s.n, kind, h, err) : 0;

        if (n < 0)
            return -1;
        if (n > (ssize_t)http_limits.header_bytes)
            return errno = ENOBUFS, fill_failed(err, -1, false);
        if (n > 0) {
            c->pos += (size_t)n;
            return 1;
        }
        seen = MAX(seen, (size_t)1);
        n = conn_fill(c, (size_t)http_limits.header_bytes, until);
        if (n <= 0)
            return fill_failed(err, n, false);
    }
}

/* ---- reading bodies ---- */

void http_body_init(struct http_body *b, struct conn *c, const struct http_head *h,
                    enum http_kind kind)
{
    *b = (struct http_body){ .conn = c,
                             .chunked = h->chunked,
                             .first = true,
                             .expect = h->expect && kind == HTTP_REQUEST && h->minor,
                             .max = UINT64_MAX };
    if (kind == HTTP_RESPONSE && (h->status < 200 || h->status == 204 || h->status == 304))
        b->chunked = false, b->done = true;
    else if (!h->chunked && h->length < 0 && kind == HTTP_RESPONSE)
        b->left = -1;
    else if (!h->chunked)
        b->left = MAX(h->length, (int64_t)0);
    if (!b->chunked && !b->left)
        b->done = true;
    if (b->done)
        b->expect = false;
}

void http_body_finish(struct http_body *b) { buf_free(&b->trailers); }

static int broken(struct err *err, ssize_t r)
{
    if (r < 0 && errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "the body paused longer than http.body-ms=%lld",
                       (long long)http_limits.body_ms);
    if (r < 0 && errno == EAGAIN)
        return -1;
    return err_set(err, ERR_GONE, "the body ended early");
}

/* One line of the chunked coding, without its CRLF: 1, or -1 with err. Nothing is consumed before
 * the line is whole, so that a worker may come back for the rest. */
static int body_line(struct http_body *b, size_t max, struct str *line, struct err *err)
{
    for (;;) {
        struct str s = conn_peek(b->conn);
        const char *lf = s.p ? memchr(s.p, '\n', s.n) : NULL;
        ssize_t r;

        if (lf && (size_t)(lf - s.p) < max) {
            *line = (struct str){ s.p, (size_t)(lf - s.p) };
            if (!line->n || lf[-1] != '\r')
                return err_set(err, ERR_INVALID, "bare LF in the chunked coding");
            line->n--;
            b->conn->pos += line->n + 2;
            return 1;
        }
        if (s.n >= max)
            return err_set(err, ERR_INVALID, "line of the chunked coding longer than %zu bytes",
                           max);
        r = conn_fill(b->conn, max, co_in(http_limits.body_ms));
        if (r <= 0)
            return broken(err, r);
    }
}

static int read_trailers(struct http_body *b, struct err *err)
{
    struct str line;

    for (;;) {
        if (body_line(b, TRAILER_BYTES, &line, err) < 0)
            return -1;
        if (!line.n)
            break;
        if (b->trailers.len + line.n > TRAILER_BYTES)
            return err_set(err, ERR_HEADERS, "trailers larger than %d bytes", TRAILER_BYTES);
        buf_add_str(&b->trailers, line);
        buf_puts(&b->trailers, "\r\n");
    }
    b->done = true;
    return 0;
}

/* Positions the body in front of the next chunk's data, or behind the last chunk. */
static int next_chunk(struct http_body *b, struct err *err)
{
    struct str line = { 0 }, size, extension;
    uint64_t n;

    if (!b->first) {
        if (body_line(b, CHUNK_LINE, &line, err) < 0)
            return -1;
        if (line.n)
            return err_set(err, ERR_INVALID, "chunk longer than its size says");
        b->first = true;
    }
    if (b->left != -2) { /* -2: the last chunk's line is behind us, trailers are next */
        if (body_line(b, CHUNK_LINE, &line, err) < 0)
            return -1;
        str_cut(line, ';', &size, &extension);
        if (!line.p || str_hex(str_trim(size), &n) || n > INT64_MAX || memchr(line.p, 0, line.n) ||
            memchr(line.p, '\r', line.n) || size.p[0] == ' ' || size.p[0] == '\t')
            return err_set(err, ERR_INVALID, "chunk size is not a hexadecimal number");
        b->left = n ? (int64_t)n : -2;
    }
    if (b->left == -2)
        return read_trailers(b, err);
    b->first = false;
    return 0;
}

static int send_continue(struct http_body *b, struct err *err)
{
    b->expect = false;
    if (conn_ready(b->conn))
        return 0; /* the client did not wait */
    if (http_put(b->conn, STR("HTTP/1.1 100 Continue\r\n\r\n")) || http_flush(b->conn))
        return err_set(err, ERR_GONE, "the client left before its body");
    return 0;
}

/* Positions the body in front of data: 1, 0 at its end, -1 with err. */
static int body_begin(struct http_body *b, struct err *err)
{
    if (http_body_want(b, err))
        return -1;
    if (!b->done && b->chunked && b->left <= 0 && next_chunk(b, err))
        return -1;
    return !b->done;
}

/* Accounts for what a read gave. */
static ssize_t body_took(struct http_body *b, ssize_t r, struct err *err)
{
    if (r == 0 && b->left == -1 && !b->chunked) {
        b->done = true;
        return 0;
    }
    if (r <= 0)
        return broken(err, r);
    if (b->left > 0)
        b->left -= r;
    if (!b->left && !b->chunked)
        b->done = true;
    b->total += (size_t)r;
    if (b->total > b->max)
        return err_set(err, ERR_TOO_LARGE, "body larger than %llu bytes",
                       (unsigned long long)b->max);
    return r;
}

int http_body_want(struct http_body *b, struct err *err)
{
    return b->expect ? send_continue(b, err) : 0;
}

ssize_t http_body_read(struct http_body *b, void *buf, size_t n, struct err *err)
{
    int more = body_begin(b, err);

    if (more <= 0)
        return more;
    if (b->left > 0)
        n = (size_t)MIN((uint64_t)n, (uint64_t)b->left);
    return body_took(b, conn_read(b->conn, buf, n, co_in(http_limits.body_ms)), err);
}

ssize_t http_body_next(struct http_body *b, struct str *out, struct err *err)
{
    int more = body_begin(b, err);
    ssize_t r = 1;

    if (more <= 0)
        return more;
    if (!conn_ready(b->conn))
        r = conn_fill(b->conn, CONN_BUF, co_in(http_limits.body_ms));
    if (r > 0) {
        *out = conn_peek(b->conn);
        if (b->left > 0)
            out->n = (size_t)MIN((uint64_t)out->n, (uint64_t)b->left);
        b->conn->pos += out->n;
        r = (ssize_t)out->n;
    }
    return body_took(b, r, err);
}

int http_body_read_all(struct http_body *b, struct buf *out, struct err *err)
{
    for (;;) {
        ssize_t r;
        size_t room = b->left > 0 ? (size_t)MIN(b->left, (int64_t)64 << 10) : 4096;

        buf_reserve(out, room);
        r = http_body_read(b, out->data + out->len, out->cap - out->len - 1, err);
        if (r <= 0) {
            out->data[out->len] = 0;
            return (int)r;
        }
        out->len += (size_t)r;
    }
}

bool http_body_drain(struct http_body *b, size_t most)
{
    struct err ignored;
    char sink[2048];
    size_t n = 0;

    if (b->done)
        return true;
    if (!most || b->expect || b->left > (int64_t)most)
        return false;
    b->max = UINT64_MAX;
    while (n <= most) {
        ssize_t r = http_body_read(b, sink, sizeof(sink), &ignored);

        if (r <= 0)
            return r == 0;
        n += (size_t)r;
    }
    return false;
}

/* ---- writing ---- */

/* The time-out is for each piece: a slow reader of a large answer is not a reader that stopped. A
 * stream of a process's output has none (conn.patience): whoever writes it waits, as at a pipe,
 * while the reader is there. */
int http_put(struct conn *c, struct str s)
{
    while (s.n > WRITE_PIECE) {
        if (conn_put(c, s.p, WRITE_PIECE, write_until(c)))
            return -1;
        s = (struct str){ s.p + WRITE_PIECE, s.n - WRITE_PIECE };
    }
    return conn_put(c, s.p, s.n, write_until(c));
}

int http_flush(struct conn *c) { return conn_flush(c, write_until(c)); }

int http_put_chunk(struct conn *c, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    char head[20];
    size_t i = sizeof(head);

    head[--i] = '\n';
    head[--i] = '\r';
    for (size_t v = n; v; v >>= 4)
        head[--i] = digits[v & 15];
    if (http_put(c, (struct str){ head + i, sizeof(head) - i }))
        return -1;
    if (n >= CONN_BUF / 2 && n <= WRITE_PIECE) { /* all of it in one write, without a copy */
        struct iovec v[3] = { { c->out, c->used },
                              { (void *)(uintptr_t)p, n },
                              { (void *)(uintptr_t) "\r\n", 2 } };
        int r = conn_writev(c, v, 3, write_until(c));

        c->used = 0;
        return r;
    }
    return http_put(c, (struct str){ p, n }) || http_put(c, STR("\r\n")) ? -1 : 0;
}

int http_put_last_chunk(struct conn *c, struct str trailers)
{
    return http_put(c, STR("0\r\n")) || (trailers.n && http_put(c, trailers)) ||
                   http_put(c, STR("\r\n"))
               ? -1
               : 0;
}
