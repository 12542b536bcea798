/* tag.h - one table describes how a struct is written as tagged fields: for files and records that
 * a program of another release reads.
 *
 *   field     tag: 2 bytes, length: 2 bytes, then that many bytes; all numbers little-endian
 *   number    as few bytes as hold it, none for 0; a signed one is sign-extended
 *   text      its bytes, without a NUL
 *   struct    the fields of its own table
 *   list      one field for each item, all with the same tag
 *
 * A field that has its default is left out, and one that is missing has its default. So a release
 * may add a field, or drop one, and the other still reads what it knows. A reader keeps the fields
 * that it does not know (tag_unknown) and writes them back (tag_encode). A field without which the
 * rest means something else has a tag with the bit TAG_CRITICAL: who does not know it refuses.
 *
 * The number of a field is never used for anything else, also when the field is gone. */
#ifndef BASE_TAG_H
#define BASE_TAG_H

#include "base/buf.h"
#include "base/err.h"

enum { TAG_CRITICAL = 0x8000, TAG_LENGTH_MAX = 0xffff, TAG_DEPTH = 8 };

enum tag_kind { TAG_UINT, TAG_INT, TAG_TEXT, TAG_STRUCT };

struct tag_field {
    uint16_t tag; /* 0 ends the table */
    enum tag_kind kind;
    const char *name;            /* of the member, for errors */
    size_t offset, size;         /* of the member; of one item of a list */
    size_t count, max;           /* a list: where its uint32_t count is, and how many fit; max 0 */
    int64_t def;                 /* of a number */
    const struct tag_field *sub; /* TAG_STRUCT */
};

#define TAG_MEMBER(type, member) #member, offsetof(type, member), sizeof(((type *)0)->member)
#define TAG_ROW(number, kind, type, member, ...)                                                   \
    {                                                                                              \
        number, kind, TAG_MEMBER(type, member), __VA_ARGS__                                        \
    }
/* items: an array member; n: the uint32_t that counts what is in it */
#define TAG_ROWS(number, kind, type, items, n, ...)                                                \
    {                                                                                              \
        number, kind, #items, offsetof(type, items), sizeof(((type *)0)->items[0]),                \
            offsetof(type, n), ARRAY_LEN(((type *)0)->items), __VA_ARGS__                          \
    }

/* Fills all of *out that the table describes and nothing else. ERR_INVALID names the field that is
 * cut short, too long, too large or given twice; ERR_UNSUPPORTED, one that we would have to know.
 */
int tag_decode(const struct tag_field *t, void *out, struct str in, struct err *err);

/* Appends s. unknown: fields that tag_unknown() found in what s was read from. ERR_TOO_LARGE when
 * a field is longer than its length can say. */
int tag_encode(const struct tag_field *t, const void *s, struct str unknown, struct buf *out,
               struct err *err);

/* Appends the fields of `in`, which was decoded before, that the table does not have; in structs,
 * too. Nothing when it has them all. */
void tag_unknown(const struct tag_field *t, struct str in, struct buf *out);

/* Appends those of the fields whose tags are not in `into` yet. */
void tag_merge(struct buf *into, struct str fields);

/* One field by itself: appends it; finds the first with this tag, or an empty value. */
int tag_put(uint16_t tag, struct str value, struct buf *out, struct err *err);
struct str tag_find(struct str in, uint16_t tag);

#endif
