/* test_httpfile.c - ranges, types. */
#include "io/httpfile.h"
#include "test.h"

static int range(const char *value, int64_t size, int64_t *first, int64_t *length)
{
    struct http_range r = { -1, -1 };
    int result = http_parse_range(str_of(value), size, &r);

    *first = r.first;
    *length = r.length;
    return result;
}

TEST(a_range_is_cut_to_the_file)
{
    int64_t first, length;

    CHECK_INT(range("bytes=0-9", 100, &first, &length), 1);
    CHECK_INT(first, 0);
    CHECK_INT(length, 10);
    CHECK_INT(range("bytes=90-200", 100, &first, &length), 1);
    CHECK_INT(length, 10);
    CHECK_INT(range("bytes=50-", 100, &first, &length), 1);
    CHECK_INT(first, 50);
    CHECK_INT(length, 50);
    CHECK_INT(range("bytes=-10", 100, &first, &length), 1);
    CHECK_INT(first, 90);
    CHECK_INT(range("bytes=-1000", 100, &first, &length), 1);
    CHECK_INT(first, 0);
    CHECK_INT(length, 100);
}

TEST(a_range_outside_the_file_is_not_satisfiable)
{
    int64_t first, length;

    CHECK_INT(range("bytes=100-", 100, &first, &length), -1);
    CHECK_INT(range("bytes=0-0", 0, &first, &length), -1);
    CHECK_INT(range("bytes=-0", 100, &first, &length), -1);
}

TEST(a_range_that_makes_no_sense_is_passed_over)
{
    static const char *const values[] = {
        "",          "bytes=",  "bytes=a-b",     "bytes=5",     "bytes=9-5",
        "lines=0-1", "bytes=-", "bytes=0-1,3-4", "bytes=0-1-2", "bytes= 1 - 2 "
    };
    int64_t first, length;

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        CHECK_INT(range(values[i], 100, &first, &length), 0);
}

TEST(the_type_follows_from_the_extension)
{
    CHECK_STR(http_type_of("a/b.JSON"), "application/json");
    CHECK_STR(http_type_of("noext"), "application/octet-stream");
    CHECK_STR(http_type_of("x.unknown"), "application/octet-stream");
}
