/* volume_impl.h - what the parts of the volume share: volume.c decides the kind, volume_image.c has
 * the file and its loop device, volume_quota.c the quota groups, volume_layer.c the layers. */
#ifndef JAIL_VOLUME_IMPL_H
#define JAIL_VOLUME_IMPL_H

#include <sys/stat.h>

#include "jail/volume.h"

#define VOLUME_DIR    "volume" /* these names are below the data directory */
#define VOLUME_IMAGE  "volume.img"
#define VOLUME_LOCK   "volume.lock"
#define VOLUME_LAYERS "layers" /* below VOLUME_DIR */

enum { BTRFS_TOP_INODE = 256, LEFTOVERS = 64 }; /* the top directory of any subvolume */

enum quota_kind { QUOTA_OFF, QUOTA_SIMPLE, QUOTA_FULL };

struct leftover { /* a deleted subvolume, whose quota groups cannot go before it has */
    uint64_t subvolume, family;
};

struct volume {
    char *dir; /* the data directory, owned */
    int data;  /* its descriptor */
    int fd;    /* VOLUME_DIR */
    int layers;
    int qgroups;    /* the kernel's directory of quota groups; -1: quotas are off */
    int allocation; /* the kernel's directory about room for data; -1: not to be had */
    struct stat data_stat;
    enum volume_kind kind;
    enum quota_kind quota;
    uint16_t tag; /* sets our quota groups apart from others on the same file system */
    char why[96]; /* it is plain */
    char text[256];
    struct leftover left[LEFTOVERS]; /* a ring: what it forgets, volume_sweep() finds */
    unsigned left_first, left_count;
};

int volume_lock(const struct volume *v, struct err *err); /* waits; closing it unlocks */
bool volume_mounted(const struct volume *v); /* the image, at its place, for us to see */

/* volume_image.c: all but the first under the lock. */
bool volume_image_exists(const struct volume *v);
bool volume_image_possible(struct volume *v);                      /* else v->why is set */
int volume_image_mount(const struct volume *v, struct err *err);   /* makes it when there is none */
int volume_image_unmount(const struct volume *v, struct err *err); /* all or nothing */
int volume_image_grow(const struct volume *v, int64_t ahead, struct err *err);

/* volume_quota.c */
int64_t volume_kernel_number(int dir, const char *path); /* -1: it says none */
void volume_quota_enable(int fd);         /* on a file system of our own; may have no effect */
void volume_quota_open(struct volume *v); /* fills in qgroups, quota and tag */
void volume_quota_add(struct volume *v, uint64_t family);
int volume_quota_limit(struct volume *v, uint64_t family, uint64_t bytes); /* -1 with errno */
int volume_quota_usage(const struct volume *v, uint64_t family, struct layer_usage *out);
uint64_t volume_quota_id(const struct volume *v, uint64_t family);
void volume_quota_note(struct volume *v, int layer); /* about to be deleted; tidies earlier ones */
int volume_quota_sweep(struct volume *v, struct err *err); /* as volume_sweep() */

#endif
