/* strip.c - what a sandbox must not see of a request, and what must not come back from it.
 *
 * Our secrets are known by the name of their field, or by their value: by that also in
 * Authorization and among cookies, where the sandbox has a right to its own. */
#include <string.h>

#include "router/browser.h"
#include "router/impl.h"

/* ---- the request ---- */

struct stripping {
    const struct way *way;
    const struct sandbox *sandbox;
    bool cookie_gone;
};

static bool is_secret(const struct stripping *x, struct str value)
{
    return str_starts(value, "e2b_") || judge_is_token(x->sandbox, value) ||
           control_is_login(x->way->router->control, value);
}

/* Some write a value in quotes. */
static struct str unquoted(struct str s)
{
    return s.n > 1 && s.p[0] == '"' && s.p[s.n - 1] == '"' ? (struct str){ s.p + 1, s.n - 2 } : s;
}

static bool keep_cookie(void *arg, const struct browser_cookie *c)
{
    struct stripping *x = arg;
    bool ours = browser_is_ours(c->name) || is_secret(x, unquoted(c->value));

    x->cookie_gone |= ours;
    return !ours;
}

static bool keep_cookies(struct stripping *x, struct http_field *f)
{
    AUTO(buf_free) struct buf left = { 0 };
    struct arena *a = &x->way->call->arena;

    if (x->way->target.by == BY_PATH || !browser_keep(f->value, keep_cookie, x, &left))
        return false;
    if (x->cookie_gone) /* else as its client wrote it */
        f->value = (struct str){ arena_strdup(a, buf_str(&left)), left.len };
    return true;
}

/* In any of the ways in which a client gets it wrong, too: without a scheme, in quotes, by a tab.
 */
static bool has_secret(const struct stripping *x, struct str text)
{
    for (size_t i = 0, from = 0; i <= text.n; i++) {
        if (i < text.n && !strchr(" \t,\"", text.p[i]))
            continue;
        if (is_secret(x, (struct str){ text.p + from, i - from }))
            return true;
        from = i + 1;
    }
    return false;
}

static bool keep_authorization(const struct stripping *x, struct str value)
{
    /* agent-sandbox's router takes the credentials for itself */
    return x->way->target.by != BY_CLUSTER && !x->way->key_given && !has_secret(x, value);
}

static bool keep(struct stripping *x, struct http_field *f)
{
    if (target_is_ours(f))
        return false;
    switch (f->name.n) {
    case 6: return !str_iis(f->name, "cookie") || keep_cookies(x, f);
    case 7: /* of a page that may be another sandbox's: its query is not for this one */
        if (x->way->target.by == BY_PATH && str_iis(f->name, "referer"))
            str_cut(f->value, '?', &f->value, &(struct str){ 0 });
        return true;
    case 13: return !str_iis(f->name, "authorization") || keep_authorization(x, f->value);
    case 14:
        return x->way->target.port == PROVIDER_GUEST_PORT || !str_iis(f->name, "x-access-token") ||
               !is_secret(x, f->value);
    default: return true;
    }
}

static void strip_query(struct way *w, const struct sandbox *s)
{
    AUTO(buf_free) struct buf rest = { 0 };
    struct call *c = w->call;
    struct str target = w->left.p ? w->left : c->head.target;

    if (w->kind != JUDGE_DOOR || !judge_is_token(s, browser_query(target, "token")))
        return;
    browser_cut(target, "token", &rest);
    w->left = (struct str){ arena_strdup(&c->arena, buf_str(&rest)), rest.len };
}

void strip_request(struct way *w, const struct sandbox *s)
{
    struct stripping x = { w, s, false };
    struct http_head *h = &w->call->head;
    int n = 0;

    for (int i = 0; i < h->count; i++) {
        struct http_field f = h->field[i];

        if (keep(&x, &f))
            h->field[n++] = f;
    }
    h->count = n;
    strip_query(w, s);
}

/* ---- the answer ---- */

bool strip_host(const struct http_field *f, bool answer)
{
    return answer && str_iis(f->name, "set-cookie") &&
           (browser_has_domain(f->value) || browser_is_ours(browser_set_name(f->value)));
}

/* All previews are one origin, and what is routed by headers is of the API's, where cookies do not
 * even tell ports apart: what a sandbox sets here other sandboxes and other servers of this host
 * would get. The same goes for what else holds for a whole origin. */
bool strip_shared(const struct http_field *f, bool answer)
{
    if (!answer)
        return false;
    switch (f->name.n) {
    case 7: return str_iis(f->name, "alt-svc");
    case 10: return str_iis(f->name, "set-cookie");
    case 15: return str_iis(f->name, "clear-site-data");
    case 22: return str_iis(f->name, "service-worker-allowed");
    case 25: return str_iis(f->name, "strict-transport-security");
    default: return false;
    }
}
