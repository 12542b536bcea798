/* json.h - reading JSON strictly, writing it without a tree.
 *
 * Reading goes through jansson, which recurses; a scan refuses nesting beyond JSON_DEPTH first,
 * because a coroutine's stack is small. Writing appends to a buf: a comma is put where one is due,
 * judged by the byte before, so callers only say keys, values and ends. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

enum { JSON_DEPTH = 64 };

int json_check_depth(struct str text, struct err *err);
json_t *json_read(struct str text, struct err *err);     /* caller drops it; NULL with err */
json_t *json_read_nul(struct str text, struct err *err); /* strings may hold "\u0000" */
void json_dropp(json_t **j);                             /* for AUTO(json_dropp) */

void json_open(struct buf *b, char bracket);  /* '{' or '[' */
void json_close(struct buf *b, char bracket); /* '}' or ']' */
void json_key(struct buf *b, const char *key);
void json_put_str(struct buf *b, struct str s); /* bytes that are not UTF-8 become U+FFFD */
void json_put_int(struct buf *b, int64_t v);
void json_put_num(struct buf *b, double v);
void json_put_bool(struct buf *b, bool v);
void json_put_null(struct buf *b);
void json_put_raw(struct buf *b, struct str json); /* JSON text as it is */
void json_put_base64(struct buf *b, const void *p, size_t n);

/* key and value in one call */
void json_kv_str(struct buf *b, const char *key, const char *v); /* NULL: nothing written */
void json_kv_int(struct buf *b, const char *key, int64_t v);
void json_kv_bool(struct buf *b, const char *key, bool v);
void json_kv_int64s(struct buf *b, const char *key, int64_t v); /* as a string: protobuf's int64 */

#endif
