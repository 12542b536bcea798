/* rest_request.c - see rest_request.h. */
#include "guest/services/rest_request.h"

#include <stdio.h>

#include "base/json.h"

struct place { /* loc: up to three steps; a NULL name stands for the number */
    const char *name[3];
    int64_t number;
    int steps;
};

static void put_item(struct buf *b, const char *type, const struct place *at, const char *msg,
                     const json_t *input)
{
    json_open(b, '{');
    json_kv_str(b, "type", type);
    json_key(b, "loc");
    json_open(b, '[');
    for (int i = 0; i < at->steps; i++)
        if (at->name[i])
            json_put_str(b, str_of(at->name[i]));
        else
            json_put_int(b, at->number);
    json_close(b, ']');
    json_kv_str(b, "msg", msg);
    json_key(b, "input");
    if (json_is_string(input)) /* of others the kind is in the message, and they may be large */
        json_put_str(b, (struct str){ json_string_value(input),
                                      MIN(json_string_length(input), (size_t)256) });
    else
        json_put_null(b);
    json_close(b, '}');
}

static void begin(struct buf *b)
{
    if (b->len)
        return;
    json_open(b, '{');
    json_key(b, "detail");
    json_open(b, '[');
}

static int finish(struct buf *b)
{
    if (!b->len)
        return 0;
    json_close(b, ']');
    json_close(b, '}');
    return -1;
}

static void wrong_field(struct buf *b, const char *type, const char *field, const char *msg,
                        const json_t *input)
{
    begin(b);
    put_item(b, type, &(struct place){ { "body", field }, 0, field ? 2 : 1 }, msg, input);
}

static void take_packages(json_t *list, struct arena *a, struct code_request *out,
                          struct buf *wrong)
{
    size_t n = json_array_size(list);

    if (!list || json_is_null(list))
        return;
    if (!json_is_array(list)) {
        wrong_field(wrong, "list_type", "packages", "Input should be a valid list", list);
        return;
    }
    if (n > REST_PACKAGES) {
        wrong_field(wrong, "too_long", "packages", "List should have at most 256 items", NULL);
        return;
    }
    out->packages = arena_alloc(a, sizeof(char *) * (n + 1));
    for (size_t i = 0; i < n; i++) {
        json_t *item = json_array_get(list, i);
        struct place at = { { "body", "packages", NULL }, (int64_t)i, 3 };
        size_t len = json_string_length(item);

        begin(wrong);
        if (!json_is_string(item))
            put_item(wrong, "string_type", &at, "Input should be a valid string", item);
        else if (!len || len > REST_PACKAGE_BYTES || strlen(json_string_value(item)) != len)
            put_item(wrong, "value_error", &at, "A requirement has 1 to 512 bytes and no NUL",
                     item);
        else
            out->packages[out->npackages++] =
                arena_strdup(a, (struct str){ json_string_value(item), len });
    }
}

/* begin() may have been called for nothing. */
static bool empty_list(const struct buf *b) { return b->len && b->data[b->len - 1] == '['; }

int rest_request_code(struct str body, struct arena *a, struct code_request *out, struct buf *wrong)
{
    AUTO(json_dropp) json_t *j = NULL;
    struct err err;
    json_t *code;

    if (!body.n) {
        wrong_field(wrong, "missing", NULL, "Field required", NULL);
        return finish(wrong);
    }
    j = json_read(body, &err);
    if (!j) {
        begin(wrong);
        put_item(wrong, "json_invalid", &(struct place){ { "body" }, 0, 2 }, err.msg, NULL);
        return finish(wrong);
    }
    if (!json_is_object(j)) {
        wrong_field(wrong, "model_attributes_type", NULL,
                    "Input should be a valid dictionary or object to extract fields from", j);
        return finish(wrong);
    }
    code = json_object_get(j, "code");
    if (!code)
        wrong_field(wrong, "missing", "code", "Field required", NULL);
    else if (!json_is_string(code))
        wrong_field(wrong, "string_type", "code", "Input should be a valid string", code);
    else
        out->code.n = json_string_length(code);
    if (json_is_string(code))
        out->code.p =
            arena_strdup(a, (struct str){ json_string_value(code), json_string_length(code) });
    take_packages(json_object_get(j, "packages"), a, out, wrong);
    if (empty_list(wrong))
        wrong->len = 0;
    return finish(wrong);
}

int rest_request_mode(struct str value, struct buf *wrong)
{
    struct place at = { { "query", "mode" }, 0, 2 };
    AUTO(json_dropp) json_t *given = NULL;

    if (str_is(value, "start") || str_is(value, "stop"))
        return 0;
    begin(wrong);
    if (!value.p) {
        put_item(wrong, "missing", &at, "Field required", NULL);
    } else {
        given = json_stringn(value.p, value.n); /* NULL when not UTF-8: shown as null */
        put_item(wrong, "literal_error", &at, "Input should be 'start' or 'stop'", given);
    }
    return finish(wrong);
}
