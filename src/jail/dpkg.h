/* dpkg.h - the configuration files that packages brought, as dpkg's status file lists them.
 *
 * Takes bytes and gives slices of them: no descriptors, no memory of its own. */
#ifndef JAIL_DPKG_H
#define JAIL_DPKG_H

#include "base/str.h"

enum { DPKG_PATH_MAX = 1024 };

struct dpkg_conffile {
    struct str path;       /* absolute and clean: no empty, "." or ".." component */
    unsigned char md5[16]; /* of the file as the package ships it */
};

struct dpkg_conffiles { /* begin with { .rest = the file's text } */
    struct str rest;
    bool inside; /* the field that the next line continues is Conffiles */
};

/* The next one; lines that are not understood are passed over. false: the end. */
bool dpkg_next_conffile(struct dpkg_conffiles *it, struct dpkg_conffile *out);

bool dpkg_clean_path(struct str path); /* what struct dpkg_conffile promises of its path */

#endif
