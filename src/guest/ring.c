/* ring.c - a queue of chunks. Small writes of one stream share a chunk, so that a program which
 * prints byte by byte does not pay for a chunk each. */
#include "guest/ring.h"

#include <assert.h>

#include "base/mem.h"

enum { CHUNK_MIN = 256, CHUNK_MAX = 32 << 10 };

struct ring_chunk {
    uint64_t offset;
    size_t len, cap;
    enum ring_stream stream;
    char data[];
};
static_assert(sizeof(struct ring_chunk) + CHUNK_MAX <= RING_APPEND_COST, "one append, one chunk");

static struct ring_chunk *at(const struct ring *r, size_t i)
{
    return r->chunks[(r->head + i) & (r->cap - 1)];
}

static size_t cost(const struct ring_chunk *c) { return sizeof(*c) + c->cap; }

static void drop_oldest(struct ring *r)
{
    struct ring_chunk *c = at(r, 0);

    r->first = c->offset + c->len;
    r->bytes -= cost(c);
    r->head = (r->head + 1) & (r->cap - 1);
    r->count--;
    free(c);
}

static void grow_queue(struct ring *r)
{
    size_t cap = r->cap ? r->cap * 2 : 8;
    struct ring_chunk **chunks = xcalloc(cap, sizeof(struct ring_chunk *));

    for (size_t i = 0; i < r->count; i++)
        chunks[i] = at(r, i);
    free(r->chunks);
    r->chunks = chunks;
    r->cap = cap;
    r->head = 0;
}

static struct ring_chunk *add_chunk(struct ring *r, enum ring_stream stream, size_t need)
{
    struct ring_chunk *c;
    size_t cap = CHUNK_MIN;

    while (cap < need && cap < CHUNK_MAX)
        cap *= 2;
    c = xmalloc(sizeof(*c) + cap);
    *c = (struct ring_chunk){ .offset = r->end, .cap = cap, .stream = stream };
    while (r->count && r->bytes + cost(c) > r->max)
        drop_oldest(r);
    if (r->count == r->cap)
        grow_queue(r);
    r->chunks[(r->head + r->count++) & (r->cap - 1)] = c;
    r->bytes += cost(c);
    return c;
}

void ring_append(struct ring *r, enum ring_stream stream, struct str data)
{
    while (data.n) {
        struct ring_chunk *c = r->count ? at(r, r->count - 1) : NULL;
        size_t n;

        if (!c || c->stream != stream || c->len == c->cap) {
            /* a stream that keeps writing gets larger chunks */
            size_t hint = c && c->stream == stream ? c->cap * 2 : 0;

            c = add_chunk(r, stream, MAX(data.n, hint));
        }
        n = MIN(data.n, c->cap - c->len);
        memcpy(c->data + c->len, data.p, n);
        c->len += n;
        r->end += n;
        data = (struct str){ data.p + n, data.n - n };
    }
    if (!r->count)
        r->first = r->end;
}

bool ring_would_lose(const struct ring *r, uint64_t offset)
{
    size_t held = r->bytes + RING_APPEND_COST;

    for (size_t i = 0; i < r->count && held > r->max; i++) {
        if (at(r, i)->offset + at(r, i)->len > offset)
            return true;
        held -= cost(at(r, i));
    }
    return false;
}

bool ring_get(const struct ring *r, uint64_t offset, size_t max, struct ring_piece *out)
{
    size_t low = 0, high = r->count;
    struct ring_chunk *c;

    offset = MAX(offset, r->first);
    if (offset >= r->end || !r->count)
        return false;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;

        if (at(r, mid)->offset <= offset)
            low = mid;
        else
            high = mid;
    }
    c = at(r, low);
    *out = (struct ring_piece){
        .stream = c->stream,
        .offset = offset,
        .data = { c->data + (offset - c->offset), c->len - (size_t)(offset - c->offset) },
    };
    out->data.n = MIN(out->data.n, max);
    return true;
}

void ring_clear(struct ring *r)
{
    while (r->count)
        drop_oldest(r);
    free(r->chunks);
    r->chunks = NULL;
    r->cap = r->head = 0;
    r->first = r->end;
}
