/* judge.c - see judge.h. */
#include "router/judge.h"

#include "base/clock.h"
#include "model/door.h"
#include "model/signature.h"
#include "router/browser.h"
#include "router/impl.h"

/* ---- the rules ---- */

enum { COOKIES_MAX = 16 }; /* of our name: pages of other hosts below the domain can set more */

/* By whether it has an access token, and whether it is public. One without either was made by a
 * former release: its guest asks for nothing. */
static const struct judge_rule rules[JUDGE_PORTS][2][2] = {
    [JUDGE_PORT] = { { { KNOWN, KNOWN }, { ALL, ALL } }, { { KNOWN, KNOWN }, { ALL, ALL } } },
    [JUDGE_DOOR] = { { { KNOWN, KNOWN }, { ALL, ALL } }, { { KNOWN, KNOWN }, { KNOWN, KNOWN } } },
    [JUDGE_GUEST] = { { { KNOWN, KNOWN }, { ALL, ALL } }, { { ALL, KNOWN }, { ALL, KNOWN } } },
    [JUDGE_HEALTH] = { { { ALL, NOBODY }, { ALL, NOBODY } }, { { ALL, NOBODY }, { ALL, NOBODY } } },
};

const struct judge_rule *judge_rule(enum judge_port kind, const struct sandbox *s)
{
    return &rules[kind][s->token[0] != 0][s->public];
}

enum judge_port judge_port(const struct sandbox *s, uint16_t port, struct str path)
{
    if (port == PROVIDER_GUEST_PORT)
        return str_is(path, "/health") ? JUDGE_HEALTH : JUDGE_GUEST;
    return door_of_sandbox(s, port) ? JUDGE_DOOR : JUDGE_PORT;
}

/* ---- what is shown ---- */

static bool same_secret(struct str given, const char *secret)
{
    size_t n = strlen(secret);

    return n && given.n == n && mem_equal_const(given.p, secret, n);
}

bool judge_is_token(const struct sandbox *s, struct str given)
{
    return same_secret(given, s->token) || same_secret(given, s->traffic_token);
}

/* "Bearer x", and "token x" as Jupyter's clients have it. */
struct str judge_bearer(struct str authorization)
{
    struct str scheme, token;

    str_cut(authorization, ' ', &scheme, &token);
    return str_iis(scheme, "bearer") || str_iis(scheme, "token") ? str_trim(token)
                                                                 : (struct str){ 0 };
}

static bool is_signed(struct way *w, const struct sandbox *s)
{
    struct call *c = w->call;
    struct err err = { 0 };
    struct str path, user, signature, expiry;
    const char *operation = str_is(c->head.method, "POST") ? "write" : "read";

    if (!s->token[0] || !str_is(w->path, "/files"))
        return false;
    signature = call_query(c, "signature", &err);
    if (!signature.n)
        return false;
    path = call_query(c, "path", &err);
    user = call_query(c, "username", &err);
    expiry = call_query(c, "signature_expiration", &err);
    return !err.code && !signature_check(signature, path, operation, user, str_of(s->token), expiry,
                                         clock_wall_s(), &err);
}

static bool has_cookie(const struct way *w, const struct sandbox *s)
{
    struct str rest = w->fields.cookie;
    struct browser_cookie c;
    int tried = 0;

    if (!rest.n || !browser_own(&w->call->head))
        return false;
    while (browser_next(&rest, &c)) {
        if (!str_is(c.name, BROWSER_COOKIE) && !str_is(c.name, BROWSER_COOKIE_SECURE))
            continue;
        if (control_door_cookie_good(s, w->target.port, c.value))
            return true;
        if (++tried == COOKIES_MAX)
            break;
    }
    return false;
}

bool judge_knows(struct way *w, const struct sandbox *s)
{
    const struct target_fields *f = &w->fields;
    bool guest = w->kind == JUDGE_GUEST || w->kind == JUDGE_HEALTH;

    if (same_secret(f->access_token, s->token) || same_secret(f->traffic_token, s->traffic_token) ||
        judge_is_token(s, judge_bearer(f->authorization)) ||
        (w->target.by == BY_CLUSTER && same_secret(f->api_key, s->traffic_token)))
        return true;
    if (guest)
        return is_signed(w, s);
    if (w->kind == JUDGE_DOOR && judge_is_token(s, browser_query(w->call->head.target, "token")))
        return true; /* as Jupyter's clients say it to a WebSocket */
    return has_cookie(w, s);
}

/* 1 it may, 0 not, -1 nobody can tell now. */
static int key_allows(struct way *w, struct str key, struct err *err)
{
    struct actor who;

    if (control_actor_by_key(w->router->control, key, &who, err) < 0)
        return err->code == ERR_UNAUTHENTICATED || err->code == ERR_DENIED ||
                       err->code == ERR_NOT_FOUND
                   ? 0
                   : -1;
    return control_find(w->router->control, &who, str_of(w->target.id), err) ? 1 : 0;
}

int judge(struct way *w, const struct sandbox *s, enum answer_why *why, struct err *err)
{
    const struct target_fields *f = &w->fields;
    struct str bearer = judge_bearer(f->authorization), key = f->api_key.n ? f->api_key : bearer;
    bool given = f->access_token.n || f->traffic_token.n || key.n;
    int r = 0;

    w->known = w->known || judge_knows(w, s);
    if (w->known)
        return 0;
    *why = w->kind == JUDGE_GUEST && s->token[0] ? WHY_GUEST_TOKEN
           : given                               ? WHY_TOKEN_WRONG
                                                 : WHY_TOKEN_MISSING;
    if (key.n)
        r = key_allows(w, key, err);
    if (r < 0)
        *why = WHY_UNAVAILABLE;
    w->known = r > 0;
    w->key_given = w->known && !f->api_key.n;
    return w->known ? 0 : -1;
}
