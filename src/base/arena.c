/* arena.c - a chain of blocks; the first is small so that an idle connection costs little. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>

#include "base/mem.h"

enum { FIRST = 2048, ALIGN = 16 };

struct arena_block {
    struct arena_block *older;
    size_t pos, cap;
    _Alignas(ALIGN) char data[];
};

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_block *b = a->block;
    void *p;

    n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!b || b->cap - b->pos < n) {
        size_t cap = b ? MIN(b->cap * 2, (size_t)256 << 10) : FIRST;

        cap = MAX(cap, n);
        b = xmalloc(sizeof(*b) + cap);
        *b = (struct arena_block){ .older = a->block, .cap = cap };
        a->block = b;
    }
    p = b->data + b->pos;
    b->pos += n;
    a->used += n;
    memset(p, 0, n);
    return p;
}

char *arena_strdup(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);

    if (s.n)
        memcpy(p, s.p, s.n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    char *p;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    p = arena_alloc(a, (size_t)MAX(n, 0) + 1);
    vsnprintf(p, (size_t)MAX(n, 0) + 1, fmt, again);
    va_end(again);
    return p;
}

void arena_reset(struct arena *a)
{
    struct arena_block *b = a->block;

    while (b && (b->older || b->cap > FIRST)) {
        struct arena_block *older = b->older;

        free(b);
        b = older;
    }
    if (b)
        b->pos = 0;
    a->block = b;
    a->used = 0;
}

void arena_free(struct arena *a)
{
    for (struct arena_block *b = a->block, *older; b; b = older) {
        older = b->older;
        free(b);
    }
    *a = (struct arena){ 0 };
}
