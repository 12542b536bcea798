/* doctor_machine.c - who we are and where we live: privileges, directories, free disk and memory,
 * programs that Cove runs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/args.h"
#include "cli/probe.h"

/* What keep uses its capabilities for: the first that is missing is the one to name. */
static const struct {
    int cap;
    const char *name;
} wanted[] = {
    { CAP_SYS_ADMIN, "CAP_SYS_ADMIN" }, { CAP_SETUID, "CAP_SETUID" },
    { CAP_SETGID, "CAP_SETGID" },       { CAP_NET_ADMIN, "CAP_NET_ADMIN" },
    { CAP_CHOWN, "CAP_CHOWN" },         { CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE" },
    { CAP_FOWNER, "CAP_FOWNER" },       { CAP_MKNOD, "CAP_MKNOD" },
    { CAP_KILL, "CAP_KILL" },           { CAP_SYS_CHROOT, "CAP_SYS_CHROOT" },
};

static void probe_privileges(const struct doctor *d, struct finding *f)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { { 0 } };
    uint64_t have;

    if (!d->root) {
        probe_say(f, DOCTOR_WARN, "uid %u: rootless mode, with what the rows below say", geteuid());
        probe_fix(f, "sudo cove doctor (and run cove as root)");
        return;
    }
    if (syscall(SYS_capget, &head, data)) {
        probe_fail(f, "capget");
        return;
    }
    have = (uint64_t)data[1].effective << 32 | data[0].effective;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!(have >> wanted[i].cap & 1)) {
            probe_say(f, DOCTOR_FAIL, "root without %s", wanted[i].name);
            probe_fix(f, "start the container with --privileged, or cove outside of it");
            return;
        }
    probe_say(f, DOCTOR_OK, "root, with the capabilities it takes");
}

static const struct {
    long magic;
    const char *name;
    bool layers; /* good for the upper layer of an overlay */
} kinds[] = {
    { EXT4_SUPER_MAGIC, "ext4", true },
    { BTRFS_SUPER_MAGIC, "btrfs", true },
    { XFS_SUPER_MAGIC, "xfs", true },
    { TMPFS_MAGIC, "tmpfs", true },
    { F2FS_SUPER_MAGIC, "f2fs", true },
    { 0x2fc12fc1, "zfs", true },
    { OVERLAYFS_SUPER_MAGIC, "overlay", false },
    { NFS_SUPER_MAGIC, "nfs", false },
    { FUSE_SUPER_MAGIC, "fuse", false },
    { ECRYPTFS_SUPER_MAGIC, "ecryptfs", false },
    { MSDOS_SUPER_MAGIC, "vfat", false },
};

/* Nothing is made: the directory above must let us. */
static void probe_data_dir(const struct doctor *d, struct finding *f)
{
    const char *name = "another file system";
    bool layers = true;
    struct statfs s;

    if (faccessat(AT_FDCWD, d->data_there, W_OK | X_OK, AT_EACCESS)) {
        probe_fail(f, "%s", d->data_there);
        probe_fix(f, "cove doctor --data-dir DIRECTORY, with one that this user may write to");
        return;
    }
    if (statfs(d->data_there, &s)) {
        probe_fail(f, "%s", d->data_there);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].magic == (long)s.f_type)
            name = kinds[i].name, layers = kinds[i].layers;
    probe_say(f, layers ? DOCTOR_OK : DOCTOR_WARN, "%s, on %s%s", d->data_dir, name,
              layers ? "" : ", which cannot hold the upper layer of an overlay");
    probe_fix(f, "cove doctor --data-dir DIRECTORY, with one on ext4, xfs or btrfs");
}

/* Like the data directory it is made on first use: what counts is the one above it. */
static void probe_run_dir(const struct doctor *d, struct finding *f)
{
    AUTO(buf_free) struct buf dir = { 0 };
    char *slash;

    buf_puts(&dir, d->run_dir);
    while (access(dir.data, F_OK) && (slash = strrchr(dir.data, '/')) && slash != dir.data)
        *slash = 0;
    if (!faccessat(AT_FDCWD, dir.data, W_OK | X_OK, AT_EACCESS)) {
        probe_say(f, DOCTOR_OK, "%s", d->run_dir);
        return;
    }
    probe_fail(f, "%s", dir.data);
    probe_fix(f, "cove doctor --run-dir DIRECTORY, with one that this user may write to");
}

static void probe_disk(const struct doctor *d, struct finding *f)
{
    const int64_t least = (int64_t)4 << 30;
    struct statvfs s;
    int64_t bytes;

    if (statvfs(d->data_there, &s)) {
        probe_fail(f, "%s", d->data_there);
        return;
    }
    bytes = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    probe_say(f, bytes < least ? DOCTOR_WARN : DOCTOR_OK, "%lld MiB free in %s",
              (long long)bytes >> 20, d->data_there);
    probe_fix(f, "cove doctor --data-dir DIRECTORY, with one on a disk with 4 GiB free");
}

/* MemAvailable, not MemFree: the page cache goes away when it is needed. */
static void probe_memory(const struct doctor *d, struct finding *f)
{
    char text[4096];
    const char *at;
    int64_t kib;

    (void)d;
    if (probe_read("/proc/meminfo", text, sizeof(text)) < 0 ||
        !(at = strstr(text, "MemAvailable:"))) {
        probe_say(f, DOCTOR_WARN, "/proc/meminfo does not say");
        return;
    }
    at += strcspn(at, "0123456789");
    if (str_i64((struct str){ at, strspn(at, "0123456789") }, &kib))
        kib = 0;
    probe_say(f, kib < 1 << 20 ? DOCTOR_WARN : DOCTOR_OK, "%lld MiB available",
              (long long)kib >> 10);
    probe_fix(f, "end other programs, or use a machine with more memory");
}

/* Each has a row of its own where it is tried; this one is the shopping list. */
static void probe_programs(const struct doctor *d, struct finding *f)
{
    static const struct {
        const char *name;
        unsigned mode;
        const char *use;
    } programs[] = {
        { "nft", DOCTOR_ROOT, "network" },
        { "mkfs.btrfs", DOCTOR_ROOT, "volumes" },
        { "newuidmap", DOCTOR_ROOTLESS, "ids" },
        { "newgidmap", DOCTOR_ROOTLESS, "ids" },
    };
    AUTO(buf_free) struct buf missing = { 0 };
    unsigned mode = d->root ? DOCTOR_ROOT : DOCTOR_ROOTLESS;
    char path[512];

    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        if (!(programs[i].mode & mode) || probe_find_program(programs[i].name, path, sizeof(path)))
            continue;
        if (!missing.len)
            probe_fix_package(d, f, programs[i].name);
        buf_printf(&missing, "%s%s (%s)", missing.len ? ", " : "", programs[i].name,
                   programs[i].use);
    }
    if (missing.len)
        probe_say(f, DOCTOR_WARN, "missing: %s", missing.data);
    else
        probe_say(f, DOCTOR_OK, "all there");
}

const struct doctor_check doctor_machine[] = {
    {
        "machine.privileges",
        "privileges",
        .need = DOCTOR_ROOT,
        .probe = probe_privileges,
    },
    { "machine.data_dir", "data directory", .need = DOCTOR_BOTH, .probe = probe_data_dir,
      .without = "a place for layers" },
    { "machine.run_dir", "run directory", .need = DOCTOR_BOTH, .probe = probe_run_dir,
      .without = "a place for sockets" },
    { "machine.disk", "free disk", .probe = probe_disk, .without = "room for layers" },
    { "machine.memory", "free memory", .probe = probe_memory, .without = "room for sandboxes" },
    { "machine.programs", "programs", .probe = probe_programs },
    {}
};
