/* jupyter.c - the server on 8888: who may, how errors look, and the REST interface of Jupyter's
 * kernels. Sessions are in sessions.c, WebSockets in channels.c, the other half of the port in
 * runtime.c. */
#include "guest/kernels/jupyter.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/kernels/kernel.h"
#include "io/httpfile.h"
#include "io/openapi.h"

#define API_VERSION "2.21.1" /* whose interface this is: clients compare it */

static char *token; /* owned; NULL: none is asked for */
static int64_t began_s;

void jupyter_set_token(const char *text)
{
    free(token);
    token = text && *text ? xstrdup(text) : NULL;
    if (!began_s)
        began_s = clock_wall_s();
}

/* ---- who may ---- */

static bool is_token(struct str s)
{
    return token && s.n == strlen(token) && mem_equal_const(s.p, token, s.n);
}

/* "token T" and "Bearer T": the gateway takes only the first, but one of its clients sends the
 * other. */
static bool header_has_token(struct str value)
{
    struct str scheme, rest;

    str_cut(value, ' ', &scheme, &rest);
    return (str_iis(scheme, "token") || str_iis(scheme, "bearer")) && is_token(str_trim(rest));
}

static bool is_jupyters(struct str path)
{
    return str_starts(path, "/api/") || str_starts(path, "/kernelspecs/");
}

static int check_token(struct call *c, struct err *err)
{
    struct err ignored = { 0 };

    if (!token || !is_jupyters(c->path) || (c->route && c->route->flags & ROUTE_OPEN) ||
        header_has_token(http_get(&c->head, "authorization")) ||
        is_token(call_query(c, "token", &ignored)))
        return 0;
    return err_set(err, ERR_UNAUTHENTICATED,
                   "a token is needed: Authorization: token T, or ?token=T");
}

/* A page of another origin may not open a kernel's socket, unless it was allowed: browsers send
 * cookies and reach local addresses for any page. */
int jupyter_check_origin(struct call *c, struct err *err)
{
    struct str origin = http_get(&c->head, "origin"), host = http_get(&c->head, "host");
    const char *allowed = getenv("KG_ALLOW_ORIGIN");
    const char *slashes;
    struct str rest;

    if (!origin.p || !origin.n || !allowed || !strcmp(allowed, "*"))
        return 0; /* the documents start their gateway with allow_origin='*' */
    slashes = memmem(origin.p, origin.n, "://", 3);
    rest =
        slashes ? (struct str){ slashes + 3, origin.n - (size_t)(slashes + 3 - origin.p) } : origin;
    if (str_ieq(rest, host) || str_is(origin, allowed))
        return 0;
    return err_set(err, ERR_DENIED, "origin '%.*s' may not connect: set KG_ALLOW_ORIGIN",
                   (int)MIN(origin.n, (size_t)100), origin.p);
}

/* ---- errors, as the gateway writes them ---- */

static bool refuse(struct call *c, const struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    int status = err_status(err->code);

    if (!c->path.p) /* it never came as far as first() */
        call_header(c, "X-Content-Type-Options", "nosniff");
    json_open(&json, '{');
    json_kv_str(&json, "message", err->msg);
    if (!c->path.p || is_jupyters(c->path))
        json_kv_str(&json, "reason", http_reason(status));
    if (status == 500 && is_jupyters(c->path))
        json_kv_str(&json, "traceback", "");
    json_close(&json, '}');
    call_reply_json(c, status, &json);
    return true;
}

static int reply_empty(struct call *c) { return call_reply(c, 204, NULL, (struct str){ 0 }); }

struct kernel *jupyter_kernel(struct call *c, struct err *err)
{
    struct kernel *k = kernels_find(c->param[0]);

    if (k)
        return kernel_get(k);
    err_set(err, ERR_NOT_FOUND, "Kernel does not exist: %.*s", (int)MIN(c->param[0].n, (size_t)64),
            c->param[0].p);
    return NULL;
}

/* ---- about the server ---- */

static int get_api(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    json_open(&json, '{');
    json_kv_str(&json, "version", API_VERSION);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

static void put_time(struct buf *json, const char *key, int64_t s)
{
    AUTO(buf_free) struct buf at = { 0 };

    message_put_time(&at, s * 1000000);
    json_kv_str(json, key, buf_cstr(&at));
}

/* For both addresses: JSON is YAML too. */
static int get_swagger(struct call *c, void *body, struct err *err)
{
    static const struct route *const described[] = { jupyter_routes, jupyter_session_routes, NULL };
    AUTO(buf_free) struct buf json = { 0 };

    (void)body, (void)err;
    openapi_write(&json, &(struct openapi){ "Jupyter kernels", API_VERSION, NULL, "Authorization" },
                  described);
    return call_reply_json(c, 200, &json);
}

static int get_status(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    int64_t connections = 0;
    struct kernel *k;

    (void)body, (void)err;
    list_each(k, &kernels.all, all)
        connections += k->connections;
    json_open(&json, '{');
    put_time(&json, "started", began_s);
    put_time(&json, "last_activity", kernels.used_at);
    json_kv_int(&json, "connections", connections);
    json_kv_int(&json, "kernels", (int64_t)kernels.count);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

/* ---- kernel specs ---- */

static int get_specs(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct kernelspecs specs;
    struct kernelspec *k;

    (void)body, (void)err;
    kernelspecs_load(&specs);
    json_open(&json, '{');
    json_kv_str(&json, "default", kernelspecs_default(&specs));
    json_key(&json, "kernelspecs");
    json_open(&json, '{');
    list_each(k, &specs.all, all) {
        json_key(&json, k->name);
        kernelspec_write(k, &json);
    }
    json_close(&json, '}');
    json_close(&json, '}');
    kernelspecs_free(&specs);
    return call_reply_json(c, 200, &json);
}

static struct kernelspec *find_spec(struct call *c, struct err *err)
{
    struct kernelspecs specs;
    struct kernelspec *k;

    kernelspecs_load(&specs);
    k = kernelspecs_find(&specs, arena_strdup(&c->arena, c->param[0]));
    if (k)
        kernelspec_get(k);
    else
        err_set(err, ERR_NOT_FOUND, "Kernel spec %.*s not found",
                (int)MIN(c->param[0].n, (size_t)64), c->param[0].p);
    kernelspecs_free(&specs);
    return k;
}

static int get_spec(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct kernelspec *k = find_spec(c, err);

    (void)body;
    if (!k)
        return -1;
    kernelspec_write(k, &json);
    kernelspec_put(k);
    return call_reply_json(c, 200, &json);
}

static int get_resource(struct call *c, void *body, struct err *err)
{
    struct kernelspec *k = find_spec(c, err);
    char *name = arena_strdup(&c->arena, c->param[1]);
    AUTO(closep) int dir = -1, fd = -1;
    struct stat st;

    (void)body;
    if (!k)
        return -1;
    if (k->dir)
        dir = open(k->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    kernelspec_put(k);
    if (dir >= 0 && !strchr(name, '/') && name[0] != '.')
        fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(err, ERR_NOT_FOUND, "there is no file %.64s of this kernel spec", name);
    return call_send_file(c, fd, &st, http_type_of(name), err);
}

/* ---- kernels ---- */

struct create_body {
    char *name, *path, *kernel_id;
    struct map env;
};

static const struct field create_fields[] = {
    FIELD(struct create_body, name, F_STR, .max = 128, .help = "a kernel spec; absent: python3"),
    FIELD(struct create_body, path, F_STR, .max = 4096, .help = "where it begins, in the home"),
    FIELD(struct create_body, kernel_id, F_STR, .max = 36, .help = "a UUID of the caller's choice"),
    FIELD(struct create_body, env, F_MAP, .max = 4096, .help = "more environment"),
    {},
};

static int reply_kernel(struct call *c, int status, const struct kernel *k)
{
    AUTO(buf_free) struct buf json = { 0 };

    kernel_write(k, &json);
    return call_reply_json(c, status, &json);
}

static int list_kernels(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct kernel *k;

    (void)body, (void)err;
    kernels_prepare(); /* who asks which there are will soon want one */
    json_open(&json, '[');
    list_each(k, &kernels.all, all)
        kernel_write(k, &json);
    json_close(&json, ']');
    return call_reply_json(c, 200, &json);
}

static int post_kernel(struct call *c, void *body, struct err *err)
{
    const struct create_body *b = body;
    AUTO(kernel_putp)
    struct kernel *k = kernel_create(
        &(struct kernel_spec){
            .name = b->name, .path = b->path, .id = b->kernel_id, .env = &b->env },
        err);

    if (!k)
        return -1;
    kernel_get(k); /* AUTO puts one; the table keeps the other */
    call_header(c, "Location", arena_printf(&c->arena, "/api/kernels/%s", k->id));
    return reply_kernel(c, 201, k);
}

static int get_kernel(struct call *c, void *body, struct err *err)
{
    AUTO(kernel_putp) struct kernel *k = jupyter_kernel(c, err);

    (void)body;
    return k ? reply_kernel(c, 200, k) : -1;
}

static int delete_kernel(struct call *c, void *body, struct err *err)
{
    AUTO(kernel_putp) struct kernel *k = jupyter_kernel(c, err);

    (void)body;
    if (!k)
        return -1;
    sessions_forget(k);
    kernel_remove(k);
    return reply_empty(c);
}

static int interrupt_kernel(struct call *c, void *body, struct err *err)
{
    AUTO(kernel_putp) struct kernel *k = jupyter_kernel(c, err);

    (void)body;
    if (!k || (k->engine && engine_interrupt(k->engine, err)))
        return -1;
    return reply_empty(c);
}

static int restart_kernel(struct call *c, void *body, struct err *err)
{
    AUTO(kernel_putp) struct kernel *k = jupyter_kernel(c, err);

    (void)body;
    if (!k)
        return -1;
    if (kernel_restart(k, err)) {
        err->code = ERR_INTERNAL;
        return err_in(err, "Exception restarting kernel");
    }
    return reply_kernel(c, 200, k);
}

const struct route jupyter_routes[] = {
    { "GET", "/api", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_api, "get_api", "The version", 0 },
    { "GET", "/api/swagger.json", ROUTE_RAW, 0, NULL, 0, get_swagger, "get_swagger",
      "This description", 0 },
    { "GET", "/api/swagger.yaml", ROUTE_RAW, 0, NULL, 0, get_swagger, "get_swagger_yaml",
      "The same", 0 },
    { "GET", "/api/status", ROUTE_RAW, 0, NULL, 0, get_status, "get_status", "How much is used",
      0 },
    { "GET", "/api/kernelspecs", ROUTE_RAW, 0, NULL, 0, get_specs, "list_kernelspecs",
      "Which kernels there are", 0 },
    { "GET", "/api/kernelspecs/{name}", ROUTE_RAW, 0, NULL, 0, get_spec, "get_kernelspec",
      "One of them", 0 },
    { "GET", "/kernelspecs/{name}/{file}", ROUTE_RAW, 0, NULL, 0, get_resource,
      "get_kernelspec_resource", "Its logo", 0 },
    { "GET", "/api/kernels", ROUTE_RAW, 0, NULL, 0, list_kernels, "list_kernels",
      "Kernels that run", 0 },
    { "POST", "/api/kernels", ROUTE_JSON, ROUTE_LENIENT, create_fields, sizeof(struct create_body),
      post_kernel, "start_kernel", "Start a kernel", 1 << 20, .status = 201 },
    { "GET", "/api/kernels/{id}", ROUTE_RAW, 0, NULL, 0, get_kernel, "get_kernel", "One of them",
      0 },
    { "DELETE", "/api/kernels/{id}", ROUTE_RAW, 0, NULL, 0, delete_kernel, "shutdown_kernel",
      "End a kernel", 0, .status = 204 },
    { "POST", "/api/kernels/{id}/interrupt", ROUTE_RAW, 0, NULL, 0, interrupt_kernel,
      "interrupt_kernel", "Interrupt what it does", 0, .status = 204 },
    { "POST", "/api/kernels/{id}/restart", ROUTE_RAW, 0, NULL, 0, restart_kernel, "restart_kernel",
      "Begin again with an empty kernel", 0 },
    { "GET", "/api/kernels/{id}/channels", ROUTE_RAW, 0, NULL, 0, channels_serve, "channels",
      "A WebSocket for its messages", 0 },
    {},
};

/* OPTIONS of anything is answered before a token is looked for, as browsers ask without one. */
static int first(struct call *c, struct err *err)
{
    (void)err;
    kernels_asked();
    call_header(c, "X-Content-Type-Options", "nosniff");
    if (!str_is(c->head.method, "OPTIONS")) {
        runtime_rewrite(c);
        return 0;
    }
    call_header(c, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    call_header(c, "Access-Control-Allow-Headers",
                "Authorization, Content-Type, X-XSRFToken, X-Access-Token");
    call_header(c, "Access-Control-Max-Age", "7200");
    return call_reply(c, 200, "text/plain", (struct str){ "", 0 }) ? -1 : 1;
}

static const struct route *const tables[] = { jupyter_routes, jupyter_session_routes,
                                              runtime_routes, NULL };
struct httpd jupyter_server = {
    .tables = tables, .first = first, .before = check_token, .refuse = refuse, .cors = true
};
