/* auth.c - see auth.h. */
#include "guest/auth.h"

#include "model/signature.h"

int auth_basic_user(struct str authorization, struct arena *a, char **out, struct err *err)
{
    struct str scheme, code, name, password;
    char *text;
    ssize_t n;

    *out = arena_strdup(a, STR(""));
    if (!authorization.n)
        return 0;
    str_cut(authorization, ' ', &scheme, &code);
    if (!str_iis(scheme, "basic"))
        return 0;
    code = str_trim(code);
    text = arena_alloc(a, code.n / 4 * 3 + 1);
    n = base64_decode(code, text);
    if (n < 0 || memchr(text, 0, (size_t)n))
        return err_set(err, ERR_UNAUTHENTICATED, "Authorization: Basic is not valid base64");
    str_cut((struct str){ text, (size_t)n }, ':', &name, &password);
    *out = arena_strdup(a, name);
    return 0;
}

static bool token_matches(const char *token, struct str given)
{
    return given.n == strlen(token) && mem_equal_const(given.p, token, given.n);
}

static int check_url(struct call *c, struct err *err)
{
    struct str path = call_query(c, "path", err), user = call_query(c, "username", err),
               signature = call_query(c, "signature", err),
               expiry = call_query(c, "signature_expiration", err);

    if (err->code)
        return -1;
    if (!signature.p)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "no X-Access-Token header and no signature in the URL");
    return signature_check(signature, path, str_is(c->head.method, "POST") ? "write" : "read", user,
                           str_of(call_guest(c)->token), expiry, clock_wall_s(), err);
}

int auth_before(struct call *c, struct err *err)
{
    struct guest *g = call_guest(c);
    struct str given;

    if (!g->token || c->route->flags & ROUTE_OPEN)
        return 0;
    given = http_get(&c->head, "x-access-token");
    if (given.p) {
        if (token_matches(g->token, given))
            return 0;
        return err_set(err, ERR_UNAUTHENTICATED, "the X-Access-Token is not the sandbox's");
    }
    if (c->route->flags & ROUTE_SIGNED)
        return check_url(c, err);
    return err_set(err, ERR_UNAUTHENTICATED, "the X-Access-Token header is missing");
}

int auth_user(struct call *c, struct user *out, struct err *err)
{
    char *name;

    if (auth_basic_user(http_get(&c->head, "authorization"), &c->arena, &name, err))
        return -1;
    return user_find(call_guest(c), &c->arena, name, out, err);
}
