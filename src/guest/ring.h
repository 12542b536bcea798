/* ring.h - the last part of a process's output, addressed by offset.
 *
 * Both streams share one sequence of offsets in the order the bytes arrived. When the bound is
 * reached the oldest bytes fall out; first says where what is left begins. Pure data, no I/O. */
#ifndef GUEST_RING_H
#define GUEST_RING_H

#include <stdint.h>

#include "base/str.h"

enum { RING_APPEND_COST = (32 << 10) + 64 }; /* the most memory that one append takes */

enum ring_stream { RING_STDOUT, RING_STDERR, RING_PTY };

struct ring_chunk;

struct ring {                   /* zero-initialised is empty; set max first */
    struct ring_chunk **chunks; /* a queue in an array: chunks[head .. head+count) modulo cap */
    size_t head, count, cap;
    size_t bytes, max;   /* memory held, and its bound */
    uint64_t first, end; /* offsets: the oldest byte kept, and one past the newest */
};

struct ring_piece {
    enum ring_stream stream;
    uint64_t offset;
    struct str data; /* valid until the ring changes */
};

void ring_append(struct ring *r, enum ring_stream stream, struct str data);
/* Would one more append, of up to 32 KiB, push out bytes from offset on? Many small pieces take
 * more room than their bytes. */
bool ring_would_lose(const struct ring *r, uint64_t offset);
/* The bytes from offset on that one stream wrote in a row, at most max: false when offset is at the
 * end. An offset that fell out is moved up to first: the piece's offset tells. */
bool ring_get(const struct ring *r, uint64_t offset, size_t max, struct ring_piece *out);
void ring_clear(struct ring *r); /* forgets the bytes, keeps the offsets */

#endif
