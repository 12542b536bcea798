/* ws_frame.c - WebSocket's framing, pure: headers, masks, and the rules that a stream of frames has
 * to keep. Takes bytes and returns values; ws.c brings the connection. */
#include <nettle/sha1.h>

#include "io/ws.h"

enum { FIN = 0x80, RSV = 0x70, OP = 0x0f, MASKED = 0x80, SIZE = 0x7f, SIZE16 = 126, SIZE64 = 127 };
enum { CONTROL = 8 }; /* set in the opcodes of control frames */

/* ---- headers ---- */

static uint64_t big_endian(const unsigned char *p, size_t n)
{
    uint64_t v = 0;

    while (n--)
        v = v << 8 | *p++;
    return v;
}

int ws_decode_header(const unsigned char *p, size_t n, struct ws_frame *out)
{
    size_t extra, size;
    unsigned char small;

    if (n < 2)
        return 0;
    small = p[1] & SIZE;
    extra = small == SIZE16 ? 2 : small == SIZE64 ? 8 : 0;
    size = 2 + extra + (p[1] & MASKED ? 4 : 0);
    if (n < size)
        return 0;
    *out = (struct ws_frame){ .fin = p[0] & FIN,
                              .masked = p[1] & MASKED,
                              .rsv = p[0] & RSV,
                              .op = p[0] & OP,
                              .size = extra ? big_endian(p + 2, extra) : small };
    if (out->masked)
        memcpy(out->mask, p + 2 + extra, 4);
    /* The shortest form is the only one (5.2), and the top bit of the longest is not used. */
    if ((extra == 2 && out->size < SIZE16) || (extra == 8 && out->size <= UINT16_MAX) ||
        out->size > INT64_MAX)
        return -1;
    return (int)size;
}

size_t ws_encode_header(unsigned char out[static WS_HEADER_MAX], const struct ws_frame *f)
{
    size_t extra = f->size < SIZE16 ? 0 : f->size <= UINT16_MAX ? 2 : 8;
    unsigned char *p = out + 2;

    out[0] = (unsigned char)((f->fin ? FIN : 0) | (f->rsv & RSV) | (f->op & OP));
    out[1] = (unsigned char)(extra == 8 ? SIZE64 : extra ? SIZE16 : f->size);
    for (size_t i = extra; i--;)
        *p++ = (unsigned char)(f->size >> (8 * i));
    if (f->masked) {
        out[1] |= MASKED;
        memcpy(p, f->mask, 4);
        p += 4;
    }
    return (size_t)(p - out);
}

void ws_mask(void *p, size_t n, const unsigned char mask[static 4], uint64_t offset)
{
    unsigned char key[8], *b = p;
    uint64_t k, v;

    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = mask[(offset + i) & 3];
    memcpy(&k, key, sizeof(k));
    for (; n >= sizeof(v); n -= sizeof(v), b += sizeof(v)) {
        memcpy(&v, b, sizeof(v));
        v ^= k;
        memcpy(b, &v, sizeof(v));
    }
    for (size_t i = 0; i < n; i++)
        b[i] ^= key[i];
}

/* ---- values ---- */

bool ws_code_valid(unsigned code)
{
    if (code >= 3000 && code <= 4999) /* libraries and applications */
        return true;
    /* 1004 is reserved, 1005, 1006 and 1015 stand for what was not said (7.4.1, IANA's registry) */
    return code >= 1000 && code <= 1014 && code != 1004 && code != WS_NO_CODE && code != WS_LOST;
}

void ws_accept_key(struct str key, char out[static WS_ACCEPT_LEN + 1])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    uint8_t digest[SHA1_DIGEST_SIZE];
    struct sha1_ctx ctx;

    sha1_init(&ctx);
    sha1_update(&ctx, key.n, (const uint8_t *)key.p);
    sha1_update(&ctx, sizeof(guid) - 1, (const uint8_t *)guid);
    sha1_digest(&ctx, sizeof(digest), digest);
    out[base64_encode(digest, sizeof(digest), out)] = 0;
}

/* ---- the rules ---- */

static int broken(struct ws_parser *in, struct err *err, const char *what)
{
    in->code = WS_PROTOCOL;
    return err_set(err, ERR_INVALID, "%s", what);
}

static int bad_text(struct ws_parser *in, struct err *err)
{
    in->code = WS_BAD_TEXT;
    return err_set(err, ERR_INVALID, "text that is not UTF-8");
}

static int check_frame(struct ws_parser *in, const struct ws_frame *f, struct err *err)
{
    if (f->rsv)
        return broken(in, err, "reserved bits set without an extension");
    if (f->masked != (in->role == WS_SERVER))
        return broken(in, err,
                      f->masked ? "masked frame from a server"
                                : "frame from a client without a mask");
    if (f->op & CONTROL) {
        if (f->op > WS_PONG)
            return broken(in, err, "unknown opcode");
        if (!f->fin)
            return broken(in, err, "control frame in fragments");
        return f->size > WS_CONTROL_MAX ? broken(in, err, "control frame of more than 125 bytes")
                                        : 0;
    }
    if (f->op > WS_BINARY)
        return broken(in, err, "unknown opcode");
    if ((f->op == WS_CONT) != (in->op != WS_CONT))
        return broken(in, err,
                      f->op ? "new message within a fragmented one"
                            : "continuation without a message");
    return 0;
}

static int begin_data(struct ws_parser *in, struct err *err)
{
    if (in->frame.op) {
        in->op = in->frame.op;
        in->total = 0;
        in->utf8 = 0;
    }
    if (in->frame.size > in->max || in->total > in->max - in->frame.size) {
        in->code = WS_TOO_BIG;
        return err_set(err, ERR_TOO_LARGE, "message larger than ws.message-bytes=%llu",
                       (unsigned long long)in->max);
    }
    in->total += in->frame.size;
    return 0;
}

/* ---- from bytes to pieces ---- */

static ssize_t feed_header(struct ws_parser *in, const char *p, size_t n, struct err *err)
{
    size_t taken = MIN(n, sizeof(in->head) - in->have), before = in->have;
    int size;

    memcpy(in->head + before, p, taken);
    size = ws_decode_header(in->head, before + taken, &in->frame);
    if (size < 0)
        return broken(in, err, "length not in its shortest form");
    if (!size) {
        in->have = (unsigned short)(before + taken);
        return (ssize_t)taken;
    }
    if (check_frame(in, &in->frame, err))
        return -1;
    if (!(in->frame.op & CONTROL) && begin_data(in, err))
        return -1;
    in->have = in->held = 0;
    in->left = in->frame.size;
    in->in_payload = true;
    return size - (ssize_t)before;
}

static int check_close(struct ws_parser *in, struct err *err)
{
    if (!in->held) {
        in->code = WS_NO_CODE;
        return 0;
    }
    if (in->held == 1 || !ws_code_valid((unsigned)big_endian(in->control, 2)))
        return broken(in, err, "Close without a valid code");
    if (!utf8_valid((struct str){ (char *)in->control + 2, in->held - 2U }))
        return bad_text(in, err);
    in->code = (enum ws_code)big_endian(in->control, 2);
    return 0;
}

static int feed_control(struct ws_parser *in, const char *p, size_t n, struct ws_message *out,
                        struct err *err)
{
    if (n)
        memcpy(in->control + in->held, p, n);
    in->held = (unsigned short)(in->held + n);
    if (in->left)
        return 0;
    in->in_payload = false;
    *out = (struct ws_message){ in->frame.op, { (char *)in->control, in->held }, true };
    return out->op == WS_CLOSE ? check_close(in, err) : 0;
}

static int feed_data(struct ws_parser *in, char *p, size_t n, struct ws_message *out,
                     struct err *err)
{
    bool end = !in->left && in->frame.fin;

    /* Checked as it comes, so that bad text fails at its first bad byte, not at its end. */
    if (in->op == WS_TEXT && (utf8_check(&in->utf8, p, n) || (end && in->utf8)))
        return bad_text(in, err);
    if (!in->left)
        in->in_payload = false;
    if (n || end)
        *out = (struct ws_message){ in->op, { p, n }, end };
    if (end)
        in->op = WS_CONT;
    return 0;
}

ssize_t ws_feed(struct ws_parser *in, char *p, size_t n, struct ws_message *out, struct err *err)
{
    ssize_t used = 0;
    int r;

    *out = (struct ws_message){ .op = WS_CONT };
    if (!in->in_payload) {
        used = feed_header(in, p, n, err);
        if (used < 0 || !in->in_payload)
            return used;
    }
    p += used;
    n = (size_t)MIN((uint64_t)n - (uint64_t)used, in->left);
    if (in->frame.masked)
        ws_mask(p, n, in->frame.mask, in->frame.size - in->left);
    in->left -= n;
    r = in->frame.op & CONTROL ? feed_control(in, p, n, out, err) : feed_data(in, p, n, out, err);
    return r ? -1 : used + (ssize_t)n;
}
