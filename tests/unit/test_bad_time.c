/* test_bad_time.c - peers that stop in the middle, said to a whole guest with small limits: each
 * limit ends the wait and is named. The waits themselves are skipped. */
#include "guest_rig.h"

static struct http_limits usual;

static void hurry(void)
{
    usual = http_limits;
    http_limits.header_ms = 300;
    http_limits.body_ms = 300;
    http_limits.idle_ms = 500;
    http_limits.write_ms = 400;
    co_skip_waits(true);
}

static void relax(void)
{
    http_limits = usual;
    co_skip_waits(false);
}

static const struct {
    const char *name, *bytes;
} begun[] = {
    { "letter", "G" },
    { "line", "GET /health HTTP/1.1" },
    { "line_end", "GET /health HTTP/1.1\r\n" },
    { "field", "GET /health HTTP/1.1\r\nHost: x" },
    { "field_end", "GET /health HTTP/1.1\r\nHost: x\r\n" },
    { "half_the_end", "GET /health HTTP/1.1\r\nHost: x\r\n\r" },
};

GUEST_ROWS(a_head_that_stops_is_408_and_names_the_limit, begun, test_once)
{
    int64_t start;

    hurry();
    start = clock_ms();
    ask(str_of(row->bytes));
    REFUSED(KIND_REST, "408", "http.header-ms=300");
    CHECK_STR(header("Connection"), "close");
    CHECK(clock_ms() >= start + 300);
    relax();
}

GUEST_TEST(a_head_that_drips_is_408_all_the_same)
{
    AUTO(buf_free) struct buf b = { 0 };
    int64_t start;

    hurry();
    put_text(&b, "A: b\r\n", 50);
    dial();
    say(STR("GET /health HTTP/1.1\r\nHost: x\r\n"));
    start = clock_ms();
    for (size_t i = 0; i < b.len && clock_ms() < start + 600; i++) {
        say((struct str){ b.data + i, 1 });
        co_sleep(co_in(20));
    }
    hear();
    REFUSED(KIND_REST, "408", "http.header-ms=300");
    CHECK(clock_ms() < start + 5000);
    relax();
}

#define MARK "xxBOUNDARYxx"
#define FORM                                                                                       \
    "--" MARK "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\ndata\r\n"
#define UPLOAD "/files?path=" NEVER_MADE

static const struct {
    const char *name;
    enum kind kind;
    const char *code, *target, *lines;
    struct str body;
} slow[] = {
    { "rest", KIND_REST, "408", "/init", PLAIN "Content-Length: 100\r\n", STR("{") },
    { "rest_chunked", KIND_REST, "408", "/init", PLAIN CHUNKED, STR("5\r\n{") },
    { "rest_no_chunk", KIND_REST, "408", "/init", PLAIN CHUNKED, STR("") },
    { "rest_no_trailer", KIND_REST, "408", "/init", PLAIN CHUNKED, STR("2\r\n{}\r\n0\r\n") },
    { "compose", KIND_REST, "408", "/files/compose", PLAIN "Content-Length: 9\r\n", STR("") },
    { "unary", KIND_UNARY, "deadline_exceeded", STAT, PLAIN "Content-Length: 9\r\n", STR("{") },
    { "stream", KIND_STREAM, "deadline_exceeded", START, STREAM "Content-Length: 9\r\n",
      STR("\0\0") },
    { "upstream", KIND_STREAM, "deadline_exceeded", INPUT, STREAM CHUNKED,
      STR("5\r\n\0\0\0\0\x02\r\n") },
    { "upload", KIND_REST, "408", UPLOAD, OCTET "Content-Length: 9\r\n", STR("x") },
    { "upload_chunked", KIND_REST, "408", UPLOAD, OCTET CHUNKED, STR("5\r\nx") },
    { "form", KIND_REST, "408", UPLOAD,
      "Content-Type: multipart/form-data; boundary=" MARK "\r\nContent-Length: 900\r\n",
      STR(FORM) },
    { "gzip", KIND_REST, "408", UPLOAD, OCTET "Content-Length: 900\r\nContent-Encoding: gzip\r\n",
      STR("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xab\xa8\xa0=\0") },
};

GUEST_ROWS(a_body_that_stops_is_timed_out_and_names_the_limit, slow, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };

    hurry();
    put_head(&b, "POST", row->target, row->lines);
    buf_add_str(&b, row->body);
    ask(buf_str(&b));
    REFUSED(row->kind, row->code, "http.body-ms=300");
    must_end();
    relax();
}

/* We say nothing more, and do not end our side either. */
static void must_end_by_itself(void)
{
    char c;

    CHECK_INT(peer.in.len, 0);
    CHECK_INT(co_read(peer.fd, &c, 1, co_in(NET_MS)), 0);
}

GUEST_TEST(a_connection_that_says_nothing_is_closed_without_a_word)
{
    hurry();
    dial();
    must_end_by_itself();
    ask_head("GET", "/health", "");
    CHECK_INT(said.status, 204);
    must_end_by_itself();
    relax();
}
