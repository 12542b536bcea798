/* buf.c - see buf.h. */
#include "base/buf.h"

#include "base/mem.h"

void buf_reserve(struct buf *b, size_t more)
{
    size_t need = b->len + more + 1;

    if (LIKELY(need <= b->cap))
        return;
    b->cap = MAX(need, b->cap ? b->cap * 2 : (size_t)64);
    b->data = xrealloc(b->data, b->cap);
    b->data[b->len] = 0;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    buf_reserve(b, n);
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_add_str(struct buf *b, struct str s) { buf_add(b, s.p, s.n); }

void buf_puts(struct buf *b, const char *s) { buf_add(b, s, strlen(s)); }

void buf_putc(struct buf *b, char c) { buf_add(b, &c, 1); }

void buf_put_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t i = sizeof(digits);

    do
        digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    buf_add(b, digits + i, sizeof(digits) - i);
}

void buf_put_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_putc(b, '-');
    buf_put_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
    if (!n)
        return;
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1);
}

struct str buf_str(const struct buf *b) { return (struct str){ b->data, b->len }; }

const char *buf_cstr(const struct buf *b) { return b->data ? b->data : ""; }

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ 0 };
}
