/* test_httpd.c - the server over a socket pair: routes, answers, errors, bounds. */
#include "io/httpd.h"

#include <errno.h>

#include "base/mem.h"
#include "io/gzip.h"
#include "io/sock.h"
#include "net.h"

/* ---- what is served ---- */

struct item {
    char *name;
    int64_t size;
};

static const struct field item_fields[] = {
    FIELD(struct item, name, F_STR, .flags = F_REQUIRED),
    FIELD(struct item, size, F_INT, .min = 1, .max = 100, .def = 7),
    {},
};

static int hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("hello"));
}

static int echo_item(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    (void)err;
    field_encode(item_fields, body, &json);
    call_header(c, "X-Extra", "1");
    return call_reply_json(c, 201, &json);
}

static int params(struct call *c, void *body, struct err *err)
{
    struct str q = call_query(c, "q", err);

    (void)body;
    if (err->code)
        return -1;
    return call_reply(c, 200, "text/plain",
                      str_of(arena_printf(&c->arena, "%.*s|%.*s|%s%.*s", STR_ARG(c->param[0]),
                                          STR_ARG(c->param[1]), q.p ? "=" : "-", STR_ARG(q))));
}

static int echo_raw(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf all = { 0 };

    (void)body;
    if (call_read_all(c, &all, err))
        return -1;
    return call_reply(c, 200, "application/octet-stream", buf_str(&all));
}

static int ignores_body(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 204, NULL, (struct str){ 0 });
}

static int stream(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    if (call_begin(c, 200, "text/plain", -1) || call_send(c, "one", 3) || call_send(c, NULL, 0) ||
        call_send(c, "two", 3))
        return -1;
    return call_end(c);
}

static int flooding;

/* Sends without an end; the last segment says whether it is patient. */
static int flood(struct call *c, void *body, struct err *err)
{
    static const char much[32 << 10];
    int r;

    (void)body;
    flooding++;
    r = call_begin(c, 200, "text/plain", -1);
    if (str_is(c->param[0], "patient"))
        call_patient(c);
    while (!r)
        r = call_send(c, much, sizeof(much));
    flooding--;
    return err_set(err, ERR_GONE, "the client left");
}

static int breaks_midway(struct call *c, void *body, struct err *err)
{
    (void)body;
    if (call_begin(c, 200, "text/plain", -1) || call_send(c, "one", 3))
        return -1;
    return err_set(err, ERR_INTERNAL, "too late to say");
}

static int with_length(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_begin(c, 200, "text/plain", 6) || call_send(c, "sixsix", 6) || call_end(c) ? -1 : 0;
}

static int fails(struct call *c, void *body, struct err *err)
{
    uint64_t code = ERR_INTERNAL;

    (void)body;
    str_u64(c->param[0], &code);
    return err_set(err, (enum err_code)code, "it \"broke\"");
}

static int shows_id(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", str_of(call_id(c)));
}

static const struct route first_table[] = {
    { "GET", "/", ROUTE_RAW, 0, NULL, 0, hello, "hello", "Says hello" },
    { "POST", "/items", ROUTE_JSON, 0, item_fields, sizeof(struct item), echo_item, "item",
      "Echo" },
    { "POST", "/small", ROUTE_JSON, 0, item_fields, sizeof(struct item), echo_item, "small", "Echo",
      .body_max = 20 },
    { "GET", "/p/{a}/x/{b}", ROUTE_RAW, 0, NULL, 0, params, "params", "Shows parameters" },
    { "GET", "/p/fixed", ROUTE_RAW, 0, NULL, 0, hello, "fixed", "Says hello" },
    {},
};
static const struct route second_table[] = {
    { "POST", "/raw", ROUTE_RAW, 0, NULL, 0, echo_raw, "raw", "Echo" },
    { "POST", "/ignore", ROUTE_RAW, 0, NULL, 0, ignores_body, "ignore", "Ignores its body" },
    { "GET", "/stream", ROUTE_RAW, 0, NULL, 0, stream, "stream", "Streams" },
    { "GET", "/flood/{how}", ROUTE_RAW, 0, NULL, 0, flood, "flood", "Floods" },
    { "GET", "/breaks", ROUTE_RAW, 0, NULL, 0, breaks_midway, "breaks", "Breaks" },
    { "GET", "/length", ROUTE_RAW, 0, NULL, 0, with_length, "length", "Streams a known length" },
    { "GET", "/fails/{code}", ROUTE_JSON, 0, NULL, 0, fails, "fails", "Fails" },
    { "POST", "/unary/{code}", ROUTE_UNARY, 0, NULL, 0, fails, "unary", "Fails as Connect does" },
    { "POST", "/unary-item", ROUTE_UNARY, 0, item_fields, sizeof(struct item), echo_item, "u",
      "Echo" },
    { "GET", "/id", ROUTE_RAW, 0, NULL, 0, shows_id, "id", "Shows its id" },
    {},
};
static const struct route *const tables[] = { first_table, second_table, NULL };
static struct httpd server;

/* ---- talking to it ---- */

static struct buf reply;

struct talk {
    struct str request;
    bool keep_open; /* do not end our side after the request */
};

static void talking(void *arg)
{
    struct talk *t = arg;
    int fd[2];

    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], t->request);
    if (!t->keep_open)
        CHECK_INT(shutdown(fd[1], SHUT_WR), 0);
    net_get_all(fd[1], &reply);
    co_close(fd[1]);
}

/* Everything the server says to these bytes, up to the end of the connection; Date lines taken
 * out, since they differ. */
static const char *talk(struct str request, bool keep_open)
{
    struct talk t = { request, keep_open };
    char *date;

    server.tables = tables;
    reply.len = 0;
    test_co(talking, &t);
    buf_putc(&reply, 0);
    reply.len--;
    while ((date = strstr(reply.data, "Date: "))) {
        size_t n = strcspn(date, "\n") + 1;

        memmove(date, date + n, strlen(date + n) + 1);
    }
    CHECK_INT(server.conns, 0);
    return reply.data;
}

#define SAYS(request, want)   CHECK_STR(talk(STR(request), false), want)
#define CLOSES(request, want) CHECK_STR(talk(STR(request), true), want)
#define H                     " HTTP/1.1\r\nHost: a\r\n"

TEST(a_route_answers)
{
    int64_t before = server.requests;

    SAYS("GET /" H "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello");
    CHECK_INT(server.requests, before + 1);
    CHECK(strstr(talk(STR("GET /?x=/items" H "\r\n"), false), "hello") != NULL);
}

TEST(a_body_is_parsed_bounded_and_defaulted_before_the_handler)
{
    SAYS(
        "POST /items" H "Content-Length: 14\r\n\r\n{\"name\":\"abc\"}",
        "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 23\r\nX-Extra: 1\r\n\r\n"
        "{\"name\":\"abc\",\"size\":7}");
}

TEST(path_parameters_are_given_in_order)
{
    CHECK(
        strstr(talk(STR("GET /p/one/x/two?q=a%20b+c" H "\r\n"), false), "\r\n\r\none|two|=a b c"));
    CHECK(strstr(talk(STR("GET /p/%41%20/x/b" H "\r\n"), false), "\r\n\r\nA |b|-"));
    CHECK(strstr(talk(STR("GET /p/a%2Fb/x/c" H "\r\n"), false), "\r\n\r\na/b|c|-"));
    CHECK(strstr(talk(STR("GET /p/a/x/b?q" H "\r\n"), false), "\r\n\r\na|b|="));
    CHECK(strstr(talk(STR("GET /p/a/x/b?other=1&q=2&q=3" H "\r\n"), false), "\r\n\r\na|b|=2"));
    CHECK(strstr(talk(STR("GET /p/fixed" H "\r\n"), false), "\r\n\r\nhello"));
}

TEST(a_bad_escape_is_refused)
{
    CHECK(strstr(talk(STR("GET /p/%zz/x/b" H "\r\n"), false),
                 "{\"code\":400,\"message\":\"the path has a bad % escape\"}"));
    CHECK(strstr(talk(STR("GET /p/%00/x/b" H "\r\n"), false), "HTTP/1.1 400 "));
    CHECK(strstr(talk(STR("GET /p/a/x/b?q=%4" H "\r\n"), false),
                 "{\"code\":400,\"message\":\"query parameter 'q' has a bad % escape\"}"));
    CHECK(strstr(talk(STR("GET foo" H "\r\n"), false), "the request target must begin with '/'"));
}

TEST(what_is_not_there_is_404)
{
    SAYS("GET /none" H "\r\n",
         "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
         "{\"code\":404,\"message\":\"there is nothing at /none\"}");
    CHECK(strstr(talk(STR("GET /p/a/x/" H "\r\n"), false), "404 Not Found"));
    CHECK(strstr(talk(STR("GET /p/a/x/b/c" H "\r\n"), false), "404 Not Found"));
    CHECK(strstr(talk(STR("GET /p//x/b" H "\r\n"), false), "404 Not Found"));
    CHECK(strstr(talk(STR("GET /items/" H "\r\n"), false), "404 Not Found"));
}

TEST(a_path_with_another_method_is_405)
{
    CHECK(
        strstr(talk(STR("DELETE /items" H "\r\n"), false), "HTTP/1.1 405 Method Not Allowed\r\n"));
    CHECK(strstr(reply.data, "\r\nAllow: POST\r\n"));
    CHECK(strstr(talk(STR("get /" H "\r\n"), false), "HTTP/1.1 405 "));
    CHECK(strstr(talk(STR("OPTIONS /items" H "\r\n"), false), "HTTP/1.1 405 "));
}

TEST(head_is_get_without_the_body)
{
    SAYS("HEAD /" H "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n");
    SAYS("HEAD /stream" H "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK(strstr(talk(STR("HEAD /none" H "\r\n"), false), "404 Not Found"));
    CHECK(!strstr(reply.data, "message"));
    CHECK(strstr(talk(STR("HEAD /items" H "\r\n"), false), "405 "));
}

TEST(any_origin_may_call_where_cors_is_on)
{
    server.cors = true;
    SAYS("OPTIONS /items" H "Access-Control-Request-Headers: x-a, x-b\r\n\r\n",
         "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n"
         "Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
         "Access-Control-Allow-Headers: x-a, x-b\r\nAccess-Control-Max-Age: 7200\r\n\r\n");
    CHECK(strstr(talk(STR("GET /" H "\r\n"), false), "Access-Control-Allow-Origin: *\r\n"));
    CHECK(strstr(talk(STR("GET /none" H "\r\n"), false), "Access-Control-Allow-Origin: *\r\n"));
    CHECK(strstr(talk(STR("GET" H "\r\n"), false), "Access-Control-Allow-Origin: *\r\n"));
    server.cors = false;
    CHECK(!strstr(talk(STR("GET /" H "\r\n"), false), "Access-Control"));
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

TEST(a_connection_serves_many_requests)
{
    talk(STR("GET /" H "\r\nGET /none" H "\r\nPOST /ignore" H
             "Content-Length: 3\r\n\r\nabcGET /id" H
             "X-Request-ID: last\r\nConnection: close\r\n\r\nGET /" H "\r\n"),
         true);
    CHECK_INT(count(reply.data, "HTTP/1.1 "), 4);
    CHECK_INT(count(reply.data, "HTTP/1.1 200 OK"), 2);
    CHECK_INT(count(reply.data, "HTTP/1.1 404 "), 1);
    CHECK_INT(count(reply.data, "HTTP/1.1 204 "), 1);
    CHECK_INT(count(reply.data, "Connection: close\r\n"), 1);
    CHECK(strstr(reply.data, "\r\n\r\nlast") != NULL);
}

TEST(a_thousand_pipelined_requests_are_answered_in_order)
{
    struct buf b = { 0 };
    const char *at;

    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "GET /p/%d/x/y" H "\r\n", i);
    talk(buf_str(&b), false);
    at = reply.data;
    for (int i = 0; i < 1000; i++) {
        char want[32];

        snprintf(want, sizeof(want), "\r\n\r\n%d|y|-", i);
        at = strstr(at, want);
        if (!at)
            test_fail(__FILE__, __LINE__, "answer %d is missing", i);
    }
    buf_free(&b);
}

TEST(http_1_0_is_closed_unless_asked)
{
    CLOSES(
        "GET / HTTP/1.0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    SAYS(
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello");
    CLOSES("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nonetwo");
}

TEST(an_answer_of_unknown_length_is_chunked)
{
    SAYS("GET /stream" H "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
         "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    SAYS("GET /length" H "\r\n",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nsixsix");
}

/* Asks for a flood and reads nothing; is it still sent long after http.write-ms? */
static void ask_for_flood(const char *request, bool waits)
{
    int fd[2];

    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], str_of(request));
    for (int i = 0; !flooding && i < 1000; i++)
        co_sleep(co_in(5));
    CHECK_INT(flooding, 1);
    for (int i = 0; flooding && i < (waits ? 10 : 1000); i++)
        co_sleep(co_in(http_limits.write_ms / 2));
    CHECK_INT(flooding, waits);
    co_close(fd[1]);
    for (int i = 0; flooding && i < 1000; i++)
        co_sleep(co_in(5));
    CHECK_INT(flooding, 0);
}

static void unread(void *arg)
{
    int64_t limit = http_limits.write_ms;

    (void)arg;
    server = (struct httpd){ .tables = tables };
    http_limits.write_ms = 100;
    ask_for_flood("GET /flood/plain" H "\r\n", false);
    ask_for_flood("GET /flood/patient" H "\r\n", true);
    http_limits.write_ms = limit;
}

TEST(only_who_asks_for_it_waits_for_a_client_that_does_not_read) { test_co(unread, NULL); }

TEST(an_answer_that_fails_midway_is_cut_short)
{
    CLOSES(
        "GET /breaks" H "\r\nGET /" H "\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
}

TEST(an_error_has_its_status_and_shape_for_each_kind_of_route)
{
    for (int code = 1; code < ERR_CODES; code++) {
        char request[128], want[128];

        snprintf(request, sizeof(request), "GET /fails/%d" H "\r\n", code);
        talk(str_of(request), false);
        if (code == ERR_GONE) { /* nobody is there to be told */
            CHECK_STR(reply.data, "");
            continue;
        }
        snprintf(want, sizeof(want), "\r\n\r\n{\"code\":%d,\"message\":\"it \\\"broke\\\"\"}",
                 err_status((enum err_code)code));
        if (!strstr(reply.data, want))
            test_fail(__FILE__, __LINE__, "%d: %s", code, reply.data);
        snprintf(request, sizeof(request), "POST /unary/%d" H "\r\n", code);
        talk(str_of(request), false);
        snprintf(want, sizeof(want), "HTTP/1.1 %d ", err_status((enum err_code)code));
        CHECK(str_starts(str_of(reply.data), want));
        snprintf(want, sizeof(want), "\r\n\r\n{\"code\":\"%s\",\"message\":\"it \\\"broke\\\"\"}",
                 err_name((enum err_code)code));
        if (!strstr(reply.data, want))
            test_fail(__FILE__, __LINE__, "%d: %s", code, reply.data);
    }
}

TEST(a_bad_body_is_400_with_the_field_and_the_connection_goes_on)
{
    talk(STR("POST /items" H "Content-Length: 2\r\n\r\n{}POST /items" H
             "Content-Length: 7\r\n\r\n{\"x\":1}POST /unary-item" H
             "Content-Length: 1\r\n\r\n{GET /" H "\r\n"),
         false);
    CHECK(strstr(reply.data, "{\"code\":400,\"message\":\"field 'name' is missing\"}"));
    CHECK(strstr(reply.data, "{\"code\":\"invalid_argument\",\"message\":\"not valid JSON: "));
    CHECK(strstr(reply.data, "\r\n\r\nhello"));
    CHECK(strstr(talk(STR("POST /items" H "\r\n"), false),
                 "field 'name' is missing")); /* no body: {} */
    CHECK(strstr(
        talk(STR("POST /unary-item" H "Content-Length: 26\r\n\r\n{\"name\":\"a\",\"unknown\":[1]}"),
             false),
        "201 Created"));
}

TEST(a_chunked_body_is_read_like_any_other)
{
    CHECK(strstr(
        talk(
            STR("POST /items" H
                "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"nam\r\n7\r\ne\":\"z\"}\r\n0\r\n\r\nGET /" H
                "\r\n"),
            false),
        "{\"name\":\"z\",\"size\":7}"));
    CHECK(strstr(reply.data, "\r\n\r\nhello"));
    CHECK(strstr(talk(STR("POST /raw" H "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), true),
                 "{\"code\":400,\"message\":\"chunk size is not a hexadecimal number\"}"));
    CHECK(strstr(reply.data, "Connection: close\r\n"));
}

static int pack_into(void *arg, const void *p, size_t n)
{
    buf_add(arg, p, n);
    return 0;
}

static void post_gzip(struct buf *request, const char *path, const char *text, size_t zeros,
                      const char *behind)
{
    AUTO(buf_free) struct buf packed = { 0 };
    AUTO(freep) char *many = xcalloc(1, zeros + 1);
    struct gzip *g = gzip_create();

    gzip_write(g, str_of(text), false, pack_into, &packed);
    gzip_write(g, (struct str){ many, zeros }, true, pack_into, &packed);
    gzip_destroy(g);
    buf_puts(&packed, behind);
    request->len = 0;
    buf_printf(request, "POST %s" H "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n", path,
               packed.len);
    buf_add_str(request, buf_str(&packed));
}

TEST(a_gzip_body_is_unpacked)
{
    struct buf r = { 0 };

    post_gzip(&r, "/items", "{\"name\":\"zip\"}", 0, "");
    buf_puts(&r, "GET /" H "\r\n");
    CHECK(strstr(talk(buf_str(&r), false), "{\"name\":\"zip\",\"size\":7}"));
    CHECK(strstr(reply.data, "\r\n\r\nhello"));
    post_gzip(&r, "/raw", "hello hello", 0, "");
    CHECK(strstr(talk(buf_str(&r), false), "\r\n\r\nhello hello"));
    buf_free(&r);
}

TEST(a_bad_gzip_body_is_400)
{
    struct buf r = { 0 };

    post_gzip(&r, "/raw", "hello", 0, "x");
    CHECK(strstr(talk(buf_str(&r), false),
                 "{\"code\":400,\"message\":\"bytes behind the end of the gzip body\"}"));
    CHECK(strstr(talk(STR("POST /items" H
                          "Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n{\"name\":\"abc\"}"),
                      false),
                 "{\"code\":400,\"message\":\"the body is not valid gzip\"}"));
    CHECK(
        strstr(talk(STR("POST /raw" H "Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx"), false),
               "{\"code\":400,\"message\":\"Content-Encoding 'br' is not gzip or identity\"}"));
    CHECK(strstr(
        talk(STR("POST /raw" H "Content-Encoding: identity\r\nContent-Length: 1\r\n\r\nx"), false),
        "\r\n\r\nx"));
    buf_free(&r);
}

TEST(a_body_beyond_its_bound_is_413)
{
    struct http_limits saved = http_limits;
    struct buf r = { 0 };

    http_limits.body_bytes = 1000;
    CHECK(strstr(talk(STR("POST /raw" H "Content-Length: 1001\r\n\r\n"), false),
                 "HTTP/1.1 413 Content Too Large\r\n"));
    CHECK(strstr(reply.data, "body of 1001 bytes is larger than http.body-bytes=1000"));
    CHECK(strstr(talk(STR("POST /raw" H "Content-Length: 999999999\r\n\r\n"), true),
                 "Connection: close\r\n"));
    buf_puts(&r, "POST /raw" H "Transfer-Encoding: chunked\r\n\r\n3e9\r\n");
    for (int i = 0; i < 1001; i++)
        buf_putc(&r, 'x');
    buf_puts(&r, "\r\n0\r\n\r\n");
    CHECK(strstr(talk(buf_str(&r), false), "body larger than http.body-bytes=1000"));
    post_gzip(&r, "/raw", "", 1001, "");
    CHECK(strstr(talk(buf_str(&r), false), "HTTP/1.1 413 ")); /* small as sent, large as meant */
    http_limits = saved;
    buf_free(&r);
}

TEST(a_route_may_have_a_bound_of_its_own)
{
    CHECK(strstr(talk(STR("POST /small" H "Content-Length: 14\r\n\r\n{\"name\":\"abc\"}"), false),
                 "201 Created"));
    CHECK(strstr(
        talk(STR("POST /small" H "Content-Length: 21\r\n\r\n{\"name\":\"abcdefghijk\"}"), false),
        "HTTP/1.1 413 "));
}

TEST(header_limits_are_431)
{
    struct http_limits saved = http_limits;
    struct buf r = { 0 };

    http_limits.header_bytes = 1024;
    http_limits.header_count = 4;
    CHECK(strstr(talk(STR("GET /" H "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n\r\n"), true),
                 "{\"code\":431,\"message\":\"more than http.header-count=4 header fields\"}"));
    CHECK(strstr(reply.data, "Connection: close\r\n"));
    buf_puts(&r, "GET /");
    for (int i = 0; i < 2000; i++)
        buf_putc(&r, 'x');
    CHECK(strstr(talk(buf_str(&r), true), "HTTP/1.1 431 Request Header Fields Too Large\r\n"));
    CHECK(strstr(reply.data, "message head larger than http.header-bytes=1024"));
    http_limits = saved;
    buf_free(&r);
}

TEST(a_bad_head_is_400_and_the_end)
{
    CLOSES("GET / HTTP/1.1\r\n\r\n",
           "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 39\r\n"
           "Connection: close\r\n\r\n{\"code\":400,\"message\":\"no Host header\"}");
    CHECK_INT(count(talk(STR("BAD\r\n\r\nGET /" H "\r\n"), true), "HTTP/1.1"), 1);
}

TEST(slow_clients_are_408)
{
    struct http_limits saved = http_limits;

    http_limits.header_ms = http_limits.body_ms = 30;
    http_limits.idle_ms = 50;
    CHECK(strstr(
        talk(STR("GET / HTTP/1.1\r\nHos"), true),
        "{\"code\":408,\"message\":\"message head not complete within http.header-ms=30\"}"));
    CHECK(strstr(talk(STR("GET /" H "\r\nGET /"), true), "HTTP/1.1 408 ")); /* the second is slow */
    CHECK(strstr(talk(STR("POST /raw" H "Content-Length: 5\r\n\r\nhe"), true),
                 "{\"code\":408,\"message\":\"the body paused longer than http.body-ms=30\"}"));
    CHECK(strstr(reply.data, "Connection: close\r\n"));
    CHECK_STR(talk(STR(""), true), ""); /* idle: closed without a word */
    http_limits = saved;
}

TEST(a_body_nobody_reads_is_passed_over)
{
    struct buf r = { 0 };

    buf_puts(&r, "POST /ignore" H "Content-Length: 100000\r\n\r\n");
    for (int i = 0; i < 100000; i++)
        buf_putc(&r, 'x');
    buf_puts(&r, "GET /" H "\r\n");
    CHECK(strstr(talk(buf_str(&r), false), "\r\n\r\nhello"));
    buf_free(&r);
}

static void answer_before_body(void *arg)
{
    struct buf got = { 0 };
    int fd[2];

    (void)arg;
    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], STR("POST /none" H "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"));
    net_get_until(fd[1], &got, "there is nothing at /none"); /* though the body has not ended */
    net_put(fd[1], STR("lo\r\n0\r\n\r\nGET /" H "Connection: close\r\n\r\n"));
    net_get_all(fd[1], &got);
    CHECK(strstr(got.data, "\r\n\r\nhello"));
    co_close(fd[1]);
    buf_free(&got);
}

TEST(an_error_is_told_before_the_body_has_ended) { test_co(answer_before_body, NULL); }

static void expect_refused(void *arg)
{
    struct buf got = { 0 };
    int fd[2];

    (void)arg;
    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], STR("POST /none" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    net_get_until(fd[1], &got, "\"}");
    CHECK(str_starts(buf_str(&got), "HTTP/1.1 404 "));
    co_close(fd[1]);
    got.len = 0;
    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], STR("POST /raw" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    net_get_until(fd[1], &got, "HTTP/1.1 100 Continue\r\n\r\n");
    net_put(fd[1], STR("hello"));
    net_get_until(fd[1], &got, "\r\n\r\nhello");
    co_close(fd[1]);
    buf_free(&got);
}

TEST(continue_is_said_only_by_who_wants_the_body) { test_co(expect_refused, NULL); }

TEST(a_request_keeps_its_id_or_gets_one)
{
    char first[21];

    CHECK(strstr(talk(STR("GET /id" H "X-Request-ID: given-1\r\n\r\n"), false), "\r\n\r\ngiven-1"));
    CHECK_INT(strlen(strstr(talk(STR("GET /id" H "\r\n"), false), "\r\n\r\n") + 4), 20);
    memcpy(first, strstr(reply.data, "\r\n\r\n") + 4, 21);
    CHECK(strcmp(strstr(talk(STR("GET /id" H "\r\n"), false), "\r\n\r\n") + 4, first) != 0);
    CHECK(!strstr(talk(STR("GET /id" H "X-Request-ID: has \"quotes\"\r\n\r\n"), false), "quotes"));
    CHECK(!strstr(
        talk(STR("GET /id" H "X-Request-ID: 0123456789012345678901234567890123456789\r\n\r\n"),
             false),
        "0123456789"));
}

static int no_entry(struct call *c, struct err *err)
{
    return http_get(&c->head, "x-key").p || c->route->flags & ROUTE_OPEN
               ? 0
               : err_set(err, ERR_UNAUTHENTICATED, "who are you?");
}

TEST(the_hook_for_credentials_comes_before_the_handler)
{
    server.before = no_entry;
    CHECK(
        strstr(talk(STR("GET /" H "\r\n"), false), "{\"code\":401,\"message\":\"who are you?\"}"));
    CHECK(strstr(talk(STR("GET /" H "X-Key: 1\r\n\r\n"), false), "\r\n\r\nhello"));
    CHECK(strstr(talk(STR("GET /none" H "\r\n"), false), "404 Not Found"));
    server.before = NULL;
}

static void listen_and_serve(void *arg) { httpd_listen(&server, *(int *)arg); }

static void over_tcp(void *arg)
{
    struct buf got = { 0 };
    struct addr a;
    struct err err;
    struct co_ref ref;
    socklen_t n = sizeof(a.sa);
    int listener, fd[20];

    (void)arg;
    CHECK_INT(addr_parse(STR("127.0.0.1:0"), &a, &err), 0);
    listener = sock_listen(&a, &err);
    CHECK_INT(getsockname(listener, (struct sockaddr *)&a.sa, &n), 0);
    CHECK_INT(co_go(listen_and_serve, &listener, &ref), 0);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = sock_open(&a, &err);
        CHECK_INT(co_connect(fd[i], &a.sa, a.len, co_in(NET_MS)), 0);
        net_put(fd[i], STR("GET /" H "\r\n"));
    }
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        got.len = 0;
        buf_putc(&got, ' ');
        net_get_until(fd[i], &got, "\r\n\r\nhello");
    }
    CHECK_INT(server.conns, ARRAY_LEN(fd));
    for (size_t i = 0; i < ARRAY_LEN(fd); i++)
        co_close(fd[i]);
    co_cancel(ref);
    for (int i = 0; server.conns && i < 1000; i++)
        CHECK_INT(co_sleep(co_in(5)), 0);
    CHECK_INT(server.conns, 0);
    buf_free(&got);
}

TEST(a_listener_serves_many_connections_until_cancelled) { test_co(over_tcp, NULL); }

static bool asleep;

static int sleepy(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    asleep = true;
    co_sleep(NEVER);
    asleep = false;
    return call_reply(c, 200, "text/plain", STR("awake"));
}
static const struct route sleepy_routes[] = { { "GET", "/", ROUTE_RAW, .fn = sleepy }, {} };
static const struct route *const sleepy_tables[] = { sleepy_routes, NULL };
static struct httpd closed = { .tables = sleepy_tables };

static void serve_closed(void *arg) { httpd_listen(&closed, *(int *)arg); }

static void cut_off(void *arg)
{
    struct addr a;
    struct err err;
    socklen_t n = sizeof(a.sa);
    int listener, fd[2];
    char byte;

    (void)arg;
    CHECK_INT(addr_parse(STR("127.0.0.1:0"), &a, &err), 0);
    listener = sock_listen(&a, &err);
    CHECK_INT(getsockname(listener, (struct sockaddr *)&a.sa, &n), 0);
    CHECK_INT(co_go(serve_closed, &listener, NULL), 0);
    for (int i = 0; i < 2; i++) { /* one in a call, one that says nothing */
        fd[i] = sock_open(&a, &err);
        CHECK_INT(co_connect(fd[i], &a.sa, a.len, co_in(NET_MS)), 0);
    }
    net_put(fd[0], STR("GET /" H "\r\n"));
    for (int i = 0; (!asleep || closed.conns < 2) && i < 1000; i++)
        CHECK_INT(co_sleep(co_in(5)), 0);
    CHECK(asleep);
    httpd_close(&closed);
    CHECK(!asleep);
    CHECK_INT(closed.conns, 0);
    CHECK_INT(co_read(fd[1], &byte, 1, co_in(NET_MS)), 0);
    co_close(fd[0]);
    co_close(fd[1]);
    httpd_close(&closed); /* again: nothing to do */
}

TEST(closing_cuts_everybody_off_and_waits_for_calls_under_way) { test_co(cut_off, NULL); }

static void flooding_peer(void *arg)
{
    static char junk[65536];
    struct buf got = { 0 };
    int64_t began = clock_ms();
    int fd[2];

    (void)arg;
    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], STR("BAD\r\n\r\n"));
    while (!co_write(fd[1], junk, sizeof(junk), co_in(NET_MS)))
        ; /* until the server has had enough */
    CHECK(clock_ms() - began < NET_MS);
    net_get_all(fd[1], &got);
    CHECK(strstr(got.data, "HTTP/1.1 400 "));
    co_close(fd[1]);
    buf_free(&got);
}

TEST(a_peer_that_never_stops_sending_is_cut_off) { test_co(flooding_peer, NULL); }
