/* rig.h - servers on a free port for the tests of HTTP: httpd, or a script that speaks in bytes.
 * Each test program uses a part of it. */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include <errno.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/httpd.h"
#include "io/sock.h"
#include "test.h"

#define UNUSED __attribute__((unused))

static int rig_listen(struct addr *a)
{
    struct err err = { 0 };
    int fd;

    CHECK_INT(addr_parse(STR("127.0.0.1:0"), a, &err), 0);
    fd = sock_listen(a, &err);
    CHECK(fd >= 0);
    a->len = sizeof(a->sa);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&a->sa, &a->len), 0);
    return fd;
}

UNUSED static int rig_connect(const struct addr *a)
{
    struct err err = { 0 };
    int fd = sock_open(a, &err);

    CHECK_INT(co_connect(fd, &a->sa, a->len, co_in(2000)), 0);
    return fd;
}

struct rig { /* a server: either d or script is set */
    struct addr addr;
    int listener;
    int accepted, ended;
    bool over; /* it listens no more */
    struct httpd *d;
    void (*script)(int fd, int nth); /* one connection; nth counts from 0 */
};

struct rig_conn {
    struct rig *rig;
    int fd, nth;
};

static void rig_conn(void *arg)
{
    struct rig_conn c = *(struct rig_conn *)arg;

    free(arg);
    c.rig->script(c.fd, c.nth);
    co_close(c.fd);
    c.rig->ended++;
}

static void rig_run(void *arg)
{
    struct rig *r = arg;

    if (r->d) {
        httpd_listen(r->d, r->listener);
        r->over = true;
        return;
    }
    for (int fd; (fd = co_accept(r->listener)) >= 0;) {
        struct rig_conn *c = xmalloc(sizeof(*c));

        *c = (struct rig_conn){ r, fd, r->accepted++ };
        CHECK_INT(co_go(rig_conn, c, NULL), 0);
    }
    co_close(r->listener);
    r->over = true;
}

static void rig_start(struct rig *r)
{
    r->listener = rig_listen(&r->addr);
    r->accepted = r->ended = 0;
    r->over = false;
    CHECK_INT(co_go(rig_run, r, NULL), 0);
}

/* After co_cancel_all(), before what it serves goes with the caller's stack. */
UNUSED static void rig_wait(const struct rig *r)
{
    while (!r->over || (r->d && r->d->conns))
        co_sleep(co_in(1));
}

UNUSED static void rig_say(int fd, const char *text)
{
    CHECK_INT(co_write(fd, text, strlen(text), co_in(5000)), 0);
}

/* Reads until `end` has been seen; false when the stream ends first. */
UNUSED static bool rig_hear(int fd, struct buf *b, const char *end)
{
    for (;;) {
        ssize_t r;

        if (b->data && strstr(b->data, end))
            return true;
        buf_reserve(b, 64 << 10);
        r = co_read(fd, b->data + b->len, b->cap - b->len - 1, co_in(5000));
        if (!r)
            errno = 0;
        if (r <= 0)
            return false;
        b->len += (size_t)r;
        b->data[b->len] = 0;
    }
}

/* Hears one head and forgets it; false at the end. */
UNUSED static bool rig_hear_head(int fd)
{
    AUTO(buf_free) struct buf b = { 0 };

    return rig_hear(fd, &b, "\r\n\r\n");
}

/* Everything up to the end: 0 a clean end, else errno. */
UNUSED static int rig_hear_all(int fd, struct buf *b)
{
    return rig_hear(fd, b, "\001\002never") ? -1 : errno;
}

#endif
