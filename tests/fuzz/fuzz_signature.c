/* fuzz_signature.c - credentials in URLs and headers. The input is five values, each up to a NUL:
 * signature, path, user, expiry, Authorization. Promises: only the one right signature is taken,
 * and not after its time; a user's name comes out of Basic as it went in. */
#include "base/arena.h"
#include "fuzz.h"
#include "guest/auth.h"
#include "model/signature.h"

enum { NOW = 1700000000 };

static struct str next_value(struct str *rest)
{
    struct str value;

    str_cut(*rest, 0, &value, rest);
    return value;
}

static void check_signature(struct str signature, struct str path, struct str user,
                            struct str expiry)
{
    AUTO(buf_free) struct buf right = { 0 };
    const struct str token = STR("secret-token");
    struct err err = { 0 };
    int64_t until = INT64_MAX;
    bool timely = !expiry.p || (!str_i64(expiry, &until) && until >= NOW);
    int r;

    signature_make(&right, path, "read", user, token, expiry);
    MUST(right.len == 46 && str_starts(buf_str(&right), "v1_"));
    r = signature_check(signature, path, "read", user, token, expiry, NOW, &err);
    MUST(!r == (str_eq(signature, buf_str(&right)) && timely));
    MUST(!r == !err.code);
    r = signature_check(buf_str(&right), path, "read", user, token, expiry, NOW, &err);
    MUST(!r == timely);
    /* the same signature holds for nothing else */
    MUST(signature_check(buf_str(&right), path, "write", user, token, expiry, NOW, &err));
    MUST(signature_check(buf_str(&right), path, "read", user, STR("other"), expiry, NOW, &err));
    right.data[3 + path.n % 43] ^= 1;
    MUST(signature_check(buf_str(&right), path, "read", user, token, expiry, NOW, &err));
    right.len--;
    MUST(signature_check(buf_str(&right), path, "read", user, token, expiry, NOW, &err));
}

static void check_basic(struct str authorization, struct str user)
{
    struct arena a = { 0 };
    struct err err = { 0 };
    struct buf b = { 0 };
    char *name = NULL;
    int r = auth_basic_user(authorization, &a, &name, &err);

    MUST(!r == !err.code);
    MUST(name && (r || !strchr(name, ':')));
    if (user.n && !memchr(user.p, ':', user.n)) {
        AUTO(buf_free) struct buf plain = { 0 };

        buf_add_str(&plain, user);
        buf_puts(&plain, ":x");
        buf_puts(&b, "Basic ");
        buf_reserve(&b, base64_encoded_len(plain.len));
        b.len += base64_encode(plain.data, plain.len, b.data + b.len);
        err = (struct err){ 0 };
        MUST(!auth_basic_user(buf_str(&b), &a, &name, &err));
        MUST(str_is(user, name));
    }
    buf_free(&b);
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str rest = { copy, size };
    struct str signature = next_value(&rest), path = next_value(&rest), user = next_value(&rest),
               expiry = next_value(&rest);

    check_signature(signature, path, user, expiry);
    check_basic(rest, user);
    free(copy);
    return 0;
}
