/* test_ws_handshake.c - how a connection becomes a WebSocket, asked for and answered. */
#include <unistd.h>

#include "base/mem.h"
#include "io/ws.h"
#include "test.h"

#define NO_MASK "\0\0\0\0"

static void pair_of(int fd[2])
{
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

static int serve_echo(struct call *c, void *body, struct err *err)
{
    static const char *const protocols[] = { "two", "one", NULL };
    AUTO(ws_finish) struct ws ws = { 0 };
    struct ws_message m;
    int r = ws_accept(c, &ws, protocols, err);

    (void)body;
    if (r <= 0)
        return r;
    while ((r = ws_read(&ws, &m, err)) > 0) {
        if (str_is(m.data, "path")) /* the head outlives the buffer it came in */
            r = ws_send(&ws, WS_TEXT, c->param[0].p, c->param[0].n);
        else
            r = ws_send(&ws, m.op, m.data.p, m.data.n);
        CHECK_INT(r, 0);
    }
    return r;
}

static const struct route routes[] = {
    { "GET", "/ws/{name}", ROUTE_RAW, .fn = serve_echo },
    { 0 },
};
static const struct route *const tables[] = { routes, NULL };
static struct httpd server = { .tables = tables };

static int served(void) /* a connection to the server */
{
    int fd[2];

    pair_of(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    return fd[1];
}

/* Sends a request, and nothing after it, and returns all that comes back. */
static const char *ask(struct str request)
{
    static char text[1024];
    int fd = served();
    ssize_t got;

    CHECK_INT(co_write(fd, request.p, request.n, co_in(1000)), 0);
    shutdown(fd, SHUT_WR);
    got = co_read_full(fd, text, sizeof(text) - 1, co_in(3000));
    CHECK(got >= 0);
    text[got] = 0;
    co_close(fd);
    return text;
}

#define GET(headers)     "GET /ws/a HTTP/1.1\r\nHost: x\r\n" headers "\r\n"
#define UPGRADE          "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
#define VERSION          "Sec-WebSocket-Version: 13\r\n"
#define KEY              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define ASK(request)     ask(STR(request))
#define HAS(answer, has) CHECK(strstr((answer), (has)))

static void server_side(void *arg)
{
    const char *a;

    (void)arg;
    a = ASK(GET(UPGRADE VERSION KEY));
    CHECK(!strncmp(a, "HTTP/1.1 101 Switching Protocols\r\n", 34));
    HAS(a, "\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
    HAS(a, "\r\nConnection: Upgrade\r\n");
    HAS(a, "\r\nUpgrade: websocket\r\n");
    CHECK(!strstr(a, "Sec-WebSocket-Protocol"));
    CHECK(!strstr(a, "Content-"));
    CHECK(!strstr(a, "chunked"));
    a = ASK(GET(UPGRADE VERSION KEY "Connection: close\r\nSec-WebSocket-Protocol: Two, one\r\n"
                                    "Sec-WebSocket-Protocol: zero\r\n") "\x81\x82" NO_MASK "hi");
    HAS(a, "\r\nSec-WebSocket-Protocol: one\r\n");
    HAS(a, "\r\n\r\n\x81\x02hi"); /* sent before the answer came */
    CHECK(!strstr(a, "Connection: close"));
}

TEST(the_server_upgrades) { test_co(server_side, NULL); }

static void server_refuses(void *arg)
{
    static const struct str no_upgrades[] = {
        STR(GET("")),
        STR(GET("Upgrade: websocket\r\n" VERSION KEY)),
        STR(GET("Connection: Upgrade\r\n" VERSION KEY)),
        STR(GET(UPGRADE KEY)),
        STR(GET(UPGRADE KEY "Sec-WebSocket-Version: 8\r\n")),
        STR("GET /ws/a HTTP/1.0\r\n" UPGRADE VERSION KEY "\r\n"),
        STR("HEAD /ws/a HTTP/1.1\r\nHost: x\r\n" UPGRADE VERSION KEY "\r\n"),
    };
    const char *a;

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(no_upgrades); i++) {
        a = ask(no_upgrades[i]);
        CHECK(!strncmp(a, "HTTP/1.1 426 Upgrade Required\r\n", 31));
        HAS(a, "\r\nSec-WebSocket-Version: 13\r\n");
        HAS(a, "\r\nUpgrade: websocket\r\n");
    }
    a = ASK(GET(UPGRADE VERSION));
    CHECK(!strncmp(a, "HTTP/1.1 400 ", 13));
    a = ASK(GET(UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n"));
    CHECK(!strncmp(a, "HTTP/1.1 400 ", 13));
    HAS(a, "Sec-WebSocket-Key is not 16 bytes in base64");
    a = ASK(GET(UPGRADE VERSION KEY "Content-Length: 2\r\n") "hi");
    CHECK(!strncmp(a, "HTTP/1.1 400 ", 13));
}

TEST(the_server_refuses_what_is_no_upgrade) { test_co(server_refuses, NULL); }

static void client_side(void *arg)
{
    static const char *const protocols[] = { "one", "two", NULL };
    struct ws_request q = { "x", "/ws/name", protocols, "Origin: http://x\r\n" };
    struct ws ws = { 0 };
    struct ws_message m;
    struct conn conn;
    struct err err;

    (void)arg;
    conn_init(&conn, served());
    CHECK_INT(ws_connect(&ws, &conn, &q, &err), 0);
    CHECK_STR(ws.protocol, "two");
    CHECK_INT(ws_send(&ws, WS_TEXT, "hello", 5), 0);
    CHECK_INT(ws_read(&ws, &m, &err), 1);
    CHECK(m.op == WS_TEXT && str_is(m.data, "hello"));
    CHECK_INT(ws_send(&ws, WS_TEXT, "path", 4), 0);
    CHECK_INT(ws_read(&ws, &m, &err), 1);
    CHECK(str_is(m.data, "name"));
    ws_close(&ws, WS_NORMAL, "done");
    CHECK_INT(ws_read(&ws, &m, &err), 0);
    CHECK_INT(ws.code, WS_NORMAL);
    ws_finish(&ws);
    conn_finish(&conn);
}

TEST(the_client_connects) { test_co(client_side, NULL); }

static const struct answer {
    const char *status, *headers, *error;
} answers[] = {
    { "404 No", "", "the server answered a WebSocket handshake with 404" },
    { "101 Go", "", "the server did not understand the WebSocket handshake" },
    { "101 Go", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n",
      "the server did not understand the WebSocket handshake" },
    { "101 Go", "Sec-WebSocket-Extensions: x\r\n", "the server uses an extension nobody offered" },
    { "101 Go", "Sec-WebSocket-Protocol: x\r\n", "the server chose a subprotocol nobody offered" },
};

struct fake {
    int fd;
    const struct answer *answer;
    bool sign; /* give the right accept key */
};

static void fake_server(void *arg)
{
    struct fake *f = arg;
    AUTO(freep) struct http_head *h = xmalloc(sizeof(*h));
    AUTO(buf_free) struct buf b = { 0 };
    char accept[WS_ACCEPT_LEN + 1];
    struct conn c;
    struct err err;

    conn_init(&c, f->fd);
    CHECK_INT(http_read_head(&c, HTTP_REQUEST, h, &err), 1);
    ws_accept_key(http_get(h, "sec-websocket-key"), accept);
    buf_printf(&b, "HTTP/1.1 %s\r\n%s", f->answer->status, f->answer->headers);
    if (f->sign)
        buf_printf(&b, "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: %s\r\n",
                   accept);
    buf_puts(&b, "\r\n");
    CHECK(!http_put(&c, buf_str(&b)) && !http_flush(&c));
    conn_finish(&c);
}

static void client_refuses(void *arg)
{
    static const struct ws_request q = { .host = "x", .target = "/" };

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct ws ws = { 0 };
        struct conn conn;
        struct err err;
        struct fake f = { .answer = &answers[i], .sign = i > 2 };
        int fd[2];

        pair_of(fd);
        f.fd = fd[0];
        conn_init(&conn, fd[1]);
        CHECK_INT(co_go(fake_server, &f, NULL), 0);
        CHECK_INT(ws_connect(&ws, &conn, &q, &err), -1);
        CHECK_STR(err.msg, answers[i].error);
        ws_finish(&ws); /* nothing to finish */
        conn_finish(&conn);
    }
}

TEST(the_client_refuses_a_false_answer) { test_co(client_refuses, NULL); }
