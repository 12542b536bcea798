/* test_net_open.c - sandboxes with a network: what they reach, and what refuses them. */
#include <linux/rtnetlink.h>

#include "netlab.h"

static struct err err;

/* The kernel answers a burst of datagrams by ICMP, then one a second: silence is a refusal, too. */
static void check_silent(const struct net_slot *s, const char *ip)
{
    const struct lab_target t = { .ip = ip, .port = 7, .wait_ms = 100 };
    int e = lab_inside(s, LAB_ROOT, lab_udp, &t);

    if (!lab_is_refusal(e) && e != EAGAIN)
        test_fail(__FILE__, __LINE__, "%s: %s", ip, e ? strerrordesc_np(e) : "reached");
}

TEST(an_open_sandbox_reaches_the_internet_with_the_hosts_address)
{
    static const struct lab_target v4 = {
        .ip = "11.0.113.5", .port = 7, .want = "::ffff:11.0.113.1", .wait_ms = LAB_MS
    };
    static const struct lab_target v6 = {
        .ip = "2a0a:db8:5::5", .port = 7, .want = "2a0a:db8:5::1", .wait_ms = LAB_MS
    };
    static const struct lab_target nat64 = { .ip = "64:ff9b::909:909",
                                             .port = 7,
                                             .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 7, &s);
    CHECK_STR(s.port, "lab0-7");
    CHECK_INT(ntohl(s.address), (10 << 24) + (201 << 16) + 9);
    CHECK_INT(ntohl(s.gateway), (10 << 24) + (201 << 16) + 1);
    CHECK(s.has6);
    CHECK(
        lab_setting_is("net/ipv6/conf/up0/accept_ra", "2")); /* a router that listens to routers */
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &v4), 0);
    CHECK_INT(lab_inside(&s, LAB_USER, lab_udp, &v4), 0);
    CHECK_INT(lab_inside(&s, LAB_USER, lab_tcp, &v6), 0);
    CHECK_INT(lab_inside(&s, LAB_USER, lab_udp, &v6), 0);
    CHECK_INT(lab_inside(&s, LAB_USER, lab_tcp, &nat64), 0);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(private_networks_metadata_and_the_host_refuse_at_once)
{
    static const char *const refused[] = {
        "169.254.169.254",
        "10.1.2.3",
        "192.168.7.7",
        "172.20.0.9",
        "100.100.100.200",
        "192.0.0.192",
        "198.18.0.1",
        "168.63.129.16",
        "fd00:ec2::254",
        "64:ff9b::a9fe:a9fe",
        "2002:a01:203::1",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.77",
        "192.88.99.1",
        "2001:db8:9::9",
        "2a0b::5efe:909:909",
        "::ffff:169.254.169.254",
        "240.0.0.1",
        /* the host: its address outside, the gateway, each in both families */
        "11.0.113.1",
        "2a0a:db8:5::1",
        "10.201.0.1",
        "fd63:6f76:ac9::1",
    };
    struct netmaker m;
    struct net_slot s;
    int listener;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &s);
    listener = lab_listen(SOCK_STREAM, 7);          /* on every address of the host */
    lab_check_refused(&s, lab_tcp, "10.1.2.3", 53); /* another name server */
    lab_check_refused(&s, lab_udp, "10.1.2.3", 53);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        lab_check_refused(&s, lab_tcp, refused[i], 7);
        check_silent(&s, refused[i]);
    }
    close(listener);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(what_the_operator_allows_is_reached_but_never_the_host)
{
    struct net_options o = { 0 };
    static const struct lab_target there = { .ip = "10.1.2.3", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    o = lab.options;
    o.allow = "10.1.0.0/16,11.0.113.0/24,fd00:ec2::/32,10.201.0.0/16";
    CHECK_INT(netmaker_start(&m, &o, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
    lab_check_refused(&s, lab_tcp, "11.0.113.1", 7);
    lab_check_refused(&s, lab_tcp, "10.201.0.1", 7);
    lab_check_refused(&s, lab_tcp, "10.201.0.4", 7);
    lab_check_refused(&s, lab_tcp, "192.168.7.7", 7);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

static int listen_inside(const void *arg)
{
    lab_listen(SOCK_STREAM, 7);
    lab_listen(SOCK_DGRAM, 7);
    if (write(*(const int *)arg, "x", 1) != 1)
        return 1;
    pause();
    return 0;
}

TEST(sandboxes_do_not_reach_each_other_nor_the_internet_them)
{
    struct netmaker m;
    struct net_slot a, b;
    struct lab_target t = { .ip = "10.201.0.11", .port = 7, .wait_ms = 2000 };
    int up[2], e;
    char byte;
    pid_t pid;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 8, &a);
    lab_slot(&m, NET_OPEN, 9, &b);
    CHECK_INT(pipe2(up, O_CLOEXEC), 0);
    pid = fork();
    if (!pid)
        _exit(setns(b.ns, CLONE_NEWNET) ? 9 : listen_inside(&up[1]));
    CHECK_INT(read(up[0], &byte, 1), 1);
    lab_check_refused(&a, lab_tcp, "10.201.0.11", 7);
    lab_check_refused(&a, lab_udp, "10.201.0.11", 7);
    lab_check_refused(&a, lab_tcp, "fd63:6f76:ac9::b", 7);
    CHECK_INT(lab_inside(&b, LAB_ROOT, lab_tcp, &t), 0); /* the address is right: it is there */
    e = lab_tcp(&t);                                     /* and the host's own programs reach it */
    CHECK_INT(e, 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(up[0]), close(up[1]);
    net_slot_release(&a);
    net_slot_release(&b);
    lab_stop(&m);
    lab_check_nothing_left();
}

static int forge(const void *arg)
{
    const struct lab_target *t = arg;
    AUTO(netlink_close) struct netlink nl = { 0 };
    struct net_cidr c = { .prefix = 32, .ip = { .family = AF_INET } };
    struct err e;

    if (inet_pton(AF_INET, t->from, c.ip.b) != 1 || netlink_open(&nl, NETLINK_ROUTE, &e) ||
        net_link_add_address(&nl, if_nametoindex("eth0"), &c))
        return 1;
    return lab_tcp(t);
}

static int forge_mac(const void *arg)
{
    union netlink_request r;
    AUTO(netlink_close) struct netlink nl = { 0 };
    const unsigned char mac[NET_MAC] = { 2, 1, 1, 1, 1, 1 };
    struct ifinfomsg *i = netlink_begin(&r, RTM_NEWLINK, 0, sizeof(*i));
    struct err e;

    i->ifi_index = (int)if_nametoindex("eth0");
    mnl_attr_put(&r.head, IFLA_ADDRESS, NET_MAC, mac);
    if (netlink_open(&nl, NETLINK_ROUTE, &e) || netlink_ask(&nl, &r))
        return 1;
    return lab_tcp(arg);
}

TEST(forged_addresses_are_dropped_at_the_port)
{
    static const struct lab_target honest = {
        .ip = "11.0.113.5", .port = 7, .from = "10.201.0.10", .wait_ms = LAB_MS
    };
    static const struct lab_target stranger = {
        .ip = "11.0.113.5", .port = 7, .from = "10.201.9.9", .wait_ms = 300
    };
    static const struct lab_target neighbour = {
        .ip = "11.0.113.5", .port = 7, .from = "10.201.0.11", .wait_ms = 300
    };
    static const struct lab_target other_mac = { .ip = "11.0.113.5", .port = 7, .wait_ms = 300 };
    struct netmaker m;
    struct net_slot a, b;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 8, &a);
    lab_slot(&m, NET_OPEN, 9, &b);
    CHECK_INT(lab_inside(&a, LAB_HOST_ROOT, lab_tcp, &honest), 0);
    CHECK_INT(lab_inside(&a, LAB_HOST_ROOT, forge, &stranger), EINPROGRESS);
    CHECK_INT(lab_inside(&a, LAB_HOST_ROOT, forge, &neighbour), EINPROGRESS);
    CHECK_INT(lab_inside(&a, LAB_HOST_ROOT, lab_tcp, &honest), 0);
    CHECK_INT(lab_inside(&a, LAB_HOST_ROOT, forge_mac, &other_mac), EINPROGRESS);
    net_slot_release(&a);
    net_slot_release(&b);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(a_released_sandbox_is_forgotten_and_its_number_used_again)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s, keeps;
    int64_t until;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &keeps);
    for (int i = 0; i < 5; i++) {
        lab_slot(&m, NET_OPEN, 2, &s); /* waits for the port of the one before */
        CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
        CHECK_INT(lab_nft("list table bridge lab0", "lab0-2"), 0);
        net_slot_release(&s);
    }
    until = clock_ms() + LAB_MS;
    while (!lab_nft("list table bridge lab0", "lab0-2") && clock_ms() < until)
        usleep(10000);
    CHECK(lab_nft("list table bridge lab0", "lab0-2") != 0);
    CHECK(lab_nft("list set inet lab0 open4", "10.201.0.4") != 0);
    CHECK_INT(lab_nft("list set inet lab0 open4", "10.201.0.3"), 0);
    CHECK_INT(lab_inside(&keeps, LAB_ROOT, lab_tcp, &there), 0);
    net_slot_release(&keeps);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(a_number_whose_sandbox_lives_is_refused)
{
    struct netmaker m;
    struct net_slot a, b;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 4, &a);
    CHECK_INT(netmaker_ask(&m, NET_OPEN, 4, &err), 0);
    CHECK_INT(lab_take(&m, &b, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(b.index, 4);
    CHECK_INT(b.ns, -1);
    net_slot_release(&a);
    lab_stop(&m);
    lab_check_nothing_left();
}

static bool remembered(const char *ip)
{
    char command[128];

    snprintf(command, sizeof(command), "grep -q 'src=%s ' /proc/self/net/nf_conntrack", ip);
    return !system(command); // NOLINT(cert-env33-c): the kernel's own list, as a person reads it
}

TEST(flows_of_the_last_owner_of_an_address_are_forgotten)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_udp, &there), 0);
    CHECK(remembered("10.201.0.4"));
    net_slot_release(&s);
    lab_slot(&m, NET_OPEN, 3, &s);
    CHECK(remembered("10.201.0.4"));
    net_slot_release(&s);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK(!remembered("10.201.0.4"));
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(only_an_address_that_opened_a_flow_is_noted_until_its_next_owner)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot quiet, s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 7, &quiet);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK_INT(lab_nft("list set inet lab0 seen4", "10.201.0.1[, ]"), 0); /* it is complete */
    CHECK(lab_nft("list set inet lab0 seen4", "10.201.0.4") != 0);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_udp, &there), 0);
    CHECK_INT(lab_nft("list set inet lab0 seen4", "10.201.0.4"), 0);
    CHECK(lab_nft("list set inet lab0 seen4", "10.201.0.9") != 0);
    net_slot_release(&s);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK(!remembered("10.201.0.4"));
    CHECK(lab_nft("list set inet lab0 seen4", "10.201.0.4") != 0);
    net_slot_release(&s);
    net_slot_release(&quiet);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(flows_that_are_older_than_the_filter_are_forgotten_too)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_udp, &there), 0);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left(); /* the sets with what they knew, too */
    CHECK(remembered("10.201.0.4"));
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 3, &s);
    CHECK_INT(lab_nft("list set inet lab0 seen4", "10.201.0.4"), 0);
    net_slot_release(&s);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK(!remembered("10.201.0.4"));
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(a_set_that_somebody_emptied_counts_as_unknown)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_udp, &there), 0);
    CHECK_INT(lab_nft("flush set inet lab0 seen4", ""), 256); /* grep finds no line */
    net_slot_release(&s);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK(!remembered("10.201.0.4"));
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

static void check_no_slot(const struct net_options *o, const char *part)
{
    struct netmaker m;
    struct net_slot s;

    CHECK_INT(netmaker_start(&m, o, &err), 0);
    CHECK_INT(netmaker_ask(&m, NET_OPEN, 1, &err), 0);
    CHECK_INT(lab_take(&m, &s, &err), -1);
    if (!strstr(err.msg, part))
        test_fail(__FILE__, __LINE__, "no \"%s\" in: %s", part, err.msg);
    lab_slot(&m, NET_NONE, 1, &s); /* the rest goes on */
    net_slot_release(&s);
    lab_stop(&m);
}

TEST(a_network_that_overlaps_a_route_or_a_foreign_interface_is_refused)
{
    AUTO(netlink_close) struct netlink nl = { 0 };
    const unsigned char mac[NET_MAC] = { 2, 0, 0, 0, 0, 7 };
    struct net_cidr c;
    struct net_options o;

    if (!lab_start())
        return;
    o = lab.options;
    o.subnet = "11.0.0.0/16";
    check_no_slot(&o,
                  "the sandbox network 11.0.0.0/16 overlaps this host's route to 11.0.113.0/24: "
                  "move it with --set network.subnet=10.202.0.0/16");
    CHECK_INT(err.code, ERR_UNAVAILABLE); /* and not one number's that is taken */
    lab_check_nothing_left();
    c = lab_cidr("10.77.0.1/24");
    CHECK_INT(netlink_open(&nl, NETLINK_ROUTE, &err), 0);
    CHECK_INT(net_link_add_bridge(&nl, "lab0", mac), 0);
    CHECK_INT(net_link_add_address(&nl, if_nametoindex("lab0"), &c), 0);
    check_no_slot(&lab.options, "there is an interface lab0 already");
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(if_nametoindex("lab0") != 0); /* it is not ours to delete */
    CHECK_INT(net_link_delete(&nl, if_nametoindex("lab0")), 0);
    lab_check_nothing_left();
}

static int has_no_v6(const void *arg)
{
    struct lab_target t = { .ip = "2a0a:db8:5::5", .port = 7, .wait_ms = 1000 };

    (void)arg;
    return lab_tcp(&t);
}

TEST(without_a_route_to_the_ipv6_internet_sandboxes_have_none)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    AUTO(netlink_close) struct netlink nl = { 0 };
    union netlink_request r;
    struct rtmsg *route;
    struct net_cidr via, all;
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    via = lab_cidr("2a0a:db8:5::5/128");
    all = lab_cidr("::/0");
    CHECK_INT(netlink_open(&nl, NETLINK_ROUTE, &err), 0);
    route = netlink_begin(&r, RTM_DELROUTE, 0, sizeof(*route));
    route->rtm_family = AF_INET6;
    mnl_attr_put(&r.head, RTA_GATEWAY, 16, via.ip.b);
    CHECK_INT(netlink_ask(&nl, &r), 0);
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &s);
    CHECK(!s.has6);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
    CHECK_INT(lab_inside(&s, LAB_ROOT, has_no_v6, NULL), ENETUNREACH);
    net_slot_release(&s);
    lab_stop(&m);
    CHECK_INT(net_link_add_route(&nl, if_nametoindex("up0"), &all, &via.ip), 0);
    lab_check_nothing_left();
}

TEST(the_doctor_names_a_firewall_that_drops)
{
    AUTO(buf_free) struct buf out = { 0 };

    if (!lab_start())
        return;
    CHECK_INT(net_doctor(&lab.options, &out, &err), 0);
    CHECK_STR(buf_cstr(&out), "");
    CHECK_INT(
        system("/usr/sbin/nft -f - <<'X'\ntable ip filter {\n chain FORWARD { type filter hook "
               "forward priority 0; policy drop; }\n}\nX\n"),
        0);
    CHECK_INT(net_doctor(&lab.options, &out, &err), 0);
    CHECK(strstr(buf_cstr(&out), "chain ip filter FORWARD drops") != NULL);
    CHECK_INT(system("/usr/sbin/nft delete table ip filter"), 0);
}
