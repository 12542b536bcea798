/* test_gzip.c - compressed bodies in and out. */
#include "io/gzip.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "test.h"

static struct err err;

static int emit(void *arg, const void *p, size_t n)
{
    CHECK(n > 0);
    buf_add(arg, p, n);
    return 0;
}

static void pack(struct buf *out, const void *p, size_t n, size_t step)
{
    struct gzip *g = gzip_create();

    for (size_t at = 0; at < n; at += step)
        CHECK_INT(gzip_write(g, (struct str){ (const char *)p + at, MIN(step, n - at) }, false,
                             emit, out),
                  0);
    CHECK_INT(gzip_write(g, (struct str){ 0 }, true, emit, out), 0);
    gzip_destroy(g);
}

struct source {
    struct str s;
    size_t step;
    bool pause; /* says EAGAIN before each piece */
    bool paused;
};

static ssize_t read_source(void *arg, void *buf, size_t n, struct err *e)
{
    struct source *s = arg;

    if (s->pause && !s->paused) {
        s->paused = true;
        errno = EAGAIN;
        return -1;
    }
    (void)e;
    s->paused = false;
    n = MIN(n, s->step);
    n = MIN(n, s->s.n);
    if (n)
        memcpy(buf, s->s.p, n);
    s->s.p += n;
    s->s.n -= n;
    return (ssize_t)n;
}

static int unpack(struct str packed, size_t step, size_t room, struct buf *out)
{
    struct source s = { packed, step, false, false };
    struct gunzip *g = gunzip_create(read_source, &s);
    ssize_t r;

    err = (struct err){ 0 };
    do {
        buf_reserve(out, room);
        r = gunzip_read(g, out->data + out->len, room, &err);
        out->len += r > 0 ? (size_t)r : 0;
    } while (r > 0);
    gunzip_destroy(g);
    return (int)r;
}

TEST(what_was_packed_comes_back_however_it_is_cut)
{
    static const size_t sizes[] = { 0, 1, 100, 16384, 16385, 400000 };
    static const size_t steps[] = { 1, 10, 1000, SIZE_MAX };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
            struct buf in = { 0 }, packed = { 0 }, back = { 0 };

            for (size_t n = 0; n < sizes[i]; n++)
                buf_putc(&in, (char)(n * n >> 7));
            pack(&packed, in.data, in.len, MAX(steps[k] / 2, (size_t)100));
            CHECK_INT(unpack(buf_str(&packed), steps[k], 1 + steps[k] % 5000, &back), 0);
            CHECK(str_eq(buf_str(&in), buf_str(&back)));
            buf_free(&in);
            buf_free(&packed);
            buf_free(&back);
        }
}

TEST(a_cut_body_is_refused_at_every_length)
{
    struct buf packed = { 0 }, out = { 0 };

    pack(&packed, "hello hello hello", 17, 100);
    for (size_t n = 0; n < packed.len; n++) {
        out.len = 0;
        CHECK_INT(unpack((struct str){ packed.data, n }, 100, 100, &out), -1);
        CHECK_STR(err.msg, "the gzip body ended early");
        CHECK_INT(err.code, ERR_INVALID);
    }
    CHECK_INT(unpack(buf_str(&packed), 100, 100, &out), 0);
    buf_free(&packed);
    buf_free(&out);
}

TEST(what_is_not_gzip_is_refused)
{
    struct buf out = { 0 }, packed = { 0 };

    CHECK_INT(unpack(STR("hello, this is text"), 100, 100, &out), -1);
    CHECK_STR(err.msg, "the body is not valid gzip");
    CHECK_INT(unpack(STR("\x78\x9c\x03\x00\x00\x00\x00\x01"), 100, 100, &out), -1); /* zlib's own */
    CHECK_STR(err.msg, "the body is not valid gzip");
    pack(&packed, "hello", 5, 100);
    packed.data[packed.len - 5] ^= 1; /* the checksum */
    CHECK_INT(unpack(buf_str(&packed), 100, 100, &out), -1);
    CHECK_STR(err.msg, "the body is not valid gzip");
    buf_free(&packed);
    buf_free(&out);
}

TEST(bytes_behind_the_end_are_refused)
{
    struct buf packed = { 0 }, out = { 0 };

    pack(&packed, "a", 1, 100);
    buf_putc(&packed, 'x');
    for (size_t step = 1; step <= packed.len; step++) {
        out.len = 0;
        CHECK_INT(unpack(buf_str(&packed), step, 100, &out), -1);
        CHECK_STR(err.msg, "bytes behind the end of the gzip body");
        CHECK_INT(out.len, 1); /* what was right was delivered */
    }
    buf_free(&packed);
    buf_free(&out);
}

/* RFC 1952 2.2: what `cat a.gz b.gz` makes, and every parallel packer. */
TEST(members_behind_one_another_are_one_body)
{
    struct buf packed = { 0 }, out = { 0 };
    size_t whole;

    pack(&packed, "a", 1, 100);
    for (int i = 0; i < 1000; i++)
        pack(&packed, "", 0, 100);
    pack(&packed, "bc", 2, 100);
    whole = packed.len;
    for (size_t step = 1; step < 50; step++) {
        out.len = 0;
        CHECK_INT(unpack(buf_str(&packed), step, 1 + step % 2, &out), 0);
        CHECK(str_is(buf_str(&out), "abc"));
    }
    out.len = 0;
    CHECK_INT(unpack((struct str){ packed.data, whole - 1 }, 100, 100, &out), -1);
    CHECK_STR(err.msg, "the gzip body ended early");
    buf_puts(&packed, "\x1f!");
    out.len = 0;
    CHECK_INT(unpack(buf_str(&packed), 100, 100, &out), -1);
    CHECK_STR(err.msg, "the body is not valid gzip");
    CHECK(str_is(buf_str(&out), "abc")); /* what was right was delivered */
    buf_free(&packed);
    buf_free(&out);
}

TEST(a_worker_may_come_back_for_the_rest)
{
    struct buf packed = { 0 }, out = { 0 };
    struct source s;
    struct gunzip *g;
    int pauses = 0;
    ssize_t r;

    pack(&packed, "hello ", 6, 100);
    pack(&packed, "hello", 5, 100);
    s = (struct source){ buf_str(&packed), 3, true, false };
    g = gunzip_create(read_source, &s);
    err = (struct err){ 0 };
    do {
        char room[4];

        errno = 0;
        r = gunzip_read(g, room, sizeof(room), &err);
        if (r > 0)
            buf_add(&out, room, (size_t)r);
        pauses += r < 0;
    } while (r > 0 || (r < 0 && errno == EAGAIN));
    CHECK_INT(r, 0);
    CHECK_INT(err.code, ERR_NONE);
    CHECK(pauses > 3);
    CHECK_STR(out.data, "hello hello");
    gunzip_destroy(g);
    gunzip_destroy(NULL);
    buf_free(&packed);
    buf_free(&out);
}

static int refuse_all(void *arg, const void *p, size_t n)
{
    (void)p;
    *(size_t *)arg += n;
    return -1;
}

TEST(packing_stops_when_nobody_takes_it)
{
    struct gzip *g = gzip_create();
    size_t offered = 0;

    CHECK_INT(gzip_write(g, STR("x"), true, refuse_all, &offered), -1);
    CHECK(offered > 0);
    gzip_destroy(g);
    gzip_destroy(NULL);
}

TEST(a_bomb_is_unpacked_only_as_far_as_is_asked)
{
    static char zeros[1 << 20];
    struct buf packed = { 0 };
    struct source s;
    struct gunzip *g;
    char room[1000];

    pack(&packed, zeros, sizeof(zeros), SIZE_MAX / 2);
    CHECK(packed.len < 20000);
    s = (struct source){ buf_str(&packed), SIZE_MAX, false, false };
    g = gunzip_create(read_source, &s);
    CHECK_INT(gunzip_read(g, room, sizeof(room), &err), sizeof(room));
    gunzip_destroy(g);
    buf_free(&packed);
}
