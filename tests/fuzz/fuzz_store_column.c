/* fuzz_store_column.c - the JSON columns of a sandbox's row as a tampered file could hold them. The
 * first byte chooses the column. Promise: what was read and written again reads as the same. */
#include "fuzz.h"
#include "store/column.h"

static const struct column *choose(uint8_t which)
{
    const struct column *json[8];
    size_t n = 0;

    for (const struct column *c = column_sandbox; c->name; c++)
        if (c->kind == COLUMN_JSON && n < ARRAY_LEN(json))
            json[n++] = c;
    MUST(n);
    return json[which % n];
}

static void check_again(const struct column *c, const struct sandbox *s)
{
    struct arena first = { 0 }, second = { 0 };
    struct column_value v = column_get(c, s, &first), w;
    struct sandbox again = { 0 };
    struct err err = { 0 };

    MUST(!column_set(c, v, &again, &err));
    w = column_get(c, &again, &second);
    MUST(!v.text == !w.text && (!v.text || !strcmp(v.text, w.text)));
    sandbox_finish(&again);
    arena_free(&first);
    arena_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct column *c;
    struct sandbox s = { 0 };
    struct err err = { 0 };
    char *text;
    int r;

    if (!size)
        return 0;
    c = choose(data[0]);
    text = calloc(1, size); /* a text ends with its NUL, and nothing behind it may be read */
    MUST(text);
    memcpy(text, data + 1, size - 1);
    r = column_set(c, (struct column_value){ .text = text }, &s, &err);
    free(text);
    MUST((r < 0) == (err.code != ERR_NONE));
    if (!r)
        check_again(c, &s);
    sandbox_finish(&s);
    return 0;
}
