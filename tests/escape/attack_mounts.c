/* attack_mounts.c - changing what is mounted, or where the root is. Refused twice: by the filter,
 * and because nobody inside has CAP_SYS_ADMIN. */
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

/* <sys/mount.h> and <linux/mount.h> do not go together everywhere. */
enum { FLAG_REMOUNT = 32, FLAG_BIND = 4096, DETACH = 2, OPEN_TREE_ATTR = 467 };

static long mount_new(const struct attempt *a)
{
    return syscall(SYS_mount, "none", "/mnt", a->path, 0, NULL);
}

static long mount_bind(const struct attempt *a)
{
    return syscall(SYS_mount, a->path, "/mnt", NULL, FLAG_BIND, NULL);
}

/* Everything that could be read-only becomes writable. */
static long remount_writable(const struct attempt *a)
{
    return syscall(SYS_mount, NULL, a->path, NULL, FLAG_REMOUNT | FLAG_BIND, NULL);
}

static long unmount(const struct attempt *a) { return syscall(SYS_umount2, a->path, DETACH); }

static long open_fs(const struct attempt *a) { return syscall(SYS_fsopen, a->path, 0); }

static long pick_fs(const struct attempt *a) { return syscall(SYS_fspick, AT_FDCWD, a->path, 0); }

/* With a descriptor that is none, a kernel that gets to see the call answers EBADF. */
static long mount_fs(const struct attempt *a) { return syscall(a->nr, -1, 0, 0, 0, 0); }

static long clone_tree(const struct attempt *a)
{
    return syscall(a->nr, AT_FDCWD, a->path, OPEN_TREE_CLONE, NULL, 0);
}

static long set_attributes(const struct attempt *a)
{
    struct mount_attr nothing = { .attr_clr = MOUNT_ATTR_NODEV };

    return syscall(SYS_mount_setattr, AT_FDCWD, a->path, 0, &nothing, sizeof(nothing));
}

static long move_tree(const struct attempt *a)
{
    return syscall(SYS_move_mount, AT_FDCWD, a->path, AT_FDCWD, "/mnt", 0);
}

/* Stays where it is: a kernel that gets to see it answers EBUSY or EINVAL. */
static long pivot(const struct attempt *a) { return syscall(SYS_pivot_root, a->path, a->path); }

/* The classic: a directory opened before, chroot below it, and up from there. */
static long chroot_and_up(const struct attempt *a)
{
    int before = open("/", O_RDONLY | O_DIRECTORY);

    if (chroot(a->path))
        return -1;
    if (before < 0 || fchdir(before))
        unclear("chroot works, fchdir does not");
    for (int i = 0; i < 64; i++)
        if (chdir(".."))
            break;
    escaped("chroot works, and a directory opened before leads out of it");
}

/* ---- file handles: inodes by number, past every directory ---- */

struct handle {
    unsigned bytes;
    int type;
    unsigned char data[128];
};

static long name_handle(const char *path, struct handle *h)
{
    int mount_id;

    h->bytes = sizeof(h->data);
    return syscall(SYS_name_to_handle_at, AT_FDCWD, path, h, &mount_id, 0);
}

static long handle_name(const struct attempt *a)
{
    struct handle h;

    return name_handle(a->path, &h);
}

/* A handle that was given out, or a guessed one of the root directory. */
static long handle_open(const struct attempt *a)
{
    struct handle h = { .bytes = 8, .type = 1, .data = { 2 } };
    struct handle real;
    int mount = open(a->path, O_RDONLY | O_DIRECTORY);

    if (mount < 0)
        unclear("cannot open %s", a->path);
    if (!name_handle(a->path, &real))
        h = real;
    return syscall(SYS_open_by_handle_at, mount, &h, O_RDONLY | O_DIRECTORY);
}

const struct attempt attack_mounts[] = {
    { "mount-tmpfs", mount_new, { EPERM }, "tmpfs" },
    { "mount-proc", mount_new, { EPERM }, "proc" },
    { "mount-sysfs", mount_new, { EPERM }, "sysfs" },
    { "mount-cgroup2", mount_new, { EPERM }, "cgroup2" },
    { "mount-debugfs", mount_new, { EPERM }, "debugfs" },
    { "mount-tracefs", mount_new, { EPERM }, "tracefs" },
    { "mount-securityfs", mount_new, { EPERM }, "securityfs" },
    { "mount-efivarfs", mount_new, { EPERM }, "efivarfs" },
    { "mount-devpts", mount_new, { EPERM }, "devpts" },
    { "mount-bind", mount_bind, { EPERM }, "/proc/sys" },
    { "remount-mask", remount_writable, { EPERM }, "/proc/sys" },
    { "remount-dev", remount_writable, { EPERM }, "/dev" },
    { "remount-shown", remount_writable, { EPERM }, "/attack" },
    { "umount-mask", unmount, { EPERM }, "/proc/sys" },
    { "umount-usr", unmount, { EPERM }, "/usr" },
    { "fsopen", open_fs, { EPERM }, "tmpfs" },
    { "fspick", pick_fs, { EPERM }, "/" },
    { "fsmount", mount_fs, { EPERM }, NULL, SYS_fsmount },
    { "fsconfig", mount_fs, { EPERM }, NULL, SYS_fsconfig },
    { "open-tree", clone_tree, { EPERM }, "/", SYS_open_tree },
    { "open-tree-attr", clone_tree, { ENOSYS }, "/", OPEN_TREE_ATTR },
    { "mount-setattr", set_attributes, { EPERM }, "/" },
    { "move-mount", move_tree, { EPERM }, "/dev/shm" },
    { "pivot-root", pivot, { EPERM }, "/" },
    { "chroot", chroot_and_up, { EPERM }, "/tmp" },
    { "handle-name", handle_name, { EPERM }, "/dev/shm" },
    { "handle-open", handle_open, { EPERM }, "/dev/shm" },
    {}
};
