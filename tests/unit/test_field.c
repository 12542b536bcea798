/* test_field.c - objects by table: reading, bounds, writing, schema. */
#include "base/field.h"

#include "test.h"

struct inner {
    char *id;
    int64_t size;
};

struct outer {
    char *name;
    int64_t count, kind;
    bool on;
    double ratio;
    struct map env;
    struct strs args;
    struct bytes data;
    struct inner *one;
    struct objs many;
};

static const struct field inner_fields[] = {
    FIELD(struct inner, id, F_STR, .flags = F_REQUIRED, .min = 1, .max = 8),
    FIELD(struct inner, size, F_INT, .max = 100),
    {},
};

static const struct field_name kinds[] = {
    { "KIND_NONE", 0 }, { "KIND_FILE", 1 }, { "KIND_DIR", 7 }, {}
};

static const struct field fields[] = {
    FIELD(struct outer, name, F_STR, .max = 5, .help = "a \"name\""),
    FIELD(struct outer, count, F_INT, .min = -3, .max = 9, .def = 4),
    FIELD_AS(struct outer, kind, "theKind", F_ENUM, .names = kinds, .def = 1),
    FIELD(struct outer, on, F_BOOL, .def = true),
    FIELD(struct outer, ratio, F_NUM, .def = 2),
    FIELD(struct outer, env, F_MAP, .max = 2, .flags = F_OMIT),
    FIELD(struct outer, args, F_STRS, .max = 3, .flags = F_OMIT),
    FIELD(struct outer, data, F_BYTES, .max = 4, .flags = F_OMIT),
    FIELD(struct outer, one, F_OBJ, .sub = inner_fields, .sub_size = sizeof(struct inner),
          .flags = F_OMIT),
    FIELD(struct outer, many, F_OBJS, .sub = inner_fields, .sub_size = sizeof(struct inner),
          .max = 2, .flags = F_OMIT),
    {},
};

static struct arena arena;
static struct err err;
static struct outer out;

static int decode(enum field_mode mode, const char *text)
{
    out = (struct outer){ 0 };
    err = (struct err){ 0 };
    return field_decode_text(fields, mode, str_of(text), &arena, &out, &err);
}

#define TAKES(mode, text)                                                                          \
    do {                                                                                           \
        if (decode(mode, text))                                                                    \
            test_fail(__FILE__, __LINE__, "%s: %s", text, err.msg);                                \
    } while (0)
#define REFUSES(mode, text, why)                                                                   \
    do {                                                                                           \
        if (!decode(mode, text))                                                                   \
            test_fail(__FILE__, __LINE__, "%s was taken", text);                                   \
        CHECK_STR(err.msg, why);                                                                   \
        CHECK_INT(err.code, ERR_INVALID);                                                          \
    } while (0)

TEST(every_type_is_read)
{
    TAKES(FIELDS_STRICT, "{\"name\":\"ab\",\"count\":-3,\"theKind\":\"KIND_DIR\",\"on\":false,"
                         "\"ratio\":0.25,\"env\":{\"A\":\"1\",\"B\":\"\"},\"args\":[\"x\",\"y\"],"
                         "\"data\":\"aGVs\",\"one\":{\"id\":\"i\",\"size\":5},"
                         "\"many\":[{\"id\":\"j\"},{\"id\":\"k\",\"size\":1}]}");
    CHECK_STR(out.name, "ab");
    CHECK_INT(out.count, -3);
    CHECK_INT(out.kind, 7);
    CHECK(!out.on);
    CHECK(out.ratio == 0.25);
    CHECK_INT(out.env.n, 2);
    CHECK_STR(map_get(&out.env, "A"), "1");
    CHECK_STR(map_get(&out.env, "B"), "");
    CHECK(!map_get(&out.env, "C"));
    CHECK_INT(out.args.n, 2);
    CHECK_STR(out.args.items[1], "y");
    CHECK_INT(out.data.n, 3);
    CHECK(!memcmp(out.data.data, "hel", 3));
    CHECK_STR(out.one->id, "i");
    CHECK_INT(out.one->size, 5);
    CHECK_INT(out.many.n, 2);
    CHECK_STR(((struct inner *)out.many.items)[1].id, "k");
}

TEST(what_is_absent_has_its_default)
{
    TAKES(FIELDS_STRICT, "{}");
    CHECK(!out.name && !out.data.data && !out.one);
    CHECK_INT(out.count, 4);
    CHECK_INT(out.kind, 1);
    CHECK(out.on);
    CHECK(out.ratio == 2);
    CHECK_INT(out.env.n + out.args.n + out.many.n, 0);
}

TEST(each_type_refuses_the_others)
{
    REFUSES(FIELDS_STRICT, "{\"name\":1}", "field 'name' must be a string");
    REFUSES(FIELDS_STRICT, "{\"count\":\"1\"}", "field 'count' must be an integer");
    REFUSES(FIELDS_STRICT, "{\"count\":1.5}", "field 'count' must be an integer");
    REFUSES(FIELDS_STRICT, "{\"on\":1}", "field 'on' must be true or false");
    REFUSES(FIELDS_STRICT, "{\"ratio\":\"1\"}", "field 'ratio' must be a number");
    REFUSES(FIELDS_STRICT, "{\"env\":[]}", "field 'env' must be an object of strings");
    REFUSES(FIELDS_STRICT, "{\"env\":{\"A\":1}}", "field 'env.A' must be a string");
    REFUSES(FIELDS_STRICT, "{\"args\":{}}", "field 'args' must be an array");
    REFUSES(FIELDS_STRICT, "{\"args\":[\"a\",null]}", "field 'args[1]' must be a string");
    REFUSES(FIELDS_STRICT, "{\"data\":[]}", "field 'data' must be a base64 string");
    REFUSES(FIELDS_STRICT, "{\"data\":\"a\"}", "field 'data' is not valid base64");
    REFUSES(FIELDS_STRICT, "{\"theKind\":\"X\"}", "field 'theKind' is none of the known names");
    REFUSES(FIELDS_STRICT, "{\"theKind\":true}", "field 'theKind' is none of the known names");
    REFUSES(FIELDS_STRICT, "{\"many\":\"x\"}", "field 'many' must be an array");
    REFUSES(FIELDS_STRICT, "[]", "a JSON object is expected");
    REFUSES(FIELDS_STRICT, "\"x\"", "a JSON object is expected");
}

TEST(bounds_hold_at_both_ends)
{
    TAKES(FIELDS_STRICT, "{\"count\":9,\"name\":\"12345\",\"data\":\"MTIzNA==\"}");
    TAKES(FIELDS_STRICT, "{\"env\":{\"a\":\"\",\"b\":\"\"},\"args\":[\"\",\"\",\"\"]}");
    REFUSES(FIELDS_STRICT, "{\"count\":10}", "field 'count' is 10, must be from -3 to 9");
    REFUSES(FIELDS_STRICT, "{\"count\":-4}", "field 'count' is -4, must be from -3 to 9");
    REFUSES(FIELDS_STRICT, "{\"name\":\"123456\"}", "field 'name' has 6 bytes, the limit is 5");
    REFUSES(FIELDS_STRICT, "{\"data\":\"MTIzNDU=\"}", "field 'data' has 5 bytes, the limit is 4");
    REFUSES(FIELDS_STRICT, "{\"data\":\"MTIzNDU2\"}", "field 'data' has 6 bytes, the limit is 4");
    REFUSES(FIELDS_STRICT, "{\"data\":\"MTIzNDU2Nzg5\"}",
            "field 'data' has 9 bytes, the limit is 4");
    REFUSES(FIELDS_STRICT, "{\"env\":{\"a\":\"\",\"b\":\"\",\"c\":\"\"}}",
            "field 'env' has 3 entries, the limit is 2");
    REFUSES(FIELDS_STRICT, "{\"args\":[\"\",\"\",\"\",\"\"]}",
            "field 'args' has 4 items, the limit is 3");
    REFUSES(FIELDS_STRICT, "{\"one\":{\"id\":\"\"}}", "field 'one': field 'id' must not be empty");
}

TEST(a_field_without_a_bound_still_has_one_or_takes_all)
{
    struct free_fields {
        char *text;
        int64_t number;
        struct bytes data;
        struct strs list;
    } f = { 0 };
    static const struct field table[] = {
        FIELD(struct free_fields, text, F_STR),
        FIELD(struct free_fields, number, F_INT),
        FIELD(struct free_fields, data, F_BYTES),
        FIELD(struct free_fields, list, F_STRS),
        {},
    };
    struct buf b = { 0 };

    CHECK_INT(
        field_decode_text(table, FIELDS_STRICT,
                          STR("{\"number\":-9223372036854775808,\"data\":\"aGVsbG8gd29ybGQ=\"}"),
                          &arena, &f, &err),
        0);
    CHECK(f.number == INT64_MIN);
    CHECK_INT(f.data.n, 11);
    for (size_t n = FIELD_STR_MAX; n <= FIELD_STR_MAX + 1; n++) {
        b.len = 0;
        buf_puts(&b, "{\"text\":\"");
        for (size_t i = 0; i < n; i++)
            buf_putc(&b, 'x');
        buf_puts(&b, "\"}");
        CHECK_INT(field_decode_text(table, FIELDS_STRICT, buf_str(&b), &arena, &f, &err),
                  n > FIELD_STR_MAX ? -1 : 0);
    }
    b.len = 0;
    buf_puts(&b, "{\"list\":[\"\"");
    for (int i = 0; i < FIELD_ITEMS_MAX; i++)
        buf_puts(&b, ",\"\"");
    buf_puts(&b, "]}");
    CHECK_INT(field_decode_text(table, FIELDS_STRICT, buf_str(&b), &arena, &f, &err), -1);
    CHECK_STR(err.msg, "field 'list' has 4097 items, the limit is 4096");
    buf_free(&b);
}

TEST(a_missing_field_and_its_place_are_named)
{
    REFUSES(FIELDS_STRICT, "{\"one\":{}}", "field 'one': field 'id' is missing");
    REFUSES(FIELDS_STRICT, "{\"many\":[{\"id\":\"a\"},{\"size\":1}]}",
            "field 'many[1]': field 'id' is missing");
    REFUSES(FIELDS_STRICT, "{\"many\":[7]}", "field 'many[0]': a JSON object is expected");
    REFUSES(FIELDS_STRICT, "{\"one\":{\"id\":\"x\",\"size\":101}}",
            "field 'one': field 'size' is 101, must be from 0 to 100");
    REFUSES(FIELDS_PROTO, "{\"one\":{\"id\":null}}", "field 'one': field 'id' is missing");
}

TEST(an_unknown_key_is_an_error_only_where_we_are_strict)
{
    REFUSES(FIELDS_STRICT, "{\"count\":1,\"x\":1}", "field 'x' is not known here");
    REFUSES(FIELDS_STRICT, "{\"one\":{\"id\":\"a\",\"y\":1}}",
            "field 'one': field 'y' is not known here");
    REFUSES(FIELDS_STRICT, "{\"\":1}", "field '' is not known here");
    TAKES(FIELDS_PROTO, "{\"count\":1,\"x\":{\"deep\":[1]}}");
    CHECK_INT(out.count, 1);
}

TEST(null_is_a_value_only_in_protobuf)
{
    REFUSES(FIELDS_STRICT, "{\"name\":null}", "field 'name' must be a string");
    REFUSES(FIELDS_STRICT, "{\"one\":null}", "field 'one': a JSON object is expected");
    TAKES(FIELDS_PROTO, "{\"name\":null,\"one\":null,\"many\":null,\"count\":null,\"env\":null}");
    CHECK(!out.name && !out.one);
    CHECK_INT(out.count, 4);
}

TEST(protobuf_may_write_numbers_as_strings_and_names_in_snake_case)
{
    TAKES(FIELDS_PROTO, "{\"count\":\"-2\",\"the_kind\":\"KIND_FILE\"}");
    CHECK_INT(out.count, -2);
    CHECK_INT(out.kind, 1);
    TAKES(FIELDS_PROTO, "{\"theKind\":7}");
    CHECK_INT(out.kind, 7);
    TAKES(FIELDS_PROTO, "{\"the_kind\":null,\"theKind\":null}");
    REFUSES(FIELDS_PROTO, "{\"count\":\"\"}", "field 'count' must be an integer");
    REFUSES(FIELDS_PROTO, "{\"count\":\"1x\"}", "field 'count' must be an integer");
    REFUSES(FIELDS_PROTO, "{\"count\":\"10\"}", "field 'count' is 10, must be from -3 to 9");
    REFUSES(FIELDS_STRICT, "{\"the_kind\":\"KIND_FILE\"}", "field 'the_kind' is not known here");
}

TEST(a_map_answers_with_the_last_of_a_name)
{
    struct map_item items[] = { { (char[]){ "a" }, (char[]){ "1" } },
                                { (char[]){ "b" }, (char[]){ "2" } },
                                { (char[]){ "a" }, (char[]){ "3" } } };
    struct map m = { 3, items };

    CHECK_STR(map_get(&m, "a"), "3");
    CHECK_STR(map_get(&m, "b"), "2");
    CHECK(!map_get(&(struct map){ 0 }, "a"));
}

static const char *encode(const struct field *table, const void *in)
{
    static struct buf b;

    b.len = 0;
    field_encode(table, in, &b);
    return b.data;
}

TEST(an_object_is_written_by_its_table)
{
    struct outer o = { 0 };

    CHECK_STR(encode(fields, &o),
              "{\"name\":\"\",\"count\":0,\"theKind\":\"KIND_NONE\",\"on\":false,\"ratio\":0}");
    o.kind = 99;
    o.on = true;
    o.data = (struct bytes){ 2, (unsigned char[]){ 0xff, 0 } };
    o.one = &(struct inner){ (char[]){ "q\"" }, 3 };
    CHECK_STR(encode(fields, &o),
              "{\"name\":\"\",\"count\":0,\"theKind\":99,\"on\":true,\"ratio\":0,"
              "\"data\":\"/wA=\",\"one\":{\"id\":\"q\\\"\",\"size\":3}}");
}

TEST(protobufs_int64_is_written_as_a_string)
{
    struct inner i = { NULL, -5 };
    static const struct field table[] = {
        FIELD(struct inner, id, F_STR, .flags = F_OMIT),
        FIELD(struct inner, size, F_INT, .flags = F_INT64 | F_OMIT),
        {},
    };

    CHECK_STR(encode(table, &i), "{\"size\":\"-5\"}");
    i.size = 0;
    CHECK_STR(encode(table, &i), "{}");
}

TEST(an_object_absent_is_null_unless_it_is_left_out)
{
    struct outer o = { 0 };
    static const struct field table[] = {
        FIELD(struct outer, one, F_OBJ, .sub = inner_fields, .sub_size = sizeof(struct inner)),
        {},
    };

    CHECK_STR(encode(table, &o), "{\"one\":null}");
}

TEST(what_was_written_reads_the_same)
{
    static const char *const some[] = {
        "{\"name\":\"\\u00e9\",\"count\":9,\"on\":true,\"ratio\":0.1,\"theKind\":\"KIND_DIR\"}",
        "{\"env\":{\"k\\n\":\"v\"},\"args\":[\"\",\"\\\"\"],\"data\":\"AAEC\",\"one\":{\"id\":\"z\"}}",
        "{\"many\":[{\"id\":\"a\",\"size\":100},{\"id\":\"b\"}]}",
    };

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        char *first;

        TAKES(FIELDS_STRICT, some[i]);
        first = arena_strdup(&arena, str_of(encode(fields, &out)));
        TAKES(FIELDS_STRICT, first);
        CHECK_STR(encode(fields, &out), first);
    }
}

TEST(the_schema_is_json_and_states_what_the_reader_enforces)
{
    struct buf b = { 0 };
    AUTO(json_dropp) json_t *j = NULL;
    json_t *p, *inner;

    field_schema(fields, &b);
    j = json_read(buf_str(&b), &err);
    CHECK(j != NULL);
    CHECK_STR(json_string_value(json_object_get(j, "type")), "object");
    CHECK(!json_object_get(j, "required"));
    p = json_object_get(j, "properties");
    CHECK_INT(json_object_size(p), 10);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(p, "count"), "minimum")), -3);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(p, "count"), "maximum")), 9);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(p, "count"), "default")), 4);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(p, "name"), "maxLength")), 5);
    CHECK_STR(json_string_value(json_object_get(json_object_get(p, "name"), "description")),
              "a \"name\"");
    CHECK_INT(json_integer_value(json_object_get(json_object_get(p, "args"), "maxItems")), 3);
    CHECK_INT(json_array_size(json_object_get(json_object_get(p, "theKind"), "enum")), 3);
    CHECK(json_is_true(json_object_get(json_object_get(p, "on"), "default")));
    CHECK_STR(json_string_value(json_object_get(json_object_get(p, "data"), "format")), "byte");
    inner = json_object_get(json_object_get(p, "many"), "items");
    CHECK_STR(json_string_value(json_array_get(json_object_get(inner, "required"), 0)), "id");
    inner = json_object_get(json_object_get(p, "one"), "properties");
    CHECK_INT(json_integer_value(json_object_get(json_object_get(inner, "id"), "minLength")), 1);
    CHECK(json_is_integer(json_object_get(json_object_get(inner, "size"), "minimum")));
    buf_free(&b);
}

TEST(every_type_has_a_schema_type)
{
    static const char *const want[] = { "string", "integer", "string", "boolean", "number",
                                        "object", "array",   "string", "object",  "array" };
    struct buf b = { 0 };
    AUTO(json_dropp) json_t *j = NULL;
    json_t *p;

    field_schema(fields, &b);
    j = json_read(buf_str(&b), &err);
    p = json_object_get(j, "properties");
    for (size_t i = 0; fields[i].name; i++)
        CHECK_STR(json_string_value(json_object_get(json_object_get(p, fields[i].name), "type")),
                  want[i]);
    buf_free(&b);
    arena_free(&arena);
}

/* ---- values that are passed on, and lenient reading ---- */

struct loose {
    char *any;
    int64_t kind;
};

static const struct field loose_fields[] = {
    FIELD(struct loose, any, F_JSON, .max = 20, .flags = F_OMIT),
    FIELD(struct loose, kind, F_ENUM, .names = kinds),
    {},
};

static int decode_loose(enum field_mode mode, const char *text, struct loose *to)
{
    *to = (struct loose){ 0 };
    err = (struct err){ 0 };
    return field_decode_text(loose_fields, mode, str_of(text), &arena, to, &err);
}

TEST(any_value_is_kept_as_compact_text)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct loose l;

    CHECK_INT(decode_loose(FIELDS_STRICT, "{\"any\": {\"a\": [1, \"x\"]}}", &l), 0);
    CHECK_STR(l.any, "{\"a\":[1,\"x\"]}");
    field_encode(loose_fields, &l, &b);
    CHECK_STR(buf_cstr(&b), "{\"any\":{\"a\":[1,\"x\"]},\"kind\":\"KIND_NONE\"}");
    CHECK_INT(decode_loose(FIELDS_STRICT, "{\"any\": 7}", &l), 0);
    CHECK_STR(l.any, "7");
    CHECK_INT(decode_loose(FIELDS_STRICT, "{}", &l), 0);
    CHECK(!l.any);
    CHECK_INT(decode_loose(FIELDS_STRICT, "{\"any\": \"0123456789012345678\"}", &l), -1);
    CHECK_STR(err.msg, "field 'any' has 21 bytes, the limit is 20");
    arena_free(&arena);
}

TEST(lenient_reading_passes_over_unknown_keys_and_nulls_only)
{
    struct loose l;

    CHECK_INT(decode_loose(FIELDS_LENIENT, "{\"new\": 1, \"any\": null, \"kind\": null}", &l), 0);
    CHECK(!l.any);
    CHECK_INT(decode_loose(FIELDS_LENIENT, "{\"kind\": 1}", &l), -1);
    CHECK_INT(decode_loose(FIELDS_STRICT, "{\"kind\": 1}", &l), -1);
    CHECK_INT(decode_loose(FIELDS_PROTO, "{\"kind\": 1}", &l), 0);
    CHECK_INT(l.kind, 1);
    arena_free(&arena);
}

/* ---- text that may hold NULs, and texts that may be null ---- */

struct lax {
    struct bytes text;
    char *plain;
};
static const struct field lax[] = {
    FIELD(struct lax, text, F_TEXT, .flags = F_NULL, .max = 4),
    FIELD(struct lax, plain, F_STR, .flags = F_NULL),
    {},
};

TEST(a_text_keeps_its_nuls_and_others_refuse_them)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct arena a = { 0 };
    struct lax t = { 0 };

    CHECK_INT(field_decode_text(lax, FIELDS_STRICT, STR("{\"text\":\"a\\u0000b\"}"), &a, &t, &err),
              0);
    CHECK_INT(t.text.n, 3);
    CHECK(!memcmp(t.text.data, "a\0b", 4));
    field_encode(lax, &t, &b);
    CHECK_STR(buf_cstr(&b), "{\"text\":\"a\\u0000b\",\"plain\":null}");
    CHECK_INT(field_decode_text(lax, FIELDS_STRICT, STR("{\"plain\":\"a\\u0000b\"}"), &a, &t, &err),
              -1);
    CHECK_STR(err.msg, "field 'plain' must not contain NUL");
    CHECK_INT(field_decode_text(lax, FIELDS_STRICT, STR("{\"text\":\"12345\"}"), &a, &t, &err), -1);
    CHECK_STR(err.msg, "field 'text' has 5 bytes, the limit is 4");
    arena_free(&a);
}

TEST(a_text_that_may_be_null_says_so_in_its_schema)
{
    AUTO(buf_free) struct buf b = { 0 };

    field_schema(lax, &b);
    CHECK(strstr(buf_cstr(&b), "\"plain\":{\"type\":[\"string\",\"null\"]}"));
}
