/* forward.c - ports of this machine's loopback that lead into a sandbox: a listener for each, whose
 * connections are carried to the port inside until either side or the sandbox ends. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"
#include "io/seats.h"
#include "io/sock.h"
#include "model/door.h"

enum { CONNECT_MS = 5000, ACCEPT_PAUSE_MS = 100 };

struct forward { /* one port; freed when its listener and all of its connections have ended */
    struct forward *next;
    struct control *control;
    struct live *live; /* held */
    uint16_t port;
    int listener;
    struct co_ref accepting;
    struct list carried;
    int64_t conns;
    int users;
    bool closed;
};

struct carried { /* one connection; two coroutines use it, the second to leave frees it */
    struct list in;
    struct forward *forward;
    int outer, inner, users;
};

static void forward_leave(struct forward *f)
{
    if (--f->users)
        return;
    live_release(f->live);
    free(f);
}

static void leave(struct carried *k)
{
    if (--k->users)
        return;
    list_remove(&k->in);
    co_close(k->outer);
    co_close(k->inner);
    k->forward->conns--;
    forward_leave(k->forward);
    free(k);
}

static void carry_back(void *arg)
{
    struct carried *k = arg;

    co_carry(k->inner, k->outer);
    leave(k);
}

/* Nobody knows who connects here: a stray request, as at a public port. The guest's port asks for
 * its token itself, and a private port for one, so only the router knows who may wake for those. */
static int wake(const struct forward *f, struct err *err)
{
    struct sandbox *s = &f->live->s;

    bool asks = !s->public || (f->port == PROVIDER_GUEST_PORT && *s->token);

    if (asks && s->state != SANDBOX_RUNNING)
        return err_set(err, ERR_DENIED, "a forward wakes nobody at a port that asks for a token");
    return control_wake_stray(f->control, s, err);
}

static void carry_out(void *arg)
{
    struct carried *k = arg;
    struct forward *f = k->forward;
    struct provider *p = f->control->provider;
    struct err ignored;

    if (!wake(f, &ignored))
        k->inner = p->ops->dial(p, f->live->s.id, f->port, co_in(CONNECT_MS), &ignored);
    if (k->inner >= 0 && !f->closed) {
        control_touch(&f->live->s);
        k->users++;
        if (control_go(f->control, carry_back, k))
            k->users--;
        else
            co_carry(k->outer, k->inner);
    }
    leave(k);
}

static void accepted(struct forward *f, int fd)
{
    struct carried *k;

    if (f->conns >= control_limits.forward_conns || seats_scarce(fd)) {
        co_close(fd);
        return;
    }
    k = xcalloc(1, sizeof(*k));
    *k = (struct carried){ .forward = f, .outer = fd, .inner = -1, .users = 1 };
    list_push(&f->carried, &k->in);
    f->conns++;
    f->users++;
    if (control_go(f->control, carry_out, k))
        leave(k);
}

static void accept_all(void *arg)
{
    struct forward *f = arg;

    f->accepting = co_self();
    while (!f->closed) {
        int fd = co_accept(f->listener);

        if (fd >= 0)
            accepted(f, fd);
        else if (errno == ECANCELED || f->closed || co_sleep(co_in(ACCEPT_PAUSE_MS)))
            break; /* else: out of descriptors, for a while */
    }
    co_close(f->listener);
    forward_leave(f);
}

static int listen_on(int64_t *host_port, struct err *err)
{
    struct addr a = { .len = sizeof(struct sockaddr_in) };
    struct sockaddr_in *in = (struct sockaddr_in *)&a.sa;
    int fd;

    *in = (struct sockaddr_in){ .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)*host_port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    fd = sock_listen(&a, err);
    if (fd < 0)
        return err_in(err, "forward of host port %lld", (long long)*host_port);
    if (!*host_port && !getsockname(fd, (struct sockaddr *)in, &a.len))
        *host_port = ntohs(in->sin_port);
    return fd;
}

static int open_one(struct live *l, struct sandbox_forward *s, struct err *err)
{
    struct forward *f;
    int fd = listen_on(&s->host_port, err);

    if (fd < 0)
        return -1;
    f = xcalloc(1, sizeof(*f));
    *f = (struct forward){ .next = l->forwards,
                           .control = l->control,
                           .live = l,
                           .port = (uint16_t)s->port,
                           .listener = fd,
                           .users = 1 };
    list_init(&f->carried);
    live_hold(l);
    if (!control_go(l->control, accept_all, f)) {
        l->forwards = f;
        return 0;
    }
    co_close(fd);
    forward_leave(f);
    return err_set(err, ERR_UNAVAILABLE, "no memory to forward a port");
}

/* Made by a release that did not ask: it goes on, as its maker relies on that. */
static void warn_of_door(const struct sandbox *s, const struct sandbox_forward *f)
{
    if (s->secure && !f->public && door_of_sandbox(s, (uint16_t)f->port))
        log_warn("every account of this machine can run code in a sandbox by a forward that an "
                 "older release made; the next release closes it, unless it is made again with "
                 "public",
                 KV("sandbox", s->id), KVI("host_port", f->host_port), KVI("port", f->port));
}

int forward_open(struct live *l, struct err *err)
{
    struct sandbox_forward *s = l->s.forwards.items;

    if (l->forwards) /* it was unreachable for a while, they were not */
        return 0;
    for (size_t i = 0; i < l->s.forwards.n; i++) {
        warn_of_door(&l->s, &s[i]);
        if (open_one(l, &s[i], err)) {
            forward_close(l);
            return -1;
        }
    }
    return 0;
}

void forward_close(struct live *l)
{
    struct forward *f = TAKE(l->forwards, NULL), *next;

    for (; f; f = next) {
        struct carried *k;

        next = f->next;
        f->closed = true;
        list_each(k, &f->carried, in) {
            shutdown(k->outer, SHUT_RDWR);
            if (k->inner >= 0)
                shutdown(k->inner, SHUT_RDWR);
        }
        co_cancel(f->accepting); /* first: then it does not look at the descriptor again */
        co_close(TAKE(f->listener, -1));
    }
}
