/* id.c - see id.h. */
#include "base/id.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void id_bytes(void *out, size_t n)
{
    unsigned char *p = out;

    while (n) {
        ssize_t r = getrandom(p, n, 0);

        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            abort(); /* no randomness: nothing we name could be trusted */
        p += r;
        n -= (size_t)r;
    }
}

void id_random(char *out, size_t n)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char raw[64];
    size_t have = 0;

    for (size_t i = 0; i < n;) {
        if (!have)
            id_bytes(raw, have = sizeof(raw));
        if (raw[--have] < 252) /* 252 = 7 * 36: no letter is likelier than another */
            out[i++] = alphabet[raw[have] % 36];
    }
    out[n] = 0;
}

void id_hex(char *out, size_t n)
{
    unsigned char raw[32];
    size_t have = 0;

    for (size_t i = 0; i < n; i++) {
        if (!have)
            id_bytes(raw, have = sizeof(raw));
        out[i] = "0123456789abcdef"[raw[--have] & 15];
    }
    out[n] = 0;
}

void id_uuid(char out[static 37])
{
    static const char variants[] = "89ab";
    char hex[32 + 1];

    id_hex(hex, 32);
    hex[12] = '4';
    hex[16] = variants[hex[16] & 3];
    snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}
