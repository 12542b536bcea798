/* arena.h - memory that lives as long as one request and is freed in one step. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/str.h"

struct arena_block;

struct arena {                 /* zero-initialised is empty and ready */
    struct arena_block *block; /* the newest; older ones hang behind it */
    size_t used;               /* bytes handed out, all blocks together */
};

void *arena_alloc(struct arena *a, size_t n); /* zeroed, aligned for any type */
char *arena_strdup(struct arena *a, struct str s);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);
void arena_reset(struct arena *a); /* keeps one small block for the next request */
void arena_free(struct arena *a);

#endif
