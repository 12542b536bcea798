/* volume.c - which kind of volume a data directory has, and opening it.
 *
 * Decided anew at each open from what is there: an image means loop; no image on btrfs means
 * native; layers in a plain directory mean plain, and it stays so, because a volume mounted over
 * them would hide them. Where there is nothing yet, root gets an image if the machine can. */
#include "jail/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/volume_impl.h"

#define MIB (1LL << 20)
#define GIB (1LL << 30)
#define EIB (1LL << 60)

struct volume_options volume_options = {
    .initial_bytes = 2 * GIB,
    .step_bytes = GIB,
    .cap_bytes = 0,
    .low_bytes = 512 * MIB,
};

const struct setting volume_settings[] = {
    { "volume.initial-bytes", &volume_options.initial_bytes, 128 * MIB, EIB,
      "bytes of a new volume's file" },
    { "volume.step-bytes", &volume_options.step_bytes, 64 * MIB, EIB,
      "bytes by which the volume's file grows" },
    { "volume.cap-bytes", &volume_options.cap_bytes, 0, EIB,
      "bytes the volume's file may have; 0: as many as it leaves free on its disk" },
    { "volume.low-bytes", &volume_options.low_bytes, MIB, EIB,
      "free bytes of the volume below which it grows" },
    { 0 },
};

/* ---- the directory ---- */

static bool is_btrfs(int fd)
{
    struct statfs s;

    return !fstatfs(fd, &s) && s.f_type == BTRFS_SUPER_MAGIC;
}

static int open_dir(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A file system of its own begins there: its top directory is on another device than ours. */
static bool is_mounted_at(const struct volume *v, int fd)
{
    struct stat st;

    return !fstat(fd, &st) && st.st_dev != v->data_stat.st_dev && st.st_ino == BTRFS_TOP_INODE &&
           is_btrfs(fd);
}

bool volume_mounted(const struct volume *v)
{
    AUTO(closep) int fd = open_dir(v->data, VOLUME_DIR);

    return fd >= 0 && is_mounted_at(v, fd);
}

static int open_data(struct volume *v, const char *dir, struct err *err)
{
    v->dir = xstrdup(dir);
    v->data = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (v->data < 0 || fstat(v->data, &v->data_stat))
        return err_sys(err, "open data directory %.150s", dir);
    if (v->data_stat.st_uid != geteuid() || v->data_stat.st_mode & 022)
        return err_set(err, ERR_DENIED,
                       "data directory %.150s must belong to us and be writable by nobody else",
                       dir);
    return 0;
}

int volume_lock(const struct volume *v, struct err *err)
{
    AUTO(closep)
    int fd = openat(v->data, VOLUME_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_sys(err, "open %.150s/" VOLUME_LOCK, v->dir);
    while (flock(fd, LOCK_EX))
        if (errno != EINTR)
            return err_sys(err, "lock %.150s/" VOLUME_LOCK, v->dir);
    return TAKE(fd, -1);
}

/* ---- kinds ---- */

static bool has_entries(int dir, const char *name)
{
    int fd = open_dir(dir, name);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;

    if (!d) {
        closep(&fd);
        return false;
    }
    for (struct dirent *e; !found && (e = readdir(d));)
        found = e->d_name[0] != '.';
    closedir(d);
    return found;
}

/* What the directory already is; VOLUME_PLAIN with an empty `why`: nothing yet. */
static int recognise(struct volume *v, struct err *err)
{
    bool root = geteuid() == 0;

    v->kind = VOLUME_PLAIN;
    *v->why = 0;
    if (volume_image_exists(v)) {
        if (!root)
            return err_set(err, ERR_DENIED, "only root can mount %.150s/" VOLUME_IMAGE, v->dir);
        v->kind = VOLUME_BTRFS_LOOP;
    } else if (!root) {
        snprintf(v->why, sizeof(v->why), "only root can mount a volume");
    } else if (!is_btrfs(v->data) && volume_mounted(v)) {
        return err_set(err, ERR_PRECONDITION,
                       "%.100s/" VOLUME_IMAGE
                       " is gone, but still mounted: put it back, or unmount "
                       "%.100s/" VOLUME_DIR,
                       v->dir, v->dir);
    } else if (has_entries(v->data, VOLUME_DIR "/" VOLUME_LAYERS) && !is_btrfs(v->data)) {
        snprintf(v->why, sizeof(v->why), "it holds plain layers: delete them to get a volume");
    } else if (is_btrfs(v->data)) {
        v->kind = VOLUME_BTRFS_NATIVE;
    }
    return 0;
}

/* True when it can be used as it is. */
static bool is_ready(struct volume *v)
{
    v->fd = open_dir(v->data, VOLUME_DIR);
    if (v->fd >= 0 && (v->kind != VOLUME_BTRFS_LOOP || is_mounted_at(v, v->fd)))
        v->layers = open_dir(v->fd, VOLUME_LAYERS);
    if (v->layers >= 0)
        return true;
    closep(&v->fd);
    v->fd = -1;
    return false;
}

static int make_directories(const struct volume *v, struct err *err)
{
    if (mkdirat(v->data, VOLUME_DIR, 0700) && errno != EEXIST)
        return err_sys(err, "create %.150s/" VOLUME_DIR, v->dir);
    if (mkdirat(v->data, VOLUME_DIR "/" VOLUME_LAYERS, 0700) && errno != EEXIST)
        return err_sys(err, "create %.150s/" VOLUME_DIR "/" VOLUME_LAYERS, v->dir);
    return 0;
}

static int make_ready(struct volume *v, struct err *err)
{
    bool fresh = v->kind == VOLUME_PLAIN && !*v->why;
    struct err failed;

    if (fresh && volume_image_possible(v))
        v->kind = VOLUME_BTRFS_LOOP;
    if (v->kind == VOLUME_BTRFS_LOOP) {
        if (!volume_image_mount(v, &failed))
            return 0;
        if (!fresh || failed.code != ERR_UNSUPPORTED || volume_image_exists(v)) {
            *err = failed;
            return -1;
        }
        v->kind = VOLUME_PLAIN;
        snprintf(v->why, sizeof(v->why), "its disk cannot preallocate a file");
    }
    return make_directories(v, err);
}

/* Under the lock, because somebody else may be at it: what they did is looked at again. */
static int settle(struct volume *v, struct err *err)
{
    AUTO(closep) int lock = volume_lock(v, err);

    if (lock < 0 || recognise(v, err))
        return -1;
    if ((v->kind != VOLUME_PLAIN || *v->why) && is_ready(v))
        return 0;
    if (make_ready(v, err))
        return -1;
    if (!is_ready(v))
        return err_set(err, ERR_PRECONDITION, "%.150s/" VOLUME_DIR " is not usable", v->dir);
    return 0;
}

static void describe(struct volume *v)
{
    static const char *const quotas[] = { [QUOTA_SIMPLE] = "simple", [QUOTA_FULL] = "full" };

    if (v->kind == VOLUME_PLAIN)
        snprintf(v->text, sizeof(v->text), "plain directory, no disk limits, no snapshots (%s)",
                 v->why);
    else if (v->quota != QUOTA_OFF)
        snprintf(v->text, sizeof(v->text), "%s, disk limits by %s quotas",
                 v->kind == VOLUME_BTRFS_LOOP ? "btrfs in " VOLUME_IMAGE
                                              : "btrfs of the data directory",
                 quotas[v->quota]);
    else if (v->kind == VOLUME_BTRFS_LOOP)
        snprintf(v->text, sizeof(v->text),
                 "btrfs in " VOLUME_IMAGE ", disk limits not enforced (the kernel refused quotas)");
    else
        snprintf(
            v->text, sizeof(v->text),
            "btrfs of the data directory, disk limits not enforced (its quotas are off: 'btrfs "
            "quota enable %.120s' turns them on)",
            v->dir);
}

/* ---- the interface ---- */

static struct volume *volume_new(void)
{
    struct volume *v = xcalloc(1, sizeof(*v));

    v->data = v->fd = v->layers = v->qgroups = v->allocation = -1;
    return v;
}

int volume_open(const char *data_dir, struct volume **out, struct err *err)
{
    AUTO(volume_closep) struct volume *v = volume_new();

    if (open_data(v, data_dir, err) || recognise(v, err))
        return -1;
    if (((v->kind == VOLUME_PLAIN && !*v->why) || !is_ready(v)) && settle(v, err))
        return -1;
    if (v->kind != VOLUME_PLAIN)
        volume_quota_open(v);
    describe(v);
    *out = TAKE(v, NULL);
    return 0;
}

void volume_close(struct volume *v)
{
    if (!v)
        return;
    closep(&v->allocation);
    closep(&v->qgroups);
    closep(&v->layers);
    closep(&v->fd);
    closep(&v->data);
    free(v->dir);
    free(v);
}

void volume_closep(struct volume **v) { volume_close(*v); }

int volume_detach(const char *data_dir, struct err *err)
{
    AUTO(volume_closep) struct volume *v = volume_new();
    AUTO(closep) int lock = -1;

    if (open_data(v, data_dir, err))
        return -1;
    lock = volume_lock(v, err);
    if (lock < 0)
        return -1;
    return volume_image_exists(v) && volume_mounted(v) ? volume_image_unmount(v, err) : 0;
}

enum volume_kind volume_kind(const struct volume *v) { return v->kind; }

bool volume_quota_enforced(const struct volume *v) { return v->quota != QUOTA_OFF; }

bool volume_has_snapshots(const struct volume *v) { return v->kind != VOLUME_PLAIN; }

const char *volume_describe(const struct volume *v) { return v->text; }

int volume_sync(struct volume *v, struct err *err)
{
    return syncfs(v->fd) ? err_sys(err, "sync %.150s/" VOLUME_DIR, v->dir) : 0;
}

/* Not by syncfs(): only this call wakes the thread that frees what was deleted. */
int volume_reclaim(struct volume *v, struct err *err)
{
    if (v->kind == VOLUME_PLAIN)
        return 0;
    return ioctl(v->fd, BTRFS_IOC_SYNC)
               ? err_sys(err, "free what was deleted in %.150s/" VOLUME_DIR, v->dir)
               : 0;
}

/* What has been written and is in memory only has a place already, which the file system counts as
 * free. */
int64_t volume_room(const struct volume *v)
{
    static const char *const taken[] = { "bytes_may_use", "bytes_reserved" };
    struct statvfs s;
    int64_t room;

    if (v->kind == VOLUME_PLAIN || fstatvfs(v->fd, &s))
        return INT64_MAX;
    room = (int64_t)(s.f_bavail * s.f_frsize);
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        room -= MAX(volume_kernel_number(v->allocation, taken[i]), (int64_t)0);
    return MAX(room, (int64_t)0);
}

int volume_grow_if_low(struct volume *v, int64_t ahead, struct err *err)
{
    AUTO(closep) int lock = -1;

    if (v->kind != VOLUME_BTRFS_LOOP || volume_room(v) >= volume_options.low_bytes + ahead)
        return 0;
    lock = volume_lock(v, err);
    return lock < 0 ? -1 : volume_image_grow(v, ahead, err);
}

int volume_sweep(struct volume *v, bool (*alive)(const char *layer, void *), void *arg,
                 struct err *err)
{
    int fd = open_dir(v->layers, "."), result = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct err failed;

    if (!d) {
        closep(&fd);
        return err_sys(err, "list %.150s/" VOLUME_DIR "/" VOLUME_LAYERS, v->dir);
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (!layer_name_ok(e->d_name) || alive(e->d_name, arg))
            continue;
        /* one that cannot go must not keep the others */
        if (layer_delete(v, e->d_name, &failed) && failed.code != ERR_NOT_FOUND) {
            *err = failed;
            result = -1;
        }
    }
    closedir(d);
    if (v->kind == VOLUME_PLAIN)
        return result;
    int dying = volume_quota_sweep(v, err);
    return result ? -1 : dying;
}
