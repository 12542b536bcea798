/* ws_echo.c - the WebSocket peer of test_websocket.py: sends each message back.
 *
 * usage: ws-echo PORT                  a server on 127.0.0.1; PORT 0 takes a free one
 *        ws-echo connect PORT TARGET   a client that echoes what the server there sends
 *
 * The server prints "ready PORT". Its paths: / by whole messages, /pieces fragment by fragment,
 * /close ends the connection itself. */
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "io/sock.h"
#include "io/ws.h"

static char **args;
static int status = 1;

static int echo(struct ws *ws, struct err *err)
{
    struct ws_message m;
    int r;

    while ((r = ws_read(ws, &m, err)) > 0)
        if (ws_send(ws, m.op, m.data.p, m.data.n))
            return err_sys(err, "echo");
    return r;
}

static int serve_messages(struct call *c, void *body, struct err *err)
{
    static const char *const protocols[] = { "echo.v2", "echo", NULL };
    AUTO(ws_finish) struct ws ws = { 0 };
    int r = ws_accept(c, &ws, protocols, err);

    (void)body;
    return r <= 0 ? r : echo(&ws, err);
}

static int serve_pieces(struct call *c, void *body, struct err *err)
{
    AUTO(ws_finish) struct ws ws = { 0 };
    struct ws_message m;
    bool first = true;
    int r = ws_accept(c, &ws, NULL, err);

    (void)body;
    if (r <= 0)
        return r;
    for (; (r = ws_read_piece(&ws, &m, err)) > 0; first = m.end)
        if (ws_send_piece(&ws, first ? m.op : WS_CONT, m.data.p, m.data.n, m.end))
            return err_sys(err, "echo");
    return r;
}

static int serve_close(struct call *c, void *body, struct err *err)
{
    AUTO(ws_finish) struct ws ws = { 0 };
    int r = ws_accept(c, &ws, NULL, err);

    (void)body;
    if (r <= 0)
        return r;
    ws_close(&ws, 4001, "enough");
    return 0;
}

static const struct route routes[] = {
    { "GET", "/", ROUTE_RAW, .fn = serve_messages },
    { "GET", "/pieces", ROUTE_RAW, .fn = serve_pieces },
    { "GET", "/close", ROUTE_RAW, .fn = serve_close },
    { 0 },
};

static void fail(const struct err *err) { fprintf(stderr, "ws-echo: %s\n", err->msg); }

static char host[32];

static int address(const char *port, struct addr *a, struct err *err)
{
    snprintf(host, sizeof(host), "127.0.0.1:%s", port);
    return addr_parse(str_of(host), a, err);
}

static void server(void *arg)
{
    static const struct route *const tables[] = { routes, NULL };
    static struct httpd d = { .tables = tables };
    struct err err;
    struct addr a;
    char name[64];
    int fd = address(args[0], &a, &err) ? -1 : sock_listen(&a, &err);

    (void)arg;
    if (fd < 0) {
        fail(&err);
        return;
    }
    getsockname(fd, (struct sockaddr *)&a.sa, &a.len);
    addr_print(&a, name, sizeof(name));
    printf("ready %s\n", strrchr(name, ':') + 1);
    fflush(stdout);
    httpd_listen(&d, fd);
}

static int talk(struct conn *c, struct err *err)
{
    AUTO(ws_finish) struct ws ws = { 0 };
    struct ws_request r = { .host = host, .target = args[2] };

    return ws_connect(&ws, c, &r, err) || echo(&ws, err) ? -1 : 0;
}

static void client(void *arg)
{
    struct err err;
    struct addr a;
    struct conn c;
    int fd = address(args[1], &a, &err) ? -1 : sock_open(&a, &err);

    (void)arg;
    if (fd < 0) {
        fail(&err);
        return;
    }
    conn_init(&c, fd);
    if (co_connect(fd, &a.sa, a.len, co_in(5000)))
        err_sys(&err, "connect");
    else
        status = talk(&c, &err) ? 1 : 0;
    if (status)
        fail(&err);
    conn_finish(&c);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    args = argv + 1;
    if (argc == 2)
        return co_run(server, NULL) ? 1 : status;
    if (argc == 4 && !strcmp(argv[1], "connect"))
        return co_run(client, NULL) ? 1 : status;
    fprintf(stderr, "usage: ws-echo PORT | ws-echo connect PORT TARGET\n");
    return 2;
}
