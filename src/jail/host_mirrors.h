/* host_mirrors.h - package sources without credentials: text in, text out. */
#ifndef JAIL_HOST_MIRRORS_H
#define JAIL_HOST_MIRRORS_H

#include "base/buf.h"

/* Whether lists of apt or apk can be handed to strangers and work inside: no user or password in
 * an address, no address of a file, no key outside /usr and /etc/apt. */
bool host_mirrors_safe(struct str text);
void host_mirrors_strip(struct str text, struct buf *out); /* without comments */

/* Keeps `key = address` lines of pip.conf or npmrc whose key is in the list and whose address is
 * http or https without credentials. Returns how many. */
size_t host_mirrors_keys(struct str text, const char *const *keys, struct buf *out);

#endif
