/* forward.c - `cove forward`: a port of this machine that leads into a sandbox on the server.
 *
 * Each connection here is one there: a request that is upgraded to a tunnel (GET .../tunnel), then
 * bytes both ways, each direction ending by itself. Any protocol passes, not only HTTP. */
#include "cli/forward.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "io/sock.h"

enum { CARRY_BYTES = 16 << 10, FORWARDS = 64 };

struct forward_options {
    struct remote_options remote;
    const char *bind;
};

static const struct args_option forward_options[] = {
    OPTION(struct forward_options, bind, "bind", ARGS_TEXT, .value = "ADDR", .def = "127.0.0.1",
           .help = "listen here; anything but loopback lets other machines in"),
    REMOTE_OPTIONS(struct forward_options, "print what listens where as a JSON object"),
    {}
};

static const struct args_word forward_words[] = {
    { .name = "ID", .help = "the sandbox" },
    { .name = "[LOCAL:]PORT",
      .help = "a port inside, and the one here that leads to it: the same without it, any free "
              "one with 0",
      .flags = ARGS_MANY },
    {}
};

int forward_parse(const char *text, struct forward_ports *out, struct err *err)
{
    struct str local, inner;
    uint64_t from, to;
    bool two = str_cut(str_of(text), ':', &local, &inner);

    if (!two)
        inner = local;
    if (str_u64(inner, &to) || !to || to > 65535 || str_u64(local, &from) || from > 65535)
        return err_set(err, ERR_INVALID, "'%.60s' is not PORT or LOCAL:PORT (try 8080:80)", text);
    *out = (struct forward_ports){ (uint16_t)from, (uint16_t)to };
    return 0;
}

/* ---- one connection ---- */

struct forwarding { /* outlives all coroutines below: the command waits for them */
    struct remote *remote;
    const char *id;
    size_t live; /* of them */
};

struct listening {
    struct forwarding *in;
    struct forward_ports ports;
    int listener;
};

struct carried { /* two coroutines use it, the second to leave frees it */
    struct listening *listening;
    int outer;
    struct exchange *x;
    int users;
};

static struct exchange *open_tunnel(const struct listening *l, struct err *err)
{
    struct remote *r = l->in->remote;
    AUTO(buf_free) struct buf headers = { 0 };
    AUTO(buf_free) struct buf target = { 0 };
    char more[40];
    struct client_request rq = { .method = STR("GET"), .host = str_of(r->host) };
    AUTO(buf_free) struct buf reply = { 0 };
    struct exchange *x;
    struct err ignored;

    snprintf(more, sizeof(more), "/tunnel?port=%u", l->ports.inner);
    if (remote_sandbox_target(l->in->id, more, &target, err))
        return NULL;
    remote_put_headers(r, &headers);
    buf_puts(&headers, "Connection: Upgrade\r\nUpgrade: cove-tunnel\r\n");
    rq.target = buf_str(&target);
    rq.headers = buf_str(&headers);
    x = client_do(&r->client, &r->to, &rq, err);
    if (!x || x->head.status == 101)
        return x;
    x->body.max = CARRY_BYTES;
    (void)!http_body_read_all(&x->body, &reply, &ignored);
    envd_problem(x->head.status, buf_str(&reply), err);
    client_close(x);
    return NULL;
}

static int start(struct forwarding *f, co_fn *fn, void *arg)
{
    int failed = co_go(fn, arg, NULL);

    f->live += !failed;
    return failed;
}

static void leave(struct carried *c)
{
    if (--c->users)
        return;
    co_close(c->outer);
    if (c->x)
        client_close(c->x);
    free(c);
}

/* From the tunnel to the one who connected here. */
static void carry_back(void *arg)
{
    struct carried *c = arg;
    char *bytes = xmalloc(CARRY_BYTES);
    ssize_t n;

    while ((n = conn_read(c->x->conn, bytes, CARRY_BYTES, NEVER)) > 0)
        if (co_write(c->outer, bytes, (size_t)n, NEVER))
            break;
    if (n < 0) /* it broke: the other one must not take it for an end */
        setsockopt(c->outer, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 },
                   sizeof(struct linger));
    shutdown(c->outer, n < 0 ? SHUT_RDWR : SHUT_WR);
    free(bytes);
    c->listening->in->live--;
    leave(c);
}

static void carry_in(struct carried *c)
{
    char *bytes = xmalloc(CARRY_BYTES);
    ssize_t n;

    while ((n = co_read(c->outer, bytes, CARRY_BYTES, NEVER)) > 0)
        if (conn_put(c->x->conn, bytes, (size_t)n, NEVER) || conn_flush(c->x->conn, NEVER))
            break;
    if (n)
        conn_break(c->x->conn);
    else
        conn_end_output(c->x->conn);
    free(bytes);
}

static void carry(void *arg)
{
    struct carried *c = arg;
    struct listening *l = c->listening;
    struct err err = { 0 };

    c->x = open_tunnel(l, &err);
    if (c->x) {
        c->users++;
        if (start(l->in, carry_back, c))
            c->users--;
        else
            carry_in(c);
    } else if (!co_cancelled())
        args_fail(l->in->remote->args, 1, &err);
    l->in->live--;
    leave(c);
}

static void serve(void *arg)
{
    struct listening *l = arg;
    int fd;

    while ((fd = co_accept(l->listener)) >= 0) {
        struct carried *c = xcalloc(1, sizeof(*c));

        *c = (struct carried){ .listening = l, .outer = fd, .users = 1 };
        if (start(l->in, carry, c))
            leave(c);
    }
    l->in->live--;
}

/* ---- listening ---- */

static int open_listener(struct listening *l, const char *bind, struct err *err)
{
    bool six = strchr(bind, ':') != NULL;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } is = { 0 };
    socklen_t n = sizeof(is);
    struct addr a;
    char where[80];

    snprintf(where, sizeof(where), "%s%.60s%s:%u", six ? "[" : "", bind, six ? "]" : "",
             l->ports.outer);
    if (addr_parse(str_of(where), &a, err))
        return err_in(err, "--bind");
    l->listener = sock_listen(&a, err);
    if (l->listener < 0 || getsockname(l->listener, &is.any, &n))
        return l->listener < 0 ? -1 : err_sys(err, "getsockname");
    l->ports.outer = ntohs(six ? is.v6.sin6_port : is.v4.sin_port);
    return 0;
}

static void announce(const struct forwarding *f, const struct listening *l, size_t n)
{
    const struct forward_options *o = f->remote->args->values;
    AUTO(buf_free) struct buf b = { 0 };

    json_open(&b, '{');
    json_kv_str(&b, "id", f->id);
    json_key(&b, "forwards");
    json_open(&b, '[');
    for (size_t i = 0; i < n; i++) {
        json_open(&b, '{');
        json_kv_str(&b, "address", o->bind);
        json_kv_int(&b, "local", l[i].ports.outer);
        json_kv_int(&b, "port", l[i].ports.inner);
        json_close(&b, '}');
        if (!o->remote.json)
            printf("%s port %u leads to port %u of %s\n", o->bind, l[i].ports.outer,
                   l[i].ports.inner, f->id);
    }
    json_close(&b, ']');
    json_close(&b, '}');
    if (o->remote.json)
        remote_print(&b);
    fflush(stdout);
}

/* Until Ctrl-C or SIGTERM, which are how this command is meant to end. */
static int wait_for_the_end(struct err *err)
{
    AUTO(co_closep) int fd = -1;
    struct signalfd_siginfo info;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, "signalfd");
    (void)!co_read(fd, &info, sizeof(info), NEVER);
    return 0;
}

static int listen_all(struct forwarding *f, struct listening *all, size_t n, struct err *err)
{
    const struct forward_options *o = f->remote->args->values;

    if (n > FORWARDS)
        return err_set(err, ERR_LIMIT, "more than %d ports", FORWARDS);
    for (size_t i = 0; i < n; i++) {
        all[i].in = f;
        if (forward_parse(f->remote->args->words[i + 1], &all[i].ports, err) ||
            open_listener(&all[i], o->bind, err))
            return -1;
    }
    announce(f, all, n);
    for (size_t i = 0; i < n; i++)
        if (start(f, serve, &all[i]))
            return err_set(err, ERR_INTERNAL, "no memory for a coroutine");
    return wait_for_the_end(err);
}

static int forward(struct remote *r, struct err *err)
{
    size_t n = r->args->n - 1;
    AUTO(freep) struct listening *all = xcalloc(n, sizeof(*all));
    struct forwarding f = { .remote = r };
    struct arena a = { 0 };
    struct remote_sandbox s;
    int failed = remote_sandbox(r, r->args->words[0], &a, &s, err);

    for (size_t i = 0; i < n; i++)
        all[i].listener = -1;
    f.id = s.id;
    if (!failed)
        failed = listen_all(&f, all, n, err);
    co_cancel_all();
    while (f.live)
        co_pass();
    for (size_t i = 0; i < n; i++)
        co_close(all[i].listener);
    arena_free(&a);
    return failed ? -1 : 0;
}

static int run_forward(struct args *a)
{
    const struct forward_options *o = a->values;

    return remote_command(a, &o->remote, forward);
}

const struct command command_forward = {
    .name = "forward",
    .help = "let a port here lead to one in a sandbox, until Ctrl-C",
    .options = forward_options,
    .size = sizeof(struct forward_options),
    .words = forward_words,
    .run = run_forward,
};
