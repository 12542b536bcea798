/* pipconf.h - where this machine gets Python packages from, as pip's own configuration says. */
#ifndef BASE_PIPCONF_H
#define BASE_PIPCONF_H

#include "base/arena.h"

/* Pure: the value of `key` in section [global] or [install] of a pip.conf, continuation lines
 * joined by a blank; NULL: it is not there. The last one wins, as with pip. */
char *pipconf_get(struct str text, const char *key, struct arena *a);

/* The same over pip's files: the machine's, the user's, PIP_CONFIG_FILE's. */
char *pipconf_find(const char *key, struct arena *a);

#endif
