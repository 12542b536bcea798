/* zmtp.c - ZMTP over a connection; see zmtp.h. Large payloads go from the socket straight into the
 * message; a message is sent with one system call, under a lock, since several may send. */
#include "guest/kernels/zmtp.h"

#include <errno.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/sock.h"

enum {
    RETRY_MIN_MS = 2,
    RETRY_MAX_MS = 40,
    LARGE = 256 << 10,
    SEND_PARTS = 512,
    PONG_MS = 30000,
    AGAIN_MS = 50
};

static const struct {
    const char *type, *peers;
} roles[] = {
    [ZMTP_DEALER] = { "DEALER", "ROUTER,DEALER,REP" },
    [ZMTP_SUB] = { "SUB", "PUB,XPUB" },
};

/* ---- reading ---- */

static ssize_t fill(struct zmtp *z, int64_t until)
{
    struct buf *b = &z->in.parts.bytes;
    size_t want = (size_t)MIN(z->in.left, (uint64_t)LARGE);
    ssize_t r;

    if (!z->in.in_payload || z->in.command || z->in.skip || z->in.left < CONN_BUF)
        return conn_fill(&z->conn, CONN_BUF, until);
    buf_reserve(b, want);
    r = conn_read(&z->conn, b->data + b->len, want, until);
    if (r > 0) {
        b->len += (size_t)r;
        z->in.left -= (uint64_t)r;
    }
    return r;
}

static void unlock(struct zmtp *z)
{
    z->writing = false;
    co_cond_wake(&z->changed);
}

/* What is on its way to the peer already proves us alive: while somebody writes, or the socket is
 * full, there is nothing to say. A pong that has begun must be finished before anything else. */
static void send_pong(struct zmtp *z, unsigned char *pong, size_t n)
{
    ssize_t sent;

    if (z->writing || z->broken)
        return;
    sent = send(z->conn.fd, pong, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0 || sent == (ssize_t)n)
        return;
    z->writing = true;
    if (conn_writev(&z->conn, &(struct iovec){ pong + sent, n - (size_t)sent }, 1, co_in(PONG_MS)))
        zmtp_break(z);
    unlock(z);
}

/* Answers what must be answered; nothing of it concerns a Jupyter client. */
static void answer_command(struct zmtp *z)
{
    struct str text = buf_str(&z->in.text);

    if (str_starts(text, "\4PING") && text.n >= 7 && text.n <= 7 + 16) {
        unsigned char pong[2 + 5 + 16] = { 4, (unsigned char)(text.n - 2), 4, 'P', 'O', 'N', 'G' };

        memcpy(pong + 7, text.p + 7, text.n - 7);
        send_pong(z, pong, text.n);
    }
}

/* Memory may be short for a moment, which is not the connection's end. */
static ssize_t fill_somehow(struct zmtp *z, int64_t until)
{
    ssize_t r;

    while ((r = fill(z, until)) < 0 && (errno == ENOMEM || errno == ENOBUFS || errno == ENOSPC) &&
           co_now() < until && !co_sleep(co_in(AGAIN_MS)))
        ;
    return r;
}

/* One step: an event, or -1 with err, or -2 at the end. */
static int step(struct zmtp *z, int64_t until, struct err *err)
{
    enum zmtp_event event;
    bool waiting = z->in.in_payload && !z->in.left; /* a frame that filled itself past the parser */
    ssize_t r;

    if (!conn_ready(&z->conn) && !waiting) {
        r = fill_somehow(z, until);
        if (r < 0)
            return err_sys(err, "reading from the kernel");
        if (r == 0)
            return -2;
    }
    r = zmtp_feed(&z->in, z->conn.in ? z->conn.in + z->conn.pos : "", conn_ready(&z->conn), &event,
                  err);
    if (r < 0)
        return -1;
    z->conn.pos += (size_t)r;
    return (int)event;
}

int zmtp_read(struct zmtp *z, int64_t until, struct err *err)
{
    for (;;) {
        int event = step(z, until, err);

        if (event == ZMTP_MESSAGE)
            return 1;
        if (event == ZMTP_COMMAND)
            answer_command(z);
        else if (event < 0)
            return event == -2 ? 0 : -1;
    }
}

/* ---- writing ---- */

static int lock(struct zmtp *z, int64_t until, struct err *err)
{
    while (z->writing)
        if (co_cond_wait(&z->changed, until) < 0)
            return err_sys(err, "waiting to write to the kernel");
    if (!z->open || z->broken)
        return err_set(err, ERR_UNAVAILABLE, "the kernel's socket is closed");
    z->writing = true;
    return 0;
}

static int send_parts(struct zmtp *z, const struct str *parts, size_t n, int64_t until,
                      struct err *err)
{
    AUTO(freep) unsigned char *heads = NULL;
    AUTO(freep) struct iovec *v = NULL;
    int r;

    if (n > SEND_PARTS)
        return err_set(err, ERR_TOO_LARGE, "a message of more than %d parts", SEND_PARTS);
    if (lock(z, until, err))
        return -1;
    heads = xmalloc(n * ZMTP_HEADER_MAX);
    v = xcalloc(n * 2, sizeof(*v));
    for (size_t i = 0; i < n; i++) {
        unsigned char *h = heads + i * ZMTP_HEADER_MAX;

        v[i * 2] = (struct iovec){ h, zmtp_encode_header(h, i + 1 < n, false, parts[i].n) };
        v[i * 2 + 1] = (struct iovec){ (void *)(uintptr_t)parts[i].p, parts[i].n };
    }
    r = conn_writev(&z->conn, v, (int)(n * 2), until);
    if (r) {
        err_sys(err, "writing to the kernel");
        if (err->code == ERR_GONE && !co_cancelled())
            err->code = ERR_UPSTREAM; /* the kernel, and not a client that nobody need answer */
    }
    if (r)
        zmtp_break(z); /* in the middle of a frame, maybe */
    unlock(z);
    return r;
}

int zmtp_send(struct zmtp *z, const struct str *parts, size_t n, int64_t until, struct err *err)
{
    int r;

    z->senders++;
    r = send_parts(z, parts, n, until, err);
    if (!--z->senders)
        co_cond_wake(&z->changed);
    return r;
}

/* ---- connecting ---- */

static int parse_address(const char *address, struct addr *out, struct err *err)
{
    struct str text = str_of(address);
    char local[128];

    if (str_starts(text, "tcp://"))
        return addr_parse((struct str){ text.p + 6, text.n - 6 }, out, err);
    snprintf(local, sizeof(local), "unix:%s", address + 6);
    return addr_parse(str_of(local), out, err);
}

static int try_once(struct zmtp *z, const struct addr *a, int64_t until, struct err *err)
{
    int fd = sock_open(a, err);

    if (fd < 0)
        return -1;
    if (!co_connect(fd, &a->sa, a->len, until)) {
        conn_init(&z->conn, fd);
        return 0;
    }
    err_sys(err, "connect");
    co_close(fd);
    return -1;
}

static int connect_until(struct zmtp *z, const char *address, const bool *stop, int64_t until,
                         struct err *err)
{
    int64_t wait_ms = RETRY_MIN_MS;
    struct addr a;

    if (parse_address(address, &a, err))
        return -1;
    while (try_once(z, &a, until, err)) {
        if (stop && *stop)
            return err_set(err, ERR_UNAVAILABLE, "the kernel has ended");
        if (co_now() >= until || co_sleep(co_in(wait_ms)))
            return err_in(err, "the kernel does not listen");
        wait_ms = MIN(wait_ms * 2, (int64_t)RETRY_MAX_MS);
    }
    return 0;
}

static int shake_hands(struct zmtp *z, enum zmtp_role role, struct str identity, int64_t until,
                       struct err *err)
{
    unsigned char greeting[ZMTP_GREETING];
    AUTO(buf_free) struct buf out = { 0 };
    int event;

    zmtp_encode_greeting(greeting);
    buf_add(&out, greeting, sizeof(greeting));
    zmtp_encode_ready(&out, roles[role].type, identity);
    if (conn_put(&z->conn, out.data, out.len, until) || conn_flush(&z->conn, until) ||
        conn_read_full(&z->conn, greeting, sizeof(greeting), until))
        return err_sys(err, "ZMTP greeting");
    if (zmtp_check_greeting(greeting, err))
        return -1;
    while ((event = step(z, until, err)) == ZMTP_MORE)
        ;
    if (event != ZMTP_COMMAND)
        return event == -1 ? -1 : err_set(err, ERR_UPSTREAM, "no READY from the kernel");
    if (zmtp_check_ready(buf_str(&z->in.text), roles[role].peers, err))
        return -1;
    /* A message of one byte: subscribe to everything. Not earlier: libzmq takes what comes before
     * its own READY has gone out for a part of the handshake, and hangs up. */
    if (role == ZMTP_SUB && (conn_put(&z->conn, "\0\1\1", 3, until) || conn_flush(&z->conn, until)))
        return err_sys(err, "ZMTP subscription");
    return 0;
}

int zmtp_dial(struct zmtp *z, const char *address, enum zmtp_role role, struct str identity,
              uint64_t max, const bool *stop, int64_t until, struct err *err)
{
    int r;

    /* locked until hands are shaken */
    *z = (struct zmtp){ .in = { .max = max }, .writing = true };
    co_cond_init(&z->changed);
    r = connect_until(z, address, stop, until, err);
    if (!r) {
        z->open = true;
        r = shake_hands(z, role, identity, until, err);
        if (r)
            zmtp_finish(z);
    }
    unlock(z);
    return r ? err_in(err, "%s", address) : 0;
}

int zmtp_redial(struct zmtp *z, const char *address, enum zmtp_role role, struct str identity,
                const bool *stop, int64_t until, struct err *err)
{
    uint64_t max = z->in.max;

    zmtp_break(z);
    while (z->senders) /* they fail now */
        if (co_cond_wait(&z->changed, until))
            return err_sys(err, "waiting to connect to the kernel again");
    zmtp_finish(z);
    return zmtp_dial(z, address, role, identity, max, stop, until, err);
}

void zmtp_break(struct zmtp *z)
{
    if (z->open)
        conn_break(&z->conn);
    z->broken = true;
}

void zmtp_finish(struct zmtp *z)
{
    if (!z->open)
        return;
    z->open = false;
    zmtp_parser_free(&z->in);
    conn_finish(&z->conn);
}
