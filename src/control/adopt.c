/* adopt.c - a start after a crash or a restart: what the store says against what the provider has.
 *
 *   record            machine   what becomes of them
 *   RUNNING           there     adopted; the deadline from the provider's, whose clock ran on
 *   RUNNING           files     paused: somebody had paused it, and the record is of before that;
 *                               or started again, if it is to be (restart.c)
 *   RUNNING           astray    ended: nothing says that its files were to stay
 *   PAUSED            there     adopted; its files are enough
 *   PAUSING, RESUMING there     as the machine is: paused or running (pause.c)
 *   CREATING          there     undone: its client never heard of it; unless its mark says that he
 *                               did, by a store of which ours is an older copy: then RUNNING
 *   ENDING            there     finished
 *   any               gone      ended, with the reason
 *   ENDED             there     ended: the record is the witness
 *   none              there     back into the pool if it waited there and still would; ended if
 *                               nobody was told of it; else set aside (orphans.c)
 *
 * A machine of which the provider cannot read what it wrote (unreachable) is neither adopted nor
 * ended, whatever its record says; a record in use is looked at again until it can be. If it is
 * astray, too, it has no process: RUNNING has ended, what was being paused or resumed is PAUSED.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum { AT_ONCE = 16 };

struct refs {
    char (*items)[SANDBOX_ID + 1];
    size_t n, cap;
};

static int collect_ref(void *arg, const char *ref)
{
    struct refs *r = arg;

    if (strlen(ref) != SANDBOX_ID || !sandbox_id_valid(str_of(ref)))
        return 0; /* no machine of ours has such a name: whose it is, he will end it */
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 64;
        r->items = xrealloc(r->items, r->cap * sizeof(*r->items));
    }
    memcpy(r->items[r->n++], ref, sizeof(*r->items));
    return 0;
}

static int compare_refs(const void *a, const void *b) { return strcmp(a, b); }

/* ---- records ---- */

static int collect_row(void *arg, const struct sandbox *s) /* on a worker: touches its list only */
{
    struct list *rows = arg;
    struct live *l = live_new(NULL);

    sandbox_copy(&l->s, s);
    list_push(rows, &l->all);
    return 0;
}

struct reading {
    const char *node;
    struct list rows;
};

static int read_rows(struct store *s, void *arg, struct err *err)
{
    struct reading *r = arg;

    return s->ops->sandbox_live(s, r->node, collect_row, &r->rows, err);
}

static int load(struct control *c, struct err *err)
{
    struct reading r = { .node = c->node };
    int result;

    list_init(&r.rows);
    result = control_store(c, read_rows, &r, err);
    while (!list_empty(&r.rows)) {
        struct live *l = CONTAINER_OF(r.rows.next, struct live, all);

        list_remove(&l->all);
        if (result < 0) {
            live_release(l);
            continue;
        }
        l->control = c;
        door_adopt(l);
        table_add(c, l);
    }
    return result < 0 ? -1 : 0;
}

/* ---- each of them ---- */

/* A machine that was taken from the pool a moment before the crash has the pool's lifetime still:
 * then the record's wall time has to do, unless somebody has set the clock meanwhile, which it
 * shows by what cannot be: then all of its time begins again. */
static int64_t deadline_of(const struct live *l, const struct machine_state *m)
{
    uint64_t net = life_net_ms(&l->s.life);
    int64_t left = l->s.end_ms - control_wall_ms();

    if (!l->s.life.timeout_ms)
        return NEVER;
    /* One that is to be paused has the longest lifetime there is, which says nothing. */
    if (l->s.life.expiry == EXPIRY_KILL && m->left_ms != NEVER && m->limits.lifetime_ms == net)
        return co_now() + MAX(m->left_ms - GRACE_MS, (int64_t)0);
    return co_now() + (left >= 0 && left <= l->s.life.timeout_ms ? left : l->s.life.timeout_ms);
}

static int renew_net(struct live *l, const struct machine_state *m, struct err *err)
{
    struct provider *p = l->control->provider;
    struct limits net = { .lifetime_ms = life_net_ms(&l->s.life) };

    if (m->limits.lifetime_ms == net.lifetime_ms)
        return 0;
    if (l->deadline != NEVER && l->s.life.expiry == EXPIRY_KILL)
        net.lifetime_ms = (uint64_t)(l->deadline - co_now() + GRACE_MS);
    return p->ops->limits(p, l->s.id, &net, err);
}

/* One that cannot be settled now must not keep the others from being served. */
static int adopt_state(struct live *l, const struct machine_state *m, struct err *err)
{
    /* any other that runs now has just been given its time */
    bool ran = l->s.state == SANDBOX_RUNNING || l->s.state == SANDBOX_PAUSING;

    if (pause_settle(l, m, err)) {
        if (err->reason == ERR_NO_SANDBOX)
            return -1;
        log_warn("a sandbox is not settled yet", KV("sandbox", l->s.id), KV("error", err->msg));
        *err = (struct err){ 0 };
        pause_settle_later(l);
        return 0;
    }
    if (l->s.state == SANDBOX_PAUSED)
        l->deadline = pause_deadline(l);
    if (l->s.state != SANDBOX_RUNNING || !ran)
        return 0;
    l->deadline = deadline_of(l, m);
    if (renew_net(l, m, err)) {
        if (err->reason == ERR_NO_SANDBOX || control_unclear(err))
            return -1;
        /* one that cannot be guarded is no reason to serve nobody: we watch over it ourselves */
        log_warn("a sandbox's lifetime is not the provider's", KV("sandbox", l->s.id),
                 KV("error", err->msg));
        *err = (struct err){ 0 };
    }
    return 0;
}

/* ---- what cannot be read ---- */

void adopt_unreachable(struct live *l, const char *why)
{
    if (strcmp(l->unreachable, why)) {
        snprintf(l->unreachable, sizeof(l->unreachable), "%s", why);
        log_error("a sandbox is unreachable", KV("sandbox", l->s.id), KV("why", why));
        control_event_add(l, "unreachable", "system", why, NULL);
    }
    pause_settle_later(l);
}

static void adopt_reachable(struct live *l)
{
    if (!*l->unreachable)
        return;
    l->unreachable[0] = 0;
    l->again = l->settle_ms = 0;
    log_info("a sandbox can be reached again", KV("sandbox", l->s.id));
    control_event_add(l, "reachable", "system", "what could not be reached of it is there again",
                      NULL);
}

/* 0 it is ours, -1 with err; or it must end although its machine is there. */
enum { ENDED_WITH_MACHINE = 1 };

static int keep(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    struct machine_state m;

    if (p->ops->adopt(p, l->s.id, &m, err))
        return -1;
    if (m.astray && l->s.state == SANDBOX_RUNNING)
        return ENDED_WITH_MACHINE;
    if (*m.unreachable) {
        if (m.astray && pause_over(l, err))
            return -1;
        adopt_unreachable(l, m.unreachable);
        return 0;
    }
    if (m.asleep && l->s.state == SANDBOX_RUNNING && l->s.life.restart &&
        restart_note(l, NULL, err))
        return -1;
    adopt_reachable(l);
    if (!m.asleep)
        l->s.limits = m.limits;
    mark_see(l, &m);
    l->touched = co_now();
    if (adopt_state(l, &m, err))
        return -1;
    if (forward_open(l, err)) { /* somebody took the port meanwhile: the rest of it still works */
        control_event_add(l, "failed", "system", err->msg, NULL);
        log_warn("a port is not forwarded any more", KV("sandbox", l->s.id), KV("error", err->msg));
        *err = (struct err){ 0 };
    }
    life_arm(l);
    samples_begin(l);
    return 0;
}

static const char *gone_reason(const struct live *l)
{
    if (l->s.state == SANDBOX_CREATING)
        return "failed: interrupted: the server ended while it was being created";
    if (l->s.state == SANDBOX_ENDING)
        return "request: the server ended while it was being ended";
    if (l->s.end_ms && l->s.end_ms <= control_wall_ms())
        return "lifetime: its time-out passed while the server was not running";
    if (l->s.state == SANDBOX_PAUSED)
        return "itself: it was paused, and neither its machine nor its files were there at start";
    return "itself: its machine was gone at start";
}

/* A machine is claimed when its client has the answer, before which its record was RUNNING. One of
 * our own store that says so has lost that with the power, and all that ran with it. 0 it runs, -1
 * with err; or its create is to be undone. */
enum { UNDONE = 1 };

static int finish_create(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    struct sandbox next = l->s;
    struct event e = control_event_of(&l->s, "started", "system",
                                      "its record is older than it: a backup was put back");
    struct machine_state m;

    if (p->ops->adopt(p, l->s.id, &m, err))
        return -1;
    if (m.mark.claim != ORDER_CLAIMED || mark_is_ours(l->control, &m.mark))
        return UNDONE;
    next.state = SANDBOX_RUNNING;
    next.started_ms = e.at_ms;
    next.end_ms = next.life.timeout_ms ? e.at_ms + next.life.timeout_ms : 0;
    return control_save(l, &next, &e, err);
}

static int settle(struct live *l, bool machine, struct err *err)
{
    int made = machine && l->s.state == SANDBOX_CREATING ? finish_create(l, err) : 0;
    bool end = !machine || made == UNDONE || l->s.state == SANDBOX_ENDING;
    int kept = made < 0 ? -1 : end ? 0 : keep(l, err);

    if (kept < 0 && !provider_gone(l->control->provider, l->s.id, err)) {
        if (err->code != ERR_NOT_FOUND)
            return err_in(err, "adopt sandbox %s", l->s.id);
        adopt_unreachable(l, err->msg); /* something on the way to it is not there */
        *err = (struct err){ 0 };
        return 0;
    }
    if (kept < 0) {
        machine = false;
        *err = (struct err){ 0 };
    }
    if ((end || kept) &&
        life_end(l, "system",
                 kept > 0 ? "itself: its machine was gone, and only its files were found"
                          : gone_reason(l),
                 machine, err))
        *err = (struct err){ 0 }; /* it is a leftover now */
    return 0;
}

void adopt_look(struct live *l)
{
    struct err err = { 0 };

    if (!settle(l, true, &err))
        return;
    log_debug("an unreachable sandbox is not settled yet", KV("sandbox", l->s.id),
              KV("error", err.msg));
    pause_settle_later(l);
}

int adopt_refuse(struct live *l, struct err *err)
{
    if (*l->unreachable) /* who asks need not wait for the next look */
        adopt_look(l);
    return *l->unreachable
               ? err_set_host(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached: %.160s", l->s.id,
                              l->unreachable)
               : 0;
}

struct settling {
    const struct refs *machines;
    struct live **rows; /* held */
    size_t n, next, kept, running;
    struct co_cond ended;
    int result;
    struct err err;
};

static int settle_one(struct settling *g, struct live *l, struct err *err)
{
    const struct refs *m = g->machines;
    bool machine = m->n && bsearch(l->s.id, m->items, m->n, sizeof(*m->items), compare_refs);
    struct err unlisted = { .code = ERR_NOT_FOUND, .reason = ERR_NO_SANDBOX, .msg = "not listed" };
    int r = live_lock(l, err);

    if (r)
        return r;
    if (l->s.state != SANDBOX_ENDED)
        r = settle(l, machine || !provider_gone(l->control->provider, l->s.id, &unlisted), err);
    g->kept += l->s.state != SANDBOX_ENDED;
    live_unlock(l);
    return r;
}

/* Several at once: the provider works on one while we take the answer about another. */
static void settle_some(void *arg)
{
    struct settling *g = arg;

    while (g->next < g->n) {
        struct live *l = g->rows[g->next++];
        struct err err = { 0 };

        if (!g->result && settle_one(g, l, &err) && !g->result) {
            g->result = -1;
            g->err = err;
        }
        live_release(l);
    }
    g->running--;
    co_cond_wake(&g->ended);
}

static int settle_all(struct control *c, const struct refs *machines, struct err *err)
{
    struct settling g = { .machines = machines,
                          .rows = xcalloc(c->count + 1, sizeof(struct live *)) };
    struct live *l;

    co_cond_init(&g.ended);
    list_each(l, &c->all, all) {
        live_hold(l);
        g.rows[g.n++] = l;
    }
    for (int i = 0; i < AT_ONCE; i++) {
        g.running++;
        if (control_go(c, settle_some, &g))
            settle_some(&g);
    }
    while (g.running)
        if (co_cond_wait(&g.ended, NEVER)) /* cancelled: they still use what is ours */
            co_pass();
    free(g.rows);
    if (g.result)
        *err = g.err;
    else if (g.n)
        log_info("sandboxes of a former run", KVI("kept", (int64_t)g.kept),
                 KVI("ended", (int64_t)(g.n - g.kept)));
    return g.result;
}

/* ---- machines that no record knows ---- */

static const char *ref_at(void *arg, size_t i)
{
    const struct refs *r = arg;

    return i < r->n ? r->items[i] : NULL;
}

int control_adopt(struct control *c, struct err *err)
{
    struct refs machines = { 0 };
    struct err ignored;
    int r;

    if (!template_refresh(c, &ignored))
        pool_follow(c);
    r = load(c, err);
    if (!r)
        r = c->provider->ops->list(c->provider, collect_ref, &machines, err);
    if (!r && machines.n)
        qsort(machines.items, machines.n, sizeof(*machines.items), compare_refs);
    if (!r)
        r = settle_all(c, &machines, err);
    if (!r)
        orphans_settle(c, ref_at, &machines);
    free(machines.items);
    return r < 0 ? -1 : 0;
}
