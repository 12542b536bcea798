/* test_str.c - slices, numbers, base64, UTF-8. */
#include "base/arena.h"
#include "test.h"

TEST(a_percent_escape_is_decoded)
{
    struct arena a = { 0 };
    struct str out;

    CHECK_INT(str_percent_decode(&a, STR("a%20b%2Fc+d"), true, &out), 0);
    CHECK_STR(out.p, "a b/c d");
    CHECK_INT(str_percent_decode(&a, STR("%4"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("%zz"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("%00"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("x%41"), true, &out), 0);
    CHECK_STR(out.p, "xA");
    arena_free(&a);
}

TEST(numbers_refuse_overflow_and_signs)
{
    uint64_t u;
    int64_t i;

    CHECK_INT(str_u64(STR("18446744073709551615"), &u), 0);
    CHECK(u == UINT64_MAX);
    CHECK_INT(str_u64(STR("18446744073709551616"), &u), -1);
    CHECK_INT(str_u64(STR("+1"), &u), -1);
    CHECK_INT(str_u64(STR(""), &u), -1);
    CHECK_INT(str_i64(STR("-9223372036854775808"), &i), 0);
    CHECK(i == INT64_MIN);
    CHECK_INT(str_i64(STR("9223372036854775808"), &i), -1);
}
