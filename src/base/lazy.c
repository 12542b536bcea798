/* lazy.c - see lazy.h. */
#include "base/lazy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void lazy_unloaded(void)
{
    fputs("cove: a library was used before it was loaded\n", stderr);
    abort();
}

/* Nothing is filled in unless all of it can be. */
static int fill(struct lazy *l, void *library, struct err *err)
{
    for (int really = 0; really < 2; really++)
        for (size_t i = 0; i < l->n; i++) {
            void *f = dlsym(library, l->rows[i].name);

            if (!f)
                return err_set(err, ERR_UNSUPPORTED, "%s has no function %s: install a newer %s",
                               l->file, l->rows[i].name, l->package);
            if (really)
                *l->rows[i].slot = f;
        }
    return 0;
}

static int load(struct lazy *l, struct err *err)
{
    void *library = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is not installed here (Debian and Ubuntu: apt-get install %s)", l->file,
                       l->package);
    if (!fill(l, library, err))
        return 0;
    dlclose(library);
    return -1;
}

int lazy_load(struct lazy *l, struct err *err)
{
    int r = 0;

    pthread_mutex_lock(&lock);
    if (!l->loaded)
        r = load(l, err);
    l->loaded = !r;
    pthread_mutex_unlock(&lock);
    return r;
}
