/* http.h - HTTP/1.1 messages: parsing heads, reading and writing bodies. Server, client and proxy
 * stand on it. Strict about framing, since a lenient parser is how requests are smuggled. */
#ifndef IO_HTTP_H
#define IO_HTTP_H

#include "base/setting.h"
#include "io/conn.h"

enum { HTTP_FIELDS = 128 };

/* Bounds, each with a name that error texts use; http_settings is their table. */
struct http_limits {
    int64_t header_bytes, header_count, body_bytes;
    int64_t header_ms, idle_ms, body_ms, write_ms;
    int64_t connections, peer_connections, reserve; /* see seats.h */
};
extern struct http_limits http_limits;
extern const struct setting http_settings[];

struct http_field {
    struct str name, value;
};

struct http_head { /* slices point into the connection's buffer: valid until the next fill */
    struct str method, target; /* requests */
    int status;                /* responses */
    int minor;                 /* HTTP/1.minor */
    int count;
    int64_t length; /* Content-Length, -1: none */
    bool chunked;   /* Transfer-Encoding: chunked */
    bool keep;      /* the connection may be used again */
    bool upgrade;   /* Connection: upgrade */
    bool expect;    /* Expect: 100-continue */
    struct http_field field[HTTP_FIELDS];
};

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

/* Returns the head's size, 0 when more bytes are needed, -1 with err when it is not valid. */
ssize_t http_parse(const char *buf, size_t n, enum http_kind kind, struct http_head *h,
                   struct err *err);
/* Field lines alone, as in trailers or multipart parts; the last line ends in CRLF CRLF. */
ssize_t http_parse_fields(const char *buf, size_t n, struct http_head *h, struct err *err);
struct str http_get(const struct http_head *h, const char *name); /* the first; .p NULL: none */
/* Makes the slices point into the arena, so that they outlive the next read. */
void http_head_keep(struct http_head *h, struct arena *a);
const char *http_reason(int status);

/* 1 a head was read, 0 the peer closed before the first byte, -1 with err. */
int http_read_head(struct conn *c, enum http_kind kind, struct http_head *h, struct err *err);

/* ---- bodies being read ---- */

struct http_body {
    struct conn *conn;
    int64_t left;   /* bytes of the chunk or body still to come; -1: until the peer closes */
    uint64_t total; /* decoded so far */
    uint64_t max;   /* the bound; beyond it reading fails with ERR_TOO_LARGE */
    bool chunked, first, done, expect;
    struct buf trailers; /* raw lines, when the sender had any */
};

void http_body_init(struct http_body *b, struct conn *c, const struct http_head *h,
                    enum http_kind kind);
void http_body_finish(struct http_body *b);
/* Asks for the body where the client waits to be asked; a worker cannot do it later. */
int http_body_want(struct http_body *b, struct err *err);
/* Decoded bytes; 0 at the end. In a worker (conn.nowait) -1 with errno EAGAIN asks for a wait. */
ssize_t http_body_read(struct http_body *b, void *buf, size_t n, struct err *err);
/* The same without a copy: a slice of the connection's buffer, valid until the next read of it. */
ssize_t http_body_next(struct http_body *b, struct str *out, struct err *err);
int http_body_read_all(struct http_body *b, struct buf *out, struct err *err);
bool http_body_drain(struct http_body *b, size_t most); /* false: more than most, or broken */

/* ---- bodies being written ---- */

int http_put(struct conn *c, struct str s); /* into the buffer, within the write time-out */
int http_flush(struct conn *c);
int http_put_chunk(struct conn *c, const void *p, size_t n);  /* n > 0 */
int http_put_last_chunk(struct conn *c, struct str trailers); /* "Name: value\r\n"... or empty */

#endif
