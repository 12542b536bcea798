/* native_box.c - /v1/sandboxes: create, look, end, and change what can be changed. Strict: a field
 * that is not known is an error that names it. */
#include "api/native.h"
#include "api/parse.h"
#include "api/tables.h"

enum { TIMEOUT_S = 300, TIME_MAX_S = 31536000, PAGE = 100, PAGE_MAX = 1000, MOUNTS = 8 };

/* ---- create ---- */

static const struct field_name networks[] = { { "open", NETWORK_OPEN },
                                              { "none", NETWORK_NONE },
                                              {} };
static const struct field_name expiries[] = {
    { "kill", EXPIRY_KILL }, { "pause", EXPIRY_PAUSE }, { "pause-files", EXPIRY_PAUSE_FILES }, {}
};

static const struct field_name restarts[] = { { "no", false }, { "always", true }, {} };

struct create {
    char *template, *label;
    int64_t timeout, idle, on_expiry, network, restart;
    bool auto_resume, secure, strict, public, ping;
    struct map metadata, env;
    struct limits *limits;
    struct objs mounts, forwards;
};

#define B(member, type, ...) FIELD(struct create, member, type, __VA_ARGS__)

static const struct field create_body[] = {
    B(template, F_STR, .min = 1, .max = 127, .help = "name of a template; default base"),
    B(timeout, F_INT, .max = TIME_MAX_S, .def = TIMEOUT_S,
      .help = "seconds until it expires; 0: no limit"),
    B(idle, F_INT, .max = TIME_MAX_S,
      .help = "seconds without activity until it expires; 0: no such rule"),
    B(on_expiry, F_ENUM, .names = expiries, .help = "what happens then: kill or pause"),
    B(auto_resume, F_BOOL, .help = "a request for one of its ports wakes a paused one"),
    B(restart, F_ENUM, .names = restarts,
      .help = "always: when its first process dies it is started again on its files"),
    B(metadata, F_MAP, .help = "for filters of the list"),
    B(env, F_MAP, .help = "environment of every process"),
    B(network, F_ENUM, .names = networks, .def = NETWORK_DEFAULT,
      .help = "default open; none on a server without root"),
    B(secure, F_BOOL, .def = true, .help = "its guest demands the token"),
    B(strict, F_BOOL, .help = "no capabilities, no new privileges"),
    B(public, F_BOOL, .def = true, .help = "its ports answer without traffic_token"),
    B(ping, F_BOOL, .help = "programs inside may open ping sockets"),
    B(label, F_STR, .max = 256, .help = "text of your own"),
    B(limits, F_OBJ, .sub = native_limits, .sub_size = sizeof(struct limits)),
    B(mounts, F_OBJS, .max = MOUNTS, .sub = native_mounts,
      .sub_size = sizeof(struct sandbox_mount)),
    B(forwards, F_OBJS, .max = SANDBOX_FORWARDS, .sub = native_forwards,
      .sub_size = sizeof(struct sandbox_forward)),
    {},
};

static int create(struct call *c, void *body, struct err *err)
{
    const struct create *b = body;
    struct create_spec spec = {
        .template = b->template ? b->template : "base",
        .label = b->label,
        .facade = "v1",
        .life = { b->timeout * 1000, b->idle * 1000, b->on_expiry, b->auto_resume, b->restart },
        .network = b->network,
        .secure = b->secure,
        .strict = b->strict,
        .public = b->public,
        .ping = b->ping,
        .metadata = &b->metadata,
        .env = &b->env,
        .mounts = b->mounts,
        .forwards = b->forwards,
    };
    struct sandbox *s;
    bool existed;

    if (b->limits)
        spec.limits = *b->limits;
    if (native_check_limits(&spec.limits, err))
        return err_in(err, "field 'limits'");
    if (api_idempotency(c, b, &spec, err) ||
        control_create(api_of(c)->control, api_actor(c), &spec, &s, &existed, err))
        return -1;
    return native_reply_sandbox(c, s, err);
}

/* ---- lists ---- */

struct list_query {
    char *state, *metadata, *template, *after;
    int64_t limit, order;
    bool all, ended;
};
static const struct field_name orders[] = { { "desc", 0 }, { "asc", 1 }, {} };
static const struct field_name states[] = {
    { "creating", 1 << SANDBOX_CREATING },
    { "running", 1 << SANDBOX_RUNNING },
    { "pausing", 1 << SANDBOX_PAUSING },
    { "paused", 1 << SANDBOX_PAUSED },
    { "resuming", 1 << SANDBOX_RESUMING },
    { "ending", 1 << SANDBOX_ENDING },
    {},
};
static const struct field list_query[] = {
    FIELD(struct list_query, state, F_STR, .max = 128,
          .help = "by comma: creating, running, pausing, paused, resuming, ending; default running "
                  "and paused"),
    FIELD(struct list_query, metadata, F_STR, .help = "k=v&k2=v2: all must match"),
    FIELD(struct list_query, template, F_STR, .max = 127),
    FIELD(struct list_query, limit, F_INT, .min = 1, .max = PAGE_MAX, .def = PAGE),
    FIELD(struct list_query, after, F_STR, .max = 64, .help = "`next` of the page before"),
    FIELD(struct list_query, order, F_ENUM, .names = orders, .help = "by start time"),
    FIELD(struct list_query, all, F_BOOL, .help = "everybody's; for admins"),
    FIELD(struct list_query, ended, F_BOOL, .help = "those that ended lately instead"),
    {},
};

struct list_view {
    struct objs sandboxes;
    const char *next;
};
static const struct field list_view[] = {
    FIELD(struct list_view, sandboxes, F_OBJS, .flags = F_REQUIRED, .sub = native_sandbox,
          .sub_size = sizeof(struct native_sandbox)),
    FIELD(struct list_view, next, F_STR, .flags = F_OMIT, .help = "absent: this is the last page"),
    {},
};

struct page {
    struct call *call;
    struct native_names names;
    struct buf json;
    char next[64];
};

static void put_sandbox(struct page *p, const struct sandbox *s)
{
    struct native_sandbox view;

    native_show(p->call, s, &p->names, &view);
    field_encode(native_sandbox, &view, &p->json);
}

static int put_live(void *arg, struct sandbox *s)
{
    struct page *p = arg;

    put_sandbox(p, s);
    snprintf(p->next, sizeof(p->next), "%lld.%s", (long long)s->started_ms, s->id);
    return 0;
}

static int put_ended(void *arg, const struct sandbox *s)
{
    put_sandbox(arg, s);
    return 0;
}

static int whose(struct call *c, bool all, int64_t *owner, struct err *err)
{
    if (all && !api_actor(c)->admin)
        return err_set(err, ERR_DENIED, "query parameter 'all': only an admin may");
    *owner = all ? 0 : api_actor(c)->user;
    return 0;
}

static int filter_of(struct call *c, const struct list_query *q, struct sandbox_filter *f,
                     struct err *err)
{
    struct map *metadata = arena_alloc(&c->arena, sizeof(*metadata));

    if (whose(c, q->all, &f->owner, err))
        return -1;
    if (q->metadata && parse_metadata(&c->arena, str_of(q->metadata), false, metadata, err))
        return -1;
    if (q->state && api_bits(states, str_of(q->state), "state", &f->states, err))
        return -1;
    f->after = str_of(q->after);
    if (f->after.n && !parse_cursor(f->after))
        return err_set(err, ERR_INVALID, "query parameter 'after' is not a `next` of this list");
    f->metadata = metadata->n ? metadata : NULL;
    f->template = q->template;
    f->ascending = q->order;
    f->limit = (size_t)q->limit;
    return 0;
}

static int list_page(struct page *p, const struct list_query *q, struct err *err)
{
    struct control *control = api_of(p->call)->control;
    const struct actor *who = api_actor(p->call);
    struct sandbox_filter f = { 0 };
    bool more = false;

    if (filter_of(p->call, q, &f, err) || (q->all && native_names_load(p->call, &p->names, err)))
        return -1;
    json_open(&p->json, '{');
    json_key(&p->json, "sandboxes");
    json_open(&p->json, '[');
    if (q->ended ? control_ended(control, who, f.owner, q->limit, put_ended, p, err)
                 : control_list(control, who, &f, put_live, p, &more, err))
        return -1;
    json_close(&p->json, ']');
    if (more)
        json_kv_str(&p->json, "next", p->next);
    json_close(&p->json, '}');
    return 0;
}

static int list(struct call *c, void *body, struct err *err)
{
    struct page p = { .call = c };
    struct list_query q = { 0 };
    int r = api_query(c, &q, err);

    (void)body;
    if (!r)
        r = list_page(&p, &q, err);
    if (!r)
        r = call_reply_json(c, 200, &p.json);
    buf_free(&p.json);
    return r;
}

/* ---- one ---- */

static void finishp(struct sandbox *s) { sandbox_finish(s); }

static int get(struct call *c, void *body, struct err *err)
{
    AUTO(finishp) struct sandbox s = { 0 };
    struct native_names names = { .call = c };
    struct native_sandbox view;

    (void)body;
    if (control_get(api_of(c)->control, api_actor(c), c->param[0], &s, err))
        return -1;
    if (s.owner != api_actor(c)->user && native_names_load(c, &names, err))
        return -1;
    native_show(c, &s, &names, &view);
    return api_reply(c, &view);
}

static int end(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = api_sandbox(c, err);

    (void)body;
    if (!s || control_kill(api_of(c)->control, api_actor(c), s, NULL, err))
        return -1;
    return api_reply_empty(c);
}

struct end_query {
    bool all;
};
static const struct field end_query[] = {
    FIELD(struct end_query, all, F_BOOL, .help = "everybody's; for admins"),
    {},
};
struct end_view {
    int64_t ended;
};
static const struct field end_view[] = {
    FIELD(struct end_view, ended, F_INT, .flags = F_REQUIRED, .help = "how many"),
    {},
};

static int put_id(void *arg, struct sandbox *s)
{
    buf_add(arg, s->id, SANDBOX_ID);
    return 0;
}

/* Ids first: ending one parks, and the list may be another one afterwards. */
static int end_all(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf ids = { 0 };
    struct sandbox_filter f = { .states = ~(1U << SANDBOX_ENDED | 1U << SANDBOX_ENDING) };
    struct control *control = api_of(c)->control;
    struct end_query q = { 0 };
    struct end_view view = { 0 };
    bool more;

    (void)body;
    if (api_query(c, &q, err) || whose(c, q.all, &f.owner, err) ||
        control_list(control, api_actor(c), &f, put_id, &ids, &more, err))
        return -1;
    for (size_t at = 0; at < ids.len; at += SANDBOX_ID) {
        struct err gone = { 0 };
        struct sandbox *s =
            control_find(control, api_actor(c), (struct str){ ids.data + at, SANDBOX_ID }, &gone);

        if (s && !control_kill(control, api_actor(c), s, NULL, &gone))
            view.ended++;
        else if (gone.code != ERR_NOT_FOUND && gone.code != ERR_CONFLICT)
            return *err = gone, err_in(err, "after %lld were ended", (long long)view.ended);
    }
    return api_reply(c, &view);
}

/* ---- changes ---- */

struct time_body {
    int64_t timeout;
    bool extend;
};
static const struct field time_body[] = {
    FIELD(struct time_body, timeout, F_INT, .flags = F_REQUIRED, .max = TIME_MAX_S,
          .help = "seconds from now; 0: no limit"),
    FIELD(struct time_body, extend, F_BOOL, .help = "only if that is later than the present end"),
    {},
};

static int set_timeout(struct call *c, void *body, struct err *err)
{
    const struct time_body *b = body;
    struct sandbox *s = api_sandbox(c, err);
    int r;

    if (!s)
        return -1;
    control_hold(s);
    r = control_set_timeout(api_of(c)->control, api_actor(c), s, b->timeout * 1000, b->extend, err);
    if (!r)
        r = native_reply_sandbox(c, s, err);
    control_release(s);
    return r;
}

struct pause_body {
    bool memory;
};
static const struct field pause_body[] = {
    FIELD(struct pause_body, memory, F_BOOL, .def = true,
          .help = "false: only files are kept; its processes end"),
    {},
};

static int pause_box(struct call *c, void *body, struct err *err)
{
    const struct pause_body *b = body;
    struct sandbox *s = api_sandbox(c, err);
    int r;

    if (!s)
        return -1;
    control_hold(s);
    r = control_pause(api_of(c)->control, api_actor(c), s, NULL, b->memory, err);
    if (!r)
        r = native_reply_sandbox(c, s, err);
    control_release(s);
    return r;
}

struct resume_body {
    int64_t timeout;
    bool memory;
};
static const struct field resume_body[] = {
    FIELD(struct resume_body, timeout, F_INT, .max = TIME_MAX_S, .def = -1,
          .help = "seconds from now; 0: no limit; default: as it was last set"),
    FIELD(struct resume_body, memory, F_BOOL, .def = true,
          .help = "false: it is started again on its files"),
    {},
};

static int resume_box(struct call *c, void *body, struct err *err)
{
    const struct resume_body *b = body;
    struct sandbox *s = api_sandbox(c, err);
    int r;

    if (!s)
        return -1;
    control_hold(s);
    r = control_resume(api_of(c)->control, api_actor(c), s, b->timeout < 0 ? -1 : b->timeout * 1000,
                       b->memory, err);
    if (!r)
        r = native_reply_sandbox(c, s, err);
    control_release(s);
    return r;
}

static int set_limits(struct call *c, void *body, struct err *err)
{
    const struct limits *wanted = body;
    struct limits none = { 0 };
    struct sandbox *s;
    int r;

    if (!memcmp(wanted, &none, sizeof(none)))
        return err_set(err, ERR_INVALID, "the body names no limit: give at least one");
    if (native_check_limits(wanted, err))
        return -1;
    s = api_sandbox(c, err);
    if (!s)
        return -1;
    control_hold(s);
    r = control_set_limits(api_of(c)->control, api_actor(c), s, wanted, err);
    if (!r)
        r = native_reply_sandbox(c, s, err);
    control_release(s);
    return r;
}

#define TAG .body_max = API_BODY_MAX, .tag = "Sandboxes"

const struct route native_box_routes[] = {
    { "POST", "/v1/sandboxes", ROUTE_JSON, 0, create_body, sizeof(struct create), create,
      "createSandbox",
      "Create a sandbox. With an Idempotency-Key header the same request gives the same one.",
      .reply = native_sandbox, .status = 201, TAG },
    { "GET", "/v1/sandboxes", ROUTE_RAW, .fn = list, .operation = "listSandboxes",
      .help = "Your sandboxes, the latest first, a page at a time.", .query = list_query,
      .reply = list_view, TAG },
    { "DELETE", "/v1/sandboxes", ROUTE_RAW, .fn = end_all, .operation = "endSandboxes",
      .help = "End all of your sandboxes.", .query = end_query, .reply = end_view, TAG },
    { "GET", "/v1/sandboxes/{id}", ROUTE_RAW, .fn = get, .operation = "getSandbox",
      .help = "Everything about one sandbox, for a while after its end too.",
      .reply = native_sandbox, TAG },
    { "DELETE", "/v1/sandboxes/{id}", ROUTE_RAW, .fn = end, .operation = "endSandbox",
      .help = "End a sandbox.", .status = 204, TAG },
    { "POST", "/v1/sandboxes/{id}/timeout", ROUTE_JSON, 0, time_body, sizeof(struct time_body),
      set_timeout, "setTimeout", "End it so many seconds from now.", .reply = native_sandbox, TAG },
    { "POST", "/v1/sandboxes/{id}/pause", ROUTE_JSON, 0, pause_body, sizeof(struct pause_body),
      pause_box, "pauseSandbox",
      "Let it stand still until it is resumed: its files are on disk, its time stops.",
      .reply = native_sandbox, TAG },
    { "POST", "/v1/sandboxes/{id}/resume", ROUTE_JSON, 0, resume_body, sizeof(struct resume_body),
      resume_box, "resumeSandbox", "Let a paused one go on.", .reply = native_sandbox, TAG },
    { "PATCH", "/v1/sandboxes/{id}/limits", ROUTE_JSON, 0, native_limits, sizeof(struct limits),
      set_limits, "setLimits", "Change limits while it runs; those not named stay.",
      .reply = native_sandbox, TAG },
    {}
};
