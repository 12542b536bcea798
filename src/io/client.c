/* client.c - see client.h.
 *
 * A connection is a client_link, allocated when it is dialled; between requests it waits in the
 * client's pool, found by its key (the address's bytes, or the caller's word). The newest is taken
 * first, so that the surplus grows old and is swept. Exchanges are recycled: their head is too
 * large for a coroutine's stack and too dear to allocate for each request. */
#include "io/client.h"

#include <errno.h>

#include "base/mem.h"
#include "io/seats.h"

enum { SPARES = 64 };

/* Five seconds is when common servers close an idle connection: be earlier than that. */
struct client_limits client_limits = {
    .connect_ms = 5000,
    .answer_ms = 300000,
    .kept = 512,
    .kept_ms = 4000,
};

const struct setting client_settings[] = {
    { "client.connect-ms", &client_limits.connect_ms, 1, INT32_MAX,
      "time a server may take to accept a connection" },
    { "client.answer-ms", &client_limits.answer_ms, 1, INT32_MAX,
      "time a server may be silent before and within its answer" },
    { "client.kept", &client_limits.kept, 0, 65536, "idle connections kept for later requests" },
    { "client.kept-ms", &client_limits.kept_ms, 1, INT32_MAX,
      "time an idle connection is kept for" },
    { 0 },
};

struct client_link {
    struct list age;  /* in client.kept */
    struct list same; /* in its bucket, or among the busy */
    struct list *bucket, *busy;
    struct exchange *exchange; /* of one that is busy */
    int64_t since;             /* when it was kept */
    struct conn conn;
    size_t n;
    char key[];
};

/* ---- the pool ---- */

void client_init(struct client *c)
{
    *c = (struct client){ 0 };
    list_init(&c->kept);
    for (int i = 0; i < CLIENT_BUCKETS; i++) {
        list_init(&c->bucket[i]);
        list_init(&c->busy[i]);
    }
}

/* An address begins with its family, whose second byte is 0: never the same as a word. */
static struct str key_of(const struct client_to *to)
{
    return to->addr && !to->tls ? (struct str){ (const char *)&to->addr->sa, to->addr->len }
                                : str_of(to->key);
}

static size_t hash_of(struct str key)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < key.n; i++)
        h = (h ^ (unsigned char)key.p[i]) * 1099511628211u;
    return (h ^ h >> 32) % CLIENT_BUCKETS;
}

static void link_free(struct client_link *l)
{
    conn_finish(&l->conn);
    free(l);
}

static void pool_remove(struct client *c, struct client_link *l)
{
    list_remove(&l->age);
    list_remove(&l->same);
    c->count--;
}

static void pool_close(struct client *c, struct client_link *l)
{
    pool_remove(c, l);
    link_free(l);
}

static struct client_link *oldest(struct client *c)
{
    if (list_empty(&c->kept))
        return NULL;
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what pool_close() freed has left the list
    return CONTAINER_OF(c->kept.next, struct client_link, age);
}

static void sweep(void *arg)
{
    struct client *c = arg;
    struct client_link *l;

    while ((l = oldest(c)) && !co_sleep(l->since + client_limits.kept_ms))
        while ((l = oldest(c)) && l->since + client_limits.kept_ms <= co_now())
            pool_close(c, l);
    c->sweeping = false;
}

static void pool_put(struct client *c, struct client_link *l)
{
    if (!c->sweeping && !c->finished)
        c->sweeping = !co_go(sweep, c, &c->sweeper);
    /* without a sweeper nothing may be kept */
    if (!c->sweeping || seats_scarce(l->conn.fd)) {
        link_free(l);
        return;
    }
    conn_rest(&l->conn);
    l->since = co_now();
    list_push(&c->kept, &l->age);
    list_push(l->bucket, &l->same);
    if (++c->count > client_limits.kept) /* not empty: it holds l at least */
        pool_close(c, CONTAINER_OF(c->kept.next, struct client_link, age));
}

static struct client_link *pool_get(struct client *c, struct list *bucket, struct str key)
{
    for (struct list *at = bucket->prev, *before; at != bucket; at = before) {
        struct client_link *l = CONTAINER_OF(at, struct client_link, same);

        before = at->prev;
        if (!str_eq((struct str){ l->key, l->n }, key))
            continue;
        pool_remove(c, l);
        if (conn_quiet(&l->conn))
            return l;
        link_free(l); /* closed meanwhile, or it speaks without being asked */
    }
    return NULL;
}

void client_forget(struct client *c, const struct client_to *to)
{
    struct str key = key_of(to);
    struct client_link *l;

    list_each(l, &c->bucket[hash_of(key)], same)
        if (str_eq((struct str){ l->key, l->n }, key))
            pool_close(c, l);
}

void client_interrupt(struct client *c, const struct client_to *to)
{
    struct str key = key_of(to);
    const struct client_link *l;

    list_each(l, &c->busy[hash_of(key)], same)
        if (str_eq((struct str){ l->key, l->n }, key) &&
            (l->exchange->whole || !l->exchange->answered))
            conn_break(l->exchange->conn);
}

void client_finish(struct client *c)
{
    struct client_link *l;

    c->finished = true;
    co_cancel(c->sweeper);
    while (c->sweeping)
        co_pass();
    list_each(l, &c->kept, age)
        pool_close(c, l);
}

/* ---- connecting ---- */

static int dial_addr(const struct client_to *to, int64_t until, struct err *err)
{
    AUTO(co_closep) int fd = sock_open(to->addr, err);
    char name[128];

    if (fd < 0)
        return -1;
    if (!co_connect(fd, &to->addr->sa, to->addr->len, until))
        return TAKE(fd, -1);
    if (errno == ECANCELED)
        return err_set(err, ERR_GONE, "cancelled");
    addr_print(to->addr, name, sizeof(name));
    if (errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "connect %s: not within client.connect-ms=%lld", name,
                       (long long)(to->connect_ms ? to->connect_ms : client_limits.connect_ms));
    return err_set(err, ERR_UPSTREAM, "connect %s: %s", name, strerrordesc_np(errno));
}

static struct client_link *dial(struct client *c, const struct client_to *to, struct err *err)
{
    struct str key = key_of(to);
    size_t hash = hash_of(key);
    int64_t until = co_in(to->connect_ms ? to->connect_ms : client_limits.connect_ms);
    int fd = to->addr ? dial_addr(to, until, err) : to->dial(to->arg, until, err);
    struct client_link *l;

    if (fd < 0)
        return NULL;
    while ((l = oldest(c)) && seats_scarce(fd)) /* what nobody uses is the first to go */
        pool_close(c, l);
    l = xmalloc(sizeof(*l) + key.n);
    conn_init(&l->conn, fd);
    list_init(&l->age);
    list_init(&l->same);
    l->bucket = &c->bucket[hash];
    l->busy = &c->busy[hash];
    l->n = key.n;
    memcpy(l->key, key.p, key.n);
    c->dialled++;
    if (!to->tls || !to->tls->begin(to->tls, &l->conn, to->tls_name, until, err))
        return l;
    link_free(l);
    return NULL;
}

/* ---- exchanges ---- */

static _Thread_local struct exchange *spare[SPARES];
static _Thread_local int spares;

struct exchange *client_open(struct client *c, const struct client_to *to, bool fresh,
                             struct err *err)
{
    struct str key = key_of(to);
    struct client_link *l = fresh ? NULL : pool_get(c, &c->bucket[hash_of(key)], key);
    bool reused = l != NULL;
    struct exchange *x;

    if (!l && !(l = dial(c, to, err)))
        return NULL;
    c->reused += reused;
    x = spares ? spare[--spares] : xmalloc(sizeof(*x));
    x->client = c;
    x->link = l;
    x->conn = &l->conn;
    x->answer_ms = to->answer_ms ? to->answer_ms : client_limits.answer_ms;
    x->reused = reused;
    x->whole = to->whole;
    x->head_only = x->sent = x->chunked = x->answered = x->to_the_end = false;
    x->body = (struct http_body){ 0 };
    l->exchange = x;
    list_push(l->busy, &l->same);
    return x;
}

static bool keepable(const struct exchange *x)
{
    return x->answered && x->sent && x->head.keep && x->head.status != 101 && x->body.done &&
           !x->to_the_end && !x->conn->used && !conn_ready(x->conn);
}

void client_close(struct exchange *x)
{
    list_remove(&x->link->same);
    if (keepable(x))
        pool_put(x->client, x->link);
    else
        link_free(x->link);
    http_body_finish(&x->body);
    if (spares < SPARES)
        spare[spares++] = x;
    else
        free(x);
}

void client_closep(struct exchange **x)
{
    if (*x)
        client_close(*x);
}

/* ---- requests ---- */

static int put_head(struct exchange *x, const struct client_request *rq, int64_t length)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_reserve(&b, 256 + rq->target.n + rq->headers.n);
    buf_add_str(&b, rq->method);
    buf_putc(&b, ' ');
    buf_add_str(&b, rq->target);
    buf_add_str(&b, STR(" HTTP/1.1\r\nHost: "));
    buf_add_str(&b, rq->host.n ? rq->host : STR("localhost"));
    buf_add_str(&b, STR("\r\n"));
    buf_add_str(&b, rq->headers);
    if (length < 0) {
        buf_add_str(&b, STR("Transfer-Encoding: chunked\r\n"));
    } else if (length || str_is(rq->method, "POST") || str_is(rq->method, "PUT") ||
               str_is(rq->method, "PATCH")) {
        buf_add_str(&b, STR("Content-Length: "));
        buf_put_u64(&b, (uint64_t)length);
        buf_add_str(&b, STR("\r\n"));
    }
    buf_add_str(&b, STR("\r\n"));
    x->chunked = length < 0;
    x->head_only = str_is(rq->method, "HEAD");
    return http_put(x->conn, buf_str(&b));
}

static int lost(struct err *err)
{
    if (errno == ECANCELED)
        return err_set(err, ERR_GONE, "cancelled");
    if (errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "the server took nothing for http.write-ms=%lld",
                       (long long)http_limits.write_ms);
    return err_set(err, ERR_UPSTREAM, "the server closed the connection before an answer");
}

struct exchange *client_start(struct client *c, const struct client_to *to,
                              const struct client_request *rq, struct err *err)
{
    struct exchange *x = client_open(c, to, false, err);

    if (!x || !put_head(x, rq, rq->length))
        return x;
    lost(err);
    client_close(x);
    return NULL;
}

int client_write(struct exchange *x, const void *p, size_t n, struct err *err)
{
    if (!n)
        return 0;
    return (x->chunked ? http_put_chunk(x->conn, p, n) : http_put(x->conn, (struct str){ p, n }))
               ? lost(err)
               : 0;
}

int client_flush(struct exchange *x, struct err *err)
{
    return http_flush(x->conn) ? lost(err) : 0;
}

int client_end(struct exchange *x, struct str trailers, struct err *err)
{
    if ((x->chunked && http_put_last_chunk(x->conn, trailers)) || http_flush(x->conn))
        return lost(err);
    x->sent = true;
    return 0;
}

bool client_may_repeat(const struct exchange *x, struct str method, bool written)
{
    static const char *const harmless[] = { "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE" };

    if (!x->reused)
        return false;
    if (!written) /* it never reached the server */
        return true;
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
        if (str_is(method, harmless[i]))
            return true;
    return false; /* a POST may have been carried out before the connection broke */
}

/* ---- answers ---- */

static int broken_head(struct err *err)
{
    switch ((int)err->code) {
    case ERR_TIMEOUT: break;
    case ERR_GONE:
        return err_set(err, co_cancelled() ? ERR_GONE : ERR_UPSTREAM,
                       "broken answer: it ends within its head");
    default: err->code = ERR_UPSTREAM;
    }
    return err_in(err, "broken answer");
}

static void begin_body(struct exchange *x)
{
    http_body_init(&x->body, x->conn, &x->head, HTTP_RESPONSE);
    if (x->head_only)
        x->body.chunked = false, x->body.done = true;
    x->to_the_end = !x->body.done && !x->body.chunked && x->body.left < 0;
    x->answered = true;
}

int client_head(struct exchange *x, int64_t until, struct err *err)
{
    ssize_t r = conn_ready(x->conn) ? 1 : conn_fill(x->conn, CONN_BUF, until);

    if (r < 0 && errno == ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "no answer within client.answer-ms=%lld",
                       (long long)x->answer_ms);
    if (r <= 0) {
        if (!r)
            errno = EPIPE;
        lost(err);
        return err->code == ERR_UPSTREAM ? 0 : -1;
    }
    if (http_read_head(x->conn, HTTP_RESPONSE, &x->head, err) <= 0)
        return broken_head(err);
    if (x->head.status >= 200 || x->head.status == 101)
        begin_body(x);
    return 1;
}

int client_answer(struct exchange *x, struct err *err)
{
    int64_t until = co_in(x->answer_ms);
    int r;

    do
        r = client_head(x, until, err);
    while (r > 0 && !x->answered);
    return r;
}

struct exchange *client_do(struct client *c, const struct client_to *to,
                           const struct client_request *rq, struct err *err)
{
    for (bool fresh = false;; fresh = true) {
        struct exchange *x = client_open(c, to, fresh, err);
        bool again;
        int r;

        if (!x)
            return NULL;
        x->sent = !put_head(x, rq, (int64_t)rq->body.n) &&
                  (!rq->body.n || !http_put(x->conn, rq->body)) && !http_flush(x->conn);
        if (!x->sent) /* one that waits for the rest must not: then both would */
            shutdown(x->conn->fd, SHUT_WR);
        r = client_answer(x, err); /* even after a failed write: a server may refuse early */
        if (r > 0)
            return x;
        again = r == 0 && client_may_repeat(x, rq->method, x->sent);
        client_close(x);
        if (!again)
            return NULL;
        *err = (struct err){ 0 };
    }
}
