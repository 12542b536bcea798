/* url.h - http and https URLs, as strict as a server that is told one by a stranger should be.
 *
 * Two programs that read one URL differently are how a check is passed by one host and the request
 * goes to another. So what has a second reading is refused: control bytes, backslashes before the
 * path, percent signs and bytes beyond ASCII in a host, addresses in any form but four decimal
 * numbers (127.1, 0x7f000001, 017700000001), ports beyond five digits. */
#ifndef IO_URL_H
#define IO_URL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { URL_MAX = 8192, URL_HOST = 253 };

struct url { /* texts live in the arena it was parsed with */
    bool https;
    uint16_t port;             /* 80 or 443 where none was written */
    bool literal;              /* host is an address: as inet_pton() takes it, without brackets */
    char host[URL_HOST + 1];   /* lower case; without the dot that a whole name may end with */
    struct str user, password; /* decoded; .p NULL: none */
    struct str target;         /* path and query, percent-encoded: "/a%20b?c"; begins with '/' */
};

/* ERR_INVALID says what is wrong, and never repeats more than the scheme and the host. */
int url_parse(struct str text, struct arena *a, struct url *out, struct err *err);
/* What a Location means when base answered with it: whole or relative, dots resolved. */
int url_join(const struct url *base, struct str location, struct arena *a, struct url *out,
             struct err *err);
bool url_same_origin(const struct url *a, const struct url *b); /* scheme, host and port */
/* "https://host", with ":port" where it is not the scheme's own; brackets for IPv6. */
void url_origin(const struct url *u, struct buf *out);
void url_host_port(const struct url *u, struct buf *out); /* the same without the scheme */

#endif
