/* interpreter_language.h - the languages of the code interpreter: which kernel runs each, and how
 * variables of the environment are set in it. */
#ifndef GUEST_KERNELS_INTERPRETER_LANGUAGE_H
#define GUEST_KERNELS_INTERPRETER_LANGUAGE_H

#include "guest/kernels/kernelspec.h"

/* Variables for good, or for one execution: after it they are what they were before. */
enum language_env { ENV_SET, ENV_UNSET, ENV_ENTER, ENV_LEAVE };

struct language {
    const char *name, *alias;
    const char *spec;     /* the kernel spec of that name, if there is one */
    const char *language; /* else any that says so */
    /* NULL: cannot */
    void (*write_env)(struct buf *code, const struct map *env, enum language_env how);
    bool ipython; /* takes the formatters of interpreter.py */
};

/* NULL with err when this sandbox has no kernel for it; name NULL or empty: python. What it returns
 * lives as long as the process: contexts compare it. */
const struct language *language_find(const char *name, struct err *err);
/* Code that makes variables be what they are in the sandbox, for good; none where it cannot be. */
void language_write_environment(const struct language *l, struct buf *code, const struct map *set,
                                const struct map *gone);
void language_write_python(struct buf *code, const struct map *set, const struct map *gone);
/* The kernel spec that runs it, or NULL. */
const char *language_spec(const struct language *l, const struct kernelspecs *specs);

#endif
