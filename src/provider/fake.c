/* fake.c - provider `fake`: machines that are records in memory, for the tests of what is above.
 *
 * It keeps every promise of provider.h that can be kept without a machine, and breaks them on
 * request: a call can be made to fail or to take its time. The smallest complete provider: a new
 * kind begins as a copy of this file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "io/co.h"
#include "io/httpd.h"
#include "jail/template.h"
#include "provider/provider.h"

enum { FAKE_REF = 40, FAKE_MEMORY = 4 << 20, FAKE_CPU_US = 1000 };

struct machine {
    struct list all;
    char ref[FAKE_REF];
    struct machine_state state;
    int64_t deadline, left; /* left: of a paused one, whose time stands still */
    bool adopted;           /* its events are told */
    bool stay;              /* it may die and be woken */
    bool fresh;             /* it slept, and was not paused since */
    bool hung;              /* takes connections and answers nobody */
    char unreachable[64];   /* why; "": it can be reached */
    int silent;             /* the other end of one of those, so that it stays open */
};

enum op {
    CREATE,
    DESTROY,
    LIST,
    TEMPLATES,
    STAT,
    LIMITS,
    CLAIM,
    PAUSE,
    RESUME,
    SNAPSHOT,
    DIAL,
    ADOPT,
    OPS
};

static const char *const op_names[OPS] = { "create", "destroy",  "list",  "templates",
                                           "stat",   "limits",   "claim", "pause",
                                           "resume", "snapshot", "dial",  "adopt" };

struct fake {
    struct provider provider;
    struct list machines;
    struct fault {
        enum err_code code;
        int times;
        int64_t delay_ms;
    } faults[OPS];
    struct co_cond changed; /* a deadline, or closing */
    struct co_ref timer;
    bool timed, closing;
    struct machine_template template; /* one that was added; its name "": none */
    size_t users; /* calls and coroutines that will look at this again; the last one frees it */
};

static struct fake *of(struct provider *p) { return CONTAINER_OF(p, struct fake, provider); }

static void machine_free(struct machine *m)
{
    co_close(m->silent);
    free(m);
}

static void put(struct fake *f)
{
    struct machine *m;

    if (--f->users)
        return;
    list_each(m, &f->machines, all) {
        list_remove(&m->all);
        machine_free(m);
    }
    free(f);
}

static struct fake *enter(struct provider *p)
{
    of(p)->users++;
    return of(p);
}

static void leave(struct fake **f) { put(*f); }

/* What every call does first: it takes its time, and fails if it was told to. */
static int begin(struct fake *f, enum op op, struct err *err)
{
    struct fault *fault = &f->faults[op];

    if (fault->delay_ms && co_sleep(co_in(fault->delay_ms)))
        return err_set(err, ERR_UNAVAILABLE, "the call was given up");
    if (f->closing)
        return err_set(err, ERR_UNAVAILABLE, "the server is ending");
    if (fault->times <= 0)
        return 0;
    fault->times--;
    return err_set(err, fault->code, "%s fails because it was told to", op_names[op]);
}

static struct machine *find(struct fake *f, const char *ref)
{
    struct machine *m;

    list_each(m, &f->machines, all)
        if (!strcmp(m->ref, ref))
            return m;
    return NULL;
}

static struct machine *need(struct fake *f, enum op op, const char *ref, struct err *err)
{
    struct machine *m;

    if (begin(f, op, err))
        return NULL;
    m = find(f, ref);
    if (!m) {
        err_set(err, ERR_NOT_FOUND, "no sandbox %s", ref);
        err->reason = ERR_NO_SANDBOX;
    }
    if (m && *m->unreachable && op != ADOPT && op != DESTROY) {
        err_set(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached: %s", ref, m->unreachable);
        return NULL;
    }
    return m;
}

static void measure(struct machine *m)
{
    m->state.cpu_us += FAKE_CPU_US;
    m->state.left_ms = m->state.paused        ? m->left
                       : m->deadline == NEVER ? NEVER
                                              : m->deadline - clock_ms();
}

static void emit(struct fake *f, const struct machine_event *e)
{
    if (f->provider.on_event && !f->closing)
        f->provider.on_event(f->provider.arg, e);
}

static void end(struct fake *f, struct machine *m, const char *reason, enum limit_id limit)
{
    struct machine_event e = { .kind = MACHINE_ENDED,
                               .ref = m->ref,
                               .limit = limit,
                               .reason = reason,
                               .text = "a fake machine ended" };

    measure(m);
    list_remove(&m->all);
    e.state = m->state;
    if (limit != LIMIT_NONE)
        e.value = e.use = limits_get(&m->state.limits, limit);
    if (m->adopted)
        emit(f, &e);
    machine_free(m);
}

/* ---- lifetimes ---- */

static int64_t end_due(struct fake *f)
{
    int64_t next = NEVER;
    struct machine *m;

    list_each(m, &f->machines, all) {
        if (m->deadline <= co_now())
            end(f, m, "lifetime", LIMIT_LIFETIME);
        else
            next = MIN(next, m->deadline);
    }
    return next;
}

static void keep_time(void *arg)
{
    struct fake *f = arg;

    while (!f->closing && (!co_cond_wait(&f->changed, end_due(f)) || errno == ETIMEDOUT))
        continue;
    f->timed = false;
    put(f);
}

static void set_lifetime(struct fake *f, struct machine *m)
{
    m->left = (int64_t)m->state.limits.lifetime_ms;
    m->deadline = m->state.paused ? NEVER : co_in(m->left);
    co_cond_wake(&f->changed);
    if (f->timed)
        return;
    f->timed = true;
    f->users++;
    if (co_go(keep_time, f, &f->timer))
        abort(); /* a test without memory for a stack */
}

/* ---- machines ---- */

static int create(struct provider *p, const char *ref, const struct order *order,
                  struct machine_state *out, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    AUTO(template_close) struct template t = { 0 };
    struct limits l = order->limits;
    struct machine *m;

    if (begin(f, CREATE, err) || template_open("/nonexistent", order->template, &t, err) ||
        limits_fill(&l, NULL, err))
        return -1;
    if (strlen(ref) >= FAKE_REF || strlen(order->template) >= sizeof(m->state.template))
        return err_set(err, ERR_INVALID, "'%.40s' cannot be a sandbox's name", ref);
    if (find(f, ref))
        return err_set(err, ERR_CONFLICT, "sandbox %s exists", ref);
    m = xcalloc(1, sizeof(*m));
    m->state = (struct machine_state){ .limits = l,
                                       .memory_bytes = FAKE_MEMORY,
                                       .memory_peak_bytes = FAKE_MEMORY,
                                       .pids = 1,
                                       .flags = order->flags,
                                       .mark = order->mark,
                                       .network = order->network == ORDER_NET_OPEN ? NETWORK_OPEN
                                                                                   : NETWORK_NONE };
    m->adopted = true;
    m->silent = -1;
    m->stay = order->flags & ORDER_STAY;
    snprintf(m->ref, sizeof(m->ref), "%s", ref);
    snprintf(m->state.template, sizeof(m->state.template), "%s", order->template);
    list_push(&f->machines, &m->all);
    set_lifetime(f, m);
    measure(m);
    *out = m->state;
    return 0;
}

static int destroy(struct provider *p, const char *ref, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, DESTROY, ref, err);

    if (m)
        end(f, m, "request", LIMIT_NONE);
    return m ? 0 : -1;
}

/* By copies, as fn may change what it is told of. */
static int list(struct provider *p, provider_ref_fn *fn, void *arg, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    AUTO(freep) char(*refs)[FAKE_REF] = NULL;
    const struct machine *m;
    size_t n = 0;

    if (begin(f, LIST, err))
        return -1;
    list_each(m, &f->machines, all) {
        refs = xrealloc(refs, (n + 1) * sizeof(*refs));
        memcpy(refs[n++], m->ref, sizeof(m->ref));
    }
    for (size_t i = 0; i < n && !fn(arg, refs[i]); i++)
        continue;
    return 0;
}

static int templates(struct provider *p, provider_template_fn *fn, void *arg, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine_template host = { .name = "host", .kind = template_kind_name(TEMPLATE_HOST) };

    if (begin(f, TEMPLATES, err))
        return -1;
    fn(arg, &host);
    if (*f->template.name)
        fn(arg, &f->template);
    return 0;
}

void provider_fake_template(struct provider *p, const char *name)
{
    AUTO(leave) struct fake *f = enter(p);

    f->template = (struct machine_template){ .kind = template_kind_name(TEMPLATE_HOST) };
    snprintf(f->template.name, sizeof(f->template.name), "%s", name);
}

static int stat_(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, STAT, ref, err);

    if (!m)
        return -1;
    measure(m);
    *out = m->state;
    return 0;
}

static int change(struct fake *f, struct machine *m, const struct limits *new, struct err *err)
{
    struct limits l = *new;

    if (!m || limits_fill(&l, &m->state.limits, err))
        return -1;
    m->state.limits = l;
    if (new->lifetime_ms)
        set_lifetime(f, m);
    return 0;
}

static int limits(struct provider *p, const char *ref, const struct limits *new, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);

    return change(f, need(f, LIMITS, ref, err), new, err);
}

static int claim(struct provider *p, const char *ref, const struct limits *new,
                 const struct order_mark *mark, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, CLAIM, ref, err);

    if (change(f, m, new, err))
        return -1;
    m->state.mark = *mark;
    return 0;
}

static int pause_(struct provider *p, const char *ref, bool files_only, uint64_t *flush_us,
                  struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, PAUSE, ref, err);

    if (!m)
        return -1;
    *flush_us = 0;
    m->state.asleep = m->state.asleep || files_only;
    if (m->state.paused)
        return 0;
    m->left = m->deadline == NEVER ? NEVER : m->deadline - co_now();
    m->deadline = NEVER;
    m->state.paused = true;
    m->fresh = false;
    return 0;
}

static int resume(struct provider *p, const char *ref, uint64_t lifetime_ms, bool *anew,
                  struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, RESUME, ref, err);

    if (!m)
        return -1;
    m->fresh = m->fresh || m->state.asleep;
    *anew = m->fresh;
    if (lifetime_ms)
        m->state.limits.lifetime_ms = lifetime_ms;
    else if (m->state.paused)
        m->deadline = m->left == NEVER ? NEVER : co_now() + m->left;
    m->state.paused = m->state.asleep = m->state.astray = false;
    if (lifetime_ms)
        set_lifetime(f, m);
    co_cond_wake(&f->changed);
    return 0;
}

static int snapshot(struct provider *p, const char *ref, const char *name, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);

    (void)name;
    return need(f, SNAPSHOT, ref, err)
               ? err_set(err, ERR_UNSUPPORTED, "a fake machine has no files to take a snapshot of")
               : -1;
}

static int adopt(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, ADOPT, ref, err);

    if (!m)
        return -1;
    m->adopted = true;
    measure(m);
    *out = m->state;
    if (*m->unreachable) {
        *out = (struct machine_state){ .astray = m->state.astray };
        snprintf(out->unreachable, sizeof(out->unreachable), "%s", m->unreachable);
    }
    return 0;
}

/* ---- ports ---- */

static int answer(struct call *c, struct err *err)
{
    AUTO(buf_free) struct buf body = { 0 };
    bool empty = str_is(c->path, "/init") || str_is(c->path, "/health");
    int r;

    if (call_read_all(c, &body, err))
        return -1;
    r = empty ? call_reply(c, 204, NULL, (struct str){ 0 })
              : call_reply(c, 200, "text/plain", body.len ? buf_str(&body) : STR("fake\n"));
    return r ? -1 : 1;
}

/* The last of those that it let wait is closed: enough for a test, and bounded. */
static int hang(struct machine *m, int end)
{
    co_close(m->silent);
    m->silent = end;
    return 0;
}

static int dial(struct provider *p, const char *ref, uint16_t port, int64_t until, struct err *err)
{
    static const struct route *const none[] = { NULL };
    static struct httpd server = { .tables = none, .first = answer };
    AUTO(leave) struct fake *f = enter(p);
    struct machine *m = need(f, DIAL, ref, err);
    int pair[2];

    (void)until;
    if (!m)
        return -1;
    if (!port)
        return err_set(err, ERR_INVALID, "port 0 is none");
    if (port == PROVIDER_FAKE_CLOSED)
        return err_set(err, ERR_UPSTREAM, "port %u is not open", port);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return err_sys(err, "socketpair");
    if (m->hung ? hang(m, pair[1]) : httpd_serve(&server, pair[1])) {
        co_close(pair[0]);
        return err_set(err, ERR_UNAVAILABLE, "no memory for a connection");
    }
    return pair[0];
}

/* ---- the provider ---- */

static void close_(struct provider *p)
{
    struct fake *f = of(p);

    f->closing = true;
    if (f->timed)
        co_cancel(f->timer);
    put(f);
}

static const struct provider_ops fake_ops = {
    .name = "fake",
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

struct provider *provider_fake(provider_event_fn *on_event, void *arg)
{
    struct fake *f = xcalloc(1, sizeof(*f));

    f->provider = (struct provider){ &fake_ops, on_event, arg };
    f->users = 1;
    list_init(&f->machines);
    co_cond_init(&f->changed);
    return &f->provider;
}

static struct fault *fault_of(struct provider *p, const char *op)
{
    for (enum op o = 0; o < OPS; o++)
        if (!strcmp(op_names[o], op))
            return &of(p)->faults[o];
    abort(); /* a test that names no call would test nothing */
}

void provider_fake_fail(struct provider *p, const char *op, enum err_code code, int times)
{
    struct fault *f = fault_of(p, op);

    f->code = code;
    f->times = times;
}

void provider_fake_delay(struct provider *p, const char *op, int64_t ms)
{
    fault_of(p, op)->delay_ms = ms;
}

void provider_fake_sleep(struct provider *p, const char *ref)
{
    struct machine *m = find(of(p), ref);

    if (!m || !m->state.paused)
        abort(); /* a test that names no paused machine would test nothing */
    m->state.asleep = true;
}

void provider_fake_astray(struct provider *p, const char *ref)
{
    struct machine *m = find(of(p), ref);

    if (!m)
        abort(); /* a test that names no machine would test nothing */
    m->deadline = NEVER;
    m->left = (int64_t)m->state.limits.lifetime_ms;
    m->state.paused = m->state.asleep = m->state.astray = true;
}

void provider_fake_unreachable(struct provider *p, const char *ref, const char *why)
{
    struct machine *m = find(of(p), ref);

    if (!m)
        abort(); /* a test that names no machine would test nothing */
    snprintf(m->unreachable, sizeof(m->unreachable), "%s", why);
}

void provider_fake_die(struct provider *p, const char *ref)
{
    struct machine *m = find(of(p), ref);

    if (!m || !m->stay)
        abort(); /* a test that names no such machine would test nothing */
    m->left = m->deadline == NEVER ? NEVER : m->deadline - co_now();
    m->deadline = NEVER;
    m->fresh = false;
    m->state.paused = m->state.asleep = true;
    emit(of(p), &(struct machine_event){ .kind = MACHINE_DOWN,
                                         .ref = ref,
                                         .limit = LIMIT_NONE,
                                         .reason = "failed",
                                         .text = "its guest ended" });
}

void provider_fake_vanish(struct provider *p, const char *ref)
{
    struct machine *m = find(of(p), ref);

    if (!m)
        abort(); /* a test that names no machine would test nothing */
    list_remove(&m->all);
    machine_free(m);
}

void provider_fake_hang(struct provider *p, const char *ref, bool hung, bool stopped)
{
    struct machine *m = find(of(p), ref);

    if (!m)
        abort(); /* a test that names no machine would test nothing */
    m->hung = hung;
    m->state.stopped = stopped;
}

/* One that ends is gone for the calls, too. */
void provider_fake_emit(struct provider *p, const struct machine_event *e)
{
    struct fake *f = of(p);
    struct machine *m = e->kind == MACHINE_ENDED && e->ref ? find(f, e->ref) : NULL;

    if (m)
        list_remove(&m->all);
    emit(f, e);
    if (m)
        machine_free(m);
}
