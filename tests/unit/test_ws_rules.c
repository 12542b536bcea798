/* test_ws_rules.c - every rule of RFC 6455 as raw frames to a server that sends each message back,
 * whole and byte by byte. test_websocket.py asks a few of them from outside, and decent peers. */
#include <errno.h>

#include "io/ws.h"
#include "net.h"

/* ---- the server ---- */

static int echo(struct call *c, void *body, struct err *err)
{
    AUTO(ws_finish) struct ws ws = { 0 };
    struct ws_message m;
    int r = ws_accept(c, &ws, NULL, err);

    (void)body;
    if (r <= 0)
        return r;
    while ((r = ws_read(&ws, &m, err)) > 0)
        if (ws_send(&ws, m.op, m.data.p, m.data.n))
            return -1;
    return r;
}

static const struct route routes[] = { { "GET", "/", ROUTE_RAW, .fn = echo }, {} };
static const struct route *const tables[] = { routes, NULL };
static struct httpd server = { .tables = tables };

/* ---- frames ---- */

enum { MORE = 1, RSV = 4, NO_MASK = 64, ZERO_MASK = 128 }; /* RSV * n: the reserved bits */

struct sent {
    unsigned op, flags;
    struct str payload;
    uint64_t size; /* what the header says, when it lies */
    size_t times;  /* the payload is repeated; 0: once */
    bool there;    /* ends a list when it is not */
};

#define F(opcode, ...)                                                                             \
    {                                                                                              \
        .op = (opcode), .there = true, ##__VA_ARGS__                                               \
    }
#define TEXT(s, ...)    F(WS_TEXT, .payload = STR(s), ##__VA_ARGS__)
#define BINARY(s, ...)  F(WS_BINARY, .payload = STR(s), ##__VA_ARGS__)
#define CONT(s, ...)    F(WS_CONT, .payload = STR(s), ##__VA_ARGS__)
#define PING(s, ...)    F(WS_PING, .payload = STR(s), ##__VA_ARGS__)
#define PONG(s, ...)    F(WS_PONG, .payload = STR(s), ##__VA_ARGS__)
#define CLOSING(s, ...) F(WS_CLOSE, .payload = STR(s), ##__VA_ARGS__)

static void put_frame(struct buf *b, const struct sent *f)
{
    static const char masks[2][4] = { { 0x37, (char)0xfa, 0x21, 0x3d }, { 0 } };
    const char *mask = masks[(f->flags & ZERO_MASK) != 0];
    size_t n = f->payload.n * (f->times ? f->times : 1);
    uint64_t size = f->size ? f->size : n;
    char bit = f->flags & NO_MASK ? 0 : (char)0x80;

    buf_putc(b, (char)((f->flags & MORE ? 0 : 0x80) | (f->flags / RSV & 7) << 4 | f->op));
    if (size < 126) {
        buf_putc(b, (char)(bit | (char)size));
    } else {
        int bytes = size < 65536 ? 2 : 8;

        buf_putc(b, (char)(bit | (bytes == 2 ? 126 : 127)));
        for (int i = bytes - 1; i >= 0; i--)
            buf_putc(b, (char)(size >> (8 * i)));
    }
    if (bit)
        buf_add(b, mask, 4);
    for (size_t i = 0; i < n; i++)
        buf_putc(b, (char)(f->payload.p[i % f->payload.n] ^ (bit ? mask[i % 4] : 0)));
}

/* ---- talking ---- */

static struct {
    int fd;
    struct buf in;
} peer;

static void begin(void)
{
    static const char upgrade[] =
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    int fd[2];

    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    peer.fd = fd[1];
    buf_drop(&peer.in, peer.in.len);
    net_put(peer.fd, STR(upgrade));
    net_get_until(peer.fd, &peer.in, "\r\n\r\n");
    CHECK(!strncmp(peer.in.data, "HTTP/1.1 101 ", 13));
    buf_drop(&peer.in, peer.in.len);
}

/* Says it while the server answers; it may end before it has heard all. */
static void say(struct str all, size_t step)
{
    for (size_t at = 0; at < all.n; at += step) {
        if (co_write(peer.fd, all.p + at, MIN(step, all.n - at), co_in(NET_MS)))
            return;
        if (step < all.n)
            co_pass();
    }
}

static bool fill(size_t n)
{
    while (peer.in.len < n) {
        ssize_t r;

        buf_reserve(&peer.in, 65536);
        r = co_read(peer.fd, peer.in.data + peer.in.len, 65536, co_in(NET_MS));
        if (r <= 0)
            return false;
        peer.in.len += (size_t)r;
        peer.in.data[peer.in.len] = 0;
    }
    return true;
}

/* The next frame: its first byte, the payload in out; -1 at the end of the stream. */
static int take(struct buf *out)
{
    const unsigned char *p;
    size_t head = 2, size;
    int first;

    if (!fill(2))
        return -1;
    size = (unsigned char)peer.in.data[1];
    CHECK(size < 128); /* a server does not mask */
    if (size >= 126) {
        head += size == 126 ? 2 : 8;
        CHECK(fill(head));
        size = 0;
        p = (const unsigned char *)peer.in.data;
        for (size_t i = 2; i < head; i++)
            size = size << 8 | p[i];
    }
    CHECK(fill(head + size));
    first = (unsigned char)peer.in.data[0];
    out->len = 0;
    buf_add(out, peer.in.data + head, size);
    buf_drop(&peer.in, head + size);
    return first;
}

struct talk {
    struct buf bytes;
    size_t step;
    const struct sent *heard; /* NULL: a refusal with this code */
    int code;
    bool then_ends;
};

static void talking(void *arg)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct talk *t = arg;
    int first;

    begin();
    say(buf_str(&t->bytes), t->step);
    for (const struct sent *f = t->heard; f && f->there; f++) {
        size_t n = f->payload.n * (f->times ? f->times : 1);

        CHECK_INT(take(&got), 0x80 | f->op);
        CHECK_INT(got.len, n);
        for (size_t i = 0; i < n; i++)
            CHECK(got.data[i] == f->payload.p[i % f->payload.n]);
    }
    if (!t->heard) {
        while ((first = take(&got)) == (0x80 | WS_TEXT))
            ; /* a whole message went before */
        CHECK_INT(first, 0x80 | WS_CLOSE);
        CHECK(got.len > 2 && utf8_valid((struct str){ got.data + 2, got.len - 2 }));
        CHECK_INT((unsigned char)got.data[0] << 8 | (unsigned char)got.data[1], t->code);
    }
    if (t->then_ends)
        CHECK_INT(take(&got), -1);
    co_close(peer.fd);
    buf_free(&t->bytes);
}

static void run(struct talk *t, bool bytewise)
{
    t->step = !bytewise ? t->bytes.len + 1 : t->bytes.len > 1000 ? 997 : 1;
    test_co(talking, t);
    CHECK_INT(server.conns, 0);
}

static const struct {
    const char *name;
    bool bytewise;
} steps[] = { { "whole", false }, { "bytewise", true } };

/* ---- what the RFC allows ---- */

#define GREEK     "\xce\xba\xcf\x8c\xcf\x83\xce\xbc\xce\xb5"
#define NO_LETTER "\xef\xbf\xbe\xf4\x8f\xbf\xbf" /* U+FFFE, U+10FFFF */

static const struct {
    const char *name;
    struct sent says[6], hears[4];
    bool ends;
} good[] = {
    { "text", { TEXT("Hello") }, { TEXT("Hello") } },
    { "binary", { BINARY("\xff\0") }, { BINARY("\xff\0") } },
    { "empty", { TEXT(""), BINARY("") }, { TEXT(""), BINARY("") } },
    { "size-125", { BINARY("*", .times = 125) }, { BINARY("*", .times = 125) } },
    { "size-126", { BINARY("*", .times = 126) }, { BINARY("*", .times = 126) } },
    { "size-127", { BINARY("*", .times = 127) }, { BINARY("*", .times = 127) } },
    { "size-128", { BINARY("*", .times = 128) }, { BINARY("*", .times = 128) } },
    { "size-65535", { BINARY("*", .times = 65535) }, { BINARY("*", .times = 65535) } },
    { "size-65536", { BINARY("*", .times = 65536) }, { BINARY("*", .times = 65536) } },
    { "zero mask", { TEXT("x", .flags = ZERO_MASK) }, { TEXT("x") } },
    { "fragments",
      { TEXT("a", .flags = MORE), CONT("", .flags = MORE), CONT("b") },
      { TEXT("ab") } },
    { "ping", { PING("p", .times = 125), PING("") }, { PONG("p", .times = 125), PONG("") } },
    { "pong", { PONG("unasked"), PING("x") }, { PONG("x") } },
    { "ping between",
      { TEXT("a", .flags = MORE), PING("1"), CONT("b", .flags = MORE), PING("2"), CONT("c") },
      { PONG("1"), PONG("2"), TEXT("abc") } },
    { "cut character",
      { TEXT("\xce", .flags = MORE), CONT("\xba\xcf\x8c", .flags = MORE),
        CONT("\xcf\x83\xce\xbc\xce\xb5") },
      { TEXT(GREEK) } },
    { "noncharacters", { TEXT(NO_LETTER) }, { TEXT(NO_LETTER) } },
    { "close",
      { CLOSING("\x03\xe8"
                "bye") },
      { CLOSING("\x03\xe8") } },
    { "empty close", { CLOSING("") }, { CLOSING("") } },
    { "after close",
      { CLOSING("\x03\xe8"), TEXT("late"), PING("") },
      { CLOSING("\x03\xe8") },
      true },
};

static void put_all(struct buf *b, const struct sent *f)
{
    for (; f->there; f++)
        put_frame(b, f);
}

TEST_ROWS(what_the_rfc_allows, good, steps)
{
    struct talk t = { .heard = row->hears, .then_ends = row->ends };

    put_all(&t.bytes, row->says);
    run(&t, other->bytewise);
}

/* A Close with a code, and behind it this many letters. */
static void put_close(struct buf *b, unsigned code, size_t letters)
{
    char payload[256] = { (char)(code >> 8), (char)code };

    memset(payload + 2, 'r', letters);
    put_frame(b, &(struct sent){ .op = WS_CLOSE, .payload = { payload, 2 + letters } });
}

struct code_row {
    const char *name;
    unsigned code;
    size_t letters;
};

static const struct code_row good_codes[] = {
    { "1000", 1000 }, { "1001", 1001 },
    { "1002", 1002 }, { "1003", 1003 },
    { "1007", 1007 }, { "1008", 1008 },
    { "1009", 1009 }, { "1010", 1010 },
    { "1011", 1011 }, { "3000", 3000 },
    { "3999", 3999 }, { "4000", 4000 },
    { "4999", 4999 }, { "long close", 1001, 123 },
};

TEST_ROWS(a_code_that_may_be_on_the_wire_comes_back, good_codes, steps)
{
    char code[2] = { (char)(row->code >> 8), (char)row->code };
    const struct sent back[2] = { { .op = WS_CLOSE, .payload = { code, 2 }, .there = true } };
    struct talk t = { .heard = back };

    put_close(&t.bytes, row->code, row->letters);
    run(&t, other->bytewise);
}

/* ---- what it forbids ---- */

enum { LARGE = 16 << 20 };

static const struct {
    const char *name;
    int code;
    struct sent says[4];
    struct str bytes; /* instead */
} bad[] = {
    { "no mask", 1002, { TEXT("x", .flags = NO_MASK) } },
    { "rsv 1", 1002, { TEXT("x", .flags = RSV * 1) } },
    { "rsv 2", 1002, { TEXT("x", .flags = RSV * 2) } },
    { "rsv 3", 1002, { TEXT("x", .flags = RSV * 3) } },
    { "rsv 4", 1002, { TEXT("x", .flags = RSV * 4) } },
    { "rsv 5", 1002, { TEXT("x", .flags = RSV * 5) } },
    { "rsv 6", 1002, { TEXT("x", .flags = RSV * 6) } },
    { "rsv 7", 1002, { TEXT("x", .flags = RSV * 7) } },
    { "rsv on ping", 1002, { PING("", .flags = RSV * 4) } },
    { "opcode 3", 1002, { F(3) } },
    { "opcode 4", 1002, { F(4) } },
    { "opcode 5", 1002, { F(5) } },
    { "opcode 6", 1002, { F(6) } },
    { "opcode 7", 1002, { F(7) } },
    { "opcode 11", 1002, { F(11) } },
    { "opcode 12", 1002, { F(12) } },
    { "opcode 13", 1002, { F(13) } },
    { "opcode 14", 1002, { F(14) } },
    { "opcode 15", 1002, { F(15) } },
    { "long ping", 1002, { PING("p", .times = 126) } },
    { "ping in fragments", 1002, { PING("", .flags = MORE) } },
    { "close in fragments", 1002, { CLOSING("", .flags = MORE) } },
    { "continuation first", 1002, { CONT("x") } },
    { "continuation after the end", 1002, { TEXT("a", .flags = MORE), CONT(""), CONT("") } },
    { "message within a message", 1002, { TEXT("a", .flags = MORE), TEXT("b") } },
    { "length too long for its value", 1002, .bytes = STR("\x81\xfe\0\x05\0\0\0\0\0\0\0\0\0") },
    { "negative length", 1002, .bytes = STR("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0") },
    { "close of one byte", 1002, { CLOSING("\x03") } },
    { "close reason", 1007, { CLOSING("\x03\xe8\xff") } },
    { "surrogate", 1007, { TEXT("\xed\xa0\x80") } },
    { "overlong", 1007, { TEXT("\xc0\x80") } },
    { "beyond unicode", 1007, { TEXT("\xf4\x90\x80\x80") } },
    { "cut at the end", 1007, { TEXT("\xce") } },
    { "bad over fragments", 1007, { TEXT("\xf4", .flags = MORE), CONT("\x90", .flags = MORE) } },
    { "bad before the end", 1007, { TEXT("\xff", .size = 1000) } },
    { "too large", 1009, { BINARY("", .size = LARGE + 1) } },
    { "too large together", 1009, { BINARY("x", .flags = MORE), CONT("", .size = LARGE) } },
};

TEST_ROWS(what_the_rfc_forbids, bad, steps)
{
    struct talk t = { .code = row->code, .then_ends = true };

    put_all(&t.bytes, row->says);
    buf_add_str(&t.bytes, row->bytes);
    run(&t, other->bytewise);
}

static const struct code_row bad_codes[] = {
    { "0", 0 },
    { "999", 999 },
    { "1004", 1004 },
    { "1005", 1005 },
    { "1006", 1006 },
    { "1015", 1015 },
    { "1016", 1016 },
    { "1100", 1100 },
    { "2000", 2000 },
    { "2999", 2999 },
    { "5000", 5000 },
    { "65535", 65535 },
    { "long close", 1000, 124 },
};

TEST_ROWS(a_code_that_may_not_be_on_the_wire_is_refused, bad_codes, steps)
{
    struct talk t = { .code = 1002, .then_ends = true };

    put_close(&t.bytes, row->code, row->letters);
    run(&t, other->bytewise);
}

/* ---- peers that are no help ---- */

TEST(our_close_survives_input_that_nobody_reads)
{
    static const struct sent much = BINARY("x", .times = 100000), wrong = TEXT("\xff");
    struct talk t = { .code = 1007 };

    put_frame(&t.bytes, &wrong);
    for (int i = 0; i < 5; i++)
        put_frame(&t.bytes, &much);
    run(&t, false);
}

static void leaving(void *arg)
{
    static const struct sent hello = TEXT("Hello");
    AUTO(buf_free) struct buf b = { 0 };

    begin();
    put_frame(&b, &hello);
    say((struct str){ b.data, *(size_t *)arg }, b.len);
    co_close(peer.fd);
}

TEST(a_client_that_just_leaves_disturbs_nobody)
{
    for (size_t cut = 1; cut < 12; cut++) {
        test_co(leaving, &cut);
        CHECK_INT(server.conns, 0);
    }
}
