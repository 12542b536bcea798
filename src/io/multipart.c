/* multipart.c - see multipart.h.
 *
 * The parser works on hold + in: hold keeps the few bytes at the end of one feed that could be the
 * start of a boundary (or a part head that is not complete), in is the rest. The body is treated as
 * if it began with CRLF, so that the first boundary looks like every other. */
#include "io/multipart.h"

#include "base/mem.h"
#include "io/http.h"

enum state { PREAMBLE, AFTER_MARK, HEAD, BODY, DONE };

/* How many bytes a parameter's value takes, quotes included; *n: how many it has without them and
 * without what escapes, which go to out unless that is NULL. Browsers and SDKs escape only the
 * quote; a backslash may be part of a name. */
static size_t parameter_value(struct str s, char *out, size_t *n)
{
    size_t i = 1;

    *n = 0;
    if (!s.n || s.p[0] != '"') {
        const char *end = s.n ? memchr(s.p, ';', s.n) : NULL;

        *n = end ? (size_t)(end - s.p) : s.n;
        if (out && *n)
            memcpy(out, s.p, *n);
        return *n;
    }
    for (; i < s.n && s.p[i] != '"'; i++, ++*n) {
        if (s.p[i] == '\\' && i + 1 < s.n && (s.p[i + 1] == '"' || s.p[i + 1] == '\\'))
            i++;
        if (out)
            out[*n] = s.p[i];
    }
    return MIN(i + 1, s.n);
}

/* A parameter of a header value: name=token or name="quoted". Only the one that is wanted costs
 * memory, and behind so many nobody's is. */
static bool parameter(struct arena *a, struct str value, const char *name, struct str *out)
{
    for (int i = 0; value.n && i < MULTIPART_PARAMETERS; i++) {
        const char *last;
        struct str key;
        size_t size, n;

        if (!str_cut(value, '=', &key, &value))
            return false;
        size = parameter_value(value, NULL, &n);
        /* key is "...; name": what stands behind the last ';' */
        last = key.n ? memrchr(key.p, ';', key.n) : NULL;
        if (last)
            key = (struct str){ last + 1, (size_t)(key.p + key.n - last) - 1 };
        if (str_iis(str_trim(key), name)) {
            char *text = arena_alloc(a, n + 1);

            parameter_value(value, text, &n);
            *out = (struct str){ text, n };
            return true;
        }
        value = (struct str){ value.p + size, value.n - size };
    }
    return false;
}

static bool boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c && strchr("'()+_,-./:=? ", c));
}

int multipart_init(struct multipart *m, struct str content_type, struct err *err)
{
    struct str media, rest, boundary;

    *m = (struct multipart){ .state = PREAMBLE };
    str_cut(content_type, ';', &media, &rest);
    if (!str_iis(str_trim(media), "multipart/form-data") ||
        !parameter(&m->text, content_type, "boundary", &boundary)) {
        multipart_finish(m);
        return err_set(err, ERR_INVALID,
                       "Content-Type is not multipart/form-data with a boundary among its first %d "
                       "parameters",
                       MULTIPART_PARAMETERS);
    }
    boundary = str_trim(boundary);
    for (size_t i = 0; i < boundary.n; i++)
        if (!boundary_char(boundary.p[i]))
            boundary.n = 0;
    if (!boundary.n || boundary.n > MULTIPART_BOUNDARY) {
        multipart_finish(m);
        return err_set(err, ERR_INVALID,
                       "the multipart boundary must have 1 to %d plain characters",
                       MULTIPART_BOUNDARY);
    }
    memcpy(m->mark, "\r\n--", 4);
    memcpy(m->mark + 4, boundary.p, boundary.n);
    m->mark_len = boundary.n + 4;
    buf_puts(&m->hold, "\r\n");
    return 0;
}

void multipart_finish(struct multipart *m)
{
    buf_free(&m->hold);
    arena_free(&m->text);
}

void multipart_feed(struct multipart *m, struct str in) { m->in = in; }

/* Where a mark, or a prefix of one that reaches the end, begins in s; s.n: nowhere. */
static size_t find_mark(const struct multipart *m, struct str s, bool *whole)
{
    const char *at = s.n ? memmem(s.p, s.n, m->mark, m->mark_len) : NULL;

    *whole = at != NULL;
    if (at)
        return (size_t)(at - s.p);
    for (size_t i = s.n > m->mark_len - 1 ? s.n - (m->mark_len - 1) : 0; i < s.n; i++)
        if (!memcmp(s.p + i, m->mark, s.n - i))
            return i;
    return s.n;
}

static void take(struct multipart *m, size_t n)
{
    if (!n)
        return; /* and in.p may be NULL */
    m->in.p += n;
    m->in.n -= n;
}

/* Bytes of a body (or preamble) up to the next mark. 1: data is set, 0: a mark was consumed,
 * 2: input is used up. */
static int scan(struct multipart *m)
{
    bool whole;
    size_t at;

    if (m->hold.len) { /* decide what the held bytes are, with just enough of the new ones */
        size_t held = m->hold.len, more = MIN(m->in.n, m->mark_len - 1);

        buf_add(&m->hold, m->in.p, more);
        at = find_mark(m, buf_str(&m->hold), &whole);
        if (whole && !at) {
            take(m, m->mark_len - held);
            m->hold.len = 0;
            return 0;
        }
        if (at == 0) { /* still only a prefix: everything new is in it */
            take(m, more);
            return 2;
        }
        at = MIN(at, held); /* these cannot be a mark's: they are data */
        memcpy(m->spill, m->hold.data, at);
        m->data = (struct str){ m->spill, at };
        m->hold.len = held;
        buf_drop(&m->hold, at);
        return 1;
    }
    if (!m->in.n)
        return 2;
    at = find_mark(m, m->in, &whole);
    if (at) {
        m->data = (struct str){ m->in.p, at };
        take(m, at);
        return 1;
    }
    if (whole) {
        take(m, m->mark_len);
        return 0;
    }
    buf_add(&m->hold, m->in.p, m->in.n);
    take(m, m->in.n);
    return 2;
}

/* Moves input into hold until it has n bytes; false: input ran out. */
static bool gather(struct multipart *m, size_t n)
{
    size_t more = m->hold.len < n ? MIN(n - m->hold.len, m->in.n) : 0;

    buf_add(&m->hold, m->in.p, more);
    take(m, more);
    return m->hold.len >= n;
}

/* Behind a mark: "--" ends the body, CRLF begins a part; anything else and it was only data that
 * looks like one. */
static int after_mark(struct multipart *m)
{
    if (!gather(m, 2))
        return MULTIPART_MORE;
    if (!memcmp(m->hold.data, "--", 2)) {
        m->state = DONE;
        return MULTIPART_END;
    }
    if (!memcmp(m->hold.data, "\r\n", 2)) {
        m->hold.len = 0;
        m->state = HEAD;
        return -1;
    }
    m->state = m->parts ? BODY : PREAMBLE;
    m->data = (struct str){ m->mark, m->mark_len };
    return m->parts ? MULTIPART_DATA : -1;
}

static int read_part_head(struct multipart *m, struct http_head *h, struct err *err)
{
    struct str disposition;

    arena_reset(&m->text);
    m->name = m->filename = m->type = (struct str){ NULL, 0 };
    if (http_parse_fields(m->hold.data, m->hold.len, h, err) <= 0)
        return err_in(err, "multipart part head");
    disposition = http_get(h, "content-disposition");
    if (!str_starts(disposition, "form-data") ||
        !parameter(&m->text, disposition, "name", &m->name))
        return err_set(err, ERR_INVALID, "a multipart part has no form-data name");
    parameter(&m->text, disposition, "filename", &m->filename);
    m->type = http_get(h, "content-type");
    if (m->type.p)
        m->type.p = arena_strdup(&m->text, m->type);
    return 0;
}

static int part_head(struct multipart *m, struct err *err)
{
    for (;;) {
        bool done = m->hold.len >= 4 && !memcmp(m->hold.data + m->hold.len - 4, "\r\n\r\n", 4);

        if (done || (m->hold.len == 2 && !memcmp(m->hold.data, "\r\n", 2))) {
            AUTO(freep) struct http_head *h = xmalloc(sizeof(*h));

            if (read_part_head(m, h, err))
                return -1;
            m->hold.len = 0;
            m->state = BODY;
            m->parts++;
            return MULTIPART_PART;
        }
        if (m->hold.len >= MULTIPART_HEAD)
            return err_set(err, ERR_INVALID, "a multipart part head is larger than %d bytes",
                           MULTIPART_HEAD);
        if (!gather(m, m->hold.len + 1))
            return MULTIPART_MORE;
    }
}

int multipart_next(struct multipart *m, struct err *err)
{
    for (;;) {
        int r;

        switch ((enum state)m->state) {
        case PREAMBLE:
        case BODY:
            r = scan(m);
            if (r == 2)
                return MULTIPART_MORE;
            if (r == 1 && m->state == BODY)
                return MULTIPART_DATA;
            if (r == 0)
                m->state = AFTER_MARK;
            break;
        case AFTER_MARK:
            r = after_mark(m);
            if (r >= 0)
                return r;
            break;
        case HEAD: return part_head(m, err);
        case DONE: return MULTIPART_END;
        }
    }
}

static void put_quoted(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_putc(b, '\\');
        buf_putc(b, *s == '\r' || *s == '\n' ? ' ' : *s);
    }
}

void multipart_put_part(struct buf *b, const char *boundary, const char *name, const char *filename,
                        const char *type)
{
    buf_printf(b, "\r\n--%s\r\nContent-Disposition: form-data; name=\"", boundary);
    put_quoted(b, name);
    buf_putc(b, '"');
    if (filename) {
        buf_puts(b, "; filename=\"");
        put_quoted(b, filename);
        buf_putc(b, '"');
    }
    if (type)
        buf_printf(b, "\r\nContent-Type: %s", type);
    buf_puts(b, "\r\n\r\n");
}

void multipart_put_end(struct buf *b, const char *boundary)
{
    buf_printf(b, "\r\n--%s--\r\n", boundary);
}
