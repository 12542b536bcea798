/* envfile.h - settings in a file, as a shell or Docker would read them:
 *
 *   # a comment
 *   COVE_LISTEN=127.0.0.1:8000
 *   export COVE_DOMAIN="cove.example"     # double quotes: \n \t \" \\ \$
 *   COVE_ADMIN_PASSWORD='as it is'
 *
 * Nothing is expanded, nothing is executed, no value goes over a line's end. */
#ifndef BASE_ENVFILE_H
#define BASE_ENVFILE_H

#include "base/arena.h"
#include "base/err.h"

enum { ENVFILE_BYTES = 256 << 10 };

struct envfile_pair {
    char *name, *value; /* in the arena given */
    size_t line;        /* 1 is the first */
};

struct envfile {
    size_t n;
    struct envfile_pair *items; /* in the order of the file; owned */
};

/* Pure. The error names the line and never the value, which may be a secret. */
int envfile_parse(struct str text, struct arena *a, struct envfile *out, struct err *err);
void envfile_free(struct envfile *f);
const struct envfile_pair *envfile_find(const struct envfile *f, const char *name); /* the last */

/* Reads the file: 1, or 0 when there is none and it need not be. Others must not be able to write
 * it: it decides what runs as root. */
int envfile_read(const char *path, bool required, struct arena *a, struct envfile *out,
                 struct err *err);
/* The same into our environment, for all that is not set there yet. Before any thread runs. */
int envfile_load(const char *path, bool required, struct err *err);

#endif
