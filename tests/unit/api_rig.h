/* api_rig.h - the facades over a control with the fake provider and a store in a temporary
 * directory: what clients see, without a machine. Each test program uses a part of it. */
#ifndef TESTS_API_RIG_H
#define TESTS_API_RIG_H

#include "api/api.h"

#include <stdlib.h>

#include "io/client.h"
#include "rig.h"

static struct client client;
static struct rig rig;
static struct httpd server;
static struct api api;
static struct store *store;
static struct provider *fake;
static struct control *control;
static char dir[64], admin[64], other[64];

/* ---- the frame of a case ---- */

UNUSED static void add_user(const char *name, enum user_role role, char key[static 64])
{
    struct err err = { 0 };
    struct api_key k;
    struct user u;

    if (control_user_add(control, name, role, NULL, &u, &err) ||
        control_key_add(control, u.id, "test", NULL, &k, key, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
}

UNUSED static void open_world(void)
{
    struct err err = { 0 };
    char path[128];

    snprintf(dir, sizeof(dir), "/tmp/cove-test-api-XXXXXX");
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/store", dir);
    if (store_open_sqlite(path, &store, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    fake = provider_fake(control_event, &control);
    if (control_open(&(struct control_options){ .store = store,
                                                .run_dir = dir,
                                                .provider = fake,
                                                .domain = "localhost:8000",
                                                .ephemeral = true },
                     &control, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    add_user("admin", ROLE_ADMIN, admin);
    add_user("other", ROLE_USER, other);
}

UNUSED static void close_world(void)
{
    char command[128];

    control_close(control);
    store_closep(&store);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_INT(system(command), 0); // NOLINT(cert-env33-c): a directory of our own
}

UNUSED static void frame(void *arg)
{
    void (*fn)(void) = *(void (**)(void))arg;

    client_init(&client);
    open_world();
    api = (struct api){ .control = control, .version = "1.2.3" };
    api.contract.template = "base";
    api.contract.scheme = "https";
    api.contract.mcp_port = 6060;
    api.contract.code_port = 9000;
    server = (struct httpd){
        .tables = api_tables,
        .ctx = &api,
        .before = api_before,
        .failing = api_failing,
        .refuse = api_refuse,
        .tell_id = true,
    };
    rig = (struct rig){ .d = &server };
    rig_start(&rig);
    fn();
    client_finish(&client);
    close_world();
    co_cancel_all();
}

UNUSED static void run(void (*fn)(void)) { test_co(frame, (void *)&fn); }

/* ---- asking ---- */

static struct answer {
    int status;
    struct buf body;
    json_t *json;
    char next[64], retry[16], id[64], policy[512];
} a; /* of the last request */

UNUSED static void keep(char *out, size_t n, const struct exchange *x, const char *name)
{
    struct str v = http_get(&x->head, name);

    snprintf(out, n, "%.*s", STR_ARG(v));
}

UNUSED static void ask_with(const char *headers, const char *method, const char *target,
                            const char *body)
{
    struct client_to to = { .addr = &rig.addr };
    struct client_request rq = { .method = str_of(method),
                                 .target = str_of(target),
                                 .host = STR("test"),
                                 .headers = str_of(headers),
                                 .body = str_of(body) };
    struct err err = { 0 };
    struct exchange *x = client_do(&client, &to, &rq, &err);

    if (!x)
        test_fail(__FILE__, __LINE__, "%s %s: %s", method, target, err.msg);
    a.body.len = 0;
    json_dropp(&a.json);
    a.json = NULL;
    a.status = x->head.status;
    keep(a.next, sizeof(a.next), x, "x-next-token");
    keep(a.retry, sizeof(a.retry), x, "should-retry");
    keep(a.id, sizeof(a.id), x, "x-request-id");
    keep(a.policy, sizeof(a.policy), x, "content-security-policy");
    CHECK_INT(http_body_read_all(&x->body, &a.body, &err), 0);
    client_close(x);
    CHECK(a.id[0]);
    if (a.body.len && (a.body.data[0] == '{' || a.body.data[0] == '['))
        a.json = json_read(buf_str(&a.body), &err);
}

UNUSED static int ask(const char *key, const char *method, const char *where, const char *body)
{
    char headers[128] = "";

    if (key)
        snprintf(headers, sizeof(headers), "X-API-Key: %s\r\n", key);
    ask_with(headers, method, where, body);
    return a.status;
}

UNUSED static const char *text(const char *name) /* of the last answer */
{
    return json_string_value(json_object_get(a.json, name));
}

UNUSED static int64_t number(const char *name)
{
    return json_integer_value(json_object_get(a.json, name));
}

UNUSED static void expect_error(int status, const char *words)
{
    CHECK_INT(a.status, status);
    CHECK_INT(number("code"), status);
    if (!text("message") || !strstr(text("message"), words))
        CHECK_STR(text("message"), words);
}

UNUSED static const char *target(const char *form, const char *id) /* '@' becomes the id */
{
    static char out[256];
    const char *at = strchr(form, '@');

    if (!at)
        return form;
    snprintf(out, sizeof(out), "%.*s%s%s", (int)(at - form), form, id, at + 1);
    return out;
}

UNUSED static char *created(const char *key, const char *path, const char *body)
{
    static char ids[4][SANDBOX_ID + 1];
    static int turn;
    char *id = ids[turn++ % 4];
    const char *name = strncmp(path, "/v1", 3) ? "sandboxID" : "id";

    ask(key, "POST", path, body);
    if (a.status != 201)
        test_fail(__FILE__, __LINE__, "POST %s %s: %d %s", path, body, a.status, buf_cstr(&a.body));
    CHECK(text(name));
    snprintf(id, sizeof(ids[0]), "%s", text(name));
    return id;
}

UNUSED static size_t listed(const char *key, const char *where)
{
    if (ask(key, "GET", where, NULL) != 200)
        test_fail(__FILE__, __LINE__, "GET %s: %s", where, buf_cstr(&a.body));
    return json_array_size(json_is_array(a.json) ? a.json : json_object_get(a.json, "sandboxes"));
}

#endif
