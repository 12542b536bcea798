/* api.h - the facades: route tables over the calls of control/. A facade renames and reshapes, it
 * decides nothing. What the tables say is what is served, checked, documented at /docs and tested.
 *
 * The server: struct httpd { .tables = api_tables, .ctx = &api, .before = api_before,
 * .failing = api_failing, .refuse = api_refuse, .tell_id = true }. */
#ifndef API_API_H
#define API_API_H

#include "control/control.h"
#include "io/httpd.h"

struct router;
struct fetch;
struct netrange_list;

enum { API_BODY_MAX = 1 << 20 }; /* what is larger is data, and data goes to the guest */

struct api { /* httpd.ctx; all borrowed */
    struct control *control;
    struct router *router;       /* the router's own; may be NULL */
    const struct httpd *preview; /* the other listener, for its counters; may be NULL */
    void (*metrics)(struct api *a, struct buf *out); /* more of them for /metrics; may be NULL */
    struct fetch *fetch;                 /* for files from and to URLs; NULL: none are */
    const struct netrange_list *proxies; /* that are believed in whom they ask for; may be NULL */
    const char *version;
    bool tls; /* clients reach us by https */
    struct {
        const char *template;    /* of sandboxes that name none */
        const char *scheme;      /* of their ports' URLs */
        const char *preview_url; /* with by_path: what such a URL begins with */
        bool by_path;            /* ports are shown on the preview listener */
        int64_t mcp_port, code_port;
    } contract;
};

extern const struct route *const api_tables[]; /* ends with NULL */

/* Who asks, by X-API-Key or Authorization: Bearer; refuses what the route does not allow them. */
int api_before(struct call *c, struct err *err);
/* Tells clients that repeat requests by themselves whether that makes sense; and those who are no
 * admins not where the machine has its files: the log has the whole sentence. */
void api_failing(struct call *c, struct err *err);
/* The same for a sentence that was kept, of why a sandbox ended say. NULL stays NULL. */
const char *api_public_text(struct call *c, const char *text);

/* Errors of the contract's paths, in their form; for struct httpd. */
bool api_refuse(struct call *c, const struct err *err);

struct api *api_of(struct call *c);
/* The address of the client, as far as trusted proxies say it; "": a Unix socket's. */
const char *api_client(struct call *c);
struct str api_credential(const struct call *c); /* key or token, as it came; empty: none */
struct actor *api_actor(struct call *c);         /* NULL: an open route, nobody asked to be known */
/* The same for open routes that some callers may use with a key only. */
int api_authenticate(struct call *c, struct err *err);

/* ---- for the handlers of the facades ---- */

/* The target's parameters by the route's `query` table, into a zeroed struct of that table. */
int api_query(struct call *c, void *out, struct err *err);
/* A view by the route's `reply` table with the route's status. */
int api_reply(struct call *c, const void *view);
int api_reply_empty(struct call *c);                   /* 204 */
const char *api_time(struct call *c, int64_t unix_ms); /* RFC 3339; NULL for 0 */

struct api_list { /* an answer that callbacks write item by item, wherever they run */
    struct call *call;
    struct buf json;
    int64_t n;
};
/* An array, or with ROUTE_LIST not set an object whose first field is one. */
void api_list_begin(struct api_list *l, struct call *c);
void api_list_add(struct api_list *l, const void *view);
int api_list_end(struct api_list *l, int failed); /* answers, unless failed; frees; 0 or -1 */

struct sandbox *api_sandbox(struct call *c, struct err *err); /* named by the path's first {name} */
/* The request's Idempotency-Key and a hash of what was asked, into the spec; refuses bad keys. */
int api_idempotency(struct call *c, const void *body, struct create_spec *s, struct err *err);
/* For lists of names in a query ("running,paused"): bits of the rows' values. */
int api_bits(const struct field_name *names, struct str list, const char *what, unsigned *out,
             struct err *err);

#endif
