/* metrics.c - the control part in numbers, for Prometheus. */
#include "base/prom.h"
#include "control/impl.h"

static void counter(struct buf *out, const char *name, const char *help, uint64_t v)
{
    prom_head(out, name, "counter", help);
    prom_value(out, name, NULL, (double)v);
}

static void created(struct control *c, struct buf *out)
{
    const struct counts *n = &c->counts;

    prom_head(out, "cove_sandboxes_created_total", "counter", "Sandboxes that were created");
    prom_value(out, "cove_sandboxes_created_total", (const char *[]){ "kind", "warm", NULL },
               (double)n->created_warm);
    prom_value(out, "cove_sandboxes_created_total", (const char *[]){ "kind", "cold", NULL },
               (double)n->created_cold);
    prom_head(out, "cove_create_seconds", "summary", "Time from a create's arrival to its answer");
    prom_value(out, "cove_create_seconds_sum", NULL, (double)n->create_us / 1e6);
    prom_value(out, "cove_create_seconds_count", NULL, (double)(n->created_warm + n->created_cold));
}

void control_metrics(struct control *c, struct buf *out)
{
    const struct counts *n = &c->counts;
    size_t states[SANDBOX_STATES] = { 0 }, unreachable = 0;
    struct live *l;

    list_each(l, &c->all, all) {
        states[l->s.state]++;
        unreachable += *l->unreachable != 0;
    }
    prom_head(out, "cove_sandboxes", "gauge", "Sandboxes by their state");
    for (int i = 0; i < SANDBOX_ENDED; i++) {
        const char *labels[] = { "state", sandbox_state_names[i], NULL };

        prom_value(out, "cove_sandboxes", labels, (double)states[i]);
    }
    prom_head(out, "cove_unreachable", "gauge",
              "Sandboxes of which something cannot be read or found; each says what");
    prom_value(out, "cove_unreachable", NULL, (double)unreachable);
    prom_head(out, "cove_orphans", "gauge", "Machines that the database does not know");
    prom_value(out, "cove_orphans", NULL, (double)c->norphans);
    created(c, out);
    counter(out, "cove_create_failures_total", "Creates that failed and were undone",
            n->create_failed);
    counter(out, "cove_sandboxes_ended_total", "Sandboxes that have ended", n->ended);
    counter(out, "cove_sandboxes_expired_total", "Those that ended by their lifetime", n->expired);
    counter(out, "cove_sandboxes_paused_total", "Sandboxes that were paused", n->paused);
    counter(out, "cove_sandboxes_resumed_total", "Sandboxes that were resumed", n->resumed);
    counter(out, "cove_pool_made_total", "Machines made ahead", n->pool_made);
    counter(out, "cove_pool_failures_total", "Machines that could not be made ahead",
            n->pool_failed);
    pool_metrics(c, out);
    counter(out, "cove_guest_connections_total", "Connections made into sandboxes",
            c->client.dialled);
    counter(out, "cove_guest_requests_reused_total", "Requests on a connection that was kept",
            c->client.reused);
}
