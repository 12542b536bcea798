/* test_api_parse.c - the small languages of the API, and E2B's network options. */
#include "api/e2b.h"
#include "api/parse.h"
#include "test.h"

static struct arena arena;

static const char *metadata(const char *text, bool twice, const char *key)
{
    struct err err = { 0 };
    struct map m;

    if (parse_metadata(&arena, str_of(text), twice, &m, &err))
        return "refused";
    return map_get(&m, key);
}

TEST(metadata_is_pairs)
{
    CHECK_STR(metadata("a=1&b=2", false, "a"), "1");
    CHECK_STR(metadata("a=1&b=2", false, "b"), "2");
    CHECK_STR(metadata("a=", false, "a"), "");
    CHECK(!metadata("", false, "a"));
    CHECK_STR(metadata("&&a=1&", false, "a"), "1");
    CHECK_STR(metadata("a=x=y", false, "a"), "x=y");
    arena_free(&arena);
}

TEST(metadata_of_the_sdks_is_decoded_twice)
{
    /* quote("a b&c=d%") is a%20b%26c%3Dd%25; urlencode() of that: */
    CHECK_STR(metadata("k%2520ey=a%2520b%2526c%253Dd%2525", true, "k ey"), "a b&c=d%");
    CHECK_STR(metadata("user=me&app=prod", true, "app"), "prod");
    CHECK_STR(metadata("a%252Bb=c%252Bd", true, "a+b"), "c+d");
    CHECK_STR(metadata("k=%25C3%25A9", true, "k"), "\xc3\xa9");
    arena_free(&arena);
}

TEST(metadata_that_is_not_pairs_is_refused)
{
    CHECK_STR(metadata("a", false, "a"), "refused");
    CHECK_STR(metadata("=1", false, "a"), "refused");
    CHECK_STR(metadata("a=%zz", false, "a"), "refused");
    CHECK_STR(metadata("a=%00", false, "a"), "refused");
    CHECK_STR(metadata("a=%ff", false, "a"), "refused");
    CHECK_STR(metadata("a=%25zz", true, "a"), "refused");
    arena_free(&arena);
}

TEST(metadata_has_a_bound_on_its_pairs)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct err err = { 0 };
    struct map m;

    for (int i = 0; i < PARSE_PAIRS_MAX; i++)
        buf_printf(&b, "k%d=v&", i);
    CHECK_INT(parse_metadata(&arena, buf_str(&b), false, &m, &err), 0);
    CHECK_INT(m.n, PARSE_PAIRS_MAX);
    buf_puts(&b, "one=more");
    CHECK_INT(parse_metadata(&arena, buf_str(&b), false, &m, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    arena_free(&arena);
}

static int64_t time_of(const char *text)
{
    struct err err = { 0 };
    int64_t ms = -2;

    return parse_time(str_of(text), &ms, &err) ? -1 : ms;
}

TEST(times_are_rfc_3339)
{
    CHECK_INT(time_of("1970-01-01T00:00:00Z"), 0);
    CHECK_INT(time_of("2026-01-02T03:04:05Z"), 1767323045000);
    CHECK_INT(time_of("2026-01-02T03:04:05.5Z"), 1767323045500);
    CHECK_INT(time_of("2026-01-02T03:04:05.123456789Z"), 1767323045123);
    CHECK_INT(time_of("2026-01-02T05:04:05+02:00"), 1767323045000);
    CHECK_INT(time_of("2026-01-01T22:04:05-05:00"), 1767323045000);
    CHECK_INT(time_of("2024-02-29T00:00:00z"), 1709164800000);
    CHECK_INT(time_of("2016-12-31T23:59:60Z"), 1483228800000);
}

TEST(what_is_no_time_is_refused)
{
    static const char *const bad[] = {
        "",
        "now",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04Z",
        "2026-13-02T03:04:05Z",
        "2026-00-02T03:04:05Z",
        "2026-02-30T03:04:05Z",
        "2026-01-00T03:04:05Z",
        "2026-01-02T24:04:05Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+0200",
        "2026-01-02T03:04:05+02:60",
        "2026-01-02T03:04:05Zx",
        "+026-01-02T03:04:05Z",
        "1767323045",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (time_of(bad[i]) != -1)
            test_fail(__FILE__, __LINE__, "\"%s\" is taken for a time", bad[i]);
}

TEST(a_cursor_is_a_time_and_an_id)
{
    CHECK(parse_cursor(STR("1767323045000.iabcdefghij0123456789")));
    CHECK(parse_cursor(STR("0.iabcdefghij0123456789")));
    CHECK(!parse_cursor(STR("")));
    CHECK(!parse_cursor(STR("1767323045000")));
    CHECK(!parse_cursor(STR(".iabcdefghij0123456789")));
    CHECK(!parse_cursor(STR("1767323045000.iABCdefghij0123456789")));
    CHECK(!parse_cursor(STR("1767323045000.iabcdefghij0123456789x")));
    CHECK(!parse_cursor(STR("-1.iabcdefghij0123456789")));
    CHECK(!parse_cursor(STR("99999999999999999.iabcdefghij0123456789")));
}

TEST(an_idempotency_key_is_short_and_plain)
{
    char longest[256];

    memset(longest, 'a', sizeof(longest));
    CHECK(parse_idempotency_key(STR("a")));
    CHECK(parse_idempotency_key(STR("0b9d7c0e-2f7a-4b62-9c1d-1b1f6d6f2b6a")));
    CHECK(parse_idempotency_key((struct str){ longest, 255 }));
    CHECK(!parse_idempotency_key((struct str){ longest, 256 }));
    CHECK(!parse_idempotency_key(STR("")));
    CHECK(!parse_idempotency_key(STR("UPPER")));
    CHECK(!parse_idempotency_key(STR("under_score")));
    CHECK(!parse_idempotency_key(STR("sp ace")));
}

/* ---- network options ---- */

static int network_of(const char *json, bool allow_internet, struct err *err)
{
    struct e2b_network n = { 0 };
    int64_t network = -1;

    *err = (struct err){ 0 };
    CHECK_INT(field_decode_text(e2b_network, FIELDS_LENIENT, str_of(json), &arena, &n, err), 0);
    if (e2b_network_of(&n, allow_internet, &network, err))
        network = -1;
    arena_free(&arena);
    return (int)network;
}

TEST(a_network_is_open_or_none)
{
    struct err err;
    int64_t network;

    CHECK_INT(e2b_network_of(NULL, true, &network, &err), 0);
    CHECK_INT(network, NETWORK_OPEN);
    CHECK_INT(e2b_network_of(NULL, false, &network, &err), 0);
    CHECK_INT(network, NETWORK_NONE);
    CHECK_INT(network_of("{}", true, &err), NETWORK_OPEN);
    CHECK_INT(network_of("{}", false, &err), NETWORK_NONE);
    CHECK_INT(network_of("{\"denyOut\":[\"0.0.0.0/0\"]}", true, &err), NETWORK_NONE);
    CHECK_INT(network_of("{\"denyOut\":[\"0.0.0.0/0\",\"::/0\"]}", true, &err), NETWORK_NONE);
    CHECK_INT(network_of("{\"denyOut\":[]}", true, &err), NETWORK_OPEN);
    CHECK_INT(network_of("{\"allowOut\":[\"0.0.0.0/0\"]}", true, &err), NETWORK_OPEN);
    CHECK_INT(network_of("{\"allowOut\":[\"0.0.0.0/0\"],\"denyOut\":[\"0.0.0.0/0\"]}", true, &err),
              NETWORK_OPEN);
    CHECK_INT(network_of("{\"egressProxy\":null,\"rules\":{},\"httpsPorts\":[]}", true, &err),
              NETWORK_OPEN);
}

TEST(what_a_network_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *json, *name;
    } bad[] = {
        { "{\"denyOut\":[\"10.0.0.0/8\"]}", "network.denyOut" },
        { "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"example.com\"]}", "network.allowOut" },
        { "{\"dnsServers\":[\"1.1.1.1\"]}", "network.dnsServers" },
        { "{\"egressProxy\":{\"address\":\"x:1\"}}", "network.egressProxy" },
        { "{\"rules\":{\"a.example\":[]}}", "network.rules" },
        { "{\"httpsPorts\":[8443]}", "network.httpsPorts" },
        { "{\"maskRequestHost\":\"localhost:${PORT}\"}", "network.maskRequestHost" },
    };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_INT(network_of(bad[i].json, true, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        if (!strstr(err.msg, bad[i].name))
            CHECK_STR(err.msg, bad[i].name);
    }
}
