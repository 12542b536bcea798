/* test_multipart.c - the streaming parser of multipart/form-data. */
#include "base/buf.h"
#include "io/multipart.h"
#include "test.h"

static const char body[] = "preamble\r\n"
                           "--B\r\n"
                           "Content-Disposition: form-data; name=\"file\"; filename=\"a b.txt\"\r\n"
                           "Content-Type: text/plain\r\n"
                           "\r\n"
                           "one\r\n--Bee\r\n-\r\n"
                           "\r\n--B\r\n"
                           "content-disposition: form-data; filename=\"x\\\"y\"; name=file\r\n"
                           "\r\n"
                           "\r\n--B--\r\nepilogue";

/* Parses the body in pieces of this size and writes down what happened. */
static int parse(const char *text, size_t n, size_t piece, struct buf *log, struct err *err)
{
    struct multipart m;
    int event = MULTIPART_MORE;

    if (multipart_init(&m, STR("multipart/form-data; boundary=B"), err))
        return -1;
    for (size_t at = 0; at < n && event >= 0 && event != MULTIPART_END; at += piece) {
        multipart_feed(&m, (struct str){ text + at, MIN(piece, n - at) });
        do {
            event = multipart_next(&m, err);
            if (event == MULTIPART_PART)
                buf_printf(log, "[%.*s|%.*s|%.*s]", STR_ARG(m.name), STR_ARG(m.filename),
                           STR_ARG(m.type));
            if (event == MULTIPART_DATA)
                buf_add_str(log, m.data);
            if (event == MULTIPART_END)
                buf_puts(log, "<end>");
        } while (event == MULTIPART_PART || event == MULTIPART_DATA);
    }
    multipart_finish(&m);
    return event;
}

TEST(any_split_of_the_body_gives_the_same_parts)
{
    for (size_t piece = 1; piece <= sizeof(body); piece++) {
        AUTO(buf_free) struct buf log = { 0 };
        struct err err = { 0 };

        CHECK_INT(parse(body, sizeof(body) - 1, piece, &log, &err), MULTIPART_END);
        CHECK_STR(buf_cstr(&log),
                  "[file|a b.txt|text/plain]one\r\n--Bee\r\n-\r\n[file|x\"y|]<end>");
    }
}

TEST(a_body_that_begins_with_its_boundary_needs_no_preamble)
{
    static const char text[] =
        "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--";
    AUTO(buf_free) struct buf log = { 0 };
    struct err err = { 0 };

    CHECK_INT(parse(text, sizeof(text) - 1, 3, &log, &err), MULTIPART_END);
    CHECK_STR(buf_cstr(&log), "[file||]x<end>");
}

TEST(a_body_without_its_closing_boundary_never_ends)
{
    AUTO(buf_free) struct buf log = { 0 };
    struct err err = { 0 };

    CHECK_INT(parse(body, sizeof(body) - 20, 5, &log, &err), MULTIPART_MORE);
}

TEST(a_part_without_a_name_is_refused)
{
    static const char text[] = "--B\r\nContent-Type: text/plain\r\n\r\nx\r\n--B--";
    AUTO(buf_free) struct buf log = { 0 };
    struct err err = { 0 };

    CHECK_INT(parse(text, sizeof(text) - 1, 100, &log, &err), -1);
    CHECK_STR(err.msg, "a multipart part has no form-data name");
}

TEST(a_content_type_without_a_usable_boundary_is_refused)
{
    static const char too_long[] = "multipart/form-data; boundary="
                                   "0123456789012345678901234567890123456789"
                                   "0123456789012345678901234567890123456789";
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=a\tb",
        "text/plain; boundary=x",
        too_long,
    };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct multipart m;
        struct err err = { 0 };

        CHECK_INT(multipart_init(&m, str_of(types[i]), &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

/* As many empty parameters as a head has room for; then the boundary. */
static int boundary_behind(int parameters, struct multipart *m, struct err *err)
{
    AUTO(buf_free) struct buf b = { 0 };

    buf_puts(&b, "multipart/form-data");
    for (int i = 0; i < parameters; i++)
        buf_puts(&b, ";a=");
    buf_puts(&b, ";boundary=B");
    return multipart_init(m, buf_str(&b), err);
}

TEST(parameters_that_nobody_wants_cost_no_memory)
{
    struct multipart m;
    struct err err = { 0 };

    CHECK_INT(boundary_behind(MULTIPART_PARAMETERS - 1, &m, &err), 0);
    CHECK(m.text.used <= 64);
    multipart_finish(&m);
    CHECK_INT(boundary_behind(MULTIPART_PARAMETERS, &m, &err), -1);
    CHECK_STR(err.msg, "Content-Type is not multipart/form-data with a boundary among its first 64 "
                       "parameters");
    CHECK_INT(boundary_behind(10000, &m, &err), -1);
}

TEST(what_is_written_can_be_read)
{
    AUTO(buf_free) struct buf b = { 0 }, log = { 0 };
    struct err err = { 0 };

    multipart_put_part(&b, "B", "file", "a\"b\\c", "text/plain");
    buf_puts(&b, "content");
    multipart_put_part(&b, "B", "other", NULL, NULL);
    multipart_put_end(&b, "B");
    CHECK_INT(parse(b.data, b.len, 7, &log, &err), MULTIPART_END);
    CHECK_STR(buf_cstr(&log), "[file|a\"b\\c|text/plain]content[other||]<end>");
}

TEST(a_part_head_is_bounded)
{
    AUTO(buf_free) struct buf b = { 0 }, log = { 0 };
    struct err err = { 0 };

    buf_puts(&b, "--B\r\nX: ");
    for (int i = 0; i < MULTIPART_HEAD; i++)
        buf_putc(&b, 'x');
    CHECK_INT(parse(b.data, b.len, 100, &log, &err), -1);
    CHECK(strstr(err.msg, "larger than 8192 bytes"));
}
