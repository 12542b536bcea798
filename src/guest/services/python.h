/* python.h - the Python that services run code with.
 *
 * What runs is an environment of the sandbox's own (a venv in the user's home, made here in a
 * moment), on the Python that the sandbox has, and with the packages of Cove's Python layer seen
 * from it where that is mounted. So what is installed on demand goes into the sandbox, never into
 * the layer, and `pip`, `uv` and `python` typed in a cell mean the same place. */
#ifndef GUEST_SERVICES_PYTHON_H
#define GUEST_SERVICES_PYTHON_H

#include "base/arena.h"
#include "base/err.h"

/* Where the layer is seen in a sandbox, and what must be typed when it is not there. */
#define PYTHON_LAYER   "/opt/cove/python"
#define PYTHON_COMMAND "cove layer add python"

struct python {
    const char *program;  /* of the environment: .../bin/python */
    const char *venv;     /* its directory */
    const char *version;  /* "3.11" */
    const char *packages; /* site-packages of the layer for that version; NULL: none */
};

/* Finds or makes it, once for the process; parks. What it returns lives as long as the process.
 * NULL: the sentence says what is missing. */
const struct python *python_prepare(struct err *err);

/* The environment for programs of it: ours, with VIRTUAL_ENV, and PATH led by it and the layer. */
char **python_envp(const struct python *p, struct arena *a);

/* uv's path: along PATH, in the environment, in the layer; NULL with what to type. */
const char *python_find_uv(const struct python *p, struct arena *a, struct err *err);

/* Is a module there for the interpreter (one look at the directories, no start of Python)? */
bool python_has(const struct python *p, const char *module);

#endif
