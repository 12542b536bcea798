/* test_proxy.c - the reverse proxy: heads, bodies, both directions at once. */
#include "proxy_rig.h"

enum { BIG = 10 << 20 };

/* ---- heads ---- */

static void mirror(int fd, int nth) /* answers with the head it got */
{
    (void)nth;
    for (;;) {
        AUTO(buf_free) struct buf b = { 0 }, head = { 0 };

        if (!rig_hear(fd, &b, "\r\n\r\n"))
            return;
        buf_printf(&head,
                   "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: keep-alive, X-Private\r\n"
                   "Keep-Alive: timeout=5\r\nX-Private: 1\r\nX-Public: 2\r\n\r\n%s",
                   b.len, b.data);
        rig_say(fd, head.data);
    }
}

static void heads(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    CHECK_INT(talk("GET /a?b=%20c HTTP/1.1\r\nHost: box.test\r\nUser-Agent: t\r\nX-Forwarded-For: "
                   "1.1.1.1\r\nx-forwarded-for: 2.2.2.2, 3.3.3.3\r\nX-Forwarded-Host: evil\r\n"
                   "X-Forwarded-Proto: gopher\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n"
                   "Proxy-Authorization: x\r\nTE: trailers, gzip\r\nUpgrade: h2c\r\n"
                   "X-Listed: 1\r\nConnection: close, X-Listed, Host, Upgrade\r\n\r\n",
                   &b),
              0);
    check_has(&b, "HTTP/1.1 200 OK\r\n");
    check_has(&b, "X-Public: 2\r\n");
    check_has(&b, "Connection: close\r\n");
    check_lacks(&b, "X-Private");
    check_lacks(&b, "Keep-Alive");
    check_has(&b, "\r\n\r\nGET /a?b=%20c HTTP/1.1\r\nHost: box.test\r\nUser-Agent: t\r\n");
    check_has(&b, "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 127.0.0.1\r\n");
    check_has(&b, "X-Forwarded-Host: box.test\r\nX-Forwarded-Proto: http\r\n");
    check_has(&b, "TE: trailers\r\n");
    check_lacks(&b, "evil");
    check_lacks(&b, "gopher");
    check_lacks(&b, "X-Listed");
    check_lacks(&b, "Proxy-");
    check_lacks(&b, "Upgrade");
}

TEST(fields_of_one_connection_stay_there_and_forwarded_ones_are_added) { run(heads, mirror); }

static void rewritten(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    options.host = STR("inside:8080");
    options.target = STR("/other");
    options.scheme = "https";
    options.trust = true;
    talk("GET /a HTTP/1.1\r\nHost: box.test\r\nX-Forwarded-Host: outer\r\n" CLOSE, &b);
    check_has(&b, "GET /other HTTP/1.1\r\n");
    check_has(&b, "\r\nHost: inside:8080\r\n");
    check_has(&b, "X-Forwarded-Host: outer\r\n");
    check_has(&b, "X-Forwarded-Proto: https\r\n");
    check_lacks(&b, "box.test");
    b.len = 0;
    options = (struct proxy){ 0 };
    talk("GET /a HTTP/1.0\r\n\r\n", &b);
    check_has(&b, "GET /a HTTP/1.1\r\nHost: localhost\r\n");
}

TEST(host_target_and_scheme_can_be_replaced) { run(rewritten, mirror); }

static void pipelined(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *at;

    talk("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
         "GET /3 HTTP/1.1\r\nHost: a\r\n" CLOSE,
         &b);
    at = strstr(b.data, "GET /1 ");
    CHECK(at && (at = strstr(at, "GET /2 ")) && strstr(at, "GET /3 "));
    CHECK_INT(client.dialled, 1);
    CHECK_INT(client.reused, 2);
}

TEST(pipelined_requests_are_answered_in_order_over_one_upstream_connection)
{
    run(pipelined, mirror);
}

/* ---- bodies ---- */

static void one_read(int fd, int nth)
{
    char b[4096] = { 0 };
    ssize_t n = co_read(fd, b, sizeof(b) - 1, co_in(2000));

    (void)nth;
    CHECK(n > 0 && strstr(b, "\r\n\r\nsmall"));
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
}

static void one_write(void)
{
    char b[4096] = { 0 };
    int fd = rig_connect(&front.addr);

    rig_say(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nsmall");
    CHECK(co_read(fd, b, sizeof(b) - 1, co_in(2000)) > 0);
    CHECK(strstr(b, "\r\n\r\nfine"));
    co_close(fd);
}

TEST(a_small_message_goes_out_in_one_write_each_way) { run(one_write, one_read); }

/* Who waits for a time instead would see both pieces at once where there is no processor. */
static bool upstream_has_first, client_has_first;

static void chunked_server(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    CHECK(rig_hear(fd, &b, "\r\nab\r\n"));
    upstream_has_first = true;
    CHECK(rig_hear(fd, &b, "\r\n0\r\nX-Sum: 7\r\n\r\n"));
    check_has(&b, "Transfer-Encoding: chunked\r\n");
    check_has(&b, "\r\n\r\n2\r\nab\r\n3\r\ncde\r\n2\r\nfg\r\n0\r\n"); /* as they arrived */
    rig_say(fd, "HTTP/1.1 200 OK\r\nTrailer: X-Total\r\nTransfer-Encoding: chunked\r\n\r\n"
                "3\r\nabc\r\n");
    test_await(&client_has_first);
    rig_say(fd, "4\r\ndefg\r\n0\r\nX-Total: 7\r\nContent-Length: 9\r\n\r\n");
    co_sleep(co_in(50));
}

static void chunked(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);

    upstream_has_first = client_has_first = false;
    rig_say(fd, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
    test_await(&upstream_has_first);
    rig_say(fd, "cde\r\n2\r\nfg\r\n0\r\nX-Sum: 7\r\n\r\n");
    CHECK(rig_hear(fd, &b, "3\r\nabc\r\n")); /* passed on while the rest is not there yet */
    check_lacks(&b, "defg");
    client_has_first = true;
    CHECK(rig_hear(fd, &b, "4\r\ndefg\r\n0\r\nX-Total: 7\r\n\r\n"));
    check_has(&b, "Transfer-Encoding: chunked\r\n");
    co_close(fd);
    co_sleep(co_in(10));
    CHECK_INT(client.count, 1);
}

TEST(bodies_go_in_chunks_with_trailers_both_ways) { run(chunked, chunked_server); }

static void bodyless(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    while (rig_hear(fd, &b, "\r\n\r\n")) {
        if (str_starts(buf_str(&b), "HEAD /chunked"))
            rig_say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        else if (str_starts(buf_str(&b), "HEAD"))
            rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        else if (str_starts(buf_str(&b), "GET /204"))
            rig_say(fd, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
        else
            rig_say(fd, "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n");
        b.len = 0;
        b.data[0] = 0;
    }
}

static void no_bodies(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    talk("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /chunked HTTP/1.1\r\nHost: a\r\n\r\n"
         "GET /204 HTTP/1.1\r\nHost: a\r\n\r\nGET /304 HTTP/1.1\r\nHost: a\r\n" CLOSE,
         &b);
    CHECK_STR(b.data,
              "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
              "HTTP/1.1 200 OK\r\n\r\n"
              "HTTP/1.1 204 No Content\r\n\r\n"
              "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nConnection: close\r\n\r\n");
    CHECK_INT(client.dialled, 1);
}

TEST(answers_without_a_body_keep_both_connections) { run(no_bodies, bodyless); }

static void until_close_server(int fd, int nth)
{
    (void)nth;
    if (rig_hear_head(fd))
        rig_say(fd, "HTTP/1.0 200 OK\r\n\r\nall of it");
}

static void until_close(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    CHECK_INT(talk("GET / HTTP/1.1\r\nHost: a\r\n" CLOSE, &b), 0);
    check_has(&b, "Transfer-Encoding: chunked\r\n");
    check_has(&b, "\r\n\r\n9\r\nall of it\r\n0\r\n\r\n");
    b.len = 0;
    CHECK_INT(talk("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &b), 0);
    check_has(&b, "Connection: close\r\n\r\nall of it");
    CHECK_INT(client.count, 0);
}

TEST(a_body_that_ends_with_the_connection_becomes_chunks_or_closes)
{
    run(until_close, until_close_server);
}

/* ---- much at once ---- */

static int echo(struct call *c, struct err *err)
{
    AUTO(freep) char *b = xmalloc(32 << 10);
    ssize_t n;

    if (call_begin(c, 200, "application/octet-stream", c->head.length))
        return -1;
    while ((n = call_read(c, b, 32 << 10, err)) > 0)
        if (call_send(c, b, (size_t)n) || call_flush(c))
            return -1;
    return n < 0 || call_end(c) ? -1 : 1;
}

static void send_big(void *arg)
{
    AUTO(freep) unsigned char *b = xmalloc(BIG);

    for (size_t i = 0; i < BIG; i++)
        b[i] = (unsigned char)(i * 7 + i / 251);
    CHECK_INT(co_write(*(int *)arg, b, BIG, co_in(20000)), 0);
}

static void both_ways(void)
{
    AUTO(freep) struct http_head *h = xmalloc(sizeof(*h));
    AUTO(freep) unsigned char *b = xmalloc(64 << 10);
    struct err err = { 0 };
    struct http_body body;
    struct conn conn;
    size_t at = 0;
    int fd = rig_connect(&front.addr);

    rig_say(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10485760\r\n" CLOSE);
    CHECK_INT(co_go(send_big, &fd, NULL), 0);
    conn_init(&conn, fd);
    CHECK_INT(http_read_head(&conn, HTTP_RESPONSE, h, &err), 1);
    http_body_init(&body, &conn, h, HTTP_RESPONSE);
    for (ssize_t n; (n = http_body_read(&body, b, 64 << 10, &err)) > 0;)
        for (ssize_t i = 0; i < n; i++, at++)
            if (b[i] != (unsigned char)(at * 7 + at / 251))
                test_fail(__FILE__, __LINE__, "byte %zu differs", at);
    CHECK_INT(at, BIG);
    conn_finish(&conn);
}

TEST(ten_megabytes_go_both_ways_at_once)
{
    static const struct route *const none[] = { NULL };

    upstream_server = (struct httpd){ .tables = none, .first = echo };
    run(both_ways, NULL);
}

static int64_t poured;

static void pour(int fd, int nth)
{
    AUTO(freep) char *b = xcalloc(1, 64 << 10);

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n");
    for (poured = 0; poured < 64 << 20; poured += 64 << 10)
        if (co_write(fd, b, 64 << 10, co_in(10000)))
            return;
}

static void slow_reader(void)
{
    AUTO(freep) char *b = xmalloc(1 << 20);
    int fd = rig_connect(&front.addr);
    int64_t total = 0, stuck;

    rig_say(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    do { /* until nothing fits any more: on a busy machine that takes a while */
        stuck = poured;
        co_sleep(co_in(100));
    } while (!poured || poured != stuck);
    CHECK(stuck < 48 << 20); /* the kernel's buffers on two connections, nothing else */
    co_sleep(co_in(50));
    CHECK_INT(poured, stuck);
    while (total < 64 << 20) {
        ssize_t n = co_read(fd, b, 1 << 20, co_in(5000));

        CHECK(n > 0);
        total += n;
    }
    co_close(fd);
}

TEST(a_slow_reader_holds_the_upstream_back) { run(slow_reader, pour); }

static void answers_first(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    CHECK(rig_hear(fd, &b, "second"));
    rig_say(fd, "5\r\nthird\r\n0\r\n\r\n");
    co_sleep(co_in(50));
}

static void conversation(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);

    rig_say(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n.");
    CHECK(rig_hear(fd, &b, "first\r\n"));
    rig_say(fd, "second");
    CHECK(rig_hear(fd, &b, "third\r\n0\r\n\r\n"));
    co_close(fd);
    co_sleep(co_in(10));
    CHECK_INT(client.count, 1); /* both directions came to their end */
}

TEST(an_answer_may_begin_before_the_request_has_ended) { run(conversation, answers_first); }

static void refuses_early(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    rig_hear_all(fd, &b); /* the proxy hangs up, though the body has not ended */
    CHECK(b.len < 4096);
}

static void early_end(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int64_t began = clock_ms();

    CHECK_INT(
        talk("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", &b),
        0);
    check_has(&b, "HTTP/1.1 413 ");
    check_has(&b, "\r\nConnection: close\r\n");
    check_has(&b, "\r\n\r\nbig");
    CHECK(clock_ms() - began < 1000);
}

TEST(an_answer_that_ends_early_stops_the_request_and_closes) { run(early_end, refuses_early); }

/* ---- 100 Continue ---- */

static void continues(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    CHECK(rig_hear(fd, &b, "\r\n\r\n"));
    check_has(&b, "Expect: 100-continue\r\n");
    check_lacks(&b, "body");
    if (strstr(b.data, "GET /no")) {
        rig_say(fd, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    rig_say(fd, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    CHECK(rig_hear(fd, &b, "body"));
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    co_sleep(co_in(20));
}

static void expectation(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);

    rig_say(fd, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    CHECK(rig_hear(fd, &b, "HTTP/1.1 100 Continue\r\n\r\n"));
    check_has(&b, "HTTP/1.1 103 Status\r\nLink: </a.css>\r\n\r\n");
    rig_say(fd, "body");
    CHECK(rig_hear(fd, &b, "HTTP/1.1 200 OK\r\n"));
    co_close(fd);
    b.len = 0;
    talk("GET /no HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n" CLOSE, &b);
    check_lacks(&b, "100 Continue");
    check_has(&b, "HTTP/1.1 401 Unauthorized\r\n");
}

TEST(the_upstream_decides_whether_a_body_is_sent) { run(expectation, continues); }

/* Interim answers without end, behind the word to go on, until the body is here. */
enum { HINTS = 3000 };
#define LINK "\r\nLink: </a.css>\r\n\r\n"

static void hints(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    CHECK(rig_hear(fd, &b, "\r\n\r\n"));
    rig_say(fd, "HTTP/1.1 100 Continue\r\n\r\n");
    for (int i = 0; i < HINTS; i++)
        rig_say(fd, "HTTP/1.1 103 Early Hints" LINK);
    CHECK(rig_hear(fd, &b, "\r\n\r\nbody"));
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntook");
}

/* The socket is as full as the answers before it can make it, which this client has not read. */
static int full_first(struct call *c, struct err *err)
{
    static const char z[4096] = { [0 ... 4095] = 'z' };
    size_t took;

    do {
        took = 0;
        for (size_t n = sizeof(z); n;)
            if (send(c->conn->fd, z, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                n /= 2;
            else
                took += n;
        co_sleep(co_in(10)); /* what is under way makes room for more */
    } while (took);
    return through(c, err);
}

static void unread_hints(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *at;
    int fd, n = 0;

    front_server.first = full_first;
    fd = rig_connect(&front.addr);
    rig_say(fd, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    co_sleep(co_in(100)); /* both wait for room by now, where two of them write */
    CHECK(rig_hear(fd, &b, "zHTTP/1.1 100 Continue\r\n\r\n"));
    rig_say(fd, "body");
    CHECK(rig_hear(fd, &b, "\r\n\r\ntook"));
    co_close(fd);
    for (at = strstr(b.data, "zHTTP"); at && (at = strstr(at, LINK "HTTP/1.1 ")); at++)
        n++;
    CHECK_INT(n, HINTS);
}

TEST(a_client_that_does_not_read_is_written_to_by_one_coroutine_alone) { run(unread_hints, hints); }
