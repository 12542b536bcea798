/* gzip.c - see gzip.h. */
#include "io/gzip.h"

#include <zlib.h>

#include "base/mem.h"

enum { PIECE = 16 << 10, GZIP_ONLY = 16 + MAX_WBITS, MEMBER_BEGINS = 0x1f };

struct gunzip {
    z_stream z;
    gunzip_source *source;
    void *arg;
    bool ended; /* a member has */
    unsigned char in[PIECE];
};

struct gunzip *gunzip_create(gunzip_source *source, void *arg)
{
    struct gunzip *g = xcalloc(1, sizeof(*g));

    g->source = source;
    g->arg = arg;
    if (inflateInit2(&g->z, GZIP_ONLY) != Z_OK)
        abort(); /* only memory can fail here */
    return g;
}

void gunzip_destroy(struct gunzip *g)
{
    if (!g)
        return;
    inflateEnd(&g->z);
    free(g);
}

static int refill(struct gunzip *g, struct err *err)
{
    ssize_t r = g->source(g->arg, g->in, sizeof(g->in), err);

    if (r < 0)
        return -1;
    if (!r)
        return err_set(err, ERR_INVALID, "the gzip body ended early");
    g->z.next_in = g->in;
    g->z.avail_in = (unsigned)r;
    return 0;
}

/* Behind the end of a member (RFC 1952 2.2): 1 another begins, 0 the body ends. Nothing else may
 * follow. */
static int next_member(struct gunzip *g, struct err *err)
{
    ssize_t r = g->z.avail_in ? 0 : g->source(g->arg, g->in, sizeof(g->in), err);

    if (r > 0) {
        g->z.next_in = g->in;
        g->z.avail_in = (unsigned)r;
    }
    if (!g->z.avail_in)
        return (int)r;
    if (*g->z.next_in != MEMBER_BEGINS)
        return err_set(err, ERR_INVALID, "bytes behind the end of the gzip body");
    inflateReset(&g->z);
    g->ended = false;
    return 1;
}

ssize_t gunzip_read(struct gunzip *g, void *buf, size_t n, struct err *err)
{
    n = MIN(n, (size_t)1 << 30);
    g->z.next_out = buf;
    g->z.avail_out = (unsigned)n;
    while (n && g->z.avail_out == n) {
        int r = g->ended ? next_member(g, err) : 1;

        if (r <= 0)
            return r;
        if (!g->z.avail_in && refill(g, err))
            return -1;
        r = inflate(&g->z, Z_NO_FLUSH);
        g->ended = r == Z_STREAM_END;
        if (!g->ended && r != Z_OK && r != Z_BUF_ERROR)
            return err_set(err, ERR_INVALID, "the body is not valid gzip");
    }
    return (ssize_t)(n - g->z.avail_out);
}

struct gzip {
    z_stream z;
    unsigned char out[PIECE];
};

struct gzip *gzip_create(void)
{
    struct gzip *g = xcalloc(1, sizeof(*g));

    if (deflateInit2(&g->z, 1, Z_DEFLATED, GZIP_ONLY, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    return g;
}

void gzip_destroy(struct gzip *g)
{
    if (!g)
        return;
    deflateEnd(&g->z);
    free(g);
}

int gzip_write(struct gzip *g, struct str in, bool last,
               int (*emit)(void *arg, const void *p, size_t n), void *arg)
{
    g->z.next_in = (unsigned char *)(uintptr_t)in.p;
    g->z.avail_in = (unsigned)in.n;
    do {
        g->z.next_out = g->out;
        g->z.avail_out = sizeof(g->out);
        deflate(&g->z, last ? Z_FINISH : Z_NO_FLUSH);
        if (g->z.avail_out < sizeof(g->out) && emit(arg, g->out, sizeof(g->out) - g->z.avail_out))
            return -1;
    } while (!g->z.avail_out);
    return 0;
}
