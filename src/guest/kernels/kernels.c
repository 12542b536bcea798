/* kernels.c - see kernels.h: the table, parking, culling. */
#include "guest/kernels/kernels.h"

#include <malloc.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/interpreter.h"
#include "guest/kernels/jupyter.h"
#include "guest/kernels/kernel.h"
#include "guest/kernels/orphans.h"
#include "guest/kernels/place.h"
#include "guest/kernels/warm.h"

enum { CLOSE_MS = 2500, PARK_AFTER_MS = 300, REST_LOOK_MS = 50, OVERSLEPT_MS = 5000 };

struct kernels_limits kernels_limits = {
    .count = 256,
    .message_bytes = 256 << 20,
    .queue_bytes = 8 << 20,
    .replay_bytes = 4 << 20,
    .replay_count = 10000,
    .starts = 8,
    .start_ms = 60000,
    .fork_ms = 30000,
    .stop_ms = 2500,
    .restarts = 5,
    .stable_ms = 10000,
    .park = 1,
    .rest_ms = 60000,
    .cull_idle_s = 0,
    .cull_interval_s = 300,
};

const struct setting kernels_settings[] = {
    { "kernel.count", &kernels_limits.count, 1, 65536, "kernels that may run at once" },
    { "kernel.message-bytes", &kernels_limits.message_bytes, 1 << 16, INT64_C(4) << 30,
      "bytes of one message of a kernel" },
    { "kernel.queue-bytes", &kernels_limits.queue_bytes, 1 << 16, 1 << 30,
      "bytes waiting for a slow client before its kernel is held back" },
    { "kernel.replay-bytes", &kernels_limits.replay_bytes, 0, 1 << 30,
      "bytes kept for a client that went away and may come back" },
    { "kernel.replay-count", &kernels_limits.replay_count, 0, 1 << 24,
      "messages kept for a client that went away and may come back" },
    { "kernel.starts", &kernels_limits.starts, 1, 65536,
      "kernels that are started at once; more wait for their turn" },
    { "kernel.start-ms", &kernels_limits.start_ms, 100, INT32_MAX,
      "time a new kernel has to answer" },
    { "kernel.fork-ms", &kernels_limits.fork_ms, 1, INT32_MAX,
      "time that the warmed parent has to fork one, and at most half of kernel.start-ms" },
    { "kernel.stop-ms", &kernels_limits.stop_ms, 0, 60000,
      "time a kernel has to end when asked to, before it is made to" },
    { "kernel.restarts", &kernels_limits.restarts, 0, 1000,
      "times a kernel that dies is started again before it is given up" },
    { "kernel.stable-ms", &kernels_limits.stable_ms, 0, INT32_MAX,
      "time after which a kernel's earlier deaths are forgotten" },
    { "kernel.park", &kernels_limits.park, 0, 1, "1: a ready kernel waits for the next client" },
    { "kernel.rest-ms", &kernels_limits.rest_ms, 100, INT32_MAX,
      "time without kernels and clients after which what was started in advance is ended" },
    { "kernel.cull-idle-s", &kernels_limits.cull_idle_s, 0, INT32_MAX,
      "seconds without use after which a kernel is ended; 0: never" },
    { "kernel.cull-interval-s", &kernels_limits.cull_interval_s, 1, INT32_MAX,
      "seconds between two looks for such kernels" },
    { "kernel.cull-connected", &kernels_limits.cull_connected, 0, 1,
      "1: also kernels that a client is connected to" },
    { "kernel.cull-busy", &kernels_limits.cull_busy, 0, 1, "1: also kernels that are busy" },
    { 0 },
};

struct kernels kernels = { .log = -1,
                           .all = LIST_INIT(kernels.all),
                           .starting = LIST_INIT(kernels.starting),
                           .turn = { LIST_INIT(kernels.turn.waiters) } };

void kernels_touch(void) { kernels.used_at = clock_wall_s(); }

struct kernel *kernels_find(struct str id)
{
    struct kernel *k;

    list_each(k, &kernels.all, all)
        if (str_is(id, k->id))
            return k;
    return NULL;
}

/* ---- in advance ---- */

static struct kernelspec *default_spec(void)
{
    struct kernelspecs specs;
    struct kernelspec *spec;

    kernelspecs_load(&specs);
    spec = kernelspecs_find(&specs, NULL);
    spec = spec && spec->python ? kernelspec_get(spec) : NULL;
    kernelspecs_free(&specs);
    return spec;
}

/* Its first cell costs a kernel several times what the next ones do; this one is for nobody to see.
 */
static int run_first_cell(struct engine *e, struct err *err)
{
    return engine_ask(e, CHANNEL_SHELL, "execute_request",
                      STR("{\"code\":\"pass\",\"silent\":false,\"store_history\":false,"
                          "\"user_expressions\":{},\"allow_stdin\":false}"),
                      co_in(kernels_limits.start_ms), NULL, err);
}

/* One ready kernel, forked only when the parent is warm: before, its fork would be a slow start
 * that competes with the client who waits for his. */
static void park(void *arg)
{
    struct kernelspec *spec = default_spec();
    struct err err = { 0 };
    struct engine *e = NULL;

    (void)arg;
    if (kernels.count) /* somebody has just got one: his first cell shall have the processor */
        co_sleep(co_in(PARK_AFTER_MS));
    if (spec) {
        warm_prepare(spec->python, kernels.dir, kernels.log);
        warm_wait(spec->python, co_in(kernels_limits.start_ms));
    }
    if (spec && kernels_limits.park && warm_is_ready(spec->python) && !kernels.ending)
        e = engine_start(
            &(struct engine_spec){ .spec = spec, .cwd = kernels.home, .env = &(struct map){ 0 } },
            &err);
    if (e && !engine_wait(e, co_in(kernels_limits.start_ms), &err) && !run_first_cell(e, &err) &&
        !kernels.ending && !kernels.parked) {
        log_info("kernel parked", KVI("pid", e->pid));
        kernels.parked = TAKE(e, NULL);
    }
    if (e) {
        engine_kill(e);
        engine_put(e);
    }
    if (err.code)
        log_warn("no kernel could be parked", KV("error", err.msg));
    kernelspec_put(spec);
    kernels.parking = false;
}

void kernels_prepare(void)
{
    if (kernels.parking || kernels.parked || kernels.ending)
        return;
    kernels.parking = true;
    if (co_go(park, NULL, NULL))
        kernels.parking = false;
}

struct engine *kernels_take_parked(const struct kernelspec *spec)
{
    struct engine *e = kernels.parked;

    if (!e || e->dead || !spec->python || strcmp(spec->python, e->spec->python) != 0 || spec->env.n)
        return NULL;
    return TAKE(kernels.parked, NULL);
}

/* ---- rest ---- */

/* The parked kernel and the warmed parents are some tens of megabytes: a service that nobody asks
 * for kernels does without them. */
static bool unused(void)
{
    return !kernels.count && !kernels.parking && !jupyter_server.conns &&
           !interpreter_server.conns && co_now() - kernels.asked_at >= kernels_limits.rest_ms;
}

static void rest(void *arg)
{
    (void)arg;
    while (!co_sleep(co_in(MAX(kernels_limits.rest_ms / 4, (int64_t)REST_LOOK_MS)))) {
        struct engine *parked;

        if (kernels.keep || kernels.resting || !unused())
            continue;
        log_info("at rest");
        kernels.resting = true;
        parked = TAKE(kernels.parked, NULL);
        if (parked) {
            engine_kill(parked);
            engine_put(parked);
        }
        warm_stop();
        malloc_trim(0);
    }
}

void kernels_asked(void)
{
    environment_refresh();
    kernels.asked_at = co_now();
    if (kernels.resting) {
        kernels.resting = false;
        kernels_prepare();
    }
}

/* ---- culling ---- */

bool kernels_idle_too_long(const struct kernel *k)
{
    int64_t idle_s = k->spec->cull_idle_s >= 0 ? k->spec->cull_idle_s : kernels_limits.cull_idle_s;

    if (!idle_s || k->hidden)
        return false;
    if (k->state == KERNEL_DEAD)
        return true;
    if (co_now() - k->active_at < idle_s * 1000) /* not by the wall clock, which may be set */
        return false;
    return (!k->connections || kernels_limits.cull_connected) &&
           (k->state != KERNEL_BUSY || kernels_limits.cull_busy);
}

static struct kernel *next_to_cull(void)
{
    struct kernel *k;

    list_each(k, &kernels.all, all)
        if (kernels_idle_too_long(k))
            return k;
    return NULL;
}

/* We have overslept: the sandbox was paused, and nobody could have used them. */
void kernels_forgive(int64_t ms)
{
    struct kernel *k;

    list_each(k, &kernels.all, all)
        k->active_at = MIN(k->active_at + ms, co_now());
}

static void cull(void *arg)
{
    int64_t due = co_in(kernels_limits.cull_interval_s * 1000);
    struct kernel *k;

    (void)arg;
    while (!co_sleep(due)) {
        if (co_now() - due > OVERSLEPT_MS)
            kernels_forgive(co_now() - due);
        while ((k = next_to_cull())) {
            log_info("culled", KV("kernel", k->id));
            kernel_remove(k);
        }
        due = co_in(kernels_limits.cull_interval_s * 1000);
    }
}

/* ---- the beginning and the end ---- */

int kernels_open(const char *home, int log, struct err *err)
{
    if (orphans_open(err) || place_open(err))
        return -1;
    kernels.home = xstrdup(home);
    kernels.log = log;
    kernels_touch();
    kernels.asked_at = co_now();
    if (co_go(cull, NULL, &kernels.culler) || co_go(rest, NULL, &kernels.rester))
        return err_set(err, ERR_INTERNAL, "no memory for a coroutine");
    return 0;
}

static void remove_one(void *arg)
{
    struct kernel *k = arg;

    kernel_remove(k);
    kernel_put(k);
}

void kernels_close(void)
{
    int64_t until = co_in(CLOSE_MS);
    struct engine *parked = TAKE(kernels.parked, NULL);
    struct kernel *k;

    kernels.ending = true;
    co_cond_wake(&kernels.turn);
    co_cancel(kernels.culler);
    co_cancel(kernels.rester);
    if (parked) {
        engine_kill(parked);
        engine_put(parked);
    }
    list_each(k, &kernels.all, all)
        if (co_go(remove_one, kernel_get(k), NULL))
            kernel_put(k);
    while (kernels.count && co_now() < until && !co_sleep(co_in(10)))
        ;
    warm_stop();
    while (kernels.engines && co_now() < until && !co_sleep(co_in(10)))
        ;
    place_close();
}
