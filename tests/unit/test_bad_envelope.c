/* test_bad_envelope.c - streams of Connect whose envelopes, first messages or time limits are
 * wrong, said to a whole guest. */
#include "guest_rig.h"

#define TEXT "{\"process\": {\"cmd\": \"/bin/true\"}, \"stdin\": false}"
/* the same, compressed by gzip */
#define ZIPPED                                                                                     \
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV*(\xcaON-.V\xb2R\xa8VJ\xceM\x01\xd2J\xfaI\x99y"  \
    "\xfa%E\xa5\xa9J\xb5:\nJ\xc5%)\x99y@\xe1\xb4\xc4\x9c\xe2\xd4Z\x00'\x7f\x0e"                    \
    "91\x00\x00\x00"
#define N (uint32_t)(sizeof(TEXT) - 1)

static const struct envelope_row {
    const char *name;
    int flags;
    uint32_t size;
    struct str payload; /* behind such a header, unless it is bare */
    const char *word;
    bool bare, twice;
    struct str behind;
} envelopes[] = {
    { "none", .payload = STR(""), .word = "envelope", .bare = true },
    { "one_byte", .payload = STR("\0"), .word = "envelope", .bare = true },
    { "four_bytes", .payload = STR("\0\0\0\0"), .word = "envelope", .bare = true },
    { "header_without_payload", 0, 10, STR(""), "envelope" },
    { "longer_than_the_body", 0, N + 1, STR(TEXT), "envelope" },
    { "shorter_than_the_text", 0, N - 1, STR(TEXT), "envelope" },
    { "compressed", 1, N, STR(TEXT), "compressed" },
    { "compressed_indeed", 1, sizeof(ZIPPED) - 1, STR(ZIPPED), "compressed" },
    { "unknown_flag_4", 4, N, STR(TEXT), "0x04" },
    { "unknown_flag_128", 128, N, STR(TEXT), "0x80" },
    { "all_flags", 254, N, STR(TEXT), "0xfe" },
    { "two", 0, N, STR(TEXT), "more than one", .twice = true },
    { "byte_behind", 0, N, STR(TEXT), "envelope", .behind = STR("\0") },
    { "only_the_end", 2, 2, STR("{}"), "no envelope" },
    { "no_envelope_around_it", .payload = STR(TEXT), .word = "compressed", .bare = true },
    { "bare_text", .payload = STR("hello"), .word = "0x68", .bare = true },
    { "empty_message", 0, 0, STR(""), "'process' is missing" },
};

static void put_row(struct buf *b, const struct envelope_row *r)
{
    for (int i = 0; i <= r->twice; i++)
        if (r->bare)
            buf_add_str(b, r->payload);
        else
            put_envelope(b, r->flags, r->size, r->payload);
    buf_add_str(b, r->behind);
}

static const struct {
    const char *name, *method;
    bool chunked;
} ways[] = {
    { "Start-length", START, false },
    { "Start-chunks", START, true },
    { "Connect-length", CONNECT, false },
    { "Connect-chunks", CONNECT, true },
};

GUEST_ROWS(a_broken_envelope_ends_the_stream_with_an_error, envelopes, ways)
{
    AUTO(buf_free) struct buf body = { 0 }, b = { 0 };

    put_row(&body, row);
    if (other->chunked) {
        put_head(&b, "POST", other->method, STREAM CHUNKED);
        put_chunks(&b, buf_str(&body), 1);
    } else {
        put_request(&b, other->method, STREAM, buf_str(&body));
    }
    ask(buf_str(&b));
    REFUSED(KIND_STREAM, "invalid_argument", row->word);
}

static const char *const some[] = {
    "one_byte",   "header_without_payload", "longer_than_the_body",
    "compressed", "unknown_flag_4",         "no_envelope_around_it"
};
static const char *const other_streams[] = { WATCH, INPUT };

GUEST_ROWS(a_broken_envelope_ends_other_streams_too, some, other_streams)
{
    AUTO(buf_free) struct buf body = { 0 };
    const struct envelope_row *r = envelopes;

    while (strcmp(r->name, *row))
        r++;
    put_row(&body, r);
    ask_with(*other, STREAM, buf_str(&body));
    REFUSED(KIND_STREAM, "invalid_argument", r->word);
}

static const struct {
    const char *name, *message, *word;
} inputs[] = {
    { "data_first", "{\"data\":{\"input\":{\"stdin\":\"eA==\"}}}", "'start'" },
    { "start_without_process", "{\"start\":{}}", "'process' is missing" },
    { "selector_without_anything", "{\"start\":{\"process\":{}}}", "pid or a tag" },
};

GUEST_ROWS(an_input_stream_must_begin_with_its_process, inputs, test_once)
{
    ask_message(KIND_STREAM, INPUT, "", row->message);
    REFUSED(KIND_STREAM, "invalid_argument", row->word);
}

GUEST_TEST(a_message_behind_the_one_that_fails_is_not_looked_at)
{
    static const struct str start = STR("{\"start\":{\"process\":{\"pid\":4194304}}}");
    AUTO(buf_free) struct buf body = { 0 };

    put_envelope(&body, 0, (uint32_t)start.n, start);
    put_envelope(&body, 255, 9, STR(""));
    ask_with(INPUT, STREAM, buf_str(&body));
    REFUSED(KIND_STREAM, "not_found", "4194304");
}

static const char *const time_limits[] = { "abc", "-1", "1.5", "", "12345678901", "1s", "0x10" };

GUEST_ROWS(a_bad_time_limit_is_refused_and_nothing_is_started, time_limits, test_once)
{
    char line[64];

    snprintf(line, sizeof(line), "Connect-Timeout-Ms: %s\r\n", *row);
    ask_message(KIND_STREAM, START, line, TEXT);
    REFUSED(KIND_STREAM, "invalid_argument", "Connect-Timeout-Ms");
    CHECK(list_empty(&rig_guest.processes));
}

static const char *const streams[] = { START, CONNECT, WATCH, INPUT };

GUEST_ROWS(an_envelope_over_its_limit_is_refused_and_names_the_limit, streams, test_once)
{
    static const uint32_t sizes[] = { 65537, 0x7fffffff, 0xffffffff };
    int64_t before = http_limits.body_bytes;

    http_limits.body_bytes = 65536;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        AUTO(buf_free) struct buf body = { 0 };

        put_envelope(&body, 0, sizes[i], STR("{}"));
        ask_with(*row, STREAM, buf_str(&body));
        REFUSED(KIND_STREAM, "resource_exhausted", "http.body-bytes=65536");
    }
    http_limits.body_bytes = before;
}
