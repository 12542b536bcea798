/* test_conn.c - the buffered connection. */
#include "io/conn.h"

#include <errno.h>

#include "base/mem.h"
#include "net.h"

static int peer; /* the other end */

static void open_conn(struct conn *c)
{
    int fd[2];

    net_pair(fd);
    peer = fd[1];
    conn_init(c, fd[0]);
}

static void reading(void *arg)
{
    struct conn c;
    char b[16] = "";

    (void)arg;
    open_conn(&c);
    CHECK_INT(conn_ready(&c), 0);
    CHECK(!conn_peek(&c).p);
    net_put(peer, STR("hello world"));
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 11);
    CHECK_INT(conn_ready(&c), 11);
    CHECK(str_is(conn_peek(&c), "hello world"));
    CHECK_INT(conn_read(&c, b, 6, co_in(NET_MS)), 6);
    CHECK(str_is(conn_peek(&c), "world"));
    net_put(peer, STR("!"));
    CHECK_INT(conn_read_full(&c, b, 6, co_in(NET_MS)), 0);
    CHECK(!memcmp(b, "world!", 6));
    CHECK_INT(conn_read(&c, b, 1, co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    net_put(peer, STR("ab"));
    co_close(peer);
    CHECK_INT(conn_read_full(&c, b, 3, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECONNRESET);
    CHECK_INT(conn_read(&c, b, 3, co_in(NET_MS)), 0);
    conn_finish(&c);
    CHECK_INT(c.fd, -1);
}

TEST(buffered_bytes_are_read_before_new_ones) { test_co(reading, NULL); }

static void idle(void *arg)
{
    struct conn c;

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("x"));
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 1);
    CHECK_INT(conn_put(&c, "y", 1, co_in(NET_MS)), 0);
    CHECK_INT(conn_flush(&c, co_in(NET_MS)), 0);
    c.pos++;
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK(!c.in && !c.out); /* while it waited */
    CHECK_INT(conn_fill_idle(&c, co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    net_put(peer, STR("again"));
    CHECK_INT(conn_fill_idle(&c, co_in(NET_MS)), 5);
    co_close(peer);
    conn_finish(&c);
}

TEST(a_connection_that_waits_holds_no_buffers) { test_co(idle, NULL); }

static void bounded(void *arg)
{
    AUTO(freep) char *much = xcalloc(1, 100000);
    struct conn c;
    size_t before;

    (void)arg;
    open_conn(&c);
    memset(much, 'm', 100000);
    net_put(peer, (struct str){ much, 100000 });
    while (conn_fill(&c, 40000, co_in(NET_MS)) > 0)
        ;
    CHECK_INT(errno, ENOBUFS);
    before = conn_ready(&c);
    CHECK(before >= 40000 && before < 100000);
    CHECK_INT(c.in[c.pos + before - 1], 'm');
    c.pos += before - 10; /* room is made behind what is kept */
    CHECK(conn_fill(&c, 40000, co_in(NET_MS)) > 0);
    CHECK(conn_ready(&c) > 10);
    CHECK_INT(conn_peek(&c).p[0], 'm');
    co_close(peer);
    conn_finish(&c);
}

TEST(what_is_buffered_has_a_bound) { test_co(bounded, NULL); }

static char *sent;
enum { SENT = 300000 };

static void put_all(void *arg)
{
    struct conn *c = arg;
    static const size_t sizes[] = { 1, 7, 100, 5000, 8191, 8192, 16383, 16384, 16385, 50000 };
    size_t at = 0;

    for (size_t i = 0; at < SENT; i = (i + 1) % ARRAY_LEN(sizes)) {
        size_t n = MIN(sizes[i], SENT - at);

        CHECK_INT(conn_put(c, sent + at, n, co_in(NET_MS)), 0);
        at += n;
    }
    CHECK_INT(conn_flush(c, co_in(NET_MS)), 0);
    CHECK_INT(conn_flush(c, co_in(NET_MS)), 0);
    conn_finish(c);
}

static void writing(void *arg)
{
    AUTO(buf_free) struct buf got = { 0 };
    static struct conn c;

    (void)arg;
    open_conn(&c);
    sent = xmalloc(SENT);
    for (size_t i = 0; i < SENT; i++)
        sent[i] = (char)(i * 31 + i / 251);
    CHECK_INT(co_go(put_all, &c, NULL), 0);
    net_get_all(peer, &got);
    CHECK_INT(got.len, SENT);
    CHECK(!memcmp(got.data, sent, SENT));
    co_close(peer);
    free(sent);
}

TEST(pieces_of_every_size_arrive_in_order) { test_co(writing, NULL); }

static void buffered(void *arg)
{
    struct conn c;
    char b[8];

    (void)arg;
    open_conn(&c);
    CHECK_INT(conn_put(&c, "abc", 3, co_in(NET_MS)), 0);
    CHECK_INT(co_read(peer, b, 8, co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT); /* nothing leaves before the flush */
    CHECK_INT(conn_flush(&c, co_in(NET_MS)), 0);
    CHECK_INT(co_read(peer, b, 8, co_in(NET_MS)), 3);
    co_close(peer);
    CHECK_INT(conn_put(&c, "x", 1, co_in(NET_MS)), 0);
    CHECK_INT(conn_flush(&c, co_in(NET_MS)), -1);
    CHECK_INT(errno, EPIPE);
    conn_finish(&c);
}

TEST(output_waits_for_the_flush) { test_co(buffered, NULL); }

static void nowait(void *arg)
{
    struct conn c;
    char b[4];
    AUTO(freep) char *large = xmalloc(CONN_BUF);

    (void)arg;
    open_conn(&c);
    c.nowait = true;
    CHECK_INT(conn_fill(&c, CONN_BUF, NEVER), -1);
    CHECK_INT(errno, EAGAIN);
    CHECK_INT(conn_read(&c, b, 4, NEVER), -1);
    CHECK_INT(errno, EAGAIN);
    CHECK_INT(conn_read(&c, large, CONN_BUF, NEVER), -1);
    CHECK_INT(errno, EAGAIN);
    net_put(peer, STR("data"));
    CHECK_INT(conn_read(&c, large, CONN_BUF, NEVER), 4);
    co_close(peer);
    conn_finish(&c);
}

TEST(a_worker_is_told_to_come_back) { test_co(nowait, NULL); }

static void leaving(void *arg)
{
    struct conn c;

    (void)arg;
    open_conn(&c);
    CHECK(!conn_peer_left(&c));
    net_put(peer, STR("x"));
    CHECK(!conn_peer_left(&c)); /* there is something to read yet */
    co_close(peer);
    CHECK(!conn_peer_left(&c));
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 1);
    CHECK(conn_peer_left(&c));
    conn_finish(&c);
}

TEST(a_peer_has_left_when_nothing_more_can_come) { test_co(leaving, NULL); }

static bool flooding, flooded;

static void send_for_ever(void *arg)
{
    static char junk[65536];

    (void)arg;
    while (flooding && !co_write(peer, junk, sizeof(junk), co_in(NET_MS)))
        ;
    flooded = true;
}

static void linger(void *arg)
{
    AUTO(buf_free) struct buf last = { 0 };
    int64_t began;
    struct conn c;

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("unread"));
    CHECK_INT(conn_put(&c, "last words", 10, co_in(NET_MS)), 0);
    CHECK_INT(conn_flush(&c, co_in(NET_MS)), 0);
    began = clock_ms();
    conn_linger(&c, co_in(50)); /* the peer does not close: it ends at its time */
    CHECK(clock_ms() - began >= 45 && clock_ms() - began < NET_MS / 2);
    net_get_all(peer, &last);
    CHECK_STR(last.data, "last words");
    flooding = true;
    CHECK_INT(co_go(send_for_ever, NULL, NULL), 0);
    began = clock_ms();
    conn_linger(&c, co_in(50)); /* nor is one that never stops heard for ever */
    CHECK(clock_ms() - began < NET_MS / 2);
    flooding = false;
    conn_finish(&c);
    while (!flooded)
        CHECK_INT(co_sleep(co_in(1)), 0);
    co_close(peer);
}

TEST(lingering_ends_with_the_peer_or_with_its_time) { test_co(linger, NULL); }

/* ---- a peer that reads slowly ---- */

enum { MUCH = 1 << 20, SIP = 16 << 10, SIP_MS = 10, LIMIT_MS = 300 };

static size_t sipped;
static int sips_left;

/* All in all it takes far longer than the limit, and never stands still for as long. */
static void sip(void *arg)
{
    static char bytes[SIP];
    ssize_t n;

    (void)arg;
    while (sips_left && (n = co_read(peer, bytes, sizeof(bytes), co_in(NET_MS))) > 0) {
        sipped += (size_t)n;
        sips_left--;
        co_sleep(co_in(SIP_MS));
    }
    if (sips_left)
        sips_left = -1; /* it saw the end */
}

static ssize_t part_write(struct conn *c, const void *p, size_t n)
{
    return write(c->fd, p, MIN(n, (size_t)1000));
}

static ssize_t part_read(struct conn *c, void *p, size_t n) { return read(c->fd, p, n); }
static int part_end(struct conn *c) { return (void)c, 0; }
static void part_finish(struct conn *c) { (void)c; }

static const struct conn_ops part_ops = {
    .read = part_read, .write = part_write, .end = part_end, .finish = part_finish
};

/* Sends much to one that takes so many sips; the time this took, or -1. */
static int64_t send_slowly(const struct conn_ops *ops, int sips, bool patience)
{
    AUTO(freep) char *much = xcalloc(1, MUCH);
    struct iovec v = { much, MUCH };
    int64_t began = clock_ms(), until = co_in(LIMIT_MS);
    struct conn c;
    int r;

    open_conn(&c);
    c.ops = ops;
    c.patience = patience ? until : 0;
    sips_left = sips;
    sipped = 0;
    CHECK_INT(co_go(sip, NULL, NULL), 0);
    r = conn_writev(&c, &v, 1, until);
    if (r)
        CHECK_INT(errno, ETIMEDOUT);
    began = clock_ms() - began;
    conn_finish(&c);
    while (sips_left > 0)
        co_sleep(co_in(1));
    co_close(peer);
    if (!r)
        CHECK_INT(sipped, MUCH);
    return r ? -1 : began;
}

static void slowly(void *arg)
{
    const struct conn_ops *layers[] = { NULL, &part_ops };

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        CHECK(send_slowly(layers[i], INT32_MAX, false) > LIMIT_MS);
        CHECK_INT(send_slowly(layers[i], 20, false), -1); /* and then it stands still */
        CHECK_INT(send_slowly(layers[i], INT32_MAX, true), -1);
    }
}

TEST(a_peer_that_takes_something_all_the_time_is_waited_for) { test_co(slowly, NULL); }
