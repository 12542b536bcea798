/* test_ws.c - WebSocket: the codec and its rules from bytes, connections over socket pairs. */
#include "io/ws.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

/* ---- the codec ---- */

TEST(the_accept_key_is_the_one_of_the_rfc)
{
    char out[WS_ACCEPT_LEN + 1];

    ws_accept_key(STR("dGhlIHNhbXBsZSBub25jZQ=="), out);
    CHECK_STR(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST(headers_look_as_in_the_rfc)
{
    static const struct {
        struct ws_frame f;
        struct str bytes;
    } cases[] = {
        { { .fin = true, .op = WS_TEXT, .size = 5 }, STR("\x81\x05") },
        { { .fin = true, .op = WS_TEXT, .size = 5, .masked = true, .mask = "\x37\xfa\x21\x3d" },
          STR("\x81\x85\x37\xfa\x21\x3d") },
        { { .op = WS_TEXT, .size = 3 }, STR("\x01\x03") },
        { { .fin = true, .op = WS_CONT, .size = 2 }, STR("\x80\x02") },
        { { .fin = true, .op = WS_PING, .size = 5 }, STR("\x89\x05") },
        { { .fin = true, .op = WS_BINARY, .size = 125 }, STR("\x82\x7d") },
        { { .fin = true, .op = WS_BINARY, .size = 126 }, STR("\x82\x7e\x00\x7e") },
        { { .fin = true, .op = WS_BINARY, .size = 256 }, STR("\x82\x7e\x01\x00") },
        { { .fin = true, .op = WS_BINARY, .size = 65536 },
          STR("\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00") },
        { { .fin = true, .op = WS_BINARY, .size = INT64_MAX },
          STR("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff") },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct ws_frame *want = &cases[i].f;
        unsigned char b[WS_HEADER_MAX];
        struct ws_frame got;
        size_t n = ws_encode_header(b, want);

        CHECK_INT(n, cases[i].bytes.n);
        CHECK(!memcmp(b, cases[i].bytes.p, n));
        for (size_t part = 0; part < n; part++)
            CHECK_INT(ws_decode_header(b, part, &got), 0);
        CHECK_INT(ws_decode_header(b, n, &got), n);
        CHECK_INT(got.size, want->size);
        CHECK_INT(got.op, want->op);
        CHECK_INT(got.fin, want->fin);
        CHECK_INT(got.masked, want->masked);
        CHECK(!memcmp(got.mask, want->mask, 4));
    }
}

TEST(masking_by_words_is_masking_by_bytes)
{
    static const unsigned char mask[4] = { 0x37, 0xfa, 0x21, 0x3d };
    unsigned char b[64];

    for (size_t at = 0; at < 9; at++)
        for (size_t n = 0; n < 40; n++) {
            for (size_t i = 0; i < sizeof(b); i++)
                b[i] = (unsigned char)i;
            ws_mask(b + 3, n, mask, at);
            for (size_t i = 0; i < sizeof(b); i++)
                CHECK_INT(b[i], i - 3 < n ? (i ^ mask[(at + i - 3) & 3]) : i);
        }
}

TEST(only_codes_with_a_meaning_may_be_on_the_wire)
{
    static const unsigned good[] = { 1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999 };
    static const unsigned bad[] = { 0, 999, 1004, 1005, 1006, 1015, 1100, 2999, 5000, 65535 };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(ws_code_valid(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!ws_code_valid(bad[i]));
}

/* Feeds bytes in steps of at most `most`: the code of the end (0: still open), the data in out. */
static int feed(enum ws_role role, struct str bytes, size_t most, struct buf *out, struct err *err)
{
    struct ws_parser p = { .role = role, .max = 20 };
    AUTO(buf_free) struct buf copy = { 0 };
    struct ws_message m;

    buf_add_str(&copy, bytes);
    for (size_t at = 0; at < copy.len;) {
        ssize_t r = ws_feed(&p, copy.data + at, MIN(copy.len - at, most), &m, err);

        if (r < 0 || m.op == WS_CLOSE)
            return (int)p.code;
        CHECK(r > 0);
        at += (size_t)r;
        if (m.op)
            buf_add_str(out, m.data);
        if (m.op && m.end)
            buf_putc(out, '.');
    }
    return 0;
}

#define NO_MASK "\0\0\0\0"

static const struct rule {
    const char *text; /* of the error; NULL: no rule is broken */
    enum ws_role role;
    struct str bytes;
    int code;
    const char *data;
} rules[] = {
    { NULL, WS_SERVER, STR("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), 0, "Hello." },
    { NULL, WS_CLIENT, STR("\x81\x05Hello"), 0, "Hello." },
    { NULL, WS_CLIENT, STR("\x01\x03Hel\x80\x02lo"), 0, "Hello." },
    { NULL, WS_CLIENT, STR("\x01\x03Hel\x89\x01!\x80\x02lo"), 0, "Hel!.lo." },
    { NULL, WS_CLIENT, STR("\x01\x00\x00\x00\x80\x00\x82\x00"), 0, ".." },
    { NULL, WS_CLIENT, STR("\x01\x01\xc3\x80\x01\xa4"), 0, "\xc3\xa4." },
    { NULL, WS_CLIENT, STR("\x82\x02\xff\xfe"), 0, "\xff\xfe." },
    { NULL, WS_CLIENT, STR("\x88\x00"), WS_NO_CODE, "" },
    { NULL, WS_CLIENT,
      STR("\x88\x05\x03\xe8"
          "bye"),
      1000, "" },
    { "frame from a client without a mask", WS_SERVER, STR("\x81\x05Hello"), 1002, "" },
    { "masked frame from a server", WS_CLIENT, STR("\x81\x81" NO_MASK "a"), 1002, "" },
    { "reserved bits set without an extension", WS_CLIENT, STR("\xc1\x00"), 1002, "" },
    { "reserved bits set without an extension", WS_CLIENT, STR("\x91\x00"), 1002, "" },
    { "unknown opcode", WS_CLIENT, STR("\x83\x00"), 1002, "" },
    { "unknown opcode", WS_CLIENT, STR("\x8b\x00"), 1002, "" },
    { "control frame in fragments", WS_CLIENT, STR("\x09\x00"), 1002, "" },
    { "control frame of more than 125 bytes", WS_CLIENT, STR("\x89\x7e\x00\x7e"), 1002, "" },
    { "continuation without a message", WS_CLIENT, STR("\x80\x00"), 1002, "" },
    { "new message within a fragmented one", WS_CLIENT, STR("\x01\x01x\x81\x00"), 1002, "x" },
    { "length not in its shortest form", WS_CLIENT, STR("\x81\x7e\x00\x7d"), 1002, "" },
    { "length not in its shortest form", WS_CLIENT, STR("\x81\x7f\0\0\0\0\0\0\xff\xff"), 1002, "" },
    { "length not in its shortest form", WS_CLIENT, STR("\x81\x7f\x80\0\0\0\0\1\0\0"), 1002, "" },
    { "text that is not UTF-8", WS_CLIENT, STR("\x01\x05\xff"), 1007, "" },
    { "text that is not UTF-8", WS_CLIENT, STR("\x01\x01\xc3\x00\x01x"), 1007, "\xc3" },
    { "text that is not UTF-8", WS_CLIENT, STR("\x81\x01\xc3"), 1007, "" },
    { "text that is not UTF-8", WS_CLIENT, STR("\x01\x01\xc3\x80\x00"), 1007, "\xc3" },
    { "text that is not UTF-8", WS_CLIENT, STR("\x88\x03\x03\xe8\xff"), 1007, "" },
    { "Close without a valid code", WS_CLIENT, STR("\x88\x01\x03"), 1002, "" },
    { "Close without a valid code", WS_CLIENT, STR("\x88\x02\x03\xed"), 1002, "" },
    { "message larger than ws.message-bytes=20", WS_CLIENT, STR("\x82\x15"), 1009, "" },
    { "message larger than ws.message-bytes=20", WS_CLIENT, STR("\x02\x01x\x80\x14"), 1009, "x" },
};

TEST(each_rule_holds_however_the_bytes_arrive)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        for (size_t most = 1; most < 32; most++) {
            const struct rule *r = &rules[i];
            AUTO(buf_free) struct buf data = { 0 };
            struct err err = { 0 };

            CHECK_INT(feed(r->role, r->bytes, most, &data, &err), r->code);
            CHECK_STR(err.msg, r->text ? r->text : "");
            CHECK_STR(buf_cstr(&data), r->data);
        }
}

/* ---- over a socket pair: our side, and a raw peer ---- */

struct rig {
    struct conn conn;
    struct ws ws;
    int raw;
    struct err err;
    struct ws_message m;
};

static void pair_of(int fd[2])
{
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

static void rig_open(struct rig *r, enum ws_role role)
{
    int fd[2];

    pair_of(fd);
    *r = (struct rig){ .raw = fd[1] };
    conn_init(&r->conn, fd[0]);
    ws_init(&r->ws, &r->conn, role);
}

static void rig_close(struct rig *r)
{
    co_close(r->raw);
    ws_finish(&r->ws);
    conn_finish(&r->conn);
}

static void put(struct rig *r, struct str bytes)
{
    CHECK_INT(co_write(r->raw, bytes.p, bytes.n, co_in(1000)), 0);
}

/* One frame from us, unmasked, as "op:payload". */
static const char *take(struct rig *r)
{
    static char text[256];
    unsigned char head[6];
    char *p;
    bool masked = r->ws.in.role == WS_CLIENT;
    size_t n;

    CHECK_INT(co_read_full(r->raw, head, masked ? 6 : 2, co_in(1000)), masked ? 6 : 2);
    CHECK_INT(head[1] >> 7, masked);
    n = head[1] & 127;
    CHECK(n < 126);
    p = text + snprintf(text, sizeof(text), "%x:", head[0]);
    CHECK_INT(co_read_full(r->raw, p, n, co_in(1000)), n);
    if (masked)
        ws_mask(p, n, head + 2, 0);
    p[n] = 0;
    return text;
}

static bool nothing_sent(struct rig *r)
{
    char byte;

    return read(r->raw, &byte, 1) < 0 && errno == EAGAIN;
}

static int code_of(const char *taken) /* of "88:" and a Close's payload */
{
    CHECK(!strncmp(taken, "88:", 3));
    return (unsigned char)taken[3] << 8 | (unsigned char)taken[4];
}

static const char *message(struct rig *r) /* the next one; NULL: none */
{
    static char text[64];

    if (ws_read(&r->ws, &r->m, &r->err) <= 0)
        return NULL;
    snprintf(text, sizeof(text), "%d:%.*s", (int)r->m.op, STR_ARG(r->m.data));
    return text;
}

static void broken_rules(void *arg)
{
    int64_t bound = ws_limits.message_bytes;

    (void)arg;
    ws_limits.message_bytes = 20;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        struct rig r;

        if (!rules[i].text)
            continue;
        rig_open(&r, rules[i].role);
        put(&r, rules[i].bytes);
        CHECK(!message(&r));
        CHECK_STR(r.err.msg, rules[i].text);
        CHECK_INT(r.ws.code, rules[i].code);
        const char *close = take(&r);

        CHECK_INT(code_of(close), rules[i].code);
        CHECK_STR(close + 5, rules[i].text);
        CHECK_INT(ws_send(&r.ws, WS_TEXT, "x", 1), -1);
        CHECK_INT(ws_read(&r.ws, &r.m, &r.err), -1);
        rig_close(&r);
    }
    ws_limits.message_bytes = bound;
}

TEST(who_breaks_a_rule_is_told_which) { test_co(broken_rules, NULL); }

static void fragments(void *arg)
{
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    put(&r, STR("\x01\x83" NO_MASK "Hel\x89\x84" NO_MASK "ping\x8a\x80" NO_MASK "\x80\x82" NO_MASK
                "lo\x82\x81" NO_MASK "!"));
    CHECK_STR(message(&r), "1:Hello");
    CHECK_STR(take(&r), "8a:ping");
    CHECK_STR(message(&r), "2:!");
    CHECK_INT(ws_send_piece(&r.ws, WS_TEXT, "a", 1, false), 0);
    CHECK_INT(ws_send_piece(&r.ws, WS_CONT, "b", 1, true), 0);
    CHECK_STR(take(&r), "1:a");
    CHECK_STR(take(&r), "80:b");
    rig_close(&r);

    rig_open(&r, WS_CLIENT);
    put(&r, STR("\x01\x03Hel\x89\x04ping\x80\x02lo"));
    CHECK_STR(message(&r), "1:Hello");
    CHECK_STR(take(&r), "8a:ping");
    CHECK_INT(ws_send(&r.ws, WS_TEXT, "masked", 6), 0);
    CHECK_STR(take(&r), "81:masked");
    rig_close(&r);
}

TEST(fragments_become_one_message_and_pings_between_them_are_answered) { test_co(fragments, NULL); }

static void fail_fast(void *arg)
{
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    put(&r, STR("\x01\x82" NO_MASK "\xce\xba\x00\xfe\x03\xe8" NO_MASK "\xf4\x90")); /* of 1000 */
    CHECK(!message(&r));
    CHECK_INT(r.ws.code, WS_BAD_TEXT);
    CHECK_INT(code_of(take(&r)), 1007);
    rig_close(&r);
}

TEST(bad_text_fails_before_its_message_ends) { test_co(fail_fast, NULL); }

static void closes(void *arg)
{
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    put(&r, STR("\x88\x85" NO_MASK "\x0f\xa1"
                "bye\x89\x80" NO_MASK));
    CHECK_INT(ws_read(&r.ws, &r.m, &r.err), 0);
    CHECK_INT(r.ws.code, 4001);
    CHECK(str_is(r.ws.reason, "bye"));
    CHECK_INT(code_of(take(&r)), 4001);
    CHECK(nothing_sent(&r)); /* what follows a Close is not looked at */
    CHECK_INT(ws_read(&r.ws, &r.m, &r.err), 0);
    rig_close(&r);

    rig_open(&r, WS_CLIENT);
    put(&r, STR("\x88\x00"));
    CHECK_INT(ws_read_piece(&r.ws, &r.m, &r.err), 0);
    CHECK_INT(r.ws.code, WS_NO_CODE);
    CHECK_STR(take(&r), "88:");
    rig_close(&r);
}

TEST(a_close_is_answered_with_its_own_code) { test_co(closes, NULL); }

static void close_first(void *arg)
{
    struct rig r;
    char reason[130];

    (void)arg;
    memset(reason, 'x', sizeof(reason));
    memcpy(reason + 122, "\xc3\xa4", 2); /* would be cut in two */
    reason[129] = 0;
    rig_open(&r, WS_SERVER);
    ws_close(&r.ws, WS_NORMAL, reason);
    const char *close = take(&r);

    CHECK_INT(code_of(close), 1000);
    CHECK_INT(strlen(close + 5), 122);
    put(&r, STR("\x89\x80" NO_MASK "\x82\x81" NO_MASK "!"));
    CHECK_STR(message(&r), "2:!"); /* what was on its way still arrives */
    put(&r, STR("\x88\x82" NO_MASK "\x03\xe8"));
    CHECK(!message(&r));
    CHECK_INT(r.ws.code, 1000);
    CHECK(nothing_sent(&r)); /* neither a pong nor a second Close */
    rig_close(&r);
}

TEST(nothing_is_sent_after_our_close) { test_co(close_first, NULL); }

static void ends(void *arg)
{
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    CHECK_INT(shutdown(r.raw, SHUT_WR), 0);
    CHECK(!message(&r));
    CHECK_INT(r.err.code, ERR_GONE);
    CHECK_INT(r.ws.code, WS_LOST);
    rig_close(&r);

    rig_open(&r, WS_SERVER);
    CHECK_INT(shutdown(r.raw, SHUT_WR), 0);
    ws_finish(&r.ws); /* a handler that failed */
    ws_finish(&r.ws);
    CHECK_INT(code_of(take(&r)), WS_INTERNAL);
    co_close(r.raw);
    conn_finish(&r.conn);
}

TEST(an_end_without_a_close_is_no_clean_end) { test_co(ends, NULL); }

static void silence(void *arg)
{
    struct ws_limits saved = ws_limits;
    struct rig r;

    (void)arg;
    ws_limits.ping_ms = 300;
    ws_limits.idle_ms = 800;
    rig_open(&r, WS_SERVER);
    co_skip_waits(true); /* a machine without a processor to give is no silence of the peer */
    CHECK(!message(&r));
    co_skip_waits(false);
    CHECK_INT(r.err.code, ERR_TIMEOUT);
    CHECK_STR(r.err.msg, "no word from the peer for ws.idle-ms=800");
    CHECK_STR(take(&r), "89:");
    CHECK_STR(take(&r), "89:");
    CHECK_INT(code_of(take(&r)), WS_GOING_AWAY);
    rig_close(&r);
    ws_limits = saved;
}

TEST(a_silent_peer_is_pinged_and_then_given_up) { test_co(silence, NULL); }

static void read_forever(void *arg) { CHECK(!message(arg)); }

static void cancelled(void *arg)
{
    struct co_ref reader;
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    CHECK_INT(co_go(read_forever, &r, &reader), 0);
    co_sleep(co_in(10));
    co_cancel(reader);
    CHECK_INT(code_of(take(&r)), WS_GOING_AWAY);
    rig_close(&r);
}

TEST(a_cancelled_reader_says_goodbye) { test_co(cancelled, NULL); }

/* ---- size and order ---- */

enum { BIG = 5 << 20 };

static char *pattern(void)
{
    char *p = xmalloc(BIG);

    for (size_t i = 0; i < BIG; i++)
        p[i] = (char)('a' + i % 23);
    return p;
}

static bool echoed;

static void echo_big(void *arg)
{
    struct rig *r = arg;

    for (int i = 0; i < 2; i++) {
        CHECK_INT(ws_read(&r->ws, &r->m, &r->err), 1);
        CHECK_INT(ws_send(&r->ws, r->m.op, r->m.data.p, r->m.data.n), 0);
    }
    CHECK_INT(ws_read(&r->ws, &r->m, &r->err), 0);
    ws_finish(&r->ws);
    conn_finish(&r->conn);
    echoed = true;
}

static void big(void *arg)
{
    AUTO(freep) char *p = pattern();
    struct rig server, r;
    size_t got = 0;
    int n = 0;

    (void)arg;
    rig_open(&server, WS_SERVER);
    r = (struct rig){ .raw = -1 };
    conn_init(&r.conn, server.raw);
    ws_init(&r.ws, &r.conn, WS_CLIENT);
    CHECK_INT(co_go(echo_big, &server, NULL), 0);

    CHECK_INT(ws_send(&r.ws, WS_TEXT, p, BIG), 0);
    CHECK_INT(ws_read(&r.ws, &r.m, &r.err), 1);
    CHECK_INT(r.m.op, WS_TEXT);
    CHECK_INT(r.m.data.n, BIG);
    CHECK(!memcmp(r.m.data.p, p, BIG));

    CHECK_INT(ws_send(&r.ws, WS_BINARY, p, BIG), 0);
    ws_limits.message_bytes = 1000; /* not a bound for pieces */
    while (!got || !r.m.end) {
        CHECK_INT(ws_read_piece(&r.ws, &r.m, &r.err), 1);
        CHECK(!memcmp(r.m.data.p, p + got, r.m.data.n));
        got += r.m.data.n;
        n++;
    }
    ws_limits.message_bytes = 16 << 20;
    CHECK_INT(got, BIG);
    CHECK(n > 100);
    ws_close(&r.ws, WS_NORMAL, "");
    CHECK_INT(ws_read(&r.ws, &r.m, &r.err), 0);
    ws_finish(&r.ws);
    conn_finish(&r.conn);
    while (!echoed) /* it uses our variables */
        co_pass();
}

TEST(large_messages_pass_both_ways_whole_and_in_pieces) { test_co(big, NULL); }

static void send_big(void *arg)
{
    AUTO(freep) char *p = pattern();

    CHECK_INT(ws_send(&((struct rig *)arg)->ws, WS_BINARY, p, BIG), 0);
}

static void pong_waits(void *arg)
{
    AUTO(freep) char *p = pattern(), *got = xmalloc(BIG);
    unsigned char head[10];
    struct rig r;

    (void)arg;
    rig_open(&r, WS_SERVER);
    CHECK_INT(co_go(send_big, &r, NULL), 0);
    CHECK_INT(co_go(read_forever, &r, NULL), 0);
    CHECK_INT(co_wait(r.raw, CO_IN, co_in(5000)), 0); /* the message is on its way */
    put(&r, STR("\x89\x81" NO_MASK "p\x88\x80" NO_MASK));
    co_sleep(co_in(20)); /* the ping is read while the message is half sent */
    CHECK_INT(co_read_full(r.raw, head, sizeof(head), co_in(1000)), sizeof(head));
    CHECK_INT(co_read_full(r.raw, got, BIG, co_in(5000)), BIG);
    CHECK(!memcmp(got, p, BIG));
    CHECK_STR(take(&r), "8a:p");
    CHECK_STR(take(&r), "88:");
    rig_close(&r);
}

TEST(a_pong_waits_for_the_frame_being_sent) { test_co(pong_waits, NULL); }

/* Takes far longer than http.write-ms for a frame, but something all the time. */
static void take_slowly(enum ws_role role, size_t head)
{
    enum { STEP = 64 << 10, STEP_MS = 5, LIMIT_MS = 150 };
    AUTO(freep) char *got = xmalloc(BIG + head);
    int64_t limit = http_limits.write_ms;
    struct rig r;

    http_limits.write_ms = LIMIT_MS;
    rig_open(&r, role);
    CHECK_INT(co_go(send_big, &r, NULL), 0);
    CHECK_INT(co_go(read_forever, &r, NULL), 0);
    CHECK_INT(co_wait(r.raw, CO_IN, co_in(5000)), 0);
    if (role == WS_SERVER)
        put(&r, STR("\x89\x81" NO_MASK "p\x88\x80" NO_MASK));
    else
        put(&r, STR("\x89\x01p\x88\x00"));
    for (size_t at = 0; at < BIG + head; at += MIN((size_t)STEP, BIG + head - at)) {
        CHECK_INT(co_read_full(r.raw, got + at, MIN((size_t)STEP, BIG + head - at), co_in(1000)),
                  MIN((size_t)STEP, BIG + head - at));
        co_sleep(co_in(STEP_MS));
    }
    http_limits.write_ms = limit;
    if (role == WS_SERVER) {
        CHECK_STR(take(&r), "8a:p");
        CHECK_STR(take(&r), "88:");
    }
    rig_close(&r);
}

static void slowly(void *arg)
{
    (void)arg;
    take_slowly(WS_SERVER, 10);
    take_slowly(WS_CLIENT, 14);
}

TEST(a_frame_and_the_pong_behind_it_wait_for_a_slow_reader) { test_co(slowly, NULL); }
