/* mem.c - see mem.h. */
#include "base/mem.h"

#include <errno.h>
#include <unistd.h>

static void *must(void *p)
{
    if (UNLIKELY(!p)) {
        static const char msg[] = "cove: out of memory\n";

        if (write(STDERR_FILENO, msg, sizeof(msg) - 1) < 0)
            _exit(137);
        abort();
    }
    return p;
}

void *xmalloc(size_t n) { return must(malloc(n ? n : 1)); }

void *xcalloc(size_t count, size_t n) { return must(calloc(count ? count : 1, n ? n : 1)); }

void *xrealloc(void *p, size_t n) { return must(realloc(p, n ? n : 1)); }

char *xstrdup(const char *s) { return must(strdup(s)); }

char *xstrndup(const char *s, size_t n) { return must(strndup(s, n)); }

void freep(void *p)
{
    void *owned;

    memcpy(&owned, p, sizeof(owned));
    free(owned);
}

void closep(const int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        close(*fd);
    errno = saved;
}
