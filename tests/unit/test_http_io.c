/* test_http_io.c - heads and bodies over a connection: framing, bounds, waiting. */
#include <errno.h>

#include "base/mem.h"
#include "io/http.h"
#include "net.h"

static int peer;
static struct http_head h;
static struct err err;

static void open_conn(struct conn *c)
{
    int fd[2];

    net_pair(fd);
    peer = fd[1];
    conn_init(c, fd[0]);
    err = (struct err){ 0 };
}

static void close_conn(struct conn *c)
{
    conn_finish(c);
    co_close(TAKE(peer, -1));
}

/* ---- bodies: what a body of these bytes gives ---- */

static const struct http_head chunked = { .minor = 1, .chunked = true, .length = -1 };

struct sending {
    struct str text;
    size_t first; /* bytes sent before the pause */
    bool done;
};

static void send_in_two(void *arg)
{
    struct sending *s = arg;
    int fd = peer;

    net_put(fd, (struct str){ s->text.p, s->first });
    co_pass();
    net_put(fd, (struct str){ s->text.p + s->first, s->text.n - s->first });
    CHECK_INT(shutdown(fd, SHUT_WR), 0);
    s->done = true;
}

/* Sends text cut in two, reads it as a body; the code of the error, ERR_NONE when it ended well. */
static enum err_code receive(struct str text, size_t cut, const struct http_head *head,
                             enum http_kind kind, struct buf *out, struct buf *trailers)
{
    struct sending s = { text, cut, false };
    struct http_body b;
    struct conn c;
    int r;

    open_conn(&c);
    CHECK_INT(co_go(send_in_two, &s, NULL), 0);
    http_body_init(&b, &c, head, kind);
    out->len = 0;
    r = http_body_read_all(&b, out, &err);
    CHECK_INT(r < 0, err.code != ERR_NONE);
    CHECK(b.done || r < 0);
    if (trailers)
        buf_add_str(trailers, buf_str(&b.trailers));
    if (!r) { /* what is behind the body is still there */
        char rest[64];
        ssize_t n;

        while ((n = conn_read(&c, rest, sizeof(rest), co_in(NET_MS))) > 0)
            buf_add(out, rest, (size_t)n);
        CHECK_INT(n, 0);
    }
    http_body_finish(&b);
    while (!s.done)
        CHECK_INT(co_sleep(co_in(0)), 0);
    close_conn(&c);
    return err.code;
}

static void good_chunks(void *arg)
{
    static const struct {
        const char *text, *want;
    } some[] = {
        { "5\r\nhello\r\n0\r\n\r\n", "hello" },
        { "0\r\n\r\n", "" },
        { "1\r\na\r\n1\r\nb\r\n01\r\nc\r\n0\r\n\r\n", "abc" },
        { "5;a=b;c=\"d\"\r\nhello\r\n0;last\r\n\r\n", "hello" },
        { "a\r\n0123456789\r\n0\r\n\r\n", "0123456789" },
        { "A \r\n01234\r\n789\r\n000\r\n\r\nNEXT", "01234\r\n789NEXT" },
        { "2\r\n\r\n\r\n0\r\nX: y\r\nZ: w\r\n\r\n+", "\r\n+" },
    };

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(some); i++) {
        AUTO(buf_free) struct buf out = { 0 };

        for (size_t cut = 0; cut <= strlen(some[i].text); cut++) {
            enum err_code code =
                receive(str_of(some[i].text), cut, &chunked, HTTP_REQUEST, &out, NULL);

            if (code)
                test_fail(__FILE__, __LINE__, "%s: %s", some[i].text, err.msg);
            CHECK_STR(out.data, some[i].want);
        }
    }
}

TEST(a_chunked_body_is_the_same_wherever_it_is_cut) { test_co(good_chunks, NULL); }

static void trailing(void *arg)
{
    AUTO(buf_free) struct buf out = { 0 }, trailers = { 0 };

    (void)arg;
    CHECK_INT(receive(STR("1\r\nx\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n"), 5, &chunked, HTTP_REQUEST, &out,
                      &trailers),
              ERR_NONE);
    CHECK_STR(trailers.data, "X-Sum: 1\r\nY:\r\n");
    CHECK_STR(out.data, "x");
}

TEST(trailers_are_kept_as_they_came) { test_co(trailing, NULL); }

static void bad_chunks(void *arg)
{
    static const struct {
        const char *text, *why;
        enum err_code code;
    } some[] = {
        { "x\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { ";x\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "-1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "+1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "0x1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { " 1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "\t1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "1 1\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "1\r;\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "8000000000000000\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "10000000000000001\r\nx\r\n", "chunk size is not a hexadecimal number", ERR_INVALID },
        { "1\nx\r\n0\r\n\r\n", "bare LF in the chunked coding", ERR_INVALID },
        { "\n", "bare LF in the chunked coding", ERR_INVALID },
        { "1\r\nx\n0\r\n\r\n", "bare LF in the chunked coding", ERR_INVALID },
        { "1\r\nxy\r\n0\r\n\r\n", "chunk longer than its size says", ERR_INVALID },
        { "1\r\nx0\r\n\r\n", "chunk longer than its size says", ERR_INVALID },
        { "0\r\nX: y\n\r\n", "bare LF in the chunked coding", ERR_INVALID },
        { "", "the body ended early", ERR_GONE },
        { "5\r\nhell", "the body ended early", ERR_GONE },
        { "5\r\nhello\r\n", "the body ended early", ERR_GONE },
        { "5\r\nhello\r\n0\r\n", "the body ended early", ERR_GONE },
        { "5\r\nhello\r\n0\r\nX: y\r\n", "the body ended early", ERR_GONE },
    };
    AUTO(buf_free) struct buf out = { 0 };

    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        for (size_t cut = 0; cut <= strlen(some[i].text); cut++) {
            if (receive(str_of(some[i].text), cut, &chunked, HTTP_REQUEST, &out, NULL) !=
                some[i].code)
                test_fail(__FILE__, __LINE__, "%s: code %d", some[i].text, err.code);
            CHECK_STR(err.msg, some[i].why);
        }
}

TEST(each_malformed_chunk_is_refused_wherever_it_is_cut) { test_co(bad_chunks, NULL); }

static void nul_in_chunk(void *arg)
{
    AUTO(buf_free) struct buf out = { 0 };

    (void)arg;
    CHECK_INT(receive((struct str){ "1;\0\r\nx\r\n", 8 }, 0, &chunked, HTTP_REQUEST, &out, NULL),
              ERR_INVALID);
}

TEST(a_nul_in_a_chunk_line_is_refused) { test_co(nul_in_chunk, NULL); }

static void long_lines(void *arg)
{
    AUTO(buf_free) struct buf text = { 0 }, out = { 0 };

    (void)arg;
    buf_puts(&text, "1;");
    for (int i = 0; i < 1021; i++)
        buf_putc(&text, 'x');
    buf_puts(&text, "\r\na\r\n0\r\n\r\n");
    for (int round = 0; round < 2; round++) /* at once and in pieces, the same line is too long */
        CHECK_INT(receive(buf_str(&text), round * 1024, &chunked, HTTP_REQUEST, &out, NULL),
                  ERR_INVALID);
    CHECK_STR(err.msg, "line of the chunked coding longer than 1024 bytes");
    buf_drop(&text, 2); /* one less than that is not */
    text.data[0] = '1';
    text.data[1] = ';';
    for (int round = 0; round < 2; round++)
        CHECK_INT(receive(buf_str(&text), round * 1022, &chunked, HTTP_REQUEST, &out, NULL),
                  ERR_NONE);
    text.len = 0;
    buf_puts(&text, "0\r\n");
    for (int i = 0; i < 900; i++)
        buf_puts(&text, "X-Name: y\r\n");
    buf_puts(&text, "\r\n");
    CHECK_INT(receive(buf_str(&text), 0, &chunked, HTTP_REQUEST, &out, NULL), ERR_HEADERS);
    CHECK_STR(err.msg, "trailers larger than 8192 bytes");
}

TEST(lines_and_trailers_of_the_chunked_coding_are_bounded) { test_co(long_lines, NULL); }

static void by_length(void *arg)
{
    struct http_head five = { .minor = 1, .length = 5 }, none = { .minor = 1, .length = -1 },
                     zero = { .minor = 1, .length = 0 };
    AUTO(buf_free) struct buf out = { 0 };

    (void)arg;
    for (size_t cut = 0; cut <= 7; cut++) {
        CHECK_INT(receive(STR("hello++"), cut, &five, HTTP_REQUEST, &out, NULL), ERR_NONE);
        CHECK_STR(out.data, "hello++");
    }
    CHECK_INT(receive(STR("hell"), 2, &five, HTTP_REQUEST, &out, NULL), ERR_GONE);
    CHECK_STR(err.msg, "the body ended early");
    CHECK_INT(receive(STR(""), 0, &none, HTTP_REQUEST, &out, NULL), ERR_NONE);
    CHECK_INT(receive(STR(""), 0, &zero, HTTP_REQUEST, &out, NULL), ERR_NONE);
}

TEST(a_body_with_a_length_ends_there) { test_co(by_length, NULL); }

static void until_close(void *arg)
{
    struct http_head open = { .minor = 1, .status = 200, .length = -1 },
                     empty = { .minor = 1, .status = 204, .length = -1 },
                     unchanged = { .minor = 1, .status = 304, .length = 100 };
    AUTO(buf_free) struct buf out = { 0 };

    (void)arg;
    for (size_t cut = 0; cut <= 5; cut++) {
        CHECK_INT(receive(STR("hello"), cut, &open, HTTP_RESPONSE, &out, NULL), ERR_NONE);
        CHECK_STR(out.data, "hello");
    }
    CHECK_INT(receive(STR("+"), 0, &empty, HTTP_RESPONSE, &out, NULL), ERR_NONE);
    CHECK_STR(out.data, "+");
    CHECK_INT(receive(STR("+"), 0, &unchanged, HTTP_RESPONSE, &out, NULL), ERR_NONE);
    CHECK_STR(out.data, "+");
}

TEST(a_response_without_a_length_ends_with_the_connection) { test_co(until_close, NULL); }

static void too_large(void *arg)
{
    struct http_body b;
    struct conn c;
    char room[16];

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("4\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n"));
    http_body_init(&b, &c, &chunked, HTTP_REQUEST);
    b.max = 4;
    CHECK_INT(http_body_read(&b, room, 16, &err), 4);
    CHECK_INT(http_body_read(&b, room, 16, &err), -1);
    CHECK_INT(err.code, ERR_TOO_LARGE);
    CHECK_STR(err.msg, "body larger than 4 bytes");
    http_body_finish(&b);
    close_conn(&c);
}

TEST(a_body_beyond_its_bound_is_refused) { test_co(too_large, NULL); }

static void slices(void *arg)
{
    AUTO(buf_free) struct buf out = { 0 };
    struct http_body b;
    struct conn c;
    struct str s;
    ssize_t r;

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("4\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n+"));
    http_body_init(&b, &c, &chunked, HTTP_REQUEST);
    while ((r = http_body_next(&b, &s, &err)) > 0) {
        CHECK_INT(r, s.n);
        buf_add_str(&out, s);
    }
    CHECK_INT(r, 0);
    CHECK_STR(out.data, "abcde");
    CHECK_INT(b.total, 5);
    CHECK(str_is(conn_peek(&c), "+"));
    http_body_finish(&b);
    close_conn(&c);
}

TEST(a_body_can_be_read_without_a_copy) { test_co(slices, NULL); }

/* ---- Expect, draining ---- */

static void ask_then_send(void *arg)
{
    AUTO(buf_free) struct buf said = { 0 };

    (void)arg;
    net_get_until(peer, &said, "\r\n\r\n");
    CHECK_STR(said.data, "HTTP/1.1 100 Continue\r\n\r\n");
    net_put(peer, STR("hello"));
}

static void expect_continue(void *arg)
{
    struct http_head five = { .minor = 1, .length = 5, .expect = true };
    AUTO(buf_free) struct buf out = { 0 };
    struct http_body b;
    struct conn c;

    (void)arg;
    open_conn(&c);
    http_body_init(&b, &c, &five, HTTP_REQUEST);
    CHECK(!http_body_drain(&b, 1000)); /* nobody asked for the body: it may never come */
    CHECK_INT(co_go(ask_then_send, NULL, NULL), 0);
    CHECK_INT(http_body_read_all(&b, &out, &err), 0);
    CHECK_STR(out.data, "hello");
    http_body_finish(&b);
    close_conn(&c);
}

TEST(a_client_that_waits_is_told_to_continue) { test_co(expect_continue, NULL); }

static void expect_impatient(void *arg)
{
    struct http_head five = { .minor = 1, .length = 5, .expect = true };
    AUTO(buf_free) struct buf out = { 0 };
    struct http_body b;
    struct conn c;
    char byte;

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("he"));
    CHECK_INT(conn_fill(&c, CONN_BUF, co_in(NET_MS)), 2);
    net_put(peer, STR("llo"));
    http_body_init(&b, &c, &five, HTTP_REQUEST);
    CHECK_INT(http_body_read_all(&b, &out, &err), 0);
    CHECK_STR(out.data, "hello");
    CHECK_INT(co_read(peer, &byte, 1, co_in(10)), -1); /* it had not waited: no word needed */
    CHECK_INT(errno, ETIMEDOUT);
    http_body_finish(&b);
    five.minor = 0;
    http_body_init(&b, &c, &five, HTTP_REQUEST);
    CHECK(!b.expect); /* HTTP/1.0 does not know the word */
    close_conn(&c);
}

TEST(a_client_that_does_not_wait_is_not_told) { test_co(expect_impatient, NULL); }

static void draining(void *arg)
{
    struct http_head ten = { .minor = 1, .length = 10 };
    struct http_body b;
    struct conn c;

    (void)arg;
    open_conn(&c);
    http_body_init(&b, &c, &ten, HTTP_REQUEST);
    CHECK(!http_body_drain(&b, 9));
    CHECK_INT(conn_ready(&c), 0); /* it did not even begin */
    net_put(peer, STR("0123456789+"));
    CHECK(http_body_drain(&b, 10));
    CHECK(b.done);
    CHECK(str_is(conn_peek(&c), "+"));
    CHECK(http_body_drain(&b, 0));
    c.pos++;
    http_body_init(&b, &c, &chunked, HTTP_REQUEST);
    net_put(peer, STR("5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"));
    CHECK(!http_body_drain(&b, 6));
    http_body_init(&b, &c, &chunked, HTTP_REQUEST);
    conn_finish(&c);
    co_close(peer);
    open_conn(&c);
    net_put(peer, STR("5\r\nhello\r\nx"));
    CHECK_INT(shutdown(peer, SHUT_WR), 0);
    http_body_init(&b, &c, &chunked, HTTP_REQUEST);
    CHECK(!http_body_drain(&b, 100)); /* broken */
    close_conn(&c);
}

TEST(draining_takes_the_rest_or_gives_up) { test_co(draining, NULL); }

/* ---- heads and their time-outs ---- */

static int read_head(struct conn *c, enum http_kind kind)
{
    err = (struct err){ 0 };
    return http_read_head(c, kind, &h, &err);
}

static void heads(void *arg)
{
    struct conn c;

    (void)arg;
    open_conn(&c);
    net_put(peer, STR("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET"));
    CHECK_INT(read_head(&c, HTTP_REQUEST), 1);
    CHECK(str_is(h.target, "/1"));
    CHECK_INT(read_head(&c, HTTP_REQUEST), 1);
    CHECK(str_is(h.target, "/2"));
    CHECK_INT(shutdown(peer, SHUT_WR), 0);
    CHECK_INT(read_head(&c, HTTP_REQUEST), -1);
    CHECK_INT(err.code, ERR_GONE);
    close_conn(&c);
    open_conn(&c);
    CHECK_INT(shutdown(peer, SHUT_WR), 0);
    CHECK_INT(read_head(&c, HTTP_REQUEST), 0);
    CHECK_INT(err.code, ERR_NONE);
    close_conn(&c);
}

TEST(heads_are_read_one_after_another) { test_co(heads, NULL); }

static void dribble(void *arg)
{
    const char *text = arg;

    for (; *text; text++) {
        net_put(peer, (struct str){ text, 1 });
        co_sleep(co_in(0));
    }
}

static void slow_head(void *arg)
{
    static char text[] = "GET /slow HTTP/1.1\r\nHost: a\r\nX-Y: z\r\n\r\n";
    struct conn c;

    (void)arg;
    open_conn(&c);
    CHECK_INT(co_go(dribble, text, NULL), 0);
    CHECK_INT(read_head(&c, HTTP_REQUEST), 1);
    CHECK(str_is(h.target, "/slow"));
    CHECK_INT(h.count, 2);
    CHECK_INT(conn_ready(&c), 0);
    close_conn(&c);
}

TEST(a_head_may_come_byte_by_byte) { test_co(slow_head, NULL); }

static void timeouts(void *arg)
{
    struct http_limits saved = http_limits;
    struct http_head five = { .minor = 1, .length = 5 };
    static char much[1 << 20];
    struct http_body b;
    struct conn c;
    int64_t began;
    char room[8];
    int r;

    (void)arg;
    http_limits.header_ms = http_limits.body_ms = http_limits.write_ms = 30;
    http_limits.idle_ms = 60;
    open_conn(&c);
    began = clock_ms();
    CHECK_INT(read_head(&c, HTTP_REQUEST), 0); /* idle for too long: closed without a word */
    CHECK(clock_ms() - began >= 55);
    CHECK_INT(read_head(&c, HTTP_RESPONSE), -1);
    CHECK_INT(err.code, ERR_GONE);
    net_put(peer, STR("GET / HT"));
    CHECK_INT(read_head(&c, HTTP_REQUEST), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    CHECK_STR(err.msg, "message head not complete within http.header-ms=30");
    c.pos = c.len;
    http_body_init(&b, &c, &five, HTTP_REQUEST);
    net_put(peer, STR("he"));
    CHECK_INT(http_body_read(&b, room, 8, &err), 2);
    CHECK_INT(http_body_read(&b, room, 8, &err), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    CHECK_STR(err.msg, "the body paused longer than http.body-ms=30");
    r = http_put(&c, (struct str){ much, sizeof(much) });
    CHECK_INT(r || http_flush(&c), 1);
    CHECK_INT(errno, ETIMEDOUT);
    http_limits = saved;
    close_conn(&c);
}

TEST(each_wait_has_its_own_limit_and_names_it) { test_co(timeouts, NULL); }

static void large_head(void *arg)
{
    struct http_limits saved = http_limits;
    AUTO(buf_free) struct buf text = { 0 };
    struct conn c;

    (void)arg;
    http_limits.header_bytes = 1024;
    buf_puts(&text, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while (text.len < 1020)
        buf_putc(&text, 'x');
    buf_puts(&text, "\r\n\r\n");
    CHECK_INT(text.len, 1024);
    open_conn(&c);
    net_put(peer, buf_str(&text));
    CHECK_INT(read_head(&c, HTTP_REQUEST), 1);
    text.len -= 4;
    buf_puts(&text, "x\r\n\r\n"); /* one more, whole */
    net_put(peer, buf_str(&text));
    CHECK_INT(read_head(&c, HTTP_REQUEST), -1);
    CHECK_INT(err.code, ERR_HEADERS);
    CHECK_STR(err.msg, "message head larger than http.header-bytes=1024");
    c.pos = c.len;
    text.len -= 4; /* and one that never ends */
    while (text.len < 3000)
        buf_putc(&text, 'x');
    net_put(peer, buf_str(&text));
    CHECK_INT(read_head(&c, HTTP_REQUEST), -1);
    CHECK_INT(err.code, ERR_HEADERS);
    http_limits = saved;
    close_conn(&c);
}

TEST(a_head_beyond_its_bytes_is_refused_and_the_bound_is_named) { test_co(large_head, NULL); }

/* ---- writing ---- */

static void write_chunks(void *arg)
{
    struct conn *c = arg;
    static char large[40000];

    memset(large, 'L', sizeof(large));
    CHECK_INT(http_put_chunk(c, "hello", 5), 0);
    CHECK_INT(http_put_chunk(c, large, sizeof(large)), 0);
    CHECK_INT(http_put_chunk(c, "0123456789abcdef", 16), 0);
    CHECK_INT(http_put_last_chunk(c, STR("X: y\r\n")), 0);
    CHECK_INT(http_flush(c), 0);
    conn_finish(c);
}

static void chunks(void *arg)
{
    AUTO(buf_free) struct buf raw = { 0 }, out = { 0 }, trailers = { 0 };
    static struct conn c;

    (void)arg;
    open_conn(&c);
    CHECK_INT(co_go(write_chunks, &c, NULL), 0);
    net_get_all(peer, &raw);
    co_close(peer);
    CHECK(str_starts(buf_str(&raw), "5\r\nhello\r\n9c40\r\nLLL"));
    CHECK_INT(receive(buf_str(&raw), 7, &chunked, HTTP_REQUEST, &out, &trailers), ERR_NONE);
    CHECK_INT(out.len, 40021);
    CHECK_STR(out.data + 40005, "0123456789abcdef");
    CHECK_STR(trailers.data, "X: y\r\n");
}

TEST(chunks_written_are_chunks_read) { test_co(chunks, NULL); }
