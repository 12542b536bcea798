/* user.c - see user.h. */
#include "model/user.h"

#include <nettle/sha2.h>

#include "base/id.h"

const char *const user_role_names[USER_ROLES] = { [ROLE_USER] = "user", [ROLE_ADMIN] = "admin" };

static bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool user_name_valid(struct str name)
{
    if (!name.n || name.n > USER_NAME || !is_alnum(name.p[0]))
        return false;
    for (size_t i = 1; i < name.n; i++)
        if (!is_alnum(name.p[i]) && name.p[i] != '.' && name.p[i] != '_' && name.p[i] != '-')
            return false;
    return true;
}

void api_key_new(char out[static 64])
{
    memcpy(out, "e2b_", sizeof("e2b_"));
    id_hex(out + 4, 40);
}

/* No salt and one round: a key is 160 random bits, there is nothing to guess; and it is looked up
 * by this hash. nettle's, not OpenSSL's, because the guest links what model needs. */
void api_key_hash(struct str key, char out[static KEY_HASH + 1])
{
    struct sha256_ctx ctx;
    uint8_t raw[SHA256_DIGEST_SIZE];

    sha256_init(&ctx);
    sha256_update(&ctx, key.n, (const uint8_t *)key.p);
    sha256_digest(&ctx, sizeof(raw), raw);
    for (size_t i = 0; i < sizeof(raw); i++) {
        out[2 * i] = "0123456789abcdef"[raw[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[raw[i] & 15];
    }
    out[KEY_HASH] = 0;
}
