/* local_event.c - the machines that provider `local` hears of, and the keeper's news of them. */
#include <assert.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/mem.h"
#include "provider/local.h"

/* ---- the table ---- */

static int by_ref(const void *a, const void *b)
{
    return strcmp(((const struct machine *)a)->ref, ((const struct machine *)b)->ref);
}

struct machine *local_find(struct local *l, const char *ref)
{
    struct machine key;
    void *at;

    if (strlen(ref) >= sizeof(key.ref))
        return NULL;
    memcpy(key.ref, ref, strlen(ref) + 1);
    at = tfind(&key, &l->machines, by_ref);
    return at ? *(struct machine **)at : NULL;
}

struct machine *local_add(struct local *l, const char *ref)
{
    struct machine *m;

    if (local_find(l, ref))
        return NULL;
    m = xcalloc(1, sizeof(*m));
    m->spare = -1;
    snprintf(m->ref, sizeof(m->ref), "%s", ref);
    if (!tsearch(m, &l->machines, by_ref))
        abort(); /* no memory */
    return m;
}

static void free_machine(void *machine)
{
    struct machine *m = machine;

    co_close(m->spare);
    free(m);
}

void local_forget(struct local *l, struct machine *m)
{
    tdelete(m, &l->machines, by_ref);
    free_machine(m);
}

void local_forget_all(struct local *l)
{
    tdestroy(l->machines, free_machine);
    l->machines = NULL;
}

struct refs {
    char (*list)[ORDER_ID];
    size_t n;
};

static void add_ref(const void *node, VISIT which, void *arg)
{
    const struct machine *m = *(const struct machine *const *)node;
    struct refs *r = arg;

    if ((which != postorder && which != leaf) || m->creating) /* once each */
        return;
    r->list = xrealloc(r->list, (r->n + 1) * sizeof(*r->list));
    memcpy(r->list[r->n++], m->ref, sizeof(m->ref));
}

char (*local_refs(struct local *l, size_t *n))[ORDER_ID]
{
    struct refs r = { 0 };

    twalk_r(l->machines, add_ref, &r);
    *n = r.n;
    return r.list;
}

/* ---- what the keeper says ---- */

void local_state(const struct keep_state *s, struct machine_state *out)
{
    *out = (struct machine_state){
        .limits = s->limits,
        .memory_bytes = s->memory_bytes,
        .memory_cache_bytes = s->memory_cache_bytes,
        .memory_peak_bytes = s->memory_peak_bytes,
        .cpu_us = s->cpu_us,
        .pids = s->pids,
        .disk_bytes = s->disk_bytes,
        .net_rx_bytes = s->net_rx_bytes,
        .net_tx_bytes = s->net_tx_bytes,
        .left_ms = s->left_ms, /* INT64_MAX is NEVER on both sides */
        .network = s->network == ORDER_NET_OPEN ? NETWORK_OPEN : NETWORK_NONE,
        .paused = s->frozen,
        .asleep = s->asleep,
        .outdated = s->outdated,
        .stopped = s->stopped,
    };
    static_assert(sizeof(out->template) == sizeof(s->template) &&
                      sizeof(out->unreachable) == sizeof(s->unreadable),
                  "one room for each text");
    memcpy(out->template, s->template, sizeof(out->template));
    memcpy(out->unreachable, s->unreadable, sizeof(out->unreachable));
    out->astray = s->astray;
    out->flags = s->flags;
    out->mark = s->mark;
}

void local_emit(struct local *l, enum machine_event_kind kind)
{
    if (l->provider.on_event && !l->closing)
        l->provider.on_event(l->provider.arg,
                             &(struct machine_event){ .kind = kind, .limit = LIMIT_NONE });
}

static void emit(struct local *l, const struct machine_event *e)
{
    if (l->provider.on_event && !l->closing)
        l->provider.on_event(l->provider.arg, e);
}

void local_unreachable(struct local *l, struct machine *m, const char *why)
{
    emit(l, &(struct machine_event){
                .kind = MACHINE_UNREACHABLE, .ref = m->ref, .limit = LIMIT_NONE, .text = why });
}

void local_astray(struct local *l, struct machine *m)
{
    emit(l, &(struct machine_event){ .kind = MACHINE_ASTRAY, .ref = m->ref, .limit = LIMIT_NONE });
}

void local_gone(struct local *l, struct machine *m, const char *reason, const char *text)
{
    struct machine_event e = {
        .kind = MACHINE_ENDED, .ref = m->ref, .limit = LIMIT_NONE, .reason = reason, .text = text
    };

    if (m->creating) { /* create() finds out for itself */
        m->ended = true;
        err_set(&m->why, ERR_UNAVAILABLE, "%s", text);
        return;
    }
    e.state.left_ms = NEVER;
    emit(l, &e);
    local_forget(l, m);
}

static const struct end {
    const char *reason, *text;
    enum limit_id limit;
} ends[ENDED_REASONS] = {
    [ENDED_BY_REQUEST] = { "request", "it was ended by request", LIMIT_NONE },
    /* something broke it, unless it ended of its own will */
    [ENDED_BY_ITSELF] = { "failed", "its guest ended, and with it everything inside", LIMIT_NONE },
    [ENDED_LIFETIME] = { "lifetime", "its time was up", LIMIT_LIFETIME },
    [ENDED_MEMORY] = { "memory", "it needed more memory than its limit", LIMIT_MEMORY },
    [ENDED_LEFT] = { "request", "the program that had made it has ended", LIMIT_NONE },
    [ENDED_FAILED] = { "failed", "it could not be built", LIMIT_NONE },
};

static void ended(struct local *l, struct machine *m, const struct keep_reply *r)
{
    const struct end *end = &ends[r->reason];
    char how[96];
    struct machine_event e = { .kind = MACHINE_ENDED,
                               .ref = m->ref,
                               .limit = end->limit,
                               .reason = end->reason,
                               .text = *r->message ? r->message : end->text };

    if (r->reason == ENDED_BY_ITSELF && WIFEXITED((int)r->status)) {
        snprintf(how, sizeof(how), "it was shut down from inside: its guest ended with status %d",
                 WEXITSTATUS((int)r->status));
        e.reason = "itself";
        e.text = how;
    } else if (r->reason == ENDED_BY_ITSELF && WIFSIGNALED((int)r->status)) {
        snprintf(how, sizeof(how),
                 "its guest was killed from outside by signal %d, and with it everything inside",
                 WTERMSIG((int)r->status));
        e.text = how;
    }
    if (m->creating && !r->u.state.asleep) {
        m->ended = true;
        err_set(&m->why, r->code ? (enum err_code)r->code : ERR_UNAVAILABLE, "%s", e.text);
        return;
    }
    local_state(&r->u.state, &e.state);
    if (end->limit != LIMIT_NONE)
        e.value = limits_get(&e.state.limits, end->limit);
    e.use = end->limit == LIMIT_MEMORY ? e.state.memory_peak_bytes : e.value;
    e.sockets = end->limit == LIMIT_MEMORY ? r->u.state.socket_bytes : 0;
    if (e.state.asleep)
        e.kind = MACHINE_DOWN;
    emit(l, &e);
    if (e.kind == MACHINE_ENDED)
        local_forget(l, m);
}

void local_event(struct local *l, const struct keep_reply *r)
{
    struct machine *m = local_find(l, r->id);

    if (!m) { /* of one whose create was given up */
        log_debug("an event of no machine of ours", KV("sandbox", r->id));
        return;
    }
    if (r->kind == KEEP_ENDED)
        ended(l, m, r);
    else
        emit(l, &(struct machine_event){ .kind = MACHINE_LIMIT,
                                         .ref = m->ref,
                                         .limit = (enum limit_id)r->u.limit.limit,
                                         .value = r->u.limit.value,
                                         .use = r->u.limit.use,
                                         .sockets = r->u.limit.sockets });
}
