/* connect.h - the Connect protocol in JSON: five-byte envelopes, and errors with a code's name.
 * The codec is pure; the rest speaks over a call. */
#ifndef IO_CONNECT_H
#define IO_CONNECT_H

#include "io/httpd.h"

enum { CONNECT_COMPRESSED = 1, CONNECT_END = 2, CONNECT_HEADER = 5 };

struct connect_frame {
    unsigned flags;
    uint32_t size;
};

/* 1 a header was read, 0 fewer than five bytes, -1 flags or size not acceptable. */
int connect_decode_header(const unsigned char *p, size_t n, uint32_t max, struct connect_frame *out,
                          struct err *err);
void connect_encode_header(unsigned char out[static CONNECT_HEADER], unsigned flags, uint32_t size);

/* Connect-Timeout-Ms: -1 none, else milliseconds; fails on nonsense. */
int connect_timeout(const struct http_head *h, int64_t *out_ms, struct err *err);

/* Keepalive-Ping-Interval in ms: how long a stream may be silent; 90 s where it makes no sense. */
int64_t connect_keepalive_ms(const struct http_head *h);

/* Reads the next envelope of the request: 1 with its payload in out, 0 at the end, -1. */
int connect_read(struct call *c, struct buf *out, struct err *err);
/* The one message of a server stream's request, by table. */
int connect_read_message(struct call *c, const struct field *table, void *out, struct err *err);

int connect_begin(struct call *c); /* 200 and the stream's headers */
/* A message is built in c->scratch behind five reserved bytes, then sent as one envelope. */
struct buf *connect_message(struct call *c);
int connect_put(struct call *c);      /* buffers what connect_message() began */
int connect_send(struct call *c);     /* the same, and flushes */
int connect_end(struct call *c);      /* the end-of-stream envelope, without error */
int connect_send_end(struct call *c); /* both, in one write */

void connect_reply_error(struct call *c, const struct err *err); /* unary */
void connect_end_error(struct call *c,
                       const struct err *err); /* a whole answer where the stream has not begun */

#endif
