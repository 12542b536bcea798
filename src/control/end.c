/* end.c - the end of a sandbox, and what is left to do when a part of it failed.
 *
 * The record is written as ended, with its reason, beside the destroying: one write, and whichever
 * of the two a crash prevents, the next start makes up for (a machine without a live record is
 * destroyed, a record without a machine ended). What the provider or the store refuse is tried
 * again until it is done. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum { RETRY_MS = 1000, RETRY_MAX_MS = 10000 };

/* ---- one sandbox ---- */

struct writing {
    struct control *control;
    const struct sandbox *row;
    enum sandbox_state expect;
    const struct event *event;
    struct co_cond written;
    bool running;
    int result;
    struct err err;
};

static void write_end(void *arg)
{
    struct writing *w = arg;

    w->result = control_write(w->control, w->row, w->expect, w->event, &w->err);
    w->running = false;
    co_cond_wake(&w->written);
}

static void write_beside(struct writing *w, bool beside)
{
    w->running = true;
    co_cond_init(&w->written);
    if (!beside || control_go(w->control, write_end, w))
        write_end(w);
}

static int destroy(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;

    if (!p->ops->destroy(p, l->s.id, err) || provider_gone(p, l->s.id, err))
        return 0;
    leftover_machine(l->control, l->s.id);
    if (err_status(err->code) < 500) /* whatever the machine lacks, who asked did nothing wrong */
        err->code = ERR_UNAVAILABLE;
    return err_in(err, "it is recorded as ended, and will end as soon as that is possible");
}

/* Whoever still has it sees an ended one, and nobody finds it any more. */
static void leave(struct live *l, const struct sandbox *ended)
{
    struct control *c = l->control;
    struct client_to to;

    l->s = *ended;
    control_to(c, &l->s, PROVIDER_GUEST_PORT, &to);
    client_forget(&c->client, &to);
    co_close(TAKE(l->spare, -1));
    c->counts.ended++;
    control_news(l);
    table_remove(c, l);
}

int life_end(struct live *l, const char *actor, const char *reason, bool machine, struct err *err)
{
    struct control *c = l->control;
    enum sandbox_state was = (enum sandbox_state)l->s.state;
    struct sandbox next = l->s;
    struct event e = control_event_of(&l->s, l->s.started_ms ? "ended" : "failed", actor, reason);
    struct writing w = { .control = c, .row = &next, .expect = was, .event = &e };
    int r = 0;

    life_disarm(l);
    forward_close(l);
    l->s.state = SANDBOX_ENDING;
    next.state = SANDBOX_ENDED;
    next.ended_ms = e.at_ms;
    next.reason = arena_strdup(&l->s.strings, str_of(reason));
    next.strings = l->s.strings;
    write_beside(&w, machine);
    if (machine)
        r = destroy(l, err);
    while (w.running)
        if (co_cond_wait(&w.written, NEVER)) /* cancelled: it still uses what is ours */
            co_pass();
    if (w.result && w.err.code != ERR_CONFLICT) { /* a conflict: somebody has ended it before us */
        log_warn("a sandbox's end is not written yet", KV("sandbox", l->s.id),
                 KV("error", w.err.msg));
        leftover_row(c, &next, was);
    }
    leave(l, &next);
    return r;
}

/* ---- leftovers ---- */

struct leftover { /* a machine to destroy, or a record to write */
    struct leftover *next;
    char ref[SANDBOX_ID + 1];
    struct sandbox *row; /* owned; NULL: the machine */
    enum sandbox_state expect;
};

static struct leftover *leftover_new(struct control *c)
{
    struct leftover *o = xcalloc(1, sizeof(*o));

    o->next = c->leftovers;
    c->leftovers = o;
    co_cond_wake(&c->leftover_added);
    return o;
}

void leftover_machine(struct control *c, const char *ref)
{
    struct leftover *o = leftover_new(c);

    snprintf(o->ref, sizeof(o->ref), "%s", ref);
}

void leftover_row(struct control *c, const struct sandbox *ended, enum sandbox_state expect)
{
    struct leftover *o = leftover_new(c);

    o->row = xcalloc(1, sizeof(*o->row));
    sandbox_copy(o->row, ended);
    o->expect = expect;
}

static void leftover_free(struct leftover *o)
{
    if (o->row)
        sandbox_finish(o->row);
    free(o->row);
    free(o);
}

const struct sandbox *leftover_find(const struct control *c, const char *id)
{
    for (int i = 0; i < 2; i++)
        for (const struct leftover *o = i ? c->trying : c->leftovers; o; o = o->next)
            if (o->row && (!strcmp(o->row->id, id) || !strcmp(o->row->uuid, id)))
                return o->row;
    return NULL;
}

static int try_row(struct control *c, const struct leftover *o, struct err *err)
{
    struct event e =
        control_event_of(o->row, o->row->started_ms ? "ended" : "failed", "system", o->row->reason);

    e.at_ms = o->row->ended_ms;
    return control_write(c, o->row, o->expect, &e, err);
}

static bool try_one(struct control *c, const struct leftover *o)
{
    struct err err = { 0 };
    int r = o->row ? try_row(c, o, &err) : c->provider->ops->destroy(c->provider, o->ref, &err);

    if (!r || (o->row ? err.code == ERR_NOT_FOUND || err.code == ERR_CONFLICT
                      : provider_gone(c->provider, o->ref, &err)))
        return true;
    log_debug("not mended yet", KV("sandbox", o->row ? o->row->id : o->ref), KV("error", err.msg));
    return false;
}

/* Goes through them once; whether any is left. New ones may come while we wait. */
static bool try_all(struct control *c)
{
    c->trying = TAKE(c->leftovers, NULL);
    while (c->trying) {
        struct leftover *o = c->trying;
        bool done = try_one(c, o);

        c->trying = o->next;
        if (done) {
            leftover_free(o);
            continue;
        }
        o->next = c->leftovers;
        c->leftovers = o;
    }
    return c->leftovers;
}

void leftover_serve(void *control)
{
    struct control *c = control;
    int64_t pause = RETRY_MS;

    while (!c->closing) {
        if (!c->leftovers) {
            pause = RETRY_MS;
            if (co_cond_wait(&c->leftover_added, NEVER))
                return;
        }
        if (co_sleep(co_in(pause)))
            return;
        pause = try_all(c) ? MIN(pause * 2, (int64_t)RETRY_MAX_MS) : RETRY_MS;
    }
}

void leftover_finish(struct control *c)
{
    struct leftover *o, *next;

    if (c->leftovers && try_all(c))
        log_warn("what is left to end is left to the next start");
    for (o = TAKE(c->leftovers, NULL); o; o = next) {
        next = o->next;
        leftover_free(o);
    }
}
