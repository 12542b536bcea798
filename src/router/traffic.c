/* traffic.c - see traffic.h.
 *
 * A lane is what is known of one sandbox with traffic. It stays for a moment after its last call,
 * so that one request after the other costs a look-up, not an allocation. The sweeper runs while
 * there are lanes; a sandbox that ends closes its sockets, which most calls see at once, so its
 * half a second matters only to those that nobody would have told. */
#include "router/traffic.h"

#include <assert.h>

#include "base/mem.h"

enum { SWEEP_MS = 500, DOUBT_MS = 200 };

struct traffic_limits traffic_limits = { .sandbox_calls = 2000 };

struct lane {
    struct list link;
    struct sandbox *sandbox; /* held */
    struct list flights;
    int64_t calls;
    bool used; /* since the last sweep */
};

void traffic_init(struct traffic *t)
{
    *t = (struct traffic){ 0 };
    for (int i = 0; i < TRAFFIC_BUCKETS; i++)
        list_init(&t->bucket[i]);
}

static void lane_free(struct lane *l)
{
    list_remove(&l->link);
    control_release(l->sandbox);
    free(l);
}

static struct list *bucket_of(struct traffic *t, const struct sandbox *s)
{
    uint64_t h = (uintptr_t)s * 0x9e3779b97f4a7c15u;

    return &t->bucket[h >> 58];
}
static_assert(TRAFFIC_BUCKETS == 1 << 6, "bucket_of() takes six bits");

/* ---- the sweeper ---- */

static void sweep_lane(struct traffic *t, struct lane *l)
{
    bool ended = l->sandbox->state == SANDBOX_ENDED || l->sandbox->state == SANDBOX_ENDING;
    bool moved = false, doubted = false;
    struct flight *f;

    list_each(f, &l->flights, link) {
        moved |= !f->idle && f->proxy->moved_at > f->seen;
        f->seen = f->proxy->moved_at;
        doubted |= f->guest && !f->call->status && co_now() - f->seen >= DOUBT_MS;
        if (!ended || !f->call->status || f->call->conn->cut)
            continue; /* one without an answer yet will be told in words */
        t->resets++;
        conn_cut(f->call->conn);
        conn_break(f->call->conn);
    }
    if (moved && !ended)
        control_touch(l->sandbox);
    if (doubted && !ended)
        control_doubt(l->sandbox);
    if (!l->calls && !l->used)
        lane_free(l);
    else
        l->used = false;
}

static bool sweep_once(struct traffic *t)
{
    struct lane *l;
    bool any = false;

    for (int i = 0; i < TRAFFIC_BUCKETS; i++) {
        list_each(l, &t->bucket[i], link)
            sweep_lane(t, l);
        any |= !list_empty(&t->bucket[i]);
    }
    return any;
}

static void sweep(void *arg)
{
    struct traffic *t = arg;

    while (!co_sleep(co_in(SWEEP_MS)) && sweep_once(t))
        ;
    t->sweeping = false;
}

void traffic_finish(struct traffic *t)
{
    struct lane *l;

    t->closing = true;
    if (t->sweeping)
        co_cancel(t->sweeper);
    while (t->sweeping)
        co_pass();
    for (int i = 0; i < TRAFFIC_BUCKETS; i++)
        list_each(l, &t->bucket[i], link)
            lane_free(l);
}

/* ---- calls ---- */

static struct lane *lane_of(struct traffic *t, struct sandbox *s)
{
    struct list *bucket = bucket_of(t, s);
    struct lane *l;

    list_each(l, bucket, link)
        if (l->sandbox == s)
            return l;
    l = xcalloc(1, sizeof(*l));
    control_hold(s);
    l->sandbox = s;
    list_init(&l->flights);
    list_push(bucket, &l->link);
    if (!t->sweeping && !t->closing)
        t->sweeping = !co_go(sweep, t, &t->sweeper);
    return l;
}

int traffic_enter(struct traffic *t, struct sandbox *s, struct flight *f)
{
    struct lane *l = lane_of(t, s);

    l->used = true;
    if (l->calls >= traffic_limits.sandbox_calls)
        return -1;
    l->calls++;
    t->calls++;
    f->lane = l;
    list_push(&l->flights, &f->link);
    return 0;
}

/* Without a sweeper (no memory for one, or the router closes) nobody else would free the lane. */
void traffic_leave(struct traffic *t, struct flight *f)
{
    struct lane *l = f->lane;

    list_remove(&f->link);
    l->calls--;
    t->calls--;
    if (!l->calls && !t->sweeping)
        lane_free(l);
}
