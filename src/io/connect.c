/* connect.c - see connect.h. */
#include "io/connect.h"

int connect_decode_header(const unsigned char *p, size_t n, uint32_t max, struct connect_frame *out,
                          struct err *err)
{
    if (n < CONNECT_HEADER)
        return 0;
    if (p[0] & CONNECT_COMPRESSED)
        return err_set(err, ERR_INVALID, "compressed envelopes are not accepted: send identity");
    if (p[0] & ~CONNECT_END)
        return err_set(err, ERR_INVALID, "envelope has unknown flags 0x%02x", p[0]);
    out->flags = p[0];
    out->size = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    if (out->size > max)
        return err_set(err, ERR_TOO_LARGE, "envelope of %u bytes is larger than http.body-bytes=%u",
                       out->size, max);
    return 1;
}

void connect_encode_header(unsigned char out[static CONNECT_HEADER], unsigned flags, uint32_t size)
{
    out[0] = (unsigned char)flags;
    for (int i = 0; i < 4; i++)
        out[1 + i] = (unsigned char)(size >> (24 - 8 * i));
}

int connect_timeout(const struct http_head *h, int64_t *out_ms, struct err *err)
{
    struct str v = http_get(h, "connect-timeout-ms");
    uint64_t ms;

    *out_ms = -1;
    if (!v.p)
        return 0;
    if (v.n > 10 || str_u64(v, &ms)) /* ten digits at most, says the protocol */
        return err_set(err, ERR_INVALID, "Connect-Timeout-Ms is not a number of at most 10 digits");
    *out_ms = (int64_t)ms;
    return 0;
}

int64_t connect_keepalive_ms(const struct http_head *h)
{
    uint64_t s;

    if (str_u64(http_get(h, "keepalive-ping-interval"), &s) || !s || s > 86400)
        s = 90;
    return (int64_t)s * 1000;
}

static int read_exactly(struct call *c, void *buf, size_t n, bool *none, struct err *err)
{
    for (size_t got = 0; got < n;) {
        ssize_t r = call_read(c, (char *)buf + got, n - got, err);

        if (r < 0)
            return -1;
        if (r == 0) {
            if (!got && none) {
                *none = true;
                return 0;
            }
            return err_set(err, ERR_INVALID, "the body ends within an envelope");
        }
        got += (size_t)r;
    }
    return 0;
}

int connect_read(struct call *c, struct buf *out, struct err *err)
{
    unsigned char head[CONNECT_HEADER];
    struct connect_frame f;
    uint32_t max = (uint32_t)MIN(http_limits.body_bytes, (int64_t)UINT32_MAX);
    bool none = false;

    if (read_exactly(c, head, sizeof(head), &none, err))
        return -1;
    if (none)
        return 0;
    if (connect_decode_header(head, sizeof(head), max, &f, err) < 0)
        return -1;
    out->len = 0;
    while (out->len < f.size) { /* grows with what arrives, not with what is announced */
        size_t n = MIN(f.size - out->len, (size_t)64 << 10);

        buf_reserve(out, n);
        if (read_exactly(c, out->data + out->len, n, NULL, err))
            return -1;
        out->len += n;
    }
    return f.flags & CONNECT_END ? 0 : 1;
}

int connect_read_message(struct call *c, const struct field *table, void *out, struct err *err)
{
    AUTO(buf_free) struct buf message = { 0 }, more = { 0 };
    int r = connect_read(c, &message, err);

    if (r < 0)
        return -1;
    if (!r)
        return err_set(err, ERR_INVALID, "the request has no envelope");
    r = connect_read(c, &more, err);
    if (r > 0)
        return err_set(err, ERR_INVALID, "the request has more than one envelope");
    if (r < 0)
        return -1;
    return field_decode_text(table, FIELDS_PROTO, message.len ? buf_str(&message) : STR("{}"),
                             &c->arena, out, err);
}

static void put_headers(struct call *c)
{
    call_header(c, "X-Accel-Buffering", "no");
    call_header(c, "Cache-Control", "no-cache");
}

int connect_begin(struct call *c)
{
    put_headers(c);
    if (call_begin(c, 200, "application/connect+json", -1))
        return -1;
    call_patient(c);
    return 0;
}

struct buf *connect_message(struct call *c)
{
    c->scratch.len = 0;
    buf_add(&c->scratch, "\0\0\0\0\0", CONNECT_HEADER);
    return &c->scratch;
}

static int send_frame(struct call *c, unsigned flags)
{
    struct buf *b = &c->scratch;

    connect_encode_header((unsigned char *)b->data, flags, (uint32_t)(b->len - CONNECT_HEADER));
    return call_send(c, b->data, b->len);
}

int connect_put(struct call *c) { return send_frame(c, 0); }

int connect_send(struct call *c) { return send_frame(c, 0) || call_flush(c) ? -1 : 0; }

int connect_end(struct call *c)
{
    buf_puts(connect_message(c), "{}");
    return send_frame(c, CONNECT_END) || call_end(c) ? -1 : 0;
}

int connect_send_end(struct call *c) { return send_frame(c, 0) || connect_end(c) ? -1 : 0; }

static void put_error(struct buf *b, const struct err *err)
{
    json_open(b, '{');
    json_kv_str(b, "code", err_name(err->code));
    json_kv_str(b, "message", err->msg);
    json_close(b, '}');
}

void connect_reply_error(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    put_error(&json, err);
    call_reply_json(c, err_status(err->code), &json);
}

static void put_end_error(struct buf *b, const struct err *err)
{
    json_open(b, '{');
    json_key(b, "error");
    put_error(b, err);
    json_close(b, '}');
}

/* A refusal is known whole. With its length it is no stream, to us or to a proxy, and nobody waits
 * without end for one who was refused. */
static void reply_end_error(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_add(&b, "\0\0\0\0\0", CONNECT_HEADER);
    put_end_error(&b, err);
    connect_encode_header((unsigned char *)b.data, CONNECT_END, (uint32_t)(b.len - CONNECT_HEADER));
    put_headers(c);
    call_reply(c, 200, "application/connect+json", buf_str(&b));
}

void connect_end_error(struct call *c, const struct err *err)
{
    if (!c->status) {
        reply_end_error(c, err);
        return;
    }
    put_end_error(connect_message(c), err);
    if (send_frame(c, CONNECT_END) || call_end(c))
        c->close = true;
}
