/* volume_image.c - the volume in a file: made, attached to a loop device, mounted, grown.
 *
 * The file is preallocated and stays so (mkfs -K, mount -o nodiscard): on a sparse one a full host
 * disk turns every sandbox's volume read-only, on a preallocated one it is harmless. A new image
 * has a temporary name until it is whole, so an interrupted creation is simply done again; a file
 * under the final name is never formatted.
 *
 * Direct I/O: measured against buffered, writes take 0.6 to 0.8 of the time (0.25 where the
 * buffered ones ran into the host's dirty limit) and the cache holds everything once instead of
 * twice; only a first read is a fifth slower. Where the host's file system has no direct I/O the
 * kernel falls back by itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/loop.h"
#include "jail/volume_impl.h"

#define IMAGE_NEW VOLUME_IMAGE ".new"
#define MIB       (1LL << 20)

enum {
    LEAST_MIB = 128,       /* mkfs.btrfs wants 109 */
    LEAST_STEP_MIB = 64,   /* less is not worth a resize */
    BLOCK_BYTES = 4096,    /* of the loop device */
    UNMOUNT_TRIES = 100,   /* ten milliseconds each */
    PROGRAM_OUTPUT = 4096, /* of its standard error, the last bytes */
};

static const char *const mkfs_paths[] = {
    "/usr/sbin/mkfs.btrfs",
    "/sbin/mkfs.btrfs",
    "/usr/bin/mkfs.btrfs",
    "/bin/mkfs.btrfs",
};

static const char *mkfs_path(void)
{
    for (size_t i = 0; i < ARRAY_LEN(mkfs_paths); i++)
        if (!access(mkfs_paths[i], X_OK))
            return mkfs_paths[i];
    return NULL;
}

bool volume_image_exists(const struct volume *v)
{
    return !faccessat(v->data, VOLUME_IMAGE, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* Before two gigabytes are written for nothing. */
bool volume_image_possible(struct volume *v)
{
    AUTO(closep) int fs = fsopen("btrfs", FSOPEN_CLOEXEC); /* loads the module too */
    AUTO(closep) int loop = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (fs < 0)
        snprintf(v->why, sizeof(v->why), "%s",
                 errno == EPERM ? "mounting is not permitted here" : "the kernel has no btrfs");
    else if (loop < 0)
        snprintf(v->why, sizeof(v->why), "there are no loop devices (/dev/loop-control)");
    else if (!mkfs_path())
        snprintf(v->why, sizeof(v->why), "mkfs.btrfs is missing: install btrfs-progs");
    return !*v->why;
}

/* ---- size ---- */

static int64_t host_free(const struct volume *v)
{
    struct statvfs s;

    return fstatvfs(v->data, &s) ? 0 : (int64_t)(s.f_bavail * s.f_frsize);
}

static int64_t cap_bytes(const struct volume *v, int64_t size)
{
    return volume_options.cap_bytes ? volume_options.cap_bytes : (size + host_free(v)) / 2;
}

static int no_space(const struct volume *v, int64_t bytes, const char *advice, struct err *err)
{
    return err_set(err, ERR_NO_SPACE,
                   "%.100s/" VOLUME_IMAGE
                   " needs %lld MiB more and its disk has %lld MiB free: free "
                   "some space, or %s",
                   v->dir, (long long)(bytes / MIB), (long long)(host_free(v) / MIB), advice);
}

/* Space for [from, to) of the file; on failure the file is as before. */
static int preallocate(const struct volume *v, int fd, int64_t from, int64_t to, const char *advice,
                       struct err *err)
{
    struct stat st;
    int error;

    if (fstat(fd, &st))
        return err_sys(err, "stat %.150s/" VOLUME_IMAGE, v->dir);
    if (to - MAX(from, st.st_blocks * 512) > host_free(v)) /* before it fills the disk and fails */
        return no_space(v, to - from, advice, err);
    while (fallocate(fd, 0, from, to - from)) {
        error = errno;
        if (error == EINTR)
            continue;
        /* ext4 keeps what it got before it failed; beyond the old end nobody uses it yet */
        if (ftruncate(fd, st.st_size))
            log_warn("volume image keeps an unused tail", KV("dir", v->dir));
        if (error == ENOSPC || error == EDQUOT)
            return no_space(v, to - from, advice, err);
        errno = error;
        return err_sys(err, "preallocate %.150s/" VOLUME_IMAGE, v->dir);
    }
    return 0;
}

/* ---- making ---- */

static int spawn_quiet(const char *program, char *const *argv, int out, pid_t *pid)
{
    static char path[] = "PATH=/usr/sbin:/sbin:/usr/bin:/bin", locale[] = "LC_ALL=C";
    char *const env[] = { path, locale, NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t set;
    int result;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    sigemptyset(&set);
    posix_spawnattr_setsigmask(&attr, &set);
    sigaddset(&set, SIGPIPE);
    posix_spawnattr_setsigdefault(&attr, &set);
    result = posix_spawn(pid, program, &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    errno = result;
    return result ? -1 : 0;
}

/* Everything up to the end of file, of which the last bytes stay in `out`. */
static void read_tail(int fd, struct buf *out)
{
    char chunk[1024];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0 || (n < 0 && errno == EINTR)) {
        if (n < 0)
            continue;
        buf_add(out, chunk, (size_t)n);
        if (out->len > PROGRAM_OUTPUT)
            buf_drop(out, out->len - PROGRAM_OUTPUT);
    }
    while (out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = 0;
}

static int make_file_system(const char *image, struct err *err)
{
    AUTO(freep) char *file = xstrdup(image);
    AUTO(buf_free) struct buf said = { 0 };
    /* -K: the default would punch the preallocated space out of the file again */
    char *const argv[] = { (char[]){ "mkfs.btrfs" },
                           (char[]){ "-q" },
                           (char[]){ "-K" },
                           (char[]){ "-m" },
                           (char[]){ "dup" },
                           (char[]){ "-d" },
                           (char[]){ "single" },
                           (char[]){ "-L" },
                           (char[]){ "cove" },
                           (char[]){ "--" },
                           file,
                           NULL };
    const char *program = mkfs_path();
    int ends[2], status = -1, result;
    pid_t pid;

    if (!program)
        return err_set(err, ERR_UNSUPPORTED, "mkfs.btrfs is missing: install btrfs-progs");
    if (pipe2(ends, O_CLOEXEC))
        return err_sys(err, "pipe for %s", program);
    result = spawn_quiet(program, argv, ends[1], &pid);
    close(ends[1]);
    if (!result) {
        read_tail(ends[0], &said);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    if (result)
        return err_sys(err, "start %s", program);
    if (status)
        return err_set(err, ERR_INTERNAL, "%s failed: %.180s", program, buf_cstr(&said));
    return 0;
}

static int new_size(const struct volume *v, int64_t *size, struct err *err)
{
    *size = MIN(volume_options.initial_bytes, cap_bytes(v, 0)) / MIB * MIB;
    if (*size < LEAST_MIB * MIB)
        return no_space(v, volume_options.initial_bytes, "raise volume.cap-bytes", err);
    return 0;
}

static int fill_new(const struct volume *v, int fd, int64_t size, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };

    buf_printf(&path, "%s/" IMAGE_NEW, v->dir);
    if (preallocate(v, fd, 0, size, "lower volume.initial-bytes", err) ||
        make_file_system(path.data, err))
        return -1;
    if (fsync(fd) || renameat2(v->data, IMAGE_NEW, v->data, VOLUME_IMAGE, RENAME_NOREPLACE) ||
        fsync(v->data))
        return err_sys(err, "finish %.150s", path.data);
    return 0;
}

static int create(const struct volume *v, struct err *err)
{
    int64_t size;
    int result;

    if (new_size(v, &size, err))
        return -1;
    log_info("making the volume", KV("dir", v->dir), KVI("mib", size / MIB));
    if (unlinkat(v->data, IMAGE_NEW, 0) && errno != ENOENT) /* of an interrupted creation */
        return err_sys(err, "remove %.150s/" IMAGE_NEW, v->dir);
    AUTO(closep)
    int fd = openat(v->data, IMAGE_NEW, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "create %.150s/" IMAGE_NEW, v->dir);
    result = fill_new(v, fd, size, err);
    if (result)
        unlinkat(v->data, IMAGE_NEW, 0);
    return result;
}

/* ---- loop devices ---- */

static bool is_backed_by(int fd, const struct stat *image)
{
    struct loop_info64 info;

    return !ioctl(fd, LOOP_GET_STATUS64, &info) && info.lo_device == image->st_dev &&
           info.lo_inode == image->st_ino;
}

/* The name alone decides nothing, but spares us opening other people's devices. */
static bool may_be_ours(const char *device)
{
    char path[96], file[4096];
    ssize_t n;

    snprintf(path, sizeof(path), "/sys/block/%.32s/loop/backing_file", device);
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, file, sizeof(file) - 1);
    file[n > 0 ? n : 0] = 0;
    return strstr(file, "/" VOLUME_IMAGE) != NULL;
}

/* The device that has the image, open, so that it cannot go away: 1, 0 (none), -1. */
static int loop_find(const struct stat *image, struct loop *out, struct err *err)
{
    DIR *d = opendir("/sys/block");
    int found = 0;

    if (!d) /* then we could attach it twice, which destroys it */
        return err_sys(err, "list loop devices in /sys/block");
    for (struct dirent *e; !found && (e = readdir(d));) {
        if (strncmp(e->d_name, "loop", 4) || !may_be_ours(e->d_name))
            continue;
        snprintf(out->path, sizeof(out->path), "/dev/%.24s", e->d_name);
        out->fd = open(out->path, O_RDWR | O_CLOEXEC);
        found = out->fd >= 0 && is_backed_by(out->fd, image);
        if (!found)
            closep(&out->fd);
    }
    closedir(d);
    return found;
}

static int attach(const struct volume *v, int image, struct loop *out, struct err *err)
{
    char path[LO_NAME_SIZE];

    snprintf(path, sizeof(path), "%s/" VOLUME_IMAGE, v->dir);
    if (loop_attach(image, path, LO_FLAGS_DIRECT_IO, out))
        return err_sys(err, "attach %.150s/" VOLUME_IMAGE " to a loop device", v->dir);
    return 0;
}

/* ---- mounting ---- */

static int open_image(const struct volume *v, struct stat *st, struct err *err)
{
    AUTO(closep) int fd = openat(v->data, VOLUME_IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, st))
        return err_sys(err, "open %.150s/" VOLUME_IMAGE, v->dir);
    if (!S_ISREG(st->st_mode))
        return err_set(err, ERR_PRECONDITION, "%.150s/" VOLUME_IMAGE " is not a file", v->dir);
    /* copied back from a backup it may have holes */
    if (st->st_blocks * 512 < st->st_size / BLOCK_BYTES * BLOCK_BYTES &&
        preallocate(v, fd, 0, st->st_size, "move the data directory", err))
        return -1;
    return TAKE(fd, -1);
}

static int resize_to_device(const struct volume *v, int fd, struct err *err)
{
    struct btrfs_ioctl_vol_args a = { .name = "max" };
    int result = ioctl(fd, BTRFS_IOC_RESIZE, &a);

    if (result > 0) /* a balance or the like, started by hand */
        return err_set(err, ERR_UNAVAILABLE, "%.150s/" VOLUME_DIR " is busy: resize later", v->dir);
    return result < 0 ? err_sys(err, "resize %.150s/" VOLUME_DIR, v->dir) : 0;
}

/* Whoever died while growing it left a file that is larger than its file system. */
static int catch_up(const struct volume *v, int fd, int64_t size, struct err *err)
{
    struct btrfs_ioctl_dev_info_args a = { .devid = 1 };

    if (ioctl(fd, BTRFS_IOC_DEV_INFO, &a) || (int64_t)a.total_bytes + MIB > size)
        return 0;
    return resize_to_device(v, fd, err);
}

/* The directory of the layers comes last: where it is, an open needs no lock. */
static int prepare(const struct volume *v, int64_t size, struct err *err)
{
    AUTO(closep) int fd = openat(v->data, VOLUME_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fchmod(fd, 0700)) /* files of sandbox root belong to host root */
        return err_sys(err, "open %.150s/" VOLUME_DIR, v->dir);
    volume_quota_enable(fd);
    if (catch_up(v, fd, size, err))
        return -1;
    if (mkdirat(fd, VOLUME_LAYERS, 0700) && errno != EEXIST)
        return err_sys(err, "create %.150s/" VOLUME_DIR "/" VOLUME_LAYERS, v->dir);
    return 0;
}

static int mount_at(const struct volume *v, const char *device, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };

    buf_printf(&path, "%s/" VOLUME_DIR, v->dir);
    if (mkdirat(v->data, VOLUME_DIR, 0700) && errno != EEXIST)
        return err_sys(err, "create %.150s", path.data);
    if (!mount(device, path.data, "btrfs", MS_NOSUID | MS_NODEV | MS_NOATIME, "nodiscard"))
        return 0;
    if (errno == EPERM || errno == EACCES || errno == ENODEV || errno == ENOMEM)
        return err_sys(err, "mount %.150s", path.data);
    return err_set(err, ERR_PRECONDITION,
                   "%.90s/" VOLUME_IMAGE " cannot be mounted (%s); it was not changed. Look at it "
                   "with 'btrfs check', or move it away to begin anew",
                   v->dir, strerrordesc_np(errno));
}

static int attach_and_mount(const struct volume *v, int image, const struct stat *st,
                            struct err *err)
{
    struct loop loop = { .fd = -1 };
    int found = loop_find(st, &loop, err), result;

    if (found < 0 || (!found && attach(v, image, &loop, err)))
        return -1;
    result = mount_at(v, loop.path, err);
    close(loop.fd); /* only now: the mount holds it */
    return result;
}

int volume_image_mount(const struct volume *v, struct err *err)
{
    AUTO(closep) int image = -1;
    struct stat st;

    if (!volume_image_exists(v) && create(v, err))
        return -1;
    image = open_image(v, &st, err);
    /* it may be mounted already: by somebody who died before it was prepared */
    if (image < 0 || (!volume_mounted(v) && attach_and_mount(v, image, &st, err)))
        return -1;
    return prepare(v, st.st_size, err);
}

int volume_image_unmount(const struct volume *v, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };
    struct loop loop = { .fd = -1 };
    struct stat st;
    AUTO(closep) int image = open_image(v, &st, err);
    int found = 1;

    if (image < 0)
        return -1;
    buf_printf(&path, "%s/" VOLUME_DIR, v->dir);
    if (umount2(path.data, UMOUNT_NOFOLLOW))
        return errno == EBUSY ? err_set(err, ERR_CONFLICT,
                                        "%.150s is in use: end its sandboxes first", path.data)
                              : err_sys(err, "unmount %.150s", path.data);
    /* sandboxes hold mounts of their own, which do not make ours busy: the device tells */
    for (int i = 0; found > 0 && i < UNMOUNT_TRIES; i++) {
        if (i)
            usleep(10000);
        found = loop_find(&st, &loop, err);
        if (found > 0 && i + 1 < UNMOUNT_TRIES)
            closep(&loop.fd);
    }
    if (found <= 0)
        return found;
    found = mount_at(v, loop.path, err);
    close(loop.fd);
    if (found)
        return -1;
    return err_set(err, ERR_CONFLICT,
                   "%.120s is in use: end its sandboxes, and what runs in a mount namespace with a "
                   "copy of it",
                   path.data);
}

/* ---- growing ---- */

static int grow_to(const struct volume *v, int image, const struct stat *st, int64_t size,
                   struct err *err)
{
    struct loop loop = { .fd = -1 };
    int found = loop_find(st, &loop, err), result;

    if (found < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_PRECONDITION, "no loop device has %.150s/" VOLUME_IMAGE, v->dir);
    result = preallocate(v, image, st->st_size, size, "lower volume.step-bytes", err);
    if (!result && ioctl(loop.fd, LOOP_SET_CAPACITY, 0))
        result = err_sys(err, "grow %s", loop.path);
    if (!result)
        result = resize_to_device(v, v->fd, err);
    close(loop.fd);
    return result;
}

int volume_image_grow(const struct volume *v, int64_t ahead, struct err *err)
{
    struct stat st;
    int64_t size;

    if (volume_room(v) >= volume_options.low_bytes + ahead)
        return 0; /* somebody else has just done it */
    AUTO(closep) int image = open_image(v, &st, err);
    if (image < 0)
        return -1;
    size = MIN(st.st_size + volume_options.step_bytes, cap_bytes(v, st.st_size)) / MIB * MIB;
    if (size < st.st_size + LEAST_STEP_MIB * MIB)
        return err_set(err, ERR_LIMIT,
                       "%.100s/" VOLUME_IMAGE " has %lld MiB and may not grow: free disk space, or "
                       "set volume.cap-bytes",
                       v->dir, (long long)(st.st_size / MIB));
    if (grow_to(v, image, &st, size, err))
        return -1;
    log_info("the volume has grown", KV("dir", v->dir), KVI("mib", size / MIB));
    return 1;
}
