/* fuzz_environment.c - what pid 1 sends a service when the sandbox's environment has changed.
 * Promises: it ends, every name is one, every value ends where the item does, what is cut or no
 * item is passed over, and what came out comes out the same when it is sent again. */
#include "base/buf.h"
#include "fuzz.h"
#include "guest/services/environment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct str all = { copy, size }, rest = all, name, value;
    AUTO(buf_free) struct buf text = { 0 };
    size_t n = 0, again = 0, at = 0;

    for (; environment_next(&rest, &name, &value); n++) {
        MUST(name.n && !memchr(name.p, '=', name.n) && !memchr(name.p, 0, name.n));
        MUST(name.p >= copy + at && name.p[name.n] == '=' && value.p == name.p + name.n + 1);
        MUST(value.p + value.n < copy + size && !value.p[value.n] && strlen(value.p) == value.n);
        at = (size_t)(value.p + value.n + 1 - copy);
        buf_add(&text, name.p, name.n + 1 + value.n + 1);
    }
    MUST(n <= size / 3 + 1 && !environment_next(&rest, &name, &value));
    rest = buf_str(&text);
    for (at = 0; environment_next(&rest, &name, &value); again++) {
        MUST(name.p == text.data + at); /* nothing was passed over this time */
        at += name.n + 1 + value.n + 1;
    }
    MUST(again == n && at == text.len);
    free(copy);
    return 0;
}
