/* auth.h - who may call: the access token, signed file URLs, the user named by Basic. */
#ifndef GUEST_AUTH_H
#define GUEST_AUTH_H

#include "guest/guest.h"
#include "guest/user.h"

/* Pure: "v1_" + base64(sha256(path:operation:user:token[:expiry])) without padding. */
void auth_signature(struct buf *out, struct str path, const char *operation, struct str user,
                    struct str token, struct str expiry);
/* Pure, constant time in the signature: 0 when it holds at now_s. expiry .p NULL: none. */
int auth_check_signature(struct str signature, struct str path, const char *operation,
                         struct str user, struct str token, struct str expiry, int64_t now_s,
                         struct err *err);
/* Pure: the user name of an "Authorization: Basic" value; empty when there is none. */
int auth_basic_user(struct str authorization, struct arena *a, char **out, struct err *err);

int auth_before(struct call *c, struct err *err);                 /* httpd's hook */
int auth_user(struct call *c, struct user *out, struct err *err); /* by Basic, else the default */

#endif
