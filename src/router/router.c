/* router.c - see router.h.
 *
 * The order: what the head says (target.c), the sandbox, its state, the right to reach it, room for
 * one more call (traffic.c), and then io/proxy does the rest. All of it but an API key's first
 * look-up happens without waiting. */
#include "router/router.h"

#include "api/api.h"
#include "base/mem.h"
#include "base/prom.h"
#include "io/proxy.h"
#include "router/answer.h"
#include "router/traffic.h"

enum { CODE_PORT = 49999 }; /* of the code interpreter in the guest */

static struct {
    int64_t cluster_ms;
} limits = { .cluster_ms = 180000 };

const struct setting router_settings[] = {
    { "router.sandbox-calls", &traffic_limits.sandbox_calls, 1, 1000000,
      "calls to one sandbox at once" },
    { "router.cluster-ms", &limits.cluster_ms, 1, INT32_MAX,
      "longest silence before an answer that X-Sandbox-Timeout may ask for" },
    { 0 },
};

const struct route *const router_preview_tables[] = { NULL };

struct router {
    struct control *control;
    char *domain; /* without a port */
    struct str name;
    bool tls;
    struct traffic traffic;
    uint64_t requests[TARGET_BYS], refused[ANSWER_WHYS];
};

struct router *router_open(struct control *c, bool tls)
{
    struct router *r = xcalloc(1, sizeof(*r));
    const char *domain = control_domain(c);

    r->control = c;
    r->tls = tls;
    r->domain = xstrndup(domain, strcspn(domain, ":"));
    r->name = str_of(r->domain);
    traffic_init(&r->traffic);
    return r;
}

void router_close(struct router *r)
{
    if (!r)
        return;
    traffic_finish(&r->traffic);
    free(r->domain);
    free(r);
}

/* ---- one call ---- */

struct way { /* a call, and what the router knows of it */
    struct router *router;
    struct call *call;
    struct target_fields fields;
    struct target target;
    bool health; /* the guest's health call: never activity */
};

/* As the sandbox will see it. */
static struct str path_of(const struct way *w)
{
    struct str path = w->call->path;

    if (w->target.by == BY_PATH)
        str_cut(w->target.rest, '?', &path, &(struct str){ 0 });
    return path;
}

static int refuse(struct way *w, enum answer_why why)
{
    w->router->refused[why]++;
    return answer_refuse(w->call, &w->fields, &w->target, why);
}

/* ---- what the sandbox must not see ---- */

static bool drop_ours(const struct http_field *f, bool answer)
{
    return !answer && target_is_ours(f);
}

/* agent-sandbox's router takes the credentials for itself. */
static bool drop_cluster(const struct http_field *f, bool answer)
{
    return !answer && (target_is_ours(f) || str_iis(f->name, "authorization"));
}

/* All previews are one origin, and cookies do not even tell ports apart: what a sandbox sets here
 * other sandboxes and other servers of this host would get, and their cookies the sandbox. The same
 * goes for what else holds for a whole origin. */
static bool drop_shared(const struct http_field *f, bool answer)
{
    if (!answer)
        return target_is_ours(f) || str_iis(f->name, "cookie");
    switch (f->name.n) {
    case 7: return str_iis(f->name, "alt-svc");
    case 10: return str_iis(f->name, "set-cookie");
    case 15: return str_iis(f->name, "clear-site-data");
    case 22: return str_iis(f->name, "service-worker-allowed");
    case 25: return str_iis(f->name, "strict-transport-security");
    default: return false;
    }
}

/* ---- streams ---- */

/* Whoever reads what a process writes is waited for, as at a pipe: streams of the guest, and of the
 * code interpreter. A stream of anything else may be open to everybody, and one who does not read
 * it has no right to its place among the sandbox's calls. */
static bool is_guest_stream(const struct http_head *answer)
{
    struct str type = http_get(answer, "content-type");

    return answer->status == 200 && (str_iis(type, "application/connect+json") ||
                                     str_iis(type, "application/connect+proto"));
}

static bool is_code_stream(const struct http_head *answer)
{
    return answer->status == 200 && str_iis(http_get(answer, "content-type"), "application/json");
}

static bool is_execute(const struct way *w)
{
    return w->target.port == CODE_PORT && str_is(w->call->head.method, "POST") &&
           str_is(path_of(w), "/execute");
}

/* ---- the right to reach it ---- */

static bool same_secret(struct str given, const char *secret)
{
    size_t n = strlen(secret);

    return n && given.n == n && mem_equal_const(given.p, secret, n);
}

static struct str bearer(struct str authorization)
{
    struct str scheme, token;

    str_cut(authorization, ' ', &scheme, &token);
    return str_iis(scheme, "bearer") ? str_trim(token) : (struct str){ 0 };
}

/* 1 allowed, 0 not, -1 nobody can tell now. May park. */
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

/* The sandbox is private. 0 it may; else what to say. May park for the cluster's form. */
static int judge(struct way *w, const struct sandbox *s, enum answer_why *why, struct err *err)
{
    const struct target_fields *f = &w->fields;
    struct str token = f->traffic_token, key = f->api_key.n ? f->api_key : bearer(f->authorization);
    int r;

    *why = token.n ? WHY_TOKEN_WRONG : WHY_TOKEN_MISSING;
    if (same_secret(token, s->traffic_token))
        return 0;
    if (w->target.by != BY_CLUSTER || !key.n)
        return -1;
    *why = WHY_TOKEN_WRONG;
    if (same_secret(key, s->traffic_token))
        return 0;
    r = key_allows(w, key, err);
    if (r < 0)
        *why = WHY_UNAVAILABLE;
    return r > 0 ? 0 : -1;
}

/* ---- on the way ---- */

static bool has_ended(const struct sandbox *s)
{
    return s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSING;
}

static enum answer_why why_of(const struct proxy *p, const struct sandbox *s, const struct err *err)
{
    if (s->life.auto_resume && (s->state == SANDBOX_PAUSED || s->state == SANDBOX_RESUMING))
        return WHY_CHANGING; /* it was paused under the request: the next one wakes it */
    if (has_ended(s) || err->reason == ERR_NO_SANDBOX)
        return WHY_NOT_FOUND;
    if (err->code == ERR_UNSUPPORTED)
        return WHY_NO_WAY;
    switch (p->fault) {
    case PROXY_CONNECT: return err->code == ERR_UPSTREAM ? WHY_CLOSED_PORT : WHY_UNAVAILABLE;
    case PROXY_CONNECT_TIMEOUT:
    case PROXY_TIMEOUT: return WHY_LATE;
    case PROXY_CLOSED: return WHY_BROKE;
    case PROXY_BROKEN: return WHY_BROKEN;
    case PROXY_OK:
    case PROXY_CLIENT: break;
    }
    return WHY_UNAVAILABLE;
}

static int finish(struct way *w, const struct proxy *p, const struct sandbox *s, int r,
                  struct err *err)
{
    if (r < 0 && !w->call->status && p->fault != PROXY_CLIENT && err->code != ERR_GONE)
        return refuse(w, why_of(p, s, err));
    if (has_ended(s) && (r < 0 || w->call->status == 101))
        conn_cut(w->call->conn); /* the client must not take this for the end that was meant */
    return r < 0 ? -1 : 1;
}

static int carry(struct way *w, struct sandbox *s, struct err *err)
{
    struct router *r = w->router;
    struct proxy p = { .client = control_client(r->control),
                       .scheme = r->tls ? "https" : "http",
                       .drop = drop_ours };
    struct flight f = { .call = w->call,
                        .proxy = &p,
                        .seen = co_now(),
                        .idle = w->health,
                        .guest = w->target.port == PROVIDER_GUEST_PORT };
    int result;

    if (traffic_enter(&r->traffic, s, &f) < 0)
        return refuse(w, WHY_BUSY);
    if (f.guest)
        p.patient = is_guest_stream;
    else if (is_execute(w))
        p.patient = is_code_stream;
    control_to(r->control, s, w->target.port, &p.to);
    if (!w->health)
        control_touch(s);
    if (w->target.by == BY_CLUSTER) {
        p.drop = drop_cluster;
        p.to.answer_ms =
            w->target.timeout_ms ? MIN(w->target.timeout_ms, limits.cluster_ms) : limits.cluster_ms;
    } else if (w->target.by == BY_PATH) {
        p.drop = drop_shared;
        p.target = w->target.rest;
        p.extra = str_of(arena_printf(&w->call->arena, "X-Forwarded-Prefix: %.*s\r\n",
                                      STR_ARG(w->target.prefix)));
    }
    result = proxy_call(&p, w->call, err);
    result = finish(w, &p, s, result, err);
    traffic_leave(&r->traffic, &f);
    return result;
}

/* One that runs, or that a request wakes. */
static struct sandbox *find(struct way *w, enum answer_why *why, struct err *err)
{
    struct sandbox *s = control_find(w->router->control, NULL, str_of(w->target.id), err);

    *why = WHY_NOT_FOUND;
    if (!s)
        return NULL;
    switch ((enum sandbox_state)s->state) {
    case SANDBOX_RUNNING: return s;
    case SANDBOX_CREATING: *why = WHY_CHANGING; return NULL;
    case SANDBOX_PAUSING:
    case SANDBOX_RESUMING: *why = WHY_CHANGING; return s->life.auto_resume ? s : NULL;
    case SANDBOX_PAUSED: return s->life.auto_resume ? s : NULL;
    case SANDBOX_ENDING:
    case SANDBOX_ENDED:
    case SANDBOX_STATES: break;
    }
    return NULL;
}

/* Whoever may reach it may wake it: the request waits until it runs, then goes its way. */
static struct sandbox *wake(struct way *w, struct sandbox *s, enum answer_why *why, struct err *err)
{
    if (s->state == SANDBOX_RUNNING)
        return s;
    if (!control_wake(w->router->control, s, err))
        return find(w, why, err);
    *why = err->code == ERR_NOT_FOUND ? WHY_NOT_FOUND : WHY_UNAVAILABLE;
    return NULL;
}

static int route(struct way *w, struct err *err)
{
    struct str path = path_of(w);
    bool guest = w->target.port == PROVIDER_GUEST_PORT;
    enum answer_why why;
    struct sandbox *s;

    w->router->requests[w->target.by]++;
    if (w->target.bad)
        return refuse(w, WHY_BAD);
    if (guest && target_is_control(path))
        return refuse(w, WHY_CONTROL);
    w->health = guest && str_is(path, "/health");
    s = find(w, &why, err);
    if (s && !s->public && !guest) {
        if (judge(w, s, &why, err) < 0)
            return refuse(w, why);
        s = find(w, &why, err); /* judging may have parked */
    }
    if (s)
        s = wake(w, s, &why, err);
    return s ? carry(w, s, err) : refuse(w, why);
}

static void begin(struct way *w, struct call *c)
{
    const struct api *api = c->server->ctx;

    *w = (struct way){ .router = api->router, .call = c };
    target_read(&c->head, &w->fields);
}

int router_first(struct call *c, struct err *err)
{
    struct way w;

    begin(&w, c);
    target_find(&w.fields, w.router->name, &w.target);
    if ((w.target.by == BY_NONE || w.target.by == BY_CLUSTER) && str_is(c->path, "/healthz") &&
        (c->head_only || str_is(c->head.method, "GET")))
        return answer_healthz(c);
    return w.target.by == BY_NONE ? 0 : route(&w, err);
}

/* ---- previews ---- */

static int redirect(struct call *c, struct str prefix, struct str rest)
{
    call_header(c, "Location",
                arena_printf(&c->arena, "%.*s%s%.*s", STR_ARG(prefix),
                             rest.n && rest.p[0] == '/' ? "" : "/", STR_ARG(rest)));
    call_reply(c, 307, NULL, (struct str){ 0 });
    return 1;
}

/* Pages link to "/style.css" without knowing of our prefix: the page that asks for it says which
 * sandbox was meant. */
static bool page_of_sandbox(struct str referer, struct target *out)
{
    struct str rest = referer, scheme, host;

    if (!str_cut(rest, ':', &scheme, &rest) || !str_starts(rest, "//"))
        return false;
    rest = (struct str){ rest.p + 2, rest.n - 2 };
    if (!str_cut(rest, '/', &host, &rest))
        return false;
    return target_find_path((struct str){ rest.p - 1, rest.n + 1 }, out);
}

int router_preview(struct call *c, struct err *err)
{
    struct way w;
    struct target page;

    begin(&w, c);
    if (target_find_path(c->head.target, &w.target))
        return w.target.rest.n ? route(&w, err)
                               : redirect(c, w.target.prefix,
                                          (struct str){ c->head.target.p + w.target.prefix.n,
                                                        c->head.target.n - w.target.prefix.n });
    if (page_of_sandbox(w.fields.referer, &page))
        return redirect(c, page.prefix, c->head.target);
    return answer_preview_help(c, &w.fields);
}

/* ---- numbers ---- */

void router_metrics(const struct router *r, struct buf *out)
{
    static const char *const why_names[ANSWER_WHYS] = {
        [WHY_BAD] = "bad-request",
        [WHY_NOT_FOUND] = "not-found",
        [WHY_CLOSED_PORT] = "port-closed",
        [WHY_TOKEN_MISSING] = "token-missing",
        [WHY_TOKEN_WRONG] = "token-wrong",
        [WHY_CHANGING] = "changing",
        [WHY_BUSY] = "busy",
        [WHY_BROKE] = "closed",
        [WHY_BROKEN] = "broken",
        [WHY_LATE] = "timeout",
        [WHY_UNAVAILABLE] = "unavailable",
        [WHY_NO_WAY] = "unsupported",
        [WHY_CONTROL] = "control-route",
    };

    prom_head(out, "cove_router_requests_total", "counter", "Requests for ports of sandboxes.");
    for (int i = BY_HOST; i < TARGET_BYS; i++)
        prom_value(out, "cove_router_requests_total",
                   (const char *const[]){ "by", target_by_names[i], NULL }, (double)r->requests[i]);
    prom_head(out, "cove_router_refused_total", "counter", "Those the router answered itself.");
    for (int i = 0; i < ANSWER_WHYS; i++)
        prom_value(out, "cove_router_refused_total",
                   (const char *const[]){ "why", why_names[i], NULL }, (double)r->refused[i]);
    prom_head(out, "cove_router_calls", "gauge", "Requests under way.");
    prom_value(out, "cove_router_calls", NULL, (double)r->traffic.calls);
    prom_head(out, "cove_router_resets_total", "counter",
              "Connections reset because their sandbox had ended.");
    prom_value(out, "cove_router_resets_total", NULL, (double)r->traffic.resets);
}
