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

static void python_env(struct buf *b, const struct map *env, enum language_env how)
{
    buf_puts(b, how == ENV_ENTER ? "__import__('cove_interpreter_env').enter({"
                                 : "__import__('cove_interpreter_env').leave({");
    for (size_t i = 0; i < env->n; i++)
        json_kv_str(b, env->items[i].key, env->items[i].value);
    buf_puts(b, "})");
}

static bool is_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t n = strspn(s, letters);

    return n && !s[n + strspn(s + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                     "0123456789")];
}

static void bash_env(struct buf *b, const struct map *env, enum language_env how)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *name = env->items[i].key;

        if (!is_name(name)) /* a shell has no others */
            continue;
        if (how == ENV_ENTER)
            buf_printf(b, "[ -z \"${%s+x}\" ] || __cove_env_%s=${%s@a}:$%s\n", name, name, name,
                       name);
        if (how == ENV_LEAVE) {
            buf_printf(b, "if [ -n \"${__cove_env_%s+x}\" ]; then %s=${__cove_env_%s#*:}; ", name,
                       name, name);
            buf_printf(b, "case ${__cove_env_%s%%%%:*} in *x*) ;; *) export -n %s; esac; ", name,
                       name);
            buf_printf(b, "unset __cove_env_%s; else unset %s; fi\n", name, name);
        } else if (how == ENV_UNSET) {
            buf_printf(b, "unset %s\n", name);
        } else {
            buf_printf(b, "export %s=", name);
            quote_shell(b, env->items[i].value);
            buf_putc(b, '\n');
        }
    }
}

static void script_env(struct buf *b, const struct map *env, enum language_env how)
{
    static const char saved[] = "(globalThis.__cove_env = globalThis.__cove_env || {})";

    for (size_t i = 0; i < env->n; i++) {
        AUTO(buf_free) struct buf name = { 0 };
        const char *key;

        scan_quote(&name, env->items[i].key);
        key = buf_cstr(&name);
        if (how == ENV_ENTER)
            buf_printf(b, "%s[%s] = process.env[%s];", saved, key, key);
        if (how == ENV_LEAVE) {
            buf_printf(b, "if (%s[%s] === undefined) delete process.env[%s];", saved, key, key);
            buf_printf(b, "else process.env[%s] = %s[%s];", key, saved, key);
        } else if (how == ENV_UNSET) {
            buf_printf(b, "delete process.env[%s];", key);
        } else {
            buf_printf(b, "process.env[%s]=", key);
            scan_quote(b, env->items[i].value);
            buf_puts(b, ";");
        }
    }
}

static void r_env(struct buf *b, const struct map *env, enum language_env how)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *name = env->items[i].key;

        if (!is_name(name)) /* it stands in the code as it is */
            continue;
        if (how == ENV_ENTER)
            buf_printf(b, "options(`cove.env.%s` = Sys.getenv(\"%s\", unset = NA))\n", name, name);
        if (how == ENV_LEAVE)
            buf_printf(b, "if (is.na(getOption(\"cove.env.%s\", NA))) ", name);
        if (how == ENV_LEAVE || how == ENV_UNSET)
            buf_printf(b, "Sys.unsetenv(\"%s\")", name);
        if (how == ENV_LEAVE)
            buf_printf(b, " else Sys.setenv(`%s` = getOption(\"cove.env.%s\"))", name, name);
        if (how == ENV_ENTER || how == ENV_SET) {
            buf_printf(b, "Sys.setenv(`%s` = ", name);
            scan_quote(b, env->items[i].value);
            buf_putc(b, ')');
        }
        buf_putc(b, '\n');
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
                l->write_env(code, &(struct map){ .n = 1, .items = &maps[m]->items[i] },
                             m ? ENV_SET : ENV_UNSET);
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
