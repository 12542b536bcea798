/* fuzz_codec.c - the small codecs: percent, base64, UTF-8, numbers, JSON strings, HTTP dates and
 * addresses. Promise: decoding and encoding are each other's inverse where both exist. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "fuzz.h"
#include "io/sock.h"

static void check_percent(struct str s, bool plus)
{
    struct arena a = { 0 };
    struct str out;

    if (!str_percent_decode(&a, s, plus, &out)) {
        MUST(out.n <= s.n && !memchr(out.p, 0, out.n) && !out.p[out.n]);
        if (!memchr(s.p, '%', s.n) && !(plus && memchr(s.p, '+', s.n)))
            MUST(str_eq(s, out));
    }
    arena_free(&a);
}

static void check_base64(struct str s)
{
    char *text = fuzz_copy("", 0), *bytes;
    size_t len = base64_encoded_len(s.n);
    ssize_t n;

    free(text);
    text = malloc(len + 1);
    bytes = malloc(s.n / 4 * 3 + 3);
    MUST(text && bytes);
    n = base64_decode(s, bytes);
    if (n >= 0) { /* strict: there is one way to write these bytes, and this was it */
        char *again = malloc(base64_encoded_len((size_t)n) + 1);

        MUST(again);
        MUST((size_t)n <= s.n / 4 * 3);
        MUST(base64_encode(bytes, (size_t)n, again) == s.n);
        MUST(!memcmp(again, s.p, s.n));
        free(again);
    }
    free(bytes);
    bytes = malloc(len / 4 * 3 + 1);
    MUST(bytes);
    MUST(base64_encode(s.p, s.n, text) == len);
    MUST(base64_decode((struct str){ text, len }, bytes) == (ssize_t)s.n);
    MUST(!memcmp(bytes, s.p, s.n));
    free(bytes);
    free(text);
}

static void check_utf8(struct str s)
{
    bool whole = utf8_valid(s);
    uint32_t state = 0;
    int r = 0;

    for (size_t i = 0; i < s.n && !r; i++)
        r = utf8_check(&state, s.p + i, 1);
    MUST(whole == (!r && !state));
}

static void check_json_string(struct str s)
{
    struct buf b = { 0 };
    struct err err = { 0 };
    json_t *j;

    json_put_str(&b, s);
    MUST(utf8_valid(buf_str(&b)));
    j = json_read(buf_str(&b), &err);
    if (memchr(s.p, 0, s.n))
        MUST(!j);
    else
        MUST(json_is_string(j));
    if (j && utf8_valid(s))
        MUST(str_eq(s, (struct str){ json_string_value(j), json_string_length(j) }));
    json_decref(j);
    buf_free(&b);
}

static void check_numbers(struct str s)
{
    struct buf b = { 0 };
    uint64_t u, x;
    int64_t i;

    if (!str_u64(s, &u)) {
        struct str digits = s;

        while (digits.n > 1 && digits.p[0] == '0')
            digits.p++, digits.n--;
        buf_put_u64(&b, u);
        MUST(str_eq(buf_str(&b), digits));
    }
    b.len = 0;
    if (!str_i64(s, &i) && i && s.p[0] != '0' && s.p[s.p[0] == '-'] != '0') {
        buf_put_i64(&b, i);
        MUST(str_eq(buf_str(&b), s));
    }
    if (!str_hex(s, &x) && s.n < 17) {
        char text[17];

        snprintf(text, sizeof(text), "%0*llx", (int)s.n, (unsigned long long)x);
        MUST(str_iis(s, text));
    }
    buf_free(&b);
}

static void check_places(struct str s)
{
    struct err err = { 0 };
    struct addr a, again;
    char text[128];
    int64_t sec = clock_parse_http_date(s);

    if (sec != -1) {
        clock_http_date_of(sec, text);
        MUST(str_is(s, text));
    }
    if (memchr(s.p, 0, s.n) || addr_parse(s, &a, &err))
        return;
    addr_print(&a, text, sizeof(text));
    MUST(!addr_parse(str_of(text), &again, &err));
    MUST(a.len == again.len && !memcmp(&a.sa, &again.sa, a.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str s = { copy, size };

    check_percent(s, true);
    check_percent(s, false);
    check_base64(s);
    check_utf8(s);
    check_json_string(s);
    check_numbers(s);
    check_places(s);
    free(copy);
    return 0;
}
