/* boxfile.c - see boxfile.h. */
#include "keep/boxfile.h"

#include <string.h>

#include "keep/v2.h"

enum { HEAD = 16 };

static const char magic[4] = "CvBx";

const struct tag_field boxfile_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct boxfile, id),
    TAG_ROW(2, TAG_TEXT, struct boxfile, name),
    TAG_ROW(3, TAG_TEXT, struct boxfile, boot),
    TAG_ROW(BOXFILE_ORDER, TAG_STRUCT, struct boxfile, order, .sub = order_fields),
    TAG_ROW(5, TAG_UINT, struct boxfile, family),
    TAG_ROW(6, TAG_INT, struct boxfile, pid),
    TAG_ROW(7, TAG_UINT, struct boxfile, started),
    TAG_ROW(8, TAG_TEXT, struct boxfile, fingerprint),
    TAG_ROW(9, TAG_UINT, struct boxfile, number),
    TAG_ROW(10, TAG_UINT, struct boxfile, is),
    TAG_ROW(11, TAG_INT, struct boxfile, deadline_ms, .def = INT64_MAX),
    TAG_ROW(12, TAG_UINT, struct boxfile, oom_kills),
    TAG_ROW(13, TAG_UINT, struct boxfile, pids_refused),
    TAG_ROW(14, TAG_TEXT, struct boxfile, run_dir),
    TAG_ROW(15, TAG_INT, struct boxfile, client),
    TAG_ROW(16, TAG_UINT, struct boxfile, client_started),
    TAG_ROW(17, TAG_TEXT, struct boxfile, python),
    { 0 },
};

static void put32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

static uint32_t get32(const char *p)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(uint8_t)p[i] << (8 * i);
    return v;
}

/* FNV-1a: for a disk that lies, not for an enemy. */
static uint32_t sum_of(struct str s)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 16777619u;
    return h;
}

int boxfile_encode(const struct boxfile *f, enum boxfile_kind kind, struct str unknown,
                   struct buf *out, struct err *err)
{
    size_t at = out->len;
    char head[HEAD] = { 0 };
    struct str body;

    buf_add(out, head, sizeof(head));
    if (tag_encode(boxfile_fields, f, unknown, out, err))
        return -1;
    body = (struct str){ out->data + at + HEAD, out->len - at - HEAD };
    memcpy(head, magic, sizeof(magic));
    head[4] = KEEP_SCHEMA;
    head[6] = (char)kind;
    put32(head + 8, (uint32_t)body.n);
    put32(head + 12, sum_of(body));
    memcpy(out->data + at, head, sizeof(head));
    return 0;
}

/* Is everything in it that is acted on within its bounds? */
static int check(const struct boxfile *f, enum boxfile_kind kind, const char *id, struct err *err)
{
    if (strcmp(f->id, id) || !order_id_valid(f->id))
        return err_set(err, ERR_INVALID, "it is of sandbox '%s'", f->id);
    if (!layer_name_ok(f->name))
        return err_set(err, ERR_INVALID, "field 'name' cannot be a layer's");
    if (kind == BOXFILE_NOTE && !f->family)
        return err_set(err, ERR_INVALID, "field 'family' is missing");
    if (f->order.network >= ORDER_NETWORKS)
        return err_set(err, ERR_INVALID, "field 'network': no mode %u", f->order.network);
    if (!*f->order.template)
        return err_set(err, ERR_INVALID, "field 'template' is missing");
    return 0;
}

/* *schema: what its head says. */
static int check_head(struct str in, enum boxfile_kind kind, struct str *body, struct err *err)
{
    unsigned schema;
    size_t n;

    if (in.n < HEAD || memcmp(in.p, magic, sizeof(magic)))
        return err_set(err, ERR_INVALID, "it does not begin as such a file does");
    schema = (uint8_t)in.p[4] | (unsigned)(uint8_t)in.p[5] << 8;
    if (schema > KEEP_SCHEMA)
        return err_set(err, ERR_UNSUPPORTED,
                       "a newer release wrote it (schema %u; this one knows %d)", schema,
                       KEEP_SCHEMA);
    if (in.p[6] != (char)kind || in.p[7])
        return err_set(err, ERR_INVALID, "it is a file of another kind (%d)", in.p[6]);
    n = get32(in.p + 8);
    if (n > in.n - HEAD)
        return err_set(err, ERR_INVALID, "it has %zu bytes of %zu", in.n - HEAD, n);
    *body = (struct str){ in.p + HEAD, n }; /* behind it: what a longer one left */
    if (sum_of(*body) != get32(in.p + 12))
        return err_set(err, ERR_INVALID, "its sum is wrong");
    return 0;
}

int boxfile_decode(struct str in, enum boxfile_kind kind, const char *id, struct boxfile *out,
                   struct buf *unknown, struct err *err)
{
    struct str body;
    int old;

    if (!in.n)
        return err_set(err, ERR_NOT_FOUND, "it is empty");
    old = v2_read_boxfile(in, kind, out, err);
    if (old < 0)
        return -1;
    if (!old && (check_head(in, kind, &body, err) || tag_decode(boxfile_fields, out, body, err)))
        return -1;
    if (check(out, kind, id, err))
        return -1;
    if (!old && unknown)
        tag_unknown(boxfile_fields, body, unknown);
    return old;
}
