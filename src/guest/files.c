/* files.c - GET and POST /files: whole files in and out, streamed both ways. compose.c joins them.
 *
 * An upload runs on a worker that reads the socket and writes the file until the socket is empty,
 * then the loop waits for more: neither a slow disk nor a slow client holds the loop or a thread.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "guest/auth.h"
#include "guest/files.h"
#include "guest/path.h"
#include "guest/upload.h"
#include "io/gzip.h"
#include "io/httpfile.h"
#include "io/multipart.h"

enum { COPY = FILES_COPY, METADATA_TOTAL = 4096, METADATA_KEY = 246 };

/* The user and path of the query; the user may also come by Basic. */
static int query_user(struct call *c, struct user *out, struct err *err)
{
    struct str name = call_query(c, "username", err);

    if (err->code)
        return -1;
    return name.n ? user_find(call_guest(c), &c->arena, name.p, out, err) : auth_user(c, out, err);
}

/* ---- download ---- */

int files_open(struct files_opening *o, struct err *err)
{
    AUTO(closep) int fd = path_open(o->root, o->path, O_PATH, 0);

    if (fd < 0 || fstat(fd, &o->st))
        return err_sys(err, "file '%.150s'", o->path);
    if (!S_ISREG(o->st.st_mode)) /* before a real open: that alone can do harm to a device */
        return err_set(err, ERR_INVALID, "path '%.150s' is %s", o->path,
                       S_ISDIR(o->st.st_mode) ? "a directory" : "not a regular file");
    o->fd = path_reopen(fd, O_RDONLY | O_NONBLOCK);
    return o->fd < 0 ? err_sys(err, "file '%.150s'", o->path) : 0;
}

static int work_open(void *arg, struct err *err) { return files_open(arg, err); }

static int emit_chunk(void *arg, const void *p, size_t n) { return call_send(arg, p, n); }

struct reading {
    int fd;
    char *buf;
    ssize_t n;
};

static void read_some(void *arg)
{
    struct reading *r = arg;

    r->n = read(r->fd, r->buf, COPY);
}

static int send_gzip(struct call *c, int fd, const char *type, struct err *err)
{
    struct reading r = { fd, xmalloc(COPY), 0 };
    struct gzip *g = gzip_create();
    int failed;

    call_header(c, "Content-Encoding", "gzip");
    failed = call_begin(c, 200, type, -1);
    while (!failed && !c->head_only) {
        co_call(read_some, &r);
        failed = r.n < 0 || gzip_write(g, (struct str){ r.buf, (size_t)MAX(r.n, (ssize_t)0) },
                                       r.n == 0, emit_chunk, c);
        if (!r.n)
            break;
    }
    gzip_destroy(g);
    free(r.buf);
    return failed || call_end(c) ? err_set(err, ERR_GONE, "the client left") : 0;
}

/* Weights of a coding in Accept-Encoding: -1 not named, else 0 (refused) or 1. */
static int accepts(struct str list, const char *coding)
{
    struct str item, name, params;

    while (str_next(&list, ',', &item)) {
        str_cut(item, ';', &name, &params);
        if (!str_iis(str_trim(name), coding))
            continue;
        params = str_trim(params);
        for (size_t i = 2; i < params.n && str_starts(params, "q="); i++)
            if (params.p[i] != '0' && params.p[i] != '.')
                return 1;
        return params.n && str_starts(params, "q=") ? 0 : 1;
    }
    return -1;
}

/* gzip only for a client that names it alone (as the SDKs do when told to): one that lists it among
 * others is served faster with the bytes as they are. */
static int choose_gzip(struct call *c, bool *gzip, struct err *err)
{
    struct str list = http_get(&c->head, "accept-encoding");
    bool identity_refused = accepts(list, "identity") == 0 ||
                            (accepts(list, "*") == 0 && accepts(list, "identity") < 0);

    *gzip = accepts(list, "gzip") == 1 && (identity_refused || str_iis(str_trim(list), "gzip"));
    if (identity_refused && !*gzip)
        return err_set(err, ERR_NOT_ACCEPTABLE, "Accept-Encoding refuses both identity and gzip");
    return 0;
}

static void put_disposition(struct call *c, const char *path)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *name = strrchr(path, '/');

    name = name ? name + 1 : path;
    buf_puts(&b, "inline; filename=\"");
    for (const char *p = name; *p; p++)
        buf_putc(&b, *p < ' ' || *p == '"' || *p == '\\' || *p == 127 ? '_' : *p);
    buf_putc(&b, '"');
    call_header(c, "Content-Disposition", buf_cstr(&b));
}

static int get_file(struct call *c, void *body, struct err *err)
{
    struct user *u = arena_alloc(&c->arena, sizeof(*u));
    struct files_opening o = { .root = call_guest(c)->root, .fd = -1 };
    struct str path = call_query(c, "path", err);
    bool gzip;
    int r;

    (void)body;
    if (err->code || query_user(c, u, err) || choose_gzip(c, &gzip, err))
        return -1;
    o.path = path_expand(&c->arena, path.p ? path.p : "", u, call_guest(c)->default_workdir);
    if (guest_work(work_open, &o, err))
        return -1;
    put_disposition(c, o.path);
    call_header(c, "Vary", "Accept-Encoding");
    r = gzip ? send_gzip(c, o.fd, http_type_of(o.path), err)
             : call_send_file(c, o.fd, &o.st, http_type_of(o.path), err);
    close(o.fd);
    return r;
}

/* ---- upload ---- */

struct receiving {
    struct call *call;
    struct user user;
    const char *workdir;
    struct map metadata;
    const char *path; /* of the query; NULL: each part says its own */
    char *buf;
    struct upload upload;
    bool open;            /* upload holds a file that is being written */
    struct multipart *mp; /* NULL: the body is the file */
    struct strs done;     /* paths written, for the answer */
    size_t done_cap;
    struct inodes written; /* the same files, whatever each is called */
    bool more;             /* the worker stopped because the socket is empty */
    int mode;              /* of the query, octal; -1: none */
};

static int target(struct receiving *r, const char *path, struct err *err)
{
    struct call *c = r->call;
    char *full = path_expand(&c->arena, path, &r->user, r->workdir);

    if (r->done.n == r->done_cap) {
        r->done_cap = r->done_cap ? r->done_cap * 2 : 8;
        r->done.items = xrealloc(r->done.items, r->done_cap * sizeof(char *));
    }
    r->done.items[r->done.n++] = full;
    r->open = true;
    return upload_begin(&r->upload, &c->arena, call_guest(c)->root, full, &r->user, &r->metadata,
                        err);
}

static int finish_file(struct receiving *r, struct err *err)
{
    int result;

    r->upload.mode = r->mode;
    r->upload.earlier = &r->written;
    result = upload_commit(&r->upload, err);
    if (!result)
        inode_add(&r->written, r->upload.written);
    upload_finish(&r->upload);
    r->open = false;
    return result;
}

static int begin_part(struct receiving *r, struct err *err)
{
    const struct multipart *m = r->mp;

    if (!str_is(m->name, "file"))
        return 0; /* other fields of a form are passed over */
    if (r->path)
        return m->parts > 1 && r->done.n
                   ? err_set(err, ERR_INVALID, "the upload has several files but ?path names one")
                   : target(r, r->path, err);
    if (!m->filename.n)
        return err_set(err, ERR_INVALID, "a part has no filename and the URL has no ?path");
    return target(r, arena_strdup(&r->call->arena, m->filename), err);
}

/* Hands what was read to the multipart parser, and its files to the disk. */
static int take_parts(struct receiving *r, struct str in, struct err *err)
{
    multipart_feed(r->mp, in);
    for (;;) {
        int event = multipart_next(r->mp, err);

        if (event < 0)
            return -1;
        if ((event == MULTIPART_PART || event == MULTIPART_END) && r->open && finish_file(r, err))
            return -1;
        if (event == MULTIPART_PART && begin_part(r, err))
            return -1;
        if (event == MULTIPART_DATA && r->open && upload_write(&r->upload, r->mp->data, err))
            return -1;
        if (event == MULTIPART_MORE || event == MULTIPART_END)
            return 0;
    }
}

static int at_end(struct receiving *r, struct err *err)
{
    if (!r->mp)
        return finish_file(r, err);
    multipart_feed(r->mp, (struct str){ 0 });
    return multipart_next(r->mp, err) == MULTIPART_END
               ? 0
               : err_set(err, ERR_INVALID, "the multipart body has no closing boundary");
}

/* Reads and writes until the body ends (0), fails (-1), or the socket is empty (more is set). */
static int receive(void *arg, struct err *err)
{
    struct receiving *r = arg;
    size_t moved = 0;

    r->more = false;
    if (!r->mp && !r->open && target(r, r->path, err))
        return -1;
    for (;;) {
        ssize_t n = call_read(r->call, r->buf, COPY, err);
        struct str in = { r->buf, (size_t)MAX(n, (ssize_t)0) };

        moved += in.n;
        if (n < 0 && errno == EAGAIN && !err->code) {
            if (co_linger_in_call(r->call->conn->fd, CO_IN, (int64_t)moved))
                continue;
            r->more = true;
            return 0;
        }
        if (n < 0)
            return -1;
        if (n == 0)
            return at_end(r, err);
        if (r->mp ? take_parts(r, in, err) : upload_write(&r->upload, in, err))
            return -1;
    }
}

static int receive_all(struct receiving *r, struct err *err)
{
    struct conn *conn = r->call->conn;
    int result;

    if (http_body_want(&r->call->body, err))
        return -1;
    do {
        conn->nowait = true;
        result = guest_work(receive, r, err);
        conn->nowait = false;
        if (!result && r->more && conn_wait(conn, co_in(http_limits.body_ms)))
            result = errno == ETIMEDOUT ? err_set(err, ERR_TIMEOUT,
                                                  "the upload paused longer than http.body-ms=%lld",
                                                  (long long)http_limits.body_ms)
                                        : err_set(err, ERR_GONE, "the client left");
    } while (!result && r->more);
    return result;
}

/* X-Metadata-<key>: value */
static int read_metadata(struct call *c, struct map *out, struct err *err)
{
    size_t total = 0;

    out->items = arena_alloc(&c->arena, sizeof(*out->items) * (size_t)c->head.count);
    for (int i = 0; i < c->head.count; i++) {
        struct str name = c->head.field[i].name, value = c->head.field[i].value, key;

        if (name.n < 11 || !str_iis((struct str){ name.p, 11 }, "x-metadata-"))
            continue;
        key = (struct str){ name.p + 11, name.n - 11 };
        total += key.n + value.n;
        if (!key.n || key.n > METADATA_KEY || total > METADATA_TOTAL)
            return err_set(err, ERR_INVALID,
                           "X-Metadata-%.*s: a key has 1 to %d bytes, all metadata at most %d",
                           (int)MIN(key.n, (size_t)64), key.p, METADATA_KEY, METADATA_TOTAL);
        for (size_t k = 0; k < value.n; k++)
            if (value.p[k] < ' ' || value.p[k] > '~')
                return err_set(err, ERR_INVALID, "X-Metadata value is not printable ASCII");
        out->items[out->n].key = arena_strdup(&c->arena, key);
        for (char *p = out->items[out->n].key; *p; p++)
            *p = (char)tolower((unsigned char)*p);
        out->items[out->n++].value = arena_strdup(&c->arena, value);
    }
    return 0;
}

/* ?mode=640, beyond E2B's own parameters */
static int query_mode(struct call *c, int *out, struct err *err)
{
    struct str text = call_query(c, "mode", err);
    int mode = 0;

    *out = -1;
    if (!text.p)
        return err->code ? -1 : 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '7' || text.n > 4)
            mode = 010000;
        mode = mode * 8 + (text.p[i] & 7);
    }
    if (!text.n || mode > 01777)
        return err_set(err, ERR_INVALID, "query parameter 'mode' must be octal, up to 1777");
    *out = mode;
    return 0;
}

void files_put_written(struct buf *json, const char *path, const struct map *metadata)
{
    const char *name = strrchr(path, '/');

    json_open(json, '{');
    json_kv_str(json, "path", path);
    json_kv_str(json, "name", name ? name + 1 : path);
    json_kv_str(json, "type", "file");
    if (metadata->n) {
        json_key(json, "metadata");
        json_open(json, '{');
        for (size_t i = 0; i < metadata->n; i++)
            json_kv_str(json, metadata->items[i].key, metadata->items[i].value);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static int begin_body(struct receiving *r, struct multipart *mp, struct err *err)
{
    struct call *c = r->call;
    struct str type = http_get(&c->head, "content-type"), media, rest;

    str_cut(type, ';', &media, &rest);
    media = str_trim(media);
    if (str_iis(media, "multipart/form-data")) {
        if (multipart_init(mp, type, err))
            return -1;
        r->mp = mp;
        return 0;
    }
    if (!str_iis(media, "application/octet-stream"))
        return err_set(err, ERR_INVALID,
                       "Content-Type must be multipart/form-data or application/octet-stream");
    if (!r->path)
        return err_set(err, ERR_INVALID, "query parameter 'path' is missing");
    return 0;
}

static int reply_written(struct receiving *r, struct err *err)
{
    AUTO(buf_free) struct buf json = { 0 };

    if (!r->done.n)
        return err_set(err, ERR_INVALID, "the upload has no part named 'file'");
    json_open(&json, '[');
    for (size_t i = 0; i < r->done.n; i++)
        files_put_written(&json, r->done.items[i], &r->metadata);
    json_close(&json, ']');
    return call_reply_json(r->call, 200, &json);
}

static int post_files(struct call *c, void *body, struct err *err)
{
    struct receiving *r = arena_alloc(&c->arena, sizeof(*r));
    struct multipart *mp = arena_alloc(&c->arena, sizeof(*mp));
    struct str path = call_query(c, "path", err);
    int result;

    (void)body;
    r->call = c;
    r->path = path.n ? path.p : NULL;
    r->workdir = call_guest(c)->default_workdir;
    if (r->workdir)
        r->workdir = arena_strdup(&c->arena, str_of(r->workdir));
    if (err->code || query_user(c, &r->user, err) || read_metadata(c, &r->metadata, err) ||
        query_mode(c, &r->mode, err))
        return -1;
    r->buf = xmalloc(COPY);
    result = begin_body(r, mp, err);
    if (!result)
        result = receive_all(r, err);
    if (!result)
        result = reply_written(r, err);
    if (r->open)
        upload_finish(&r->upload);
    if (r->mp)
        multipart_finish(r->mp);
    inode_free(&r->written);
    free(r->done.items);
    free(r->buf);
    return result;
}

const struct route files_routes[] = {
    { "GET", "/files", ROUTE_RAW, ROUTE_SIGNED, NULL, 0, get_file, "DownloadFile",
      "Download a file", 0 },
    { "POST", "/files", ROUTE_RAW, ROUTE_SIGNED, NULL, 0, post_files, "UploadFile",
      "Upload one file or several", 0 },
    { "POST", "/files/compose", ROUTE_RAW, 0, files_compose_fields, 0, files_compose,
      "ComposeFiles", "Join files into one", 0 },
    {},
};
