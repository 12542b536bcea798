/* test_bad_head.c - heads, chunks and targets that are wrong in one way each, said to a whole
 * guest: the answer says so with the documented code and names what is wrong, and the connection
 * ends where nobody could say any more what comes next on it. */
#include "guest_rig.h"

#define GET  "GET /health HTTP/1.1\r\nHost: x\r\n"
#define INIT "POST /init HTTP/1.1\r\nHost: x\r\n"

/* ---- heads that are not HTTP ---- */

struct head_row {
    const char *name;
    struct str bytes;
    const char *word;
};

static const struct head_row heads[] = {
    { "both_framings", STR(INIT "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
      "both Content-Length" },
    { "coding_gzip", STR(INIT "Transfer-Encoding: gzip\r\n\r\n"), "Transfer-Encoding" },
    { "coding_twice_in_one", STR(INIT "Transfer-Encoding: chunked, chunked\r\n\r\n"),
      "Transfer-Encoding" },
    { "coding_given_twice",
      STR(INIT "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
      "Transfer-Encoding" },
    { "coding_in_HTTP_1.0", STR("POST /init HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
      "Transfer-Encoding in HTTP/1.0" },
    { "length_twice_equal", STR(INIT "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
      "Content-Length given twice" },
    { "length_twice_different", STR(INIT "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}"),
      "Content-Length given twice" },
    { "bare_LF_everywhere", STR("GET /health HTTP/1.1\nHost: x\n\n"), "bare LF" },
    { "bare_LF_in_a_field", STR("GET /health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"), "bare LF" },
    { "CR_without_LF", STR("GET /health HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"), "CR without LF" },
    { "fold_by_space", STR(GET "A: b\r\n c\r\n\r\n"), "folded" },
    { "fold_by_tab", STR(GET "A: b\r\n\tc\r\n\r\n"), "folded" },
    { "NUL_in_a_value",
      STR(GET "A: b\0"
              "c\r\n\r\n"),
      "control character" },
    { "NUL_in_a_name", STR(GET "A\x00: b\r\n\r\n"), "bad header line" },
    { "NUL_in_the_target", STR("GET /hea\x00lth HTTP/1.1\r\nHost: x\r\n\r\n"), "target" },
    { "DEL_in_a_value", STR(GET "A: \x7f\r\n\r\n"), "control character" },
    { "space_before_the_colon", STR(GET "A : b\r\n\r\n"), "header line" },
    { "no_colon", STR(GET "Abc\r\n\r\n"), "header line" },
    { "no_name", STR(GET ": b\r\n\r\n"), "header line" },
    { "name_not_ASCII", STR(GET "\xc3\x84: b\r\n\r\n"), "header line" },
    { "host_twice", STR(GET "Host: x\r\n\r\n"), "Host given twice" },
    { "no_host", STR("GET /health HTTP/1.1\r\n\r\n"), "no Host" },
    { "no_version", STR("GET /health\r\nHost: x\r\n\r\n"), "request line" },
    { "HTTP_0.9", STR("GET /health HTTP/0.9\r\nHost: x\r\n\r\n"), "version" },
    { "HTTP_1.2", STR("GET /health HTTP/1.2\r\nHost: x\r\n\r\n"), "version" },
    { "HTTP_2", STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "version" },
    { "version_in_small_letters", STR("GET /health http/1.1\r\nHost: x\r\n\r\n"), "version" },
    { "two_spaces", STR("GET  /health HTTP/1.1\r\nHost: x\r\n\r\n"), "request line" },
    { "space_in_the_target", STR("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"), "version" },
    { "target_not_ASCII", STR("GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n"), "escaped" },
    { "no_method", STR(" /health HTTP/1.1\r\nHost: x\r\n\r\n"), "method" },
    { "empty_line_first", STR("\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"), "method" },
    { "TLS", STR("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "method" },
};

static void must_refuse_head(const char *word)
{
    hear();
    REFUSED(KIND_REST, "400", word);
    CHECK_STR(header("Connection"), "close");
    must_end();
}

GUEST_ROWS(a_head_that_is_not_HTTP_is_refused_and_the_connection_ends, heads, test_once)
{
    dial();
    say(row->bytes);
    must_refuse_head(row->word);
}

GUEST_TEST(noise_is_refused_and_the_connection_ends)
{
    char noise[256];

    for (int i = 0; i < 256; i++)
        noise[i] = (char)i;
    dial();
    say((struct str){ noise, sizeof(noise) });
    must_refuse_head("method");
}

static const char *const lengths[] = {
    "abc", "-1", "+5", "1e3", "0x5", "5 5", "5, 5", "", "99999999999999999999", "5.0", "\xd9\xa5"
};

GUEST_ROWS(a_length_that_is_no_number_is_refused_and_the_connection_ends, lengths, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_printf(&b, INIT "Content-Length: %s\r\n\r\n{}", *row);
    dial();
    say(buf_str(&b));
    must_refuse_head("Content-Length is not a number");
}

static const struct head_row *head_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (!strcmp(heads[i].name, name))
            return &heads[i];
    test_fail(__FILE__, __LINE__, "no head is called %s", name);
}

static const char *const smuggled[] = { "both_framings", "length_twice_different",
                                        "bare_LF_in_a_field" };

GUEST_ROWS(a_bad_head_behind_a_good_one_is_refused_and_nothing_behind_it_is_served, smuggled,
           test_once)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, GET "\r\n");
    buf_add_str(&b, head_named(*row)->bytes);
    put_text(&b, GET "\r\n", 3);
    dial();
    say(buf_str(&b));
    hear();
    CHECK_INT(said.status, 204);
    hear();
    REFUSED(KIND_REST, "400");
    must_end();
}

static const struct {
    const char *name;
    size_t size;
} cuts[] = { { "1", 1 }, { "2", 2 }, { "3", 3 }, { "7", 7 }, { "16", 16 } };

GUEST_ROWS(a_bad_head_is_refused_however_it_is_cut, cuts, test_once)
{
    struct str all = head_named("both_framings")->bytes;

    dial();
    for (size_t at = 0; at < all.n; at += row->size) {
        say((struct str){ all.p + at, MIN(row->size, all.n - at) });
        co_sleep(co_in(1)); /* it has seen this much and no more */
    }
    hear();
    REFUSED(KIND_REST, "400", "both Content-Length");
}

#define A10   "aaaaaaaaaa"
#define A100  A10 A10 A10 A10 A10 A10 A10 A10 A10 A10
#define A1000 A100 A100 A100 A100 A100 A100 A100 A100 A100 A100

static const struct {
    const char *name, *before, *again;
    int times;
    const char *after, *limit;
} long_heads[] = {
    { "one_long_field", GET "A: ", "a", 70000, "", "http.header-bytes" },
    { "long_fields", GET, "A: " A1000 "\r\n", 90, "\r\n", "http.header-bytes" },
    { "long_target", "GET /", "a", 70000, " HTTP/1.1\r\nHost: x\r\n\r\n", "http.header-bytes" },
    { "long_method", "", "A", 70000, "", "http.header-bytes" },
    { "many_fields", GET, "A: b\r\n", 150, "\r\n", "http.header-count" },
    { "very_many_fields", GET, "A:\r\n", 5000, "\r\n", "http.header-count" },
};

GUEST_ROWS(a_head_over_its_limit_is_431_and_names_the_limit, long_heads, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, row->before);
    put_text(&b, row->again, row->times);
    buf_puts(&b, row->after);
    dial();
    say(buf_str(&b));
    hear();
    REFUSED(KIND_REST, "431", row->limit);
    CHECK_STR(header("Connection"), "close");
}

GUEST_TEST(a_head_just_within_its_limits_is_served)
{
    AUTO(buf_free) struct buf b = { 0 }, field = { 0 };

    for (int i = 0; i < 99; i++)
        buf_printf(&b, "A%d: b\r\n", i);
    ask_head("GET", "/health", buf_cstr(&b));
    CHECK_INT(said.status, 204);
    buf_puts(&field, "A: ");
    put_text(&field, "a", 30000);
    buf_puts(&field, "\r\n");
    ask_head("GET", "/health", buf_cstr(&field));
    CHECK_INT(said.status, 204);
}

/* ---- bodies whose framing breaks ---- */

static const struct chunk_row {
    const char *name;
    struct str bytes;
} chunks[] = {
    { "no_number", STR("xyz\r\n{}\r\n0\r\n\r\n") },
    { "nothing", STR("\r\n{}\r\n0\r\n\r\n") },
    { "negative", STR("-2\r\n{}\r\n0\r\n\r\n") },
    { "prefix", STR("0x2\r\n{}\r\n0\r\n\r\n") },
    { "plus", STR("+2\r\n{}\r\n0\r\n\r\n") },
    { "space_first", STR(" 2\r\n{}\r\n0\r\n\r\n") },
    { "too_many_digits", STR("FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n") },
    { "over_63_bits", STR("8000000000000000\r\n{}\r\n") },
    { "longer_than_its_size", STR("2\r\n{}}}\r\n0\r\n\r\n") },
    { "no_line_end_behind_it", STR("2\r\n{}0\r\n\r\n") },
    { "bare_LF", STR("2\n{}\r\n0\r\n\r\n") },
    { "NUL", STR("2\x00\r\n{}\r\n0\r\n\r\n") },
};

static const struct chunk_route {
    const char *name;
    enum kind kind;
    const char *code, *target, *type;
} chunk_routes[] = {
    { "rest", KIND_REST, "400", "/init", PLAIN },
    { "unary", KIND_UNARY, "invalid_argument", STAT, PLAIN },
    { "stream", KIND_STREAM, "invalid_argument", START, STREAM },
    { "upstream", KIND_STREAM, "invalid_argument", INPUT, STREAM },
    { "upload", KIND_REST, "400", "/files?path=" NEVER_MADE, OCTET },
};

static void refuses_chunk(const struct chunk_route *r, struct str bytes)
{
    AUTO(buf_free) struct buf b = { 0 }, lines = { 0 };

    buf_printf(&lines, "%s" CHUNKED, r->type);
    put_head(&b, "POST", r->target, lines.data);
    buf_add_str(&b, bytes);
    ask(buf_str(&b));
    REFUSED(r->kind, r->code);
    must_end();
}

GUEST_ROWS(a_bad_chunk_is_refused_and_the_connection_ends, chunks, chunk_routes)
{
    refuses_chunk(other, row->bytes);
}

GUEST_ROWS(a_chunk_with_an_endless_extension_is_refused, chunk_routes, test_once)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, "2;");
    put_text(&b, "a", 5000);
    buf_puts(&b, "\r\n{}\r\n0\r\n\r\n");
    refuses_chunk(row, buf_str(&b));
}

GUEST_TEST(trailers_over_their_limit_are_431)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_head(&b, "POST", "/init", PLAIN CHUNKED);
    buf_puts(&b, "2\r\n{}\r\n0\r\n");
    for (int i = 0; i < 20; i++) {
        buf_puts(&b, "T: ");
        put_text(&b, "t", 1000);
        buf_puts(&b, "\r\n");
    }
    buf_puts(&b, "\r\n");
    ask(buf_str(&b));
    REFUSED(KIND_REST, "431", "trailers");
}

GUEST_TEST(chunks_with_extensions_and_trailers_are_fine)
{
    AUTO(buf_free) struct buf b = { 0 };

    put_head(&b, "POST", "/init", PLAIN CHUNKED);
    buf_puts(&b, "1;a=b\r\n{\r\n01\r\n}\r\n0\r\nT: t\r\n\r\n");
    ask(buf_str(&b));
    CHECK_INT(said.status, 204);
}

/* ---- targets and methods ---- */

static const struct {
    const char *path, *method;
} routes[] = {
    { "/health", "GET" },
    { "/metrics", "GET" },
    { "/envs", "GET" },
    { "/init", "POST" },
    { "/files/compose", "POST" },
    { "/process.Process/List", "POST" },
    { "/process.Process/Start", "POST" },
    { "/process.Process/Connect", "POST" },
    { "/process.Process/Update", "POST" },
    { "/process.Process/SendInput", "POST" },
    { "/process.Process/StreamInput", "POST" },
    { "/process.Process/SendSignal", "POST" },
    { "/process.Process/CloseStdin", "POST" },
    { "/filesystem.Filesystem/Stat", "POST" },
    { "/filesystem.Filesystem/MakeDir", "POST" },
    { "/filesystem.Filesystem/Move", "POST" },
    { "/filesystem.Filesystem/ListDir", "POST" },
    { "/filesystem.Filesystem/Remove", "POST" },
    { "/filesystem.Filesystem/WatchDir", "POST" },
    { "/filesystem.Filesystem/CreateWatcher", "POST" },
    { "/filesystem.Filesystem/GetWatcherEvents", "POST" },
    { "/filesystem.Filesystem/RemoveWatcher", "POST" },
};

GUEST_ROWS(a_wrong_method_is_405, routes, test_once)
{
    static const char *const methods[] = { "GET",   "POST",    "PUT", "DELETE", "PATCH",
                                           "TRACE", "CONNECT", "get", "X" };

    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (!strcmp(methods[i], row->method))
            continue;
        ask_head(methods[i], row->path, "");
        REFUSED(KIND_REST, "405", methods[i]);
        CHECK(header("Allow") && strstr(header("Allow"), row->method));
    }
}

static const char *const unknown_paths[] = {
    "/",
    "/nothing",
    "/health/",
    "//health",
    "/Health",
    "/health%2f",
    "/files/",
    "/file",
    "/init/x",
    "/process.Process",
    "/process.Process/",
    "/process.Process/Nothing",
    "/process.process/List",
    "/filesystem.Filesystem/Stat/x",
    "/..",
    "/%2e%2e/health",
    /* a bad escape is no path of ours either */
    "/health%",
    "/health%2",
    "/health%zz",
    "/%00",
    "/health%0",
    "/%u0041",
};

GUEST_ROWS(an_unknown_path_is_404, unknown_paths, test_once)
{
    ask_head("GET", *row, "");
    REFUSED(KIND_REST, "404");
    ask_head("POST", *row, "");
    REFUSED(KIND_REST, "404");
}

GUEST_TEST(a_long_unknown_path_is_404)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_putc(&b, '/');
    put_text(&b, "a", 3000);
    ask_head("GET", b.data, "");
    REFUSED(KIND_REST, "404");
    ask_head("POST", b.data, "");
    REFUSED(KIND_REST, "404");
}

static const char *const no_paths[] = { "health", "*", "http://guest/health", "guest:80" };

GUEST_ROWS(a_target_that_is_no_path_is_400, no_paths, test_once)
{
    ask_head("GET", *row, "");
    REFUSED(KIND_REST, "400", "target");
}

static const char *const bad_escapes[] = {
    "%", "%2", "%zz", "%00", "/etc/passwd%00.txt", "%u0041"
};
static const char *const parameters[] = { "path", "username" };

GUEST_ROWS(a_bad_escape_in_the_query_is_400_and_names_the_parameter, bad_escapes, parameters)
{
    char target[128], quoted[32];

    snprintf(target, sizeof(target), "/files?%s=%s", *other, *row);
    snprintf(quoted, sizeof(quoted), "'%s'", *other);
    ask_head("GET", target, "");
    REFUSED(KIND_REST, "400", quoted, "escape");
    ask_with(target, OCTET, STR(""));
    REFUSED(KIND_REST, "400", quoted, "escape");
}
