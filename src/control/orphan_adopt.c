/* orphan_adopt.c - a machine that was set aside becomes a sandbox of somebody.
 *
 * Its guest demands the token of its former record. The machine's mark says which that was, so that
 * a guest that runs gets a new one and everything inside goes on. Where nobody knows it any more, a
 * former release having made the machine, only its files can be taken over: its processes end, and
 * that has to be asked for. */
#include <string.h>

#include "base/id.h"
#include "control/impl.h"

static int find_owner(struct control *c, const char *name, struct user *out, struct err *err)
{
    if (!control_user_get(c, name, out, err))
        return 0;
    return err->code == ERR_NOT_FOUND
               ? err_set(err, ERR_INVALID, "field 'owner': there is no user '%.64s'", name)
               : -1;
}

/* What the machine and its mark say; the rest is as of a sandbox whose maker said nothing. */
static void fill(struct live *l, const char *id, const struct user *owner,
                 const struct machine_state *m)
{
    struct control *c = l->control;
    struct sandbox *s = &l->s;
    struct arena *a = &s->strings;
    int64_t net = (int64_t)m->limits.lifetime_ms, left = m->left_ms;
    bool bounded = net > GRACE_MS && (uint64_t)net < limit_rows[LIMIT_LIFETIME].max;

    sandbox_new_id(s);
    snprintf(s->id, sizeof(s->id), "%s", id);
    if (strlen(m->mark.uuid) == SANDBOX_UUID && sandbox_id_valid(str_of(m->mark.uuid)))
        snprintf(s->uuid, sizeof(s->uuid), "%.*s", SANDBOX_UUID, m->mark.uuid);
    s->owner = owner->id;
    s->state = m->paused ? SANDBOX_PAUSED : SANDBOX_RUNNING;
    s->network = m->network;
    s->template = arena_strdup(a, str_of(m->template));
    s->provider = arena_strdup(a, str_of(c->provider->ops->name));
    s->node = arena_strdup(a, str_of(c->node));
    s->facade = arena_strdup(a, STR("v1"));
    s->limits = m->limits;
    s->life.timeout_ms = bounded ? net - GRACE_MS : 0;
    s->life.restart = m->flags & ORDER_STAY;
    s->strict = m->flags & ORDER_STRICT;
    s->public = m->mark.flags & ORDER_PUBLIC;
    s->secure = true;
    id_random(s->traffic_token, SANDBOX_TOKEN);
    id_random(s->token, SANDBOX_TOKEN);
    s->created_ms = s->started_ms = control_wall_ms();
    if (!m->paused && bounded && left != NEVER) {
        l->deadline = co_now() + MAX(left - GRACE_MS, (int64_t)0);
        s->end_ms = s->created_ms + MAX(left - GRACE_MS, (int64_t)0);
    }
}

static int teach(struct live *l, const struct machine_state *m, struct err *err)
{
    struct guest_init g = { .token = l->s.token, .was = m->mark.token, .known = true };
    struct client_to to;
    int r;

    control_to(l->control, &l->s, PROVIDER_GUEST_PORT, &to);
    r = guest_init(l->control, &to, &g, err);
    client_forget(&l->control->client, &to); /* the next one begins with the new token */
    if (!r)
        return 0;
    err->code = ERR_CONFLICT;
    return err_in(err, "its guest takes no new token; adopted with restart (cove orphans adopt "
                       "--restart) its processes end and its files stay");
}

/* It stands still: the token that its former owner knows must not open it to him. */
static int teach_frozen(struct live *l, const struct machine_state *m, struct err *err)
{
    struct provider *p = l->control->provider;
    struct err after = { 0 };
    uint64_t flush_us;
    bool anew = false;
    int r;

    if (p->ops->resume(p, l->s.id, 0, &anew, err))
        return -1;
    l->s.state = SANDBOX_RUNNING; /* for the way to its guest */
    r = anew ? 0 : teach(l, m, err);
    if (p->ops->pause(p, l->s.id, anew, &flush_us, r ? &after : err))
        r = -1;
    l->s.state = SANDBOX_PAUSED;
    return r;
}

/* Its guest and we agree on a token, or its processes are gone. */
static int agree(struct live *l, const struct user *owner, const struct machine_state *m,
                 bool restart, struct err *err)
{
    struct provider *p = l->control->provider;
    uint64_t flush_us;

    if (m->asleep)
        return 0;
    if (restart) {
        l->s.state = SANDBOX_PAUSED;
        l->s.end_ms = 0;
        l->deadline = NEVER;
        return p->ops->pause(p, l->s.id, true, &flush_us, err);
    }
    if (!m->paused)
        return teach(l, m, err);
    if (*m->mark.token && !strcmp(m->mark.owner, owner->name)) {
        snprintf(l->s.token, sizeof(l->s.token), "%.*s", SANDBOX_TOKEN, m->mark.token);
        return 0;
    }
    return teach_frozen(l, m, err);
}

struct adding {
    const struct sandbox *row;
    const struct event *event;
};

static int add(struct store *s, void *arg, struct err *err)
{
    const struct adding *w = arg;

    if (s->ops->sandbox_add(s, w->row, w->event, NULL, err))
        return -1;
    if (w->row->state != SANDBOX_PAUSED)
        return 0;
    return s->ops->sandbox_save(s, w->row, SANDBOX_PAUSED, NULL, err); /* and on the disk */
}

static int write_row(struct live *l, const struct actor *who, const char *owner, bool restart,
                     struct err *err)
{
    char text[2 * USER_NAME + 128];
    struct event e;
    struct adding w = { &l->s, &e };

    snprintf(text, sizeof(text), "%s adopted it for %s: the database had lost it%s", who->name,
             owner, restart ? "; its processes were ended" : "");
    e = control_event_of(&l->s, "adopted", who->name, text);
    return control_store(l->control, add, &w, err);
}

static int take(struct live *l, const struct actor *who, const struct user *owner,
                const struct machine_state *m, bool restart, struct err *err)
{
    bool restarted = restart && !m->asleep;

    /* The variables by which its services may listen elsewhere were in its record: now each of its
     * ports may be a door. Those of one that is started anew are where they usually are. */
    if (!m->asleep && !restart)
        l->s.public = false;
    if (agree(l, owner, m, restart, err) || mark_claim(l, owner->name, 0, err))
        return -1;
    return write_row(l, who, owner->name, restarted, err);
}

struct live *orphan_take_over(struct control *c, const struct actor *who, const char *id,
                              const char *owner, bool restart, struct err *err)
{
    struct provider *p = c->provider;
    struct machine_state m;
    struct user u;
    struct live *l;

    if (find_owner(c, owner, &u, err) || p->ops->adopt(p, id, &m, err))
        return NULL;
    if (*m.unreachable) {
        err_set(err, ERR_UNAVAILABLE, "it cannot be adopted: %s", m.unreachable);
        return NULL;
    }
    l = live_new(c);
    fill(l, id, &u, &m);
    l->busy = true;
    if (take(l, who, &u, &m, restart, err)) {
        live_release(l);
        return NULL;
    }
    live_hold(l); /* the table's, and the caller's */
    table_add(c, l);
    if (l->s.state == SANDBOX_PAUSED)
        l->deadline = pause_deadline(l);
    l->touched = co_now();
    life_arm(l);
    samples_begin(l);
    live_unlock(l);
    return l;
}
