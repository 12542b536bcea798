/* proxy.h - passes a call on to another HTTP server and its answer back, both streamed at once. */
#ifndef IO_PROXY_H
#define IO_PROXY_H

#include "io/client.h"
#include "io/httpd.h"

enum proxy_fault { /* why the upstream gave no answer: for a caller with a page for each */
                   PROXY_OK,
                   PROXY_CONNECT, /* refused, or no way there: ERR_UPSTREAM, or what dial() said */
                   PROXY_CONNECT_TIMEOUT, /* ERR_TIMEOUT */
                   PROXY_CLOSED,          /* closed before an answer: ERR_UPSTREAM */
                   PROXY_TIMEOUT,         /* no answer in time: ERR_TIMEOUT */
                   PROXY_BROKEN,          /* an answer that is not HTTP: ERR_UPSTREAM */
                   PROXY_CLIENT, /* not the upstream's fault: the client left or sent nonsense */
};

struct proxy {
    struct client *client;
    struct client_to to;
    struct str target;  /* .p NULL: as the call has it */
    struct str host;    /* .p NULL: as the call has it */
    const char *scheme; /* by which the call came, for X-Forwarded-Proto; NULL: http */
    bool trust;         /* an outer proxy of ours set X-Forwarded-Host and -Proto: keep them */
    struct str extra;   /* "Name: value\r\n" lines more for the upstream */
    /* Fields that go no further, of the request or of the answer; NULL: all do. Those that belong
     * to a connection or are the proxy's own are not asked about. */
    bool (*drop)(const struct http_field *f, bool answer);
    /* Is this answer, which has no length, what a process writes? Then the client is waited for as
     * long as it lives; else, and NULL, http.write-ms. */
    bool (*patient)(const struct http_head *answer);
    int64_t moved_at;       /* out, while it runs: when a byte last went either way */
    enum proxy_fault fault; /* out, with the error */
};

struct proxy_limits {
    int64_t tunnel_ms;
};
extern struct proxy_limits proxy_limits;
extern const struct setting proxy_settings[];

/* Answers the call. -1 with err and c->status 0: nothing was sent yet, the caller may answer in its
 * own words; -1 with c->status: the answer broke off, which the client must see as a cut. */
int proxy_call(struct proxy *p, struct call *c, struct err *err);

#endif
