/* test_http_parse.c - the grammar of message heads, and all it refuses. */
#include "base/arena.h"
#include "base/mem.h"
#include "io/http.h"
#include "test.h"

static struct http_head h;
static struct err err;

static ssize_t parse(enum http_kind kind, const char *text)
{
    size_t n = strlen(text);
    char *exact = xmalloc(n); /* nothing behind it may be read */
    static char *kept;
    ssize_t r;

    memcpy(exact, text, n);
    err = (struct err){ 0 };
    r = http_parse(exact, n, kind, &h, &err);
    free(kept);
    kept = exact; /* the slices point into it */
    return r;
}

#define REFUSES(kind, text, why)                                                                   \
    do {                                                                                           \
        if (parse(kind, text) != -1)                                                               \
            test_fail(__FILE__, __LINE__, "%s was taken", text);                                   \
        CHECK_STR(err.msg, why);                                                                   \
    } while (0)
#define TAKES(kind, text)                                                                          \
    do {                                                                                           \
        ssize_t took_ = parse(kind, text);                                                         \
        if (took_ != (ssize_t)strlen(text))                                                        \
            test_fail(__FILE__, __LINE__, "%s: %zd, %s", text, took_, err.msg);                    \
    } while (0)
#define CHECK_FIELD(name, want) CHECK(str_is(http_get(&h, name), want))

#define GET  "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a\r\n"

TEST(a_request_is_its_method_target_version_and_fields)
{
    TAKES(HTTP_REQUEST,
          "POST /a/b?c=%20d HTTP/1.1\r\nHost: x:80\r\nX-Empty:\r\nContent-Length: 12\r\n"
          "X-Pad: \t v w \t\r\n\r\n");
    CHECK(str_is(h.method, "POST"));
    CHECK(str_is(h.target, "/a/b?c=%20d"));
    CHECK_INT(h.minor, 1);
    CHECK_INT(h.count, 4);
    CHECK_INT(h.length, 12);
    CHECK(h.keep && !h.chunked && !h.upgrade && !h.expect);
    CHECK_FIELD("host", "x:80");
    CHECK_FIELD("X-PAD", "v w");
    CHECK(http_get(&h, "x-empty").p && http_get(&h, "x-empty").n == 0);
    CHECK(!http_get(&h, "x-none").p);
}

TEST(what_follows_the_head_is_left_alone)
{
    CHECK_INT(parse(HTTP_REQUEST, GET "\r\nGET /next"), (ssize_t)strlen(GET) + 2);
    CHECK_INT(h.count, 1);
}

TEST(valid_variants_are_taken)
{
    TAKES(HTTP_REQUEST, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    TAKES(HTTP_REQUEST, "GET http://a/b HTTP/1.1\r\nhOsT:a\r\n\r\n");
    TAKES(HTTP_REQUEST, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n");
    TAKES(HTTP_REQUEST, "M-SEARCH!#$%&'*+.^_`|~ /\"<>\\^`{|}[] HTTP/1.1\r\nHost: a\r\n\r\n");
    TAKES(HTTP_REQUEST, "GET / HTTP/1.0\r\n\r\n");
    TAKES(HTTP_REQUEST, GET "Cookie: a=\"b\"; c=\xc3\xa9\r\n\r\n");
    TAKES(HTTP_REQUEST, "GET / HTTP/1.1\r\nHost:\r\n\r\n");
    TAKES(HTTP_REQUEST, POST "Transfer-Encoding:  Chunked \r\n\r\n");
    CHECK(h.chunked);
    CHECK_INT(h.length, -1);
    TAKES(HTTP_REQUEST, POST "Content-Length: 0\r\n\r\n");
    CHECK_INT(h.length, 0);
    TAKES(HTTP_REQUEST, POST "Content-Length: 9223372036854775807\r\n\r\n");
    CHECK(h.length == INT64_MAX);
}

TEST(the_connection_is_kept_as_version_and_header_say)
{
    TAKES(HTTP_REQUEST, GET "Connection: close\r\n\r\n");
    CHECK(!h.keep);
    TAKES(HTTP_REQUEST, GET "Connection: keep-alive, Upgrade\r\n\r\n");
    CHECK(h.keep && h.upgrade);
    TAKES(HTTP_REQUEST, GET "Connection: x ,CLOSE\r\nConnection: keep-alive\r\n\r\n");
    CHECK(!h.keep);
    TAKES(HTTP_REQUEST, "GET / HTTP/1.0\r\n\r\n");
    CHECK(!h.keep);
    TAKES(HTTP_REQUEST, "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    CHECK(h.keep);
    TAKES(HTTP_REQUEST, GET "Expect: 100-Continue\r\n\r\n");
    CHECK(h.expect);
}

TEST(a_response_is_its_version_status_and_fields)
{
    TAKES(HTTP_RESPONSE, "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n");
    CHECK_INT(h.status, 404);
    CHECK_INT(h.length, 3);
    TAKES(HTTP_RESPONSE, "HTTP/1.0 200\r\n\r\n");
    CHECK_INT(h.status, 200);
    CHECK(!h.keep);
    TAKES(HTTP_RESPONSE, "HTTP/1.1 200 \r\n\r\n");
    CHECK(h.keep);
    TAKES(HTTP_RESPONSE, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n");
    CHECK(h.upgrade);
}

TEST(bare_line_feeds_are_refused)
{
    REFUSES(HTTP_REQUEST, "GET / HTTP/1.1\nHost: a\r\n\r\n", "bare LF in the message head");
    REFUSES(HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\n\r\n", "bare LF in the message head");
    REFUSES(HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\n\n", "bad header line: no name and colon");
    REFUSES(HTTP_RESPONSE, "HTTP/1.1 200 OK\n\r\n", "bare LF in the message head");
    REFUSES(HTTP_REQUEST, GET "X: a\rb\r\n\r\n", "CR without LF in the message head");
    REFUSES(HTTP_REQUEST, GET "\rX\r\n", "CR without LF in the message head");
}

TEST(folded_lines_are_refused)
{
    REFUSES(HTTP_REQUEST, GET "X: a\r\n b\r\n\r\n", "folded header line");
    REFUSES(HTTP_REQUEST, GET "\tb: c\r\n\r\n", "folded header line");
}

TEST(controls_are_refused)
{
    for (int c = 1; c < 128; c++) {
        char text[64];

        if ((c >= ' ' && c < 127) || c == '\t' || c == '\r' || c == '\n')
            continue;
        snprintf(text, sizeof(text), GET "X: a%cb\r\n\r\n", c);
        REFUSES(HTTP_REQUEST, text, "control character in the message head");
        snprintf(text, sizeof(text), "GET /%c HTTP/1.1\r\nHost: a\r\n\r\n", c);
        REFUSES(HTTP_REQUEST, text, "bad request line: no target, or a byte that must be escaped");
    }
    CHECK_INT(http_parse(GET "X: a\0b\r\n\r\n", sizeof(GET) + 9, HTTP_REQUEST, &h, &err), -1);
    CHECK_STR(err.msg, "control character in the message head");
    REFUSES(HTTP_REQUEST, "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
            "bad request line: no target, or a byte that must be escaped");
}

TEST(a_space_before_the_colon_is_refused)
{
    REFUSES(HTTP_REQUEST, GET "X : a\r\n\r\n", "bad header line: no name and colon");
    REFUSES(HTTP_REQUEST, GET "X\t: a\r\n\r\n", "bad header line: no name and colon");
    REFUSES(HTTP_REQUEST, GET ": a\r\n\r\n", "bad header line: no name and colon");
    REFUSES(HTTP_REQUEST, GET "X\r\n\r\n", "bad header line: no name and colon");
    REFUSES(HTTP_REQUEST, GET "X(y): a\r\n\r\n", "bad header line: no name and colon");
}

TEST(two_framings_are_refused)
{
    REFUSES(HTTP_REQUEST, POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "both Content-Length and Transfer-Encoding");
    REFUSES(HTTP_RESPONSE,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "both Content-Length and Transfer-Encoding");
    REFUSES(HTTP_REQUEST, POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "Content-Length given twice");
    REFUSES(HTTP_REQUEST, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding is not 'chunked'");
    REFUSES(HTTP_REQUEST, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding in HTTP/1.0");
}

TEST(a_length_is_digits_and_a_coding_is_chunked)
{
    static const char *const lengths[] = { "",
                                           "-1",
                                           "+1",
                                           "1 1",
                                           "1,1",
                                           "0x10",
                                           "1a",
                                           "1.",
                                           "9223372036854775808",
                                           "99999999999999999999" };
    static const char *const codings[] = {
        "",         "gzip",        "gzip, chunked", "chunked, gzip",
        "xchunked", "chunked;q=1", "\"chunked\"",   "chunked,",
        "identity"
    };
    char text[128];

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        snprintf(text, sizeof(text), POST "Content-Length: %s\r\n\r\n", lengths[i]);
        REFUSES(HTTP_REQUEST, text, "Content-Length is not a number");
    }
    for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
        snprintf(text, sizeof(text), POST "Transfer-Encoding: %s\r\n\r\n", codings[i]);
        REFUSES(HTTP_REQUEST, text, "Transfer-Encoding is not 'chunked'");
    }
}

TEST(a_request_names_its_host_once)
{
    REFUSES(HTTP_REQUEST, "GET / HTTP/1.1\r\n\r\n", "no Host header");
    REFUSES(HTTP_REQUEST, GET "hOST: b\r\n\r\n", "Host given twice");
}

TEST(a_bad_first_line_is_refused)
{
    static const char *const requests[] = {
        " GET / HTTP/1.1\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/2.0\r\n",
        "GET / HTTP/1.2\r\n",
        "GET / http/1.1\r\n",
        "GET /\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET / HTTP/1.11\r\n",
        "GET / XTTP/1.1\r\n",
        "G\tT / HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n",
        "(GET) / HTTP/1.1\r\n",
        "GET / /b HTTP/1.1\r\n",
        "GET / HTTP/1.\r\n\r\n",
    };
    static const char *const responses[] = {
        "HTTP/1.1 20\r\n\r\n",  "HTTP/1.1 2000 OK\r\n", "HTTP/1.1 200OK\r\n",
        "HTTP/1.1  200 OK\r\n", "HTTP/2.0 200 OK\r\n",  "HTTP/1.2 200 OK\r\n",
        "HTTP/1.1 099 No\r\n",  "HTTP/1.1 -20 No\r\n",  "XTTP/1.1 200 OK\r\n",
        "HTTP/1.1\t200 OK\r\n", "ICY 200 OK\r\n\r\n",   "HTTP/1.1 2x0 OK\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (parse(HTTP_REQUEST, requests[i]) != -1)
            test_fail(__FILE__, __LINE__, "%s was taken", requests[i]);
        CHECK_INT(err.code, ERR_INVALID);
    }
    for (size_t i = 0; i < ARRAY_LEN(responses); i++)
        if (parse(HTTP_RESPONSE, responses[i]) != -1)
            test_fail(__FILE__, __LINE__, "%s was taken", responses[i]);
}

TEST(every_prefix_of_a_valid_head_asks_for_more)
{
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\nX:\r\n\r\n",
        "PUT / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    };
    static const char *const responses[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.0 404\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(requests) + ARRAY_LEN(responses); i++) {
        bool request = i < ARRAY_LEN(requests);
        const char *text = request ? requests[i] : responses[i - ARRAY_LEN(requests)];

        for (size_t n = 0; n <= strlen(text); n++) {
            AUTO(freep) char *prefix = xstrndup(text, n);
            ssize_t r = parse(request ? HTTP_REQUEST : HTTP_RESPONSE, prefix);

            if (r != (n == strlen(text) ? (ssize_t)n : 0))
                test_fail(__FILE__, __LINE__, "\"%s\" gives %zd: %s", prefix, r, err.msg);
        }
    }
}

TEST(the_number_of_fields_is_bounded_and_the_bound_is_named)
{
    struct buf b = { 0 };
    int64_t saved = http_limits.header_count;

    http_limits.header_count = 10;
    buf_puts(&b, GET);
    for (int i = 0; i < 9; i++)
        buf_printf(&b, "X-%d: y\r\n", i);
    buf_puts(&b, "\r\n");
    TAKES(HTTP_REQUEST, b.data);
    CHECK_INT(h.count, 10);
    b.len -= 2;
    buf_puts(&b, "One: more\r\n\r\n");
    REFUSES(HTTP_REQUEST, b.data, "more than http.header-count=10 header fields");
    CHECK_INT(err.code, ERR_HEADERS);
    http_limits.header_count = saved;
    buf_free(&b);
}

TEST(field_lines_can_be_read_alone)
{
    const char *text = "A: 1\r\nB: 2\r\n\r\nrest";

    CHECK_INT(http_parse_fields(text, strlen(text), &h, &err), 14);
    CHECK_FIELD("b", "2");
    for (size_t n = 0; n < 14; n++)
        CHECK_INT(http_parse_fields(text, n, &h, &err), 0);
    CHECK_INT(http_parse_fields("\r\n", 2, &h, &err), 2);
    CHECK_INT(h.count, 0);
    CHECK_INT(http_parse_fields("A 1\r\n\r\n", 7, &h, &err), -1);
}

TEST(a_head_can_be_kept_beyond_its_buffer)
{
    struct arena a = { 0 };
    char text[] = "GET /keep HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";

    CHECK(http_parse(text, strlen(text), HTTP_REQUEST, &h, &err) > 0);
    http_head_keep(&h, &a);
    memset(text, '#', sizeof(text));
    CHECK(str_is(h.target, "/keep"));
    CHECK_FIELD("x", "y");
    arena_free(&a);
}

TEST(every_status_of_ours_has_a_reason)
{
    for (int code = 1; code < ERR_CODES; code++)
        if (!strcmp(http_reason(err_status((enum err_code)code)), "Status"))
            test_fail(__FILE__, __LINE__, "%d has none", err_status((enum err_code)code));
    CHECK_STR(http_reason(200), "OK");
    CHECK_STR(http_reason(799), "Status");
}

TEST(the_settings_hold_their_own_defaults)
{
    for (const struct setting *s = http_settings; s->name; s++)
        if (*s->value < s->min || *s->value > s->max || strncmp(s->name, "http.", 5))
            test_fail(__FILE__, __LINE__, "%s is %lld", s->name, (long long)*s->value);
    CHECK(http_limits.header_count <= HTTP_FIELDS);
}
