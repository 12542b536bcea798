/* doctor_btrfs.c - the volume of writable layers: btrfs, the program that makes one, loop devices,
 * quotas. With --deep one is really made and a quota reached.
 *
 * The scratch volume is a memfd behind a loop device that frees itself, mounted in a private mount
 * namespace: whatever ends this process ends all three. */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/probe.h"

enum {
    VOLUME_BYTES = 256 << 20, /* above the least that mkfs.btrfs takes */
    LIMIT_BYTES = 8 << 20,
    SIMPLE_QUOTA = 4, /* BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, Linux 6.7 */
};

static bool data_is_btrfs(const struct doctor *d)
{
    struct statfs s;

    return !statfs(d->data_there, &s) && s.f_type == BTRFS_SUPER_MAGIC;
}

/* A module that is not loaded is not there: loading one would be a change that stays. */
static bool kernel_has_btrfs(void)
{
    char text[4096];

    return probe_read("/proc/filesystems", text, sizeof(text)) > 0 && strstr(text, "\tbtrfs\n");
}

static void probe_kernel(const struct doctor *d, struct finding *f)
{
    if (data_is_btrfs(d)) {
        probe_say(f, DOCTOR_OK, "%s is on btrfs", d->data_there);
    } else if (kernel_has_btrfs()) {
        probe_say(f, DOCTOR_OK, "the kernel has it");
    } else {
        probe_say(f, DOCTOR_FAIL, "not in /proc/filesystems");
        probe_fix_root(d, f, "modprobe btrfs");
    }
}

static void probe_mkfs(const struct doctor *d, struct finding *f)
{
    char path[512];

    if (probe_find_program("mkfs.btrfs", path, sizeof(path))) {
        probe_say(f, DOCTOR_OK, "%s", path);
    } else if (data_is_btrfs(d)) {
        probe_say(f, DOCTOR_OK, "not needed: %s is on btrfs", d->data_there);
    } else {
        probe_say(f, DOCTOR_FAIL, "the program mkfs.btrfs is missing");
        probe_fix_package(d, f, "mkfs.btrfs");
    }
}

/* Opened only: asking for a free device would make one, and that would stay behind. */
static void probe_loop(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control >= 0) {
        probe_say(f, DOCTOR_OK, "/dev/loop-control can be opened");
    } else if (data_is_btrfs(d)) {
        probe_say(f, DOCTOR_OK, "not needed: %s is on btrfs", d->data_there);
    } else {
        probe_fail(f, "/dev/loop-control");
        if (d->root)
            probe_fix(f, "modprobe loop");
        else
            probe_fix(f, "sudo cove doctor (and run cove as root)");
    }
}

/* ---- a scratch volume ---- */

/* mkfs.btrfs takes a file by any path, so one that has no name will do. -K: no discard. */
static int make_image(struct finding *f)
{
    AUTO(closep) int fd = memfd_create("volume", MFD_CLOEXEC);
    char path[64], message[256];
    const char *argv[] = { "mkfs.btrfs", "-q", "-K", path, NULL };

    if (fd < 0 || ftruncate(fd, VOLUME_BYTES)) {
        probe_fail(f, "%d MiB of memory for a scratch volume", VOLUME_BYTES >> 20);
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
    if (probe_program(argv, message, sizeof(message))) {
        probe_say(f, DOCTOR_FAIL, "mkfs.btrfs: %s", message);
        return -1;
    }
    return TAKE(fd, -1);
}

/* Somebody else may take the free device before us: then the next one. */
static int attach(int image, char *path, size_t n)
{
    AUTO(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = { .fd = (uint32_t)image,
                                  .info = { .lo_flags = LO_FLAGS_AUTOCLEAR } };

    for (int tries = 0; control >= 0 && tries < 16; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), fd;

        if (number < 0)
            return -1;
        snprintf(path, n, "/dev/loop%d", number);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && !ioctl(fd, LOOP_CONFIGURE, &config))
            return fd;
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && errno != EBUSY)
            return -1;
    }
    return -1;
}

/* The same calls, in the same order, that a sandbox's layer is made with. */
static int limit(int volume)
{
    struct btrfs_ioctl_quota_ctl_args on = { .cmd = SIMPLE_QUOTA };
    struct btrfs_ioctl_vol_args_v2 sub = { .name = "layer" };
    struct btrfs_ioctl_ino_lookup_args id = { .objectid = BTRFS_FIRST_FREE_OBJECTID };
    struct btrfs_ioctl_qgroup_limit_args bound = { .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
                                                            .max_rfer = LIMIT_BYTES } };
    AUTO(closep) int layer = -1;

    if (ioctl(volume, BTRFS_IOC_QUOTA_CTL, &on) || ioctl(volume, BTRFS_IOC_SUBVOL_CREATE_V2, &sub))
        return -1;
    layer = openat(volume, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (layer < 0 || ioctl(layer, BTRFS_IOC_INO_LOOKUP, &id))
        return -1;
    bound.qgroupid = id.treeid;
    return ioctl(layer, BTRFS_IOC_QGROUP_LIMIT, &bound);
}

/* Far above the limit, so that a quota that is merely late would be seen too. */
static void fill(int volume, struct finding *f)
{
    AUTO(closep) int file = openat(volume, "layer/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    static char block[1 << 20];
    int64_t written = 0;
    ssize_t n = 0;

    while (file >= 0 && written < 4 * LIMIT_BYTES && (n = write(file, block, sizeof(block))) > 0)
        written += n;
    if (file >= 0 && n < 0 && errno == EDQUOT)
        probe_say(f, DOCTOR_OK, "a scratch volume refused what was above %d MiB",
                  LIMIT_BYTES >> 20);
    else
        probe_say(f, DOCTOR_FAIL, "%lld MiB were written above a limit of %d MiB",
                  (long long)written >> 20, LIMIT_BYTES >> 20);
}

static void inside_volume(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int image = make_image(f);
    AUTO(closep) int loop = -1;
    AUTO(closep) int volume = -1;
    char path[64];

    (void)d;
    if (image < 0)
        return;
    loop = attach(image, path, sizeof(path));
    if (loop < 0) {
        probe_fail(f, "attach a loop device");
        return;
    }
    if (mount(path, "/tmp", "btrfs", MS_NOSUID | MS_NODEV, "nodiscard")) {
        probe_fail(f, "mount a scratch volume");
        return;
    }
    volume = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (volume < 0 || limit(volume))
        probe_fail(f, "limit a layer with simple quotas");
    else
        fill(volume, f);
}

static void probe_quota(const struct doctor *d, struct finding *f)
{
    if (!d->root) {
        probe_say(f, DOCTOR_WARN, "only root may set them");
        probe_fix(f, "sudo cove doctor (and run cove as root)");
    } else if (d->deep) {
        probe_inside(d, CLONE_NEWNS, inside_volume, f);
    } else if (!access("/sys/fs/btrfs/features/simple_quota", F_OK)) {
        probe_say(f, DOCTOR_OK, "the kernel has them (--deep tries them)");
    } else {
        probe_say(f, DOCTOR_WARN,
                  kernel_has_btrfs() ? "this kernel has full quotas only, which are slower"
                                     : "no btrfs, no quotas");
        probe_fix(f, "boot Linux 6.7 or later");
    }
}

const struct doctor_check doctor_btrfs[] = {
    { "btrfs.kernel", "btrfs", .probe = probe_kernel,
      .without = "limits of disk space, snapshots and forks" },
    { "btrfs.mkfs", "mkfs.btrfs", .probe = probe_mkfs,
      .without = "limits of disk space, snapshots and forks" },
    { "btrfs.loop", "loop devices", .probe = probe_loop,
      .without = "limits of disk space, snapshots and forks" },
    { "btrfs.simple_quota", "simple quotas", .probe = probe_quota,
      .without = "quick limits of disk space" },
    {}
};
