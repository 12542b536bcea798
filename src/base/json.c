/* json.c - see json.h. */
#include "base/json.h"

#include <math.h>

int json_check_depth(struct str text, struct err *err)
{
    const char *p = text.p, *end = p + text.n;
    int depth = 0;

    for (; p < end; p++) {
        switch (*p) {
        case '"':
            for (p++; p < end && *p != '"'; p++)
                p += *p == '\\';
            break;
        case '[':
        case '{':
            if (++depth > JSON_DEPTH)
                return err_set(err, ERR_INVALID, "JSON is nested deeper than %d levels",
                               JSON_DEPTH);
            break;
        case ']':
        case '}': depth--; break;
        default: break;
        }
    }
    return 0;
}

static json_t *read_with(struct str text, size_t flags, struct err *err)
{
    json_error_t why;
    json_t *j;

    if (!text.n) {
        err_set(err, ERR_INVALID, "the body is empty where JSON is expected");
        return NULL;
    }
    if (memchr(text.p, 0, text.n)) { /* jansson overlooks one behind a number */
        err_set(err, ERR_INVALID, "not valid JSON: it has a NUL byte");
        return NULL;
    }
    if (json_check_depth(text, err))
        return NULL;
    j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &why);
    if (!j)
        err_set(err, ERR_INVALID, "not valid JSON: line %d column %d: %s", why.line, why.column,
                why.text);
    return j;
}

json_t *json_read(struct str text, struct err *err) { return read_with(text, 0, err); }

json_t *json_read_nul(struct str text, struct err *err)
{
    return read_with(text, JSON_ALLOW_NUL, err);
}

void json_dropp(json_t **j) { json_decref(*j); }

static void comma(struct buf *b)
{
    char last = b->len ? b->data[b->len - 1] : '{';

    /* NUL ends a frame header and \n a line: what follows them starts afresh */
    if (last != '{' && last != '[' && last != ':' && last != '\n' && last)
        buf_putc(b, ',');
}

void json_open(struct buf *b, char bracket)
{
    comma(b);
    buf_putc(b, bracket);
}

void json_close(struct buf *b, char bracket) { buf_putc(b, bracket); }

/* What JSON must escape: 0 nothing, 1 a \u escape, 0x80 a byte that is not ASCII, else the letter.
 */
static const unsigned char escapes[256] = {
    [0 ... 7] = 1, ['\b'] = 'b',    ['\t'] = 't', ['\n'] = 'n',  [11] = 1,  ['\f'] = 'f',
    ['\r'] = 'r',  [14 ... 31] = 1, ['"'] = '"',  ['\\'] = '\\', [127] = 1, [128 ... 255] = 0x80,
};

static size_t utf8_len(const unsigned char *p, size_t n) /* of a valid sequence at p; 0: invalid */
{
    for (size_t k = 2; k <= 4 && k <= n; k++)
        if (utf8_valid((struct str){ (const char *)p, k }))
            return k;
    return 0;
}

static void put_escaped(struct buf *b, struct str s)
{
    const unsigned char *p = (const unsigned char *)(s.n ? s.p : ""), *end = p + s.n;

    while (p < end) {
        const unsigned char *run = p;
        size_t k;

        while (p < end && !escapes[*p])
            p++;
        buf_add(b, run, (size_t)(p - run));
        if (p == end)
            break;
        if (escapes[*p] == 1) {
            buf_printf(b, "\\u%04x", *p++);
        } else if (escapes[*p] != 0x80) {
            buf_putc(b, '\\');
            buf_putc(b, (char)escapes[*p++]);
        } else if ((k = utf8_len(p, (size_t)(end - p)))) {
            buf_add(b, p, k);
            p += k;
        } else {
            buf_puts(b, "\xef\xbf\xbd");
            p++;
        }
    }
}

void json_put_str(struct buf *b, struct str s)
{
    comma(b);
    buf_putc(b, '"');
    put_escaped(b, s);
    buf_putc(b, '"');
}

void json_key(struct buf *b, const char *key)
{
    comma(b);
    buf_putc(b, '"');
    put_escaped(b, str_of(key));
    buf_add(b, "\":", 2);
}

void json_put_int(struct buf *b, int64_t v)
{
    comma(b);
    buf_put_i64(b, v);
}

void json_put_num(struct buf *b, double v)
{
    char text[32];

    comma(b);
    if (!isfinite(v)) {
        buf_puts(b, "null");
        return;
    }
    snprintf(text, sizeof(text), "%.15g", v); /* 17 digits only where 15 are another number */
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof(text), "%.17g", v);
    buf_puts(b, text);
}

void json_put_bool(struct buf *b, bool v)
{
    comma(b);
    buf_puts(b, v ? "true" : "false");
}

void json_put_null(struct buf *b)
{
    comma(b);
    buf_puts(b, "null");
}

void json_put_raw(struct buf *b, struct str json)
{
    comma(b);
    buf_add_str(b, json);
}

void json_put_base64(struct buf *b, const void *p, size_t n)
{
    comma(b);
    buf_reserve(b, base64_encoded_len(n) + 2);
    buf_putc(b, '"');
    b->len += base64_encode(p, n, b->data + b->len);
    buf_putc(b, '"');
}

void json_kv_str(struct buf *b, const char *key, const char *v)
{
    if (!v)
        return;
    json_key(b, key);
    json_put_str(b, str_of(v));
}

void json_kv_int(struct buf *b, const char *key, int64_t v)
{
    json_key(b, key);
    json_put_int(b, v);
}

void json_kv_bool(struct buf *b, const char *key, bool v)
{
    json_key(b, key);
    json_put_bool(b, v);
}

void json_kv_int64s(struct buf *b, const char *key, int64_t v)
{
    json_key(b, key);
    buf_putc(b, '"');
    buf_put_i64(b, v);
    buf_putc(b, '"');
}
