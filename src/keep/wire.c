/* wire.c - see wire.h. Pure: bytes in, a struct or a reason out. */
#include "keep/wire.h"

#include <string.h>

#include "keep/v2.h"

enum { MAGIC = 0x65766f43 }; /* "Cove" */

static const struct tag_field hello_fields[] = {
    TAG_ROW(1, TAG_UINT, struct keep_hello, newest),
    TAG_ROW(2, TAG_UINT, struct keep_hello, oldest),
    TAG_ROW(3, TAG_TEXT, struct keep_hello, release),
    TAG_ROW(4, TAG_TEXT, struct keep_hello, owner.identity),
    TAG_ROW(5, TAG_UINT, struct keep_hello, owner.device),
    TAG_ROW(6, TAG_UINT, struct keep_hello, owner.inode),
    TAG_ROW(7, TAG_TEXT, struct keep_hello, owner.data_dir),
    { 0 },
};

enum { REQUEST_ORDER = 2 };

static const struct tag_field request_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct keep_request, id),
    TAG_ROW(REQUEST_ORDER, TAG_STRUCT, struct keep_request, u.create, .sub = order_fields),
    TAG_ROW(3, TAG_STRUCT, struct keep_request, u.limits, .sub = limits_fields),
    TAG_ROW(4, TAG_TEXT, struct keep_request, u.snapshot),
    TAG_ROW(5, TAG_TEXT, struct keep_request, u.after),
    TAG_ROW(6, TAG_UINT, struct keep_request, u.freeze.files_only),
    TAG_ROW(7, TAG_UINT, struct keep_request, u.socket.port),
    TAG_ROW(8, TAG_UINT, struct keep_request, u.socket.count),
    TAG_ROW(9, TAG_UINT, struct keep_request, u.socket.v6),
    TAG_ROW(10, TAG_STRUCT, struct keep_request, u.hello, .sub = hello_fields),
    TAG_ROW(11, TAG_STRUCT, struct keep_request, u.mark, .sub = order_mark_fields),
    { 0 },
};

static const struct tag_field state_fields[] = {
    TAG_ROW(1, TAG_STRUCT, struct keep_state, limits, .sub = limits_fields),
    TAG_ROW(2, TAG_UINT, struct keep_state, memory_bytes),
    TAG_ROW(3, TAG_UINT, struct keep_state, memory_peak_bytes),
    TAG_ROW(4, TAG_UINT, struct keep_state, cpu_us),
    TAG_ROW(5, TAG_UINT, struct keep_state, pids),
    TAG_ROW(6, TAG_UINT, struct keep_state, disk_bytes),
    TAG_ROW(7, TAG_UINT, struct keep_state, oom_kills),
    TAG_ROW(8, TAG_UINT, struct keep_state, memory_cache_bytes),
    TAG_ROW(9, TAG_UINT, struct keep_state, net_rx_bytes),
    TAG_ROW(10, TAG_UINT, struct keep_state, net_tx_bytes),
    TAG_ROW(11, TAG_INT, struct keep_state, left_ms),
    TAG_ROW(12, TAG_INT, struct keep_state, pid),
    TAG_ROW(13, TAG_UINT, struct keep_state, frozen),
    TAG_ROW(14, TAG_UINT, struct keep_state, network),
    TAG_ROW(15, TAG_UINT, struct keep_state, unenforced),
    TAG_ROW(16, TAG_UINT, struct keep_state, outdated),
    TAG_ROW(17, TAG_UINT, struct keep_state, stopped),
    TAG_ROW(18, TAG_TEXT, struct keep_state, template),
    TAG_ROW(19, TAG_UINT, struct keep_state, asleep),
    TAG_ROW(20, TAG_UINT, struct keep_state, fresh),
    TAG_ROW(21, TAG_UINT, struct keep_state, flush_us),
    TAG_ROW(22, TAG_TEXT, struct keep_state, unreadable),
    TAG_ROW(23, TAG_UINT, struct keep_state, astray),
    TAG_ROW(24, TAG_STRUCT, struct keep_state, mark, .sub = order_mark_fields),
    TAG_ROW(25, TAG_UINT, struct keep_state, flags),
    TAG_ROW(26, TAG_UINT, struct keep_state, socket_bytes),
    { 0 },
};

static const struct tag_field limit_met_fields[] = {
    TAG_ROW(1, TAG_UINT, struct keep_limit_met, limit),
    TAG_ROW(2, TAG_UINT, struct keep_limit_met, value),
    TAG_ROW(3, TAG_UINT, struct keep_limit_met, use),
    TAG_ROW(4, TAG_UINT, struct keep_limit_met, sockets),
    { 0 },
};

static const struct tag_field template_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct keep_template, name),
    TAG_ROW(2, TAG_TEXT, struct keep_template, user),
    TAG_ROW(3, TAG_TEXT, struct keep_template, workdir),
    TAG_ROW(4, TAG_UINT, struct keep_template, kind),
    TAG_ROW(5, TAG_STRUCT, struct keep_template, limits, .sub = limits_fields),
    { 0 },
};

static const struct tag_field reply_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct keep_reply, id),
    TAG_ROW(2, TAG_UINT, struct keep_reply, code),
    TAG_ROW(3, TAG_TEXT, struct keep_reply, message),
    TAG_ROW(4, TAG_STRUCT, struct keep_reply, u.state, .sub = state_fields),
    TAG_ROW(5, TAG_STRUCT, struct keep_reply, u.limit, .sub = limit_met_fields),
    TAG_ROWS(6, TAG_TEXT, struct keep_reply, u.list.ids, u.list.count),
    TAG_ROWS(7, TAG_STRUCT, struct keep_reply, u.templates.items, u.templates.count,
             .sub = template_fields),
    TAG_ROW(8, TAG_UINT, struct keep_reply, reason),
    TAG_ROW(9, TAG_UINT, struct keep_reply, status),
    TAG_ROW(10, TAG_STRUCT, struct keep_reply, u.hello, .sub = hello_fields),
    TAG_ROW(11, TAG_UINT, struct keep_reply, why),
    { 0 },
};

struct head {
    uint32_t magic, version, first, second;
    uint64_t serial;
};

static void put_head(const struct head *h, struct buf *out)
{
    char bytes[WIRE_HEAD];
    const uint32_t words[] = { h->magic,  h->version,          h->first,
                               h->second, (uint32_t)h->serial, (uint32_t)(h->serial >> 32) };

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(words[i / 4] >> (8 * (i % 4)));
    buf_add(out, bytes, sizeof(bytes));
}

/* false: it is too short to have one. */
static bool get_head(struct str in, struct head *h)
{
    uint32_t words[WIRE_HEAD / 4] = { 0 };

    if (in.n < WIRE_HEAD)
        return false;
    for (size_t i = 0; i < WIRE_HEAD; i++)
        words[i / 4] |= (uint32_t)(uint8_t)in.p[i] << (8 * (i % 4));
    *h = (struct head){ words[0], words[1], words[2], words[3],
                        (uint64_t)words[5] << 32 | words[4] };
    return true;
}

static struct str body_of(struct str in)
{
    return (struct str){ in.p + WIRE_HEAD, in.n - WIRE_HEAD };
}

int wire_write_request(const struct keep_request *r, uint32_t version, struct buf *out,
                       struct err *err)
{
    if (version == 2)
        return v2_write_request(r, out, err);
    put_head(&(struct head){ MAGIC, KEEP_VERSION, r->verb, 0, r->serial }, out);
    return tag_encode(request_fields, r, (struct str){ 0 }, out, err);
}

int wire_write_reply(const struct keep_reply *r, uint32_t version, struct buf *out, struct err *err)
{
    if (version == 2) {
        v2_write_reply(r, out);
        return 0;
    }
    put_head(&(struct head){ MAGIC, KEEP_VERSION, r->kind, r->verb, r->serial }, out);
    return tag_encode(reply_fields, r, (struct str){ 0 }, out, err);
}

int wire_read_request(struct str in, struct keep_request *out, uint32_t *version,
                      struct buf *unknown, struct err *err)
{
    struct head h = { 0 };
    bool whole = get_head(in, &h);

    *version = whole && h.magic == MAGIC && h.version >= 3 ? KEEP_VERSION : 2;
    out->serial = h.serial;
    if (*version == 2)
        return v2_read_request(in, out, err) || record_check(out, err) ? -1 : 0;
    if (tag_decode(request_fields, out, body_of(in), err))
        return -1;
    out->verb = h.first;
    out->unknown = (struct str){ 0 };
    if (out->verb == KEEP_CREATE || out->verb == KEEP_RESTORE) {
        tag_unknown(order_fields, tag_find(body_of(in), REQUEST_ORDER), unknown);
        out->unknown = buf_str(unknown);
    }
    return record_check(out, err);
}

int wire_read_reply(struct str in, struct keep_reply *out, uint32_t *version, struct err *err)
{
    struct head h = { 0 };

    if (!get_head(in, &h) || h.magic != MAGIC || h.version < KEEP_VERSION_OLDEST)
        return err_set(err, ERR_UPSTREAM, "the keeper answered in another version's form");
    *version = MIN(h.version, (uint32_t)KEEP_VERSION);
    if (*version == 2)
        return v2_read_reply(in, out, err) || record_check_reply(out, err) ? -1 : 0;
    if (tag_decode(reply_fields, out, body_of(in), err)) {
        err->code = ERR_UPSTREAM;
        return err_in(err, "the keeper sent a broken record");
    }
    out->kind = h.first;
    out->verb = h.second;
    out->serial = h.serial;
    return record_check_reply(out, err);
}
