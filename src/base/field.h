/* field.h - one table describes a JSON object: reading it into a bounded, defaulted struct with an
 * error that names the bad field, writing it back, and its schema for OpenAPI.
 *
 *   struct create_body { char *template; int64_t timeout_s; };
 *   static const struct field create_body[] = {
 *       FIELD(struct create_body, template, F_STR, .flags = F_REQUIRED, .max = 64),
 *       FIELD(struct create_body, timeout_s, F_INT, .min = 1, .max = 86400, .def = 300),
 *       {}
 *   };
 *
 * The C type of the member follows from the field's type, as enum field_type says. */
#ifndef BASE_FIELD_H
#define BASE_FIELD_H

#include "base/arena.h"
#include "base/json.h"

struct map { /* names and values in the order given; all strings borrowed from an arena */
    size_t n;
    struct map_item {
        char *key, *value;
    } * items;
};

struct strs {
    size_t n;
    char **items;
};

struct bytes {
    size_t n;
    unsigned char *data; /* NULL when the field was absent */
};

struct objs {
    size_t n;
    void *items; /* an array of the sub-table's struct */
};

enum field_type {
    F_STR,   /* char *, NULL when absent; max: bytes, 0 = FIELD_STR_MAX */
    F_INT,   /* int64_t in [min, max]; both 0: any */
    F_BOOL,  /* bool */
    F_NUM,   /* double */
    F_MAP,   /* struct map of strings; max: number of entries */
    F_STRS,  /* struct strs; max: number of items */
    F_BYTES, /* struct bytes, base64 in JSON; max: decoded bytes */
    F_ENUM,  /* int64_t, one of .names */
    F_OBJ,   /* pointer to a struct described by .sub, NULL when absent */
    F_OBJS,  /* struct objs described by .sub; max: number of items */
    F_TEXT,  /* struct bytes, a JSON string that may hold NULs; max: bytes */
    F_JSON,  /* char *, any value as compact JSON text, NULL when absent; max: bytes */
};

enum {
    F_REQUIRED = 1, /* absent is an error */
    F_OMIT = 2,     /* writing: leave out zero, NULL, and lists without items */
    F_INT64 = 4,    /* writing: as a string, as protobuf does */
    F_NULL = 8,     /* writing: NULL text is null, else it is ""; and null may be read */
};

enum { FIELD_STR_MAX = 64 << 10, FIELD_ITEMS_MAX = 4096 };

struct field_name { /* for F_ENUM; ends with a NULL name */
    const char *name;
    int64_t value;
};

struct field {
    const char *name; /* NULL ends the table */
    enum field_type type;
    size_t offset;
    unsigned flags;
    int64_t min, max, def;
    const struct field *sub;
    size_t sub_size;
    const struct field_name *names;
    const char *help;
};

#define FIELD(s, mem, t, ...)                                                                      \
    {                                                                                              \
        .name = #mem, .type = (t), .offset = offsetof(s, mem), __VA_ARGS__                         \
    }
#define FIELD_AS(s, mem, json, t, ...)                                                             \
    {                                                                                              \
        .name = (json), .type = (t), .offset = offsetof(s, mem), __VA_ARGS__                       \
    }

enum field_mode {
    FIELDS_STRICT,  /* an unknown key is an error; null is not a value */
    FIELDS_PROTO,   /* protobuf's JSON: unknown keys and nulls are passed over, snake_case names,
                       numbers in strings and enums by number are accepted */
    FIELDS_LENIENT, /* unknown keys and nulls are passed over, nothing else */
};

/* Fills out (zeroed by the caller) from a JSON object; what it points to lives in the arena. */
int field_decode(const struct field *table, enum field_mode mode, json_t *j, struct arena *a,
                 void *out, struct err *err);
int field_decode_text(const struct field *table, enum field_mode mode, struct str text,
                      struct arena *a, void *out, struct err *err);
void field_encode(const struct field *table, const void *in, struct buf *b);
void field_schema(const struct field *table, struct buf *b); /* a JSON schema object */
void field_schema_of(const struct field *f, struct buf *b);  /* the schema of one value */

const char *map_get(const struct map *m, const char *key); /* the last one wins; NULL: none */

#endif
