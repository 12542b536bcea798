/* jwt.h - signed tokens of our own logins: JSON Web Tokens with HMAC-SHA256 and no other algorithm.
 * Bytes in, values out; what a token says is not yet true: the login must still exist. */
#ifndef IO_JWT_H
#define IO_JWT_H

#include "base/buf.h"
#include "base/err.h"

enum { JWT_MAX = 4096, JWT_SESSION = 64 };

/* The sentences of the two refusals: a facade may have words of its own for them. */
#define JWT_INVALID "the token is not valid"
#define JWT_EXPIRED "the token has expired: log in again"

struct jwt {
    char session[JWT_SESSION + 1]; /* session_uuid */
    int64_t user;                  /* sub, which is a string */
    int64_t expires_s;             /* exp, unix */
};

int jwt_sign(struct str key, const struct jwt *t, struct buf *out, struct err *err);
/* ERR_UNAUTHENTICATED with one of the sentences above. The signature is looked at before anything
 * that it protects. */
int jwt_verify(struct str key, struct str token, int64_t now_s, struct jwt *out, struct err *err);

/* Is it one that jwt_sign() made with this key, whatever it says and however old it is? */
bool jwt_is_signed(struct str key, struct str token);

#endif
