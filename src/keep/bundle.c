/* bundle.c - see bundle.h: the part that takes bytes and gives structs. */
#include "keep/bundle.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "jail/pack_head.h"

static_assert((int)BUNDLE_BLOCK == (int)PACK_BLOCK, "it is a tar archive");

enum { AT_SIZE = 124, AT_MTIME = 136, NUMBER = 12 };

void bundle_free(struct bundle *b) { free(b->list); }

struct bundle_member *bundle_add(struct bundle *b, enum bundle_kind kind, const char *id)
{
    struct bundle_member *m;

    if (b->n == b->room) {
        b->room = b->room ? 2 * b->room : 16;
        b->list = xrealloc(b->list, b->room * sizeof(*b->list));
    }
    m = &b->list[b->n++];
    *m = (struct bundle_member){ .kind = kind };
    if (id)
        snprintf(m->id, sizeof(m->id), "%s", id);
    return m;
}

const struct bundle_member *bundle_find(const struct bundle *b, enum bundle_kind kind,
                                        const char *id)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->list[i].kind == kind && (!id || !strcmp(b->list[i].id, id)))
            return &b->list[i];
    return NULL;
}

static void name_of(const struct bundle_member *m, char out[static BUNDLE_NAME])
{
    static const char *const names[BUNDLE_KINDS] = {
        [BUNDLE_VERSION] = "cove-backup", [BUNDLE_DATABASE] = "cove.db", [BUNDLE_NOTE] = "note",
        [BUNDLE_LAYER] = "layer.tar",     [BUNDLE_SUMS] = "SHA256SUMS",
    };

    if (*m->id)
        snprintf(out, BUNDLE_NAME, "sandboxes/%s/%s", m->id, names[m->kind]);
    else
        snprintf(out, BUNDLE_NAME, "%s", names[m->kind]);
}

void bundle_head(const struct bundle_member *m, char out[static BUNDLE_BLOCK])
{
    char name[BUNDLE_NAME];
    struct pack_head h = {
        .type = '0', .mode = 0600, .size = m->size, .mtime = { .tv_sec = m->time_s }
    };

    name_of(m, name);
    h.name = str_of(name);
    pack_block(&h, out); /* a name of ours is never too long */
}

/* ---- reading ---- */

/* Octal, or GNU's binary form. What is no number is found by writing it again. */
static uint64_t number_at(const char *p)
{
    uint64_t n = 0;

    for (size_t i = 4; i < NUMBER && (unsigned char)*p == 0x80; i++)
        n = n << 8 | (unsigned char)p[i];
    for (size_t i = 0; i < NUMBER - 1 && (unsigned char)*p != 0x80; i++)
        n = n << 3 | (uint64_t)(p[i] & 7);
    return n;
}

static bool read_name(struct str name, struct bundle_member *m)
{
    struct str id, file;

    m->kind = str_is(name, "cove-backup")  ? BUNDLE_VERSION
              : str_is(name, "cove.db")    ? BUNDLE_DATABASE
              : str_is(name, "SHA256SUMS") ? BUNDLE_SUMS
                                           : BUNDLE_KINDS;
    if (m->kind != BUNDLE_KINDS)
        return true;
    if (!str_starts(name, "sandboxes/") ||
        !str_cut((struct str){ name.p + 10, name.n - 10 }, '/', &id, &file) || id.n >= ORDER_ID)
        return false;
    memcpy(m->id, id.p, id.n);
    m->kind = str_is(file, "note") ? BUNDLE_NOTE : BUNDLE_LAYER;
    return order_id_valid(m->id) && (m->kind == BUNDLE_NOTE || str_is(file, "layer.tar"));
}

int bundle_read_head(const char block[static BUNDLE_BLOCK], struct bundle_member *out,
                     struct err *err)
{
    char again[BUNDLE_BLOCK];

    *out = (struct bundle_member){ .size = number_at(block + AT_SIZE),
                                   .time_s = (int64_t)number_at(block + AT_MTIME) };
    if (!read_name((struct str){ block, strnlen(block, BUNDLE_NAME) }, out))
        return err_set(err, ERR_INVALID, "it has a member that no backup has");
    bundle_head(out, again);
    if (memcmp(again, block, sizeof(again)) != 0 || out->size > INT64_MAX / 2)
        return err_set(err, ERR_INVALID, "the head of a member is damaged");
    return 0;
}

int bundle_check_order(const struct bundle *b, const struct bundle_member *m, struct err *err)
{
    const struct bundle_member *last = b->n ? &b->list[b->n - 1] : NULL;
    bool fits = false;

    switch (m->kind) {
    case BUNDLE_VERSION: fits = !last; break;
    case BUNDLE_DATABASE: fits = last && last->kind == BUNDLE_VERSION; break;
    case BUNDLE_NOTE:
    case BUNDLE_SUMS:
        fits = last && (last->kind == BUNDLE_DATABASE || last->kind == BUNDLE_LAYER);
        break;
    case BUNDLE_LAYER: fits = last && last->kind == BUNDLE_NOTE && !strcmp(last->id, m->id); break;
    case BUNDLE_KINDS: break;
    }
    if (!fits)
        return err_set(err, ERR_INVALID, "its members are not in the order of a backup's");
    if (m->kind == BUNDLE_NOTE && bundle_find(b, BUNDLE_NOTE, m->id))
        return err_set(err, ERR_INVALID, "it has sandbox %s twice", m->id);
    return 0;
}

void bundle_put_sums(const struct bundle *b, struct buf *out)
{
    char name[BUNDLE_NAME];

    for (size_t i = 0; i < b->n && b->list[i].kind != BUNDLE_SUMS; i++) {
        for (size_t at = 0; at < BUNDLE_SUM; at++)
            buf_printf(out, "%02x", b->list[i].sum[at]);
        name_of(&b->list[i], name);
        buf_printf(out, "  %s\n", name);
    }
}
