/* volume_layer.c - layers: subvolumes with a family, or plain directories. */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/rmtree.h"
#include "jail/volume_impl.h"
#include "jail/weaken.h"

enum { CREATE_TRIES = 8 };

static const uint64_t quota_least = 1ULL << 20, quota_most = 1ULL << 60;

bool layer_name_ok(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

    return n && n <= LAYER_NAME_MAX && !name[n] && *name != '.';
}

static int check_name(const char *name, struct err *err)
{
    if (layer_name_ok(name))
        return 0;
    return err_set(err, ERR_INVALID,
                   "a layer's name is 1 to %d of a-z, 0-9, '_', '-' and '.', without a dot in "
                   "front, not '%.80s'",
                   LAYER_NAME_MAX, name);
}

static int check_family(uint64_t family, uint64_t quota, struct err *err)
{
    if (!family || family > UINT32_MAX)
        return err_set(err, ERR_INVALID, "a layer's family is a number from 1 to %u", UINT32_MAX);
    if (quota && (quota < quota_least || quota > quota_most))
        return err_set(err, ERR_INVALID, "a layer's limit is 0 or a number from %llu to %llu bytes",
                       (unsigned long long)quota_least, (unsigned long long)quota_most);
    return 0;
}

int layer_open(struct volume *v, const char *name, struct err *err)
{
    int fd;

    if (check_name(name, err))
        return -1;
    fd = openat(v->layers, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "layer %s", name) : fd;
}

static int destroy(struct volume *v, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 a = { 0 };

    memcpy(a.name, name, strlen(name) + 1); /* checked: it fits */
    return ioctl(v->layers, BTRFS_IOC_SNAP_DESTROY_V2, &a);
}

/* A new subvolume, or a snapshot when source >= 0, born into its family. */
static int make(struct volume *v, const char *name, int source, uint64_t family, bool readonly)
{
    AUTO(freep) struct btrfs_qgroup_inherit *born = NULL;
    struct btrfs_ioctl_vol_args_v2 a = { .fd = source,
                                         .flags = readonly ? BTRFS_SUBVOL_RDONLY : 0 };

    memcpy(a.name, name, strlen(name) + 1);
    if (v->quota != QUOTA_OFF) {
        a.flags |= BTRFS_SUBVOL_QGROUP_INHERIT;
        a.size = sizeof(*born) + sizeof(born->qgroups[0]);
        a.qgroup_inherit = born = xcalloc(1, a.size);
        born->num_qgroups = 1;
        born->qgroups[0] = volume_quota_id(v, family);
    }
    return ioctl(v->layers, source < 0 ? BTRFS_IOC_SUBVOL_CREATE_V2 : BTRFS_IOC_SNAP_CREATE_V2, &a);
}

/* The limit comes last: a sweep in another process may take an empty family away before the layer
 * is in it, and then only the limit tells (the kernel makes the layer without its family). With a
 * member in it the group cannot go. */
static int make_limited(struct volume *v, const char *name, int source, uint64_t family,
                        uint64_t quota, bool readonly)
{
    for (int tries = 0; tries < CREATE_TRIES; tries++) {
        if (v->quota != QUOTA_OFF)
            volume_quota_add(v, family);
        if (make(v, name, source, family, readonly)) {
            if (errno != ENOENT || v->quota == QUOTA_OFF)
                return -1;
            continue;
        }
        if (v->quota == QUOTA_OFF || !volume_quota_limit(v, family, weakened("quota") ? 0 : quota))
            return 0;
        int error = errno;
        destroy(v, name);
        errno = error;
        if (error != ENOENT)
            return -1;
    }
    return -1;
}

static int make_open(struct volume *v, const char *name, int source, uint64_t family,
                     uint64_t quota, bool readonly, struct err *err)
{
    int result;

    if (check_name(name, err) || check_family(family, quota, err))
        return -1;
    if (v->kind == VOLUME_PLAIN)
        result = mkdirat(v->layers, name, 0755);
    else
        result = make_limited(v, name, source, family, quota, readonly);
    if (result && errno == EEXIST)
        return err_set(err, ERR_CONFLICT, "layer %s exists", name);
    if (result && errno == EDQUOT)
        return err_set(err, ERR_NO_SPACE, "layer %s: its family has used all of its disk limit",
                       name);
    if (!result)
        return layer_open(v, name, err);
    err_sys(err, "create layer %s", name);
    if (err->code == ERR_NOT_FOUND) /* the volume, or the group of its quota, is being taken away */
        err->code = ERR_UNAVAILABLE;
    return -1;
}

int layer_create(struct volume *v, const char *name, uint64_t family, uint64_t quota_bytes,
                 struct err *err)
{
    return make_open(v, name, -1, family, quota_bytes, false, err);
}

int layer_snapshot(struct volume *v, const char *name, int source, uint64_t family,
                   uint64_t quota_bytes, bool readonly, struct err *err)
{
    if (!volume_has_snapshots(v))
        return err_set(err, ERR_UNSUPPORTED, "snapshots need btrfs; here is a %s", v->text);
    if (source < 0)
        return err_set(err, ERR_INVALID, "snapshot %.64s of no layer", name);
    return make_open(v, name, source, family, quota_bytes, readonly, err);
}

int layer_delete(struct volume *v, const char *name, struct err *err)
{
    AUTO(closep) int fd = -1;

    if (v->kind == VOLUME_PLAIN) {
        if (check_name(name, err))
            return -1;
        if (faccessat(v->layers, name, F_OK, AT_SYMLINK_NOFOLLOW) ||
            rmtree_foreign(v->layers, name))
            return err_sys(err, "delete layer %s", name);
        return 0;
    }
    fd = layer_open(v, name, err);
    if (fd < 0)
        return -1;
    volume_quota_note(v, fd);
    return destroy(v, name) ? err_sys(err, "delete layer %s", name) : 0;
}

int layer_rename(struct volume *v, const char *from, const char *to, struct err *err)
{
    if (check_name(from, err) || check_name(to, err))
        return -1;
    return renameat2(v->layers, from, v->layers, to, RENAME_NOREPLACE)
               ? err_sys(err, "name layer %s %s", from, to)
               : 0;
}

static int no_family(uint64_t family, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "no layer of family %llu", (unsigned long long)family);
}

int layer_quota_set(struct volume *v, uint64_t family, uint64_t bytes, struct err *err)
{
    if (check_family(family, bytes, err))
        return -1;
    if (v->quota == QUOTA_OFF || !volume_quota_limit(v, family, bytes))
        return 0;
    if (errno == ENOENT)
        return no_family(family, err);
    return err_sys(err, "limit of family %llu", (unsigned long long)family);
}

int layer_usage(struct volume *v, uint64_t family, struct layer_usage *out, struct err *err)
{
    if (check_family(family, 0, err))
        return -1;
    if (v->quota == QUOTA_OFF)
        return err_set(err, ERR_UNSUPPORTED, "nothing counts what layers use here: %s", v->text);
    return volume_quota_usage(v, family, out) ? no_family(family, err) : 0;
}
