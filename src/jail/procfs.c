/* procfs.c - see procfs.h.
 *
 * In a user namespace the kernel itself refuses sandbox root timer_list, kmsg, kpage*, vmallocinfo,
 * slabinfo, most of /proc/sys, and shows kallsyms as zeros. The table holds what it does not. A
 * mask costs 10 us, so there is none for comfort. */
#include "jail/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/mounts.h"
#include "jail/weaken.h"

enum what { EMPTY_FILE, EMPTY_DIRECTORY, READ_ONLY };

static const struct mask {
    const char *path; /* below /proc; absent ones are skipped */
    enum what what;
} masks[] = {
    { "sys", READ_ONLY }, /* ours are pid_max, ipc and mqueue: nobody inside should tune them */
    { "irq", READ_ONLY },
    { "bus", READ_ONLY },
    { "fs", READ_ONLY },
    { "pressure",
      READ_ONLY }, /* anybody may set alarms there, and the whole machine computes them */
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

static int make_mask(int root, int proc, const struct mask *m, struct err *err)
{
    static const unsigned closed = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;

    switch (m->what) {
    case EMPTY_FILE: {
        AUTO(closep) int dev = openat(root, "dev/null", O_PATH | O_CLOEXEC | O_NOFOLLOW);

        return dev < 0 ? err_sys(err, "/dev/null") : mounts_clone(dev, "", closed, -1, false, err);
    }
    case EMPTY_DIRECTORY: return mounts_clone(proc, ANY_EMPTY_DIRECTORY, closed, -1, false, err);
    case READ_ONLY: return mounts_clone(proc, m->path, closed | MOUNT_ATTR_NODEV, -1, false, err);
    }
    return -1;
}

int procfs_mask(int root, struct err *err)
{
    AUTO(closep) int proc = openat(root, "proc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (proc < 0)
        return err_sys(err, "/proc");
    for (size_t i = 0; i < ARRAY_LEN(masks) && !weakened("masks"); i++) {
        AUTO(closep) int where = openat(proc, masks[i].path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        AUTO(closep) int mask = -1;

        if (where < 0 && errno == ENOENT)
            continue;
        mask = where < 0 ? err_sys(err, "open") : make_mask(root, proc, &masks[i], err);
        if (mask < 0 || mounts_attach(mask, where, err))
            return err_in(err, "mask /proc/%s", masks[i].path);
    }
    return 0;
}
