/* scan.c - see scan.h. Nothing recurses: the nesting is a row of bits, one per open bracket. */
#include "guest/kernels/scan.h"

#include "base/json.h"

struct cursor {
    const char *p, *end;
};

static struct cursor at_start(struct str s)
{
    const char *p = s.p ? s.p : ""; /* nothing may be added to NULL, not even 0 */

    return (struct cursor){ p, p + s.n };
}

static bool skip_blank(struct cursor *c) /* false at the end */
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
    return c->p < c->end;
}

static bool is_hex(char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F');
}

static bool skip_escape(struct cursor *c)
{
    if (++c->p == c->end)
        return false;
    if (*c->p != 'u')
        return *c->p && strchr("\"\\/bfnrt", *c->p++);
    if (c->end - c->p < 5)
        return false;
    for (int i = 1; i < 5; i++)
        if (!is_hex(c->p[i]))
            return false;
    c->p += 5;
    return true;
}

static bool skip_string(struct cursor *c)
{
    if (c->p == c->end || *c->p++ != '"')
        return false;
    while (c->p < c->end) {
        unsigned char ch = (unsigned char)*c->p;

        if (ch == '"') {
            c->p++;
            return true;
        }
        if (ch < 0x20 || (ch == '\\' && !skip_escape(c)))
            return false;
        c->p += ch != '\\';
    }
    return false;
}

static bool skip_digits(struct cursor *c)
{
    const char *from = c->p;

    while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
        c->p++;
    return c->p > from;
}

static bool skip_number(struct cursor *c)
{
    c->p += *c->p == '-';
    if (c->p < c->end && *c->p == '0')
        c->p++;
    else if (!skip_digits(c))
        return false;
    if (c->p < c->end && *c->p == '.') {
        c->p++;
        if (!skip_digits(c))
            return false;
    }
    if (c->p < c->end && (*c->p == 'e' || *c->p == 'E')) {
        c->p++;
        if (c->p < c->end && (*c->p == '+' || *c->p == '-'))
            c->p++;
        return skip_digits(c);
    }
    return true;
}

/* Python writes NaN and Infinity where JSON has no word for them, and its clients read them. */
static bool skip_word(struct cursor *c)
{
    static const struct str words[] = { { "true", 4 }, { "false", 5 },    { "null", 4 },
                                        { "NaN", 3 },  { "Infinity", 8 }, { "-Infinity", 9 } };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if ((size_t)(c->end - c->p) >= words[i].n && !memcmp(c->p, words[i].p, words[i].n)) {
            c->p += words[i].n;
            return true;
        }
    return false;
}

static bool skip_scalar(struct cursor *c)
{
    if (*c->p == '"')
        return skip_string(c);
    return skip_word(c) || skip_number(c);
}

static bool skip_key(struct cursor *c)
{
    return skip_blank(c) && skip_string(c) && skip_blank(c) && *c->p++ == ':';
}

struct nesting {
    size_t depth;
    unsigned char is_object[SCAN_DEPTH / 8];
};

static bool open_bracket(struct nesting *n, bool object)
{
    unsigned char bit = (unsigned char)(1U << n->depth % 8);

    if (n->depth == SCAN_DEPTH)
        return false;
    if (object)
        n->is_object[n->depth / 8] |= bit;
    else
        n->is_object[n->depth / 8] &= (unsigned char)~bit;
    n->depth++;
    return true;
}

static bool in_object(const struct nesting *n)
{
    return n->is_object[(n->depth - 1) / 8] >> (n->depth - 1) % 8 & 1;
}

/* Behind a value: 1 another one follows, 0 all brackets are closed, -1. */
static int after_value(struct cursor *c, struct nesting *n)
{
    while (n->depth) {
        bool object = in_object(n);

        if (!skip_blank(c))
            return -1;
        if (*c->p == ',') {
            c->p++;
            return !object || skip_key(c) ? 1 : -1;
        }
        if (*c->p++ != (object ? '}' : ']'))
            return -1;
        n->depth--;
    }
    return 0;
}

static bool skip_value(struct cursor *c)
{
    struct nesting n = { .depth = 0 };
    int more = 1;

    while (more > 0) {
        if (!skip_blank(c))
            return false;
        if (*c->p == '{' || *c->p == '[') {
            bool object = *c->p++ == '{';

            if (!open_bracket(&n, object) || !skip_blank(c))
                return false;
            if (*c->p != (object ? '}' : ']')) {
                if (object && !skip_key(c))
                    return false;
                continue;
            }
        } else if (!skip_scalar(c)) {
            return false;
        }
        more = after_value(c, &n);
    }
    return !more;
}

bool scan_valid(struct str json)
{
    struct cursor c = at_start(json);

    return json.n && skip_value(&c) && !skip_blank(&c) && utf8_valid(json);
}

/* One element of an object or array; *rest is then the text behind it, beginning with ',' or the
 * closing bracket, and at the very first with the opening one. */
static bool next_element(struct str *rest, char bracket, struct str *key, struct str *value)
{
    struct cursor c = at_start(*rest);
    const char *from;

    if (!rest->n || !skip_blank(&c) || (*c.p != bracket && *c.p != ','))
        return false;
    c.p++;
    if (!skip_blank(&c))
        return false;
    if (key) {
        from = c.p;
        if (!skip_string(&c))
            return false;
        *key = (struct str){ from, (size_t)(c.p - from) };
        if (!skip_blank(&c) || *c.p++ != ':' || !skip_blank(&c))
            return false;
    }
    from = c.p;
    if (!skip_value(&c))
        return false;
    *value = (struct str){ from, (size_t)(c.p - from) };
    *rest = (struct str){ c.p, rest->n - (size_t)(c.p - rest->p) };
    return true;
}

bool scan_next(struct str *rest, struct str *key, struct str *value)
{
    return next_element(rest, '{', key, value);
}

bool scan_item(struct str *rest, struct str *value) { return next_element(rest, '[', NULL, value); }

static bool only_closing(struct str rest, bool empty)
{
    struct cursor c = at_start(rest);

    if (empty && (!skip_blank(&c) || *c.p++ != '{'))
        return false;
    return skip_blank(&c) && *c.p++ == '}' && !skip_blank(&c);
}

int scan_object(struct str json, const char *const *names, struct str *out)
{
    struct str rest = json, key, value;

    for (size_t i = 0; names[i]; i++)
        out[i] = (struct str){ 0 };
    while (scan_next(&rest, &key, &value))
        for (size_t i = 0; names[i]; i++)
            if (str_is((struct str){ key.p + 1, key.n - 2 }, names[i]))
                out[i] = value;
    return only_closing(rest, rest.p == json.p) ? 0 : -1;
}

struct str scan_get(struct str json, const char *name)
{
    const char *const names[] = { name, NULL };
    struct str out;

    if (scan_object(json, names, &out))
        out = (struct str){ 0 };
    return out;
}

struct str scan_plain(struct str raw)
{
    if (raw.n < 2 || raw.p[0] != '"' || memchr(raw.p, '\\', raw.n))
        return (struct str){ 0 };
    return (struct str){ raw.p + 1, raw.n - 2 };
}

static uint32_t hex4(const char *p)
{
    uint64_t v = 0;

    return str_hex((struct str){ p, 4 }, &v) ? 0 : (uint32_t)v;
}

static size_t put_utf8(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* \uXXXX at p, maybe with its second half; half a pair becomes U+FFFD. Returns the bytes taken. */
static size_t take_unicode(const char *p, const char *end, uint32_t *cp)
{
    uint32_t low;

    *cp = hex4(p + 2);
    if (*cp < 0xd800 || *cp > 0xdfff)
        return 6;
    if (*cp < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        low = hex4(p + 8);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
            return 12;
        }
    }
    *cp = 0xfffd;
    return 6;
}

char *scan_string(struct arena *a, struct str raw)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    struct cursor c = at_start(raw);
    const char *p, *end;
    char *text, *out;

    if (raw.n < 2 || !skip_string(&c) || c.p != c.end)
        return NULL;
    p = raw.p + 1;
    end = raw.p + raw.n - 1;
    out = text = arena_alloc(a, raw.n); /* an escape is never shorter than what it stands for */
    while (p < end) {
        uint32_t cp;

        if (*p != '\\') {
            *out++ = *p++;
        } else if (p[1] != 'u') {
            *out++ = to[strchr(from, p[1]) - from];
            p += 2;
        } else {
            p += take_unicode(p, end, &cp);
            if (!cp)
                return NULL;
            out += put_utf8(out, cp);
        }
    }
    *out = 0;
    return text;
}

void scan_quote(struct buf *b, const char *text)
{
    AUTO(buf_free) struct buf one = { 0 };

    json_put_str(&one, str_of(text));
    buf_add_str(b, buf_str(&one));
}
