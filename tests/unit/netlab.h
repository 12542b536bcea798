/* netlab.h - a machine and an internet of our own for the tests of the sandbox network.
 *
 * The test process moves into a fresh network namespace, the "host"; a child in another one is the
 * "internet": it has public and private addresses alike, and on each a greeting at TCP 7, an echo
 * at UDP 7 and a name server at 53. Everything dies with the two processes. */
#ifndef TESTS_NETLAB_H
#define TESTS_NETLAB_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/sock.h"
#include "jail/ids.h"
#include "jail/net.h"
#include "jail/net_link.h"
#include "jail/net_sysctl.h"
#include "test.h"

enum { LAB_MS = 30000 }; /* at most: one worker of the kernel takes down the namespaces of all */

static struct {
    bool ready;
    pid_t internet;
    pid_t owner; /* who removes the directory */
    char dir[64];
    char resolv_conf[96];
    struct net_options options;
} lab;

static const char *const lab_addresses[] = {
    "11.0.113.5/24",          "169.254.169.254/32",   "10.1.2.3/32",
    "192.168.7.7/32",         "172.20.0.9/32",        "100.100.100.200/32",
    "192.0.0.192/32",         "198.18.0.1/32",        "168.63.129.16/32",
    "2a0a:db8:5::5/64",       "fd00:ec2::254/128",    "64:ff9b::a9fe:a9fe/128",
    "2002:a01:203::1/128",    "192.0.2.1/32",         "198.51.100.1/32",
    "203.0.113.77/32",        "192.88.99.1/32",       "2001:db8:9::9/128",
    "2a0b::5efe:909:909/128", "64:ff9b::909:909/128",
};

static inline struct net_cidr lab_cidr(const char *text)
{
    struct net_cidr c = { .prefix = 0 };
    struct str host, prefix;
    char address[64];
    uint64_t bits = 0;

    str_cut(str_of(text), '/', &host, &prefix); /* an address with its network: bits stay */
    snprintf(address, sizeof(address), "%.*s", STR_ARG(host));
    c.ip.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    CHECK_INT(inet_pton(c.ip.family, address, c.ip.b), 1);
    CHECK_INT(str_u64(prefix, &bits), 0);
    c.prefix = (unsigned)bits;
    return c;
}

static inline void lab_address(struct addr *out, const char *ip, unsigned port)
{
    char text[96];
    struct err err;

    snprintf(text, sizeof(text), strchr(ip, ':') ? "[%s]:%u" : "%s:%u", ip, port);
    CHECK_INT(addr_parse(str_of(text), out, &err), 0);
}

/* ---- the internet ---- */

static inline int lab_listen(int type, unsigned port)
{
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0), off = 0;
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };

    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || (type == SOCK_STREAM && listen(fd, 64)))
        _exit(9);
    return fd;
}

/* Answers a question with one address. "quiet..." is never answered; "wrong..." gets an answer to
 * another question first. 0: no answer. */
static inline size_t lab_resolve(unsigned char *p, size_t n)
{
    static const unsigned char record[] = {
        0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 5
    };
    size_t end = 12;

    if (n < 17 || !memcmp(p + 13, "quiet", 5))
        return 0;
    while (end < n && p[end])
        end += 1 + (size_t)p[end];
    end += 5;
    p[2] |= 0x80;
    p[3] = 0x80;
    p[7] = 1;
    p[11] = 0;
    memcpy(p + end, record, sizeof(record));
    return end + sizeof(record);
}

static inline void lab_serve_tcp(int listener, bool names)
{
    struct sockaddr_in6 from;
    socklen_t len = sizeof(from);
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
    unsigned char p[2048], length[2];
    char text[64];
    size_t n;

    if (fd < 0)
        return;
    if (!names) {
        inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof(text));
        send(fd, text, strlen(text), MSG_NOSIGNAL); /* who has gone again, has gone */
    } else if (recv(fd, length, 2, MSG_WAITALL) == 2) {
        n = (size_t)length[0] << 8 | length[1];
        n = n < 1024 && recv(fd, p, n, MSG_WAITALL) == (ssize_t)n ? lab_resolve(p, n) : 0;
        length[0] = (unsigned char)(n >> 8);
        length[1] = (unsigned char)n;
        if (n && send(fd, length, 2, MSG_NOSIGNAL) == 2)
            send(fd, p, n, MSG_NOSIGNAL);
    }
    close(fd);
}

static inline void lab_serve_udp(int fd, bool names)
{
    struct sockaddr_in6 from;
    socklen_t len = sizeof(from);
    unsigned char p[2048];
    ssize_t n = recvfrom(fd, p, 1024, 0, (struct sockaddr *)&from, &len);
    bool wrong = names && n > 18 && !memcmp(p + 13, "wrong", 5);

    if (n > 0 && names)
        n = (ssize_t)lab_resolve(p, (size_t)n);
    if (n > 0 && wrong) { /* forged: another id, another name */
        p[0] ^= 1;
        sendto(fd, p, (size_t)n, 0, (struct sockaddr *)&from, len);
        p[0] ^= 1;
        p[13] = 'x';
        sendto(fd, p, (size_t)n, 0, (struct sockaddr *)&from, len);
        p[13] = 'w';
    }
    if (n > 0)
        sendto(fd, p, (size_t)n, 0, (struct sockaddr *)&from, len);
}

_Noreturn static inline void lab_internet(pid_t parent, int go, int told)
{
    struct netlink nl = { 0 };
    struct err err;
    struct pollfd p[4];
    char byte = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || unshare(CLONE_NEWNET) || write(told, &byte, 1) != 1 ||
        read(go, &byte, 1) != 1 || netlink_open(&nl, NETLINK_ROUTE, &err) || net_link_up(&nl, 1) ||
        net_link_up(&nl, if_nametoindex("in0")))
        _exit(9);
    for (size_t i = 0; i < ARRAY_LEN(lab_addresses); i++) {
        struct net_cidr c = lab_cidr(lab_addresses[i]);

        if (net_link_add_address(&nl, if_nametoindex("in0"), &c))
            _exit(9);
    }
    if (net_link_wait(&nl, if_nametoindex("in0")))
        _exit(9);
    for (int i = 0; i < 4; i++)
        p[i] = (struct pollfd){ .fd = lab_listen(i % 2 ? SOCK_DGRAM : SOCK_STREAM, i < 2 ? 7 : 53),
                                .events = POLLIN };
    if (write(told, &byte, 1) != 1)
        _exit(9);
    while (poll(p, 4, -1) > 0)
        for (int i = 0; i < 4; i++)
            if (p[i].revents)
                (i % 2 ? lab_serve_udp : lab_serve_tcp)(p[i].fd, i >= 2);
    _exit(9);
}

/* ---- the host ---- */

static inline void lab_connect(void)
{
    AUTO(netlink_close) struct netlink nl = { 0 };
    static const char *const addresses[] = { "11.0.113.1/24", "2a0a:db8:5::1/64" };
    static const char *const routes[][2] = { { "0.0.0.0/0", "11.0.113.5/32" },
                                             { "::/0", "2a0a:db8:5::5/128" } };
    unsigned char mac[NET_MAC] = { 2, 0, 0, 0, 0, 9 };
    struct err err;
    char path[64];
    int ns;

    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)lab.internet);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(ns >= 0);
    CHECK_INT(netlink_open(&nl, NETLINK_ROUTE, &err), 0);
    CHECK_INT(net_link_up(&nl, 1), 0);
    net_sysctl_write("net/ipv4/ip_forward", "0"); /* copied from the real host otherwise */
    net_sysctl_write("net/ipv6/conf/all/forwarding", "0");
    CHECK_INT(net_link_add_pair(&nl, "up0", "in0", ns, mac), 0);
    CHECK_INT(net_link_up(&nl, if_nametoindex("up0")), 0);
    for (int i = 0; i < 2; i++) {
        struct net_cidr own = lab_cidr(addresses[i]), to = lab_cidr(routes[i][0]),
                        via = lab_cidr(routes[i][1]);

        CHECK_INT(net_link_add_address(&nl, if_nametoindex("up0"), &own), 0);
        CHECK_INT(net_link_add_route(&nl, if_nametoindex("up0"), &to, &via.ip), 0);
    }
    close(ns);
}

static inline void lab_write_resolv(const char *text)
{
    FILE *f = fopen(lab.resolv_conf, "we");

    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

static inline void lab_end(void)
{
    char path[128];

    if (lab.owner != getpid())
        return;
    if (lab.internet > 0) {
        kill(lab.internet, SIGKILL);
        waitpid(lab.internet, NULL, 0);
    }
    snprintf(path, sizeof(path), "%s/net-%s.lock", lab.dir, lab.options.bridge);
    unlink(path);
    unlink(lab.resolv_conf);
    rmdir(lab.dir);
}

/* False: the case cannot run here, and has said why. */
static inline bool lab_start(void)
{
    int go[2], told[2];
    pid_t self = getpid();
    char byte = 0;

    if (lab.ready)
        return true;
    if (geteuid()) {
        printf("# skipped: network namespaces on the host's side need root\n");
        return false;
    }
    if (unshare(CLONE_NEWNET)) {
        printf("# skipped: no network namespace: %s\n", strerrordesc_np(errno));
        return false;
    }
    snprintf(lab.dir, sizeof(lab.dir), "/tmp/cove-net-XXXXXX");
    CHECK(mkdtemp(lab.dir) != NULL);
    CHECK_INT(chmod(lab.dir, 0755), 0); /* the relay reads resolv.conf as nobody */
    snprintf(lab.resolv_conf, sizeof(lab.resolv_conf), "%s/resolv.conf", lab.dir);
    lab.owner = self;
    lab.options = (struct net_options){ .run_dir = lab.dir,
                                        .bridge = "lab0",
                                        .resolv_conf = lab.resolv_conf };
    atexit(lab_end);
    lab_write_resolv("# made by a test\nnameserver 11.0.113.5\n");
    CHECK(!pipe2(go, O_CLOEXEC) && !pipe2(told, O_CLOEXEC));
    lab.internet = fork();
    if (!lab.internet)
        lab_internet(self, go[0], told[1]);
    CHECK_INT(read(told[0], &byte, 1), 1);
    lab_connect();
    CHECK(write(go[1], &byte, 1) == 1 && read(told[0], &byte, 1) == 1);
    close(go[0]), close(go[1]), close(told[0]), close(told[1]);
    lab.ready = true;
    return true;
}

/* ---- sandboxes ---- */

static inline int lab_take(struct netmaker *m, struct net_slot *out, struct err *err)
{
    struct pollfd p = { .fd = m->fd, .events = POLLIN };
    int r = 1;

    while (r == 1 && poll(&p, 1, LAB_MS) == 1)
        r = netmaker_take(m, out, err);
    return r;
}

static inline void lab_slot(struct netmaker *m, enum net_mode mode, uint32_t index,
                            struct net_slot *out)
{
    struct err err = { 0 };

    CHECK_INT(netmaker_ask(m, mode, index, &err), 0);
    if (lab_take(m, out, &err))
        test_fail(__FILE__, __LINE__, "no slot: %s", err.msg);
}

/* netmaker_stop() waits for a moment only; until it has ended, a maker may still add something. */
static inline void lab_stop(struct netmaker *m)
{
    struct pollfd ended = { .fd = fcntl(m->pidfd, F_DUPFD_CLOEXEC, 3), .events = POLLIN };

    netmaker_stop(m);
    CHECK_INT(poll(&ended, 1, LAB_MS), 1);
    close(ended.fd);
}

static inline void lab_map(pid_t pid, const char *file, uint32_t index)
{
    char path[64], text[64];
    int fd, n = snprintf(text, sizeof(text), "0 %u %u\n", ids_host(index), IDS_RANGE);

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, (size_t)n), n);
    close(fd);
}

enum lab_who { LAB_HOST_ROOT, LAB_ROOT, LAB_USER };

__attribute__((noreturn)) static inline void lab_be(enum lab_who who, int down,
                                                    int (*fn)(const void *), const void *arg)
{
    unsigned id = who == LAB_USER ? 1000 : 0;
    char byte;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || read(down, &byte, 1) != 1 ||
        (who != LAB_HOST_ROOT && (setresgid(id, id, id) || setresuid(id, id, id))))
        _exit(254);
    _exit(fn(arg));
}

/* Runs fn in the sandbox's network: as the host's root, as root of a user namespace with the ids a
 * sandbox has, or as uid 1000 of it. What fn returns (0 to 255). */
static inline int lab_inside(const struct net_slot *s, enum lab_who who, int (*fn)(const void *),
                             const void *arg)
{
    int up[2], down[2], status = 0;
    char byte = 0;
    pid_t pid, self = 0;

    CHECK(!pipe2(up, O_CLOEXEC) && !pipe2(down, O_CLOEXEC));
    fflush(stdout);
    pid = test_fork(0);
    if (!pid) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || setns(s->ns, CLONE_NEWNET))
            _exit(254);
        pid = test_fork(who == LAB_HOST_ROOT ? 0 : CLONE_NEWUSER);
        if (!pid)
            lab_be(who, down[0], fn, arg);
        if (pid < 0 || write(up[1], &pid, sizeof(pid)) != sizeof(pid) ||
            waitpid(pid, &status, 0) != pid)
            _exit(254);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
    }
    close(up[1]); /* if it fails, we see the end */
    CHECK_INT(read(up[0], &self, sizeof(self)), sizeof(self));
    if (who != LAB_HOST_ROOT) {
        lab_map(self, "uid_map", s->index);
        lab_map(self, "gid_map", s->index);
    }
    CHECK_INT(write(down[1], &byte, 1), 1);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    close(up[0]), close(down[0]), close(down[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* ---- what a sandbox may try; each returns an errno, 0 for success ---- */

struct lab_target {
    const char *ip;
    unsigned port;
    const char *from; /* source address to use; NULL: any */
    const char *want; /* greeting expected */
    int wait_ms;
};

static inline int lab_socket(const struct lab_target *t, int type, struct addr *to)
{
    struct timeval tv = { .tv_sec = t->wait_ms / 1000, .tv_usec = t->wait_ms % 1000 * 1000 };
    int fd;
    struct addr from;

    lab_address(to, t->ip, t->port);
    fd = socket(to->sa.ss_family, type | SOCK_CLOEXEC, 0);
    if (t->wait_ms) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    }
    if (t->from) {
        lab_address(&from, t->from, 0);
        if (bind(fd, (struct sockaddr *)&from.sa, from.len))
            return -1;
    }
    return fd;
}

static inline int lab_tcp(const void *arg)
{
    const struct lab_target *t = arg;
    struct addr to;
    char text[64] = "";
    int fd = lab_socket(t, SOCK_STREAM, &to);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to.sa, to.len))
        return errno;
    if (t->want && (read(fd, text, sizeof(text) - 1) < 0 || strcmp(text, t->want) != 0)) {
        fprintf(stderr, "# greeted as %s\n", text);
        return 200;
    }
    return 0;
}

static inline int lab_udp(const void *arg)
{
    const struct lab_target *t = arg;
    struct addr to;
    char byte = 'x';
    int fd = lab_socket(t, SOCK_DGRAM, &to);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to.sa, to.len) || send(fd, &byte, 1, 0) < 0 ||
        recv(fd, &byte, 1, 0) < 0)
        return errno;
    return 0;
}

/* ---- what must be true ---- */

/* Errors a refusal shows as, and quickly: a reset, or ICMP "administratively prohibited". */
static inline bool lab_is_refusal(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == EACCES ||
           error == ENETUNREACH;
}

static inline void lab_check_refused(const struct net_slot *s, int (*fn)(const void *),
                                     const char *ip, unsigned port)
{
    const struct lab_target t = { .ip = ip, .port = port, .wait_ms = 3000 };
    int64_t before = clock_ms();
    int e = lab_inside(s, LAB_ROOT, fn, &t);

    if (!lab_is_refusal(e) || clock_ms() - before > 1000)
        test_fail(__FILE__, __LINE__, "%s port %u: %s after %lld ms", ip, port,
                  e ? strerrordesc_np(e) : "reached", (long long)(clock_ms() - before));
}

static inline int lab_nft(const char *line, const char *look_for)
{
    char command[512];

    snprintf(command, sizeof(command), "/usr/sbin/nft %s 2>/dev/null | grep -q -- '%s'", line,
             look_for);
    return system(command); // NOLINT(cert-env33-c): a test looks at the kernel through nft
}

static inline bool lab_setting_is(const char *path, const char *value)
{
    char now[8] = "";

    return !net_sysctl_read(path, now, sizeof(now)) && !strcmp(now, value);
}

/* The first thing that is left, or NULL. */
static inline const char *lab_left(void)
{
    static const char *const settings[][2] = { { "net/ipv4/ip_forward", "0" },
                                               { "net/ipv6/conf/all/forwarding", "0" },
                                               { "net/ipv6/conf/up0/accept_ra", "1" } };

    if (if_nametoindex("lab0"))
        return "the bridge";
    if (!lab_nft("list tables", "lab0"))
        return "a table of the packet filter";
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        if (!lab_setting_is(settings[i][0], settings[i][1]))
            return settings[i][0];
    return NULL;
}

static inline void lab_check_nothing_left(void)
{
    int64_t until = clock_ms() + LAB_MS;
    const char *left;

    while (lab_left() && clock_ms() < until)
        usleep(10000);
    left = lab_left();
    if (left)
        test_fail(__FILE__, __LINE__, "left: %s", left);
}

#endif
