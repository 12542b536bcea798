/* unpack_archive.c - see unpack_archive.h. */
#include "jail/unpack_archive.h"

#include <dlfcn.h>

#define LIBRARY "libarchive.so.13"

static struct unpack_archive table;

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define ROW(name) { "archive_" #name, offsetof(struct unpack_archive, name) },
    UNPACK_ARCHIVE_FUNCTIONS(ROW)
#undef ROW
};

const struct unpack_archive *unpack_archive_load(struct err *err)
{
    static void *handle;

    if (handle)
        return &table;
    void *h = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!h) {
        err_set(err, ERR_UNSUPPORTED,
                "archives are read with " LIBRARY ", which is not installed here (Debian and "
                "Ubuntu: apt-get install libarchive13; Fedora: dnf install libarchive)");
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        void *f = dlsym(h, functions[i].symbol);

        if (!f) {
            err_set(err, ERR_UNSUPPORTED, "%s has no function %s: install version 3.4 or later",
                    LIBRARY, functions[i].symbol);
            dlclose(h);
            return NULL;
        }
        memcpy((char *)&table + functions[i].offset, (void *)&f, sizeof(f));
    }
    handle = h;
    return &table;
}

struct archive *unpack_archive_new(const struct unpack_archive *lib, bool compressed)
{
    struct archive *a = lib->read_new();

    if (!a)
        abort(); /* out of memory, as everywhere */
    if (compressed) {
        lib->read_support_filter_gzip(a);
        lib->read_support_filter_bzip2(a);
        lib->read_support_filter_xz(a);
        lib->read_support_filter_zstd(a);
    }
    lib->read_support_format_tar(a);
    return a;
}
