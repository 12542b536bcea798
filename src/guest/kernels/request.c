/* request.c - messages from a client, out of the frames of both dialects; see message.h. All of it
 * is a stranger's: every offset is checked before it is used, and what will be signed is JSON. */
#include "guest/kernels/message.h"
#include "guest/kernels/scan.h"

static const char *const json_names[] = { "header", "parent_header", "metadata", "content" };

static int check_json(const struct request *r, struct err *err)
{
    for (size_t i = 0; i < PART_BUFFERS; i++)
        if (!r->json[i].n || r->json[i].p[0] != '{' || !scan_valid(r->json[i]))
            return err_set(err, ERR_INVALID, "the message's %s is not a JSON object",
                           json_names[i]);
    return 0;
}

static int find_channel(struct request *r, struct str name, struct err *err)
{
    for (int i = 0; i < CHANNEL_IOPUB; i++) /* nobody sends on iopub */
        if (str_is(name, channel_names[i])) {
            r->channel = (enum channel)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "channel '%.*s' is not shell, control or stdin",
                   (int)MIN(name.n, (size_t)20), name.p);
}

/* ---- offsets, in either width ---- */

struct offsets {
    struct str frame;
    size_t n, width;
    bool big_endian;
};

static uint64_t offset_number(const struct offsets *o, size_t i)
{
    const unsigned char *p = (const unsigned char *)o->frame.p + i * o->width;
    uint64_t v = 0;

    for (size_t k = 0; k < o->width; k++)
        v = v << 8 | p[o->big_endian ? k : o->width - 1 - k];
    return v;
}

static int read_offsets(struct offsets *o, size_t most, struct err *err)
{
    uint64_t n, before, at;

    if (o->frame.n < o->width)
        return err_set(err, ERR_INVALID, "a binary frame of %zu bytes", o->frame.n);
    n = offset_number(o, 0);
    if (!n || n > most || o->frame.n / o->width < n + 1)
        return err_set(err, ERR_INVALID, "a binary frame with %llu offsets", (unsigned long long)n);
    o->n = (size_t)n;
    before = o->width * (n + 1);
    for (size_t i = 0; i < n; i++, before = at) {
        at = offset_number(o, 1 + i);
        if (at < before || at > o->frame.n)
            return err_set(err, ERR_INVALID, "offset %zu of a binary frame points outside", i);
    }
    return 0;
}

static struct str slice(const struct offsets *o, size_t i)
{
    uint64_t from = offset_number(o, 1 + i);
    uint64_t to = i + 1 < o->n ? offset_number(o, 2 + i) : o->frame.n;

    return (struct str){ o->frame.p + from, (size_t)(to - from) };
}

static void take_buffers(struct request *r, const struct offsets *o, size_t first, size_t end)
{
    r->nbuffers = 0;
    for (size_t i = first; i < end; i++)
        r->buffers[r->nbuffers++] = slice(o, i);
}

int request_from_v1(struct request *r, struct str frame, struct err *err)
{
    enum { FIXED = 1 + PART_BUFFERS };
    struct offsets o = { .frame = frame, .width = 8 };

    if (read_offsets(&o, FIXED + REQUEST_BUFFERS + 1, err))
        return -1;
    if (o.n < FIXED)
        return err_set(err, ERR_INVALID, "a v1 frame with %zu offsets", o.n);
    if (find_channel(r, slice(&o, 0), err))
        return -1;
    for (size_t i = 0; i < PART_BUFFERS; i++)
        r->json[i] = slice(&o, 1 + i);
    /* The last offset is the frame's end; jupyter_server takes its absence too. */
    take_buffers(r, &o, FIXED, o.n - (slice(&o, o.n - 1).n == 0 && o.n > FIXED));
    return check_json(r, err);
}

int request_from_text(struct request *r, struct str frame, struct err *err)
{
    static const char *const names[] = { "header",  "parent_header", "metadata",
                                         "content", "channel",       NULL };
    struct str found[ARRAY_LEN(names) - 1];

    if (scan_object(frame, names, found))
        return err_set(err, ERR_INVALID, "the message is not a JSON object");
    r->channel = CHANNEL_SHELL;
    if (found[4].p && !str_is(found[4], "null") && find_channel(r, scan_plain(found[4]), err))
        return -1;
    for (size_t i = 0; i < PART_BUFFERS; i++)
        r->json[i] = i && (!found[i].p || str_is(found[i], "null")) ? STR("{}") : found[i];
    r->nbuffers = 0;
    return check_json(r, err);
}

int request_from_binary(struct request *r, struct str frame, struct err *err)
{
    struct offsets o = { .frame = frame, .width = 4, .big_endian = true };

    if (read_offsets(&o, REQUEST_BUFFERS + 1, err) || request_from_text(r, slice(&o, 0), err))
        return -1;
    take_buffers(r, &o, 1, o.n);
    return 0;
}

int request_send(const struct request *r, struct zmtp *z, const struct signer *s, int64_t until,
                 struct err *err)
{
    struct str parts[2 + PART_BUFFERS + REQUEST_BUFFERS];
    char signature[SIGNATURE_LEN + 1];
    size_t n = 0;

    signer_sign(s, r->json, signature);
    parts[n++] = STR("<IDS|MSG>");
    parts[n++] = str_of(signature);
    for (size_t i = 0; i < PART_BUFFERS; i++)
        parts[n++] = r->json[i];
    for (size_t i = 0; i < r->nbuffers; i++)
        parts[n++] = r->buffers[i];
    return zmtp_send(z, parts, n, until, err);
}
