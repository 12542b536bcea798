/* contract_file.c - the contract's files. Text travels as it is; bytes that are not UTF-8 cannot be
 * in JSON and travel as base64, which the answer says, so that what is read is what was written. */
#include "api/contract.h"
#include "api/tables.h"
#include "io/multipart.h"

enum { PIECE = 64 << 10, VALUE_MAX = CONTRACT_PATH_MAX };

#define ID_FIELD(type)                                                                             \
    FIELD(type, sandbox_id, F_STR, .flags = F_REQUIRED, .min = 1, .max = CONTRACT_ID_MAX,          \
          .help = "its sandbox_id or provider_sandbox_id")
#define PATH_FIELD(type, member)                                                                   \
    FIELD(type, member, F_STR, .flags = F_REQUIRED, .min = 1, .max = CONTRACT_PATH_MAX,            \
          .help = "absolute, or below the user's home")

static int reply_written(struct call *c, const char *path)
{
    return contract_reply(
        c, &(struct contract_done){
               .success = true,
               .message = arena_printf(&c->arena, "File written successfully to %s", path) });
}

/* ---- writing ---- */

struct write {
    char *sandbox_id, *file_path;
    struct bytes content;
    int64_t encoding;
};
enum { AS_TEXT, AS_BASE64 };
static const struct field_name encodings[] = { { "utf-8", AS_TEXT }, { "base64", AS_BASE64 }, {} };
static const struct field write_body[] = {
    ID_FIELD(struct write),
    PATH_FIELD(struct write, file_path),
    FIELD(struct write, content, F_TEXT, .flags = F_REQUIRED, .max = CONTRACT_FILE_MAX / 3 * 4 + 4,
          .help = "may be empty"),
    FIELD(struct write, encoding, F_ENUM, .names = encodings, .help = "of content"),
    {},
};

static int decode_content(struct call *c, const struct write *b, struct str *out, struct err *err)
{
    unsigned char *raw;
    ssize_t n;

    *out = (struct str){ (const char *)b->content.data, b->content.n };
    if (b->encoding == AS_TEXT)
        return out->n <= CONTRACT_FILE_MAX ? 0
                                           : err_set(err, ERR_TOO_LARGE,
                                                     "field 'content' is larger than %d bytes: use "
                                                     "upload-file",
                                                     CONTRACT_FILE_MAX);
    raw = arena_alloc(&c->arena, out->n / 4 * 3 + 1);
    n = base64_decode(*out, raw);
    if (n < 0)
        return err_set(err, ERR_INVALID, "field 'content' is not valid base64");
    *out = (struct str){ (const char *)raw, (size_t)n };
    return 0;
}

static int put_file(struct contract_box *box, const char *path, struct str content, struct err *err)
{
    struct exchange *x = envd_write(&box->guest, NULL, path, -1, (int64_t)content.n, err);

    if (!x)
        return -1;
    return envd_written(x, content.n && client_write(x, content.p, content.n, err) < 0, err);
}

static int write_file(struct call *c, void *body, struct err *err)
{
    const struct write *b = body;
    struct contract_box box;
    struct str content;
    int r;

    if (decode_content(c, b, &content, err) || contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    r = put_file(&box, b->file_path, content, err);
    return contract_leave(&box, r ? r : reply_written(c, b->file_path), err);
}

/* ---- reading ---- */

struct read {
    char *sandbox_id, *file_path;
    int64_t format;
};
static const struct field_name formats[] = { { "text", 0 }, { "bytes", 1 }, { "stream", 2 }, {} };
static const struct field read_body[] = {
    ID_FIELD(struct read),
    PATH_FIELD(struct read, file_path),
    FIELD(struct read, format, F_ENUM, .names = formats, .help = "of no effect: see encoding"),
    {},
};

struct was_read {
    bool success;
    struct bytes content;
    const char *message;
    int64_t encoding;
};
static const struct field was_read[] = {
    FIELD(struct was_read, success, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct was_read, content, F_TEXT, .flags = F_REQUIRED),
    FIELD(struct was_read, message, F_STR, .flags = F_REQUIRED | F_NULL),
    FIELD(struct was_read, encoding, F_ENUM, .flags = F_REQUIRED, .names = encodings,
          .help = "of content: base64 for what is not UTF-8"),
    {},
};

static int get_file(struct contract_box *box, const char *path, struct buf *out, struct err *err)
{
    AUTO(client_closep) struct exchange *x = envd_read(&box->guest, NULL, path, err);

    if (!x)
        return -1;
    x->body.max = CONTRACT_FILE_MAX;
    if (!http_body_read_all(&x->body, out, err))
        return 0;
    return err->code == ERR_TOO_LARGE
               ? err_set(err, ERR_TOO_LARGE,
                         "the file is larger than %d bytes: use download-to-presigned-url, or the "
                         "guest's /files",
                         CONTRACT_FILE_MAX)
               : -1;
}

static int reply_read(struct call *c, const struct buf *file)
{
    AUTO(buf_free) struct buf coded = { 0 };
    static unsigned char none[1];
    struct was_read view = {
        .success = true, .content = { file->len, file->len ? (unsigned char *)file->data : none }
    };

    if (!utf8_valid(buf_str(file))) {
        buf_reserve(&coded, base64_encoded_len(file->len));
        coded.len = base64_encode(file->data, file->len, coded.data);
        view.content = (struct bytes){ coded.len, (unsigned char *)coded.data };
        view.encoding = AS_BASE64;
    }
    return contract_reply(c, &view);
}

static int read_file(struct call *c, void *body, struct err *err)
{
    const struct read *b = body;
    AUTO(buf_free) struct buf file = { 0 };
    struct contract_box box;
    int r;

    if (contract_enter(&box, c, b->sandbox_id, err))
        return -1;
    r = get_file(&box, b->file_path, &file, err);
    return contract_leave(&box, r ? r : reply_read(c, &file), err);
}

/* ---- a form with a file ---- */

struct form {
    char *sandbox_id, *file_path;
    struct bytes file;
};
static const struct field form_fields[] = {
    ID_FIELD(struct form),
    PATH_FIELD(struct form, file_path),
    FIELD(struct form, file, F_BYTES, .flags = F_REQUIRED, .help = "the file"),
    {},
};

struct upload {
    struct call *call;
    struct contract_box box;
    struct exchange *to; /* the file, once both names are known */
    struct buf values[2], file;
    int part; /* of the form: 0 sandbox_id, 1 file_path, 2 file, -1 another */
    int64_t bytes;
    bool entered, have_file;
};

static int name_missing(const char *name, struct err *err)
{
    return err_set(err, ERR_INVALID, "field '%s' is missing", name);
}

/* The file goes straight on when it comes last, as clients write it; else it waits here. */
static int open_target(struct upload *u, struct err *err)
{
    if (!u->values[0].len || !u->values[1].len)
        return name_missing(u->values[0].len ? "file_path" : "sandbox_id", err);
    if (contract_enter(&u->box, u->call, buf_cstr(&u->values[0]), err))
        return -1;
    u->entered = true;
    u->to = envd_write(&u->box.guest, NULL, buf_cstr(&u->values[1]), -1, CLIENT_CHUNKED, err);
    return u->to ? 0 : -1;
}

static int begin_part(struct upload *u, struct str name, struct err *err)
{
    u->part = str_is(name, "sandbox_id") ? 0 : str_is(name, "file_path") ? 1 : -1;
    if (!str_is(name, "file"))
        return 0;
    if (u->have_file)
        return err_set(err, ERR_INVALID, "field 'file' is given twice");
    u->part = 2;
    u->have_file = true;
    return u->values[0].len && u->values[1].len ? open_target(u, err) : 0;
}

static int take_file(struct upload *u, struct str data, struct err *err)
{
    int64_t max = u->to ? contract_limits.upload_bytes : CONTRACT_FILE_MAX;

    u->bytes += (int64_t)data.n;
    if (u->bytes > max)
        return err_set(err, ERR_TOO_LARGE, "field 'file' is larger than %lld bytes%s",
                       (long long)max,
                       u->to ? " (contract.upload-bytes)" : ": send it behind the other fields");
    if (u->to)
        return client_write(u->to, data.p, data.n, err);
    buf_add_str(&u->file, data);
    return 0;
}

static int take_data(struct upload *u, struct str data, struct err *err)
{
    if (u->part == 2)
        return take_file(u, data, err);
    if (u->part < 0)
        return 0;
    if (u->values[u->part].len + data.n > VALUE_MAX || memchr(data.p, 0, data.n))
        return err_set(err, ERR_INVALID, "field '%s' is not a name of at most %d bytes",
                       form_fields[u->part].name, VALUE_MAX);
    buf_add_str(&u->values[u->part], data);
    return 0;
}

static int read_form(struct upload *u, struct multipart *m, struct err *err)
{
    char *piece = arena_alloc(&u->call->arena, PIECE);

    for (;;) {
        ssize_t n;
        int event = multipart_next(m, err);

        switch (event) {
        case MULTIPART_END: return 0;
        case MULTIPART_PART:
            if (begin_part(u, m->name, err))
                return -1;
            break;
        case MULTIPART_DATA:
            if (take_data(u, m->data, err))
                return -1;
            break;
        case MULTIPART_MORE:
            n = call_read(u->call, piece, PIECE, err);
            if (n < 0)
                return -1;
            if (!n)
                return err_set(err, ERR_INVALID, "the form ends in the middle");
            multipart_feed(m, (struct str){ piece, (size_t)n });
            break;
        default: return -1;
        }
    }
}

static int finish_file(struct upload *u, struct err *err)
{
    if (!u->have_file)
        return name_missing("file", err);
    if (!u->to && (open_target(u, err) ||
                   (u->file.len && client_write(u->to, u->file.data, u->file.len, err))))
        return -1;
    return envd_written(TAKE(u->to, NULL), false, err);
}

static int receive(struct upload *u, struct err *err)
{
    struct multipart m;
    int r;

    if (multipart_init(&m, http_get(&u->call->head, "content-type"), err))
        return -1;
    r = read_form(u, &m, err);
    multipart_finish(&m);
    if (r && u->to && err->code == ERR_UPSTREAM) /* the guest may have said why it stopped */
        return envd_written(TAKE(u->to, NULL), true, err);
    return r ? -1 : finish_file(u, err);
}

static int upload_file(struct call *c, void *body, struct err *err)
{
    struct upload *u = arena_alloc(&c->arena, sizeof(*u));
    int r;

    (void)body;
    u->call = c;
    r = receive(u, err);
    if (!r)
        r = reply_written(c, buf_cstr(&u->values[1]));
    if (u->to)
        client_close(u->to);
    if (u->entered)
        r = contract_leave(&u->box, r, err);
    buf_free(&u->values[0]);
    buf_free(&u->values[1]);
    buf_free(&u->file);
    return r;
}

/* ---- directories ---- */

struct directory {
    char *sandbox_id, *directory_path;
    bool exist_ok;
};
static const struct field directory_query[] = {
    ID_FIELD(struct directory),
    PATH_FIELD(struct directory, directory_path),
    FIELD(struct directory, exist_ok, F_BOOL, .help = "one that is there already is fine"),
    {},
};

/* It is there: a directory, or something else of that name? */
static int check_directory(struct contract_box *box, const char *path, struct err *err)
{
    struct envd_entry e;

    if (envd_stat(&box->guest, NULL, path, &box->call->arena, &e, err))
        return -1;
    return e.type == ENVD_DIRECTORY || e.leads_to_dir
               ? 0
               : err_set(err, ERR_CONFLICT, "%.200s exists and is no directory", path);
}

static int make_directory(struct contract_box *box, const struct directory *q, struct err *err)
{
    if (envd_make_dir(&box->guest, NULL, q->directory_path, err) &&
        (err->code != ERR_CONFLICT || !q->exist_ok || check_directory(box, q->directory_path, err)))
        return -1;
    return contract_reply(
        box->call,
        &(struct contract_done){ .success = true,
                                 .message = arena_printf(&box->call->arena,
                                                         "Directory created successfully at %s",
                                                         q->directory_path) });
}

static int create_directory(struct call *c, void *body, struct err *err)
{
    struct directory q = { 0 };
    struct contract_box box;

    (void)body;
    if (api_query(c, &q, err) || contract_enter(&box, c, q.sandbox_id, err))
        return -1;
    return contract_leave(&box, make_directory(&box, &q, err), err);
}

const struct route contract_file_routes[] = {
    { "POST", CONTRACT "/write-file", ROUTE_JSON, ROUTE_LENIENT, write_body, sizeof(struct write),
      write_file, "write_file", "Write a file, whole or not at all; parents are made.",
      .reply = contract_file_reply, .body_max = CONTRACT_BODY_MAX, .tag = CONTRACT_TAGS },
    { "POST", CONTRACT "/read-file", ROUTE_JSON, ROUTE_LENIENT, read_body, sizeof(struct read),
      read_file, "read_file", "Read a file.", .reply = was_read, .body_max = API_BODY_MAX,
      .tag = CONTRACT_TAGS },
    { "POST", CONTRACT "/upload-file", ROUTE_RAW, ROUTE_FORM, form_fields, .fn = upload_file,
      .operation = "upload_file", .help = "Write a file of any size and content.",
      .reply = contract_file_reply, .body_max = INT64_MAX, .tag = CONTRACT_TAGS },
    { "POST", CONTRACT "/create-directory", ROUTE_RAW, ROUTE_LENIENT, .fn = create_directory,
      .operation = "create_directory", .help = "Make a directory and those above it.",
      .query = directory_query, .reply = contract_file_reply, .tag = CONTRACT_TAGS },
    {}
};
