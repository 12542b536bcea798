/* str.h - borrowed slices of text, and the small codecs: numbers, percent, base64, UTF-8.
 *
 * A struct str owns nothing and need not end in NUL. Everything here takes bytes and returns
 * values: no allocation unless an arena is passed. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

struct arena;

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){ (literal), sizeof(literal) - 1 })
#define STR_ARG(s)   (int)(s).n, (s).p /* for "%.*s" */

struct str str_of(const char *s); /* NULL gives the empty slice */
bool str_eq(struct str a, struct str b);
bool str_is(struct str s, const char *text);
bool str_ieq(struct str a, struct str b); /* ASCII case folded */
bool str_iis(struct str s, const char *text);
bool str_starts(struct str s, const char *prefix);
struct str str_trim(struct str s); /* spaces and tabs at both ends */
bool str_cut(struct str s, char sep, struct str *head,
             struct str *tail);                              /* false: no sep, head = s */
bool str_next(struct str *rest, char sep, struct str *item); /* trimmed items; false at the end */
bool str_has_item(struct str list, const char *item);        /* comma list, case folded */

int str_u64(struct str s, uint64_t *out); /* decimal digits only; -1 on anything else or overflow */
int str_i64(struct str s, int64_t *out);
int str_hex(struct str s, uint64_t *out);

/* %XX decoding; '+' is a space when plus is set. -1: a bad escape, or a NUL byte came out. */
int str_percent_decode(struct arena *a, struct str in, bool plus, struct str *out);

size_t base64_encoded_len(size_t n);
size_t base64_encode(const void *in, size_t n, char *out); /* no NUL; returns the length */
ssize_t base64_decode(struct str in, void *out); /* strict, padded; out needs n/4*3 bytes */

/* Feed bytes in pieces: state starts at 0; -1 as soon as the text cannot be UTF-8. */
int utf8_check(uint32_t *state, const void *p, size_t n);
bool utf8_valid(struct str s);

bool mem_equal_const(const void *a, const void *b, size_t n); /* time depends on n only */

#endif
