/* engine_impl.h - what engine.c and engine_start.c know of each other. */
#ifndef GUEST_KERNELS_ENGINE_IMPL_H
#define GUEST_KERNELS_ENGINE_IMPL_H

#include "guest/kernels/engine.h"

void engine_begin(struct engine *e); /* the process runs: look after it */
void engine_watch(void *arg);

#endif
