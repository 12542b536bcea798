/* create.c - how a sandbox comes to be.
 *
 * Its record is written as an intent (CREATING) while a machine is made for it, or one that waits
 * is taken; the guest is told environment and token; then the record becomes RUNNING and the caller
 * hears of it. Whatever fails, the machine goes and the record ends with the reason.
 *
 * The intent is written beside the making, not before it: a machine without a record that nobody
 * has claimed is ended by the next start (orphans.c), so either alone is undone. The one exception
 * is a waiting machine that is told an environment without a token: until the intent is written
 * nothing would distinguish it from one that still waits, so there the order is strict. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum { CLAIM_RETRY_MS = 1000 };

struct making {
    struct control *control;
    struct live *live;
    const struct create_spec *spec;
    const struct actor *who;
    struct machine_state state;
    bool warm;
    bool machine; /* there may be one by its id */

    struct co_cond added; /* the intent: */
    bool adding, row;
    struct err add_err;
    char text[USER_NAME + 192];
    char existing[SANDBOX_ID + 1]; /* what the idempotency key made before; "": nothing */
};

/* ---- the intent ---- */

struct adding {
    const struct sandbox *row;
    const struct event *event;
    char *existing;
};

static int add(struct store *s, void *arg, struct err *err)
{
    const struct adding *w = arg;

    return s->ops->sandbox_add(s, w->row, w->event, w->existing, err);
}

static void write_intent(void *arg)
{
    struct making *m = arg;
    struct event e = control_event_of(&m->live->s, "created", m->who->name, m->text);
    struct adding w = { &m->live->s, &e, m->existing };

    m->row = !control_store(m->control, add, &w, &m->add_err);
    m->adding = false;
    if (m->row)
        control_news(m->live);
    co_cond_wake(&m->added);
}

static void begin_intent(struct making *m, bool beside)
{
    const struct sandbox *s = &m->live->s;

    snprintf(m->text, sizeof(m->text), "%s asked for it: template %s, network %s", m->who->name,
             s->template, sandbox_network_names[s->network]);
    m->adding = true;
    if (!beside || control_go(m->control, write_intent, m))
        write_intent(m);
}

static int await_intent(struct making *m, struct err *err)
{
    while (m->adding)
        if (co_cond_wait(&m->added, NEVER)) /* cancelled: it still uses what is ours */
            co_pass();
    if (m->row)
        return 0;
    *err = m->add_err;
    return -1;
}

/* ---- the machine ---- */

static int fill_order(const struct making *m, struct order *o, struct err *err)
{
    const struct create_spec *s = m->spec;
    const struct sandbox *row = &m->live->s;

    *o = (struct order){ .network = s->network == NETWORK_OPEN ? ORDER_NET_OPEN : ORDER_NET_NONE,
                         .limits = s->limits,
                         .flags = ORDER_EAGER | (s->strict ? ORDER_STRICT : 0) |
                                  (s->life.restart ? ORDER_STAY : 0) | (s->ping ? ORDER_PING : 0) };
    o->limits.lifetime_ms = life_net_ms(&s->life);
    mark_unclaimed(m->control, &o->mark);
    for (size_t i = 0; i < row->mounts.n; i++) {
        const struct sandbox_mount *from = &((const struct sandbox_mount *)row->mounts.items)[i];

        if (order_add_mount(o, from->host, from->guest, from->ro ? ORDER_MOUNT_READ_ONLY : 0, err))
            return -1;
    }
    return order_set_template(o, row->template, err);
}

static int new_machine(struct making *m, struct err *err)
{
    struct provider *p = m->control->provider;
    struct order order;

    if (fill_order(m, &order, err))
        return -1;
    m->machine = !p->ops->create(p, m->live->s.id, &order, &m->state, err);
    if (!m->machine && control_unclear(err))
        leftover_machine(m->control, m->live->s.id);
    return m->machine ? 0 : -1;
}

/* One that waits has its template's limits. The rest of what was asked for is set now; where only
 * the lifetime differs, that can wait until the caller has its answer: see claim(). */
static int limit_machine(struct making *m, bool *guarded, struct err *err)
{
    struct limits want = m->spec->limits;
    bool differs = false;

    want.lifetime_ms = 0;
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        uint64_t v = limits_get(&want, id);

        differs = differs || (v && v != limits_get(&m->state.limits, id));
    }
    if (!differs)
        return 0;
    want.lifetime_ms = life_net_ms(&m->spec->life);
    if (m->control->provider->ops->limits(m->control->provider, m->live->s.id, &want, err))
        return -1;
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        if (limits_get(&want, id))
            *limits_field(&m->state.limits, id) = limits_get(&want, id);
    *guarded = true;
    return 0;
}

static int init_machine(struct making *m, struct err *err)
{
    struct control *c = m->control;
    const struct sandbox *s = &m->live->s;
    struct guest_init g = { .env = &s->env, .token = s->token };
    struct client_to to;

    if (!m->warm) { /* those that waited were told while they were made */
        const struct machine_template *t = template_find(c, s->template);

        g.user = t ? t->user : NULL;
        g.workdir = t ? t->workdir : NULL;
    }
    control_to(c, &m->live->s, PROVIDER_GUEST_PORT, &to);
    if (!guest_init(c, &to, &g, err))
        return 0;
    if (m->live->machine_gone) /* that is why the guest did not answer */
        *err = m->live->fault;
    return -1;
}

/* A machine that waited and is found dead is no reason to fail: a new one takes its name. */
static int replace_machine(struct making *m, struct err *err)
{
    struct err ignored = { 0 };

    log_warn("a waiting machine was of no use", KV("sandbox", m->live->s.id),
             KV("error", err->msg));
    if (m->control->provider->ops->destroy(m->control->provider, m->live->s.id, &ignored) &&
        !provider_gone(m->control->provider, m->live->s.id, &ignored))
        return -1;
    *err = (struct err){ 0 };
    m->live->machine_gone = false;
    m->warm = false;
    co_closep(&m->live->spare);
    m->live->spare = -1;
    return new_machine(m, err) || init_machine(m, err) ? -1 : 0;
}

static int make_machine(struct making *m, bool *guarded, struct err *err)
{
    if (!m->warm)
        return new_machine(m, err) || init_machine(m, err) ? -1 : 0;
    if (!limit_machine(m, guarded, err) && !init_machine(m, err))
        return 0;
    if (err->code == ERR_INVALID || co_cancelled())
        return -1;
    *guarded = true;
    return replace_machine(m, err);
}

/* ---- the whole ---- */

/* Says on the machine whose it is, and sets the lifetime that the provider watches over (one that
 * waited has the pool's, which is longer than any wait here). After the answer, as the keeper may
 * be busy building the next one, and without the lock: whoever kills it does not wait for this. The
 * record was there before the answer; with that alone a crash costs nothing (adopt.c sees whose
 * lifetime it is, and marks the machine), and another database has another mark (orphans.c). */
struct claiming {
    struct live *live;
    bool lifetime; /* it has the pool's */
    char owner[USER_NAME + 1];
};

static void claim(void *arg)
{
    struct claiming *k = arg;
    AUTO(live_releasep) struct live *l = k->live;
    struct err err = { 0 };

    while (l->s.state != SANDBOX_ENDING && l->s.state != SANDBOX_ENDED &&
           mark_claim(l, k->owner, k->lifetime ? life_net_ms(&l->s.life) : 0, &err) &&
           !provider_gone(l->control->provider, l->s.id, &err) && !co_sleep(co_in(CLAIM_RETRY_MS)))
        continue;
    free(k);
}

static void begin_claim(const struct making *m, bool guarded)
{
    struct claiming *k = xcalloc(1, sizeof(*k));

    k->live = m->live;
    k->lifetime = m->warm && !guarded;
    memcpy(k->owner, m->who->name, sizeof(k->owner));
    live_hold(m->live);
    if (control_go(m->control, claim, k))
        claim(k);
}

static int finish(struct making *m, bool guarded, struct err *err)
{
    struct live *l = m->live;
    struct sandbox next = l->s;
    struct event e = control_event_of(&l->s, "started", m->who->name,
                                      m->warm ? "a machine was ready" : "a machine was made");

    if (l->machine_gone) {
        *err = l->fault;
        return -1;
    }
    next.state = SANDBOX_RUNNING;
    next.limits = m->state.limits;
    next.started_ms = e.at_ms = control_wall_ms();
    next.end_ms = next.life.timeout_ms ? next.started_ms + next.life.timeout_ms : 0;
    l->touched = co_now();
    l->deadline = next.life.timeout_ms ? l->touched + next.life.timeout_ms : NEVER;
    if (control_save(l, &next, &e, err))
        return -1;
    if (l->machine_gone) { /* within that moment */
        *err = l->fault;
        return -1;
    }
    life_arm(l);
    samples_begin(l);
    begin_claim(m, guarded);
    return 0;
}

static void undo(struct making *m, const struct err *why)
{
    struct control *c = m->control;
    struct live *l = m->live;
    struct err err = { 0 };

    c->counts.create_failed++;
    forward_close(l);
    co_closep(&l->spare);
    l->spare = -1;
    if (m->row) {
        life_end(l, "system", why->msg, m->machine && !l->machine_gone, &err);
        return;
    }
    if (m->machine && c->provider->ops->destroy(c->provider, l->s.id, &err) &&
        !provider_gone(c->provider, l->s.id, &err))
        leftover_machine(c, l->s.id);
    l->s.state = SANDBOX_ENDED;
    table_remove(c, l);
}

static int make(struct making *m, struct err *err)
{
    bool guarded = false;
    struct err other = { 0 };
    int r;

    if (forward_open(m->live, err))
        return -1;
    begin_intent(m, !m->warm || m->live->s.secure);
    r = m->adding || m->row ? make_machine(m, &guarded, err) : -1;
    if (await_intent(m, &other)) { /* this failure explains more */
        *err = other;
        return -1;
    }
    return r ? r : finish(m, guarded, err);
}

/* ---- idempotency ---- */

/* The sandbox of an earlier request with the same key, once it is whole. 1: there is none. */
static int earlier(struct control *c, struct live *found, const struct create_spec *s,
                   struct sandbox **out, struct err *err)
{
    AUTO(live_releasep) struct live *l = found;

    (void)c;
    if (!l)
        return 1;
    live_hold(l);
    if (s->idem_hash && l->s.idem_hash && strcmp(s->idem_hash, l->s.idem_hash))
        return err_set(err, ERR_CONFLICT,
                       "the Idempotency-Key was used for another request: use a new one");
    if (live_lock(l, err))
        return -1;
    live_unlock(l);
    if (l->s.state == SANDBOX_ENDED)
        return 1;
    *out = &l->s; /* the table holds it */
    return 0;
}

static int claimed(struct making *m, struct sandbox **out, struct err *err)
{
    struct control *c = m->control;
    int r = earlier(c, table_find(c, str_of(m->existing)), m->spec, out, err);

    if (r > 0)
        return err_set(err, ERR_CONFLICT,
                       "the sandbox that this Idempotency-Key made has ended: use a new key");
    return r;
}

/* ---- asking for one ---- */

static void take_warm(struct making *m)
{
    struct warm *w = pool_take(m->control, m->spec);

    if (!w)
        return;
    memcpy(m->live->s.id, w->id, sizeof(w->id));
    m->live->spare = TAKE(w->fd, -1);
    m->state = w->state;
    m->warm = m->machine = true;
    warm_free(w);
}

static void count(struct control *c, const struct making *m, int64_t since_us)
{
    *(m->warm ? &c->counts.created_warm : &c->counts.created_cold) += 1;
    c->counts.create_us += (uint64_t)(clock_us() - since_us);
}

static int create(struct control *c, const struct actor *who, const struct create_spec *s,
                  struct sandbox **out, bool *existed, struct err *err)
{
    struct making m = { .control = c, .spec = s, .who = who };
    AUTO(live_releasep) struct live *l = NULL;
    int64_t since_us = clock_us();
    int r = 1;

    *existed = false;
    template_follow(c);
    if (spec_check(c, who, s, err))
        return -1;
    if (s->idem_key)
        r = earlier(c, table_find_key(c, who->user, s->idem_key), s, out, err);
    if (r <= 0) {
        *existed = !r;
        return r;
    }
    if (spec_quota(c, who, err))
        return -1;
    l = m.live = live_new(c); /* this reference is ours ... */
    spec_fill(c, who, s, &l->s);
    co_cond_init(&m.added);
    take_warm(&m);
    l->busy = true;
    live_hold(l); /* ... and this one the table's */
    table_add(c, l);
    c->creating++;
    r = make(&m, err);
    if (r)
        undo(&m, err);
    else
        count(c, &m, since_us);
    live_unlock(l);
    if (r && m.existing[0])
        *existed = !(r = claimed(&m, out, err));
    else if (!r)
        *out = &l->s;
    if (!r)
        pool_asked(c, s->template, s->network);
    c->creating--;
    co_cond_wake(&c->refill);
    return r;
}

int control_create(struct control *c, const struct actor *who, const struct create_spec *s,
                   struct sandbox **out, bool *existed, struct err *err)
{
    struct create_spec settled = *s;

    if (s->network == NETWORK_DEFAULT)
        settled.network = control_network(c);
    return create(c, who, &settled, out, existed, err);
}
