/* test_tag.c - tagged fields: what is written is read again, by releases that know more or less. */
#include "base/tag.h"

#include <stdlib.h>

#include "test.h"

struct inner {
    char text[8];
    uint32_t n;
};

struct thing {
    uint8_t flag;
    uint32_t small;
    int32_t pid;
    uint64_t big;
    int64_t when;
    char name[6];
    struct inner one;
    uint32_t count;
    struct inner items[3];
};

static const struct tag_field inner_fields[] = {
    TAG_ROW(1, TAG_TEXT, struct inner, text),
    TAG_ROW(2, TAG_UINT, struct inner, n),
    { 0 },
};

static const struct tag_field fields[] = {
    TAG_ROW(1, TAG_UINT, struct thing, flag),
    TAG_ROW(2, TAG_UINT, struct thing, small),
    TAG_ROW(3, TAG_INT, struct thing, pid),
    TAG_ROW(4, TAG_UINT, struct thing, big),
    TAG_ROW(5, TAG_INT, struct thing, when, .def = INT64_MAX),
    TAG_ROW(6, TAG_TEXT, struct thing, name),
    TAG_ROW(7, TAG_STRUCT, struct thing, one, .sub = inner_fields),
    TAG_ROWS(8, TAG_STRUCT, struct thing, items, count, .sub = inner_fields),
    { 0 },
};

/* A release that knows less: of the struct, of what is in it, and of its list. */
static const struct tag_field less_inner[] = {
    TAG_ROW(1, TAG_TEXT, struct inner, text),
    { 0 },
};

static const struct tag_field less[] = {
    TAG_ROW(2, TAG_UINT, struct thing, small),
    TAG_ROW(7, TAG_STRUCT, struct thing, one, .sub = less_inner),
    TAG_ROWS(8, TAG_STRUCT, struct thing, items, count, .sub = less_inner),
    { 0 },
};

static struct buf bytes, unknown;
static struct thing out;
static struct err err;

static struct str write_thing(const struct tag_field *t, const struct thing *s, struct str rest)
{
    bytes.len = 0;
    err = (struct err){ 0 };
    CHECK_INT(tag_encode(t, s, rest, &bytes, &err), 0);
    return buf_str(&bytes);
}

static void read_thing(const struct tag_field *t, struct str in)
{
    memset(&out, 0x55, sizeof(out));
    err = (struct err){ 0 };
    if (tag_decode(t, &out, in, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
}

static void refused(struct str in, enum err_code code, const char *says)
{
    err = (struct err){ 0 };
    CHECK_INT(tag_decode(fields, &out, in, &err), -1);
    CHECK_INT(err.code, code);
    CHECK_STR(err.msg, says);
}

static struct thing full(void)
{
    return (struct thing){ .flag = 1,
                           .small = UINT32_MAX,
                           .pid = -2,
                           .big = UINT64_MAX,
                           .when = INT64_MIN,
                           .name = "abcde",
                           .one = { "inner", 7 },
                           .count = 2,
                           .items = { { "", 0 }, { "second", 1 << 20 } } };
}

static void check_full(void)
{
    CHECK_INT(out.flag, 1);
    CHECK_INT(out.small, UINT32_MAX);
    CHECK_INT(out.pid, -2);
    CHECK(out.big == UINT64_MAX);
    CHECK(out.when == INT64_MIN);
    CHECK_STR(out.name, "abcde");
    CHECK_STR(out.one.text, "inner");
    CHECK_INT(out.one.n, 7);
    CHECK_INT(out.count, 2);
    CHECK_STR(out.items[0].text, "");
    CHECK_STR(out.items[1].text, "second");
    CHECK_INT(out.items[1].n, 1 << 20);
}

TEST(what_is_written_is_read_again)
{
    struct thing s = full();

    read_thing(fields, write_thing(fields, &s, (struct str){ 0 }));
    check_full();
}

TEST(numbers_take_as_many_bytes_as_they_need)
{
    static const int64_t values[] = { 0,        1,      -1,        127,       128,
                                      -128,     -129,   255,       256,       32767,
                                      32768,    -32769, INT32_MAX, INT32_MIN, INT64_MAX - 1,
                                      INT64_MIN };

    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct thing s = { .when = values[i], .big = (uint64_t)values[i] };

        read_thing(fields, write_thing(fields, &s, (struct str){ 0 }));
        CHECK(out.when == values[i]);
        CHECK(out.big == (uint64_t)values[i]);
    }
    write_thing(fields, &(struct thing){ .when = INT64_MAX, .small = 200 }, (struct str){ 0 });
    CHECK_INT(bytes.len, 5);
}

TEST(the_bytes_are_the_same_on_every_machine)
{
    static const char want[] = "\x02\0\x02\0\x34\x12\x03\0\x01\0\xff\x06\0\x02\0hi";

    write_thing(fields,
                &(struct thing){ .small = 0x1234, .pid = -1, .when = INT64_MAX, .name = "hi" },
                (struct str){ 0 });
    CHECK_INT(bytes.len, sizeof(want) - 1);
    CHECK(!memcmp(bytes.data, want, bytes.len));
}

TEST(what_is_missing_has_its_default)
{
    read_thing(fields, (struct str){ "", 0 });
    CHECK_INT(out.flag, 0);
    CHECK_INT(out.pid, 0);
    CHECK(out.when == INT64_MAX);
    CHECK_STR(out.name, "");
    CHECK_STR(out.one.text, "");
    CHECK_INT(out.one.n, 0);
    CHECK_INT(out.count, 0);
    CHECK_INT(write_thing(fields, &(struct thing){ .when = INT64_MAX }, (struct str){ 0 }).n, 0);
}

TEST(who_knows_less_reads_what_it_knows_and_writes_back_the_rest)
{
    struct thing s = full();

    write_thing(fields, &s, (struct str){ 0 });
    read_thing(less, buf_str(&bytes));
    CHECK_INT(out.small, UINT32_MAX);
    CHECK_STR(out.items[1].text, "second");
    unknown.len = 0;
    tag_unknown(less, buf_str(&bytes), &unknown);
    s = (struct thing){ .small = UINT32_MAX,
                        .one = { "inner", 0 },
                        .count = 2,
                        .items = { { "", 0 }, { "second", 0 } } };
    write_thing(less, &s, buf_str(&unknown));
    read_thing(fields, buf_str(&bytes));
    check_full();
}

TEST(what_it_changes_meanwhile_is_not_undone)
{
    struct thing s = full();

    write_thing(fields, &s, (struct str){ 0 });
    unknown.len = 0;
    tag_unknown(less, buf_str(&bytes), &unknown);
    s.small = 5;
    s.count = 1;
    write_thing(less, &s, buf_str(&unknown));
    read_thing(fields, buf_str(&bytes));
    CHECK_INT(out.small, 5);
    CHECK_INT(out.count, 1);
    CHECK_STR(out.name, "abcde");
    CHECK_INT(out.one.n, 7);
}

TEST(where_all_is_known_nothing_is_kept)
{
    struct thing s = full();

    unknown.len = 0;
    tag_unknown(fields, write_thing(fields, &s, (struct str){ 0 }), &unknown);
    CHECK_INT(unknown.len, 0);
}

TEST(unknown_fields_of_two_files_come_together)
{
    unknown.len = 0;
    tag_put(20, STR("a"), &unknown, &err);
    bytes.len = 0;
    tag_put(20, STR("other"), &bytes, &err);
    tag_put(21, STR("b"), &bytes, &err);
    tag_merge(&unknown, buf_str(&bytes));
    CHECK(str_is(tag_find(buf_str(&unknown), 20), "a"));
    CHECK(str_is(tag_find(buf_str(&unknown), 21), "b"));
    CHECK_INT(tag_find(buf_str(&unknown), 22).n, 0);
}

TEST(a_field_that_must_be_understood_is_refused_by_who_does_not)
{
    refused(STR("\x09\x80\x01\0x"), ERR_UNSUPPORTED, "field 0x8009 is of a newer release");
    read_thing(fields, STR("\x09\0\x01\0x"));
}

TEST(damaged_fields_are_refused_by_name)
{
    refused(STR("\x02\0\x05"), ERR_INVALID, "a field is cut short");
    refused(STR("\x02\0\x05\0abc"), ERR_INVALID, "a field is cut short");
    refused(STR("\x02\0\x09\0abcdefghi"), ERR_INVALID, "field 'small' is a number of 9 bytes");
    refused(STR("\x02\0\x05\0abcde"), ERR_INVALID, "field 'small' is too large: 0x6564636261");
    refused(STR("\x01\0\x02\0\0\x01"), ERR_INVALID, "field 'flag' is too large: 0x100");
    refused(STR("\x03\0\x05\0\0\0\0\0\x01"), ERR_INVALID, "field 'pid' is too large: 0x100000000");
    refused(STR("\x02\0\x01\0a\x02\0\x01\0a"), ERR_INVALID, "field 'small' is given twice");
    refused(STR("\x06\0\x06\0abcdef"), ERR_INVALID,
            "field 'name' must be at most 5 bytes without a NUL");
    refused(STR("\x06\0\x02\0a\0"), ERR_INVALID,
            "field 'name' must be at most 5 bytes without a NUL");
    refused(STR("\x07\0\x02\0\x01\0"), ERR_INVALID, "one: a field is cut short");
    refused(STR("\x08\0\0\0\x08\0\0\0\x08\0\0\0\x08\0\0\0"), ERR_INVALID,
            "field 'items' has more than 3 items");
}

TEST(what_is_too_long_for_its_length_is_refused)
{
    char *big = calloc(1, 70000);

    bytes.len = 0;
    CHECK_INT(tag_put(1, (struct str){ big, 70000 }, &bytes, &err), -1);
    CHECK_INT(err.code, ERR_TOO_LARGE);
    free(big);
}
