/* test_sock.c - addresses, listening and connecting, passing descriptors. */
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net.h"

static struct err err;

TEST(an_address_is_read_and_printed)
{
    static const struct {
        const char *text, *want;
    } some[] = {
        { "127.0.0.1:80", "127.0.0.1:80" },
        { "0.0.0.0:0", "0.0.0.0:0" },
        { "localhost:65535", "127.0.0.1:65535" },
        { "[::1]:8080", "[::1]:8080" },
        { "::1:8080", "[::1]:8080" },
        { "[::]:1", "[::]:1" },
        { "[2001:DB8::a]:1", "[2001:db8::a]:1" },
        { "unix:/run/cove.sock", "unix:/run/cove.sock" },
        { "unix:x:1", "unix:x:1" },
    };
    char text[128];

    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        struct addr a;

        CHECK_INT(addr_parse(str_of(some[i].text), &a, &err), 0);
        addr_print(&a, text, sizeof(text));
        CHECK_STR(text, some[i].want);
    }
}

TEST(what_is_no_address_is_refused)
{
    static const char *const bad[] = {
        "",      "80",           "127.0.0.1",    "127.0.0.1:",  "127.0.0.1:x", "127.0.0.1:65536",
        ":80",   "example:80",   "[::1]",        "[::1",        "1.2.3:80",    "127.0.0.1:-1",
        "unix:", "127.0.0.1:+1", "127.0.0.1: 1", "999.0.0.1:1", "[]:1",
    };
    struct addr a;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (!addr_parse(str_of(bad[i]), &a, &err))
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
        CHECK_INT(err.code, ERR_INVALID);
    }
    addr_parse(STR("example.org:80"), &a, &err);
    CHECK_STR(err.msg, "address 'example.org:80': 'example.org' is not an IP address");
    addr_parse(STR("1.1.1.1:99999"), &a, &err);
    CHECK_STR(err.msg, "address '1.1.1.1:99999': the port must be a number up to 65535");
}

TEST(a_socket_path_must_fit)
{
    char text[200] = "unix:";
    struct addr a;

    memset(text + 5, 'p', 107);
    CHECK_INT(addr_parse((struct str){ text, 112 }, &a, &err), 0);
    memset(text + 5, 'p', 108);
    CHECK_INT(addr_parse((struct str){ text, 113 }, &a, &err), -1);
    CHECK_STR(err.msg, "socket path must have 1 to 107 bytes");
}

static void connect_and_ask(const char *where, const char *listener_says)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct addr a;
    int listener, client, peer;
    char name[128];
    socklen_t n;

    CHECK_INT(addr_parse(str_of(where), &a, &err), 0);
    listener = sock_listen(&a, &err);
    if (listener < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_INT(fcntl(listener, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    n = sizeof(a.sa); /* which port was it? */
    CHECK_INT(getsockname(listener, (struct sockaddr *)&a.sa, &n), 0);
    a.len = n;
    addr_print(&a, name, sizeof(name));
    CHECK(!strncmp(name, listener_says, strlen(listener_says)));
    client = sock_open(&a, &err);
    CHECK(client >= 0);
    CHECK_INT(co_connect(client, &a.sa, a.len, co_in(NET_MS)), 0);
    peer = co_accept(listener);
    CHECK(peer >= 0);
    CHECK_INT(fcntl(peer, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    net_put(client, STR("ping"));
    co_close(client);
    net_get_all(peer, &b);
    CHECK_STR(b.data, "ping");
    co_close(peer);
    co_close(listener);
}

static char directory[] = "/tmp/cove-sock-XXXXXX";

static void connect_everywhere(void *arg)
{
    char where[64];
    struct stat st;

    (void)arg;
    connect_and_ask("127.0.0.1:0", "127.0.0.1:");
    CHECK(mkdtemp(directory) != NULL);
    snprintf(where, sizeof(where), "unix:%s/s", directory);
    connect_and_ask(where, where);
    CHECK_INT(stat(where + 5, &st), 0);
    connect_and_ask(where, where); /* the socket of the earlier run is in the way, and goes */
    unlink(where + 5);
    rmdir(directory);
}

TEST(a_client_reaches_a_listener_over_tcp_and_unix) { test_co(connect_everywhere, NULL); }

static void refuse(void *arg)
{
    char path[] = "/tmp/cove-file-XXXXXX", where[64];
    int file = mkstemp(path), client;
    struct addr a;
    struct stat st;

    (void)arg;
    snprintf(where, sizeof(where), "unix:%s", path);
    CHECK_INT(addr_parse(str_of(where), &a, &err), 0);
    CHECK_INT(sock_listen(&a, &err), -1);
    CHECK_INT(err.code, err_from_errno(EADDRINUSE));
    CHECK_INT(stat(path, &st), 0); /* a file is never removed */
    client = sock_open(&a, &err);
    CHECK_INT(co_connect(client, &a.sa, a.len, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECONNREFUSED);
    co_close(client);
    close(file);
    unlink(path);
    CHECK_INT(addr_parse(STR("127.0.0.1:1"), &a, &err), 0);
    client = sock_open(&a, &err);
    CHECK_INT(co_connect(client, &a.sa, a.len, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECONNREFUSED);
    co_close(client);
}

TEST(nobody_listening_is_an_error_and_a_file_is_never_unlinked) { test_co(refuse, NULL); }

static void pass(void *arg)
{
    int s[2], p[2], got;
    char text[8] = "";

    (void)arg;
    net_pair(s);
    CHECK_INT(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
    CHECK_INT(sock_send_fd(s[0], p[1], co_in(NET_MS), &err), 0);
    close(p[1]);
    got = sock_recv_fd(s[1], co_in(NET_MS), &err);
    CHECK(got >= 0);
    CHECK_INT(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CHECK_INT(write(got, "hi", 2), 2);
    CHECK_INT(read(p[0], text, 8), 2);
    CHECK_STR(text, "hi");
    close(got);
    CHECK_INT(sock_recv_fd(s[1], co_in(10), &err), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    net_put(s[0], STR("x"));
    CHECK_INT(sock_recv_fd(s[1], co_in(NET_MS), &err), -1);
    CHECK_STR(err.msg, "a message without a descriptor");
    co_close(s[0]);
    CHECK_INT(sock_recv_fd(s[1], co_in(NET_MS), &err), -1);
    CHECK_INT(err.code, ERR_GONE);
    co_close(s[1]);
    close(p[0]);
}

TEST(a_descriptor_travels_over_a_unix_socket) { test_co(pass, NULL); }

static void send_two(int sock, int a, int b)
{
    char byte = 0;
    struct iovec v = { &byte, 1 };
    union {
        char space[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } m = { 0 };
    struct msghdr msg = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = m.space, .msg_controllen = sizeof(m.space)
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(c), (int[]){ a, b }, 2 * sizeof(int));
    CHECK_INT(sendmsg(sock, &msg, 0), 1);
}

static void pass_two(void *arg)
{
    int s[2], before, after;

    (void)arg;
    net_pair(s);
    before = dup(0);
    close(before);
    send_two(s[0], 0, 1);
    CHECK_INT(sock_recv_fd(s[1], co_in(NET_MS), &err), -1);
    CHECK_STR(err.msg, "a message with more than one descriptor");
    after = dup(0);
    CHECK_INT(after, before); /* nothing was left open */
    close(after);
    co_close(s[0]);
    co_close(s[1]);
}

TEST(a_second_descriptor_is_refused_and_not_leaked) { test_co(pass_two, NULL); }

struct peer_row {
    const char *name;
    unsigned answered_ms, unacked, probes, window, rto_ms;
    bool lives;
};

static const struct peer_row peers[] = {
    { "it reads", 5, 9, 0, 65536, 201, true },
    { "what it was sent is not old yet", 59999, 9, 0, 65536, 51000, true },
    { "what it was sent has no answer", 60000, 9, 0, 65536, 51000, false },
    { "it does not read", 119000, 0, 1, 0, 120000, true },
    { "it does not read, and a probe has no answer", 240000, 0, 2, 0, 120000, false },
    { "it refused what was under way", 94000, 1, 0, 0, 104448, true },
    { "the same, just before its next answer", 119990, 1, 0, 0, 120000, true },
    { "the same, and one was lost on the way", 240000, 1, 0, 0, 120000, true },
    { "the same, and two have no answer", 240001, 1, 0, 0, 120000, false },
    { "it refused it, and then was gone", 60001, 1, 0, 0, 30000, false },
};

TEST_ROWS(a_peer_is_dead_when_what_it_was_sent_has_no_answer, peers, test_once)
{
    struct tcp_info i = {
        .tcpi_last_ack_recv = row->answered_ms,
        .tcpi_unacked = row->unacked,
        .tcpi_probes = (__u8)row->probes,
        .tcpi_snd_wnd = row->window,
        .tcpi_rto = row->rto_ms * 1000,
    };

    CHECK_INT(sock_info_lives(&i), row->lives);
}
