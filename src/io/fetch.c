/* fetch.c - see fetch.h. Requests, redirects and bounds; fetch_dial.c finds whom to ask. */
#include "io/fetch.h"

#include <errno.h>

#include "base/mem.h"
#include "io/fetch_impl.h"

struct fetch_limits fetch_limits = {
    .max_bytes = 1LL << 30,
    .total_ms = 300 * 1000,
    .redirects = 5,
    .at_once = 32,
    .resolving = 4,
    .resolve_ms = 10 * 1000,
    .expect_ms = 1000,
};

const struct setting fetch_settings[] = {
    { "fetch.max-bytes", &fetch_limits.max_bytes, 1, INT64_MAX,
      "bytes of a file that is fetched from or sent to a URL" },
    { "fetch.total-ms", &fetch_limits.total_ms, 1, INT32_MAX,
      "time that all of it may take, redirects too" },
    { "fetch.redirects", &fetch_limits.redirects, 0, 20, "redirects that are followed" },
    { "fetch.at-once", &fetch_limits.at_once, 1, 1024, "URLs that are fetched or sent to at once" },
    { "fetch.resolving", &fetch_limits.resolving, 1, 8,
      "host names looked up at once; each takes a worker thread" },
    { "fetch.resolve-ms", &fetch_limits.resolve_ms, 1, INT32_MAX,
      "time that looking up a host name may take" },
    { "fetch.expect-ms", &fetch_limits.expect_ms, 0, INT32_MAX,
      "time a server may take to ask for a file before it is sent unasked" },
    { 0 },
};

struct fetch *fetch_new(const struct fetch_options *o)
{
    struct fetch *f = xcalloc(1, sizeof(*f));

    if (o->allow)
        f->allow = *o->allow;
    f->ca_file = o->ca_file ? xstrdup(o->ca_file) : NULL;
    f->resolve = o->resolve ? o->resolve : fetch_system_resolve;
    f->resolve_arg = o->resolve_arg;
    client_init(&f->client);
    co_cond_init(&f->resolved);
    return f;
}

void fetch_closep(struct fetch **f)
{
    if (!*f)
        return;
    while ((*f)->resolving) /* whoever asked has left */
        if (co_cond_wait(&(*f)->resolved, NEVER))
            co_pass();
    tls_closep(&(*f)->tls);
    free((*f)->ca_file);
    free(*f);
    *f = NULL;
}

struct trusting {
    const char *ca_file;
    struct tls_context *tls;
    struct err err;
};

static void trust(void *arg)
{
    struct trusting *w = arg;

    tls_client(w->ca_file, &w->tls, &w->err);
}

/* The guard of https; made once, on a worker: it reads files. */
static struct conn_guard *guard(struct fetch *f, struct err *err)
{
    struct trusting w = { .ca_file = f->ca_file };

    if (!f->tls) {
        co_call(trust, &w);
        if (!w.tls) {
            *err = w.err;
            return NULL;
        }
        if (f->tls) /* another was faster */
            tls_closep(&w.tls);
        else
            f->tls = w.tls;
    }
    return tls_guard(f->tls);
}

/* ---- one request and where it leads ---- */

struct trip {
    struct fetch *f;
    const char *method;
    fetch_sink *sink; /* of GET */
    void *sink_arg;
    const struct fetch_source *source; /* of PUT */
    int64_t max_bytes, total_ms, until;
    struct arena arena;
    struct url url;
    struct fetch_place place;
    bool unasked; /* the server has no use for Expect */
    bool theirs;  /* the error is the sink's or source's */
    struct fetch_result result;
};

/* Ends what waits on a connection when the whole has taken too long. */
struct watch {
    struct conn *conn;
    int64_t until;
    bool fired, ended;
    struct co_ref co;
};

static void watch(void *arg)
{
    struct watch *w = arg;

    if (!co_sleep(w->until)) {
        w->fired = true;
        conn_break(w->conn);
    }
    w->ended = true;
}

static void watch_end(struct watch *w)
{
    if (!w->conn)
        return;
    co_cancel(w->co);
    while (!w->ended)
        co_pass();
}

static int too_long(const struct trip *t, struct err *err)
{
    return err_set(err, ERR_TIMEOUT, "it was not done within fetch.total-ms=%lld",
                   (long long)t->total_ms);
}

static int too_large(const struct trip *t, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE, "the file is larger than fetch.max-bytes=%lld",
                   (long long)t->max_bytes);
}

/* ---- the head of a request ---- */

static void put_login(const struct url *u, struct buf *out)
{
    AUTO(buf_free) struct buf plain = { 0 }, coded = { 0 };

    if (!u->user.p)
        return;
    buf_add_str(&plain, u->user);
    buf_putc(&plain, ':');
    buf_add_str(&plain, u->password);
    buf_reserve(&coded, base64_encoded_len(plain.len));
    coded.len = base64_encode(plain.data, plain.len, coded.data);
    buf_puts(out, "Authorization: Basic ");
    buf_add_str(out, buf_str(&coded));
    buf_puts(out, "\r\n");
}

static struct exchange *start(struct trip *t, struct err *err)
{
    AUTO(buf_free) struct buf headers = { 0 }, host = { 0 };
    int64_t left = MAX(t->until - co_now(), (int64_t)1);
    struct conn_guard *tls = t->url.https ? guard(t->f, err) : NULL;
    struct client_to to = {
        .dial = fetch_dial,
        .arg = &t->place,
        .key = "fetch",
        .tls = tls,
        .tls_name = t->url.host,
        .connect_ms = MIN(client_limits.connect_ms, left),
    };
    struct client_request rq = { .method = str_of(t->method), .target = t->url.target };

    if (t->url.https && !tls)
        return NULL;
    url_host_port(&t->url, &host);
    buf_puts(&headers, "User-Agent: cove/" COVE_VERSION "\r\nAccept: */*\r\n"
                       "Accept-Encoding: identity\r\nConnection: close\r\n");
    put_login(&t->url, &headers);
    if (t->source) {
        buf_add_str(&headers, t->source->headers);
        if (t->source->length && !t->unasked)
            buf_puts(&headers, "Expect: 100-continue\r\n");
        rq.length = t->source->length;
    }
    rq.host = buf_str(&host);
    rq.headers = buf_str(&headers);
    return client_start(&t->f->client, &to, &rq, err);
}

/* ---- bodies ---- */

static int send_piece(struct trip *t, struct exchange *x, char *buf, size_t size, struct err *err)
{
    int64_t left = t->source->length - t->result.bytes;
    ssize_t n = t->source->read(t->source->arg, buf, MIN(size, (size_t)left), err);

    if (n <= 0) {
        t->theirs = true;
        return n ? -1 : err_set(err, ERR_CONFLICT, "the file has become shorter meanwhile");
    }
    t->result.bytes += n;
    return client_write(x, buf, (size_t)n, err);
}

static int send_file(struct trip *t, struct exchange *x, struct err *err)
{
    enum { PIECE = 64 << 10 };
    AUTO(freep) char *buf = xmalloc(PIECE);

    t->result.bytes = 0;
    if (t->source->begin && t->source->begin(t->source->arg, err)) {
        t->theirs = true;
        return -1;
    }
    while (t->result.bytes < t->source->length)
        if (send_piece(t, x, buf, PIECE, err))
            return -1;
    return 0;
}

/* Waits for the server to ask for the file: one that redirects or refuses never sees it. 1: it has
 * answered instead. */
static int wait_for_ask(struct trip *t, struct exchange *x, struct err *err)
{
    int64_t until = MIN(co_in(fetch_limits.expect_ms), t->until);

    if (client_flush(x, err))
        return -1;
    while (!x->answered) {
        ssize_t r = conn_ready(x->conn) ? 1 : conn_fill(x->conn, CONN_BUF, until);

        if (r < 0 && errno == ETIMEDOUT) /* many do not know how to ask */
            return 0;
        r = client_head(x, t->until, err);
        if (r <= 0)
            return -1;
        if (x->head.status == 100)
            return 0;
    }
    return 1;
}

/* 0 sent, or answered before that; -1 */
static int send_body(struct trip *t, struct exchange *x, struct err *err)
{
    struct err early = { 0 };
    int r = t->source->length && !t->unasked ? wait_for_ask(t, x, err) : 0;

    if (r)
        return r < 0 ? -1 : 0;
    if (!send_file(t, x, err))
        return client_end(x, (struct str){ 0 }, err);
    /* A server that has seen enough answers and closes: its answer says more than our failure. */
    if (!t->theirs && err->code == ERR_UPSTREAM && client_answer(x, &early) > 0)
        return 0;
    return -1;
}

static int receive(struct trip *t, struct exchange *x, struct err *err)
{
    struct str piece;
    ssize_t n;

    if (x->head.length > t->max_bytes)
        return too_large(t, err);
    while ((n = http_body_next(&x->body, &piece, err)) > 0) {
        if (n > t->max_bytes - t->result.bytes)
            return too_large(t, err);
        if (t->sink(t->sink_arg, piece.p, (size_t)n, err)) {
            t->theirs = true;
            return -1;
        }
        t->result.bytes += n;
    }
    return n < 0 ? -1 : 0;
}

/* ---- answers ---- */

static bool redirects(const struct trip *t, int status)
{
    if (status == 307 || status == 308)
        return true;
    return !t->source && (status == 301 || status == 302 || status == 303);
}

static int follow(struct trip *t, const struct http_head *h, struct err *err)
{
    struct str location = http_get(h, "location");
    struct url next;

    if (!location.p)
        return err_set(err, ERR_UPSTREAM, "it answered %d without saying where to", h->status);
    if (t->result.redirects == fetch_limits.redirects)
        return err_set(err, ERR_UPSTREAM, "it redirects more than fetch.redirects=%lld times",
                       (long long)fetch_limits.redirects);
    if (url_join(&t->url, location, &t->arena, &next, err))
        return err_in(err, "it redirects to what cannot be followed");
    if (t->url.https && !next.https)
        return err_set(err, ERR_DENIED, "it redirects from https to http, which is not followed");
    if (t->source && !t->source->begin && t->result.bytes)
        return err_set(err, ERR_UPSTREAM, "it redirects after it took the file");
    t->url = next;
    t->result.redirects++;
    return 1;
}

/* 1: ask again, 0: done */
static int answered(struct trip *t, struct exchange *x, struct err *err)
{
    int status = t->result.status = x->head.status;

    if (status == 417 && t->source && !t->unasked && !t->result.bytes) {
        t->unasked = true;
        return 1;
    }
    if (redirects(t, status))
        return follow(t, &x->head, err);
    if (status < 200 || status > 299)
        return err_set(err, ERR_UPSTREAM, "it answered %d %s", status, http_reason(status));
    if (t->source && t->result.bytes < t->source->length)
        return err_set(err, ERR_UPSTREAM, "it answered %d before it had the file", status);
    return t->source ? 0 : receive(t, x, err);
}

static int exchange(struct trip *t, struct exchange *x, struct err *err)
{
    int r = t->source ? send_body(t, x, err) : client_end(x, (struct str){ 0 }, err);

    if (!r && !x->answered)
        r = client_answer(x, err) > 0 ? 0 : -1;
    return r ? -1 : answered(t, x, err);
}

static int attempt(struct trip *t, struct err *err)
{
    AUTO(watch_end) struct watch w = { .until = t->until };
    struct exchange *x;
    int r;

    if (fetch_find(t->f, &t->url, t->until, &t->place, err))
        return -1;
    x = start(t, err);
    if (!x)
        return -1;
    w.conn = x->conn;
    if (co_go(watch, &w, &w.co)) {
        w.ended = true;
        r = err_set(err, ERR_UNAVAILABLE, "no memory to watch over it: try again");
    } else {
        r = exchange(t, x, err);
    }
    watch_end(&w);
    w.conn = NULL;
    x->sent = false; /* never kept for another: its address was checked for this request */
    client_close(x);
    /* Even of what looks done: a body that ends with the connection ends so too when it is cut. */
    return w.fired ? too_long(t, err) : r;
}

/* ---- the whole ---- */

/* Says whom it is about, and nothing of the URL that may be secret. */
static int failed(const struct trip *t, struct err *err)
{
    AUTO(buf_free) struct buf origin = { 0 };

    if (t->theirs && err->code != ERR_TIMEOUT)
        return -1;
    if (err->code == ERR_GONE && !co_cancelled())
        err->code = ERR_UPSTREAM;
    if (err->code == ERR_DENIED || err->code == ERR_NOT_FOUND)
        return -1; /* these name the host */
    url_origin(&t->url, &origin);
    return err_in(err, "%.140s", buf_cstr(&origin));
}

static int travel(struct trip *t, struct str url, struct err *err)
{
    int r;

    if (t->f->running >= fetch_limits.at_once)
        return err_set(err, ERR_LIMIT,
                       "fetch.at-once=%lld URLs are in use at the moment: try again",
                       (long long)fetch_limits.at_once);
    if (url_parse(url, &t->arena, &t->url, err))
        return -1;
    t->f->running++;
    while ((r = attempt(t, err)) > 0)
        ;
    t->f->running--;
    return r ? failed(t, err) : 0;
}

/* On the heap: too large for a coroutine's stack. */
static struct trip *new_trip(struct fetch *f, const char *method, const struct fetch_bounds *b)
{
    struct trip *t = xcalloc(1, sizeof(*t));

    t->f = f;
    t->method = method;
    t->max_bytes = b && b->max_bytes ? b->max_bytes : fetch_limits.max_bytes;
    t->total_ms = b && b->total_ms ? b->total_ms : fetch_limits.total_ms;
    t->until = co_in(t->total_ms);
    return t;
}

static void trip_freep(struct trip **t)
{
    arena_free(&(*t)->arena);
    free(*t);
}

int fetch_get(struct fetch *f, struct str url, const struct fetch_bounds *b, fetch_sink *sink,
              void *arg, struct fetch_result *out, struct err *err)
{
    AUTO(trip_freep) struct trip *t = new_trip(f, "GET", b);

    t->sink = sink;
    t->sink_arg = arg;
    if (travel(t, url, err))
        return -1;
    *out = t->result;
    return 0;
}

int fetch_put(struct fetch *f, struct str url, const struct fetch_bounds *b,
              const struct fetch_source *from, struct fetch_result *out, struct err *err)
{
    AUTO(trip_freep) struct trip *t = new_trip(f, "PUT", b);

    t->source = from;
    if (from->length > t->max_bytes)
        return too_large(t, err);
    if (travel(t, url, err))
        return -1;
    *out = t->result;
    return 0;
}
