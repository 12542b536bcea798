/* field_write.c - the other uses of a field table: writing the object, and its JSON schema. */
#include "base/field.h"

static bool is_zero(const struct field *f, const void *at)
{
    switch (f->type) {
    case F_STR:
    case F_JSON: return !*(char *const *)at;
    case F_INT:
    case F_ENUM: return !*(const int64_t *)at;
    case F_BOOL: return !*(const bool *)at;
    case F_NUM: return *(const double *)at == 0;
    case F_MAP: return !((const struct map *)at)->n;
    case F_STRS: return !((const struct strs *)at)->n;
    case F_TEXT:
    case F_BYTES: return !((const struct bytes *)at)->data;
    case F_OBJ: return !*(void *const *)at;
    case F_OBJS: return !((const struct objs *)at)->n;
    }
    return true;
}

static void put_map(struct buf *b, const struct map *m)
{
    json_open(b, '{');
    for (size_t i = 0; i < m->n; i++)
        json_kv_str(b, m->items[i].key, m->items[i].value);
    json_close(b, '}');
}

static void put_strs(struct buf *b, const struct strs *s)
{
    json_open(b, '[');
    for (size_t i = 0; i < s->n; i++)
        json_put_str(b, str_of(s->items[i]));
    json_close(b, ']');
}

static void put_objs(const struct field *f, struct buf *b, const struct objs *o)
{
    json_open(b, '[');
    for (size_t i = 0; i < o->n; i++)
        field_encode(f->sub, (const char *)o->items + i * f->sub_size, b);
    json_close(b, ']');
}

static void put_enum(const struct field *f, struct buf *b, int64_t v)
{
    for (const struct field_name *e = f->names; e->name; e++)
        if (e->value == v) {
            json_put_str(b, str_of(e->name));
            return;
        }
    json_put_int(b, v);
}

static void put_value(const struct field *f, struct buf *b, const void *at)
{
    switch (f->type) {
    case F_STR:
        if (f->flags & F_NULL && !*(char *const *)at)
            json_put_null(b);
        else
            json_put_str(b, str_of(*(char *const *)at));
        break;
    case F_INT: json_put_int(b, *(const int64_t *)at); break;
    case F_BOOL: json_put_bool(b, *(const bool *)at); break;
    case F_NUM: json_put_num(b, *(const double *)at); break;
    case F_MAP: put_map(b, at); break;
    case F_STRS: put_strs(b, at); break;
    case F_BYTES:
        json_put_base64(b, ((const struct bytes *)at)->data, ((const struct bytes *)at)->n);
        break;
    case F_TEXT:
        if (f->flags & F_NULL && !((const struct bytes *)at)->data)
            json_put_null(b);
        else
            json_put_str(b, (struct str){ (const char *)((const struct bytes *)at)->data,
                                          ((const struct bytes *)at)->n });
        break;
    case F_ENUM: put_enum(f, b, *(const int64_t *)at); break;
    case F_OBJ:
        if (*(void *const *)at)
            field_encode(f->sub, *(void *const *)at, b);
        else
            json_put_null(b);
        break;
    case F_OBJS: put_objs(f, b, at); break;
    case F_JSON:
        if (*(char *const *)at)
            json_put_raw(b, str_of(*(char *const *)at));
        else
            json_put_null(b);
        break;
    }
}

void field_encode(const struct field *table, const void *in, struct buf *b)
{
    json_open(b, '{');
    for (const struct field *f = table; f->name; f++) {
        const void *at = (const char *)in + f->offset;

        if (f->flags & F_OMIT && is_zero(f, at))
            continue;
        if (f->flags & F_INT64 && f->type == F_INT) {
            json_kv_int64s(b, f->name, *(const int64_t *)at);
            continue;
        }
        json_key(b, f->name);
        put_value(f, b, at);
    }
    json_close(b, '}');
}

static void schema_bounds(const struct field *f, struct buf *b, const char *min, const char *max)
{
    if (f->min)
        json_kv_int(b, min, f->min);
    if (f->max)
        json_kv_int(b, max, f->max);
}

static void schema_array(const struct field *f, struct buf *b)
{
    json_kv_str(b, "type", "array");
    json_key(b, "items");
    if (f->sub)
        field_schema(f->sub, b);
    else
        json_put_raw(b, STR("{\"type\":\"string\"}"));
    schema_bounds(f, b, "minItems", "maxItems");
}

static void schema_enum(const struct field *f, struct buf *b)
{
    json_kv_str(b, "type", "string");
    json_key(b, "enum");
    json_open(b, '[');
    for (const struct field_name *e = f->names; e->name; e++)
        json_put_str(b, str_of(e->name));
    json_close(b, ']');
}

static void schema_value(const struct field *f, struct buf *b)
{
    switch (f->type) {
    case F_TEXT:
    case F_STR:
        json_key(b, "type");
        json_put_raw(b, f->flags & F_NULL ? STR("[\"string\",\"null\"]") : STR("\"string\""));
        schema_bounds(f, b, "minLength", "maxLength");
        break;
    case F_INT:
        json_kv_str(b, "type", "integer");
        if (!f->min && f->max)
            json_kv_int(b, "minimum", 0);
        schema_bounds(f, b, "minimum", "maximum");
        break;
    case F_BOOL: json_kv_str(b, "type", "boolean"); break;
    case F_NUM: json_kv_str(b, "type", "number"); break;
    case F_MAP:
        json_kv_str(b, "type", "object");
        json_key(b, "additionalProperties");
        json_put_raw(b, STR("{\"type\":\"string\"}"));
        break;
    case F_BYTES:
        json_kv_str(b, "type", "string");
        json_kv_str(b, "format", "byte");
        break;
    case F_ENUM: schema_enum(f, b); break;
    case F_STRS:
    case F_OBJS: schema_array(f, b); break;
    case F_JSON: break; /* no type: any value */
    case F_OBJ: break;  /* written by field_schema */
    }
}

void field_schema_of(const struct field *f, struct buf *b)
{
    if (f->type == F_OBJ) {
        field_schema(f->sub, b);
        return;
    }
    json_open(b, '{');
    schema_value(f, b);
    if (f->type == F_INT && f->def)
        json_kv_int(b, "default", f->def);
    if (f->type == F_BOOL && f->def)
        json_kv_bool(b, "default", true);
    json_kv_str(b, "description", f->help);
    json_close(b, '}');
}

void field_schema(const struct field *table, struct buf *b)
{
    bool required = false;

    json_open(b, '{');
    json_kv_str(b, "type", "object");
    json_key(b, "properties");
    json_open(b, '{');
    for (const struct field *f = table; f->name; f++) {
        json_key(b, f->name);
        field_schema_of(f, b);
        required |= f->flags & F_REQUIRED;
    }
    json_close(b, '}');
    if (required) {
        json_key(b, "required");
        json_open(b, '[');
        for (const struct field *f = table; f->name; f++)
            if (f->flags & F_REQUIRED)
                json_put_str(b, str_of(f->name));
        json_close(b, ']');
    }
    json_close(b, '}');
}
