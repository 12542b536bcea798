/* life.c - how long a sandbox lives: deadlines by the monotonic clock in one heap, one coroutine
 * that sleeps until the first of them, and the calls that move them. Wall time is only ever shown:
 * setting the machine's clock ends nothing.
 *
 * The provider holds a deadline too, a little later than ours, so that a sandbox ends even when we
 * are not there to end it. */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

/* ---- the heap ---- */

static void place(struct control *c, struct live *l, size_t at)
{
    c->heap[at] = l;
    l->slot = at;
}

static void sift(struct control *c, struct live *l, size_t at)
{
    while (at > 1 && c->heap[at / 2]->due > l->due) {
        place(c, c->heap[at / 2], at);
        at /= 2;
    }
    for (;;) {
        size_t child = at * 2;

        if (child + 1 <= c->nheap && c->heap[child + 1]->due < c->heap[child]->due)
            child++;
        if (child > c->nheap || c->heap[child]->due >= l->due)
            break;
        place(c, c->heap[child], at);
        at = child;
    }
    place(c, l, at);
}

void life_disarm(struct live *l)
{
    struct control *c = l->control;
    size_t at = l->slot;
    struct live *last;

    if (at == NOT_IN_HEAP)
        return;
    l->slot = NOT_IN_HEAP;
    last = c->heap[c->nheap--];
    if (last != l)
        sift(c, last, at);
}

static int64_t end_of(const struct live *l)
{
    int64_t idle = l->s.life.idle_ms && !l->working ? l->touched + l->s.life.idle_ms : NEVER;

    return MIN(l->deadline, idle);
}

static int64_t due_of(const struct live *l)
{
    /* whatever its time is: we do not know how it is. Who has cleared `again` meanwhile wants a
     * look at once */
    if (*l->unreachable && l->s.state != SANDBOX_ENDED)
        return l->again;
    switch ((enum sandbox_state)l->s.state) {
    case SANDBOX_RUNNING: return MAX(end_of(l), l->again);
    case SANDBOX_PAUSED: return l->deadline;
    case SANDBOX_PAUSING:
    case SANDBOX_RESUMING: return l->again ? l->again : NEVER;
    case SANDBOX_CREATING:
    case SANDBOX_ENDING:
    case SANDBOX_ENDED:
    case SANDBOX_STATES: break;
    }
    return NEVER;
}

/* Activity moves no entry: the entry comes up at the old time, and is put back. */
void life_arm(struct live *l)
{
    struct control *c = l->control;

    life_disarm(l);
    l->due = due_of(l);
    if (l->due == NEVER)
        return;
    if (c->nheap + 1 >= c->heap_cap) {
        c->heap_cap = c->heap_cap ? c->heap_cap * 2 : 64;
        c->heap = xrealloc(c->heap, c->heap_cap * sizeof(struct live *));
    }
    sift(c, l, ++c->nheap);
    if (l->slot == 1)
        co_cond_wake(&c->heap_changed);
}

/* ---- expiry ---- */

enum {
    PAUSE_RETRY_MS = 1000,
    PAUSE_RETRY_MAX_MS = 30000,
    PAUSE_WATCH_MS = 60000, /* the queue has it: in case that is forgotten */
    WHY = 384,
};

static void end_expired(struct live *l, const char *why)
{
    struct err err = { 0 };

    l->control->counts.expired++;
    if (life_end(l, "system", why, true, &err))
        log_warn("an expired sandbox is not ended yet", KV("sandbox", l->s.id),
                 KV("error", err.msg));
}

/* 0 paused, or in another state by now; 1 ended, because it has failed for too long; -1 */
static int try_pause(struct live *l, const char *why, int64_t failed_ms, struct err *err)
{
    char text[WHY];

    if (!life_pause(l, "system", why, l->s.life.expiry == EXPIRY_PAUSE_FILES, err) ||
        l->s.state != SANDBOX_RUNNING)
        return 0;
    if (failed_ms < control_limits.pause_give_up_s * 1000) {
        log_warn("an expired sandbox cannot be paused", KV("sandbox", l->s.id),
                 KV("error", err->msg));
        return -1;
    }
    snprintf(text, sizeof(text), "%s, and pausing it failed for %lld s: %.200s", why,
             (long long)(failed_ms / 1000), err->msg);
    end_expired(l, text);
    return 1;
}

/* It goes on while it cannot be paused, but not for ever. The queue knows since when; while the
 * store cannot be written, which may well be why pausing fails, our memory does. */
static void pause_expired(struct live *l, const char *why)
{
    struct err err = { 0 };
    int64_t failed_ms = l->failing ? co_now() - l->failing : 0;
    int64_t wait_ms = MAX(failed_ms, (int64_t)PAUSE_RETRY_MS);

    if (try_pause(l, why, failed_ms, &err) >= 0)
        return;
    if (!l->failing)
        l->failing = co_now();
    if (!retry_later(l, &err))
        wait_ms = PAUSE_WATCH_MS;
    else
        wait_ms = MIN(wait_ms, (int64_t)PAUSE_RETRY_MAX_MS);
    l->again = co_in(wait_ms);
    life_arm(l);
}

static void say_why(const struct live *l, char out[static WHY])
{
    if (l->s.life.idle_ms && l->deadline > co_now())
        snprintf(out, WHY, "lifetime: nobody used it for %lld s",
                 (long long)(l->s.life.idle_ms / 1000));
    else
        snprintf(out, WHY, "lifetime: its time-out of %lld s has passed",
                 (long long)(l->s.life.timeout_ms / 1000));
}

static void expire_running(struct live *l)
{
    char why[WHY];

    say_why(l, why);
    (l->s.life.expiry == EXPIRY_KILL ? end_expired : pause_expired)(l, why);
}

/* A restart may have given it time anew; its record still has the end that came then. */
int life_retry(struct live *l, int64_t end_ms, int64_t failed_ms, struct err *err)
{
    bool same = end_ms && end_ms == l->s.end_ms;
    char why[WHY];
    int r;

    if (adopt_refuse(l, err))
        return -1;
    if (l->s.state != SANDBOX_RUNNING || l->s.life.expiry == EXPIRY_KILL ||
        (!same && end_of(l) > co_now()))
        return 0;
    say_why(l, why);
    r = try_pause(l, why, failed_ms, err);
    if (r < 0) {
        l->again = co_in(PAUSE_WATCH_MS);
        life_arm(l);
    }
    return r;
}

static void expire_paused(struct live *l)
{
    char why[WHY];

    snprintf(why, sizeof(why), "retention: it was paused for %lld s (--paused-retention)",
             (long long)control_limits.paused_retention_s);
    end_expired(l, why);
}

static void expire(void *arg)
{
    AUTO(live_releasep) struct live *l = arg;
    struct err err = { 0 };

    if (live_lock(l, &err))
        return;
    if (due_of(l) > co_now()) { /* moved, or not running any more */
        life_arm(l);
        live_unlock(l);
        return;
    }
    if (*l->unreachable)
        adopt_look(l);
    else if (l->s.state == SANDBOX_RUNNING)
        expire_running(l);
    else if (l->s.state == SANDBOX_PAUSED)
        expire_paused(l);
    else
        pause_settle_now(l);
    live_unlock(l);
}

void life_serve(void *control)
{
    struct control *c = control;

    while (!c->closing) {
        struct live *l = c->nheap ? c->heap[1] : NULL;

        if (!l || l->due > co_now()) {
            if (co_cond_wait(&c->heap_changed, l ? l->due : NEVER) && errno == ECANCELED)
                return;
            continue;
        }
        life_disarm(l);
        live_hold(l);
        if (control_go(c, expire, l)) {
            live_release(l);
            life_arm(l);
            co_sleep(co_in(100)); /* no memory for a stack: there will be */
        }
    }
}

/* ---- moving deadlines ---- */

int64_t life_check_timeout(int64_t ms, struct err *err)
{
    int64_t max = (int64_t)limit_rows[LIMIT_LIFETIME].max - GRACE_MS;

    if (ms >= 0 && ms <= max)
        return ms;
    return err_set(err, ERR_INVALID, "the time-out is %lld s; it must be from 0 (none) to %lld s",
                   (long long)(ms / 1000), (long long)(max / 1000));
}

/* One that is paused at its end must not be ended by the provider meanwhile. */
uint64_t life_net_ms(const struct life *l)
{
    return l->timeout_ms && l->expiry == EXPIRY_KILL ? (uint64_t)(l->timeout_ms + GRACE_MS)
                                                     : limit_rows[LIMIT_LIFETIME].max;
}

int life_lock(struct live *l, const struct actor *who, struct err *err)
{
    if (!table_may_see(who, &l->s))
        return table_not_found(str_of(l->s.id), err);
    if (live_lock(l, err))
        return -1;
    if (l->s.state != SANDBOX_ENDED)
        return 0;
    live_unlock(l);
    return table_not_found(str_of(l->s.id), err);
}

static int64_t deadline_in(int64_t ms) { return ms ? co_now() + ms : NEVER; }

/* Written down; the provider has no part in it. */
static int note_timeout(struct live *l, const struct actor *who, const struct sandbox *next,
                        const char *since, struct err *err)
{
    int64_t ms = next->life.timeout_ms;
    char text[80] = "it has no time-out any more";
    struct event e = control_event_of(&l->s, "timeout-changed", who ? who->name : "system", text);

    if (ms)
        snprintf(text, sizeof(text), "its time-out is %lld s from %s", (long long)(ms / 1000),
                 since);
    return control_save(l, next, &e, err);
}

static int move_deadline(struct live *l, const struct actor *who, int64_t ms, struct err *err)
{
    struct provider *p = l->control->provider;
    struct limits net = { 0 }, old = { .lifetime_ms = life_net_ms(&l->s.life) };
    struct sandbox next = l->s;
    struct err ignored;

    next.life.timeout_ms = ms;
    if (l->s.state == SANDBOX_PAUSED)
        return note_timeout(l, who, &next, "the moment it is resumed", err);
    next.end_ms = ms ? control_wall_ms() + ms : 0;
    net.lifetime_ms = life_net_ms(&next.life);
    if (p->ops->limits(p, l->s.id, &net, err))
        return -1;
    if (note_timeout(l, who, &next, "now", err)) {
        p->ops->limits(p, l->s.id, &old, &ignored); /* later than it was, never earlier */
        return -1;
    }
    l->deadline = deadline_in(ms);
    l->again = l->failing = 0;
    life_arm(l);
    return 0;
}

int life_extend(struct live *l, const struct actor *who, int64_t ms, struct err *err)
{
    bool later = l->s.state == SANDBOX_PAUSED
                     ? l->s.life.timeout_ms && (!ms || ms > l->s.life.timeout_ms)
                     : deadline_in(ms) > l->deadline;

    return later ? move_deadline(l, who, ms, err) : 0;
}

int control_set_timeout(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                        bool extend, struct err *err)
{
    struct live *l = live_of(s);
    int r;

    (void)c;
    if (life_check_timeout(ms, err) < 0)
        return -1;
    live_hold(l);
    if (life_lock(l, who, err)) {
        r = -1;
    } else {
        r = extend ? life_extend(l, who, ms, err) : move_deadline(l, who, ms, err);
        live_unlock(l);
    }
    live_release(l);
    return r;
}

static int move_idle(struct live *l, const struct actor *who, int64_t ms, struct err *err)
{
    struct sandbox next = l->s;
    char text[64] = "";
    struct event e = control_event_of(&l->s, "timeout-changed", who ? who->name : "system", text);

    next.life.idle_ms = ms;
    snprintf(text, sizeof(text), "it may be idle for %lld s", (long long)(ms / 1000));
    if (control_save(l, &next, &e, err))
        return -1;
    l->touched = co_now();
    l->again = l->failing = 0;
    life_arm(l);
    return 0;
}

int control_set_idle(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                     struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    (void)c;
    live_hold(l);
    if (life_check_timeout(ms, err) < 0 || life_lock(l, who, err))
        return -1;
    r = move_idle(l, who, ms, err);
    live_unlock(l);
    return r;
}

void control_work_end(struct sandbox *s)
{
    struct live *l = live_of(s);

    l->touched = co_now();
    if (!--l->working && l->control && l->s.state == SANDBOX_RUNNING)
        life_arm(l);
}

void control_touch(struct sandbox *s) { live_of(s)->touched = co_now(); }

const char *control_unreachable(struct control *c, const char *id)
{
    const struct live *l = table_find(c, str_of(id));

    return l && *l->unreachable ? l->unreachable : NULL;
}

int64_t control_left_ms(const struct sandbox *s)
{
    int64_t due = due_of(live_of_const(s));

    return due == NEVER ? NEVER : MAX(due - co_now(), (int64_t)0);
}

/* ---- limits ---- */

static int change_limits(struct live *l, const struct actor *who, const struct limits *want,
                         struct err *err)
{
    struct provider *p = l->control->provider;
    struct limits old = l->s.limits, set = *want;
    struct sandbox next = l->s;
    struct event e = control_event_of(&l->s, "limits-changed", who ? who->name : "system",
                                      "its limits were changed");
    struct err ignored;

    set.lifetime_ms = old.lifetime_ms = 0;
    if (p->ops->limits(p, l->s.id, &set, err))
        return -1;
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++)
        if (limits_get(&set, id))
            *limits_field(&next.limits, id) = limits_get(&set, id);
    if (!control_save(l, &next, &e, err))
        return 0;
    p->ops->limits(p, l->s.id, &old, &ignored);
    return -1;
}

int control_set_limits(struct control *c, const struct actor *who, struct sandbox *s,
                       const struct limits *want, struct err *err)
{
    struct live *l = live_of(s);
    struct limits bounds = *want;
    int r;

    (void)c;
    bounds.lifetime_ms = 0;
    if (limits_fill(&bounds, NULL, err))
        return -1;
    if (want->open_files || want->log_bytes)
        return err_set(err, ERR_UNSUPPORTED,
                       "limits '%s' and '%s' are set when a sandbox is created, and stay",
                       limit_rows[LIMIT_FILES].name, limit_rows[LIMIT_LOG].name);
    live_hold(l);
    r = life_lock(l, who, err);
    if (!r) {
        r = change_limits(l, who, want, err);
        live_unlock(l);
    }
    live_release(l);
    return r;
}

/* ---- killing ---- */

int control_kill(struct control *c, const struct actor *who, struct sandbox *s, const char *reason,
                 struct err *err)
{
    struct live *l = live_of(s);
    char why[USER_NAME + 160];
    int r;

    (void)c;
    if (reason)
        snprintf(why, sizeof(why), "request: %s", reason);
    else
        snprintf(why, sizeof(why), "request: ended by %s", who ? who->name : "the system");
    live_hold(l);
    r = life_lock(l, who, err);
    if (!r) {
        r = life_end(l, who ? who->name : "system", why, true, err);
        live_unlock(l);
    }
    live_release(l);
    return r;
}

int control_stat(struct control *c, struct sandbox *s, struct machine_state *out, struct err *err)
{
    struct live *l = live_of(s);
    int r;

    live_hold(l);
    r = c->provider->ops->stat(c->provider, l->s.id, out, err);
    if (r && err->reason == ERR_NO_SANDBOX) /* it ended just now */
        table_not_found(str_of(l->s.id), err);
    if (!r && out->stopped)
        health_doubt(l);
    live_release(l);
    return r;
}
