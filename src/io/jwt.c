/* jwt.c - see jwt.h. The header is compared, not obeyed: a token that names another algorithm, or
 * none, is somebody else's whatever its signature. */
#include "io/jwt.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/field.h"
#include "base/mem.h"
#include "io/tls_impl.h"

enum { MAC = 32 };

static int invalid(struct err *err) { return err_set(err, ERR_UNAUTHENTICATED, JWT_INVALID); }

/* ---- base64url: no padding, '-' and '_' for '+' and '/' ---- */

static void put_url64(struct buf *out, const void *p, size_t n)
{
    size_t at = out->len;

    buf_reserve(out, base64_encoded_len(n));
    out->len += base64_encode(p, n, out->data + at);
    while (out->len > at && out->data[out->len - 1] == '=')
        out->len--;
    for (; at < out->len; at++)
        out->data[at] = out->data[at] == '+' ? '-' : out->data[at] == '/' ? '_' : out->data[at];
    out->data[out->len] = 0;
}

/* -1: not of that alphabet, or not written in its one way. */
static int get_url64(struct str in, struct buf *out)
{
    AUTO(buf_free) struct buf plain = { 0 };
    ssize_t n;

    if (memchr(in.p, '+', in.n) || memchr(in.p, '/', in.n) || memchr(in.p, '=', in.n))
        return -1;
    for (size_t i = 0; i < in.n; i++)
        buf_putc(&plain, in.p[i] == '-' ? '+' : in.p[i] == '_' ? '/' : in.p[i]);
    while (plain.len % 4)
        buf_putc(&plain, '=');
    buf_reserve(out, plain.len / 4 * 3);
    n = base64_decode(buf_str(&plain), out->data);
    if (n < 0)
        return -1;
    out->len = (size_t)n;
    out->data[n] = 0;
    return 0;
}

/* ---- the signature ---- */

static int mac_of(struct str key, struct str text, unsigned char out[static MAC], struct err *err)
{
    size_t n = 0;

    if (tls_load_crypto(err))
        return -1;
    if (!EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key.p, key.n, (const unsigned char *)text.p,
                   text.n, out, MAC, &n) ||
        n != MAC)
        return err_set(err, ERR_INTERNAL, "OpenSSL cannot compute HMAC-SHA256: %s", tls_why());
    return 0;
}

int jwt_sign(struct str key, const struct jwt *t, struct buf *out, struct err *err)
{
    static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
    AUTO(buf_free) struct buf claims = { 0 }, token = { 0 };
    unsigned char mac[MAC];
    char user[24];

    snprintf(user, sizeof(user), "%lld", (long long)t->user);
    json_open(&claims, '{');
    json_kv_str(&claims, "session_uuid", t->session);
    json_kv_int(&claims, "exp", t->expires_s);
    json_kv_str(&claims, "sub", user);
    json_close(&claims, '}');
    put_url64(&token, header, sizeof(header) - 1);
    buf_putc(&token, '.');
    put_url64(&token, claims.data, claims.len);
    if (mac_of(key, buf_str(&token), mac, err))
        return -1;
    buf_putc(&token, '.');
    put_url64(&token, mac, sizeof(mac));
    buf_add_str(out, buf_str(&token));
    return 0;
}

/* ---- what it says ---- */

struct header {
    char *alg, *typ;
};
static const struct field header_fields[] = {
    FIELD(struct header, alg, F_STR, .flags = F_REQUIRED, .max = 16),
    FIELD(struct header, typ, F_STR, .max = 16),
    {},
};

struct claims {
    char *session_uuid, *sub;
    int64_t exp;
};
static const struct field claim_fields[] = {
    FIELD(struct claims, session_uuid, F_STR, .flags = F_REQUIRED, .min = 1, .max = JWT_SESSION),
    FIELD(struct claims, sub, F_STR, .flags = F_REQUIRED, .min = 1, .max = 20),
    FIELD(struct claims, exp, F_INT, .flags = F_REQUIRED, .min = 1, .max = INT64_MAX / 1000),
    {},
};

static int decode(const struct field *table, struct str part, struct arena *a, void *out)
{
    AUTO(buf_free) struct buf json = { 0 };
    struct err ignored = { 0 };

    return get_url64(part, &json) ||
                   field_decode_text(table, FIELDS_LENIENT, buf_str(&json), a, out, &ignored)
               ? -1
               : 0;
}

static int read_header(struct str part, struct arena *a)
{
    struct header h = { 0 };

    return decode(header_fields, part, a, &h) || strcmp(h.alg, "HS256") ? -1 : 0;
}

static int read_claims(struct str part, struct arena *a, struct jwt *out)
{
    struct claims c = { 0 };
    struct jwt t = { 0 };

    if (decode(claim_fields, part, a, &c) || str_i64(str_of(c.sub), &t.user) || t.user < 1)
        return -1;
    memcpy(t.session, c.session_uuid, strlen(c.session_uuid) + 1);
    t.expires_s = c.exp;
    *out = t;
    return 0;
}

static int check_signature(struct str key, struct str text, struct str part, struct err *err)
{
    AUTO(buf_free) struct buf given = { 0 };
    unsigned char mac[MAC];

    if (get_url64(part, &given) || given.len != MAC)
        return invalid(err);
    if (mac_of(key, text, mac, err))
        return -1;
    return mem_equal_const(given.data, mac, MAC) ? 0 : invalid(err);
}

/* Its parts, when it was signed by this key. */
static int open_token(struct str key, struct str token, struct str *header, struct str *claims,
                      struct err *err)
{
    struct str mac, rest;

    if (token.n > JWT_MAX || !str_cut(token, '.', header, &rest) ||
        !str_cut(rest, '.', claims, &mac) || memchr(mac.p, '.', mac.n))
        return invalid(err);
    return check_signature(key, (struct str){ token.p, (size_t)(mac.p - token.p) - 1 }, mac, err);
}

/* All that jwt_sign() made begins alike: what does not costs no signature. */
bool jwt_is_signed(struct str key, struct str token)
{
    static const char beginning[] = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzZXNzaW9uX3V1aWQi";
    struct str header, claims;
    struct err ignored = { 0 };

    return str_starts(token, beginning) && !open_token(key, token, &header, &claims, &ignored);
}

int jwt_verify(struct str key, struct str token, int64_t now_s, struct jwt *out, struct err *err)
{
    struct str header, claims;
    struct arena a = { 0 };
    struct jwt t;
    int r;

    if (open_token(key, token, &header, &claims, err))
        return -1;
    r = read_header(header, &a) || read_claims(claims, &a, &t) ? invalid(err) : 0;
    arena_free(&a);
    if (r)
        return -1;
    if (t.expires_s <= now_s)
        return err_set(err, ERR_UNAUTHENTICATED, JWT_EXPIRED);
    *out = t;
    return 0;
}
