/* events.c - what happens to sandboxes: what the provider tells us of their machines, and the log
 * of each that people read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

/* A guest can meet its limits as often as it likes; the log hears of each once in a while. */
enum { LIMIT_TOLD_MS = 1000, LIMITS_TOLD_MAX = 1000 };

struct event control_event_of(const struct sandbox *s, const char *kind, const char *actor,
                              const char *text)
{
    struct event e = { .at_ms = control_wall_ms(), .kind = kind, .actor = actor, .text = text };

    memcpy(e.sandbox, s->id, sizeof(e.sandbox));
    return e;
}

void control_news(struct live *l)
{
    l->news++;
    co_cond_wake(&l->happened);
}

static int add(struct store *s, void *arg, struct err *err)
{
    return s->ops->event_add(s, arg, err);
}

void control_event_add(struct live *l, const char *kind, const char *actor, const char *text,
                       const char *detail)
{
    struct event e = control_event_of(&l->s, kind, actor, text);
    struct err err = { 0 };

    e.detail = detail;
    if (control_store(l->control, add, &e, &err))
        log_warn("an event is not in the log", KV("sandbox", l->s.id), KV("event", text),
                 KV("error", err.msg));
    control_news(l);
}

/* ---- from the provider ---- */

struct told { /* a copy of a machine_event: the provider's own does not outlive the call */
    struct control *control;
    enum machine_event_kind kind;
    char ref[SANDBOX_ID + 1];
    enum limit_id limit;
    uint64_t value, use, sockets;
    char reason[32], text[192];
};

static void describe_limit(const struct told *t, char *out, size_t n)
{
    char value[32], use[32], sockets[32];

    limits_format(t->limit, t->value, value, sizeof(value));
    limits_format(t->limit, t->use, use, sizeof(use));
    limits_format(t->limit, t->sockets, sockets, sizeof(sockets));
    snprintf(out, n, "the limit '%s' of %s was met (in use: %s%s%s%s)", limit_rows[t->limit].name,
             value, use, t->sockets ? ", of which " : "", t->sockets ? sockets : "",
             t->sockets ? " waited in sockets" : "");
}

static void describe_end(const struct told *t, char *out, size_t n)
{
    char why[192];

    if (t->limit < LIMIT_NONE && t->value)
        describe_limit(t, why, sizeof(why));
    else
        snprintf(why, sizeof(why), "%s", t->text[0] ? t->text : "its machine has ended");
    snprintf(out, n, "%s: %s", t->reason[0] ? t->reason : "itself", why);
}

/* Heard when it is told, not when a coroutine gets to it: a machine that has ended may be given to
 * nobody, and the next one of the same name must not be taken for it. */
static bool ended_at_once(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    char why[240];

    if (!l && pool_ended(t->control, t->ref))
        return true;
    if (!l) {
        describe_end(t, why, sizeof(why));
        return orphans_ended(t->control, t->ref, why);
    }
    if (l->s.state != SANDBOX_CREATING)
        return false;
    /* The creator holds the lock and checks machine_gone. "request" means that it replaced the
     * machine itself. */
    if (strcmp(t->reason, "request") != 0) {
        describe_end(t, why, sizeof(why));
        l->machine_gone = true;
        err_set(&l->fault, ERR_UPSTREAM, "the sandbox ended while it was being created: %s", why);
    }
    return true;
}

static void machine_ended(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    char why[240];
    struct err err = { 0 };

    if (!l)
        return;
    describe_end(t, why, sizeof(why));
    if (l->s.state == SANDBOX_ENDING || live_lock(l, &err)) /* by us, then */
        return;
    if (l->s.state != SANDBOX_ENDED) {
        log_info("a machine has ended", KV("sandbox", l->s.id), KV("why", why));
        life_end(l, "system", why, false, &err);
    }
    live_unlock(l);
}

static void machine_down(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    char why[240];

    describe_end(t, why, sizeof(why));
    if (l && l->s.state != SANDBOX_CREATING) {
        restart_down(l, why);
        return;
    }
    if (l) { /* whoever creates it has the lock, and will ask */
        l->machine_gone = true;
        err_set(&l->fault, ERR_UPSTREAM, "the sandbox ended while it was being created: %s", why);
    }
    if (!orphans_know(t->control, t->ref)) /* its files are somebody's */
        leftover_machine(t->control, t->ref);
}

/* We hear of every end, except where there was no memory to listen. */
void control_gone(struct live *l, const struct err *said)
{
    struct err err = { 0 };

    if (said->code != ERR_NOT_FOUND || live_lock(l, &err))
        return;
    if (l->s.state == SANDBOX_RUNNING && provider_gone(l->control->provider, l->s.id, said))
        life_end(l, "system", MACHINE_IS_GONE, false, &err);
    live_unlock(l);
}

static void limit_met(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    AUTO(buf_free) struct buf detail = { 0 };
    char text[160];

    if (!l || t->limit >= LIMIT_NONE)
        return;
    if (l->limits_told >= LIMITS_TOLD_MAX ||
        (l->limit_told_ms[t->limit] && co_now() - l->limit_told_ms[t->limit] < LIMIT_TOLD_MS))
        return;
    l->limits_told++;
    l->limit_told_ms[t->limit] = co_now();
    describe_limit(t, text, sizeof(text));
    json_open(&detail, '{');
    json_kv_str(&detail, "limit", limit_rows[t->limit].name);
    json_kv_int(&detail, "value", (int64_t)t->value);
    json_kv_int(&detail, "use", (int64_t)t->use);
    if (t->sockets)
        json_kv_int(&detail, "sockets", (int64_t)t->sockets);
    json_close(&detail, '}');
    control_event_add(l, "limit", "system", text, buf_cstr(&detail));
}

static void machine_unreachable(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    struct err err = { 0 };

    if (!l || live_lock(l, &err))
        return;
    if (l->s.state != SANDBOX_ENDED)
        adopt_unreachable(l, t->text);
    live_unlock(l);
}

/* Its files are all that a keeper found of it: it has ended if it ran, and if it was paused they
 * are enough. */
static void machine_astray(const struct told *t)
{
    AUTO(live_releasep) struct live *l = table_hold(t->control, t->ref);
    struct err err = { 0 };

    if (!l && pool_ended(t->control, t->ref)) /* it waited, for nobody */
        leftover_machine(t->control, t->ref);
    if (!l || live_lock(l, &err))
        return;
    if (l->s.state != SANDBOX_ENDING && l->s.state != SANDBOX_ENDED)
        adopt_look(l);
    live_unlock(l);
}

static void handle(void *arg)
{
    struct told *t = arg;

    switch (t->kind) {
    case MACHINE_ENDED: machine_ended(t); break;
    case MACHINE_DOWN: machine_down(t); break;
    case MACHINE_LIMIT: limit_met(t); break;
    case MACHINE_UNREACHABLE: machine_unreachable(t); break;
    case MACHINE_ASTRAY: machine_astray(t); break;
    case MACHINE_LOST: log_warn("the provider has lost touch with its machines"); break;
    case MACHINE_REGAINED:
        log_info("the provider has its machines again");
        restart_look(t->control);
        break;
    }
    free(t);
}

void control_event(void *arg, const struct machine_event *e)
{
    struct control *c = *(struct control **)arg;
    struct told t = {
        .control = c,
        .kind = e->kind,
        .limit = e->limit,
        .value = e->value,
        .use = e->use,
        .sockets = e->sockets,
    };
    struct told *later;

    if (!c || c->deaf)
        return;
    snprintf(t.ref, sizeof(t.ref), "%s", e->ref ? e->ref : "");
    snprintf(t.reason, sizeof(t.reason), "%s", e->reason ? e->reason : "");
    snprintf(t.text, sizeof(t.text), "%s", e->text ? e->text : "");
    if (t.kind == MACHINE_ENDED && ended_at_once(&t))
        return;
    later = xmalloc(sizeof(*later));
    *later = t;
    if (!control_go(c, handle, later))
        return;
    log_error("no memory to hear of a machine", KV("sandbox", t.ref));
    free(later);
}

/* ---- for readers ---- */

struct listing {
    const char *sandbox;
    int64_t after, limit;
    store_event_fn *fn;
    void *arg;
};

static int list_events(struct store *s, void *arg, struct err *err)
{
    const struct listing *w = arg;

    return s->ops->event_list(s, w->sandbox, w->after, w->limit, w->fn, w->arg, err);
}

int control_events(struct control *c, const char *sandbox, int64_t after, int64_t limit,
                   store_event_fn *fn, void *arg, struct err *err)
{
    struct listing w = { sandbox, after, limit, fn, arg };

    return control_store(c, list_events, &w, err);
}

static int one(void *arg, const struct event *e)
{
    (void)e;
    *(bool *)arg = true;
    return 1;
}

/* Of one that has ended nothing more will come: its reader waits all the same, so that asking again
 * and again costs it as much time as with a live one. */
int control_events_wait(struct control *c, const char *sandbox, int64_t after, int64_t until,
                        struct err *err)
{
    for (;;) {
        AUTO(live_releasep) struct live *l = table_hold(c, sandbox);
        uint64_t news = l ? l->news : 0;
        bool some = false;

        if (control_events(c, sandbox, after, 1, one, &some, err) < 0)
            return -1;
        if (some)
            return 1;
        if (!l ? co_sleep(until) : l->news == news && co_cond_wait(&l->happened, until))
            return errno == ETIMEDOUT ? 0 : control_cancelled(err);
        if (!l)
            return 0;
    }
}
