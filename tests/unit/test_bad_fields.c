/* test_bad_fields.c - every field of every message that a guest takes, given every wrong type,
 * length and number: made from the schemas of the guest's own route tables, so that a new field is
 * tested on the day it is added. */
#include "guest_rig.h"

enum { DEPTH = 6, ROWS = 256 };

static struct field_row {
    char *name; /* "path-field.field" */
    const struct route *route;
    enum kind kind;
    json_t *schema;           /* of the message */
    const char *names[DEPTH]; /* the way to the field */
    int depth;
    json_t *below; /* its own schema */
    bool required;
} rows[ROWS], required_rows[ROWS];
static size_t nrows, nrequired;

static const char *text_in(const json_t *schema, const char *key)
{
    const char *s = json_string_value(json_object_get(schema, key));

    return s ? s : "";
}

static bool is_a(const json_t *schema, const char *type)
{
    return !strcmp(text_in(schema, "type"), type);
}

static bool is_required_in(const json_t *schema, const char *name)
{
    json_t *list = json_object_get(schema, "required"), *item;
    size_t i;

    json_array_foreach(list, i, item) if (!strcmp(json_string_value(item), name)) return true;
    return false;
}

/* ---- messages that are good but for one field ---- */

#define HERE "@here@" /* stands for the wrong value */

/* A value that passes a field's own check. */
static json_t *good(const json_t *schema)
{
    json_t *names = json_object_get(schema, "enum"), *out, *item;
    const char *key;

    if (names)
        return json_incref(json_array_get(names, 0));
    if (is_a(schema, "string"))
        return json_string(strcmp(text_in(schema, "format"), "byte") ? "x" : "eA==");
    if (is_a(schema, "integer"))
        return json_integer(1);
    if (is_a(schema, "boolean"))
        return json_false();
    if (is_a(schema, "array"))
        return json_array();
    CHECK(is_a(schema, "object"));
    out = json_object();
    json_object_foreach(json_object_get(schema, "properties"), key,
                        item) if (is_required_in(schema, key))
        json_object_set_new(out, key, good(item));
    return out;
}

/* The message, with value (taken; NULL: nothing) as the field. */
static json_t *message_with(const struct field_row *r, json_t *value)
{
    json_t *message = good(r->schema), *at = message;
    const json_t *below = r->schema;

    for (int i = 0; i + 1 < r->depth; i++) {
        below = json_object_get(json_object_get(below, "properties"), r->names[i]);
        if (!json_object_get(at, r->names[i]))
            json_object_set_new(at, r->names[i], good(below));
        at = json_object_get(at, r->names[i]);
    }
    if (value)
        json_object_set_new(at, r->names[r->depth - 1], value);
    else
        json_object_del(at, r->names[r->depth - 1]);
    return message;
}

static void send_with(const struct field_row *r, json_t *message, const char *value)
{
    AUTO(buf_free) struct buf b = { 0 }, text = { 0 };
    char *all = json_dumps(message, JSON_COMPACT), *at = strstr(all, "\"" HERE "\"");

    json_decref(message);
    buf_add(&text, all, at ? (size_t)(at - all) : strlen(all));
    if (at) {
        buf_puts(&text, value);
        buf_puts(&text, at + strlen("\"" HERE "\""));
    }
    free(all);
    put_message(&b, r->kind, r->route->path, "", buf_str(&text));
    say(buf_str(&b));
    hear();
}

/* ---- values that a field must not take, as JSON ---- */

static const struct field_row *now;
static int refusals;

static void try(const char *value, bool fits)
{
    const char *message;
    char word[128];

    send_with(now, message_with(now, json_string(HERE)), value);
    message = REFUSED(now->kind, now->kind == KIND_REST ? "400" : "invalid_argument");
    refusals++;
    if (!fits) { /* the parser has no room for it */
        CHECK(strstr(message, "integer"));
        return;
    }
    for (int i = 0; i < now->depth; i++) {
        snprintf(word, sizeof(word), i + 1 < now->depth ? "field '%s'" : "field '%s",
                 now->names[i]);
        if (!strstr(message, word))
            test_fail(__FILE__, __LINE__, "%.80s: \"%s\" is not in \"%s\"", value, word, message);
    }
}

static void try_all(const char *const *values, const char *before, const char *after)
{
    for (; *values; values++) {
        AUTO(buf_free) struct buf b = { 0 };

        buf_puts(&b, before);
        buf_puts(&b, *values);
        buf_puts(&b, after);
        try(b.data, true);
    }
}

#define TRY(...) try_all((const char *const[]){ __VA_ARGS__, NULL }, "", "")

static const char *const no_strings[] = { "1",       "-1.5", "true",          "[]",
                                          "[\"x\"]", "{}",   "{\"a\":\"b\"}", NULL };

static void try_repeated(const char *before, const char *again, int64_t times, const char *after)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, before);
    put_text(&b, again, (int)times);
    buf_puts(&b, after);
    try(b.data, true);
}

/* A number of any size; in quotes too. */
static void try_number(__int128 v, bool quoted)
{
    char digits[64], *p = digits + sizeof(digits) - 1;
    bool minus = v < 0;
    __int128 rest = minus ? -v : v;

    *p = 0;
    if (quoted)
        *--p = '"';
    do {
        *--p = (char)('0' + (int)(rest % 10));
    } while (rest /= 10);
    if (minus)
        *--p = '-';
    if (quoted)
        *--p = '"';
    try(p, quoted || (v >= INT64_MIN && v <= INT64_MAX));
}

static void try_integers(const json_t *schema)
{
    __int128 min = json_integer_value(json_object_get(schema, "minimum"));
    __int128 max = json_integer_value(json_object_get(schema, "maximum"));
    __int128 huge = 1;

    CHECK(json_object_get(schema, "minimum") && json_object_get(schema, "maximum"));
    for (int i = 0; i < 30; i++)
        huge *= 10;
    TRY("\"abc\"", "\"\"", "\"1.5\"", "\"0x1\"", "\"1 \"", "1.5", "1e300", "true", "[]", "[1]",
        "{}");
    try_number(min - 1, false);
    try_number(max + 1, false);
    try_number((__int128)INT64_MAX + 1, false);
    try_number(INT64_MIN, false);
    try_number(huge, false);
    try_number(max + 1, true);
    TRY("\"-1\"");
}

static void try_strings(const json_t *schema)
{
    int64_t max = json_integer_value(json_object_get(schema, "maxLength"));

    try_all(no_strings, "", "");
    if (!strcmp(text_in(schema, "format"), "byte"))
        TRY("\"!\"", "\"eA\"", "\"eA=\"", "\"eA==eA==\"", "\"e A==\"", "\"eA==\\n\"", "\"eB==\"",
            "\"\xc3\xa4\"", "\"====\"", "\"-_-_\"");
    if (max) {
        try_repeated("\"", "x", max + 1, "\"");
        try_repeated("\"", "\xc3\xa4", max, "\"");
    }
    if (json_integer_value(json_object_get(schema, "minLength")))
        TRY("\"\"");
}

static void try_names(const json_t *schema)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *first = json_string_value(json_array_get(json_object_get(schema, "enum"), 0));

    buf_putc(&b, '"');
    for (; *first; first++)
        buf_putc(&b, (char)tolower((unsigned char)*first));
    buf_putc(&b, '"');
    TRY("\"\"", "\"NO_SUCH_NAME\"", b.data, "77", "-1", "1.5", "true", "[]", "{}");
}

static void try_lists(const json_t *schema)
{
    int64_t max = json_integer_value(json_object_get(schema, "maxItems"));

    TRY("\"x\"", "1", "1.5", "true", "{}", "{\"0\":\"x\"}", "[\"x\",null]");
    try_all(no_strings, "[", "]");
    if (max)
        try_repeated("[", "\"x\",", max, "\"x\"]");
}

static void try_objects(const json_t *schema)
{
    TRY("\"x\"", "1", "1.5", "true", "[]", "[{}]");
    if (json_object_get(schema, "additionalProperties")) {
        try_all(no_strings, "{\"k\":", "}");
        TRY("{\"k\":null}");
    }
}

static void refuses(const void *row, const void *other)
{
    const json_t *schema;

    (void)other;
    now = row;
    schema = now->below;
    refusals = 0;
    dial(); /* all over one connection: a refusal does not end it */
    if (json_object_get(schema, "enum"))
        try_names(schema);
    else if (is_a(schema, "string"))
        try_strings(schema);
    else if (is_a(schema, "integer"))
        try_integers(schema);
    else if (is_a(schema, "boolean"))
        TRY("\"true\"", "\"\"", "0", "1", "1.5", "[]", "{}");
    else if (is_a(schema, "array"))
        try_lists(schema);
    else
        try_objects(schema);
    CHECK(refusals >= 6);
}

static void is_missed(const void *row, const void *other)
{
    const struct field_row *r = row;
    const char *code = r->kind == KIND_REST ? "400" : "invalid_argument";
    char word[128];

    (void)other;
    snprintf(word, sizeof(word), "'%s' is missing", r->names[r->depth - 1]);
    dial();
    send_with(r, message_with(r, json_null()), "");
    REFUSED(r->kind, code, word);
    send_with(r, message_with(r, NULL), "");
    REFUSED(r->kind, code, word);
}

/* ---- a case for each field ---- */

static void refused_case(const void *row, const void *other) { in_guest(refuses, row, other); }
static void missed_case(const void *row, const void *other) { in_guest(is_missed, row, other); }

static void add_fields(const struct field_row *above, const json_t *schema)
{
    const char *key;
    json_t *below;

    json_object_foreach(json_object_get(schema, "properties"), key, below)
    {
        struct field_row *r = &rows[nrows++];
        struct buf name = { 0 };

        *r = *above;
        r->names[r->depth++] = key;
        r->below = below;
        buf_printf(&name, "%s", strrchr(r->route->path, '/') + 1);
        for (int i = 0; i < r->depth; i++)
            buf_printf(&name, "%c%s", i ? '.' : '-', r->names[i]);
        r->name = name.data;
        if (is_required_in(schema, key))
            required_rows[nrequired++] = *r;
        add_fields(r, below);
    }
}

__attribute__((constructor)) static void register_fields(void)
{
    for (const struct route *const *t = rig_tables; *t; t++)
        for (const struct route *r = *t; r->method; r++) {
            AUTO(buf_free) struct buf b = { 0 };
            struct field_row row = { .route = r };
            struct err err;

            if (!r->fields || strcmp(r->method, "POST"))
                continue;
            row.kind = r->kind == ROUTE_STREAM || r->kind == ROUTE_UPSTREAM ? KIND_STREAM
                       : strchr(r->path, '.')                               ? KIND_UNARY
                                                                            : KIND_REST;
            field_schema(r->fields, &b);
            row.schema = json_read(buf_str(&b), &err);
            add_fields(&row, row.schema);
        }
    test_add_rows("a_field_refuses_every_value_that_is_not_its_own_and_is_named", refused_case,
                  (struct test_rows){ rows, nrows, sizeof(*rows) }, TEST_TABLE(test_once));
    test_add_rows("a_field_that_must_be_there_is_named_when_it_is_not", missed_case,
                  (struct test_rows){ required_rows, nrequired, sizeof(*rows) },
                  TEST_TABLE(test_once));
}

TEST(every_call_that_takes_a_message_is_among_them)
{
    static const char *const names[] = { "Start",         "Connect",       "Update",
                                         "SendInput",     "StreamInput",   "SendSignal",
                                         "CloseStdin",    "Stat",          "MakeDir",
                                         "Move",          "ListDir",       "Remove",
                                         "WatchDir",      "CreateWatcher", "GetWatcherEvents",
                                         "RemoveWatcher", "init",          "compose" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        size_t k = 0;

        while (k < nrows && strcmp(strrchr(rows[k].route->path, '/') + 1, names[i]))
            k++;
        if (k == nrows)
            test_fail(__FILE__, __LINE__, "no field of %s is tried", names[i]);
    }
    CHECK(nrows > 50);
}
