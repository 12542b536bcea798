/* test_api_native.c - what users of /v1 see, and the documents about it. */
#include "api_rig.h"

static void native_life(void)
{
    char uuid[64];
    char *id = created(admin, "/v1/sandboxes",
                       "{\"timeout\":0,\"metadata\":{\"a\":\"b\"},\"public\":false,\"label\":\"x\","
                       "\"network\":\"none\",\"limits\":{\"memory_bytes\":67108864,\"pids\":64}}");

    CHECK_STR(text("template"), "base");
    CHECK_STR(text("owner"), "admin");
    CHECK_STR(text("network"), "none");
    CHECK_STR(text("label"), "x");
    CHECK(text("token") && text("traffic_token") && !text("ends"));
    CHECK_INT(json_integer_value(json_object_get(json_object_get(a.json, "limits"), "pids")), 64);
    snprintf(uuid, sizeof(uuid), "%s", text("uuid"));
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@", uuid), NULL), 200);
    CHECK_STR(text("id"), id);
    CHECK_INT(ask(admin, "POST", target("/v1/sandboxes/@/timeout", id), "{\"timeout\":100}"), 200);
    CHECK(text("ends"));
    CHECK_INT(number("timeout"), 100);
    CHECK_INT(ask(admin, "PATCH", target("/v1/sandboxes/@/limits", id), "{\"pids\":128}"), 200);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(a.json, "limits"), "pids")), 128);
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@/stat", id), NULL), 200);
    CHECK(json_is_integer(json_object_get(a.json, "memory_bytes")));
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@/metrics", id), NULL), 200);
    CHECK(json_array_size(json_object_get(a.json, "samples")) > 0);
    CHECK_INT(ask(admin, "GET", target("/sandboxes/@/metrics", id), NULL), 200);
    CHECK(json_array_size(a.json) > 0);
    CHECK_INT(ask(admin, "GET", target("/sandboxes/metrics?sandbox_ids=@,inothing", id), NULL),
              200);
    CHECK_INT(json_object_size(json_object_get(a.json, "sandboxes")), 1);
    CHECK_INT(ask(admin, "DELETE", target("/v1/sandboxes/@", id), NULL), 204);
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@", id), NULL), 200);
    CHECK_STR(text("state"), "ended");
    CHECK(text("ended") && text("reason") && !text("token"));
}

TEST(a_sandbox_lives_by_the_native_api) { run(native_life); }

static void native_bad(void)
{
    static const struct {
        const char *body, *words;
        int status;
    } bad[] = {
        { "{\"tmplate\":\"base\"}", "'tmplate'", 400 },
        { "{\"template\":null}", "'template'", 400 },
        { "{\"template\":\"\"}", "'template'", 400 },
        { "{\"timeout\":-1}", "'timeout'", 400 },
        { "{\"limits\":{\"memory_bytes\":1}}", "memory_bytes", 400 },
        { "{\"limits\":{\"memory\":1}}", "'memory'", 400 },
        { "{\"network\":\"some\"}", "'network'", 400 },
        { "{\"mounts\":[{\"host\":\"/x\"}]}", "'guest'", 400 },
        { "{\"forwards\":[{\"host_port\":1,\"port\":0}]}", "'port'", 400 },
        { "{\"on_expiry\":\"sleep\"}", "on_expiry", 400 },
        { "{\"auto_resume\":1}", "auto_resume", 400 },
        { "{\"restart\":\"sometimes\"}", "restart", 400 },
        { "{\"template\":\"nothing\"}", "nothing", 404 },
        { "{", "", 400 },
    };
    const char *id = created(admin, "/v1/sandboxes", "");

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask(admin, "POST", "/v1/sandboxes", bad[i].body);
        expect_error(bad[i].status, bad[i].words);
    }
    ask(admin, "PATCH", target("/v1/sandboxes/@/limits", id), "{}");
    expect_error(400, "limit");
    ask(admin, "POST", target("/v1/sandboxes/@/timeout", id), "{\"extend\":true}");
    expect_error(400, "'timeout'");
    ask(admin, "PUT", "/v1/sandboxes", "{}");
    expect_error(405, "POST");
    ask(admin, "GET", "/v1/nothing", NULL);
    expect_error(404, "/v1/nothing");
}

TEST(the_native_api_is_strict_and_names_the_field) { run(native_bad); }

static void ownership(void)
{
    static const char *const calls[][3] = {
        { "GET", "/v1/sandboxes/@", NULL },
        { "GET", "/v1/sandboxes/@/stat", NULL },
        { "GET", "/v1/sandboxes/@/events", NULL },
        { "GET", "/v1/sandboxes/@/metrics", NULL },
        { "POST", "/v1/sandboxes/@/timeout", "{\"timeout\":1}" },
        { "PATCH", "/v1/sandboxes/@/limits", "{\"pids\":99}" },
        { "DELETE", "/v1/sandboxes/@", NULL },
        { "GET", "/sandboxes/@", NULL },
        { "POST", "/v2/sandboxes/@/connect", "{}" },
        { "POST", "/sandboxes/@/timeout", "{\"timeout\":1}" },
        { "GET", "/sandboxes/@/metrics", NULL },
        { "GET", "/v2/sandboxes/@/logs", NULL },
        { "DELETE", "/sandboxes/@", NULL },
    };
    const char *id = created(admin, "/v1/sandboxes", "{}");

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        ask(other, calls[i][0], target(calls[i][1], id), calls[i][2]);
        expect_error(404, "doesn't exist or you don't have access to it");
    }
    id = created(other, "/v1/sandboxes", "{}");
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@", id), NULL), 200);
    CHECK_STR(text("owner"), "other");
    CHECK_INT(ask(admin, "DELETE", target("/sandboxes/@", id), NULL), 204);
}

TEST(what_is_anothers_is_not_found) { run(ownership); }

static void events(void)
{
    const char *id = created(admin, "/v1/sandboxes", "{}");
    int64_t last = 0;
    json_t *all, *e;
    size_t i;

    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@/events", id), NULL), 200);
    all = json_object_get(a.json, "events");
    CHECK(json_array_size(all) > 0);
    json_array_foreach(all, i, e)
    {
        CHECK(json_integer_value(json_object_get(e, "seq")) > last);
        last = json_integer_value(json_object_get(e, "seq"));
        CHECK(json_string_value(json_object_get(e, "text")));
    }
    CHECK_INT(
        ask(admin, "GET", target("/v2/sandboxes/@/logs?direction=backward&limit=1", id), NULL),
        200);
    CHECK_INT(json_array_size(json_object_get(a.json, "logs")), 1);
    CHECK_INT(ask(admin, "GET", target("/v2/sandboxes/@/logs?level=error", id), NULL), 200);
    CHECK_INT(json_array_size(json_object_get(a.json, "logs")), 0);
    CHECK_INT(ask(admin, "GET", target("/sandboxes/@/logs", id), NULL), 200);
    CHECK_INT(json_array_size(json_object_get(a.json, "logs")),
              (long long)json_array_size(json_object_get(a.json, "logEntries")));
    CHECK_INT(ask(admin, "DELETE", target("/v1/sandboxes/@", id), NULL), 204);
    CHECK_INT(ask(admin, "GET", target("/v1/sandboxes/@/events?wait=5", id), NULL), 200);
    ask(admin, "GET", target("/v1/sandboxes/@/events?wait=61", id), NULL);
    expect_error(400, "'wait'");
}

TEST(events_tell_what_happened) { run(events); }

static void users(void)
{
    char key[64], id[32];

    CHECK_INT(ask(admin, "POST", "/v1/users", "{\"name\":\"ann\"}"), 201);
    CHECK_STR(text("role"), "user");
    ask(admin, "POST", "/v1/users", "{\"name\":\"ann\"}");
    expect_error(409, "ann");
    ask(admin, "POST", "/v1/users", "{\"name\":\"Ann!\"}");
    expect_error(400, "'name'");
    ask(admin, "POST", "/v1/users", "{\"name\":\"bob\",\"password\":\"short\"}");
    expect_error(400, "'password'");
    CHECK_INT(ask(admin, "POST", "/v1/keys?user=ann", "{\"name\":\"laptop\"}"), 201);
    snprintf(key, sizeof(key), "%s", text("key"));
    snprintf(id, sizeof(id), "%s", text("id"));
    CHECK(!strncmp(key, text("begins"), strlen(text("begins"))));
    CHECK_INT(ask(key, "GET", "/v1/me", NULL), 200);
    CHECK_STR(text("user"), "ann");
    CHECK_INT(ask(key, "GET", "/v1/keys", NULL), 200);
    CHECK(!strstr(buf_cstr(&a.body), key));
    ask(key, "GET", "/v1/keys?user=admin", NULL);
    expect_error(403, "user");
    CHECK_INT(ask(admin, "PATCH", "/v1/users/ann", "{\"locked\":true}"), 200);
    CHECK(json_is_true(json_object_get(a.json, "locked")));
    CHECK(ask(key, "GET", "/v1/me", NULL) >= 401);
    ask(admin, "PATCH", "/v1/users/ann", "{\"locked\":1}");
    expect_error(400, "'locked'");
    CHECK_INT(ask(admin, "PATCH", "/v1/users/ann", "{\"locked\":false,\"role\":\"admin\"}"), 200);
    CHECK_INT(ask(key, "GET", "/v1/users", NULL), 200);
    ask(admin, "PATCH", "/v1/users/admin", "{\"role\":\"user\"}");
    expect_error(409, "themselves");
    ask(other, "DELETE", target("/v1/keys/@", id), NULL);
    expect_error(404, "");
    CHECK_INT(ask(admin, "DELETE", target("/v1/keys/@", id), NULL), 204);
    CHECK_INT(ask(key, "GET", "/v1/me", NULL), 401);
    CHECK_INT(ask(admin, "GET", "/v1/users/nobody", NULL), 404);
}

TEST(admins_make_users_and_keys) { run(users); }

/* ---- the document ---- */

static void document(void)
{
    json_t *paths, *path, *row;
    const char *at, *method;
    struct {
        const char *id[256];
        size_t n;
    } seen = { .n = 0 };

    CHECK_INT(ask(NULL, "GET", "/v1/openapi.json", NULL), 200);
    paths = json_object_get(a.json, "paths");
    json_object_foreach(paths, at, path) json_object_foreach(path, method, row)
    {
        const char *id = json_string_value(json_object_get(row, "operationId"));

        CHECK(id && seen.n < ARRAY_LEN(seen.id));
        for (size_t i = 0; i < seen.n; i++)
            CHECK(strcmp(seen.id[i], id));
        seen.id[seen.n++] = id;
        CHECK(json_string_value(json_object_get(row, "summary")));
        CHECK(json_array_size(json_object_get(row, "tags")) == 1);
        CHECK(json_object_get(json_object_get(row, "responses"), "default"));
    }
    CHECK(seen.n > 50);
    CHECK_INT(ask(NULL, "GET", "/docs", NULL), 200);
    CHECK(strstr(a.policy, "default-src 'none'"));
    CHECK(strstr(buf_cstr(&a.body), "id=\"createSandbox\""));
    CHECK(!strstr(buf_cstr(&a.body), "http://") && !strstr(buf_cstr(&a.body), "https://"));
}

TEST(the_document_and_the_page_come_from_the_tables) { run(document); }
