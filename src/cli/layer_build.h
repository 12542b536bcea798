/* layer_build.h - the Python layer's files, made in a builder sandbox. */
#ifndef CLI_LAYER_BUILD_H
#define CLI_LAYER_BUILD_H

#include "base/err.h"
#include "cli/args.h"

struct layer_build {
    const char *data_dir, *template, *index; /* index NULL: as pip and uv are configured */
    char **requirements;                     /* ends with NULL */
    int archive;                             /* an empty file to write the tar to */
    bool quiet;
};

/* Runs `cove run` with a keeper of its own and waits. What it says goes to standard error, or, when
 * quiet, into err's sentence if it fails. */
int layer_build(const struct layer_build *b, struct err *err);

#endif
