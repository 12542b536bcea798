/* birth.c - see birth.h: its messages as bytes. Pure. */
#include "jail/birth.h"

#include <string.h>

enum {
    HEAD = 8,
    SHM_SHARE = 2, /* /dev/shm may hold this part of the memory limit */
};

static const char magic[4] = "CvBi";

static const struct tag_field birth_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct birth, id),
    TAG_ROW(2, TAG_TEXT, struct birth, stage),
    TAG_ROW(3, TAG_STRUCT, struct birth, order, .sub = order_fields),
    TAG_ROW(4, TAG_UINT, struct birth, first_id),
    TAG_ROW(5, TAG_UINT, struct birth, flags),
    TAG_ROW(6, TAG_UINT, struct birth, files),
    TAG_ROW(7, TAG_UINT, struct birth, nroot),
    TAG_ROW(8, TAG_UINT, struct birth, nusr),
    TAG_ROW(9, TAG_TEXT, struct birth, layer),
    TAG_ROWS(10, TAG_TEXT, struct birth, root, nroot_paths),
    TAG_ROW(11, TAG_TEXT, struct birth, usr),
    { 0 },
};

static const struct tag_field birth_reply_fields[] = {
    TAG_ROW(1, TAG_INT, struct birth_reply, pid),
    TAG_ROW(2, TAG_INT, struct birth_reply, error),
    TAG_ROW(3, TAG_UINT, struct birth_reply, said.code),
    TAG_ROW(4, TAG_TEXT, struct birth_reply, said.msg),
    { 0 },
};

uint64_t jail_shm_bytes(const struct order *o) { return o->limits.memory_bytes / SHM_SHARE; }

static int write_message(const struct tag_field *t, const void *s, struct buf *out, struct err *err)
{
    static const char version[4] = { BIRTH_VERSION };

    buf_add(out, magic, sizeof(magic));
    buf_add(out, version, sizeof(version));
    return tag_encode(t, s, (struct str){ 0 }, out, err);
}

/* Of another version it may have more fields, which do not matter, or one that does (TAG_CRITICAL).
 */
static int read_message(const struct tag_field *t, void *out, struct str in, struct err *err)
{
    if (in.n < HEAD || memcmp(in.p, magic, sizeof(magic)))
        return err_set(err, ERR_INVALID, "%zu bytes that are no message about a birth", in.n);
    return tag_decode(t, out, (struct str){ in.p + HEAD, in.n - HEAD }, err);
}

int birth_write(const struct birth *b, struct buf *out, struct err *err)
{
    return write_message(birth_fields, b, out, err);
}

int birth_read(struct str in, struct birth *out, struct err *err)
{
    if (read_message(birth_fields, out, in, err))
        return -1;
    if (out->nroot > JAIL_LOWERS || out->nusr > JAIL_LOWERS)
        return err_set(err, ERR_INVALID, "%u and %u layers; at most %d", out->nroot, out->nusr,
                       JAIL_LOWERS);
    return order_check_id("id", out->id, err);
}

int birth_write_reply(const struct birth_reply *r, struct buf *out, struct err *err)
{
    return write_message(birth_reply_fields, r, out, err);
}

int birth_read_reply(struct str in, struct birth_reply *out, struct err *err)
{
    if (read_message(birth_reply_fields, out, in, err))
        return -1;
    return out->said.code >= ERR_CODES
               ? err_set(err, ERR_INVALID, "an error of an unknown kind: %s", out->said.msg)
               : 0;
}
