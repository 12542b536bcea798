/* test_dns_relay.c - the name server of sandboxes, asked from inside one. */
#include "io/fdpass.h"
#include "jail/dns_message.h"
#include "jail/dns_relay.h"
#include "jail/dns_serve.h"
#include "jail/walls.h"
#include "netlab.h"

static struct err err;
static const char gateway[] = "10.201.0.1";

struct ask {
    const char *name; /* one label */
    unsigned type;
    int count, wait_ms;
    bool tcp, raw_opcode;
};

static size_t encode(const struct ask *a, uint16_t id, unsigned char *p)
{
    size_t label = strlen(a->name);

    memcpy(p, "\0\0\1\0\0\1\0\0\0\0\0\0", 12);
    dns_message_set_id(p, id);
    p[2] |= a->raw_opcode ? 4 << 3 : 0;
    p[12] = (unsigned char)label;
    memcpy(p + 13, a->name, label);
    memcpy(p + 13 + label, "\4test\0\0\0\0\1", 10);
    p[13 + label + 7] = (unsigned char)a->type;
    return 13 + label + 10;
}

/* The answer's code; 100: the right address, 101: no answer, 102: an answer to something else. */
static int judge(const unsigned char *p, ssize_t n, uint16_t id)
{
    if (n < 12)
        return 101;
    if (p[0] != id >> 8 || p[1] != (id & 0xff) || !(p[2] & 0x80))
        return 102;
    if (p[3] & 0xf)
        return p[3] & 0xf;
    return n > 28 && !memcmp(p + n - 4, "\xcb\0\x71\5", 4) ? 100 : 102;
}

static int ask_once(int fd, const struct ask *a, uint16_t id)
{
    unsigned char p[2048], *q = p + 2;
    size_t n = encode(a, id, q);
    ssize_t r;

    if (!a->tcp) {
        if (send(fd, q, n, 0) < 0)
            return 103;
        r = recv(fd, q, sizeof(p) - 2, 0);
    } else {
        p[0] = 0;
        p[1] = (unsigned char)n;
        if (send(fd, p, 1, MSG_NOSIGNAL) != 1 || /* in pieces, as a network may */
            send(fd, p + 1, n + 1, MSG_NOSIGNAL) != (ssize_t)n + 1 ||
            recv(fd, p, 2, MSG_WAITALL) != 2)
            return 101;
        r = recv(fd, q, (size_t)p[0] << 8 | p[1], MSG_WAITALL);
    }
    return judge(q, r, id);
}

/* The worst of `count` answers, over one socket. */
static int ask(const void *arg)
{
    const struct ask *a = arg;
    struct lab_target t = { .ip = gateway,
                            .port = 53,
                            .wait_ms = a->wait_ms ? a->wait_ms : LAB_MS };
    struct addr to;
    int fd = lab_socket(&t, a->tcp ? SOCK_STREAM : SOCK_DGRAM, &to), worst = 100;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to.sa, to.len))
        return 104;
    for (int i = 0; i < (a->count ? a->count : 1); i++) {
        int r = ask_once(fd, a, (uint16_t)(1000 + i));

        worst = r == 100 ? worst : r;
    }
    close(fd);
    return worst;
}

static struct netmaker m;
static struct net_slot s;

static bool start(uint32_t index)
{
    if (!lab_start())
        return false;
    CHECK_INT(netmaker_start(&m, &lab.options, &err), 0);
    lab_slot(&m, NET_OPEN, index, &s);
    return true;
}

static void stop(void)
{
    net_slot_release(&s);
    lab_stop(&m);
}

TEST(names_are_resolved_over_udp_and_tcp)
{
    if (!start(1))
        return;
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1 }), 100);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .tcp = true }), 100);
    /* several on one connection */
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .tcp = true, .count = 5 }),
              100);
    stop();
}

TEST(only_plain_questions_are_relayed)
{
    if (!start(2))
        return;
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 252 }), DNS_REFUSED);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 252, .tcp = true }), DNS_REFUSED);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .raw_opcode = true }),
              DNS_REFUSED);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "", 1 }), DNS_FORMERR);
    stop();
}

TEST(an_answer_with_another_id_or_question_is_not_believed)
{
    if (!start(3))
        return;
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "wrong", 1 }), 100);
    stop();
}

TEST(questions_beyond_the_rate_are_refused_for_that_sandbox_only)
{
    const struct dns_bounds usual = dns_bounds;
    struct net_slot other;

    dns_bounds.queries_per_s = 2;
    dns_bounds.burst = 20;
    if (start(4)) {
        lab_slot(&m, NET_OPEN, 5, &other);
        CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .count = 20 }), 100);
        CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .count = 40 }),
                  DNS_REFUSED);
        CHECK_INT(
            lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .count = 40, .tcp = true }),
            DNS_REFUSED);
        CHECK_INT(lab_inside(&other, LAB_USER, ask, &(struct ask){ "www", 1, .count = 20 }), 100);
        usleep(1000 * 1000);
        CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1 }), 100);
        net_slot_release(&other);
        stop();
    }
    dns_bounds = usual;
}

TEST(silence_upstream_becomes_a_failure_in_time)
{
    int64_t before;

    dns_bounds.timeout_ms = 600;
    if (start(6)) {
        before = clock_ms();
        CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "quiet", 1 }), DNS_SERVFAIL);
        CHECK(clock_ms() - before >= 550 && clock_ms() - before < 5000);
        CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "quiet", 1, .tcp = true }),
                  DNS_SERVFAIL);
        stop();
    }
    dns_bounds.timeout_ms = 5000;
}

TEST(a_changed_resolv_conf_is_read_and_a_dead_server_passed_over)
{
    int64_t before;

    if (!start(7))
        return;
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1 }), 100);
    lab_write_resolv("nameserver 127.0.0.99\n"); /* nobody listens there */
    usleep(1100 * 1000);
    before = clock_ms();
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1 }), DNS_SERVFAIL);
    CHECK(clock_ms() - before < 1000);
    lab_write_resolv("nameserver 127.0.0.99\nnameserver 11.0.113.5\n");
    usleep(1100 * 1000);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1 }), 100);
    CHECK_INT(lab_inside(&s, LAB_USER, ask, &(struct ask){ "www", 1, .tcp = true }), 100);
    lab_write_resolv("nameserver 11.0.113.5\n");
    stop();
}

/* The relay that works, found by its listening socket's owner: by name among our descendants. */
static pid_t find_relay(char *status, size_t n)
{
    FILE *all = popen("grep -l '^Name:.cove-dns$' /proc/[0-9]*/status 2>/dev/null", "re");
    char path[64];
    pid_t found = 0;

    CHECK(all != NULL);
    while (fgets(path, sizeof(path), all)) {
        char ours[64], its[64], link[64];
        ssize_t a = readlink("/proc/self/ns/net", ours, sizeof(ours)), b;
        int pid = (int)strtol(path + 6, NULL, 10), fd;

        snprintf(link, sizeof(link), "/proc/%d/ns/net", pid);
        b = readlink(link, its, sizeof(its));
        if (a < 0 || a != b || memcmp(ours, its, (size_t)a) != 0)
            continue; /* another checkout's */
        found = pid;
        path[strcspn(path, "\n")] = 0;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        memset(status, 0, n);
        CHECK(fd >= 0 && read(fd, status, n - 1) > 0);
        close(fd);
    }
    pclose(all);
    return found;
}

TEST(the_relay_has_no_privileges)
{
    const char *last = WALLS_SANITIZED ? "NoNewPrivs:\t1" : "Seccomp:\t2";
    int64_t until = clock_ms() + LAB_MS;
    char status[4096];

    if (!start(8))
        return;
    do { /* it has its ports, and gives up the rest before it reads from them */
        CHECK(find_relay(status, sizeof(status)) > 0);
    } while (!strstr(status, last) && clock_ms() < until && !usleep(10000));
    CHECK(strstr(status, "Uid:\t65534\t65534\t65534\t65534") != NULL);
    CHECK(strstr(status, "Gid:\t65534\t65534\t65534\t65534") != NULL);
    CHECK(strstr(status, "CapEff:\t0000000000000000") != NULL);
    CHECK(strstr(status, "CapPrm:\t0000000000000000") != NULL);
    CHECK(strstr(status, "NoNewPrivs:\t1") != NULL);
    CHECK(strstr(status, last) != NULL);
    stop();
}

/* ---- its parent ---- */

static struct dns_relay relay;
static struct net_plan plan;
static int line;

static bool begin_line(void)
{
    int pair[2];

    if (!lab_start())
        return false;
    CHECK_INT(net_plan_init(&plan, &lab.options, &err), 0);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    relay = (struct dns_relay){ .line = pair[0] };
    line = pair[1];
    return true;
}

static int word(char c)
{
    CHECK_INT(send(line, &c, 1, 0), 1);
    return dns_relay_answer(&relay, &plan);
}

TEST(the_parent_says_what_resolv_conf_names)
{
    struct dns_answer a;
    struct addr want;
    int fds[2];
    size_t n = 2;

    if (!begin_line())
        return;
    lab_write_resolv("nameserver 11.0.113.9\nnameserver 11.0.113.5\n");
    CHECK_INT(word(DNS_ASK_SERVERS), 0);
    CHECK_INT(fdpass_recv(line, &a, sizeof(a), fds, &n, MSG_DONTWAIT), sizeof(a));
    CHECK_INT(n, 0);
    CHECK_INT(a.error, 0);
    CHECK_INT(a.servers.n, 2);
    lab_address(&want, "11.0.113.9", 53);
    CHECK(!memcmp(&want.sa, &a.servers.item[0].sa, want.len));
    lab_write_resolv("nameserver 11.0.113.5\n");
    CHECK_INT(word(DNS_ASK_PORTS), 0); /* no such address here: an error, and no descriptor */
    n = 2;
    CHECK_INT(fdpass_recv(line, &a, sizeof(a), fds, &n, MSG_DONTWAIT), sizeof(a));
    CHECK_INT(a.error, EADDRNOTAVAIL);
    CHECK_INT(n, 0);
    close(line), close(relay.line);
}

TEST(a_relay_that_asks_as_none_does_is_given_up)
{
    int asked = 0;

    if (!begin_line())
        return;
    while (!word(DNS_ASK_SERVERS) && asked < 1000) /* nobody reads: no answer is waited for */
        asked++;
    CHECK(asked >= 50 && asked < 1000);
    relay.said = 0;
    CHECK_INT(word('x'), -1);
    close(line);
    CHECK_INT(dns_relay_answer(&relay, &plan), -1); /* its end */
    close(relay.line);
}

static int ask_until_answered(const struct net_slot *slot)
{
    int64_t until = clock_ms() + LAB_MS;
    int r = 0;

    while (r != 100 && clock_ms() < until)
        r = lab_inside(slot, LAB_USER, ask, &(struct ask){ "www", 1, .wait_ms = 200 });
    return r;
}

TEST(a_relay_that_was_killed_is_started_again)
{
    char status[4096];
    pid_t first;

    if (!start(9))
        return;
    first = find_relay(status, sizeof(status));
    CHECK(first > 0);
    kill(first, SIGKILL);
    CHECK_INT(ask_until_answered(&s), 100);
    CHECK(find_relay(status, sizeof(status)) != first);
    stop();
}

TEST(when_a_keeper_ends_the_relay_of_another_takes_over)
{
    struct netmaker n;
    struct net_slot other;

    if (!start(10))
        return;
    CHECK_INT(netmaker_start(&n, &lab.options, &err), 0);
    lab_slot(&n, NET_OPEN, 11, &other);
    CHECK_INT(lab_inside(&other, LAB_USER, ask, &(struct ask){ "www", 1 }), 100);
    stop();
    CHECK_INT(ask_until_answered(&other), 100);
    net_slot_release(&other);
    lab_stop(&n);
}

static int hold_connections(const void *arg)
{
    struct lab_target t = { .ip = gateway, .port = 53, .wait_ms = 1000 };
    struct addr to;
    int open_ones = 0;

    (void)arg;
    for (int i = 0; i < 20; i++) {
        int fd = lab_socket(&t, SOCK_STREAM, &to);
        const struct ask a = { "www", 1, .tcp = true };

        if (fd >= 0 && !connect(fd, (struct sockaddr *)&to.sa, to.len) &&
            ask_once(fd, &a, 7) == 100)
            open_ones++; /* and stays open */
    }
    return open_ones;
}

TEST(connections_of_one_sandbox_are_bounded)
{
    if (!start(12))
        return;
    CHECK_INT(lab_inside(&s, LAB_USER, hold_connections, NULL), dns_bounds.connections_per_source);
    stop();
}
