/* test_bad_upload.c - forms, uploads, downloads and users that cannot be, said to a whole guest:
 * the answer names what is wrong, and no file is left behind. */
#include "guest_rig.h"

/* ---- forms ---- */

#define MARK              "xxBOUNDARYxx"
#define MULTIPART         "Content-Type: multipart/form-data; boundary=" MARK "\r\n"
#define LAST              "--" MARK "--\r\n"
#define PART(disposition) "--" MARK "\r\nContent-Disposition: " disposition "\r\n\r\ndata\r\n"
#define NAMED(name)       "form-data; name=\"file\"; filename=\"" name "\""

/* "{}" is the case's folder; `again` stands at the "*". */
static const struct {
    const char *name;
    struct str body;
    const char *word;
    const char *again;
    int times;
} forms[] = {
    { "empty", STR(""), "closing boundary" },
    { "no_part", STR(LAST), "no part named 'file'" },
    { "other_name", STR(PART("form-data; name=\"other\"; filename=\"f\"") LAST),
      "no part named 'file'" },
    { "no_close", STR(PART(NAMED("{}/f"))), "closing boundary" },
    { "cut_in_the_mark", STR(PART(NAMED("{}/f")) "--xxBOUN"), "closing boundary" },
    { "cut_in_the_head", STR("--" MARK "\r\nContent-Dispo"), "closing boundary" },
    { "cut_behind_the_head",
      STR("--" MARK "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"),
      "closing boundary" },
    { "other_boundary",
      STR("--other\r\nContent-Disposition: " NAMED("{}/f") "\r\n\r\ndata\r\n--" MARK),
      "closing boundary" },
    { "junk_behind_the_mark", STR("--" MARK "junk\r\n" LAST), "no part named 'file'" },
    { "no_disposition", STR("--" MARK "\r\nA: b\r\n\r\nx\r\n" LAST), "name" },
    { "no_head", STR("--" MARK "\r\n\r\nx\r\n" LAST), "name" },
    { "disposition_of_another_kind", STR(PART("attachment; name=\"file\"; filename=\"f\"") LAST),
      "name" },
    { "no_name", STR(PART("form-data; filename=\"f\"") LAST), "name" },
    { "no_filename", STR(PART("form-data; name=\"file\"") LAST), "filename" },
    { "empty_filename", STR(PART(NAMED("")) LAST), "filename" },
    { "filename_is_a_directory", STR(PART(NAMED("{}/")) LAST), "directory" },
    { "filename_is_dots", STR(PART(NAMED("{}/..")) LAST), "directory" },
    { "filename_too_long", STR(PART(NAMED("{}/*")) LAST), "255", "n", 256 },
    { "path_too_long", STR(PART(NAMED("{}/*f")) LAST), "name", "d/", 2400 },
    { "one_path_twice", STR(PART(NAMED("{}/f")) PART(NAMED("{}/f")) LAST), "two parts" },
    { "folded_head",
      STR("--" MARK "\r\nContent-Disposition: form-data;\r\n name=\"file\"\r\n\r\n" LAST),
      "folded" },
    { "bare_LF_in_the_head",
      STR("--" MARK "\r\nContent-Disposition: form-data; name=\"file\"\nA: b\r\n\r\n" LAST),
      "bare LF" },
    { "NUL_in_the_filename", STR(PART(NAMED("{}/a\0b")) LAST), "control character" },
    { "endless_head", STR("--" MARK "\r\nContent-Disposition: *"), "part head", "a", 100000 },
};
static const struct {
    const char *name;
    bool chunked;
} framings[] = { { "length", false }, { "chunks", true } };

static void expand(struct buf *out, struct str text, const char *again, int times)
{
    for (size_t i = 0; i < text.n; i++)
        if (i + 1 < text.n && text.p[i] == '{' && text.p[i + 1] == '}') {
            buf_puts(out, folder);
            i++;
        } else if (text.p[i] == '*' && again) {
            put_text(out, again, times);
        } else {
            buf_putc(out, text.p[i]);
        }
}

GUEST_ROWS(a_bad_form_is_refused_and_leaves_no_trace, forms, framings)
{
    AUTO(buf_free) struct buf body = { 0 }, b = { 0 };

    make_folder();
    expand(&body, row->body, row->again, row->times);
    if (other->chunked) {
        put_head(&b, "POST", "/files", MULTIPART CHUNKED);
        put_chunks(&b, buf_str(&body), 11);
    } else {
        put_request(&b, "/files", MULTIPART, buf_str(&body));
    }
    ask(buf_str(&b));
    REFUSED(KIND_REST, "400", row->word);
    /* the first of two parts was whole when the second one failed */
    CHECK_INT(entries_of(folder), strstr(row->word, "two parts") != NULL);
}

GUEST_TEST(a_part_with_too_many_fields_is_431_and_names_the_limit)
{
    AUTO(buf_free) struct buf body = { 0 };

    buf_puts(&body, "--" MARK "\r\n");
    put_text(&body, "A: b\r\n", 200);
    buf_puts(&body, "\r\nx\r\n" LAST);
    ask_with("/files", MULTIPART, buf_str(&body));
    REFUSED(KIND_REST, "431", "http.header-count", "part head");
}

#define X10 "xxxxxxxxxx"

static const char *const boundaries[] = {
    "Content-Type: multipart/form-data",
    "Content-Type: multipart/form-data; boundary=",
    "Content-Type: multipart/form-data; boundary=\"\"",
    "Content-Type: multipart/form-data; bound=x",
    "Content-Type: multipart/form-data; boundary=" X10 X10 X10 X10 X10 X10 X10 "x",
    "Content-Type: multipart/form-data; boundary=a@b",
    "Content-Type: multipart/form-data boundary=x",
};

static void upload(const char *line, struct str body)
{
    AUTO(buf_free) struct buf lines = { 0 };

    buf_printf(&lines, "%s\r\n", line);
    ask_with("/files?path=" NEVER_MADE, lines.data, body);
}

GUEST_ROWS(a_boundary_that_cannot_be_is_refused, boundaries, test_once)
{
    const char *message;

    upload(*row, STR(LAST));
    message = REFUSED(KIND_REST, "400");
    CHECK(strstr(message, "boundary") || strstr(message, "Content-Type"));
}

static const char *const other_types[] = {
    "X: no content type",
    "Content-Type:",
    "Content-Type: text/plain",
    "Content-Type: application/json",
    "Content-Type: application/connect+json",
    "Content-Type: multipart/mixed; boundary=x",
    "Content-Type: application/x-www-form-urlencoded",
    "Content-Type: application/octet-streams",
};

GUEST_ROWS(an_upload_of_another_content_type_is_400, other_types, test_once)
{
    upload(*row, STR("data"));
    REFUSED(KIND_REST, "400", "Content-Type");
}

/* ---- raw uploads ---- */

static const char *target_in(const char *path, const char *again, int times)
{
    static struct buf target;

    target.len = 0;
    buf_puts(&target, "/files?path=");
    expand(&target, str_of(path), again, times);
    return buf_cstr(&target);
}

GUEST_TEST(an_upload_of_several_files_to_one_path_is_400)
{
    make_folder();
    ask_with(target_in("{}/f", NULL, 0), MULTIPART, STR(PART(NAMED("a")) PART(NAMED("b")) LAST));
    REFUSED(KIND_REST, "400", "path");
}

static const struct {
    const char *name, *path, *word, *again;
    int times;
} no_files[] = {
    { "a_directory", "{}", "directory" },
    { "with_a_slash", "{}/f/", "directory" },
    { "below_a_file", "{}/file/f", "file" },
    { "dots", "{}/sub/..", "directory" },
    { "long_name", "{}/*", "255", "n", 256 },
    { "long_path", "{}/*f", "name", "d/", 2100 },
    { "a_device", "/dev/null", "regular" },
    { "a_pipe", "{}/pipe", "regular" },
    { "root", "/", "directory" },
};

GUEST_ROWS(a_path_that_cannot_be_a_file_is_400, no_files, test_once)
{
    char path[64];

    make_folder();
    snprintf(path, sizeof(path), "%s/file", folder);
    CHECK_INT(mknod(path, S_IFREG | 0644, 0), 0);
    snprintf(path, sizeof(path), "%s/pipe", folder);
    CHECK_INT(mkfifo(path, 0644), 0);
    snprintf(path, sizeof(path), "%s/sub", folder);
    CHECK_INT(mkdir(path, 0755), 0);
    ask_with(target_in(row->path, row->again, row->times), OCTET, STR("data"));
    REFUSED(KIND_REST, "400", row->word);
    CHECK_INT(entries_of(folder), 3);
}

static const char *const pathless[] = { "/files", "/files?path=" };

GUEST_ROWS(a_raw_upload_without_a_path_is_400, pathless, test_once)
{
    ask_with(*row, OCTET, STR("data"));
    REFUSED(KIND_REST, "400", "'path'");
}

static const struct {
    const char *name;
    struct str bytes;
} zipped[] = {
    { "none", STR("data") },
    { "cut", STR("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xed\xc3"
                 "1\t\0\0\x0c\x03"
                 "0\xad\x85J\x98\x7f*cO\x02i.UUUU_") },
    { "bad_sum", STR("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xab\0\0\0\0\0\0\0\0\0\0") },
    { "more", STR("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xab\0\0\x83\x16\xdc\x8c\x01\0\0\0y") },
    { "empty", STR("") },
};

GUEST_ROWS(a_raw_upload_that_is_not_the_gzip_it_claims_leaves_no_file, zipped, test_once)
{
    make_folder();
    ask_with(target_in("{}/f", NULL, 0), OCTET "Content-Encoding: gzip\r\n", row->bytes);
    REFUSED(KIND_REST, "400", "gzip");
    CHECK_INT(entries_of(folder), 0);
}

static const struct {
    const char *name, *lines, *again;
    int times;
} metadata[] = {
    { "no_key", "X-Metadata-: x\r\n", NULL, 0 },
    { "long_key", "X-Metadata-*: x\r\n", "k", 247 },
    { "long_value", "X-Metadata-a: *\r\n", "v", 4096 },
    { "much_together", "X-Metadata-a: *\r\nX-Metadata-b: *\r\n", "v", 2100 },
    { "not_ASCII", "X-Metadata-a: \xe4\r\n", NULL, 0 },
    { "tab", "X-Metadata-a: b\tc\r\n", NULL, 0 },
};
static const char *const bodies[] = { "data", "" };

GUEST_ROWS(metadata_that_cannot_be_is_400_and_leaves_no_file, metadata, bodies)
{
    AUTO(buf_free) struct buf lines = { 0 };

    make_folder();
    buf_puts(&lines, OCTET);
    expand(&lines, str_of(row->lines), row->again, row->times);
    ask_with(target_in("{}/f", NULL, 0), lines.data, str_of(*other));
    /* the message shows no more than the key */
    CHECK(!strstr(REFUSED(KIND_REST, "400", "X-Metadata"), "vvvv"));
    CHECK_INT(entries_of(folder), 0);
}

/* ---- downloads ---- */

static const struct {
    const char *name, *path, *status, *word, *again;
    int times;
} downloads[] = {
    { "missing", "/no/such/file", "404", "/no/such/file" },
    { "directory", "/", "400", "directory" },
    { "device", "/dev/null", "400", "regular" },
    { "below_a_file", "/etc/passwd/x", "400", "/etc/passwd/x" },
    { "long_name", "/*", "400", "name", "n", 300 },
    { "long_path", "/*", "400", "name", "d/", 2500 },
    { "empty", "", "400", "directory" },
};

GUEST_ROWS(a_download_of_what_is_no_file_says_so, downloads, test_once)
{
    ask_head("GET", target_in(row->path, row->again, row->times), "");
    REFUSED(KIND_REST, row->status, row->word);
}

static const char *const accepts[] = { "identity;q=0", "*;q=0", "br, identity;q=0",
                                       "gzip;q=0, identity;q=0", "identity;q=0.000" };

GUEST_ROWS(a_download_that_accepts_nothing_is_406, accepts, test_once)
{
    char line[64];

    snprintf(line, sizeof(line), "Accept-Encoding: %s\r\n", *row);
    ask_head("GET", "/files?path=/etc/passwd", line);
    REFUSED(KIND_REST, "406", "Accept-Encoding");
}

static const struct {
    const char *value;
    int status;
} ranges[] = {
    { "bytes=999999999-", 416 },
    { "bytes=-0", 416 },
    { "bytes=5-2", 200 },
    { "bytes=a-b", 200 },
    { "bytes=", 200 },
    { "bytes=-", 200 },
    { "lines=1-2", 200 },
    { "bytes=0-1,3-4", 200 },
    { "bytes=18446744073709551616-", 200 },
    { "bytes=0-18446744073709551616", 200 },
};

GUEST_ROWS(a_range_that_makes_no_sense_is_passed_over_or_416, ranges, test_once)
{
    static char whole[65536], line[80], want[64];
    AUTO(closep) int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, whole, sizeof(whole));

    CHECK(n > 0 && n < (ssize_t)sizeof(whole));
    snprintf(line, sizeof(line), "Range: %s\r\n", row->value);
    ask_head("GET", "/files?path=/etc/passwd", line);
    CHECK_INT(said.status, row->status);
    if (row->status == 200) {
        CHECK_INT(said.body.len, n);
        CHECK(!memcmp(said.body.data, whole, (size_t)n));
    } else {
        snprintf(want, sizeof(want), "bytes */%zd", n);
        CHECK_STR(header("Content-Range"), want);
    }
}

/* ---- users ---- */

static const struct user_row {
    const char *name, *value, *word;
} users[] = {
    { "unknown", "bm8tc3VjaC11c2VyOg==", "no-such-user" },
    { "no_colon", "bm8tc3VjaC11c2Vy", "no-such-user" },
    { "password", "bm8tc3VjaC11c2VyOnBhc3N3b3Jk", "no-such-user" },
    { "line_feed", "cm9vdAo6", "user" },   /* "root\n:" */
    { "path", "Li4vcm9vdDo=", "../root" }, /* "../root:" */
    { "unicode", "w7xuw686", "user" },     /* "\xc3\xbcn\xc3\xaf:" */
    { "NUL", "cm8Ab3Q6", "Basic" },        /* "ro\0ot:" */
    { "not_base64", "!!!!", "Basic" },
    { "no_padding", "cm9vdDo", "Basic" },
    { "much_padding", "cm9vdDo==", "Basic" },
    { "space", "cm9v dDo=", "Basic" },
};

static const struct {
    const char *name, *target, *message;
    enum kind kind;
} user_ways[] = {
    { "Stat", STAT, "{\"path\":\"/\"}", KIND_UNARY },
    { "Start", START, "{\"process\":{\"cmd\":\"/bin/true\"},\"stdin\":false}", KIND_STREAM },
    { "WatchDir", WATCH, "{\"path\":\"/tmp\"}", KIND_STREAM },
    { "download", "/files?path=/etc/passwd", NULL, KIND_REST },
    { "upload", "/files?path=" NEVER_MADE, "", KIND_REST },
};

static void refuses_user(const typeof(*user_ways) *way, const char *line, const char *word)
{
    AUTO(buf_free) struct buf lines = { 0 };

    if (way->kind != KIND_REST) {
        ask_message(way->kind, way->target, line, way->message);
    } else if (!way->message) {
        ask_head("GET", way->target, line);
    } else {
        buf_printf(&lines, OCTET "%s", line);
        ask_with(way->target, lines.data, STR(""));
    }
    REFUSED(way->kind, way->kind == KIND_REST ? "401" : "unauthenticated", word);
}

GUEST_ROWS(a_user_that_cannot_be_is_unauthenticated, users, user_ways)
{
    char line[128];

    snprintf(line, sizeof(line), "Authorization: Basic %s\r\n", row->value);
    refuses_user(other, line, row->word);
}

GUEST_ROWS(a_user_with_a_long_name_is_unauthenticated, user_ways, test_once)
{
    AUTO(buf_free) struct buf line = { 0 };

    buf_puts(&line, "Authorization: Basic ");
    put_text(&line, "eHh4", 1666); /* "xxx" each */
    buf_puts(&line, "eHg6\r\n");
    refuses_user(row, line.data, "user");
}

static const char *const usernames[] = { "no-such-user", "0x0",     "-1",
                                         "99999999999",  "root%0a", "%20root" };

GUEST_ROWS(an_unknown_username_in_the_URL_is_401, usernames, test_once)
{
    char target[80];

    snprintf(target, sizeof(target), "/files?path=/etc/passwd&username=%s", *row);
    ask_head("GET", target, "");
    REFUSED(KIND_REST, "401", "user");
}
