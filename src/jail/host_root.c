/* host_root.c - the directories of base, and /bin, /sbin, /lib as the machine has them.
 *
 * Most distributions have merged these into /usr: then a link each. Where they are directories of
 * their own (Alpine) base holds a copy, a few MB, so that no further mount is needed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"

enum { UNMERGED_MAX = 1 << 30 };

static const char *const tops[] = { "bin", "sbin", "lib", "lib64", "lib32", "libx32" };

/* Ids by name; a group or user that the machine does not have is root. */
static const struct row {
    const char *path;
    mode_t mode;
    const char *user, *group;
} rows[] = {
    { "app", 0755, "user", "user" },
    { "boot", 0755 },
    { "dev", 0755 },
    { "etc", 0755 },
    { "etc/ssl/private", 0710, NULL, "ssl-cert" },
    { "etc/sudoers.d", 0750 },
    { "home", 0755 },
    { "home/user", 0755, "user", "user" },
    { "media", 0755 },
    { "mnt", 0755 },
    { "opt", 0755 },
    { "proc", 0555 },
    { "root", 0700 },
    { "run", 0755 }, /* no run/systemd/system: its presence means that systemd runs */
    { "run/lock", 01777 },
    { "run/user", 0755 },
    { "run/user/1000", 0700, "user", "user" },
    { "shared", 01777 },
    { "srv", 0755 },
    { "sys", 0755 },
    { "tmp", 01777 },
    { "usr", 0755 },
    { "var", 0755 },
    { "var/backups", 0755 },
    { "var/cache", 0755 },
    { "var/cache/debconf", 0755 }, /* the machine's holds answers and passwords */
    { "var/cache/man", 0755, "man", "man" },
    { "var/lib", 0755 },
    { "var/lib/dbus", 0755 },
    { "var/lib/misc", 0755 },
    { "var/lib/sgml-base", 0755 },
    { "var/lib/systemd", 0755 },
    { "var/lib/vim/addons", 0755 },
    { "var/lib/xkb", 0755 },
    { "var/local", 02775, NULL, "staff" },
    { "var/log", 0755 },
    { "var/mail", 02775, NULL, "mail" },
    { "var/opt", 0755 },
    { "var/spool", 0755 },
    { "var/tmp", 01777 },
    { "workspace", 0755, "user", "user" },
};

static const struct {
    const char *path, *target;
} links[] = {
    { "var/run", "/run" },
    { "var/lock", "/run/lock" },
    { "var/spool/mail", "../mail" },
};

struct copy {
    struct host_build *b;
    int64_t left;
    struct buf target;
};

/* Rule 1 of /usr holds here as well: what others may neither read nor run stays outside. */
static int copy_entry(void *arg, const struct host_entry *e, struct err *err)
{
    struct copy *c = arg;

    if (host_walk_readlink(e, &c->target))
        return host_tree_symlink(c->b, e->path, c->target.data, err);
    if (!(e->st.st_mode & 05) || !strcmp(e->path, "lib/modules") ||
        !strcmp(e->path, "lib/firmware"))
        return 0;
    if (S_ISDIR(e->st.st_mode))
        return 1;
    if (!S_ISREG(e->st.st_mode))
        return 0;
    c->left -= e->st.st_size;
    if (c->left < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "/bin, /sbin and /lib are not links into /usr and hold more than %d MiB: "
                       "use an image template",
                       UNMERGED_MAX >> 20);
    return host_tree_copy(c->b, e->path, 0, err) < 0 ? -1 : 0;
}

static int take_top(struct host_build *b, const char *name, struct copy *c, struct err *err)
{
    char target[PATH_MAX];
    struct stat st;
    ssize_t n = readlinkat(b->source, name, target, sizeof(target) - 1);
    AUTO(buf_free) struct buf to = { 0 };

    if (n > 0) {
        target[n] = 0;
        if (!host_walk_resolve(name, str_of(target), &to) || !host_below(to.data, "usr"))
            return err_set(err, ERR_UNSUPPORTED,
                           "/%s leads to %.100s, which is not in /usr: use an image template", name,
                           target);
        return host_tree_symlink(b, name, target, err);
    }
    if (fstatat(b->source, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
        return 0;
    b->merged_usr = false;
    if (host_tree_mkdir(b, &(struct host_node){ .path = name, .mode = 0755 }, err) < 0)
        return -1;
    return host_walk(b->source, name, copy_entry, c, err);
}

/* A shell and env that lead out of /usr (NixOS, Guix) would start nothing inside. */
static int check(const struct host_build *b, struct err *err)
{
    AUTO(buf_free) struct buf to = { 0 };
    char target[PATH_MAX];
    ssize_t n;

    if (!host_tree_has(b, "usr/bin/env"))
        return err_set(err, ERR_UNSUPPORTED,
                       "this machine has no /usr/bin/env, so its /usr is no root file system for "
                       "template 'host': use an image template");
    n = readlinkat(b->source, "usr/bin/env", target, sizeof(target) - 1);
    if (n > 0 && (!host_walk_resolve("usr/bin/env", (struct str){ target, (size_t)n }, &to) ||
                  !host_in_usr(to.data)))
        return err_set(err, ERR_UNSUPPORTED,
                       "/usr/bin/env leads to %.*s, outside /usr: use an image template",
                       (int)MIN(n, 100), target);
    return 0;
}

int host_root_build(struct host_build *b, struct err *err)
{
    struct copy c = { .b = b, .left = UNMERGED_MAX };
    int r = check(b, err);

    b->merged_usr = true;
    for (size_t i = 0; !r && i < ARRAY_LEN(tops); i++)
        r = take_top(b, tops[i], &c, err);
    buf_free(&c.target);
    for (size_t i = 0; !r && i < ARRAY_LEN(rows); i++)
        r = host_tree_mkdir(
            b,
            &(struct host_node){ .path = rows[i].path,
                                 .mode = rows[i].mode,
                                 .uid = host_accounts_uid(&b->accounts, rows[i].user),
                                 .gid = host_accounts_gid(&b->accounts, rows[i].group) },
            err);
    for (size_t i = 0; !r && i < ARRAY_LEN(links); i++)
        r = host_tree_symlink(b, links[i].path, links[i].target, err);
    return r;
}
