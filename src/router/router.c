/* router.c - see router.h.
 *
 * The order: what the head says (target.c), the sandbox, its state, the right to reach it
 * (judge.c), room for one more call (traffic.c), and then io/proxy does the rest. All of it but an
 * API key's first look-up happens without waiting. */
#include "router/router.h"

#include <unistd.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/prom.h"
#include "io/proxy.h"
#include "model/door.h"
#include "router/impl.h"

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

struct router *router_open(struct control *c, const struct router_options *o)
{
    struct router *r = xcalloc(1, sizeof(*r));
    const char *domain = control_domain(c);

    r->control = c;
    r->tls = o->tls;
    r->https = o->tls || o->https;
    r->domain = xstrndup(domain, strcspn(domain, ":"));
    if (gethostname(r->machine, sizeof(r->machine) - 1))
        r->machine[0] = 0;
    r->names = (struct host_names){ .domain = str_of(r->domain),
                                    .machine = str_of(r->machine),
                                    .names = o->names };
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

int way_refuse(struct way *w, enum answer_why why)
{
    w->router->refused[why]++;
    return answer_refuse(w->call, &w->fields, &w->target, why);
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
    return w->target.port == DOOR_INTERPRETER && str_is(w->call->head.method, "POST") &&
           str_is(w->path, "/execute");
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
        return way_refuse(w, why_of(p, s, err));
    if (has_ended(s) && (r < 0 || w->call->status == 101))
        conn_cut(w->call->conn); /* the client must not take this for the end that was meant */
    return r < 0 ? -1 : 1;
}

/* Where it goes on: behind the prefix of a preview, and without what was ours in its query. */
static struct str target_of(const struct way *w)
{
    struct str left = w->left;

    if (w->target.by != BY_PATH)
        return left;
    if (!left.p)
        return w->target.rest;
    return (struct str){ left.p + w->target.prefix.n, left.n - w->target.prefix.n };
}

static void prepare(struct way *w, struct sandbox *s, struct proxy *p)
{
    if (w->target.port == PROVIDER_GUEST_PORT)
        p->patient = is_guest_stream;
    else if (is_execute(w))
        p->patient = is_code_stream;
    control_to(w->router->control, s, w->target.port, &p->to);
    if (w->target.by == BY_CLUSTER) {
        p->to.answer_ms =
            w->target.timeout_ms ? MIN(w->target.timeout_ms, limits.cluster_ms) : limits.cluster_ms;
    } else if (w->target.by == BY_PATH) {
        p->extra = str_of(arena_printf(&w->call->arena, "X-Forwarded-Prefix: %.*s\r\n",
                                       STR_ARG(w->target.prefix)));
    }
    strip_request(w, s);
    p->target = target_of(w);
}

/* A guest refuses who does not know its token: being refused keeps no sandbox awake. */
static bool is_activity(const struct way *w, const struct sandbox *s)
{
    return w->kind != JUDGE_HEALTH && (w->kind != JUDGE_GUEST || !s->token[0] || w->known);
}

static int carry(struct way *w, struct sandbox *s, struct err *err)
{
    struct router *r = w->router;
    struct proxy p = { .client = control_client(r->control),
                       .scheme = r->tls ? "https" : "http",
                       .drop = w->target.by == BY_HOST ? strip_host : strip_shared };
    struct flight f = { .call = w->call,
                        .proxy = &p,
                        .seen = co_now(),
                        .idle = !is_activity(w, s),
                        .guest = w->target.port == PROVIDER_GUEST_PORT };
    int result;

    if (traffic_enter(&r->traffic, s, &f) < 0)
        return way_refuse(w, WHY_BUSY);
    if (!f.idle)
        control_touch(s);
    prepare(w, s, &p);
    result = proxy_call(&p, w->call, err);
    result = finish(w, &p, s, result, err);
    traffic_leave(&r->traffic, &f);
    return result;
}

/* ---- the sandbox ---- */

/* One that runs, or that a request may wake. */
static struct sandbox *find(const struct way *w, enum answer_why *why, struct err *err)
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

/* The request waits until it runs, then goes its way. Only where that makes a difference is it
 * asked who it is from. */
static struct sandbox *wake(struct way *w, struct sandbox *s, enum answer_why *why, struct err *err)
{
    struct control *c = w->router->control;
    enum answer_why unknown;

    while (w->known ? control_wake(c, s, err) : control_wake_stray(c, s, err)) {
        bool files_only = err->code == ERR_DENIED && !w->known;

        *why = files_only                   ? WHY_FILES_ONLY
               : err->code == ERR_NOT_FOUND ? WHY_NOT_FOUND
                                            : WHY_UNAVAILABLE;
        *err = (struct err){ 0 };
        if (!files_only || !(s = find(w, &unknown, err)) || judge(w, s, &unknown, err))
            return NULL;
        s = find(w, why, err);
        if (!s)
            return NULL;
    }
    return find(w, why, err);
}

/* Whether it runs is asked of one that does not: it is not made to. */
static int answer_look(struct way *w, const struct sandbox *s)
{
    return way_refuse(w, s->state == SANDBOX_RESUMING ? WHY_CHANGING : WHY_NOT_FOUND);
}

/* Shown: what only somebody who is known may do is due. 0 go on, 1 answered; judging may park. */
static int demand(struct way *w, struct sandbox **s, enum answer_why *why, struct err *err)
{
    if (answer_is_preflight(w->call)) /* it cannot show anything, and nothing inside needs it */
        return answer_preflight(w->call);
    if (judge(w, *s, why, err) < 0)
        return way_refuse(w, *why);
    *s = find(w, why, err);
    return *s ? 0 : way_refuse(w, *why);
}

static int reach(struct way *w, struct sandbox *s, struct err *err)
{
    const struct judge_rule *rule = judge_rule(w->kind, s);
    enum answer_why why = WHY_NOT_FOUND;

    if (s->state != SANDBOX_RUNNING && rule->wakes == NOBODY)
        return answer_look(w, s);
    /* else it makes no difference: to be known opens nothing there, but it counts as use */
    w->known =
        w->known || ((w->kind == JUDGE_GUEST || s->state != SANDBOX_RUNNING) && judge_knows(w, s));
    if (!w->known &&
        (rule->enters == KNOWN || (s->state != SANDBOX_RUNNING && rule->wakes == KNOWN))) {
        int r = demand(w, &s, &why, err);

        if (r)
            return r;
    }
    if (s->state != SANDBOX_RUNNING)
        s = wake(w, s, &why, err);
    return s ? carry(w, s, err) : way_refuse(w, why);
}

/* A page is not led to a sandbox under the API's own name: what is there would be of its origin. */
static bool is_page(const struct way *w)
{
    return (w->target.by == BY_E2B || w->target.by == BY_CLUSTER) && w->fields.fetch_site.p &&
           w->target.port != PROVIDER_GUEST_PORT;
}

static int route(struct way *w, struct err *err)
{
    enum answer_why why;
    struct sandbox *s;

    w->router->requests[w->target.by]++;
    w->path = w->call->path;
    if (w->target.by == BY_PATH)
        str_cut(w->target.rest, '?', &w->path, &(struct str){ 0 });
    if (w->target.bad)
        return way_refuse(w, WHY_BAD);
    if (w->target.port == PROVIDER_GUEST_PORT && target_is_control(w->path))
        return way_refuse(w, WHY_CONTROL);
    if (is_page(w))
        return way_refuse(w, WHY_PAGE);
    s = find(w, &why, err);
    w->kind = s ? judge_port(s, w->target.port, w->path) : JUDGE_PORT;
    if (!s)
        return way_refuse(w, why);
    return enter_browser(w, s) ? 1 : reach(w, s, err);
}

static void begin(struct way *w, struct call *c)
{
    const struct api *api = c->server->ctx;

    *w = (struct way){ .router = api->router, .call = c };
    target_read(&c->head, &w->fields);
}

/* Whether we live is anybody's to ask, by whatever name a load balancer has for us. */
static bool is_our_name(const struct way *w)
{
    if (host_is_ours(&w->router->names, w->fields.host))
        return true;
    return w->target.by == BY_NONE &&
           (str_is(w->call->path, "/health") || str_is(w->call->path, "/healthz"));
}

int router_first(struct call *c, struct err *err)
{
    struct way w;

    begin(&w, c);
    target_find(&w.fields, w.router->names.domain, &w.target);
    if (!is_our_name(&w))
        return way_refuse(&w, WHY_HOST);
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
    if (!is_our_name(&w))
        return way_refuse(&w, WHY_HOST);
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
        [WHY_GUEST_TOKEN] = "guest-token",
        [WHY_FILES_ONLY] = "files-only",
        [WHY_TICKET] = "browser-token",
        [WHY_PAGE] = "page",
        [WHY_HOST] = "host",
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
