/* test_fetch_put.c - files to URLs, whichever way the server takes or refuses them; and TLS. */
#include "fetch_rig.h"
#include "io/tls_make.h"

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
    n = MIN(n, (size_t)3); /* a source gives what it has */
    n = MIN(n, strlen(f->text) - f->pos);
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
