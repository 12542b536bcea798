/* system.c - the plain HTTP endpoints about the sandbox itself: health, metrics, environment, init.
 */
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/guest.h"
#include "guest/services/doors.h"
#include "guest/user.h"

static int get_health(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    call_header(c, "Cache-Control", "no-store");
    return call_reply(c, 204, NULL, (struct str){ 0 });
}

/* ---- metrics ---- */

struct metrics {
    int cpus;
    double cpu_pct;
    uint64_t mem_total, mem_used, mem_cache, disk_total, disk_used;
};

static struct cpu_time {
    uint64_t busy, total;
} cpu_before; /* of the last call: the loop's; work gets a copy */

struct metrics_work {
    struct metrics m;
    struct cpu_time before, now;
    int root;
};

static bool starts_with(const char *line, const char *key, uint64_t *out)
{
    size_t n = strlen(key);

    if (strncmp(line, key, n))
        return false;
    *out = strtoull(line + n, NULL, 10);
    return true;
}

static void read_memory(struct metrics *m)
{
    uint64_t total = 0, available = 0, cached = 0, v;
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];

    if (!f)
        return;
    while (fgets(line, sizeof(line), f)) {
        if (starts_with(line, "MemTotal:", &v))
            total = v;
        else if (starts_with(line, "MemAvailable:", &v))
            available = v;
        else if (starts_with(line, "Cached:", &v))
            cached = v;
    }
    fclose(f);
    m->mem_total = total * 1024;
    m->mem_used = (total - MIN(available, total)) * 1024;
    m->mem_cache = cached * 1024;
}

static void read_cpu(struct cpu_time *t)
{
    FILE *f = fopen("/proc/stat", "re");
    uint64_t v[8] = { 0 };
    char line[256];
    size_t n = 0;

    if (!f)
        return;
    if (fgets(line, sizeof(line), f) && !strncmp(line, "cpu ", 4)) {
        struct str rest = str_of(line + 4), item;

        while (n < ARRAY_LEN(v) && str_next(&rest, ' ', &item))
            if (!str_u64(item, &v[n])) /* not the empty one between two blanks */
                t->total += v[n++];
        t->busy = t->total - v[3] - v[4]; /* all but idle and waiting for disks */
    }
    fclose(f);
}

static int measure(void *arg, struct err *err)
{
    struct metrics_work *w = arg;
    struct metrics *m = &w->m;
    struct statvfs fs;
    cpu_set_t cpus;

    (void)err;
    m->cpus = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
    read_memory(m);
    read_cpu(&w->now);
    if (w->now.total > w->before.total)
        m->cpu_pct = 100.0 * (double)(w->now.busy - w->before.busy) /
                     (double)(w->now.total - w->before.total);
    if (!fstatvfs(w->root, &fs)) {
        m->disk_total = fs.f_blocks * fs.f_frsize;
        m->disk_used = (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
    }
    return 0;
}

static int get_metrics(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct metrics_work w = { .before = cpu_before, .root = call_guest(c)->root };

    (void)body;
    if (guest_work(measure, &w, err))
        return -1;
    cpu_before = w.now;
    json_open(&json, '{');
    json_kv_int(&json, "ts", clock_wall_s());
    json_kv_int(&json, "cpu_count", w.m.cpus);
    json_key(&json, "cpu_used_pct");
    json_put_num(&json, w.m.cpu_pct);
    json_kv_int(&json, "mem_total", (int64_t)w.m.mem_total);
    json_kv_int(&json, "mem_used", (int64_t)w.m.mem_used);
    json_kv_int(&json, "mem_cache", (int64_t)w.m.mem_cache);
    json_kv_int(&json, "mem_total_mib", (int64_t)(w.m.mem_total >> 20));
    json_kv_int(&json, "mem_used_mib", (int64_t)(w.m.mem_used >> 20));
    json_kv_int(&json, "disk_used", (int64_t)w.m.disk_used);
    json_kv_int(&json, "disk_total", (int64_t)w.m.disk_total);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

/* ---- environment and init ---- */

static int get_envs(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    const struct map *env = &call_guest(c)->env;

    (void)body, (void)err;
    json_open(&json, '{');
    for (size_t i = 0; i < env->n; i++)
        json_kv_str(&json, env->items[i].key, env->items[i].value);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

struct init_request {
    struct map env;
    char *token, *user, *workdir;
};

static const struct field init_fields[] = {
    FIELD_AS(struct init_request, env, "envVars", F_MAP, .max = 65536,
             .help = "environment of every process; replaces what was there, absent leaves it"),
    FIELD_AS(struct init_request, token, "accessToken", F_STR, .max = 1024,
             .help = "from now on required in X-Access-Token"),
    FIELD_AS(struct init_request, user, "defaultUser", F_STR, .max = 64),
    FIELD_AS(struct init_request, workdir, "defaultWorkdir", F_STR, .max = 4096),
    {},
};

static void replace(char **owned, const char *with)
{
    if (!with || !*with)
        return;
    free(*owned);
    *owned = xstrdup(with);
}

/* Whoever knows the token in force may change it; httpd's hook has checked that. The protocol's
 * other fields (timestamp, volumeMounts, caBundle ...) are the control plane's and passed over. */
static int post_init(struct call *c, void *body, struct err *err)
{
    struct guest *g = call_guest(c);
    struct user *user = arena_alloc(&c->arena, sizeof(*user));
    struct init_request req = { 0 };

    (void)body;
    if (call_read_json(c, init_fields, FIELDS_PROTO, &req, err))
        return -1;
    if (req.user && *req.user && user_find(g, &c->arena, req.user, user, err)) {
        err->code = ERR_INVALID; /* it is not the caller who is unknown */
        return err_in(err, "field 'defaultUser'");
    }
    if (req.env.items && guest_set_env(g, &req.env, err)) /* absent: as it was */
        return -1;
    replace(&g->token, req.token);
    replace(&g->default_user, req.user);
    replace(&g->default_workdir, req.workdir);
    if (req.env.items)
        doors_configure(); /* which services it wants, and on which ports */
    call_header(c, "Cache-Control", "no-store");
    return call_reply(c, 204, NULL, (struct str){ 0 });
}

const struct route system_routes[] = {
    { "GET", "/health", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_health, "Health",
      "204 when the guest works", 0 },
    { "GET", "/metrics", ROUTE_RAW, 0, NULL, 0, get_metrics, "Metrics",
      "Processor, memory and disk in use", 0 },
    { "GET", "/envs", ROUTE_RAW, 0, NULL, 0, get_envs, "Envs", "The global environment", 0 },
    { "POST", "/init", ROUTE_RAW, 0, init_fields, 0, post_init, "Init",
      "Environment, access token and defaults, set by the control plane", 0 },
    {},
};
