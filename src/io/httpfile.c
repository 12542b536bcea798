/* httpfile.c - see httpfile.h.
 *
 * The bytes go by sendfile on a worker, because a cold page cache blocks; the worker works until
 * the socket is full and the loop waits for it, so a slow client holds no thread. */
#include "io/httpfile.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/mem.h"

enum { SEND_STEP = 1 << 20, SEND_TURN = 64 << 20 };

int http_parse_range(struct str value, int64_t size, struct http_range *out)
{
    struct str first, last;
    uint64_t a, b;

    if (!str_starts(value, "bytes="))
        return 0;
    value = str_trim((struct str){ value.p + 6, value.n - 6 });
    if (!str_cut(value, '-', &first, &last))
        return 0;
    if (!first.n) { /* the last so many bytes */
        if (str_u64(last, &b))
            return 0;
        if (!b || !size)
            return -1;
        out->length = b > (uint64_t)size ? size : (int64_t)b;
        out->first = size - out->length;
        return 1;
    }
    if (str_u64(first, &a) || (last.n && str_u64(last, &b)))
        return 0;
    if (!last.n || b >= (uint64_t)size)
        b = (uint64_t)MAX(size - 1, (int64_t)0);
    if (a >= (uint64_t)size)
        return -1;
    if (b < a)
        return 0;
    *out = (struct http_range){ (int64_t)a, (int64_t)(b - a + 1) };
    return 1;
}

const char *http_type_of(const char *name)
{
    static const struct {
        const char *ext, *type;
    } types[] = {
        { "txt", "text/plain; charset=utf-8" },
        { "html", "text/html; charset=utf-8" },
        { "htm", "text/html; charset=utf-8" },
        { "css", "text/css; charset=utf-8" },
        { "js", "text/javascript; charset=utf-8" },
        { "json", "application/json" },
        { "md", "text/markdown; charset=utf-8" },
        { "csv", "text/csv; charset=utf-8" },
        { "xml", "text/xml; charset=utf-8" },
        { "png", "image/png" },
        { "jpg", "image/jpeg" },
        { "jpeg", "image/jpeg" },
        { "gif", "image/gif" },
        { "svg", "image/svg+xml" },
        { "webp", "image/webp" },
        { "pdf", "application/pdf" },
        { "wasm", "application/wasm" },
        { "zip", "application/zip" },
        { "gz", "application/gzip" },
        { "mp4", "video/mp4" },
    };
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot && i < ARRAY_LEN(types); i++)
        if (str_iis(str_of(dot + 1), types[i].ext))
            return types[i].type;
    return "application/octet-stream";
}

struct sending {
    struct conn *to;
    int out, in;
    off_t pos, end;
    int error; /* 0 all sent, EAGAIN the socket is full */
};

static void send_some(void *arg)
{
    struct sending *s = arg;
    off_t began = s->pos, stop = MIN(s->end, s->pos + SEND_TURN);

    s->error = 0;
    while (s->pos < stop) {
        ssize_t n = sendfile(s->out, s->in, &s->pos, (size_t)MIN(stop - s->pos, (off_t)SEND_STEP));

        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (n < 0 && errno == EAGAIN && co_linger_in_call(s->out, CO_OUT, s->pos - began))
            continue;
        s->error = n ? errno : ENODATA; /* ENODATA: the file became shorter */
        return;
    }
}

/* Whole segments only, the head in the first: fewer of them, and fewer wake-ups of the reader. */
static void set_cork(int fd, int on)
{
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)); /* not TCP: no harm */
}

static int send_all(struct sending *s, struct err *err)
{
    while (s->pos < s->end) {
        co_call(send_some, s);
        if (s->error == EAGAIN && conn_wait_room(s->to, co_in(http_limits.write_ms)))
            return err_set(err, ERR_GONE, "the client stopped reading");
        if (s->error && s->error != EAGAIN)
            return err_set(err, ERR_GONE, "sending a file: %s", strerrordesc_np(s->error));
    }
    return 0;
}

struct reading {
    int fd;
    off_t pos;
    size_t want;
    ssize_t got;
    char bytes[64 << 10];
};

static void read_some(void *arg)
{
    struct reading *r = arg;

    do
        r->got = pread(r->fd, r->bytes, r->want, r->pos);
    while (r->got < 0 && errno == EINTR);
    if (r->got < 0)
        r->got = -errno;
}

/* Through a layer the kernel cannot send by itself: piece by piece, each read on a worker. */
static int send_layered(struct call *c, int fd, const struct http_range *range, struct err *err)
{
    AUTO(freep) struct reading *r = xmalloc(sizeof(*r));

    r->fd = fd;
    r->pos = range->first;
    while (r->pos < range->first + range->length) {
        r->want = (size_t)MIN(range->first + range->length - r->pos, (off_t)sizeof(r->bytes));
        co_call(read_some, r);
        if (r->got <= 0)
            return err_set(err, ERR_GONE, "sending a file: %s",
                           r->got ? strerrordesc_np((int)-r->got) : "it became shorter");
        if (call_send(c, r->bytes, (size_t)r->got))
            return err_set(err, ERR_GONE, "the client left");
        r->pos += r->got;
    }
    return 0;
}

static int send_bytes(struct call *c, int fd, const struct http_range *r, struct err *err)
{
    struct sending s = {
        .to = c->conn, .out = c->conn->fd, .in = fd, .pos = r->first, .end = r->first + r->length
    };
    int result;

    if (c->conn->ops)
        return send_layered(c, fd, r, err);
    set_cork(s.out, 1);
    result = call_flush(c) ? err_set(err, ERR_GONE, "the client left") : send_all(&s, err);
    set_cork(s.out, 0);
    return result;
}

static bool unchanged(struct call *c, const char *etag, const struct stat *st)
{
    struct str match = http_get(&c->head, "if-none-match"),
               since = http_get(&c->head, "if-modified-since");

    if (match.p)
        return str_is(match, "*") || str_has_item(match, etag);
    return since.p && clock_parse_http_date(since) >= st->st_mtim.tv_sec;
}

/* If-Range: a range only of the file the client has the rest of. */
static bool range_wanted(struct call *c, const char *etag, const struct stat *st)
{
    struct str given = http_get(&c->head, "if-range");

    return !given.p || str_is(given, etag) || clock_parse_http_date(given) == st->st_mtim.tv_sec;
}

int call_send_file(struct call *c, int fd, const struct stat *st, const char *type, struct err *err)
{
    struct http_range r = { 0, st->st_size };
    char etag[48], date[32], text[80];
    int partial = 0;

    snprintf(etag, sizeof(etag), "\"%llx-%lx-%llx\"", (unsigned long long)st->st_mtim.tv_sec,
             (unsigned long)st->st_mtim.tv_nsec, (unsigned long long)st->st_size);
    clock_http_date_of(st->st_mtim.tv_sec, date);
    call_header(c, "ETag", etag);
    call_header(c, "Last-Modified", date);
    call_header(c, "Accept-Ranges", "bytes");
    if (unchanged(c, etag, st))
        return call_reply(c, 304, NULL, (struct str){ 0 });
    if (range_wanted(c, etag, st))
        partial = http_parse_range(http_get(&c->head, "range"), st->st_size, &r);
    if (partial < 0) {
        snprintf(text, sizeof(text), "bytes */%lld", (long long)st->st_size);
        call_header(c, "Content-Range", text);
        return call_reply(c, 416, "text/plain", STR("the range lies outside the file\n"));
    }
    if (partial) {
        snprintf(text, sizeof(text), "bytes %lld-%lld/%lld", (long long)r.first,
                 (long long)(r.first + r.length - 1), (long long)st->st_size);
        call_header(c, "Content-Range", text);
    }
    if (call_begin(c, partial ? 206 : 200, type, r.length))
        return err_set(err, ERR_GONE, "the client left");
    return c->head_only ? 0 : send_bytes(c, fd, &r, err);
}
