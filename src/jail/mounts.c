/* mounts.c - see mounts.h. */
#include "jail/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

static int set_option(int fs, const struct mount_option *o)
{
    if (o->text)
        return fsconfig(fs, FSCONFIG_SET_STRING, o->key, o->text, 0);
    if (o->fd >= 0)
        return fsconfig(fs, FSCONFIG_SET_FD, o->key, NULL, o->fd);
    return fsconfig(fs, FSCONFIG_SET_FLAG, o->key, NULL, 0);
}

/* What the file system itself says went wrong, "e overlay: ...". errno stays. */
static void add_reason(int fs, struct err *err)
{
    int error = errno;
    char text[160];
    ssize_t n = read(fs, text, sizeof(text) - 1);

    errno = error;
    if (n <= 2)
        return;
    text[n] = 0;
    err_in(err, "%s", text + 2);
}

int mounts_new(const char *type, const struct mount_option *options, unsigned attributes,
               struct err *err)
{
    AUTO(closep) int fs = fsopen(type, FSOPEN_CLOEXEC);
    int mount;

    if (fs < 0)
        return err_sys(err, "this kernel has no %s", type);
    for (const struct mount_option *o = options; o && o->key; o++)
        if (set_option(fs, o)) {
            err_sys(err, "%s: option %s", type, o->key);
            add_reason(fs, err);
            return -1;
        }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0)) {
        err_sys(err, "mount %s", type);
        add_reason(fs, err);
        return -1;
    }
    mount = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
    return mount < 0 ? err_sys(err, "mount %s", type) : mount;
}

static int restrict_mount(int mount, unsigned flags, uint64_t attributes, int userns,
                          const char *what, struct err *err)
{
    struct mount_attr a = { .attr_set = attributes };

    if (userns >= 0) {
        a.attr_set |= MOUNT_ATTR_IDMAP;
        a.userns_fd = (uint64_t)userns;
    }
    if (a.attr_set && mount_setattr(mount, "", flags, &a, sizeof(a)))
        return err_sys(err, "%s %s", userns >= 0 ? "map the owners of" : "restrict", what);
    return 0;
}

int mounts_clone(int dir, const char *path, uint64_t attributes, int userns, bool recursive,
                 struct err *err)
{
    unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);
    const char *what = *path ? path : "a layer";
    AUTO(closep)
    int tree =
        open_tree(dir, path, flags | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

    if (tree < 0)
        return err_sys(err, "clone the mount of %s", what);
    if (restrict_mount(tree, flags, attributes, userns, what, err))
        return -1;
    return TAKE(tree, -1);
}

int mounts_restrict(int mount, uint64_t attributes, int userns, struct err *err)
{
    return restrict_mount(mount, AT_EMPTY_PATH, attributes, userns, "a mount", err);
}

int mounts_attach(int mount, int where, struct err *err)
{
    if (move_mount(mount, "", where, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        return err_sys(err, "attach a mount");
    return 0;
}

static int open_in(int root, const char *path, uint64_t flags)
{
    struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* One component after another; each is looked up again from the root, so that links work. */
int mounts_target(int root, const char *path, bool file, struct err *err)
{
    char at[1024];
    size_t n = strlen(path), done = 0;

    if (!n || n >= sizeof(at))
        return err_set(err, ERR_INVALID, "mount point '%s' is empty or too long", path);
    while (done < n) {
        size_t len = strcspn(path + done + (path[done] == '/'), "/") + (path[done] == '/');
        bool last = !path[done + len] || !strcmp(path + done + len, "/");
        AUTO(closep) int parent = -1;
        const char *name;

        memcpy(at, path, done);
        at[done] = 0;
        parent = open_in(root, done ? at : "/", O_PATH | O_DIRECTORY);
        memcpy(at, path + done, len);
        at[len] = 0;
        name = at + (*at == '/');
        if (parent < 0)
            return err_sys(err, "mount point %s", path);
        if (*name && file && last) {
            int fd = openat(parent, name, O_CREAT | O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                            0644);
            closep(&fd);
        } else if (*name && mkdirat(parent, name, 0755) && errno != EEXIST)
            return err_sys(err, "make mount point %s", path);
        done += len;
    }
    {
        int fd = open_in(root, path, O_PATH | (file ? 0 : O_DIRECTORY));

        return fd < 0 ? err_sys(err, "mount point %s", path) : fd;
    }
}
