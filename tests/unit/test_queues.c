/* test_queues.c - what the kernel says of its memory and of sockets, read from its own text and
 * from real namespaces. */
#include "jail/queues.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/net_bare.h"
#include "jail/net_sysctl.h"
#include "test.h"

enum { SOCKETS = 40, PACKET = 16000, PACKETS = 8 };

static struct err err;

/* ---- text ---- */

static const struct memory_row {
    const char *name, *text;
    int result;
    uint64_t bytes;
} memories[] = {
    { "what is left",
      "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable: 50 kB\nBuffers: 1 kB\nCached: 20 kB\n"
      "SwapCached: 2 kB\nActive: 40 kB\nAnonPages: 30 kB\nKReclaimable: 9 kB\nSlab: 12 kB\n"
      "SReclaimable: 5 kB\nSUnreclaim: 7 kB\nKernelStack: 1 kB\nPageTables: 1 kB\n",
      0, 30 << 10 },
    { "a kernel without some of it", "MemTotal: 100 kB\nMemFree: 40 kB\n", 0, 60 << 10 },
    { "more than there is", "MemTotal: 100 kB\nMemFree: 400 kB\n", 0, 0 },
    { "cut short", "MemTotal: 100 kB\nMemFree: 4", 0, 96 << 10 },
    { "numbers too large", "MemTotal: 100 kB\nMemFree: 99999999999999999999 kB\n", 0, 100 << 10 },
    { "not it", "Hello: world\n", -1, 0 },
    { "nothing", "", -1, 0 },
};

TEST_ROWS(the_kernels_own_memory_is_read, memories, test_once)
{
    uint64_t bytes = 0;

    CHECK_INT(queues_kernel_bytes(str_of(row->text), &bytes), row->result);
    CHECK_INT(bytes, row->bytes);
}

static const struct line_row {
    const char *name, *line;
    uint64_t bytes;
} lines[] = {
    { "the head", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt",
      0 },
    { "icmp",
      "   12: 0100007F:0003 00000000:0000 07 00000001:00033900 00:00000000 00000000     0        0 "
      "5 2 00000000f0cd074e 0\n",
      0x33901 },
    { "icmp6",
      "    0: 00000000000000000000000001000000:0007 00000000000000000000000000000000:0000 07 "
      "00000000:00000300 00:00000000 00000000     0        0 5 2 0 0\n",
      0x300 },
    { "too few words", "12: a b 07", 0 },
    { "no number", "12: a b 07 zz:1", 0 },
    { "no such number", "12: a b 07 1:fffffffff", 0 },
    { "nothing", "", 0 },
};

TEST_ROWS(a_line_of_ping_sockets_is_read, lines, test_once)
{
    CHECK_INT(queues_ping_line(str_of(row->line)), row->bytes);
}

static const struct protocols_row {
    const char *name, *text;
    uint64_t netlink, all;
} protocols[] = {
    { "a machine's",
      "protocol  size sockets  memory press maxhdr  slab module     cl co di\n"
      "PACKET    1600      1      -1   NI       0   no   kernel      n  n\n"
      "UNIX-STREAM 1152      2      -1   NI       0   yes  kernel\n"
      "TCP       2304     40       7   no     320   yes  kernel      y  y\n"
      "NETLINK   1096    300      -1   NI       0   no   kernel\n",
      300, 343 },
    { "numbers that are none",
      "TCP 1 -4 0\nUDP 1 99999999999999999999 0\nRAW 1 9999999999 0\nPING 1 3\n", 0, 3 },
    { "cut short", "TCP 2304 40 7\nUDP 1344", 0, 40 },
    { "nothing", "", 0, 0 },
};

TEST_ROWS(what_protocols_list_is_read, protocols, test_once)
{
    uint64_t netlink = 1, all = 1;

    queues_protocols(str_of(row->text), &netlink, &all);
    CHECK_INT(netlink, row->netlink);
    CHECK_INT(all, row->all);
}

/* ---- namespaces ---- */

static int failed(int line)
{
    printf("# line %d failed\n", line);
    fflush(stdout);
    return 1;
}
#define MUST(cond)                                                                                 \
    do                                                                                             \
        if (!(cond))                                                                               \
            return failed(__LINE__);                                                               \
    while (0)

/* What does not exist is asked for, and the answers repeat it. */
static int fill_netlink(void)
{
    static union {
        struct nlmsghdr h;
        char bytes[PACKET];
    } m;

    m.h = (struct nlmsghdr){ .nlmsg_len = sizeof(m),
                             .nlmsg_type = RTM_MAX + 1,
                             .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK };
    for (int i = 0; i < SOCKETS; i++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

        MUST(fd >= 0);
        for (int k = 0; k < PACKETS; k++)
            MUST(send(fd, &m, sizeof(m), 0) == sizeof(m));
    }
    return 0;
}

static int fill_ping(void)
{
    static union {
        struct icmphdr h;
        char bytes[PACKET];
    } m = { .h = { .type = ICMP_ECHO } };
    struct sockaddr_in lo = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };

    for (int i = 0; i < SOCKETS; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);

        MUST(fd >= 0);
        for (int k = 0; k < PACKETS; k++)
            MUST(sendto(fd, &m, sizeof(m), 0, (struct sockaddr *)&lo, sizeof(lo)) == sizeof(m));
    }
    return 0;
}

static int many_netlink(void)
{
    for (int i = 0; i < SOCKETS; i++) /* none of them has an address */
        MUST(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) >= 0);
    return 0;
}

/* What is sent to nobody comes back as an error, with its head. Disconnected, the socket is in no
 * list. */
static int fill_errors_of(bool disconnect)
{
    static const struct sockaddr none = { .sa_family = AF_UNSPEC };

    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_addr = { htonl(INADDR_LOOPBACK) },
                              .sin_port = htons(9) };
    static const char bytes[1000];

    for (int i = 0; i < SOCKETS; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);

        MUST(fd >= 0 && !setsockopt(fd, SOL_IP, IP_RECVERR, &(int){ 1 }, sizeof(int)));
        for (int k = 0; k < 2 * PACKETS; k++) /* half of them say that there was an error */
            (void)!sendto(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&to, sizeof(to));
        MUST(!disconnect || !connect(fd, &none, sizeof(none)));
    }
    return 0;
}

static int fill_errors(void) { return fill_errors_of(false); }

static int fill_unlisted(void) { return fill_errors_of(true); }

/* A connection that nobody accepts, whose other end is gone: in order, or by a reset. */
static int fill_waiting_of(bool reset)
{
    static const struct linger at_once = { 1, 0 };

    static const char bytes[PACKET];
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    socklen_t n = sizeof(at);

    MUST(!bind(listener, (struct sockaddr *)&at, n) && !listen(listener, SOCKETS) &&
         !getsockname(listener, (struct sockaddr *)&at, &n));
    for (int i = 0; i < SOCKETS; i++) {
        int fd = socket(AF_INET6, SOCK_STREAM, 0);

        MUST(!connect(fd, (struct sockaddr *)&at, n));
        MUST(send(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
        MUST(!reset || !setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
        close(fd);
    }
    return 0;
}

static int fill_waiting(void) { return fill_waiting_of(false); }

static int fill_reset(void) { return fill_waiting_of(true); }

/* A process with a network of its own and what `fill` puts there; 0 at a failure. */
static pid_t start(int (*fill)(void))
{
    int ready[2];
    char byte;
    pid_t pid;

    CHECK_INT(pipe(ready), 0);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (net_bare(&err) || net_bare_ping(&err) || (fill && fill()) ||
            write(ready[1], "x", 1) < 0)
            _exit(1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    byte = read(ready[0], &byte, 1) == 1 ? 1 : 0;
    close(ready[0]);
    CHECK(byte);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* By a child, as it stays in the namespace. */
static uint64_t sum(pid_t pid, uint64_t *unlisted)
{
    struct queues q = { 0 };
    int back[2];
    pid_t child;

    CHECK_INT(pipe(back), 0);
    fflush(stdout);
    child = fork();
    if (!child) {
        if (queues_sum(pid, &q, &err) || write(back[1], &q, sizeof(q)) < 0)
            _exit(failed(__LINE__));
        _exit(0);
    }
    close(back[1]);
    CHECK_INT(read(back[0], &q, sizeof(q)), sizeof(q));
    close(back[0]);
    waitpid(child, NULL, 0);
    *unlisted = q.unlisted;
    return q.uncharged + q.inet;
}

static const struct kind {
    const char *name;
    int (*fill)(void);
    uint64_t least, sockets, unlisted;
} kinds[] = {
    { "nothing", NULL, 0, 0 },
    { "netlink without an address", many_netlink, (uint64_t)SOCKETS * 2048, SOCKETS },
    { "netlink", fill_netlink, (uint64_t)SOCKETS *PACKETS *PACKET, SOCKETS },
    { "ping", fill_ping, (uint64_t)SOCKETS *PACKETS *PACKET, SOCKETS },
    { "errors", fill_errors, (uint64_t)SOCKETS *PACKETS * 1000, SOCKETS },
    { "connections that wait", fill_waiting, (uint64_t)SOCKETS *PACKET, SOCKETS },
    { "errors of what is disconnected", fill_unlisted, 0, SOCKETS, SOCKETS },
    { "connections that wait and are reset", fill_reset, 0, SOCKETS, SOCKETS },
};

TEST_ROWS(what_waits_in_a_namespace_is_summed, kinds, test_once)
{
    uint64_t sockets, bytes, unlisted;
    pid_t pid;

    if (geteuid()) {
        printf("# skipped: a network of one's own needs root\n");
        return;
    }
    pid = start(row->fill);
    CHECK_INT(queues_sockets(pid, &sockets), 0);
    CHECK(sockets >= row->sockets &&
          sockets < 2 * row->sockets + 10); /* other ends, and some of the kernel's own */
    bytes = sum(pid, &unlisted);
    CHECK(bytes >= row->least);
    CHECK(bytes < 2 * row->least + (1 << 20)); /* not those of others */
    CHECK(unlisted >= row->unlisted && unlisted < row->unlisted + 10);
    end(pid);
}

TEST(a_process_that_is_gone_has_no_sockets)
{
    uint64_t sockets;
    struct queues q;
    pid_t pid = fork();

    if (!pid)
        _exit(0);
    waitpid(pid, NULL, 0);
    CHECK_INT(queues_sockets(pid, &sockets), -1);
    CHECK_INT(queues_sum(pid, &q, &err), -1);
    CHECK(strstr(err.msg, "enter the network of process"));
}
