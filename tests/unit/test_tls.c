/* test_tls.c - TLS under connections: who is trusted, what an end is, large and many, files that
 * change. Server and client run in one process, over a pair of sockets or the loopback. */
#include "io/tls.h"

#include <fcntl.h>
#include <ftw.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include "io/client.h"
#include "io/httpfile.h"
#include "io/proxy.h"
#include "io/tls_impl.h"
#include "io/tls_make.h"
#include "net.h"
#include "rig.h"

enum { BIG = 6 << 20, DAY = 86400, MANY = 100 };

/* ---- files ---- */

static char home[64];
static struct tls_made made;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_home(void)
{
    if (home[0])
        nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct tls_made make(const char *name, int64_t begins_s, bool force)
{
    static char dir[128];
    struct tls_made m = { 0 };
    struct err err = { 0 };
    struct tls_order o = { .dir = dir, .domain = "box.test", .begins_s = begins_s, .force = force };

    if (!home[0]) {
        snprintf(home, sizeof(home), "/tmp/test-tls-XXXXXX");
        CHECK(mkdtemp(home));
        atexit(remove_home);
    }
    snprintf(dir, sizeof(dir), "%s/%s", home, name);
    if (tls_make(&o, &m, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return m;
}

static void free_made(void) { tls_made_free(&made); }

/* Made once; the CA's file. */
static const char *files(void)
{
    if (!made.ca) {
        made = make("common", 0, false);
        atexit(free_made);
    }
    return made.ca;
}

static struct tls_context *server(void)
{
    struct tls_context *t = NULL;
    struct err err = { 0 };

    files();
    if (tls_server(made.chain, made.key, &t, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return t;
}

static struct tls_context *client_of(const char *ca)
{
    struct tls_context *t = NULL;
    struct err err = { 0 };

    if (tls_client(ca, &t, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return t;
}

/* ---- a pair of connections, one of them served ---- */

struct side {
    struct tls_context *t;
    int fd;
    void (*fn)(struct conn *c); /* after the handshake */
    struct err err;
    bool done;
};

static void serve_side(void *arg)
{
    struct side *s = arg;
    struct conn c;

    conn_init(&c, s->fd);
    if (!tls_guard(s->t)->begin(tls_guard(s->t), &c, NULL, co_in(NET_MS), &s->err) && s->fn)
        s->fn(&c);
    conn_finish(&c);
    s->done = true;
}

static void start(struct side *s, int fd, void (*fn)(struct conn *))
{
    *s = (struct side){ .t = server(), .fd = fd, .fn = fn };
    CHECK_INT(co_go(serve_side, s, NULL), 0);
}

static void wait_side(struct side *s)
{
    while (!s->done)
        co_sleep(co_in(1));
    tls_closep(&s->t);
}

static int shake(struct conn *c, int fd, struct tls_context *t, const char *name, struct err *err)
{
    conn_init(c, fd);
    return tls_guard(t)->begin(tls_guard(t), c, name, co_in(NET_MS), err);
}

static void echo(struct conn *c)
{
    while (conn_fill(c, CONN_BUF, co_in(NET_MS)) > 0) {
        struct str s = conn_peek(c);

        c->pos += s.n;
        if (conn_put(c, s.p, s.n, co_in(NET_MS)) || conn_flush(c, co_in(NET_MS)))
            return;
    }
}

static void expect(struct conn *c, const char *text)
{
    char b[256];
    size_t n = strlen(text);

    CHECK_INT(conn_put(c, text, n, co_in(NET_MS)), 0);
    CHECK_INT(conn_flush(c, co_in(NET_MS)), 0);
    CHECK_INT(conn_read_full(c, b, n, co_in(NET_MS)), 0);
    CHECK(!memcmp(b, text, n));
}

/* ---- who is trusted ---- */

static void talks(void *arg)
{
    static const char *const names[] = { "box.test", "3000-i0.box.test", "localhost", "127.0.0.1",
                                         "::1" };
    AUTO(tls_closep) struct tls_context *t = NULL;

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct err err = { 0 };
        struct side s;
        struct conn c;
        int fd[2];

        net_pair(fd);
        start(&s, fd[0], echo);
        t = t ? t : client_of(made.ca);
        if (shake(&c, fd[1], t, names[i], &err))
            test_fail(__FILE__, __LINE__, "%s", err.msg);
        CHECK_STR(SSL_get_version(c.layer), "TLSv1.3");
        expect(&c, "hello");
        expect(&c, "and again");
        conn_finish(&c);
        wait_side(&s);
    }
}

TEST(both_sides_talk_under_every_name_of_the_certificate) { test_co(talks, NULL); }

static void refused_as(struct tls_context *t, const char *name, const char *why)
{
    struct err err = { 0 };
    struct side s;
    struct conn c;
    int fd[2];

    net_pair(fd);
    start(&s, fd[0], echo);
    CHECK_INT(shake(&c, fd[1], t, name, &err), -1);
    CHECK_INT(err.code, ERR_UPSTREAM);
    if (!strstr(err.msg, why))
        CHECK_STR(err.msg, why);
    CHECK(!c.ops);
    conn_finish(&c);
    wait_side(&s);
    CHECK(s.err.code);
}

static void names(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = client_of(files());
    struct err err = { 0 };
    struct conn c = { .fd = -1 };

    (void)arg;
    refused_as(t, "other.test", "hostname mismatch");
    refused_as(t, "a.b.box.test", "hostname mismatch");
    refused_as(t, "127.0.0.2", "IP address mismatch");
    CHECK_INT(tls_guard(t)->begin(tls_guard(t), &c, NULL, NEVER, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
}

TEST(a_certificate_for_another_name_is_refused) { test_co(names, NULL); }

static void strangers(void *arg)
{
    struct tls_made m = make("stranger", 0, false);
    AUTO(tls_closep) struct tls_context *other = client_of(m.ca), *system = client_of(NULL);

    (void)arg;
    refused_as(other, "box.test", "unable to get local issuer certificate");
    refused_as(system, "box.test", "unable to get local issuer certificate");
    tls_made_free(&m);
}

TEST(a_certificate_of_an_unknown_CA_is_refused) { test_co(strangers, NULL); }

static void use_files(struct tls_made *m, const char *why)
{
    struct tls_made before = made;
    struct tls_context *t = client_of(m->ca);

    made = *m;
    refused_as(t, "box.test", why);
    made = before;
    tls_closep(&t);
    tls_made_free(m);
}

static void times(void *arg)
{
    struct tls_made old, early;

    (void)arg;
    files();
    old = make("old", clock_wall_s() - (int64_t)(TLS_DAYS + 1) * DAY, false);
    early = make("early", clock_wall_s() + DAY, false);
    use_files(&old, "certificate has expired");
    use_files(&early, "certificate is not yet valid");
}

TEST(a_certificate_out_of_its_time_is_refused) { test_co(times, NULL); }

/* A client of our own making, for what ours never asks for. */
static int raw_client(int fd, int version, const char *protocols, size_t n, struct conn *c,
                      struct err *err)
{
    SSL_CTX *x = SSL_CTX_new(TLS_client_method());
    SSL *ssl;
    int r;

    SSL_CTX_set_security_level(x, 0);
    SSL_CTX_set_max_proto_version(x, version);
    SSL_CTX_set_min_proto_version(x, TLS1_VERSION);
    if (protocols)
        SSL_CTX_set_alpn_protos(x, (const unsigned char *)protocols, (unsigned)n);
    ssl = SSL_new(x);
    SSL_CTX_free(x);
    SSL_set_connect_state(ssl);
    conn_init(c, fd);
    r = tls_handshake(c, ssl, "the server", co_in(NET_MS), err);
    return r;
}

static int raw(int version, const char *protocols, size_t n, struct str *chosen)
{
    struct err err = { 0 };
    struct side s;
    struct conn c;
    int fd[2], r;

    net_pair(fd);
    start(&s, fd[0], echo);
    r = raw_client(fd[1], version, protocols, n, &c, &err);
    if (!r && chosen) {
        const unsigned char *p;
        unsigned int k;

        SSL_get0_alpn_selected(c.layer, &p, &k);
        CHECK(k == 8 && !memcmp(p, "http/1.1", 8));
    }
    conn_finish(&c);
    wait_side(&s);
    return r;
}

static void old_ones(void *arg)
{
    struct str chosen;

    (void)arg;
    CHECK_INT(raw(TLS1_1_VERSION, NULL, 0, NULL), -1);
    CHECK_INT(raw(TLS1_2_VERSION, NULL, 0, NULL), 0);
    CHECK_INT(raw(TLS1_3_VERSION, NULL, 0, NULL), 0);
    CHECK_INT(raw(TLS1_3_VERSION, "\x02h2", 3, NULL), -1);
    CHECK_INT(raw(TLS1_3_VERSION, "\x02h2\x08http/1.1", 12, &chosen), 0);
    CHECK_INT(raw(TLS1_2_VERSION, "\x08http/1.1\x02h2", 12, &chosen), 0);
}

TEST(only_TLS_1_2_and_later_and_only_HTTP_1_1_are_agreed_on) { test_co(old_ones, NULL); }

static void slow(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = server();
    struct err err = { 0 };
    struct conn c;
    int fd[2];

    (void)arg;
    net_pair(fd);
    conn_init(&c, fd[0]);
    CHECK_INT(tls_guard(t)->begin(tls_guard(t), &c, NULL, co_in(30), &err), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    net_put(fd[1], STR("\x16\x03\x01"));
    CHECK_INT(tls_guard(t)->begin(tls_guard(t), &c, NULL, co_in(30), &err), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    net_put(fd[1], STR("nonsense, and more of it than a record's head has, to the end \xff\xff"));
    err = (struct err){ 0 };
    CHECK_INT(tls_guard(t)->begin(tls_guard(t), &c, NULL, co_in(NET_MS), &err), -1);
    CHECK(err.code == ERR_GONE || err.code == ERR_UPSTREAM);
    CHECK(!c.ops);
    conn_finish(&c);
    co_close(fd[1]);
}

TEST(a_handshake_has_a_time_limit_and_nonsense_ends_it) { test_co(slow, NULL); }

/* ---- ends ---- */

static void says_and_ends(struct conn *c)
{
    CHECK_INT(conn_put(c, "bye", 3, NEVER), 0);
    CHECK_INT(conn_flush(c, co_in(NET_MS)), 0);
}

static void says_and_is_cut(struct conn *c)
{
    says_and_ends(c);
    conn_cut(c);
}

static void half_open(struct conn *c) /* ends its output, then hears the rest */
{
    char b[16] = { 0 };

    says_and_ends(c);
    conn_end_output(c);
    CHECK_INT(conn_read_full(c, b, 5, co_in(NET_MS)), 0);
    CHECK_STR(b, "still");
    CHECK_INT(conn_fill(c, CONN_BUF, co_in(NET_MS)), 0);
}

static void ends(void *arg)
{
    static void (*const how[])(struct conn *) = { says_and_ends, says_and_is_cut, half_open };
    AUTO(tls_closep) struct tls_context *t = client_of(files());

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct err err = { 0 };
        struct side s;
        struct conn c;
        char b[4] = { 0 };
        int fd[2];

        net_pair(fd);
        start(&s, fd[0], how[i]);
        CHECK_INT(shake(&c, fd[1], t, "box.test", &err), 0);
        CHECK_INT(conn_read_full(&c, b, 3, co_in(NET_MS)), 0);
        CHECK_STR(b, "bye");
        errno = 0;
        CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), how[i] == says_and_is_cut ? -1 : 0);
        if (how[i] == says_and_is_cut)
            CHECK_INT(errno, ECONNRESET);
        if (how[i] == half_open)
            CHECK_INT(conn_put(&c, "still", 5, NEVER) || conn_flush(&c, co_in(NET_MS)), 0);
        CHECK(conn_peer_left(&c));
        CHECK(!conn_quiet(&c));
        conn_finish(&c);
        wait_side(&s);
    }
}

TEST(an_end_is_told_from_a_cut_and_one_direction_may_end_alone) { test_co(ends, NULL); }

static void quiet(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = client_of(files());
    struct err err = { 0 };
    struct side s;
    struct conn c;
    int fd[2];

    (void)arg;
    net_pair(fd);
    start(&s, fd[0], echo);
    CHECK_INT(shake(&c, fd[1], t, "box.test", &err), 0);
    expect(&c, "x"); /* the server's ticket has come by now */
    CHECK(conn_quiet(&c));
    CHECK(!conn_peer_left(&c));
    CHECK_INT(conn_put(&c, "y", 1, NEVER) || conn_flush(&c, co_in(NET_MS)), 0);
    CHECK_INT(co_wait(c.fd, CO_IN, co_in(NET_MS)), 0);
    CHECK(!conn_quiet(&c));
    CHECK(!conn_peer_left(&c));
    conn_break(&c);
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 1); /* what was received is not lost */
    CHECK(conn_fill(&c, CONN_BUF, co_in(NET_MS)) <= 0);
    conn_finish(&c);
    wait_side(&s);
}

TEST(a_ticket_is_not_taken_for_something_to_read) { test_co(quiet, NULL); }

/* ---- much, and many ---- */

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 31 + (i >> 11)); }

static void send_big(struct conn *c)
{
    AUTO(freep) unsigned char *b = xmalloc(BIG);
    size_t at = 0;

    for (size_t i = 0; i < BIG; i++)
        b[i] = byte_at(i);
    for (size_t step = 1; at < BIG; step = step * 3 % 100003 + 1) { /* pieces of every size */
        size_t n = MIN(step, (size_t)BIG - at);

        CHECK_INT(conn_put(c, b + at, n, co_in(NET_MS)), 0);
        at += n;
    }
    CHECK_INT(conn_flush(c, co_in(NET_MS)), 0);
}

static void receive_big(struct conn *c)
{
    for (size_t at = 0; at < BIG;) {
        struct str s;

        CHECK(conn_fill(c, CONN_BUF, co_in(NET_MS)) > 0);
        s = conn_peek(c);
        for (size_t i = 0; i < s.n; i++, at++)
            CHECK((unsigned char)s.p[i] == byte_at(at));
        c->pos += s.n;
    }
}

struct sender {
    struct conn *c;
    bool done;
};

static void sending(void *arg)
{
    struct sender *s = arg;

    send_big(s->c);
    s->done = true;
}

static void both_ways(struct conn *c)
{
    struct sender s = { c, false };

    CHECK_INT(co_go(sending, &s, NULL), 0);
    receive_big(c);
    while (!s.done)
        co_sleep(co_in(1));
}

static void big(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = client_of(files());
    struct err err = { 0 };
    int fd[2], small = 4096;
    struct side s;
    struct conn c;

    (void)arg;
    net_pair(fd);
    for (int i = 0; i < 2; i++) /* so that most writes are taken in part */
        CHECK_INT(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    start(&s, fd[0], both_ways);
    CHECK_INT(shake(&c, fd[1], t, "box.test", &err), 0);
    both_ways(&c);
    conn_finish(&c);
    wait_side(&s);
}

TEST(large_transfers_go_both_ways_at_once_through_small_buffers) { test_co(big, NULL); }

static bool released;

static void waits(struct conn *c) /* and reads nothing meanwhile */
{
    while (!released)
        co_sleep(co_in(1));
    while (conn_fill(c, CONN_BUF, co_in(NET_MS)) > 0)
        c->pos = c->len;
    CHECK_INT(errno, ECONNRESET); /* in the middle of a record: no end */
}

static void stalled(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = client_of(files());
    AUTO(freep) char *text = xcalloc(1, BIG);
    struct err err = { 0 };
    struct side s;
    struct conn c;
    int fd[2];

    (void)arg;
    released = false;
    net_pair(fd);
    start(&s, fd[0], waits);
    CHECK_INT(shake(&c, fd[1], t, "box.test", &err), 0);
    CHECK_INT(conn_put(&c, text, BIG, co_in(50)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    conn_finish(&c);
    released = true;
    wait_side(&s);
}

TEST(a_reader_that_stops_is_given_up) { test_co(stalled, NULL); }

static void many(void *arg)
{
    AUTO(tls_closep) struct tls_context *t = client_of(files());
    static struct side s[MANY];
    static struct conn c[MANY];
    struct err err = { 0 };
    int fd[2];

    (void)arg;
    for (int i = 0; i < MANY; i++) {
        net_pair(fd);
        start(&s[i], fd[0], echo);
        CHECK_INT(shake(&c[i], fd[1], t, "box.test", &err), 0);
    }
    for (int i = 0; i < MANY; i++)
        expect(&c[i], "still there");
    for (int i = 0; i < MANY; i++) {
        conn_finish(&c[i]);
        wait_side(&s[i]);
    }
}

TEST(a_hundred_connections_live_next_to_each_other) { test_co(many, NULL); }

/* ---- HTTP on top ---- */

static int get_hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("hello"));
}

static int post_echo(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)body;
    return call_read_all(c, &b, err) ? -1 : call_reply(c, 200, "text/plain", buf_str(&b));
}

static int get_file(struct call *c, void *body, struct err *err)
{
    AUTO(closep) int fd = open(made.chain, O_RDONLY | O_CLOEXEC);
    struct stat st;

    (void)body;
    CHECK(fd >= 0 && !fstat(fd, &st));
    return call_send_file(c, fd, &st, "text/plain", err);
}

static const struct route routes[] = {
    { "GET", "/hello", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_hello, "hello", "", 0 },
    { "POST", "/echo", ROUTE_RAW, ROUTE_OPEN, NULL, 0, post_echo, "echo", "", 0 },
    { "GET", "/file", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_file, "file", "", 0 },
    { 0 },
};
static const struct route *const tables[] = { routes, NULL };
static const struct route *const no_tables[] = { NULL };

static struct client http_client;
static struct client_to to;

static void ask(const char *method, const char *path, struct str body, struct buf *out)
{
    struct client_request rq = {
        .method = str_of(method), .target = str_of(path), .host = STR("box.test"), .body = body
    };
    struct err err = { 0 };
    struct exchange *x = client_do(&http_client, &to, &rq, &err);

    if (!x)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_INT(x->head.status, 200);
    CHECK_INT(http_body_read_all(&x->body, out, &err), 0);
    client_close(x);
}

static void check_http(void)
{
    AUTO(buf_free) struct buf b = { 0 }, large = { 0 };
    AUTO(freep) char *text = xmalloc(BIG);
    struct stat st;

    for (int i = 0; i < 3; i++) {
        b.len = 0;
        ask("GET", "/hello", (struct str){ 0 }, &b);
        CHECK_STR(b.data, "hello");
    }
    CHECK_INT(http_client.dialled, 1);
    CHECK_INT(http_client.reused, 2);
    for (size_t i = 0; i < BIG; i++)
        text[i] = (char)byte_at(i);
    ask("POST", "/echo", (struct str){ text, BIG }, &large);
    CHECK_INT(large.len, BIG);
    CHECK(!memcmp(large.data, text, BIG));
    b.len = 0;
    ask("GET", "/file", (struct str){ 0 }, &b);
    CHECK_INT(stat(made.chain, &st), 0);
    CHECK_INT(b.len, st.st_size);
    CHECK(strstr(b.data, "END CERTIFICATE"));
    CHECK_INT(http_client.dialled, 1);
}

static void plain_text(const struct addr *a)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = rig_connect(a);

    rig_say(fd, "GET /hello HTTP/1.1\r\nHost: box.test\r\n\r\n");
    CHECK_INT(rig_hear_all(fd, &b), 0);
    CHECK(!strncmp(b.data, "HTTP/1.1 400 Bad Request\r\n", 26));
    CHECK(strstr(b.data, "this port speaks TLS"));
    co_close(fd);
}

static void http(void *arg)
{
    AUTO(tls_closep) struct tls_context *s = server(), *t = client_of(made.ca);
    struct httpd d = { .tables = tables, .tls = tls_guard(s) };
    struct rig r = { .d = &d };

    (void)arg;
    rig_start(&r);
    client_init(&http_client);
    to = (struct client_to){
        .addr = &r.addr, .key = "box.test:443", .tls = tls_guard(t), .tls_name = "box.test"
    };
    check_http();
    plain_text(&r.addr);
    client_finish(&http_client);
    co_cancel_all();
    rig_wait(&r);
}

TEST(HTTP_is_served_and_asked_for_and_plain_text_is_told_so) { test_co(http, NULL); }

/* Client over TLS to the front, front over TLS to the upstream. */
static struct client_to up_to;
static struct client up_client;

static int through(struct call *c, struct err *err)
{
    struct proxy p = { .client = &up_client, .to = up_to, .scheme = "https" };

    return proxy_call(&p, c, err) < 0 ? -1 : 1;
}

static void proxied(void *arg)
{
    AUTO(tls_closep) struct tls_context *s = server(), *t = client_of(made.ca);
    struct httpd back = { .tables = tables, .tls = tls_guard(s) };
    struct httpd front = { .tables = no_tables, .first = through, .tls = tls_guard(s) };
    struct rig b = { .d = &back }, f = { .d = &front };

    (void)arg;
    rig_start(&b);
    rig_start(&f);
    client_init(&http_client);
    client_init(&up_client);
    to = up_to = (struct client_to){
        .addr = &f.addr, .key = "front", .tls = tls_guard(t), .tls_name = "box.test"
    };
    up_to.addr = &b.addr;
    up_to.key = "back";
    check_http();
    client_finish(&http_client);
    client_finish(&up_client);
    co_cancel_all();
    rig_wait(&b);
    rig_wait(&f);
}

TEST(the_proxy_passes_both_ways_between_two_encrypted_connections) { test_co(proxied, NULL); }

/* An upgrade through the front, whose upstream speaks in bytes. */
static void shouting(int fd, int nth)
{
    AUTO(buf_free) struct buf b = { 0 };

    (void)nth;
    if (!rig_hear(fd, &b, "\r\n\r\n"))
        return;
    rig_say(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    b.len = 0;
    if (rig_hear(fd, &b, "quiet"))
        rig_say(fd, "LOUD");
}

static void upgraded(void *arg)
{
    AUTO(tls_closep) struct tls_context *s = server(), *t = client_of(made.ca);
    struct httpd front = { .tables = no_tables, .first = through, .tls = tls_guard(s) };
    struct rig up = { .script = shouting }, f = { .d = &front };
    struct err err = { 0 };
    char b[512] = { 0 };
    struct conn c;

    (void)arg;
    rig_start(&up);
    rig_start(&f);
    client_init(&up_client);
    up_to = (struct client_to){ .addr = &up.addr };
    CHECK_INT(shake(&c, rig_connect(&f.addr), t, "box.test", &err), 0);
    CHECK_INT(http_put(&c, STR("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                               "Upgrade: x\r\n\r\n")) ||
                  http_flush(&c),
              0);
    CHECK(conn_read(&c, b, sizeof(b) - 1, co_in(NET_MS)) > 0);
    CHECK(strstr(b, "101 Switching"));
    CHECK_INT(http_put(&c, STR("quiet")) || http_flush(&c), 0);
    CHECK_INT(conn_read_full(&c, b, 4, co_in(NET_MS)), 0);
    CHECK(!memcmp(b, "LOUD", 4));
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 0); /* the upstream's end, told as such */
    conn_finish(&c);
    client_finish(&up_client);
    co_cancel_all();
    rig_wait(&up);
    rig_wait(&f);
}

TEST(an_upgrade_passes_through_TLS_and_its_end_too) { test_co(upgraded, NULL); }

/* ---- files that change ---- */

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static void replaced(void *arg)
{
    struct tls_made m = make("changing", 0, false), again;
    AUTO(tls_closep) struct tls_context *s = NULL;
    struct err err = { 0 };

    (void)arg;
    CHECK_INT(tls_server(m.chain, m.key, &s, &err), 0);
    CHECK_INT(tls_reload(s, &err), 0);
    again = make("changing", 0, true);
    CHECK(again.kept_ca);
    CHECK_STR(again.fingerprint, m.fingerprint);
    CHECK_INT(tls_reload(s, &err), 1);
    CHECK_INT(tls_reload(s, &err), 0);
    put_file(m.key, "no key\n");
    CHECK_INT(tls_reload(s, &err), -1);
    CHECK(strstr(err.msg, "the former certificate stays in use"));
    CHECK(strstr(err.msg, m.key));
    CHECK_INT(tls_reload(s, &err), 0); /* told once */
    CHECK_INT(unlink(m.key), 0);
    CHECK_INT(tls_reload(s, &err), -1);
    tls_made_free(&m);
    tls_made_free(&again);
}

TEST(changed_files_are_used_and_broken_ones_are_not) { test_co(replaced, NULL); }

TEST(files_that_cannot_be_used_are_named)
{
    struct tls_context *t = NULL;
    struct err err = { 0 };
    char path[128];

    files();
    CHECK_INT(tls_server("/nonexistent/a.pem", made.key, &t, &err), -1);
    CHECK(strstr(err.msg, "/nonexistent/a.pem"));
    CHECK_INT(tls_server(made.chain, home, &t, &err), -1);
    CHECK(strstr(err.msg, "not a file"));
    CHECK_INT(tls_server(made.chain, made.ca_key, &t, &err), -1); /* not the certificate's */
    CHECK(strstr(err.msg, made.ca_key));
    CHECK_INT(tls_client("/nonexistent/ca.pem", &t, &err), -1);
    snprintf(path, sizeof(path), "%s/empty", home);
    put_file(path, "");
    CHECK_INT(tls_client(path, &t, &err), -1);
    CHECK(strstr(err.msg, path));
    CHECK(!t);
}

/* ---- making them ---- */

TEST(nothing_is_overwritten_unless_asked_and_keys_are_private)
{
    struct tls_made m = make("own", 0, false), again = { 0 };
    struct tls_order o = { .domain = "box.test" };
    struct err err = { 0 };
    struct stat st;
    char dir[128];

    snprintf(dir, sizeof(dir), "%s/own", home);
    o.dir = dir;
    CHECK_INT(stat(m.key, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK_INT(stat(m.ca_key, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK_INT(stat(m.ca, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0644);
    CHECK_INT(tls_make(&o, &again, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(strstr(err.msg, "--force"));
    o.force = true;
    o.domain = "other.test"; /* the CA vouches for box.test only */
    CHECK_INT(tls_make(&o, &again, &err), -1);
    CHECK(strstr(err.msg, "--new-ca"));
    o.new_ca = true;
    CHECK_INT(tls_make(&o, &again, &err), 0);
    CHECK(strcmp(again.fingerprint, m.fingerprint) != 0);
    tls_made_free(&m);
    tls_made_free(&again);
}

TEST(a_domain_is_a_name_of_two_labels_or_more)
{
    static const char *const good[] = { "cove.localhost", "a.b", "x-1.example.org", "1.a" };
    static const char *const wrong[] = { "",        "localhost", "a..b",      ".a.b",  "a.b.",
                                         "A.b",     "a_b.c",     "-a.b",      "a-.b",  "*.a.b",
                                         "1.2.3.4", "a.b:80",    "a.b,DNS:x", "a.b\n", "a. b" };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK_INT(tls_check_domain(good[i], &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        if (!tls_check_domain(wrong[i], &err))
            CHECK_STR(wrong[i], "refused");
}
