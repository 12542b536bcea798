/* enter.c - a browser that comes by a URL with a ticket (control/door.c): the ticket is spent, and
 * the browser sent to the same URL without it, with a cookie. So it is in no history, no Referer,
 * no bookmark, and in nothing that the sandbox sees.
 *
 * The cookie is of that origin alone: no Domain. SameSite is Lax: a link in somebody's mail comes
 * from another site, and after the redirect Strict would leave the cookie out. What Lax lets other
 * pages do, browser_own() does not. On the preview listener, whose origin all sandboxes share, it
 * is bound to the path; scripts of one origin can read each other all the same. */
#include <string.h>

#include "model/door.h"
#include "router/browser.h"
#include "router/impl.h"

static void set_cookie(struct way *w, const struct sandbox *s)
{
    struct call *c = w->call;
    bool by_path = w->target.by == BY_PATH, https = w->router->https;
    char value[DOOR_COOKIE];
    int64_t good_s = control_door_cookie(s, w->target.port, value);

    call_header(c, "Set-Cookie",
                arena_printf(&c->arena, "%s=%s; Path=%.*s; Max-Age=%lld; HttpOnly; SameSite=Lax%s",
                             https && !by_path ? BROWSER_COOKIE_SECURE : BROWSER_COOKIE, value,
                             by_path ? (int)w->target.prefix.n : 1,
                             by_path ? w->target.prefix.p : "/", (long long)good_s,
                             https ? "; Secure" : ""));
}

/* The browser stays at its origin, whatever the path is. A path that begins with "//" would name
 * another host: so the host goes in front of it, or "/." where the request named none. */
static int send_on(struct way *w, struct str target)
{
    struct call *c = w->call;

    call_header(c, "Location",
                w->fields.host.n ? arena_printf(&c->arena, "//%.*s%.*s", STR_ARG(w->fields.host),
                                                STR_ARG(target))
                                 : arena_printf(&c->arena, "/.%.*s", STR_ARG(target)));
    call_header(c, "Referrer-Policy", "no-referrer");
    call_header(c, "Cache-Control", "no-store");
    call_reply(c, 303, NULL, (struct str){ 0 });
    return 1;
}

int enter_browser(struct way *w, struct sandbox *s)
{
    struct call *c = w->call;
    AUTO(buf_free) struct buf rest = { 0 };
    struct str ticket = browser_query(c->head.target, DOOR_TICKET_NAME);
    bool taken;

    if (!ticket.p)
        return 0;
    if (!str_is(c->head.method, "GET")) /* a look by HEAD spends nothing */
        return way_refuse(w, WHY_TICKET);
    taken = control_door_take(s, w->target.port, ticket);
    w->known = taken || judge_knows(w, s);
    if (!w->known && judge_rule(w->kind, s)->enters != ALL)
        return way_refuse(w, WHY_TICKET);
    browser_cut(c->head.target, DOOR_TICKET_NAME, &rest);
    if (c->head.upgrade) { /* a WebSocket follows nobody: it goes its way without the ticket */
        w->left = (struct str){ arena_strdup(&c->arena, buf_str(&rest)), rest.len };
        return 0;
    }
    if (taken)
        set_cookie(w, s);
    return send_on(w, buf_str(&rest));
}
