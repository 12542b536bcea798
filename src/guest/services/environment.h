/* environment.h - how a service that runs already learns that the sandbox's environment has
 * changed.
 *
 * A warm sandbox's services begin before anybody knows whose it will be; /init then says so. The
 * keeper of the doors sends the whole new environment over a socket that is the service's
 * descriptor 0, as a memfd: it may be larger than a socket has room for. The service takes it
 * before each request that it answers, so whoever saw /init answered sees it in force. */
#ifndef GUEST_SERVICES_ENVIRONMENT_H
#define GUEST_SERVICES_ENVIRONMENT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/field.h"
#include "base/str.h"

enum { ENVIRONMENT_SOCKET = 0 }; /* the service's descriptor */

/* The keeper's side; never parks. */
int environment_send(int sock, char *const *envp, struct err *err);

/* The service's side. */
void environment_watch(void (*changed)(void)); /* called after each change; NULL: nothing to do */
void environment_refresh(void); /* takes what has come: one call to the kernel when nothing has */

/* One item of what was sent, and on; false: that was all. The value ends with a NUL. What is no
 * item, or not whole, is passed over. */
bool environment_next(struct str *rest, struct str *name, struct str *value);

/* What it was at some moment; counted. */
struct environment;
struct environment *environment_now(void); /* with a reference for the caller */
void environment_put(struct environment *e);
/* What must be set, and what removed, to make `from` what is in force now; false: nothing. The
 * texts are the arena's. */
bool environment_differs(const struct environment *from, struct arena *a, struct map *set,
                         struct map *gone);

#endif
