/* gzip.c - see gzip.h. */
#include "io/gzip.h"

#include <zlib.h>

#include "base/mem.h"

enum { PIECE = 16 << 10, GZIP_ONLY = 16 + MAX_WBITS };

struct gunzip {
    z_stream z;
    gunzip_source *source;
    void *arg;
    bool ended;
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

/* Behind the end of the gzip stream nothing may follow. */
static ssize_t check_end(struct gunzip *g, struct err *err)
{
    ssize_t r = g->z.avail_in ? 1 : g->source(g->arg, g->in, sizeof(g->in), err);

    return r > 0 ? err_set(err, ERR_INVALID, "bytes behind the end of the gzip body") : r;
}

ssize_t gunzip_read(struct gunzip *g, void *buf, size_t n, struct err *err)
{
    if (g->ended || !n)
        return n ? check_end(g, err) : 0;
    g->z.next_out = buf;
    g->z.avail_out = (unsigned)MIN(n, (size_t)1 << 30);
    n = g->z.avail_out;
    while (g->z.avail_out == n) {
        int r;

        if (!g->z.avail_in && refill(g, err))
            return -1;
        r = inflate(&g->z, Z_NO_FLUSH);
        if (r == Z_STREAM_END) {
            g->ended = true;
            if (g->z.avail_out == n)
                return check_end(g, err);
            break;
        }
        if (r != Z_OK && r != Z_BUF_ERROR)
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
