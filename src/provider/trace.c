/* trace.c - a provider that passes every call on to another one, and tells of it: a line in the log
 * at level debug, and counters and a histogram of durations for Prometheus. Of a machine it names
 * the ref alone: what is in a spec may be secret. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "provider/provider.h"

enum op {
    CREATE,
    DESTROY,
    LIST,
    TEMPLATES,
    STAT,
    LIMITS,
    CLAIM,
    PAUSE,
    RESUME,
    SNAPSHOT,
    DIAL,
    ADOPT,
    OPS
};

static const char *const op_names[OPS] = { "create", "destroy",  "list",  "templates",
                                           "stat",   "limits",   "claim", "pause",
                                           "resume", "snapshot", "dial",  "adopt" };

static const struct {
    int64_t us;
    const char *le; /* in seconds, as Prometheus wants it */
} buckets[] = {
    { 50, "5e-05" },    { 100, "0.0001" },  { 250, "0.00025" },    { 500, "0.0005" },
    { 1000, "0.001" },  { 2500, "0.0025" }, { 5000, "0.005" },     { 10000, "0.01" },
    { 25000, "0.025" }, { 50000, "0.05" },  { 100000, "0.1" },     { 250000, "0.25" },
    { 1000000, "1" },   { 5000000, "5" },   { INT64_MAX, "+Inf" },
};

struct trace {
    struct provider provider;
    struct provider *inner;
    struct provider_ops ops; /* ours, under the inner one's name */
    size_t users;            /* calls under way, and who has it open */
    struct {
        uint64_t calls, errors, us, in[ARRAY_LEN(buckets)];
    } counts[OPS];
};

struct span {
    struct trace *trace;
    enum op op;
    const char *ref;
    int64_t began;
};

static void put(struct trace *t)
{
    if (!--t->users)
        free(t);
}

static struct span begin(struct provider *p, enum op op, const char *ref)
{
    struct trace *t = CONTAINER_OF(p, struct trace, provider);

    t->users++;
    return (struct span){ t, op, ref, clock_us() };
}

static int end(const struct span *s, int result, const struct err *err)
{
    int64_t us = clock_us() - s->began;
    struct trace *t = s->trace;
    size_t i = 0;

    while (us > buckets[i].us)
        i++;
    t->counts[s->op].calls++;
    t->counts[s->op].errors += result < 0;
    t->counts[s->op].us += (uint64_t)us;
    t->counts[s->op].in[i]++;
    log_debug("provider", KV("op", op_names[s->op]), KV("sandbox", s->ref), KVI("us", us),
              KV("outcome", result < 0 ? err_name(err->code) : "ok"),
              KV("error", result < 0 ? err->msg : ""));
    put(t);
    return result;
}

/* ---- the calls ---- */

static const struct provider_ops *inner_ops(const struct span *s) { return s->trace->inner->ops; }

static int create(struct provider *p, const char *ref, const struct order *order,
                  struct machine_state *out, struct err *err)
{
    struct span s = begin(p, CREATE, ref);

    return end(&s, inner_ops(&s)->create(s.trace->inner, ref, order, out, err), err);
}

static int destroy(struct provider *p, const char *ref, struct err *err)
{
    struct span s = begin(p, DESTROY, ref);

    return end(&s, inner_ops(&s)->destroy(s.trace->inner, ref, err), err);
}

static int list(struct provider *p, provider_ref_fn *fn, void *arg, struct err *err)
{
    struct span s = begin(p, LIST, NULL);

    return end(&s, inner_ops(&s)->list(s.trace->inner, fn, arg, err), err);
}

static int templates(struct provider *p, provider_template_fn *fn, void *arg, struct err *err)
{
    struct span s = begin(p, TEMPLATES, NULL);

    return end(&s, inner_ops(&s)->templates(s.trace->inner, fn, arg, err), err);
}

static int stat_(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    struct span s = begin(p, STAT, ref);

    return end(&s, inner_ops(&s)->stat(s.trace->inner, ref, out, err), err);
}

static int limits(struct provider *p, const char *ref, const struct limits *new, struct err *err)
{
    struct span s = begin(p, LIMITS, ref);

    return end(&s, inner_ops(&s)->limits(s.trace->inner, ref, new, err), err);
}

static int claim(struct provider *p, const char *ref, const struct limits *new,
                 const struct order_mark *mark, struct err *err)
{
    struct span s = begin(p, CLAIM, ref);

    return end(&s, inner_ops(&s)->claim(s.trace->inner, ref, new, mark, err), err);
}

static int pause_(struct provider *p, const char *ref, bool files_only, uint64_t *flush_us,
                  struct err *err)
{
    struct span s = begin(p, PAUSE, ref);

    return end(&s, inner_ops(&s)->pause(s.trace->inner, ref, files_only, flush_us, err), err);
}

static int resume(struct provider *p, const char *ref, uint64_t lifetime_ms, bool *anew,
                  struct err *err)
{
    struct span s = begin(p, RESUME, ref);

    return end(&s, inner_ops(&s)->resume(s.trace->inner, ref, lifetime_ms, anew, err), err);
}

static int snapshot(struct provider *p, const char *ref, const char *name, struct err *err)
{
    struct span s = begin(p, SNAPSHOT, ref);

    return end(&s, inner_ops(&s)->snapshot(s.trace->inner, ref, name, err), err);
}

static int dial(struct provider *p, const char *ref, uint16_t port, int64_t until, struct err *err)
{
    struct span s = begin(p, DIAL, ref);

    return end(&s, inner_ops(&s)->dial(s.trace->inner, ref, port, until, err), err);
}

static int adopt(struct provider *p, const char *ref, struct machine_state *out, struct err *err)
{
    struct span s = begin(p, ADOPT, ref);

    return end(&s, inner_ops(&s)->adopt(s.trace->inner, ref, out, err), err);
}

static void close_(struct provider *p)
{
    struct trace *t = CONTAINER_OF(p, struct trace, provider);

    provider_closep(&t->inner);
    put(t);
}

static const struct provider_ops trace_ops = {
    .name = "trace",
    .create = create,
    .destroy = destroy,
    .list = list,
    .templates = templates,
    .stat = stat_,
    .limits = limits,
    .claim = claim,
    .pause = pause_,
    .resume = resume,
    .snapshot = snapshot,
    .dial = dial,
    .adopt = adopt,
    .close = close_,
};

struct provider *provider_trace(struct provider *inner)
{
    struct trace *t = xcalloc(1, sizeof(*t));

    t->ops = trace_ops;
    t->ops.name = inner->ops->name;
    t->provider = (struct provider){ &t->ops, inner->on_event, inner->arg };
    t->inner = inner;
    t->users = 1;
    return &t->provider;
}

/* ---- counters ---- */

static void put_histogram(const struct trace *t, struct buf *out)
{
    static const char name[] = "cove_provider_seconds";

    prom_head(out, name, "histogram", "Duration of calls to the provider.");
    for (enum op op = 0; op < OPS; op++) {
        const char *plain[] = { "op", op_names[op], NULL };
        uint64_t sum = 0;

        for (size_t i = 0; i < ARRAY_LEN(buckets); i++) {
            const char *labels[] = { "op", op_names[op], "le", buckets[i].le, NULL };

            sum += t->counts[op].in[i];
            prom_value(out, "cove_provider_seconds_bucket", labels, (double)sum);
        }
        prom_value(out, "cove_provider_seconds_sum", plain, (double)t->counts[op].us / 1e6);
        prom_value(out, "cove_provider_seconds_count", plain, (double)t->counts[op].calls);
    }
}

void provider_trace_metrics(struct provider *p, struct buf *out)
{
    const struct trace *t = CONTAINER_OF(p, struct trace, provider);

    prom_head(out, "cove_provider_errors_total", "counter", "Calls to the provider that failed.");
    for (enum op op = 0; op < OPS; op++)
        prom_value(out, "cove_provider_errors_total", (const char *[]){ "op", op_names[op], NULL },
                   (double)t->counts[op].errors);
    put_histogram(t, out);
}
