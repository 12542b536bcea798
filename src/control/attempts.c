/* attempts.c - see attempts.h. A table is searched from end to end: that is some microseconds, and
 * nothing beside a password's hash. A hash of keys would be something to find collisions of. */
#include "control/attempts.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/util.h"

/* May a be forgotten rather than b? */
static bool lesser(const struct attempt *a, const struct attempt *b)
{
    if (a->trying || b->trying)
        return !a->trying;
    return a->count != b->count ? a->count < b->count : a->since < b->since;
}

struct attempt *attempt_of(struct attempts *a, const void *key, size_t n, int64_t now)
{
    unsigned char of[ATTEMPT_KEY] = { 0 };
    struct attempt *least = &a->slots[0];

    memcpy(of, key, MIN(n, sizeof(of)));
    for (struct attempt *s = a->slots; s < a->slots + ATTEMPT_SLOTS; s++) {
        if (now - s->since >= a->lasts_ms)
            s->count = 0;
        if (!memcmp(s->of, of, sizeof(of)))
            return s;
        if (lesser(s, least))
            least = s;
    }
    *least = (struct attempt){ .since = now };
    memcpy(least->of, of, sizeof(of));
    return least;
}

void attempt_address(const char *text, unsigned char out[static 16])
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

    memset(out, 0, 16);
    if (inet_pton(AF_INET, text, out + 12) == 1)
        memcpy(out, mapped, sizeof(mapped));
    else if (inet_pton(AF_INET6, text, out) != 1)
        memset(out, 0, 16);
    else if (memcmp(out, mapped, sizeof(mapped)) != 0)
        memset(out + 8, 0, 8);
}
