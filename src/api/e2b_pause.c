/* e2b_pause.c - E2B's pause, and the ways out of it: connect, in the generation with /v2 and in the
 * one before it, and resume, which is older than both. */
#include "api/e2b.h"
#include "api/tables.h"

/* ---- pause ---- */

struct pause {
    bool memory, requireHealthyGuest;
};

static const struct field pause_fields[] = {
    FIELD(struct pause, memory, F_BOOL, .def = true,
          .help = "false: only files are kept; its processes end"),
    FIELD(struct pause, requireHealthyGuest, F_BOOL,
          .help = "of no effect: nothing is asked of it"),
    {},
};

static int pause_sandbox(struct call *c, void *body, struct err *err)
{
    const struct pause *b = body;
    struct sandbox *s = api_sandbox(c, err);

    if (!s || control_pause(api_of(c)->control, api_actor(c), s, NULL, b->memory, err))
        return -1;
    return api_reply_empty(c);
}

/* ---- connect and resume ---- */

struct connect {
    int64_t timeout;
    bool memory, autoPause;
};

static const struct field connect_v2[] = {
    FIELD(struct connect, timeout, F_INT, .min = 1, .max = E2B_TIMEOUT_MAX_S, .def = E2B_TIMEOUT_S,
          .help = "seconds from now; only ever extends one that runs"),
    FIELD(struct connect, memory, F_BOOL, .def = true,
          .help = "false: a paused one is started again on its files"),
    {},
};
static const struct field connect_v1[] = {
    FIELD(struct connect, timeout, F_INT, .flags = F_REQUIRED, .min = 1, .max = E2B_TIMEOUT_MAX_S,
          .help = "seconds from now; only ever extends one that runs"),
    FIELD(struct connect, memory, F_BOOL, .def = true,
          .help = "false: a paused one is started again on its files"),
    {},
};
static const struct field resume_fields[] = {
    FIELD(struct connect, timeout, F_INT, .min = 1, .max = E2B_TIMEOUT_MAX_S, .def = E2B_TIMEOUT_S,
          .help = "seconds from now"),
    FIELD(struct connect, autoPause, F_BOOL, .help = "of no effect: what create said stays"),
    FIELD(struct connect, memory, F_BOOL, .def = true,
          .help = "false: a paused one is started again on its files"),
    {},
};

static int connect_sandbox(struct call *c, void *body, struct err *err)
{
    const struct connect *b = body;
    struct sandbox *s = api_sandbox(c, err);
    bool resumed = false;
    int r;

    if (!s)
        return -1;
    control_hold(s); /* what it does is written down first, and so parks */
    r = control_connect(api_of(c)->control, api_actor(c), s, b->timeout * 1000, b->memory, &resumed,
                        err);
    if (!r)
        r = e2b_reply_sandbox(c, resumed ? 201 : 200, s);
    control_release(s);
    return r;
}

static int resume_sandbox(struct call *c, void *body, struct err *err)
{
    const struct connect *b = body;
    struct sandbox *s = api_sandbox(c, err);
    int r;

    if (!s)
        return -1;
    control_hold(s);
    r = control_resume(api_of(c)->control, api_actor(c), s, b->timeout * 1000, b->memory, err);
    if (!r)
        r = e2b_reply_sandbox(c, 201, s);
    control_release(s);
    return r;
}

#define TAG .body_max = API_BODY_MAX, .tag = "E2B sandboxes"

const struct route e2b_pause_routes[] = {
    { "POST", "/sandboxes/{sandboxID}/pause", ROUTE_JSON, ROUTE_LENIENT, pause_fields,
      sizeof(struct pause), pause_sandbox, "e2bPauseSandbox",
      "Let a sandbox stand still until it is resumed: a paused one is a conflict.", .status = 204,
      TAG },
    { "POST", "/v2/sandboxes/{sandboxID}/connect", ROUTE_JSON, ROUTE_LENIENT | ROUTE_OR_201,
      connect_v2, sizeof(struct connect), connect_sandbox, "e2bConnectSandbox",
      "Its tokens and address, and at least that much time; 201: it was paused, and goes on.",
      .reply = e2b_sandbox, TAG },
    { "POST", "/sandboxes/{sandboxID}/connect", ROUTE_JSON, ROUTE_LENIENT | ROUTE_OR_201,
      connect_v1, sizeof(struct connect), connect_sandbox, "e2bConnectSandboxV1",
      "Connect as SDKs up to 2.45 do.", .reply = e2b_sandbox, TAG },
    { "POST", "/sandboxes/{sandboxID}/resume", ROUTE_JSON, ROUTE_LENIENT, resume_fields,
      sizeof(struct connect), resume_sandbox, "e2bResumeSandbox",
      "Let a paused sandbox go on: a running one is a conflict.", .reply = e2b_sandbox,
      .status = 201, TAG },
    {}
};
