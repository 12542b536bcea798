/* test_fetch.c - files from URLs: whom they reach, whom not, redirects, and every bound. */
#include "fetch_rig.h"

/* ---- getting ---- */

static void serve_hello(int fd, int nth)
{
    (void)nth;
    hear(fd);
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
}

static void gets(void)
{
    setenv("http_proxy", "http://127.0.0.3:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.3:1", 1);
    expect_get(at("http://file.test:%u/a b?c=d#e"), "hello");
    CHECK(strstr(heard.data, "GET /a%20b?c=d HTTP/1.1\r\n"));
    CHECK(strstr(heard.data, at("Host: file.test:%u\r\n")));
    CHECK(!strstr(heard.data, "Authorization"));
    CHECK_INT(lookups, 1);
    expect_get(at("http://me:pw@127.0.0.1:%u/"), "hello");
    CHECK(strstr(heard.data, "Authorization: Basic bWU6cHc=\r\n"));
    CHECK_INT(lookups, 1); /* an address is not looked up */
    CHECK_INT(rig.accepted, 2);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}
TEST(a_file_is_fetched_from_the_address_that_was_looked_up_once) { run(gets, serve_hello); }

static void serve_ways(int fd, int nth)
{
    hear(fd);
    rig_say(
        fd,
        nth ? "HTTP/1.1 200 OK\r\n\r\nto the end"
            : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
}

static void ways(void)
{
    expect_get(at("http://a.test:%u/"), "abcde");
    expect_get(at("http://a.test:%u/"), "to the end");
}
TEST(a_body_comes_in_chunks_or_to_the_end_of_the_connection) { run(ways, serve_ways); }

/* ---- who is not reached ---- */

static void refused(void)
{
    static const char *const addresses[] = {
        "127.0.0.2",
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.2]",
        "[::ffff:169.254.169.254]",
        "[::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
    };
    char url[128];

    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        snprintf(url, sizeof(url), "http://%s:%u/secret", addresses[i], port());
        expect_refused(url, NULL, ERR_DENIED, "only the public internet may be reached");
    }
    CHECK_INT(rig.accepted, 0);
    CHECK_INT(lookups, 0);
}
TEST(no_address_but_of_the_public_internet_is_reached) { run(refused, serve_hello); }

static void names(void)
{
    static const char *const list[] = { "127.0.0.2", "127.0.0.1,10.0.0.1", "::ffff:10.0.0.1",
                                        "127.0.0.1,::1", NULL };

    answers = list;
    for (int i = 0; i < 4; i++)
        expect_refused(at("http://evil.test:%u/secret"), NULL, ERR_DENIED, "evil.test is ");
    CHECK_INT(rig.accepted, 0);
}
TEST(a_name_is_refused_when_any_of_its_addresses_is) { run(names, serve_hello); }

static void rebinds(void)
{
    static const char *const list[] = { "127.0.0.1", "127.0.0.2", "127.0.0.2", NULL };

    answers = list;
    expect_get(at("http://rebind.test:%u/"), "hello");
    CHECK_INT(lookups, 1);
    expect_refused(at("http://rebind.test:%u/"), NULL, ERR_DENIED, "this machine");
    CHECK_INT(rig.accepted, 1);
}
TEST(a_name_that_changes_its_address_gains_nothing) { run(rebinds, serve_hello); }

static void no_host(void)
{
    expect_refused("http://none.test/secret", NULL, ERR_NOT_FOUND, "there is no host none.test");
    expect_refused("gopher://x/secret", NULL, ERR_INVALID, "https://");
    expect_refused("http://0x7f000001/secret", NULL, ERR_INVALID, "four decimal numbers");
    expect_refused("http://127.0.0.1:1/secret", NULL, ERR_UPSTREAM, "http://127.0.0.1:1: connect");
}
TEST(what_cannot_be_reached_says_why_and_no_more) { run(no_host, serve_hello); }

/* ---- redirects ---- */

static const char *const *locations;

static void serve_redirects(int fd, int nth)
{
    char text[256];

    hear(fd);
    if (!locations[nth]) {
        rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        return;
    }
    snprintf(text, sizeof(text), "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
             locations[nth]);
    rig_say(fd, text);
}

static void follows(void)
{
    static char whole[64];
    static const char *list[] = { "/b?secret=2", "c", whole, "?x", NULL };

    snprintf(whole, sizeof(whole), "http://other.test:%u/d", port());
    locations = list;
    expect_get(at("http://me:pw@first.test:%u/a?secret=1"), "ok");
    CHECK_INT(lookups, 5);
    CHECK(strstr(heard.data, "GET /b?secret=2 ") && strstr(heard.data, "GET /c ") &&
          strstr(heard.data, "GET /d ") && strstr(heard.data, "GET /d?x "));
    CHECK(!strstr(strstr(heard.data, "other.test"), "Authorization")); /* it was for the first */
}
TEST(redirects_are_followed_and_looked_up_each_time) { run(follows, serve_redirects); }

static void judged(void)
{
    static const char *const inner[] = { "http://127.0.0.2/", "http://169.254.169.254/latest/",
                                         "http://[::1]/", "//10.0.0.1/", NULL };
    static const char *const odd[] = { "http://0x7f.1/", "file:///etc/passwd", "http://2130706433/",
                                       NULL };
    static const char *const addresses[] = { "127.0.0.1", "10.0.0.1", NULL };
    static const char *const again[] = { "/again", NULL };

    locations = inner;
    for (int i = 0; inner[i]; i++)
        expect_refused(at("http://a.test:%u/"), NULL, ERR_DENIED, "only the public internet");
    locations = odd;
    rig.accepted = 0;
    for (int i = 0; odd[i]; i++)
        expect_refused(at("http://a.test:%u/"), NULL, ERR_INVALID, "redirects to what cannot be");
    locations = again;
    answers = addresses;
    lookups = rig.accepted = 0;
    expect_refused(at("http://a.test:%u/"), NULL, ERR_DENIED, "a.test is private");
}
TEST(each_redirect_is_judged_again) { run(judged, serve_redirects); }

static void serve_loop(int fd, int nth)
{
    (void)nth;
    hear(fd);
    rig_say(fd, "HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n");
}

static void serve_nowhere(int fd, int nth)
{
    (void)nth;
    hear(fd);
    rig_say(fd, "HTTP/1.1 302 Found\r\n\r\n");
}

static void loops(void)
{
    expect_refused(at("http://a.test:%u/"), NULL, ERR_UPSTREAM, "fetch.redirects=5");
    CHECK_INT(rig.accepted, 6);
}
TEST(redirects_have_a_bound) { run(loops, serve_loop); }

static void nowhere(void)
{
    expect_refused(at("http://a.test:%u/"), NULL, ERR_UPSTREAM, "without saying where to");
}
TEST(a_redirect_says_where_to) { run(nowhere, serve_nowhere); }

/* ---- bounds ---- */

static void serve_bounds(int fd, int nth)
{
    static const char *const texts[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n9\r\n123456789\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n12345678901",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecret",
        "nonsense\r\n\r\n",
        "",
    };

    hear(fd);
    rig_say(fd, texts[nth]);
}

static void bounds(void)
{
    struct fetch_bounds ten = { .max_bytes = 10 };

    for (int i = 0; i < 3; i++)
        expect_refused(at("http://a.test:%u/secret"), &ten, ERR_TOO_LARGE, "fetch.max-bytes=10");
    expect_refused(at("http://a.test:%u/secret"), &ten, ERR_UPSTREAM, "the body ended early");
    expect_refused(at("http://a.test:%u/secret"), &ten, ERR_UPSTREAM, "it answered 404 Not Found");
    expect_refused(at("http://a.test:%u/secret"), &ten, ERR_UPSTREAM, "broken answer");
    expect_refused(at("http://a.test:%u/secret"), &ten, ERR_UPSTREAM, "before an answer");
}
TEST(an_answer_is_whole_and_within_its_bound_or_an_error) { run(bounds, serve_bounds); }

static void serve_headers(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    hear(fd);
    buf_puts(&b, "HTTP/1.1 200 OK\r\n");
    while (b.len < 300 << 10)
        buf_puts(&b, "X-Filler: 0123456789012345678901234567890123456789\r\n");
    co_write(fd, b.data, b.len, co_in(2000));
}

static void headers(void)
{
    expect_refused(at("http://a.test:%u/"), NULL, ERR_UPSTREAM, "http.header-");
}
TEST(a_head_has_a_bound) { run(headers, serve_headers); }

static void serve_drip(int fd, int nth)
{
    hear(fd);
    rig_say(fd,
            nth ? "HTTP/1.1 200 OK\r\n\r\n" : "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n");
    while (!co_write(fd, "x", 1, co_in(1000)) && !co_sleep(co_in(20)))
        ;
}

static void drips(void)
{
    struct fetch_bounds short_time = { .total_ms = 300 };

    expect_refused(at("http://a.test:%u/"), &short_time, ERR_TIMEOUT, "fetch.total-ms=300");
    expect_refused(at("http://a.test:%u/"), &short_time, ERR_TIMEOUT, "fetch.total-ms=300");
}
TEST(a_server_that_drips_is_left_in_time) { run(drips, serve_drip); }

static void slow_names(void)
{
    int64_t kept = fetch_limits.resolve_ms;

    fetch_limits.resolve_ms = 50;
    delay_ms = 600;
    for (int i = 0; i < 2; i++)
        expect_refused(at("http://slow.test:%u/"), NULL, ERR_TIMEOUT, "fetch.resolve-ms=50");
    CHECK_INT(rig.accepted, 0);
    fetch_limits.resolve_ms = kept;
}
TEST(a_slow_name_server_is_not_waited_for) { run(slow_names, serve_hello); }

struct many {
    int left, limited;
};

static void one_of_many(void *arg)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct many *m = arg;
    struct fetch_result r;
    struct err err = { 0 };

    if (fetch_get(fetch, str_of(at("http://a.test:%u/")), NULL, into_buf, &got, &r, &err))
        m->limited += err.code == ERR_LIMIT;
    m->left--;
}

static void at_once(void)
{
    struct many m = { 12, 0 };
    int64_t kept = fetch_limits.at_once;

    fetch_limits.at_once = 3;
    delay_ms = 100;
    for (int i = 0; i < 12; i++)
        CHECK_INT(co_go(one_of_many, &m, NULL), 0);
    while (m.left)
        co_sleep(co_in(5));
    CHECK_INT(m.limited, 9);
    CHECK_INT(rig.accepted, 3);
    fetch_limits.at_once = kept;
}
TEST(few_are_fetched_at_once) { run(at_once, serve_hello); }

static int full(void *arg, const void *p, size_t n, struct err *err)
{
    (void)arg, (void)p, (void)n;
    return err_set(err, ERR_NO_SPACE, "the sandbox is full");
}

static void sinks(void)
{
    struct fetch_result r;
    struct err err = { 0 };

    CHECK_INT(fetch_get(fetch, str_of(at("http://a.test:%u/")), NULL, full, NULL, &r, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_STR(err.msg, "the sandbox is full");
}
TEST(what_the_sink_says_is_what_the_caller_hears) { run(sinks, serve_hello); }
