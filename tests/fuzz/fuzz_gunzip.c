/* fuzz_gunzip.c - compressed bodies. Promises: how the bytes are cut makes no difference, and what
 * we compress ourselves comes back. */
#include "base/buf.h"
#include "fuzz.h"
#include "io/gzip.h"

enum { MOST = 1 << 20 }; /* a bomb is the caller's to bound; here it only costs time */

struct source {
    const uint8_t *p;
    size_t n, step;
};

static ssize_t read_source(void *arg, void *buf, size_t n, struct err *err)
{
    struct source *s = arg;

    (void)err;
    n = MIN(n, s->step);
    n = MIN(n, s->n);
    if (n)
        memcpy(buf, s->p, n);
    s->p += n;
    s->n -= n;
    return (ssize_t)n;
}

/* 0 the whole body, 1 there is more than MOST, -1 refused */
static int decode(const uint8_t *p, size_t n, size_t step, size_t room, struct buf *out,
                  struct err *err)
{
    struct source s = { p, n, step };
    struct gunzip *g = gunzip_create(read_source, &s);
    ssize_t r = 1;

    while (r > 0 && out->len < MOST) {
        buf_reserve(out, room);
        r = gunzip_read(g, out->data + out->len, room, err);
        MUST(r <= (ssize_t)room);
        if (r > 0)
            out->len += (size_t)r;
    }
    gunzip_destroy(g);
    MUST((r < 0) == (err->code != ERR_NONE));
    return (int)MIN(r, 1);
}

static void check_cuts(const uint8_t *p, size_t n)
{
    struct buf whole = { 0 }, pieces = { 0 };
    struct err err = { 0 }, other = { 0 };
    int r = decode(p, n, SIZE_MAX, 16384, &whole, &err);

    if (r != 1) {
        MUST(decode(p, n, 1, 1 + n % 700, &pieces, &other) == r);
        if (r == 0)
            MUST(str_eq(buf_str(&whole), buf_str(&pieces)));
        MUST(err.code == other.code && !strcmp(err.msg, other.msg));
    }
    buf_free(&whole);
    buf_free(&pieces);
}

static int emit(void *arg, const void *p, size_t n)
{
    buf_add(arg, p, n);
    return 0;
}

static void check_round_trip(const uint8_t *p, size_t n)
{
    struct buf packed = { 0 }, back = { 0 };
    struct err err = { 0 };
    struct gzip *g = gzip_create();
    size_t half = n / 2;

    MUST(!gzip_write(g, (struct str){ (const char *)p, half }, false, emit, &packed));
    MUST(!gzip_write(g, (struct str){ (const char *)p + half, n - half }, true, emit, &packed));
    gzip_destroy(g);
    MUST(!decode((uint8_t *)packed.data, packed.len, 100, 4096, &back, &err));
    MUST(str_eq(buf_str(&back), (struct str){ (const char *)p, n }));
    buf_free(&packed);
    buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_cuts(data, size);
    if (size && size < 4096)
        check_round_trip(data, size);
    return 0;
}
