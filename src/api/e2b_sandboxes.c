/* e2b_sandboxes.c - E2B's calls on sandboxes that exist: info, lists, time, end, network. */
#include "api/e2b.h"
#include "api/parse.h"
#include "api/tables.h"
#include "model/envd.h"

/* ---- one, as info and lists show it ---- */

struct lifecycle {
    bool autoResume;
    const char *onTimeout;
};
static const struct field lifecycle_fields[] = {
    FIELD(struct lifecycle, autoResume, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct lifecycle, onTimeout, F_STR, .flags = F_REQUIRED, .help = "kill or pause"),
    {},
};

struct network_view {
    struct strs denyOut;
    bool allowPublicTraffic;
};
static const struct field network_view[] = {
    FIELD(struct network_view, denyOut, F_STRS, .flags = F_OMIT),
    FIELD(struct network_view, allowPublicTraffic, F_BOOL, .flags = F_REQUIRED),
    {},
};

struct detail {
    const char *templateID, *alias, *sandboxID, *clientID, *startedAt, *endAt, *envdVersion, *state,
        *domain, *envdAccessToken;
    int64_t cpuCount, memoryMB, diskSizeMB;
    struct map metadata;
    bool allowInternetAccess;
    struct lifecycle *lifecycle;
    struct network_view *network;
};

#define LISTED                                                                                     \
    FIELD(struct detail, templateID, F_STR, .flags = F_REQUIRED),                                  \
        FIELD(struct detail, alias, F_STR, .flags = F_OMIT),                                       \
        FIELD(struct detail, sandboxID, F_STR, .flags = F_REQUIRED),                               \
        FIELD(struct detail, clientID, F_STR, .flags = F_REQUIRED),                                \
        FIELD(struct detail, startedAt, F_STR, .flags = F_REQUIRED),                               \
        FIELD(struct detail, endAt, F_STR, .flags = F_REQUIRED),                                   \
        FIELD(struct detail, envdVersion, F_STR, .flags = F_REQUIRED),                             \
        FIELD(struct detail, cpuCount, F_INT, .flags = F_REQUIRED),                                \
        FIELD(struct detail, memoryMB, F_INT, .flags = F_REQUIRED),                                \
        FIELD(struct detail, diskSizeMB, F_INT, .flags = F_REQUIRED),                              \
        FIELD(struct detail, state, F_STR, .flags = F_REQUIRED, .help = "running or paused"),      \
        FIELD(struct detail, metadata, F_MAP)

static const struct field listed[] = { LISTED, {} };
static const struct field detail[] = {
    LISTED,
    FIELD(struct detail, domain, F_STR, .flags = F_OMIT),
    FIELD(struct detail, envdAccessToken, F_STR, .flags = F_OMIT),
    FIELD(struct detail, allowInternetAccess, F_BOOL),
    FIELD(struct detail, lifecycle, F_OBJ, .sub = lifecycle_fields,
          .sub_size = sizeof(struct lifecycle)),
    FIELD(struct detail, network, F_OBJ, .sub = network_view,
          .sub_size = sizeof(struct network_view)),
    {},
};

/* E2B knows two states; on the way from one to the other the old one still holds. */
static const char *const states[SANDBOX_STATES] = {
    [SANDBOX_CREATING] = "running", [SANDBOX_RUNNING] = "running", [SANDBOX_PAUSING] = "running",
    [SANDBOX_PAUSED] = "paused",    [SANDBOX_RESUMING] = "paused", [SANDBOX_ENDING] = "running",
    [SANDBOX_ENDED] = "paused",
};

struct sandbox *e2b_live_sandbox(struct call *c, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);

    if (!s || s->state != SANDBOX_ENDING)
        return s;
    err_set(err, ERR_NOT_FOUND, "Sandbox \"%s\" doesn't exist or you don't have access to it",
            s->id);
    return NULL;
}

static void show(struct call *c, const struct sandbox *s, struct detail *out)
{
    *out = (struct detail){
        .templateID = s->template,
        .alias = s->template,
        .sandboxID = s->id,
        .clientID = E2B_CLIENT,
        .startedAt = api_time(c, s->started_ms ? s->started_ms : s->created_ms),
        /* the SDKs demand a time; this is how one says never */
        .endAt = s->end_ms ? api_time(c, s->end_ms) : "9999-12-31T23:59:59Z",
        .envdVersion = ENVD_VERSION,
        .cpuCount = (int64_t)(s->limits.cpu_milli + 999) / 1000,
        .memoryMB = (int64_t)(s->limits.memory_bytes >> 20),
        .diskSizeMB = (int64_t)(s->limits.disk_bytes >> 20),
        .state = states[s->state],
        .metadata = s->metadata,
        .domain = control_domain(api_of(c)->control),
        .envdAccessToken = s->token[0] ? s->token : NULL,
        .allowInternetAccess = s->network != NETWORK_NONE,
    };
}

static int get_sandbox(struct call *c, void *body, struct err *err)
{
    static char everything[] = "0.0.0.0/0", *all[] = { everything };
    const struct sandbox *s = e2b_live_sandbox(c, err);
    struct detail view;

    (void)body;
    if (!s)
        return -1;
    show(c, s, &view);
    view.lifecycle = &(struct lifecycle){
        .autoResume = s->life.auto_resume,
        .onTimeout = s->life.expiry == EXPIRY_KILL ? "kill" : "pause",
    };
    view.network = &(struct network_view){
        .allowPublicTraffic = s->public,
        .denyOut = { s->network == NETWORK_NONE, all },
    };
    return api_reply(c, &view);
}

/* ---- lists ---- */

struct list_query {
    char *metadata, *state, *startedAfter, *template, *nextToken;
    int64_t order, limit;
};

static const struct field_name orders[] = { { "desc", 0 }, { "asc", 1 }, {} };
static const struct field list_v2[] = {
    FIELD(struct list_query, metadata, F_STR,
          .help = "name=value pairs, encoded twice: all must match"),
    FIELD(struct list_query, state, F_STR, .max = 64, .help = "running, paused, or both by comma"),
    FIELD(struct list_query, order, F_ENUM, .names = orders, .help = "by start time"),
    FIELD(struct list_query, startedAfter, F_STR, .max = 64, .help = "RFC 3339"),
    FIELD(struct list_query, template, F_STR, .max = E2B_TEMPLATE_MAX),
    FIELD(struct list_query, limit, F_INT, .min = 1, .max = E2B_PAGE, .def = E2B_PAGE),
    FIELD(struct list_query, nextToken, F_STR, .max = 64,
          .help = "X-Next-Token of the page before"),
    {},
};
static const struct field list_v1[] = {
    FIELD(struct list_query, metadata, F_STR,
          .help = "name=value pairs, encoded twice: all must match"),
    {},
};

enum {
    RUNNING = 1 << SANDBOX_RUNNING | 1 << SANDBOX_PAUSING,
    PAUSED = 1 << SANDBOX_PAUSED | 1 << SANDBOX_RESUMING,
};
static const struct field_name state_bits[] = { { "running", RUNNING }, { "paused", PAUSED }, {} };

static int filter_of(struct call *c, const struct list_query *q, struct sandbox_filter *f,
                     struct err *err)
{
    struct map *metadata = arena_alloc(&c->arena, sizeof(*metadata));

    if (q->metadata && parse_metadata(&c->arena, str_of(q->metadata), true, metadata, err))
        return -1;
    if (q->state && api_bits(state_bits, str_of(q->state), "state", &f->states, err))
        return -1;
    if (q->startedAfter && parse_time(str_of(q->startedAfter), &f->started_after_ms, err))
        return err_in(err, "query parameter 'startedAfter'");
    f->after = str_of(q->nextToken);
    if (f->after.n && !parse_cursor(f->after))
        return err_set(err, ERR_INVALID,
                       "query parameter 'nextToken' is not one that X-Next-Token gave");
    f->owner = api_actor(c)->user;
    f->metadata = metadata->n ? metadata : NULL;
    f->template = q->template;
    f->ascending = q->order;
    f->limit = (size_t)q->limit;
    if (!f->states)
        f->states = RUNNING | PAUSED;
    return 0;
}

struct page {
    struct call *call;
    struct buf json;
    char cursor[64];
};

static int add_to_page(void *arg, struct sandbox *s)
{
    struct page *p = arg;
    struct detail view;

    show(p->call, s, &view);
    field_encode(listed, &view, &p->json);
    snprintf(p->cursor, sizeof(p->cursor), "%lld.%s", (long long)s->started_ms, s->id);
    return 0;
}

static int list(struct call *c, const struct sandbox_filter *f, struct err *err)
{
    struct page p = { .call = c };
    bool more = false;
    int r;

    json_open(&p.json, '[');
    r = control_list(api_of(c)->control, api_actor(c), f, add_to_page, &p, &more, err);
    json_close(&p.json, ']');
    if (!r && more)
        call_header(c, "X-Next-Token", p.cursor);
    if (!r)
        r = call_reply_json(c, 200, &p.json);
    buf_free(&p.json);
    return r;
}

static int list_sandboxes(struct call *c, void *body, struct err *err)
{
    struct list_query q = { 0 };
    struct sandbox_filter f = { 0 };

    (void)body;
    if (api_query(c, &q, err) || filter_of(c, &q, &f, err))
        return -1;
    return list(c, &f, err);
}

static int list_running(struct call *c, void *body, struct err *err)
{
    struct list_query q = { 0 };
    struct sandbox_filter f = { .states = RUNNING };

    (void)body;
    if (api_query(c, &q, err) || filter_of(c, &q, &f, err))
        return -1;
    return list(c, &f, err);
}

/* ---- time and end ---- */

struct time_body {
    int64_t seconds;
};
static const struct field timeout_body[] = {
    FIELD_AS(struct time_body, seconds, "timeout", F_INT, .flags = F_REQUIRED,
             .max = E2B_TIMEOUT_MAX_S, .help = "seconds from now; may be less than is left"),
    {},
};
static const struct field refresh_body[] = {
    FIELD_AS(struct time_body, seconds, "duration", F_INT, .max = E2B_TIMEOUT_MAX_S,
             .help = "seconds from now; only ever extends"),
    {},
};

static int set_time(struct call *c, int64_t seconds, bool extend, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);

    if (!s)
        return -1;
    /* 0 is "at once" here, and "never" in our record */
    if (control_set_timeout(api_of(c)->control, api_actor(c), s, seconds ? seconds * 1000 : 1,
                            extend, err))
        return -1;
    return api_reply_empty(c);
}

static int set_timeout(struct call *c, void *body, struct err *err)
{
    return set_time(c, ((const struct time_body *)body)->seconds, false, err);
}

static int refresh(struct call *c, void *body, struct err *err)
{
    return set_time(c, ((const struct time_body *)body)->seconds, true, err);
}

static int kill_sandbox(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);

    (void)body;
    if (!s || control_kill(api_of(c)->control, api_actor(c), s, NULL, err))
        return -1;
    return api_reply_empty(c);
}

/* ---- network ---- */

struct network_body {
    struct e2b_network net;
    bool allow_internet;
};
static const struct field network_body[] = {
    FIELD_AS(struct network_body, net.allowOut, "allowOut", F_STRS, .max = 256),
    FIELD_AS(struct network_body, net.denyOut, "denyOut", F_STRS, .max = 256),
    FIELD_AS(struct network_body, net.dnsServers, "dnsServers", F_STRS, .max = 10),
    FIELD_AS(struct network_body, net.egressProxy, "egressProxy", F_JSON),
    FIELD_AS(struct network_body, net.rules, "rules", F_JSON),
    FIELD_AS(struct network_body, allow_internet, "allow_internet_access", F_BOOL, .def = true),
    {},
};

static int set_network(struct call *c, void *body, struct err *err)
{
    const struct network_body *b = body;
    const struct sandbox *s = api_sandbox(c, err);
    int64_t wanted;

    if (!s || e2b_network_of(&b->net, b->allow_internet, &wanted, err))
        return -1;
    if (wanted != s->network)
        return err_set(err, ERR_UNSUPPORTED,
                       "the network of a running sandbox cannot be changed, it stays '%s'; create "
                       "one with allow_internet_access as you need it",
                       sandbox_network_names[s->network]);
    return api_reply_empty(c);
}

#define TAG .body_max = API_BODY_MAX, .tag = "E2B sandboxes"

const struct route e2b_sandbox_routes[] = {
    { "GET", "/v2/sandboxes", ROUTE_RAW, ROUTE_LENIENT | ROUTE_LIST, .fn = list_sandboxes,
      .operation = "e2bListSandboxes",
      .help = "Your sandboxes, a page at a time: X-Next-Token leads to the next.", .query = list_v2,
      .reply = listed, TAG },
    { "GET", "/sandboxes", ROUTE_RAW, ROUTE_LENIENT | ROUTE_LIST, .fn = list_running,
      .operation = "e2bListSandboxesV1", .help = "All of your sandboxes that run.",
      .query = list_v1, .reply = listed, TAG },
    { "GET", "/sandboxes/{sandboxID}", ROUTE_RAW, .fn = get_sandbox, .operation = "e2bGetSandbox",
      .help = "Everything about one sandbox.", .reply = detail, TAG },
    { "DELETE", "/sandboxes/{sandboxID}", ROUTE_RAW, .fn = kill_sandbox,
      .operation = "e2bKillSandbox", .help = "End a sandbox.", .status = 204, TAG },
    { "POST", "/sandboxes/{sandboxID}/timeout", ROUTE_JSON, ROUTE_LENIENT, timeout_body,
      sizeof(struct time_body), set_timeout, "e2bSetTimeout",
      "End it so many seconds from now, sooner or later than before.", .status = 204, TAG },
    { "POST", "/sandboxes/{sandboxID}/refreshes", ROUTE_JSON, ROUTE_LENIENT, refresh_body,
      sizeof(struct time_body), refresh, "e2bRefresh",
      "Let it live at least so many seconds from now.", .status = 204, TAG },
    { "PUT", "/sandboxes/{sandboxID}/network", ROUTE_JSON, ROUTE_LENIENT, network_body,
      sizeof(struct network_body), set_network, "e2bSetNetwork",
      "Confirms the network a sandbox has; a change is not supported.", .status = 204, TAG },
    {}
};
