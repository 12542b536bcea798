/* gzip.h - zlib behind two small stream types: decoding a hostile body, encoding an answer. */
#ifndef IO_GZIP_H
#define IO_GZIP_H

#include "base/err.h"
#include "base/str.h"

struct gunzip;
struct gzip;

/* A reader of compressed bytes: >0 bytes, 0 the end, -1 with err (or errno EAGAIN). */
typedef ssize_t gunzip_source(void *arg, void *buf, size_t n, struct err *err);

struct gunzip *gunzip_create(gunzip_source *source, void *arg);
ssize_t gunzip_read(struct gunzip *g, void *buf, size_t n, struct err *err);
void gunzip_destroy(struct gunzip *g);

struct gzip *gzip_create(void);
/* Compresses all of in; calls emit with each piece that is ready. last ends the stream. */
int gzip_write(struct gzip *g, struct str in, bool last,
               int (*emit)(void *arg, const void *p, size_t n), void *arg);
void gzip_destroy(struct gzip *g);

#endif
