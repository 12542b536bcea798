/* test_client.c - the HTTP client against httpd and against servers that misbehave. */
#include "io/client.h"

#include "rig.h"

static struct client client;
static struct rig rig;
static struct httpd server;

/* ---- a small server ---- */

static int hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("hello"));
}

static int echo(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)body;
    if (call_read_all(c, &b, err))
        return -1;
    return call_reply(c, 200, "text/plain", buf_str(&b));
}

static int nothing(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, str_is(c->path, "/204") ? 204 : 304, NULL, (struct str){ 0 });
}

static const struct route routes[] = {
    { "GET", "/hello", ROUTE_RAW, .fn = hello },  { "POST", "/echo", ROUTE_RAW, .fn = echo },
    { "GET", "/204", ROUTE_RAW, .fn = nothing },  { "GET", "/304", ROUTE_RAW, .fn = nothing },
    { "POST", "/hello", ROUTE_RAW, .fn = hello }, {},
};
static const struct route *const tables[] = { routes, NULL };

/* ---- the frame of a case ---- */

struct frame {
    void (*fn)(const struct client_to *to);
    void (*script)(int fd, int nth);
};

static void frame(void *arg)
{
    const struct frame *f = arg;
    struct client_to to = { .addr = &rig.addr };

    client_init(&client);
    server = (struct httpd){ .tables = tables };
    rig = (struct rig){ .d = f->script ? NULL : &server, .script = f->script };
    rig_start(&rig);
    f->fn(&to);
    client_finish(&client);
    co_cancel_all();
}

static void run(void (*fn)(const struct client_to *), void (*script)(int, int))
{
    struct frame f = { fn, script };

    test_co(frame, &f);
}

static struct exchange *ask(const struct client_to *to, const char *method, const char *target,
                            const char *body, struct err *err)
{
    struct client_request rq = { .method = str_of(method),
                                 .target = str_of(target),
                                 .host = STR("test"),
                                 .body = str_of(body) };

    *err = (struct err){ 0 };
    return client_do(&client, to, &rq, err);
}

static void expect_body(struct exchange *x, int status, const char *want)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };

    CHECK(x);
    CHECK_INT(x->head.status, status);
    CHECK_INT(http_body_read_all(&x->body, &b, &err), 0);
    CHECK_STR(buf_cstr(&b), want);
    client_close(x);
}

static void expect_failure(const struct client_to *to, const char *method, enum err_code code,
                           const char *words)
{
    struct err err;

    CHECK(!ask(to, method, "/", NULL, &err));
    CHECK_INT(err.code, code);
    if (!strstr(err.msg, words))
        CHECK_STR(err.msg, words);
}

/* ---- keeping connections ---- */

static void reuse(const struct client_to *to)
{
    struct err err;

    for (int i = 0; i < 3; i++)
        expect_body(ask(to, "GET", "/hello", NULL, &err), 200, "hello");
    expect_body(ask(to, "POST", "/echo", "some text", &err), 200, "some text");
    expect_body(ask(to, "HEAD", "/hello", NULL, &err), 200, "");
    expect_body(ask(to, "GET", "/204", NULL, &err), 204, "");
    expect_body(ask(to, "GET", "/304", NULL, &err), 304, "");
    expect_body(ask(to, "POST", "/hello", NULL, &err), 200, "hello");
    CHECK_INT(client.dialled, 1);
    CHECK_INT(client.reused, 7);
}

TEST(connections_are_kept_over_all_kinds_of_answers) { run(reuse, NULL); }

static void close_in_time(const struct client_to *to)
{
    struct err err;

    client_limits.kept_ms = 30;
    expect_body(ask(to, "GET", "/hello", NULL, &err), 200, "hello");
    CHECK_INT(client.count, 1);
    co_sleep(co_in(80));
    CHECK_INT(client.count, 0);
    client_limits.kept_ms = 4000;
    client_limits.kept = 1;
    struct exchange *a = ask(to, "GET", "/hello", NULL, &err);
    struct exchange *b = ask(to, "GET", "/hello", NULL, &err);

    expect_body(a, 200, "hello");
    expect_body(b, 200, "hello");
    CHECK_INT(client.count, 1);
    client_limits.kept = 512;
    client_forget(&client, to);
    CHECK_INT(client.count, 0);
}

TEST(kept_connections_are_bounded_in_number_and_age) { run(close_in_time, NULL); }

static void one_answer_then_close(int fd, int nth)
{
    (void)nth;
    if (rig_hear_head(fd))
        rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

static void detect_closed(const struct client_to *to)
{
    struct err err;

    for (int i = 0; i < 3; i++) {
        expect_body(ask(to, "POST", "/", NULL, &err), 200, "ok");
        co_sleep(co_in(10));
    }
    CHECK_INT(client.dialled, 3);
}

TEST(a_kept_connection_that_was_closed_is_not_used) { run(detect_closed, one_answer_then_close); }

/* The second request is read and not answered: what a server does that closes at that moment. */
static void drops_second(int fd, int nth)
{
    one_answer_then_close(fd, nth);
    rig_hear_head(fd);
}

static void retry(const struct client_to *to)
{
    struct err err;

    expect_body(ask(to, "GET", "/", NULL, &err), 200, "ok");
    expect_body(ask(to, "GET", "/", NULL, &err), 200, "ok");
    CHECK_INT(client.dialled, 2);
    CHECK_INT(client.reused, 1);
    expect_failure(to, "POST", ERR_UPSTREAM, "closed the connection before an answer");
}

TEST(a_request_lost_on_a_kept_connection_is_repeated_unless_it_is_a_post)
{
    run(retry, drops_second);
}

static void speaks_unasked(int fd, int nth)
{
    one_answer_then_close(fd, nth);
    co_sleep(co_in(10));
    rig_say(fd, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    co_sleep(co_in(200));
}

static void unasked(const struct client_to *to)
{
    struct err err;

    expect_body(ask(to, "GET", "/", NULL, &err), 200, "ok");
    co_sleep(co_in(30));
    expect_body(ask(to, "GET", "/", NULL, &err), 200, "ok");
    CHECK_INT(client.dialled, 2);
}

TEST(a_kept_connection_on_which_the_server_spoke_is_not_used) { run(unasked, speaks_unasked); }

/* ---- bodies ---- */

static void chunked_server(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    CHECK(rig_hear(fd, &b, "\r\n0\r\nX-Sum: 7\r\n\r\n"));
    CHECK(strstr(b.data, "Transfer-Encoding: chunked\r\n"));
    CHECK(strstr(b.data, "\r\n5\r\nabcde\r\n2\r\nfg\r\n0\r\n"));
    rig_say(fd, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    co_sleep(co_in(10));
    rig_say(fd, "4;x=y\r\ndefg\r\n0\r\nX-Total: 7\r\n\r\n");
    co_sleep(co_in(50));
}

static void chunked(const struct client_to *to)
{
    struct client_request rq = { .method = STR("POST"),
                                 .target = STR("/"),
                                 .length = CLIENT_CHUNKED };
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };
    struct exchange *x = client_start(&client, to, &rq, &err);

    CHECK(x);
    CHECK_INT(client_write(x, "abcde", 5, &err), 0);
    CHECK_INT(client_flush(x, &err), 0);
    CHECK_INT(client_write(x, "fg", 2, &err), 0);
    CHECK_INT(client_end(x, STR("X-Sum: 7\r\n"), &err), 0);
    CHECK_INT(client_answer(x, &err), 1);
    CHECK_INT(x->head.status, 200);
    CHECK_INT(http_body_read_all(&x->body, &b, &err), 0);
    CHECK_STR(buf_cstr(&b), "abcdefg");
    CHECK_STR(buf_cstr(&x->body.trailers), "X-Total: 7\r\n");
    client_close(x);
    CHECK_INT(client.count, 1);
}

TEST(bodies_go_in_chunks_with_trailers_both_ways_and_interim_answers_are_skipped)
{
    run(chunked, chunked_server);
}

static void until_close_server(int fd, int nth)
{
    (void)nth;
    if (rig_hear_head(fd))
        rig_say(fd, "HTTP/1.1 200 OK\r\n\r\nall of it");
}

static void until_close(const struct client_to *to)
{
    struct err err;

    expect_body(ask(to, "GET", "/", NULL, &err), 200, "all of it");
    CHECK_INT(client.count, 0);
}

TEST(a_body_may_end_with_the_connection) { run(until_close, until_close_server); }

static void dies_in_body(int fd, int nth)
{
    if (rig_hear_head(fd))
        rig_say(fd, nth ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"
                        : "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabcde");
}

static void truncated(const struct client_to *to)
{
    for (int i = 0; i < 2; i++) {
        AUTO(buf_free) struct buf b = { 0 };
        struct err err;
        struct exchange *x = ask(to, "GET", "/", NULL, &err);

        CHECK(x);
        CHECK_INT(http_body_read_all(&x->body, &b, &err), -1);
        CHECK_STR(err.msg, "the body ended early");
        client_close(x);
        CHECK_INT(client.count, 0);
    }
}

TEST(a_body_cut_short_is_an_error) { run(truncated, dies_in_body); }

static void refuses_early(int fd, int nth)
{
    (void)nth;
    if (rig_hear_head(fd))
        rig_say(fd, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
    co_sleep(co_in(50));
}

static void refused_early(const struct client_to *to)
{
    AUTO(freep) char *body = xcalloc(8 << 20, 1);
    struct err err = { 0 };
    struct client_request rq = { .method = STR("POST"),
                                 .target = STR("/"),
                                 .body = { body, 8 << 20 } };

    expect_body(client_do(&client, to, &rq, &err), 413, "big");
    CHECK_INT(client.count, 0);
}

TEST(an_answer_that_comes_before_the_body_was_taken_is_read) { run(refused_early, refuses_early); }

/* ---- failures ---- */

static void closed(int fd, int nth)
{
    (void)nth;
    rig_hear_head(fd);
}

static void closed_early(const struct client_to *to)
{
    expect_failure(to, "GET", ERR_UPSTREAM, "the server closed the connection before an answer");
    CHECK_INT(client.dialled, 1); /* a fresh connection is no reason to repeat */
}

TEST(a_server_that_closes_before_an_answer_is_told_as_such) { run(closed_early, closed); }

static void garbage(int fd, int nth)
{
    static const char *const text[] = {
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
    };

    if (rig_hear_head(fd))
        rig_say(fd, text[nth]);
}

static void broken(const struct client_to *to)
{
    expect_failure(to, "GET", ERR_UPSTREAM, "broken answer: bad status line");
    expect_failure(to, "GET", ERR_UPSTREAM, "broken answer: both Content-Length and");
    expect_failure(to, "GET", ERR_UPSTREAM, "broken answer: Content-Length given twice");
    expect_failure(to, "GET", ERR_UPSTREAM, "broken answer: it ends within its head");
}

TEST(an_answer_that_is_not_http_is_refused) { run(broken, garbage); }

static void silent(int fd, int nth)
{
    (void)nth;
    rig_hear_head(fd);
    co_sleep(co_in(500));
}

static void no_answer(const struct client_to *to)
{
    struct client_to quick = *to;

    quick.answer_ms = 30;
    expect_failure(&quick, "GET", ERR_TIMEOUT, "no answer within client.answer-ms=30");
}

TEST(a_silent_server_is_given_up) { run(no_answer, silent); }

static void begins(int fd, int nth)
{
    if (!rig_hear_head(fd))
        return;
    if (nth)
        rig_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
    co_sleep(co_in(nth ? 100 : 30000));
    if (nth)
        rig_say(fd, "llo");
}

static void interrupt(void *arg)
{
    co_sleep(co_in(50));
    client_interrupt(&client, arg);
}

static void interrupted(const struct client_to *to, bool whole, int result)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct client_to where = *to;
    struct err err = { 0 };
    struct exchange *x;

    where.whole = whole;
    CHECK_INT(co_go(interrupt, &where, NULL), 0);
    x = ask(&where, "GET", "/", NULL, &err);
    CHECK(x);
    CHECK_INT(http_body_read_all(&x->body, &b, &err), result);
    CHECK_STR(buf_cstr(&b), result ? "he" : "hello");
    client_close(x);
}

static void interruptions(const struct client_to *to)
{
    int64_t since = co_now();

    CHECK_INT(co_go(interrupt, (void *)(uintptr_t)to, NULL), 0);
    expect_failure(to, "GET", ERR_UPSTREAM, "the server closed the connection before an answer");
    interrupted(to, false, 0);
    interrupted(to, true, -1);
    CHECK(co_now() - since < 20000);
}

TEST(who_waits_for_an_answer_can_be_told_that_none_comes) { run(interruptions, begins); }

static void no_listener(const struct client_to *to)
{
    struct client_to nowhere = *to;
    struct addr a;

    co_close(rig_listen(&a)); /* a port that was free a moment ago */
    nowhere.addr = &a;
    expect_failure(&nowhere, "GET", ERR_UPSTREAM, "Connection refused");
}

TEST(a_closed_port_is_told_as_refused) { run(no_listener, NULL); }

static void full_backlog(const struct client_to *to)
{
    struct client_to slow = *to;
    struct addr a;
    int fd[4], listener = rig_listen(&a);

    CHECK_INT(listen(listener, 0), 0);
    for (int i = 0; i < 4; i++) {
        struct err err;

        fd[i] = sock_open(&a, &err);
        co_connect(fd[i], &a.sa, a.len, co_in(10));
    }
    slow.addr = &a;
    slow.connect_ms = 30;
    expect_failure(&slow, "GET", ERR_TIMEOUT, "not within client.connect-ms=30");
    for (int i = 0; i < 4; i++)
        co_close(fd[i]);
    co_close(listener);
}

TEST(a_port_that_does_not_accept_is_told_as_timed_out) { run(full_backlog, NULL); }

/* ---- the rest ---- */

static int dials;

static int dial_rig(void *arg, int64_t until, struct err *err)
{
    (void)until;
    if (!strcmp(arg, "no"))
        return err_set(err, ERR_NOT_FOUND, "no such sandbox");
    dials++;
    return rig_connect(&rig.addr);
}

static void dialled(const struct client_to *unused)
{
    struct client_to a = { .dial = dial_rig, .arg = (char[]){ "a" }, .key = "a" };
    struct client_to b = { .dial = dial_rig, .arg = (char[]){ "b" }, .key = "b" };
    struct client_to no = { .dial = dial_rig, .arg = (char[]){ "no" }, .key = "no" };
    struct err err;

    (void)unused;
    dials = 0;
    for (int i = 0; i < 2; i++) {
        expect_body(ask(&a, "GET", "/hello", NULL, &err), 200, "hello");
        expect_body(ask(&b, "GET", "/hello", NULL, &err), 200, "hello");
    }
    CHECK_INT(dials, 2);
    expect_failure(&no, "GET", ERR_NOT_FOUND, "no such sandbox");
}

TEST(a_caller_may_dial_and_name_its_connections) { run(dialled, NULL); }

static void upgrades(int fd, int nth)
{
    char b[8];

    (void)nth;
    if (!rig_hear_head(fd))
        return;
    rig_say(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhi");
    CHECK_INT(co_read_full(fd, b, 4, co_in(2000)), 4);
    rig_say(fd, "bye");
}

static void upgrade(const struct client_to *to)
{
    struct client_request rq = { .method = STR("GET"),
                                 .target = STR("/"),
                                 .headers = STR("Connection: upgrade\r\nUpgrade: x\r\n") };
    struct err err = { 0 };
    struct exchange *x = client_do(&client, to, &rq, &err);
    char b[8] = { 0 };

    CHECK(x);
    CHECK_INT(x->head.status, 101);
    CHECK_INT(conn_read_full(x->conn, b, 2, co_in(2000)), 0);
    CHECK_INT(conn_put(x->conn, "ping", 4, NEVER), 0);
    CHECK_INT(conn_flush(x->conn, co_in(2000)), 0);
    CHECK_INT(conn_read_full(x->conn, b, 3, co_in(2000)), 0);
    CHECK_STR(b, "bye");
    client_close(x);
    CHECK_INT(client.count, 0);
}

TEST(an_upgrade_hands_over_the_connection) { run(upgrade, upgrades); }
