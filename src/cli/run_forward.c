/* run_forward.c - `--forward HOST:PORT`: a listener on loopback whose connections end at a port
 * inside. The keeper makes the inner socket in the sandbox's network namespace; we connect it and
 * carry bytes, so nothing inside ever holds a socket of ours. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/run.h"
#include "io/sock.h"

enum { CONNECT_MS = 5000 };

struct listening {
    struct run *run;
    const struct run_forward *forward;
};

struct carried { /* one connection; two coroutines use it, the second to leave frees it */
    struct run *run;
    int outer, inner;
    uint16_t port;
    int users;
};

static int inner_socket(struct run *r, uint16_t port, bool v6, struct err *err)
{
    struct keep_request q = { .verb = KEEP_SOCKET,
                              .u.socket = { .port = port, .count = 1, .v6 = v6 } };
    int fd;

    memcpy(q.id, r->id, sizeof(q.id));
    return run_keeper_ask(r, &q, &fd, err) ? -1 : fd;
}

/* 127.0.0.1 reaches what listens there or anywhere; a service on ::1 alone needs the second try. */
static int connect_inside(struct run *r, uint16_t port)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct sockaddr_in a4 = { .sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
                                   .sin6_port = htons(port),
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        struct err err;
        int fd = inner_socket(r, port, v6, &err);

        if (fd < 0)
            return -1;
        if (!co_connect(fd, v6 ? (void *)&a6 : (void *)&a4, v6 ? sizeof(a6) : sizeof(a4),
                        co_in(CONNECT_MS)))
            return fd;
        co_close(fd);
    }
    return -1;
}

static void leave(struct carried *c)
{
    if (--c->users)
        return;
    co_close(c->outer);
    co_close(c->inner);
    free(c);
}

static void carry_back(void *arg)
{
    struct carried *c = arg;

    co_carry(c->inner, c->outer);
    leave(c);
}

static void carry_out(void *arg)
{
    struct carried *c = arg;

    c->inner = connect_inside(c->run, c->port);
    if (c->inner >= 0) {
        c->users++;
        if (co_go(carry_back, c, NULL))
            c->users--;
        else
            co_carry(c->outer, c->inner);
    }
    leave(c);
}

static void serve(void *arg)
{
    struct listening *l = arg;
    int fd;

    while ((fd = co_accept(l->forward->listener)) >= 0) {
        struct carried *c = xcalloc(1, sizeof(*c));

        *c = (struct carried){
            .run = l->run, .outer = fd, .inner = -1, .port = l->forward->port, .users = 1
        };
        if (co_go(carry_out, c, NULL))
            leave(c);
    }
    free(l);
}

int run_forward_open(struct run *r, const char *text, struct err *err)
{
    struct str host, inner;
    uint64_t outer, port;
    struct addr a;
    char where[32];
    int fd;

    if (r->nforwards == RUN_FORWARDS)
        return err_set(err, ERR_LIMIT, "--forward: more than %d", RUN_FORWARDS);
    if (!str_cut(str_of(text), ':', &host, &inner) || str_u64(host, &outer) ||
        str_u64(inner, &port) || outer > 65535 || !port || port > 65535)
        return err_set(err, ERR_INVALID, "--forward: '%s' is not HOST-PORT:PORT (try 8080:80)",
                       text);
    snprintf(where, sizeof(where), "127.0.0.1:%u", (unsigned)outer);
    if (addr_parse(str_of(where), &a, err))
        return -1;
    fd = sock_listen(&a, err);
    if (fd < 0)
        return err_in(err, "--forward %s", text);
    r->forwards[r->nforwards++] = (struct run_forward){ fd, (uint16_t)port };
    return 0;
}

void run_forward_serve(struct run *r)
{
    for (size_t i = 0; i < r->nforwards; i++) {
        struct listening *l = xcalloc(1, sizeof(*l));

        *l = (struct listening){ r, &r->forwards[i] };
        if (co_go(serve, l, NULL))
            abort();
    }
}
