/* test_setting.c - bounds with a name. */
#include "base/setting.h"

#include "base/log.h"
#include "test.h"

static int64_t small = 5, large = 100;

static const struct setting first[] = {
    { "a.small", &small, 1, 10, "a small one in ms" },
    {},
};
static const struct setting second[] = {
    { "a.large", &large, INT64_MIN, INT64_MAX, "any number" },
    {},
};
static const struct setting gone[] = {
    { "a.gone", &small, 1, 10, "nothing is this small any more", .gone = true },
    {},
};
static const struct setting *const tables[] = { first, second, NULL };

static struct err err;

TEST(a_setting_is_found_in_any_table_and_set)
{
    CHECK_INT(setting_set(tables, "a.small=10", &err), 0);
    CHECK_INT(small, 10);
    CHECK_INT(setting_set(tables, "a.large=-9223372036854775808", &err), 0);
    CHECK(large == INT64_MIN);
    CHECK_INT(setting_set(tables, "a.small=1", &err), 0);
    CHECK_INT(small, 1);
}

TEST(a_value_beyond_its_bounds_changes_nothing)
{
    static const char *const bad[] = { "a.small=0",  "a.small=11", "a.small=",   "a.small=x",
                                       "a.small=1 ", "a.small= 1", "a.small=1=2" };

    small = 7;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(setting_set(tables, bad[i], &err), -1);
        CHECK_STR(err.msg, "setting a.small must be a number from 1 to 10");
        CHECK_INT(err.code, ERR_INVALID);
    }
    CHECK_INT(small, 7);
}

TEST(a_setting_that_does_not_exist_is_named)
{
    CHECK_INT(setting_set(tables, "a.smal=1", &err), -1);
    CHECK_STR(err.msg, "there is no setting 'a.smal'");
    CHECK_INT(setting_set(tables, "=1", &err), -1);
    CHECK_STR(err.msg, "there is no setting ''");
    CHECK_INT(setting_set(tables, "a.small", &err), -1);
    CHECK_STR(err.msg, "setting 'a.small' must look like NAME=VALUE");
}

static struct buf said;

static void hear(struct str line) { buf_add_str(&said, line); }

TEST(one_that_has_gone_is_taken_with_a_warning)
{
    static const struct setting *const old[] = { gone, NULL };
    struct buf b = { 0 };

    log_sink = hear;
    CHECK_INT(setting_set(old, "a.gone=11", &err), -1);
    CHECK_INT(said.len, 0);
    CHECK_INT(setting_set(old, "a.gone=10", &err), 0);
    log_sink = NULL;
    CHECK(strstr(buf_cstr(&said), "level=warn"));
    CHECK(strstr(buf_cstr(&said), "name=a.gone why=\"nothing is this small any more\""));
    setting_print(old, &b);
    CHECK(strstr(buf_cstr(&b), "10  without effect: nothing is this small any more\n"));
    buf_free(&b);
    buf_free(&said);
}

TEST(the_help_shows_every_setting_with_its_value)
{
    struct buf b = { 0 };

    small = 3;
    large = -4;
    setting_print(tables, &b);
    CHECK_STR(b.data, "  a.small                               3  a small one in ms\n"
                      "  a.large                              -4  any number\n");
    buf_free(&b);
}
