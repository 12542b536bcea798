/* warm.h - processes that have imported what Python kernels import, and fork ready ones: one per
 * interpreter. The program they run is warm.py. */
#ifndef GUEST_KERNELS_WARM_H
#define GUEST_KERNELS_WARM_H

#include "base/field.h"
#include "io/spawn.h"

struct warm_request {
    const char *python, *file, *cwd;
    char *const *envp; /* of the new kernel, all of it */
};

/* Starts the interpreter's parent if none runs; does not wait for it, only for one that is ending.
 */
void warm_prepare(const char *python, const char *dir, int log);
bool warm_is_ready(const char *python); /* it has warmed up, and answers: a fork is quick now */
/* Waits for that, or for its end. */
void warm_wait(const char *python, int64_t until);
/* A new kernel, which is a child of ours from then on. -1 with err: no parent, or it could not, or
 * not yet; ERR_NOT_FOUND when the interpreter has no ipykernel. A parent that is late is left
 * alone: what it forks too late ends by itself, and until it says something it is not asked again.
 */
int warm_fork(const struct warm_request *r, int64_t until, struct child *out, struct err *err);
void warm_stop(void); /* ends all parents; their kernels go on */

#endif
