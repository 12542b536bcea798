/* test_fetch.c - files from and to URLs: whom they reach, whom not, and every bound. Names are
 * answered by a resolver of the test's own, and 127.0.0.1 alone is allowed: every other address of
 * the machine stands for what must not be reached. */
#include "io/fetch.h"

#include <netinet/in.h>
#include <stdatomic.h>

#include "io/fetch_impl.h"
#include "io/tls_make.h"
#include "rig.h"

static struct rig rig;
static struct fetch *fetch;
static struct buf heard; /* by the server: all heads and bodies */

/* ---- names ---- */

static const char *const *answers; /* one list of addresses after the other */
static atomic_int lookups;
static atomic_int delay_ms;

static int resolve(void *arg, const char *name, uint16_t port, struct addr *out, int max,
                   struct err *err)
{
    struct str list, item;
    int n = 0, nth = lookups++;
    char text[80];

    (void)arg, (void)max;
    if (delay_ms)
        usleep((useconds_t)delay_ms * 1000);
    if (!strcmp(name, "none.test"))
        return 0;
    for (list = str_of(answers ? answers[nth] : "127.0.0.1"); str_next(&list, ',', &item);) {
        snprintf(text, sizeof(text), memchr(item.p, ':', item.n) ? "[%.*s]:%u" : "%.*s:%u",
                 STR_ARG(item), port);
        if (addr_parse(str_of(text), &out[n++], err))
            return -1;
    }
    return n;
}

/* ---- the frame of a case ---- */

struct frame {
    void (*fn)(void);
    void (*script)(int fd, int nth);
    const char *ca;
    struct httpd *d;
};

static void frame(void *arg)
{
    const struct frame *f = arg;
    struct netrange_list allow = { .n = 0 };
    struct fetch_options o = { .ca_file = f->ca, .allow = &allow, .resolve = resolve };
    struct err err = { 0 };

    CHECK_INT(netrange_list_add(&allow, STR("127.0.0.1"), &err), 0);
    lookups = delay_ms = 0;
    answers = NULL;
    heard.len = 0;
    if (fetch_open(&o, &fetch, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    rig = (struct rig){ .script = f->script, .d = f->d };
    rig_start(&rig);
    f->fn();
    CHECK_INT(fetch->running, 0);
    fetch_closep(&fetch);
    co_cancel_all();
}

static void run(void (*fn)(void), void (*script)(int, int))
{
    struct frame f = { .fn = fn, .script = script };

    test_co(frame, &f);
    buf_free(&heard);
}

static unsigned port(void)
{
    return ntohs(((const struct sockaddr_in *)(const void *)&rig.addr.sa)->sin_port);
}

static const char *at(const char *format) /* "http://%u..": with the server's port */
{
    static char text[512];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), format, port());
#pragma GCC diagnostic pop
    return text;
}

static int into_buf(void *arg, const void *p, size_t n, struct err *err)
{
    (void)err;
    buf_add(arg, p, n);
    return 0;
}

static void expect_get(const char *url, const char *want)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct fetch_result r;
    struct err err = { 0 };

    if (fetch_get(fetch, str_of(url), NULL, into_buf, &got, &r, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_STR(buf_cstr(&got), want);
    CHECK_INT(r.bytes, (int64_t)strlen(want));
}

static void expect_refused(const char *url, const struct fetch_bounds *b, enum err_code code,
                           const char *words)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct fetch_result r;
    struct err err = { 0 };

    CHECK_INT(fetch_get(fetch, str_of(url), b, into_buf, &got, &r, &err), -1);
    if (err.code != code || !strstr(err.msg, words))
        test_fail(__FILE__, __LINE__, "%s: code %d \"%s\", expected %d \"%s\"", url, err.code,
                  err.msg, code, words);
    CHECK(!strstr(err.msg, "secret"));
}

/* ---- getting ---- */

static void hear(int fd)
{
    AUTO(buf_free) struct buf b = { 0 };

    rig_hear(fd, &b, "\r\n\r\n");
    buf_add_str(&heard, buf_str(&b));
}

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

/* ---- putting ---- */

struct file {
    const char *text;
    size_t pos;
    int begun;
};

static int file_begin(void *arg, struct err *err)
{
    struct file *f = arg;

    (void)err;
    f->pos = 0;
    f->begun++;
    return 0;
}

static ssize_t file_read(void *arg, void *buf, size_t n, struct err *err)
{
    struct file *f = arg;

    (void)err;
    n = MIN(MIN(n, (size_t)3), strlen(f->text) - f->pos);
    memcpy(buf, f->text + f->pos, n);
    f->pos += n;
    return (ssize_t)n;
}

static int put(const char *url, struct file *f, int64_t length, struct fetch_result *r,
               struct err *err)
{
    struct fetch_source s = { .length = length,
                              .begin = file_begin,
                              .read = file_read,
                              .arg = f,
                              .headers = STR("Content-Type: text/plain\r\n") };

    *err = (struct err){ 0 };
    return fetch_put(fetch, str_of(url), NULL, &s, r, err);
}

/* What it answers to a head, and then to a body where one comes. */
static const char *const (*puts_rows)[2];

static void serve_puts(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (!rig_hear(fd, &b, "\r\n\r\n"))
        return;
    rig_say(fd, puts_rows[nth][0]);
    if (puts_rows[nth][1] && rig_hear(fd, &b, "end of file"))
        rig_say(fd, puts_rows[nth][1]);
    buf_add_str(&heard, buf_str(&b));
    buf_puts(&heard, "\n----\n");
}

#define FILE_TEXT "some text to the end of file"
#define DONE      "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
#define ASK       "HTTP/1.1 100 Continue\r\n\r\n"

static void puts_file(void)
{
    static const char *const rows[][2] = { { ASK, DONE }, { "", DONE } };
    struct file f = { FILE_TEXT };
    struct fetch_result r;
    struct err err;

    puts_rows = rows;
    for (int i = 0; i < 2; i++) {
        if (put(at("http://up.test:%u/x?secret"), &f, (int64_t)strlen(f.text), &r, &err))
            test_fail(__FILE__, __LINE__, "%s", err.msg);
        CHECK_INT(r.status, 201);
        CHECK_INT(r.bytes, (int64_t)strlen(f.text));
    }
    CHECK(strstr(heard.data, "PUT /x?secret HTTP/1.1\r\n"));
    CHECK(strstr(heard.data, "Content-Length: 28\r\n") && strstr(heard.data, FILE_TEXT));
    CHECK(strstr(heard.data, "Content-Type: text/plain\r\n"));
    CHECK(!strstr(heard.data, "chunked"));
}
TEST(a_file_is_sent_whether_the_server_asks_for_it_or_not) { run(puts_file, serve_puts); }

static void puts_on(void)
{
    static const char *const rows[][2] = {
        { "HTTP/1.1 307 Temporary Redirect\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n",
          NULL },
        { ASK, "HTTP/1.1 308 Permanent Redirect\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n" },
        { ASK, DONE },
    };
    struct file f = { FILE_TEXT };
    struct fetch_result r;
    struct err err;

    puts_rows = rows;
    CHECK_INT(put(at("http://up.test:%u/x"), &f, (int64_t)strlen(f.text), &r, &err), 0);
    CHECK_INT(r.redirects, 2);
    CHECK_INT(f.begun, 2); /* the first server never saw it */
    CHECK_INT(lookups, 3);
    CHECK(!strstr((strstr(heard.data, "----")[0] = 0, heard.data), FILE_TEXT));
}
TEST(a_file_follows_307_and_308_and_goes_to_who_asks_for_it) { run(puts_on, serve_puts); }

static void puts_badly(void)
{
    static const char *const rows[][2] = {
        { "HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n", NULL },
        { "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.2/\r\n\r\n", NULL },
        { "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", NULL },
        { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", NULL },
        { ASK, "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n" },
        { ASK, DONE },
    };
    static const struct {
        enum err_code code;
        const char *words;
    } wants[] = {
        { ERR_UPSTREAM, "answered 302" }, { ERR_DENIED, "this machine" },
        { ERR_UPSTREAM, "answered 403" }, { ERR_UPSTREAM, "before it had the file" },
        { ERR_UPSTREAM, "answered 500" }, { ERR_CONFLICT, "shorter" },
    };
    struct file f = { FILE_TEXT };
    struct fetch_result r;
    struct err err;

    puts_rows = rows;
    for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
        int64_t length = (int64_t)strlen(f.text) + (i == 5);

        f.pos = 0;
        CHECK_INT(put(at("http://up.test:%u/secret"), &f, length, &r, &err), -1);
        if (err.code != wants[i].code || !strstr(err.msg, wants[i].words))
            test_fail(__FILE__, __LINE__, "%zu: %d %s", i, err.code, err.msg);
        CHECK(!strstr(err.msg, "secret"));
    }
}
TEST(a_file_that_was_not_taken_is_an_error) { run(puts_badly, serve_puts); }

static void puts_unasked(void)
{
    static const char *const rows[][2] = {
        { "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", NULL },
        { "", DONE },
    };
    struct file f = { FILE_TEXT };
    struct fetch_result r;
    struct err err;

    puts_rows = rows;
    CHECK_INT(put(at("http://up.test:%u/x"), &f, (int64_t)strlen(f.text), &r, &err), 0);
    CHECK_INT(rig.accepted, 2);
    CHECK(!strstr(strstr(heard.data, "----"), "Expect:"));
}
TEST(a_server_that_cannot_ask_is_not_made_to) { run(puts_unasked, serve_puts); }

static void puts_nothing(void)
{
    static const char *const rows[][2] = { { DONE, NULL } };
    struct file f = { "" };
    struct fetch_result r;
    struct err err;

    puts_rows = rows;
    CHECK_INT(put(at("http://up.test:%u/x"), &f, 0, &r, &err), 0);
    CHECK(strstr(heard.data, "Content-Length: 0\r\n"));
    CHECK_INT(put(at("http://up.test:%u/x"), &f, INT64_MAX, &r, &err), -1);
    CHECK_INT(err.code, ERR_TOO_LARGE);
}
TEST(an_empty_file_is_sent_and_one_too_large_is_not) { run(puts_nothing, serve_puts); }

/* ---- TLS ---- */

static int hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("over tls"));
}

static int down(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    call_header(c, "Location", at("http://127.0.0.1:%u/"));
    return call_reply(c, 302, NULL, (struct str){ 0 });
}

static const struct route routes[] = {
    { "GET", "/hello", ROUTE_RAW, .fn = hello },
    { "GET", "/down", ROUTE_RAW, .fn = down },
    {},
};
static const struct route *const tables[] = { routes, NULL };

static void over_tls(void)
{
    expect_get(at("https://x.box.test:%u/hello"), "over tls");
    expect_refused(at("https://other.test:%u/hello"), NULL, ERR_UPSTREAM, "certificate is refused");
    expect_refused(at("https://x.box.test:%u/down"), NULL, ERR_DENIED, "from https to http");
    expect_refused(at("http://x.box.test:%u/hello"), NULL, ERR_UPSTREAM, "answered 400");
}

static void untrusted(void)
{
    expect_refused(at("https://x.box.test:%u/hello"), NULL, ERR_UPSTREAM, "certificate is refused");
}

TEST(certificates_are_checked_for_trust_and_name)
{
    char dir[] = "/tmp/test-fetch-XXXXXX";
    struct tls_order o = { .dir = dir, .domain = "box.test" };
    struct tls_made made = { 0 };
    struct tls_context *t = NULL;
    struct httpd server = { .tables = tables };
    struct frame f = { .fn = over_tls, .d = &server };
    struct err err = { 0 };
    char rest[128];

    CHECK(mkdtemp(dir));
    if (tls_make(&o, &made, &err) < 0 || tls_server(made.chain, made.key, &t, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    server.tls = tls_guard(t);
    f.ca = made.ca;
    test_co(frame, &f);
    f = (struct frame){ .fn = untrusted, .d = &server };
    test_co(frame, &f);
    tls_closep(&t);
    tls_made_free(&made);
    buf_free(&heard);
    snprintf(rest, sizeof(rest), "rm -r %s", dir);
    CHECK_INT(system(rest), 0);
}
