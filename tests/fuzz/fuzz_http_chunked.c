/* fuzz_http_chunked.c - the chunked coding, read through a connection whose bytes arrive in
 * pieces. Promise: however the bytes are cut and whichever call reads them, the same data, trailers
 * and verdict come out, and nothing behind the end is taken. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"
#include "io/http.h"

enum verdict { ENDED, UNFINISHED, REFUSED };

struct outcome {
    struct buf data, trailers;
    enum verdict verdict;
    size_t behind; /* bytes not taken */
    struct err err;
};

static int empty = -1; /* a pipe nobody writes to: reading it says EAGAIN, as a quiet peer does */

static void feed(struct conn *c, const uint8_t *p, size_t n)
{
    if (!c->in) {
        c->in = xmalloc(CONN_BUF);
        c->cap = CONN_BUF;
    }
    MUST(c->len + n <= c->cap);
    memcpy(c->in + c->len, p, n);
    c->len += n;
}

static ssize_t read_some(struct http_body *b, bool slices, size_t room, struct outcome *o)
{
    char space[4096];
    struct str s = { space, 0 };
    ssize_t r = slices ? http_body_next(b, &s, &o->err) : http_body_read(b, space, room, &o->err);

    if (r > 0)
        buf_add(&o->data, s.p, (size_t)r);
    return r;
}

/* step: how many bytes arrive at a time */
static void decode(const uint8_t *p, size_t n, size_t step, bool slices, struct outcome *o)
{
    struct http_head h = { .minor = 1, .chunked = true, .length = -1 };
    struct http_body b;
    struct conn c;
    size_t at = 0;

    *o = (struct outcome){ .verdict = UNFINISHED };
    conn_init(&c, empty);
    c.nowait = true;
    http_body_init(&b, &c, &h, HTTP_REQUEST);
    for (;;) {
        ssize_t r = read_some(&b, slices, 1 + step % 4096, o);

        if (r == 0)
            o->verdict = ENDED;
        if (r < 0 && (errno != EAGAIN || o->err.code))
            o->verdict = REFUSED;
        if (o->verdict != UNFINISHED || (r < 0 && at == n))
            break;
        if (r < 0) {
            size_t piece = MIN(step, n - at);

            feed(&c, p + at, piece);
            at += piece;
        }
        errno = 0;
    }
    o->behind = conn_ready(&c) + n - at;
    buf_add_str(&o->trailers, buf_str(&b.trailers));
    MUST(o->data.len == b.total);
    http_body_finish(&b);
    c.fd = -1;
    conn_finish(&c);
}

static void outcome_free(struct outcome *o)
{
    buf_free(&o->data);
    buf_free(&o->trailers);
}

static void must_agree(const struct outcome *a, const struct outcome *b)
{
    MUST(a->verdict == b->verdict);
    MUST(a->err.code == b->err.code);
    MUST(str_eq(buf_str(&a->data), buf_str(&b->data)));
    if (a->verdict != ENDED)
        return;
    MUST(str_eq(buf_str(&a->trailers), buf_str(&b->trailers)));
    MUST(a->behind == b->behind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, other;
    static const size_t steps[] = { 1, 2, 3, 7, 64, 1000 };

    if (empty < 0) {
        int p[2];

        MUST(!pipe2(p, O_NONBLOCK | O_CLOEXEC));
        empty = p[0];
    }
    if (size > CONN_BUF)
        return 0;
    decode(data, size, size ? size : 1, false, &whole);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (size / steps[i] > 600) /* each piece costs a system call */
            continue;
        decode(data, size, steps[i], i % 2, &other);
        must_agree(&whole, &other);
        outcome_free(&other);
    }
    decode(data, size, size ? size : 1, true, &other);
    must_agree(&whole, &other);
    outcome_free(&other);
    outcome_free(&whole);
    return 0;
}
