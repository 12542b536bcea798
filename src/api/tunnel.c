/* tunnel.c - GET /v1/sandboxes/{id}/tunnel: one TCP connection to a port inside, for whoever may
 * use the sandbox. The request is upgraded, and from then on bytes go both ways as they are; each
 * direction ends by itself. The router carries HTTP; this carries what is not (databases, ssh). */
#include <errno.h>

#include "api/api.h"
#include "api/tables.h"
#include "io/proxy.h"

enum { DIAL_MS = 10000 };

struct tunnel_query {
    int64_t port;
};

static const struct field tunnel_query[] = {
    FIELD(struct tunnel_query, port, F_INT, .flags = F_REQUIRED, .min = 1, .max = 65535,
          .help = "of the sandbox's loopback"),
    {},
};

struct tunnel {
    struct conn *outer; /* the client's; the call's own */
    struct conn inner;
    int64_t moved_at; /* by either direction */
    struct co_ref side;
    bool side_runs;
    struct co_cond side_ended;
};

/* One direction, to its end. A silence counts only if the other direction is silent too. */
static int pump(struct tunnel *t, struct conn *from, struct conn *to)
{
    for (;;) {
        struct str piece;
        ssize_t n =
            conn_ready(from) ? 1 : conn_fill(from, CONN_BUF, t->moved_at + proxy_limits.tunnel_ms);

        if (n < 0 && errno == ETIMEDOUT && t->moved_at + proxy_limits.tunnel_ms > co_now())
            continue;
        if (n < 0)
            return -1;
        if (!n) {
            conn_end_output(to);
            return 0;
        }
        piece = conn_peek(from);
        from->pos += piece.n;
        if (http_put(to, piece) || http_flush(to))
            return -1;
        t->moved_at = co_now();
    }
}

static void carry_in(void *arg)
{
    struct tunnel *t = arg;

    if (pump(t, t->outer, &t->inner)) {
        conn_break(&t->inner);
        conn_break(t->outer);
    }
    t->side_runs = false;
    co_cond_wake(&t->side_ended);
}

/* Both directions use what the call owns, so neither may outlive it. */
static void carry(struct tunnel *t)
{
    bool broken;

    co_cond_init(&t->side_ended);
    t->moved_at = co_now();
    t->side_runs = !co_go(carry_in, t, &t->side);
    broken = !t->side_runs || pump(t, &t->inner, t->outer);
    if (broken) {
        conn_break(&t->inner);
        conn_break(t->outer);
    }
    while (t->side_runs && !co_cond_wait(&t->side_ended, NEVER))
        ;
    co_cancel(t->side); /* only where we were cancelled ourselves */
    while (t->side_runs)
        co_pass();
}

static int upgrade_required(struct call *c)
{
    call_header(c, "Connection", "Upgrade");
    call_header(c, "Upgrade", "cove-tunnel");
    return call_reply(
        c, 426, "application/json",
        STR("{\"code\":426,\"message\":\"ask for an upgrade to cove-tunnel, as `cove forward` "
            "does\"}"));
}

static int switch_protocols(struct call *c)
{
    call_header(c, "Connection", "Upgrade");
    call_header(c, "Upgrade", "cove-tunnel");
    c->head.keep = true; /* else the answer would say "close" beside "upgrade" */
    return call_begin(c, 101, NULL, -1) || call_flush(c) ? -1 : 0;
}

static int dial(struct call *c, struct sandbox *s, int64_t port, struct err *err)
{
    struct client_to to;

    if (control_wake(api_of(c)->control, s, err))
        return -1;
    control_touch(s);
    control_to(api_of(c)->control, s, (uint16_t)port, &to);
    return to.dial(to.arg, co_in(DIAL_MS), err);
}

static int get_tunnel(struct call *c, void *body, struct err *err)
{
    struct tunnel_query q = { 0 };
    struct tunnel *t = arena_alloc(&c->arena, sizeof(*t));
    struct sandbox *s = api_sandbox(c, err);
    int fd;

    (void)body;
    if (!s || api_query(c, &q, err))
        return -1;
    if (q.port == PROVIDER_GUEST_PORT) /* some of its routes are the server's alone */
        return err_set(err, ERR_DENIED, "port %d is reached by E2b-Sandbox-Id and -Port only",
                       PROVIDER_GUEST_PORT);
    if (!c->head.upgrade || !str_has_item(http_get(&c->head, "upgrade"), "cove-tunnel"))
        return upgrade_required(c);
    control_hold(s);
    fd = dial(c, s, q.port, err);
    if (fd < 0) {
        control_release(s);
        return -1;
    }
    conn_init(&t->inner, fd);
    t->outer = c->conn;
    http_head_keep(&c->head, &c->arena); /* the buffer is read on; logs still want these */
    c->path.p = arena_strdup(&c->arena, c->path);
    if (!switch_protocols(c))
        carry(t);
    c->close = true;
    control_touch(s);
    conn_finish(&t->inner);
    control_release(s);
    return 0;
}

const struct route api_tunnel_routes[] = {
    { "GET", "/v1/sandboxes/{id}/tunnel", ROUTE_RAW, .fn = get_tunnel, .operation = "openTunnel",
      .help = "Become a TCP connection to a port inside, by an upgrade to cove-tunnel.",
      .query = tunnel_query, .status = 101, .tag = "Sandboxes" },
    {},
};
