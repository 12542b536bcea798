/* openapi.c - see openapi.h. Rows of one path are gathered, because OpenAPI groups by path. */
#include "io/openapi.h"

#include <ctype.h>

static void put_parameters(struct buf *b, const char *path)
{
    bool any = false;

    for (const char *p = path; (p = strchr(p, '{')); p++) {
        const char *end = strchr(p, '}');

        if (!any) {
            json_key(b, "parameters");
            json_open(b, '[');
            any = true;
        }
        json_open(b, '{');
        json_key(b, "name");
        json_put_str(b, (struct str){ p + 1, (size_t)(end - p) - 1 });
        json_kv_str(b, "in", "path");
        json_kv_bool(b, "required", true);
        json_key(b, "schema");
        json_put_raw(b, STR("{\"type\":\"string\"}"));
        json_close(b, '}');
    }
    if (any)
        json_close(b, ']');
}

static const char *media_type(const struct route *r)
{
    return r->kind == ROUTE_STREAM || r->kind == ROUTE_UPSTREAM ? "application/connect+json"
                                                                : "application/json";
}

static void put_body(struct buf *b, const struct route *r)
{
    json_key(b, "requestBody");
    json_open(b, '{');
    json_key(b, "content");
    json_open(b, '{');
    json_key(b, media_type(r));
    json_open(b, '{');
    json_key(b, "schema");
    field_schema(r->fields, b);
    json_close(b, '}');
    json_close(b, '}');
    json_close(b, '}');
}

static void put_operation(struct buf *b, const struct route *r)
{
    char method[16] = "";

    for (size_t i = 0; i < sizeof(method) - 1 && r->method[i]; i++)
        method[i] = (char)tolower((unsigned char)r->method[i]);
    json_key(b, method);
    json_open(b, '{');
    json_kv_str(b, "operationId", r->operation);
    json_kv_str(b, "summary", r->help);
    put_parameters(b, r->path);
    if (r->fields)
        put_body(b, r);
    json_key(b, "responses");
    json_put_raw(b, STR("{\"default\":{\"description\":\"the answer, or an error object\"}}"));
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

static void put_path(struct buf *b, const struct route *const *tables, const char *path)
{
    json_key(b, path);
    json_open(b, '{');
    for (; *tables; tables++)
        for (const struct route *r = *tables; r->method; r++)
            if (!strcmp(r->path, path))
                put_operation(b, r);
    json_close(b, '}');
}

void openapi_write(struct buf *b, const char *title, const char *version,
                   const struct route *const *tables)
{
    json_open(b, '{');
    json_kv_str(b, "openapi", "3.1.0");
    json_key(b, "info");
    json_open(b, '{');
    json_kv_str(b, "title", title);
    json_kv_str(b, "version", version);
    json_close(b, '}');
    json_key(b, "paths");
    json_open(b, '{');
    for (const struct route *const *t = tables; *t; t++)
        for (const struct route *r = *t; r->method; r++)
            if (!seen_before(tables, r))
                put_path(b, tables, r->path);
    json_close(b, '}');
    json_close(b, '}');
}
