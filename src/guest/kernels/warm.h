/* warm.h - processes that have imported what Python kernels import, and fork ready ones: one per
 * interpreter. The program they run is warm.py. */
#ifndef GUEST_KERNELS_WARM_H
#define GUEST_KERNELS_WARM_H

#include "base/field.h"
#include "io/co.h"

struct warm_request {
    const char *python, *file, *cwd;
    char *const *envp; /* of the new kernel, all of it */
};

/* Starts the interpreter's parent if none runs; does not wait for it, only for one that is ending.
 */
void warm_prepare(const char *python, const char *dir, int log);
bool warm_is_ready(const char *python); /* it has warmed up: a fork is quick now */
/* Waits for that, or for its end. */
void warm_wait(const char *python, int64_t until);
/* A new kernel: its process id and a pidfd, which becomes the caller's. -1 with err: no parent, or
 * it could not; ERR_NOT_FOUND when the interpreter has no ipykernel. */
int warm_fork(const struct warm_request *r, int64_t until, pid_t *pid, int *pidfd, struct err *err);
void warm_stop(void); /* ends all parents, and the kernels that they forked */

#endif
