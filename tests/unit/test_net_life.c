/* test_net_life.c - what sandboxes with a network share: several keepers, killed ones, adopted
 * sandboxes, a host whose firewall is reloaded. In the end nothing is left. */
#include "io/fdpass.h"
#include "netlab.h"

static struct err err;

/* Keepers with a sandbox each, numbers 1 and 2; false where nothing can be tested. */
static bool start_two(struct netmaker *m, struct netmaker *n, struct net_slot *a,
                      struct net_slot *b)
{
    if (!lab_start())
        return false;
    CHECK_INT(netmaker_start(m, &lab.options, &err), 0);
    CHECK_INT(netmaker_start(n, &lab.options, &err), 0);
    lab_slot(m, NET_OPEN, 1, a);
    lab_slot(n, NET_OPEN, 2, b);
    return true;
}

TEST(two_keepers_share_the_bridge_and_the_last_removes_it)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m, n;
    struct net_slot a, b;

    if (!start_two(&m, &n, &a, &b))
        return;
    CHECK_INT(lab_inside(&a, LAB_ROOT, lab_tcp, &there), 0); /* loading again kept its entries */
    net_slot_release(&a);
    lab_stop(&m);
    CHECK_INT(lab_inside(&b, LAB_ROOT, lab_tcp, &there), 0);
    lab_check_refused(&b, lab_tcp, "10.1.2.3", 7);
    net_slot_release(&b);
    lab_stop(&n);
    lab_check_nothing_left();
}

/* A keeper of its own process, which says when its slot works, and waits to be killed. */
static pid_t start_keeper(uint32_t index, int *ns)
{
    int pair[2];
    char byte;
    pid_t pid;

    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid = fork();
    if (!pid) {
        struct netmaker m;
        struct net_slot s;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (netmaker_start(&m, &lab.options, &err) || netmaker_ask(&m, NET_OPEN, index, &err) ||
            lab_take(&m, &s, &err))
            _exit(1);
        if (fdpass_send(pair[1], "x", 1, &s.ns, 1, 0) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    close(pair[1]);
    CHECK_INT(fdpass_recv(pair[0], &byte, 1, ns, &(size_t){ 1 }, 0), 1);
    close(pair[0]);
    return pid;
}

TEST(a_killed_keeper_leaves_nothing)
{
    int ns = -1;
    pid_t pid;

    if (!lab_start())
        return;
    pid = start_keeper(5, &ns);
    close(ns);
    CHECK(if_nametoindex("lab0-5") != 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    lab_check_nothing_left();
}

TEST(a_sandbox_that_outlives_its_keeper_keeps_its_network_and_is_adopted)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct net_slot s = { .ns = -1, .index = 6 };
    struct netmaker m;
    pid_t pid;

    if (!lab_start())
        return;
    pid = start_keeper(6, &s.ns);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    usleep(1500 * 1000); /* longer than its maker waits for ports to go */
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    CHECK_INT(netmaker_adopt(&m, s.ns, NET_OPEN, 6, &s, &err), 0);
    CHECK_STR(s.port, "lab0-6");
    usleep(100 * 1000);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
    lab_check_refused(&s, lab_tcp, "10.1.2.3", 7);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(what_was_left_by_a_crash_of_everything_is_used_again)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m;
    struct net_slot s;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &s);
    kill(m.pid, SIGKILL); /* the maker, too: nobody is left who could remove anything */
    net_slot_release(&s);
    lab_stop(&m);
    usleep(200 * 1000);
    CHECK(if_nametoindex("lab0") != 0);
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 2, &s);
    CHECK_INT(lab_inside(&s, LAB_ROOT, lab_tcp, &there), 0);
    net_slot_release(&s);
    lab_stop(&m);
    lab_check_nothing_left(); /* ip_forward is as it was before the crash */
}

static bool is_known(const char *ip) { return !lab_nft("list set inet lab0 open4", ip); }

static bool is_gone_soon(const char *ip)
{
    int64_t until = clock_ms() + LAB_MS;

    while (is_known(ip) && clock_ms() < until)
        usleep(5000);
    return !is_known(ip);
}

TEST(entries_of_a_killed_maker_go_when_the_next_keeper_comes)
{
    struct netmaker m, n;
    struct net_slot a, b;

    if (!start_two(&m, &n, &a, &b))
        return;
    kill(n.pid, SIGKILL);
    net_slot_release(&b);
    lab_stop(&n);
    for (int i = 0; i < LAB_MS && if_nametoindex("lab0-2"); i++)
        usleep(1000);
    CHECK(is_known("10.201.0.4"));
    CHECK_INT(netmaker_start(&n, &lab.options, &err), 0);
    lab_slot(&n, NET_OPEN, 3, &b);
    CHECK(!is_known("10.201.0.4"));
    CHECK(is_known("10.201.0.3"));
    net_slot_release(&a);
    net_slot_release(&b);
    lab_stop(&n);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(entries_go_too_where_the_killed_maker_was_the_only_one)
{
    struct netmaker m;
    struct net_slot a, b;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &a);
    lab_slot(&m, NET_OPEN, 2, &b);
    kill(m.pid, SIGKILL);
    net_slot_release(&b); /* the other one lives on, so the filter does */
    lab_stop(&m);
    for (int i = 0; i < LAB_MS && if_nametoindex("lab0-2"); i++)
        usleep(1000);
    CHECK(is_known("10.201.0.4"));
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    CHECK_INT(netmaker_adopt(&m, a.ns, NET_OPEN, 1, &a, &err), 0);
    CHECK(is_gone_soon("10.201.0.4"));
    CHECK(is_known("10.201.0.3"));
    net_slot_release(&a);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(what_a_maker_made_and_nobody_took_goes_with_it)
{
    struct netmaker m, n;
    struct net_slot a;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &a);
    for (int i = 0; i < 10; i++) { /* it is told to end before, while and after it makes them */
        CHECK_INT(netmaker_start(&n, &lab.options, &err), 0);
        for (uint32_t index = 2; index < 6; index++)
            CHECK_INT(netmaker_ask(&n, NET_OPEN, index, &err), 0);
        for (int ms = 0; ms < 3 * i && !if_nametoindex("lab0-5"); ms++)
            usleep(1000);
        lab_stop(&n);
        CHECK(is_gone_soon("10.201.0.4") && is_gone_soon("10.201.0.7"));
    }
    CHECK(is_known("10.201.0.3"));
    net_slot_release(&a);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(a_reloaded_host_firewall_does_not_open_the_sandboxes)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    struct netmaker m, n;
    struct net_slot a, b;
    int64_t until;

    if (!start_two(&m, &n, &a, &b))
        return;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(system("/usr/sbin/nft flush ruleset"), 0);
        until = clock_ms() + LAB_MS; /* entries come back one by one */
        while (!(is_known("10.201.0.3") && is_known("10.201.0.4")) && clock_ms() < until)
            usleep(5000);
        lab_check_refused(&a, lab_tcp, "10.1.2.3", 7);
        lab_check_refused(&b, lab_tcp, "11.0.113.1", 7);
        CHECK_INT(lab_inside(&a, LAB_ROOT, lab_tcp, &there), 0);
        CHECK_INT(lab_inside(&b, LAB_ROOT, lab_tcp, &there), 0);
    }
    net_slot_release(&a);
    net_slot_release(&b);
    lab_stop(&m);
    lab_stop(&n);
    lab_check_nothing_left();
}

TEST(a_deleted_bridge_is_made_again_for_the_next_sandbox)
{
    static const struct lab_target there = { .ip = "11.0.113.5", .port = 7, .wait_ms = LAB_MS };
    AUTO(netlink_close) struct netlink nl = { 0 };
    struct netmaker m;
    struct net_slot a, b;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &a);
    CHECK_INT(netlink_open(&nl, NETLINK_ROUTE, &err), 0);
    CHECK_INT(net_link_delete(&nl, if_nametoindex("lab0")), 0);
    lab_slot(&m, NET_OPEN, 2, &b);
    CHECK_INT(lab_inside(&b, LAB_ROOT, lab_tcp, &there), 0);
    net_slot_release(&a);
    net_slot_release(&b);
    lab_stop(&m);
    lab_check_nothing_left();
}

TEST(forwarding_stays_when_somebody_else_routes_too)
{
    struct netmaker m;
    struct net_slot s;
    int64_t until = clock_ms() + LAB_MS;

    if (!lab_start())
        return;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, 1, &s);
    CHECK_INT(system("/usr/sbin/nft -f - <<'X'\ntable ip other {\n chain out { type nat hook "
                     "postrouting priority 100; }\n}\nX\n"),
              0);
    net_slot_release(&s);
    lab_stop(&m);
    while (if_nametoindex("lab0") && clock_ms() < until)
        usleep(5000);
    usleep(100 * 1000); /* the bridge goes first */
    CHECK(lab_setting_is("net/ipv4/ip_forward", "1"));
    CHECK_INT(system("/usr/sbin/nft delete table ip other"), 0);
    net_sysctl_write("net/ipv4/ip_forward", "0");
    net_sysctl_write("net/ipv6/conf/all/forwarding", "0");
    net_sysctl_write("net/ipv6/conf/up0/accept_ra", "1");
    lab_check_nothing_left();
}
