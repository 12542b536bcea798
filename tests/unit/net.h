/* net.h - for tests that talk: a pair of connected sockets, scripts written to one end, everything
 * read from it. All of it runs inside a coroutine. */
#ifndef TESTS_NET_H
#define TESTS_NET_H

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "io/co.h"
#include "test.h"

enum {
    NET_MS = 20000
}; /* longer than any machine is slow; nothing waits for it when all is well */

static inline void net_pair(int fd[2])
{
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

static inline void net_put(int fd, struct str s)
{
    CHECK_INT(co_write(fd, s.p, s.n, co_in(NET_MS)), 0);
}

/* Reads until the text contains `mark`. */
static inline void net_get_until(int fd, struct buf *out, const char *mark)
{
    while (!strstr(buf_cstr(out), mark)) {
        ssize_t r;

        buf_reserve(out, 4096);
        r = co_read(fd, out->data + out->len, 4096, co_in(NET_MS));
        if (r <= 0)
            test_fail(__FILE__, __LINE__, "no \"%s\" in: %s", mark, out->data);
        out->len += (size_t)r;
        out->data[out->len] = 0;
    }
}

/* Reads to the end of the stream. A reset counts as the end. */
static inline void net_get_all(int fd, struct buf *out)
{
    for (;;) {
        ssize_t r;

        buf_reserve(out, 4096);
        r = co_read(fd, out->data + out->len, 4096, co_in(NET_MS));
        if (r < 0 && errno == ETIMEDOUT)
            test_fail(__FILE__, __LINE__, "the stream does not end; so far: %s", out->data);
        if (r <= 0)
            return;
        out->len += (size_t)r;
        out->data[out->len] = 0;
    }
}

#endif
