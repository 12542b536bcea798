/* queues.c - see queues.h. */
#include "jail/queues.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/netlink.h"

enum { /* one that is empty, of the kernel's general memory */
       NETLINK_SOCKET_BYTES = 2048,
       WAITING_SOCKET_BYTES = 2048
};

/* ---- the machine ---- */

int queues_kernel_bytes(struct str text, uint64_t *out)
{
    static const char *const others[] = {
        "MemFree",   "Buffers",      "Cached",      "SwapCached",
        "AnonPages", "SReclaimable", "KernelStack", "PageTables"
    };
    uint64_t total = 0, known = 0, kib;
    struct str line, name, value;

    while (str_next(&text, '\n', &line)) {
        if (!str_cut(line, ':', &name, &value))
            continue;
        value = str_trim(value);
        str_cut(value, ' ', &value, &(struct str){ 0 });
        if (str_u64(value, &kib) || kib > UINT64_MAX >> 20)
            continue;
        if (str_is(name, "MemTotal"))
            total = kib;
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            known += str_is(name, others[i]) ? kib : 0;
    }
    if (!total)
        return -1;
    *out = total > known ? (total - known) << 10 : 0;
    return 0;
}

/* ---- one namespace ---- */

static int used_sockets(const char *path, uint64_t *out)
{
    static const char word[] = "sockets: used ";
    char text[64];
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return -1;
    text[n] = 0;
    if (strncmp(text, word, sizeof(word) - 1) != 0) {
        errno = EPROTO;
        return -1;
    }
    *out = strtoull(text + sizeof(word) - 1, NULL, 10);
    return 0;
}

int queues_sockets(pid_t pid, uint64_t *out)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/net/sockstat", pid);
    return used_sockets(path, out);
}

/* "UDP       1344     10     136   NI ...": the third word. One without a number has none. */
void queues_protocols(struct str text, uint64_t *netlink, uint64_t *all)
{
    struct str line, name, size, rest, count;
    uint64_t n;

    *netlink = *all = 0;
    while (str_next(&text, '\n', &line)) {
        str_cut(str_trim(line), ' ', &name, &rest);
        str_cut(str_trim(rest), ' ', &size, &rest);
        str_cut(str_trim(rest), ' ', &count, &rest);
        if (str_u64(count, &n) || n > INT32_MAX)
            continue;
        *all += n;
        if (str_is(name, "NETLINK"))
            *netlink += n;
    }
}

/* Both counts change while we read: one that is made in between is missing in the first. */
static int count_sockets(struct queues *q)
{
    char text[16384];
    AUTO(closep) int fd = open("/proc/thread-self/net/protocols", O_RDONLY | O_CLOEXEC);
    uint64_t used, netlink, all;
    size_t n = 0;
    ssize_t got;

    if (fd < 0 || used_sockets("/proc/thread-self/net/sockstat", &used))
        return -1;
    while (n < sizeof(text) && (got = read(fd, text + n, sizeof(text) - n)) > 0)
        n += (size_t)got;
    queues_protocols((struct str){ text, n }, &netlink, &all);
    q->uncharged += netlink * NETLINK_SOCKET_BYTES;
    q->unlisted = used > all ? used - all : 0;
    return 0;
}

static uint64_t add_up(const struct nlattr *meminfo, const unsigned *what, size_t n)
{
    const uint32_t *of = mnl_attr_get_payload(meminfo);
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        if (mnl_attr_get_payload_len(meminfo) >= (what[i] + 1) * sizeof(*of))
            bytes += of[what[i]];
    return bytes;
}

static int add_netlink(const struct nlmsghdr *h, void *arg)
{
    static const unsigned what[] = { SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_ALLOC,
                                     SK_MEMINFO_OPTMEM, SK_MEMINFO_BACKLOG };
    uint64_t *bytes = arg;

    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return MNL_CB_OK;
    for (const struct nlattr *a = NULL;
         (a = netlink_next(h, sizeof(struct netlink_diag_msg), a)) != NULL;)
        if (mnl_attr_get_type(a) == NETLINK_DIAG_MEMINFO)
            *bytes += add_up(a, what, ARRAY_LEN(what));
    return MNL_CB_OK;
}

/* Those that have an address; the others have no queue. By dump: the file in /proc begins anew with
 * each read, and takes minutes for a million. */
static int sum_netlink(uint64_t *bytes)
{
    union netlink_request r;
    struct netlink_diag_req *q =
        netlink_begin(&r, SOCK_DIAG_BY_FAMILY, 0, sizeof(struct netlink_diag_req));

    *q = (struct netlink_diag_req){ .sdiag_family = AF_NETLINK,
                                    .sdiag_protocol = NETLINK_ROUTE, /* the filter's only one */
                                    .ndiag_show = NDIAG_SHOW_MEMINFO };
    return netlink_dump(NETLINK_SOCK_DIAG, &r, add_netlink, bytes);
}

/* A connection is charged to who accepts it, from then on: it has no inode before. What is kept for
 * the reader of errors (IP_RECVERR, SO_TIMESTAMPING) is never charged, and is a part of what was
 * received. */
static int add_inet(const struct nlmsghdr *h, void *arg)
{
    static const unsigned what[] = { SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_QUEUED,
                                     SK_MEMINFO_OPTMEM, SK_MEMINFO_BACKLOG };
    const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
    struct queues *q = arg;
    uint64_t bytes = 0;
    bool waiting;

    if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || mnl_nlmsg_get_payload_len(h) < sizeof(*m))
        return MNL_CB_OK;
    waiting =
        !m->idiag_inode && (m->idiag_state == TCP_ESTABLISHED || m->idiag_state == TCP_CLOSE_WAIT);
    for (const struct nlattr *a = NULL; (a = netlink_next(h, sizeof(*m), a)) != NULL;)
        if (mnl_attr_get_type(a) == INET_DIAG_SKMEMINFO)
            bytes += add_up(a, what, ARRAY_LEN(what));
    if (waiting)
        q->uncharged += bytes + WAITING_SOCKET_BYTES;
    else
        q->inet += bytes;
    return MNL_CB_OK;
}

/* A kernel may lack the module that lists these: then the others are summed all the same. */
static int sum_inet(int family, int protocol, struct queues *q)
{
    static const uint32_t none = 1 << TCP_LISTEN | 1 << TCP_TIME_WAIT | 1 << 12 /* NEW_SYN_RECV */;
    union netlink_request r;
    struct inet_diag_req_v2 *d =
        netlink_begin(&r, SOCK_DIAG_BY_FAMILY, 0, sizeof(struct inet_diag_req_v2));

    *d = (struct inet_diag_req_v2){ .sdiag_family = (uint8_t)family,
                                    .sdiag_protocol = (uint8_t)protocol,
                                    .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                                    .idiag_states = ~none };
    return netlink_dump(NETLINK_SOCK_DIAG, &r, add_inet, q) && errno != ENOENT ? -1 : 0;
}

/* "  12: 0100007F:0003 00000000:0000 07 00000000:00000000 ...": the fifth word, in hexadecimal. */
uint64_t queues_ping_line(struct str line)
{
    struct str word = { 0 }, sent, received;
    uint64_t tx, rx;

    for (int i = 0; i < 5; i++)
        str_cut(str_trim(line), ' ', &word, &line);
    if (!str_cut(word, ':', &sent, &received) || str_hex(sent, &tx) || str_hex(received, &rx) ||
        tx > UINT32_MAX || rx > UINT32_MAX)
        return 0;
    return tx + rx;
}

/* Nobody else lists ping sockets. At most 65,536 are in a namespace: each has a number of its own.
 */
static void sum_ping(const char *path, uint64_t *bytes)
{
    AUTO(freep) char *line = NULL;
    FILE *f = fopen(path, "re");
    size_t room = 0;
    ssize_t n;

    if (!f)
        return; /* a kernel without IPv6 */
    while ((n = getline(&line, &room, f)) > 0)
        *bytes += queues_ping_line((struct str){ line, (size_t)n });
    fclose(f);
}

int queues_sum(pid_t pid, struct queues *out, struct err *err)
{
    char path[32];
    AUTO(closep) int ns = -1;
    int r;

    *out = (struct queues){ 0 };
    snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET))
        return err_sys(err, "enter the network of process %d", pid);
    sum_ping("/proc/thread-self/net/icmp", &out->uncharged);
    sum_ping("/proc/thread-self/net/icmp6", &out->uncharged);
    r = count_sockets(out) || sum_netlink(&out->uncharged) || sum_inet(AF_INET, IPPROTO_UDP, out) ||
        sum_inet(AF_INET6, IPPROTO_UDP, out) || sum_inet(AF_INET, IPPROTO_TCP, out) ||
        sum_inet(AF_INET6, IPPROTO_TCP, out);
    return r ? err_sys(err, "list sockets") : 0;
}
