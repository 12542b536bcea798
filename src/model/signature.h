/* signature.h - URLs that open one file of a sandbox to who has no token: signed by its access
 * token. The guest asks for them, and the router before it wakes somebody for one. */
#ifndef MODEL_SIGNATURE_H
#define MODEL_SIGNATURE_H

#include "base/buf.h"
#include "base/err.h"

/* "v1_" + base64(sha256(path:operation:user:token[:expiry])) without padding. */
void signature_make(struct buf *out, struct str path, const char *operation, struct str user,
                    struct str token, struct str expiry);
/* Constant time in the signature: 0 when it holds at now_s. expiry .p NULL: none. */
int signature_check(struct str signature, struct str path, const char *operation, struct str user,
                    struct str token, struct str expiry, int64_t now_s, struct err *err);

#endif
