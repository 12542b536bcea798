/* local.c - provider `local`: machines of this computer, built by its keeper.
 *
 * Every call is a record to the keeper and its answer. A keeper may die at any moment and is
 * restarted by whoever watches it: then what can be asked twice without harm is asked again. A
 * machine that a failed create() may have left behind is ended in the background. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/template.h"
#include "provider/local.h"

enum { TRIES = 3, AGAIN_MS = 5 };

/* Every call holds it: whoever closes the provider meanwhile does not pull it from under us. */
static struct local *enter(struct provider *p)
{
    struct local *l = CONTAINER_OF(p, struct local, provider);

    l->users++;
    return l;
}

static void leave(struct local **l) { local_put(*l); }

static int set_ref(struct keep_request *q, const char *ref, struct err *err)
{
    snprintf(q->id, sizeof(q->id), "%s", ref);
    if (strlen(ref) > ORDER_ID_MAX || !order_id_valid(q->id))
        return local_no_sandbox(ref, err); /* none can have such a name */
    return 0;
}

int local_no_sandbox(const char *ref, struct err *err)
{
    err_set(err, ERR_NOT_FOUND, "no sandbox '%.40s'", ref);
    err->reason = ERR_NO_SANDBOX;
    return -1;
}

static int64_t answer_by(void) { return co_in(provider_limits.answer_ms); }

/* For what may be asked twice. *lost: it was. */
static int ask_surely(struct local *l, struct keep_request *q, struct keep_reply *reply, int *fds,
                      size_t *nfds, int64_t until, bool *lost, struct err *err)
{
    size_t room = nfds ? *nfds : 0;
    enum ask r = ASK_LOST;

    for (int i = 0; r == ASK_LOST && i < TRIES; i++) {
        if (nfds)
            *nfds = room;
        r = local_ask(l, q, reply, fds, nfds, until, err);
        if (lost && r == ASK_LOST)
            *lost = true;
    }
    return r == ASK_DONE ? 0 : -1;
}

/* A verb with nothing but the machine's name. */
static int ask_of(struct provider *p, enum keep_verb verb, const char *ref, struct keep_reply *out,
                  struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = verb };

    return set_ref(&q, ref, err) || ask_surely(l, &q, out, NULL, NULL, answer_by(), NULL, err) ? -1
                                                                                               : 0;
}

/* ---- ending ---- */

/* A keeper of a release without reasons is asked for what it can only look up. */
static bool is_not_there(struct local *l, const char *ref, struct err *err)
{
    struct machine_state ignored;

    if (err->code == ERR_NOT_FOUND && err->reason != ERR_NO_SANDBOX)
        l->provider.ops->stat(&l->provider, ref, &ignored, err);
    return err->reason == ERR_NO_SANDBOX;
}

static int kill_it(struct local *l, const char *ref, struct err *err)
{
    struct keep_request q = { .verb = KEEP_KILL };
    struct keep_reply reply;
    int64_t until = answer_by();
    bool began = false;

    if (set_ref(&q, ref, err))
        return -1;
    while (ask_surely(l, &q, &reply, NULL, NULL, until, &began, err)) {
        if (is_not_there(l, ref, err))
            return began ? 0 : -1;
        if (err->code != ERR_CONFLICT)
            return -1;
        began = true; /* another one ends it: return when that is done */
        if (co_sleep(MIN(until, co_in(AGAIN_MS))))
            return -1;
    }
    return 0;
}

static int destroy(struct provider *p, const char *ref, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct machine *m;
    int r = kill_it(l, ref, err);

    m = r && err->reason != ERR_NO_SANDBOX ? NULL : local_find(l, ref);
    if (m) /* usually the keeper's event came first, and forgot it */
        local_gone(l, m, "request", "it was ended by request");
    return r;
}

struct orphan {
    struct local *local;
    char ref[ORDER_ID];
};

static void end_orphan(void *arg)
{
    struct orphan *o = arg;
    struct err err = { 0 };

    while (kill_it(o->local, o->ref, &err) && err.reason != ERR_NO_SANDBOX && !o->local->closing)
        if (co_sleep(co_in(1000)))
            break;
    local_put(o->local);
    free(o);
}

/* The caller may be cancelled and cannot wait any more, so another coroutine does. */
static void abandon(struct local *l, const char *ref)
{
    struct orphan *o = xcalloc(1, sizeof(*o));

    o->local = l;
    snprintf(o->ref, sizeof(o->ref), "%s", ref);
    l->users++;
    if (!co_go(end_orphan, o, NULL))
        return;
    log_error("a sandbox stays that nobody wants", KV("sandbox", ref));
    local_put(l);
    free(o);
}

/* ---- making ---- */

/* The keeper died on it. What it had begun and the next one found is ours; what it had not begun
 * is asked for again, perhaps more than once: the name is free only when the rest of the first
 * attempt has been swept away. */
static enum ask create_again(struct local *l, struct keep_request *create, struct keep_reply *reply,
                             int *spare, struct err *err)
{
    struct keep_request adopt = { .verb = KEEP_ADOPT };
    int64_t until = co_in(provider_limits.wait_ms);
    enum ask r;

    memcpy(adopt.id, create->id, sizeof(adopt.id));
    r = local_ask(l, &adopt, reply, NULL, NULL, answer_by(), err);
    if (r != ASK_REFUSED || !is_not_there(l, create->id, err))
        return r == ASK_REFUSED ? ASK_LEFT : r; /* there may be one: to be ended */
    for (;;) {
        size_t n = 1;

        r = local_ask(l, create, reply, spare, &n, answer_by(), err);
        if (r == ASK_DONE && !n)
            *spare = -1;
        if (r != ASK_REFUSED || err->code != ERR_CONFLICT || co_now() >= until)
            return r;
        if (co_sleep(co_in(AGAIN_MS)))
            return ASK_LEFT;
    }
}

static int create(struct provider *p, const char *ref, const struct order *order,
                  struct machine_state *out, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_CREATE, .u.create = *order };
    struct keep_reply reply;
    struct machine *m;
    int spare = -1;
    size_t n = 1;
    enum ask r;

    if (set_ref(&q, ref, err))
        return err_set(err, ERR_INVALID, "'%.40s' cannot be a sandbox's name", ref);
    m = local_add(l, ref);
    if (!m)
        return err_set(err, ERR_CONFLICT, "sandbox %s exists", ref);
    m->creating = true;
    r = local_ask(l, &q, &reply, &spare, &n, answer_by(), err);
    if (r == ASK_DONE && !n)
        spare = -1;
    if (r == ASK_LOST)
        r = create_again(l, &q, &reply, &spare, err);
    if (r == ASK_DONE && m->ended) {
        *err = m->why;
        co_close(spare);
        r = ASK_REFUSED;
    }
    m->creating = false;
    if (r != ASK_DONE) {
        local_forget(l, m);
        if (r != ASK_REFUSED)
            abandon(l, ref);
        return -1;
    }
    m->spare = spare;
    local_state(&reply.u.state, out);
    return 0;
}

static int adopt(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct machine *m = strlen(ref) > ORDER_ID_MAX ? NULL : local_add(l, ref);
    struct keep_reply reply;
    int r;

    if (m) /* before the answer: it may end right behind that */
        m->creating = true;
    r = ask_of(p, KEEP_ADOPT, ref, &reply, err);
    if (m)
        m->creating = false;
    if (m && !r && m->ended)
        r = local_no_sandbox(ref, err); /* it has just ended */
    if (m && r)
        local_forget(l, m);
    if (r)
        return -1;
    local_state(&reply.u.state, out);
    return 0;
}

/* ---- looking ---- */

static int list(struct provider *p, provider_ref_fn *fn, void *arg, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_LIST };
    struct keep_reply reply;

    do {
        if (ask_surely(l, &q, &reply, NULL, NULL, answer_by(), NULL, err))
            return -1;
        for (uint32_t i = 0; i < reply.u.list.count; i++)
            if (fn(arg, reply.u.list.ids[i]))
                return 0;
        if (reply.u.list.count)
            memcpy(q.id, reply.u.list.ids[reply.u.list.count - 1], sizeof(q.id));
    } while (reply.u.list.count == KEEP_LISTED);
    return 0;
}

static void fill_template(const struct keep_template *t, struct machine_template *out)
{
    *out = (struct machine_template){ .kind = template_kind_name(t->kind), .limits = t->limits };
    snprintf(out->name, sizeof(out->name), "%.*s", (int)sizeof(out->name) - 1, t->name);
    snprintf(out->user, sizeof(out->user), "%.*s", (int)sizeof(out->user) - 1, t->user);
    snprintf(out->workdir, sizeof(out->workdir), "%s", t->workdir);
}

static int templates(struct provider *p, provider_template_fn *fn, void *arg, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_TEMPLATES };
    struct keep_reply reply;
    struct machine_template t;

    do {
        if (ask_surely(l, &q, &reply, NULL, NULL, answer_by(), NULL, err))
            return -1;
        for (uint32_t i = 0; i < reply.u.templates.count; i++) {
            fill_template(&reply.u.templates.items[i], &t);
            if (fn(arg, &t))
                return 0;
            memcpy(q.u.after, reply.u.templates.items[i].name, sizeof(q.u.after));
        }
    } while (reply.u.templates.count == KEEP_TEMPLATES_LISTED);
    return 0;
}

static int stat_(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    struct keep_reply reply;

    if (ask_of(p, KEEP_STAT, ref, &reply, err)) {
        if (err->code == ERR_NOT_FOUND) /* it is nothing but a look, and old keepers say no more */
            local_no_sandbox(ref, err);
        return -1;
    }
    local_state(&reply.u.state, out);
    if (*out->unreachable)
        return err_set_host(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached: %.160s", ref,
                            out->unreachable);
    return 0;
}

/* ---- changing ---- */

static int limits(struct provider *p, const char *ref, const struct limits *new, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_LIMITS, .u.limits = *new };
    struct keep_reply reply;

    return set_ref(&q, ref, err) || ask_surely(l, &q, &reply, NULL, NULL, answer_by(), NULL, err)
               ? -1
               : 0;
}

static int claim(struct provider *p, const char *ref, const struct limits *new,
                 const struct order_mark *mark, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_LIMITS, .u = { .limits = *new, .mark = *mark } };
    struct keep_reply reply;

    return set_ref(&q, ref, err) || ask_surely(l, &q, &reply, NULL, NULL, answer_by(), NULL, err)
               ? -1
               : 0;
}

/* A keeper that died on it has let the machine go on, or the next one finds it paused. */
static int pause_(struct provider *p, const char *ref, bool files_only, uint64_t *flush_us,
                  struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_FREEZE, .u.freeze.files_only = files_only };
    struct keep_reply reply;

    if (set_ref(&q, ref, err) ||
        ask_surely(l, &q, &reply, NULL, NULL, co_in(provider_limits.pause_ms), NULL, err))
        return -1;
    *flush_us = reply.u.state.flush_us;
    return 0;
}

static int resume(struct provider *p, const char *ref, uint64_t lifetime_ms, bool *anew,
                  struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_THAW, .u.limits = { .lifetime_ms = lifetime_ms } };
    struct keep_reply reply;

    if (set_ref(&q, ref, err) || ask_surely(l, &q, &reply, NULL, NULL, answer_by(), NULL, err))
        return -1;
    *anew = reply.u.state.fresh;
    return 0;
}

/* Not asked twice: the first one's helper may be at work still. */
static int snapshot(struct provider *p, const char *ref, const char *name, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    struct keep_request q = { .verb = KEEP_SNAPSHOT };
    struct keep_reply reply;

    if (set_ref(&q, ref, err))
        return -1;
    if (strlen(name) > ORDER_ID_MAX)
        return err_set(err, ERR_INVALID, "a snapshot's id has at most %d characters", ORDER_ID_MAX);
    snprintf(q.u.snapshot, sizeof(q.u.snapshot), "%s", name);
    return local_ask(l, &q, &reply, NULL, NULL, co_in(provider_limits.snapshot_ms), err) == ASK_DONE
               ? 0
               : -1;
}

/* ---- reaching in ---- */

static int ask_socket(struct local *l, const char *ref, uint32_t port, bool v6, int64_t until,
                      struct err *err)
{
    struct keep_request q = { .verb = KEEP_SOCKET,
                              .u.socket = { .port = port, .count = 1, .v6 = v6 } };
    struct keep_reply reply;
    size_t n = 1;
    int fd;

    if (set_ref(&q, ref, err) || ask_surely(l, &q, &reply, &fd, &n, until, NULL, err))
        return -1;
    return n == 1 ? fd : keep_no_socket(err);
}

/* One that came with the machine, if the guest has not closed it meanwhile. */
static int take_spare(struct local *l, const char *ref)
{
    struct machine *m = local_find(l, ref);
    int fd = m ? TAKE(m->spare, -1) : -1;
    char byte;

    if (fd >= 0 && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
        return fd;
    co_close(fd);
    return -1;
}

static int connect_inside(int fd, bool v6, uint16_t port, int64_t until)
{
    struct sockaddr_in a4 = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons(port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    return v6 ? co_connect(fd, &a6, sizeof(a6), until) : co_connect(fd, &a4, sizeof(a4), until);
}

/* Servers listen on either loopback; a sandbox may have no IPv6 at all. */
static int dial_port(struct local *l, const char *ref, uint16_t port, int64_t until,
                     struct err *err)
{
    for (int v6 = 0; v6 < 2; v6++) {
        int fd = ask_socket(l, ref, port, v6, until, err);

        if (fd < 0 && !v6)
            return -1;
        if (fd < 0)
            break;
        if (!connect_inside(fd, v6, port, until))
            return fd;
        co_close(fd);
        if (errno == ETIMEDOUT || errno == ECANCELED)
            return err_set(err, errno == ETIMEDOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE,
                           "port %u does not take the connection", port);
    }
    return err_set(err, ERR_UPSTREAM, "port %u is not open", port);
}

static int dial(struct provider *p, const char *ref, uint16_t port, int64_t until, struct err *err)
{
    AUTO(leave) struct local *l = enter(p);
    int64_t bound = MIN(until, answer_by());
    int fd;

    if (!port)
        return err_set(err, ERR_INVALID, "port 0 is none");
    if (port != PROVIDER_GUEST_PORT)
        return dial_port(l, ref, port, bound, err);
    fd = take_spare(l, ref);
    return fd >= 0 ? fd : ask_socket(l, ref, 0, false, bound, err);
}

static void close_(struct provider *p) { local_stop(CONTAINER_OF(p, struct local, provider)); }

static const struct provider_ops local_ops = {
    .name = "local",
    .create = create,
    .destroy = destroy,
    .list = list,
    .templates = templates,
    .stat = stat_,
    .limits = limits,
    .claim = claim,
    .pause = pause_,
    .resume = resume,
    .snapshot = snapshot,
    .dial = dial,
    .adopt = adopt,
    .close = close_,
};

static int stop_list(void *arg, const char *ref)
{
    (void)arg, (void)ref;
    return 1;
}

int provider_local(const struct keep_where *where, provider_event_fn *on_event, void *arg,
                   struct provider **out, struct err *err)
{
    struct local *l = xcalloc(1, sizeof(*l));
    int64_t until = co_in(provider_limits.start_ms);
    struct err last = { 0 };

    l->provider = (struct provider){ &local_ops, on_event, arg };
    l->where = *where;
    local_start(l);
    /* any answer: it speaks our version, and has adopted what its predecessor left */
    while (list(&l->provider, stop_list, NULL, &last)) {
        if (!l->refused.code && co_now() < until && !co_sleep(co_in(AGAIN_MS)))
            continue;
        if (l->refused.code)
            *err = l->refused;
        else
            err_set_host(err, ERR_UNAVAILABLE, "no keeper answers in %s: %s", where->dir, last.msg);
        local_stop(l);
        return -1;
    }
    *out = &l->provider;
    return 0;
}
