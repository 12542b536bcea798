/* watch_rpc.c - the watches of filesystem.Filesystem: as a stream, or by asking. */
#include <errno.h>

#include "base/mem.h"
#include "guest/auth.h"
#include "guest/entry.h"
#include "guest/path.h"
#include "guest/watch.h"
#include "io/connect.h"

struct watch_request {
    char *path;
    bool recursive, include_entry, network;
};

struct watcher_request {
    char *id;
};

static const struct field watch_fields[] = {
    FIELD(struct watch_request, path, F_STR, .max = 4096, .help = "directory"),
    FIELD(struct watch_request, recursive, F_BOOL),
    FIELD_AS(struct watch_request, include_entry, "includeEntry", F_BOOL),
    FIELD_AS(struct watch_request, network, "allowNetworkMounts", F_BOOL),
    {},
};

static const struct field watcher_fields[] = {
    FIELD_AS(struct watcher_request, id, "watcherId", F_STR, .flags = F_REQUIRED, .max = 64),
    {},
};

static int open_watch(struct call *c, const struct watch_request *req, struct watcher **out,
                      struct err *err)
{
    struct user *u = arena_alloc(&c->arena, sizeof(*u));
    struct watch_options o = { .recursive = req->recursive,
                               .include_entry = req->include_entry,
                               .network = req->network };

    if (auth_user(c, u, err))
        return -1;
    o.path = path_expand(&c->arena, req->path ? req->path : "", u, call_guest(c)->default_workdir);
    return watch_open(call_guest(c), &o, out, err);
}

/* ---- events as JSON ---- */

struct describing {
    int root;
    const char *path;
    struct buf *json;
};

static int work_entry(void *arg, struct err *err)
{
    struct describing *d = arg;
    struct arena a = { 0 };
    struct entry_context x;
    size_t before = d->json->len;

    (void)err;
    entry_context_init(&x, d->root, &a);
    json_key(d->json, "entry");
    if (entry_put_path(&x, d->path, d->json))
        d->json->len = before; /* gone again: the event is told without it */
    arena_free(&a);
    return 0;
}

static void put_event(struct watcher *w, const struct watch_event *e, struct buf *json)
{
    static const char *const names[] = {
        [WATCH_CREATE] = "EVENT_TYPE_CREATE", [WATCH_WRITE] = "EVENT_TYPE_WRITE",
        [WATCH_REMOVE] = "EVENT_TYPE_REMOVE", [WATCH_RENAME] = "EVENT_TYPE_RENAME",
        [WATCH_CHMOD] = "EVENT_TYPE_CHMOD",
    };

    json_open(json, '{');
    json_kv_str(json, "name", e->name);
    json_kv_str(json, "type", names[e->type]);
    if (e->overflow)
        json_kv_bool(json, "overflow", true);
    if (w->include_entry && !e->overflow &&
        (e->type == WATCH_CREATE || e->type == WATCH_WRITE || e->type == WATCH_CHMOD)) {
        AUTO(buf_free) struct buf path = { 0 };
        struct describing d = { w->guest->root, NULL, json };

        buf_printf(&path, "%s/%s", w->path, e->name);
        d.path = buf_cstr(&path);
        guest_work(work_entry, &d, NULL);
    }
    json_close(json, '}');
}

/* ---- WatchDir ---- */

static int send_keepalive(struct call *c)
{
    buf_puts(connect_message(c), "{\"keepalive\":{}}");
    return connect_send(c);
}

static int send_event(struct call *c, struct watcher *w, struct watch_event *e)
{
    struct buf *b = connect_message(c);

    json_open(b, '{');
    json_key(b, "filesystem");
    put_event(w, e, b);
    json_close(b, '}');
    free(e);
    return connect_send(c);
}

static int follow_watch(struct call *c, struct watcher *w, int64_t until, struct err *err)
{
    int64_t keepalive_ms = connect_keepalive_ms(&c->head);
    bool watch = !conn_ready(c->conn);

    buf_puts(connect_message(c), "{\"start\":{}}");
    if (connect_send(c))
        return err_set(err, ERR_GONE, "the client left");
    for (;;) {
        struct watch_event *e;
        int64_t quiet = co_in(keepalive_ms);
        int r;

        while ((e = watch_next(w)))
            if (send_event(c, w, e))
                return err_set(err, ERR_GONE, "the client left");
        if (watch_check(w, err))
            return -1;
        r = watch ? co_cond_wait_fd(&w->changed, c->conn->fd, CO_IN, MIN(quiet, until))
                  : co_cond_wait(&w->changed, MIN(quiet, until));
        if (r == 1 && conn_peer_left(c->conn))
            return err_set(err, ERR_GONE, "the client left");
        if (r == 1)
            watch = conn_quiet(c->conn);
        if (r < 0 && errno != ETIMEDOUT)
            return err_sys(err, "watch '%.100s'", w->path);
        if (r < 0 && co_now() >= until)
            return err_set(err, ERR_TIMEOUT, "the watch's time limit was reached");
        if (r < 0 && send_keepalive(c))
            return err_set(err, ERR_GONE, "the client left");
    }
}

static int rpc_watch_dir(struct call *c, void *body, struct err *err)
{
    struct watcher *w;
    int64_t ms;
    int r;

    if (connect_timeout(&c->head, &ms, err) || open_watch(c, body, &w, err))
        return -1;
    list_push(&call_guest(c)->watchers, &w->all);
    r = connect_begin(c) ? err_set(err, ERR_GONE, "the client left")
                         : follow_watch(c, w, co_in(ms), err);
    watch_close(w);
    return r;
}

/* ---- watchers that are asked ---- */

static int rpc_create_watcher(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct watcher *w;

    if (open_watch(c, body, &w, err))
        return -1;
    list_push(&call_guest(c)->watchers, &w->all);
    json_open(&json, '{');
    json_kv_str(&json, "watcherId", w->id);
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

static struct watcher *find(struct call *c, const char *id, struct err *err)
{
    struct watcher *w;

    list_each(w, &call_guest(c)->watchers, all)
        if (!strcmp(w->id, id))
            return w;
    err_set(err, ERR_NOT_FOUND, "watcher with id '%.64s' not found", id);
    return NULL;
}

static int rpc_get_events(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    const struct watcher_request *req = body;
    struct watcher *w = find(c, req->id, err);
    struct watch_event *e;

    if (!w || watch_check(w, err))
        return -1;
    json_open(&json, '{');
    json_key(&json, "events");
    json_open(&json, '[');
    while ((e = watch_next(w))) {
        put_event(w, e, &json); /* may park: the watcher may be removed meanwhile */
        free(e);
        if (!(w = find(c, req->id, err)))
            return -1;
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return call_reply_json(c, 200, &json);
}

static int rpc_remove_watcher(struct call *c, void *body, struct err *err)
{
    const struct watcher_request *req = body;
    struct watcher *w = find(c, req->id, err);

    if (!w)
        return -1;
    watch_close(w);
    return call_reply(c, 200, "application/json", STR("{}"));
}

#define RPC(name, kind, fields, type, fn, help)                                                    \
    {                                                                                              \
        "POST", "/filesystem.Filesystem/" name, kind, 0, fields, sizeof(type), fn,                 \
            "Filesystem" name, help, 0                                                             \
    }

const struct route watch_routes[] = {
    RPC("WatchDir", ROUTE_STREAM, watch_fields, struct watch_request, rpc_watch_dir,
        "Follow the changes of a directory"),
    RPC("CreateWatcher", ROUTE_UNARY, watch_fields, struct watch_request, rpc_create_watcher,
        "Begin to collect the changes of a directory"),
    RPC("GetWatcherEvents", ROUTE_UNARY, watcher_fields, struct watcher_request, rpc_get_events,
        "The changes since the last call"),
    RPC("RemoveWatcher", ROUTE_UNARY, watcher_fields, struct watcher_request, rpc_remove_watcher,
        "Stop collecting"),
    {},
};
