/* test_buf.c - growing text. */
#include "base/buf.h"
#include "test.h"

TEST(a_new_buf_is_the_empty_string)
{
    struct buf b = { 0 };

    CHECK_STR(buf_cstr(&b), "");
    CHECK_INT(buf_str(&b).n, 0);
    buf_free(&b);
    CHECK(!b.data);
}

TEST(text_ends_in_nul_after_every_step)
{
    struct buf b = { 0 };

    buf_reserve(&b, 10);
    CHECK_STR(buf_cstr(&b), "");
    buf_puts(&b, "ab");
    CHECK_STR(b.data, "ab");
    buf_putc(&b, 'c');
    CHECK_STR(b.data, "abc");
    buf_add(&b, "defg", 2);
    CHECK_STR(b.data, "abcde");
    buf_add_str(&b, STR("!"));
    CHECK_STR(b.data, "abcde!");
    buf_add(&b, NULL, 0);
    CHECK_STR(b.data, "abcde!");
    buf_reserve(&b, 100000);
    CHECK_STR(b.data, "abcde!");
    buf_free(&b);
}

TEST(numbers_are_written_in_full)
{
    struct buf b = { 0 };

    buf_put_u64(&b, 0);
    buf_putc(&b, ' ');
    buf_put_u64(&b, UINT64_MAX);
    buf_putc(&b, ' ');
    buf_put_i64(&b, INT64_MIN);
    buf_putc(&b, ' ');
    buf_put_i64(&b, INT64_MAX);
    buf_putc(&b, ' ');
    buf_put_i64(&b, -1);
    CHECK_STR(b.data, "0 18446744073709551615 -9223372036854775808 9223372036854775807 -1");
    buf_free(&b);
}

TEST(formatted_text_grows_the_buf_as_needed)
{
    struct buf b = { 0 };

    buf_printf(&b, "%s", "");
    CHECK_STR(buf_cstr(&b), "");
    buf_printf(&b, "%d-%s", 42, "x");
    buf_printf(&b, "%0500d", 7);
    CHECK_INT(b.len, 504);
    CHECK_INT(strlen(b.data), 504);
    CHECK(str_starts(buf_str(&b), "42-x0000"));
    CHECK_INT(b.data[503], '7');
    buf_free(&b);
}

TEST(dropping_keeps_what_is_behind)
{
    struct buf b = { 0 };

    buf_drop(&b, 0);
    buf_puts(&b, "hello world");
    buf_drop(&b, 0);
    buf_drop(&b, 6);
    CHECK_STR(b.data, "world");
    buf_drop(&b, 5);
    CHECK_STR(b.data, "");
    CHECK_INT(b.len, 0);
    buf_free(&b);
}

TEST(bytes_of_any_value_are_kept)
{
    struct buf b = { 0 };

    for (int i = 0; i < 4096; i++)
        buf_putc(&b, (char)i);
    CHECK_INT(b.len, 4096);
    for (int i = 0; i < 4096; i++)
        CHECK_INT(b.data[i], (char)i);
    buf_free(&b);
}
