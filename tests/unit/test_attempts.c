/* test_attempts.c - counts of what strangers try: who shares one, and what makes one forgotten. */
#include "control/attempts.h"

#include <string.h>

#include "test.h"

static struct attempts all;

static struct attempt *of(int64_t n, int64_t now) { return attempt_of(&all, &n, sizeof(n), now); }

static void begin(void) { all = (struct attempts){ .lasts_ms = 1000000 }; }

TEST(a_count_is_not_pushed_out_by_lower_ones)
{
    begin();
    of(1, 1)->count = 4;
    for (int64_t other = 2; other < 5000; other++)
        of(other, 1 + other)->count = 1;
    CHECK_INT(of(1, 9999)->count, 4);
    of(6000, 9999)->count = 1;
    CHECK_INT(of(6000, 9999)->count, 1); /* a new one always has a place */
    CHECK_INT(of(2, 9999)->count, 0);    /* the oldest of the lower ones had none */
}

TEST(one_that_is_under_way_is_never_forgotten)
{
    struct attempt *a;

    begin();
    a = of(1, 1);
    a->trying = 1;
    for (int64_t other = 2; other < 5000; other++)
        of(other, 1 + other)->count = 9;
    CHECK(of(1, 9999) == a);
    CHECK_INT(a->trying, 1);
}

TEST(a_count_lapses)
{
    begin();
    of(1, 5)->count = 4;
    CHECK_INT(of(1, 1000004)->count, 4);
    CHECK_INT(of(1, 1000005)->count, 0);
}

static bool same(const char *a, const char *b)
{
    unsigned char x[16], y[16];

    attempt_address(a, x);
    attempt_address(b, y);
    return !memcmp(x, y, sizeof(x));
}

TEST(an_ipv6_customer_is_one_address)
{
    CHECK(same("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"));
    CHECK(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
    CHECK(!same("192.0.2.1", "192.0.2.2"));
    CHECK(same("::ffff:192.0.2.1", "192.0.2.1"));
    CHECK(!same("::ffff:192.0.2.1", "::ffff:192.0.2.2"));
    CHECK(same("", "not an address"));
    CHECK(!same("", "192.0.2.1"));
}
