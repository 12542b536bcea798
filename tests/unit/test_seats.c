/* test_seats.c - how many connections a server holds, and which one makes room for another. */
#include <arpa/inet.h>
#include <sys/resource.h>

#include "rig.h"

static int hello(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("hello"));
}

static int flood(struct call *c, void *body, struct err *err)
{
    static const char much[32 << 10];

    (void)body;
    if (call_begin(c, 200, "text/plain", -1))
        return -1;
    if (http_get(&c->head, "patient").n)
        call_patient(c);
    while (!call_send(c, much, sizeof(much)))
        ;
    return err_set(err, ERR_GONE, "the client left");
}

static int take(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf all = { 0 };

    (void)body;
    return call_read_all(c, &all, err) ? -1 : call_reply(c, 200, "text/plain", STR("took"));
}

static struct co_cond let_go;

/* Under way until it is told to end. */
static int hold(struct call *c, void *body, struct err *err)
{
    (void)body;
    if (co_cond_wait(&let_go, NEVER))
        return err_set(err, ERR_GONE, "cancelled");
    return call_reply(c, 200, "text/plain", STR("held"));
}

static const struct route routes[] = {
    { "GET", "/", ROUTE_RAW, .fn = hello },
    { "POST", "/take", ROUTE_RAW, .fn = take },
    { "GET", "/hold", ROUTE_RAW, .fn = hold },
    { "GET", "/flood", ROUTE_RAW, .fn = flood },
    {},
};
static const struct route *const tables[] = { routes, NULL };
static struct httpd server;
static struct rig rig;
static struct http_limits usual;
static struct seats_counts before;

/* ---- clients ---- */

/* Any of 127/8 is ours. */
static int from(const char *address)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct err err = { 0 };
    int fd = sock_open(&rig.addr, &err);

    CHECK_INT(inet_pton(AF_INET, address, &in.sin_addr), 1);
    CHECK_INT(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    CHECK_INT(co_connect(fd, &rig.addr.sa, rig.addr.len, co_in(2000)), 0);
    return fd;
}

static int say(const char *address, const char *text)
{
    int fd = from(address);

    rig_say(fd, text);
    co_sleep(co_in(5)); /* it is there, and judged */
    return fd;
}

static bool lives(int fd)
{
    char b;
    ssize_t r;

    co_sleep(co_in(5));
    r = recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT);
    return r > 0 || (r < 0 && errno == EAGAIN);
}

/* Time that nobody has to wait for, where the runtime can do that. */
static void pass(int64_t ms)
{
    co_skip_waits(true);
    co_sleep(co_in(ms));
    co_skip_waits(false);
}

/* Waits for it. */
static bool gone(int fd)
{
    int64_t until = co_in(2000);

    while (lives(fd))
        if (co_now() > until)
            return false;
    return true;
}

static bool has(enum seat_state state, int64_t n)
{
    int64_t until = co_in(2000);

    while (seats_counts()->now[state] != n)
        if (co_now() > until || co_sleep(co_in(1)))
            return false;
    return true;
}

static bool answers(int fd, const char *text, const char *want)
{
    AUTO(buf_free) struct buf b = { 0 };

    return !co_write(fd, text, strlen(text), co_in(2000)) && rig_hear(fd, &b, want);
}

#define GET    "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD   "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
#define OWE    "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"
#define NOBODY "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"

static int kept(const char *address)
{
    int fd = from(address);

    CHECK(answers(fd, GET, "hello"));
    return fd;
}

static int64_t ended(enum seat_why why)
{
    return (int64_t)(seats_counts()->ended[why] - before.ended[why]);
}

/* ---- the frame of a case ---- */

static void frame(void *arg)
{
    void (*fn)(void) = *(void (**)(void))arg;

    usual = http_limits;
    before = *seats_counts();
    co_cond_init(&let_go);
    server = (struct httpd){ .tables = tables };
    rig = (struct rig){ .d = &server };
    rig_start(&rig);
    http_limits.connections = 4;
    http_limits.peer_connections = 4;
    fn();
    co_cancel_all();
    rig_wait(&rig);
    for (int i = 0; i < SEAT_STATES; i++)
        CHECK_INT(seats_counts()->now[i], 0); /* whatever happened, each was counted twice */
    http_limits = usual;
}

static void run(void (*fn)(void)) { test_co(frame, &fn); }

/* ---- who goes ---- */

static void in_order(void)
{
    int owing = say("127.0.0.1", OWE), idle = kept("127.0.0.1"),
        half = say("127.0.0.1", "GET / HT"), silent = from("127.0.0.1"), fd[3];

    CHECK(has(SEAT_OWING, 1));
    CHECK(has(SEAT_KEPT, 1));
    CHECK(has(SEAT_SILENT, 2));
    fd[0] = say("127.0.0.1", HOLD);
    CHECK(gone(half) && lives(silent) && lives(idle) && lives(owing)); /* the older one */
    fd[1] = say("127.0.0.1", HOLD);
    CHECK(gone(silent) && lives(idle) && lives(owing));
    fd[2] = say("127.0.0.1", HOLD);
    CHECK(gone(idle) && lives(owing));
    CHECK_INT(ended(SEAT_WHY_SILENT), 2);
    CHECK_INT(ended(SEAT_WHY_KEPT), 1);
    for (int i = 0; i < 3; i++)
        CHECK(lives(fd[i]));
    co_cond_wake(&let_go);
    for (int i = 0; i < 3; i++)
        CHECK(answers(fd[i], "", "held"));
    CHECK(answers(owing, "cd", "took"));
}

TEST(silent_ones_go_first_then_idle_ones_and_the_longest_of_each) { run(in_order); }

static void stalled(void)
{
    int older = say("127.0.0.1", OWE), stands = say("127.0.0.1", OWE),
        held = say("127.0.0.1", HOLD), other = say("127.0.0.1", HOLD), fd;

    pass(1100);
    fd = from("127.0.0.1");
    CHECK(lives(fd)); /* one stood still for a second: the older, for all that anybody knows */
    CHECK_INT(ended(SEAT_WHY_OWING), 1);
    CHECK(gone(older));
    CHECK(lives(stands));
    CHECK(lives(held) && lives(other));
    rig_say(stands, "c");
    rig_say(fd, HOLD);
    co_sleep(co_in(50)); /* until both have been heard */
    fd = from("127.0.0.1");
    CHECK(answers(fd, "", "503 Service Unavailable")); /* it has moved: only busy ones are left */
    CHECK_INT(ended(SEAT_WHY_REFUSED), 1);
    CHECK(lives(held) && lives(other));
    CHECK(answers(stands, "d", "took"));
}

TEST(a_body_that_stands_still_makes_room_and_one_that_moves_does_not) { run(stalled); }

/* A byte twice a second is no sign of a body: without an end to that, who has no key fills the
 * table. */
static void dripping(void)
{
    int drips = say("127.0.0.1", "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\nab"),
        held[3], fd;

    for (int i = 0; i < 3; i++)
        held[i] = say("127.0.0.1", HOLD);
    for (int i = 0; i < 12; i++) {
        pass(500);
        rig_say(drips, "c");
        co_sleep(co_in(2));
    }
    fd = from("127.0.0.1");
    CHECK(answers(fd, "", "503 Service Unavailable")); /* six seconds: it may be a slow one */
    for (int i = 0; i < 12; i++) {
        pass(500);
        rig_say(drips, "c");
        co_sleep(co_in(2));
    }
    fd = from("127.0.0.1");
    CHECK(lives(fd) && gone(drips));
    CHECK_INT(ended(SEAT_WHY_OWING), 1);
    for (int i = 0; i < 3; i++)
        CHECK(lives(held[i]));
}

TEST(a_body_of_a_byte_now_and_then_makes_room) { run(dripping); }

static void slow_but_steady(void)
{
    char much[501] = { 0 };
    int slow =
            say("127.0.0.1", "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\nab"),
        fd;

    memset(much, 'x', 500);
    for (int i = 0; i < 3; i++)
        say("127.0.0.1", HOLD);
    for (int i = 0; i < 24; i++) {
        pass(900);
        rig_say(slow, much);
        co_sleep(co_in(2));
    }
    fd = from("127.0.0.1");
    CHECK(answers(fd, "", "503 Service Unavailable"));
    CHECK(lives(slow));
}

TEST(a_slow_body_that_moves_stays) { run(slow_but_steady); }

static void unread(void)
{
    int patient = say("127.0.0.1", "GET /flood HTTP/1.1\r\nHost: a\r\nPatient: 1\r\n\r\n"),
        idler = say("127.0.0.1", "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"),
        held = say("127.0.0.1", HOLD), other = say("127.0.0.1", HOLD);

    CHECK(answers(from("127.0.0.2"), "", "503 Service Unavailable")); /* it may be slow */
    pass(5100);
    CHECK(answers(from("127.0.0.2"), GET, "hello"));
    CHECK_INT(ended(SEAT_WHY_UNREAD), 1);
    CHECK(has(SEAT_BUSY, 3));
    CHECK(answers(from("127.0.0.2"), GET, "hello")); /* the idle one goes, and no other */
    CHECK(has(SEAT_BUSY, 3));
    co_cond_wake(&let_go);
    CHECK(answers(held, "", "held") && answers(other, "", "held"));
    co_close(patient);
    co_close(idler);
}

TEST(an_answer_that_nobody_takes_makes_room_unless_a_process_writes_it) { run(unread); }

static void busy(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd[4], late;

    for (int i = 0; i < 4; i++)
        fd[i] = say("127.0.0.1", HOLD);
    late = from("127.0.0.2");
    rig_say(late, GET);
    CHECK_INT(rig_hear_all(late, &b), 0); /* an end and no reset: it can be read */
    CHECK(strstr(b.data, "requests fill all 4 connections (http.connections)\n"));
    co_cond_wake(&let_go);
    for (int i = 0; i < 4; i++)
        CHECK(answers(fd[i], "", "held"));
    CHECK(answers(from("127.0.0.2"), GET, "hello"));
}

TEST(a_request_under_way_is_never_ended_and_the_new_one_told_why) { run(busy); }

static void unwanted(void)
{
    int fd[4];

    for (int i = 0; i < 4; i++)
        fd[i] = say("127.0.0.1", NOBODY); /* answered 405, and the rest of its body is nobody's */
    CHECK(has(SEAT_SILENT, 4));
    CHECK(answers(from("127.0.0.2"), GET, "hello"));
    CHECK(answers(fd[3], "cd" GET, "hello")); /* who sends it goes on as ever */
}

TEST(who_sends_a_body_that_nobody_wants_holds_no_place) { run(unwanted); }

/* ---- addresses ---- */

static void shares(void)
{
    int fd[4];

    http_limits.connections = 8;
    http_limits.peer_connections = 8;
    fd[0] = kept("127.0.0.9"); /* idle for longest, and the only one of its address */
    for (int i = 0; i < 7; i++)
        kept("127.0.0.1");
    for (int i = 0; i < 3; i++)
        fd[1 + i] = kept("127.0.0.2");
    for (int i = 0; i < 4; i++)
        CHECK(lives(fd[i]));
    CHECK_INT(ended(SEAT_WHY_KEPT), 3);
    for (int i = 0; i < 20; i++)
        kept("127.0.0.1"); /* however often it comes */
    CHECK(lives(fd[0]));
    CHECK(lives(fd[1]) + lives(fd[2]) + lives(fd[3]) >= 2); /* not more than a fair share of them */
}

TEST(who_has_most_makes_room_for_the_others) { run(shares); }

static void share_of_busy(void)
{
    int fd[4];

    http_limits.peer_connections = 0; /* three quarters of four */
    for (int i = 0; i < 3; i++)
        fd[i] = say("127.0.0.1", HOLD);
    fd[3] = from("127.0.0.1");
    CHECK(answers(fd[3], "", "requests fill all 3 connections of this address"));
    CHECK(answers(from("127.0.0.2"), GET, "hello"));
    CHECK(lives(fd[0]) && lives(fd[1]) && lives(fd[2]));
}

TEST(one_address_cannot_fill_all_even_with_requests) { run(share_of_busy); }

/* ---- time ---- */

static void late(void)
{
    int silent, idle;

    http_limits.header_ms = 50;
    http_limits.idle_ms = 60000;
    silent = from("127.0.0.1");
    idle = kept("127.0.0.1");
    co_sleep(co_in(200));
    CHECK(gone(silent) && lives(idle));
    CHECK_INT(ended(SEAT_WHY_LATE), 1);
    server.ahead = true;
    silent = from("127.0.0.1");
    co_sleep(co_in(200));
    CHECK(lives(silent));
}

TEST(the_first_byte_has_the_time_of_a_head_unless_connections_are_made_ahead) { run(late); }

static void half_behind(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    int fd = from("127.0.0.1");

    rig_say(fd, GET "GET / HT");
    CHECK(rig_hear(fd, &b, "hello")); /* the answer does not wait for the next head */
    CHECK(has(SEAT_KEPT, 1));
    CHECK(answers(fd, "TP/1.1\r\nHost: a\r\n\r\n", "hello"));
}

TEST(an_answer_does_not_wait_for_the_rest_of_the_next_head) { run(half_behind); }

/* ---- descriptors ---- */

static void out_of_descriptors(void)
{
    struct rlimit was, l;
    int top = dup(0);

    close(top);
    http_limits.connections = http_limits.peer_connections = 1000;
    http_limits.reserve = 8;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    l = (struct rlimit){ (rlim_t)top + 8 + 16 + 8,
                         was.rlim_max }; /* eight connections, both ends */
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &l), 0);
    for (int i = 0; i < 15; i++) {
        from("127.0.0.1");
        co_sleep(co_in(2));
        if (ended(SEAT_WHY_SILENT))
            break;
    }
    CHECK(ended(SEAT_WHY_SILENT) > 0); /* and nobody waited for a descriptor */
    CHECK(!seats_scarce(top));
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
}

TEST(connections_leave_descriptors_for_others) { run(out_of_descriptors); }

/* The look that finds nothing wrong above finds it here: without bounds the last one waits. */
static void without_bounds(void)
{
    int fd[8], last;

    http_limits.connections = http_limits.peer_connections = 1000;
    for (int i = 0; i < 8; i++)
        fd[i] = from("127.0.0.1");
    last = kept("127.0.0.2");
    for (int i = 0; i < 8; i++)
        CHECK(lives(fd[i]));
    CHECK(lives(last));
    CHECK_INT(ended(SEAT_WHY_SILENT), 0);
}

TEST(without_bounds_nobody_goes) { run(without_bounds); }

/* ---- by what they are counted ---- */

static uint64_t key(const char *text)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } a = { 0 };

    a.sa.sa_family = AF_INET;
    if (inet_pton(AF_INET, text, &a.in.sin_addr) != 1) {
        a.sa.sa_family = AF_INET6;
        CHECK_INT(inet_pton(AF_INET6, text, &a.in6.sin6_addr), 1);
    }
    return seats_key(&a.sa);
}

TEST(a_64_of_ipv6_is_one_peer_and_no_address_of_ipv4)
{
    CHECK(key("2001:db8:0:1::1") == key("2001:db8:0:1:ffff::2"));
    CHECK(key("2001:db8:0:1::1") != key("2001:db8:0:2::1"));
    CHECK(key("192.0.2.1") == key("::ffff:192.0.2.1"));
    CHECK(key("192.0.2.1") != key("192.0.2.2"));
    CHECK(key("32.1.13.184") != key("2001:db8:100::1"));
    CHECK(key("32.1.13.184") != key("2001:db8:0:1::1"));
}
