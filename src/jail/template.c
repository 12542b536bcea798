/* template.c - see template.h: finding and listing. template_add.c adds and removes. */
#include "jail/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/template_impl.h"

const char *template_alias;

/* Names that clients of other platforms ask for; each is the default until somebody adds one. */
static const char *const aliases[] = {
    "base",       "code-interpreter-v1",     "desktop", "mcp-gateway", "ubuntu",
    "qemux/qemu", "python-sandbox-template",
};

static bool is_alias(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (!strcmp(aliases[i], name))
            return true;
    return template_alias && !strcmp(template_alias, name);
}

int template_check_name(const char *name, struct err *err)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

    if (!n || name[n] || n > TEMPLATE_NAME_MAX || strchr("._-", name[0]))
        return err_set(err, ERR_INVALID,
                       "template name '%.70s' must be 1 to %d of a-z 0-9 . _ - and begin with a "
                       "letter or digit",
                       name, TEMPLATE_NAME_MAX);
    return 0;
}

/* The path's last part with mode 0700, those before it, where they are missing, with 0755. */
static int make_folder(char *path, struct err *err)
{
    for (char *slash = path; (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = 0;
        if (mkdir(path, 0755) && errno != EEXIST)
            return err_sys(err, "make %s", path);
    }
    return mkdir(path, 0700) && errno != EEXIST ? err_sys(err, "make %s", path) : 0;
}

int template_folder(const char *data_dir, bool make, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    int fd;

    buf_printf(&path, "%s/templates", data_dir);
    if (make && make_folder(path.data, err) < 0)
        return -1;
    fd = open(path.data, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open %s", path.data) : fd;
}

int template_open_directory(const char *path, struct err *err)
{
    AUTO(closep) int fd = -1;
    struct stat st, machine;

    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "template directory '%.150s' must be an absolute path",
                       path);
    fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(err, ERR_INVALID,
                       "template '%.150s' is not a directory (a link must be named by its target)",
                       path);
    if (fd < 0 || fstat(fd, &st) || stat("/", &machine))
        return err_sys(err, "open template directory %.150s", path);
    if (st.st_dev == machine.st_dev && st.st_ino == machine.st_ino)
        return err_set(err, ERR_INVALID,
                       "'/' with all of this machine's secrets is no template: use 'host'");
    return TAKE(fd, -1);
}

/* ---- opening ---- */

static void make_host(struct template *t)
{
    *t = (struct template){ .kind = TEMPLATE_HOST, .root = -1, .lock = -1 };
    t->name = arena_strdup(&t->strings, STR("host"));
}

static void name_path(const char *path, struct template *t)
{
    *t = (struct template){ .kind = TEMPLATE_DIRECTORY, .root = -1, .lock = -1 };
    t->name = t->source = t->root_path = arena_strdup(&t->strings, str_of(path));
}

static int no_such(const char *name, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no template '%s' (cove template list shows all)",
                   name);
}

/* The lock says that it is in use. One that was removed between our open and our lock must not be
 * used, though both worked: its name then leads elsewhere, or nowhere. */
static int lock_shared(int folder, const char *name, int dir, struct err *err)
{
    struct stat named, held;

    if (flock(dir, LOCK_SH | LOCK_NB) || fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) ||
        fstat(dir, &held) || named.st_ino != held.st_ino)
        return no_such(name, err);
    return 0;
}

static int open_root(int dir, const char *data_dir, struct template *t, struct err *err)
{
    if (t->kind == TEMPLATE_HOST)
        return 0;
    if (t->kind == TEMPLATE_DIRECTORY) {
        t->root_path = t->source ? t->source : arena_strdup(&t->strings, STR(""));
        return 0;
    }
    t->root_path = arena_printf(&t->strings, "%s/templates/%s/" TEMPLATE_ROOT, data_dir, t->name);
    t->root = openat(dir, TEMPLATE_ROOT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return t->root < 0 ? err_sys(err, "open %s", t->root_path) : 0;
}

static bool is_missing(int folder, const char *name)
{
    return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
}

/* What is missing is a part of it: it is there itself. */
static int part_missing(const char *name, struct err *err)
{
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_PRECONDITION;
    return err_in(err, "template '%s'", name);
}

/* 1: nobody has added one of that name. What somebody added and cannot be read now is an error, by
 * whatever name: an alias must not become the machine's own files for it. */
static int open_named(int folder, const char *data_dir, const char *name, struct template *t,
                      struct err *err)
{
    AUTO(closep) int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0)
        return errno == ENOENT ? 1 : err_sys(err, "open template '%s'", name);
    if (lock_shared(folder, name, dir, err) < 0)
        return is_missing(folder, name) ? 1 : -1; /* removed just now */
    *t = (struct template){ .root = -1, .lock = -1 };
    if (template_load(dir, t, err) < 0 || open_root(dir, data_dir, t, err) < 0) {
        template_close(t);
        return part_missing(name, err);
    }
    t->lock = TAKE(dir, -1);
    return 0;
}

int template_locate(const char *data_dir, const char *name, struct template *out, struct err *err)
{
    bool alias = is_alias(name);
    AUTO(closep) int folder = -1;
    struct err problem = { 0 };
    int r = 1;

    if (name[0] == '/') {
        name_path(name, out);
        return 0;
    }
    if (strcmp(name, "host") && (!alias || !strchr(name, '/'))) {
        if (template_check_name(name, err) < 0)
            return -1;
        folder = template_folder(data_dir, false, &problem); /* made when the first is added */
        if (folder >= 0)
            r = open_named(folder, data_dir, name, out, &problem);
        else if (problem.code != ERR_NOT_FOUND)
            r = -1;
        if (r < 0)
            *err = problem;
        if (r <= 0)
            return r;
        if (!alias)
            return no_such(name, err);
    }
    make_host(out);
    return 0;
}

int template_open_root(const struct template *t, struct err *err)
{
    int root = template_open_directory(t->root_path, err);

    return root < 0 && t->name[0] != '/' ? part_missing(t->name, err) : root;
}

int template_open(const char *data_dir, const char *name, struct template *out, struct err *err)
{
    if (template_locate(data_dir, name, out, err))
        return -1;
    if (out->kind != TEMPLATE_DIRECTORY)
        return 0;
    out->root = template_open_root(out, err);
    if (out->root >= 0)
        return 0;
    template_close(out);
    return -1;
}

void template_close(struct template *t)
{
    if (t->name) { /* zeroed: descriptor 0 is not ours */
        closep(&t->root);
        closep(&t->lock);
    }
    arena_free(&t->strings);
    *t = (struct template){ .root = -1, .lock = -1 };
}

/* ---- listing ---- */

static int by_name(const void *a, const void *b)
{
    const struct template *x = a, *y = b;

    if (!strcmp(x->name, "host") || !strcmp(y->name, "host"))
        return strcmp(x->name, "host") ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* One that cannot be read is said and passed over: the others are there all the same. */
static int load_named(int folder, const char *name, struct template *t)
{
    AUTO(closep) int dir = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct err err = { 0 };

    if (dir < 0)
        return -1; /* removed just now */
    *t = (struct template){ .root = -1, .lock = -1 };
    if (!template_load(dir, t, &err))
        return 0;
    log_warn("a template cannot be read", KV("template", name), KV("error", err.msg));
    template_close(t);
    return -1;
}

static void list_folder(int folder, DIR *d, struct template **list, size_t *n)
{
    struct err ignored;

    for (struct dirent *e; (e = readdir(d));) {
        if (template_check_name(e->d_name, &ignored) < 0)
            continue;
        *list = xrealloc(*list, (*n + 1) * sizeof(**list));
        if (!load_named(folder, e->d_name, &(*list)[*n]))
            (*n)++;
    }
}

int template_list(const char *data_dir, struct template **out, size_t *n, struct err *err)
{
    struct err missing = { 0 };
    int folder = template_folder(data_dir, false, &missing);
    DIR *d = folder < 0 ? NULL : fdopendir(folder);

    if (folder < 0 && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    *out = xmalloc(sizeof(**out));
    *n = 1;
    make_host(*out);
    if (d) {
        list_folder(folder, d, out, n);
        closedir(d);
    }
    qsort(*out, *n, sizeof(**out), by_name);
    return 0;
}

static int names_compare(const void *a, const void *b) { return strcmp(a, b); }

typedef char template_name[TEMPLATE_NAME_MAX + 1];

static template_name *names_behind(DIR *d, const char *after, size_t *n)
{
    template_name *names = NULL;
    struct err ignored;

    *n = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (template_check_name(e->d_name, &ignored) < 0 || strcmp(e->d_name, after) <= 0)
            continue;
        names = xrealloc(names, (*n + 1) * sizeof(*names));
        memcpy(names[(*n)++], e->d_name, strlen(e->d_name) + 1);
    }
    if (names)
        qsort(names, *n, sizeof(*names), names_compare);
    return names;
}

int template_page(const char *data_dir, const char *after, struct template *out, size_t room,
                  size_t *n, struct err *err)
{
    AUTO(freep) template_name *names = NULL;
    struct err missing = { 0 };
    int folder = template_folder(data_dir, false, &missing);
    DIR *d = folder < 0 ? NULL : fdopendir(folder);
    size_t all = 0;

    if (folder < 0 && missing.code != ERR_NOT_FOUND) {
        *err = missing;
        return -1;
    }
    *n = 0;
    if (!*after && room)
        make_host(&out[(*n)++]);
    if (d)
        names = names_behind(d, strcmp(after, "host") ? after : "", &all);
    for (size_t i = 0; i < all && *n < room; i++)
        if (!load_named(folder, names[i], &out[*n]))
            (*n)++;
    if (d)
        closedir(d);
    return 0;
}

bool template_taken(const char *data_dir, const char *name)
{
    AUTO(buf_free) struct buf path = { 0 };

    if (!strcmp(name, "host") || strchr(name, '/'))
        return false;
    buf_printf(&path, "%s/templates/%s", data_dir, name);
    return !access(path.data, F_OK);
}

void template_list_free(struct template *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        template_close(&list[i]);
    free(list);
}
