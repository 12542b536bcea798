/* fdpass.c - see fdpass.h. */
#include "io/fdpass.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char space[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
    struct cmsghdr align;
};

ssize_t fdpass_send(int sock, const void *p, size_t n, const int *fds, size_t nfds, int flags)
{
    union control m = { 0 };
    struct iovec v = { (void *)(size_t)p, n };
    struct msghdr msg = { .msg_iov = &v, .msg_iovlen = 1 };
    ssize_t r;

    if (nfds > FDPASS_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (nfds) {
        struct cmsghdr *c = &m.align;

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
        msg.msg_control = m.space;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
    }
    do
        r = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    return r;
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

ssize_t fdpass_recv(int sock, void *p, size_t n, int *fds, size_t *nfds, int flags)
{
    union control m;
    struct iovec v = { p, n };
    /* LEN, not SPACE: padding would make room for one descriptor more than asked for */
    struct msghdr msg = { .msg_iov = &v,
                          .msg_iovlen = 1,
                          .msg_control = *nfds ? m.space : NULL,
                          .msg_controllen = *nfds ? CMSG_LEN(*nfds * sizeof(int)) : 0 };
    const struct cmsghdr *c;
    size_t got = 0;
    ssize_t r;

    do
        r = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -1;
    c = CMSG_FIRSTHDR(&msg);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), got * sizeof(int));
    }
    /* Fewer than there was room for: it is this process that may open no more. The record is whole,
     * and its receiver must hear of it; only its descriptors are lost. */
    if (msg.msg_flags & MSG_CTRUNC && !(msg.msg_flags & MSG_TRUNC) && got < *nfds) {
        close_all(fds, got);
        got = 0;
    } else if (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) {
        close_all(fds, got);
        errno = EPROTO;
        return -1;
    }
    *nfds = got;
    return r;
}
