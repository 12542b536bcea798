/* test_router.c - where a request goes, who may go there, and what is said when it cannot. The
 * control part is a handful of records here; ports of sandboxes are scripts on the loopback. */
#include "router_rig.h"

/* ---- the pure part ---- */

static struct str domain = { "cove.test", 9 };

static struct target find(const char *host, const char *lines)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct http_head *h = xmalloc(sizeof(*h));
    struct target_fields f;
    struct err err = { 0 };
    struct target t;

    buf_printf(&b, "GET / HTTP/1.1\r\nHost: %s\r\n%s\r\n", host, lines);
    if (http_parse(b.data, b.len, HTTP_REQUEST, h, &err) <= 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    target_read(h, &f);
    target_find(&f, domain, &t);
    free(h);
    return t;
}

TEST(a_host_name_says_port_and_sandbox)
{
    static const struct {
        const char *host;
        enum target_by by;
        int port;
        const char *bad;
    } rows[] = {
        { "3000-" ID ".cove.test", BY_HOST, 3000, NULL },
        { "3000-" ID ".cove.test:8000", BY_HOST, 3000, NULL },
        { "3000-" ID ".COVE.test.:8000", BY_HOST, 3000, NULL },
        { "80-IAAAAAAAAAAAAAAAAAAAA.cove.test", BY_HOST, 80, NULL },
        { "80-" ID "-client-x.cove.test", BY_HOST, 80, NULL },
        { "80-" ID ".elsewhere.example", BY_HOST, 80, NULL }, /* behind another proxy */
        { "65535-" ID ".cove.test", BY_HOST, 65535, NULL },
        { "65536-" ID ".cove.test", BY_HOST, 0, "Invalid port" },
        { "0-" ID ".cove.test", BY_HOST, 0, "Invalid port" },
        { "3000-" ID, BY_HOST, 0, "Invalid host" },
        { "3000-short.cove.test", BY_HOST, 0, "Invalid sandbox ID" },
        { "3000-.cove.test", BY_HOST, 0, "Invalid sandbox ID" },
        { "x-" ID ".cove.test", BY_HOST, 0, "Invalid host" },
        { "-" ID ".cove.test", BY_HOST, 0, "Invalid host" },
        { "www.cove.test", BY_HOST, 0, "Invalid host" },
        { "cove.test", BY_NONE, 0, NULL },
        { "api.cove.test", BY_NONE, 0, NULL },
        { "sandbox.cove.test:443", BY_NONE, 0, NULL },
        { "localhost:8000", BY_NONE, 0, NULL },
        { "127.0.0.1:8000", BY_NONE, 0, NULL },
        { "[::1]:8000", BY_NONE, 0, NULL },
        { "10-server.lan", BY_NONE, 0, NULL }, /* a machine's own name */
        { "notcove.test", BY_NONE, 0, NULL },
        { "..", BY_NONE, 0, NULL },
        { ":80", BY_NONE, 0, NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct target t = find(rows[i].host, "");

        if (t.by != rows[i].by || (t.bad ? t.bad[0] : 0) != (rows[i].bad ? rows[i].bad[0] : 0))
            test_fail(__FILE__, __LINE__, "%s: by %d, bad %s", rows[i].host, t.by, t.bad);
        if (rows[i].bad) {
            CHECK_STR(t.bad, rows[i].bad);
        } else if (rows[i].by) {
            CHECK_STR(t.id, ID);
            CHECK_INT(t.port, rows[i].port);
        }
    }
}

TEST(below_localhost_only_what_looks_like_a_sandbox_is_one)
{
    domain = STR("localhost");
    CHECK_INT(find("80-" ID ".localhost:8000", "").by, BY_HOST);
    CHECK_INT(find("cove.localhost:8000", "").by, BY_NONE);
    CHECK_INT(find("80-x.localhost:8000", "").by, BY_NONE);
    domain = STR("cove.test");
}

TEST(headers_say_port_and_sandbox_where_the_host_does_not)
{
    static const struct {
        const char *lines;
        enum target_by by;
        const char *id;
        int port;
        const char *bad;
    } rows[] = {
        { "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: 49983\r\n", BY_E2B, ID, 49983, NULL },
        { "e2b-sandbox-id: " UUID "\r\ne2b-sandbox-port: 1\r\n", BY_E2B, UUID, 1, NULL },
        { "E2b-Sandbox-Id: " ID "\r\n", BY_E2B, NULL, 0, "missing header E2b-Sandbox-Port" },
        { "E2b-Sandbox-Port: 1\r\n", BY_E2B, NULL, 0, "missing header E2b-Sandbox-Id" },
        { "E2b-Sandbox-Id:\r\nE2b-Sandbox-Port: 1\r\n", BY_E2B, NULL, 0,
          "missing header E2b-Sandbox-Id" },
        { "E2b-Sandbox-Id: ../x\r\nE2b-Sandbox-Port: 1\r\n", BY_E2B, NULL, 0,
          "Invalid sandbox ID" },
        { "E2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: +1\r\n", BY_E2B, NULL, 0,
          "Invalid port in header E2b-Sandbox-Port" },
        { "X-Sandbox-ID: my-box\r\n", BY_CLUSTER, "my-box", 8888, NULL },
        { "X-Sandbox-ID: " ID "\r\nX-Sandbox-Port: 80\r\nX-Sandbox-Namespace: team-a\r\n",
          BY_CLUSTER, ID, 80, NULL },
        { "X-Sandbox-Port: 80\r\n", BY_CLUSTER, NULL, 0, "X-Sandbox-ID header is required." },
        { "X-Sandbox-ID: No_Label\r\n", BY_CLUSTER, NULL, 0, "Invalid sandbox ID format." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Namespace: a.b\r\n", BY_CLUSTER, NULL, 0,
          "Invalid namespace format." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Port: 0\r\n", BY_CLUSTER, NULL, 0, "Invalid port format." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Pod-IP: 127.0.0.1\r\n", BY_CLUSTER, NULL, 0,
          "Invalid target IP address." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Pod-IP: ::1\r\n", BY_CLUSTER, NULL, 0,
          "Invalid target IP address." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Pod-IP: 169.254.169.254\r\n", BY_CLUSTER, NULL, 0,
          "Invalid target IP address." },
        { "X-Sandbox-ID: a\r\nX-Sandbox-Pod-IP: 10.1.2.3\r\n", BY_CLUSTER, "a", 8888, NULL },
        { "X-Sandbox-Other: a\r\n", BY_NONE, NULL, 0, NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct target t = find("127.0.0.1:8000", rows[i].lines);

        if (t.by != rows[i].by || !t.bad != !rows[i].bad)
            test_fail(__FILE__, __LINE__, "%s: by %d, bad %s", rows[i].lines, t.by, t.bad);
        if (rows[i].bad)
            CHECK_STR(t.bad, rows[i].bad);
        if (rows[i].id) {
            CHECK_STR(t.id, rows[i].id);
            CHECK_INT(t.port, rows[i].port);
        }
    }
    CHECK_INT(
        find("81-" ID ".cove.test", "E2b-Sandbox-Id: " OTH "\r\nE2b-Sandbox-Port: 1\r\n").port, 81);
    CHECK_INT(find("x.cove.test", "E2b-Sandbox-Id: " OTH "\r\nE2b-Sandbox-Port: 1\r\n").by,
              BY_HOST);
}

TEST(a_timeout_is_finite_and_positive_or_ignored)
{
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = { { "2", 2000 }, { "0.25", 250 }, { "1e1", 10000 },      { "0.0001", 1 },
                 { "0", 0 },    { "-1", 0 },     { "inf", 0 },          { "nan", 0 },
                 { "2 s", 0 },  { "", 0 },       { "1e300", INT32_MAX } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(buf_free) struct buf b = { 0 };

        buf_printf(&b, "X-Sandbox-ID: a\r\nX-Sandbox-Timeout: %s\r\n", rows[i].text);
        CHECK_INT(find("localhost", b.data).timeout_ms, rows[i].ms);
    }
}

TEST(a_path_says_port_and_sandbox)
{
    static const char *const not_one[] = { "",
                                           "/",
                                           "/" ID,
                                           "/" ID "/",
                                           "/x/80",
                                           "/" ID "/x/",
                                           "/" ID "/0/",
                                           "/" ID "?/80/",
                                           "//80/",
                                           "/" ID "/65536/",
                                           "x/" ID "/80/" };
    struct target t;

    CHECK(target_find_path(STR("/" ID "/80/a/b?c=/d/"), &t));
    CHECK_STR(t.id, ID);
    CHECK_INT(t.port, 80);
    CHECK(str_is(t.rest, "/a/b?c=/d/"));
    CHECK(str_is(t.prefix, "/" ID "/80"));
    CHECK(target_find_path(STR("/" UUID "/80/"), &t));
    CHECK_STR(t.id, UUID);
    CHECK(str_is(t.rest, "/"));
    CHECK(target_find_path(STR("/" ID "/80?q"), &t));
    CHECK_INT(t.rest.n, 0);
    for (size_t i = 0; i < ARRAY_LEN(not_one); i++)
        if (target_find_path(str_of(not_one[i]), &t))
            CHECK_STR(not_one[i], "not a path of a sandbox");
}

TEST(the_guests_control_routes_are_known_however_they_are_written)
{
    static const char *const are[] = { "/init",   "/init/",     "/init/x",       "//init",
                                       "/./init", "/%69nit",    "/%69%6E%69%74", "/INIT",
                                       "/init;x", "/a/../init", "/..",           "/a/%2e%2E/init",
                                       "/freeze", "/unfreeze",  "/collapse",     "/fsfreeze",
                                       "/fsthaw", "/%2finit",   "/\\init",       "init" };
    static const char *const are_not[] = { "/",
                                           "",
                                           "/files",
                                           "/initial",
                                           "/in",
                                           "/health",
                                           "/process.Process/Start",
                                           "/files/init",
                                           "/a..b",
                                           "/%",
                                           "/%6",
                                           "/...",
                                           "/inittttttttttttttttttttttttt" };

    for (size_t i = 0; i < ARRAY_LEN(are); i++)
        if (!target_is_control(str_of(are[i])))
            CHECK_STR(are[i], "a control route");
    for (size_t i = 0; i < ARRAY_LEN(are_not); i++)
        if (target_is_control(str_of(are_not[i])))
            CHECK_STR(are_not[i], "no control route");
}

/* ---- there and back ---- */

static void there(void)
{
    CHECK_INT(ask("/", "127.0.0.1", ""), 200);
    has("the API");
    CHECK_INT(
        ask("/a?b", "80-" ID ".cove.test", "X-API-Key: k\r\nAuthorization: Bearer e2b_abc\r\n"),
        200);
    has("GET /a?b HTTP/1.1\r\nHost: 80-" ID ".cove.test\r\n");
    has("X-Forwarded-Proto: http\r\n");
    has("Set-Cookie: a=b\r\n"); /* of an origin of its own */
    lacks("X-API-Key");
    lacks("e2b_abc");
    CHECK_INT(ask("/", "h",
                  E2B_TO(ID, "80") "Authorization: Basic dXNlcjo=\r\nX-Access-Token: t\r\n"
                                   "E2B-Traffic-Access-Token: u\r\nCookie: c\r\n"),
              200);
    has("Authorization: Basic dXNlcjo=\r\nX-Access-Token: t\r\nCookie: c\r\n");
    lacks("E2b-Sandbox");
    lacks("Traffic");
    lacks("Set-Cookie"); /* of the API's origin */
    CHECK_INT(ask("/", "h",
                  X_TO(ID) "Authorization: Bearer mine\r\nX-Sandbox-Timeout: 3\r\n"
                           "X-Sandbox-Port: 1\r\nX-Sandbox-Namespace: n\r\n"),
              200);
    lacks("Authorization");
    lacks("X-Sandbox");
    CHECK_INT(ask("/", "h", E2B_TO(UUID, "80")), 200);
    CHECK_INT(ask("/healthz", "h", ""), 200);
    has("{\"status\":\"ok\"}");
    CHECK_INT(ask("/healthz", "h", X_TO(ID)), 200);
    has("{\"status\":\"ok\"}");
    CHECK_INT(ask("/healthz", "h", E2B_TO(ID, "80")), 200);
    has("GET /healthz"); /* the sandbox's own */
}

TEST(requests_get_there_by_host_and_header_without_what_is_ours) { run(there, mirror); }

static void woken(void)
{
    CHECK_INT(ask("/", "h", E2B_TO(SHUT, "80")), 403); /* a stranger wakes nobody */
    CHECK_INT(ask("/", "80-" SHUT ".cove.test", "E2b-Traffic-Access-Token: wrong\r\n"), 403);
    CHECK_INT(wakes, 0);
    wake_fails = ERR_UNAVAILABLE;
    CHECK_INT(ask("/", "h", E2B_TO(WAKE, "80")), 503);
    wake_fails = ERR_NOT_FOUND;
    CHECK_INT(ask("/", "h", E2B_TO(WAKE, "80")), 502);
    has("was not found");
    wake_fails = ERR_NONE;
    CHECK_INT(ask("/x", "h", E2B_TO(WAKE, "80")), 200);
    has("GET /x");
    CHECK_INT(ask("/x", "h", E2B_TO(WAKE, "80")), 200);
    CHECK_INT(wakes, 1);
    CHECK_INT(ask("/", "80-" SHUT ".cove.test", "E2b-Traffic-Access-Token: t\r\n"), 200);
    CHECK_INT(wakes, 2);
}

TEST(a_request_wakes_a_paused_one_where_that_is_set) { run(woken, mirror); }

#define MINE "E2b-Traffic-Access-Token: secret-token\r\n"

static void cannot(void)
{
    CHECK_INT(ask("/", "80-izzzzzzzzzzzzzzzzzzzz.cove.test", ""), 502);
    has("Content-Type: application/json; charset=utf-8\r\n");
    has("{\"sandboxId\":\"izzzzzzzzzzzzzzzzzzzz\",\"message\":\"The sandbox was not "
        "found\",\"code\":502}");
    CHECK_INT(ask("/health", "h", E2B_TO(GONE, "49983")), 502);
    has("was not found");
    CHECK_INT(ask("/", "h", E2B_TO(MOVE, "80")), 409);
    CHECK_INT(ask("/init", "h", E2B_TO(ID, "49983")), 404);
    CHECK_INT(ask("/%69nit", "49983-" ID ".cove.test", ""), 404);
    CHECK_INT(ask("/init", "h", E2B_TO(ID, "80")), 200); /* anybody else's init */
    CHECK_INT(ask("/", "h", "E2b-Sandbox-Id: " ID "\r\n"), 400);
    has("missing header");
    CHECK_INT(ask("/", "80-x.cove.test", ""), 400);
    has("\"message\":\"Invalid sandbox ID\"");
    CHECK_INT(
        ask("/", "80-" GONE ".cove.test", "User-Agent: Mozilla/5.0\r\nAccept: text/html,*/*\r\n"),
        502);
    has("text/html");
    has("was not found");
    dial_fails = ERR_UPSTREAM;
    CHECK_INT(ask("/", "81-" OTH ".cove.test", "E2b-Traffic-Access-Token: secret-token\r\n"), 502);
    has("\"message\":\"The sandbox is running but port is not open\",\"port\":81,\"code\":502}");
    dial_fails = ERR_UNAVAILABLE;
    CHECK_INT(ask("/", "h", E2B_TO(OTH, "49983") MINE), 503);
    dial_fails = ERR_NOT_FOUND; /* of its socket, say */
    CHECK_INT(ask("/", "h", E2B_TO(OTH, "49983") MINE), 503);
    dial_reason = ERR_NO_SANDBOX;
    CHECK_INT(ask("/", "h", E2B_TO(OTH, "49983") MINE), 502);
    has("was not found");
}

TEST(what_cannot_be_reached_is_told_as_the_SDKs_expect) { run(cannot, mirror); }

static void cluster(void)
{
    CHECK_INT(ask("/", "h", "X-Sandbox-Port: 80\r\n"), 400);
    has("{\"detail\":\"X-Sandbox-ID header is required.\"}");
    CHECK_INT(ask("/", "h", X_TO("some-name")), 502);
    has("{\"detail\":\"Could not connect to the backend sandbox: some-name\"}");
    CHECK_INT(ask("/", "h", X_TO(OTH)), 401);
    has("{\"detail\":\"Missing or invalid Authorization header.\"}");
    has("WWW-Authenticate: Bearer\r\n");
    CHECK_INT(ask("/", "h", X_TO(OTH) "Authorization: Bearer wrong\r\n"), 401);
    has("{\"detail\":\"Invalid token.\"}");
    CHECK_INT(ask("/", "h", X_TO(OTH) "Authorization: Bearer key-2\r\n"), 401);
    CHECK_INT(ask("/", "h", X_TO(OTH) "Authorization: Bearer down\r\n"), 502);
    CHECK_INT(ask("/", "h", X_TO(OTH) "Authorization: Bearer key-1\r\n"), 200);
    lacks("key-1");
    CHECK_INT(ask("/", "h", X_TO(OTH) "X-API-Key: key-1\r\n"), 200);
    lacks("key-1");
    CHECK_INT(ask("/", "h", X_TO(OTH) "Authorization: Bearer secret-token\r\n"), 200);
    lacks("secret-token");
    CHECK_INT(ask("/", "h", X_TO(OTH) "E2b-Traffic-Access-Token: secret-token\r\n"), 200);
    CHECK_INT(ask("/init", "h", X_TO(ID) "X-Sandbox-Port: 49983\r\n"), 404);
}

TEST(the_cluster_form_has_its_own_words_and_takes_keys) { run(cluster, mirror); }

static void private_one(void)
{
    CHECK_INT(ask("/", "80-" OTH ".cove.test", ""), 403);
    has("\"sandboxId\":\"" OTH "\"");
    has("\"code\":403");
    CHECK_INT(ask("/", "80-" OTH ".cove.test", "E2b-Traffic-Access-Token: secret-tokem\r\n"), 403);
    CHECK_INT(ask("/", "80-" OTH ".cove.test", "E2b-Traffic-Access-Token: secret\r\n"), 403);
    CHECK_INT(ask("/", "80-" OTH ".cove.test", "X-API-Key: key-2\r\n"), 403);
    CHECK_INT(ask("/", "80-" OTH ".cove.test", "X-API-Key: key-1\r\n"), 200);
    CHECK_INT(ask("/", "80-" OTH ".cove.test", "e2b-traffic-access-token: secret-token\r\n"), 200);
    lacks("secret-token");
    CHECK_INT(ask("/files", "49983-" OTH ".cove.test", ""), 403); /* which asks for nothing */
    CHECK_INT(ask("/health", "49983-" OTH ".cove.test", ""), 200);
    CHECK_INT(ask_of(&preview.addr, "/" OTH "/80/", "h", ""), 403);
}

TEST(a_private_sandbox_wants_a_credential_on_all_ports) { run(private_one, mirror); }

static void activity(void)
{
    touches = 0;
    ask("/health", "49983-" ID ".cove.test", "");
    CHECK_INT(touches, 0);
    ask("/health", "80-" ID ".cove.test", "");
    ask("/files", "49983-" ID ".cove.test", "");
    CHECK_INT(touches, 2);
    ask("/", "80-" GONE ".cove.test", "");
    CHECK_INT(touches, 2);
}

TEST(health_is_not_activity_and_the_rest_is) { run(activity, mirror); }

/* ---- previews ---- */

static void previews(void)
{
    const struct addr *a = &preview.addr;

    CHECK_INT(ask_of(a, "/" ID "/80/a?b=c", "127.0.0.1:1", "Cookie: c=d\r\nX-API-Key: k\r\n"), 200);
    has("GET /a?b=c HTTP/1.1\r\n");
    has("X-Forwarded-Prefix: /" ID "/80\r\n");
    has("X-Own: 1\r\n");
    lacks("Cookie");
    lacks("Service-Worker");
    lacks("X-API-Key");
    CHECK_INT(ask_of(a, "/" UUID "/80/", "h", ""), 200);
    has("GET / HTTP/1.1\r\n");
    CHECK_INT(ask_of(a, "/" ID "/80?x=y", "h", ""), 307);
    has("Location: /" ID "/80/?x=y\r\n");
    CHECK_INT(ask_of(a, "/" ID "/49983/init", "h", ""), 404);
    CHECK_INT(ask_of(a, "/style.css?v=1", "h", "Referer: http://h:8001/" ID "/80/page?z\r\n"), 307);
    has("Location: /" ID "/80/style.css?v=1\r\n");
    CHECK_INT(ask_of(a, "/style.css", "h", "Referer: http://h/elsewhere\r\n"), 404);
    CHECK_INT(ask_of(a, "/", "80-" ID ".cove.test", E2B_TO(ID, "80")), 404); /* by path alone */
    has("/{sandbox id}/{port}/");
    CHECK_INT(ask_of(a, "/" GONE "/80/", "h", "User-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"),
              502);
    has("<title>502 Bad Gateway</title>");
}

TEST(previews_go_by_path_and_carry_no_cookie) { run(previews, mirror); }

/* ---- long ones, and ends ---- */

static void endless(int fd, int nth) /* a stream, or a tunnel, that would never end */
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear(fd, &b, "\r\n\r\n"))
        return;
    rig_say(fd, strstr(b.data, "Upgrade: x")
                    ? "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhi"
                    : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
    b.len = 0;
    rig_hear_all(fd, &b);
}

static void ending(void)
{
    static const char *const lines[] = { "", "Connection: Upgrade\r\nUpgrade: x\r\n" };

    for (int i = 0; i < 2; i++) {
        AUTO(buf_free) struct buf b = { 0 }, rq = { 0 };
        int fd = rig_connect(&front.addr);

        buf_printf(&rq, "GET / HTTP/1.1\r\nHost: 80-" ID ".cove.test\r\n%s\r\n", lines[i]);
        rig_say(fd, rq.data);
        CHECK(rig_hear(fd, &b, "hi"));
        boxes[0].state = SANDBOX_ENDED;
        CHECK_INT(rig_hear_all(fd, &b), ECONNRESET);
        boxes[0].state = SANDBOX_RUNNING;
        co_close(fd);
    }
}

TEST(a_sandbox_that_ends_resets_what_leads_there) { run(ending, endless); }

static void bounded(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int64_t before = traffic_limits.sandbox_calls;
    int fd = rig_connect(&front.addr);

    traffic_limits.sandbox_calls = 1;
    rig_say(fd, "GET / HTTP/1.1\r\nHost: 80-" ID ".cove.test\r\n\r\n");
    CHECK(rig_hear(fd, &b, "hi"));
    CHECK_INT(ask("/", "80-" ID ".cove.test", ""), 429);
    has("router.sandbox-calls");
    co_close(fd);
    for (int i = 0; i < 400 && front_server.conns; i++)
        co_sleep(co_in(5));
    traffic_limits.sandbox_calls = before;
}

TEST(calls_to_one_sandbox_are_bounded) { run(bounded, endless); }

static const char *flood_type;
static int flooding;

/* Answers with a stream that has no end, and whose client is to read nothing of it. */
static void flood(int fd, int nth)
{
    AUTO(buf_free) struct buf chunk = { 0 };
    static const char much[32 << 10];
    char head[160];

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n",
             flood_type);
    rig_say(fd, head);
    buf_puts(&chunk, "8000\r\n");
    buf_add(&chunk, much, sizeof(much));
    buf_puts(&chunk, "\r\n");
    flooding++;
    while (!co_write(fd, chunk.data, chunk.len, co_in(20000)))
        ;
    flooding--;
}

static const struct flood_row {
    const char *name, *line, *port, *type;
    bool waits;
} floods[] = {
    { "a process", "POST /process.Process/Start", "49983", "application/connect+json", true },
    { "the same by protobuf", "POST /process.Process/Start", "49983", "application/connect+proto",
      true },
    { "a file in gzip", "GET /files?path=f", "49983", "text/plain", false },
    { "a cell", "POST /execute", "49999", "application/json", true },
    { "another call of the interpreter", "GET /contexts", "49999", "application/json", false },
    { "what has the place of the interpreter", "POST /execute", "49999", "text/event-stream",
      false },
    { "a port of the user's", "GET /", "80", "text/event-stream", false },
    { "one that looks like the guest", "POST /process.Process/Start", "80",
      "application/connect+json", false },
};

static const struct flood_row *flood_now;

static void unread(void)
{
    int64_t limit = http_limits.write_ms;
    AUTO(buf_free) struct buf rq = { 0 };
    int fd = rig_connect(&front.addr);

    http_limits.write_ms = 100;
    flood_type = flood_now->type;
    buf_printf(&rq,
               "%s HTTP/1.1\r\nHost: h\r\nE2b-Sandbox-Id: " ID "\r\nE2b-Sandbox-Port: %s\r\n\r\n",
               flood_now->line, flood_now->port);
    rig_say(fd, rq.data);
    for (int i = 0; !flooding && i < 1000; i++)
        co_sleep(co_in(5));
    CHECK_INT(flooding, 1);
    for (int i = 0; flooding && i < (flood_now->waits ? 10 : 200); i++)
        co_sleep(co_in(http_limits.write_ms / 2));
    CHECK_INT(flooding, flood_now->waits);
    co_close(fd);
    for (int i = 0; flooding && i < 1000; i++)
        co_sleep(co_in(5));
    CHECK_INT(flooding, 0);
    http_limits.write_ms = limit;
}

TEST_ROWS(only_streams_of_output_wait_for_a_client_that_does_not_read, floods, test_once)
{
    flood_now = row;
    run(unread, flood);
}

static void mute(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    rig_hear(fd, &b, "\r\n\r\n");
    if (strstr(b.data, "/wait"))
        rig_hear_all(fd, &b);
    else if (strstr(b.data, "/noise"))
        rig_say(fd, "nonsense\r\n\r\n");
}

static void mutes(void)
{
    CHECK_INT(ask("/", "80-" ID ".cove.test", ""), 502);
    has("closed the connection before it answered");
    CHECK_INT(ask("/noise", "80-" ID ".cove.test", ""), 502);
    has("not HTTP");
    CHECK_INT(ask("/wait", "h", X_TO(ID) "X-Sandbox-Timeout: 0.05\r\n"), 504);
    has("{\"detail\":\"Timed out waiting for the backend sandbox: " ID "\"}");
}

TEST(a_port_that_does_not_answer_is_told_as_such) { run(mutes, mute); }

static void doubtful(void)
{
    doubts = 0;
    CHECK_INT(ask("/wait", "h", X_TO(ID) "X-Sandbox-Timeout: 0.8\r\n"), 504);
    CHECK_INT(doubts, 0); /* any other port may take its time */
    CHECK_INT(ask("/wait", "h", X_TO(ID) "X-Sandbox-Port: 49983\r\nX-Sandbox-Timeout: 0.8\r\n"),
              504);
    CHECK(doubts > 0);
}

TEST(a_guest_that_lets_a_call_wait_is_looked_at) { run(doubtful, mute); }

static void numbers(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    ask("/", "80-" ID ".cove.test", "");
    ask("/", "h", E2B_TO(GONE, "80"));
    router_metrics(router, &b);
    CHECK(strstr(b.data, "cove_router_requests_total{by=\"host\"} 1\n"));
    CHECK(strstr(b.data, "cove_router_refused_total{why=\"not-found\"} 1\n"));
    CHECK(strstr(b.data, "cove_router_calls 0\n"));
}

TEST(what_was_routed_is_counted) { run(numbers, mirror); }
