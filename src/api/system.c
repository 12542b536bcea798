/* system.c - about the server itself: is it well, its numbers, its API as a document. */
#include "api/api.h"
#include "api/docs.h"
#include "api/tables.h"
#include "base/prom.h"
#include "io/forwarded.h"
#include "io/openapi.h"

/* ---- health ---- */

struct health {
    const char *status, *timestamp, *version, *service;
};
static const struct field health[] = {
    FIELD(struct health, status, F_STR, .flags = F_REQUIRED, .help = "healthy"),
    FIELD(struct health, timestamp, F_STR, .flags = F_REQUIRED),
    FIELD(struct health, version, F_STR, .flags = F_REQUIRED),
    FIELD(struct health, service, F_STR, .flags = F_REQUIRED, .help = "cove"),
    {},
};

static int get_health(struct call *c, void *body, struct err *err)
{
    const struct health view = { "healthy", api_time(c, clock_wall_s() * 1000), api_of(c)->version,
                                 "cove" };

    (void)body, (void)err;
    call_header(c, "Cache-Control", "no-store");
    return api_reply(c, &view);
}

/* ---- metrics ---- */

static void put_listener(struct buf *b, const char *metric, const char *name, int64_t value)
{
    prom_value(b, metric, (const char *const[]){ "listener", name, NULL }, (double)value);
}

static void put_listeners(struct buf *b, const struct httpd *main, const struct httpd *preview)
{
    prom_head(b, "cove_http_connections", "gauge", "Open connections of clients.");
    put_listener(b, "cove_http_connections", "api", main->conns);
    if (preview)
        put_listener(b, "cove_http_connections", "preview", preview->conns);
    prom_head(b, "cove_http_requests_total", "counter", "Requests received.");
    put_listener(b, "cove_http_requests_total", "api", main->requests);
    if (preview)
        put_listener(b, "cove_http_requests_total", "preview", preview->requests);
}

static void put_seats(struct buf *b)
{
    static const char *const states[SEAT_STATES] = { [SEAT_SILENT] = "silent",
                                                     [SEAT_KEPT] = "idle",
                                                     [SEAT_OWING] = "sending",
                                                     [SEAT_BUSY] = "busy" };
    static const char *const whys[SEAT_WHYS] = {
        [SEAT_WHY_SILENT] = "silent", [SEAT_WHY_KEPT] = "idle",       [SEAT_WHY_OWING] = "stalled",
        [SEAT_WHY_UNREAD] = "unread", [SEAT_WHY_REFUSED] = "refused", [SEAT_WHY_LATE] = "late"
    };
    const struct seats_counts *n = seats_counts();

    prom_head(b, "cove_http_connection_states", "gauge",
              "Open connections of clients, by what they are at; the first is the first to go.");
    for (int i = 0; i < SEAT_STATES; i++)
        prom_value(b, "cove_http_connection_states",
                   (const char *const[]){ "state", states[i], NULL }, (double)n->now[i]);
    prom_head(
        b, "cove_http_closed_total", "counter",
        "Connections closed to make room (silent, idle, stalled, unread), refused because there was "
        "none, or closed because they said nothing for http.header-ms (late).");
    for (int i = 0; i < SEAT_WHYS; i++)
        prom_value(b, "cove_http_closed_total", (const char *const[]){ "why", whys[i], NULL },
                   (double)n->ended[i]);
}

/* A collector on this machine needs no key. What a proxy passes on also comes from here: a proxy
 * says so in the request, or is one that the operator named. */
static bool from_here(struct call *c)
{
    const char *peer = conn_peer(c->conn);
    struct str p = str_of(peer);

    return (str_starts(p, "127.") || str_is(p, "::1") || !p.n) && !forwarded_any(&c->head) &&
           !forwarded_trusts(api_of(c)->proxies, peer);
}

static int get_metrics(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct api *api = api_of(c);

    (void)body;
    if (!from_here(c)) {
        if (!api_credential(c).n) {
            call_header(c, "WWW-Authenticate", "Bearer");
            return err_set(err, ERR_UNAUTHENTICATED,
                           "from another machine, or through a proxy, the server's metrics need an "
                           "admin's API key: send it as X-API-Key, or as Authorization: Bearer");
        }
        if (api_authenticate(c, err))
            return -1;
        if (!api_actor(c)->admin)
            return err_set(err, ERR_DENIED, "only an admin may read the server's metrics");
    }
    prom_head(&b, "cove_build_info", "gauge", "The running release.");
    prom_value(&b, "cove_build_info", (const char *const[]){ "version", api->version, NULL }, 1);
    put_listeners(&b, c->server, api->preview);
    put_seats(&b);
    control_metrics(api->control, &b);
    if (api->metrics)
        api->metrics(api, &b);
    return call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&b));
}

/* ---- the document ---- */

#define ABOUT                                                                                       \
    "Sandboxes of this machine. Paths under /v1 are Cove's own API; the others are E2B's, for its " \
    "SDKs. A port of a sandbox is reached at {port}-{id}.{domain}, or on this address with the "    \
    "headers E2b-Sandbox-Id and E2b-Sandbox-Port; port 49983 is its guest."

static int get_openapi(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    openapi_write(&json,
                  &(struct openapi){ .title = "Cove",
                                     .version = api_of(c)->version,
                                     .description = ABOUT,
                                     .key_header = "X-API-Key" },
                  native_tables);
    return call_reply_json(c, 200, &json);
}

#define ABOUT_CONTRACT                                                                             \
    "The sandbox control plane. Log in at /api/v1/auth/login/swagger and send the token as "       \
    "Authorization: Bearer; an API key is as good. Every answer is {code, msg, data}. Cove's own " \
    "API is described at /v1/openapi.json."

static int get_contract(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    openapi_write(&json,
                  &(struct openapi){ .title = "Cove: sandbox control plane",
                                     .version = api_of(c)->version,
                                     .description = ABOUT_CONTRACT,
                                     .envelope = true,
                                     .key_header = "X-API-Key" },
                  contract_tables);
    return call_reply_json(c, 200, &json);
}

#define TAG .body_max = API_BODY_MAX, .tag = "Server"

const struct route api_system_routes[] = {
    { "GET", "/health", ROUTE_RAW, ROUTE_OPEN, .fn = get_health, .operation = "getHealth",
      .help = "Whether the server is up.", .reply = health, TAG },
    { "GET", "/metrics", ROUTE_RAW, ROUTE_OPEN, .fn = get_metrics, .operation = "getServerMetrics",
      .help =
          "Numbers for Prometheus. From another machine, or through a proxy: with an admin's key.",
      TAG },
    { "GET", "/v1/openapi.json", ROUTE_RAW, ROUTE_OPEN, .fn = get_openapi,
      .operation = "getOpenapi", .help = "This API as an OpenAPI 3.1 document.", TAG },
    { "GET", "/openapi.json", ROUTE_RAW, ROUTE_OPEN, .fn = get_contract,
      .operation = "getContractOpenapi",
      .help = "The control-plane contract as an OpenAPI 3.1 document.", TAG },
    { "GET", "/docs", ROUTE_RAW, ROUTE_OPEN, .fn = docs_get, .operation = "getDocs",
      .help = "This API as a page to read and try.", TAG },
    {}
};
