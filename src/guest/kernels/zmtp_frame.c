/* zmtp_frame.c - ZMTP's bytes, pure: greeting, commands, frames. See zmtp.h, and rfc.zeromq.org/23.
 */
#include "base/mem.h"
#include "guest/kernels/zmtp.h"

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4 };
#define FRAME_MAX (UINT64_C(1) << 48) /* no frame is that large: these bytes are something else */

/* ---- messages ---- */

void zmtp_parts_begin(struct zmtp_parts *p)
{
    static const char room[ZMTP_ROOM];

    p->n = 0;
    p->bytes.len = 0;
    buf_add(&p->bytes, room, sizeof(room));
}

void zmtp_parts_end(struct zmtp_parts *p)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 8;
        p->ends = xrealloc(p->ends, p->cap * sizeof(*p->ends));
    }
    p->ends[p->n++] = p->bytes.len;
}

struct str zmtp_part(const struct zmtp_parts *p, size_t i)
{
    size_t from;

    if (i >= p->n)
        return (struct str){ "", 0 };
    from = i ? p->ends[i - 1] : ZMTP_ROOM;
    return (struct str){ p->bytes.data + from, p->ends[i] - from };
}

void zmtp_parts_free(struct zmtp_parts *p)
{
    buf_free(&p->bytes);
    free(p->ends);
    *p = (struct zmtp_parts){ 0 };
}

void zmtp_parser_free(struct zmtp_parser *in)
{
    zmtp_parts_free(&in->parts);
    buf_free(&in->text);
}

/* ---- frames ---- */

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

size_t zmtp_encode_header(unsigned char out[static ZMTP_HEADER_MAX], bool more, bool command,
                          uint64_t size)
{
    out[0] = (unsigned char)((more ? FLAG_MORE : 0) | (command ? FLAG_COMMAND : 0));
    if (size < 256) {
        out[1] = (unsigned char)size;
        return 2;
    }
    out[0] |= FLAG_LONG;
    for (int i = 0; i < 8; i++)
        out[1 + i] = (unsigned char)(size >> (56 - 8 * i));
    return ZMTP_HEADER_MAX;
}

/* The header is complete: what it announces must be within its bounds. */
static int begin_frame(struct zmtp_parser *in, struct err *err)
{
    unsigned char flags = in->head[0];
    struct zmtp_parts *p = &in->parts;

    in->left = flags & FLAG_LONG ? get_u64(in->head + 1) : in->head[1];
    in->command = flags & FLAG_COMMAND;
    if (in->command) {
        in->text.len = 0;
        if (flags & FLAG_MORE || in->left > ZMTP_COMMAND_MAX)
            return err_set(err, ERR_UPSTREAM, "a ZMTP command of %llu bytes%s",
                           (unsigned long long)in->left, flags & FLAG_MORE ? ", continued" : "");
    } else {
        if (!in->more) { /* the frame before ended a message */
            zmtp_parts_begin(p);
            in->skip = false;
        }
        in->more = flags & FLAG_MORE;
        if (in->left > FRAME_MAX)
            return err_set(err, ERR_UPSTREAM, "a ZMTP frame of %llu bytes",
                           (unsigned long long)in->left);
        in->skip |= p->n == ZMTP_PARTS || in->left > in->max ||
                    p->bytes.len - ZMTP_ROOM > in->max - in->left;
    }
    in->in_payload = true;
    in->have = 0;
    return 0;
}

static size_t take_header(struct zmtp_parser *in, const unsigned char *p, size_t n)
{
    size_t taken = 0, want;

    do {
        want = in->have && in->head[0] & FLAG_LONG ? ZMTP_HEADER_MAX : 2;
        if (in->have == want)
            break;
        in->head[in->have++] = p[taken++];
    } while (taken < n);
    return taken;
}

static bool header_whole(const struct zmtp_parser *in)
{
    return in->have >= 2 && in->have == (in->head[0] & FLAG_LONG ? ZMTP_HEADER_MAX : 2);
}

static enum zmtp_event end_frame(struct zmtp_parser *in)
{
    in->in_payload = false;
    if (in->command)
        return ZMTP_COMMAND;
    if (in->skip) {
        in->skipped += !in->more;
        return ZMTP_MORE;
    }
    zmtp_parts_end(&in->parts);
    return in->more ? ZMTP_MORE : ZMTP_MESSAGE;
}

ssize_t zmtp_feed(struct zmtp_parser *in, const void *p, size_t n, enum zmtp_event *event,
                  struct err *err)
{
    size_t taken = 0, some;

    *event = ZMTP_MORE;
    if (!in->in_payload && n) {
        taken = take_header(in, p, n);
        if (in->have && in->head[0] & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND))
            return err_set(err, ERR_UPSTREAM, "a ZMTP frame with flags 0x%02x", in->head[0]);
        if (!header_whole(in))
            return (ssize_t)taken;
        if (begin_frame(in, err))
            return -1;
    }
    some = (size_t)MIN((uint64_t)(n - taken), in->left);
    if (in->command || !in->skip)
        buf_add(in->command ? &in->text : &in->parts.bytes, (const char *)p + taken, some);
    in->left -= some;
    if (in->in_payload && !in->left)
        *event = end_frame(in);
    return (ssize_t)(taken + some);
}

/* ---- the handshake ---- */

static const unsigned char mechanism[20] = "NULL"; /* padded with zeros */

void zmtp_encode_greeting(unsigned char out[static ZMTP_GREETING])
{
    memset(out, 0, ZMTP_GREETING);
    out[0] = 0xff;
    out[8] = 1; /* as libzmq does: to a peer of version 1 it looks like a long empty identity */
    out[9] = 0x7f;
    out[10] = 3;
    memcpy(out + 12, mechanism, sizeof(mechanism));
}

int zmtp_check_greeting(const unsigned char in[static ZMTP_GREETING], struct err *err)
{
    if (in[0] != 0xff || !(in[9] & 1))
        return err_set(err, ERR_UPSTREAM, "the peer does not speak ZMTP");
    if (in[10] < 3)
        return err_set(err, ERR_UPSTREAM, "the peer speaks ZMTP %d, not 3", in[10]);
    if (memcmp(in + 12, mechanism, sizeof(mechanism)) != 0)
        return err_set(err, ERR_UPSTREAM, "the peer wants security mechanism '%.20s', not NULL",
                       (const char *)in + 12);
    return 0;
}

static void put_property(struct buf *b, const char *name, struct str value)
{
    unsigned char size[4] = { (unsigned char)(value.n >> 24), (unsigned char)(value.n >> 16),
                              (unsigned char)(value.n >> 8), (unsigned char)value.n };

    buf_putc(b, (char)strlen(name));
    buf_puts(b, name);
    buf_add(b, size, sizeof(size));
    buf_add_str(b, value);
}

void zmtp_encode_ready(struct buf *out, const char *socket_type, struct str identity)
{
    AUTO(buf_free) struct buf body = { 0 };
    unsigned char head[ZMTP_HEADER_MAX];

    buf_puts(&body, "\5READY");
    put_property(&body, "Socket-Type", str_of(socket_type));
    if (identity.n)
        put_property(&body, "Identity", identity);
    buf_add(out, head, zmtp_encode_header(head, false, true, body.len));
    buf_add_str(out, buf_str(&body));
}

/* The next property; false at the end, with *bad when it is not where it should be. */
static bool next_property(struct str *rest, struct str *name, struct str *value, bool *bad)
{
    const unsigned char *p = (const unsigned char *)rest->p;
    size_t n, at;

    if (!rest->n)
        return false;
    n = p[0];
    at = 1 + n + 4;
    *bad = rest->n < at;
    if (*bad)
        return false;
    *name = (struct str){ rest->p + 1, n };
    n = (size_t)p[at - 4] << 24 | (size_t)p[at - 3] << 16 | (size_t)p[at - 2] << 8 | p[at - 1];
    *bad = rest->n - at < n;
    if (*bad)
        return false;
    *value = (struct str){ rest->p + at, n };
    *rest = (struct str){ rest->p + at + n, rest->n - at - n };
    return true;
}

int zmtp_check_ready(struct str command, const char *socket_types, struct err *err)
{
    struct str name, value, type = { 0 };
    bool bad = false;

    if (!str_starts(command, "\5READY"))
        return err_set(err, ERR_UPSTREAM, "the peer refused the ZMTP handshake");
    command = (struct str){ command.p + 6, command.n - 6 };
    while (next_property(&command, &name, &value, &bad))
        if (str_iis(name, "Socket-Type"))
            type = value;
    if (bad)
        return err_set(err, ERR_UPSTREAM, "a broken ZMTP READY");
    for (struct str list = str_of(socket_types), item; str_next(&list, ',', &item);)
        if (type.n && str_eq(type, item))
            return 0;
    return err_set(err, ERR_UPSTREAM, "the peer is a ZMTP socket of type '%.*s', not %s",
                   (int)MIN(type.n, (size_t)20), type.p ? type.p : "", socket_types);
}
