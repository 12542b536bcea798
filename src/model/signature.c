/* signature.c - see signature.h. */
#include "model/signature.h"

#include <nettle/sha2.h>

void signature_make(struct buf *out, struct str path, const char *operation, struct str user,
                    struct str token, struct str expiry)
{
    const struct str part[] = { path, str_of(operation), user, token, expiry };
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    char text[48];
    size_t n;

    sha256_init(&sha);
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        if (i == 4 && !expiry.p)
            break;
        if (i)
            sha256_update(&sha, 1, (const uint8_t *)":");
        if (part[i].n)
            sha256_update(&sha, part[i].n, (const uint8_t *)part[i].p);
    }
    sha256_digest(&sha, sizeof(digest), digest);
    n = base64_encode(digest, sizeof(digest), text);
    while (n && text[n - 1] == '=')
        n--;
    buf_puts(out, "v1_");
    buf_add(out, text, n);
}

int signature_check(struct str signature, struct str path, const char *operation, struct str user,
                    struct str token, struct str expiry, int64_t now_s, struct err *err)
{
    AUTO(buf_free) struct buf want = { 0 };
    int64_t until = INT64_MAX;

    signature_make(&want, path, operation, user, token, expiry);
    if (signature.n != want.len || !mem_equal_const(signature.p, want.data, want.len))
        return err_set(err, ERR_UNAUTHENTICATED, "invalid signature");
    if (expiry.p && str_i64(expiry, &until))
        return err_set(err, ERR_UNAUTHENTICATED, "signature_expiration is not a number");
    if (until < now_s)
        return err_set(err, ERR_UNAUTHENTICATED, "the signature has expired");
    return 0;
}
