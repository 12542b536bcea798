/* native_watch.c - /v1: what a sandbox uses, used, and what happened to it; and the templates. */
#include "api/native.h"
#include "api/tables.h"

enum { EVENTS = 100, EVENTS_MAX = 1000, WAIT_MAX_S = 60 };

/* ---- now ---- */

struct stat_view {
    struct machine_state now;
    const struct limits *limits;
};

#define S(member) FIELD_AS(struct stat_view, now.member, #member, F_INT, .flags = F_REQUIRED)

static const struct field stat_view[] = {
    S(cpu_us),
    S(memory_bytes),
    S(memory_cache_bytes),
    S(memory_peak_bytes),
    S(pids),
    S(disk_bytes),
    S(net_rx_bytes),
    S(net_tx_bytes),
    FIELD(struct stat_view, limits, F_OBJ, .flags = F_REQUIRED, .sub = native_limits,
          .sub_size = sizeof(struct limits)),
    {},
};

static int get_stat(struct call *c, void *body, struct err *err)
{
    struct stat_view *view = arena_alloc(&c->arena, sizeof(*view));
    struct sandbox *s = api_sandbox(c, err);
    int r;

    (void)body;
    if (!s)
        return -1;
    control_hold(s);
    r = control_stat(api_of(c)->control, s, &view->now, err);
    control_release(s);
    view->limits = &view->now.limits;
    return r ? -1 : api_reply(c, view);
}

/* ---- lately ---- */

struct sample_view {
    const char *at;
    double cpu_pct;
    int64_t cpu_milli, memory_bytes, memory_max_bytes, memory_cache_bytes, disk_bytes,
        disk_max_bytes, pids, net_rx_bytes, net_tx_bytes;
};

#define M(member, type, ...)                                                                       \
    FIELD(struct sample_view, member, type, .flags = F_REQUIRED, __VA_ARGS__)

static const struct field sample_view[] = {
    M(at, F_STR),
    M(cpu_pct, F_NUM, .help = "100 is one core"),
    M(cpu_milli, F_INT, .help = "the limit, in thousandths of a core"),
    M(memory_bytes, F_INT),
    M(memory_max_bytes, F_INT),
    M(memory_cache_bytes, F_INT),
    M(disk_bytes, F_INT),
    M(disk_max_bytes, F_INT),
    M(pids, F_INT),
    M(net_rx_bytes, F_INT),
    M(net_tx_bytes, F_INT),
    {},
};

struct samples_view {
    struct objs samples;
};
static const struct field samples_view[] = {
    FIELD(struct samples_view, samples, F_OBJS, .flags = F_REQUIRED, .sub = sample_view,
          .sub_size = sizeof(struct sample_view)),
    {},
};

struct span {
    int64_t from, to;
};
static const struct field span[] = {
    FIELD(struct span, from, F_INT, .max = INT32_MAX, .help = "unix seconds"),
    FIELD(struct span, to, F_INT, .max = INT32_MAX, .help = "unix seconds"),
    {},
};

static int put_sample(void *arg, const struct sample *m)
{
    struct api_list *a = arg;
    const struct sample_view view = {
        .at = api_time(a->call, m->at_ms),
        .cpu_pct = m->cpu_pct,
        .cpu_milli = (int64_t)m->cpu_count_milli,
        .memory_bytes = (int64_t)m->memory,
        .memory_max_bytes = (int64_t)m->memory_max,
        .memory_cache_bytes = (int64_t)m->memory_cache,
        .disk_bytes = (int64_t)m->disk,
        .disk_max_bytes = (int64_t)m->disk_max,
        .pids = (int64_t)m->pids,
        .net_rx_bytes = (int64_t)m->net_rx,
        .net_tx_bytes = (int64_t)m->net_tx,
    };

    api_list_add(a, &view);
    return 0;
}

static int get_metrics(struct call *c, void *body, struct err *err)
{
    struct api_list a;
    struct span q = { 0 };
    struct sandbox *s = api_sandbox(c, err);
    int r;

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    api_list_begin(&a, c);
    control_hold(s);
    r = control_samples(api_of(c)->control, s, q.from * 1000, q.to ? q.to * 1000 + 999 : INT64_MAX,
                        put_sample, &a, err);
    control_release(s);
    return api_list_end(&a, r);
}

/* ---- events ---- */

struct event_view {
    int64_t seq;
    const char *at, *kind, *actor, *text, *detail;
};
static const struct field event_view[] = {
    FIELD(struct event_view, seq, F_INT, .flags = F_REQUIRED, .help = "grows; for `after`"),
    FIELD(struct event_view, at, F_STR, .flags = F_REQUIRED),
    FIELD(struct event_view, kind, F_STR, .flags = F_REQUIRED,
          .help = "created, started, limit, timeout-changed, ended, failed, ..."),
    FIELD(struct event_view, actor, F_STR, .flags = F_REQUIRED, .help = "a user's name, or system"),
    FIELD(struct event_view, text, F_STR, .flags = F_REQUIRED, .help = "one sentence"),
    FIELD(struct event_view, detail, F_JSON, .flags = F_OMIT, .help = "an object"),
    {},
};

struct events_view {
    struct objs events;
};
static const struct field events_view[] = {
    FIELD(struct events_view, events, F_OBJS, .flags = F_REQUIRED, .sub = event_view,
          .sub_size = sizeof(struct event_view)),
    {},
};

struct events_query {
    int64_t after, limit, wait;
};
static const struct field events_query[] = {
    FIELD(struct events_query, after, F_INT, .max = INT64_MAX, .help = "seq of the last one seen"),
    FIELD(struct events_query, limit, F_INT, .min = 1, .max = EVENTS_MAX, .def = EVENTS),
    FIELD(struct events_query, wait, F_INT, .max = WAIT_MAX_S,
          .help = "seconds to wait for one where there is none yet"),
    {},
};

static int put_event(void *arg, const struct event *e)
{
    struct api_list *a = arg;
    const struct event_view view = {
        .seq = e->seq,
        .at = api_time(a->call, e->at_ms),
        .kind = e->kind,
        .actor = e->actor,
        .text = api_public_text(a->call, e->text),
        .detail = e->detail,
    };

    api_list_add(a, &view);
    return 0;
}

/* Of sandboxes that have ended too: that is when people ask. */
static int find_id(struct call *c, char id[static SANDBOX_ID + 1], struct err *err)
{
    struct sandbox s = { 0 };

    if (control_get(api_of(c)->control, api_actor(c), c->param[0], &s, err))
        return -1;
    memcpy(id, s.id, SANDBOX_ID + 1);
    sandbox_finish(&s);
    return 0;
}

static int get_events(struct call *c, void *body, struct err *err)
{
    struct control *control = api_of(c)->control;
    struct api_list a;
    struct events_query q = { 0 };
    char id[SANDBOX_ID + 1];
    int r;

    (void)body;
    if (api_query(c, &q, err) || find_id(c, id, err))
        return -1;
    api_list_begin(&a, c);
    r = control_events(control, id, q.after, q.limit, put_event, &a, err);
    if (!r && !a.n && q.wait) {
        r = control_events_wait(control, id, q.after, co_in(q.wait * 1000), err);
        if (r > 0)
            r = control_events(control, id, q.after, q.limit, put_event, &a, err);
    }
    return api_list_end(&a, r);
}

/* ---- templates ---- */

struct template_view {
    const char *name, *kind, *provider, *user, *workdir;
    const struct limits *limits;
};
static const struct field template_view[] = {
    FIELD(struct template_view, name, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, kind, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, provider, F_STR, .flags = F_REQUIRED,
          .help = "who makes its machines: local"),
    FIELD(struct template_view, user, F_STR, .flags = F_OMIT, .help = "commands run as"),
    FIELD(struct template_view, workdir, F_STR, .flags = F_OMIT),
    FIELD(struct template_view, limits, F_OBJ, .flags = F_REQUIRED, .sub = native_limits,
          .sub_size = sizeof(struct limits), .help = "what a sandbox of it gets by default"),
    {},
};
struct templates_view {
    struct objs templates;
};
static const struct field templates_view[] = {
    FIELD(struct templates_view, templates, F_OBJS, .flags = F_REQUIRED, .sub = template_view,
          .sub_size = sizeof(struct template_view)),
    {},
};

static int put_template(void *arg, const struct machine_template *t)
{
    struct api_list *a = arg;
    struct limits l = t->limits;
    struct err none = { 0 };
    struct template_view view = {
        .name = t->name,
        .kind = t->kind,
        .provider = control_provider_name(api_of(a->call)->control),
        .user = t->user[0] ? t->user : NULL,
        .workdir = t->workdir[0] ? t->workdir : NULL,
        .limits = &l,
    };

    limits_fill(&l, NULL, &none);
    api_list_add(a, &view);
    return 0;
}

static int get_templates(struct call *c, void *body, struct err *err)
{
    struct api_list a;

    (void)body;
    api_list_begin(&a, c);
    return api_list_end(&a, control_templates(api_of(c)->control, put_template, &a, err));
}

#define TAG .body_max = API_BODY_MAX, .tag = "Sandboxes"

const struct route native_watch_routes[] = {
    { "GET", "/v1/sandboxes/{id}/stat", ROUTE_RAW, .fn = get_stat, .operation = "getStat",
      .help = "What it uses now, and its limits.", .reply = stat_view, TAG },
    { "GET", "/v1/sandboxes/{id}/metrics", ROUTE_RAW, .fn = get_metrics, .operation = "getMetrics",
      .help = "What it used lately, a sample every ten seconds and one of now.", .query = span,
      .reply = samples_view, TAG },
    { "GET", "/v1/sandboxes/{id}/events", ROUTE_RAW, .fn = get_events, .operation = "getEvents",
      .help = "What happened to it: by whom and why. With `wait`, as soon as something does.",
      .query = events_query, .reply = events_view, TAG },
    { "GET", "/v1/templates", ROUTE_RAW, .fn = get_templates, .operation = "listTemplates",
      .help = "What sandboxes can be made of.", .reply = templates_view, .tag = "Templates" },
    {}
};
