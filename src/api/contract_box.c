/* contract_box.c - the contract's sandboxes: create, look, time, end. The life it gives them is
 * idleness and a pause; user_id is a label that they carry and gives nobody any right. */
#include "api/contract.h"
#include "api/tables.h"

enum { USER_MAX = 256, TEMPLATE_MAX = 127, TIMEOUT_MAX_S = 86400, REASON_MAX = 128 };

/* ---- create, connect ---- */

struct made {
    bool success;
    const char *sandbox_id, *provider_sandbox_id, *status, *message, *mcp_url, *vscode_url;
};
static const struct field made[] = {
    FIELD(struct made, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct made, sandbox_id, F_STR, .flags = F_REQUIRED, .help = "a UUID"),
    FIELD(struct made, provider_sandbox_id, F_STR, .flags = F_REQUIRED,
          .help = "short: of host names, as good as sandbox_id everywhere"),
    FIELD(struct made, status, F_STR, .flags = F_REQUIRED,
          .help = "initializing, running or paused"),
    FIELD(struct made, message, F_STR, .flags = F_REQUIRED | F_NULL),
    FIELD(struct made, mcp_url, F_STR, .flags = F_REQUIRED | F_NULL),
    FIELD(struct made, vscode_url, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

static int reply_made(struct call *c, struct sandbox *s, const char *message)
{
    const struct api *a = api_of(c);
    const struct made view = {
        .success = true,
        .sandbox_id = s->uuid,
        .provider_sandbox_id = s->id,
        .status = contract_status(s),
        .message = message,
        .mcp_url = contract_url(c, s, a->contract.mcp_port),
        .vscode_url = contract_page_url(c, s, a->contract.code_port),
    };

    return contract_reply(c, &view);
}

struct create {
    char *user_id, *sandbox_template_id;
};
static const struct field create_body[] = {
    FIELD(struct create, user_id, F_STR, .flags = F_REQUIRED, .max = USER_MAX,
          .help = "a label of your own; who owns the sandbox the token says"),
    FIELD(struct create, sandbox_template_id, F_STR, .flags = F_NULL, .max = TEMPLATE_MAX,
          .help = "name of a template; default: the server's"),
    {},
};

static int create_sandbox(struct call *c, void *body, struct err *err)
{
    const struct create *b = body;
    const struct api *a = api_of(c);
    bool named = b->sandbox_template_id && *b->sandbox_template_id;
    char user_key[] = "user_id", template_key[] = "sandbox_template_id";
    struct map_item items[] = { { user_key, b->user_id },
                                { template_key, b->sandbox_template_id } };
    struct map metadata = { named ? 2 : 1, items };
    struct create_spec spec = {
        .template = named ? b->sandbox_template_id : a->contract.template,
        .label = b->user_id,
        .facade = "contract",
        .life = { .idle_ms = contract_limits.idle_s * 1000,
                  .expiry = EXPIRY_PAUSE,
                  .auto_resume = true },
        .network = NETWORK_DEFAULT,
        .secure = true,
        .public = true,
        .metadata = &metadata,
    };
    struct sandbox *s;
    bool existed;

    if (api_idempotency(c, b, &spec, err) ||
        control_create(a->control, api_actor(c), &spec, &s, &existed, err))
        return -1;
    return reply_made(c, s, "Sandbox created successfully");
}

struct named {
    char *sandbox_id;
};
#define SANDBOX_ID_FIELD(type)                                                                     \
    FIELD(type, sandbox_id, F_STR, .flags = F_REQUIRED, .min = 1, .max = CONTRACT_ID_MAX,          \
          .help = "its sandbox_id or provider_sandbox_id")

static const struct field named_body[] = { SANDBOX_ID_FIELD(struct named), {} };

static int connect_sandbox(struct call *c, void *body, struct err *err)
{
    const struct named *b = body;
    struct contract_box box;

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    return contract_leave(&box, reply_made(c, box.sandbox, "Sandbox connected successfully"), err);
}

/* ---- looking: never activity, and wakes nobody ---- */

static struct sandbox *by_path(struct call *c, struct err *err)
{
    return contract_find(c, arena_strdup(&c->arena, c->param[0]), err);
}

struct status {
    bool success;
    const char *sandbox_id, *status, *provider_sandbox_id, *message;
};
static const struct field status[] = {
    FIELD(struct status, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct status, sandbox_id, F_STR, .flags = F_REQUIRED),
    FIELD(struct status, status, F_STR, .flags = F_REQUIRED,
          .help = "initializing, running or paused"),
    FIELD(struct status, provider_sandbox_id, F_STR, .flags = F_REQUIRED),
    FIELD(struct status, message, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

static int get_sandbox_status(struct call *c, void *body, struct err *err)
{
    const struct sandbox *s = by_path(c, err);

    (void)body;
    if (!s)
        return -1;
    return contract_reply(c, &(struct status){ .success = true,
                                               .sandbox_id = s->uuid,
                                               .status = contract_status(s),
                                               .provider_sandbox_id = s->id });
}

struct info {
    bool success;
    const char *id, *provider, *user_id, *provider_sandbox_id, *status, *created_at, *started_at,
        *stopped_at, *last_activity_at, *message;
};
#define INFO(member) FIELD(struct info, member, F_STR, .flags = F_REQUIRED | F_NULL)
static const struct field info[] = {
    FIELD(struct info, success, F_BOOL, .flags = F_REQUIRED),
    INFO(id),
    INFO(provider),
    INFO(user_id),
    INFO(provider_sandbox_id),
    INFO(status),
    INFO(created_at),
    INFO(started_at),
    INFO(stopped_at),
    INFO(last_activity_at),
    INFO(message),
    {},
};

static int get_sandbox_info(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = by_path(c, err);
    struct sandbox_times t;
    int r;

    (void)body;
    if (!s)
        return -1;
    control_hold(s);
    r = control_times(api_of(c)->control, s, &t, err);
    if (!r)
        r = contract_reply(c, &(struct info){ .success = true,
                                              .id = s->uuid,
                                              .provider = s->provider,
                                              .user_id = s->label,
                                              .provider_sandbox_id = s->id,
                                              .status = contract_status(s),
                                              .created_at = api_time(c, s->created_ms),
                                              .started_at = api_time(c, t.started),
                                              .stopped_at = api_time(c, t.stopped),
                                              .last_activity_at = api_time(c, t.active) });
    control_release(s);
    return r;
}

struct urls {
    bool success;
    const char *sandbox_id, *mcp_url, *vscode_url;
};
static const struct field urls[] = {
    FIELD(struct urls, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct urls, sandbox_id, F_STR, .flags = F_REQUIRED),
    FIELD(struct urls, mcp_url, F_STR, .flags = F_REQUIRED | F_NULL),
    FIELD(struct urls, vscode_url, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

static int get_sandbox_urls(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = by_path(c, err);
    const struct api *a = api_of(c);

    (void)body;
    if (!s)
        return -1;
    return contract_reply(
        c, &(struct urls){ .success = true,
                           .sandbox_id = s->uuid,
                           .mcp_url = contract_url(c, s, a->contract.mcp_port),
                           .vscode_url = contract_page_url(c, s, a->contract.code_port) });
}

/* ---- ports ---- */

struct expose {
    char *sandbox_id;
    int64_t port;
};
static const struct field expose_body[] = {
    SANDBOX_ID_FIELD(struct expose),
    FIELD(struct expose, port, F_INT, .flags = F_REQUIRED, .min = 1, .max = 65535),
    {},
};
struct exposed {
    bool success;
    const char *url, *message;
};
static const struct field exposed[] = {
    FIELD(struct exposed, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct exposed, url, F_STR, .flags = F_REQUIRED),
    FIELD(struct exposed, message, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

/* Every port is reachable as it is; this says where. */
static int expose_port(struct call *c, void *body, struct err *err)
{
    const struct expose *b = body;
    struct contract_box box;
    struct exposed view = { .success = true };

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    view.url = contract_url(c, box.sandbox, b->port);
    view.message = arena_printf(&c->arena, "Port %lld exposed successfully", (long long)b->port);
    return contract_leave(&box, contract_reply(c, &view), err);
}

/* ---- time ---- */

struct timeout {
    char *sandbox_id;
    int64_t timeout_seconds;
};
static const struct field timeout_body[] = {
    SANDBOX_ID_FIELD(struct timeout),
    FIELD(struct timeout, timeout_seconds, F_INT, .flags = F_REQUIRED, .min = 1,
          .max = TIMEOUT_MAX_S, .help = "seconds without an operation until it is paused"),
    {},
};

static int schedule_timeout(struct call *c, void *body, struct err *err)
{
    const struct timeout *b = body;
    struct sandbox *s = contract_find(c, b->sandbox_id, err);

    if (!s || control_set_idle(api_of(c)->control, api_actor(c), s, b->timeout_seconds * 1000, err))
        return -1;
    return contract_reply(
        c, &(struct contract_done){ .success = true,
                                    .message =
                                        arena_printf(&c->arena, "Timeout of %lld seconds scheduled",
                                                     (long long)b->timeout_seconds) });
}

struct pause_query {
    char *reason;
};
static const struct field pause_query[] = {
    FIELD(struct pause_query, reason, F_STR, .max = REASON_MAX, .help = "default manual"),
    {},
};

static int pause_sandbox(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = by_path(c, err);
    struct pause_query q = { 0 };
    int r;

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    control_hold(s);
    r = control_pause(api_of(c)->control, api_actor(c), s, q.reason, true, err);
    if (r && err->code == ERR_CONFLICT && s->state == SANDBOX_PAUSED)
        r = 0; /* it is as it was asked to be */
    control_release(s);
    if (r)
        return -1;
    return contract_reply(
        c, &(struct contract_done){
               .success = true,
               .message = arena_printf(&c->arena, "Sandbox paused successfully (reason: %s)",
                                       q.reason ? q.reason : "manual") });
}

static int delete_sandbox(struct call *c, void *body, struct err *err)
{
    struct sandbox *s = by_path(c, err);

    (void)body;
    if (!s || control_kill(api_of(c)->control, api_actor(c), s, NULL, err))
        return -1;
    return contract_reply(
        c, &(struct contract_done){ .success = true, .message = "Sandbox deleted successfully" });
}

#define TAG .body_max = API_BODY_MAX, .tag = CONTRACT_TAGS

const struct route contract_box_routes[] = {
    { "POST", CONTRACT "/create", ROUTE_JSON, ROUTE_LENIENT, create_body, sizeof(struct create),
      create_sandbox, "create_sandbox", "Create a sandbox. It is paused after two idle hours.",
      .reply = made, TAG },
    { "POST", CONTRACT "/connect", ROUTE_JSON, ROUTE_LENIENT, named_body, sizeof(struct named),
      connect_sandbox, "connect_sandbox", "Use a sandbox again; a paused one is resumed.",
      .reply = made, TAG },
    { "GET", CONTRACT "/{sandbox_id}/status", ROUTE_RAW, .fn = get_sandbox_status,
      .operation = "get_sandbox_status", .help = "Whether it runs or is paused.", .reply = status,
      TAG },
    { "GET", CONTRACT "/{sandbox_id}/info", ROUTE_RAW, .fn = get_sandbox_info,
      .operation = "get_sandbox_info", .help = "Whose it is, and when what happened.",
      .reply = info, TAG },
    { "GET", CONTRACT "/{sandbox_id}/urls", ROUTE_RAW, .fn = get_sandbox_urls,
      .operation = "get_sandbox_urls", .help = "Where its MCP server and its editor are.",
      .reply = urls, TAG },
    { "POST", CONTRACT "/expose-port", ROUTE_JSON, ROUTE_LENIENT, expose_body,
      sizeof(struct expose), expose_port, "expose_port", "The URL of a port inside.",
      .reply = exposed, TAG },
    { "POST", CONTRACT "/schedule-timeout", ROUTE_JSON, ROUTE_LENIENT, timeout_body,
      sizeof(struct timeout), schedule_timeout, "schedule_timeout",
      "Pause it after so many idle seconds.", .reply = contract_done, TAG },
    { "POST", CONTRACT "/{sandbox_id}/pause", ROUTE_RAW, .fn = pause_sandbox,
      .operation = "pause_sandbox", .help = "Let it stand still; any operation resumes it.",
      .query = pause_query, .reply = contract_done, TAG },
    { "DELETE", CONTRACT "/{sandbox_id}", ROUTE_RAW, .fn = delete_sandbox,
      .operation = "delete_sandbox", .help = "End it.", .reply = contract_done, TAG },
    {}
};
