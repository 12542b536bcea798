/* interpreter.c - the code interpreter on port 49999: contexts, and their executions as a stream of
 * lines. A context is a kernel with a language; each language has a default one, made at its first
 * use. */
#include "guest/kernels/interpreter.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/interpreter_event.h"
#include "guest/kernels/interpreter_language.h"
#include "guest/kernels/kernel.h"
#include "guest/kernels/scan.h"
#include "interpreter_py.h"

enum { KEEPALIVE_MS = 5000, CODE_MAX = 32 << 20, INTERRUPTS = 20, INTERRUPT_MS = 250 };
enum { TRIES = 3, END_MS = 2000 };

struct context {
    struct list all;
    unsigned refs;
    struct kernel *kernel;
    const struct language *language;
    char *cwd;
    bool is_default, gone;
    uint64_t prepared; /* the engine that the display hooks were given to */
    bool running;      /* one execution at a time */
    struct co_cond freed;
};

static struct list contexts = LIST_INIT(contexts);

/* ---- contexts ---- */

static void context_put(struct context *c)
{
    if (--c->refs)
        return;
    kernel_put(c->kernel);
    free(c->cwd);
    free(c);
}

static void context_putp(struct context **c)
{
    if (*c)
        context_put(*c);
}

static void remove_context(struct context *c)
{
    if (c->gone)
        return;
    c->gone = true;
    list_remove(&c->all);
    kernel_remove(c->kernel);
    co_cond_wake(&c->freed);
    context_put(c); /* the list's */
}

/* Kernels can also be ended on the other port: their contexts go with the next request. */
static void drop_ended(void)
{
    for (struct list *at = contexts.next, *next; at != &contexts; at = next) {
        struct context *c = CONTAINER_OF(at, struct context, all);

        next = at->next;
        if (c->kernel->removed)
            remove_context(c); /* does not park: that is done */
    }
}

static struct context *find_context(struct str id)
{
    struct context *c;

    list_each(c, &contexts, all)
        if (str_is(id, c->kernel->id) && !c->kernel->removed) {
            c->refs++;
            return c;
        }
    return NULL;
}

static struct context *need_context(struct str id, struct err *err)
{
    struct context *c = find_context(id);

    if (!c)
        err_set(err, ERR_NOT_FOUND, "Context %.*s not found", (int)MIN(id.n, (size_t)64), id.p);
    return c;
}

static struct kernel *start_kernel(const struct language *l, const char *cwd, struct err *err)
{
    struct kernelspecs specs;
    const char *spec;
    AUTO(freep) char *name = NULL;

    kernelspecs_load(&specs);
    spec = language_spec(l, &specs);
    name = spec ? xstrdup(spec) : NULL;
    kernelspecs_free(&specs);
    if (!name) {
        err_set(err, ERR_INVALID, "there is no kernel for language '%s' in this sandbox", l->name);
        return NULL;
    }
    return kernel_create(
        &(struct kernel_spec){ .name = name, .path = cwd, .env = &(struct map){ 0 } }, err);
}

static struct context *make_context(const struct language *l, const char *cwd, struct err *err)
{
    struct kernel *k = start_kernel(l, cwd, err);
    struct context *c;

    if (!k)
        return NULL;
    k->hidden = true;
    c = xcalloc(1, sizeof(*c));
    *c = (struct context){ .refs = 2, .kernel = kernel_get(k), .language = l };
    c->cwd = xstrdup(cwd && *cwd ? cwd : kernels.home);
    co_cond_init(&c->freed);
    list_push(&contexts, &c->all);
    return c;
}

/* One whose kernel could not be kept alive makes place for another. */
static struct context *find_default(const struct language *l)
{
    struct context *c;

    list_each(c, &contexts, all)
        if (c->is_default && c->language == l) {
            if (c->kernel->state != KERNEL_DEAD && !c->kernel->removed) {
                c->refs++;
                return c;
            }
            c->is_default = false;
            kernel_remove(c->kernel); /* may park: the list is another one then */
            return find_default(l);
        }
    return NULL;
}

static struct context *default_context(const struct language *l, struct err *err)
{
    static struct co_cond made;
    static bool making;
    struct context *c;

    if (!made.waiters.next)
        co_cond_init(&made);
    for (;;) {
        c = find_default(l);
        if (c)
            return c;
        if (!making)
            break;
        if (co_cond_wait(&made, co_in(kernels_limits.start_ms))) {
            err_set(err, ERR_TIMEOUT, "the default context is not ready yet");
            return NULL;
        }
    }
    making = true; /* starting one parks, and two clients may want it at once */
    c = make_context(l, NULL, err);
    making = false;
    if (c)
        c->is_default = true;
    co_cond_wake(&made);
    return c;
}

/* ---- code in a kernel ---- */

static void write_execute(struct buf *content, struct str code, bool silent)
{
    json_open(content, '{');
    json_key(content, "code");
    json_put_str(content, code);
    json_kv_bool(content, "silent", silent);
    json_kv_bool(content, "store_history", !silent);
    json_key(content, "user_expressions");
    json_put_raw(content, STR("{}"));
    json_kv_bool(content, "allow_stdin", false);
    json_kv_bool(content, "stop_on_error", false);
    json_close(content, '}');
}

/* A silent request whose reply nobody waits for: the kernel does one after the other. */
static int tell(struct engine *e, struct str code, struct err *err)
{
    AUTO(buf_free) struct buf content = { 0 };
    struct ask ask;
    int r;

    write_execute(&content, code, true);
    r = engine_send(e, CHANNEL_SHELL, "execute_request", buf_str(&content), &ask, err);
    engine_forget(&ask);
    return r;
}

/* What makes charts and tables of figures and frames: once for each process. */
static int prepare(struct context *c, struct engine *e, struct err *err)
{
    AUTO(buf_free) struct buf code = { 0 };

    if (c->prepared == e->number || !c->language->ipython)
        return 0;
    c->prepared = e->number;
    buf_puts(&code, "exec(compile(");
    scan_quote(&code, interpreter_py);
    buf_puts(&code, ", '<cove>', 'exec'), {'__name__': 'cove_interpreter'})");
    return tell(e, buf_str(&code), err);
}

/* Variables of one execution are there before it, and after it as they were. */
static int change_env(struct context *c, struct engine *e, const struct map *env,
                      enum language_env how, struct err *err)
{
    AUTO(buf_free) struct buf code = { 0 };

    if (!env->n)
        return 0;
    if (!c->language->write_env)
        return err_set(err, ERR_INVALID, "env_vars cannot be set for language '%s'",
                       c->language->name);
    c->language->write_env(&code, env, how);
    return tell(e, buf_str(&code), err);
}

/* What /init has changed since the kernel began, or since its last execution. */
static int follow_environment(struct context *c, struct engine *e, struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(buf_free) struct buf code = { 0 };
    struct map set, gone;

    if (!environment_differs(e->environment, &a, &set, &gone))
        return 0;
    language_write_environment(c->language, &code, &set, &gone);
    environment_put(e->environment);
    e->environment = environment_now();
    return code.len ? tell(e, buf_str(&code), err) : 0;
}

/* ---- one execution ---- */

struct run {
    struct listener listener;
    struct ask ask;
    struct message **queue; /* those of this execution; grows */
    size_t count, cap;
    bool changed; /* the kernel has another engine, or none */
    struct co_cond more;
};

static void take_message(struct listener *l, struct message *m)
{
    struct run *r = CONTAINER_OF(l, struct run, listener);

    if (!r->ask.id[0] || !str_is(message_parent(m, "msg_id"), r->ask.id))
        return;
    if (r->count == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 16;
        // NOLINTNEXTLINE(bugprone-sizeof-expression): a row of pointers
        r->queue = xrealloc(r->queue, r->cap * sizeof(*r->queue));
    }
    r->queue[r->count++] = message_get(m);
    l->queued += message_size(m);
    co_cond_wake(&r->more);
}

static void engine_changed(struct listener *l)
{
    struct run *r = CONTAINER_OF(l, struct run, listener);

    r->changed = true;
    co_cond_wake(&r->more);
}

/* Sends what has come; 1: that was the end, 0 go on, -1 the client is gone. */
static int pass_on(struct call *c, struct run *r, struct kernel *k)
{
    AUTO(buf_free) struct buf out = { 0 };
    AUTO(freep) struct message **batch = TAKE(r->queue, NULL);
    size_t n = TAKE(r->count, 0);
    bool idle = false;

    r->cap = 0;
    for (size_t i = 0; i < n; i++) {
        idle |= event_write(batch[i], &out) == EVENT_IDLE;
        message_put(batch[i]);
    }
    r->listener.queued = 0;
    co_cond_wake(&k->drained);
    if (out.len && (call_send(c, out.data, out.len) || call_flush(c)))
        return -1;
    return idle;
}

static int keep_alive(struct call *c)
{
    AUTO(buf_free) struct buf out = { 0 };

    event_simple(&out, "keepalive");
    return call_send(c, out.data, out.len) || call_flush(c) ? -1 : 0;
}

static void lost_kernel(struct call *c)
{
    AUTO(buf_free) struct buf out = { 0 };

    event_error(&out, "UnexpectedEndOfExecution",
                "the kernel has ended in the middle of the execution; it is started again, without "
                "its variables",
                "");
    call_send(c, out.data, out.len);
}

/* 0 the execution has ended, 1 so has the kernel, -1 the client is gone. */
static int follow(struct call *c, struct run *r, struct kernel *k)
{
    for (;;) {
        int got = r->count ? pass_on(c, r, k) : 0;

        if (got)
            return got < 0 ? -1 : 0;
        if (r->count)
            continue;
        if (r->changed)
            return 1;
        if (co_cond_wait_fd(&r->more, c->conn->fd, CO_IN, co_in(KEEPALIVE_MS)) < 0) {
            if (errno != ETIMEDOUT || keep_alive(c))
                return -1;
        } else if (!r->count && !r->changed && conn_peer_left(c->conn)) {
            return -1;
        }
    }
}

/* Nobody waits for the rest: the kernel is interrupted until it has heard it. */
static void give_up(struct run *r, struct kernel *k, struct engine *e)
{
    struct err ignored;

    for (int i = 0; i < INTERRUPTS && !r->changed && !r->ask.reply && !co_cancelled(); i++) {
        engine_interrupt(e, &ignored);
        if (engine_await(e, &r->ask, co_in(INTERRUPT_MS), &ignored) && e->dead)
            break;
        while (r->count)
            message_put(r->queue[--r->count]);
        r->listener.queued = 0;
        co_cond_wake(&k->drained);
    }
}

struct execute_body {
    char *code, *context_id, *language;
    struct map env_vars;
};

static const struct field execute_fields[] = {
    FIELD(struct execute_body, code, F_STR, .flags = F_REQUIRED, .max = CODE_MAX),
    FIELD(struct execute_body, context_id, F_STR, .max = 64),
    FIELD(struct execute_body, language, F_STR, .max = 40),
    FIELD(struct execute_body, env_vars, F_MAP, .max = 4096),
    {},
};

static int stream(struct call *c, struct context *x, struct engine *e, struct run *r)
{
    AUTO(buf_free) struct buf out = { 0 };
    int how;

    if (call_begin(c, 200, "application/json", -1)) {
        how = -1;
    } else {
        call_patient(c);
        how = call_flush(c) ? -1 : follow(c, r, x->kernel);
    }
    if (how > 0)
        lost_kernel(c);
    if (how < 0) {
        give_up(r, x->kernel, e);
        return -1;
    }
    event_simple(&out, "end_of_execution");
    return call_send(c, out.data, out.len) || call_end(c) ? -1 : 0;
}

static int execute(struct call *c, struct context *x, const struct execute_body *b, struct err *err)
{
    struct engine *e = kernel_engine(x->kernel, co_in(kernels_limits.start_ms), err);
    struct run r = { .listener = { .deliver = take_message, .changed = engine_changed } };
    AUTO(buf_free) struct buf content = { 0 };
    struct err late = { 0 };
    int result = -1;

    if (!e)
        return -1;
    co_cond_init(&r.more);
    list_init(&r.ask.node);
    write_execute(&content, str_of(b->code), false);
    if (!prepare(x, e, err) && !follow_environment(x, e, err) &&
        !change_env(x, e, &b->env_vars, ENV_ENTER, err)) {
        kernel_listen(x->kernel, &r.listener);
        if (!engine_send(e, CHANNEL_SHELL, "execute_request", buf_str(&content), &r.ask, err)) {
            result = stream(c, x, e, &r);
            if (result && !err->code)
                err_set(err, ERR_GONE, "the client left");
        }
        kernel_unlisten(x->kernel, &r.listener);
        change_env(x, e, &b->env_vars, ENV_LEAVE, &late);
    }
    if (result && err->code == ERR_UPSTREAM)
        engine_await(e, &r.ask, co_in(END_MS), &late); /* its end, which is about to be told */
    engine_forget(&r.ask);
    while (r.count)
        message_put(r.queue[--r.count]);
    free(r.queue);
    engine_put(e);
    return result;
}

/* A kernel that ended while nobody used it may be known by that it does not take the code: then the
 * one after it does. */
static int execute_somewhere(struct call *c, struct context *x, const struct execute_body *b,
                             struct err *err)
{
    int r = execute(c, x, b, err);

    for (int i = 0; r && err->code == ERR_UPSTREAM && !c->status && i < TRIES; i++) {
        *err = (struct err){ 0 };
        r = execute(c, x, b, err);
    }
    return r;
}

static int lock(struct context *x, const struct call *c, struct err *err)
{
    while (x->running && !x->gone)
        if (co_cond_wait(&x->freed, NEVER))
            return err_set(err, ERR_GONE, "cancelled");
    if (x->gone)
        return err_set(err, ERR_NOT_FOUND, "Context %s not found", x->kernel->id);
    if (conn_peer_left(c->conn)) /* while it waited for its turn: its code is not run at all */
        return err_set(err, ERR_GONE, "the client left");
    x->running = true;
    return 0;
}

static int post_execute(struct call *c, void *body, struct err *err)
{
    const struct execute_body *b = body;
    AUTO(context_putp) struct context *x = NULL;
    const struct language *l;
    int r;

    if (b->context_id && b->language)
        return err_set(err, ERR_INVALID, "Only one of context_id or language can be provided");
    if (b->context_id) {
        x = need_context(str_of(b->context_id), err);
    } else {
        l = language_find(b->language, err);
        x = l ? default_context(l, err) : NULL;
    }
    if (!x || lock(x, c, err))
        return -1;
    r = execute_somewhere(c, x, b, err);
    x->running = false;
    co_cond_wake(&x->freed);
    return r;
}

/* ---- the rest of the interface ---- */

static int get_health(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "application/json", STR("\"OK\""));
}

static void write_context(const struct context *c, struct buf *json)
{
    json_open(json, '{');
    json_kv_str(json, "id", c->kernel->id);
    json_kv_str(json, "language", c->language->name);
    json_kv_str(json, "cwd", c->cwd);
    json_close(json, '}');
}

static int get_contexts(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct context *x;

    (void)body, (void)err;
    json_open(&json, '[');
    list_each(x, &contexts, all)
        write_context(x, &json);
    json_close(&json, ']');
    return call_reply_json(c, 200, &json);
}

struct context_body {
    char *language, *cwd;
};

static const struct field context_fields[] = {
    FIELD(struct context_body, language, F_STR, .max = 40),
    FIELD(struct context_body, cwd, F_STR, .max = 4096),
    {},
};

static int post_context(struct call *c, void *body, struct err *err)
{
    const struct context_body *b = body;
    const struct language *l = language_find(b->language, err);
    AUTO(context_putp) struct context *x = NULL;
    AUTO(buf_free) struct buf json = { 0 };
    struct stat st;

    if (!l)
        return -1;
    if (b->cwd && *b->cwd && (stat(b->cwd, &st) || !S_ISDIR(st.st_mode)))
        return err_set(err, ERR_INVALID, "cwd '%.100s' is not a directory", b->cwd);
    x = make_context(l, b->cwd, err);
    if (!x)
        return -1;
    write_context(x, &json);
    return call_reply_json(c, 200, &json);
}

static int delete_context(struct call *c, void *body, struct err *err)
{
    AUTO(context_putp) struct context *x = need_context(c->param[0], err);

    (void)body;
    if (!x)
        return -1;
    remove_context(x);
    return call_reply(c, 200, "application/json", STR("null"));
}

static int restart_context(struct call *c, void *body, struct err *err)
{
    AUTO(context_putp) struct context *x = need_context(c->param[0], err);

    (void)body;
    if (!x || kernel_restart(x->kernel, err))
        return -1;
    return call_reply(c, 200, "application/json", STR("null"));
}

static const struct route routes[] = {
    { "GET", "/health", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_health, "health", "Is it there?", 0 },
    { "POST", "/execute", ROUTE_JSON, ROUTE_LENIENT, execute_fields, sizeof(struct execute_body),
      post_execute, "execute", "Run code, and stream what it does", CODE_MAX * 2 },
    { "POST", "/contexts", ROUTE_JSON, ROUTE_LENIENT, context_fields, sizeof(struct context_body),
      post_context, "create_context", "A kernel of its own", 0 },
    { "GET", "/contexts", ROUTE_RAW, 0, NULL, 0, get_contexts, "list_contexts", "All contexts", 0 },
    { "DELETE", "/contexts/{id}", ROUTE_RAW, 0, NULL, 0, delete_context, "delete_context",
      "End one", 0 },
    { "POST", "/contexts/{id}/restart", ROUTE_RAW, 0, NULL, 0, restart_context, "restart_context",
      "Begin again with an empty one", 0 },
    {},
};

/* Errors are plain text: the SDKs show the body as it is. */
static bool refuse(struct call *c, const struct err *err)
{
    call_reply(c, err_status(err->code), "text/plain; charset=utf-8", str_of(err->msg));
    return true;
}

static int first(struct call *c, struct err *err)
{
    (void)c, (void)err;
    kernels_asked();
    drop_ended();
    return 0;
}

static const struct route *const tables[] = { routes, NULL };
struct httpd interpreter_server = {
    .tables = tables, .first = first, .refuse = refuse, .cors = true
};
