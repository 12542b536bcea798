/* kernel_life.c - how a kernel begins, begins again, and ends. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/interpreter_language.h"
#include "guest/kernels/kernel.h"
#include "guest/kernels/scan.h"

enum { ADAPT_MS = 10000, START_TRIES = 3, START_AGAIN_MS = 200, START_SLACK_MS = 5000 };

/* ---- what a client asked for ---- */

void kernel_new_id(char out[static 37])
{
    static const int groups[] = { 8, 4, 4, 4, 12 };
    char hex[33];
    size_t at = 0, from = 0;

    id_hex(hex, 32);
    hex[12] = '4'; /* version 4, variant 10 */
    hex[16] = "89ab"[hex[16] & 3];
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        memcpy(out + at, hex + from, (size_t)groups[i]);
        at += (size_t)groups[i];
        from += (size_t)groups[i];
        out[at++] = '-';
    }
    out[36] = 0;
}

static int take_id(struct kernel *k, const char *wanted, struct err *err)
{
    if (!wanted || !*wanted) {
        kernel_new_id(k->id);
        return 0;
    }
    if (strlen(wanted) != 36 || strspn(wanted, "0123456789abcdef-") != 36)
        return err_set(err, ERR_INVALID, "field 'kernel_id' must be a UUID in small letters");
    if (kernels_find(str_of(wanted)))
        return err_set(err, ERR_CONFLICT, "kernel %s exists already", wanted);
    snprintf(k->id, sizeof(k->id), "%s", wanted);
    return 0;
}

/* A directory of that name; a path that is none means the one above it, as for a notebook. */
static char *find_cwd(const char *path, const struct map *env)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *wanted = map_get(env, "KERNEL_WORKING_DIR");
    struct stat st;
    char *slash;

    if (wanted && *wanted == '/')
        path = wanted;
    if (!path || !*path)
        return xstrdup(kernels.home);
    if (*path != '/')
        buf_printf(&b, "%s/", kernels.home);
    buf_puts(&b, path);
    while (stat(buf_cstr(&b), &st) || !S_ISDIR(st.st_mode)) {
        slash = strrchr(b.data, '/');
        if (!slash || slash == b.data)
            return xstrdup(kernels.home);
        *slash = 0;
        b.len = (size_t)(slash - b.data);
    }
    return xstrdup(buf_cstr(&b));
}

static int copy_env(struct kernel *k, const struct map *env, struct err *err)
{
    k->env.items = xcalloc(env->n + 1, sizeof(*k->env.items));
    for (size_t i = 0; i < env->n; i++) {
        const struct map_item *it = &env->items[i];

        if (!it->key[0] || strchr(it->key, '='))
            return err_set(err, ERR_INVALID, "field 'env': '%.64s' cannot be a variable's name",
                           it->key);
        k->env.items[i] = (struct map_item){ xstrdup(it->key), xstrdup(it->value) };
        k->env.n++;
    }
    return 0;
}

/* ---- engines ---- */

/* A parked kernel began without knowing for whom, perhaps before the sandbox was anybody's: it is
 * told now, by a silent request. */
static int adapt(struct kernel *k, struct engine *e, struct err *err)
{
    AUTO(buf_free) struct buf code = { 0 }, content = { 0 };
    AUTO(arena_free) struct arena a = { 0 };
    struct map set, gone;
    bool differs = environment_differs(e->environment, &a, &set, &gone);

    if (!differs && !k->env.n && !strcmp(k->cwd, kernels.home))
        return 0;
    buf_puts(&code, "__import__('os').chdir(");
    scan_quote(&code, k->cwd);
    buf_puts(&code, ")\n");
    language_write_python(&code, &set, &gone);
    language_write_python(&code, &k->env, &(struct map){ 0 });
    environment_put(e->environment);
    e->environment = environment_now();
    json_open(&content, '{');
    json_key(&content, "code");
    json_put_str(&content, buf_str(&code));
    json_kv_bool(&content, "silent", true);
    json_kv_bool(&content, "store_history", false);
    json_kv_bool(&content, "allow_stdin", false);
    json_close(&content, '}');
    return engine_ask(e, CHANNEL_SHELL, "execute_request", buf_str(&content), co_in(ADAPT_MS), NULL,
                      err);
}

/* Processes, memory or descriptors are short: in a moment they may be there. */
static bool may_pass(const struct err *err)
{
    return err->code == ERR_LIMIT || err->code == ERR_INTERNAL;
}

/* A process that has begun, if need be after a second and a third try. */
static struct engine *start_engine(struct kernel *k, struct err *err)
{
    struct engine_spec s = { k->spec, k->cwd, &k->env, k->unforked };

    for (int i = 1;; i++) {
        struct engine *e = engine_start(&s, err);

        if (e || i == START_TRIES || !may_pass(err) || k->removed || kernels.ending)
            return e;
        log_warn("kernel not started, once more", KV("kernel", k->id), KV("error", err->msg));
        if (co_sleep(co_in((int64_t)START_AGAIN_MS << i)))
            return NULL;
        *err = (struct err){ 0 };
    }
}

static struct engine *new_engine(struct kernel *k, struct err *err)
{
    struct engine *e = k->failures ? NULL : kernels_take_parked(k->spec);
    struct err why = { 0 };

    if (e && !adapt(k, e, &why))
        return e;
    if (e) {
        log_warn("parked kernel not usable", KV("error", why.msg));
        engine_kill(e);
        engine_put(e);
    }
    return start_engine(k, err);
}

static void tell_changed(struct kernel *k)
{
    struct listener *l;

    list_each(l, &k->listeners, node)
        l->changed(l);
    co_cond_wake(&k->changed);
}

static void set_engine(struct kernel *k, struct engine *e)
{
    struct engine *before = k->engine;

    if (before)
        before->owner = NULL;
    k->engine = e;
    if (e)
        e->owner = k;
    tell_changed(k);
    engine_put(before);
}

struct engine *kernel_engine(struct kernel *k, int64_t until, struct err *err)
{
    for (;;) {
        struct engine *e = k->engine;

        if (k->removed || k->state == KERNEL_DEAD) {
            err_set(err, ERR_UNAVAILABLE, "kernel %s is dead%s%s", k->id, k->reason ? ": " : "",
                    k->reason ? k->reason : "");
            return NULL;
        }
        if (e && e->ready && !e->dead)
            return engine_get(e);
        /* dead: its successor has not begun yet, and engine_wait() has nothing to wait for */
        if (!e || e->dead || k->restarting) {
            if (co_cond_wait(&k->changed, until)) {
                err_set(err, ERR_TIMEOUT, "kernel %s is not ready yet", k->id);
                return NULL;
            }
            continue;
        }
        engine_get(e);
        if (engine_wait(e, until, err) && (!e->dead || k->engine == e) && !k->restarting) {
            engine_put(e);
            return NULL;
        }
        engine_put(e);
    }
}

/* ---- creation ---- */

/* The first answer of a new kernel makes it idle, and its failure makes it dead, with a reason. */
static void await_first(void *arg)
{
    struct kernel *k = arg;
    struct engine *e = engine_get(k->engine);
    struct err err = { 0 };

    if (engine_wait(e, co_in(kernels_limits.start_ms), &err) == 0 && k->state == KERNEL_STARTING)
        kernel_set_state(k, KERNEL_IDLE);
    engine_put(e);
    kernel_put(k);
}

static struct kernel *make(struct kernelspec *spec)
{
    struct kernel *k = xcalloc(1, sizeof(*k));

    k->refs = 1;
    k->spec = kernelspec_get(spec);
    list_init(&k->all);
    list_init(&k->listeners);
    list_init(&k->kept);
    co_cond_init(&k->drained);
    co_cond_init(&k->changed);
    return k;
}

static int begin(struct kernel *k, const struct kernel_spec *s, struct err *err)
{
    struct engine *e;

    if (take_id(k, s->id, err) || copy_env(k, s->env, err))
        return -1;
    k->cwd = find_cwd(s->path, &k->env);
    kernel_set_state(k, KERNEL_STARTING);
    kernels.count++; /* before we park: the bound holds for many at once */
    e = new_engine(k, err);
    if (!e) {
        kernels.count--;
        return -1;
    }
    if (kernels_find(str_of(k->id))) { /* the same id was asked for twice, and we have parked */
        kernels.count--;
        engine_kill(e);
        engine_put(e);
        return err_set(err, ERR_CONFLICT, "kernel %s exists already", k->id);
    }
    set_engine(k, e);
    if (e->ready)
        kernel_set_state(k, KERNEL_IDLE);
    list_push(&kernels.all, &k->all);
    if (!e->ready && co_go(await_first, kernel_get(k), NULL))
        abort();
    return 0;
}

struct kernel *kernel_create(const struct kernel_spec *s, struct err *err)
{
    struct kernelspecs specs;
    struct kernelspec *spec;
    struct kernel *k = NULL;

    kernelspecs_load(&specs);
    spec = kernelspecs_find(&specs, s->name);
    if (!spec) {
        err_set(err, ERR_NOT_FOUND, "there is no kernel spec named '%.100s'", s->name);
    } else if ((int64_t)kernels.count >= kernels_limits.count) {
        err_set(err, ERR_DENIED, "Resource Limit: kernel.count=%lld kernels run already",
                (long long)kernels_limits.count);
    } else {
        k = make(spec);
        if (begin(k, s, err)) {
            kernel_put(k);
            k = NULL;
        }
    }
    kernelspecs_free(&specs);
    kernels_prepare();
    return k;
}

/* ---- again ---- */

static void fail_for_good(struct kernel *k, const char *why)
{
    free(k->reason);
    k->reason = xstrdup(why);
    log_warn("kernel is dead", KV("kernel", k->id), KV("reason", why));
    kernel_set_state(k, KERNEL_DEAD);
    kernel_say(k, "dead");
    tell_changed(k);
}

/* A start came to nothing: is another one worth it? One that hangs costs more than one that ends.
 */
static bool try_again(struct kernel *k, const struct engine *e)
{
    k->failures += e->late ? 2 : 1;
    k->unforked = e->forked;
    return !e->hopeless && k->failures < START_TRIES && !k->removed && !kernels.ending;
}

static void began(struct kernel *k)
{
    k->failures = 0;
    k->unforked = false;
}

/* Its next engine: 0 when that answers, 1 when it does not and another may. */
static int start_next(struct kernel *k, struct err *err)
{
    struct engine *e = k->removed ? NULL : new_engine(k, err);
    int r;

    if (!e)
        return k->removed ? err_set(err, ERR_NOT_FOUND, "the kernel was removed") : -1;
    if (k->removed) { /* while the new one began: nobody else knows of it to end it */
        engine_kill(e);
        engine_put(e);
        return err_set(err, ERR_NOT_FOUND, "the kernel was removed");
    }
    set_engine(k, e);
    engine_get(e);
    r = engine_wait(e, co_in(kernels_limits.start_ms + START_SLACK_MS), err);
    if (!r)
        began(k);
    else if (try_again(k, e))
        r = 1;
    engine_put(e);
    return r;
}

static int replace(struct kernel *k, enum kernel_state how, struct err *err)
{
    struct engine *old = k->engine ? engine_get(k->engine) : NULL;
    int r;

    kernel_set_state(k, how);
    if (how == KERNEL_AUTORESTARTING) /* who asked for a restart knows; as a surprise it would make
                                         JupyterLab's client drop what it has begun since */
        kernel_say(k, "restarting");
    if (old) {
        if (!old->dead)
            engine_stop(old, true);
        set_engine(k, NULL);
        engine_put(old);
    }
    while ((r = start_next(k, err)) > 0) {
        log_warn("kernel not started, once more", KV("kernel", k->id), KV("error", err->msg));
        if (co_sleep(co_in((int64_t)START_AGAIN_MS << k->failures)))
            return -1;
        *err = (struct err){ 0 };
    }
    return r;
}

static int restart(struct kernel *k, enum kernel_state how, struct err *err)
{
    int r;

    k->restarting = true;
    r = replace(k, how, err);
    k->restarting = false;
    if (r && !k->removed)
        fail_for_good(k, err->msg);
    else if (!r && !k->removed)
        kernel_set_state(k, KERNEL_IDLE);
    if (!r && k->engine && k->engine->dead) /* answered, and ended before we came to hear it */
        kernel_engine_died(k, k->engine);
    kernels_prepare();
    return r;
}

int kernel_restart(struct kernel *k, struct err *err)
{
    while (k->restarting)
        if (co_cond_wait(&k->changed, co_in(kernels_limits.start_ms)))
            return err_set(err, ERR_CONFLICT, "kernel %s is being restarted already", k->id);
    free(TAKE(k->reason, NULL));
    k->restarts = 0;
    began(k);
    return restart(k, KERNEL_RESTARTING, err);
}

static void autorestart(void *arg)
{
    struct kernel *k = arg;
    struct err err = { 0 };

    if (!k->removed)
        restart(k, k->state == KERNEL_STARTING ? KERNEL_STARTING : KERNEL_AUTORESTARTING, &err);
    kernel_put(k);
}

/* One that dies as soon as it begins is given up: the fifth time, as Jupyter does; and one that
 * does not even begin, after fewer. */
static bool lives_on(struct kernel *k, const struct engine *e)
{
    if (!e->ready)
        return try_again(k, e);
    began(k);
    return k->restarts++ < kernels_limits.restarts && !kernels.ending;
}

void kernel_engine_died(struct kernel *k, struct engine *e)
{
    char why[256];

    if (k->removed || k->restarting || k->engine != e)
        return;
    if (co_now() - k->restarted_at > kernels_limits.stable_ms)
        k->restarts = 0;
    k->restarted_at = co_now();
    if (!lives_on(k, e)) {
        snprintf(why, sizeof(why), "%s",
                 e->ready ? "it ended too often, too soon after its start"
                          : (e->why[0] ? e->why : "it ended while it started"));
        fail_for_good(k, why);
        return;
    }
    k->restarting = true; /* from now on: who waits for it waits for the next one */
    if (co_go(autorestart, kernel_get(k), NULL))
        abort();
}

/* ---- the end ---- */

void kernel_remove(struct kernel *k)
{
    struct engine *e;

    if (k->removed)
        return;
    k->removed = true;
    list_remove(&k->all);
    kernels.count--;
    kernel_get(k);
    e = k->engine ? engine_get(k->engine) : NULL;
    if (e) {
        e->owner = NULL;
        if (!e->dead)
            engine_stop(e, false);
        engine_put(e);
    }
    kernel_set_state(k, KERNEL_DEAD);
    kernel_say(k, "dead");
    set_engine(k, NULL); /* others may hold the kernel yet, but its files go now */
    kernel_put(k);
    kernel_put(k); /* the table's */
}
