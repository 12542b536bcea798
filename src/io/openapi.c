/* openapi.c - see openapi.h. Rows of one path are gathered, because OpenAPI groups by path. */
#include "io/openapi.h"

#include <ctype.h>

static bool speaks_connect(const struct route *r)
{
    return r->kind != ROUTE_JSON && r->kind != ROUTE_RAW;
}

/* ---- parameters ---- */

static void put_path_parameters(struct buf *b, const char *path)
{
    for (const char *p = path; (p = strchr(p, '{')); p++) {
        const char *end = strchr(p, '}');

        json_open(b, '{');
        json_key(b, "name");
        json_put_str(b, (struct str){ p + 1, (size_t)(end - p) - 1 });
        json_kv_str(b, "in", "path");
        json_kv_bool(b, "required", true);
        json_key(b, "schema");
        json_put_raw(b, STR("{\"type\":\"string\"}"));
        json_close(b, '}');
    }
}

static void put_query_parameters(struct buf *b, const struct field *f)
{
    for (; f && f->name; f++) {
        json_open(b, '{');
        json_kv_str(b, "name", f->name);
        json_kv_str(b, "in", "query");
        if (f->flags & F_REQUIRED)
            json_kv_bool(b, "required", true);
        json_kv_str(b, "description", f->help);
        json_key(b, "schema");
        field_schema_of(f, b);
        json_close(b, '}');
    }
}

static void put_parameters(struct buf *b, const struct route *r)
{
    if (!strchr(r->path, '{') && !r->query)
        return;
    json_key(b, "parameters");
    json_open(b, '[');
    put_path_parameters(b, r->path);
    put_query_parameters(b, r->query);
    json_close(b, ']');
}

/* ---- bodies ---- */

static const char *media_type(const struct route *r)
{
    return r->kind == ROUTE_STREAM || r->kind == ROUTE_UPSTREAM ? "application/connect+json"
                                                                : "application/json";
}

static void put_schema(struct buf *b, const struct field *table, bool list)
{
    if (list) {
        json_open(b, '{');
        json_kv_str(b, "type", "array");
        json_key(b, "items");
    }
    if (table)
        field_schema(table, b);
    else
        json_put_raw(b, STR("{\"type\":\"null\"}"));
    if (list)
        json_close(b, '}');
}

static void put_enveloped(struct buf *b, const struct field *table, bool list)
{
    json_put_raw(b, STR("{\"type\":\"object\",\"required\":[\"code\",\"msg\",\"data\"],"
                        "\"properties\":{\"code\":{\"type\":\"integer\"},"
                        "\"msg\":{\"type\":\"string\"},\"data\":"));
    put_schema(b, table, list);
    buf_puts(b, "}}");
}

static void open_content(struct buf *b, const char *type)
{
    json_key(b, "content");
    json_open(b, '{');
    json_key(b, type);
    json_open(b, '{');
    json_key(b, "schema");
}

static void close_content(struct buf *b)
{
    json_close(b, '}');
    json_close(b, '}');
}

static void put_request(struct buf *b, const struct route *r)
{
    bool required = false;

    for (const struct field *f = r->fields; f->name; f++)
        required |= f->flags & F_REQUIRED;
    json_key(b, "requestBody");
    json_open(b, '{');
    if (required)
        json_kv_bool(b, "required", true);
    open_content(b, r->flags & ROUTE_FORM ? "multipart/form-data" : media_type(r));
    put_schema(b, r->fields, false);
    close_content(b);
    json_close(b, '}');
}

static void put_success(struct buf *b, const struct openapi *doc, const struct route *r, int status)
{
    bool enveloped = doc->envelope && !(r->flags & ROUTE_BARE);
    char text[16];

    snprintf(text, sizeof(text), "%d", status ? status : 200);
    json_key(b, text);
    json_open(b, '{');
    json_kv_str(b, "description", "done");
    if (r->reply || enveloped) {
        open_content(b, media_type(r));
        (enveloped ? put_enveloped : put_schema)(b, r->reply, r->flags & ROUTE_LIST);
        close_content(b);
    }
    json_close(b, '}');
}

static void put_responses(struct buf *b, const struct openapi *doc, const struct route *r)
{
    json_key(b, "responses");
    json_open(b, '{');
    if (r->status < 400) /* there are rows that only ever refuse */
        put_success(b, doc, r, r->status);
    if (r->flags & ROUTE_OR_201)
        put_success(b, doc, r, 201);
    json_key(b, "default");
    if (speaks_connect(r))
        json_put_raw(b, STR("{\"description\":\"the answer, or an error object\"}"));
    else
        json_put_raw(b, STR("{\"description\":\"an error\",\"content\":{\"application/json\":"
                            "{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}}"));
    json_close(b, '}');
}

/* ---- operations and paths ---- */

static void put_operation(struct buf *b, const struct openapi *doc, const struct route *r)
{
    char method[16] = "";

    for (size_t i = 0; i < sizeof(method) - 1 && r->method[i]; i++)
        method[i] = (char)tolower((unsigned char)r->method[i]);
    json_key(b, method);
    json_open(b, '{');
    json_kv_str(b, "operationId", r->operation);
    json_kv_str(b, "summary", r->help);
    if (r->tag) {
        json_key(b, "tags");
        json_open(b, '[');
        for (struct str rest = str_of(r->tag), tag; str_next(&rest, '|', &tag);)
            json_put_str(b, tag);
        json_close(b, ']');
    }
    if (doc->key_header && r->flags & ROUTE_OPEN) {
        json_key(b, "security");
        json_put_raw(b, STR("[]"));
    }
    put_parameters(b, r);
    if (r->fields)
        put_request(b, r);
    put_responses(b, doc, r);
    json_close(b, '}');
}

static bool seen_before(const struct route *const *tables, const struct route *row)
{
    for (; *tables; tables++)
        for (const struct route *r = *tables; r->method; r++) {
            if (r == row)
                return false;
            if (!strcmp(r->path, row->path))
                return true;
        }
    return false;
}

static void put_path(struct buf *b, const struct openapi *doc, const struct route *const *tables,
                     const char *path)
{
    json_key(b, path);
    json_open(b, '{');
    for (; *tables; tables++)
        for (const struct route *r = *tables; r->method; r++)
            if (!strcmp(r->path, path))
                put_operation(b, doc, r);
    json_close(b, '}');
}

/* ---- what is around them ---- */

static void put_info(struct buf *b, const struct openapi *doc)
{
    json_key(b, "info");
    json_open(b, '{');
    json_kv_str(b, "title", doc->title);
    json_kv_str(b, "version", doc->version);
    json_kv_str(b, "description", doc->description);
    json_close(b, '}');
}

static void put_components(struct buf *b, const struct openapi *doc)
{
    json_key(b, "components");
    json_open(b, '{');
    json_key(b, "schemas");
    if (doc->envelope)
        json_put_raw(b, STR("{\"Error\":{\"type\":\"object\",\"required\":[\"code\",\"msg\","
                            "\"data\"],\"properties\":{\"code\":{\"type\":\"integer\"},"
                            "\"msg\":{\"type\":\"string\"},\"data\":{\"type\":\"null\"},"
                            "\"trace_id\":{\"type\":\"string\"}}}}"));
    else
        json_put_raw(b, STR("{\"Error\":{\"type\":\"object\",\"required\":[\"code\",\"message\"],"
                            "\"properties\":{\"code\":{\"type\":\"integer\"},"
                            "\"message\":{\"type\":\"string\"}}}}"));
    if (doc->key_header) {
        json_key(b, "securitySchemes");
        json_open(b, '{');
        json_key(b, "key");
        json_open(b, '{');
        json_kv_str(b, "type", "apiKey");
        json_kv_str(b, "in", "header");
        json_kv_str(b, "name", doc->key_header);
        json_close(b, '}');
        json_key(b, "bearer");
        json_put_raw(b, STR("{\"type\":\"http\",\"scheme\":\"bearer\"}"));
        json_close(b, '}');
    }
    json_close(b, '}');
}

void openapi_write(struct buf *b, const struct openapi *doc, const struct route *const *tables)
{
    json_open(b, '{');
    json_kv_str(b, "openapi", "3.1.0");
    put_info(b, doc);
    if (doc->key_header) {
        json_key(b, "security");
        json_put_raw(b, STR("[{\"key\":[]},{\"bearer\":[]}]"));
    }
    json_key(b, "paths");
    json_open(b, '{');
    for (const struct route *const *t = tables; *t; t++)
        for (const struct route *r = *t; r->method; r++)
            if (!seen_before(tables, r))
                put_path(b, doc, tables, r->path);
    json_close(b, '}');
    put_components(b, doc);
    json_close(b, '}');
}
