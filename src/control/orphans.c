/* orphans.c - machines that the store does not know: after its database was lost, or an older
 * backup was put back. They may hold somebody's only copy of his files, so none is ended because
 * nobody knows it: it is set aside, listed with the reason, and kept control.orphan-retention-s.
 *
 *   no record, and the machine    what becomes of it
 *   is ours, and unclaimed        nobody was ever told of it: back into the pool, or ended
 *   waited in a former release    the same, in the store that this one used; in another one, set
 *                                 aside: that a machine waited says its lifetime alone
 *   is anything else              set aside
 *   a record that says ended      ended: the record is the witness
 *
 * One that is set aside is served to nobody. Its deadline and its limits hold, which the provider
 * watches over, and it counts as a sandbox. An admin lists, adopts or ends it.
 *
 * How long it has been kept is the time for which servers have run with it: setting the clock on
 * the wall ends nothing. It is written down every hour and at an orderly end. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum { SOON_MS = 10, BEGUN_MS = 3000, RETRY_MS = 10000, LOOK_MS = 60000, WRITE_MS = 3600000 };

struct set_aside {
    struct list in;
    char id[SANDBOX_ID + 1];
    int64_t found_ms;       /* unix, for people */
    int64_t kept_ms, since; /* it had been kept for so long at `since`, monotonic */
    int64_t again;          /* monotonic: ending it has failed */
    char reason[ORPHAN_REASON];
    bool busy; /* somebody adopts or ends it */
};

static struct set_aside *find(struct control *c, struct str id)
{
    struct set_aside *o;

    list_each(o, &c->orphans, in)
        if (str_is(id, o->id))
            return o;
    return NULL;
}

bool orphans_know(struct control *c, const char *ref) { return find(c, str_of(ref)); }

static int64_t kept_of(const struct set_aside *o) { return o->kept_ms + (co_now() - o->since); }

/* NEVER: it is kept for ever. */
static int64_t left_of(const struct set_aside *o)
{
    int64_t s = control_limits.orphan_retention_s;

    return s ? MAX(s * 1000 - kept_of(o), (int64_t)0) : NEVER;
}

/* ---- in the store ---- */

static int put_row(struct store *s, void *arg, struct err *err)
{
    return s->ops->orphan_put(s, arg, err);
}

static int remove_row(struct store *s, void *arg, struct err *err)
{
    return s->ops->orphan_remove(s, arg, err);
}

struct rows {
    struct orphan_row *items;
    size_t n;
};

static int collect(void *arg, const struct orphan_row *row)
{
    struct rows *r = arg;

    r->items = xrealloc(r->items, (r->n + 1) * sizeof(*r->items));
    r->items[r->n++] = *row;
    return 0;
}

static int read_rows(struct store *s, void *arg, struct err *err)
{
    return s->ops->orphan_list(s, collect, arg, err);
}

static void forget_row(struct control *c, const char *id)
{
    char copy[SANDBOX_ID + 1];
    struct err err = { 0 };

    snprintf(copy, sizeof(copy), "%s", id);
    if (control_store(c, remove_row, copy, &err) < 0) /* it goes at the next start */
        log_warn("a machine that is gone is still listed in the database", KV("sandbox", copy),
                 KV("error", err.msg));
}

/* ---- setting aside ---- */

static void set_aside(struct control *c, const char *id, const char *reason,
                      const struct rows *known)
{
    struct set_aside *o = xcalloc(1, sizeof(*o));
    struct orphan_row row = { .found_ms = control_wall_ms() };
    struct err err = { 0 };

    for (size_t i = 0; i < known->n; i++)
        if (!strcmp(known->items[i].id, id))
            row = known->items[i];
    snprintf(o->id, sizeof(o->id), "%s", id);
    snprintf(o->reason, sizeof(o->reason), "%s", reason);
    memcpy(row.id, o->id, sizeof(row.id));
    memcpy(row.reason, o->reason, sizeof(row.reason));
    o->found_ms = row.found_ms;
    o->kept_ms = MAX(row.kept_ms, (int64_t)0);
    o->since = co_now();
    list_push(&c->orphans, &o->in);
    c->norphans++;
    log_warn("a machine that the database does not know is set aside (cove orphans)",
             KV("sandbox", id), KV("why", reason));
    if (control_store(c, put_row, &row, &err) <
        0) /* then its time begins again at the next start */
        log_warn("it is not written down", KV("sandbox", id), KV("error", err.msg));
}

static void drop(struct control *c, struct set_aside *o)
{
    list_remove(&o->in);
    c->norphans--;
    free(o);
}

struct gone {
    struct control *control;
    char id[SANDBOX_ID + 1];
};

static void forget_later(void *arg)
{
    struct gone *g = arg;

    forget_row(g->control, g->id);
    free(g);
}

bool orphans_ended(struct control *c, const char *ref, const char *why)
{
    struct set_aside *o = find(c, str_of(ref));
    struct gone *g;

    if (!o)
        return false;
    log_info("a machine that was set aside has ended", KV("sandbox", ref), KV("why", why));
    g = xcalloc(1, sizeof(*g));
    g->control = c;
    memcpy(g->id, o->id, sizeof(g->id));
    drop(c, o);
    if (control_go(c, forget_later, g))
        free(g); /* no memory: the row goes at the next start */
    return true;
}

/* ---- at start ---- */

enum fate { KEEP_IT, END_IT };

/* A record that has ended is a witness; so is the mark of one that nobody was told of. */
static enum fate judge(struct control *c, const char *ref, const struct machine_state *m,
                       char why[static ORPHAN_REASON])
{
    const struct order_mark *mark = &m->mark;
    struct sandbox row = { 0 };
    struct err err = { 0 };
    bool known = !control_get(c, NULL, str_of(ref), &row, &err), ended = false;

    if (known) {
        ended = row.state == SANDBOX_ENDED;
        sandbox_finish(&row);
    }
    if (ended)
        return END_IT;
    if (known)
        snprintf(why, ORPHAN_REASON, "its record is another node's");
    else if (err.code != ERR_NOT_FOUND)
        snprintf(why, ORPHAN_REASON, "its record cannot be looked for: %.120s", err.msg);
    else if (*m->unreachable)
        snprintf(why, ORPHAN_REASON, "no record knows it, and %.140s", m->unreachable);
    else if (mark->claim == ORDER_CLAIM_UNKNOWN && pool_marked(m) && c->former)
        return END_IT;
    else if (mark->claim == ORDER_CLAIM_UNKNOWN)
        snprintf(why, ORPHAN_REASON, "no record knows it; a former release made it");
    else if (mark_is_ours(c, mark) && mark->claim == ORDER_UNCLAIMED)
        return END_IT;
    else if (mark_is_ours(c, mark))
        snprintf(why, ORPHAN_REASON, "no record knows it, although it is of this database");
    else if (mark->claim == ORDER_UNCLAIMED)
        snprintf(why, ORPHAN_REASON, "it waited for a sandbox of another database");
    else
        snprintf(why, ORPHAN_REASON,
                 "no record knows it: it is of another database, or newer than "
                 "the backup that was put back");
    return KEEP_IT;
}

/* One that a former server asked for is still being made, or ended: that takes a moment, and nobody
 * need decide about it now. */
static int adopt_soon(struct provider *p, const char *ref, int64_t until, struct machine_state *m,
                      struct err *err)
{
    int r;

    while ((r = p->ops->adopt(p, ref, m, err)) && err->code == ERR_CONFLICT && co_now() < until &&
           !co_sleep(co_in(SOON_MS)))
        *err = (struct err){ 0 };
    return r;
}

static void settle(struct control *c, const char *ref, int64_t until, const struct rows *known)
{
    struct provider *p = c->provider;
    struct machine_state m = { 0 };
    char why[ORPHAN_REASON];
    struct err err = { 0 };

    if (adopt_soon(p, ref, until, &m, &err)) {
        if (provider_gone(p, ref, &err))
            return;
        snprintf(m.unreachable, sizeof(m.unreachable), "it cannot be reached: %.200s", err.msg);
    }
    if (judge(c, ref, &m, why) == KEEP_IT) {
        set_aside(c, ref, why, known);
        return;
    }
    if (!*m.unreachable && pool_adopt(c, ref, &m))
        return;
    log_info("a machine of nobody is ended", KV("sandbox", ref));
    if (p->ops->destroy(p, ref, &err) && !provider_gone(p, ref, &err))
        leftover_machine(c, ref);
}

void orphans_settle(struct control *c, const char *(*each)(void *arg, size_t i), void *arg)
{
    int64_t until = co_in(BEGUN_MS); /* for all of them */
    struct rows known = { 0 };
    struct err err = { 0 };
    const char *ref;

    if (control_store(c, read_rows, &known, &err) < 0)
        log_warn("the time of machines that were set aside begins again", KV("error", err.msg));
    for (size_t i = 0; (ref = each(arg, i)); i++)
        if (!table_find(c, str_of(ref)))
            settle(c, ref, until, &known);
    for (size_t i = 0; i < known.n; i++)
        if (!find(c, str_of(known.items[i].id)))
            forget_row(c, known.items[i].id);
    free(known.items);
}

/* ---- their time ---- */

static int64_t due_of(const struct set_aside *o)
{
    int64_t left = left_of(o);

    return left == NEVER || o->busy ? NEVER : MAX(co_in(left), o->again);
}

static int end_one(struct control *c, const char *id, const char *why, struct err *err)
{
    struct provider *p = c->provider;
    struct set_aside *o = find(c, str_of(id));
    int r;

    if (!o)
        return table_not_found(str_of(id), err);
    o->busy = true;
    r = p->ops->destroy(p, id, err);
    o = find(c, str_of(id)); /* its end may have been told meanwhile */
    if (o)
        o->busy = false;
    if (r && !provider_gone(p, id, err)) {
        if (o)
            o->again = co_in(RETRY_MS);
        return -1;
    }
    *err = (struct err){ 0 };
    orphans_ended(c, id, why);
    forget_row(c, id); /* before anybody is told */
    return 0;
}

static struct set_aside *next_due(struct control *c, int64_t *at)
{
    struct set_aside *o, *first = NULL;

    *at = NEVER;
    list_each(o, &c->orphans, in)
        if (due_of(o) < *at) {
            *at = due_of(o);
            first = o;
        }
    return first;
}

static int put_all(struct store *s, void *arg, struct err *err)
{
    const struct rows *r = arg;

    for (size_t i = 0; i < r->n; i++)
        if (s->ops->orphan_put(s, &r->items[i], err))
            return -1;
    return 0;
}

/* What has ended meanwhile may be a row again: that goes at the next start. */
static void write_times(struct control *c)
{
    struct rows all = { .items = xcalloc(c->norphans + 1, sizeof(*all.items)) };
    const struct set_aside *o;
    struct err err = { 0 };

    list_each(o, &c->orphans, in) {
        struct orphan_row *row = &all.items[all.n++];

        *row = (struct orphan_row){ .found_ms = o->found_ms, .kept_ms = kept_of(o) };
        memcpy(row->id, o->id, sizeof(row->id));
        memcpy(row->reason, o->reason, sizeof(row->reason));
    }
    if (all.n && control_store(c, put_all, &all, &err) < 0)
        log_warn("how long machines have been set aside is not written down", KV("error", err.msg));
    free(all.items);
}

void orphans_serve(void *control)
{
    struct control *c = control;
    int64_t written = co_now();

    while (!c->closing && !co_cancelled()) {
        int64_t at;
        const struct set_aside *o = next_due(c, &at);
        char id[SANDBOX_ID + 1], why[96];
        struct err err = { 0 };

        if (co_now() - written >= WRITE_MS) {
            write_times(c);
            written = co_now();
            continue;
        }
        if (!o || at > co_now()) { /* one that is busy now may be due when it is not */
            if (co_sleep(MIN(at, co_in(LOOK_MS))))
                return;
            continue;
        }
        memcpy(id, o->id, sizeof(id));
        snprintf(why, sizeof(why), "retention: nobody adopted it for %lld s",
                 (long long)control_limits.orphan_retention_s);
        log_warn("the time of a machine that was set aside is up: it is ended (cove orphans, "
                 "control.orphan-retention-s)",
                 KV("sandbox", id), KV("why", o->reason));
        if (end_one(c, id, why, &err))
            log_warn("it is not ended yet", KV("sandbox", id), KV("error", err.msg));
    }
}

void orphans_finish(struct control *c)
{
    struct set_aside *o;

    write_times(c);
    list_each(o, &c->orphans, in)
        drop(c, o);
}

/* ---- for people ---- */

static void look(struct control *c, const struct set_aside *o, struct orphan *out)
{
    struct provider *p = c->provider;
    int64_t left = left_of(o);
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    *out = (struct orphan){ .found_ms = o->found_ms,
                            .until_ms = left == NEVER ? 0 : control_wall_ms() + left };
    memcpy(id, o->id, sizeof(id));
    memcpy(out->id, id, sizeof(id));
    memcpy(out->reason, o->reason, sizeof(out->reason));
    if (p->ops->adopt(p, id, &out->state, &err))
        snprintf(out->state.unreachable, sizeof(out->state.unreachable), "%s", err.msg);
}

int control_orphan_get(struct control *c, struct str id, struct orphan *out, struct err *err)
{
    const struct set_aside *o = find(c, id);

    if (!o)
        return err_set(err, ERR_NOT_FOUND, "there is no machine '%.*s' that was set aside",
                       (int)MIN(id.n, (size_t)SANDBOX_UUID), id.p);
    look(c, o, out);
    return 0;
}

int control_orphan_list(struct control *c, control_orphan_fn *fn, void *arg, struct err *err)
{
    AUTO(freep) char(*ids)[SANDBOX_ID + 1] = xcalloc(c->norphans + 1, sizeof(*ids));
    const struct set_aside *o;
    size_t n = 0;

    list_each(o, &c->orphans, in)
        memcpy(ids[n++], o->id, sizeof(*ids));
    for (size_t i = 0; i < n; i++) {
        struct orphan out;

        if (!control_orphan_get(c, str_of(ids[i]), &out, err) && fn(arg, &out))
            break;
        *err = (struct err){ 0 }; /* one that has ended meanwhile is none */
    }
    return 0;
}

static struct set_aside *claim(struct control *c, struct str id, struct err *err)
{
    struct set_aside *o = find(c, id);

    if (!o)
        err_set(err, ERR_NOT_FOUND, "there is no machine '%.*s' that was set aside",
                (int)MIN(id.n, (size_t)SANDBOX_UUID), id.p);
    else if (o->busy)
        err_set(err, ERR_CONFLICT, "%s is being adopted or ended", o->id);
    return o && !o->busy ? o : NULL;
}

int control_orphan_end(struct control *c, const struct actor *who, struct str id, struct err *err)
{
    const struct set_aside *o = claim(c, id, err);
    char copy[SANDBOX_ID + 1], why[USER_NAME + 32];

    if (!o)
        return -1;
    memcpy(copy, o->id, sizeof(copy));
    snprintf(why, sizeof(why), "request: ended by %s", who->name);
    return end_one(c, copy, why, err);
}

int control_orphan_adopt(struct control *c, const struct actor *who, struct str id,
                         const char *owner, bool restart, struct sandbox **out, struct err *err)
{
    struct set_aside *o = claim(c, id, err);
    AUTO(live_releasep) struct live *l = NULL;
    char copy[SANDBOX_ID + 1];

    if (!o)
        return -1;
    memcpy(copy, o->id, sizeof(copy));
    o->busy = true;
    l = orphan_take_over(c, who, copy, owner, restart, err);
    o = find(c, str_of(copy));
    if (o)
        o->busy = false;
    if (!l)
        return -1;
    forget_row(c, copy);
    log_info("a machine that was set aside is a sandbox again", KV("sandbox", copy),
             KV("owner", owner), KV("by", who->name));
    o = find(c, str_of(copy)); /* that parked */
    if (o)
        drop(c, o);
    else if (!live_lock(l, err)) { /* it has ended while we were at it, and nobody knew it yet */
        life_end(l, "system", "itself: it ended while it was adopted", false, err);
        live_unlock(l);
        return table_not_found(str_of(copy), err);
    }
    *out = &l->s; /* the table holds it */
    return 0;
}
