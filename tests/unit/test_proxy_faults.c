/* test_proxy_faults.c - the reverse proxy: upstreams that fail, clients that leave, tunnels. */
#include "proxy_rig.h"

/* ---- failures ---- */

static void drops_second(int fd, int nth)
{
    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    rig_hear_head(fd);
}

static void retried(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    for (int i = 0; i < 2; i++) {
        b.len = 0;
        CHECK_INT(talk("GET / HTTP/1.1\r\nHost: a\r\n" CLOSE, &b), 0);
        check_has(&b, "\r\n\r\nok");
    }
    CHECK_INT(client.dialled, 2);
    CHECK_INT(client.reused, 1);
    b.len = 0;
    talk("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", &b);
    check_has(&b, "HTTP/1.1 502 ");
    CHECK_INT(last_fault, PROXY_CLOSED);
}

TEST(a_request_lost_on_a_kept_connection_is_repeated_unless_it_is_a_post)
{
    run(retried, drops_second);
}

static const char *says;

static void sayer(int fd, int nth)
{
    (void)nth;
    if (rig_hear_head(fd) && says)
        rig_say(fd, says);
}

static void check_fault(const char *answer, enum proxy_fault fault, const char *status,
                        const char *words)
{
    AUTO(buf_free) struct buf b = { 0 };

    says = answer;
    talk("GET / HTTP/1.1\r\nHost: a\r\n" CLOSE, &b);
    check_has(&b, status);
    CHECK_INT(last_fault, fault);
    if (!strstr(last_error, words))
        CHECK_STR(last_error, words);
}

static void faults(void)
{
    struct addr a;

    check_fault(NULL, PROXY_CLOSED, "HTTP/1.1 502 ", "before an answer");
    check_fault("220 smtp.test ESMTP\r\n", PROXY_BROKEN, "HTTP/1.1 502 ", "bad status line");
    check_fault("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                PROXY_BROKEN, "HTTP/1.1 502 ", "both Content-Length and Transfer-Encoding");
    check_fault("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", PROXY_BROKEN,
                "HTTP/1.1 502 ", "not asked for");
    co_close(rig_listen(&a));
    options.to.addr = &a;
    check_fault(NULL, PROXY_CONNECT, "HTTP/1.1 502 ", "Connection refused");
}

TEST(an_upstream_without_an_answer_is_told_by_its_fault) { run(faults, sayer); }

static void silent(int fd, int nth)
{
    (void)nth;
    rig_hear_head(fd);
    co_sleep(co_in(300));
}

static void timed_out(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    options.to.answer_ms = 60;
    talk("GET / HTTP/1.1\r\nHost: a\r\n" CLOSE, &b);
    CHECK_INT(last_fault, PROXY_TIMEOUT);
    CHECK_STR(last_error, "no answer within client.answer-ms=60");
}

TEST(a_silent_upstream_is_given_up) { run(timed_out, silent); }

static void check_cut(const char *answer, const char *request, int verdict, const char *no_end)
{
    AUTO(buf_free) struct buf b = { 0 };

    says = answer;
    CHECK_INT(talk(request, &b), verdict);
    check_has(&b, "abcde");
    if (no_end)
        check_lacks(&b, no_end);
    if (!strstr(last_error, "broke off"))
        CHECK_STR(last_error, "broke off");
}

static void cut(void)
{
    check_cut("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcde",
              "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, NULL);
    check_cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
              "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, "\r\n0\r\n");
}

TEST(an_answer_that_breaks_off_does_not_look_whole) { run(cut, sayer); }

static void resets(int fd, int nth)
{
    struct linger reset = { .l_onoff = 1 };

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.0 200 OK\r\n\r\nabcde");
    co_sleep(co_in(50));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

static void reset(void)
{
    check_cut(NULL, "GET / HTTP/1.0\r\n\r\n", ECONNRESET, NULL);
    check_cut(NULL, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, "\r\n0\r\n");
}

TEST(a_reset_is_passed_on_where_only_the_end_of_the_connection_ends_a_body) { run(reset, resets); }

static void nonsense(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    talk("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n", &b);
    check_has(&b, "HTTP/1.1 400 ");
    CHECK_INT(last_fault, PROXY_CLIENT);
}

TEST(a_broken_request_body_is_the_clients_fault) { run(nonsense, silent); }

static bool upstream_asked;
static int64_t upstream_ended;

static void holds(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear(fd, &b, "\r\n\r\n"))
        return;
    upstream_asked = true;
    if (strstr(b.data, " /events "))
        rig_say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    rig_hear_all(fd, &b);
    upstream_ended++;
}

static void check_leaving(const char *request, const char *hears)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);

    upstream_asked = false;
    upstream_ended = 0;
    rig_say(fd, request);
    if (hears)
        CHECK(rig_hear(fd, &b, hears));
    test_await(&upstream_asked); /* who leaves before that has asked for nothing */
    co_sleep(co_in(60));
    CHECK_INT(upstream_ended, 0);
    co_close(fd);
    for (int i = 0; i < 1000 && !(upstream_ended && last_fault == PROXY_CLIENT); i++)
        co_sleep(co_in(5)); /* a time-out would be another fault */
    CHECK_INT(upstream_ended, 1);
    CHECK_INT(last_fault, PROXY_CLIENT);
}

static void leaving(void)
{
    check_leaving("GET / HTTP/1.1\r\nHost: a\r\n\r\n", NULL);
    check_leaving("GET /events HTTP/1.1\r\nHost: a\r\n\r\n", "hello");
    check_leaving("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", NULL);
    check_leaving("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                  NULL);
}

TEST(a_client_that_leaves_ends_the_upstream_promptly) { run(leaving, holds); }

/* How long the upstream of a stream outlives a client that leaves after its first piece. */
static int64_t outlives(const char *head, const char *body)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);
    int64_t left;

    upstream_ended = 0;
    rig_say(fd, head);
    co_sleep(co_in(2));
    rig_say(fd, body);
    CHECK(rig_hear(fd, &b, "hello"));
    co_close(fd);
    left = co_now();
    while (!upstream_ended && co_now() < left + 1000)
        co_sleep(co_in(1));
    return co_now() - left;
}

/* Time is the machine's: of several attempts the quickest counts. */
static void leaving_a_stream(void)
{
    static const char *const requests[][2] = {
        { "GET /events HTTP/1.1\r\nHost: a\r\n\r\n", "" },
        { "POST /events HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
          "0\r\n\r\n" }, /* a body that comes late has the side sent */
    };

    for (size_t i = 0; i < 2; i++) {
        int64_t quickest = 1000;

        for (int n = 0; n < 10; n++) {
            int64_t took = outlives(requests[i][0], requests[i][1]);

            quickest = MIN(quickest, took);
        }
        CHECK(quickest < 10);
    }
}

TEST(a_client_that_leaves_a_stream_is_noticed_at_once) { run(leaving_a_stream, holds); }

/* ---- upgrades ---- */

static void upgraded(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear(fd, &b, "\r\n\r\n"))
        return;
    check_has(&b, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    check_has(&b, "Sec-WebSocket-Key: k\r\n");
    rig_say(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Accept: k\r\n\r\nwelcome");
    b.len = 0;
    CHECK_INT(rig_hear_all(fd, &b), 0); /* the client's half-close arrives here */
    co_sleep(co_in(20));
    CHECK_INT(co_write(fd, b.data, b.len, co_in(5000)), 0); /* and this direction still works */
}

static void tunnelled(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(&front.addr);

    rig_say(fd, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
                "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n");
    CHECK(rig_hear(fd, &b, "welcome"));
    check_has(&b, "HTTP/1.1 101 Switching Protocols\r\n");
    check_has(&b, "Sec-WebSocket-Accept: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
    rig_say(fd, "one");
    co_sleep(co_in(40));
    rig_say(fd, "two");
    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    b.len = 0;
    CHECK_INT(rig_hear_all(fd, &b), 0);
    CHECK_STR(b.data, "onetwo");
    co_close(fd);
    CHECK_INT(client.count, 0);
}

TEST(an_upgrade_is_a_tunnel_with_two_ends) { run(tunnelled, upgraded); }

static void broken_tunnel(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct linger reset = { .l_onoff = 1 };
    int fd = rig_connect(&front.addr);

    rig_say(fd, "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Key: k\r\n\r\n");
    CHECK(rig_hear(fd, &b, "welcome"));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    co_close(fd); /* the frame's check that no connection is left does the rest */
}

TEST(a_tunnel_whose_client_breaks_is_taken_down) { run(broken_tunnel, upgraded); }
