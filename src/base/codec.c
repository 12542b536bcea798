/* codec.c - base64 and UTF-8, declared in str.h. */
#include "base/str.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_encoded_len(size_t n) { return (n + 2) / 3 * 4; }

size_t base64_encode(const void *in, size_t n, char *out)
{
    const unsigned char *p = in;
    char *o = out;

    for (; n >= 3; n -= 3, p += 3, o += 4) {
        uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];

        o[0] = alphabet[v >> 18];
        o[1] = alphabet[v >> 12 & 63];
        o[2] = alphabet[v >> 6 & 63];
        o[3] = alphabet[v & 63];
    }
    if (n) {
        uint32_t v = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);

        o[0] = alphabet[v >> 18];
        o[1] = alphabet[v >> 12 & 63];
        o[2] = n == 2 ? alphabet[v >> 6 & 63] : '=';
        o[3] = '=';
        o += 4;
    }
    return (size_t)(o - out);
}

/* value + 1, so that 0 means "not of the alphabet" */
static const unsigned char values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

ssize_t base64_decode(struct str in, void *out)
{
    const unsigned char *p = (const unsigned char *)in.p;
    unsigned char *o = out;

    if (in.n % 4)
        return -1;
    for (size_t i = 0; i < in.n; i += 4, p += 4) {
        bool last = i + 4 == in.n;
        int pad = last && p[3] == '=' ? 1 + (p[2] == '=') : 0;
        uint32_t v = 0;

        for (int k = 0; k < 4 - pad; k++) {
            if (!values[p[k]])
                return -1;
            v |= (uint32_t)(values[p[k]] - 1) << (18 - 6 * k);
        }
        if (v & (pad == 2 ? 0xffff : pad == 1 ? 0xff : 0)) /* a second spelling of the same bytes */
            return -1;
        *o++ = (unsigned char)(v >> 16);
        if (pad < 2)
            *o++ = (unsigned char)(v >> 8);
        if (pad < 1)
            *o++ = (unsigned char)v;
    }
    return o - (unsigned char *)out;
}

/* The state holds: bits 0-1 continuation bytes still due, bits 8-15 and 16-23 the range that the
 * next one must lie in (only the first continuation byte has a narrowed range: RFC 3629). */
int utf8_check(uint32_t *state, const void *p, size_t n)
{
    const unsigned char *s = p;
    uint32_t due = *state & 3, low = *state >> 8 & 255, high = *state >> 16 & 255;

    for (; n; s++, n--) {
        unsigned char c = *s;

        if (due) {
            if (c < low || c > high)
                return -1;
            low = 0x80, high = 0xbf;
            due--;
        } else if (c >= 0x80) {
            if (c < 0xc2 || c > 0xf4)
                return -1;
            due = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
            low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
            high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        }
    }
    *state = due ? due | low << 8 | high << 16 : 0;
    return 0;
}

bool utf8_valid(struct str s)
{
    uint32_t state = 0;

    return !utf8_check(&state, s.p, s.n) && !state;
}
