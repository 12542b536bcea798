/* field.c - reading JSON by table. Recursion follows the tables, never the input. */
#include "base/field.h"

#include <ctype.h>

enum { JSON_TEXT = JSON_COMPACT | JSON_ENCODE_ANY };

struct reader {
    enum field_mode mode;
    struct arena *a;
    struct err *err;
};

static int decode_object(const struct reader *r, const struct field *table, json_t *j, void *out);

const char *map_get(const struct map *m, const char *key)
{
    for (size_t i = m->n; i--;)
        if (!strcmp(m->items[i].key, key))
            return m->items[i].value;
    return NULL;
}

static int bad(const struct reader *r, const struct field *f, const char *what)
{
    return err_set(r->err, ERR_INVALID, "field '%s' %s", f->name, what);
}

static int bad_size(const struct reader *r, const struct field *f, const char *what, size_t n,
                    size_t max)
{
    return err_set(r->err, ERR_INVALID, "field '%s' has %zu %s, the limit is %zu", f->name, n, what,
                   max);
}

/* A C string ends there, and what follows would be lost in silence. */
static bool has_nul(json_t *j) { return strlen(json_string_value(j)) != json_string_length(j); }

static const char *not_text(json_t *j)
{
    return json_is_string(j) ? "must not contain NUL" : "must be a string";
}

static int decode_str(const struct reader *r, const struct field *f, json_t *j, char **out)
{
    size_t max = f->max ? (size_t)f->max : FIELD_STR_MAX;

    if (!json_is_string(j))
        return bad(r, f, "must be a string");
    if (has_nul(j))
        return bad(r, f, "must not contain NUL");
    if (json_string_length(j) > max)
        return bad_size(r, f, "bytes", json_string_length(j), max);
    if (json_string_length(j) < (size_t)f->min)
        return f->min > 1 ? err_set(r->err, ERR_INVALID, "field '%s' must have %lld bytes or more",
                                    f->name, (long long)f->min)
                          : bad(r, f, "must not be empty");
    *out = arena_strdup(r->a, (struct str){ json_string_value(j), json_string_length(j) });
    return 0;
}

static int decode_int(const struct reader *r, const struct field *f, json_t *j, int64_t *out)
{
    int64_t v;

    if (json_is_integer(j))
        v = json_integer_value(j);
    else if (r->mode != FIELDS_PROTO || !json_is_string(j) ||
             str_i64((struct str){ json_string_value(j), json_string_length(j) }, &v))
        return bad(r, f, "must be an integer");
    if ((f->min || f->max) && (v < f->min || v > f->max))
        return err_set(r->err, ERR_INVALID, "field '%s' is %lld, must be from %lld to %lld",
                       f->name, (long long)v, (long long)f->min, (long long)f->max);
    *out = v;
    return 0;
}

static int decode_enum(const struct reader *r, const struct field *f, json_t *j, int64_t *out)
{
    bool by_number = r->mode == FIELDS_PROTO && json_is_integer(j);

    for (const struct field_name *e = f->names; e->name; e++)
        if (json_is_string(j) ? !strcmp(json_string_value(j), e->name)
                              : by_number && json_integer_value(j) == e->value) {
            *out = e->value;
            return 0;
        }
    return bad(r, f, "is none of the known names");
}

static int decode_map(const struct reader *r, const struct field *f, json_t *j, struct map *out)
{
    size_t max = f->max ? (size_t)f->max : FIELD_ITEMS_MAX, n = 0;
    const char *key;
    json_t *v;

    if (!json_is_object(j))
        return bad(r, f, "must be an object of strings");
    if (json_object_size(j) > max)
        return bad_size(r, f, "entries", json_object_size(j), max);
    out->items = arena_alloc(r->a, sizeof(*out->items) * json_object_size(j));
    json_object_foreach(j, key, v)
    {
        if (!json_is_string(v) || has_nul(v))
            return err_set(r->err, ERR_INVALID, "field '%s.%.64s' %s", f->name, key, not_text(v));
        out->items[n].key = arena_strdup(r->a, str_of(key));
        out->items[n++].value =
            arena_strdup(r->a, (struct str){ json_string_value(v), json_string_length(v) });
    }
    out->n = n;
    return 0;
}

static int check_array(const struct reader *r, const struct field *f, json_t *j)
{
    size_t max = f->max ? (size_t)f->max : FIELD_ITEMS_MAX;

    if (!json_is_array(j))
        return bad(r, f, "must be an array");
    if (json_array_size(j) > max)
        return bad_size(r, f, "items", json_array_size(j), max);
    return 0;
}

static int decode_strs(const struct reader *r, const struct field *f, json_t *j, struct strs *out)
{
    size_t i;
    json_t *v;

    if (check_array(r, f, j))
        return -1;
    out->n = json_array_size(j);
    out->items = arena_alloc(r->a, sizeof(*out->items) * out->n);
    json_array_foreach(j, i, v)
    {
        if (!json_is_string(v) || has_nul(v))
            return err_set(r->err, ERR_INVALID, "field '%s[%zu]' %s", f->name, i, not_text(v));
        out->items[i] =
            arena_strdup(r->a, (struct str){ json_string_value(v), json_string_length(v) });
    }
    return 0;
}

static int decode_objs(const struct reader *r, const struct field *f, json_t *j, struct objs *out)
{
    size_t i;
    json_t *v;

    if (check_array(r, f, j))
        return -1;
    out->n = json_array_size(j);
    out->items = arena_alloc(r->a, f->sub_size * out->n);
    json_array_foreach(
        j, i, v) if (decode_object(r, f->sub, v,
                                   (char *)out->items +
                                       i * f->sub_size)) return err_in(r->err, "field '%s[%zu]'",
                                                                       f->name, i);
    return 0;
}

static int decode_bytes(const struct reader *r, const struct field *f, json_t *j, struct bytes *out)
{
    size_t n = json_string_length(j), max = f->max ? (size_t)f->max : SIZE_MAX;
    ssize_t got;

    if (!json_is_string(j))
        return bad(r, f, "must be a base64 string");
    if (n / 4 * 3 > max && n / 4 * 3 - max > 2)
        return bad_size(r, f, "bytes", n / 4 * 3, max);
    out->data = arena_alloc(r->a, n / 4 * 3 + 1);
    got = base64_decode((struct str){ json_string_value(j), n }, out->data);
    if (got < 0)
        return bad(r, f, "is not valid base64");
    if ((size_t)got > max)
        return bad_size(r, f, "bytes", (size_t)got, max);
    out->n = (size_t)got;
    return 0;
}

static int decode_text(const struct reader *r, const struct field *f, json_t *j, struct bytes *out)
{
    size_t n = json_string_length(j), max = f->max ? (size_t)f->max : FIELD_STR_MAX;

    if (!json_is_string(j))
        return bad(r, f, "must be a string");
    if (n > max)
        return bad_size(r, f, "bytes", n, max);
    out->data = arena_alloc(r->a, n + 1);
    memcpy(out->data, json_string_value(j), n);
    out->n = n;
    return 0;
}

/* The depth was bounded before the parser saw it, so that writing it does not recurse further. */
static int decode_json(const struct reader *r, const struct field *f, json_t *j, char **out)
{
    size_t max = f->max ? (size_t)f->max : FIELD_STR_MAX, n = json_dumpb(j, NULL, 0, JSON_TEXT);

    if (n > max)
        return bad_size(r, f, "bytes", n, max);
    *out = arena_alloc(r->a, n + 1);
    json_dumpb(j, *out, n, JSON_TEXT);
    return 0;
}

static int decode_value(const struct reader *r, const struct field *f, json_t *j, void *at)
{
    void *sub;

    switch (f->type) {
    case F_STR: return decode_str(r, f, j, at);
    case F_INT: return decode_int(r, f, j, at);
    case F_ENUM: return decode_enum(r, f, j, at);
    case F_MAP: return decode_map(r, f, j, at);
    case F_STRS: return decode_strs(r, f, j, at);
    case F_BYTES: return decode_bytes(r, f, j, at);
    case F_OBJS: return decode_objs(r, f, j, at);
    case F_TEXT: return decode_text(r, f, j, at);
    case F_JSON: return decode_json(r, f, j, at);
    case F_BOOL:
        if (!json_is_boolean(j))
            return bad(r, f, "must be true or false");
        *(bool *)at = json_is_true(j);
        return 0;
    case F_NUM:
        if (!json_is_number(j))
            return bad(r, f, "must be a number");
        *(double *)at = json_number_value(j);
        return 0;
    case F_OBJ:
        sub = arena_alloc(r->a, f->sub_size);
        if (decode_object(r, f->sub, j, sub))
            return err_in(r->err, "field '%s'", f->name);
        *(void **)at = sub;
        return 0;
    }
    return bad(r, f, "has no type");
}

static void set_default(const struct field *f, void *at)
{
    switch (f->type) {
    case F_INT:
    case F_ENUM: *(int64_t *)at = f->def; break;
    case F_BOOL: *(bool *)at = f->def; break;
    case F_NUM: *(double *)at = (double)f->def; break;
    case F_STR:
    case F_MAP:
    case F_STRS:
    case F_BYTES:
    case F_OBJ:
    case F_OBJS:
    case F_TEXT:
    case F_JSON: break; /* zero is their default */
    }
}

/* protobuf's original of a lowerCamelCase name: watcherId is watcher_id */
static json_t *get_snake(json_t *j, const char *name)
{
    char snake[64];
    size_t n = 0;

    for (; *name && n + 2 < sizeof(snake); name++) {
        if (isupper((unsigned char)*name))
            snake[n++] = '_';
        snake[n++] = (char)tolower((unsigned char)*name);
    }
    snake[n] = 0;
    return json_object_get(j, snake);
}

static int refuse_unknown(const struct reader *r, const struct field *table, json_t *j)
{
    const char *key;
    json_t *v;

    json_object_foreach(j, key, v)
    {
        const struct field *f = table;

        while (f->name && strcmp(f->name, key))
            f++;
        if (!f->name)
            return err_set(r->err, ERR_INVALID, "field '%.64s' is not known here", key);
    }
    return 0;
}

static int decode_object(const struct reader *r, const struct field *table, json_t *j, void *out)
{
    size_t seen = 0;

    if (!json_is_object(j))
        return err_set(r->err, ERR_INVALID, "a JSON object is expected");
    for (const struct field *f = table; f->name; f++) {
        void *at = (char *)out + f->offset;
        json_t *v = json_object_get(j, f->name);

        seen += v != NULL;
        if (!v && r->mode == FIELDS_PROTO)
            v = get_snake(j, f->name);
        if (v && json_is_null(v) && r->mode != FIELDS_STRICT)
            v = NULL;
        if (!v) {
            if (f->flags & F_REQUIRED)
                return bad(r, f, "is missing");
            set_default(f, at);
        } else if (decode_value(r, f, v, at)) {
            return -1;
        }
    }
    if (r->mode == FIELDS_STRICT && seen < json_object_size(j))
        return refuse_unknown(r, table, j);
    return 0;
}

int field_decode(const struct field *table, enum field_mode mode, json_t *j, struct arena *a,
                 void *out, struct err *err)
{
    struct reader r = { mode, a, err };

    return decode_object(&r, table, j, out);
}

static bool has_text(const struct field *table)
{
    while (table->name && table->type != F_TEXT)
        table++;
    return table->name;
}

int field_decode_text(const struct field *table, enum field_mode mode, struct str text,
                      struct arena *a, void *out, struct err *err)
{
    AUTO(json_dropp) json_t *j = has_text(table) ? json_read_nul(text, err) : json_read(text, err);

    return j ? field_decode(table, mode, j, a, out, err) : -1;
}
