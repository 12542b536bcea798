/* channels.c - /api/kernels/{id}/channels: one WebSocket for a kernel's four channels.
 *
 * Each client has sockets of its own to the kernel's shell, control and stdin, under one identity,
 * so that replies and questions find their way back; iopub is heard once for all. Coroutines: one
 * reads the WebSocket, one reads each of the three sockets, one writes. What is to be written waits
 * in a queue, so that a slow client holds back its kernel (kernel.queue-bytes) and nobody else.
 *
 * When the last client of a kernel goes, its channels stay, and what arrives is kept for the case
 * that it comes back with the same session id (kernel.replay-*). */
#include <errno.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/jupyter.h"
#include "guest/kernels/kernel.h"
#include "io/ws.h"

#define V1 "v1.kernel.websocket.jupyter.org"

enum { CONNECT_MS = 10000, SEND_MS = 60000, SESSION_MAX = 256 };

struct channels;

struct links { /* to one engine; when that goes they go */
    unsigned refs;
    struct engine *engine;
    struct channels *owner; /* NULL: nobody's any more */
    struct zmtp link[CHANNEL_IOPUB];
};

struct channels {
    struct listener listener;
    unsigned refs; /* the WebSocket's handler, the list of kept ones, coroutines */
    struct list node;
    struct kernel *kernel;
    char *session;
    struct links *links; /* NULL: not connected */
    struct ws *ws;       /* NULL: nobody is there */
    bool v1, connecting;
    struct message **queue; /* a ring */
    size_t head, count, cap;
    struct co_cond more; /* in the queue, or links, or the end */
};

/* ---- life ---- */

static void links_put(struct links *l)
{
    if (!l || --l->refs)
        return;
    for (int i = 0; i < CHANNEL_IOPUB; i++)
        zmtp_finish(&l->link[i]);
    engine_put(l->engine);
    free(l);
}

static void drop_links(struct channels *c)
{
    struct links *l = TAKE(c->links, NULL);

    if (!l)
        return;
    l->owner = NULL;
    for (int i = 0; i < CHANNEL_IOPUB; i++)
        zmtp_break(&l->link[i]);
    links_put(l);
}

static struct message *pop(struct channels *c)
{
    struct message *m = c->queue[c->head];

    c->head = (c->head + 1) % c->cap;
    c->count--;
    c->listener.queued -= message_size(m);
    return m;
}

static void channels_put(struct channels *c)
{
    if (!c || --c->refs)
        return;
    while (c->count)
        message_put(pop(c));
    free(c->queue);
    free(c->session);
    kernel_put(c->kernel);
    free(c);
}

/* ---- the queue ---- */

static void push(struct channels *c, struct message *m)
{
    if (c->count == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        // NOLINTNEXTLINE(bugprone-sizeof-expression): a row of pointers
        struct message **bigger = xcalloc(cap, sizeof(*bigger));

        for (size_t i = 0; i < c->count; i++)
            bigger[i] = c->queue[(c->head + i) % c->cap];
        free(c->queue);
        c->queue = bigger;
        c->cap = cap;
        c->head = 0;
    }
    c->queue[(c->head + c->count++) % c->cap] = message_get(m);
    c->listener.queued += message_size(m);
    while (!c->ws && c->count &&
           (c->listener.queued > (size_t)kernels_limits.replay_bytes ||
            c->count > (size_t)kernels_limits.replay_count))
        message_put(pop(c));
    co_cond_wake(&c->more);
}

static void deliver(struct listener *l, struct message *m)
{
    push(CONTAINER_OF(l, struct channels, listener), m);
}

static int send_one(struct channels *c, struct message *m)
{
    struct str frame;
    bool binary = true;

    frame = c->v1 ? message_v1(m) : message_default(m, &binary);
    if (!frame.p) {
        log_warn("dropped", KV("kernel", c->kernel->id), KV("error", "a message that is not JSON"));
        return 0;
    }
    return ws_send(c->ws, binary ? WS_BINARY : WS_TEXT, frame.p, frame.n);
}

struct writer {
    struct channels *c;
    struct ws *ws;
    bool ended;
};

static void write_queue(void *arg)
{
    struct writer *w = arg;
    struct channels *c = w->c;
    bool closed = false;

    while (c->ws == w->ws && !closed) {
        struct message *m;
        int r;

        if (!c->count) {
            closed = c->kernel->removed;
            if (closed)
                ws_close(w->ws, WS_NORMAL, "the kernel was shut down");
            else if (co_cond_wait(&c->more, NEVER))
                break;
            continue;
        }
        m = pop(c);
        r = send_one(c, m);
        message_put(m);
        co_cond_wake(&c->kernel->drained);
        if (r)
            break;
    }
    if (c->ws == w->ws && !closed)
        conn_break(w->ws->conn); /* the reader shall see it too */
    w->ended = true;
    co_cond_wake(&c->more);
    channels_put(c);
}

/* ---- sockets to the kernel ---- */

struct link_reader {
    struct links *links;
    enum channel channel;
};

static void read_link(void *arg)
{
    struct link_reader r = *(struct link_reader *)arg;
    struct zmtp *z = &r.links->link[r.channel];
    struct err err = { 0 };

    free(arg);
    while (r.links->owner && zmtp_read(z, NEVER, &err) > 0 && r.links->owner) {
        struct message *m = message_take(&z->in.parts, r.channel, &r.links->engine->signer, &err);

        if (m)
            push(r.links->owner, m);
        else
            log_warn("dropped", KV("error", err.msg));
        message_put(m);
        /* As for iopub: a client that does not read stops its kernel's replies, not our memory. */
        while (r.links->owner && r.links->owner->ws &&
               r.links->owner->listener.queued > (size_t)kernels_limits.queue_bytes)
            if (co_cond_wait(&r.links->owner->kernel->drained, NEVER))
                break;
    }
    if (r.links->owner) /* nothing comes by it any more: the next request has new ones made */
        drop_links(r.links->owner);
    links_put(r.links);
}

/* The three are dialled at once: each is a few turns of the kernel's own threads. */
struct dialling {
    struct links *links;
    const char *identity;
    int left;
    struct err err; /* of one that failed */
    struct co_cond done;
};

struct dial_one {
    struct dialling *d;
    enum channel channel;
};

static void dial_one(void *arg)
{
    struct dial_one *one = arg;
    struct dialling *d = one->d;
    struct engine *e = d->links->engine;
    struct err err = { 0 };
    char address[160];

    engine_address(e, one->channel, address, sizeof(address));
    if (zmtp_dial(&d->links->link[one->channel], address, ZMTP_DEALER, str_of(d->identity),
                  (uint64_t)kernels_limits.message_bytes, &e->dead, co_in(CONNECT_MS), &err))
        d->err = err;
    d->left--;
    co_cond_wake(&d->done);
}

static int dial(struct links *l, struct err *err)
{
    char identity[33];
    struct dialling d = { .links = l, .identity = identity, .left = CHANNEL_IOPUB };
    struct dial_one ones[CHANNEL_IOPUB];

    id_hex(identity, 32);
    co_cond_init(&d.done);
    for (int i = 0; i < CHANNEL_IOPUB; i++) {
        ones[i] = (struct dial_one){ &d, (enum channel)i };
        if (co_go(dial_one, &ones[i], NULL))
            abort();
    }
    while (d.left) /* they use our stack, and have a deadline of their own */
        if (co_cond_wait(&d.done, NEVER))
            co_pass();
    if (d.err.code) {
        *err = d.err;
        return -1;
    }
    return 0;
}

/* Connects to whatever engine the kernel has, waiting for one if need be. */
static int connect_links(struct channels *c, struct err *err)
{
    struct engine *e = kernel_engine(c->kernel, co_in(kernels_limits.start_ms), err);
    struct links *l;

    if (!e)
        return -1;
    l = xcalloc(1, sizeof(*l));
    *l = (struct links){ .refs = 1, .engine = e, .owner = c };
    if (dial(l, err) && !e->dead) {
        links_put(l);
        return -1;
    }
    if (c->kernel->engine != e || e->dead) { /* restarted meanwhile: once more, by the caller */
        links_put(l);
        return 0;
    }
    c->links = l;
    for (int i = 0; i < CHANNEL_IOPUB; i++) {
        struct link_reader *r = xmalloc(sizeof(*r));

        *r = (struct link_reader){ l, (enum channel)i };
        l->refs++;
        if (co_go(read_link, r, NULL))
            abort();
    }
    return 0;
}

static int need_links(struct channels *c, struct err *err)
{
    while (c->connecting)
        if (co_cond_wait(&c->more, NEVER))
            return err_set(err, ERR_GONE, "cancelled");
    while (!c->links) {
        int r;

        c->connecting = true;
        r = connect_links(c, err);
        c->connecting = false;
        co_cond_wake(&c->more);
        if (r)
            return -1;
    }
    return 0;
}

/* ---- the client ---- */

static int decode(struct channels *c, const struct ws_message *m, struct request *r,
                  struct err *err)
{
    if (c->v1)
        return m->op == WS_BINARY ? request_from_v1(r, m->data, err)
                                  : request_from_text(r, m->data, err);
    return m->op == WS_BINARY ? request_from_binary(r, m->data, err)
                              : request_from_text(r, m->data, err);
}

static int forward(struct channels *c, const struct ws_message *m, struct err *err)
{
    AUTO(freep) struct request *r = xmalloc(sizeof(*r)); /* too large for a coroutine's stack */
    struct links *l;
    int result;

    if (decode(c, m, r, err)) {
        log_warn("passed over", KV("kernel", c->kernel->id), KV("error", err->msg));
        return 0;
    }
    if (need_links(c, err))
        return -1;
    l = c->links;
    l->refs++;
    result = request_send(r, &l->link[r->channel], &l->engine->signer, co_in(SEND_MS), err);
    if (result && l->owner) /* in the middle of a message, maybe: whoever comes back has new ones */
        drop_links(l->owner);
    links_put(l);
    return result && c->kernel->engine && !c->kernel->restarting && !c->kernel->engine->dead ? -1
                                                                                             : 0;
}

/* Tells what is wrong in the one way that every client shows: the connection's end. */
static void close_with(struct ws *ws, const struct err *err)
{
    ws_close(ws, WS_INTERNAL, err->msg);
}

static void serve(struct channels *c, struct ws *ws)
{
    struct ws_message m;
    struct err err = { 0 };

    if (need_links(c, &err)) {
        close_with(ws, &err);
        return;
    }
    while (c->ws == ws && ws_read(ws, &m, &err) > 0)
        if (forward(c, &m, &err)) {
            close_with(ws, &err);
            return;
        }
}

/* ---- coming and going ---- */

static void give_up(struct channels *c)
{
    list_remove(&c->node);
    kernel_unlisten(c->kernel, &c->listener);
    drop_links(c);
    channels_put(c);
}

static void engine_changed(struct listener *l)
{
    struct channels *c = CONTAINER_OF(l, struct channels, listener);

    drop_links(c);
    co_cond_wake(&c->more);
    if (c->kernel->removed && !c->ws)
        give_up(c); /* nobody comes back to it */
}

static struct channels *find_kept(struct kernel *k, const char *session)
{
    struct channels *c;

    list_each(c, &k->kept, node)
        if (*session && !strcmp(c->session, session))
            return c;
    return NULL;
}

/* Those kept for somebody else are of no use once another client is here. */
static void drop_kept(struct kernel *k)
{
    struct channels *c;

    list_each(c, &k->kept, node)
        if (!c->ws)
            give_up(c);
}

static struct channels *make(struct kernel *k, const char *session)
{
    struct channels *c = xcalloc(1, sizeof(*c));

    c->refs = 1;
    c->kernel = kernel_get(k);
    c->session = xstrdup(session);
    c->listener.deliver = deliver;
    c->listener.changed = engine_changed;
    co_cond_init(&c->more);
    list_push(&k->kept, &c->node);
    kernel_listen(k, &c->listener);
    return c;
}

/* The channels for a session: those that it left, those of a connection that it has lost without
 * our knowing, or new ones. */
static struct channels *attach(struct kernel *k, const char *session, struct ws *ws)
{
    struct channels *c = find_kept(k, session);

    if (c && c->ws)
        conn_break(c->ws->conn);
    if (!c) {
        drop_kept(k);
        c = make(k, session);
    }
    c->ws = ws;
    c->v1 = ws->protocol != NULL;
    c->refs++;
    k->connections++;
    co_cond_wake(&c->more); /* who had it before lets go */
    return c;
}

static void detach(struct channels *c, struct ws *ws)
{
    struct kernel *k = c->kernel;

    k->connections--;
    if (c->ws == ws) {
        c->ws = NULL;
        co_cond_wake(&c->more);
        co_cond_wake(&k->drained);
        if (k->connections || !*c->session || k->removed)
            give_up(c);
        else
            while (c->count > (size_t)kernels_limits.replay_count ||
                   (c->count && c->listener.queued > (size_t)kernels_limits.replay_bytes))
                message_put(pop(c));
    }
}

static int find_session(struct call *c, char *out, size_t n, struct err *err)
{
    struct str s = call_query(c, "session_id", err);

    if (err->code)
        return -1;
    if (s.n >= n)
        return err_set(err, ERR_INVALID, "session_id is longer than %zu bytes", n - 1);
    memcpy(out, s.p ? s.p : "", s.n);
    out[s.n] = 0;
    return 0;
}

/* Jupyter's own server opens no socket before the kernel answers, and clients count on it: nbclient
 * gives the first answer a second. A kernel that never answers has one all the same, to be told. */
static int await_kernel(struct kernel *k, struct err *err)
{
    struct err why = { 0 };

    if (k->state == KERNEL_STARTING)
        engine_put(kernel_engine(k, co_in(kernels_limits.start_ms), &why));
    return k->removed ? err_set(err, ERR_NOT_FOUND, "kernel %s was removed", k->id) : 0;
}

int channels_serve(struct call *call, void *body, struct err *err)
{
    static const char *const protocols[] = { V1, NULL };
    AUTO(kernel_putp) struct kernel *k = NULL;
    AUTO(ws_finish) struct ws ws = { 0 };
    struct writer w = { .ws = &ws };
    char session[SESSION_MAX];
    struct channels *c;
    int r;

    (void)body;
    k = jupyter_kernel(call, err);
    if (!k || jupyter_check_origin(call, err) ||
        find_session(call, session, sizeof(session), err) || await_kernel(k, err))
        return -1;
    r = ws_accept(call, &ws, protocols, err);
    if (r <= 0)
        return r;
    c = attach(k, session, &ws);
    w.c = c;
    c->refs++;
    if (co_go(write_queue, &w, NULL))
        abort();
    serve(c, &ws);
    detach(c, &ws);
    while (!w.ended) /* it uses ws, which is on our stack */
        if (co_cond_wait(&c->more, NEVER) && co_cancelled())
            co_pass();
    channels_put(c);
    return 0;
}
