/* mark.c - whose a machine is, written on the machine itself: which store has its record, its
 * owner's name, its other name, and what its guest demands. With the store it says nothing new;
 * without it, it is all that is left (orphans.c).
 *
 * A machine is unclaimed until somebody was told of it. A crash may leave one unclaimed that its
 * client has just heard of: then there is a record, which says so. */
#include <string.h>

#include "base/log.h"
#include "control/impl.h"

void mark_unclaimed(const struct control *c, struct order_mark *out)
{
    *out = (struct order_mark){ .claim = ORDER_UNCLAIMED };
    snprintf(out->store, sizeof(out->store), "%s", c->mark);
}

void mark_of(const struct live *l, const char *owner, struct order_mark *out)
{
    const struct sandbox *s = &l->s;

    mark_unclaimed(l->control, out);
    out->claim = ORDER_CLAIMED;
    out->flags = s->public ? ORDER_PUBLIC : 0;
    snprintf(out->owner, sizeof(out->owner), "%s", owner);
    snprintf(out->uuid, sizeof(out->uuid), "%s", s->uuid);
    snprintf(out->token, sizeof(out->token), "%s", s->token);
}

int mark_claim(struct live *l, const char *owner, uint64_t lifetime_ms, struct err *err)
{
    struct provider *p = l->control->provider;
    struct limits net = { .lifetime_ms = lifetime_ms };
    struct order_mark mark;
    int r;

    mark_of(l, owner, &mark);
    r = p->ops->claim(p, l->s.id, &net, &mark, err);
    explicit_bzero(mark.token, sizeof(mark.token));
    return r;
}

bool mark_is_ours(const struct control *c, const struct order_mark *m)
{
    return !strcmp(m->store, c->mark);
}

void mark_see(struct live *l, const struct machine_state *m)
{
    l->unmarked = m->mark.claim != ORDER_CLAIMED || !mark_is_ours(l->control, &m->mark) ||
                  strcmp(m->mark.token, l->s.token) != 0;
}

/* ---- those of a former release, and those that a crash left between two steps ---- */

struct naming {
    int64_t id;
    struct user user;
};

static int find_user(struct store *s, void *arg, struct err *err)
{
    struct naming *n = arg;

    return s->ops->user_by_id(s, n->id, &n->user, err);
}

static void renew(struct live *l)
{
    struct naming n = { .id = l->s.owner };
    struct err err = { 0 };

    if (!control_store(l->control, find_user, &n, &err) && !mark_claim(l, n.user.name, 0, &err))
        l->unmarked = false;
    else
        log_debug("a machine does not say whose it is", KV("sandbox", l->s.id),
                  KV("error", err.msg));
}

void mark_renew(void *control)
{
    struct control *c = control;

    for (;;) {
        AUTO(live_releasep) struct live *l = NULL;
        struct live *each;
        struct err err = { 0 };

        list_each(each, &c->all, all)
            if (each->unmarked && !l)
                live_hold(l = each);
        if (!l || live_lock(l, &err))
            return;
        if (l->unmarked && l->s.state != SANDBOX_ENDED)
            renew(l);
        l->unmarked = false; /* or at the next start */
        live_unlock(l);
    }
}
