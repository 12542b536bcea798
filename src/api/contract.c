/* contract.c - the envelope of the control-plane contract, its errors, and how an operation gets at
 * its sandbox. */
#include "api/contract.h"

#include "api/tables.h"
#include "base/id.h"
#include "io/jwt.h"
#include "model/door.h"

struct contract_limits contract_limits = {
    .idle_s = 7200,
    .command_s = 600,
    .output_bytes = 8 << 20,
    .upload_bytes = 1 << 30,
};

const struct setting contract_settings[] = {
    { "contract.idle-s", &contract_limits.idle_s, 1, 86400,
      "seconds without an operation after which a sandbox of the contract is paused" },
    { "contract.command-s", &contract_limits.command_s, 1, 86400,
      "seconds that a command may run in the foreground before it is ended" },
    { "contract.output-bytes", &contract_limits.output_bytes, 1024, 64 << 20,
      "bytes of a command's output that are kept for the answer, of each stream" },
    { "contract.upload-bytes", &contract_limits.upload_bytes, 1024, INT64_MAX,
      "bytes of a file that is uploaded as a form, or fetched from or sent to a URL" },
    { 0 },
};

const struct route *const contract_tables[] = { contract_auth_routes, contract_box_routes,
                                                contract_run_routes,  contract_file_routes,
                                                contract_url_routes,  NULL };

/* ---- errors ---- */

/* What the contract says in its own words. */
static const struct {
    const char *ours, *theirs;
} words[] = {
    { JWT_EXPIRED, "Token 已过期" },
    { TOKEN_SUPERSEDED, "Token 已失效" },
    { LOGIN_WRONG, "用户名或密码有误" },
    { LOGIN_LOCKED, "用户已被锁定, 请稍后重试" },
};

static const char bad_request[] = "BAD_REQUEST";

bool contract_owns(struct str path)
{
    return str_starts(path, "/agent/") || str_starts(path, "/api/v1/");
}

/* Its map: 401, 404, 408 and 422 have their causes, and all else that is not the client's is 500.
 */
static int status_of(const struct call *c, const struct err *err)
{
    int status = err_status(err->code);

    if (!c->route || !strcmp(err->msg, bad_request))
        return MIN(status, 500);
    switch (status) {
    case 400:
    case 409: return 422;
    case 504: return 408;
    default: return MIN(status, 500);
    }
}

static const char *words_of(struct call *c, const struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!strcmp(err->msg, words[i].ours))
            return words[i].theirs;
    if (err->code == ERR_UNAUTHENTICATED)
        return "Token 无效";
    if (err->code == ERR_INVALID && c->route && strcmp(err->msg, bad_request))
        return arena_printf(&c->arena, "请求参数非法: %s", err->msg);
    return err->msg;
}

static const char *trace_id(struct call *c)
{
    if (!c->id[0] && !http_get(&c->head, "x-request-id").p)
        id_uuid(c->id);
    return call_id(c);
}

bool contract_refuse(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    int status;

    if (!contract_owns(c->path))
        return false;
    status = status_of(c, err);
    json_open(&json, '{');
    json_kv_int(&json, "code", status);
    json_kv_str(&json, "msg", words_of(c, err));
    json_key(&json, "data");
    json_put_null(&json);
    if (err->code != ERR_UNAUTHENTICATED && strcmp(err->msg, bad_request))
        json_kv_str(&json, "trace_id", trace_id(c));
    json_close(&json, '}');
    call_reply_json(c, status, &json);
    return true;
}

/* ---- requests ---- */

static bool is_uuid(struct str s)
{
    size_t digits = 0;

    for (size_t i = 0; i < s.n; i++) {
        bool hex = (s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f') ||
                   (s.p[i] >= 'A' && s.p[i] <= 'F');

        if (!hex && (s.p[i] != '-' || s.n != 36 || (i != 8 && i != 13 && i != 18 && i != 23)))
            return false;
        digits += hex;
    }
    return digits == 32;
}

int contract_before(struct call *c, struct err *err)
{
    struct str id = http_get(&c->head, "x-request-id");

    trace_id(c);
    return id.p && !is_uuid(id) ? err_set(err, ERR_INVALID, "%s", bad_request) : 0;
}

/* ---- answers ---- */

int contract_reply(struct call *c, const void *view)
{
    AUTO(buf_free) struct buf json = { 0 };

    buf_puts(&json, "{\"code\":200,\"msg\":\"Request success\",\"data\":");
    if (view)
        field_encode(c->route->reply, view, &json);
    else
        json_put_null(&json);
    buf_putc(&json, '}');
    return call_reply_json(c, 200, &json);
}

const struct field contract_done[] = {
    FIELD(struct contract_done, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct contract_done, message, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

const struct field contract_file_reply[] = {
    FIELD(struct contract_done, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct contract_done, content, F_STR, .flags = F_REQUIRED | F_NULL, .help = "null"),
    FIELD(struct contract_done, message, F_STR, .flags = F_REQUIRED | F_NULL),
    {},
};

/* ---- sandboxes ---- */

static int not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "Sandbox %.64s not found", id);
}

struct sandbox *contract_find(struct call *c, const char *id, struct err *err)
{
    struct sandbox *s = control_find(api_of(c)->control, api_actor(c), str_of(id), err);

    if (!s)
        not_found(id, err);
    return s;
}

int contract_enter(struct contract_box *b, struct call *c, const char *id, struct err *err)
{
    struct control *control = api_of(c)->control;

    *b = (struct contract_box){ .call = c, .id = id, .sandbox = contract_find(c, id, err) };
    if (!b->sandbox)
        return -1;
    control_hold(b->sandbox);
    if (control_work_begin(control, api_actor(c), b->sandbox, err)) {
        if (err->code == ERR_NOT_FOUND)
            not_found(id, err);
        control_release(b->sandbox);
        return -1;
    }
    b->guest.client = control_client(control);
    b->guest.token = b->sandbox->token[0] ? b->sandbox->token : NULL;
    control_to(control, b->sandbox, PROVIDER_GUEST_PORT, &b->guest.to);
    b->guest.to.whole = true;
    return 0;
}

int contract_leave(struct contract_box *b, int r, struct err *err)
{
    enum sandbox_state state = (enum sandbox_state)b->sandbox->state;

    if (r < 0 && !b->call->status && (state == SANDBOX_ENDING || state == SANDBOX_ENDED))
        not_found(b->id, err);
    else if (r < 0 && !b->call->status && (state == SANDBOX_PAUSED || state == SANDBOX_RESUMING))
        err_set(err, ERR_UNAVAILABLE,
                "Sandbox %.64s was paused while it worked on this: what it did is kept; ask again",
                b->id);
    else if (r < 0 && err->code == ERR_GONE && !b->call->status)
        err->code = ERR_UPSTREAM; /* who left is the guest, and the client still waits */
    control_work_end(b->sandbox);
    control_release(b->sandbox);
    return r;
}

const char *contract_url(struct call *c, const struct sandbox *s, int64_t port)
{
    const struct api *a = api_of(c);

    if (a->contract.by_path)
        return arena_printf(&c->arena, "%s/%s/%lld", a->contract.preview_url, s->id,
                            (long long)port);
    return arena_printf(&c->arena, "%s://%lld-%s.%s", a->contract.scheme, (long long)port, s->id,
                        control_domain(a->control));
}

const char *contract_page_url(struct call *c, struct sandbox *s, int64_t port)
{
    const char *url = contract_url(c, s, port);
    char ticket[DOOR_TICKET + 1];

    if (s->public && !(s->token[0] && door_of_sandbox(s, (uint16_t)port)))
        return url;
    call_header(c, "Cache-Control", "no-store");
    control_door_ticket(s, (uint16_t)port, ticket);
    return arena_printf(&c->arena, "%s/?" DOOR_TICKET_NAME "=%s", url, ticket);
}

const char *contract_status(const struct sandbox *s)
{
    static const char *const names[SANDBOX_STATES] = {
        [SANDBOX_CREATING] = "initializing", [SANDBOX_RUNNING] = "running",
        [SANDBOX_PAUSING] = "paused",        [SANDBOX_PAUSED] = "paused",
        [SANDBOX_RESUMING] = "paused",       [SANDBOX_ENDING] = "initializing",
        [SANDBOX_ENDED] = "initializing",
    };

    return names[s->state];
}
