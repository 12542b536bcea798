/* health.c - does the guest of a sandbox still answer?
 *
 * One that was killed takes its machine along, and the provider tells us. One that hangs tells
 * nobody. It is looked at only where there is reason to: a call to it waits (router/traffic.c), or
 * somebody who measured it saw its first process stopped. So a healthy sandbox costs nothing.
 *
 * Slow is not hung: a guest on a crowded machine may take seconds, and ending it would destroy what
 * it holds. What decides at once is the kernel's word that its first process is stopped: nothing
 * inside can do that, and nothing inside can undo it. Silence alone decides after control.hung-ms,
 * counted in looks that were waited for in full, not by the clock: one that passed while we
 * ourselves were stopped proves nothing. */
#include "base/log.h"
#include "control/impl.h"

enum {
    AGAIN_MS = 100,   /* between two looks at one that is stopped: somebody may just let it go on */
    ANSWER_MS = 1000, /* one look at one that is silent */
};

static bool answers(struct live *l)
{
    AUTO(client_closep) struct exchange *x = NULL;
    struct client_to to;
    struct err err = { 0 };

    control_to(l->control, &l->s, PROVIDER_GUEST_PORT, &to);
    to.connect_ms = to.answer_ms = ANSWER_MS;
    x = client_do(&l->control->client, &to,
                  &(struct client_request){ .method = STR("GET"), .target = STR("/health") }, &err);
    return x || err.code != ERR_TIMEOUT; /* whatever else it is, somebody else will hear of it */
}

static void fail(struct live *l, const char *why)
{
    struct err err = { 0 };

    if (live_lock(l, &err))
        return;
    if (l->s.state == SANDBOX_RUNNING) {
        log_warn("a guest does not answer any more", KV("sandbox", l->s.id), KV("why", why));
        if (life_end(l, "system", why, true, &err))
            log_warn("a failed sandbox is not ended yet", KV("sandbox", l->s.id),
                     KV("error", err.msg));
    }
    live_unlock(l);
}

/* One look: 1 it is stopped, 0 it is not (or nobody can tell), -1 it is said to be gone. */
static int look(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    struct machine_state m;

    if (!p->ops->stat(p, l->s.id, &m, err))
        return m.stopped;
    return err->reason == ERR_NO_SANDBOX ? -1 : 0;
}

static void examine(struct live *l)
{
    char why[128];

    for (int64_t silent = 0; l->s.state == SANDBOX_RUNNING && !*l->unreachable && !co_cancelled() &&
                             !l->control->closing;) {
        struct err err = { 0 };
        int r = look(l, &err);

        if (r > 0 && (co_sleep(co_in(AGAIN_MS)) || (r = look(l, &err)) > 0)) {
            if (!co_cancelled())
                fail(l, "failed: its first process was stopped from outside, and answers nobody");
            return;
        }
        if (r < 0) {
            control_gone(l, &err);
            return;
        }
        if (answers(l))
            return;
        silent += ANSWER_MS;
        if (control_limits.hung_ms && silent >= control_limits.hung_ms) {
            snprintf(why, sizeof(why),
                     "failed: its guest has not answered for %lld s (control.hung-ms)",
                     (long long)(silent / 1000));
            fail(l, why);
            return;
        }
    }
}

static void doubt(void *arg)
{
    AUTO(live_releasep) struct live *l = arg;

    examine(l);
    l->doubted = false;
}

void health_doubt(struct live *l)
{
    if (l->doubted || !l->control || l->control->closing || l->s.state != SANDBOX_RUNNING ||
        *l->unreachable)
        return;
    l->doubted = true;
    live_hold(l);
    if (!control_go(l->control, doubt, l))
        return;
    l->doubted = false; /* no memory for a stack: the next one who waits asks again */
    live_release(l);
}

void control_doubt(struct sandbox *s) { health_doubt(live_of(s)); }
