/* test_ring.c - the bounded memory of a process's output. */
#include "base/buf.h"
#include "guest/ring.h"
#include "test.h"

static void add(struct ring *r, enum ring_stream s, const char *text)
{
    ring_append(r, s, str_of(text));
}

static void read_all(const struct ring *r, uint64_t from, size_t max, struct buf *out)
{
    struct ring_piece p;

    while (ring_get(r, from, max, &p)) {
        buf_add_str(out, p.data);
        from = p.offset + p.data.n;
    }
}

TEST(small_writes_of_one_stream_are_read_as_one_piece)
{
    struct ring r = { .max = 4096 };
    struct ring_piece p;

    add(&r, RING_STDOUT, "he");
    add(&r, RING_STDOUT, "llo");
    CHECK(ring_get(&r, 0, 100, &p));
    CHECK_INT(p.data.n, 5);
    CHECK(!memcmp(p.data.p, "hello", 5));
    CHECK_INT(p.stream, RING_STDOUT);
    ring_clear(&r);
}

TEST(the_two_streams_keep_the_order_in_which_they_wrote)
{
    struct ring r = { .max = 4096 };
    struct ring_piece p;

    add(&r, RING_STDOUT, "out");
    add(&r, RING_STDERR, "err");
    add(&r, RING_STDOUT, "again");
    CHECK(ring_get(&r, 0, 100, &p));
    CHECK_INT(p.offset + p.data.n, 3);
    CHECK(ring_get(&r, 3, 100, &p));
    CHECK_INT(p.stream, RING_STDERR);
    CHECK(ring_get(&r, 6, 100, &p));
    CHECK_INT(p.stream, RING_STDOUT);
    CHECK_INT(p.data.n, 5);
    CHECK(!ring_get(&r, 11, 100, &p));
    ring_clear(&r);
}

TEST(reading_may_begin_at_any_byte)
{
    struct ring r = { .max = 1 << 20 };
    AUTO(buf_free) struct buf all = { 0 };

    for (int i = 0; i < 2000; i++) {
        AUTO(buf_free) struct buf line = { 0 };

        buf_printf(&line, "line %d\n", i);
        add(&r, i % 3 ? RING_STDOUT : RING_STDERR, buf_cstr(&line));
        buf_add_str(&all, buf_str(&line));
    }
    CHECK_INT(r.end, all.len);
    for (size_t from = 0; from < all.len; from += 777) {
        AUTO(buf_free) struct buf got = { 0 };

        read_all(&r, from, 100, &got);
        CHECK_INT(got.len, all.len - from);
        CHECK(!memcmp(got.data, all.data + from, got.len));
    }
    ring_clear(&r);
}

TEST(the_oldest_bytes_fall_out_at_the_bound_and_first_tells)
{
    struct ring r = { .max = 64 << 10 };
    struct ring_piece p;
    char block[1000];

    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 1000; i++)
        ring_append(&r, RING_STDOUT, (struct str){ block, sizeof(block) });
    CHECK_INT(r.end, 1000000);
    CHECK(r.first > 900000);
    CHECK(r.bytes <= r.max);
    CHECK(ring_get(&r, 0, 10, &p));
    CHECK_INT(p.offset, r.first);
    ring_clear(&r);
    CHECK_INT(r.first, r.end);
    CHECK(!ring_get(&r, 0, 10, &p));
}

TEST(alternating_single_bytes_stay_within_the_bound_too)
{
    struct ring r = { .max = 32 << 10 };

    for (int i = 0; i < 100000; i++)
        add(&r, i % 2 ? RING_STDOUT : RING_STDERR, "x");
    CHECK(r.bytes <= r.max);
    CHECK(r.first < r.end);
    ring_clear(&r);
}

TEST(one_write_larger_than_the_bound_keeps_its_end)
{
    struct ring r = { .max = 64 << 10 };
    AUTO(buf_free) struct buf big = { 0 };
    struct ring_piece p;

    for (int i = 0; i < 40000; i++)
        buf_printf(&big, "%08d", i);
    ring_append(&r, RING_STDOUT, buf_str(&big));
    CHECK_INT(r.end, big.len);
    CHECK(ring_get(&r, r.end - 8, 100, &p));
    CHECK(!memcmp(p.data.p, "00039999", 8));
    ring_clear(&r);
}
