/* envd_files.c - see envd_files.h. */
#include "provider/envd_files.h"

#include "base/mem.h"

enum { ENTRIES_MAX = 1 << 20, REPLY_MAX = 64 << 10 };

/* ---- entries ---- */

struct raw_entry {
    char *name, *type, *path, *permissions, *link;
    int64_t size, mode;
    bool is_link;
};
struct raw_answer {
    struct raw_entry *entry;
    struct objs entries;
};

static const struct field entry_fields[] = {
    FIELD(struct raw_entry, name, F_STR, .max = 4096),
    FIELD(struct raw_entry, type, F_STR, .max = 64),
    FIELD(struct raw_entry, path, F_STR),
    FIELD(struct raw_entry, permissions, F_STR, .max = 64),
    FIELD(struct raw_entry, link, F_STR, .max = 4096),
    FIELD(struct raw_entry, size, F_INT, .max = INT64_MAX),
    FIELD(struct raw_entry, mode, F_INT, .max = UINT32_MAX),
    FIELD_AS(struct raw_entry, is_link, "isSymlink", F_BOOL),
    {},
};
static const struct field answer_fields[] = {
    FIELD(struct raw_answer, entry, F_OBJ, .sub = entry_fields,
          .sub_size = sizeof(struct raw_entry)),
    FIELD(struct raw_answer, entries, F_OBJS, .sub = entry_fields,
          .sub_size = sizeof(struct raw_entry), .max = ENTRIES_MAX),
    {},
};

/* The protocol knows three types; what a device, a pipe or a socket is its permissions tell, which
 * begin with a letter for it. */
static enum envd_file_type type_of(const struct raw_entry *r)
{
    if (r->is_link || (r->type && !strcmp(r->type, "FILE_TYPE_SYMLINK")))
        return ENVD_LINK;
    if (r->type && !strcmp(r->type, "FILE_TYPE_DIRECTORY"))
        return ENVD_DIRECTORY;
    if (r->permissions && strchr("DpS", r->permissions[0]))
        return ENVD_OTHER;
    return r->type && !strcmp(r->type, "FILE_TYPE_FILE") ? ENVD_FILE : ENVD_OTHER;
}

static void translate(const struct raw_entry *r, struct envd_entry *out)
{
    static char none[] = "";

    *out = (struct envd_entry){ .name = r->name ? r->name : none,
                                .path = r->path ? r->path : none,
                                .type = type_of(r),
                                .size = r->size,
                                .mode = r->mode & 0777,
                                .link = r->link };
    out->leads_to_dir =
        out->type == ENVD_LINK && r->type && !strcmp(r->type, "FILE_TYPE_DIRECTORY");
}

static int ask(struct envd *e, const char *method, const char *user, const struct buf *body,
               struct arena *a, struct raw_answer *out, struct err *err)
{
    AUTO(buf_free) struct buf reply = { 0 };
    char path[64];

    snprintf(path, sizeof(path), "/filesystem.Filesystem/%s", method);
    if (envd_call(e, path, user, body, &reply, err))
        return -1;
    if (out && field_decode_text(answer_fields, FIELDS_PROTO, buf_str(&reply), a, out, err)) {
        err->code = ERR_UPSTREAM;
        return err_in(err, "the guest's answer to %s", method);
    }
    return 0;
}

static void open_path(struct buf *b, const char *path)
{
    json_open(b, '{');
    json_kv_str(b, "path", path);
}

int envd_stat(struct envd *e, const char *user, const char *path, struct arena *a,
              struct envd_entry *out, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct raw_answer r = { 0 };

    open_path(&b, path);
    json_close(&b, '}');
    if (ask(e, "Stat", user, &b, a, &r, err))
        return -1;
    if (!r.entry)
        return err_set(err, ERR_UPSTREAM, "the guest's answer to Stat has no entry");
    translate(r.entry, out);
    return 0;
}

int envd_list(struct envd *e, const char *user, const char *path, struct arena *a,
              struct envd_entries *out, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct raw_answer r = { 0 };
    const struct raw_entry *raw;

    open_path(&b, path);
    json_kv_int(&b, "depth", 1);
    json_close(&b, '}');
    if (ask(e, "ListDir", user, &b, a, &r, err))
        return -1;
    raw = r.entries.items;
    out->n = r.entries.n;
    out->items = arena_alloc(a, sizeof(*out->items) * MAX(out->n, (size_t)1));
    for (size_t i = 0; i < out->n; i++)
        translate(&raw[i], &out->items[i]);
    return 0;
}

int envd_make_dir(struct envd *e, const char *user, const char *path, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_path(&b, path);
    json_close(&b, '}');
    return ask(e, "MakeDir", user, &b, NULL, NULL, err);
}

int envd_set_mode(struct envd *e, const char *user, const char *path, int64_t mode, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_path(&b, path);
    json_kv_int(&b, "mode", mode);
    json_close(&b, '}');
    return ask(e, "SetMode", user, &b, NULL, NULL, err);
}

int envd_make_link(struct envd *e, const char *user, const char *path, const char *target,
                   struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    open_path(&b, path);
    json_kv_str(&b, "target", target);
    json_close(&b, '}');
    return ask(e, "MakeLink", user, &b, NULL, NULL, err);
}

/* ---- contents ---- */

static void put_query(struct buf *b, const char *name, const char *value)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";

    buf_printf(b, "%c%s=", memchr(b->data, '?', b->len) ? '&' : '?', name);
    for (; *value; value++)
        if (strchr(plain, *value))
            buf_putc(b, *value);
        else
            buf_printf(b, "%%%02X", (unsigned char)*value);
}

static void put_target(struct buf *b, const char *user, const char *path)
{
    buf_puts(b, "/files");
    put_query(b, "path", path);
    if (user)
        put_query(b, "username", user);
}

/* What the other side said instead of doing it; closes. */
static int refused(struct exchange *x, struct err *err)
{
    AUTO(buf_free) struct buf reply = { 0 };
    struct err ignored = { 0 };

    x->body.max = REPLY_MAX;
    (void)!http_body_read_all(&x->body, &reply, &ignored);
    envd_problem(x->head.status, buf_str(&reply), err);
    client_close(x);
    return -1;
}

struct exchange *envd_read(struct envd *e, const char *user, const char *path, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf headers = { 0 };
    struct client_request rq = { .method = STR("GET"),
                                 .host = e->host ? str_of(e->host) : STR("guest") };
    struct exchange *x;

    put_target(&target, user, path);
    envd_put_headers(e, NULL, "json", &headers);
    buf_puts(&headers, "Accept-Encoding: identity\r\n");
    rq.target = buf_str(&target);
    rq.headers = buf_str(&headers);
    x = client_do(e->client, &e->to, &rq, err);
    if (!x)
        return NULL;
    x->body.max = UINT64_MAX;
    if (x->head.status == 200)
        return x;
    refused(x, err);
    return NULL;
}

struct exchange *envd_write(struct envd *e, const char *user, const char *path, int64_t mode,
                            int64_t size, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf headers = { 0 };
    struct client_request rq = { .method = STR("POST"),
                                 .host = e->host ? str_of(e->host) : STR("guest"),
                                 .length = size };
    char octal[16];

    put_target(&target, user, path);
    snprintf(octal, sizeof(octal), "%o", (unsigned)mode & 01777);
    if (mode >= 0)
        put_query(&target, "mode", octal);
    envd_put_headers(e, NULL, "octet-stream", &headers);
    rq.target = buf_str(&target);
    rq.headers = buf_str(&headers);
    return client_start(e->client, &e->to, &rq, err);
}

int envd_written(struct exchange *x, bool failed, struct err *err)
{
    struct err first = *err;
    int r = !failed && client_end(x, (struct str){ 0 }, err) ? -1 : 0;

    if (r)
        first = *err;
    if (client_answer(x, err) <= 0) {
        if (failed || r)
            *err = first; /* what broke it says more than the silence after it */
        client_close(x);
        return -1;
    }
    if (x->head.status != 200)
        return refused(x, err);
    (void)http_body_drain(&x->body, REPLY_MAX);
    client_close(x);
    return failed || r ? err_set(err, ERR_UPSTREAM, "the guest answered before it had all") : 0;
}
