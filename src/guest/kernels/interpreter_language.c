/* interpreter_language.c - see interpreter_language.h. */
#include "guest/kernels/interpreter_language.h"

#include "base/json.h"
#include "base/mem.h"
#include "guest/kernels/scan.h"

/* ---- variables, in each one's own words ---- */

static void quote_shell(struct buf *b, const char *text)
{
    buf_putc(b, '\'');
    for (; *text; text++)
        if (*text == '\'')
            buf_puts(b, "'\\''");
        else
            buf_putc(b, *text);
    buf_putc(b, '\'');
}

static void python_env(struct buf *b, const struct map *env, bool set)
{
    buf_puts(b, set ? "__import__('cove_interpreter_env').enter({"
                    : "__import__('cove_interpreter_env').leave({");
    for (size_t i = 0; i < env->n; i++)
        json_kv_str(b, env->items[i].key, env->items[i].value);
    buf_puts(b, "})");
}

static void bash_env(struct buf *b, const struct map *env, bool set)
{
    for (size_t i = 0; i < env->n; i++) {
        buf_printf(b, set ? "export %s=" : "unset %s\n", env->items[i].key);
        if (set) {
            quote_shell(b, env->items[i].value);
            buf_putc(b, '\n');
        }
    }
}

static void script_env(struct buf *b, const struct map *env, bool set)
{
    for (size_t i = 0; i < env->n; i++) {
        buf_puts(b, set ? "process.env[" : "delete process.env[");
        scan_quote(b, env->items[i].key);
        buf_putc(b, ']');
        if (set) {
            buf_puts(b, "=");
            scan_quote(b, env->items[i].value);
        }
        buf_puts(b, ";");
    }
}

static void r_env(struct buf *b, const struct map *env, bool set)
{
    for (size_t i = 0; i < env->n; i++) {
        buf_printf(b, set ? "Sys.setenv(%s=" : "Sys.unsetenv(\"%s\"", env->items[i].key);
        if (set)
            scan_quote(b, env->items[i].value);
        buf_puts(b, ")\n");
    }
}

void language_write_python(struct buf *code, const struct map *set, const struct map *gone)
{
    for (size_t i = 0; i < gone->n; i++) {
        buf_puts(code, "__import__('os').environ.pop(");
        scan_quote(code, gone->items[i].key);
        buf_puts(code, ", None)\n");
    }
    buf_puts(code, "__import__('os').environ.update({");
    for (size_t i = 0; i < set->n; i++)
        json_kv_str(code, set->items[i].key, set->items[i].value);
    buf_puts(code, "})\n");
}

static bool is_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t n = strspn(s, letters);

    return n && !s[n + strspn(s + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                     "0123456789")];
}

/* One at a time, and only what is a name: a sandbox's variables may be called anything. */
void language_write_environment(const struct language *l, struct buf *code, const struct map *set,
                                const struct map *gone)
{
    const struct map *maps[] = { gone, set };

    if (l->ipython) {
        language_write_python(code, set, gone);
        return;
    }
    for (size_t m = 0; l->write_env && m < ARRAY_LEN(maps); m++)
        for (size_t i = 0; i < maps[m]->n; i++)
            if (is_name(maps[m]->items[i].key))
                l->write_env(code, &(struct map){ .n = 1, .items = &maps[m]->items[i] }, m == 1);
}

/* ---- the table, and what a sandbox adds to it ---- */

static const struct language languages[] = {
    { "python", "python3", "python3", "python", python_env, true },
    { "bash", "sh", "bash", "bash", bash_env, false },
    { "javascript", "js", "javascript", "javascript", script_env, false },
    { "typescript", "ts", "javascript", "javascript", script_env, false }, /* one kernel for both */
    { "r", NULL, "ir", "r", r_env, false },
    { "java", NULL, "java", "java", NULL, false },
};

const char *language_spec(const struct language *l, const struct kernelspecs *specs)
{
    const struct kernelspec *named = kernelspecs_find(specs, l->spec), *k;

    if (named)
        return named->name;
    list_each(k, &specs->all, all)
        if (k->language && str_iis(str_of(k->language), l->language))
            return k->name;
    return NULL;
}

/* Languages that only a kernel spec of the sandbox knows, remembered for their contexts. */
static const struct language *learn(const char *name)
{
    enum { LEARNED = 32 };
    static struct language learned[LEARNED];
    static size_t n;
    char *text;

    for (size_t i = 0; i < n; i++)
        if (str_iis(str_of(name), learned[i].name))
            return &learned[i];
    if (n == LEARNED)
        return NULL;
    text = xstrdup(name);
    learned[n] = (struct language){ .name = text, .spec = text, .language = text };
    return &learned[n++];
}

const struct language *language_find(const char *name, struct err *err)
{
    const struct language *l = NULL;
    struct kernelspecs specs;

    if (!name || !*name)
        name = "python";
    for (size_t i = 0; i < ARRAY_LEN(languages); i++)
        if (str_iis(str_of(name), languages[i].name) ||
            (languages[i].alias && str_iis(str_of(name), languages[i].alias)))
            l = &languages[i];
    kernelspecs_load(&specs);
    if (!l &&
        language_spec(&(struct language){ .name = name, .spec = name, .language = name }, &specs))
        l = learn(name);
    if (l && !language_spec(l, &specs))
        l = NULL;
    kernelspecs_free(&specs);
    if (!l)
        err_set(err, ERR_INVALID, "there is no kernel for language '%.40s' in this sandbox", name);
    return l;
}
