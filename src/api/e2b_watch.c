/* e2b_watch.c - what a sandbox used and what happened to it, as E2B's metrics and logs calls show
 * it. Logs are our events: what processes print stays with their readers. */
#include "api/e2b.h"
#include "api/tables.h"

enum { METRIC_IDS = 100, LOG_LINES = 1000, EVENTS_READ = 10000 };

/* ---- metrics ---- */

struct metric {
    const char *timestamp;
    int64_t timestampUnix, cpuCount, memUsed, memTotal, memCache, diskUsed, diskTotal;
    double cpuUsedPct;
};
static const struct field metric[] = {
    FIELD(struct metric, timestamp, F_STR, .flags = F_REQUIRED),
    FIELD(struct metric, timestampUnix, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, cpuCount, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, cpuUsedPct, F_NUM, .flags = F_REQUIRED, .help = "100 is all of cpuCount"),
    FIELD(struct metric, memUsed, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, memTotal, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, memCache, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, diskUsed, F_INT, .flags = F_REQUIRED),
    FIELD(struct metric, diskTotal, F_INT, .flags = F_REQUIRED),
    {},
};

static struct metric show(struct call *c, const struct sample *m)
{
    /* as the guest's own /metrics has it, which E2B's servers pass on */
    double cores = MAX((double)m->cpu_count_milli, 1.0) / 1000;

    return (struct metric){
        .timestamp = api_time(c, m->at_ms),
        .timestampUnix = m->at_ms / 1000,
        .cpuCount = (int64_t)(m->cpu_count_milli + 999) / 1000,
        .cpuUsedPct = MIN(m->cpu_pct / cores, 100.0),
        .memUsed = (int64_t)m->memory,
        .memTotal = (int64_t)m->memory_max,
        .memCache = (int64_t)m->memory_cache,
        .diskUsed = (int64_t)m->disk,
        .diskTotal = (int64_t)m->disk_max,
    };
}

static int add_metric(void *arg, const struct sample *m)
{
    struct api_list *all = arg;
    struct metric view = show(all->call, m);

    api_list_add(all, &view);
    return 0;
}

struct metrics_query {
    int64_t start, end;
};
static const struct field metrics_query[] = {
    FIELD(struct metrics_query, start, F_INT, .max = INT32_MAX, .help = "unix seconds"),
    FIELD(struct metrics_query, end, F_INT, .max = INT32_MAX, .help = "unix seconds"),
    {},
};

static int get_metrics(struct call *c, void *body, struct err *err)
{
    struct api_list all;
    struct metrics_query q = { 0 };
    struct sandbox *s = e2b_live_sandbox(c, err);
    int r;

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    api_list_begin(&all, c);
    control_hold(s);
    r = control_samples(api_of(c)->control, s, q.start * 1000,
                        q.end ? q.end * 1000 + 999 : INT64_MAX, add_metric, &all, err);
    control_release(s);
    return api_list_end(&all, r);
}

struct latest_query {
    char *sandbox_ids;
};
static const struct field latest_query[] = {
    FIELD(struct latest_query, sandbox_ids, F_STR, .flags = F_REQUIRED, .min = 1,
          .help = "up to 100 ids, by comma"),
    {},
};
struct latest {
    char *sandboxes;
};
static const struct field latest[] = {
    FIELD(struct latest, sandboxes, F_JSON, .flags = F_REQUIRED,
          .help = "the latest metric of each, by id"),
    {},
};

struct metrics {
    struct buf json;
    struct sample last; /* at_ms 0: none */
};

static int keep_last(void *arg, const struct sample *m)
{
    ((struct metrics *)arg)->last = *m;
    return 0;
}

/* Those that are gone, or are another's, are simply not in the answer: a dashboard asks for many,
 * and one of them may have ended just now. */
static int put_latest(struct call *c, struct str id, struct metrics *all, struct err *err)
{
    struct err gone = { 0 };
    struct sandbox *s = control_find(api_of(c)->control, api_actor(c), id, &gone);
    struct metric view;
    int r;

    if (!s)
        return 0;
    control_hold(s);
    all->last = (struct sample){ 0 };
    r = control_samples(api_of(c)->control, s, 0, INT64_MAX, keep_last, all, err);
    if (!r && all->last.at_ms) {
        json_key(&all->json, s->id);
        view = show(c, &all->last);
        field_encode(metric, &view, &all->json);
    }
    control_release(s);
    return r;
}

static int get_latest(struct call *c, void *body, struct err *err)
{
    struct metrics all = { 0 };
    struct latest_query q = { 0 };
    struct str rest, id;
    int r = 0, n = 0;

    (void)body;
    if (api_query(c, &q, err))
        return -1;
    json_open(&all.json, '{');
    json_key(&all.json, "sandboxes");
    json_open(&all.json, '{');
    for (rest = str_of(q.sandbox_ids); !r && str_next(&rest, ',', &id);)
        r = ++n > METRIC_IDS ? err_set(err, ERR_INVALID,
                                       "query parameter 'sandbox_ids' has over %d ids", METRIC_IDS)
                             : put_latest(c, id, &all, err);
    json_close(&all.json, '}');
    json_close(&all.json, '}');
    if (!r)
        r = call_reply_json(c, 200, &all.json);
    buf_free(&all.json);
    return r;
}

/* ---- logs ---- */

enum level { DEBUG, INFO, WARN, ERROR };

static const struct field_name levels[] = {
    { "debug", DEBUG }, { "info", INFO }, { "warn", WARN }, { "error", ERROR }, {},
};

static enum level level_of(const char *kind)
{
    static const struct field_name kinds[] = {
        { "limit", WARN },
        { "failed", ERROR },
        { "lost", ERROR },
        {},
    };

    for (const struct field_name *k = kinds; k->name; k++)
        if (!strcmp(k->name, kind))
            return (enum level)k->value;
    return INFO;
}

struct entry {
    const char *timestamp, *message;
    int64_t level;
    struct map fields;
    int64_t at_ms;
};
static const struct field entry[] = {
    FIELD(struct entry, timestamp, F_STR, .flags = F_REQUIRED),
    FIELD(struct entry, message, F_STR, .flags = F_REQUIRED),
    FIELD(struct entry, level, F_ENUM, .names = levels, .flags = F_REQUIRED),
    FIELD(struct entry, fields, F_MAP, .flags = F_REQUIRED),
    {},
};
static const struct field log_line[] = {
    FIELD(struct entry, timestamp, F_STR, .flags = F_REQUIRED),
    FIELD_AS(struct entry, message, "line", F_STR, .flags = F_REQUIRED),
    {},
};

struct logs {
    struct objs logs, logEntries;
};
static const struct field logs_v2[] = {
    FIELD(struct logs, logs, F_OBJS, .flags = F_REQUIRED, .sub = entry,
          .sub_size = sizeof(struct entry)),
    {},
};
static const struct field logs_v1[] = {
    FIELD(struct logs, logs, F_OBJS, .flags = F_REQUIRED, .sub = log_line,
          .sub_size = sizeof(struct entry)),
    FIELD(struct logs, logEntries, F_OBJS, .flags = F_REQUIRED, .sub = entry,
          .sub_size = sizeof(struct entry)),
    {},
};

struct log_query {
    int64_t cursor, limit, direction, level;
    char *search;
};
static const struct field_name directions[] = { { "forward", 0 }, { "backward", 1 }, {} };
static const struct field log_query_v2[] = {
    FIELD(struct log_query, cursor, F_INT, .max = INT64_MAX / 2,
          .help = "unix milliseconds: from then on, or backward from then"),
    FIELD(struct log_query, limit, F_INT, .min = 1, .max = LOG_LINES, .def = LOG_LINES),
    FIELD(struct log_query, direction, F_ENUM, .names = directions),
    FIELD(struct log_query, level, F_ENUM, .names = levels, .help = "that level and above"),
    FIELD(struct log_query, search, F_STR, .max = 256, .help = "text the message must contain"),
    {},
};
static const struct field log_query_v1[] = {
    FIELD_AS(struct log_query, cursor, "start", F_INT, .max = INT64_MAX / 2,
             .help = "unix milliseconds"),
    FIELD(struct log_query, limit, F_INT, .min = 1, .max = LOG_LINES, .def = LOG_LINES),
    {},
};

struct gather {
    struct call *call;
    struct arena *arena;
    const struct log_query *query;
    struct entry *items; /* room for the query's limit, used as a ring when reading backward */
    size_t n;
};

static bool wanted(const struct log_query *q, const struct event *e, const char *text)
{
    bool in_time = q->direction && q->cursor ? e->at_ms <= q->cursor : e->at_ms >= q->cursor;

    return in_time && (int64_t)level_of(e->kind) >= q->level &&
           (!q->search || strstr(text, q->search));
}

static void put_field(struct arena *a, struct map *m, const char *key, const char *value)
{
    m->items[m->n++] =
        (struct map_item){ arena_strdup(a, str_of(key)), arena_strdup(a, str_of(value)) };
}

static int gather_event(void *arg, const struct event *e)
{
    struct gather *g = arg;
    const char *text = api_public_text(g->call, e->text);
    struct entry *out;
    size_t limit = (size_t)g->query->limit;

    if (!wanted(g->query, e, text))
        return 0;
    if (!g->query->direction && g->n == limit)
        return 1;
    out = &g->items[g->n++ % limit];
    *out = (struct entry){ .at_ms = e->at_ms,
                           .message = arena_strdup(g->arena, str_of(text)),
                           .level = level_of(e->kind) };
    out->fields.items = arena_alloc(g->arena, 2 * sizeof(*out->fields.items));
    put_field(g->arena, &out->fields, "event", e->kind);
    put_field(g->arena, &out->fields, "actor", e->actor);
    return 0;
}

static struct objs in_order(struct call *c, const struct gather *g)
{
    size_t limit = (size_t)g->query->limit, n = MIN(g->n, limit);
    struct entry *out = arena_alloc(&c->arena, sizeof(*out) * n);

    for (size_t i = 0; i < n; i++) {
        out[i] = g->items[g->query->direction ? (g->n - 1 - i) % limit : i];
        out[i].timestamp = api_time(c, out[i].at_ms);
    }
    return (struct objs){ n, out };
}

static int get_logs(struct call *c, void *body, struct err *err)
{
    struct log_query q = { 0 };
    struct gather g = { c, &c->arena, &q };
    struct objs found;
    struct sandbox *s = api_sandbox(c, err);

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    g.items = arena_alloc(&c->arena, sizeof(*g.items) * (size_t)q.limit);
    if (control_events(api_of(c)->control, arena_strdup(&c->arena, str_of(s->id)), 0, EVENTS_READ,
                       gather_event, &g, err))
        return -1;
    found = in_order(c, &g);
    return api_reply(c, &(struct logs){ found, found });
}

#define TAG .body_max = API_BODY_MAX, .tag = "E2B sandboxes"

const struct route e2b_watch_routes[] = {
    { "GET", "/sandboxes/metrics", ROUTE_RAW, ROUTE_LENIENT, .fn = get_latest,
      .operation = "e2bGetLatestMetrics", .help = "The latest metric of several sandboxes.",
      .query = latest_query, .reply = latest, TAG },
    { "GET", "/sandboxes/{sandboxID}/metrics", ROUTE_RAW, ROUTE_LENIENT | ROUTE_LIST,
      .fn = get_metrics, .operation = "e2bGetMetrics",
      .help = "What it used lately, a sample every ten seconds and one of now.",
      .query = metrics_query, .reply = metric, TAG },
    { "GET", "/sandboxes/{sandboxID}/logs", ROUTE_RAW, ROUTE_LENIENT, .fn = get_logs,
      .operation = "e2bGetLogsV1", .help = "What happened to it.", .query = log_query_v1,
      .reply = logs_v1, TAG },
    { "GET", "/v2/sandboxes/{sandboxID}/logs", ROUTE_RAW, ROUTE_LENIENT, .fn = get_logs,
      .operation = "e2bGetLogs", .help = "What happened to it, filtered.", .query = log_query_v2,
      .reply = logs_v2, TAG },
    {}
};
