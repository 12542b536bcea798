/* control.c - opening and closing the control part, its settings, and the few helpers that every
 * other file here uses: tasks that closing waits for, and the store on a worker thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "control/impl.h"

enum {
    CLOSE_MS = 10000,
    TEND_MS = 10000,
    PRUNE_MS = 3600 * 1000,
    ENDING_AT_ONCE = 16,
    SECRET = 64
};

struct control_limits control_limits = {
    .sandboxes = 2000,
    .user_sandboxes = 1000,
    .map_bytes = 16 << 10,
    .init_ms = 10000,
    .hung_ms = 60000,
    .sample_s = 10,
    .ended_days = 7,
    .forward_conns = 256,
    .paused_retention_s = 0,
    .orphan_retention_s = 7 * 86400,
    .pause_give_up_s = 600,
    .door_ticket_s = 60,
    .door_cookie_s = 12 * 3600,
    .pool_size = 4,
    .pool_memory = 64 << 20,
    .pool_age_s = 3600,
    .pool_idle_s = 600,
};

const struct setting control_settings[] = {
    { "control.sandboxes-max", &control_limits.sandboxes, 0, 1000000,
      "sandboxes at once, of all users together" },
    { "control.user-sandboxes-max", &control_limits.user_sandboxes, 0, 1000000,
      "sandboxes at once of one user" },
    { "control.map-bytes", &control_limits.map_bytes, 0, 1 << 20,
      "bytes of a sandbox's metadata, and of its environment" },
    { "control.init-ms", &control_limits.init_ms, 100, 600000,
      "time a new sandbox's guest may take to answer" },
    { "control.hung-ms", &control_limits.hung_ms, 0, 86400000,
      "silence of a guest that is asked for a sign of life, after which its sandbox has failed "
      "(0: never)" },
    { "control.sample-s", &control_limits.sample_s, 1, 3600, "seconds between two measurements" },
    { "control.ended-days", &control_limits.ended_days, 0, 36500,
      "days until an ended sandbox and its events are forgotten" },
    { "control.forward-conns", &control_limits.forward_conns, 1, 65536,
      "connections at once through one forwarded port" },
    { "control.paused-retention-s", &control_limits.paused_retention_s, 0, INT32_MAX,
      "seconds after which a paused sandbox is ended; 0: never" },
    { "control.orphan-retention-s", &control_limits.orphan_retention_s, 0, INT32_MAX,
      "seconds for which a machine that the database does not know is kept (cove orphans); 0: for "
      "ever" },
    { "control.pause-give-up-s", &control_limits.pause_give_up_s, 0, 86400,
      "seconds for which pausing a sandbox at its time-out may fail before it is ended" },
    { "control.door-ticket-s", &control_limits.door_ticket_s, 1, 3600,
      "seconds for which a URL with a cove_token lets a browser in, once" },
    { "control.door-cookie-s", &control_limits.door_cookie_s, 60, 30 * 86400,
      "seconds for which the browser is let in then" },
    { "pool.size", &control_limits.pool_size, 0, 10000,
      "sandboxes kept ready, for each template and network that is asked for" },
    { "pool.memory-bytes", &control_limits.pool_memory, 0, INT64_MAX,
      "memory that sandboxes kept ready may use together" },
    { "pool.age-s", &control_limits.pool_age_s, 10, 30 * 86400,
      "seconds after which one kept ready is replaced" },
    { "pool.idle-s", &control_limits.pool_idle_s, 1, 30 * 86400,
      "seconds without a request after which a template is not kept ready any more" },
    { 0 },
};

int64_t control_wall_ms(void) { return clock_wall_ms(); }

/* A provider that was cut off may have made the machine all the same. */
bool control_unclear(const struct err *err)
{
    return err->code == ERR_GONE || err->code == ERR_TIMEOUT || err->code == ERR_UNAVAILABLE ||
           err->code == ERR_UPSTREAM || err->code == ERR_INTERNAL;
}

int control_cancelled(struct err *err) { return err_set(err, ERR_GONE, "cancelled"); }

/* ---- tasks ---- */

struct task {
    struct list in;
    struct control *control;
    co_fn *fn;
    void *arg;
    struct co_ref co;
};

static void run_task(void *arg)
{
    struct task *t = arg;
    struct control *c = t->control;

    t->fn(t->arg);
    list_remove(&t->in);
    free(t);
    co_cond_wake(&c->task_ended);
}

static struct task *start_task(struct control *c, co_fn *fn, void *arg)
{
    struct task *t = xmalloc(sizeof(*t));

    *t = (struct task){ .control = c, .fn = fn, .arg = arg };
    list_push(&c->tasks, &t->in);
    if (!co_go(run_task, t, &t->co))
        return t;
    list_remove(&t->in);
    free(t);
    return NULL;
}

int control_go(struct control *c, co_fn *fn, void *arg) { return start_task(c, fn, arg) ? 0 : -1; }

/* A task that runs until closing cancels it. */
static int serve(struct control *c, co_fn *fn, struct err *err)
{
    struct task *t = start_task(c, fn, c);

    if (!t)
        return err_set(err, ERR_UNAVAILABLE, "no memory for the control part's coroutines");
    c->services[c->nservices++] = t->co;
    return 0;
}

static void wait_for_tasks(struct control *c, int64_t until)
{
    struct task *t;

    while (!list_empty(&c->tasks) && !co_cond_wait(&c->task_ended, until))
        ;
    list_each(t, &c->tasks, in)
        co_cancel(t->co);
    while (!list_empty(&c->tasks)) /* they use what we are about to free */
        if (co_cond_wait(&c->task_ended, NEVER))
            co_pass();
}

/* ---- the store ---- */

struct store_call {
    struct store *store;
    control_store_fn *fn;
    void *arg;
    struct err err;
    int result;
};

static void call_store(void *arg)
{
    struct store_call *w = arg;

    w->result = w->fn(w->store, w->arg, &w->err);
}

int control_store(struct control *c, control_store_fn *fn, void *arg, struct err *err)
{
    struct store_call w = { .store = c->store, .fn = fn, .arg = arg };

    co_call(call_store, &w);
    if (w.result < 0) {
        *err = w.err;
        err->host = true; /* the database's path, say */
    }
    return w.result;
}

struct secret {
    const char *name;
    char *text;
};

static int learn_secret(struct store *s, void *arg, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct secret *secret = arg;
    char fresh[SECRET + 1];
    int r;

    id_random(fresh, SECRET);
    r = s->ops->value_once(s, secret->name, str_of(fresh), &b, err);
    explicit_bzero(fresh, sizeof(fresh));
    if (r)
        return -1;
    secret->text = xstrdup(buf_cstr(&b));
    explicit_bzero(b.data, b.len);
    return 0;
}

int control_secret(struct control *c, const char *name, char **out, struct err *err)
{
    struct secret secret = { .name = name };

    if (control_store(c, learn_secret, &secret, err))
        return -1;
    *out = secret.text;
    return 0;
}

struct saving {
    const struct sandbox *row;
    enum sandbox_state expect;
    const struct event *event;
};

static int save(struct store *s, void *arg, struct err *err)
{
    const struct saving *w = arg;

    return s->ops->sandbox_save(s, w->row, w->expect, w->event, err);
}

int control_write(struct control *c, const struct sandbox *row, enum sandbox_state expect,
                  const struct event *e, struct err *err)
{
    struct saving w = { row, expect, e };

    return control_store(c, save, &w, err);
}

int control_save(struct live *l, const struct sandbox *next, const struct event *e, struct err *err)
{
    if (next->state != l->s.state &&
        !sandbox_may((enum sandbox_state)l->s.state, (enum sandbox_state)next->state))
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s: it cannot become %s", l->s.id,
                       sandbox_state_names[l->s.state], sandbox_state_names[next->state]);
    if (control_write(l->control, next, (enum sandbox_state)l->s.state, e, err))
        return -1;
    l->s = *next;
    if (e)
        control_news(l);
    return 0;
}

/* ---- what happens now and then ---- */

static int prune(struct store *s, void *arg, struct err *err)
{
    const int64_t *before = arg;
    int64_t n = s->ops->sandbox_prune(s, *before, err);

    return n < 0 ? -1 : (int)MIN(n, (int64_t)INT32_MAX);
}

static void tend(void *arg)
{
    struct control *c = arg;
    int64_t pruned_at = 0;

    while (!co_sleep(co_in(TEND_MS))) {
        int64_t before = control_wall_ms() - control_limits.ended_days * 86400000;
        struct err err = { 0 };

        pool_tend(c);
        if (pruned_at && co_now() - pruned_at < PRUNE_MS)
            continue;
        pruned_at = co_now();
        if (control_store(c, prune, &before, &err) < 0)
            log_warn("ended sandboxes are not forgotten", KV("error", err.msg));
        retry_tend(c);
    }
}

/* ---- opening ---- */

static int learn(struct store *s, const char *name, char **out, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    char fresh[17];

    id_random(fresh, sizeof(fresh) - 1);
    if (s->ops->value_once(s, name, str_of(fresh), &b, err))
        return -1;
    *out = xstrdup(buf_cstr(&b));
    return 0;
}

/* The data directory is the node: its id is made once and kept in the store. The store has one of
 * its own, which marks machines, and which a backup that is put back has anew: within one store
 * whoever was told of a sandbox has a record of it. */
static int learn_node(struct store *s, void *arg, struct err *err)
{
    AUTO(buf_free) struct buf former = { 0 };
    struct control *c = arg;

    if (learn(s, "node", &c->node, err) || learn(s, STORE_MARK, &c->mark, err))
        return -1;
    if (s->ops->value_get(s, STORE_FORMER, &former, err) && err->code != ERR_NOT_FOUND)
        return -1;
    *err = (struct err){ 0 };
    c->former = str_is(buf_str(&former), c->mark);
    return 0;
}

static char **copy_list(const char *const *list)
{
    size_t n = 0;
    char **copy;

    if (!list)
        return NULL;
    while (list[n])
        n++;
    copy = xcalloc(n + 1, sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(list[i]);
    return copy;
}

static struct control *new_control(const struct control_options *o)
{
    struct control *c = xcalloc(1, sizeof(*c));

    c->store = o->store;
    c->provider = o->provider;
    c->domain = xstrdup(o->domain);
    c->create_fault = o->create_fault;
    c->templates.news = o->template_news;
    c->allow_mounts = copy_list(o->allow_mounts);
    c->forward_min = o->forward_min;
    c->forward_max = o->forward_max;
    c->ephemeral = o->ephemeral;
    c->no_network = o->no_network;
    c->one_user = o->one_user;
    client_init(&c->client);
    table_init(c);
    list_init(&c->tasks);
    list_init(&c->sampling);
    co_cond_init(&c->task_ended);
    co_cond_init(&c->heap_changed);
    co_cond_init(&c->retry_added);
    co_cond_init(&c->sampling_begun);
    co_cond_init(&c->leftover_added);
    list_init(&c->orphans);
    pool_init(c);
    return c;
}

int control_open(const struct control_options *o, struct control **out, struct err *err)
{
    static co_fn *const services[] = { life_serve,  leftover_serve, samples_serve, pool_serve,
                                       retry_serve, orphans_serve,  tend,          mark_renew };
    struct control *c = new_control(o);

    static_assert(ARRAY_LEN(services) <= SERVICES, "room to remember them");
    *out = c;
    if (control_store(c, learn_node, c, err) || sessions_init(c, o->token_secret, err) ||
        door_open(c, err) || retry_open(c, o->boot, err) || control_adopt(c, err))
        goto failed;
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        if (serve(c, services[i], err))
            goto failed;
    return 0;
failed:
    c->ephemeral = false; /* what we could not take over is not ours to end */
    control_close(c);
    *out = NULL;
    return -1;
}

/* ---- closing ---- */

struct ending {
    struct control *control;
    struct live **all;
    size_t n, next, running;
    struct co_cond ended;
};

static void end_some(void *arg)
{
    struct ending *e = arg;

    while (e->next < e->n) {
        struct live *l = e->all[e->next++];
        struct err err = { 0 };

        if (!live_lock(l, &err)) {
            if (l->s.state != SANDBOX_ENDED &&
                life_end(l, "system", "request: the server ended (--ephemeral)", true, &err))
                log_error("not ended", KV("sandbox", l->s.id), KV("error", err.msg));
            live_unlock(l);
        }
        live_release(l);
    }
    e->running--;
    co_cond_wake(&e->ended);
}

static void end_all(struct control *c)
{
    struct ending e = { .control = c, .all = xcalloc(c->count + 1, sizeof(struct live *)) };
    struct live *l;

    co_cond_init(&e.ended);
    list_each(l, &c->all, all) {
        live_hold(l);
        e.all[e.n++] = l;
    }
    for (int i = 0; i < ENDING_AT_ONCE; i++) {
        e.running++;
        if (control_go(c, end_some, &e))
            end_some(&e);
    }
    while (e.running)
        if (co_cond_wait(&e.ended, NEVER))
            co_pass();
    free(e.all);
}

static void forget_all(struct control *c)
{
    struct live *l;

    list_each(l, &c->all, all) {
        life_disarm(l);
        l->control = NULL; /* somebody may hold it still */
        table_remove(c, l);
    }
}

void control_stop(struct control *c)
{
    int64_t until = co_in(CLOSE_MS);

    c->closing = true;
    for (size_t i = 0; i < c->nservices; i++)
        co_cancel(c->services[i]);
    while (c->creating && !co_cond_wait(&c->refill, until))
        ;
}

void control_close(struct control *c)
{
    int64_t until = co_in(CLOSE_MS);
    struct live *l;

    control_stop(c);
    if (c->ephemeral)
        end_all(c);
    pool_finish(c);
    list_each(l, &c->all, all)
        forward_close(l);
    c->deaf = true;
    wait_for_tasks(c, until);
    leftover_finish(c);
    forget_all(c);
    orphans_finish(c);
    retry_close(c);
    client_finish(&c->client);
    provider_closep(&c->provider);
    keys_finish(c);
    sessions_finish(c);
    door_close(c);
    for (char **p = c->allow_mounts; p && *p; p++)
        free(*p);
    free(c->allow_mounts);
    free(c->templates.items);
    free(c->heap);
    free(c->domain);
    free(c->node);
    free(c->mark);
    free(c);
}

const char *control_domain(const struct control *c) { return c->domain; }
const char *control_node(const struct control *c) { return c->node; }
struct client *control_client(struct control *c) { return &c->client; }
