/* mem.h - allocation that cannot fail, and the cleanup functions for locals.
 *
 * Out of memory ends the process: every path that "handles" it is a path no test ever runs. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/util.h"

void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t n) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));

void freep(void *p);        /* for AUTO(freep) T *x */
void closep(const int *fd); /* for AUTO(closep) int fd; ignores -1 */

#endif
