/* co_io.c - reading, writing, accepting and connecting, for both runtimes: try, then wait. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/co.h"

void co_closep(const int *fd) { co_close(*fd); }

bool co_linger_in_call(int fd, enum co_dir dir, int64_t moved)
{
    enum { FAST = 256 << 10, WAIT_MS = 5 };
    struct pollfd p = { fd, dir == CO_IN ? POLLIN : POLLOUT, 0 };

    if (moved >= FAST && poll(&p, 1, WAIT_MS) > 0)
        return true;
    errno = EAGAIN; /* what the caller has met */
    return false;
}

ssize_t co_read(int fd, void *buf, size_t n, int64_t until)
{
    for (;;) {
        ssize_t r = read(fd, buf, n);

        if (r >= 0 || (errno != EAGAIN && errno != EINTR))
            return r;
        if (errno == EAGAIN && co_wait(fd, CO_IN, until))
            return -1;
    }
}

ssize_t co_read_full(int fd, void *buf, size_t n, int64_t until)
{
    size_t got = 0;

    while (got < n) {
        ssize_t r = co_read(fd, (char *)buf + got, n - got, until);

        if (r < 0)
            return -1;
        if (!r)
            break;
        got += (size_t)r;
    }
    return (ssize_t)got;
}

int co_writev(int fd, struct iovec *v, int count, int64_t until)
{
    while (count) {
        ssize_t r = writev(fd, v, count); /* SIGPIPE is ignored by every program of ours */

        if (r < 0) {
            if (errno == EAGAIN ? co_wait(fd, CO_OUT, until) : errno != EINTR)
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
        }
    }
    return 0;
}

int co_write(int fd, const void *buf, size_t n, int64_t until)
{
    struct iovec v = { (void *)(uintptr_t)buf, n };

    return n ? co_writev(fd, &v, 1, until) : 0;
}

void co_carry(int from, int to)
{
    enum { CARRY_BYTES = 64 << 10 };
    char *bytes = xmalloc(CARRY_BYTES); /* a stack has no room for it */
    ssize_t n;

    while ((n = co_read(from, bytes, CARRY_BYTES, NEVER)) > 0)
        if (co_write(to, bytes, (size_t)n, NEVER))
            break;
    shutdown(to, SHUT_WR);
    free(bytes);
}

int co_accept(int listener)
{
    for (;;) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* not TCP: no harm */
            return fd;
        }
        switch (errno) {
        case EAGAIN:
            if (co_wait(listener, CO_IN, NEVER))
                return -1;
            break;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM: /* some connection will close */
            if (co_sleep(co_in(20)))
                return -1;
            break;
        case EINTR:
        case ECONNABORTED:
        case EPROTO: break;
        default: return -1;
        }
    }
}

int co_connect(int fd, const void *addr, socklen_t len, int64_t until)
{
    int e = 0, one = 1;
    socklen_t n = sizeof(e);

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (!connect(fd, addr, len))
        return 0;
    if (errno != EINPROGRESS || co_wait(fd, CO_OUT, until) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n))
        return -1;
    errno = e;
    return e ? -1 : 0;
}
