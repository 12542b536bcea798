/* id.c - see id.h. */
#include "base/id.h"

#include <stdlib.h>
#include <sys/random.h>

void id_random(char *out, size_t n)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char raw[64];
    size_t have = 0;

    for (size_t i = 0; i < n;) {
        if (!have) {
            ssize_t r = getrandom(raw, sizeof(raw), 0);

            if (r <= 0)
                abort(); /* no randomness: nothing we name could be trusted */
            have = (size_t)r;
        }
        if (raw[--have] < 252) /* 252 = 7 * 36: no letter is likelier than another */
            out[i++] = alphabet[raw[have] % 36];
    }
    out[n] = 0;
}
