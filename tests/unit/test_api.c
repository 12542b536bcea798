/* test_api.c - who may ask, and what E2B's SDKs see. */
#include "api_rig.h"
#include "io/netrange.h"

/* ---- who asks ---- */

static void keys(void)
{
    ask(NULL, "GET", "/v1/me", NULL);
    expect_error(401, "X-API-Key");
    ask("e2b_0000", "GET", "/v1/me", NULL);
    expect_error(401, "");
    ask(NULL, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}");
    expect_error(401, "");
    CHECK_INT(ask(admin, "GET", "/v1/me", NULL), 200);
    CHECK_STR(text("user"), "admin");
    CHECK(json_is_true(json_object_get(a.json, "admin")));
    char bearer[128];

    snprintf(bearer, sizeof(bearer), "Authorization: Bearer %s\r\n", other);
    ask_with(bearer, "GET", "/v1/me", NULL);
    CHECK_INT(a.status, 200);
    CHECK_STR(text("user"), "other");
    ask(other, "GET", "/v1/users", NULL);
    expect_error(403, "admin");
    CHECK_INT(ask(NULL, "GET", "/health", NULL), 200);
    CHECK_STR(text("version"), "1.2.3");
    CHECK_INT(ask(NULL, "GET", "/metrics", NULL), 200);
    CHECK(strstr(buf_cstr(&a.body), "cove_build_info{version=\"1.2.3\"} 1"));
}

TEST(a_key_says_who_asks) { run(keys); }

static void metrics(void)
{
    static const char *const passed_on[] = {
        "X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n", "Via: 1.1 here\r\n",
        "X-Real-IP: 10.1.1.1\r\n",        "X-Forwarded-Proto: https\r\n", "X-Forwarded-For:\r\n",
    };
    struct netrange_list proxies = { 0 };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        ask_with(passed_on[i], "GET", "/metrics", NULL);
        expect_error(401, "through a proxy");
    }
    CHECK_INT(ask(NULL, "GET", "/metrics", NULL), 200);
    CHECK_INT(netrange_list_add(&proxies, STR("127.0.0.0/8"), &err), 0);
    api.proxies = &proxies; /* one that says nothing of who asked it */
    ask(NULL, "GET", "/metrics", NULL);
    expect_error(401, "through a proxy");
    ask(other, "GET", "/metrics", NULL);
    expect_error(403, "admin");
    CHECK_INT(ask(admin, "GET", "/metrics", NULL), 200);
}

TEST(what_a_proxy_passes_on_needs_a_key_for_metrics) { run(metrics); }

static int logged_in(const char *from)
{
    char headers[128] = "";

    if (from)
        snprintf(headers, sizeof(headers), "X-Forwarded-For: %s\r\n", from);
    ask_with(headers, "POST", "/api/v1/auth/login", "{\"username\":\"nobody\",\"password\":\"x\"}");
    return a.status;
}

static void behind_a_proxy(void)
{
    static const struct setting *const tables[] = { control_auth_settings, NULL };
    struct netrange_list proxies = { 0 };
    struct err err = { 0 };

    CHECK_INT(setting_set(tables, "auth.login-rate=2", &err), 0);
    CHECK_INT(logged_in("192.0.2.1"), 404); /* anybody may say that */
    CHECK_INT(logged_in("192.0.2.2"), 404);
    CHECK_INT(logged_in("192.0.2.3"), 429); /* all are 127.0.0.1 */
    CHECK_INT(netrange_list_add(&proxies, STR("127.0.0.1,10.0.0.0/8"), &err), 0);
    api.proxies = &proxies;
    CHECK_INT(logged_in("192.0.2.1"), 404);
    CHECK_INT(logged_in("192.0.2.9, 192.0.2.1, 10.1.1.1"), 404);
    CHECK_INT(logged_in("192.0.2.1"), 429);
    CHECK_INT(logged_in("192.0.2.2"), 404);
    CHECK_INT(logged_in("2001:db8:1:2::1"), 404);
    CHECK_INT(logged_in("2001:db8:1:2::2"), 404);
    CHECK_INT(logged_in("2001:db8:1:2:ffff::3"), 429); /* one customer */
    CHECK_INT(logged_in("2001:db8:1:3::1"), 404);
    CHECK_INT(setting_set(tables, "auth.login-rate=5", &err), 0);
}

TEST(behind_a_trusted_proxy_each_client_has_a_rate) { run(behind_a_proxy); }

/* ---- E2B ---- */

static void e2b_life(void)
{
    const char *id = created(admin, "/v2/sandboxes",
                             "{\"templateID\":\"base\",\"timeout\":60,\"metadata\":{\"k\":\"v\"},"
                             "\"envVars\":{\"A\":\"1\"},\"future\":{\"x\":[1]},\"mcp\":null}");

    CHECK_STR(text("templateID"), "base");
    CHECK_STR(text("domain"), "localhost:8000");
    CHECK(text("clientID") && text("envdVersion") && text("envdAccessToken"));
    CHECK(text("trafficAccessToken")); /* which the code interpreter's SDK sends to its service */
    CHECK_INT(ask(admin, "GET", target("/sandboxes/@", id), NULL), 200);
    CHECK_STR(text("state"), "running");
    CHECK(text("startedAt") && text("endAt") && number("cpuCount") > 0 && number("memoryMB") > 0);
    CHECK_INT(ask(admin, "POST", target("/v2/sandboxes/@/connect", id), "{}"), 200);
    CHECK_STR(text("sandboxID"), id);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/connect", id), "{\"timeout\":5}"), 200);
    ask(admin, "POST", target("/sandboxes/@/connect", id), "{}");
    expect_error(400, "'timeout'");
    ask(admin, "POST", target("/sandboxes/@/resume", id), "{}");
    expect_error(409, "");
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/timeout", id), "{\"timeout\":30}"), 204);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/refreshes", id), ""), 204);
    CHECK_INT(ask(admin, "PUT", target("/sandboxes/@/network", id), "{}"), 204);
    ask(admin, "PUT", target("/sandboxes/@/network", id), "{\"allow_internet_access\":false}");
    expect_error(501, "network");
    CHECK_INT(ask(admin, "DELETE", target("/sandboxes/@", id), NULL), 204);
    ask(admin, "DELETE", target("/sandboxes/@", id), NULL);
    expect_error(404, "doesn't exist or you don't have access to it");
    ask(admin, "POST", target("/v2/sandboxes/@/connect", id), "{}");
    expect_error(404, "");
}

TEST(a_sandbox_lives_by_the_e2b_api) { run(e2b_life); }

static void e2b_create(void)
{
    static const struct {
        const char *body;
        int status;
        const char *words;
    } bad[] = {
        { "{}", 400, "'templateID' is missing" },
        { "", 400, "'templateID' is missing" },
        { "[]", 400, "object" },
        { "{\"templateID\":7}", 400, "'templateID' must be a string" },
        { "{\"templateID\":\"base\",\"timeout\":0}", 400, "'timeout'" },
        { "{\"templateID\":\"base\",\"timeout\":99999999}", 400, "'timeout'" },
        { "{\"templateID\":\"base\",\"timeout\":\"60\"}", 400, "'timeout' must be an integer" },
        { "{\"templateID\":\"base\",\"metadata\":{\"a\":1}}", 400, "'metadata.a'" },
        { "{\"templateID\":\"base\",\"iam\":{\"tokens\":{\"a\":{}}}}", 501, "iam" },
        { "{\"templateID\":\"base\",\"volumeMounts\":[{}]}", 501, "volumeMounts" },
        { "{\"templateID\":\"base\",\"network\":{\"rules\":{\"a\":[]}}}", 400, "network.rules" },
        { "{\"templateID\":\"no-such-template\"}", 404, "no-such-template" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask(admin, "POST", "/v2/sandboxes", bad[i].body);
        expect_error(bad[i].status, bad[i].words);
    }
    created(admin, "/sandboxes", "{\"templateID\":\"base\"}");
    CHECK(!text("envdAccessToken"));
    created(admin, "/sandboxes", "{\"templateID\":\"base\",\"secure\":true}");
    CHECK(text("envdAccessToken"));
    created(admin, "/v2/sandboxes",
            "{\"templateID\":\"base\",\"autoPause\":false,\"autoResume\":{\"enabled\":false},"
            "\"iam\":null,\"volumeMounts\":[],\"network\":{\"allowPublicTraffic\":false}}");
    CHECK(text("trafficAccessToken"));
    char *id = created(admin, "/v2/sandboxes",
                       "{\"templateID\":\"base\",\"allow_internet_access\":false}");

    ask(admin, "GET", target("/sandboxes/@", id), NULL);
    CHECK(json_is_false(json_object_get(a.json, "allowInternetAccess")));
}

TEST(what_e2b_create_cannot_keep_it_refuses_by_name) { run(e2b_create); }

static void lists(void)
{
    char next[128];

    for (int i = 0; i < 5; i++)
        created(admin, "/v2/sandboxes",
                i % 2 ? "{\"templateID\":\"base\",\"metadata\":{\"a b\":\"c&d\",\"n\":\"1\"}}"
                      : "{\"templateID\":\"base\",\"metadata\":{\"n\":\"2\"}}");
    created(other, "/v2/sandboxes", "{\"templateID\":\"base\"}");
    CHECK_INT(listed(admin, "/v2/sandboxes"), 5);
    CHECK_STR(a.next, "");
    CHECK_INT(listed(other, "/sandboxes"), 1);
    CHECK_INT(listed(admin, "/v2/sandboxes?metadata=n%3D1"), 2);
    CHECK_INT(listed(admin, "/v2/sandboxes?metadata=a%252520b%3Dc%252526d%26n%3D1"), 2);
    CHECK_INT(listed(admin, "/v2/sandboxes?metadata=n%3D3"), 0);
    CHECK_INT(listed(admin, "/v2/sandboxes?state=paused"), 0);
    CHECK_INT(listed(admin, "/v2/sandboxes?state=running,paused&order=asc&unknown=1"), 5);
    CHECK_INT(listed(admin, "/v2/sandboxes?startedAfter=2099-01-01T00%3A00%3A00Z"), 0);
    CHECK_INT(listed(admin, "/v2/sandboxes?limit=2"), 2);
    CHECK(a.next[0]);
    snprintf(next, sizeof(next), "/v2/sandboxes?limit=2&nextToken=%s", a.next);
    CHECK_INT(listed(admin, next), 2);
    snprintf(next, sizeof(next), "/v2/sandboxes?limit=2&nextToken=%s", a.next);
    CHECK_INT(listed(admin, next), 1);
    CHECK_STR(a.next, "");

    CHECK_INT(listed(admin, "/v1/sandboxes"), 5);
    CHECK_INT(listed(admin, "/v1/sandboxes?all=true"), 6);
    CHECK_INT(listed(admin, "/v1/sandboxes?metadata=a%2520b%3Dc%2526d"), 2);
    CHECK_INT(listed(admin, "/v1/sandboxes?limit=4"), 4);
    snprintf(next, sizeof(next), "/v1/sandboxes?limit=4&after=%s", text("next"));
    CHECK_INT(listed(admin, next), 1);
    CHECK(!text("next"));
    CHECK_INT(listed(admin, "/v1/sandboxes?ended=true"), 0);
    ask(other, "GET", "/v1/sandboxes?all=true", NULL);
    expect_error(403, "all");
    CHECK_INT(ask(admin, "DELETE", "/v1/sandboxes?all=true", NULL), 200);
    CHECK_INT(number("ended"), 6);
    CHECK_INT(listed(admin, "/v1/sandboxes?ended=true"), 5);
    CHECK_INT(listed(admin, "/v1/sandboxes?ended=true&all=true"), 6);
}

TEST(lists_are_filtered_and_paged) { run(lists); }

static void bad_lists(void)
{
    static const struct {
        const char *where, *words;
    } bad[] = {
        { "/v2/sandboxes?limit=0", "'limit'" },
        { "/v2/sandboxes?limit=101", "'limit'" },
        { "/v2/sandboxes?limit=many", "'limit'" },
        { "/v2/sandboxes?limit=1&limit=2", "'limit'" },
        { "/v2/sandboxes?state=sleeping", "'state'" },
        { "/v2/sandboxes?order=up", "'order'" },
        { "/v2/sandboxes?metadata=novalue", "'metadata'" },
        { "/v2/sandboxes?startedAfter=yesterday", "'startedAfter'" },
        { "/v2/sandboxes?nextToken=7", "'nextToken'" },
        { "/v2/sandboxes?a=%zz", "escape" },
        { "/v1/sandboxes?unknown=1", "'unknown'" },
        { "/v1/sandboxes?all=maybe", "'all'" },
        { "/v1/sandboxes?after=x", "'after'" },
        { "/v1/sandboxes?limit=1001", "'limit'" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask(admin, "GET", bad[i].where, NULL);
        expect_error(400, bad[i].words);
    }
}

TEST(a_bad_parameter_is_named) { run(bad_lists); }

static void again(const char *key, const char *body, int status)
{
    char headers[256];

    snprintf(headers, sizeof(headers), "X-API-Key: %s\r\nIdempotency-Key: %s\r\n", admin, key);
    ask_with(headers, "POST", "/v2/sandboxes", body);
    if (a.status != status)
        test_fail(__FILE__, __LINE__, "%d: %s", a.status, buf_cstr(&a.body));
}

static void idempotency(void)
{
    char first[SANDBOX_ID + 1];

    again("once-1", "{\"templateID\":\"base\",\"timeout\":60}", 201);
    snprintf(first, sizeof(first), "%s", text("sandboxID"));
    again("once-1", "{\"timeout\":60,\"templateID\":\"base\"}", 201);
    CHECK_STR(text("sandboxID"), first);
    again("once-1", "{\"templateID\":\"base\",\"timeout\":61}", 409);
    again("once-2", "{\"templateID\":\"base\",\"timeout\":60}", 201);
    CHECK(strcmp(text("sandboxID"), first));
    again("NOT-A-KEY", "{\"templateID\":\"base\"}", 400);
    CHECK(strstr(text("message"), "Idempotency-Key"));
    CHECK_INT(listed(admin, "/v2/sandboxes"), 2);
}

TEST(the_same_request_under_one_key_makes_one_sandbox) { run(idempotency); }

static void expect_state(const char *id, const char *state)
{
    CHECK_INT(ask(admin, "GET", target("/sandboxes/@", id), NULL), 200);
    CHECK_STR(json_string_value(json_object_get(a.json, "state")), state);
}

static void paused(void)
{
    const char *id = created(admin, "/v2/sandboxes",
                             "{\"templateID\":\"base\",\"timeout\":60,\"autoPause\":true,"
                             "\"autoResume\":{\"enabled\":true}}");
    const json_t *life;

    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/resume", id), "{}"), 409);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/pause", id), NULL), 204);
    expect_state(id, "paused");
    life = json_object_get(a.json, "lifecycle");
    CHECK_STR(json_string_value(json_object_get(life, "onTimeout")), "pause");
    CHECK(json_is_true(json_object_get(life, "autoResume")));
    CHECK_STR(json_string_value(json_object_get(a.json, "endAt")), "9999-12-31T23:59:59Z");
    ask(admin, "POST", target("/sandboxes/@/pause", id), "{\"memory\":false}");
    expect_error(409, "paused already");
    CHECK_INT(listed(admin, "/v2/sandboxes"), 1);
    CHECK_INT(listed(admin, "/v2/sandboxes?state=paused"), 1);
    CHECK_INT(listed(admin, "/v2/sandboxes?state=running"), 0);
    CHECK_INT(listed(admin, "/sandboxes"), 0);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/timeout", id), "{\"timeout\":77}"), 204);
    expect_state(id, "paused");
    CHECK_INT(ask(admin, "POST", target("/v2/sandboxes/@/connect", id), NULL), 201);
    expect_state(id, "running");
    CHECK_INT(ask(admin, "POST", target("/v2/sandboxes/@/connect", id), "{}"), 200);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/pause", id), "{\"memory\":true}"), 204);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/connect", id), "{\"timeout\":9}"), 201);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/connect", id), "{\"timeout\":9}"), 200);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/pause", id), ""), 204);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/resume", id), "{\"timeout\":9}"), 201);
    CHECK_INT(ask(admin, "POST", target("/sandboxes/@/pause", id), ""), 204);
    CHECK_INT(ask(admin, "DELETE", target("/sandboxes/@", id), NULL), 204);
    ask(admin, "POST", target("/sandboxes/@/pause", id), "{}");
    expect_error(404, "doesn't exist");
    ask(admin, "POST", "/v2/sandboxes",
        "{\"templateID\":\"base\",\"autoPause\":true,\"autoPauseMemory\":false,"
        "\"autoResume\":{\"enabled\":true}}");
    expect_error(400, "autoPauseMemory");
}

TEST(pause_connect_and_resume_are_as_the_sdks_know_them) { run(paused); }

static void later(void)
{
    static const char *const calls[][2] = {
        { "POST", "/sandboxes/@/snapshots" },
        { "POST", "/sandboxes/@/fork" },
        { "POST", "/v3/templates" },
        { "DELETE", "/templates/x" },
        { "DELETE", "/templates/tags" },
        { "POST", "/volumes" },
        { "POST", "/secrets" },
    };
    const char *id = created(admin, "/v2/sandboxes", "{\"templateID\":\"base\"}");

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        ask(admin, calls[i][0], target(calls[i][1], id), "{}");
        expect_error(501, "");
        CHECK_STR(a.retry, "false");
    }
    ask(admin, "POST", "/sandboxes/iaaaaaaaaaaaaaaaaaaaa/pause", "{}");
    expect_error(404, "doesn't exist");
    CHECK_INT(ask(admin, "GET", "/snapshots", NULL), 200);
    CHECK_STR(buf_cstr(&a.body), "[]");
    CHECK_INT(ask(admin, "GET", "/templates", NULL), 200);
    CHECK(json_array_size(a.json) > 0);
    CHECK_INT(ask(admin, "GET", "/templates/aliases/nothing", NULL), 404);
}

TEST(calls_that_are_not_supported_say_so) { run(later); }

/* ---- the provider's trouble ---- */

static void trouble(void)
{
    static const struct {
        enum err_code code;
        int status;
        const char *retry;
    } rows[] = {
        { ERR_UNAVAILABLE, 503, "true" },
        { ERR_LIMIT, 429, "false" },
        { ERR_NO_SPACE, 507, "false" },
        { ERR_TIMEOUT, 504, "false" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        provider_fake_fail(fake, "create", rows[i].code, 100);
        /* limits of its own: never a warm one */
        ask(admin, "POST", "/v1/sandboxes", "{\"strict\":true}");
        expect_error(rows[i].status, "");
        CHECK_STR(a.retry, rows[i].retry);
        provider_fake_fail(fake, "create", rows[i].code, 0);
    }
    CHECK_INT(listed(admin, "/v1/sandboxes"), 0);
}

TEST(a_client_is_told_whether_to_try_again) { run(trouble); }
