/* host_var.c - what of the machine's /var is needed inside: the package database, so that packages
 * can be installed and removed there, font caches, and files that /usr only links to.
 *
 * The database of dpkg is linked, not copied, where possible (50 ms instead of 900): dpkg replaces
 * its files by rename and the layer is read-only, so neither side changes the other's. Databases
 * that are written in place are copied. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"

enum { OVERRIDES_MAX = 1 << 20, LINKED_MAX = 16 << 20 };

static const char *const trees[] = {
    "var/lib/rpm",
    "var/lib/pacman/local",
    "var/cache/fontconfig", /* the first fc-list: 9 ms instead of 158 */
    "var/lib/ghostscript/CMap",
    "var/lib/sgml-base",
    "var/lib/xml-core",
};

/* Never those: databases handled above, and one's own. */
static const char *const not_linked[] = { "var/lib/dpkg", "var/lib/apt", "var/lib/rpm",
                                          "var/lib/pacman" };

static int visit_dpkg(void *arg, const struct host_entry *e, struct err *err)
{
    static const char *const skipped[] = {
        "lock*", "Lock", "*-old", "available", "statoverride", /* see put_overrides() */
    };
    struct host_build *b = arg;
    AUTO(closep) int dir = -1;

    if (S_ISDIR(e->st.st_mode)) {
        dir = host_tree_dir(b, &b->base, e->path);
        if (dir < 0)
            return err_sys(err, "make %.150s", e->path);
        /* what dpkg has not finished is not for us, but it wants the directories */
        return strcmp(e->name, "updates") && strcmp(e->name, "parts");
    }
    for (size_t i = 0; i < ARRAY_LEN(skipped); i++)
        if (!fnmatch(skipped[i], e->name, 0) && (e->depth == 1 || !strcmp(e->name, "Lock")))
            return 0;
    if (!S_ISREG(e->st.st_mode))
        return 0;
    return host_tree_copy(b, e->path, HOST_COPY_PUBLIC | HOST_COPY_LINK, err) < 0 ? -1 : 0;
}

/* "user group mode path". A name that passwd does not have stops dpkg altogether, and people's
 * names are not for the sandbox: only lines with accounts that exist inside. */
static int put_overrides(struct host_build *b, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(buf_free) struct buf out = { 0 };
    struct host_node n = { .path = "var/lib/dpkg/statoverride", .mode = 0644 };
    struct str rest, line, user, group, tail;
    struct stat st;

    if (host_tree_read(b, n.path, OVERRIDES_MAX, &text, &st) && !host_tree_absent(errno))
        return err_sys(err, "read /%s", n.path);
    rest = buf_str(&text);
    while (rest.n) {
        str_cut(rest, '\n', &line, &rest);
        if (!str_cut(line, ' ', &user, &tail) || !str_cut(tail, ' ', &group, &tail) ||
            !host_accounts_has(&b->accounts, user, group))
            continue;
        buf_add_str(&out, line);
        buf_putc(&out, '\n');
    }
    n.bytes = buf_str(&out);
    return host_tree_put(b, &b->base, &n, err);
}

static int make_dirs(struct host_build *b, struct err *err)
{
    static const struct {
        const char *path;
        mode_t mode;
        const char *user;
    } dirs[] = {
        { "etc/apt/apt.conf.d", 0755 }, /* apt complains of each that is missing */
        { "etc/apt/auth.conf.d", 0755 },
        { "etc/apt/keyrings", 0755 },
        { "etc/apt/preferences.d", 0755 },
        { "etc/apt/trusted.gpg.d", 0755 },
        { "var/cache/apt/archives/partial", 0700, "_apt" },
        { "var/lib/apt/lists/partial", 0700, "_apt" },
        { "var/lib/apt/mirrors/partial", 0700, "_apt" },
        { "var/lib/dpkg", 0755 },
        { "var/log/apt", 0755 },
    };
    int r = 0;

    for (size_t i = 0; !r && i < ARRAY_LEN(dirs); i++)
        r = host_tree_mkdir(
            b,
            &(struct host_node){ .path = dirs[i].path,
                                 .mode = dirs[i].mode,
                                 .uid = host_accounts_uid(&b->accounts, dirs[i].user) },
            err);
    return r;
}

static int take_dpkg(struct host_build *b, struct err *err)
{
    if (!b->dpkg)
        return 0;
    if (make_dirs(b, err) || host_walk(b->source, "var/lib/dpkg", visit_dpkg, b, err) ||
        put_overrides(b, err))
        return -1;
    return 0;
}

static int add_size(void *arg, const struct host_entry *e, struct err *err)
{
    int64_t *sum = arg;

    (void)err;
    *sum += e->st.st_size; /* directories too: a million empty files are no cache */
    return *sum < LINKED_MAX;
}

/* A file or directory that a link in /usr leads to, when everybody may read it and it is small. */
static int take_linked(struct host_build *b, const char *path, struct err *err)
{
    struct stat st;
    int64_t sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(not_linked); i++)
        if (host_below(path, not_linked[i]))
            return 0;
    if (!host_tree_public(b, path) || fstatat(b->source, path, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    if (S_ISREG(st.st_mode))
        return st.st_size < LINKED_MAX && host_tree_copy(b, path, HOST_COPY_PUBLIC, err) < 0 ? -1
                                                                                             : 0;
    if (!S_ISDIR(st.st_mode))
        return 0;
    if (host_walk(b->source, path, add_size, &sum, err))
        return -1;
    return sum < LINKED_MAX ? host_tree_copy_all(b, path, HOST_COPY_PUBLIC, err) : 0;
}

int host_var_build(struct host_build *b, struct err *err)
{
    if (take_dpkg(b, err))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(trees); i++)
        if (host_tree_public(b, trees[i]) && host_tree_copy_all(b, trees[i], HOST_COPY_PUBLIC, err))
            return -1;
    for (size_t at = 0; at < b->var_links.len; at += strlen(b->var_links.data + at) + 1)
        if (take_linked(b, b->var_links.data + at, err))
            return -1;
    return 0;
}
