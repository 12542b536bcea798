/* sock.c - see sock.h. */
#include "io/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/co.h"

static int parse_unix(struct str path, struct addr *out, struct err *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&out->sa;

    if (!path.n || path.n >= sizeof(un->sun_path))
        return err_set(err, ERR_INVALID, "socket path must have 1 to %zu bytes",
                       sizeof(un->sun_path) - 1);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path.p, path.n);
    out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.n + 1);
    return 0;
}

static int parse_host(const char *host, uint16_t port, struct addr *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&out->sa;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&out->sa;

    if (!strcmp(host, "localhost"))
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        out->len = sizeof(*in);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        out->len = sizeof(*in6);
        return 0;
    }
    return -1;
}

int addr_parse(struct str text, struct addr *out, struct err *err)
{
    char host[64];
    uint64_t port;
    const char *colon;
    struct str h;

    memset(out, 0, sizeof(*out));
    if (str_starts(text, "unix:"))
        return parse_unix((struct str){ text.p + 5, text.n - 5 }, out, err);
    colon = text.n ? memrchr(text.p, ':', text.n) : NULL;
    if (!colon)
        return err_set(err, ERR_INVALID, "address '%.*s' must look like ADDR:PORT or unix:PATH",
                       STR_ARG(text));
    h = (struct str){ text.p, (size_t)(colon - text.p) };
    if (h.n >= 2 && h.p[0] == '[' && h.p[h.n - 1] == ']')
        h = (struct str){ h.p + 1, h.n - 2 };
    if (str_u64((struct str){ colon + 1, text.n - (size_t)(colon - text.p) - 1 }, &port) ||
        port > 65535 || h.n >= sizeof(host))
        return err_set(err, ERR_INVALID, "address '%.*s': the port must be a number up to 65535",
                       STR_ARG(text));
    memcpy(host, h.p, h.n);
    host[h.n] = 0;
    if (parse_host(host, (uint16_t)port, out))
        return err_set(err, ERR_INVALID, "address '%.*s': '%s' is not an IP address", STR_ARG(text),
                       host);
    return 0;
}

void addr_print(const struct addr *a, char *out, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (a->sa.ss_family == AF_UNIX) {
        snprintf(out, n, "unix:%s", ((const struct sockaddr_un *)(const void *)&a->sa)->sun_path);
    } else if (a->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a->sa;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(out, n, "%s:%u", host, ntohs(in->sin_port));
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&a->sa;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(out, n, "[%s]:%u", host, ntohs(in6->sin6_port));
    }
}

int64_t sock_peer_ms = 60000;

void sock_look_after(int fd)
{
    enum { UNSENT_BYTES = 128 << 10 };
    int64_t second = 1000;
    int on = 1, idle = (int)MAX(sock_peer_ms / 2 / second, (int64_t)1),
        again = (int)MAX(sock_peer_ms / 6 / second, (int64_t)1), times = 3, unsent = UNSENT_BYTES;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof(again));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

/* What TCP_USER_TIMEOUT would be for, if it did not also end, since Linux 5.11, the connection of a
 * peer that answers every probe and has only not read for that long. A peer that does not read is
 * probed ever more rarely, up to two minutes apart, so its last answer may be old: only probes that
 * stay unanswered say something, and one of them may have been lost on the way. A peer that closed
 * its window over what was under way already is probed with that, and then it counts as unanswered
 * all the time: there it is the age of the last answer that speaks, beyond two of the waits. */
bool sock_info_lives(const struct tcp_info *i)
{
    int64_t waits_ms = 2 * (int64_t)i->tcpi_rto / 1000;

    if (i->tcpi_last_ack_recv < sock_peer_ms)
        return true;
    if (!i->tcpi_unacked)
        return i->tcpi_probes < 2;
    return !i->tcpi_snd_wnd && i->tcpi_last_ack_recv <= waits_ms;
}

bool sock_peer_lives(int fd)
{
    struct tcp_info i = { 0 }; /* a kernel that does not tell of the window: it may be closed */
    socklen_t n = sizeof(i);

    /* not TCP: its end is always told */
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) || sock_info_lives(&i);
}

int sock_open(const struct addr *a, struct err *err)
{
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? err_sys(err, "socket") : fd;
}

int sock_listen(const struct addr *a, struct err *err)
{
    AUTO(closep) int fd = sock_open(a, err);
    struct stat st;
    char name[128];
    int one = 1;

    if (fd < 0)
        return -1;
    addr_print(a, name, sizeof(name));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sock_look_after(fd); /* before the first connection; its server does so again as it is set */
    if (a->sa.ss_family == AF_UNIX && !lstat(name + 5, &st) && S_ISSOCK(st.st_mode))
        unlink(name + 5); /* a socket left behind by an earlier run; never a file */
    if (bind(fd, (const struct sockaddr *)&a->sa, a->len))
        return err_sys(err, "bind %s", name);
    if (listen(fd, 4096))
        return err_sys(err, "listen on %s", name);
    return TAKE(fd, -1);
}

union fd_message {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int sock_send_fd(int sock, int fd, int64_t until, struct err *err)
{
    char byte = 0;
    struct iovec v = { &byte, 1 };
    union fd_message m = { 0 };
    struct msghdr msg = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = m.space, .msg_controllen = sizeof(m.space)
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    while (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0)
        if (errno == EAGAIN ? co_wait(sock, CO_OUT, until) : errno != EINTR)
            return err_sys(err, "pass a descriptor");
    return 0;
}

int sock_recv_fd(int sock, int64_t until, struct err *err)
{
    char byte;
    struct iovec v = { &byte, 1 };
    union fd_message m;
    struct msghdr msg = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = m.space, .msg_controllen = sizeof(m.space)
    };
    struct cmsghdr *c;
    ssize_t r;
    int fd;

    while ((r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC)) < 0)
        if (errno == EAGAIN ? co_wait(sock, CO_IN, until) : errno != EINTR)
            return err_sys(err, "receive a descriptor");
    if (!r)
        return err_set(err, ERR_GONE, "the peer closed");
    c = CMSG_FIRSTHDR(&msg);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len < CMSG_LEN(sizeof(int)))
        return err_set(err, ERR_INVALID, "a message without a descriptor");
    memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    if (c->cmsg_len == CMSG_LEN(sizeof(int)))
        return fd;
    for (size_t at = 0; CMSG_LEN(at + sizeof(fd)) <= c->cmsg_len; at += sizeof(fd)) {
        memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd)); /* padding leaves room for a second one */
        close(fd);
    }
    return err_set(err, ERR_INVALID, "a message with more than one descriptor");
}
