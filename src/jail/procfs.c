/* procfs.c - see procfs.h.
 *
 * In a user namespace the kernel itself refuses sandbox root timer_list, kmsg, kpage*, vmallocinfo,
 * slabinfo, most of /proc/sys, and shows kallsyms as zeros. The table holds what it does not. A
 * mask costs 10 us, so there is none for comfort; a directory costs no more than a file. What is
 * left to be read of the machine is in docs/security.md, and in tests/escape/test_proc_shows.py. */
#include "jail/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/mounts.h"
#include "jail/weaken.h"

enum what { EMPTY_FILE, EMPTY_DIRECTORY, READ_ONLY, OWN_BOOT_ID };

static const struct mask {
    const char *path; /* below /proc; absent ones are skipped */
    enum what what;
} masks[] = {
    { "sys", READ_ONLY }, /* ours are pid_max, ipc and mqueue: nobody inside should tune them */
    { "sys/kernel/random/boot_id", OWN_BOOT_ID },
    { "irq", EMPTY_DIRECTORY },
    { "bus", EMPTY_DIRECTORY }, /* the devices of the machine, with their registers */
    { "fs", EMPTY_DIRECTORY },  /* each of its file systems: names, sizes, what was written */
    { "pressure",
      EMPTY_DIRECTORY },     /* how its other tenants do; and anybody may set alarms there */
    { "locks", EMPTY_FILE }, /* of others, with their inodes: those without a process */
    { "sysrq-trigger", EMPTY_FILE },
    { "cmdline", EMPTY_FILE }, /* boot parameters may hold secrets */
    { "config.gz", EMPTY_FILE },
    { "kallsyms", EMPTY_FILE },
    { "kcore", EMPTY_FILE },
    { "keys", EMPTY_FILE },
    { "key-users", EMPTY_FILE },
    { "acpi", EMPTY_DIRECTORY },
    { "scsi", EMPTY_DIRECTORY },
};

int procfs_mount(int root, struct err *err)
{
    AUTO(closep)
    int proc =
        mounts_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
    AUTO(closep) int where = proc < 0 ? -1 : mounts_target(root, "/proc", false, err);

    if (where < 0)
        return err_in(err, "/proc");
    return mounts_attach(proc, where, err);
}

/* An empty directory that exists in every /proc: our own "map_files" would not do for other users;
 * "tty/ldisc" is empty, world-readable and always there. */
#define ANY_EMPTY_DIRECTORY "tty/ldisc"

int procfs_boot_id(int dir, struct err *err)
{
    unsigned char b[16];
    char text[40];
    AUTO(closep)
    int fd =
        openat(dir, PROCFS_BOOT_ID, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    int n;

    if (fd < 0 || fchmod(fd, 0444) || getrandom(b, sizeof(b), 0) != sizeof(b))
        return err_sys(err, "make a boot id");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* a random UUID, as the kernel's is */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    n = snprintf(text, sizeof(text),
                 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                 b[14], b[15]);
    return write(fd, text, (size_t)n) == n ? 0 : err_sys(err, "write a boot id");
}

static int make_mask(int root, int proc, int boot_id, const struct mask *m, struct err *err)
{
    static const unsigned closed = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

    switch (m->what) {
    case EMPTY_FILE: {
        AUTO(closep) int dev = openat(root, "dev/null", O_PATH | O_CLOEXEC | O_NOFOLLOW);

        return dev < 0 ? err_sys(err, "/dev/null") : mounts_clone(dev, "", closed, -1, false, err);
    }
    case EMPTY_DIRECTORY: return mounts_clone(proc, ANY_EMPTY_DIRECTORY, closed, -1, false, err);
    case OWN_BOOT_ID: return mounts_clone(boot_id, "", closed | MOUNT_ATTR_NODEV, -1, false, err);
    case READ_ONLY: return mounts_clone(proc, m->path, closed | MOUNT_ATTR_NODEV, -1, false, err);
    }
    return -1;
}

int procfs_mask(int root, int boot_id, struct err *err)
{
    AUTO(closep) int proc = openat(root, "proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (proc < 0)
        return err_sys(err, "/proc");
    for (size_t i = 0; i < ARRAY_LEN(masks) && !weakened("masks"); i++) {
        AUTO(closep) int where = openat(proc, masks[i].path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        AUTO(closep) int mask = -1;

        if (where < 0 && errno == ENOENT)
            continue;
        mask = where < 0 ? err_sys(err, "open") : make_mask(root, proc, boot_id, &masks[i], err);
        if (mask < 0 || mounts_attach(mask, where, err))
            return err_in(err, "mask /proc/%s", masks[i].path);
    }
    return 0;
}
