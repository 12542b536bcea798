/* test_url.c - URLs that strangers write: one reading, or none. */
#include "io/url.h"

#include "test.h"

static struct arena arena;

static const char *parse(const char *text, struct url *u)
{
    static char out[512];
    struct err err = { 0 };

    if (url_parse(str_of(text), &arena, u, &err)) {
        CHECK_INT(err.code, ERR_INVALID);
        snprintf(out, sizeof(out), "%s", err.msg);
        return out;
    }
    snprintf(out, sizeof(out), "%s|%s%s|%u|%.*s", u->https ? "https" : "http", u->host,
             u->literal ? "!" : "", u->port, STR_ARG(u->target));
    return out;
}

static void expect(const char *text, const char *want)
{
    struct url u;

    CHECK_STR(parse(text, &u), want);
    arena_reset(&arena);
}

TEST(parts_of_a_url_are_found)
{
    expect("https://example.org", "https|example.org|443|/");
    expect("HTTP://Example.ORG:8080/a/b?c=d#e", "http|example.org|8080|/a/b?c=d");
    expect("https://example.org?x=/y", "https|example.org|443|/?x=/y");
    expect("https://example.org./x", "https|example.org|443|/x");
    expect("http://example.org:/x", "http|example.org|80|/x");
    expect("http://192.0.2.1/x", "http|192.0.2.1!|80|/x");
    expect("http://[2001:DB8::1]:81/", "http|2001:db8::1!|81|/");
    expect("http://a_b-c.example/x", "http|a_b-c.example|80|/x");
    expect("http://1.2.3.4.example/", "http|1.2.3.4.example|80|/");
    expect("http://0xff.example/", "http|0xff.example|80|/");
}

TEST(what_no_request_line_may_hold_is_escaped)
{
    expect("http://h/a b\xc3\xa4<>\"{}|\\^`%41",
           "http|h|80|/a%20b%C3%A4%3C%3E%22%7B%7D%7C%5C%5E%60%41");
    expect("http://h/?q=a b", "http|h|80|/?q=a%20b");
}

TEST(other_spellings_of_addresses_are_refused)
{
    static const char *const hosts[] = {
        "2130706433",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.5",
        "127.0.0.01",
        "256.256.256.256",
        "1.2.3.0x4",
        "0x",
        "1.2.3.4.",
        "0xffffffffffffffffffffff",
        "127.0.0.0x1",
        "x.1",
    };
    char text[128];
    struct url u;

    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        snprintf(text, sizeof(text), "http://%s/", hosts[i]);
        if (!strcmp(hosts[i], "1.2.3.4.")) /* a whole name's dot: the address itself */
            CHECK_STR(parse(text, &u), "http|1.2.3.4!|80|/");
        else
            CHECK_STR(parse(text, &u),
                      "the URL has an address that is not four decimal numbers from 0 to 255");
    }
    arena_reset(&arena);
}

TEST(what_two_programs_read_differently_is_refused)
{
    static const char *const texts[] = {
        "",
        "example.org",
        "//example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "http:/example.org",
        "http:example.org",
        "http://",
        "http:///x",
        "http://exa mple.org/",
        "http://example.org\\@127.0.0.1/",
        "http://a@b@c/",
        "http://ex%61mple.org/",
        "http://ex\xc3\xa4mple.org/",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:080000/",
        "http://example.org:80:81/",
        "http://example.org:+80/",
        "http://[::1/",
        "http://[127.0.0.1]/",
        "http://[::1%25lo]/",
        "http://[::1]x/",
        "http://::1/",
        "http://.example.org/",
        "http://a..b/",
        "http://0x7f../",
        "http://127.0.0.1../",
        "http://./",
        "http://h/\n",
        "http://h\t/",
        "http://a%3ab:c@h/%zz\x7f",
        "http://u%zz@h/",
        "http://u%3a:p@h/",
        " http://h/",
    };
    struct url u;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (strncmp(parse(texts[i], &u), "the URL ", 8))
            CHECK_STR(texts[i], "refused");
    arena_reset(&arena);
}

TEST(long_ones_are_refused)
{
    static char text[URL_MAX + 64] = "http://";
    struct url u;

    memset(text + 7, 'a', 64);
    CHECK(strstr(parse(text, &u), "63 bytes"));
    for (int i = 0; i < 10; i++)
        text[7 + 60 * i + 30] = '.';
    memset(text + 7 + 64, 'a', 250);
    for (int i = 7; i < 320; i += 50)
        text[i + 20] = '.';
    CHECK(strstr(parse(text, &u), "253 bytes"));
    memset(text + 7, 'a', URL_MAX);
    memcpy(text + 7, "h/", 2);
    CHECK(strstr(parse(text, &u), "8192"));
    arena_reset(&arena);
}

TEST(a_login_is_decoded_and_told_apart_from_the_host)
{
    struct url u;

    CHECK_STR(parse("https://me%40x:s%2Fc:r@h/", &u), "https|h|443|/");
    CHECK(str_is(u.user, "me@x") && str_is(u.password, "s/c:r"));
    parse("https://me@h/", &u);
    CHECK(str_is(u.user, "me") && u.password.n == 0);
    parse("https://h/a@b", &u);
    CHECK(!u.user.p);
    arena_reset(&arena);
}

static void join(const char *base, const char *location, const char *want)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct url u, next;
    struct err err = { 0 };

    CHECK_INT(url_parse(str_of(base), &arena, &u, &err), 0);
    if (url_join(&u, str_of(location), &arena, &next, &err)) {
        buf_puts(&got, "refused");
    } else {
        url_origin(&next, &got);
        buf_add_str(&got, next.target);
    }
    CHECK_STR(buf_cstr(&got), want);
    arena_reset(&arena);
}

TEST(a_location_is_read_in_the_light_of_where_it_came_from)
{
    join("http://h:81/a/b?c", "d", "http://h:81/a/d");
    join("http://h:81/a/b?c", "/d?e#f", "http://h:81/d?e");
    join("http://h:81/a/b?c", "?e", "http://h:81/a/b?e");
    join("http://h:81/a/b/", "../../../x/./y/..", "http://h:81/x/");
    join("http://h/a", "//i/x", "http://i/x");
    join("https://h/a", "//i:444/x", "https://i:444/x");
    join("https://h/a", "http://[::1]:80/", "http://[::1]/");
    join("https://h/a", "javascript:x", "refused");
    join("https://h/a", "", "refused");
    join("https://h/a", "http://127.1/", "refused");
    join("https://h/a", "x\r\ny: z", "refused");
}

TEST(a_login_goes_along_within_a_host_only)
{
    struct url u, next;
    struct err err = { 0 };

    parse("https://me:secret@h/a", &u);
    CHECK_INT(url_join(&u, STR("/b"), &arena, &next, &err), 0);
    CHECK(next.user.p && url_same_origin(&u, &next));
    CHECK_INT(url_join(&u, STR("//i/b"), &arena, &next, &err), 0);
    CHECK(!next.user.p && !url_same_origin(&u, &next));
    CHECK_INT(url_join(&u, STR("https://h/b"), &arena, &next, &err), 0);
    CHECK(!next.user.p && url_same_origin(&u, &next));
    arena_free(&arena);
}
