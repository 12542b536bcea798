/* volume_quota.c - quota groups: the limit of a family, and getting rid of what is left of it.
 *
 * A family is one group of level 1; each of its subvolumes is born into it, with a group of level 0
 * that the kernel made. Simple quotas charge an extent to the subvolume that wrote it until the
 * extent dies, which may be long after that subvolume: so the group of a deleted subvolume stays,
 * counts for its family, and can go only when nothing is charged to it. Recent kernels then remove
 * the level 0 group themselves, sometimes; the level 1 group is always ours to remove.
 *
 * A limit on the level 0 group, joined to a family at the first snapshot, would save 21 of 70 us at
 * creation; it was not worth a state that has to be remembered. */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/volume_impl.h"

enum {
    CTL_ENABLE_SIMPLE = 4, /* newer than the headers we build with */
    LEVEL_SHIFT = 48,
    TAG_SHIFT = 32,
    TIDY_AT_ONCE = 8,
    SEARCH_BYTES = 64 << 10,
};

/* ---- what the kernel's directory says ---- */

int64_t volume_kernel_number(int dir, const char *path)
{
    AUTO(closep) int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    char text[32];
    uint64_t n = 0;
    ssize_t got;

    if (fd < 0)
        return -1;
    got = read(fd, text, sizeof(text));
    if (got <= 0 || str_u64((struct str){ text, (size_t)got - (text[got - 1] == '\n') }, &n))
        return -1;
    return (int64_t)MIN(n, (uint64_t)INT64_MAX);
}

static int64_t read_number(const struct volume *v, uint64_t group, const char *file)
{
    char path[64];

    snprintf(path, sizeof(path), "%u_%llu/%s", (unsigned)(group >> LEVEL_SHIFT),
             (unsigned long long)(group & ((1ULL << LEVEL_SHIFT) - 1)), file);
    return volume_kernel_number(v->qgroups, path);
}

static bool reads(const struct volume *v, const char *file, const char *want)
{
    AUTO(closep) int fd = openat(v->qgroups, file, O_RDONLY | O_CLOEXEC);
    char text[16];
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

    return n > 0 && str_starts((struct str){ text, (size_t)n }, want);
}

static void print_uuid(char *out, size_t n, const uint8_t *id)
{
    size_t len = 0;

    for (int i = 0; i < BTRFS_UUID_SIZE && len < n; i++)
        len += (size_t)snprintf(out + len, n - len, "%s%02x",
                                i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
}

static uint64_t subvolume_of(int fd)
{
    struct btrfs_ioctl_ino_lookup_args a = { .objectid = BTRFS_TOP_INODE };

    return ioctl(fd, BTRFS_IOC_INO_LOOKUP, &a) ? 0 : a.treeid;
}

void volume_quota_open(struct volume *v)
{
    struct btrfs_ioctl_fs_info_args info = { 0 };
    char uuid[40], path[96];
    struct stat st;

    if (fstat(v->fd, &st) || ioctl(v->fd, BTRFS_IOC_FS_INFO, &info))
        return;
    /* several data directories may share one btrfs, with groups of its owner's beside them */
    v->tag = (uint16_t)(st.st_ino * 40503 + subvolume_of(v->fd));
    if (!v->tag)
        v->tag = 1;
    print_uuid(uuid, sizeof(uuid), info.fsid);
    snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/allocation/data", uuid);
    v->allocation = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/qgroups", uuid);
    v->qgroups = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (v->qgroups >= 0) /* before 6.7 there is no such file, and only one mode */
        v->quota = reads(v, "mode", "squota") ? QUOTA_SIMPLE : QUOTA_FULL;
}

void volume_quota_enable(int fd)
{
    struct volume v = { .fd = fd, .qgroups = -1, .allocation = -1 };
    struct btrfs_ioctl_quota_ctl_args simple = { .cmd = CTL_ENABLE_SIMPLE },
                                      full = { .cmd = BTRFS_QUOTA_CTL_ENABLE };

    volume_quota_open(&v);
    if (v.quota == QUOTA_OFF && ioctl(fd, BTRFS_IOC_QUOTA_CTL, &simple))
        ioctl(fd, BTRFS_IOC_QUOTA_CTL, &full); /* volume_describe() tells how it ended */
    closep(&v.qgroups);
    closep(&v.allocation);
}

/* ---- groups ---- */

uint64_t volume_quota_id(const struct volume *v, uint64_t family)
{
    return 1ULL << LEVEL_SHIFT | (uint64_t)v->tag << TAG_SHIFT | family;
}

static int change_group(const struct volume *v, uint64_t group, bool create)
{
    struct btrfs_ioctl_qgroup_create_args a = { .create = create, .qgroupid = group };

    return ioctl(v->fd, BTRFS_IOC_QGROUP_CREATE, &a);
}

void volume_quota_add(struct volume *v, uint64_t family)
{
    change_group(v, volume_quota_id(v, family), true); /* it may exist; the limit finds out */
}

int volume_quota_limit(struct volume *v, uint64_t family, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args a = {
        .qgroupid = volume_quota_id(v, family),
        .lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
                 .max_rfer = bytes ? bytes : UINT64_MAX /* clears it */ },
    };

    return ioctl(v->fd, BTRFS_IOC_QGROUP_LIMIT, &a);
}

int volume_quota_usage(const struct volume *v, uint64_t family, struct layer_usage *out)
{
    uint64_t group = volume_quota_id(v, family);
    int64_t used = read_number(v, group, "referenced"),
            reserved = read_number(v, group, "rsv_data"),
            limit = read_number(v, group, "max_referenced");

    if (used < 0)
        return -1;
    *out = (struct layer_usage){ .used = (uint64_t)used + (uint64_t)MAX(reserved, 0),
                                 .limit = limit > 0 && limit < INT64_MAX ? (uint64_t)limit : 0 };
    return 0;
}

/* ---- trees ---- */

struct item { /* its key; nobody here reads more */
    uint64_t object, offset;
    uint32_t type;
};

static struct item item_after(struct item k)
{
    if (k.offset < UINT64_MAX)
        return (struct item){ k.object, k.offset + 1, k.type };
    if (k.type < UINT8_MAX)
        return (struct item){ k.object, 0, k.type + 1 };
    return (struct item){ k.object + 1, 0, 0 };
}

/* Calls fn for each item from `from` to `to`. */
static int search(const struct volume *v, uint64_t tree, struct item from, struct item to,
                  void (*fn)(const struct item *, void *), void *arg)
{
    AUTO(freep)
    struct btrfs_ioctl_search_args_v2 *a = xmalloc(sizeof(*a) + SEARCH_BYTES);
    struct btrfs_ioctl_search_header h;
    struct item last = from;

    for (;;) {
        size_t at = 0;

        a->key = (struct btrfs_ioctl_search_key){ .tree_id = tree,
                                                  .min_objectid = from.object,
                                                  .max_objectid = to.object,
                                                  .min_type = from.type,
                                                  .max_type = to.type,
                                                  .min_offset = from.offset,
                                                  .max_offset = to.offset,
                                                  .max_transid = UINT64_MAX,
                                                  .nr_items = UINT32_MAX };
        a->buf_size = SEARCH_BYTES;
        if (ioctl(v->fd, BTRFS_IOC_TREE_SEARCH_V2, a))
            return -1;
        for (uint32_t i = 0; i < a->key.nr_items; i++, at += h.len) {
            memcpy(&h, (char *)a->buf + at, sizeof(h));
            at += sizeof(h);
            last = (struct item){ h.objectid, h.offset, h.type };
            fn(&last, arg);
        }
        if (!a->key.nr_items)
            return 0;
        from = item_after(last);
    }
}

enum root_state { ROOT_GONE, ROOT_DYING, ROOT_ALIVE };

static void see_root(const struct item *i, void *arg)
{
    *(enum root_state *)arg = i->type == BTRFS_ROOT_BACKREF_KEY ? ROOT_ALIVE : ROOT_DYING;
}

/* The reference from its directory goes at once, the root itself when the kernel has dropped all of
 * it; the count of references in the root lags behind. When it cannot be told it lives: an older
 * kernel would remove the group of a living subvolume. */
static enum root_state root_state(const struct volume *v, uint64_t subvolume)
{
    enum root_state state = ROOT_GONE;

    if (search(v, BTRFS_ROOT_TREE_OBJECTID, (struct item){ subvolume, 0, BTRFS_ROOT_ITEM_KEY },
               (struct item){ subvolume, UINT64_MAX, BTRFS_ROOT_BACKREF_KEY }, see_root, &state))
        return ROOT_ALIVE;
    return state;
}

/* Is the group of this subvolume still needed, now or soon? Removes it when not. */
static enum root_state tidy_subvolume(const struct volume *v, uint64_t subvolume)
{
    enum root_state state = root_state(v, subvolume);

    if (state != ROOT_GONE)
        return state;
    if (read_number(v, subvolume, "referenced") > 0) /* somebody's snapshot shares it */
        return ROOT_ALIVE;
    return change_group(v, subvolume, false) && errno != ENOENT ? ROOT_DYING : ROOT_GONE;
}

/* ---- what deletions leave ---- */

static void see_family(const struct item *i, void *arg)
{
    ((struct leftover *)arg)->family = i->offset; /* there is one */
}

static void tidy_some(struct volume *v)
{
    for (unsigned n = MIN(v->left_count, (unsigned)TIDY_AT_ONCE); n; n--) {
        struct leftover l = v->left[v->left_first % LEFTOVERS];

        v->left_first++;
        v->left_count--;
        if (tidy_subvolume(v, l.subvolume) == ROOT_DYING) /* not yet: again at the end */
            v->left[(v->left_first + v->left_count++) % LEFTOVERS] = l;
        else if (l.family)
            change_group(v, l.family, false); /* refused while it has members: fine */
    }
}

void volume_quota_note(struct volume *v, int layer)
{
    struct leftover l = { .subvolume = subvolume_of(layer) };

    if (v->quota == QUOTA_OFF || !l.subvolume)
        return;
    tidy_some(v);
    search(v, BTRFS_QUOTA_TREE_OBJECTID,
           (struct item){ l.subvolume, 1ULL << LEVEL_SHIFT, BTRFS_QGROUP_RELATION_KEY },
           (struct item){ l.subvolume, (2ULL << LEVEL_SHIFT) - 1, BTRFS_QGROUP_RELATION_KEY },
           see_family, &l);
    if (v->left_count == LEFTOVERS) {
        v->left_first++;
        v->left_count--;
    }
    v->left[(v->left_first + v->left_count++) % LEFTOVERS] = l;
}

struct pairs { /* (family, subvolume), in the order of the tree */
    struct leftover *p;
    size_t n, cap;
};

static void pairs_free(struct pairs *p) { free(p->p); }

static void pairs_add(struct pairs *p, uint64_t family, uint64_t subvolume)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->p = xrealloc(p->p, p->cap * sizeof(*p->p));
    }
    p->p[p->n++] = (struct leftover){ .family = family, .subvolume = subvolume };
}

static void see_member(const struct item *i, void *arg) { pairs_add(arg, i->object, i->offset); }

static void see_group(const struct item *i, void *arg) { pairs_add(arg, i->offset, 0); }

/* Full accounting gives up after some operations, such as a snapshot into another family. */
static void rescan(const struct volume *v)
{
    struct btrfs_ioctl_quota_rescan_args a = { 0 };

    if (v->quota == QUOTA_FULL && reads(v, "inconsistent", "1"))
        ioctl(v->fd, BTRFS_IOC_QUOTA_RESCAN, &a);
}

/* The kernel looks for deleted subvolumes after a commit, which may be 30 s away. This asks for one
 * and does not wait; it is ignored where nothing has changed, hence the touch. (BTRFS_IOC_SYNC
 * would write out everybody's data first, and a syncfs does not wake the cleaner at all.) */
static void hurry(const struct volume *v)
{
    futimens(v->layers, NULL);
    ioctl(v->fd, BTRFS_IOC_START_SYNC, NULL);
}

int volume_quota_sweep(struct volume *v, struct err *err)
{
    AUTO(pairs_free) struct pairs members = { 0 };
    AUTO(pairs_free) struct pairs families = { 0 };
    uint64_t first = volume_quota_id(v, 0), last = volume_quota_id(v, UINT32_MAX);
    size_t kept = 0, at = 0;
    int dying = 0;

    if (v->quota == QUOTA_OFF)
        return 0;
    if (search(v, BTRFS_QUOTA_TREE_OBJECTID, (struct item){ first, 0, BTRFS_QGROUP_RELATION_KEY },
               (struct item){ last, UINT64_MAX, BTRFS_QGROUP_RELATION_KEY }, see_member,
               &members) ||
        search(v, BTRFS_QUOTA_TREE_OBJECTID, (struct item){ 0, first, BTRFS_QGROUP_INFO_KEY },
               (struct item){ 0, last, BTRFS_QGROUP_INFO_KEY }, see_group, &families))
        return err_sys(err, "list the quota groups of %.150s/" VOLUME_DIR, v->dir);
    for (size_t i = 0; i < members.n; i++) {
        enum root_state state = tidy_subvolume(v, members.p[i].subvolume);

        dying += state == ROOT_DYING;
        if (state != ROOT_GONE)
            members.p[kept++] = members.p[i];
    }
    for (size_t i = 0; i < families.n; i++) { /* last: a group with members cannot go */
        while (at < kept && members.p[at].family < families.p[i].family)
            at++;
        if (at == kept || members.p[at].family != families.p[i].family)
            change_group(v, families.p[i].family, false);
    }
    rescan(v);
    if (dying)
        hurry(v);
    return dying;
}
