/* test_doors.c - who may come to a port and who may wake its sandbox, row by row; what of a request
 * is kept from it; browsers. Over the router of router_rig.h. */
#include "router/browser.h"
#include "router/host.h"
#include "router_rig.h"

/* ---- the rules ---- */

#define ACCESS  "X-Access-Token: acc\r\n"
#define TRAFFIC "E2b-Traffic-Access-Token: tra\r\n"
#define OWNER   "X-API-Key: key-1\r\n"
#define OTHER   "X-API-Key: key-2\r\n"
#define COOKIE  "Cookie: cove-door=good\r\n"

enum made { SECURE = 1, PRIVATE = 2, FILES = 4, PAUSED = 8 };

static const struct rule_row {
    const char *name, *target, *port;
    int made;
    const char *lines;
    int status;
    bool wakes, touches;
} rule_rows[] = {
    /* a service of one with a token */
    { "a stranger at a service", "/x", "8765", SECURE, "", 403, 0, 0 },
    { "a stranger at Jupyter", "/api", "8888", SECURE, "", 403, 0, 0 },
    { "a stranger at the interpreter", "/execute", "49999", SECURE, "", 403, 0, 0 },
    { "the access token at a service", "/x", "8765", SECURE, ACCESS, 200, 0, 1 },
    { "a wrong one", "/x", "8765", SECURE, "X-Access-Token: acd\r\n", 403, 0, 0 },
    { "an empty one", "/x", "8765", SECURE, "X-Access-Token:\r\n", 403, 0, 0 },
    { "the access token as a bearer", "/x", "8765", SECURE, "Authorization: Bearer acc\r\n", 200, 0,
      1 },
    { "the same as Jupyter says it", "/x", "8888", SECURE, "Authorization: token acc\r\n", 200, 0,
      1 },
    { "the same in a query", "/x?token=acc", "8888", SECURE, "", 200, 0, 1 },
    { "a traffic token it does not have", "/x", "8765", SECURE, TRAFFIC, 403, 0, 0 },
    { "an empty traffic token", "/x", "8765", SECURE, "E2b-Traffic-Access-Token:\r\n", 403, 0, 0 },
    { "the owner at a service", "/x", "8765", SECURE, OWNER, 200, 0, 1 },
    { "the owner by a bearer", "/x", "8765", SECURE, "Authorization: Bearer key-1\r\n", 200, 0, 1 },
    { "another user at a service", "/x", "8765", SECURE, OTHER, 403, 0, 0 },
    { "a key that nobody can look up", "/x", "8765", SECURE, "X-API-Key: down\r\n", 503, 0, 0 },
    { "a cookie", "/x", "8765", SECURE, COOKIE, 200, 0, 1 },
    { "a cookie for another port", "/x", "8888", SECURE, COOKIE, 403, 0, 0 },
    { "a cookie of another page's", "/x", "8765", SECURE, COOKIE "Origin: http://evil.example\r\n",
      403, 0, 0 },
    { "a private one's service", "/x", "8765", SECURE | PRIVATE, TRAFFIC, 200, 0, 1 },
    { "its traffic token as a bearer", "/x", "8765", SECURE | PRIVATE,
      "Authorization: Bearer tra\r\n", 200, 0, 1 },
    /* the control: one without a token is open by the same request */
    { "a service without a token", "/x", "8765", 0, "", 200, 0, 1 },
    { "the same, paused", "/x", "8765", PAUSED, "", 200, 1, 1 },
    /* any other port */
    { "a port", "/x", "80", SECURE, "", 200, 0, 1 },
    { "a private port", "/x", "80", SECURE | PRIVATE, "", 403, 0, 0 },
    { "a private port's traffic token", "/x", "80", SECURE | PRIVATE, TRAFFIC, 200, 0, 1 },
    { "a private port's bearer, as MCP has it", "/mcp", "6060", SECURE | PRIVATE,
      "Authorization: Bearer tra\r\n", 200, 0, 1 },
    { "a private port's owner", "/x", "80", SECURE | PRIVATE, OWNER, 200, 0, 1 },
    { "another user at it", "/x", "80", SECURE | PRIVATE, OTHER, 403, 0, 0 },
    { "a token in a query that is not Jupyter's", "/x?token=acc", "80", SECURE | PRIVATE, "", 403,
      0, 0 },
    { "a private port of one without a token", "/x", "80", PRIVATE, "", 403, 0, 0 },
    /* the guest, which asks by itself */
    { "a stranger at the guest", "/envs", "49983", SECURE, "", 200, 0, 0 },
    { "its token", "/envs", "49983", SECURE, ACCESS, 200, 0, 1 },
    { "a guest without a token", "/envs", "49983", 0, "", 200, 0, 1 },
    { "a guest without one, private", "/envs", "49983", PRIVATE, "", 403, 0, 0 },
    /* waking */
    { "a stranger wakes no guest", "/envs", "49983", SECURE | PAUSED, "", 401, 0, 0 },
    { "nor by a wrong token", "/envs", "49983", SECURE | PAUSED, "X-Access-Token: x\r\n", 401, 0,
      0 },
    { "nor another user", "/envs", "49983", SECURE | PAUSED, OTHER, 401, 0, 0 },
    { "the token wakes it", "/envs", "49983", SECURE | PAUSED, ACCESS, 200, 1, 1 },
    { "its owner wakes it", "/envs", "49983", SECURE | PAUSED, OWNER, 200, 1, 1 },
    { "a signed URL wakes it",
      "/files?path=/a&signature=v1_Na2Xtvm3mTYJhc8S%2B9XQFaBBJgYF3V2ql2vM3aeJQ38", "49983",
      SECURE | PAUSED, "", 200, 1, 1 },
    { "one of another file does not",
      "/files?path=/b&signature=v1_Na2Xtvm3mTYJhc8S%2B9XQFaBBJgYF3V2ql2vM3aeJQ38", "49983",
      SECURE | PAUSED, "", 401, 0, 0 },
    { "nor one at another route",
      "/envs?path=/a&signature=v1_Na2Xtvm3mTYJhc8S%2B9XQFaBBJgYF3V2ql2vM3aeJQ38", "49983",
      SECURE | PAUSED, "", 401, 0, 0 },
    { "health wakes nobody", "/health", "49983", SECURE | PAUSED, "", 502, 0, 0 },
    { "not with the token", "/health", "49983", SECURE | PAUSED, ACCESS, 502, 0, 0 },
    { "not without one", "/health", "49983", PAUSED, "", 502, 0, 0 },
    { "health of one that runs", "/health", "49983", SECURE, "", 200, 0, 0 },
    { "a stranger wakes no service", "/x", "8765", SECURE | PAUSED, "", 403, 0, 0 },
    { "the token does", "/x", "8765", SECURE | PAUSED, ACCESS, 200, 1, 1 },
    { "a stranger wakes no private port", "/x", "80", SECURE | PRIVATE | PAUSED, "", 403, 0, 0 },
    { "anybody wakes a public port", "/x", "80", SECURE | PAUSED, "", 200, 1, 1 },
    { "but not of files alone", "/x", "80", SECURE | PAUSED | FILES, "", 403, 0, 0 },
    { "nor of one without a token", "/x", "80", PAUSED | FILES, "", 403, 0, 0 },
    { "the token wakes it from files", "/x", "80", SECURE | PAUSED | FILES, ACCESS, 200, 1, 1 },
    { "its owner does, too", "/x", "80", PAUSED | FILES, OWNER, 200, 1, 1 },
    { "another user does not", "/x", "80", PAUSED | FILES, OTHER, 403, 0, 0 },
};

static void set_trial(int made)
{
    trial->state = made & PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING;
    trial->public = !(made & PRIVATE);
    snprintf(trial->token, sizeof(trial->token), "%s", made & SECURE ? "acc" : "");
    snprintf(trial->traffic_token, sizeof(trial->traffic_token), "%s", made & PRIVATE ? "tra" : "");
    files_only = made & FILES;
    cookie_port = 8765;
    wakes = touches = key_questions = 0;
}

static const struct rule_row *rule_now;

static void by_rule(void)
{
    char to[128], host[64], target[256];

    snprintf(to, sizeof(to), "E2b-Sandbox-Id: " TRY "\r\nE2b-Sandbox-Port: %s\r\n%s",
             rule_now->port, rule_now->lines);
    snprintf(host, sizeof(host), "%s-" TRY ".cove.test", rule_now->port);
    snprintf(target, sizeof(target), "/" TRY "/%s%s", rule_now->port, rule_now->target);
    for (int way = 0; way < 3; way++) {
        int status;

        set_trial(rule_now->made);
        status = way == 0   ? ask(rule_now->target, "h", to)
                 : way == 1 ? ask(rule_now->target, host, rule_now->lines)
                            : ask_of(&preview.addr, target, "h", rule_now->lines);
        CHECK_INT(status, rule_now->status);
        CHECK_INT(wakes, rule_now->wakes);
        CHECK_INT(touches > 0, rule_now->touches);
    }
}

TEST_ROWS(who_enters_and_who_wakes, rule_rows, test_once)
{
    rule_now = row;
    run(by_rule, mirror);
}

/* The cluster's clients know no other header than these. */
static void by_cluster(void)
{
    set_trial(SECURE);
    CHECK_INT(ask("/", "h", X_TO(TRY)), 401);
    has("Missing or invalid Authorization header.");
    CHECK_INT(ask("/", "h", X_TO(TRY) "Authorization: Bearer acc\r\n"), 200);
    lacks("acc\r\n");
    set_trial(0);
    CHECK_INT(ask("/", "h", X_TO(TRY)), 200);
}

TEST(the_clusters_form_is_judged_alike) { run(by_cluster, mirror); }

/* ---- what it does not see ---- */

static const struct strip_row {
    const char *name, *port, *line, *left; /* "": none of it */
} strip_rows[] = {
    { "a login's token", "80", "Authorization: Bearer eyJ.login\r\n", "" },
    { "a key", "80", "Authorization: bearer e2b_0123\r\n", "" },
    { "a key without a scheme", "80", "Authorization: e2b_0123\r\n", "" },
    { "a key behind a tab", "80", "Authorization: Bearer\te2b_0123\r\n", "" },
    { "a key in quotes", "80", "Authorization: Bearer \"e2b_0123\"\r\n", "" },
    { "the second of two", "80", "Authorization: Bearer x, Bearer eyJ.login\r\n", "" },
    { "the traffic token", "80", "Authorization: Bearer tra\r\n", "" },
    { "the access token", "80", "X-Access-Token: acc\r\n", "" },
    { "the access token at a service", "8765", "X-Access-Token: acc\r\n", "" },
    { "a token of its own", "80", "X-Access-Token: mine\r\n", "X-Access-Token: mine\r\n" },
    { "a bearer of its own", "80", "Authorization: Bearer eyJ.other\r\n",
      "Authorization: Bearer eyJ.other\r\n" },
    { "a password of its own", "80", "Authorization: Basic dXNlcjo=\r\n",
      "Authorization: Basic dXNlcjo=\r\n" },
    { "what its own Jupyter asks for", "8888", "Authorization: token s3cret\r\n",
      "Authorization: token s3cret\r\n" },
    { "a key in its field", "80", "X-API-Key: eyJ.login\r\n", "" },
    { "our cookies", "80", "Cookie: __Host-cove=1; a=b;c=d; cove-door=x; __host-Cove-door=y\r\n",
      "Cookie: a=b; c=d\r\n" },
    { "our cookie alone", "80", "Cookie: __Host-cove-session=1\r\n", "" },
    { "a login in a cookie", "80", "Cookie: t=eyJ.login; u=\"x\"\r\n", "Cookie: u=\"x\"\r\n" },
    { "a key in a cookie", "80", "Cookie: k=e2b_1; tra; b=acc\r\n", "" },
    { "a login in quotes", "80", "Cookie: t=\"eyJ.login\"; u=v\r\n", "Cookie: u=v\r\n" },
    { "cookies of its own", "80", "Cookie: a=b;c;=d; e=\r\n", "Cookie: a=b;c;=d; e=\r\n" },
};

static const struct strip_row *strip_now;

static void stripped(void)
{
    static const char *const names_of[] = { "Authorization", "X-Access-Token", "X-API-Key",
                                            "\nCookie:" };
    char host[64], lines[256], target[64];

    set_trial(SECURE | PRIVATE);
    snprintf(host, sizeof(host), "%s-" TRY ".cove.test", strip_now->port);
    snprintf(lines, sizeof(lines), "%s%s", TRAFFIC, strip_now->line);
    snprintf(target, sizeof(target), "/" TRY "/%s/", strip_now->port);
    CHECK_INT(ask("/", host, lines), 200);
    if (*strip_now->left)
        has(strip_now->left);
    for (size_t i = 0; !*strip_now->left && i < ARRAY_LEN(names_of); i++)
        lacks(names_of[i]);
    lacks("e2b_");
    lacks("eyJ.login");
    lacks("cove-door");
    CHECK_INT(ask_of(&preview.addr, target, "h", lines), 200);
    lacks("\nCookie:");
    lacks("eyJ.login");
    set_trial(SECURE | PRIVATE);
    snprintf(lines, sizeof(lines), "E2b-Sandbox-Id: " TRY "\r\nE2b-Sandbox-Port: %s\r\n%s%s",
             strip_now->port, TRAFFIC, strip_now->line);
    CHECK_INT(ask("/", "h", lines), 200);
    if (*strip_now->left)
        has(strip_now->left);
    lacks("eyJ.login");
}

TEST_ROWS(what_is_ours_goes_no_further_and_the_rest_does, strip_rows, test_once)
{
    strip_now = row;
    run(stripped, mirror);
}

static void kept_for_the_guest(void)
{
    set_trial(SECURE);
    CHECK_INT(ask("/envs", "49983-" TRY ".cove.test", ACCESS), 200);
    has("X-Access-Token: acc\r\n"); /* who asks for it gets it */
    CHECK_INT(ask("/x", "8765-" TRY ".cove.test", "Authorization: Bearer key-1\r\n"), 200);
    lacks("key-1"); /* a key that looks like nothing, but let its owner in */
    CHECK_INT(ask("/x", "80-" TRY ".cove.test", "Authorization: Bearer key-1\r\n"), 200);
    has("key-1"); /* nobody asked for it there: it is not known to be one */
    CHECK_INT(key_questions, 1);
    CHECK_INT(ask("/x?a=1&token=acc&b=2", "8888-" TRY ".cove.test", ""), 200);
    has("GET /x?a=1&b=2 HTTP/1.1\r\n");
    CHECK_INT(ask("/x?token=own", "8888-" TRY ".cove.test", ACCESS), 200);
    has("GET /x?token=own HTTP/1.1\r\n");
}

TEST(the_guest_gets_its_token_and_a_key_that_was_taken_goes_no_further)
{
    run(kept_for_the_guest, mirror);
}

static void setting(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (rig_hear(fd, &b, "\r\n\r\n"))
        rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: own=1; Path=/\r\n"
                    "Set-Cookie: wide=1; domain=.cove.test\r\nSet-Cookie: cove-door=x\r\n"
                    "Set-Cookie: __Host-cove=; Max-Age=0\r\nClear-Site-Data: \"cookies\"\r\n"
                    "Alt-Svc: clear\r\nStrict-Transport-Security: max-age=9\r\n"
                    "Service-Worker-Allowed: /\r\nX-Own: 1\r\nConnection: close\r\n\r\n");
}

static void trailing(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (rig_hear(fd, &b, "\r\n\r\n"))
        rig_say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                    "2\r\nok\r\n0\r\nSet-Cookie: late=1\r\nX-Own: 1\r\n\r\n");
}

static void trailers(void)
{
    set_trial(0);
    CHECK_INT(ask("/", "80-" TRY ".cove.test", ""), 200);
    has("Set-Cookie: late=1\r\nX-Own: 1\r\n");
    CHECK_INT(ask("/", "h", E2B_TO(TRY, "80")), 200);
    has("X-Own: 1\r\n");
    lacks("Set-Cookie");
}

TEST(nor_do_its_trailers) { run(trailers, trailing); }

static void answers(void)
{
    static const char *const origins[] = { "Set-Cookie", "Clear-Site-Data", "Alt-Svc", "Strict",
                                           "Service-Worker" };

    set_trial(0);
    CHECK_INT(ask("/", "80-" TRY ".cove.test", ""), 200);
    has("Set-Cookie: own=1; Path=/\r\n");
    has("Clear-Site-Data"); /* of its own origin */
    lacks("wide");
    lacks("cove-door");
    lacks("__Host-cove");
    for (int way = 0; way < 3; way++) {
        CHECK_INT(way == 0   ? ask("/", "h", E2B_TO(TRY, "80"))
                  : way == 1 ? ask("/", "h", X_TO(TRY) "X-Sandbox-Port: 80\r\n")
                             : ask_of(&preview.addr, "/" TRY "/80/", "h", ""),
                  200);
        has("X-Own: 1\r\n");
        for (size_t i = 0; i < ARRAY_LEN(origins); i++)
            lacks(origins[i]);
    }
}

TEST(an_answer_changes_nothing_of_an_origin_that_is_shared) { run(answers, setting); }

/* ---- browsers ---- */

static void tickets(void)
{
    static const char plain[] = "Location: //8765-" TRY ".cove.test/a?b=c&d\r\n";

    set_trial(SECURE);
    cookie_port = 0;
    ticket = "once";
    CHECK_INT(ask_by(&front.addr, "HEAD", "/?cove_token=once", "8765-" TRY ".cove.test", ""), 403);
    CHECK_INT(ask_by(&front.addr, "POST", "/?cove_token=once", "8765-" TRY ".cove.test",
                     "Content-Length: 0\r\n"),
              403);
    CHECK_INT(ask("/a?b=c&cove_token=once&d", "8765-" TRY ".cove.test", ""), 303);
    has(plain);
    has("Set-Cookie: cove-door=good; Path=/; Max-Age=60; HttpOnly; SameSite=Lax\r\n");
    has("Referrer-Policy: no-referrer\r\n");
    has("Cache-Control: no-store\r\n");
    lacks("once");
    CHECK_INT(ask("/a?cove_token=once", "8765-" TRY ".cove.test", ""), 403); /* it is spent */
    has("used already");
    CHECK_INT(ask("/a?b=c&cove_token=once&d", "8765-" TRY ".cove.test", COOKIE), 303); /* reload */
    has(plain);
    lacks("Set-Cookie");
    CHECK_INT(ask("/a", "8765-" TRY ".cove.test", COOKIE), 200);
    CHECK_INT(ask("/a", "8888-" TRY ".cove.test", COOKIE), 403);
    CHECK_INT(ask("//evil.example/?cove_token=", "80-" TRY ".cove.test", ""), 303);
    has("Location: //80-" TRY ".cove.test//evil.example/\r\n");
}

TEST(a_ticket_is_changed_for_a_cookie_once) { run(tickets, mirror); }

static void previewed(void)
{
    const struct addr *a = &preview.addr;

    set_trial(SECURE);
    ticket = "once";
    CHECK_INT(ask_of(a, "/" TRY "/8765/p?cove_token=once", "h:1", ""), 303);
    has("Location: //h:1/" TRY "/8765/p\r\n");
    has("Set-Cookie: cove-door=good; Path=/" TRY "/8765; Max-Age=60; HttpOnly; SameSite=Lax\r\n");
    CHECK_INT(ask_of(a, "/" TRY "/8765/p", "h:1", COOKIE), 200);
    has("GET /p HTTP/1.1\r\n");
    lacks("cove-door=good\r\n");
    CHECK_INT(ask_of(a, "/" TRY "/8888/p", "h:1", COOKIE), 403);
    CHECK_INT(ask_of(a, "/" TRY "/80/p", "h:1", "Referer: http://h:1/x/8888/?token=acc\r\n"), 200);
    has("Referer: http://h:1/x/8888/\r\n"); /* of another sandbox, for all that is known here */
    CHECK_INT(ask("/p", "80-" TRY ".cove.test", "Referer: http://h:1/?a=b\r\n"), 200);
    has("Referer: http://h:1/?a=b\r\n");
}

TEST(on_the_preview_listener_it_is_bound_to_the_path) { run(previewed, mirror); }

static void socketed(void)
{
    set_trial(SECURE);
    ticket = "once";
    CHECK_INT(ask("/ws?cove_token=once&x=1", "8765-" TRY ".cove.test",
                  "Upgrade: x\r\nConnection: Upgrade\r\n"),
              200);
    has("GET /ws?x=1 HTTP/1.1\r\n");
    CHECK_INT(ask("/ws?cove_token=once", "8765-" TRY ".cove.test",
                  "Upgrade: x\r\nConnection: Upgrade\r\n"),
              403);
}

TEST(a_websocket_goes_on_with_a_ticket_as_it_follows_nobody) { run(socketed, mirror); }

#define ASKS "Origin: http://page.example\r\nAccess-Control-Request-Method: POST\r\n"

static void preflights(void)
{
    int before;

    set_trial(SECURE);
    before = mirrored;
    CHECK_INT(ask_by(&front.addr, "OPTIONS", "/execute", "49999-" TRY ".cove.test",
                     ASKS "Access-Control-Request-Headers: x-access-token\r\n"),
              204);
    has("Access-Control-Allow-Origin: *\r\n");
    has("Access-Control-Allow-Headers: x-access-token\r\n");
    lacks("Allow-Credentials");
    CHECK_INT(mirrored, before); /* nothing inside was asked */
    CHECK_INT(ask_by(&front.addr, "OPTIONS", "/execute", "49999-" TRY ".cove.test", ""), 403);
    set_trial(SECURE | PAUSED);
    CHECK_INT(ask_by(&front.addr, "OPTIONS", "/x", "49983-" TRY ".cove.test", ASKS), 204);
    CHECK_INT(wakes, 0);
    set_trial(SECURE);
    CHECK_INT(ask_by(&front.addr, "OPTIONS", "/x", "49983-" TRY ".cove.test", ASKS), 200);
    CHECK(mirrored > before);
}

TEST(a_preflight_reaches_no_service_and_wakes_nobody) { run(preflights, mirror); }

static void pages(void)
{
    set_trial(0);
    CHECK_INT(ask("/", "h", E2B_TO(TRY, "80") "Sec-Fetch-Site: same-origin\r\n"), 403);
    CHECK_INT(ask("/", "h", X_TO(TRY) "Sec-Fetch-Site: none\r\n"), 403);
    CHECK_INT(ask("/", "h", E2B_TO(TRY, "49983") "Sec-Fetch-Site: cross-site\r\n"), 200);
    CHECK_INT(ask("/", "h", E2B_TO(TRY, "80")), 200);
    CHECK_INT(ask("/", "80-" TRY ".cove.test", "Sec-Fetch-Site: same-origin\r\n"), 200);
}

TEST(a_page_is_not_routed_by_headers) { run(pages, mirror); }

static void hosts(void)
{
    CHECK_INT(ask("/", "evil.example", ""), 421);
    has("--host");
    CHECK_INT(ask("/", "evil.example", E2B_TO(ID, "80")), 421);
    CHECK_INT(ask("/", "80-" ID ".evil.example", ""), 421);
    CHECK_INT(ask_of(&preview.addr, "/" ID "/80/", "evil.example", ""), 421);
    CHECK_INT(ask("/healthz", "evil.example", ""), 200);
    CHECK_INT(ask("/", "also.example:8000", ""), 200);
    CHECK_INT(ask("/", "80-" ID ".also.example", ""), 200);
    CHECK_INT(ask("/", "80-" ID ".cove.test", ""), 200);
}

TEST(a_name_that_is_not_ours_is_misdirected) { run(hosts, mirror); }

/* ---- the pure part ---- */

TEST(names_are_ours_by_nature_or_by_the_operators_word)
{
    static const char *const more[] = { "x.example, also.example", "last.example.:80", NULL };
    const struct host_names h = { STR("cove.test"), STR("box"), more };
    static const char *const are[] = { "",
                                       "127.0.0.1:80",
                                       "10.1.2.3",
                                       "[::1]:80",
                                       "[::1]",
                                       "[fe80::1%25eth0]:1",
                                       "localhost:",
                                       "my_service",
                                       "localhost",
                                       "a.LOCALHOST:1",
                                       "cove",
                                       "cove.test",
                                       "api.cove.test.",
                                       "box",
                                       "BOX.local",
                                       "host.docker.internal",
                                       "also.example",
                                       "x.y.also.example:9",
                                       "last.example" };
    static const char *const are_not[] = { "evil.example",
                                           "evilcove.test",
                                           "cove.test.evil.example",
                                           "127.0.0.1.nip.io",
                                           "10.1.2",
                                           "1.2.3.4.5",
                                           "notalso.example",
                                           "other.local",
                                           "localhost.evil.example",
                                           "x.box.local",
                                           ":80",
                                           "a..b",
                                           "localhost:@evil.example",
                                           "localhost:80/x",
                                           "localhost:x",
                                           "[::1]@evil.example",
                                           "[::1]evil.example",
                                           "[evil.example",
                                           "[::1",
                                           "evil.example/.localhost",
                                           "evil.example#.localhost",
                                           "a b",
                                           "evil.example\\.localhost",
                                           "[::1]:8x" };

    for (size_t i = 0; i < ARRAY_LEN(are); i++)
        if (!host_is_ours(&h, str_of(are[i])))
            CHECK_STR(are[i], "ours");
    for (size_t i = 0; i < ARRAY_LEN(are_not); i++)
        if (host_is_ours(&h, str_of(are_not[i])))
            CHECK_STR(are_not[i], "not ours");
}

static const struct own_row {
    const char *name, *method, *lines;
    bool own;
} own_rows[] = {
    { "a program", "GET", "", true },
    { "a program's form", "POST", "", false },
    { "its own page", "POST", "Origin: https://h:1\r\nSec-Fetch-Site: same-origin\r\n", true },
    { "the same without Sec-Fetch", "POST", "Origin: http://h:1\r\n", true },
    { "its own socket", "GET", "Origin: http://H:1\r\n", true },
    { "another port", "POST", "Origin: http://h:2\r\n", false },
    { "another page's socket", "GET", "Origin: http://evil.example\r\n", false },
    { "no origin to speak of", "POST", "Origin: null\r\n", false },
    { "a link elsewhere", "GET",
      "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
      true },
    { "a form elsewhere", "POST",
      "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
      false },
    { "a neighbour's frame", "GET",
      "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
      false },
    { "its own frame", "GET",
      "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
      true },
    { "a neighbour's image", "GET", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n",
      false },
    { "typed in", "GET", "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", true },
};

TEST_ROWS(a_cookie_speaks_for_its_own_origin_alone, own_rows, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct http_head *h = xmalloc(sizeof(*h));
    struct err err = { 0 };

    buf_printf(&b, "%s / HTTP/1.1\r\nHost: h:1\r\n%s\r\n", row->method, row->lines);
    CHECK(http_parse(b.data, b.len, HTTP_REQUEST, h, &err) > 0);
    CHECK_INT(browser_own(h), row->own);
    free(h);
}

static const struct cut_row {
    const char *name, *target, *value, *left;
} cut_rows[] = {
    { "alone", "/a?t=1", "1", "/a" },
    { "first", "/a?t=1&b=2", "1", "/a?b=2" },
    { "last", "/a?b=2&t=1", "1", "/a?b=2" },
    { "twice", "/?t=1&c&t=2", "1", "/?c" },
    { "without a value", "/?t", "", "/" },
    { "empty", "/?t=", "", "/" },
    { "not there", "/?tt=1&T=2", NULL, "/?tt=1&T=2" },
    { "in the path", "/t=1", NULL, "/t=1" },
    { "behind a second mark", "/?a=?t=1", NULL, "/?a=?t=1" },
};

TEST_ROWS(a_parameter_is_cut_out_of_a_query, cut_rows, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct str value = browser_query(str_of(row->target), "t");

    CHECK_INT(!value.p, !row->value);
    if (row->value)
        CHECK(str_is(value, row->value));
    browser_cut(str_of(row->target), "t", &b);
    CHECK_STR(buf_cstr(&b), row->left);
}
