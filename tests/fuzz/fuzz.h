/* fuzz.h - what every fuzz target shares. A broken promise is an abort(), which the engine keeps
 * as a crash; it does not depend on NDEBUG. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #cond);                    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A copy that ends where the bytes end, so that a read beyond them is seen. */
static inline char *fuzz_copy(const void *p, size_t n)
{
    char *copy = calloc(1, n ? n : 1);

    MUST(copy);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

#endif
