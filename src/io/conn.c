/* conn.c - see conn.h. */
#include "io/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

enum { POOL = 128, TRIM_AFTER_MS = 2000, BURST = 32 };

static _Thread_local char *pool[POOL];
static _Thread_local int pooled;

static char *pool_get(void) { return pooled ? pool[--pooled] : xmalloc(CONN_BUF); }

static void pool_trim(void)
{
    while (pooled)
        free(pool[--pooled]);
}

static void pool_put(char *b)
{
    if (!pooled)
        co_on_idle(pool_trim);
    if (pooled < POOL)
        pool[pooled++] = b;
    else
        free(b);
}

static void release_in(struct conn *c)
{
    if (!c->in)
        return;
    if (c->cap == CONN_BUF)
        pool_put(c->in);
    else
        free(c->in);
    c->in = NULL;
    c->pos = c->len = c->cap = 0;
}

static void release_out(struct conn *c)
{
    if (c->out)
        pool_put(TAKE(c->out, NULL));
}

void conn_init(struct conn *c, int fd) { *c = (struct conn){ .fd = fd }; }

void conn_finish(struct conn *c)
{
    release_in(c);
    release_out(c);
    co_close(TAKE(c->fd, -1));
}

void conn_rest(struct conn *c)
{
    if (c->pos == c->len)
        release_in(c);
    if (!c->used)
        release_out(c);
}

/* room for at least one byte behind len, with no more than max bytes buffered */
static int make_room(struct conn *c, size_t max)
{
    if (!c->in) {
        c->in = pool_get();
        c->cap = CONN_BUF;
    }
    if (c->len - c->pos >= max) {
        errno = ENOBUFS;
        return -1;
    }
    if (c->len < c->cap)
        return 0;
    if (c->pos) {
        memmove(c->in, c->in + c->pos, c->len - c->pos);
        c->len -= c->pos;
        c->pos = 0;
        return 0;
    }
    char *bigger = xmalloc(c->cap * 2);
    size_t len = c->len, cap = c->cap * 2;

    memcpy(bigger, c->in, len);
    release_in(c);
    c->in = bigger;
    c->len = len;
    c->cap = cap;
    return 0;
}

void conn_fair(struct conn *c)
{
    if (++c->burst < BURST)
        return;
    c->burst = 0;
    if (!c->nowait)
        co_pass();
}

ssize_t conn_fill(struct conn *c, size_t max, int64_t until)
{
    if (c->pos == c->len)
        c->pos = c->len = 0;
    for (;;) {
        ssize_t r;

        if (make_room(c, max))
            return -1;
        r = read(c->fd, c->in + c->len, c->cap - c->len);
        if (r > 0) {
            c->len += (size_t)r;
            conn_fair(c);
        }
        if (r >= 0 || (errno != EAGAIN && errno != EINTR))
            return r;
        if (errno == EINTR)
            continue;
        if (c->nowait)
            return -1;
        c->burst = 0;
        conn_rest(c);
        if (co_wait(c->fd, CO_IN, until))
            return -1;
    }
}

ssize_t conn_fill_idle(struct conn *c, int64_t until)
{
    int64_t trim = MIN(until, co_in(TRIM_AFTER_MS));
    ssize_t r = conn_fill(c, CONN_BUF, trim);

    if (r >= 0 || errno != ETIMEDOUT || trim == until)
        return r;
    co_trim();
    return conn_fill(c, CONN_BUF, until);
}

ssize_t conn_read(struct conn *c, void *buf, size_t n, int64_t until)
{
    size_t ready = conn_ready(c);

    if (!ready && n >= CONN_BUF) { /* large reads go straight to their target */
        for (;;) {
            ssize_t r = read(c->fd, buf, n);

            if (r >= 0 || (errno != EAGAIN && errno != EINTR))
                return r;
            if (errno == EAGAIN && (c->nowait || co_wait(c->fd, CO_IN, until)))
                return -1;
        }
    }
    if (!ready) {
        ssize_t r = conn_fill(c, CONN_BUF, until);

        if (r <= 0)
            return r;
        ready = conn_ready(c);
    }
    n = MIN(n, ready);
    memcpy(buf, c->in + c->pos, n);
    c->pos += n;
    return (ssize_t)n;
}

int conn_read_full(struct conn *c, void *buf, size_t n, int64_t until)
{
    for (char *p = buf; n;) {
        ssize_t r = conn_read(c, p, n, until);

        if (r <= 0) {
            if (!r)
                errno = ECONNRESET;
            return -1;
        }
        p += r;
        n -= (size_t)r;
    }
    return 0;
}

/* `used` falls only after the write: while it parks, a coroutine that reads this connection must
 * not take the buffer for empty. */
int conn_flush(struct conn *c, int64_t until)
{
    int r = c->used ? co_write(c->fd, c->out, c->used, until) : 0;

    c->used = 0;
    return r;
}

int conn_put(struct conn *c, const void *p, size_t n, int64_t until)
{
    if (c->used + n > CONN_BUF) { /* both at once: no copy of what is large */
        struct iovec v[2] = { { c->out, c->used }, { (void *)(uintptr_t)p, n } };

        if (n < CONN_BUF / 2 && conn_flush(c, until))
            return -1;
        if (n >= CONN_BUF / 2) {
            int r = co_writev(c->fd, c->used ? v : v + 1, c->used ? 2 : 1, until);

            c->used = 0;
            return r;
        }
    }
    if (!c->out)
        c->out = pool_get();
    memcpy(c->out + c->used, p, n);
    c->used += n;
    return 0;
}

bool conn_peer_left(const struct conn *c)
{
    char byte;
    ssize_t r = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR);
}

bool conn_quiet(const struct conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

const char *conn_peer(struct conn *c)
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } a = { 0 };
    socklen_t n = sizeof(a);

    if (c->peer_known)
        return c->peer;
    c->peer_known = true;
    if (getpeername(c->fd, &a.sa, &n))
        return c->peer;
    if (a.sa.sa_family == AF_INET)
        inet_ntop(AF_INET, &a.in.sin_addr, c->peer, sizeof(c->peer));
    else if (a.sa.sa_family == AF_INET6 && !memcmp(&a.in6.sin6_addr, mapped, sizeof(mapped)))
        inet_ntop(AF_INET, a.in6.sin6_addr.s6_addr + 12, c->peer, sizeof(c->peer));
    else if (a.sa.sa_family == AF_INET6)
        inet_ntop(AF_INET6, &a.in6.sin6_addr, c->peer, sizeof(c->peer));
    return c->peer;
}

void conn_end_output(struct conn *c) { shutdown(c->fd, SHUT_WR); }

void conn_break(struct conn *c) { shutdown(c->fd, SHUT_RDWR); }

void conn_linger(struct conn *c, int64_t until)
{
    /* Closing with unread input sends a reset, which can destroy an answer still in flight. */
    if (shutdown(c->fd, SHUT_WR))
        return;
    do {
        c->pos = c->len = 0;
        co_pass(); /* a peer that never stops sending must not keep the others from running */
    } while (co_now() < until && conn_fill(c, CONN_BUF, until) > 0);
}
