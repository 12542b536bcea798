/* test_bad_json.c - messages that are no JSON, not the right one, not as they were coded, or too
 * large, said to a whole guest by every way a message comes in. */
#include "guest_rig.h"
#include "io/gzip.h"

/* ---- JSON that is none, or not the right one ---- */

static const struct {
    const char *name;
    struct str bytes;
} texts[] = {
    { "null", STR("null") },
    { "true", STR("true") },
    { "number", STR("1") },
    { "string", STR("\"x\"") },
    { "array", STR("[]") },
    { "array_of_objects", STR("[{}]") },
    { "cut", STR("{\"path\":\"/\"") },
    { "brace", STR("{") },
    { "comma", STR("{\"path\":\"/\",}") },
    { "single_quotes", STR("{'path':'/'}") },
    { "no_quotes", STR("{path:1}") },
    { "two_values", STR("{}{}") },
    { "trailing", STR("{} x") },
    { "only_spaces", STR("   ") },
    { "NUL", STR("{\"path\":\"/\"}\0") },
    { "NUL_alone", STR("\0") },
    { "comment", STR("{\"path\":\"/\"} // x") },
    { "byte_order_mark", STR("\xef\xbb\xbf{}") },
    { "UTF_16", STR("\xff\xfe{\x00\"\x00p\0"
                    "a\x00t\x00h\x00\"\x00:\x00\"\x00/\x00\"\x00}\0") },
    { "invalid_UTF_8", STR("{\"path\":\"\xff\xfe\"}") },
    { "overlong_UTF_8", STR("{\"path\":\"\xc0\xaf\"}") },
    { "lone_surrogate", STR("{\"path\":\"\\ud800\"}") },
    { "escaped_NUL", STR("{\"path\":\"a\\u0000b\"}") },
    { "duplicate", STR("{\"path\":\"/\",\"path\":\"/tmp\"}") },
    { "control_character", STR("{\"path\":\"a\nb\"}") },
    { "NaN", STR("{\"depth\":NaN}") },
    { "huge_number", STR("{\"depth\":1e999}") },
    { "bad_escape", STR("{\"path\":\"\\x41\"}") },
    { "form", STR("path=/") },
    { "HTML", STR("<html></html>") },
    { "protobuf", STR("\n\x04/tmp") },
};

static const struct json_route {
    const char *name;
    enum kind kind;
    const char *code, *path;
} json_routes[] = {
    { "init", KIND_REST, "400", "/init" },
    { "compose", KIND_REST, "400", "/files/compose" },
    { "Stat", KIND_UNARY, "invalid_argument", "/filesystem.Filesystem/Stat" },
    { "ListDir", KIND_UNARY, "invalid_argument", "/filesystem.Filesystem/ListDir" },
    { "CreateWatcher", KIND_UNARY, "invalid_argument", "/filesystem.Filesystem/CreateWatcher" },
    { "SendSignal", KIND_UNARY, "invalid_argument", "/process.Process/SendSignal" },
    { "SendInput", KIND_UNARY, "invalid_argument", "/process.Process/SendInput" },
    { "Start", KIND_STREAM, "invalid_argument", "/process.Process/Start" },
    { "Connect", KIND_STREAM, "invalid_argument", "/process.Process/Connect" },
    { "WatchDir", KIND_STREAM, "invalid_argument", "/filesystem.Filesystem/WatchDir" },
    { "StreamInput", KIND_STREAM, "invalid_argument", "/process.Process/StreamInput" },
};

static void refuses_text(const struct json_route *r, struct str text)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *message;

    put_message(&b, r->kind, r->path, "", text);
    ask(buf_str(&b));
    message = REFUSED(r->kind, r->code);
    if (!strstr(message, "JSON") && !strstr(message, "is missing"))
        test_fail(__FILE__, __LINE__, "the message is \"%s\"", message);
}

GUEST_ROWS(what_is_not_a_JSON_object_is_refused, texts, json_routes)
{
    refuses_text(other, row->bytes);
}

static const struct {
    const char *name, *before, *again;
    int times;
    const char *again_too, *after;
} long_texts[] = {
    { "long_number", "{\"depth\":", "9", 400, "", "}" },
    { "deep_arrays", "", "[", 100000, "", "" },
    { "deep_objects", "", "{\"a\":", 50000, "", "" },
    { "deep_and_closed", "{\"x\":", "[", 5000, "]", "}" },
};

GUEST_ROWS(what_is_long_and_no_JSON_object_is_refused, long_texts, json_routes)
{
    AUTO(buf_free) struct buf text = { 0 };

    buf_puts(&text, row->before);
    put_text(&text, row->again, row->times);
    put_text(&text, row->again_too, row->times);
    buf_puts(&text, row->after);
    refuses_text(other, buf_str(&text));
}

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* As protobuf's JSON demands. What is missing is told, not what is too much. */
GUEST_ROWS(an_unknown_field_is_passed_over, json_routes, test_once)
{
    if (!strcmp(row->path, "/init")) {
        ask_with("/init", PLAIN, STR("{\"noSuchField\":[1]}"));
        CHECK_INT(said.status, 204);
        return;
    }
    ask_message(row->kind, row->path, "",
                "{\"noSuchField\":{\"a\":[1]},\"path\":\"/no/such/place\"}");
    CHECK(!strstr(buf_cstr(&said.body), "noSuchField"));
    if (ends_with(row->path, "Stat") || ends_with(row->path, "ListDir") ||
        ends_with(row->path, "CreateWatcher") || ends_with(row->path, "WatchDir"))
        REFUSED(row->kind, "not_found", "/no/such/place");
    else if (strcmp(row->path, INPUT)) /* which takes a message that says nothing */
        REFUSED(row->kind, row->code, "is missing");
}

static const struct {
    const char *path, *field;
} required[] = {
    { "/files/compose", "source_paths" },
    { "/process.Process/Update", "process" },
    { "/process.Process/SendInput", "process" },
    { "/process.Process/SendSignal", "process" },
    { "/process.Process/CloseStdin", "process" },
    { "/filesystem.Filesystem/GetWatcherEvents", "watcherId" },
    { "/filesystem.Filesystem/RemoveWatcher", "watcherId" },
};
static const struct {
    const char *name;
    struct str body; /* .p NULL: none, and no length either */
} empties[] = { { "none", { 0 } }, { "empty", STR("") }, { "object", STR("{}") } };

GUEST_ROWS(an_empty_body_is_told_which_field_it_lacks, empties, required)
{
    bool rest = !strcmp(other->path, "/files/compose");
    char word[64];

    snprintf(word, sizeof(word), "'%s' is missing", other->field);
    if (row->body.p)
        ask_with(other->path, PLAIN, row->body);
    else
        ask_head("POST", other->path, PLAIN);
    REFUSED(rest ? KIND_REST : KIND_UNARY, rest ? "400" : "invalid_argument", word);
}

/* ---- codings ---- */

#define ZIPPED "Content-Encoding: gzip\r\n"

static const struct {
    const char *name;
    struct str bytes;
} zipped[] = {
    { "not_gzip", STR("{}") },
    { "cut", STR("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV*H,\xc9P\xb2R\xd2W\xaa\xad\x1e"
                 "e\x8f\xb2G\xd9\xa3\xec") },
    { "header_only", STR("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03") },
    { "bad_sum",
      STR("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\xae\x05\x00\x00\x00\x00\x00\x00\x00\x00\0") },
    { "more_behind", STR("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\xae\x05\0"
                         "C\xbf\xa6\xa3\x02\x00\x00\x00x") },
    { "empty", STR("") },
};

GUEST_ROWS(a_body_that_is_not_the_gzip_it_claims_is_refused, zipped, test_once)
{
    ask_with("/init", PLAIN ZIPPED, row->bytes);
    REFUSED(KIND_REST, "400", "gzip");
    ask_with(STAT, PLAIN ZIPPED, row->bytes);
    REFUSED(KIND_UNARY, "invalid_argument", "gzip");
}

static const char *const codings[] = { "br", "deflate", "gzip, gzip", "zstd", "x-gzip", "nothing" };

GUEST_ROWS(a_coding_that_is_not_known_is_refused, codings, test_once)
{
    char lines[128];

    snprintf(lines, sizeof(lines), PLAIN "Content-Encoding: %s\r\n", *row);
    ask_with("/init", lines, STR("{}"));
    REFUSED(KIND_REST, "400", "Content-Encoding", *row);
}

/* ---- limits ---- */

#define LIMIT "http.body-bytes=65536"

static int64_t body_bytes; /* as it was */

static void narrow(void)
{
    body_bytes = http_limits.body_bytes;
    http_limits.body_bytes = 65536;
}

static void wide(void) { http_limits.body_bytes = body_bytes; }

static const struct {
    const char *path;
    enum kind kind;
    const char *code;
} bounded[] = {
    { "/init", KIND_REST, "413" },
    { "/files/compose", KIND_REST, "413" },
    { STAT, KIND_UNARY, "resource_exhausted" },
    { "/process.Process/SendInput", KIND_UNARY, "resource_exhausted" },
};

GUEST_ROWS(a_body_over_its_limit_is_413_and_names_the_limit, bounded, test_once)
{
    AUTO(buf_free) struct buf big = { 0 }, chunks = { 0 }, huge = { 0 };

    narrow();
    buf_puts(&big, "{\"path\":\"");
    put_text(&big, "x", 100000);
    buf_puts(&big, "\"}");
    ask_with(row->path, PLAIN, buf_str(&big));
    REFUSED(row->kind, row->code, LIMIT);
    put_head(&chunks, "POST", row->path, PLAIN CHUNKED);
    put_chunks(&chunks, buf_str(&big), 999);
    ask(buf_str(&chunks));
    REFUSED(row->kind, row->code, LIMIT);
    put_head(&huge, "POST", row->path, PLAIN "Content-Length: 9223372036854775807\r\n");
    buf_putc(&huge, '{');
    ask(buf_str(&huge));
    REFUSED(row->kind, row->code, LIMIT);
    wide();
}

static int emit(void *arg, const void *p, size_t n)
{
    buf_add(arg, p, n);
    return 0;
}

/* What it costs in memory is asked end to end. */
GUEST_ROWS(a_bomb_of_gzip_ends_at_the_limit, bounded, test_once)
{
    AUTO(buf_free) struct buf bomb = { 0 }, spaces = { 0 };
    struct gzip *z = gzip_create();

    narrow();
    put_text(&spaces, "                ", 65536);
    for (int i = 0; i < 16; i++)
        CHECK_INT(gzip_write(z, buf_str(&spaces), i == 15, emit, &bomb), 0);
    gzip_destroy(z);
    ask_with(row->path, PLAIN ZIPPED, buf_str(&bomb));
    REFUSED(row->kind, row->code, LIMIT);
    wide();
}
