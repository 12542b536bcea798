/* test_limits.c - the table of limits: defaults, bounds, and how they are said. */
#include "model/limits.h"

#include "test.h"

static struct err err;

static void check_said(enum limit_id id, uint64_t value, const char *want)
{
    char text[32];

    limits_format(id, value, text, sizeof(text));
    CHECK_STR(text, want);
}

TEST(zeroes_become_the_tables_defaults)
{
    struct limits l = { 0 };

    CHECK_INT(limits_fill(&l, NULL, &err), 0);
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        CHECK_INT(limits_get(&l, id), limit_rows[id].def);
    CHECK_INT(l.memory_bytes, 2LL << 30);
    CHECK_INT(l.cpu_milli, 2000);
    CHECK_INT(l.pids, 1024);
    CHECK_INT(l.io_weight, 100);
    CHECK_INT(l.open_files, 4096);
    CHECK_INT(l.disk_bytes, 10LL << 30);
    CHECK_INT(l.log_bytes, 1 << 20);
    CHECK_INT(l.lifetime_ms, 86400000);
}

TEST(a_template_comes_before_the_table_and_a_request_before_both)
{
    struct limits template = { .memory_bytes = 64 << 20, .pids = 99 }, l = { .pids = 50 };

    CHECK_INT(limits_fill(&l, &template, &err), 0);
    CHECK_INT(l.memory_bytes, 64 << 20);
    CHECK_INT(l.pids, 50);
    CHECK_INT(l.open_files, limit_rows[LIMIT_FILES].def);
}

TEST(every_row_takes_its_bounds_and_refuses_what_is_beyond_them_by_name)
{
    char start[64];

    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_row *row = &limit_rows[id];
        struct limits l = { 0 };

        *limits_field(&l, id) = row->min;
        CHECK_INT(limits_fill(&l, NULL, &err), 0);
        *limits_field(&l, id) = row->max;
        CHECK_INT(limits_fill(&l, NULL, &err), 0);
        *limits_field(&l, id) = row->max + 1;
        CHECK_INT(limits_fill(&l, NULL, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        snprintf(start, sizeof(start), "limit '%s' is ", row->name);
        CHECK(!strncmp(err.msg, start, strlen(start)));
        CHECK(strstr(err.msg, "it must be between "));
        *limits_field(&l, id) = UINT64_MAX;
        CHECK_INT(limits_fill(&l, NULL, &err), -1);
        if (row->min < 2)
            continue; /* below it is 0: the default */
        *limits_field(&l, id) = row->min - 1;
        CHECK_INT(limits_fill(&l, NULL, &err), -1);
    }
}

TEST(the_table_is_in_order)
{
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        const struct limit_row *row = &limit_rows[id];

        CHECK(row->name && *row->name && row->help && *row->help);
        CHECK(row->min && row->min <= row->def && row->def <= row->max);
        CHECK(row->max <= INT64_MAX); /* JSON and the command line have signed numbers */
    }
}

TEST(a_refusal_is_one_sentence_with_value_and_bounds)
{
    struct limits l = { .memory_bytes = 4096 };

    CHECK_INT(limits_fill(&l, NULL, &err), -1);
    CHECK_STR(err.msg, "limit 'memory' is 4 KiB; it must be between 16 MiB and 16 TiB");
    l = (struct limits){ .cpu_milli = 5 };
    CHECK_INT(limits_fill(&l, NULL, &err), -1);
    CHECK_STR(err.msg, "limit 'cpus' is 0.005; it must be between 0.01 and 1024");
}

TEST(values_are_said_in_the_unit_that_fits)
{
    check_said(LIMIT_MEMORY, 0, "0 bytes");
    check_said(LIMIT_MEMORY, 1023, "1023 bytes");
    check_said(LIMIT_MEMORY, 1024, "1 KiB");
    check_said(LIMIT_MEMORY, 1536, "1.5 KiB");
    check_said(LIMIT_MEMORY, 512 << 20, "512 MiB");
    check_said(LIMIT_DISK, 5ULL << 40, "5 TiB");
    check_said(LIMIT_DISK, 5ULL << 50, "5120 TiB");
    check_said(LIMIT_CPU, 1500, "1.5");
    check_said(LIMIT_CPU, 2000, "2");
    check_said(LIMIT_PIDS, 1024, "1024");
    check_said(LIMIT_LIFETIME, 1500, "1.5 s");
    check_said(LIMIT_LIFETIME, 86400000, "86400 s");
}
