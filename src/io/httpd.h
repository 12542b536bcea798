/* httpd.h - the HTTP server: a table of routes, one coroutine per connection, one `struct call` per
 * request. A handler is straight code: it gets its body parsed, bounded and defaulted, answers with
 * call_reply() or streams with call_begin/send/end, and on failure only returns -1 with err set. */
#ifndef IO_HTTPD_H
#define IO_HTTPD_H

#include "base/field.h"
#include "base/list.h"
#include "io/seats.h"

struct call;
struct gunzip;

typedef int call_fn(struct call *c, void *body, struct err *err);

enum route_kind {
    ROUTE_JSON,    /* JSON in by the table; errors as {"code": 404, "message": ...} */
    ROUTE_RAW,     /* the handler reads the body itself; errors as above */
    ROUTE_UNARY,   /* Connect: protobuf's JSON in; errors as {"code": "not_found", ...} */
    ROUTE_STREAM,  /* Connect: one envelope in, envelopes out, errors in the last one */
    ROUTE_UPSTREAM /* Connect: envelopes in, read by the handler; one envelope out */
};

enum {
    ROUTE_OPEN = 1,     /* needs no credentials */
    ROUTE_SIGNED = 2,   /* a signed URL will do */
    ROUTE_ADMIN = 4,    /* only for admins */
    ROUTE_LENIENT = 8,  /* JSON: unknown keys and nulls of the body are passed over */
    ROUTE_LIST = 16,    /* the reply is an array of what `reply` describes */
    ROUTE_FORM = 32,    /* `fields` are those of multipart/form-data; F_BYTES is a file */
    ROUTE_OR_201 = 128, /* success is 200, or 201 with the same reply */
    ROUTE_BARE = 64,    /* the reply is not in the envelope that the document has for all others */
};

struct route {
    const char *method; /* NULL ends the table */
    const char *path;   /* exact, or with {name} segments */
    enum route_kind kind;
    unsigned flags;
    const struct field *fields; /* of the body; NULL: none */
    size_t size;                /* of the struct that fields fill */
    call_fn *fn;
    const char *operation;     /* operationId */
    const char *help;          /* one sentence */
    int64_t body_max;          /* 0: http.body-bytes */
    const struct field *query; /* parameters of the target; NULL: none */
    const struct field *reply; /* of the answer's object; NULL: not JSON, or none */
    int status;                /* of success; 0: 200 */
    const char *tag;           /* the group it is shown in; several by | */
};

struct httpd {
    const struct route *const *tables; /* ends with NULL */
    void *ctx;                         /* for the handlers */
    /* Sees each call before the tables do: 1 answered (a proxy), 0 go on, -1; may be NULL. */
    int (*first)(struct call *c, struct err *err);
    int (*before)(struct call *c, struct err *err); /* credentials; may be NULL */
    /* Sees each error before it is answered, to add headers, and to say less; may be NULL. */
    void (*failing)(struct call *c, struct err *err);
    /* Answers an error in a facade's own form: true; may be NULL. */
    bool (*refuse)(struct call *c, const struct err *err);
    /* Where a call comes from, for the log; NULL: its peer. */
    const char *(*from)(struct call *c);
    struct conn_guard *tls;  /* connections begin with its handshake; NULL: in plain text */
    bool ahead;              /* connections are made ahead: the first byte has http.idle-ms */
    bool cors;               /* any origin may call */
    bool tell_id;            /* X-Request-ID on every answer */
    int64_t conns, requests; /* now open; ever served */
    struct list serving;     /* coroutines at it; for httpd_close() */
    struct co_cond less;     /* of them */
    bool closing;
};

struct call {
    struct httpd *server;
    struct conn *conn;
    const struct route *route;
    void *user; /* who asks, as `before` found out; in the arena */
    struct arena arena;
    struct str path, query; /* of the target, as they came */
    struct str param[4];    /* decoded values of {name} segments, in order */
    struct http_body body;
    struct gunzip *gunzip; /* set when the body is compressed */
    struct buf headers;    /* "Name: value\r\n" lines for the answer */
    struct buf scratch;    /* the head under construction, Connect envelopes */
    char id[40];           /* the request's id, for logs and X-Request-ID; "" until asked for */
    int status;            /* of the answer; 0 before its head was written */
    bool head_only;        /* HEAD: the answer has no body */
    bool chunked;          /* the answer is being streamed in chunks */
    bool close;            /* the connection ends with this answer */
    struct seat *seat;     /* of the connection */
    struct http_head head;
};

/* Serves a listening socket until cancelled; owns it. */
void httpd_listen(struct httpd *d, int listener);
/* Serves one connection that something else accepted; owns it. -1: it was refused and closed. */
int httpd_serve(struct httpd *d, int fd);
/* Cuts off everybody and parks until no call is under way: what handlers use may go then. */
void httpd_close(struct httpd *d);

/* ---- for handlers ---- */

const char *call_id(struct call *c);
struct str call_query(struct call *c, const char *name,
                      struct err *err); /* decoded; .p NULL: none */
void call_header(struct call *c, const char *name,
                 const char *value); /* values are ours: no CR LF */
ssize_t call_read(struct call *c, void *buf, size_t n, struct err *err); /* decoded body bytes */
int call_read_all(struct call *c, struct buf *out, struct err *err);
int call_read_json(struct call *c, const struct field *table, enum field_mode mode, void *out,
                   struct err *err);

int call_reply(struct call *c, int status, const char *type, struct str body);
int call_reply_json(struct call *c, int status, const struct buf *json);
int call_begin(struct call *c, int status, const char *type, int64_t length); /* -1: not known */
/* After call_begin(), for what a process writes: waits for the client for as long as it lives. */
static inline void call_patient(struct call *c) { c->conn->patience = NEVER; }
int call_send(struct call *c, const void *p, size_t n);
int call_end(struct call *c);
int call_flush(struct call *c);
void call_fail(struct call *c, const struct err *err); /* the answer for an error, by route kind */

#endif
