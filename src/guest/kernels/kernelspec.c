/* kernelspec.c - see kernelspec.h. Where Jupyter looks, in its order: JUPYTER_PATH, the user's data
 * directory, the interpreter's prefix, /usr/local/share, /usr/share. */
#include "guest/kernels/kernelspec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "guest/kernels/kernels.h"

enum { SPEC_BYTES = 1 << 20, SPECS_MAX = 256, NAME_MAX_LEN = 128 };

static const struct field spec_fields[] = {
    FIELD(struct kernelspec, argv, F_STRS, .flags = F_REQUIRED, .max = 256),
    FIELD(struct kernelspec, display_name, F_STR, .max = 1024),
    FIELD(struct kernelspec, language, F_STR, .max = 256),
    FIELD(struct kernelspec, interrupt_mode, F_STR, .max = 16),
    FIELD(struct kernelspec, env, F_MAP, .max = 1024),
    FIELD(struct kernelspec, metadata, F_JSON, .max = 256 << 10),
    {},
};

struct kernelspec *kernelspec_get(struct kernelspec *k)
{
    k->refs++;
    return k;
}

void kernelspec_put(struct kernelspec *k)
{
    if (!k || --k->refs)
        return;
    arena_free(&k->arena);
    free(k);
}

/* ---- interpreters ---- */

static bool executable(const char *path)
{
    struct stat st;

    return !access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode);
}

static char *along_path(struct arena *a, const char *word)
{
    const char *path = getenv("PATH");
    struct str rest = str_of(path && *path ? path : "/usr/local/bin:/usr/bin:/bin"), dir;

    while (rest.p) {
        char *at;

        str_cut(rest, ':', &dir, &rest);
        at = arena_printf(a, "%.*s/%s", STR_ARG(dir), word);
        if (dir.n && executable(at))
            return at;
    }
    return NULL;
}

char *kernelspec_python(struct arena *a, const char *word, const char *dir)
{
    const char *share = dir ? strstr(dir, "/share/jupyter/") : NULL;
    char *at;

    if (strchr(word, '/'))
        return arena_strdup(a, str_of(word));
    if (share) {
        at = arena_printf(a, "%.*s/bin/%s", (int)(share - dir), dir, word);
        if (executable(at))
            return at;
    }
    return along_path(a, word);
}

/* A program that jupyter_client would replace by its own interpreter: pythonX.Y in any form. */
static bool is_python(const char *word)
{
    const char *base = strrchr(word, '/');

    base = base ? base + 1 : word;
    return !strncmp(base, "python", 6) && strspn(base + 6, "0123456789.") == strlen(base + 6);
}

/* Only what is known to mean the same in a forked kernel: python [-X...] -m ipykernel_launcher. */
static bool is_plain_ipykernel(const struct kernelspec *k)
{
    size_t i = 1;

    if (k->argv.n < 5 || !is_python(k->argv.items[0]))
        return false;
    while (i < k->argv.n && !strncmp(k->argv.items[i], "-Xfrozen_modules", 16))
        i++;
    return i + 4 == k->argv.n && !strcmp(k->argv.items[i], "-m") &&
           (!strcmp(k->argv.items[i + 1], "ipykernel_launcher") ||
            !strcmp(k->argv.items[i + 1], "ipykernel")) &&
           !strcmp(k->argv.items[i + 2], "-f") &&
           !strcmp(k->argv.items[i + 3], "{connection_file}");
}

/* ---- reading ---- */

struct wishes {
    int64_t cull_idle_timeout;
};

static const struct field wish_fields[] = {
    FIELD(struct wishes, cull_idle_timeout, F_INT, .min = 0, .max = INT32_MAX, .def = -1),
    {},
};

/* jupyter_server lets a spec have a time of its own; what else is there, and nonsense, is none of
 * our business. */
static int64_t read_cull_idle(struct kernelspec *k)
{
    struct wishes w = { .cull_idle_timeout = -1 };
    struct err ignored = { 0 };

    if (!k->metadata || field_decode_text(wish_fields, FIELDS_LENIENT, str_of(k->metadata),
                                          &k->arena, &w, &ignored))
        return -1;
    return w.cull_idle_timeout;
}

struct kernelspec *kernelspec_parse(const char *name, const char *dir, struct str text,
                                    struct err *err)
{
    struct kernelspec *k = xcalloc(1, sizeof(*k));

    k->refs = 1;
    list_init(&k->all);
    if (field_decode_text(spec_fields, FIELDS_LENIENT, text, &k->arena, k, err) || !k->argv.n) {
        if (!err->code)
            err_set(err, ERR_INVALID, "field 'argv' is empty");
        err_in(err, "kernel spec %s", name);
        kernelspec_put(k);
        return NULL;
    }
    k->cull_idle_s = read_cull_idle(k);
    k->name = arena_strdup(&k->arena, str_of(name));
    k->dir = dir ? arena_strdup(&k->arena, str_of(dir)) : NULL;
    if (is_python(k->argv.items[0])) {
        char *python = kernelspec_python(&k->arena, k->argv.items[0], dir);

        k->argv.items[0] = python ? python : k->argv.items[0];
        if (python && is_plain_ipykernel(k))
            k->python = python;
    }
    return k;
}

static bool good_name(const char *name)
{
    size_t n = strlen(name);

    return n && n <= NAME_MAX_LEN && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static int read_text(const char *path, struct buf *out)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > SPEC_BYTES)
        return -1;
    buf_reserve(out, SPEC_BYTES);
    n = read(fd, out->data, SPEC_BYTES);
    out->len = n > 0 ? (size_t)n : 0;
    return n < 0 ? -1 : 0;
}

static void keep(struct kernelspecs *s, struct kernelspec *k)
{
    struct kernelspec *other;

    list_each(other, &s->all, all)
        if (!strcmp(other->name, k->name)) {
            kernelspec_put(k);
            return;
        }
    list_push(&s->all, &k->all);
}

static void read_directory(struct kernelspecs *s, const char *dir)
{
    DIR *d = opendir(dir);
    size_t left = SPECS_MAX;
    struct dirent *e;

    while (d && left && (e = readdir(d))) {
        AUTO(buf_free) struct buf path = { 0 };
        AUTO(buf_free) struct buf text = { 0 };
        struct err err = { 0 };
        struct kernelspec *k;

        if (!good_name(e->d_name))
            continue;
        buf_printf(&path, "%s/%s/kernel.json", dir, e->d_name);
        if (read_text(buf_cstr(&path), &text))
            continue;
        path.data[path.len -= strlen("/kernel.json")] = 0;
        k = kernelspec_parse(e->d_name, buf_cstr(&path), buf_str(&text), &err);
        if (k)
            keep(s, k);
        else
            log_warn("passed over", KV("error", err.msg));
        left--;
    }
    if (d)
        closedir(d);
}

/* ---- where to look ---- */

static void read_below(struct kernelspecs *s, const char *base, const char *rest)
{
    AUTO(buf_free) struct buf dir = { 0 };

    if (!base || !*base)
        return;
    buf_printf(&dir, "%s%s/kernels", base, rest);
    read_directory(s, buf_cstr(&dir));
}

static void read_jupyter_path(struct kernelspecs *s)
{
    struct str rest = str_of(getenv("JUPYTER_PATH")), dir;

    while (rest.n) {
        AUTO(buf_free) struct buf one = { 0 };

        str_cut(rest, ':', &dir, &rest);
        buf_add_str(&one, dir);
        read_below(s, buf_cstr(&one), "");
    }
}

static void read_user_data(struct kernelspecs *s)
{
    const char *data = getenv("JUPYTER_DATA_DIR"), *xdg = getenv("XDG_DATA_HOME");

    if (data && *data)
        read_below(s, data, "");
    else if (xdg && *xdg)
        read_below(s, xdg, "/jupyter");
    else
        read_below(s, getenv("HOME"), "/.local/share/jupyter");
}

/* The prefix of the first interpreter along PATH: a virtual environment that was activated. */
static void read_prefix(struct kernelspecs *s)
{
    struct arena a = { 0 };
    char *python = kernelspec_python(&a, "python3", NULL), *bin;

    if (python && (bin = strstr(python, "/bin/python3"))) {
        *bin = 0;
        read_below(s, python, "/share/jupyter");
    }
    arena_free(&a);
}

static void make_up(struct kernelspecs *s, const char *name, const struct kernelspec *like)
{
    static const char plain[] = "{\"argv\":[\"python3\",\"-m\",\"ipykernel_launcher\",\"-f\","
                                "\"{connection_file}\"],\"display_name\":\"Python 3\","
                                "\"language\":\"python\",\"metadata\":{\"debugger\":true}}";
    AUTO(buf_free) struct buf text = { 0 };
    struct err err = { 0 };

    if (like)
        field_encode(spec_fields, like, &text);
    else
        buf_puts(&text, plain);
    keep(s, kernelspec_parse(name, like ? like->dir : NULL, buf_str(&text), &err));
}

/* A kernel for bash that needs nothing but ipykernel: bash.py. */
static void make_up_bash(struct kernelspecs *s)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct err err = { 0 };

    if (!kernels.dir)
        return;
    buf_printf(&text,
               "{\"argv\":[\"python3\",\"%s/bash.py\",\"-f\",\"{connection_file}\"],"
               "\"display_name\":\"Bash\",\"language\":\"bash\"}",
               kernels.dir);
    keep(s, kernelspec_parse("bash", NULL, buf_str(&text), &err));
}

void kernelspecs_load(struct kernelspecs *s)
{
    list_init(&s->all);
    read_jupyter_path(s);
    read_user_data(s);
    read_below(s, getenv("VIRTUAL_ENV"), "/share/jupyter");
    read_prefix(s);
    read_below(s, "/usr/local", "/share/jupyter");
    read_below(s, "/usr", "/share/jupyter");
    make_up(s, "python3", NULL);
    make_up(s, "sandbox-kernel", kernelspecs_find(s, "python3"));
    make_up_bash(s);
}

void kernelspecs_free(struct kernelspecs *s)
{
    struct kernelspec *k;

    list_each(k, &s->all, all) {
        list_remove(&k->all);
        kernelspec_put(k);
    }
}

const char *kernelspecs_default(const struct kernelspecs *s)
{
    const char *name = getenv("JUPYTER_KERNEL_NAME");
    struct kernelspec *k;

    list_each(k, &s->all, all)
        if (name && !strcmp(k->name, name))
            return k->name;
    return "python3";
}

struct kernelspec *kernelspecs_find(const struct kernelspecs *s, const char *name)
{
    struct kernelspec *k;

    if (!name || !*name)
        name = kernelspecs_default(s);
    list_each(k, &s->all, all)
        if (!strcmp(k->name, name))
            return k;
    return NULL;
}

/* ---- for the API ---- */

static void write_resources(const struct kernelspec *k, struct buf *json)
{
    DIR *d = k->dir ? opendir(k->dir) : NULL;
    struct dirent *e;

    json_key(json, "resources");
    json_open(json, '{');
    while (d && (e = readdir(d))) {
        AUTO(buf_free) struct buf url = { 0 };
        char *dot = strrchr(e->d_name, '.');
        bool logo = !strncmp(e->d_name, "logo-", 5) && dot;

        if (!good_name(e->d_name) || (!logo && strcmp(e->d_name, "kernel.js") != 0))
            continue;
        buf_printf(&url, "/kernelspecs/%s/%s", k->name, e->d_name);
        if (logo)
            *dot = 0; /* the key has no suffix, the address has */
        json_kv_str(json, e->d_name, buf_cstr(&url));
    }
    if (d)
        closedir(d);
    json_close(json, '}');
}

void kernelspec_write(const struct kernelspec *k, struct buf *json)
{
    json_open(json, '{');
    json_kv_str(json, "name", k->name);
    json_key(json, "spec");
    json_open(json, '{');
    json_key(json, "argv");
    json_open(json, '[');
    for (size_t i = 0; i < k->argv.n; i++)
        json_put_str(json, str_of(k->argv.items[i]));
    json_close(json, ']');
    json_key(json, "env");
    json_open(json, '{');
    for (size_t i = 0; i < k->env.n; i++)
        json_kv_str(json, k->env.items[i].key, k->env.items[i].value);
    json_close(json, '}');
    json_kv_str(json, "display_name", k->display_name ? k->display_name : k->name);
    json_kv_str(json, "language", k->language ? k->language : "");
    json_kv_str(json, "interrupt_mode",
                k->interrupt_mode && *k->interrupt_mode ? k->interrupt_mode : "signal");
    json_key(json, "metadata");
    json_put_raw(json, k->metadata ? str_of(k->metadata) : STR("{}"));
    json_close(json, '}');
    write_resources(k, json);
    json_close(json, '}');
}
