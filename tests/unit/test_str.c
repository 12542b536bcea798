/* test_str.c - slices, numbers, percent escapes, base64, UTF-8. */
#include "base/arena.h"
#include "test.h"

#define CHECK_SLICE(got, want)                                                                     \
    do {                                                                                           \
        struct str slice_ = (got);                                                                 \
        if (!str_is(slice_, want))                                                                 \
            test_fail(__FILE__, __LINE__, "%s is \"%.*s\", expected \"%s\"", #got,                 \
                      STR_ARG(slice_), want);                                                      \
    } while (0)

TEST(a_percent_escape_is_decoded)
{
    struct arena a = { 0 };
    struct str out;

    CHECK_INT(str_percent_decode(&a, STR("a%20b%2Fc+d"), true, &out), 0);
    CHECK_STR(out.p, "a b/c d");
    CHECK_INT(str_percent_decode(&a, STR("%4"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("%zz"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("%00"), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, STR("x%41"), true, &out), 0);
    CHECK_STR(out.p, "xA");
    arena_free(&a);
}

TEST(plus_is_a_space_only_where_a_form_says_so)
{
    struct arena a = { 0 };
    struct str out;

    CHECK_INT(str_percent_decode(&a, STR("a+b%2B"), false, &out), 0);
    CHECK_SLICE(out, "a+b+");
    CHECK_INT(str_percent_decode(&a, STR("a+b%2b"), true, &out), 0);
    CHECK_SLICE(out, "a b+");
    CHECK_INT(str_percent_decode(&a, STR(""), true, &out), 0);
    CHECK_INT(out.n, 0);
    arena_free(&a);
}

TEST(a_percent_escape_is_decoded_once_and_never_half)
{
    static const char *const bad[] = { "%", "%%", "%4", "%g0", "%0g", "a%", "%2", "%%41", "% 41" };
    struct arena a = { 0 };
    struct str out;

    CHECK_INT(str_percent_decode(&a, STR("%2541"), true, &out), 0);
    CHECK_SLICE(out, "%41");
    CHECK_INT(str_percent_decode(&a, STR("%ff%FE"), true, &out), 0);
    CHECK_SLICE(out, "\xff\xfe");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_INT(str_percent_decode(&a, str_of(bad[i]), true, &out), -1);
    CHECK_INT(str_percent_decode(&a, (struct str){ "a\0b", 3 }, true, &out), -1);
    arena_free(&a);
}

TEST(numbers_refuse_overflow_and_signs)
{
    uint64_t u;
    int64_t i;

    CHECK_INT(str_u64(STR("18446744073709551615"), &u), 0);
    CHECK(u == UINT64_MAX);
    CHECK_INT(str_u64(STR("18446744073709551616"), &u), -1);
    CHECK_INT(str_u64(STR("99999999999999999999"), &u), -1);
    CHECK_INT(str_u64(STR("+1"), &u), -1);
    CHECK_INT(str_u64(STR(""), &u), -1);
    CHECK_INT(str_i64(STR("-9223372036854775808"), &i), 0);
    CHECK(i == INT64_MIN);
    CHECK_INT(str_i64(STR("9223372036854775808"), &i), -1);
    CHECK_INT(str_i64(STR("-9223372036854775809"), &i), -1);
    CHECK_INT(str_i64(STR("9223372036854775807"), &i), 0);
    CHECK(i == INT64_MAX);
}

TEST(a_number_is_digits_and_nothing_else)
{
    static const char *const bad[] = {
        " 1", "1 ", "1x", "-", "--1", "0x10", "1e3", "1.0", "/", ":"
    };
    uint64_t u = 7;
    int64_t i = 7;

    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        CHECK_INT(str_u64(str_of(bad[k]), &u), -1);
        CHECK_INT(str_i64(str_of(bad[k]), &i), -1);
    }
    CHECK(u == 7 && i == 7);
    CHECK_INT(str_u64(STR("-1"), &u), -1);
    CHECK_INT(str_i64(STR("-0"), &i), 0);
    CHECK_INT(i, 0);
    CHECK_INT(str_u64(STR("007"), &u), 0);
    CHECK_INT(u, 7);
}

TEST(hexadecimal_takes_both_cases_and_refuses_overflow)
{
    static const char *const bad[] = { "",   "g",  "0x1",
                                       " 1", "-1", "1 ",
                                       "@",  "`",  "10000000000000000" };
    uint64_t u = 0;

    CHECK_INT(str_hex(STR("dEaDbEeF"), &u), 0);
    CHECK_INT(u, 0xdeadbeef);
    CHECK_INT(str_hex(STR("ffffffffffffffff"), &u), 0);
    CHECK(u == UINT64_MAX);
    CHECK_INT(str_hex(STR("0000000000000000000000000009"), &u), 0);
    CHECK_INT(u, 9);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_INT(str_hex(str_of(bad[i]), &u), -1);
}

TEST(a_cut_splits_at_the_first_separator_only)
{
    struct str head, tail;

    CHECK(str_cut(STR("a=b=c"), '=', &head, &tail));
    CHECK_SLICE(head, "a");
    CHECK_SLICE(tail, "b=c");
    CHECK(str_cut(STR("="), '=', &head, &tail));
    CHECK(head.n == 0 && tail.n == 0 && tail.p);
    CHECK(!str_cut(STR("abc"), '=', &head, &tail));
    CHECK_SLICE(head, "abc");
    CHECK(!tail.p && !tail.n);
    CHECK(!str_cut((struct str){ 0 }, '=', &head, &tail));
    CHECK(!head.p && !tail.p);
}

TEST(a_list_is_walked_item_by_item_trimmed)
{
    struct str rest = STR(" a ,\tb\t,, c"), item;

    CHECK(str_next(&rest, ',', &item));
    CHECK_SLICE(item, "a");
    CHECK(str_next(&rest, ',', &item));
    CHECK_SLICE(item, "b");
    CHECK(str_next(&rest, ',', &item));
    CHECK_SLICE(item, "");
    CHECK(str_next(&rest, ',', &item));
    CHECK_SLICE(item, "c");
    CHECK(!str_next(&rest, ',', &item));
    CHECK(!str_next(&rest, ',', &item));
}

TEST(an_item_is_found_whole_and_in_any_case)
{
    CHECK(str_has_item(STR("gzip, CHUNKED"), "chunked"));
    CHECK(str_has_item(STR("chunked"), "chunked"));
    CHECK(str_has_item(STR("a,, chunked ,b"), "chunked"));
    CHECK(!str_has_item(STR("xchunked, chunkedx, chun ked"), "chunked"));
    CHECK(!str_has_item(STR(""), "chunked"));
    CHECK(!str_has_item((struct str){ 0 }, "chunked"));
}

TEST(comparing_slices_never_needs_a_nul)
{
    const char raw[4] = { 'a', 'b', 'C', 'x' };
    struct str s = { raw, 3 };

    CHECK(str_is(s, "abC"));
    CHECK(!str_is(s, "abCx"));
    CHECK(!str_is(s, "ab"));
    CHECK(str_iis(s, "ABc"));
    CHECK(!str_iis(s, "ABd"));
    CHECK(str_starts(s, "ab"));
    CHECK(str_starts(s, ""));
    CHECK(!str_starts(s, "abCx"));
    CHECK(str_eq((struct str){ 0 }, STR("")));
    CHECK(str_of(NULL).n == 0);
}

TEST(trimming_takes_blanks_and_nothing_else)
{
    CHECK_SLICE(str_trim(STR("\t a b \t")), "a b");
    CHECK_SLICE(str_trim(STR("\r\na\n")), "\r\na\n");
    CHECK_INT(str_trim(STR(" \t ")).n, 0);
    CHECK_INT(str_trim((struct str){ 0 }).n, 0);
}

TEST(base64_of_every_length_comes_back)
{
    unsigned char in[64], back[64];
    char text[96];

    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 37 + 5);
    for (size_t n = 0; n <= sizeof(in); n++) {
        size_t len = base64_encode(in, n, text);

        CHECK_INT(len, base64_encoded_len(n));
        CHECK_INT(base64_decode((struct str){ text, len }, back), n);
        CHECK(!memcmp(in, back, n));
    }
    CHECK_INT(base64_encode("light w", 7, text), 12);
    CHECK(!memcmp(text, "bGlnaHQgdw==", 12));
}

TEST(base64_is_refused_unless_it_is_the_one_way_to_write_it)
{
    static const char *const bad[] = {
        "Q",        "QQ",       "QQ=",      "QQQ",     "=",       "====",  "Q===",
        "=QQQ",     "QQ=Q",     "QQ==QQ==", "QQ-_",    "QQ Q",    "QQQ\n", " QQQ",
        "QQQQ====", "QQ==\r\n", "QQQQ=",    "QQ\x80Q", "Q\xffQQ", "QR==",  "QQB=",
    };
    unsigned char out[16];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (base64_decode(str_of(bad[i]), out) != -1)
            test_fail(__FILE__, __LINE__, "\"%s\" was taken", bad[i]);
    CHECK_INT(base64_decode((struct str){ "QQ\0=", 4 }, out), -1);
    CHECK_INT(base64_decode(STR("QQ=="), out), 1);
    CHECK_INT(base64_decode(STR("QQA="), out), 2);
    CHECK_INT(base64_decode(STR("+/+/"), out), 3);
    CHECK_INT(base64_decode(STR(""), out), 0);
}

/* By RFC 3629's own table, the slow way. */
static bool reference_utf8(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = p[i], value;
        size_t more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : 9;
        static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };

        if (more > 3 || i + more >= n)
            return false;
        value = more ? c & (0x3f >> more) : c;
        for (size_t k = 1; k <= more; k++) {
            if (p[i + k] >> 6 != 2)
                return false;
            value = value << 6 | (p[i + k] & 0x3f);
        }
        if (value < least[more] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
            return false;
        i += more + 1;
    }
    return true;
}

TEST(utf8_is_judged_as_the_standard_does_for_all_first_three_bytes)
{
    unsigned char s[3];

    for (unsigned v = 0; v < 1u << 24; v += v < 0x800000 ? 257 : 1) {
        s[0] = (unsigned char)(v >> 16);
        s[1] = (unsigned char)(v >> 8);
        s[2] = (unsigned char)v;
        if (utf8_valid((struct str){ (char *)s, 3 }) != reference_utf8(s, 3))
            test_fail(__FILE__, __LINE__, "%02x %02x %02x is judged wrongly", s[0], s[1], s[2]);
    }
}

TEST(utf8_of_four_bytes_ends_at_10ffff)
{
    for (unsigned a = 0xee; a <= 0xff; a++)
        for (unsigned b = 0; b < 256; b++) {
            unsigned char s[4] = { (unsigned char)a, (unsigned char)b, 0x80, 0xbf };

            if (utf8_valid((struct str){ (char *)s, 4 }) != reference_utf8(s, 4))
                test_fail(__FILE__, __LINE__, "%02x %02x 80 bf is judged wrongly", a, b);
        }
    CHECK(utf8_valid(STR("\xf4\x8f\xbf\xbf")));
    CHECK(!utf8_valid(STR("\xf4\x90\x80\x80")));
    CHECK(!utf8_valid(STR("\xed\xa0\x80")));
    CHECK(!utf8_valid(STR("\xc0\x80")));
}

TEST(utf8_may_be_cut_anywhere_and_only_the_end_must_be_whole)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";

    for (size_t cut = 0; cut < sizeof(text); cut++) {
        uint32_t state = 0;

        CHECK_INT(utf8_check(&state, text, cut), 0);
        CHECK(!state == utf8_valid((struct str){ text, cut }));
        CHECK_INT(utf8_check(&state, text + cut, sizeof(text) - 1 - cut), 0);
        CHECK_INT(state, 0);
    }
}

TEST(utf8_remembers_a_narrowed_range_across_pieces)
{
    uint32_t state = 0;

    CHECK_INT(utf8_check(&state, "\xe0", 1), 0);
    CHECK(state != 0);
    CHECK_INT(utf8_check(&state, "\x9f", 1), -1);
    state = 0;
    CHECK_INT(utf8_check(&state, "\xed", 1), 0);
    CHECK_INT(utf8_check(&state, "\xa0", 1), -1);
    state = 0;
    CHECK_INT(utf8_check(&state, "\xf0\x90", 2), 0);
    CHECK_INT(utf8_check(&state, "\x41", 1), -1);
    CHECK(utf8_valid((struct str){ 0 }));
}

TEST(memory_is_compared_to_its_last_byte)
{
    CHECK(mem_equal_const("secret", "secret", 6));
    CHECK(!mem_equal_const("secret", "secreT", 6));
    CHECK(!mem_equal_const("Xecret", "secret", 6));
    CHECK(mem_equal_const("a", "b", 0));
}
