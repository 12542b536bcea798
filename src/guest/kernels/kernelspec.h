/* kernelspec.h - which kernels there are: directories with a kernel.json, as Jupyter lays them out,
 * and `python3` and `sandbox-kernel` in any case. */
#ifndef GUEST_KERNELS_KERNELSPEC_H
#define GUEST_KERNELS_KERNELSPEC_H

#include "base/field.h"
#include "base/list.h"

struct kernelspec { /* shared: kernelspec_get, kernelspec_put */
    unsigned refs;
    struct list all;
    struct arena arena; /* of all it points to */
    char *name;
    char *dir; /* where its logos are; NULL: made up by us */
    struct strs argv;
    char *display_name, *language, *interrupt_mode, *metadata; /* the last as JSON */
    struct map env;
    int64_t cull_idle_s; /* metadata.cull_idle_timeout; -1: as all others */
    /* What a warmed parent needs; NULL where the kernel is not an ipykernel started plainly. */
    char *python;
};

struct kernelspecs {
    struct list all; /* by priority: of two with one name the first was kept */
};

/* Reads the directories: small files, quick enough for the loop. */
void kernelspecs_load(struct kernelspecs *s);
void kernelspecs_free(struct kernelspecs *s);
/* NULL: none of that name; name NULL or empty: the default. */
struct kernelspec *kernelspecs_find(const struct kernelspecs *s, const char *name);
const char *kernelspecs_default(const struct kernelspecs *s);
struct kernelspec *kernelspec_get(struct kernelspec *k);
void kernelspec_put(struct kernelspec *k);
void kernelspec_write(const struct kernelspec *k, struct buf *json); /* one entry of the API */

/* Pure: reads a kernel.json. NULL with err. */
struct kernelspec *kernelspec_parse(const char *name, const char *dir, struct str text,
                                    struct err *err);
/* The interpreter for a program named plainly ("python3"): beside the directory the spec was found
 * in, then along PATH. In the arena. */
char *kernelspec_python(struct arena *a, const char *word, const char *dir);

#endif
