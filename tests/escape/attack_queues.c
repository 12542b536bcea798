/* attack_queues.c - memory by way of what waits in sockets that nobody reads. Used with `hold`:
 * each fills sockets until there is so much in them, or no more goes in, says how many MiB that is,
 * and keeps them. */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

enum {
    MIB = 1 << 20,
    MOST = 3000,         /* sockets */
    CONNECTIONS = 40000, /* that nobody holds */
    WISH = 4 * MIB,
    FULL = 3,
    PACKET = 60000,
    BACKLOG = 1000,
    HALF_WINDOW = 30000,
};

static char packet[PACKET];

/* One's own queues: received, and sent to somebody who does not take it. */
static long waiting(int fd)
{
    uint32_t of[SK_MEMINFO_VARS] = { 0 };
    socklen_t n = sizeof(of);

    getsockopt(fd, SOL_SOCKET, SO_MEMINFO, of, &n);
    return (long)of[SK_MEMINFO_RMEM_ALLOC] + of[SK_MEMINFO_WMEM_QUEUED];
}

static int open_socket(int family, int type, int protocol)
{
    int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ WISH }, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ WISH }, sizeof(int));
    return fd;
}

/* Sends until nothing more arrives; the bytes that wait then, where they arrive. */
static long fill(int from, int to, size_t size)
{
    long before, now = 0;
    int same = 0;

    do {
        before = now;
        for (int i = 0; i < 4 && send(from, packet, size, 0) >= 0; i++)
            continue;
        now = waiting(to) + (from == to ? 0 : waiting(from));
        same = now > before ? 0 : same + 1;
    } while (same < FULL);
    return now;
}

/* ---- one of each kind; -1: there is none to be had ---- */

/* What it asks for does not exist, and the answer repeats it. */
static long netlink(void)
{
    int fd = open_socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct nlmsghdr *h = (struct nlmsghdr *)(void *)packet;

    *h = (struct nlmsghdr){ .nlmsg_len = 16000,
                            .nlmsg_type = RTM_MAX + 1,
                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK };
    return fd < 0 ? -1 : fill(fd, fd, h->nlmsg_len);
}

static long echo(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = open_socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);

    ((struct icmphdr *)(void *)packet)->type = ICMP_ECHO;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
        return -1;
    return fill(fd, fd, sizeof(packet));
}

static bool bind_loopback(int fd, struct sockaddr_in *at)
{
    socklen_t n = sizeof(*at);

    *at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    return !bind(fd, (struct sockaddr *)at, n) && !getsockname(fd, (struct sockaddr *)at, &n);
}

static long udp(void)
{
    int from = open_socket(AF_INET, SOCK_DGRAM, 0), to = open_socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at;
    long now;

    if (from < 0 || to < 0 || !bind_loopback(to, &at) ||
        connect(from, (struct sockaddr *)&at, sizeof(at)))
        return -1;
    now = fill(from, to, sizeof(packet));
    close(from);
    return now;
}

static long tcp(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), from = open_socket(AF_INET, SOCK_STREAM, 0), to;
    struct sockaddr_in at;

    if (listener < 0 || from < 0 || !bind_loopback(listener, &at) || listen(listener, 1))
        return -1;
    connect(from, (struct sockaddr *)&at, sizeof(at)); /* is on its way */
    to = accept(listener, NULL, NULL);
    close(listener);
    return to < 0 ? -1 : fill(from, to, sizeof(packet));
}

/* What comes back from a port where nobody is, with as much of it as was sent. */
static int errors_in(long *bytes)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_addr = { htonl(INADDR_LOOPBACK) },
                              .sin_port = htons(9) };
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    long before, now = 0;

    if (fd < 0 || setsockopt(fd, SOL_IP, IP_RECVERR, &(int){ 1 }, sizeof(int)))
        return -1;
    do {
        before = now;
        for (int i = 0; i < 8; i++)
            (void)!sendto(fd, packet, 1000, 0, (struct sockaddr *)&to, sizeof(to));
        now = waiting(fd);
    } while (now > before);
    *bytes = now;
    return fd;
}

static long errors(void)
{
    long bytes;

    return errors_in(&bytes) < 0 ? -1 : bytes;
}

/* Without an address it is in no list of the kernel, and keeps what it has. */
static long unlisted(void)
{
    static const struct sockaddr none = { .sa_family = AF_UNSPEC };
    long bytes;
    int fd = errors_in(&bytes);

    return fd < 0 || connect(fd, &none, sizeof(none)) ? -1 : bytes;
}

/* A connection that nobody accepts; who made it is gone. Seen from outside alone. */
static long connection_of(bool reset)
{
    static const struct linger at_once = { 1, 0 };

    static int listener = -1;
    static struct sockaddr_in at;
    static int room;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    long n;

    if (!room--) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        if (!bind_loopback(listener, &at) || listen(listener, BACKLOG))
            return -1;
        room = BACKLOG - 1;
    }
    connect(fd, (struct sockaddr *)&at, sizeof(at)); /* is on its way */
    n = send(fd, packet, HALF_WINDOW, 0);
    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
    return n;
}

static long connection(void) { return connection_of(false); }

static long reset(void) { return connection_of(true); }

static long (*const kinds[])(void) = {
    netlink, echo, udp, tcp, errors, connection, unlisted, reset
};

static long queue(const struct attempt *a)
{
    long most = strtol(setting("QUEUE_MIB"), NULL, 10) * MIB, now = 0;

    int all = kinds[a->nr] == connection || kinds[a->nr] == reset ? CONNECTIONS : MOST;

    for (int i = 0, empty = 0; i < all && now < most && empty < 64; i++) {
        long one = kinds[a->nr]();

        if (one < 0)
            break;
        empty = one ? 0 : empty + 1; /* the limit was met */
        now += one;
    }
    return now / MIB;
}

const struct attempt attack_queues[] = { { "queue-netlink", queue, {}, NULL, 0 },
                                         { "queue-ping", queue, {}, NULL, 1 },
                                         { "queue-udp", queue, {}, NULL, 2 },
                                         { "queue-tcp", queue, {}, NULL, 3 },
                                         { "queue-errors", queue, {}, NULL, 4 },
                                         { "queue-waiting", queue, {}, NULL, 5 },
                                         { "queue-unlisted", queue, {}, NULL, 6 },
                                         { "queue-reset", queue, {}, NULL, 7 },
                                         {} };
