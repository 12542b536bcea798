/* test_clock.c - deadlines and dates. */
#include "base/clock.h"

#include <unistd.h>

#include "test.h"

TEST(the_monotonic_clock_goes_forward)
{
    int64_t ms = clock_ms(), us = clock_us();

    usleep(20000);
    CHECK(clock_ms() - ms >= 19);
    CHECK(clock_ms() - ms < 10000);
    CHECK(clock_us() - us >= 20000);
    CHECK(clock_us() / 1000 - clock_ms() < 1000);
    CHECK(clock_wall_s() - (int64_t)time(NULL) <= 0);
    CHECK((int64_t)time(NULL) - clock_wall_s() <= 2);
}

static const char *rfc3339(int64_t sec, int32_t nsec)
{
    static struct buf b;

    b.len = 0;
    clock_rfc3339(&b, sec, nsec);
    return b.data;
}

TEST(rfc3339_has_a_fraction_only_when_there_is_one)
{
    CHECK_STR(rfc3339(0, 0), "1970-01-01T00:00:00Z");
    CHECK_STR(rfc3339(1767323045, 6), "2026-01-02T03:04:05.000000006Z");
    CHECK_STR(rfc3339(1767323045, 500000000), "2026-01-02T03:04:05.500000000Z");
    CHECK_STR(rfc3339(951782400, 0), "2000-02-29T00:00:00Z");
    CHECK_STR(rfc3339(-1, 0), "1969-12-31T23:59:59Z");
}

TEST(an_http_date_is_printed_and_read_back)
{
    static const int64_t some[] = { 0, 784111777, 951782400, 1767323045, 4102444799, 253402300799 };
    char text[32];

    clock_http_date_of(784111777, text);
    CHECK_STR(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        clock_http_date_of(some[i], text);
        CHECK_INT(strlen(text), 29);
        CHECK_INT(clock_parse_http_date(str_of(text)), some[i]);
    }
}

TEST(what_is_not_an_http_date_is_refused)
{
    static const char *const bad[] = {
        "",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Mon, 06 Nov 1994 08:49:37 GMT", /* it was a Sunday */
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 anF 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 1994 08:49:37 GM",
        "Sun, 06 Nov 1994 08:49:37 GMTx",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994     ",
        "Sun,  6 Nov 1994 08:49:37 GMT",
        "Sun, -6 Nov 1994 08:49:37 GMT",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (clock_parse_http_date(str_of(bad[i])) != -1)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
}

TEST(the_date_header_is_now)
{
    int64_t before = (int64_t)time(NULL) - 2, at = clock_parse_http_date(str_of(clock_http_date()));

    CHECK(at >= before);
    CHECK(at <= (int64_t)time(NULL));
}

TEST(a_year_no_calendar_holds_stays_in_its_bounds)
{
    char text[32 + 8];

    memset(text, 'g', sizeof(text));
    clock_http_date_of(INT64_MAX, text);
    CHECK(memchr(text, 0, 32) != NULL);
    clock_http_date_of(INT64_MIN, text);
    CHECK(memchr(text, 0, 32) != NULL);
    for (size_t i = 32; i < sizeof(text); i++)
        CHECK_INT(text[i], 'g');
    CHECK(strlen(rfc3339(INT64_MAX, 0)) >= 20);
}

TEST(a_skip_takes_every_clock_forward)
{
    int64_t ms = clock_ms(), us = clock_us(), s = clock_wall_s(), wall = clock_wall_ms();

    clock_skip(5000);
    CHECK(clock_ms() >= ms + 5000);
    CHECK(clock_us() >= us + 5000000);
    CHECK(clock_wall_s() >= s + 5);
    CHECK(clock_wall_ms() >= wall + 5000);
    CHECK(clock_ms() < ms + 5000 + 60000);
}
