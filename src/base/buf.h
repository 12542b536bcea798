/* buf.h - text or bytes that grow. data[len] is always NUL, so data is a C string too. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>

#include "base/str.h"

struct buf {    /* zero-initialised is empty and ready */
    char *data; /* owned; NULL until the first byte */
    size_t len, cap;
};

void buf_reserve(struct buf *b, size_t more); /* room for more bytes and the NUL */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_put_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF(2, 0);
void buf_drop(struct buf *b, size_t n); /* forget the first n bytes */
struct str buf_str(const struct buf *b);
const char *buf_cstr(const struct buf *b); /* never NULL */
void buf_free(struct buf *b);              /* for AUTO(buf_free) struct buf b = { 0 } */

#endif
