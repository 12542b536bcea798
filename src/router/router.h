/* router.h - requests for a port of a sandbox, on the way there and back.
 *
 * On the main listener it is the `first` hook: by host name ({port}-{id}.{domain}), by E2B's
 * headers or by those of agent-sandbox's router; everything else is the API's. On the preview
 * listener, for browsers without wildcard names, it is by path (/{id}/{port}/...) and nothing else
 * is served.
 *
 * Who may: a public sandbox's ports are open to who knows its id; a private one's want its traffic
 * token (e2b-traffic-access-token), or, by agent-sandbox's headers, an API key that may see the
 * sandbox. The guest's port has a token of its own and is left to it. No sandbox is given a key or
 * token of ours, or a cookie through the preview listener, whose origin all of them share. */
#ifndef ROUTER_ROUTER_H
#define ROUTER_ROUTER_H

#include "control/control.h"
#include "io/httpd.h"

struct router;

extern const struct setting router_settings[];
extern const struct route *const router_preview_tables[]; /* no routes */

struct router *router_open(struct control *c, bool tls); /* borrows c */
void router_close(struct router *r);                     /* when no call is under way any more */

/* For struct httpd with ctx struct api, whose router it is: 1 answered, 0 not ours, -1. */
int router_first(struct call *c, struct err *err);
int router_preview(struct call *c, struct err *err); /* never 0 */

void router_metrics(const struct router *r, struct buf *out); /* Prometheus */

#endif
