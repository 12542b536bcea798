/* fetch_dial.c - from a URL's host to a connection: the name is looked up, its addresses judged,
 * and one of those very addresses connected to, so that nothing can change in between. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include "base/mem.h"
#include "io/fetch_impl.h"

/* ---- names ---- */

/* A resolver cannot be interrupted: whoever waits for it gives up, and the lookup goes on. */
struct lookup {
    struct fetch *f;
    int refs;
    bool done;
    struct co_cond ended;
    char name[URL_HOST + 1];
    uint16_t port;
    struct addr at[FETCH_ADDRS];
    int n; /* out */
    struct err err;
};

static void put_lookup(struct lookup *l)
{
    if (!--l->refs)
        free(l);
}

static void putp(struct lookup **l) { put_lookup(*l); }

static int resolve_failed(const char *name, int code, struct err *err)
{
    switch (code) {
    case EAI_NONAME:
    case EAI_NODATA: return 0;
    case EAI_AGAIN:
        return err_set(err, ERR_UNAVAILABLE, "the name %.120s cannot be looked up now: %s", name,
                       gai_strerror(code));
    default:
        return err_set(err, ERR_UPSTREAM, "the name %.120s cannot be looked up: %s", name,
                       gai_strerror(code));
    }
}

int fetch_system_resolve(void *arg, const char *name, uint16_t port, struct addr *out, int max,
                         struct err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *all;
    int code = getaddrinfo(name, NULL, &hints, &all), n = 0;

    (void)arg;
    if (code)
        return resolve_failed(name, code, err);
    for (const struct addrinfo *i = all; i && n < max; i = i->ai_next) {
        if (i->ai_family != AF_INET && i->ai_family != AF_INET6)
            continue;
        out[n] = (struct addr){ .len = i->ai_addrlen };
        memcpy(&out[n].sa, i->ai_addr, i->ai_addrlen);
        /* both kinds have the port at the same place */
        ((struct sockaddr_in *)(void *)&out[n++].sa)->sin_port = htons(port);
    }
    freeaddrinfo(all);
    return n;
}

static void ask(void *arg)
{
    struct lookup *l = arg;

    l->n = l->f->resolve(l->f->resolve_arg, l->name, l->port, l->at, FETCH_ADDRS, &l->err);
}

static void look_up(void *arg)
{
    struct lookup *l = arg;
    struct fetch *f = l->f;

    co_call(ask, l);
    l->done = true;
    f->resolving--;
    co_cond_wake(&l->ended);
    co_cond_wake(&f->resolved);
    put_lookup(l);
}

static int gave_up(const char *name, struct err *err)
{
    if (errno == ECANCELED)
        return err_set(err, ERR_GONE, "cancelled");
    return err_set(err, ERR_TIMEOUT, "the name %.120s was not found within fetch.resolve-ms=%lld",
                   name, (long long)fetch_limits.resolve_ms);
}

/* Few at once: each holds a worker thread for as long as a stranger's name server likes. */
static int start(struct fetch *f, struct lookup *l, int64_t until, struct err *err)
{
    while (f->resolving >= fetch_limits.resolving)
        if (co_cond_wait(&f->resolved, until))
            return gave_up(l->name, err);
    l->refs++;
    f->resolving++;
    if (!co_go(look_up, l, NULL))
        return 0;
    l->refs--;
    f->resolving--;
    return err_set(err, ERR_UNAVAILABLE, "no memory to look up a name: try again");
}

static int names(struct fetch *f, const struct url *u, int64_t until, struct fetch_place *out,
                 struct err *err)
{
    AUTO(putp) struct lookup *l = xcalloc(1, sizeof(*l));

    l->f = f;
    l->refs = 1;
    l->port = u->port;
    co_cond_init(&l->ended);
    memcpy(l->name, u->host, sizeof(l->name));
    if (start(f, l, until, err))
        return -1;
    while (!l->done)
        if (co_cond_wait(&l->ended, until))
            return gave_up(l->name, err);
    if (l->n < 0) {
        *err = l->err;
        return -1;
    }
    if (!l->n)
        return err_set(err, ERR_NOT_FOUND, "there is no host %.120s", u->host);
    out->n = MIN(l->n, (int)FETCH_ADDRS);
    memcpy(out->at, l->at, sizeof(out->at));
    return 0;
}

/* ---- addresses ---- */

static int literal(const struct url *u, struct fetch_place *out, struct err *err)
{
    char text[INET6_ADDRSTRLEN + 10];

    snprintf(text, sizeof(text), strchr(u->host, ':') ? "[%.45s]:%u" : "%.45s:%u", u->host,
             u->port);
    out->n = 1;
    return addr_parse(str_of(text), &out->at[0], err);
}

/* The address of a name is not repeated to who asked: it may be one of the inner network. */
static int check(const struct fetch *f, const struct url *u, const struct addr *a, struct err *err)
{
    const char *what = netrange_refuse(a, &f->allow);
    int own = what ? 0 : netrange_own(a, &f->allow, err);

    if (own < 0)
        return -1;
    if (own)
        what = "is this machine";
    return what ? err_set(err, ERR_DENIED,
                          "%.120s %s, and only the public internet may be reached (the operator "
                          "may allow more: --fetch-allow)",
                          u->host, what)
                : 0;
}

int fetch_find(struct fetch *f, const struct url *u, int64_t until, struct fetch_place *out,
               struct err *err)
{
    int64_t soon = MIN(until, co_in(fetch_limits.resolve_ms));

    if (u->literal ? literal(u, out, err) : names(f, u, soon, out, err))
        return -1;
    for (int i = 0; i < out->n; i++)
        if (check(f, u, &out->at[i], err))
            return -1;
    return 0;
}

/* ---- connecting ---- */

static int dial_one(const struct addr *a, int64_t until, struct err *err)
{
    AUTO(co_closep) int fd = sock_open(a, err);

    if (fd < 0)
        return -1;
    if (!co_connect(fd, &a->sa, a->len, until))
        return TAKE(fd, -1);
    if (errno == ECANCELED)
        return err_set(err, ERR_GONE, "cancelled");
    return err_set(err, errno == ETIMEDOUT ? ERR_TIMEOUT : ERR_UPSTREAM, "connect: %s",
                   strerrordesc_np(errno));
}

/* One after the other, each with its share of the time. */
int fetch_dial(void *place, int64_t until, struct err *err)
{
    const struct fetch_place *p = place;

    for (int i = 0; i < p->n; i++) {
        int64_t share = (until - co_now()) / (p->n - i);
        int fd = dial_one(&p->at[i], co_now() + MAX(share, (int64_t)1), err);

        if (fd >= 0 || err->code == ERR_GONE)
            return fd;
    }
    return -1;
}
