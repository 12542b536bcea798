/* test_scan.c - looking into JSON without a tree. */
#include "guest/kernels/scan.h"

#include "test.h"

static bool valid(const char *text) { return scan_valid(str_of(text)); }

TEST(what_is_json_is_told_from_what_is_not)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-1.5e+3",
        "\"a\\u00e9\\n\"",
        "{\"a\":[1,{\"b\":null}],\"c\":true}",
        " [ 1 , 2 ] ",
        "NaN",
        "-Infinity",
        "[[],{},\"\"]",
    };
    static const char *const bad[] = {
        "",    "{",        "[1,]",    "{\"a\"}",    "{\"a\":}", "{a:1}", "01",
        "1.",  "-",        "\"\\x\"", "\"\\u12\"",  "\"\n\"",   "[1 2]", "{}{}",
        "nul", "\"\xff\"", "[1,2}",   "{\"a\":1,}", "\"abc",    "\"\\",
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        if (!valid(good[i]))
            test_fail(__FILE__, __LINE__, "%s is not taken", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (valid(bad[i]))
            test_fail(__FILE__, __LINE__, "%s is taken", bad[i]);
}

TEST(nesting_has_a_bound)
{
    char text[2 * (SCAN_DEPTH + 1)];

    memset(text, '[', SCAN_DEPTH);
    memset(text + SCAN_DEPTH, ']', SCAN_DEPTH);
    CHECK(scan_valid((struct str){ text, 2 * (size_t)SCAN_DEPTH }));
    memset(text, '[', SCAN_DEPTH + 1);
    memset(text + SCAN_DEPTH + 1, ']', SCAN_DEPTH + 1);
    CHECK(!scan_valid((struct str){ text, sizeof(text) }));
}

TEST(values_are_found_by_name_as_they_were_written)
{
    static const char *const names[] = { "b", "none", "a", NULL };
    struct str out[3];

    CHECK_INT(scan_object(STR(" {\"a\" : \"x\", \"b\":{ \"a\":2 } , \"a\":[3]} "), names, out), 0);
    CHECK(str_is(out[0], "{ \"a\":2 }"));
    CHECK(!out[1].p);
    CHECK(str_is(out[2], "[3]")); /* the last one wins */
    CHECK_INT(scan_object(STR("{}"), names, out), 0);
    CHECK_INT(scan_object(STR("[]"), names, out), -1);
    CHECK_INT(scan_object(STR("{\"a\":1} x"), names, out), -1);
    CHECK_INT(scan_object(STR("{\"a\":1,}"), names, out), -1);
    CHECK_INT(scan_object(STR(""), names, out), -1);
    CHECK(!scan_get(STR("{\"a\":1"), "a").p);
}

TEST(strings_are_decoded)
{
    struct arena a = { 0 };

    CHECK_STR(scan_string(&a, STR("\"a\\n\\\"\\u00e9\\ud83d\\udc0e\\/\"")), "a\n\"é🐎/");
    CHECK_STR(scan_string(&a, STR("\"\\ud83d!\"")), "\xef\xbf\xbd!"); /* half a pair */
    CHECK(!scan_string(&a, STR("\"\\u0000\"")));
    CHECK(!scan_string(&a, STR("1")));
    CHECK(!scan_string(&a, STR("\"a\"b")));
    CHECK(str_is(scan_plain(STR("\"abc\"")), "abc"));
    CHECK(!scan_plain(STR("\"a\\n\"")).p);
    CHECK(!scan_plain(STR("12")).p);
    arena_free(&a);
}

TEST(objects_and_arrays_are_walked)
{
    struct str rest = STR("{\"a\":1, \"b\":[2]}"), key, value;
    struct str list = STR("[1, \"x\", {}]");

    CHECK(scan_next(&rest, &key, &value) && str_is(key, "\"a\"") && str_is(value, "1"));
    CHECK(scan_next(&rest, &key, &value) && str_is(key, "\"b\"") && str_is(value, "[2]"));
    CHECK(!scan_next(&rest, &key, &value));
    CHECK(scan_item(&list, &value) && str_is(value, "1"));
    CHECK(scan_item(&list, &value) && str_is(value, "\"x\""));
    CHECK(scan_item(&list, &value) && str_is(value, "{}"));
    CHECK(!scan_item(&list, &value));
}

TEST(a_literal_needs_no_comma)
{
    struct buf b = { 0 };

    buf_puts(&b, "f(");
    scan_quote(&b, "it's \"x\"\n");
    CHECK_STR(buf_cstr(&b), "f(\"it's \\\"x\\\"\\n\"");
    buf_free(&b);
}
