/* parse.h - the small languages in what clients send: filters, times, cursors, keys. Bytes in,
 * values out; no I/O. */
#ifndef API_PARSE_H
#define API_PARSE_H

#include "base/err.h"
#include "base/field.h"

enum { PARSE_PAIRS_MAX = 64 };

/* "k=v&k2=v2", names and values percent-encoded. twice: the E2B SDKs encode each name and value,
 * then the whole once more, both inside the query's own encoding, which is off already. */
int parse_metadata(struct arena *a, struct str text, bool twice, struct map *out, struct err *err);
int parse_time(struct str text, int64_t *unix_ms, struct err *err); /* RFC 3339 */
bool parse_cursor(struct str text);                                 /* "<ms>.<sandbox id>" */
bool parse_idempotency_key(struct str text); /* 1 to 255 of [a-z0-9-], as E2B has it */

#endif
