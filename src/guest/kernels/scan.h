/* scan.h - looking into JSON text without building a tree.
 *
 * Messages of kernels pass through us as they are; of most we need one or two strings. What is
 * scanned is checked to be JSON on the way, since it is pasted into texts of ours. Pure. */
#ifndef GUEST_KERNELS_SCAN_H
#define GUEST_KERNELS_SCAN_H

#include "base/arena.h"
#include "base/buf.h"

enum { SCAN_DEPTH = 1024 };

bool scan_valid(struct str json); /* one value of any kind, nested up to SCAN_DEPTH, in UTF-8 */

/* The text is an object: out[i] becomes the raw text of the value of names[i] (ends with NULL), or
 * .p NULL where there is none. Keys are compared as written. -1: not an object. */
int scan_object(struct str json, const char *const *names, struct str *out);
struct str scan_get(struct str json, const char *name); /* one of them; .p NULL: none */

/* The inside of a string that has no escapes; .p NULL: it is none, or has some. */
struct str scan_plain(struct str raw);
/* The text of any string, decoded; NULL: it is none, or has a NUL byte. Lives in the arena. */
char *scan_string(struct arena *a, struct str raw);

/* The other way: a string literal, which is one of Python and JavaScript too. Unlike json_put_str()
 * it knows nothing of commas. */
void scan_quote(struct buf *b, const char *text);

/* Walks an object: the next key (raw, with its quotes) and value; *rest begins as the object. */
bool scan_next(struct str *rest, struct str *key, struct str *value);
/* The same for an array; *rest begins as the array. */
bool scan_item(struct str *rest, struct str *value);

#endif
