/* test_json.c - reading strictly, writing without a tree. */
#include "base/json.h"

#include <math.h>
#include <stdint.h>

#include "test.h"

static struct err err;

static bool reads(const char *text)
{
    AUTO(json_dropp) json_t *j = json_read(str_of(text), &err);

    return j != NULL;
}

static const char *written(struct str s) /* as a JSON string; valid until the next call */
{
    static struct buf b;

    b.len = 0;
    json_put_str(&b, s);
    return b.data;
}

TEST(any_json_value_is_read)
{
    static const char *const good[] = { "{}",
                                        "[]",
                                        "0",
                                        "-1",
                                        "1.5e3",
                                        "\"x\"",
                                        "true",
                                        "false",
                                        "null",
                                        " [1, 2]\n",
                                        "{\"a\":{\"b\":[null]}}" };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!reads(good[i]))
            test_fail(__FILE__, __LINE__, "%s: %s", good[i], err.msg);
}

TEST(what_is_not_json_is_refused_with_its_place)
{
    static const char *const bad[] = {
        "{",         "}",          "[1,]",   "{\"a\":}", "{a:1}",        "'x'",         "01",
        "+1",        ".5",         "1.",     "nul",      "[1] 2",        "\"\\x\"",     "NaN",
        "Infinity",  "{\"a\":1,}", "\"\n\"", "\"\xff\"", "\"\xc0\x80\"", "\"\\ud800\"", "// c\n1",
        "\"unended",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (reads(bad[i]))
            test_fail(__FILE__, __LINE__, "%s was read", bad[i]);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK(!strncmp(err.msg, "not valid JSON: line ", 21));
    }
    CHECK(!reads(""));
    CHECK_STR(err.msg, "the body is empty where JSON is expected");
}

TEST(a_key_given_twice_is_refused)
{
    CHECK(!reads("{\"a\":1,\"a\":2}"));
    CHECK(strstr(err.msg, "duplicate") != NULL);
    CHECK(!reads("[{\"b\":{\"a\":1,\"c\":2,\"\\u0061\":3}}]"));
    CHECK(reads("[{\"a\":1},{\"a\":1}]"));
}

TEST(a_nul_is_refused_raw_and_escaped)
{
    AUTO(json_dropp) json_t *j = json_read((struct str){ "\"a\0b\"", 5 }, &err);

    CHECK(!j);
    CHECK(!reads("\"a\\u0000b\""));
    CHECK(!reads("{\"a\\u0000b\":1}"));
    j = json_read((struct str){ "[1\0]", 4 }, &err);
    CHECK(!j);
    CHECK_STR(err.msg, "not valid JSON: it has a NUL byte");
}

TEST(a_number_beyond_its_range_is_refused)
{
    CHECK(reads("9223372036854775807"));
    CHECK(reads("-9223372036854775808"));
    CHECK(!reads("9223372036854775808"));
    CHECK(strstr(err.msg, "too big") != NULL);
    CHECK(!reads("-9223372036854775809"));
    CHECK(!reads("1e999"));
    CHECK(!reads("-1e999"));
    CHECK(reads("1e-999"));
}

TEST(nesting_is_bounded_before_anything_recurses)
{
    char deep[2 * JSON_DEPTH + 8];

    for (int depth = JSON_DEPTH - 1; depth <= JSON_DEPTH + 1; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        deep[2 * depth] = 0;
        CHECK(reads(deep) == (depth <= JSON_DEPTH));
    }
    CHECK_STR(err.msg, "JSON is nested deeper than 64 levels");
    memset(deep, '[', sizeof(deep));
    CHECK_INT(json_check_depth((struct str){ deep, sizeof(deep) }, &err), -1);
    CHECK_INT(json_check_depth((struct str){ deep, JSON_DEPTH }, &err), 0);
    for (int i = 0; i < JSON_DEPTH + 1; i++)
        memcpy(deep + i, i % 2 ? "[" : "{", 1);
    CHECK_INT(json_check_depth((struct str){ deep, JSON_DEPTH + 1 }, &err), -1);
}

TEST(brackets_within_strings_are_not_nesting)
{
    struct buf b = { 0 };

    buf_puts(&b, "[\"");
    for (int i = 0; i < 1000; i++)
        buf_puts(&b, i % 3 ? "[{" : "\\\"[");
    buf_puts(&b, "\\\\\"]");
    CHECK(reads(b.data));
    b.len = 0;
    buf_puts(&b, "[\"\\\\\","); /* the string ends behind an escaped backslash: these do count */
    for (int i = 0; i < JSON_DEPTH; i++)
        buf_putc(&b, '[');
    CHECK_INT(json_check_depth(buf_str(&b), &err), -1);
    CHECK_INT(json_check_depth(STR("\"\\"), &err), 0);
    CHECK_INT(json_check_depth(STR("\""), &err), 0);
    buf_free(&b);
}

TEST(closing_brackets_ahead_buy_no_depth)
{
    struct buf b = { 0 };

    for (int i = 0; i < 200; i++)
        buf_putc(&b, ']');
    for (int i = 0; i < 200; i++)
        buf_putc(&b, '[');
    CHECK(!reads(b.data));
    buf_free(&b);
}

TEST(a_string_is_escaped_where_json_asks_for_it)
{
    CHECK_STR(written(STR("plain")), "\"plain\"");
    CHECK_STR(written(STR("")), "\"\"");
    CHECK_STR(written((struct str){ 0 }), "\"\"");
    CHECK_STR(written(STR("\"\\/")), "\"\\\"\\\\/\"");
    CHECK_STR(written(STR("\b\t\n\f\r")), "\"\\b\\t\\n\\f\\r\"");
    CHECK_STR(written((struct str){ "\0\x1f\x7f", 3 }), "\"\\u0000\\u001f\\u007f\"");
    CHECK_STR(written(STR("\xc3\xa9\xf0\x9f\x98\x80")), "\"\xc3\xa9\xf0\x9f\x98\x80\"");
}

TEST(bytes_that_are_not_utf8_become_replacement_characters)
{
#define FFFD "\xef\xbf\xbd"
    CHECK_STR(written(STR("a\xff"
                          "b")),
              "\"a" FFFD "b\"");
    CHECK_STR(written(STR("\xc3")), "\"" FFFD "\"");
    CHECK_STR(written(STR("\xc3(")), "\"" FFFD "(\"");
    CHECK_STR(written(STR("\xed\xa0\x80")), "\"" FFFD FFFD FFFD "\"");
    CHECK_STR(written(STR("\xf0\x9f\x98")), "\"" FFFD FFFD FFFD "\"");
    CHECK_STR(written(STR("\xe2\x82\xac\x80")), "\"\xe2\x82\xac" FFFD "\"");
}

TEST(every_byte_written_is_read_back)
{
    for (int c = 0; c < 256; c++) {
        char text[3] = { 'x', (char)c, 'y' };
        AUTO(json_dropp) json_t *j = NULL;

        if (!c)
            continue; /* written as an escape, which reading refuses */
        j = json_read(str_of(written((struct str){ text, 3 })), &err);
        CHECK(j != NULL);
        if (c < 128)
            CHECK(!memcmp(json_string_value(j), text, 3));
        else
            CHECK_STR(json_string_value(j), "x" FFFD "y");
    }
}

TEST(commas_stand_where_they_are_due)
{
    struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_str(&b, "s", "v:");
    json_kv_str(&b, "none", NULL);
    json_kv_int(&b, "i", -5);
    json_kv_bool(&b, "b", true);
    json_kv_int64s(&b, "l", INT64_MIN);
    json_key(&b, "a[");
    json_open(&b, '[');
    json_put_null(&b);
    json_put_str(&b, STR("{"));
    json_put_str(&b, STR("["));
    json_put_num(&b, 0.5);
    json_put_raw(&b, STR("{\"x\":1}"));
    json_put_bool(&b, false);
    json_put_base64(&b, "hi", 2);
    json_open(&b, '[');
    json_close(&b, ']');
    json_open(&b, '{');
    json_close(&b, '}');
    json_close(&b, ']');
    json_key(&b, "e");
    json_put_base64(&b, NULL, 0);
    json_close(&b, '}');
    CHECK_STR(b.data, "{\"s\":\"v:\",\"i\":-5,\"b\":true,\"l\":\"-9223372036854775808\","
                      "\"a[\":[null,\"{\",\"[\",0.5,{\"x\":1},false,\"aGk=\",[],{}],\"e\":\"\"}");
    CHECK(reads(b.data));
    buf_free(&b);
}

TEST(a_line_or_a_frame_header_begins_afresh)
{
    struct buf b = { 0 };

    buf_puts(&b, "data\n");
    json_put_int(&b, 1);
    CHECK_STR(b.data, "data\n1");
    b.len = 0;
    buf_add(&b, "\0\0\0\0\0", 5);
    json_open(&b, '{');
    CHECK_STR(b.data + 5, "{");
    buf_free(&b);
}

TEST(a_number_written_is_the_same_number_read)
{
    static const double some[] = { 0,
                                   -1,
                                   0.1,
                                   1.0 / 3,
                                   1e300,
                                   -2.5e-300,
                                   123456789.123456789,
                                   5e-324,
                                   9007199254740993.0,
                                   1e22,
                                   3.141592653589793 };
    struct buf b = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        AUTO(json_dropp) json_t *j = NULL;

        b.len = 0;
        json_put_num(&b, some[i]);
        j = json_read(buf_str(&b), &err);
        CHECK(j != NULL);
        if (json_number_value(j) != some[i])
            test_fail(__FILE__, __LINE__, "%.17g was written as %s", some[i], b.data);
    }
    b.len = 0;
    json_put_num(&b, 0.1);
    CHECK_STR(b.data, "0.1");
    buf_free(&b);
}

TEST(a_number_json_cannot_say_is_null)
{
    struct buf b = { 0 };

    json_open(&b, '[');
    json_put_num(&b, INFINITY);
    json_put_num(&b, -INFINITY);
    json_put_num(&b, NAN);
    json_close(&b, ']');
    CHECK_STR(b.data, "[null,null,null]");
    buf_free(&b);
}
