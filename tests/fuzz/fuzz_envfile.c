/* fuzz_envfile.c - files of NAME=VALUE lines. Promises: it ends, names are names, values end where
 * they end, lines are counted, an error names a line and no value, and what was read comes out the
 * same when it is written in single quotes. */
#include "base/buf.h"
#include "base/envfile.h"
#include "fuzz.h"

static void check_name(const char *name)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";

    MUST(*name && strchr(first, *name));
    MUST(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") ==
         strlen(name));
}

static void again(const struct envfile *f)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct arena a = { 0 };
    struct envfile g;
    struct err err = { 0 };

    for (size_t i = 0; i < f->n; i++)
        if (!strchr(f->items[i].value, '\'') && !strchr(f->items[i].value, '\n'))
            buf_printf(&text, "export %s='%s' # x\n", f->items[i].name, f->items[i].value);
    MUST(!envfile_parse(buf_str(&text), &a, &g, &err));
    for (size_t i = 0, k = 0; i < f->n; i++) {
        if (strchr(f->items[i].value, '\'') || strchr(f->items[i].value, '\n'))
            continue;
        MUST(k < g.n && g.items[k].line == k + 1);
        MUST(!strcmp(g.items[k].name, f->items[i].name));
        MUST(!strcmp(g.items[k].value, f->items[i].value));
        k++;
    }
    envfile_free(&g);
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct arena a = { 0 };
    struct envfile f;
    struct err err = { 0 };
    size_t line = 0;

    if (envfile_parse((struct str){ copy, size }, &a, &f, &err)) {
        MUST(!f.n && !f.items && err.code == ERR_INVALID && !strncmp(err.msg, "line ", 5));
    } else {
        for (size_t i = 0; i < f.n; i++) {
            check_name(f.items[i].name);
            MUST(f.items[i].line > line && strlen(f.items[i].value) <= size);
            line = f.items[i].line;
            MUST(envfile_find(&f, f.items[i].name));
        }
        again(&f);
    }
    envfile_free(&f);
    arena_free(&a);
    free(copy);
    return 0;
}
