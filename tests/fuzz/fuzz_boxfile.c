/* fuzz_boxfile.c - the keeper's files, of every release. The first byte chooses the kind, and
 * whether the rest is a whole file or the fields of one, whose head is then made here. Promises:
 * what is taken has every field that is acted on within its bounds, and written again it is read as
 * the same, unknown fields included; what is refused has a reason. */
#include "keep/boxfile.h"

#include "fuzz.h"

enum { NOTE = 1, FIELDS = 2 };

/* A head with the right length and sum, which no engine finds by itself. */
static void put_head(struct buf *out, int kind, const uint8_t *p, size_t n)
{
    uint32_t sum = 2166136261u;
    uint32_t words[2] = { (uint32_t)n, 0 };
    char head[8] = { 'C', 'v', 'B', 'x', KEEP_SCHEMA, 0, (char)kind, 0 };

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ p[i]) * 16777619u;
    words[1] = sum;
    buf_add(out, head, sizeof(head));
    for (size_t i = 0; i < 8; i++)
        buf_putc(out, (char)(words[i / 4] >> (8 * (i % 4))));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct boxfile f, again;
    AUTO(buf_free) struct buf unknown = { 0 };
    AUTO(buf_free) struct buf bytes = { 0 };
    AUTO(buf_free) struct buf rest = { 0 };
    AUTO(buf_free) struct buf in = { 0 };
    enum boxfile_kind kind = size && *data & NOTE ? BOXFILE_NOTE : BOXFILE_RECORD;
    struct err err = { 0 };
    int r;

    if (!size)
        return 0;
    if (*data & FIELDS)
        put_head(&in, kind, data + 1, size - 1);
    buf_add(&in, data + 1, size - 1);
    r = boxfile_decode(buf_str(&in), kind, "a1", &f, &unknown, &err);
    MUST(r >= 0 || (err.code != ERR_NONE && *err.msg));
    if (r < 0)
        return 0;
    MUST(!strcmp(f.id, "a1") && layer_name_ok(f.name) && f.order.network < ORDER_NETWORKS);
    MUST(f.order.nmounts <= ORDER_MOUNTS && memchr(f.boot, 0, sizeof(f.boot)));
    MUST(!boxfile_encode(&f, kind, buf_str(&unknown), &bytes, &err));
    MUST(!boxfile_decode(buf_str(&bytes), kind, "a1", &again, &rest, &err));
    MUST(again.pid == f.pid && again.deadline_ms == f.deadline_ms && again.is == f.is);
    MUST(again.order.nmounts == f.order.nmounts && !strcmp(again.run_dir, f.run_dir));
    MUST(rest.len == unknown.len);
    return 0;
}
