/* test_remote.c - the pure parts of the commands that speak to a server: URLs, ID:PATH, ports,
 * columns, times. */
#include "cli/remote.h"

#include <stdlib.h>

#include "cli/columns.h"
#include "cli/cp.h"
#include "cli/forward.h"
#include "test.h"

static struct err err;

/* ---- URLs ---- */

static const char *url(const char *text)
{
    static char out[300];
    struct remote_url u;

    err = (struct err){ 0 };
    if (remote_parse_url(str_of(text), &u, &err))
        return NULL;
    snprintf(out, sizeof(out), "%s %.*s %.*s %u", u.tls ? "tls" : "plain", STR_ARG(u.host),
             STR_ARG(u.name), u.port);
    return out;
}

TEST(a_url_has_a_host_and_a_port)
{
    CHECK_STR(url("http://127.0.0.1:8000"), "plain 127.0.0.1:8000 127.0.0.1 8000");
    CHECK_STR(url("http://127.0.0.1:8000/"), "plain 127.0.0.1:8000 127.0.0.1 8000");
    CHECK_STR(url("https://cove.example"), "tls cove.example cove.example 443");
    CHECK_STR(url("http://[::1]:80"), "plain [::1]:80 ::1 80");
    CHECK_STR(url("http://[::1]"), "plain [::1] ::1 80");
}

TEST(what_is_no_url_is_refused)
{
    static const char *const bad[] = { "",
                                       "127.0.0.1:8000",
                                       "ftp://x",
                                       "http://",
                                       "http:///x",
                                       "http://x:0",
                                       "http://x:65536",
                                       "http://x:y",
                                       "http://x:",
                                       "http://a b",
                                       "http://a\r\nX: y",
                                       "http://user@x",
                                       "http://x/path",
                                       "http://x?y" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(!url(bad[i]));
        CHECK_INT(err.code, ERR_INVALID);
    }
}

TEST(what_is_no_id_is_not_asked_for)
{
    AUTO(buf_free) struct buf b = { 0 };
    static const char *const bad[] = { "", "../x", "a/b", "a?b", "A", "i%41", "a b" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_INT(remote_sandbox_target(bad[i], "", &b, &err), -1);
    CHECK_INT(b.len, 0);
    CHECK_INT(remote_sandbox_target("i1234", "/events", &b, &err), 0);
    CHECK_STR(b.data, "/v1/sandboxes/i1234/events");
}

TEST(what_goes_into_a_url_is_encoded)
{
    AUTO(buf_free) struct buf b = { 0 };

    remote_put_encoded(&b, "a-._~Z9 /?&=%\xc3\xa4\n");
    CHECK_STR(b.data, "a-._~Z9%20%2F%3F%26%3D%25%C3%A4%0A");
}

/* ---- cp ---- */

static const char *place(const char *text)
{
    static char out[300];
    struct cp_place p;

    err = (struct err){ 0 };
    if (cp_parse(text, &p, &err))
        return "refused";
    snprintf(out, sizeof(out), "%s|%s", p.id ? p.id : "here", p.path);
    free(p.id);
    return out;
}

TEST(an_id_before_a_colon_is_a_sandbox)
{
    CHECK_STR(place("i0123456789abcdefghij:/tmp/x"), "i0123456789abcdefghij|/tmp/x");
    CHECK_STR(place("0a1b2c3d-0000-4000-8000-000000000000:x"),
              "0a1b2c3d-0000-4000-8000-000000000000|x");
    CHECK_STR(place("i1:"), "i1|");
    CHECK_STR(place("i1:a:b"), "i1|a:b");
    CHECK_STR(place("file"), "here|file");
    CHECK_STR(place("-"), "here|-");
    CHECK_STR(place("./i1:x"), "here|./i1:x");
    CHECK_STR(place("/i1:x"), "here|/i1:x");
    CHECK_STR(place("dir/i1:x"), "here|dir/i1:x");
}

TEST(a_name_that_may_be_meant_otherwise_is_refused)
{
    CHECK_STR(place(":x"), "refused");
    CHECK_STR(place("A:x"), "refused");
    CHECK(strstr(err.msg, "./A:x"));
    CHECK_STR(place("a b:x"), "refused");
    CHECK_STR(place(""), "refused");
}

static const char *name(const char *path)
{
    static char out[64];
    struct str s = cp_name(path);

    snprintf(out, sizeof(out), "%.*s", STR_ARG(s));
    return s.p ? out : "none";
}

TEST(the_name_of_a_path_is_its_last_component)
{
    CHECK_STR(name("a"), "a");
    CHECK_STR(name("/a/b"), "b");
    CHECK_STR(name("/a/b///"), "b");
    CHECK_STR(name("a/.hidden"), ".hidden");
    CHECK_STR(name("/"), "none");
    CHECK_STR(name("."), "none");
    CHECK_STR(name(""), "none");
    CHECK_STR(name("a/."), "none");
    CHECK_STR(name("a/.."), "none");
    CHECK_STR(name("a/../"), "none");
    CHECK_STR(name("a/..."), "...");
}

TEST(names_from_inside_that_lead_elsewhere_are_refused)
{
    char longest[257];

    memset(longest, 'x', 256);
    longest[256] = 0;
    CHECK(!cp_name_safe(""));
    CHECK(!cp_name_safe("."));
    CHECK(!cp_name_safe(".."));
    CHECK(!cp_name_safe("/etc/passwd"));
    CHECK(!cp_name_safe("a/b"));
    CHECK(!cp_name_safe("../x"));
    CHECK(!cp_name_safe(longest));
    longest[255] = 0;
    CHECK(cp_name_safe(longest));
    CHECK(cp_name_safe("..."));
    CHECK(cp_name_safe("a b\n"));
}

/* ---- forward ---- */

TEST(ports_are_one_or_two_numbers)
{
    struct forward_ports p;

    CHECK_INT(forward_parse("80", &p, &err), 0);
    CHECK(p.outer == 80 && p.inner == 80);
    CHECK_INT(forward_parse("8080:80", &p, &err), 0);
    CHECK(p.outer == 8080 && p.inner == 80);
    CHECK_INT(forward_parse("0:80", &p, &err), 0);
    CHECK(p.outer == 0 && p.inner == 80);
    CHECK_INT(forward_parse("0", &p, &err), -1);
    CHECK_INT(forward_parse("80:", &p, &err), -1);
    CHECK_INT(forward_parse(":80", &p, &err), -1);
    CHECK_INT(forward_parse("1:65536", &p, &err), -1);
    CHECK_INT(forward_parse("1:2:3", &p, &err), -1);
    CHECK_INT(forward_parse("-1:2", &p, &err), -1);
}

/* ---- columns ---- */

TEST(columns_are_as_wide_as_their_widest_cell)
{
    static const char *const heads[] = { "ID", "NAME", "X", NULL };
    AUTO(columns_finish) struct columns t;
    AUTO(buf_free) struct buf b = { 0 };

    columns_init(&t, heads);
    columns_row(&t, (const char *[]){ "long one", "a", "1" });
    columns_row(&t, (const char *[]){ "b", NULL, "" });
    columns_row(&t, (const char *[]){ "\xc3\xa4\xc3\xb6", "x\033[31my\n", "2" });
    columns_write(&t, false, &b);
    CHECK_STR(b.data, "ID        NAME      X\n"
                      "long one  a         1\n"
                      "b         -         -\n"
                      "\xc3\xa4\xc3\xb6        x?[31my?  2\n");
}

TEST(colours_are_only_for_the_heads)
{
    static const char *const heads[] = { "A", NULL };
    AUTO(columns_finish) struct columns t;
    AUTO(buf_free) struct buf b = { 0 };

    columns_init(&t, heads);
    columns_row(&t, (const char *[]){ "x" });
    columns_write(&t, true, &b);
    CHECK_STR(b.data, "\033[1mA\033[m\nx\n");
}

static const char *span(int64_t seconds)
{
    static char out[16];

    columns_span(seconds, out, sizeof(out));
    return out;
}

TEST(a_span_has_one_unit)
{
    CHECK_STR(span(-5), "0s");
    CHECK_STR(span(0), "0s");
    CHECK_STR(span(59), "59s");
    CHECK_STR(span(60), "1m");
    CHECK_STR(span(3599), "59m");
    CHECK_STR(span(7200), "2h");
    CHECK_STR(span(86400 * 400), "400d");
}

TEST(times_are_read_in_utc)
{
    CHECK_INT(columns_time("1970-01-01T00:00:10Z"), 10);
    CHECK_INT(columns_time("1970-01-02T00:00:00.123456789Z"), 86400);
    CHECK_INT(columns_time("1970-01-01T00:00:10+00:00"), 10);
    CHECK_INT(columns_time("1970-01-01T00:00:10"), -1);
    CHECK_INT(columns_time("yesterday"), -1);
    CHECK_INT(columns_time(NULL), -1);
}
