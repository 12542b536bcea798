/* message.c - messages from a kernel; see message.h.
 *
 * On the wire: identities or a topic, "<IDS|MSG>", the signature, header, parent header, metadata,
 * content, buffers. What stands before the header is not needed once it was checked, and a frame's
 * head fits there: the v1 frame of most messages is made without a copy. */
#include "guest/kernels/message.h"

#include <time.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "guest/kernels/scan.h"

#define DELIMITER "<IDS|MSG>"

enum { IDENTITIES = 8 };

const char *const channel_names[CHANNELS + 1] = { "shell", "control", "stdin", "iopub", NULL };

/* ---- signatures ---- */

void signer_init(struct signer *s, struct str key)
{
    s->on = key.n > 0;
    hmac_sha256_set_key(&s->keyed, key.n, (const uint8_t *)key.p);
}

void signer_sign(const struct signer *s, const struct str json[static PART_BUFFERS],
                 char out[static SIGNATURE_LEN + 1])
{
    static const char digit[] = "0123456789abcdef";
    struct hmac_sha256_ctx h = s->keyed;
    uint8_t sum[SHA256_DIGEST_SIZE];

    out[0] = 0;
    if (!s->on)
        return;
    for (int i = 0; i < PART_BUFFERS; i++)
        hmac_sha256_update(&h, json[i].n, (const uint8_t *)json[i].p);
    hmac_sha256_digest(&h, sizeof(sum), sum);
    for (size_t i = 0; i < sizeof(sum); i++) {
        out[2 * i] = digit[sum[i] >> 4];
        out[2 * i + 1] = digit[sum[i] & 15];
    }
    out[SIGNATURE_LEN] = 0;
}

/* ---- life ---- */

static size_t find_delimiter(const struct zmtp_parts *p)
{
    size_t i = 0;

    while (i < p->n && i < IDENTITIES && !str_is(zmtp_part(p, i), DELIMITER))
        i++;
    return i;
}

struct message *message_take(struct zmtp_parts *parts, enum channel channel, const struct signer *s,
                             struct err *err)
{
    size_t at = find_delimiter(parts);
    struct str json[PART_BUFFERS], given = zmtp_part(parts, at + 1);
    char wanted[SIGNATURE_LEN + 1];
    struct message *m;

    if (at == IDENTITIES || parts->n < at + 2 + PART_BUFFERS) {
        err_set(err, ERR_UPSTREAM, "a message of %zu parts that is not Jupyter's", parts->n);
        return NULL;
    }
    for (size_t i = 0; i < PART_BUFFERS; i++)
        json[i] = zmtp_part(parts, at + 2 + i);
    signer_sign(s, json, wanted);
    if (s->on && (given.n != SIGNATURE_LEN || !mem_equal_const(given.p, wanted, SIGNATURE_LEN))) {
        err_set(err, ERR_UPSTREAM, "a message with a wrong signature");
        return NULL;
    }
    m = xcalloc(1, sizeof(*m));
    *m = (struct message){ .refs = 1, .channel = channel, .parts = *parts, .first = at + 2 };
    *parts = (struct zmtp_parts){ 0 };
    return m;
}

void message_put_time(struct buf *b, int64_t wall_us)
{
    /* One nanosecond more, or a whole second would be written without digits. */
    clock_rfc3339(b, wall_us / 1000000, (int32_t)(wall_us % 1000000 * 1000 + 1));
    b->len -= 4;
    buf_putc(b, 'Z');
}

void message_put_header(struct buf *b, const char *type, const char *session, char *out_id)
{
    struct timespec now;
    char id[33];

    id_hex(id, 32);
    if (out_id)
        memcpy(out_id, id, sizeof(id));
    clock_gettime(CLOCK_REALTIME, &now);
    json_open(b, '{');
    json_kv_str(b, "msg_id", id);
    json_kv_str(b, "msg_type", type);
    json_kv_str(b, "username", "cove");
    json_kv_str(b, "session", session);
    buf_puts(b, ",\"date\":\"");
    message_put_time(b, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    buf_putc(b, '"');
    json_kv_str(b, "version", "5.3");
    json_close(b, '}');
}

struct message *message_make(enum channel channel, const char *type, struct str content)
{
    struct message *m = xcalloc(1, sizeof(*m));
    struct zmtp_parts *p = &m->parts;

    m->refs = 1;
    m->channel = channel;
    zmtp_parts_begin(p);
    message_put_header(&p->bytes, type, "cove", NULL);
    zmtp_parts_end(p);
    buf_puts(&p->bytes, "{}");
    zmtp_parts_end(p);
    buf_puts(&p->bytes, "{}");
    zmtp_parts_end(p);
    buf_add_str(&p->bytes, content);
    zmtp_parts_end(p);
    return m;
}

struct message *message_get(struct message *m)
{
    m->refs++;
    return m;
}

void message_put(struct message *m)
{
    if (!m || --m->refs)
        return;
    zmtp_parts_free(&m->parts);
    buf_free(&m->wide);
    buf_free(&m->text);
    free(m);
}

void message_putp(struct message **m) { message_put(*m); }

/* ---- looking into it ---- */

struct str message_part(const struct message *m, size_t i)
{
    return zmtp_part(&m->parts, m->first + i);
}

size_t message_buffers(const struct message *m) { return m->parts.n - m->first - PART_BUFFERS; }

size_t message_size(const struct message *m) { return m->parts.bytes.len; }

static struct str plain_field(struct str json, const char *name)
{
    struct str s = scan_plain(scan_get(json, name));

    return s.p ? s : STR("");
}

struct str message_type(const struct message *m)
{
    return plain_field(message_part(m, PART_HEADER), "msg_type");
}

struct str message_parent(const struct message *m, const char *field)
{
    return plain_field(message_part(m, PART_PARENT), field);
}

/* ---- the v1 dialect: little-endian 64-bit offsets, then the parts ---- */

static void put_le64(unsigned char *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(v >> 8 * i);
}

/* The head of the frame, n + 1 numbers and the channel's name, which is part 0. */
static void put_v1_head(const struct message *m, unsigned char *out, size_t n, struct str channel)
{
    uint64_t at = 8 * (n + 1);

    put_le64(out, n);
    put_le64(out + 8, at);
    at += channel.n;
    for (size_t i = 1; i < n; i++) {
        put_le64(out + 8 * (i + 1), at);
        at += message_part(m, i - 1).n;
    }
    memcpy(out + 8 * (n + 1), channel.p, channel.n);
}

struct str message_v1(struct message *m)
{
    struct str channel = str_of(channel_names[m->channel]);
    size_t n = 1 + PART_BUFFERS + message_buffers(m) + 1, head = 8 * (n + 1) + channel.n;
    char *data = m->parts.bytes.data;
    size_t from = (size_t)(message_part(m, PART_HEADER).p - data);

    if (m->v1.p)
        return m->v1;
    if (from >= head) {
        put_v1_head(m, (unsigned char *)data + from - head, n, channel);
        m->v1 = (struct str){ data + from - head, m->parts.bytes.len - from + head };
        return m->v1;
    }
    buf_reserve(&m->wide, head + m->parts.bytes.len - from);
    put_v1_head(m, (unsigned char *)m->wide.data, n, channel);
    m->wide.len = head;
    buf_add(&m->wide, data + from, m->parts.bytes.len - from);
    m->v1 = buf_str(&m->wide);
    return m->v1;
}

/* ---- the default dialect: one JSON object, or with buffers big-endian 32-bit offsets ---- */

static void put_be32(struct buf *b, uint64_t v)
{
    unsigned char c[4] = { (unsigned char)(v >> 24), (unsigned char)(v >> 16),
                           (unsigned char)(v >> 8), (unsigned char)v };

    buf_add(b, c, sizeof(c));
}

static void put_object(const struct message *m, struct buf *b)
{
    static const char *const keys[] = { "header", "parent_header", "metadata", "content" };
    static const char *const wanted[] = { "msg_id", "msg_type", NULL };
    struct str found[2];

    scan_object(message_part(m, PART_HEADER), wanted, found);
    json_open(b, '{');
    for (size_t i = 0; i < PART_BUFFERS; i++) {
        json_key(b, keys[i]);
        json_put_raw(b, message_part(m, i));
    }
    for (size_t i = 0; i < ARRAY_LEN(found); i++)
        if (found[i].p) {
            json_key(b, wanted[i]);
            json_put_raw(b, found[i]);
        }
    if (!message_buffers(m)) {
        json_key(b, "buffers");
        json_put_raw(b, STR("[]"));
    }
    json_kv_str(b, "channel", channel_names[m->channel]);
    json_close(b, '}');
}

static void put_buffers(struct message *m)
{
    AUTO(buf_free) struct buf json = { 0 };
    size_t n = message_buffers(m) + 1;
    uint64_t at = 4 * (n + 1);

    put_object(m, &json);
    put_be32(&m->text, n);
    put_be32(&m->text, at);
    at += json.len;
    for (size_t i = 1; i < n; i++) {
        put_be32(&m->text, at);
        at += message_part(m, PART_BUFFERS + i - 1).n;
    }
    buf_add_str(&m->text, buf_str(&json));
    for (size_t i = 1; i < n; i++)
        buf_add_str(&m->text, message_part(m, PART_BUFFERS + i - 1));
    m->binary = true;
}

struct str message_default(struct message *m, bool *binary)
{
    if (!m->text.len && !m->unfit) {
        for (size_t i = 0; i < PART_BUFFERS; i++)
            m->unfit |= !scan_valid(message_part(m, i));
        m->unfit |= message_size(m) > UINT32_MAX / 2;
        if (!m->unfit && message_buffers(m))
            put_buffers(m);
        else if (!m->unfit)
            put_object(m, &m->text);
    }
    *binary = m->binary;
    if (m->unfit)
        return (struct str){ 0 };
    return buf_str(&m->text);
}
