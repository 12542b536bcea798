/* router.h - requests for a port of a sandbox, on the way there and back.
 *
 * On the main listener it is the `first` hook: by host name ({port}-{id}.{domain}), by E2B's
 * headers or by those of agent-sandbox's router; everything else is the API's. On the preview
 * listener, for browsers without wildcard names, it is by path (/{id}/{port}/...) and nothing else
 * is served.
 *
 * Who may: judge.h. A public sandbox's ports are open to who knows its id, but for those of
 * services that run code, which ask for a credential as all ports of a private one do. The guest's
 * port is left to the guest, which asks for its token. No sandbox gets our keys and tokens
 * (strip.c), or a cookie through the preview listener, whose origin all of them share. */
#ifndef ROUTER_ROUTER_H
#define ROUTER_ROUTER_H

#include "control/control.h"
#include "io/httpd.h"

struct router;

extern const struct setting router_settings[];
extern const struct route *const router_preview_tables[]; /* no routes */

struct router_options {
    bool tls;                 /* we speak it */
    bool https;               /* browsers do: a proxy before us may add it */
    const char *const *names; /* more names that we go by; NULL-terminated; NULL: none; borrowed */
};
struct router *router_open(struct control *c, const struct router_options *o); /* borrows c */
void router_close(struct router *r); /* when no call is under way any more */

/* For struct httpd with ctx struct api, whose router it is: 1 answered, 0 not ours, -1. */
int router_first(struct call *c, struct err *err);
int router_preview(struct call *c, struct err *err); /* never 0 */

void router_metrics(const struct router *r, struct buf *out); /* Prometheus */

#endif
