/* contract_url.c - files between a sandbox and URLs that its user names. The request goes out from
 * this server, which stands where the user does not: io/fetch decides what may be reached. Neither
 * end is held in memory; a file inside appears whole or not at all. */
#include "api/contract.h"
#include "api/tables.h"
#include "io/fetch.h"

enum { URL_MAX = 8192 };

#define ID_FIELD(type)                                                                             \
    FIELD(type, sandbox_id, F_STR, .flags = F_REQUIRED, .min = 1, .max = CONTRACT_ID_MAX,          \
          .help = "its sandbox_id or provider_sandbox_id")

static int fetch_of(struct call *c, struct fetch **out, struct err *err)
{
    *out = api_of(c)->fetch;
    return *out ? 0 : err_set(err, ERR_UNSUPPORTED, "this server fetches nothing from URLs");
}

/* ---- a URL's file into the sandbox ---- */

struct from_url {
    char *sandbox_id, *file_path, *url;
};
static const struct field from_url_body[] = {
    ID_FIELD(struct from_url),
    FIELD(struct from_url, file_path, F_STR, .flags = F_REQUIRED, .min = 1,
          .max = CONTRACT_PATH_MAX, .help = "absolute, or below the user's home"),
    FIELD(struct from_url, url, F_STR, .flags = F_REQUIRED, .min = 1, .max = URL_MAX,
          .help = "http or https, of a public address"),
    {},
};

struct landing {
    struct contract_box *box;
    const char *path;
    struct exchange *to;
};

static int open_landing(struct landing *l, struct err *err)
{
    if (!l->to)
        l->to = envd_write(&l->box->guest, NULL, l->path, -1, CLIENT_CHUNKED, err);
    return l->to ? 0 : -1;
}

static int land(void *arg, const void *p, size_t n, struct err *err)
{
    struct landing *l = arg;

    if (open_landing(l, err))
        return -1;
    if (!client_write(l->to, p, n, err))
        return 0;
    return envd_written(TAKE(l->to, NULL), true, err); /* the guest may have said why */
}

static int fetch_into(struct contract_box *box, const struct from_url *b, struct err *err)
{
    struct fetch_bounds bounds = { .max_bytes = contract_limits.upload_bytes };
    struct landing l = { .box = box, .path = b->file_path };
    struct fetch_result result;
    struct fetch *f;
    int r;

    if (fetch_of(box->call, &f, err))
        return -1;
    r = fetch_get(f, str_of(b->url), &bounds, land, &l, &result, err);
    if (!r && !open_landing(&l, err)) /* an empty answer is an empty file */
        r = envd_written(TAKE(l.to, NULL), false, err);
    else
        r = -1;
    if (l.to)
        client_close(l.to);
    if (r)
        return -1;
    return contract_reply(box->call, &(struct contract_done){
                                         .success = true,
                                         .message = arena_printf(
                                             &box->call->arena, "File of %lld bytes uploaded to %s",
                                             (long long)result.bytes, b->file_path) });
}

static int upload_file_from_url(struct call *c, void *body, struct err *err)
{
    const struct from_url *b = body;
    struct contract_box box;

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    return contract_leave(&box, fetch_into(&box, b, err), err);
}

/* ---- a sandbox's file to a URL ---- */

struct to_url {
    char *sandbox_id, *sandbox_path, *presigned_url;
    int64_t format;
};
static const struct field_name formats[] = { { "text", 0 }, { "bytes", 1 }, {} };
static const struct field to_url_body[] = {
    ID_FIELD(struct to_url),
    FIELD(struct to_url, sandbox_path, F_STR, .flags = F_REQUIRED, .min = 1,
          .max = CONTRACT_PATH_MAX, .help = "absolute, or below the user's home"),
    FIELD(struct to_url, presigned_url, F_STR, .flags = F_REQUIRED, .min = 1, .max = URL_MAX,
          .help = "http or https, of a public address; the file is PUT there"),
    FIELD(struct to_url, format, F_ENUM, .names = formats,
          .help = "of no effect: bytes are sent as they are"),
    {},
};

struct leaving {
    struct contract_box *box;
    const char *path;
    struct exchange *from;
    int64_t left, size;
};

static int begin_leaving(void *arg, struct err *err)
{
    struct leaving *l = arg;

    if (l->from)
        client_close(TAKE(l->from, NULL));
    l->left = l->size;
    l->from = envd_read(&l->box->guest, NULL, l->path, err);
    return l->from ? 0 : -1;
}

static ssize_t read_leaving(void *arg, void *buf, size_t n, struct err *err)
{
    struct leaving *l = arg;
    ssize_t got;

    if (!l->left) /* what it has grown by meanwhile was not announced */
        return 0;
    got = http_body_read(&l->from->body, buf, (size_t)MIN((int64_t)n, l->left), err);
    if (!got)
        return err_set(err, ERR_CONFLICT, "%.150s became shorter while it was read", l->path);
    if (got > 0)
        l->left -= got;
    return got;
}

static int measure(struct leaving *l, struct err *err)
{
    struct envd_entry e;

    if (envd_stat(&l->box->guest, NULL, l->path, &l->box->call->arena, &e, err))
        return -1;
    if (e.type == ENVD_DIRECTORY || e.leads_to_dir)
        return err_set(err, ERR_INVALID, "path '%.150s' is a directory", l->path);
    l->size = e.size;
    if (e.size > contract_limits.upload_bytes)
        return err_set(err, ERR_TOO_LARGE,
                       "%.100s has %lld bytes; contract.upload-bytes allows %lld", l->path,
                       (long long)e.size, (long long)contract_limits.upload_bytes);
    return 0;
}

static int send_from(struct contract_box *box, const struct to_url *b, struct err *err)
{
    struct fetch_bounds bounds = { .max_bytes = contract_limits.upload_bytes };
    struct leaving l = { .box = box, .path = b->sandbox_path };
    struct fetch_source source = { .begin = begin_leaving, .read = read_leaving, .arg = &l };
    struct fetch_result result;
    struct fetch *f;
    int r;

    if (fetch_of(box->call, &f, err) || measure(&l, err))
        return -1;
    source.length = l.size;
    r = fetch_put(f, str_of(b->presigned_url), &bounds, &source, &result, err);
    if (l.from)
        client_close(l.from);
    if (r)
        return -1;
    return contract_reply(
        box->call, &(struct contract_done){
                       .success = true,
                       .message = arena_printf(&box->call->arena,
                                               "File of %lld bytes sent to the presigned URL",
                                               (long long)result.bytes) });
}

static int download_to_presigned_url(struct call *c, void *body, struct err *err)
{
    const struct to_url *b = body;
    struct contract_box box;

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    return contract_leave(&box, send_from(&box, b, err), err);
}

#define TAG .body_max = API_BODY_MAX, .tag = CONTRACT_TAGS

const struct route contract_url_routes[] = {
    { "POST", CONTRACT "/upload-file-from-url", ROUTE_JSON, ROUTE_LENIENT, from_url_body,
      sizeof(struct from_url), upload_file_from_url, "upload_file_from_url",
      "Fetch a file from a URL into the sandbox.", .reply = contract_file_reply, TAG },
    { "POST", CONTRACT "/download-to-presigned-url", ROUTE_JSON, ROUTE_LENIENT, to_url_body,
      sizeof(struct to_url), download_to_presigned_url, "download_to_presigned_url",
      "Send a file of the sandbox to a URL by PUT.", .reply = contract_done, TAG },
    {}
};
