/* str.c - slices, numbers, percent escapes. */
#include "base/str.h"

#include <strings.h>

#include "base/arena.h"

struct str str_of(const char *s) { return (struct str){ s, s ? strlen(s) : 0 }; }

bool str_eq(struct str a, struct str b)
{
    if (a.n != b.n || !a.n)
        return a.n == b.n;
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): not empty */
    return !memcmp(a.p, b.p, a.n);
}

bool str_is(struct str s, const char *text) { return str_eq(s, str_of(text)); }

bool str_ieq(struct str a, struct str b)
{
    if (a.n != b.n || !a.n)
        return a.n == b.n;
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): not empty */
    return !strncasecmp(a.p, b.p, a.n);
}

bool str_iis(struct str s, const char *text) { return str_ieq(s, str_of(text)); }

bool str_starts(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.n >= n && !memcmp(s.p, prefix, n);
}

struct str str_trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool str_cut(struct str s, char sep, struct str *head, struct str *tail)
{
    const char *at = s.n ? memchr(s.p, sep, s.n) : NULL;

    if (!at) {
        *head = s;
        *tail = (struct str){ NULL, 0 };
        return false;
    }
    *head = (struct str){ s.p, (size_t)(at - s.p) };
    *tail = (struct str){ at + 1, s.n - head->n - 1 };
    return true;
}

bool str_next(struct str *rest, char sep, struct str *item)
{
    if (!rest->p)
        return false;
    str_cut(*rest, sep, item, rest);
    *item = str_trim(*item);
    return true;
}

bool str_has_item(struct str list, const char *item)
{
    struct str one;

    while (str_next(&list, ',', &one))
        if (str_iis(one, item))
            return true;
    return false;
}

int str_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;

    if (!s.n)
        return -1;
    for (size_t i = 0; i < s.n; i++) {
        unsigned d = (unsigned char)s.p[i] - '0';

        if (d > 9 || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, d, &v))
            return -1;
    }
    *out = v;
    return 0;
}

int str_i64(struct str s, int64_t *out)
{
    bool negative = s.n && s.p[0] == '-';
    uint64_t v;

    if (negative)
        s.p++, s.n--;
    if (str_u64(s, &v) || v > (uint64_t)INT64_MAX + negative)
        return -1;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int str_hex(struct str s, uint64_t *out)
{
    uint64_t v = 0;

    if (!s.n)
        return -1;
    for (size_t i = 0; i < s.n; i++) {
        int d = hex_digit(s.p[i]);

        if (d < 0 || v >> 60)
            return -1;
        v = v << 4 | (unsigned)d;
    }
    *out = v;
    return 0;
}

int str_percent_decode(struct arena *a, struct str in, bool plus, struct str *out)
{
    char *p = arena_alloc(a, in.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < in.n; i++, n++) {
        p[n] = in.p[i];
        if (in.p[i] == '+' && plus) {
            p[n] = ' ';
        } else if (in.p[i] == '%') {
            int hi = in.n - i > 2 ? hex_digit(in.p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_digit(in.p[i + 2]) : -1;

            if (lo < 0)
                return -1;
            p[n] = (char)(hi << 4 | lo);
            i += 2;
        }
        if (!p[n])
            return -1;
    }
    *out = (struct str){ p, n };
    return 0;
}

bool mem_equal_const(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char diff = 0;

    for (size_t i = 0; i < n; i++)
        diff |= x[i] ^ y[i];
    return !diff;
}
