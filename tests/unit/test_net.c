/* test_net.c - network namespaces made ahead: names and numbers, `none`, ports and ping, dialling.
 */
#include <linux/sched.h>
#include <netinet/ip_icmp.h>
#include <sys/syscall.h>

#include "netlab.h"

static struct err err;

TEST(options_are_checked_before_anything_is_made)
{
    static const struct {
        struct net_options o;
        const char *part;
    } bad[] = {
        { { .subnet = "10.201.0.0/24" }, "network.subnet must be an IPv4 /16" },
        { { .subnet = "fd00::/16" }, "network.subnet must be an IPv4 /16" },
        { { .subnet = "10.201.3.0/16" }, "bits set behind its prefix" },
        { { .subnet = "house" }, "network.subnet: 'house' is not a network" },
        { { .bridge = "cove-0" }, "network.bridge" },
        { { .bridge = "toolongname" }, "network.bridge" },
        { { .bridge = "" }, "network.bridge" },
        { { .bridge = "x;y" }, "network.bridge" },
        { { .allow = "10.0.0.0/8,10.0.0.0/33" }, "network.allow: '10.0.0.0/33'" },
        { { .allow = "fe80::1%lo" }, "network.allow" },
    };
    struct net_plan p;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(net_plan_init(&p, &bad[i].o, &err), -1);
        if (!strstr(err.msg, bad[i].part))
            test_fail(__FILE__, __LINE__, "case %zu says: %s", i, err.msg);
    }
    CHECK_INT(net_plan_init(&p, NULL, &err), 0);
    CHECK_STR(p.bridge, "cove0");
    CHECK_INT(
        net_plan_init(&p, &(struct net_options){ .allow = "10.1.0.0/16, fd12::/16,1.2.3.4" }, &err),
        0);
    CHECK_INT(p.nallow, 3);
    CHECK_INT(p.allow[2].prefix, 32);
}

TEST(a_number_names_port_mac_and_addresses)
{
    static const struct {
        uint32_t index;
        const char *v4, *v6, *port;
    } some[] = {
        { 0, "10.201.0.2", "fd63:6f76:ac9::2", "cove0-0" },
        { 253, "10.201.0.255", "fd63:6f76:ac9::ff", "cove0-253" },
        { 254, "10.201.1.0", "fd63:6f76:ac9::100", "cove0-254" },
        { 49151, "10.201.192.1", "fd63:6f76:ac9::c001", "cove0-49151" },
    };
    struct net_plan p;
    char text[64], port[IFNAMSIZ];
    unsigned char mac[NET_MAC];

    CHECK_INT(net_plan_init(&p, NULL, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        struct net_ip v4 = net_plan_address(&p, some[i].index),
                      v6 = net_plan_address6(&p, some[i].index);

        CHECK_STR(inet_ntop(AF_INET, v4.b, text, sizeof(text)), some[i].v4);
        CHECK_STR(inet_ntop(AF_INET6, v6.b, text, sizeof(text)), some[i].v6);
        net_plan_port(&p, some[i].index, port);
        CHECK_STR(port, some[i].port);
        net_plan_mac(&v4, mac);
        CHECK_INT(mac[0] & 3, 2); /* local, one station */
        CHECK_INT(memcmp(mac + 2, v4.b, 4), 0);
    }
}

TEST(networks_overlap_when_one_contains_the_other)
{
    static const struct {
        const char *a, *b;
        bool overlap;
    } some[] = {
        { "10.201.0.0/16", "10.0.0.0/8", true },     { "10.201.0.0/16", "10.201.7.0/24", true },
        { "10.201.0.0/16", "10.202.0.0/16", false }, { "10.201.0.0/16", "::/0", false },
        { "10.201.0.0/16", "10.201.9.9", true },     { "fd00::/8", "fd63::/16", true },
    };
    struct net_cidr a, b;

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        CHECK_INT(net_cidr_parse(str_of(some[i].a), &a, &err), 0);
        CHECK_INT(net_cidr_parse(str_of(some[i].b), &b, &err), 0);
        CHECK_INT(net_cidr_overlap(&a, &b), some[i].overlap);
        CHECK_INT(net_cidr_overlap(&b, &a), some[i].overlap);
    }
}

/* ---- with the kernel ---- */

static int sees_only_lo(const void *arg)
{
    struct if_nameindex *all = if_nameindex();
    static const struct lab_target lo = { .ip = "127.0.0.1", .port = 9 },
                                   lo6 = { .ip = "::1", .port = 9 },
                                   far = { .ip = "11.0.113.5", .port = 7 };

    (void)arg;
    if (!all || strcmp(all[0].if_name, "lo") || all[1].if_index)
        return 1;
    if (lab_tcp(&lo) != ECONNREFUSED || lab_tcp(&lo6) != ECONNREFUSED)
        return 2; /* lo is up: somebody answers, even if with "no" */
    return lab_tcp(&far) == ENETUNREACH ? 0 : 3;
}

TEST(a_sandbox_without_network_has_lo_and_nothing_else)
{
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    CHECK_INT(netmaker_take(&m, &s, &err), 1);
    lab_slot(&m, NET_NONE, 3, &s);
    CHECK_INT(s.mode, NET_NONE);
    CHECK_INT(s.index, 3);
    CHECK_INT(s.address, 0);
    CHECK_INT(lab_inside(&s, LAB_ROOT, sees_only_lo, NULL), 0);
    net_slot_release(&s);
    lab_stop(&m);
    CHECK_INT(if_nametoindex("lab0"), 0); /* nobody asked for the network */
}

static int cannot_ping(const void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++)
        if (socket(i ? AF_INET6 : AF_INET, SOCK_DGRAM, i ? IPPROTO_ICMPV6 : IPPROTO_ICMP) >= 0 ||
            errno != EACCES)
            return 1;
    return 0;
}

static int pings_and_binds(const void *arg)
{
    struct sockaddr_in lo = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct icmphdr h = { .type = ICMP_ECHO };
    struct timeval tv = { .tv_sec = 2 };
    int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);

    (void)arg;
    if (fd < 0)
        return 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    if (sendto(fd, &h, sizeof(h), 0, (struct sockaddr *)&lo, sizeof(lo)) < 0 ||
        recv(fd, &h, sizeof(h), 0) != sizeof(h) || h.type != ICMP_ECHOREPLY)
        return 2;
    lo.sin_port = htons(80);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&lo, sizeof(lo)) || listen(fd, 1) ? 3 : 0;
}

TEST(port_80_and_ping_where_it_is_asked_for_work_for_root_and_user_of_every_range)
{
    static const uint32_t indexes[] = { 0, 20480, NET_INDEXES - 1 };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++) {
        lab_slot(&m, NET_NONE, indexes[i], &s);
        CHECK_INT(lab_inside(&s, LAB_ROOT, cannot_ping, NULL), 0);
        CHECK_INT(lab_inside(&s, LAB_USER, cannot_ping, NULL), 0);
        CHECK_INT(net_allow_ping(s.ns, &err), 0);
        CHECK_INT(lab_inside(&s, LAB_ROOT, pings_and_binds, NULL), 0);
        CHECK_INT(lab_inside(&s, LAB_USER, pings_and_binds, NULL), 0);
        net_slot_release(&s);
    }
    lab_stop(&m);
}

static int has_no_power(const void *arg)
{
    struct netlink nl = { 0 };
    struct net_cidr c = lab_cidr("10.9.9.9/32");
    struct err e;

    (void)arg;
    if (netlink_open(&nl, NETLINK_ROUTE, &e) || !net_link_add_address(&nl, 1, &c) || errno != EPERM)
        return 1;
    if (socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 || errno != EPERM)
        return 2;
    if (socket(AF_PACKET, SOCK_RAW, 0) >= 0 || errno != EPERM)
        return 3;
    return net_sysctl_write("net/ipv4/ip_forward", "1") ? 0 : 4;
}

TEST(root_inside_has_no_power_over_its_network)
{
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_NONE, 1, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, has_no_power, NULL), 0);
    net_slot_release(&s);
    lab_stop(&m);
}

TEST(slots_come_in_the_order_asked)
{
    enum { SOME = 300 };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    CHECK_INT(netmaker_ask(&m, NET_NONE, NET_INDEXES, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    for (uint32_t i = 0; i < SOME; i++)
        CHECK_INT(netmaker_ask(&m, NET_NONE, i, &err), 0);
    for (uint32_t i = 0; i < SOME; i++) {
        CHECK_INT(lab_take(&m, &s, &err), 0);
        CHECK_INT(s.index, i);
        net_slot_release(&s);
    }
    lab_stop(&m);
}

TEST(a_maker_that_was_killed_is_noticed)
{
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_NONE, 1, &s);
    kill(m.pid, SIGKILL);
    CHECK_INT(lab_inside(&s, LAB_ROOT, sees_only_lo, NULL), 0); /* what was handed over stays */
    net_slot_release(&s);
    CHECK_INT(lab_take(&m, &s, &err), -1);
    CHECK_INT(err.code, ERR_GONE);
    CHECK_INT(netmaker_ask(&m, NET_NONE, 2, &err), -1);
    CHECK_INT(err.code, ERR_GONE);
    lab_stop(&m);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), 0); /* the internet, and no zombie */
}

static int listens(const void *arg)
{
    struct sockaddr_in lo = { .sin_family = AF_INET, .sin_port = htons(8080) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&lo, sizeof(lo)) || listen(fd, 1))
        return 1;
    if (write(*(const int *)arg, "x", 1) != 1)
        return 2;
    return accept(fd, NULL, NULL) < 0 ? 3 : 0;
}

TEST(the_keeper_dials_a_port_of_a_sandbox)
{
    struct netmaker m;
    struct net_slot s;
    struct stat before, after;
    struct addr to;
    struct pollfd p = { .events = POLLOUT };
    char byte;
    int up[2], fd, status;
    pid_t pid;

    if (!lab_start())
        return;
    CHECK_INT(stat("/proc/self/ns/net", &before), 0);
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_NONE, 1, &s);
    CHECK_INT(pipe2(up, O_CLOEXEC), 0);
    pid = fork();
    if (!pid)
        _exit(setns(s.ns, CLONE_NEWNET) ? 9 : listens(&up[1]));
    CHECK_INT(read(up[0], &byte, 1), 1);
    lab_address(&to, "127.0.0.1", 8080);
    fd = net_socket(s.ns, AF_INET, SOCK_STREAM, &err);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK(connect(fd, (struct sockaddr *)&to.sa, to.len) == 0 || errno == EINPROGRESS);
    p.fd = fd;
    CHECK_INT(poll(&p, 1, LAB_MS), 1);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    close(fd), close(up[0]), close(up[1]);
    CHECK_INT(stat("/proc/self/ns/net", &after), 0);
    CHECK_INT(before.st_ino, after.st_ino);
    CHECK_INT(net_socket(0, AF_INET, SOCK_STREAM, &err), -1);
    net_slot_release(&s);
    lab_stop(&m);
}

/* A namespace whose owner is a user namespace of its own, as without root. The thread sanitizer's
 * own thread keeps us from entering it. */
static pid_t make_owned(int *ns)
{
#if defined(__SANITIZE_THREAD__)
    errno = EINVAL;
    return *ns = -1;
#endif
    char path[64];
    pid_t pid = test_fork(CLONE_NEWUSER | CLONE_NEWNET);

    if (!pid) {
        pause();
        _exit(0);
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
    *ns = pid < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    return pid;
}

TEST(whoever_made_a_user_namespace_dials_in_its_network_without_root)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
    int ns, fd;
    pid_t pid = make_owned(&ns);

    if (pid < 0) {
        printf("# skipped: this user can enter no user namespace (%s)\n", strerror(errno));
        return;
    }
    CHECK(ns >= 0);
    fd = net_socket_owned(ns, AF_INET, SOCK_STREAM, &err);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(connect(fd, (struct sockaddr *)&to, sizeof(to)), -1);
    CHECK_INT(errno, ENETUNREACH); /* even lo is down there, and up where we are */
    CHECK_INT(net_socket_owned(0, AF_INET, SOCK_STREAM, &err), -1);
    close(fd), close(ns);
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
}
