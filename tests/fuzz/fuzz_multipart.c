/* fuzz_multipart.c - multipart/form-data. The input is a Content-Type value, a new line, and the
 * body. Promise: however the body is cut, the same parts with the same bytes come out. */
#include "fuzz.h"
#include "io/multipart.h"

static void note_part(const struct multipart *m, struct buf *out)
{
    buf_printf(out, "\npart %zu: ", m->parts);
    buf_add_str(out, m->name);
    buf_puts(out, m->filename.p ? " file " : " no file");
    buf_add_str(out, m->filename);
    buf_puts(out, m->type.p ? " type " : " no type");
    buf_add_str(out, m->type);
    buf_putc(out, '\n');
}

/* Runs the parser and writes down what it says, the data of a part joined. */
static void story(struct str type, struct str body, size_t step, struct buf *out)
{
    struct err err = { 0 };
    struct multipart m;
    char *piece = NULL;
    int r;

    if (multipart_init(&m, type, &err)) {
        MUST(err.code == ERR_INVALID);
        buf_puts(out, err.msg);
        return;
    }
    while ((r = multipart_next(&m, &err)) >= 0 && r != MULTIPART_END) {
        if (r == MULTIPART_PART)
            note_part(&m, out);
        else if (r == MULTIPART_DATA)
            buf_add_str(out, m.data);
        if (r == MULTIPART_DATA)
            MUST(m.data.n > 0 && m.parts > 0);
        if (r != MULTIPART_MORE)
            continue;
        free(piece); /* all of it was taken */
        piece = NULL;
        if (!body.n)
            break;
        step = MIN(step, body.n);
        piece = fuzz_copy(body.p, step);
        multipart_feed(&m, (struct str){ piece, step });
        body = (struct str){ body.p + step, body.n - step };
    }
    MUST((r < 0) == (err.code != ERR_NONE));
    buf_printf(out, "\n%d %s", r, err.msg);
    multipart_finish(&m);
    free(piece);
}

/* What we write ourselves is read as it was meant, unless the bytes hold the boundary. */
static void round_trip(const char *data, size_t n)
{
    struct buf body = { 0 }, told = { 0 }, want = { 0 };

    if (memmem(data, n, "\r\n--b0und", 9) || !n)
        return;
    multipart_put_part(&body, "b0und", "a\"b\\c", "f\r\ng", "text/plain");
    buf_add(&body, data, n);
    multipart_put_part(&body, "b0und", "second", NULL, NULL);
    multipart_put_end(&body, "b0und");
    story(STR("multipart/form-data; boundary=b0und"), buf_str(&body), 1 + n % 97, &told);
    buf_puts(&want, "\npart 1: a\"b\\c file f  g type text/plain\n");
    buf_add(&want, data, n);
    buf_printf(&want, "\npart 2: second no file no type\n\n%d ", MULTIPART_END);
    MUST(str_eq(buf_str(&told), buf_str(&want)));
    buf_free(&body);
    buf_free(&told);
    buf_free(&want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t steps[] = { 1, 2, 5, 40 };
    struct str all = { (const char *)data, size }, type, body;
    struct buf whole = { 0 }, cut = { 0 };

    if (!str_cut(all, '\n', &type, &body))
        return 0;
    story(type, body, SIZE_MAX, &whole);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        cut.len = 0;
        story(type, body, steps[i], &cut);
        MUST(str_eq(buf_str(&whole), buf_str(&cut)));
    }
    buf_free(&whole);
    buf_free(&cut);
    round_trip(body.p, body.n);
    return 0;
}
