/* pause.c - sandboxes that stand still.
 *
 *   pause    RUNNING -> PAUSING, written; the machine stands still; PAUSED, written
 *   resume   PAUSED -> RESUMING, written; the machine goes on; RUNNING, written
 *
 * A step that fails is undone. What cannot be undone now (no keeper, no disk) stays PAUSING or
 * RESUMING and is settled as soon as that is possible, by the same table as after a crash:
 *
 *   record     machine: running          paused               only files left
 *   RUNNING    -                         it goes on           PAUSED
 *   PAUSING    RUNNING                   PAUSED               PAUSED
 *   PAUSED     it is paused again        -                    -
 *   RESUMING   RUNNING                   PAUSED               PAUSED (RUNNING if it is to restart)
 *
 * Deadlines stand still with it; resuming sets a new one. */
#include <string.h>

#include "base/log.h"
#include "control/impl.h"

enum { SETTLE_MS = 1000, SETTLE_MAX_MS = 30000 };

static int64_t retention_ms(void) { return control_limits.paused_retention_s * 1000; }

static int save_as(struct live *l, enum sandbox_state state, const struct event *e, struct err *err)
{
    struct sandbox next = l->s;

    next.state = state;
    return control_save(l, &next, e, err);
}

/* Looks again in a while, and then ever more seldom. */
void pause_settle_later(struct live *l)
{
    l->settle_ms = l->settle_ms ? MIN(l->settle_ms * 2, (int64_t)SETTLE_MAX_MS) : SETTLE_MS;
    l->again = co_in(l->settle_ms);
    life_arm(l);
}

static void settled(struct live *l)
{
    l->again = l->settle_ms = 0;
    life_arm(l);
}

/* A call about its machine failed: is there none? It has ended then. Whatever else was not found on
 * the way may be there again, and then it can be tried again. */
static bool lost(struct live *l, struct err *err)
{
    struct err ignored = { 0 };
    char id[SANDBOX_ID + 1];

    if (!provider_gone(l->control->provider, l->s.id, err)) {
        if (err->code == ERR_NOT_FOUND)
            err->code = ERR_UNAVAILABLE;
        return false;
    }
    memcpy(id, l->s.id, sizeof(id));
    life_end(l, "system", MACHINE_IS_GONE, false, &ignored);
    table_not_found(str_of(id), err);
    return true;
}

/* ---- pausing ---- */

/* One that was started again on its files knows nothing: neither its environment nor its token,
 * without which it would let anybody in. */
static int teach_guest(struct live *l, struct err *err)
{
    struct control *c = l->control;
    const struct machine_template *t = template_find(c, l->s.template);
    struct guest_init g = { .env = &l->s.env,
                            .token = l->s.token,
                            .known = true,
                            .user = t ? t->user : NULL,
                            .workdir = t ? t->workdir : NULL };
    struct limits limits = l->s.limits;
    struct client_to to;

    control_to(c, &l->s, PROVIDER_GUEST_PORT, &to);
    client_forget(&c->client, &to);
    co_close(TAKE(l->spare, -1));
    limits.lifetime_ms = 0;
    limits.open_files = limits.log_bytes = 0; /* of its birth: those it has */
    return guest_init(c, &to, &g, err) ||
                   c->provider->ops->limits(c->provider, l->s.id, &limits, err)
               ? -1
               : 0;
}

static int save_paused(struct live *l, const struct event *e, struct err *err)
{
    struct sandbox next = l->s;

    next.state = SANDBOX_PAUSED;
    next.end_ms = retention_ms() ? control_wall_ms() + retention_ms() : 0;
    if (control_save(l, &next, e, err))
        return -1;
    l->paused_ms = e ? e->at_ms : 0;
    l->deadline = retention_ms() ? co_now() + retention_ms() : NEVER;
    l->control->counts.paused++;
    reach_interrupt(l);
    settled(l);
    return 0;
}

static void undo_pause(struct live *l)
{
    struct provider *p = l->control->provider;
    struct err err = { 0 };
    bool anew;

    if (!p->ops->resume(p, l->s.id, 0, &anew, &err) && !(anew && teach_guest(l, &err)) &&
        !save_as(l, SANDBOX_RUNNING, NULL, &err)) {
        settled(l);
        return;
    }
    log_warn("a pause that failed is not undone yet", KV("sandbox", l->s.id), KV("error", err.msg));
    pause_settle_later(l);
}

int life_pause(struct live *l, const char *actor, const char *why, bool files_only, struct err *err)
{
    struct provider *p = l->control->provider;
    int64_t since_us = clock_us();
    uint64_t flush_us = 0;
    char text[USER_NAME + 128], detail[96];
    struct event e;

    if (save_as(l, SANDBOX_PAUSING, NULL, err))
        return -1;
    life_disarm(l);
    if (p->ops->pause(p, l->s.id, files_only, &flush_us, err)) {
        if (lost(l, err))
            return -1;
        undo_pause(l);
        return err_in(err, "sandbox %s goes on", l->s.id);
    }
    snprintf(text, sizeof(text), "%s", why);
    snprintf(detail, sizeof(detail), "{\"memory\":%s,\"flush_ms\":%.3f,\"other_ms\":%.3f}",
             files_only ? "false" : "true", (double)flush_us / 1000,
             (double)(clock_us() - since_us - (int64_t)flush_us) / 1000);
    e = control_event_of(&l->s, "paused", actor, text);
    e.detail = detail;
    if (!save_paused(l, &e, err))
        return 0;
    if (files_only) { /* its processes do not come back: it is paused as soon as it can be written
                       */
        pause_settle_later(l);
        return err_in(err, "sandbox %s is being paused", l->s.id);
    }
    undo_pause(l);
    return err_in(err, "sandbox %s goes on", l->s.id);
}

/* ---- resuming ---- */

/* The event log remembers what a former server did. */
static int last_pause(void *arg, const struct event *e)
{
    if (!strcmp(e->kind, "paused"))
        *(int64_t *)arg = e->at_ms;
    return 0;
}

static int64_t paused_for_ms(struct live *l)
{
    struct err ignored = { 0 };

    if (!l->paused_ms)
        control_events(l->control, l->s.id, 0, INT32_MAX, last_pause, &l->paused_ms, &ignored);
    return l->paused_ms ? MAX(control_wall_ms() - l->paused_ms, (int64_t)0) : 0;
}

/* Inside, clocks have moved on in one step: the guest says so to whoever asks it. */
static void tell_guest(void *arg)
{
    AUTO(live_releasep) struct live *l = arg;
    struct control *c = l->control;
    struct guest_init g = { .token = l->s.token, .known = true, .paused_ms = l->paused_for };
    struct client_to to;
    struct err err = { 0 };

    control_to(c, &l->s, PROVIDER_GUEST_PORT, &to);
    if (l->s.state == SANDBOX_RUNNING && guest_init(c, &to, &g, &err))
        log_debug("a guest was not told of its pause", KV("sandbox", l->s.id),
                  KV("error", err.msg));
}

/* Dying gives no sandbox more time. */
static uint64_t net_ms(const struct live *l)
{
    if (!*l->down || l->deadline == NEVER || l->s.life.expiry != EXPIRY_KILL)
        return life_net_ms(&l->s.life);
    return (uint64_t)(MAX(l->deadline - co_now(), (int64_t)0) + GRACE_MS);
}

static int wake_machine(struct live *l, bool *anew, struct err *err)
{
    struct provider *p = l->control->provider;

    if (p->ops->resume(p, l->s.id, net_ms(l), anew, err))
        return -1;
    return *anew ? teach_guest(l, err) : 0;
}

static int save_running(struct live *l, const char *actor, const char *why, bool anew,
                        struct err *err)
{
    struct control *c = l->control;
    char detail[64] = "";
    struct sandbox next = l->s;
    bool died = *l->down; /* its time went on meanwhile */
    struct event e = control_event_of(
        &l->s, anew ? "restarted" : "resumed", actor,
        died   ? l->down
        : anew ? "its processes were gone, as after a restart: it was started again "
                 "on its files"
               : why);

    l->paused_for = died ? 0 : paused_for_ms(l);
    if (l->paused_for) {
        snprintf(detail, sizeof(detail), "{\"paused_ms\":%lld}", (long long)l->paused_for);
        e.detail = detail;
    }
    next.state = SANDBOX_RUNNING;
    if (!died)
        next.end_ms = next.life.timeout_ms ? control_wall_ms() + next.life.timeout_ms : 0;
    if (control_save(l, &next, &e, err))
        return -1;
    l->touched = l->woken = co_now();
    l->down[0] = 0;
    if (!died)
        l->deadline = next.life.timeout_ms ? l->touched + next.life.timeout_ms : NEVER;
    l->paused_ms = l->failing = 0;
    c->counts.resumed++;
    settled(l);
    if (!anew && l->paused_for) {
        live_hold(l);
        if (control_go(c, tell_guest, l))
            live_release(l);
    }
    return 0;
}

static void undo_resume(struct live *l)
{
    struct provider *p = l->control->provider;
    uint64_t flush_us;
    struct err err = { 0 };

    if (!p->ops->pause(p, l->s.id, false, &flush_us, &err) &&
        !save_as(l, SANDBOX_PAUSED, NULL, &err)) {
        l->deadline = retention_ms() ? co_now() + retention_ms() : NEVER;
        settled(l);
        return;
    }
    log_warn("a resume that failed is not undone yet", KV("sandbox", l->s.id),
             KV("error", err.msg));
    pause_settle_later(l);
}

static int resume(struct live *l, const char *actor, const char *why, int64_t timeout_ms,
                  struct err *err)
{
    struct sandbox next = l->s;
    bool anew = false;

    next.state = SANDBOX_RESUMING;
    next.life.timeout_ms = timeout_ms;
    if (control_save(l, &next, NULL, err))
        return -1;
    life_disarm(l);
    if (!wake_machine(l, &anew, err) && !save_running(l, actor, why, anew, err))
        return 0;
    if (lost(l, err))
        return -1;
    undo_resume(l);
    return err_in(err, "sandbox %s stays paused", l->s.id);
}

/* ---- settling ---- */

static int pause_again(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    uint64_t flush_us;

    if (!p->ops->pause(p, l->s.id, false, &flush_us, err))
        return 0;
    log_warn("a paused sandbox runs", KV("sandbox", l->s.id), KV("error", err->msg));
    *err = (struct err){ 0 };
    return save_as(l, SANDBOX_RESUMING, NULL, err) ||
                   save_running(l, "system", "somebody else let it go on", false, err)
               ? -1
               : 0;
}

/* Its files are as it was paused, so nothing is lost by going on from them. The table of states has
 * no way from RUNNING to PAUSED alone. */
static int save_found_paused(struct live *l, struct err *err)
{
    struct event e = control_event_of(&l->s, "paused", "system",
                                      "its files were found paused, although its record said that "
                                      "it ran");

    return save_as(l, SANDBOX_PAUSING, NULL, err) || save_paused(l, &e, err) ? -1 : 0;
}

int pause_settle(struct live *l, const struct machine_state *m, struct err *err)
{
    struct provider *p = l->control->provider;
    struct event e = control_event_of(&l->s, "paused", "system", "what was begun is done");
    bool anew = false;

    switch ((enum sandbox_state)l->s.state) {
    case SANDBOX_RUNNING:
        if (m->asleep)
            return save_found_paused(l, err);
        return m->paused ? p->ops->resume(p, l->s.id, 0, &anew, err) : 0;
    case SANDBOX_PAUSING:
        if (m->paused)
            return save_paused(l, &e, err);
        /* who asked for it is gone, and it may still be on its way */
        return p->ops->resume(p, l->s.id, 0, &anew, err) || save_as(l, SANDBOX_RUNNING, NULL, err)
                   ? -1
                   : 0;
    case SANDBOX_PAUSED: return m->paused ? 0 : pause_again(l, err);
    case SANDBOX_RESUMING:
        if (m->paused && !(m->asleep && l->s.life.restart))
            return save_paused(l, NULL, err);
        return wake_machine(l, &anew, err) ||
                       save_running(l, "system", "what was begun is done", anew, err)
                   ? -1
                   : 0;
    case SANDBOX_CREATING:
    case SANDBOX_ENDING:
    case SANDBOX_ENDED:
    case SANDBOX_STATES: break;
    }
    return 0;
}

int pause_over(struct live *l, struct err *err)
{
    struct event e = control_event_of(&l->s, "paused", "system",
                                      "it has no processes any more, and its files are kept");

    return l->s.state == SANDBOX_PAUSING || l->s.state == SANDBOX_RESUMING ? save_paused(l, &e, err)
                                                                           : 0;
}

void pause_settle_now(struct live *l)
{
    struct provider *p = l->control->provider;
    struct machine_state m;
    struct err err = { 0 };

    if (!p->ops->stat(p, l->s.id, &m, &err) && !pause_settle(l, &m, &err)) {
        settled(l);
        return;
    }
    if (lost(l, &err))
        return;
    log_debug("not settled yet", KV("sandbox", l->s.id), KV("error", err.msg));
    pause_settle_later(l);
}

void pause_wait(struct live *l, int64_t ms)
{
    l->again = co_in(ms);
    life_arm(l);
}

/* Of one that a former server paused. What cannot be is of a clock that somebody has set, as in
 * deadline_of(): then all of its time begins again. So it does after it has passed without us. */
int64_t pause_deadline(const struct live *l)
{
    int64_t all = retention_ms(), left = l->s.end_ms ? l->s.end_ms - control_wall_ms() : all;

    return all ? co_now() + (left >= 0 && left <= all ? left : all) : NEVER;
}

/* ---- by request ---- */

static int not_now(const struct live *l, struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "sandbox %s is %s: try again in a moment", l->s.id,
                   sandbox_state_names[l->s.state]);
}

static const char *name_of(const struct actor *who) { return who ? who->name : "system"; }

static int pause_locked(struct live *l, const struct actor *who, const char *reason, bool memory,
                        struct err *err)
{
    char why[USER_NAME + 160];

    if (adopt_refuse(l, err))
        return -1;
    if (l->s.state == SANDBOX_PAUSED)
        return err_set(err, ERR_CONFLICT, "sandbox %s is paused already", l->s.id);
    if (l->s.state != SANDBOX_RUNNING)
        return not_now(l, err);
    snprintf(why, sizeof(why), "%s asked for it%s%.120s", name_of(who), reason ? ": " : "",
             reason ? reason : "");
    return life_pause(l, name_of(who), why, !memory, err);
}

int control_pause(struct control *c, const struct actor *who, struct sandbox *s, const char *reason,
                  bool memory, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    (void)c;
    live_hold(l);
    if (life_lock(l, who, err))
        return -1;
    r = pause_locked(l, who, reason, memory, err);
    live_unlock(l);
    return r;
}

static int resume_locked(struct live *l, const struct actor *who, int64_t ms, bool memory,
                         struct err *err)
{
    struct provider *p = l->control->provider;
    uint64_t flush_us;
    char why[USER_NAME + 32];

    if (adopt_refuse(l, err))
        return -1;
    if (l->s.state != SANDBOX_PAUSED)
        return not_now(l, err);
    if (!memory && p->ops->pause(p, l->s.id, true, &flush_us, err)) {
        lost(l, err);
        return -1;
    }
    snprintf(why, sizeof(why), who ? "%s asked for it" : "a request woke it", name_of(who));
    return resume(l, name_of(who), why, ms < 0 ? l->s.life.timeout_ms : ms, err);
}

int control_resume(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                   bool memory, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    (void)c;
    live_hold(l);
    if ((ms >= 0 && life_check_timeout(ms, err) < 0) || life_lock(l, who, err))
        return -1;
    if (l->s.state == SANDBOX_RUNNING)
        r = err_set(err, ERR_CONFLICT, "sandbox %s is not paused", l->s.id);
    else
        r = resume_locked(l, who, ms, memory, err);
    live_unlock(l);
    return r;
}

int control_connect(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                    bool memory, bool *resumed, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    (void)c;
    live_hold(l);
    if (life_check_timeout(ms, err) < 0 || life_lock(l, who, err))
        return -1;
    *resumed = l->s.state != SANDBOX_RUNNING;
    r = *resumed ? resume_locked(l, who, ms, memory, err) : life_extend(l, who, ms, err);
    live_unlock(l);
    return r;
}

/* The machine knows: one that was paused with its memory may have lost it since. */
static int refuse_stray(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    struct machine_state m;

    if (l->s.state != SANDBOX_PAUSED)
        return 0;
    if (p->ops->stat(p, l->s.id, &m, err))
        return -1;
    return m.asleep ? err_set(err, ERR_DENIED,
                              "sandbox %s is paused, and only its files are kept: resume it first",
                              l->s.id)
                    : 0;
}

static int wake_locked(struct live *l, bool stray, struct err *err)
{
    int64_t ms = l->s.life.timeout_ms;

    if (l->s.state == SANDBOX_RUNNING)
        return 0;
    if (!l->s.life.auto_resume)
        return err_set(err, ERR_CONFLICT, "sandbox %s is paused: resume it first", l->s.id);
    if (stray && refuse_stray(l, err))
        return -1;
    /* else one with a short time-out is paused again before its caller's next request */
    return resume_locked(l, NULL, ms ? MAX(ms, (int64_t)CONTROL_WAKE_MS) : 0, true, err);
}

static int wake(struct sandbox *s, bool stray, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    live_hold(l);
    if (s->state == SANDBOX_RUNNING)
        return 0;
    if (life_lock(l, NULL, err))
        return -1;
    r = wake_locked(l, stray, err);
    live_unlock(l);
    return r;
}

int control_wake(struct control *c, struct sandbox *s, struct err *err)
{
    (void)c;
    return wake(s, false, err);
}

int control_wake_stray(struct control *c, struct sandbox *s, struct err *err)
{
    (void)c;
    return wake(s, true, err);
}

static int work_locked(struct live *l, const struct actor *who, struct err *err)
{
    switch ((enum sandbox_state)l->s.state) {
    case SANDBOX_RUNNING: return 0;
    case SANDBOX_PAUSING:
    case SANDBOX_PAUSED:
    case SANDBOX_RESUMING: return resume_locked(l, who, -1, true, err);
    case SANDBOX_CREATING:
    case SANDBOX_ENDING:
    case SANDBOX_ENDED:
    case SANDBOX_STATES: break;
    }
    return err_set(err, ERR_CONFLICT, "sandbox %s neither runs nor is paused: it is %s", l->s.id,
                   sandbox_state_names[l->s.state]);
}

int control_work_begin(struct control *c, const struct actor *who, struct sandbox *s,
                       struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r;

    (void)c;
    live_hold(l);
    if (l->s.state != SANDBOX_RUNNING) {
        if (life_lock(l, who, err))
            return -1;
        r = work_locked(l, who, err);
        live_unlock(l);
        if (r)
            return -1;
    }
    l->working++;
    l->touched = co_now();
    return 0;
}

/* ---- when ---- */

static int note_times(void *arg, const struct event *e)
{
    struct sandbox_times *t = arg;

    if (!strcmp(e->kind, "paused"))
        t->stopped = e->at_ms;
    else if (!strcmp(e->kind, "resumed") || !strcmp(e->kind, "restarted"))
        t->started = e->at_ms;
    return 0;
}

int control_times(struct control *c, struct sandbox *s, struct sandbox_times *out, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);

    live_hold(l);
    *out = (struct sandbox_times){ .started = s->started_ms };
    if (control_events(c, s->id, 0, INT32_MAX, note_times, out, err))
        return -1;
    if (l->s.state == SANDBOX_RUNNING) /* it was, and goes on again */
        out->stopped = 0;
    out->active = l->touched ? control_wall_ms() - (co_now() - l->touched) : out->started;
    return 0;
}
