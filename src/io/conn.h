/* conn.h - a buffered connection under HTTP, WebSocket and the proxy.
 *
 * Buffers come from a pool and go back while nothing is buffered, so that ten thousand idle
 * connections cost a page of stack each, not two buffers. */
#ifndef IO_CONN_H
#define IO_CONN_H

#include "base/err.h"
#include "io/co.h"

enum { CONN_BUF = 16 << 10 };

struct conn {
    int fd;          /* owned */
    char *in, *out;  /* pooled; NULL while empty */
    size_t cap;      /* of in */
    size_t pos, len; /* unread input is in[pos..len) */
    size_t used;     /* pending output is out[0..used) */
    unsigned burst;  /* reads in a row that did not have to wait */
    bool nowait;     /* reads fail with EAGAIN where the loop would park: for co_call() and proxy */
    bool peer_known;
    char peer[46]; /* see conn_peer() */
};

void conn_init(struct conn *c, int fd);
void conn_finish(struct conn *c); /* closes; what is still buffered is dropped */

static inline size_t conn_ready(const struct conn *c) { return c->len - c->pos; }
static inline struct str conn_peek(const struct conn *c)
{
    return (struct str){ c->in ? c->in + c->pos : NULL, c->len - c->pos };
}

/* Reads at least one byte behind what is there. 0 at the end of the stream; -1 with errno, ENOBUFS
 * when max bytes are buffered already. */
ssize_t conn_fill(struct conn *c, size_t max, int64_t until);
/* Like conn_fill with an empty buffer, for a wait of unknown length: gives stack pages back. */
ssize_t conn_fill_idle(struct conn *c, int64_t until);
ssize_t conn_read(struct conn *c, void *buf, size_t n, int64_t until);  /* buffered bytes first */
int conn_read_full(struct conn *c, void *buf, size_t n, int64_t until); /* -1 at an early end */

int conn_put(struct conn *c, const void *p, size_t n, int64_t until); /* buffered */
int conn_flush(struct conn *c, int64_t until);
bool conn_peer_left(const struct conn *c);       /* closed or reset, and nothing more to read */
bool conn_quiet(const struct conn *c);           /* open, and nothing to read */
const char *conn_peer(struct conn *c);           /* its IP address, "" for a Unix socket; cached */
void conn_fair(struct conn *c);                  /* after a read: lets others run now and then */
void conn_rest(struct conn *c);                  /* gives empty buffers back before a long wait */
void conn_end_output(struct conn *c);            /* the peer sees the end; reading goes on */
void conn_break(struct conn *c);                 /* whoever reads or writes it stops; still open */
void conn_linger(struct conn *c, int64_t until); /* lets the peer read our last words, then EOF */

#endif
