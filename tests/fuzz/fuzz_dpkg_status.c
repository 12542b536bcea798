/* fuzz_dpkg_status.c - dpkg's status file. Promises: it ends, every path is absolute, clean and a
 * slice of the input, and the same conffile comes out of a file that holds nothing else. */
#include "base/buf.h"
#include "fuzz.h"
#include "jail/dpkg.h"

static void check(struct str text, const struct dpkg_conffile *c)
{
    AUTO(buf_free) struct buf alone = { 0 };
    struct dpkg_conffiles it = { 0 };
    struct dpkg_conffile again;

    MUST(c->path.p >= text.p && c->path.p + c->path.n <= text.p + text.n);
    MUST(c->path.n < DPKG_PATH_MAX && dpkg_clean_path(c->path));
    MUST(!memmem(c->path.p, c->path.n, "/../", 4) && !memchr(c->path.p, 0, c->path.n));
    MUST(!memchr(c->path.p, '\n', c->path.n));
    buf_printf(&alone, "Conffiles:\n %.*s ", STR_ARG(c->path));
    for (size_t i = 0; i < sizeof(c->md5); i++)
        buf_printf(&alone, "%02x", c->md5[i]);
    it.rest = buf_str(&alone);
    MUST(dpkg_next_conffile(&it, &again));
    MUST(str_eq(again.path, c->path) && !memcmp(again.md5, c->md5, sizeof(c->md5)));
    MUST(!dpkg_next_conffile(&it, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str text = { copy, size };
    struct dpkg_conffiles it = { .rest = text };
    struct dpkg_conffile c;
    size_t left = size + 1;

    while (dpkg_next_conffile(&it, &c)) {
        check(text, &c);
        MUST(it.rest.n < left); /* it comes nearer to the end each time */
        left = it.rest.n;
        if (!left)
            break;
    }
    free(copy);
    return 0;
}
