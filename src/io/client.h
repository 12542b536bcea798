/* client.h - HTTP/1.1 requests on coroutines, over connections that are kept for the next one.
 *
 * Whole requests: client_do(), then read x->head and x->body, then client_close(). Streamed ones:
 * client_start(), client_write() ..., client_end(), client_answer(). The proxy puts its own head
 * between client_open() and client_head().
 *
 * What can go wrong, by code and sentence: ERR_UPSTREAM "connect ...: <why>", "closed ... before
 * an answer", "broken answer: <what>"; ERR_TIMEOUT "connect ...: not within ..." and "no answer
 * within ..."; ERR_GONE when the calling coroutine was cancelled. */
#ifndef IO_CLIENT_H
#define IO_CLIENT_H

#include "io/http.h"
#include "io/sock.h"

struct client_limits {
    int64_t connect_ms, answer_ms, kept, kept_ms;
};
extern struct client_limits client_limits;
extern const struct setting client_settings[];

/* Returns a connected, non-blocking descriptor that becomes the client's, or -1 with err. */
typedef int client_dial(void *arg, int64_t until, struct err *err);

struct client_to {           /* where a request goes; all borrowed for the length of a call */
    const struct addr *addr; /* NULL: dial() makes the connection */
    client_dial *dial;
    void *arg;
    const char *key;               /* with dial or tls: the same key is the same server */
    struct conn_guard *tls;        /* its handshake comes first; NULL: plain text */
    const char *tls_name;          /* whom the certificate must name: a host name or an address */
    int64_t connect_ms, answer_ms; /* 0: client.connect-ms, client.answer-ms */
    bool whole;                    /* half an answer is none: see client_interrupt() */
};

enum { CLIENT_BUCKETS = 64 };

struct client {                         /* a pool of kept connections; one per loop */
    struct list kept;                   /* oldest first */
    struct list bucket[CLIENT_BUCKETS]; /* the same ones, by hash of their key */
    struct list busy[CLIENT_BUCKETS];   /* those with an exchange, likewise */
    int64_t count;                      /* kept now */
    uint64_t dialled, reused;           /* ever */
    struct co_ref sweeper;              /* closes what was kept too long; runs while any is */
    bool sweeping, finished;
};

void client_init(struct client *c);
/* Closes what is kept. Exchanges still open close theirs at their end, so c must outlive them. */
void client_finish(struct client *c);
void client_forget(struct client *c, const struct client_to *to); /* closes what is kept for it */
/* Whoever waits for an answer of it hears that it closed the connection; an answer that has begun
 * goes on, unless it is wanted whole. */
void client_interrupt(struct client *c, const struct client_to *to);

struct client_link;

struct exchange { /* one request and its answer */
    struct client *client;
    struct client_link *link;
    struct conn *conn; /* the server; after 101 the caller's to use until client_close() */
    int64_t answer_ms;
    bool reused;     /* an earlier request has used the connection */
    bool head_only;  /* the request is HEAD: its answer has no body; set before client_head() */
    bool sent;       /* all of the request: else the connection cannot be kept; set by the sender */
    bool chunked;    /* the request's body goes in chunks */
    bool answered;   /* head is the final answer's */
    bool whole;      /* as client_to has it */
    bool to_the_end; /* the body ends with the connection */
    struct http_body body;
    struct http_head head; /* slices are valid until the body is read */
};

enum { CLIENT_CHUNKED = -1 };

struct client_request {
    struct str method, target, host;
    struct str headers; /* "Name: value\r\n" lines, neither Host nor framing */
    struct str body;    /* of a whole request */
    int64_t length;     /* of the body that client_write() will send, or CLIENT_CHUNKED */
};

/* Sends and reads the head of the final answer. A kept connection that turns out to be closed is
 * replaced once, if repeating the request cannot do harm. */
struct exchange *client_do(struct client *c, const struct client_to *to,
                           const struct client_request *rq, struct err *err);
void client_close(struct exchange *x); /* keeps the connection if both sides are done with it */
void client_closep(struct exchange **x);

struct exchange *client_start(struct client *c, const struct client_to *to,
                              const struct client_request *rq, struct err *err);
int client_write(struct exchange *x, const void *p, size_t n, struct err *err); /* buffered */
int client_flush(struct exchange *x, struct err *err);
int client_end(struct exchange *x, struct str trailers, struct err *err); /* and flushes */
/* 1 the final answer's head, 0 closed before an answer (err is set), -1 with err. */
int client_answer(struct exchange *x, struct err *err);

/* ---- the pieces, for the proxy ---- */

struct exchange *client_open(struct client *c, const struct client_to *to, bool fresh,
                             struct err *err);
int client_head(struct exchange *x, int64_t until, struct err *err); /* one head, maybe 1xx */
/* May a request that failed on a kept connection go out once more? */
bool client_may_repeat(const struct exchange *x, struct str method, bool written);

#endif
