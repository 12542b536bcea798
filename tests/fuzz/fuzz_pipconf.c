/* fuzz_pipconf.c - pip's configuration. Promises: it ends, a value is never empty, holds no line's
 * end, and is no longer than the text. */
#include "base/pipconf.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = { "index-url", "extra-index-url", "cert", "k" };
    char *copy = fuzz_copy(data, size);
    struct arena a = { 0 };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *value = pipconf_get((struct str){ copy, size }, keys[i], &a);

        MUST(!value || (*value && !strchr(value, '\n') && strlen(value) <= size));
    }
    arena_free(&a);
    free(copy);
    return 0;
}
