/* test_api_contract.c - the control-plane contract without a machine: the envelope, the errors, who
 * asks. What needs a guest is tested end to end. */
#include "api_rig.h"
#include "model/door.h"

#define BASE "/agent/sandboxes/sandboxes"

static const char *data(const char *name)
{
    return json_string_value(json_object_get(json_object_get(a.json, "data"), name));
}

static void expect_refusal(int status, const char *words, bool traced)
{
    CHECK_INT(a.status, status);
    CHECK_INT(number("code"), status);
    CHECK(json_is_null(json_object_get(a.json, "data")));
    if (!text("msg") || !strstr(text("msg"), words))
        CHECK_STR(text("msg"), words);
    CHECK(!text("trace_id") == !traced);
    if (traced)
        CHECK_STR(text("trace_id"), a.id);
}

static void life(void)
{
    char id[64], path[160];

    CHECK_INT(ask(other, "POST", BASE "/create", "{\"user_id\":\"u\",\"more\":[1]}"), 200);
    CHECK_INT(number("code"), 200);
    CHECK_STR(text("msg"), "Request success");
    CHECK_STR(data("status"), "running");
    snprintf(path, sizeof(path), "https://6060-%s.localhost:8000", data("provider_sandbox_id"));
    CHECK_STR(data("mcp_url"), path);
    CHECK(!strstr(data("vscode_url"), "cove_token")); /* a port that anybody may use */
    api.contract.code_port = DOOR_JUPYTER;            /* one that asks for a credential */
    snprintf(id, sizeof(id), "%s", data("sandbox_id"));
    snprintf(path, sizeof(path), BASE "/%s/urls", id);
    CHECK_INT(ask(other, "GET", path, NULL), 200);
    CHECK(strstr(data("vscode_url"), "/?cove_token="));
    api.contract.code_port = 9000;
    snprintf(path, sizeof(path), BASE "/%s/info", id);
    CHECK_INT(ask(other, "GET", path, NULL), 200);
    CHECK_STR(data("user_id"), "u");
    CHECK_STR(data("provider"), "fake");
    CHECK(json_is_null(json_object_get(json_object_get(a.json, "data"), "stopped_at")));
    snprintf(path, sizeof(path), BASE "/%s/pause?reason=lunch", id);
    CHECK_INT(ask(other, "POST", path, NULL), 200);
    CHECK(strstr(data("message"), "lunch"));
    CHECK_INT(ask(other, "POST", path, NULL), 200);
    snprintf(path, sizeof(path), BASE "/%s/status", id);
    CHECK_INT(ask(other, "GET", path, NULL), 200);
    CHECK_STR(data("status"), "paused");
    snprintf(path, sizeof(path), BASE "/%s", id);
    CHECK_INT(ask(other, "DELETE", path, NULL), 200);
    CHECK_INT(ask(other, "DELETE", path, NULL), 404);
    expect_refusal(404, "not found", true);
}

TEST(a_sandbox_lives_by_the_contract) { run(life); }

static void refusals(void)
{
    ask(NULL, "POST", BASE "/create", "{}");
    expect_refusal(401, "Token 无效", false);
    ask("e2b_0000000000000000", "POST", BASE "/create", "{}");
    expect_refusal(401, "Token 无效", false);
    ask(other, "POST", BASE "/create", "{}");
    expect_refusal(422, "请求参数非法: field 'user_id' is missing", true);
    ask(other, "PUT", BASE "/create", "{}");
    expect_refusal(405, "POST", true);
    ask(other, "GET", "/agent/nothing", NULL);
    expect_refusal(404, "/agent/nothing", true);
    ask(other, "GET", BASE "/x/status", NULL);
    expect_refusal(404, "Sandbox x not found", true);
    ask_with("X-Request-ID: 12\r\n", "GET", BASE "/x/status", NULL);
    expect_refusal(400, "BAD_REQUEST", false);
    ask_with("X-Request-ID: 29EF1923-20e4-4e41-9d76-1fffafbaaaeb\r\n", "GET", BASE "/x/status",
             NULL);
    expect_refusal(401, "Token 无效", false);
    CHECK_STR(a.id, "29EF1923-20e4-4e41-9d76-1fffafbaaaeb");
    ask(other, "GET", "/v1/nothing", NULL); /* elsewhere as ever */
    expect_error(404, "/v1/nothing");
}

TEST(errors_have_the_contracts_form_and_statuses) { run(refusals); }

static void provider_fails(void)
{
    provider_fake_fail(fake, "create", ERR_UPSTREAM, 1);
    ask(other, "POST", BASE "/create", "{\"user_id\":\"u\"}");
    expect_refusal(500, "", true);
    provider_fake_fail(fake, "create", ERR_TIMEOUT, 1);
    ask(other, "POST", BASE "/create", "{\"user_id\":\"u\"}");
    expect_refusal(408, "", true);
}

TEST(what_the_provider_fails_in_is_408_or_500)
{
    static const struct setting *const tables[] = { control_settings, NULL };
    struct err err = { 0 };

    CHECK_INT(setting_set(tables, "pool.size=0", &err), 0); /* one that waits would not fail */
    run(provider_fails);
}

static void login(void)
{
    char header[1024];
    struct err err = { 0 };

    CHECK_INT(control_user_password(control, "other", "open-sesame-1", &err), 0);
    ask(NULL, "POST", "/api/v1/auth/login/swagger?username=other&password=open-sesame-2", NULL);
    expect_refusal(403, "用户名或密码有误", true);
    ask(NULL, "POST", "/api/v1/auth/login/swagger?username=none&password=open-sesame-1", NULL);
    expect_refusal(404, "用户名或密码有误", true);
    CHECK_INT(
        ask(NULL, "POST", "/api/v1/auth/login/swagger?username=other&password=open-sesame-1", NULL),
        200);
    CHECK(!json_object_get(a.json, "code"));
    CHECK_STR(text("token_type"), "Bearer");
    snprintf(header, sizeof(header), "Authorization: bearer %s\r\n", text("access_token"));
    ask_with(header, "GET", "/v1/me", NULL);
    CHECK_STR(text("user"), "other");
    ask_with(header, "GET", BASE "/x/status", NULL);
    expect_refusal(404, "Sandbox x not found", true);
    ask_with(header, "POST", "/api/v1/auth/logout", NULL);
    CHECK_INT(a.status, 200);
    ask_with(header, "GET", BASE "/x/status", NULL);
    expect_refusal(401, "Token 已失效", false);
    ask(other, "POST", "/api/v1/auth/logout", NULL); /* a key is no login */
    expect_refusal(401, "Token 无效", false);
}

TEST(a_password_becomes_a_token) { run(login); }
