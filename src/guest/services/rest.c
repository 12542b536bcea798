/* rest.c - the REST service of the documents: /health, /execute, /packages, /screenshot, /record,
 * with the answers and error bodies of the FastAPI program that it stands in for. */
#include "guest/services/rest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/services/environment.h"
#include "guest/services/rest_code.h"
#include "guest/services/rest_request.h"
#include "io/sock.h"
#include "model/door.h"

enum { HEALTH_MS = 500, CODE_BODY = 32 << 20 };

static bool in_sandbox;

/* ---- health ---- */

/* Whether the kernels' port is open. Asking it for /api, as the documents' program did, would start
 * the kernels for every look at our health; that a port is taken shows in that we cannot have it.
 */
static bool taken(const struct addr *a)
{
    AUTO(closep) int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    /* with it, connections that have ended do not count, only a listener */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return fd >= 0 && bind(fd, (const struct sockaddr *)&a->sa, a->len) && errno == EADDRINUSE;
}

/* Where the doors listen for it: in a sandbox on one address, whatever the variable says. */
static bool port_taken(const struct service_port *p)
{
    const char *text = service_env(p->port_variable, "");
    const char *host = in_sandbox ? "127.0.0.1" : service_env(p->host_variable, "0.0.0.0");
    struct err ignored = { 0 };
    char address[80];
    struct addr a;
    uint64_t port;

    if (!*text || str_u64(str_of(text), &port) || !port || port > 65535)
        port = (uint64_t)p->port;
    snprintf(address, sizeof(address), "%.64s:%d", host, (int)port);
    return !addr_parse(str_of(address), &a, &ignored) && taken(&a);
}

static struct str health(void)
{
    static int64_t until;
    static struct buf json;
    const struct service *kernels = service_find("kernels");
    bool up;

    if (json.len && co_now() < until)
        return buf_str(&json);
    up = kernels && port_taken(&kernels->ports[0]);
    json.len = 0;
    json_open(&json, '{');
    json_kv_str(&json, "status", up || !kernels ? "ok" : "error");
    if (kernels)
        json_kv_str(&json, "kernel_status", up ? "reachable" : "unreachable");
    if (kernels && !up)
        json_kv_str(&json, "error", "nothing listens on the kernels' port");
    json_close(&json, '}');
    until = co_in(HEALTH_MS);
    return buf_str(&json);
}

static int get_health(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "application/json", health());
}

/* ---- code and packages ---- */

static int reply_wrong(struct call *c, const struct buf *wrong)
{
    return call_reply_json(c, 422, wrong);
}

static int post_execute(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 }, json = { 0 }, wrong = { 0 };
    struct code_request rq = { 0 };

    (void)body;
    if (call_read_all(c, &text, err))
        return -1;
    if (rest_request_code(buf_str(&text), &c->arena, &rq, &wrong))
        return reply_wrong(c, &wrong);
    if (rest_code_run(&rq, c->conn, &json, err))
        return -1;
    return call_reply_json(c, 200, &json);
}

static int get_packages(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    rest_code_packages(&json);
    return call_reply_json(c, 200, &json);
}

/* ---- the display ---- */

static int reply_no_display(struct call *c, const char *what)
{
    AUTO(buf_free) struct buf json = { 0 }, text = { 0 };
    const char *display = service_env("DISPLAY", NULL);

    if (display)
        buf_printf(&text, "%s: this guest cannot read the display %s", what, display);
    else
        buf_printf(&text, "%s: there is no display in this sandbox (DISPLAY is not set)", what);
    json_open(&json, '{');
    json_kv_str(&json, "status", "error");
    json_kv_str(&json, "message", buf_cstr(&text));
    json_close(&json, '}');
    return call_reply_json(c, 500, &json);
}

static int get_screenshot(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return reply_no_display(c, "screenshot");
}

static int get_record(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf wrong = { 0 };
    struct str mode = call_query(c, "mode", err);

    (void)body;
    if (err->code)
        return -1;
    if (rest_request_mode(mode, &wrong))
        return reply_wrong(c, &wrong);
    return reply_no_display(c, "record");
}

/* ---- documents ---- */

static int get_openapi(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "application/json", str_of(rest_openapi));
}

static int get_docs(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/html; charset=utf-8", str_of(rest_docs));
}

static const struct route routes[] = {
    { "GET", "/health", ROUTE_RAW, .fn = get_health },
    { "POST", "/execute", ROUTE_RAW, .fn = post_execute, .body_max = CODE_BODY },
    { "GET", "/packages", ROUTE_RAW, .fn = get_packages },
    { "GET", "/screenshot", ROUTE_RAW, .fn = get_screenshot },
    { "GET", "/record", ROUTE_RAW, .fn = get_record },
    { "GET", "/openapi.json", ROUTE_RAW, .fn = get_openapi },
    { "GET", "/docs", ROUTE_RAW, .fn = get_docs },
    { "GET", "/redoc", ROUTE_RAW, .fn = get_docs },
    {},
};
static const struct route *const tables[] = { routes, NULL };

/* As Starlette words them: clients compare. */
static const char *detail_of(const struct err *err)
{
    switch (err_status(err->code)) {
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    default: return err->msg;
    }
}

static bool refuse(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    if (c->status)
        return true;
    json_open(&json, '{');
    json_kv_str(&json, "detail", detail_of(err));
    json_close(&json, '}');
    call_reply_json(c, err_status(err->code), &json);
    return true;
}

/* The contract allows credentials to any origin. A browser sends none where the origin is "*", and
 * so it should be: a router in front may know its users by a cookie. */
static int first(struct call *c, struct err *err)
{
    (void)err;
    environment_refresh();
    if (http_get(&c->head, "origin").n)
        call_header(c, "Access-Control-Allow-Credentials", "true");
    return 0;
}

static struct httpd server = { .tables = tables, .cors = true, .first = first, .refuse = refuse };

static int start(struct service_context *x, struct err *err)
{
    (void)err;
    in_sandbox = x->sandbox;
    x->server[0] = &server;
    return 0;
}

const struct service rest_service = {
    .name = "rest",
    .ports = { { "rest", DOOR_REST, "PORT", "HOST", DOOR_REST_VARIABLE } },
    .log_file = "sandbox-services.log",
    .log_variable = "SERVICES_LOG",
    .help = "runs Python code, lists packages, captures the display",
    .start = start,
};
