/* attack_proc.c - what /proc, /sys and /dev show, and what of it can be written. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/keyctl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* ---- reading ---- */

/* Masked files are /dev/null, so they read as empty. */
static long read_masked(const struct attempt *a)
{
    char text[256];
    long n = read_text(a->path, text, sizeof(text));

    if (n == 0)
        held("empty");
    if (n > 0)
        escaped("%s: %.60s", a->path, text);
    return -1;
}

/* The machine's own, or one for each start. */
static long read_boot_id(const struct attempt *a)
{
    const char *machines = getenv("CANARY_BOOT");
    char text[64];

    if (read_text(a->path, text, sizeof(text)) < 0)
        return -1;
    text[strcspn(text, "\n")] = 0;
    if (!machines || strlen(text) != 36)
        unclear("%s", text);
    if (!strcmp(text, machines))
        escaped("%s", text);
    held("another");
}

/* So that there is something to read, should the mask be missing. */
static long read_keys(const struct attempt *a)
{
    syscall(SYS_add_key, "user", "attack", "x", 1, KEY_SPEC_SESSION_KEYRING);
    return read_masked(a);
}

/* "00000000-00000000 : System RAM": addresses are for those who may know where the kernel lies. */
static long read_addresses(const struct attempt *a)
{
    char text[4096];
    long n = read_text(a->path, text, sizeof(text));

    if (n < 0)
        return -1;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += strspn(line, " \n");
        if (*line && strspn(line, "0-") < strcspn(line, " "))
            escaped("%s: %.40s", a->path, line);
    }
    held("zeros");
}

/* ---- writing ---- */

static long write_file(const struct attempt *a)
{
    int fd = open(a->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd >= 0 && !fstat(fd, &st) && is_null_device(&st))
        held("masked");
    return fd; /* that it opens is enough: nothing is written, this may be a control */
}

static int opened; /* how many files the walk has tried */

static int try_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    const char *name = path + strlen("/proc/");
    int fd;

    (void)ftw;
    if (type == FTW_D && ((*name >= '0' && *name <= '9') || !strcmp(name, "self")))
        return FTW_SKIP_SUBTREE; /* processes, which are the sandbox's own */
    if (type != FTW_F || is_null_device(st))
        return FTW_CONTINUE;
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        escaped("%s opens for writing", path);
    if (errno != EACCES && errno != EROFS && errno != EPERM && errno != ENOENT && errno != EINVAL &&
        errno != EIO && errno != ENXIO)
        unclear("%s: %s", path, strerrorname_np(errno));
    opened++;
    return FTW_CONTINUE;
}

/* Not a list of the dangerous ones but all of them: kernels get new ones. */
static long write_anything(const struct attempt *a)
{
    if (nftw(a->path, try_one, 32, FTW_PHYS | FTW_ACTIONRETVAL) < 0)
        unclear("cannot walk %s", a->path);
    if (opened < 10)
        unclear("only %d files in %s", opened, a->path);
    held("%d files", opened);
}

/* ---- /sys ---- */

/* Also by way of the old root, in case that is still there. */
static long absent_system_files(const struct attempt *a)
{
    static const char *const names[] = {
        "/sys/kernel",
        "/sys/module",
        "/sys/power",
        "/sys/firmware",
        "/sys/fs/cgroup",
        "/sys/block",
        "/sys/class",
        "/sys/bus",
        "/sys/hypervisor",
        "/sys/kernel/uevent_helper",
        "/proc/sys/kernel/hotplug",
    };
    struct statfs fs;
    struct stat st;
    char path[128];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int up = 0; up < 2; up++) {
            snprintf(path, sizeof(path), "%s%s", up ? "/.." : "", names[i]);
            if (!lstat(path, &st))
                escaped("%s is there", path);
        }
    if (!statfs(a->path, &fs) && fs.f_type == SYSFS_MAGIC)
        escaped("%s is a sysfs", a->path);
    held("absent");
}

/* ---- cgroups ---- */

/* A namespace of its own: what is above the sandbox's own group has no name here. */
static long cgroup_paths(const struct attempt *a)
{
    char text[4096], *save = NULL;

    if (read_text(a->path, text, sizeof(text)) < 0)
        return -1;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *path = strrchr(line, ':');

        if (!path || strcmp(path, ":/"))
            escaped("%s", line);
    }
    held("all at the top");
}

/* ---- /dev ---- */

static const char *const declared[] = { "fd",     "full",    "null",   "ptmx",  "pts",
                                        "random", "shm",     "stderr", "stdin", "stdout",
                                        "tty",    "urandom", "zero",   ".",     ".." };

static long device_list(const struct attempt *a)
{
    DIR *dir = opendir(a->path);
    const struct dirent *e;
    size_t n = 0;

    if (!dir)
        return -1;
    while ((e = readdir(dir)) != NULL) {
        size_t i;

        for (i = 0; i < ARRAY_LEN(declared) && strcmp(declared[i], e->d_name); i++)
            ;
        if (i == ARRAY_LEN(declared))
            escaped("/dev/%s", e->d_name);
        n++;
    }
    closedir(dir);
    if (n != ARRAY_LEN(declared))
        unclear("%zu of %zu entries", n, ARRAY_LEN(declared));
    held("exactly the declared ones");
}

static long device_open(const struct attempt *a)
{
    static const char *const names[] = {
        "kmsg",   "kvm",          "net/tun", "mem",           "port",  "fuse",    "dri",
        "input",  "loop-control", "loop0",   "vda",           "sda",   "vsock",   "vhost-net",
        "uinput", "ppp",          "mapper",  "btrfs-control", "hwrng", "console", "userfaultfd",
        "nvme0",  "snapshot",     "rtc0",    "cuse"
    };
    char path[64];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s%s", a->path, names[i]);
        if (open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY) >= 0)
            escaped("%s opens", path);
        if (errno != ENOENT)
            unclear("%s: %s", path, strerrorname_np(errno));
    }
    held("ENOENT");
}

/* The directory is shared by all sandboxes. */
static long device_add(const struct attempt *a)
{
    return open(a->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
}

static long device_rights(const struct attempt *a) { return chmod(a->path, 0666); }

static long device_on_mount(const struct attempt *a)
{
    return open(a->path, O_RDONLY | O_NONBLOCK);
}

static long make_node(const struct attempt *a)
{
    return mknod(a->path, (mode_t)a->args[0] | 0600, (dev_t)a->nr);
}

#define READ(name, path, ...)                                                                      \
    {                                                                                              \
        name, read_masked, { __VA_ARGS__ }, path                                                   \
    }
#define WRITE(name, path, ...)                                                                     \
    {                                                                                              \
        name, write_file, { __VA_ARGS__ }, path                                                    \
    }
/* in shared memory: overlayfs has opinions of its own about nodes */
#define NODE(name, type, major, minor)                                                             \
    {                                                                                              \
        "mknod-" name, make_node, { EPERM }, "/dev/shm/node", (major) << 8 | (minor), { type }     \
    }

const struct attempt attack_proc[] = {
    READ("read-cmdline", "/proc/cmdline", ENOENT),
    { "read-boot-id", read_boot_id, {}, "/proc/sys/kernel/random/boot_id" },
    READ("read-config", "/proc/config.gz", ENOENT),
    READ("read-kallsyms", "/proc/kallsyms", ENOENT),
    { "read-keys", read_keys, { ENOENT }, "/proc/keys" },
    { "read-key-users", read_keys, { ENOENT }, "/proc/key-users" },
    READ("read-kcore", "/proc/kcore", ENOENT, EACCES),
    READ("read-kmsg", "/proc/kmsg", EPERM, EACCES),
    READ("read-timer-list", "/proc/timer_list", EACCES, EPERM),
    READ("read-sched-debug", "/proc/sched_debug", ENOENT, EACCES),
    READ("read-slabinfo", "/proc/slabinfo", EACCES),
    READ("read-vmallocinfo", "/proc/vmallocinfo", EACCES),
    READ("read-kpageflags", "/proc/kpageflags", EACCES),
    READ("read-acpi-tables", "/sys/firmware/acpi/tables/DSDT", ENOENT),
    { "read-iomem", read_addresses, { EACCES }, "/proc/iomem" },
    { "read-ioports", read_addresses, { EACCES }, "/proc/ioports" },
    WRITE("write-core-pattern", "/proc/sys/kernel/core_pattern", EACCES, EROFS),
    WRITE("write-modprobe", "/proc/sys/kernel/modprobe", EACCES, EROFS, ENOENT),
    WRITE("write-sysrq", "/proc/sysrq-trigger", EACCES, EROFS, ENOENT),
    WRITE("write-binfmt", "/proc/sys/fs/binfmt_misc/register", EACCES, EROFS, ENOENT),
    WRITE("write-drop-caches", "/proc/sys/vm/drop_caches", EACCES, EROFS),
    WRITE("write-mtrr", "/proc/mtrr", EACCES, EROFS, ENOENT),
    WRITE("write-own-sysctl", "/proc/sys/kernel/msgmax", EACCES, EROFS),
    WRITE("write-uevent-helper", "/sys/kernel/uevent_helper", ENOENT),
    WRITE("write-release-agent", "/sys/fs/cgroup/memory/release_agent", ENOENT),
    { "write-sysctls", write_anything, {}, "/proc/sys" },
    { "write-proc", write_anything, {}, "/proc" },
    { "system-files", absent_system_files, {}, "/sys" },
    { "cgroup-paths", cgroup_paths, {}, "/proc/self/cgroup" },
    { "device-list", device_list, {}, "/dev" },
    { "device-open", device_open, {}, "/dev/" },
    { "device-add", device_add, { EROFS, EACCES }, "/dev/attack" },
    { "device-rights", device_rights, { EROFS, EPERM }, "/dev/null" },
    { "device-on-mount", device_on_mount, { EACCES }, "/attack/zero" },
    NODE("disk", S_IFBLK, 8, 0),
    NODE("mem", S_IFCHR, 1, 1),
    NODE("kvm", S_IFCHR, 10, 232),
    NODE("tun", S_IFCHR, 10, 200),
    NODE("fuse", S_IFCHR, 10, 229),
    NODE("whiteout", S_IFCHR, 0, 0), /* the one node that the kernel lets everybody make */
    {}
};
