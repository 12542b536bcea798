/* answer.c - see answer.h. The SDKs match the words "was not found" and "port is not open". */
#include "router/answer.h"

#include "base/json.h"

static const struct {
    int status;
    const char *message;
    int cluster_status;
    const char *detail; /* of the cluster router; "%s" is the id */
} whys[ANSWER_WHYS] = {
    [WHY_BAD] = { 400, NULL, 400, NULL },
    [WHY_NOT_FOUND] = { 502, "The sandbox was not found", 502,
                        "Could not connect to the backend sandbox: %s" },
    [WHY_CLOSED_PORT] = { 502, "The sandbox is running but port is not open", 502,
                          "Could not connect to the backend sandbox: %s" },
    [WHY_TOKEN_MISSING] = { 403,
                            "This port asks who is there: send the sandbox's token in the header "
                            "X-Access-Token or e2b-traffic-access-token, or a key of its owner's in "
                            "X-API-Key. For a browser, cove url ID PORT gives a link",
                            401, "Missing or invalid Authorization header." },
    [WHY_TOKEN_WRONG] = { 403,
                          "This port asks who is there, and what was sent is neither a token of "
                          "the sandbox nor a key that may see it",
                          401, "Invalid token." },
    [WHY_CHANGING] = { 409, "The sandbox is changing its state: try again in a moment", 502,
                       "Could not connect to the backend sandbox: %s" },
    [WHY_BUSY] = { 429, "The sandbox has too many connections (router.sandbox-calls)", 429,
                   "Too many connections to the backend sandbox: %s" },
    [WHY_BROKE] = { 502, "The sandbox closed the connection before it answered", 502,
                    "Could not connect to the backend sandbox: %s" },
    [WHY_BROKEN] = { 502, "The sandbox's answer is not HTTP", 502,
                     "The backend sandbox's answer is not HTTP: %s" },
    [WHY_LATE] = { 504, "The sandbox did not answer in time", 504,
                   "Timed out waiting for the backend sandbox: %s" },
    [WHY_UNAVAILABLE] = { 503, "The sandbox cannot be reached at the moment: try again", 502,
                          "Could not connect to the backend sandbox: %s" },
    [WHY_NO_WAY] = { 501,
                     "The ports of this sandbox cannot be reached: it is older than the keeper, "
                     "which runs without root. Commands and files work; a new sandbox has ports",
                     502, "Could not connect to the backend sandbox: %s" },
    [WHY_GUEST_TOKEN] = { 401,
                          "The sandbox is paused, and only a request with its token in the header "
                          "X-Access-Token wakes it",
                          401, "Missing or invalid Authorization header." },
    [WHY_FILES_ONLY] = { 403,
                         "The sandbox is paused and only its files are kept: a request wakes it "
                         "only with its token or a key of its owner's, and cove resume does",
                         502, "Could not connect to the backend sandbox: %s" },
    [WHY_TICKET] = { 403,
                     "This link was used already, or is too old: cove url ID PORT gives a new one",
                     403, "The link was used already, or is too old." },
    [WHY_PAGE] = { 403,
                   "A page in a browser reaches a port by the host name {port}-{id}.{domain}, not "
                   "by headers",
                   403, "A page in a browser cannot use these headers." },
    [WHY_HOST] = { 421,
                   "This server does not go by the name in the header Host: start it with --host "
                   "NAME (COVE_HOSTS) if that is one of its names",
                   421, "The server does not go by the name in the header Host." },
    [WHY_CONTROL] = { 404, "There is nothing here for clients", 404, "Not Found" },
};

static int reply(struct call *c, int status, const char *type, struct buf *b)
{
    call_reply(c, status, type, buf_str(b)); /* a client that left is seen by the next read */
    return 1;
}

static bool is_browser(const struct target_fields *f)
{
    return str_starts(f->user_agent, "Mozilla/") && f->accept.n &&
           memmem(f->accept.p, f->accept.n, "text/html", 9);
}

/* All of the text is ours: ids and ports were checked to be nothing else. */
static void put_page(struct buf *b, const char *title, const char *text)
{
    buf_printf(b,
               "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width\">\n<title>%s</title>\n"
               "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto;"
               "padding:0 1em;color:#222;background:#fff}code{background:#eee;padding:.1em .3em}"
               "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
               "code{background:#333}}</style>\n<h1>%s</h1>\n<p>%s</p>\n</html>\n",
               title, title, text);
}

static int send_page(struct call *c, int status, const char *title, const char *text)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_page(&b, title, text);
    call_header(c, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
    return reply(c, status, "text/html; charset=utf-8", &b);
}

static int refuse_cluster(struct call *c, const struct target *t, enum answer_why why)
{
    AUTO(buf_free) struct buf b = { 0 }, text = { 0 };
    const char *detail = t->bad ? t->bad : whys[why].detail, *mark = strstr(detail, "%s");

    if (mark) {
        buf_add(&text, detail, (size_t)(mark - detail));
        buf_puts(&text, t->id);
        buf_puts(&text, mark + 2);
    } else {
        buf_puts(&text, detail);
    }
    if (whys[why].cluster_status == 401)
        call_header(c, "WWW-Authenticate", "Bearer");
    json_open(&b, '{');
    json_kv_str(&b, "detail", buf_cstr(&text));
    json_close(&b, '}');
    return reply(c, whys[why].cluster_status, "application/json", &b);
}

int answer_refuse(struct call *c, const struct target_fields *f, const struct target *t,
                  enum answer_why why)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *message = t->bad ? t->bad : whys[why].message;
    int status = whys[why].status;
    char title[64];

    if (t->by == BY_CLUSTER)
        return refuse_cluster(c, t, why);
    if (is_browser(f)) {
        snprintf(title, sizeof(title), "%d %s", status, http_reason(status));
        return send_page(c, status, title, message);
    }
    json_open(&b, '{');
    if (t->id[0] && !t->bad)
        json_kv_str(&b, "sandboxId", t->id);
    json_kv_str(&b, "message", message);
    if (why == WHY_CLOSED_PORT)
        json_kv_int(&b, "port", t->port);
    json_kv_int(&b, "code", status);
    json_close(&b, '}');
    return reply(c, status, "application/json; charset=utf-8", &b);
}

bool answer_is_preflight(const struct call *c)
{
    return str_is(c->head.method, "OPTIONS") && http_get(&c->head, "origin").n &&
           http_get(&c->head, "access-control-request-method").n;
}

/* What answers the request itself has the last word on who may read its answer. */
int answer_preflight(struct call *c)
{
    struct str wanted = http_get(&c->head, "access-control-request-headers");

    call_header(c, "Access-Control-Allow-Origin", "*");
    call_header(c, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if (wanted.n)
        call_header(c, "Access-Control-Allow-Headers", arena_strdup(&c->arena, wanted));
    call_header(c, "Access-Control-Max-Age", "600");
    call_reply(c, 204, NULL, (struct str){ 0 });
    return 1;
}

int answer_healthz(struct call *c)
{
    call_reply(c, 200, "application/json", STR("{\"status\":\"ok\"}"));
    return 1;
}

int answer_preview_help(struct call *c, const struct target_fields *f)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (is_browser(f))
        return send_page(c, 404, "No sandbox named",
                         "A port of a sandbox is at <code>/{sandbox id}/{port}/</code>.");
    json_open(&b, '{');
    json_kv_int(&b, "code", 404);
    json_kv_str(&b, "message", "a port of a sandbox is at /{sandbox id}/{port}/");
    json_close(&b, '}');
    return reply(c, 404, "application/json; charset=utf-8", &b);
}
