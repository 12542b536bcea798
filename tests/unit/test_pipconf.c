/* test_pipconf.c - where packages come from, as pip's files say it. */
#include "base/pipconf.h"

#include "test.h"

static struct arena arena;

static const char *get(const char *text, const char *key)
{
    const char *value = pipconf_get(str_of(text), key, &arena);

    return value ? value : "(none)";
}

TEST(a_value_is_found_in_global_and_install)
{
    CHECK_STR(get("[global]\nindex-url = https://a/simple\n", "index-url"), "https://a/simple");
    CHECK_STR(get("[install]\nindex-url: https://b/simple", "index-url"), "https://b/simple");
    CHECK_STR(get("[list]\nindex-url = https://c\n", "index-url"), "(none)");
    CHECK_STR(get("index-url = https://d\n", "index-url"), "(none)");
}

TEST(the_last_value_wins_and_underscores_are_dashes)
{
    CHECK_STR(get("[global]\nindex_url = a\nindex-url = b\r\n", "index-url"), "b");
}

TEST(a_value_goes_on_on_lines_that_begin_with_a_blank)
{
    CHECK_STR(
        get("[global]\nextra-index-url =\n    a\n# no\n\tb\ncert = c\n  d", "extra-index-url"),
        "a b");
    CHECK_STR(get("[global]\n  stray\nx = y\n", "x"), "y");
}

TEST(comments_empty_values_and_odd_lines_are_nothing)
{
    CHECK_STR(get("[global]\n#cert = a\n;cert = b\ncert\n= c\ncert =\n", "cert"), "(none)");
    CHECK_STR(get("", "cert"), "(none)");
}
