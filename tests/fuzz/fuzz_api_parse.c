/* fuzz_api_parse.c - filters, times, cursors and keys as clients send them. Promises: what is
 * refused says so, what is taken is text without NUL; metadata that is written as the SDKs write it
 * comes back as it was. */
#include "api/parse.h"
#include "fuzz.h"

static void check_metadata(struct arena *a, struct str text, bool twice)
{
    struct err err = { 0 };
    struct map m;
    int r = parse_metadata(a, text, twice, &m, &err);

    MUST(!r == !err.code);
    MUST(m.n <= PARSE_PAIRS_MAX);
    for (size_t i = 0; !r && i < m.n; i++)
        MUST(m.items[i].key[0] && utf8_valid(str_of(m.items[i].value)));
}

static void escape(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        buf_printf(out, "%%%02X", (unsigned char)text.p[i]);
}

/* Once as the value itself, once more as part of the whole. */
static void check_round_trip(struct arena *a, struct str value)
{
    struct buf once = { 0 }, twice = { 0 };
    struct err err = { 0 };
    struct map m;

    if (utf8_valid(value) && !memchr(value.p, 0, value.n)) {
        escape(&once, value);
        buf_puts(&twice, "k=");
        escape(&twice, buf_str(&once));
        MUST(!parse_metadata(a, buf_str(&twice), true, &m, &err));
        MUST(m.n == 1 && str_is(value, m.items[0].value));
    }
    buf_free(&once);
    buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str text = { copy, size };
    struct arena a = { 0 };
    struct err err = { 0 };
    int64_t ms = INT64_MIN;
    int r = parse_time(text, &ms, &err);

    MUST(!r == !err.code);
    MUST(r || (ms > -62200000000000 && ms < 253500000000000)); /* years 0 to 9999, and a day */
    check_metadata(&a, text, false);
    check_metadata(&a, text, true);
    if (size && size < 4096)
        check_round_trip(&a, text);
    MUST(!parse_cursor(text) || size <= 15 + 1 + 21);
    MUST(!parse_idempotency_key(text) || (size && size <= 255));
    arena_free(&a);
    free(copy);
    return 0;
}
