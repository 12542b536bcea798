/* restart.c - sandboxes that are to be started again when their first process dies.
 *
 * The provider has kept such a one's files and tells us. It becomes RESUMING, as a paused one that
 * is being woken is, and is settled by the same table (pause.c): started on its files, told its
 * environment and token, RUNNING, with its ports, its mounts and what is left of its time. What
 * fails is tried again, ever more seldom; so is one that dies again as soon as it runs. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum { CALM_MS = 10000, CRASH_MS = 100, CRASH_MAX_MS = 60000 };

/* One that ran for a while is started at once. */
static int64_t wait_ms(const struct live *l)
{
    if (!l->woken || co_now() - l->woken >= CALM_MS)
        return 0;
    return l->crash_ms ? MIN(l->crash_ms * 2, (int64_t)CRASH_MAX_MS) : CRASH_MS;
}

int restart_note(struct live *l, const char *why, struct err *err)
{
    struct sandbox next = l->s;

    if (why)
        snprintf(l->down, sizeof(l->down), "started again on its files: %s", why);
    next.state = SANDBOX_RESUMING;
    return control_save(l, &next, NULL, err);
}

static bool is_asleep(struct live *l)
{
    struct provider *p = l->control->provider;
    struct machine_state m;
    struct err err = { 0 };

    return !p->ops->stat(p, l->s.id, &m, &err) && m.asleep;
}

static void bring_up(struct live *l, const char *why)
{
    struct err err = { 0 };
    char later[256];

    log_info("a machine has died", KV("sandbox", l->s.id), KV("why", why));
    life_disarm(l);
    if (restart_note(l, why, &err)) { /* its files are there, and are worth another try */
        snprintf(later, sizeof(later), "it died, and its restart cannot be written down: %.180s",
                 err.msg);
        adopt_unreachable(l, later);
        return;
    }
    l->crash_ms = wait_ms(l);
    if (l->crash_ms)
        pause_wait(l, l->crash_ms);
    else
        pause_settle_now(l);
}

void restart_down(struct live *l, const char *why)
{
    struct err err = { 0 };

    if (live_lock(l, &err))
        return;
    /* paused meanwhile: its files are enough; or somebody was faster */
    if (l->s.state == SANDBOX_RUNNING && l->s.life.restart && is_asleep(l))
        bring_up(l, why);
    live_unlock(l);
}

void restart_look(struct control *c)
{
    AUTO(freep) struct live **all = xcalloc(c->count + 1, sizeof(struct live *));
    struct live *l;
    size_t n = 0;

    list_each(l, &c->all, all)
        if (l->s.life.restart && l->s.state == SANDBOX_RUNNING) {
            live_hold(l);
            all[n++] = l;
        }
    for (size_t i = 0; i < n; i++) {
        restart_down(all[i], "itself: it died while its keeper was not there");
        live_release(all[i]);
    }
}
