/* conn.c - see conn.h. */
#include "io/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/sock.h"

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
    if (c->ops) {
        if (!c->cut)
            c->ops->end(c); /* as much of it as can be said without waiting */
        TAKE(c->ops, NULL)->finish(c);
    }
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

static ssize_t receive(struct conn *c, void *buf, size_t n)
{
    ssize_t r = LIKELY(!c->ops) ? read(c->fd, buf, n) : c->ops->read(c, buf, n);

    if (c->owed_ms && r > 0)
        c->owed_ms = MAX(c->owed_ms - (int64_t)r * 1000 / CONN_SLOW, (int64_t)0);
    return r;
}

static int wait_turned(int64_t until)
{
    enum { TURNED_MS = 20 };

    /* Rare enough for a look now and then: a coroutine may be waiting to write already, and two
     * cannot wait for the same. */
    if (co_sleep(MIN(until, co_in(TURNED_MS))))
        return -1;
    errno = ETIMEDOUT;
    return co_now() < until ? 0 : -1;
}

int conn_wait(struct conn *c, int64_t until)
{
    int r;

    c->reads_at = co_now();
    r = LIKELY(!c->turned) ? co_wait(c->fd, CO_IN, until) : wait_turned(until);
    c->owed_ms += co_now() - c->reads_at;
    c->reads_at = 0;
    return r;
}

int64_t conn_owed(const struct conn *c)
{
    return c->owed_ms + (c->reads_at ? co_now() - c->reads_at : 0);
}

ssize_t conn_fill(struct conn *c, size_t max, int64_t until)
{
    if (c->pos == c->len)
        c->pos = c->len = 0;
    for (;;) {
        ssize_t r;

        if (make_room(c, max))
            return -1;
        r = receive(c, c->in + c->len, c->cap - c->len);
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
        if (conn_wait(c, until))
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
            ssize_t r = receive(c, buf, n);

            if (r >= 0 || (errno != EAGAIN && errno != EINTR))
                return r;
            if (errno == EAGAIN && (c->nowait || conn_wait(c, until)))
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

static int untaken(const struct conn *c)
{
    int n;

    return ioctl(c->fd, SIOCOUTQ, &n) ? 0 : n;
}

/* How long a peer may take nothing; 0: `until` stands, however much it takes. */
static int64_t span_of(const struct conn *c, int64_t until)
{
    return until == NEVER || until == c->patience ? 0 : MAX(until - co_now(), (int64_t)0);
}

static int wait_room(struct conn *c, int64_t until)
{
    enum { LOOKS = 4 };
    int64_t span = span_of(c, until);
    int before = untaken(c);

    for (;;) {
        int64_t look = MIN(until, co_in(sock_peer_ms / LOOKS));
        int left;

        if (!co_wait(c->fd, CO_OUT, look))
            return 0;
        if (errno != ETIMEDOUT)
            return -1;
        if (!sock_peer_lives(c->fd)) {
            conn_cut(c); /* or the kernel would go on trying */
            errno = ETIMEDOUT;
            return -1;
        }
        if (look < until)
            continue;
        left = untaken(c);
        errno = ETIMEDOUT;
        if (left >= before || !span)
            return -1;
        before = left;
        until = co_in(span);
    }
}

int conn_wait_room(struct conn *c, int64_t until)
{
    int r;

    c->writes_at = co_now();
    r = wait_room(c, until);
    c->writes_at = 0;
    return r;
}

static int write_plain(struct conn *c, struct iovec *v, int count, int64_t until)
{
    int64_t span = span_of(c, until);

    while (count) {
        ssize_t r = writev(c->fd, v, count); /* SIGPIPE is ignored by every program of ours */

        if (r < 0) {
            if (errno == EAGAIN ? conn_wait_room(c, until) : errno != EINTR)
                return -1;
            continue;
        }
        while (count && (size_t)r >= v->iov_len) {
            r -= (ssize_t)v->iov_len;
            v++, count--;
        }
        if (count) {
            v->iov_base = (char *)v->iov_base + r;
            v->iov_len -= (size_t)r;
            until = span ? co_in(span) : until;
        }
    }
    return 0;
}

/* Each piece may end in a record of its own, and the layer may take a part of it. */
static int write_layered(struct conn *c, const struct iovec *v, int count, int64_t until)
{
    int64_t span = span_of(c, until);

    for (; count; v++, count--) {
        const char *p = v->iov_base;

        for (size_t n = v->iov_len; n;) {
            ssize_t r = c->ops->write(c, p, n);

            if (r < 0) {
                if (errno == EAGAIN ? conn_wait_room(c, until) : errno != EINTR)
                    return -1;
                continue;
            }
            p += r;
            n -= (size_t)r;
            until = span ? co_in(span) : until;
        }
    }
    return 0;
}

int conn_writev(struct conn *c, struct iovec *v, int count, int64_t until)
{
    return LIKELY(!c->ops) ? write_plain(c, v, count, until) : write_layered(c, v, count, until);
}

/* `used` falls only after the write: while it parks, a coroutine that reads this connection must
 * not take the buffer for empty. */
int conn_flush(struct conn *c, int64_t until)
{
    struct iovec v = { c->out, c->used };
    int r = c->used ? conn_writev(c, &v, 1, until) : 0;

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
            int r = conn_writev(c, c->used ? v : v + 1, c->used ? 2 : 1, until);

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

static ssize_t peek(const struct conn *c)
{
    char byte;

    return LIKELY(!c->ops) ? recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : c->ops->peek(c);
}

bool conn_peer_left(const struct conn *c)
{
    ssize_t r = peek(c);

    return r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR);
}

bool conn_quiet(const struct conn *c) { return peek(c) < 0 && errno == EAGAIN; }

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

/* The layer's last word is a few bytes: should the socket be full of what was sent before, a moment
 * is waited for it. */
static int end_output(struct conn *c)
{
    enum { LAST_WORD_MS = 1000 };

    while (c->ops && c->ops->end(c) < 0)
        if (errno != EAGAIN || co_wait(c->fd, CO_OUT, co_in(LAST_WORD_MS)))
            break;
    return shutdown(c->fd, SHUT_WR);
}

void conn_end_output(struct conn *c) { end_output(c); }

/* One that is to be cut is reset at once: shutdown() would send an end first. To disconnect a TCP
 * socket is the way to do that without closing it under somebody's hands. */
void conn_break(struct conn *c)
{
    if (!c->cut ||
        connect(c->fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr)))
        shutdown(c->fd, SHUT_RDWR);
}

void conn_cut(struct conn *c)
{
    struct linger reset = { .l_onoff = 1 };

    c->cut = true;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)); /* not TCP: no harm */
}

void conn_linger(struct conn *c, int64_t until)
{
    /* Closing with unread input sends a reset, which can destroy an answer still in flight. */
    if (end_output(c))
        return;
    do {
        c->pos = c->len = 0;
        co_pass(); /* a peer that never stops sending must not keep the others from running */
    } while (co_now() < until && conn_fill(c, CONN_BUF, until) > 0);
}
