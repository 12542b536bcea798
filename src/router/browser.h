/* browser.h - what browsers bring along: cookies, tokens in the query, and the fields that say
 * which page a request comes from. Pure. */
#ifndef ROUTER_BROWSER_H
#define ROUTER_BROWSER_H

#include "base/buf.h"
#include "io/http.h"

#define BROWSER_COOKIE        "cove-door"
#define BROWSER_COOKIE_SECURE "__Host-cove-door" /* where the browser comes by TLS */

struct browser_cookie {
    struct str name, value;
    struct str whole; /* as it is written */
};
/* The next of a Cookie field; false: no more. */
bool browser_next(struct str *rest, struct browser_cookie *out);
/* By its name: only we may set or see it. */
bool browser_is_ours(struct str name);

/* Fields that are kept, by the caller's word, in out; false: none is left. */
bool browser_keep(struct str field, bool (*keep)(void *arg, const struct browser_cookie *c),
                  void *arg, struct buf *out);
/* For a Set-Cookie: does it say Domain, so that other hosts get it? */
bool browser_has_domain(struct str set_cookie);
struct str browser_set_name(struct str set_cookie);

/* The first parameter of that name in a target's query, as it came; .p NULL: there is none. */
struct str browser_query(struct str target, const char *name);
/* The target without any of that name, nor a "?" that nothing follows. */
void browser_cut(struct str target, const char *name, struct buf *out);

/* May a cookie speak for this request? Browsers send it with what any page asks for: so the page
 * must be of this very origin, or the request no more than a way to a page. */
bool browser_own(const struct http_head *h);

#endif
