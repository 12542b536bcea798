/* test_zmtp.c - ZMTP over a socket, against a peer that is scripted byte by byte. */
#include "guest/kernels/zmtp.h"

#include <stdlib.h>
#include <sys/un.h>

#include "base/mem.h"
#include "io/sock.h"
#include "net.h"

static char dir[64], path[96], address[128];
static int listener;

static void begin(void)
{
    struct addr a;
    char text[128];
    struct err err = { 0 };

    snprintf(dir, sizeof(dir), "/tmp/cove-zmtp-XXXXXX");
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(address, sizeof(address), "ipc://%s", path);
    snprintf(text, sizeof(text), "unix:%s", path);
    CHECK_INT(addr_parse(str_of(text), &a, &err), 0);
    listener = sock_listen(&a, &err);
    CHECK(listener >= 0);
}

static void end(void)
{
    co_close(listener);
    unlink(path);
    rmdir(dir);
}

static void greet(int fd, const char *type)
{
    unsigned char greeting[ZMTP_GREETING];
    struct buf b = { 0 };

    zmtp_encode_greeting(greeting);
    buf_add(&b, greeting, sizeof(greeting));
    zmtp_encode_ready(&b, type, (struct str){ 0 });
    net_put(fd, buf_str(&b));
    buf_free(&b);
}

struct script {
    const char *type;
    struct str then;
    struct buf got;
    size_t want; /* bytes to read from the client */
    bool done;
};

static void play(void *arg)
{
    struct script *s = arg;
    int fd = co_accept(listener);

    CHECK(fd >= 0);
    if (s->type)
        greet(fd, s->type);
    if (s->then.n)
        net_put(fd, s->then);
    while (s->got.len < s->want) {
        ssize_t r;

        buf_reserve(&s->got, 4096);
        r = co_read(fd, s->got.data + s->got.len, 4096, co_in(NET_MS));
        CHECK(r > 0);
        s->got.len += (size_t)r;
    }
    co_close(fd);
    s->done = true;
}

static void with_script(struct script *s, void (*client)(struct script *))
{
    begin();
    CHECK_INT(co_go(play, s, NULL), 0);
    client(s);
    while (!s->done)
        CHECK_INT(co_sleep(co_in(5)), 0);
    buf_free(&s->got);
    end();
}

static int dial(struct zmtp *z, enum zmtp_role role, struct err *err)
{
    return zmtp_dial(z, address, role, STR("id"), 100000, NULL, co_in(NET_MS), err);
}

static void reads_message(struct script *s)
{
    struct zmtp z = { 0 };
    struct err err = { 0 };

    (void)s;
    CHECK_INT(dial(&z, ZMTP_DEALER, &err), 0);
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 1);
    CHECK_INT(z.in.parts.n, 3);
    CHECK(str_is(zmtp_part(&z.in.parts, 0), "a"));
    CHECK_INT(zmtp_part(&z.in.parts, 1).n, 0);
    CHECK(str_is(zmtp_part(&z.in.parts, 2), "bc"));
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 1); /* behind a PING */
    CHECK(str_is(zmtp_part(&z.in.parts, 0), "x"));
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 0);
    zmtp_finish(&z);
}

static void run_reads(void *arg)
{
    struct script s = { .type = "ROUTER",
                        .then = STR("\1\1a\1\0\0\2bc\4\7\4PING\0\1\0\1x"),
                        .want = ZMTP_GREETING + 45 };

    (void)arg;
    with_script(&s, reads_message);
}

TEST(a_message_is_read_in_its_parts) { test_co(run_reads, NULL); }

static void large_message(struct script *s)
{
    struct zmtp z = { 0 };
    struct err err = { 0 };

    (void)s;
    CHECK_INT(dial(&z, ZMTP_SUB, &err), 0);
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 1);
    CHECK_INT(zmtp_part(&z.in.parts, 0).n, 70000);
    CHECK_INT(zmtp_part(&z.in.parts, 0).p[69999], 'z');
    zmtp_finish(&z);
}

static void run_large(void *arg)
{
    static const unsigned char head[] = { 2, 0, 0, 0, 0, 0, 1, 0x11, 0x70 };
    struct buf b = { 0 };
    struct script s = { .type = "XPUB", .want = ZMTP_GREETING + 45 };

    (void)arg;
    buf_add(&b, head, sizeof(head));
    for (int i = 0; i < 70000; i++)
        buf_putc(&b, 'z');
    s.then = buf_str(&b);
    with_script(&s, large_message);
    buf_free(&b);
}

TEST(a_large_part_comes_whole) { test_co(run_large, NULL); }

static void passes_over(struct script *s)
{
    struct zmtp z = { 0 };
    struct err err = { 0 };

    (void)s;
    CHECK_INT(dial(&z, ZMTP_SUB, &err), 0);
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 1);
    CHECK_INT(z.in.parts.n, 2);
    CHECK(str_is(zmtp_part(&z.in.parts, 1), "bc"));
    CHECK_INT(z.in.skipped, 2);
    CHECK(z.in.parts.bytes.cap < 100000);
    CHECK_INT(zmtp_read(&z, co_in(NET_MS), &err), 0);
    zmtp_finish(&z);
}

static void add_part(struct buf *b, bool more, size_t n)
{
    unsigned char head[ZMTP_HEADER_MAX];

    buf_add(b, head, zmtp_encode_header(head, more, false, n));
    for (size_t i = 0; i < n; i++)
        buf_putc(b, 'z');
}

/* One of them in one part, and one that is too large only with its last. */
static void run_passes_over(void *arg)
{
    struct buf b = { 0 };
    struct script s = { .type = "XPUB", .want = ZMTP_GREETING + 45 };

    (void)arg;
    add_part(&b, true, 3);
    add_part(&b, true, 200000);
    add_part(&b, false, 5);
    add_part(&b, true, 60000);
    add_part(&b, false, 60000);
    buf_add_str(&b, STR("\1\1a\0\2bc"));
    s.then = buf_str(&b);
    with_script(&s, passes_over);
    buf_free(&b);
}

TEST(a_message_beyond_the_bound_is_passed_over_and_the_next_one_read)
{
    test_co(run_passes_over, NULL);
}

static void refused(struct script *s)
{
    struct zmtp z = { 0 };
    struct err err = { 0 };
    int r = dial(&z, ZMTP_DEALER, &err);

    if (!r)
        r = zmtp_read(&z, co_in(NET_MS), &err);
    CHECK_INT(r, -1);
    if (!strstr(err.msg, s->got.data ? s->got.data : ""))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    zmtp_finish(&z);
}

#define BYTES(text)                                                                                \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static const struct {
    const char *type;
    struct str then;
} wrong[] = {
    { NULL,
      BYTES("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nServer: something else\r\n\r\n") },
    { "PUB", BYTES("") },
    { "ROUTER", BYTES("\xf0\0") },                             /* flags that nobody knows */
    { "ROUTER", BYTES("\2\xff\xff\xff\xff\xff\xff\xff\xff") }, /* as much as there can be */
    { "ROUTER", BYTES("\5\3abc") },                            /* a command in pieces */
};

static void run_wrong(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct script s = { .type = wrong[i].type, .then = wrong[i].then };

        with_script(&s, refused);
    }
}

TEST(a_peer_that_breaks_a_rule_is_refused) { test_co(run_wrong, NULL); }

static void sends(struct script *s)
{
    static const char wanted[] = "\1\1a\1\0\0\3bcd";
    struct str parts[] = { STR("a"), { "", 0 }, STR("bcd") };
    struct zmtp z = { 0 };
    struct err err = { 0 };

    CHECK_INT(dial(&z, ZMTP_DEALER, &err), 0);
    CHECK_INT(zmtp_send(&z, parts, 3, co_in(NET_MS), &err), 0);
    while (!s->done)
        CHECK_INT(co_sleep(co_in(5)), 0);
    CHECK(!memcmp(s->got.data + s->got.len - (sizeof(wanted) - 1), wanted, sizeof(wanted) - 1));
    zmtp_break(&z);
    CHECK_INT(zmtp_send(&z, parts, 3, co_in(NET_MS), &err), -1);
    zmtp_finish(&z);
}

static void run_sends(void *arg)
{
    struct script s = { .type = "ROUTER", .want = ZMTP_GREETING + 45 + 10 };

    (void)arg;
    with_script(&s, sends);
}

TEST(a_message_is_sent_in_its_parts) { test_co(run_sends, NULL); }

/* ---- heartbeats ---- */

static struct zmtp beating;
static bool beat_over;

static void read_beats(void *arg)
{
    struct err err = { 0 };

    (void)arg;
    while (zmtp_read(&beating, NEVER, &err) > 0)
        ;
    beat_over = true;
}

static int peer_of_beats(void)
{
    int fd = co_accept(listener);

    CHECK(fd >= 0);
    greet(fd, "ROUTER");
    return fd;
}

static void dial_beating(void *arg)
{
    struct err err = { 0 };

    CHECK_INT(dial(&beating, ZMTP_DEALER, &err), 0);
    CHECK_INT(co_go(read_beats, NULL, NULL), 0);
    *(bool *)arg = true;
}

/* Everything that the client has sent, as messages and commands. */
static void take_frames(int fd, size_t *messages, size_t *large, struct buf *commands)
{
    struct zmtp_parser in = { .max = 1 << 20 };
    struct err err = { 0 };
    char bytes[8192];
    ssize_t n;

    while ((n = co_read(fd, bytes, sizeof(bytes), co_in(NET_MS))) > 0)
        for (ssize_t at = 0, r; at < n; at += r) {
            enum zmtp_event event;

            r = zmtp_feed(&in, bytes + at, (size_t)(n - at), &event, &err);
            if (r < 0)
                test_fail(__FILE__, __LINE__, "the frames are mixed up: %s", err.msg);
            if (event == ZMTP_COMMAND)
                buf_add_str(commands, buf_str(&in.text));
            if (event == ZMTP_MESSAGE) {
                ++*messages;
                *large += zmtp_part(&in.parts, 0).n == 70000;
            }
        }
    CHECK_INT(n, 0);
    zmtp_parser_free(&in);
}

static void send_large(void *arg)
{
    static char bytes[70000];
    struct str part = { bytes, sizeof(bytes) };
    struct err err = { 0 };

    CHECK_INT(zmtp_send(&beating, &part, 1, co_in(NET_MS), &err), 0);
    *(bool *)arg = true;
    zmtp_break(&beating);
}

/* The socket is full when the ping comes, and somebody begins to send behind it. */
static void run_beats(void *arg)
{
    unsigned char hello[ZMTP_GREETING];
    size_t messages = 0, large = 0, filled = 0;
    struct buf commands = { 0 };
    bool dialled = false, sent = false;
    int fd;

    (void)arg;
    begin();
    CHECK_INT(co_go(dial_beating, &dialled, NULL), 0);
    fd = peer_of_beats();
    CHECK_INT(co_read_full(fd, hello, sizeof(hello), co_in(NET_MS)), sizeof(hello));
    while (!dialled)
        CHECK_INT(co_sleep(co_in(5)), 0);
    net_put(fd, STR("\4\7\4PING\0\1")); /* with room */
    CHECK_INT(co_sleep(co_in(30)), 0);
    while (send(beating.conn.fd, "\0\1x", 3, MSG_DONTWAIT) == 3)
        filled++;
    net_put(fd, STR("\4\11\4PING\0\1no")); /* without */
    CHECK_INT(co_sleep(co_in(30)), 0);
    CHECK_INT(co_go(send_large, &sent, NULL), 0);
    CHECK_INT(co_sleep(co_in(30)), 0);
    net_put(fd, STR("\4\11\4PING\0\1in")); /* in the middle of a message */
    CHECK_INT(co_sleep(co_in(30)), 0);
    take_frames(fd, &messages, &large, &commands);
    while (!beat_over)
        CHECK_INT(co_sleep(co_in(5)), 0);
    CHECK(sent);
    CHECK_INT(large, 1);
    CHECK_INT(messages, filled + 1);
    CHECK(str_starts(buf_str(&commands), "\5READY"));
    CHECK(memmem(commands.data, commands.len, "\4PONG", 5));
    buf_free(&commands);
    zmtp_finish(&beating);
    co_close(fd);
    end();
}

TEST(a_heartbeat_is_answered_and_never_between_two_halves_of_a_message)
{
    test_co(run_beats, NULL);
}

static void run_nobody(void *arg)
{
    struct zmtp z = { 0 };
    struct err err = { 0 };
    bool stop = true;

    (void)arg;
    CHECK_INT(zmtp_dial(&z, "ipc:///nonexistent/socket", ZMTP_SUB, (struct str){ 0 }, 1000, NULL,
                        co_in(50), &err),
              -1);
    CHECK(strstr(err.msg, "does not listen"));
    CHECK_INT(zmtp_dial(&z, "ipc:///nonexistent/socket", ZMTP_SUB, (struct str){ 0 }, 1000, &stop,
                        co_in(NET_MS), &err),
              -1);
    CHECK(strstr(err.msg, "has ended"));
    zmtp_finish(&z);
}

TEST(nobody_there_is_waited_for_until_the_deadline_or_the_end) { test_co(run_nobody, NULL); }
