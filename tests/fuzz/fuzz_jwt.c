/* fuzz_jwt.c - tokens of logins. The input is a token; a second one is the same text signed by us.
 * Promises: nobody else's signature is taken; of what we signed only a whole, unexpired claim is;
 * and what is read signs to a token that reads as the same. */
#include "fuzz.h"
#include "io/jwt.h"

enum { NOW = 1700000000 };

static const struct str key = { "the key of the fuzzer, 32 bytes...", 34 };

static void check_token(struct str token)
{
    AUTO(buf_free) struct buf again = { 0 };
    struct jwt t = { 0 }, back = { 0 };
    struct err err = { 0 };

    if (jwt_verify(key, token, NOW, &t, &err)) {
        MUST(err.code == ERR_UNAUTHENTICATED);
        MUST(!strcmp(err.msg, JWT_INVALID) || !strcmp(err.msg, JWT_EXPIRED));
        return;
    }
    MUST(t.user > 0 && t.expires_s > NOW && t.session[0]);
    MUST(!jwt_sign(key, &t, &again, &err));
    MUST(!jwt_verify(key, buf_str(&again), NOW, &back, &err));
    MUST(back.user == t.user && back.expires_s == t.expires_s && !strcmp(back.session, t.session));
    again.data[again.len / 2] ^= 1;
    MUST(jwt_verify(key, buf_str(&again), NOW, &back, &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);

    check_token((struct str){ copy, size });
    free(copy);
    return 0;
}
