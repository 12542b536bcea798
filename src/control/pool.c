/* pool.c - machines made ahead, so that a sandbox costs a message instead of a birth.
 *
 * One pool for each (template, network). The default one is always kept; others while they are
 * asked for. A machine in a pool has a fresh sandbox id for its name, its template's limits, a
 * guest that has answered once and a connection to it. Refilling happens two at a time, in the
 * background, and never while somebody waits for a create: those that find the pool empty are made
 * at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "control/impl.h"

#define DEFAULT_TEMPLATE "base"

enum {
    MAKING_MAX = 2,
    POOLS_MAX = 32,
    RETRY_MS = 1000,
    RETRY_MAX_MS = 60000,
    SPARE_MS = 600000, /* beyond its age the provider ends it, if we are not there to do so */
    MARK_MS = 777,     /* no sandbox has such a lifetime: theirs are whole seconds */
};

struct pool {
    struct list in;
    char *template;
    int64_t network;
    struct list warm; /* the oldest first */
    size_t nwarm, making;
    int64_t asked;           /* monotonic ms */
    int64_t retry_at, pause; /* after a failure */
    uint64_t each;           /* bytes that the last one used */
    bool listed;             /* its name is a template's own, not an alias of the default */
};

static uint64_t lifetime_ms(void)
{
    return (uint64_t)(control_limits.pool_age_s * 1000 + SPARE_MS + MARK_MS);
}

/* ---- pools ---- */

static struct pool *find(struct control *c, const char *template, int64_t network)
{
    struct pool *p;

    list_each(p, &c->pools, in)
        if (p->network == network && !strcmp(p->template, template))
            return p;
    return NULL;
}

bool pool_knows(struct control *c, const char *template)
{
    struct pool *p;

    list_each(p, &c->pools, in)
        if (!strcmp(p->template, template))
            return true;
    return false;
}

static struct pool *add(struct control *c, const char *template, int64_t network)
{
    struct pool *p = xcalloc(1, sizeof(*p));

    p->template = xstrdup(template);
    p->network = network;
    p->pause = RETRY_MS;
    p->listed = template_listed(c, template);
    list_init(&p->warm);
    list_push(&c->pools, &p->in);
    return p;
}

void pool_init(struct control *c)
{
    list_init(&c->pools);
    co_cond_init(&c->refill);
    c->pool_default = add(c, DEFAULT_TEMPLATE, control_network(c));
}

static size_t wanted(const struct control *c, const struct pool *p)
{
    bool idle = p != c->pool_default && p->asked + control_limits.pool_idle_s * 1000 <= co_now();

    return idle || c->closing ? 0 : (size_t)control_limits.pool_size;
}

/* When there are too many, the one that nobody asked for longest gives way: pool_tend() takes it.
 */
static void make_room(struct control *c)
{
    struct pool *oldest = NULL, *p;
    size_t n = 0;

    list_each(p, &c->pools, in) {
        n++;
        if (p != c->pool_default && (!oldest || p->asked < oldest->asked))
            oldest = p;
    }
    if (n >= POOLS_MAX && oldest)
        oldest->asked = -control_limits.pool_idle_s * 1000;
}

void pool_asked(struct control *c, const char *template, int64_t network)
{
    struct pool *p = find(c, template, network);

    if (!p) {
        make_room(c);
        p = add(c, template, network);
    }
    p->asked = co_now();
}

/* ---- what waits ---- */

void warm_free(struct warm *w)
{
    co_close(w->fd);
    free(w);
}

static void take_out(struct control *c, struct warm *w)
{
    list_remove(&w->in);
    w->pool->nwarm--;
    c->pool_bytes -= MIN(w->state.memory_bytes, c->pool_bytes);
}

static void put_in(struct control *c, struct pool *p, struct warm *w)
{
    w->pool = p;
    list_push(&p->warm, &w->in);
    p->nwarm++;
    p->each = w->state.memory_bytes;
    c->pool_bytes += w->state.memory_bytes;
}

/* Some limits are given at birth: who wants others gets a machine of their own. */
struct warm *pool_take(struct control *c, const struct create_spec *s)
{
    struct pool *p = find(c, s->template, s->network);
    struct warm *w;

    if (!p || list_empty(&p->warm) || s->strict || s->ping || s->life.restart || s->mounts.n ||
        template_stale(c))
        return NULL;
    w = CONTAINER_OF(p->warm.next, struct warm, in);
    if ((s->limits.open_files && s->limits.open_files != w->state.limits.open_files) ||
        (s->limits.log_bytes && s->limits.log_bytes != w->state.limits.log_bytes))
        return NULL;
    take_out(c, w);
    return w;
}

static struct warm *find_warm(struct control *c, const char *ref)
{
    struct pool *p;
    struct warm *w;

    list_each(p, &c->pools, in)
        list_each(w, &p->warm, in)
            if (!strcmp(w->id, ref))
                return w;
    return NULL;
}

bool pool_ended(struct control *c, const char *ref)
{
    struct warm *w = find_warm(c, ref);

    if (!w)
        return false;
    take_out(c, w);
    warm_free(w);
    co_cond_wake(&c->refill);
    return true;
}

static void destroy(struct control *c, const char *ref)
{
    struct err err = { 0 };

    if (c->provider->ops->destroy(c->provider, ref, &err) && !provider_gone(c->provider, ref, &err))
        leftover_machine(c, ref);
}

struct doomed {
    struct control *control;
    char id[SANDBOX_ID + 1];
};

static void destroy_later(void *arg)
{
    struct doomed *d = arg;

    destroy(d->control, d->id);
    free(d);
}

/* Out of the pool at once; its machine ends in the background. */
static void drop(struct control *c, struct warm *w)
{
    struct doomed *d = xcalloc(1, sizeof(*d));

    take_out(c, w);
    d->control = c;
    memcpy(d->id, w->id, sizeof(d->id));
    warm_free(w);
    if (!control_go(c, destroy_later, d))
        return;
    leftover_machine(c, d->id);
    free(d);
}

/* ---- making ---- */

struct making {
    struct control *control;
    struct pool *pool;
    struct warm *warm;
};

struct path { /* to a machine that no sandbox has yet */
    struct control *control;
    const char *ref;
};

static int dial(void *arg, int64_t until, struct err *err)
{
    const struct path *p = arg;

    return p->control->provider->ops->dial(p->control->provider, p->ref, PROVIDER_GUEST_PORT, until,
                                           err);
}

/* The guest's first answer costs it a good part of its memory's pages: have that behind us. It is
 * refused by one that has a token, which is how adopt.c tells a machine that was in use. */
static int rouse(struct control *c, struct warm *w, const char *template, struct err *err)
{
    struct path path = { c, w->id };
    struct client_to to = { .dial = dial, .arg = &path, .key = w->id };
    const struct machine_template *t = template_find(c, template);
    int r = guest_init(
        c, &to,
        &(struct guest_init){ .user = t ? t->user : NULL, .workdir = t ? t->workdir : NULL }, err);

    client_forget(&c->client, &to);
    if (r || c->provider->ops->stat(c->provider, w->id, &w->state, err))
        return -1;
    w->fd = guest_dial(c, w->id, err);
    return w->fd < 0 ? -1 : 0;
}

static int make(struct control *c, struct pool *p, struct warm *w, struct err *err)
{
    struct order order = {
        .network = p->network == NETWORK_OPEN ? ORDER_NET_OPEN : ORDER_NET_NONE,
        .limits = { .lifetime_ms = lifetime_ms() },
    };

    mark_unclaimed(c, &order.mark);
    if (order_set_template(&order, p->template, err))
        return -1;
    if (c->provider->ops->create(c->provider, w->id, &order, &w->state, err)) {
        if (control_unclear(err))
            leftover_machine(c, w->id);
        return -1;
    }
    if (!rouse(c, w, p->template, err))
        return 0;
    destroy(c, w->id);
    return -1;
}

static struct warm *warm_new(void)
{
    struct warm *w = xcalloc(1, sizeof(*w));
    struct sandbox name = { 0 };

    sandbox_new_id(&name);
    memcpy(w->id, name.id, sizeof(w->id));
    sandbox_finish(&name);
    list_init(&w->in);
    w->fd = -1;
    w->since = co_now();
    return w;
}

static void make_one(void *arg)
{
    struct control *c = ((struct making *)arg)->control;
    struct pool *p = ((struct making *)arg)->pool;
    struct warm *w = warm_new();
    struct err err = { 0 };
    bool listed = p->listed;

    free(arg);
    if (make(c, p, w, &err)) {
        if (p->pause == RETRY_MS) /* the first of a row */
            log_warn("no sandbox can be kept ready", KV("template", p->template),
                     KV("error", err.msg));
        p->retry_at = co_now() + p->pause;
        p->pause = MIN(p->pause * 2, (int64_t)RETRY_MAX_MS);
        c->counts.pool_failed++;
        warm_free(w);
    } else {
        p->pause = RETRY_MS;
        c->counts.pool_made++;
        put_in(c, p, w);
        if (c->closing || p->listed != listed) /* what its name leads to has changed meanwhile */
            drop(c, w);
    }
    p->making--;
    c->pool_making--;
    co_cond_wake(&c->refill);
}

static bool room_for(const struct control *c, const struct pool *p)
{
    uint64_t coming = (c->pool_making + 1) * p->each;

    return c->pool_bytes + coming <= (uint64_t)control_limits.pool_memory;
}

/* The emptiest one that wants more; *at: when to look again for one that failed. */
static struct pool *hungriest(const struct control *c, int64_t *at)
{
    struct pool *p, *best = NULL;

    *at = NEVER;
    list_each(p, &c->pools, in) {
        if (p->nwarm + p->making >= wanted(c, p) || !room_for(c, p))
            continue;
        if (p->retry_at > co_now()) {
            *at = MIN(*at, p->retry_at);
            continue;
        }
        if (!best || p->nwarm + p->making < best->nwarm + best->making)
            best = p;
    }
    return best;
}

static int begin(struct control *c, struct pool *p)
{
    struct making *m = xcalloc(1, sizeof(*m));

    *m = (struct making){ .control = c, .pool = p };
    p->making++;
    c->pool_making++;
    if (!control_go(c, make_one, m))
        return 0;
    p->making--;
    c->pool_making--;
    free(m);
    return -1;
}

void pool_serve(void *control)
{
    struct control *c = control;

    while (!c->closing) {
        int64_t at = NEVER;
        struct pool *p = NULL;

        if (!c->creating && c->pool_making < MAKING_MAX)
            p = hungriest(c, &at);
        if (p && !begin(c, p))
            continue;
        if (co_cond_wait(&c->refill, p ? co_in(RETRY_MS) : at) && errno == ECANCELED)
            return;
    }
}

/* ---- tending ---- */

/* Measures one that waits. -1: it is of no use any more. May park: it is looked up by name after.
 */
static int examine(struct control *c, const char *id)
{
    struct machine_state state;
    struct err err = { 0 };
    int r = c->provider->ops->stat(c->provider, id, &state, &err);
    struct warm *w = find_warm(c, id);
    char byte;

    if (!w)
        return 0;
    if (r)
        return err.reason == ERR_NO_SANDBOX ? -1 : 0;
    c->pool_bytes += state.memory_bytes - MIN(w->state.memory_bytes, c->pool_bytes);
    w->state = state;
    if (state.outdated || state.paused || co_now() - w->since >= control_limits.pool_age_s * 1000)
        return -1;
    if (w->fd < 0 || recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        int fd = guest_dial(c, id, &err); /* the guest closes what is idle for long */

        w = find_warm(c, id);
        if (!w || fd < 0) {
            co_close(fd);
            return w ? -1 : 0;
        }
        co_close(w->fd);
        w->fd = fd;
    }
    return 0;
}

static void examine_all(struct control *c)
{
    AUTO(freep) char(*ids)[SANDBOX_ID + 1] = NULL;
    size_t n = 0, i = 0;
    struct pool *p;
    struct warm *w;

    list_each(p, &c->pools, in)
        n += p->nwarm;
    ids = xcalloc(n + 1, sizeof(*ids));
    list_each(p, &c->pools, in)
        list_each(w, &p->warm, in)
            memcpy(ids[i++], w->id, sizeof(*ids));
    for (i = 0; i < n && !co_cancelled(); i++)
        if (examine(c, ids[i]) && (w = find_warm(c, ids[i])))
            drop(c, w);
}

/* A template that got the name of an alias, or gave it back: its machines are of another one. */
void pool_follow(struct control *c)
{
    struct pool *p;
    struct warm *w;

    list_each(p, &c->pools, in) {
        bool now = template_listed(c, p->template);

        if (now != p->listed)
            list_each(w, &p->warm, in)
                drop(c, w);
        p->listed = now;
    }
}

void pool_tend(struct control *c)
{
    struct err err = { 0 };
    struct pool *p;
    struct warm *w;

    if (!template_refresh(c, &err))
        pool_follow(c);
    examine_all(c);
    list_each(p, &c->pools, in) {
        list_each(w, &p->warm, in)
            if (p->nwarm > wanted(c, p))
                drop(c, w);
        if (p == c->pool_default || wanted(c, p) || p->making || p->nwarm)
            continue;
        if (p->asked + control_limits.pool_idle_s * 1000 <= co_now()) {
            list_remove(&p->in);
            free(p->template);
            free(p);
        }
    }
    co_cond_wake(&c->refill);
}

/* ---- at start and end ---- */

bool pool_marked(const struct machine_state *m)
{
    return m->limits.lifetime_ms % 1000 == MARK_MS && !m->paused;
}

bool pool_adopt(struct control *c, const char *ref, const struct machine_state *m)
{
    struct pool *p = find(c, m->template, m->network);
    struct err err = { 0 };
    struct warm *w;

    if (m->limits.lifetime_ms != lifetime_ms() || m->paused || m->outdated || !p ||
        p->nwarm >= wanted(c, p))
        return false;
    w = warm_new();
    snprintf(w->id, sizeof(w->id), "%s", ref);
    w->state = *m;
    if (m->left_ms != NEVER) /* how old it is, by the clock that runs on without us */
        w->since = co_now() - ((int64_t)lifetime_ms() - m->left_ms);
    if (rouse(c, w, p->template, &err)) {
        warm_free(w);
        return false;
    }
    put_in(c, p, w);
    return true;
}

void pool_finish(struct control *c)
{
    struct pool *p;
    struct warm *w;

    list_each(p, &c->pools, in)
        list_each(w, &p->warm, in)
            drop(c, w);
    while (c->pool_making || c->creating) /* tasks of ours use the pools */
        if (co_cond_wait(&c->refill, NEVER))
            co_pass();
    list_each(p, &c->pools, in) {
        list_remove(&p->in);
        free(p->template);
        free(p);
    }
}

void pool_metrics(struct control *c, struct buf *out)
{
    struct pool *p;

    prom_head(out, "cove_pool_ready", "gauge", "Machines that wait for a sandbox");
    list_each(p, &c->pools, in) {
        const char *labels[] = { "template", p->template, "network",
                                 sandbox_network_names[p->network], NULL };

        prom_value(out, "cove_pool_ready", labels, (double)p->nwarm);
    }
    prom_head(out, "cove_pool_memory_bytes", "gauge", "Memory of all machines that wait");
    prom_value(out, "cove_pool_memory_bytes", NULL, (double)c->pool_bytes);
}
