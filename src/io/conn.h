/* conn.h - a buffered connection under HTTP, WebSocket and the proxy.
 *
 * Buffers come from a pool and go back while nothing is buffered, so that ten thousand idle
 * connections cost a page of stack each, not two buffers. */
#ifndef IO_CONN_H
#define IO_CONN_H

#include "base/err.h"
#include "io/co.h"

enum { CONN_BUF = 16 << 10, CONN_SLOW = 500 /* bytes a second; see conn_owed() */ };

struct conn;

/* What lies between a connection and its descriptor: TLS. Without one the system calls are used
 * directly. Kept behind a table so that the guest does not link what it has no use for. None of
 * these parks; -1 with errno EAGAIN asks for a wait. */
struct conn_ops {
    ssize_t (*read)(struct conn *c, void *buf, size_t n); /* 0: the peer said that it has ended */
    ssize_t (*write)(struct conn *c, const void *p, size_t n);
    ssize_t (*peek)(const struct conn *c); /* 1: there is something to read; else as read */
    int (*end)(struct conn *c);            /* says that our output ends here; -1 with errno */
    void (*finish)(struct conn *c);        /* frees layer */
};

/* What puts a layer on a new connection: a handshake, which parks. name: whom the peer must prove
 * to be, for clients. ERR_INVALID with a sentence: the peer does not speak the protocol at all, and
 * may be told so in plain text. */
struct conn_guard {
    int (*begin)(struct conn_guard *g, struct conn *c, const char *name, int64_t until,
                 struct err *err);
};

struct conn {
    int fd;                      /* owned */
    const struct conn_ops *ops;  /* NULL: none */
    void *layer;                 /* theirs */
    char *in, *out;              /* pooled; NULL while empty */
    size_t cap;                  /* of in */
    size_t pos, len;             /* unread input is in[pos..len) */
    size_t used;                 /* pending output is out[0..used) */
    unsigned burst;              /* reads in a row that did not have to wait */
    int64_t reads_at, writes_at; /* since when the peer is waited for, to say or to take; 0: not */
    int64_t owed_ms;             /* for how long in all, less what it said since: conn_owed() */
    int64_t patience;            /* until when http_put() waits for the peer; 0: http.write-ms */
    bool nowait; /* reads fail with EAGAIN where the loop would park: for co_call() and proxy */
    bool cut;    /* conn_cut() was called */
    bool turned; /* the last read waits for room to write: set by the layer */
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

/* Writing: a peer that takes something, however slowly, is given as long again as it was from the
 * call to `until`, which stands only where it is NEVER or `patience`. */
int conn_put(struct conn *c, const void *p, size_t n, int64_t until); /* buffered */
int conn_flush(struct conn *c, int64_t until);
/* Past the buffer, which must be empty or the first of v; changes v. All of it, or -1. */
int conn_writev(struct conn *c, struct iovec *v, int count, int64_t until);
/* After a read that met EAGAIN: 0 try again, -1 with errno. */
int conn_wait(struct conn *c, int64_t until);
/* Milliseconds that the peer has been waited for, in all, to say something; every CONN_SLOW bytes
 * that it says take one second off. */
int64_t conn_owed(const struct conn *c);
/* After a write that met EAGAIN. A peer that is found dead is ETIMEDOUT before `until`, even where
 * the wait has no end. */
int conn_wait_room(struct conn *c, int64_t until);
bool conn_peer_left(const struct conn *c);       /* closed or reset, and nothing more to read */
bool conn_quiet(const struct conn *c);           /* open, and nothing to read */
const char *conn_peer(struct conn *c);           /* its IP address, "" for a Unix socket; cached */
void conn_fair(struct conn *c);                  /* after a read: lets others run now and then */
void conn_rest(struct conn *c);                  /* gives empty buffers back before a long wait */
void conn_end_output(struct conn *c);            /* the peer sees the end; reading goes on */
void conn_break(struct conn *c);                 /* whoever reads or writes it stops; still open */
void conn_cut(struct conn *c);                   /* conn_finish() will look like a cut: a reset */
void conn_linger(struct conn *c, int64_t until); /* lets the peer read our last words, then EOF */

#endif
