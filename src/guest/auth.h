/* auth.h - who may call: the access token, signed file URLs, the user named by Basic. */
#ifndef GUEST_AUTH_H
#define GUEST_AUTH_H

#include "guest/guest.h"
#include "guest/user.h"

/* Pure: the user name of an "Authorization: Basic" value; empty when there is none. */
int auth_basic_user(struct str authorization, struct arena *a, char **out, struct err *err);

int auth_before(struct call *c, struct err *err);                 /* httpd's hook */
int auth_user(struct call *c, struct user *out, struct err *err); /* by Basic, else the default */

#endif
