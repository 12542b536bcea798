/* test_prom.c - the Prometheus text format. */
#include "base/prom.h"

#include "test.h"

TEST(a_metric_is_its_help_its_type_and_its_values)
{
    struct buf b = { 0 };

    prom_head(&b, "cove_open", "gauge", "connections now open");
    prom_value(&b, "cove_open", NULL, 3);
    prom_value(&b, "cove_open", (const char *const[]){ NULL }, 0.5);
    prom_value(&b, "cove_open", (const char *const[]){ "code", "200", "path", "/x", NULL }, 1e15);
    CHECK_STR(b.data, "# HELP cove_open connections now open\n# TYPE cove_open gauge\n"
                      "cove_open 3\ncove_open 0.5\n"
                      "cove_open{code=\"200\",path=\"/x\"} 1e+15\n");
    buf_free(&b);
}

TEST(a_label_cannot_end_early)
{
    struct buf b = { 0 };

    prom_value(&b, "m", (const char *const[]){ "l", "a\"b\\c\nd", NULL }, 1);
    CHECK_STR(b.data, "m{l=\"a\\\"b\\\\c\\nd\"} 1\n");
    b.len = 0;
    prom_value(&b, "m", (const char *const[]){ "l", "", NULL }, -1);
    CHECK_STR(b.data, "m{l=\"\"} -1\n");
    buf_free(&b);
}

TEST(counters_stay_exact_up_to_fifteen_digits)
{
    struct buf b = { 0 };

    prom_value(&b, "m", NULL, 123456789012345);
    CHECK_STR(b.data, "m 123456789012345\n");
    buf_free(&b);
}
