/* test_connect.c - the Connect protocol: envelopes, and streams over the server. */
#include "io/connect.h"

#include "base/mem.h"
#include "net.h"

static struct err err;

/* ---- the codec ---- */

TEST(an_envelope_header_comes_back)
{
    static const uint32_t sizes[] = { 0, 1, 255, 256, 65536, 0x01020304, UINT32_MAX };
    unsigned char b[CONNECT_HEADER];

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (unsigned flags = 0; flags <= CONNECT_END; flags += CONNECT_END) {
            struct connect_frame f = { 0 };

            connect_encode_header(b, flags, sizes[i]);
            CHECK_INT(connect_decode_header(b, sizeof(b), UINT32_MAX, &f, &err), 1);
            CHECK_INT(f.flags, flags);
            CHECK_INT(f.size, sizes[i]);
        }
    CHECK(!memcmp((connect_encode_header(b, 2, 0x01020304), b), "\2\1\2\3\4", 5));
}

TEST(fewer_than_five_bytes_ask_for_more)
{
    struct connect_frame f;

    for (size_t n = 0; n < CONNECT_HEADER; n++)
        CHECK_INT(
            connect_decode_header((const unsigned char *)"\xff\xff\xff\xff\xff", n, 10, &f, &err),
            0);
}

TEST(flags_we_do_not_know_are_refused)
{
    for (unsigned flags = 0; flags < 256; flags++) {
        unsigned char b[CONNECT_HEADER] = { (unsigned char)flags };
        struct connect_frame f;

        CHECK_INT(connect_decode_header(b, 5, 10, &f, &err), flags == 0 || flags == 2 ? 1 : -1);
        if (flags == 1)
            CHECK_STR(err.msg, "compressed envelopes are not accepted: send identity");
    }
    CHECK_STR(err.msg, "compressed envelopes are not accepted: send identity");
    connect_decode_header((const unsigned char *)"\x04\0\0\0\0", 5, 10,
                          &(struct connect_frame){ 0 }, &err);
    CHECK_STR(err.msg, "envelope has unknown flags 0x04");
}

TEST(an_envelope_beyond_the_bound_is_refused)
{
    struct connect_frame f;

    CHECK_INT(connect_decode_header((const unsigned char *)"\0\0\0\0\x0a", 5, 10, &f, &err), 1);
    CHECK_INT(connect_decode_header((const unsigned char *)"\0\0\0\0\x0b", 5, 10, &f, &err), -1);
    CHECK_INT(err.code, ERR_TOO_LARGE);
    CHECK_STR(err.msg, "envelope of 11 bytes is larger than http.body-bytes=10");
}

static int timeout_of(const char *value, int64_t *ms)
{
    static struct http_head h;

    h.count = value ? 1 : 0;
    if (value)
        h.field[0] = (struct http_field){ STR("Connect-Timeout-Ms"), str_of(value) };
    return connect_timeout(&h, ms, &err);
}

TEST(the_timeout_has_at_most_ten_digits)
{
    static const char *const bad[] = { "", "x", "-1", "1.5", "12345678901", " 1", "1s" };
    int64_t ms;

    CHECK_INT(timeout_of(NULL, &ms), 0);
    CHECK_INT(ms, -1);
    CHECK_INT(timeout_of("0", &ms), 0);
    CHECK_INT(ms, 0);
    CHECK_INT(timeout_of("9999999999", &ms), 0);
    CHECK_INT(ms, 9999999999);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(timeout_of(bad[i], &ms), -1);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

/* ---- streams over the server ---- */

struct ask {
    char *text;
    int64_t times;
};

static const struct field ask_fields[] = {
    FIELD(struct ask, text, F_STR, .flags = F_REQUIRED),
    FIELD(struct ask, times, F_INT, .max = 100, .def = 1),
    {},
};

static struct co_cond go_on;

static int repeat(struct call *c, void *body, struct err *e)
{
    const struct ask *a = body;

    if (a->times == 0)
        return err_set(e, ERR_NOT_FOUND, "nothing to repeat");
    if (connect_begin(c))
        return -1;
    for (int64_t i = 0; i < a->times; i++) {
        struct buf *b = connect_message(c);

        json_open(b, '{');
        json_kv_str(b, "text", a->text);
        json_close(b, '}');
        if (connect_send(c))
            return -1;
    }
    if (!strcmp(a->text, "break"))
        return err_set(e, ERR_INTERNAL, "broke");
    if (!strcmp(a->text, "wait") && co_cond_wait(&go_on, co_in(NET_MS)))
        return err_set(e, ERR_TIMEOUT, "nobody woke us");
    return connect_end(c);
}

static int collect(struct call *c, void *body, struct err *e)
{
    AUTO(buf_free) struct buf message = { 0 };
    int64_t bytes = 0, count = 0;
    int r;

    (void)body;
    while ((r = connect_read(c, &message, e)) > 0) {
        count++;
        bytes += (int64_t)message.len;
    }
    if (r < 0)
        return -1;
    if (connect_begin(c))
        return -1;
    json_open(connect_message(c), '{');
    json_kv_int(&c->scratch, "count", count);
    json_kv_int(&c->scratch, "bytes", bytes);
    json_close(&c->scratch, '}');
    return connect_send_end(c);
}

static const struct route routes[] = {
    { "POST", "/repeat", ROUTE_STREAM, 0, ask_fields, sizeof(struct ask), repeat, "repeat",
      "Repeats" },
    { "POST", "/collect", ROUTE_UPSTREAM, 0, NULL, 0, collect, "collect", "Collects" },
    {},
};
static const struct route *const tables[] = { routes, NULL };
static struct httpd server = { .tables = tables };

static void put_envelope(struct buf *b, unsigned flags, struct str payload)
{
    unsigned char head[CONNECT_HEADER];

    connect_encode_header(head, flags, (uint32_t)payload.n);
    buf_add(b, head, sizeof(head));
    buf_add_str(b, payload);
}

static void put_request(struct buf *b, const char *path, struct str body)
{
    buf_printf(
        b,
        "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/connect+json\r\nContent-Length: %zu\r\n\r\n",
        path, body.n);
    buf_add_str(b, body);
}

static struct buf raw;

static void talking(void *arg)
{
    int fd[2];

    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    net_put(fd[1], buf_str(arg));
    CHECK_INT(shutdown(fd[1], SHUT_WR), 0);
    net_get_all(fd[1], &raw);
    co_close(fd[1]);
}

/* The answer's envelopes as text, one per line, "end " in front of the last. */
static const char *ask(const char *path, struct str body)
{
    static struct buf story;
    struct buf request = { 0 }, payload = { 0 };
    const char *at;

    put_request(&request, path, body);
    raw.len = story.len = 0;
    test_co(talking, &request);
    at = memmem(raw.data, raw.len, "\r\n\r\n", 4);
    CHECK(at != NULL);
    CHECK(str_starts(buf_str(&raw), "HTTP/1.1 200 OK\r\n"));
    CHECK(memmem(raw.data, raw.len, "Content-Type: application/connect+json\r\n", 40) != NULL);
    if (memmem(raw.data, raw.len, "Content-Length: ", 16)) { /* a refusal is known whole */
        buf_add(&payload, at + 4, raw.len - (size_t)(at + 4 - raw.data));
    } else {
        for (at += 4; *at != '0';) { /* the chunks, joined */
            char *end;
            size_t n = strtoul(at, &end, 16);

            buf_add(&payload, end + 2, n);
            at = end + 2 + n + 2;
        }
        CHECK_STR(at, "0\r\n\r\n");
    }
    for (size_t i = 0; i < payload.len;) {
        struct connect_frame f;

        CHECK_INT(connect_decode_header((unsigned char *)payload.data + i, payload.len - i,
                                        UINT32_MAX, &f, &err),
                  1);
        buf_printf(&story, "%s%.*s\n", f.flags & CONNECT_END ? "end " : "", (int)f.size,
                   payload.data + i + CONNECT_HEADER);
        i += CONNECT_HEADER + f.size;
    }
    buf_free(&request);
    buf_free(&payload);
    return buf_cstr(&story);
}

static struct str one(const char *json) /* a body of one envelope */
{
    static struct buf b;

    b.len = 0;
    put_envelope(&b, 0, str_of(json));
    return buf_str(&b);
}

TEST(a_stream_is_messages_and_an_end)
{
    CHECK_STR(ask("/repeat", one("{\"text\":\"hi\",\"times\":\"3\"}")),
              "{\"text\":\"hi\"}\n{\"text\":\"hi\"}\n{\"text\":\"hi\"}\nend {}\n");
    CHECK(memmem(raw.data, raw.len, "X-Accel-Buffering: no\r\n", 23) != NULL);
    CHECK_STR(ask("/repeat", one("{\"text\":\"x\",\"unknown\":null}")),
              "{\"text\":\"x\"}\nend {}\n");
}

TEST(an_error_is_in_the_last_envelope)
{
    CHECK_STR(ask("/repeat", one("{\"text\":\"x\",\"times\":0}")),
              "end {\"error\":{\"code\":\"not_found\",\"message\":\"nothing to repeat\"}}\n");
    CHECK(memmem(raw.data, raw.len, "Content-Length: 65\r\n", 20) != NULL); /* nobody's stream */
    CHECK(memmem(raw.data, raw.len, "X-Accel-Buffering: no\r\n", 23) != NULL);
    CHECK_STR(
        ask("/repeat", one("{\"text\":\"break\"}")),
        "{\"text\":\"break\"}\nend {\"error\":{\"code\":\"internal\",\"message\":\"broke\"}}\n");
    CHECK_STR(
        ask("/repeat", one("{}")),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"field 'text' is missing\"}}\n");
    CHECK_STR(
        ask("/repeat", one("")),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"field 'text' is missing\"}}\n");
    CHECK_STR(
        ask("/repeat", one("[")),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"not valid JSON: line 1 column 1: ']' expected near end of file\"}}\n");
}

TEST(a_request_is_exactly_one_envelope)
{
    struct buf b = { 0 };

    CHECK_STR(
        ask("/repeat", STR("")),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"the request has no envelope\"}}\n");
    CHECK_STR(
        ask("/repeat", STR("\0\0\0")),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"the body ends within an envelope\"}}\n");
    CHECK_STR(
        ask("/repeat", (struct str){ "\0\0\0\0\x09{}", 7 }),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"the body ends within an envelope\"}}\n");
    put_envelope(&b, 0, STR("{\"text\":\"a\"}"));
    put_envelope(&b, 0, STR("{}"));
    CHECK_STR(
        ask("/repeat", buf_str(&b)),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"the request has more than one envelope\"}}\n");
    b.len = 0;
    put_envelope(&b, 0, STR("{\"text\":\"a\"}"));
    put_envelope(&b, CONNECT_END, STR("{}"));
    CHECK_STR(ask("/repeat", buf_str(&b)), "{\"text\":\"a\"}\nend {}\n");
    b.len = 0;
    put_envelope(&b, CONNECT_COMPRESSED, STR("zz"));
    CHECK(strstr(ask("/repeat", buf_str(&b)), "compressed envelopes are not accepted") != NULL);
    buf_free(&b);
}

TEST(a_client_stream_is_read_to_its_end)
{
    struct buf b = { 0 };
    AUTO(freep) char *large = xcalloc(1, 200000);

    put_envelope(&b, 0, STR("{}"));
    put_envelope(&b, 0, STR(""));
    put_envelope(&b, 0, (struct str){ large, 200000 });
    CHECK_STR(ask("/collect", buf_str(&b)), "{\"count\":3,\"bytes\":200002}\nend {}\n");
    put_envelope(&b, CONNECT_END, STR("{}"));
    CHECK_STR(ask("/collect", buf_str(&b)), "{\"count\":3,\"bytes\":200002}\nend {}\n");
    CHECK_STR(ask("/collect", STR("")), "{\"count\":0,\"bytes\":0}\nend {}\n");
    b.len -= 3; /* cut within the last one */
    CHECK_STR(
        ask("/collect", buf_str(&b)),
        "end {\"error\":{\"code\":\"invalid_argument\",\"message\":\"the body ends within an envelope\"}}\n");
    buf_free(&b);
}

TEST(an_envelope_is_bounded_like_a_body)
{
    struct http_limits saved = http_limits;

    http_limits.body_bytes = 10;
    CHECK_STR(ask("/collect", one("0123456789")), "{\"count\":1,\"bytes\":10}\nend {}\n");
    CHECK_STR(
        ask("/collect", one("01234567890")),
        "end {\"error\":{\"code\":\"resource_exhausted\",\"message\":\"envelope of 11 bytes is larger than http.body-bytes=10\"}}\n");
    http_limits = saved;
}

static void pipelined(void *arg)
{
    struct buf got = { 0 }, request = { 0 };
    int fd[2];

    (void)arg;
    co_cond_init(&go_on);
    net_pair(fd);
    CHECK_INT(httpd_serve(&server, fd[0]), 0);
    put_request(&request, "/repeat", one("{\"text\":\"wait\"}"));
    put_request(&request, "/collect", STR(""));
    net_put(fd[1], buf_str(&request));
    while (!got.len || !memmem(got.data, got.len, "{\"text\":\"wait\"}", 15)) {
        char b[512]; /* while the handler runs on, with another request waiting behind */
        ssize_t r = co_read(fd[1], b, sizeof(b), co_in(NET_MS / 2));

        CHECK(r > 0);
        buf_add(&got, b, (size_t)r);
    }
    CHECK(!memmem(got.data, got.len, "{}", 2));
    co_cond_wake(&go_on);
    CHECK_INT(shutdown(fd[1], SHUT_WR), 0);
    net_get_all(fd[1], &got);
    CHECK(memmem(got.data, got.len, "\"count\":0", 9) != NULL);
    co_close(fd[1]);
    buf_free(&got);
    buf_free(&request);
}

TEST(a_message_is_seen_before_the_stream_ends) { test_co(pipelined, NULL); }
