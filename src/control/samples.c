/* samples.c - what each sandbox used, measured every few seconds and remembered for a while. All
 * that run are in one line, the one whose turn is next at its head, so that measuring many is
 * spread over the interval. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "control/impl.h"

enum { RING = 90, FRESH_MS = 1000 };

struct samples {
    struct sample ring[RING];
    size_t next, n;
    int64_t at; /* of the last one: monotonic ms */
    int64_t at_us;
    uint64_t cpu_us; /* then */
    bool asking;     /* somebody is at it */
};

static void put(struct live *l, const struct machine_state *m)
{
    struct samples *all = l->samples;
    int64_t now_us = clock_us();
    struct sample *s = &all->ring[all->next];

    *s = (struct sample){ .at_ms = control_wall_ms(),
                          .cpu_count_milli = m->limits.cpu_milli,
                          .memory = m->memory_bytes,
                          .memory_max = m->limits.memory_bytes,
                          .memory_cache = m->memory_cache_bytes,
                          .disk = m->disk_bytes,
                          .disk_max = m->limits.disk_bytes,
                          .pids = m->pids,
                          .net_rx = m->net_rx_bytes,
                          .net_tx = m->net_tx_bytes };
    if (all->at_us && now_us > all->at_us && m->cpu_us >= all->cpu_us)
        s->cpu_pct = 100.0 * (double)(m->cpu_us - all->cpu_us) / (double)(now_us - all->at_us);
    all->cpu_us = m->cpu_us;
    all->at_us = now_us;
    all->at = co_now();
    all->next = (all->next + 1) % RING;
    all->n = MIN(all->n + 1, (size_t)RING);
}

/* One measurement, unless there was one just now. Parks; l is held by the caller. */
static int measure(struct live *l, struct err *err)
{
    struct provider *p = l->control->provider;
    struct machine_state m;
    int r;

    if (!l->samples)
        l->samples = xcalloc(1, sizeof(*l->samples));
    if (l->samples->asking || (l->samples->n && co_now() - l->samples->at < FRESH_MS))
        return 0;
    l->samples->asking = true;
    r = p->ops->stat(p, l->s.id, &m, err);
    l->samples->asking = false;
    if (!r)
        put(l, &m);
    if (!r && m.stopped)
        health_doubt(l);
    return r;
}

void samples_free(struct live *l) { free(l->samples); }

void samples_begin(struct live *l)
{
    struct control *c = l->control;

    samples_end(l); /* one that was unreachable for a while is in line still */
    l->sample_at = co_in(control_limits.sample_s * 1000);
    list_push(&c->sampling, &l->sampling);
    co_cond_wake(&c->sampling_begun);
}

void samples_end(struct live *l) { list_remove(&l->sampling); }

static void measure_first(struct control *c)
{
    AUTO(live_releasep) struct live *l = CONTAINER_OF(c->sampling.next, struct live, sampling);
    struct err err = { 0 };

    live_hold(l);
    list_remove(&l->sampling);
    l->sample_at = co_in(control_limits.sample_s * 1000);
    list_push(&c->sampling, &l->sampling);
    if (l->s.state == SANDBOX_RUNNING && measure(l, &err))
        control_gone(l, &err);
}

void samples_serve(void *control)
{
    struct control *c = control;

    while (!c->closing) {
        bool none = list_empty(&c->sampling);
        int64_t at =
            none ? NEVER : CONTAINER_OF(c->sampling.next, struct live, sampling)->sample_at;

        if (at <= co_now()) {
            measure_first(c);
            continue;
        }
        /* a new one goes to the end of the line: only the first of all is news */
        if (none ? co_cond_wait(&c->sampling_begun, NEVER) : co_sleep(at))
            return;
    }
}

int control_samples(struct control *c, struct sandbox *s, int64_t from_ms, int64_t to_ms,
                    control_sample_fn *fn, void *arg, struct err *err)
{
    AUTO(live_releasep) struct live *l = live_of(s);
    int r = 0;

    (void)c;
    live_hold(l);
    if (l->s.state == SANDBOX_RUNNING && measure(l, err)) {
        if (err->reason == ERR_NO_SANDBOX)
            table_not_found(str_of(l->s.id), err);
        return -1;
    }
    for (size_t i = 0, n = l->samples ? l->samples->n : 0; i < n && !r; i++) {
        const struct sample *m = &l->samples->ring[(l->samples->next + RING - n + i) % RING];

        if (m->at_ms >= from_ms && m->at_ms <= to_ms)
            r = fn(arg, m);
    }
    return 0;
}
