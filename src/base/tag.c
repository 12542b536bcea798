/* tag.c - see tag.h. Pure: bytes in, a struct or a reason out. */
#include "base/tag.h"

#include <string.h>

enum { HEAD = 4 };

static uint16_t get16(const char *p) { return (uint16_t)((uint8_t)p[0] | (uint8_t)p[1] << 8); }

struct item { /* one field as it lies there */
    uint16_t tag;
    struct str value;
};

/* 1 and the next one, 0 at the end, -1 when the rest is no whole field. */
static int next(struct str *rest, struct item *out)
{
    size_t n;

    if (!rest->n)
        return 0;
    if (rest->n < HEAD || (n = get16(rest->p + 2)) > rest->n - HEAD)
        return -1;
    *out = (struct item){ get16(rest->p), { rest->p + HEAD, n } };
    *rest = (struct str){ rest->p + HEAD + n, rest->n - HEAD - n };
    return 1;
}

static const struct tag_field *find(const struct tag_field *t, uint16_t tag)
{
    for (; t->tag; t++)
        if (t->tag == tag)
            return t;
    return NULL;
}

/* The nth field with this tag; an empty value when there is none. */
static struct str nth(struct str in, uint16_t tag, size_t n)
{
    struct item i;

    while (next(&in, &i) > 0)
        if (i.tag == tag && !n--)
            return i.value;
    return (struct str){ "", 0 };
}

struct str tag_find(struct str in, uint16_t tag) { return nth(in, tag, 0); }

static uint32_t *count_of(const struct tag_field *f, void *s)
{
    return (uint32_t *)(void *)((char *)s + f->count);
}

static uint32_t get_count(const struct tag_field *f, const void *s)
{
    return *(const uint32_t *)(const void *)((const char *)s + f->count);
}

/* ---- numbers ---- */

static void store_number(const struct tag_field *f, char *member, int64_t v)
{
    switch (f->size) {
    case 1: *(uint8_t *)member = (uint8_t)v; break;
    case 4: memcpy(member, &(uint32_t){ (uint32_t)v }, 4); break;
    default: memcpy(member, &v, 8); break;
    }
}

static int64_t load_number(const struct tag_field *f, const char *member)
{
    uint32_t v32;
    int64_t v;

    if (f->size == 1)
        return *(const uint8_t *)member;
    if (f->size == 4) {
        memcpy(&v32, member, 4);
        return f->kind == TAG_INT ? (int64_t)(int32_t)v32 : (int64_t)v32;
    }
    memcpy(&v, member, 8);
    return v;
}

/* What a member of this size gives back when it is read again. */
static bool fits(const struct tag_field *f, int64_t v)
{
    if (f->size >= 8)
        return true;
    if (f->kind == TAG_INT)
        return v == (int32_t)v;
    return f->size == 4 ? v == (int64_t)(uint32_t)v : v == (int64_t)(uint8_t)v;
}

static int decode_number(const struct tag_field *f, char *member, struct str in, struct err *err)
{
    uint64_t v = 0;

    if (in.n > 8)
        return err_set(err, ERR_INVALID, "field '%s' is a number of %zu bytes", f->name, in.n);
    for (size_t i = 0; i < in.n; i++)
        v |= (uint64_t)(uint8_t)in.p[i] << (8 * i);
    if (f->kind == TAG_INT && in.n && in.n < 8 && in.p[in.n - 1] & 0x80)
        v |= ~UINT64_C(0) << (8 * in.n);
    if (!fits(f, (int64_t)v))
        return err_set(err, ERR_INVALID, "field '%s' is too large: %#llx", f->name,
                       (unsigned long long)v);
    store_number(f, member, (int64_t)v);
    return 0;
}

static size_t number_bytes(const struct tag_field *f, int64_t v, char out[static 8])
{
    size_t n = 8;

    for (size_t i = 0; i < 8; i++)
        out[i] = (char)((uint64_t)v >> (8 * i));
    if (f->kind == TAG_UINT)
        while (n && !out[n - 1])
            n--;
    else /* the next byte must say the same sign */
        while (n > 1 && out[n - 1] == (out[n - 2] & 0x80 ? (char)0xff : 0))
            n--;
    return n;
}

/* ---- reading ---- */

static int decode(const struct tag_field *t, void *out, struct str in, int depth, struct err *err);

static int decode_value(const struct tag_field *f, char *member, struct str in, int depth,
                        struct err *err)
{
    switch (f->kind) {
    case TAG_UINT:
    case TAG_INT: return decode_number(f, member, in, err);
    case TAG_TEXT:
        if (in.n >= f->size || memchr(in.p, 0, in.n))
            return err_set(err, ERR_INVALID, "field '%s' must be at most %zu bytes without a NUL",
                           f->name, f->size - 1);
        memcpy(member, in.p, in.n);
        memset(member + in.n, 0, f->size - in.n);
        return 0;
    case TAG_STRUCT: break;
    }
    return decode(f->sub, member, in, depth + 1, err) ? err_in(err, "%s", f->name) : 0;
}

static void set_default(const struct tag_field *f, char *member)
{
    if (f->kind == TAG_TEXT)
        memset(member, 0, f->size);
    else if (f->kind == TAG_STRUCT)
        for (const struct tag_field *s = f->sub; s->tag; s++) {
            set_default(s, member + s->offset);
            if (s->max)
                *count_of(s, member) = 0;
        }
    else
        store_number(f, member, f->def);
}

static int take(const struct tag_field *f, void *out, struct str in, int depth, struct err *err)
{
    char *member = (char *)out + f->offset;
    uint32_t *count;

    if (!f->max)
        return decode_value(f, member, in, depth, err);
    count = count_of(f, out);
    if (*count >= f->max)
        return err_set(err, ERR_INVALID, "field '%s' has more than %zu items", f->name, f->max);
    if (decode_value(f, member + *count * f->size, in, depth, err))
        return -1;
    ++*count;
    return 0;
}

static int decode(const struct tag_field *t, void *out, struct str in, int depth, struct err *err)
{
    struct tag_field whole = { .kind = TAG_STRUCT, .sub = t };
    uint64_t seen[4] = { 0 }; /* by row: more than 256 in one table is nobody's wish */
    struct item i;
    int more;

    if (depth > TAG_DEPTH)
        return err_set(err, ERR_INVALID, "fields are nested deeper than %d", TAG_DEPTH);
    set_default(&whole, out);
    while ((more = next(&in, &i)) > 0) {
        const struct tag_field *f = find(t, i.tag);
        size_t row = f ? (size_t)(f - t) : 0;

        if (!f && i.tag & TAG_CRITICAL)
            return err_set(err, ERR_UNSUPPORTED, "field %#x is of a newer release", i.tag);
        if (!f)
            continue;
        if (!f->max && seen[row / 64] >> row % 64 & 1)
            return err_set(err, ERR_INVALID, "field '%s' is given twice", f->name);
        seen[row / 64] |= UINT64_C(1) << row % 64;
        if (take(f, out, i.value, depth, err))
            return -1;
    }
    return more < 0 ? err_set(err, ERR_INVALID, "a field is cut short") : 0;
}

int tag_decode(const struct tag_field *t, void *out, struct str in, struct err *err)
{
    return decode(t, out, in, 0, err);
}

/* ---- writing ---- */

int tag_put(uint16_t tag, struct str value, struct buf *out, struct err *err)
{
    char head[HEAD] = { (char)tag, (char)(tag >> 8), (char)value.n, (char)(value.n >> 8) };

    if (value.n > TAG_LENGTH_MAX)
        return err_set(err, ERR_TOO_LARGE, "a field of %zu bytes; at most %d", value.n,
                       TAG_LENGTH_MAX);
    buf_add(out, head, sizeof(head));
    buf_add_str(out, value);
    return 0;
}

/* The length is known when the value is there. */
static int close_field(struct buf *out, size_t head, struct err *err)
{
    size_t n = out->len - head - HEAD;

    if (n > TAG_LENGTH_MAX)
        return err_set(err, ERR_TOO_LARGE, "a field of %zu bytes; at most %d", n, TAG_LENGTH_MAX);
    out->data[head + 2] = (char)n;
    out->data[head + 3] = (char)(n >> 8);
    return 0;
}

/* always: also when it has its default, as an item of a list. */
static int encode_value(const struct tag_field *f, const char *member, bool always,
                        struct str unknown, struct buf *out, struct err *err)
{
    size_t head = out->len;
    char bytes[8];
    int64_t v;

    switch (f->kind) {
    case TAG_TEXT:
        if (!always && !*member)
            return 0;
        return tag_put(f->tag, (struct str){ member, strnlen(member, f->size) }, out, err);
    case TAG_UINT:
    case TAG_INT:
        v = load_number(f, member);
        if (!always && v == f->def)
            return 0;
        return tag_put(f->tag, (struct str){ bytes, number_bytes(f, v, bytes) }, out, err);
    case TAG_STRUCT: break;
    }
    if (tag_put(f->tag, (struct str){ "", 0 }, out, err) ||
        tag_encode(f->sub, member, unknown, out, err) || close_field(out, head, err))
        return err->code == ERR_TOO_LARGE ? err_in(err, "%s", f->name) : -1;
    if (!always && out->len == head + HEAD)
        out->len = head;
    return 0;
}

int tag_encode(const struct tag_field *t, const void *s, struct str unknown, struct buf *out,
               struct err *err)
{
    struct str rest = unknown;
    struct item item;

    for (const struct tag_field *f = t; f->tag; f++) {
        size_t n = f->max ? MIN((size_t)get_count(f, s), f->max) : 1;

        for (size_t i = 0; i < n; i++)
            if (encode_value(f, (const char *)s + f->offset + i * f->size, f->max != 0,
                             f->kind == TAG_STRUCT ? nth(unknown, f->tag, i) : (struct str){ 0 },
                             out, err))
                return -1;
    }
    while (next(&rest, &item) > 0)
        if (!find(t, item.tag) && tag_put(item.tag, item.value, out, err))
            return -1;
    return 0;
}

/* ---- what we do not know ---- */

/* A struct with nothing unknown in it is left out; in a list it holds its place, as long as the
 * list has another that needs it. */
static bool find_unknown(const struct tag_field *t, struct str in, struct buf *out)
{
    size_t start = out->len;
    bool any = false;
    struct item item;
    struct err ignored;

    while (next(&in, &item) > 0) {
        const struct tag_field *f = find(t, item.tag);
        size_t head = out->len;
        bool inside;

        if (!f) {
            tag_put(item.tag, item.value, out, &ignored);
            any = true;
            continue;
        }
        if (f->kind != TAG_STRUCT)
            continue;
        tag_put(item.tag, (struct str){ "", 0 }, out, &ignored);
        inside = find_unknown(f->sub, item.value, out);
        close_field(out, head, &ignored);
        if (!inside && !f->max)
            out->len = head;
        any |= inside;
    }
    if (!any)
        out->len = start;
    return any;
}

void tag_unknown(const struct tag_field *t, struct str in, struct buf *out)
{
    find_unknown(t, in, out);
}

void tag_merge(struct buf *into, struct str fields)
{
    size_t had = into->len;
    struct item item, other;
    struct err ignored;

    while (next(&fields, &item) > 0) {
        struct str rest = { into->data, had };
        bool there = false;

        while (!there && next(&rest, &other) > 0)
            there = other.tag == item.tag;
        if (!there)
            tag_put(item.tag, item.value, into, &ignored);
    }
}
