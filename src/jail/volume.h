/* volume.h - where the writable layers of sandboxes live, and the hard limit on each.
 *
 * One volume per data directory, of one of three kinds, chosen when it is first opened:
 *
 *   loop     <data>/volume.img, preallocated, btrfs, mounted at <data>/volume
 *   native   the data directory is on btrfs itself: subvolumes below <data>/volume
 *   plain    ordinary directories there: no limits, no snapshots (no root, or no btrfs)
 *
 * Limits are quota groups of btrfs: simple ones (Linux 6.7), else full ones. On a file system of
 * our own we switch them on. On the user's own btrfs we use what is on and switch nothing: simple
 * quotas would make it unreadable for older kernels, full ones slow down everything on it.
 * volume_describe() says which it is and what would change it.
 *
 * Nothing here parks, and no descriptor outlives an exec. What may take long is marked "slow": it
 * belongs in a process of its own, not in the keeper. */
#ifndef JAIL_VOLUME_H
#define JAIL_VOLUME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/setting.h"

struct volume_options {    /* of kind loop */
    int64_t initial_bytes; /* of a new image */
    int64_t step_bytes;    /* it grows by this much */
    int64_t cap_bytes; /* never beyond this; 0: half of what it and the free disk are together */
    int64_t low_bytes; /* it grows when less than this is free */
};

extern struct volume_options volume_options;
extern const struct setting volume_settings[];

enum volume_kind { VOLUME_BTRFS_NATIVE, VOLUME_BTRFS_LOOP, VOLUME_PLAIN };

struct volume; /* freed by volume_close() */

/* Finds the volume of an existing data directory, which nobody else may write to. About 10 us when
 * it is there and mounted. Otherwise slow: it makes, attaches and mounts it, under the lock
 * <data>/volume.lock, so any number of processes may try at once. An image that cannot be mounted
 * is an error and stays as it is. */
int volume_open(const char *data_dir, struct volume **out, struct err *err);
void volume_close(struct volume *v); /* it stays mounted: others use it. NULL is fine */
void volume_closep(struct volume **v);
/* Unmounts it; the loop device goes with the last mount. ERR_CONFLICT, and nothing has changed,
 * while any process, mount or mount namespace uses it. Keeps the image. Slow. */
int volume_detach(const char *data_dir, struct err *err);

enum volume_kind volume_kind(const struct volume *v);
bool volume_quota_enforced(const struct volume *v);
bool volume_has_snapshots(const struct volume *v);
const char *volume_describe(const struct volume *v); /* one line for people; lives as long as v */

int volume_sync(struct volume *v, struct err *err); /* everything written so far is on disk; slow */
/* The room of deleted layers is free soon, instead of with the next commit in half a minute. */
int volume_reclaim(struct volume *v, struct err *err);
int64_t volume_room(const struct volume *v); /* bytes that can still be written */
/* One step, when less than volume.low-bytes and what is expected meanwhile is free. 1: it has
 * grown, 0: no need, -1: it cannot (ERR_LIMIT: the cap; ERR_NO_SPACE: the disk). Safe in several
 * processes at once. Slow when it grows. */
int volume_grow_if_low(struct volume *v, int64_t ahead, struct err *err);
/* Deletes the layers for which alive() is false, then the quota groups that nobody needs any more.
 * alive() must know a layer's name before layer_create() is called with it. Returns how many
 * deletions the kernel still works on (call again in a second), 0 when nothing is left. Slow. */
int volume_sweep(struct volume *v, bool (*alive)(const char *layer, void *), void *arg,
                 struct err *err);

/* A layer is a directory `name` ([a-z0-9_-] and inner dots, 1 to 64) and belongs to a family, 1 to
 * 2^32-1: the sandbox with its checkpoints. The limit is the family's. What a layer wrote stays
 * charged to its family while any snapshot, of whatever family, still shares it. Limits are 1 MiB
 * to 1 EiB, or 0 for none; they are taken and not enforced where volume_quota_enforced() is false.
 * The three functions return a descriptor of the layer's directory. */
enum { LAYER_NAME_MAX = 64 };

bool layer_name_ok(const char *name);
int layer_create(struct volume *v, const char *name, uint64_t family, uint64_t quota_bytes,
                 struct err *err);
/* ERR_UNSUPPORTED on a plain volume. It first writes what `source` has dirty, so call volume_sync()
 * before the source is frozen. */
int layer_snapshot(struct volume *v, const char *name, int source, uint64_t family,
                   uint64_t quota_bytes, bool readonly, struct err *err);
int layer_open(struct volume *v, const char *name, struct err *err);

/* The name is gone at once; the space a little later, and not before the last descriptor and mount
 * of it. Slow: up to 250 ms, more on a plain volume.
 */
int layer_delete(struct volume *v, const char *name, struct err *err);

/* ERR_CONFLICT: `to` exists. */
int layer_rename(struct volume *v, const char *from, const char *to, struct err *err);

struct layer_usage {
    uint64_t used;  /* bytes charged to the family, with what is not on disk yet */
    uint64_t limit; /* 0: none */
};

int layer_quota_set(struct volume *v, uint64_t family, uint64_t bytes, struct err *err);
/* ERR_NOT_FOUND: no such family; ERR_UNSUPPORTED: this volume does not count. */
int layer_usage(struct volume *v, uint64_t family, struct layer_usage *out, struct err *err);

#endif
