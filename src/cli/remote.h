/* remote.h - the commands that speak to a server: finding it, asking it, saying what went wrong in
 * one line.
 *
 * The server is where COVE_URL says, with the key in COVE_API_KEY; else the one that wrote
 * server.json and admin.key into the data directory. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <netdb.h>

#include "base/field.h"
#include "cli/args.h"
#include "provider/envd.h"

struct remote_options { /* what all of these commands have */
    const char *data;
    bool json;
};

/* For a struct that has them as its member `remote`. */
#define REMOTE_OPTIONS(type, json_help)                                                            \
    OPTION(type, remote.json, "json", ARGS_SWITCH, .help = (json_help)),                           \
        OPTION(type, remote.data, "data", ARGS_DIR, .value = "DIR",                                \
               .help = "the server on this data directory, whatever COVE_URL says")

struct remote {
    struct args *args;
    const struct remote_options *o;
    char *url, *host, *name, *key; /* "http://h:8000", "h:8000", "h", the API key */
    char *dir;                     /* the data directory it was found by; NULL: by COVE_URL */
    struct addrinfo *at;           /* where it may be; tried in this order */
    struct tls_context *tls;       /* NULL: plain */
    struct client client;
    struct client_to to;
};

/* A command's work, in the first coroutine: its exit status, or -1 with err. What it starts ends
 * with it. */
typedef int remote_fn(struct remote *r, struct err *err);

/* Finds the server, runs fn, and is the exit status of the command; says the error. */
int remote_command(struct args *a, const struct remote_options *o, remote_fn *fn);

/* The answer's body in reply (NULL: not wanted); ERR_NOT_FOUND and so on with the server's own
 * sentence when it is no success. body NULL: none. */
int remote_call(struct remote *r, const char *method, const char *target, const struct buf *body,
                struct buf *reply, struct err *err);
/* "X-API-Key: ...\r\n" */
void remote_put_headers(const struct remote *r, struct buf *b);
/* Percent-encoded, for a path or a query. */
void remote_put_encoded(struct buf *b, const char *text);
void remote_print(const struct buf *text); /* and the end of the line */

/* ---- a sandbox ---- */

struct remote_sandbox { /* strings in the arena given */
    char *id, *template, *state, *owner, *created, *started, *ends, *ended, *reason, *token;
    struct remote_limits *limits;
};
struct remote_limits {
    int64_t memory_bytes;
};
extern const struct field remote_sandbox_fields[];

int remote_sandbox(struct remote *r, const char *id, struct arena *a, struct remote_sandbox *out,
                   struct err *err);
/* "/v1/sandboxes/ID" and more behind it; refuses what cannot be an id. */
int remote_sandbox_target(const char *id, const char *more, struct buf *out, struct err *err);

struct remote_guest { /* a way to the guest of one; must not move while in use */
    struct envd envd;
    struct arena arena;
    struct buf headers;
    struct remote_sandbox sandbox;
};
int remote_guest_open(struct remote *r, const char *id, struct remote_guest *g, struct err *err);
void remote_guest_close(struct remote_guest *g);
/* After a call into it failed: was it because the sandbox has ended? Then err says so. */
void remote_guest_explain(struct remote *r, struct remote_guest *g, struct err *err);

/* ---- the pieces, for tests ---- */

struct remote_url {
    struct str host; /* with the port, as a Host header has it */
    struct str name; /* without, and without brackets */
    uint16_t port;
    bool tls;
};
int remote_parse_url(struct str text, struct remote_url *out, struct err *err);

#endif
