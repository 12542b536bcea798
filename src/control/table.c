/* table.c - the live sandboxes: found by short id, by uuid and by the idempotency key that made
 * them, counted by owner, held by whoever uses one across a wait, and changed by one at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "control/impl.h"

struct tally {
    struct tally *next;
    int64_t owner;
    size_t n;
};

struct live *live_of(struct sandbox *s) { return CONTAINER_OF(s, struct live, s); }

const struct live *live_of_const(const struct sandbox *s)
{
    return (const struct live *)(const void *)((const char *)s - offsetof(struct live, s));
}

struct live *live_new(struct control *c)
{
    struct live *l = xcalloc(1, sizeof(*l));

    l->control = c;
    l->refs = 1;
    l->spare = -1;
    l->deadline = NEVER;
    l->touched = co_now();
    co_cond_init(&l->idle);
    co_cond_init(&l->happened);
    list_init(&l->all);
    list_init(&l->by_id);
    list_init(&l->by_uuid);
    list_init(&l->by_key);
    list_init(&l->sampling);
    return l;
}

void live_hold(struct live *l) { l->refs++; }

void live_release(struct live *l)
{
    if (--l->refs)
        return;
    samples_free(l);
    reach_free(l);
    door_forget(l);
    sandbox_finish(&l->s);
    free(l);
}

void live_releasep(struct live **l)
{
    if (*l)
        live_release(*l);
}

void control_hold(struct sandbox *s) { live_hold(live_of(s)); }
void control_release(struct sandbox *s) { live_release(live_of(s)); }

int live_lock(struct live *l, struct err *err)
{
    while (l->busy)
        if (co_cond_wait(&l->idle, NEVER))
            return control_cancelled(err);
    l->busy = true;
    return 0;
}

void live_unlock(struct live *l)
{
    l->busy = false;
    co_cond_wake(&l->idle);
}

/* ---- the table ---- */

static size_t bucket_of(struct str text, uint64_t seed)
{
    uint64_t h = 14695981039346656037u ^ seed;

    for (size_t i = 0; i < text.n; i++)
        h = (h ^ (unsigned char)text.p[i]) * 1099511628211u;
    return (h ^ h >> 32) % TABLE_BUCKETS;
}

void table_init(struct control *c)
{
    list_init(&c->all);
    for (size_t i = 0; i < TABLE_BUCKETS; i++) {
        list_init(&c->by_id[i]);
        list_init(&c->by_uuid[i]);
        list_init(&c->by_key[i]);
    }
}

/* Owners are few: a chain does, and an owner without sandboxes has no entry. */
static void tally_change(struct control *c, int64_t owner, int by)
{
    struct tally **at = &c->tallies, *t;

    while (*at && (*at)->owner != owner)
        at = &(*at)->next;
    if (!*at) {
        *at = xcalloc(1, sizeof(**at));
        (*at)->owner = owner;
    }
    t = *at;
    t->n += (size_t)by;
    if (t->n)
        return;
    *at = t->next;
    free(t);
}

size_t table_count_of(const struct control *c, int64_t owner)
{
    for (const struct tally *t = c->tallies; t; t = t->next)
        if (t->owner == owner)
            return t->n;
    return 0;
}

void table_add(struct control *c, struct live *l)
{
    struct sandbox *s = &l->s;

    list_push(&c->all, &l->all);
    list_push(&c->by_id[bucket_of(str_of(s->id), 0)], &l->by_id);
    list_push(&c->by_uuid[bucket_of(str_of(s->uuid), 0)], &l->by_uuid);
    if (s->idem_key)
        list_push(&c->by_key[bucket_of(str_of(s->idem_key), (uint64_t)s->owner)], &l->by_key);
    tally_change(c, s->owner, 1);
    c->count++;
}

void table_remove(struct control *c, struct live *l)
{
    if (list_empty(&l->all))
        return;
    list_remove(&l->all);
    list_remove(&l->by_id);
    list_remove(&l->by_uuid);
    list_remove(&l->by_key);
    samples_end(l);
    tally_change(c, l->s.owner, -1);
    c->count--;
    co_cond_wake(&l->happened);
    live_release(l);
}

struct live *table_find(struct control *c, struct str id)
{
    struct live *l;

    if (id.n == SANDBOX_ID)
        list_each(l, &c->by_id[bucket_of(id, 0)], by_id) {
            if (str_is(id, l->s.id))
                return l;
        }
    else if (id.n == SANDBOX_UUID)
        list_each(l, &c->by_uuid[bucket_of(id, 0)], by_uuid) {
            if (str_is(id, l->s.uuid))
                return l;
        }
    return NULL;
}

struct live *table_hold(struct control *c, const char *id)
{
    struct live *l = table_find(c, str_of(id));

    if (l)
        live_hold(l);
    return l;
}

struct live *table_find_key(struct control *c, int64_t owner, const char *idem_key)
{
    struct live *l;

    list_each(l, &c->by_key[bucket_of(str_of(idem_key), (uint64_t)owner)], by_key)
        if (l->s.owner == owner && !strcmp(l->s.idem_key, idem_key))
            return l;
    return NULL;
}

/* ---- who sees what ---- */

bool table_may_see(const struct actor *who, const struct sandbox *s)
{
    return !who || who->admin || who->user == s->owner;
}

int table_not_found(struct str id, struct err *err)
{
    if (id.n > SANDBOX_UUID) /* what comes back to the client is bounded */
        id.n = SANDBOX_UUID;
    return err_set(err, ERR_NOT_FOUND,
                   "Sandbox \"%.*s\" doesn't exist or you don't have access to it", STR_ARG(id));
}

struct sandbox *control_find(struct control *c, const struct actor *who, struct str id,
                             struct err *err)
{
    struct live *l = table_find(c, id);

    if (l && table_may_see(who, &l->s))
        return &l->s;
    table_not_found(id, err);
    return NULL;
}
