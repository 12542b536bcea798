/* sessions.c - Jupyter's sessions: a document's name with the kernel that runs it. They are only a
 * table of names; one ends when it is deleted or its kernel is. */
#include <errno.h>

#include "base/id.h"
#include "base/mem.h"
#include "guest/kernels/jupyter.h"
#include "guest/kernels/kernel.h"

#if !defined(__clang__) /* gcc's analyzer does not see that what was freed has left the list */
#pragma GCC diagnostic ignored "-Wanalyzer-use-after-free"
#endif

enum { SESSIONS_MAX = 4096 };

struct session {
    struct list all;
    char id[37];
    char *path, *name, *type; /* owned */
    struct kernel *kernel;    /* with a reference */
};

static struct list sessions = LIST_INIT(sessions);
static size_t count;

struct session_kernel {
    char *id, *name;
};

struct session_body {
    char *path, *name, *type;
    struct session_kernel *kernel;
};

static const struct field kernel_fields[] = {
    FIELD(struct session_kernel, id, F_STR, .max = 64),
    FIELD(struct session_kernel, name, F_STR, .max = 128),
    {},
};

static const struct field session_fields[] = {
    FIELD(struct session_body, path, F_STR, .max = 4096, .help = "of the document"),
    FIELD(struct session_body, name, F_STR, .max = 4096),
    FIELD(struct session_body, type, F_STR, .max = 256, .help = "notebook, console, file"),
    FIELD(struct session_body, kernel, F_OBJ, .sub = kernel_fields,
          .sub_size = sizeof(struct session_kernel)),
    {},
};

static void destroy(struct session *s)
{
    list_remove(&s->all);
    count--;
    free(s->path);
    free(s->name);
    free(s->type);
    kernel_put(s->kernel);
    free(s);
}

void sessions_forget(struct kernel *k)
{
    struct session *s;

    list_each(s, &sessions, all)
        if (s->kernel == k)
            destroy(s);
}

/* Those whose kernel was culled, or ended as a context: a document that is opened again needs a new
 * one. */
static void drop_ended(void)
{
    struct session *s;

    list_each(s, &sessions, all)
        if (s->kernel->removed)
            destroy(s);
}

static void write_session(const struct session *s, struct buf *json)
{
    json_open(json, '{');
    json_kv_str(json, "id", s->id);
    json_kv_str(json, "path", s->path);
    json_kv_str(json, "name", s->name);
    json_kv_str(json, "type", s->type);
    json_key(json, "kernel");
    kernel_write(s->kernel, json);
    json_key(json, "notebook"); /* the form of older clients */
    json_open(json, '{');
    json_kv_str(json, "path", s->path);
    json_kv_str(json, "name", s->name);
    json_close(json, '}');
    json_close(json, '}');
}

static int reply_session(struct call *c, int status, const struct session *s)
{
    AUTO(buf_free) struct buf json = { 0 };

    write_session(s, &json);
    return call_reply_json(c, status, &json);
}

static struct session *find(struct call *c, struct err *err)
{
    struct session *s;

    list_each(s, &sessions, all)
        if (str_is(c->param[0], s->id))
            return s;
    err_set(err, ERR_NOT_FOUND, "Session not found: session_id='%.*s'",
            (int)MIN(c->param[0].n, (size_t)64), c->param[0].p);
    return NULL;
}

static struct session *find_path(const char *path)
{
    struct session *s;

    list_each(s, &sessions, all)
        if (!strcmp(s->path, path))
            return s;
    return NULL;
}

static int list_sessions(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct session *s;

    (void)body, (void)err;
    drop_ended();
    json_open(&json, '[');
    list_each(s, &sessions, all)
        write_session(s, &json);
    json_close(&json, ']');
    return call_reply_json(c, 200, &json);
}

static bool names_one(const struct session_kernel *wanted)
{
    return wanted && wanted->id && *wanted->id;
}

/* The kernel that a body names, with a reference: one that runs, or a new one. */
static struct kernel *kernel_for(const struct session_kernel *wanted, const char *path,
                                 struct err *err)
{
    struct kernel *k;

    if (names_one(wanted)) {
        k = kernels_find(str_of(wanted->id));
        if (k)
            return kernel_get(k);
        err_set(err, ERR_INVALID, "No such kernel: %.64s", wanted->id);
        return NULL;
    }
    k = kernel_create(&(struct kernel_spec){ .name = wanted ? wanted->name : NULL,
                                             .path = path,
                                             .env = &(struct map){ 0 } },
                      err);
    return k ? kernel_get(k) : NULL;
}

/* It was for a session that is not to be: a new one nobody else knows. */
static void give_back(const struct session_kernel *wanted, struct kernel *k)
{
    if (!names_one(wanted))
        kernel_remove(k);
    kernel_put(k);
}

/* 501 with both messages: what notebook front ends look at when a kernel spec is missing. */
static int no_such_spec(struct call *c, const struct err *why)
{
    AUTO(buf_free) struct buf json = { 0 };

    json_open(&json, '{');
    json_kv_str(&json, "message", why->msg);
    json_kv_str(&json, "short_message", why->msg);
    json_close(&json, '}');
    return call_reply_json(c, 501, &json);
}

static struct session *make(const struct session_body *b, struct kernel *k)
{
    struct session *s = xcalloc(1, sizeof(*s));

    kernel_new_id(s->id);
    s->path = xstrdup(b->path);
    s->name = xstrdup(b->name ? b->name : "");
    s->type = xstrdup(b->type);
    s->kernel = k;
    list_push(&sessions, &s->all);
    count++;
    return s;
}

static int post_session(struct call *c, void *body, struct err *err)
{
    const struct session_body *b = body;
    struct session *s;
    struct kernel *k;

    if (!b->path)
        return err_set(err, ERR_INVALID, "Missing field in JSON data: path");
    if (!b->type)
        return err_set(err, ERR_INVALID, "Missing field in JSON data: type");
    drop_ended();
    s = find_path(b->path);
    if (!s) {
        if (count >= SESSIONS_MAX)
            return err_set(err, ERR_DENIED, "Resource Limit: %d sessions", SESSIONS_MAX);
        k = kernel_for(b->kernel, b->path, err);
        if (!k)
            return err->code == ERR_NOT_FOUND ? no_such_spec(c, err) : -1;
        s = find_path(b->path); /* starting a kernel parks: another may have been quicker */
        if (s) {
            give_back(b->kernel, k);
            return err_set(err, ERR_CONFLICT, "a session of %.100s was just made", b->path);
        }
        s = make(b, k);
    }
    call_header(c, "Location", arena_printf(&c->arena, "/api/sessions/%s", s->id));
    return reply_session(c, 201, s);
}

static int get_session(struct call *c, void *body, struct err *err)
{
    const struct session *s = find(c, err);

    (void)body;
    return s ? reply_session(c, 200, s) : -1;
}

static void replace_text(char **owned, const char *with)
{
    if (!with)
        return;
    free(*owned);
    *owned = xstrdup(with);
}

/* Another kernel for the document: the one before ends, unless another session has it too. */
static void change_kernel(struct session *s, struct kernel *k)
{
    struct kernel *before = s->kernel;
    struct session *other;
    bool shared = before == k;

    s->kernel = k;
    list_each(other, &sessions, all)
        shared |= other->kernel == before;
    if (!shared)
        kernel_remove(before);
    kernel_put(before);
}

static int patch_session(struct call *c, void *body, struct err *err)
{
    const struct session_body *b = body;
    struct session *s = find(c, err);
    struct kernel *k = NULL;

    if (!s)
        return -1;
    if (b->kernel && (b->kernel->id || b->kernel->name)) {
        k = kernel_for(b->kernel, s->path, err);
        if (!k)
            return err->code == ERR_NOT_FOUND ? no_such_spec(c, err) : -1;
        s = find(c, err);
        if (!s) {
            give_back(b->kernel, k);
            return -1;
        }
    }
    replace_text(&s->path, b->path);
    replace_text(&s->name, b->name);
    replace_text(&s->type, b->type);
    if (k) {
        change_kernel(s, k);
        s = find(c, err); /* ending the old kernel parks */
        if (!s)
            return -1;
    }
    return reply_session(c, 200, s);
}

static int delete_session(struct call *c, void *body, struct err *err)
{
    struct session *s = find(c, err);
    AUTO(kernel_putp) struct kernel *k = s ? kernel_get(s->kernel) : NULL;

    (void)body;
    if (!s)
        return -1;
    destroy(s);
    if (k->removed)
        return call_reply(c, 410, "application/json",
                          STR("{\"message\":\"Kernel deleted before session\"}"));
    sessions_forget(k);
    kernel_remove(k);
    return call_reply(c, 204, NULL, (struct str){ 0 });
}

const struct route jupyter_session_routes[] = {
    { "GET", "/api/sessions", ROUTE_RAW, 0, NULL, 0, list_sessions, "list_sessions",
      "Documents and their kernels", 0 },
    { "POST", "/api/sessions", ROUTE_JSON, ROUTE_LENIENT, session_fields,
      sizeof(struct session_body), post_session, "create_session", "A kernel for a document", 0,
      .status = 201 },
    { "GET", "/api/sessions/{id}", ROUTE_RAW, 0, NULL, 0, get_session, "get_session", "One of them",
      0 },
    { "PATCH", "/api/sessions/{id}", ROUTE_JSON, ROUTE_LENIENT, session_fields,
      sizeof(struct session_body), patch_session, "update_session",
      "Another name, or another kernel", 0 },
    { "DELETE", "/api/sessions/{id}", ROUTE_RAW, 0, NULL, 0, delete_session, "delete_session",
      "End it and its kernel", 0, .status = 204 },
    {},
};
