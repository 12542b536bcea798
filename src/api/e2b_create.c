/* e2b_create.c - E2B's create, in the generation with /v2 and in the one before it. */
#include "api/e2b.h"
#include "api/tables.h"
#include "model/envd.h"

/* ---- the answer ---- */

const struct field e2b_sandbox[] = {
    FIELD(struct e2b_sandbox, templateID, F_STR, .flags = F_REQUIRED),
    FIELD(struct e2b_sandbox, sandboxID, F_STR, .flags = F_REQUIRED),
    FIELD(struct e2b_sandbox, clientID, F_STR, .flags = F_REQUIRED, .help = "always the same"),
    FIELD(struct e2b_sandbox, alias, F_STR, .flags = F_OMIT),
    FIELD(struct e2b_sandbox, envdVersion, F_STR, .flags = F_REQUIRED),
    FIELD(struct e2b_sandbox, envdAccessToken, F_STR, .flags = F_OMIT,
          .help = "for X-Access-Token on requests to the guest"),
    FIELD(struct e2b_sandbox, trafficAccessToken, F_STR, .flags = F_OMIT,
          .help = "for E2B-Traffic-Access-Token on requests to ports of services, and to all ports "
                  "of one that is not public"),
    FIELD(struct e2b_sandbox, domain, F_STR, .flags = F_OMIT,
          .help = "ports are reached at {port}-{sandboxID}.{domain}"),
    {}
};

int e2b_reply_sandbox(struct call *c, int status, const struct sandbox *s)
{
    AUTO(buf_free) struct buf json = { 0 };
    const struct e2b_sandbox view = {
        .templateID = s->template,
        .sandboxID = s->id,
        .clientID = E2B_CLIENT,
        .alias = s->template,
        .envdVersion = ENVD_VERSION,
        .envdAccessToken = s->token[0] ? s->token : NULL,
        .trafficAccessToken = s->traffic_token[0] ? s->traffic_token : NULL,
        .domain = control_domain(api_of(c)->control),
    };

    field_encode(e2b_sandbox, &view, &json);
    return call_reply_json(c, status, &json);
}

/* ---- create ---- */

struct auto_resume {
    bool enabled;
};
static const struct field auto_resume[] = {
    FIELD(struct auto_resume, enabled, F_BOOL),
    {},
};

struct create {
    char *templateID;
    int64_t timeout;
    bool autoPause, autoPauseMemory, allow_internet, secure;
    struct auto_resume *autoResume;
    struct e2b_network *network;
    struct map metadata, envVars;
    char *mcp, *iam;
    char *volumeMounts;
};

#define CREATE_FIELDS                                                                              \
    FIELD(struct create, templateID, F_STR, .flags = F_REQUIRED, .min = 1,                         \
          .max = E2B_TEMPLATE_MAX, .help = "name of a template"),                                  \
        FIELD(struct create, timeout, F_INT, .min = 1, .max = E2B_TIMEOUT_MAX_S,                   \
              .def = E2B_TIMEOUT_S, .help = "seconds until it is ended"),                          \
        FIELD(struct create, metadata, F_MAP, .help = "for filters of the list"),                  \
        FIELD(struct create, envVars, F_MAP, .help = "environment of every process"),              \
        FIELD_AS(struct create, allow_internet, "allow_internet_access", F_BOOL, .def = true),     \
        FIELD(struct create, network, F_OBJ, .sub = e2b_network,                                   \
              .sub_size = sizeof(struct e2b_network)),                                             \
        FIELD(struct create, autoPause, F_BOOL, .help = "at its timeout it is paused, not ended"), \
        FIELD(struct create, autoPauseMemory, F_BOOL, .def = true,                                 \
              .help = "false: only files are kept, its processes end"),                            \
        FIELD(struct create, autoResume, F_OBJ, .sub = auto_resume,                                \
              .sub_size = sizeof(struct auto_resume), .help = "a request wakes a paused one"),     \
        FIELD(struct create, mcp, F_JSON, .help = "for the SDK, which starts the gateway itself"), \
        FIELD(struct create, iam, F_JSON, .help = "not supported"),                                \
        FIELD(struct create, volumeMounts, F_JSON, .help = "not supported")

static const struct field create_v2[] = { CREATE_FIELDS, {} };
static const struct field create_v1[] = {
    CREATE_FIELDS,
    FIELD(struct create, secure, F_BOOL, .help = "whether the guest demands the access token"),
    {},
};

static bool is_empty(const char *json)
{
    return !json || !strcmp(json, "{}") || !strcmp(json, "[]") || !strcmp(json, "{\"tokens\":{}}");
}

static bool wakes(const struct create *b) { return b->autoResume && b->autoResume->enabled; }

/* What we would have to promise and could not keep. */
static int refuse_unkept(const struct create *b, struct err *err)
{
    if (b->autoPause && !b->autoPauseMemory && wakes(b))
        return err_set(err, ERR_INVALID,
                       "field 'autoPauseMemory': false does not go together with autoResume");
    if (!is_empty(b->iam))
        return err_set(err, ERR_UNSUPPORTED,
                       "field 'iam': this server issues no workload identity; pass credentials by "
                       "envVars");
    if (!is_empty(b->volumeMounts))
        return err_set(
            err, ERR_UNSUPPORTED,
            "field 'volumeMounts': this server has no volumes; POST /v1/sandboxes mounts "
            "directories of the host");
    return 0;
}

/* name:tag. Templates have one version here, which is E2B's default tag. */
static char *template_of(struct call *c, const struct create *b, struct err *err)
{
    struct str name, tag;

    if (!str_cut(str_of(b->templateID), ':', &name, &tag) || str_is(tag, "default"))
        return arena_strdup(&c->arena, name);
    err_set(err, ERR_NOT_FOUND, "template '%.64s': there is no tag but 'default'", b->templateID);
    return NULL;
}

static int create(struct call *c, const struct create *b, bool secure, struct err *err)
{
    struct create_spec spec = {
        .template = template_of(c, b, err),
        .facade = "e2b",
        .life = { .timeout_ms = b->timeout * 1000,
                  .expiry = !b->autoPause        ? EXPIRY_KILL
                            : b->autoPauseMemory ? EXPIRY_PAUSE
                                                 : EXPIRY_PAUSE_FILES,
                  .auto_resume = wakes(b) },
        .secure = secure,
        .public = !b->network || b->network->allowPublicTraffic,
        .metadata = &b->metadata,
        .env = &b->envVars,
    };
    struct sandbox *s;
    bool existed;

    if (!spec.template || refuse_unkept(b, err) ||
        e2b_network_of(b->network, b->allow_internet, &spec.network, err))
        return -1;
    /* the SDKs say true where their user said nothing: only a list of addresses asks for it */
    if (spec.network == NETWORK_OPEN && !(b->network && b->network->allowOut.n))
        spec.network = NETWORK_DEFAULT;
    if (api_idempotency(c, b, &spec, err) ||
        control_create(api_of(c)->control, api_actor(c), &spec, &s, &existed, err))
        return -1;
    return e2b_reply_sandbox(c, 201, s);
}

static int create_secure(struct call *c, void *body, struct err *err)
{
    return create(c, body, true, err);
}

static int create_first(struct call *c, void *body, struct err *err)
{
    return create(c, body, ((const struct create *)body)->secure, err);
}

#define TAG .body_max = API_BODY_MAX, .tag = "E2B sandboxes"

const struct route e2b_create_routes[] = {
    { "POST", "/v2/sandboxes", ROUTE_JSON, ROUTE_LENIENT, create_v2, sizeof(struct create),
      create_secure, "e2bCreateSandbox",
      "Create a sandbox. Its guest demands the access token of the answer.", .reply = e2b_sandbox,
      .status = 201, TAG },
    { "POST", "/sandboxes", ROUTE_JSON, ROUTE_LENIENT, create_v1, sizeof(struct create),
      create_first, "e2bCreateSandboxV1", "Create a sandbox, as SDKs up to 2.45 do.",
      .reply = e2b_sandbox, .status = 201, TAG },
    {}
};
