/* guest.c - the guest's settings and the little that all its parts need. */
#include "guest/guest.h"

#include "base/mem.h"

struct guest_limits guest_limits = {
    .output_bytes = 1 << 20,
    .stall_ms = 10000,
    .keep_ms = 30000,
    .keep_bytes = 16 << 20,
    .pipe_grace_ms = 100,
    .stop_ms = 2000,
    .list_entries = 200000,
    .watch_events = 8192,
    .watch_dirs = 65536,
};

const struct setting guest_settings[] = {
    { "process.output-bytes", &guest_limits.output_bytes, 128 << 10, 1 << 30,
      "output kept per process for readers that come back" },
    { "process.stall-ms", &guest_limits.stall_ms, 0, INT32_MAX,
      "a reader holds its process back for as long as it is connected", .gone = true },
    { "process.keep-ms", &guest_limits.keep_ms, 0, INT32_MAX,
      "time the end of a process can still be asked for" },
    { "process.keep-bytes", &guest_limits.keep_bytes, 0, 1 << 30,
      "output kept of all ended processes together" },
    { "process.pipe-grace-ms", &guest_limits.pipe_grace_ms, 0, 60000,
      "wait for output of children that outlive their command" },
    { "process.stop-ms", &guest_limits.stop_ms, 0, 600000,
      "time processes get between SIGTERM and SIGKILL when the guest ends" },
    { "files.list-entries", &guest_limits.list_entries, 1, INT32_MAX,
      "entries one ListDir may return" },
    { "watch.events", &guest_limits.watch_events, 16, 1 << 24,
      "events held for a watcher before it is told of an overflow" },
    { "watch.directories", &guest_limits.watch_dirs, 1, 1 << 24,
      "directories one recursive watcher may hold" },
    { 0 },
};

struct work {
    guest_work_fn *fn;
    void *arg;
    struct err *err;
    int result;
};

static void run_work(void *arg)
{
    struct work *w = arg;

    w->result = w->fn(w->arg, w->err);
}

int guest_work(guest_work_fn *fn, void *arg, struct err *err)
{
    struct work w = { fn, arg, err, -1 };

    co_call(run_work, &w);
    return w.result;
}

static void free_env(struct map *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->items[i].key);
        free(m->items[i].value);
    }
    free(m->items);
    *m = (struct map){ 0 };
}

int guest_set_env(struct guest *g, const struct map *env, struct err *err)
{
    for (size_t i = 0; i < env->n; i++)
        if (!env->items[i].key[0] || strchr(env->items[i].key, '='))
            return err_set(
                err, ERR_INVALID,
                "environment variable '%.64s': the name must not be empty or contain '='",
                env->items[i].key);
    free_env(&g->env);
    g->env.items = xcalloc(env->n, sizeof(*g->env.items));
    for (; g->env.n < env->n; g->env.n++) {
        g->env.items[g->env.n].key = xstrdup(env->items[g->env.n].key);
        g->env.items[g->env.n].value = xstrdup(env->items[g->env.n].value);
    }
    return 0;
}
