/* unpack_tree.c - see unpack_tree.h. */
#include "jail/unpack_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/rmtree.h"

void unpack_tree_init(struct unpack_tree *t, int root)
{
    *t = (struct unpack_tree){ .root = root, .parent = -1 };
}

static void forget_parent(struct unpack_tree *t)
{
    if (t->parent >= 0)
        close(t->parent);
    t->parent = -1;
}

void unpack_tree_finish(struct unpack_tree *t)
{
    forget_parent(t);
    buf_free(&t->times);
}

/* Beneath the root, no symlink anywhere on the way, no other mount: or an error. */
static int open_beneath(int dir, const char *path, int flags)
{
    struct open_how how = { .flags = (uint64_t)flags | O_NOFOLLOW | O_CLOEXEC,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };

    return (int)syscall(SYS_openat2, dir, path[0] ? path : ".", &how, sizeof(how));
}

/* Called before a name is made: implied directories count too, else one entry could make 256. */
static int count_name(struct unpack_tree *t, struct err *err)
{
    if (t->made >= t->entries)
        return err_set(err, ERR_LIMIT, "is one more than unpack.entries (%llu) allows",
                       (unsigned long long)t->entries);
    t->made++;
    return 0;
}

static int cannot_open(const char *path, struct err *err)
{
    char label[ENTRY_LABEL];

    unpack_entry_label(str_of(path), label);
    if (errno == ENOTDIR) /* a symlink too, which the kernel was told not to follow */
        return err_set(err, ERR_INVALID, "goes through '%s', which is not a directory", label);
    return err_sys(err, "cannot be made below '%s'", label);
}

/* Makes the directories of a path that the archive has not named (yet), one at a time from the
 * top. A descriptor of the last. */
static int make_parents(struct unpack_tree *t, char *path, struct err *err)
{
    AUTO(closep) int dir = open_beneath(t->root, "", O_PATH | O_DIRECTORY);

    for (char *slash = path; slash && dir >= 0;) {
        char *name = slash;
        int next;

        slash = strchr(name, '/');
        if (slash)
            *slash = 0;
        next = open_beneath(dir, name, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            if (count_name(t, err) < 0)
                return -1;
            if (mkdirat(dir, name, 0755))
                return err_sys(err, "cannot have a directory made for it");
            next = open_beneath(dir, name, O_PATH | O_DIRECTORY);
        }
        if (next < 0)
            return cannot_open(path, err);
        close(dir);
        dir = next;
        if (slash)
            *slash++ = '/';
    }
    return TAKE(dir, -1);
}

/* The directory a path lies in, made where it is missing; *base becomes the last component. The
 * descriptor stays the tree's. */
static int parent_of(struct unpack_tree *t, const char *path, const char **base, struct err *err)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    char dir[ENTRY_PATH];

    *base = slash ? slash + 1 : path;
    if (t->parent >= 0 && !strncmp(t->parent_path, path, n) && !t->parent_path[n])
        return t->parent;
    forget_parent(t);
    memcpy(dir, path, n);
    dir[n] = 0;
    t->parent = open_beneath(t->root, dir, O_PATH | O_DIRECTORY);
    if (t->parent < 0) {
        if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR)
            return cannot_open(dir, err);
        t->parent = make_parents(t, dir, err); /* or finds out which part is in the way */
    }
    memcpy(t->parent_path, dir, n);
    t->parent_path[n] = 0;
    return t->parent;
}

/* Gone is whatever had the name: later wins. */
static int make_room(int dir, const char *base, struct err *err)
{
    if (!unlinkat(dir, base, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(err, "cannot replace what has its name");
    /* Each name below was counted when it was made, so all removals together are bounded as well.
     */
    if (rmtree(dir, base))
        return err_sys(err, "cannot replace the directory that has its name");
    return 0;
}

/* The steps that every kind of entry begins with. A parent's descriptor, not the caller's. */
static int prepare(struct unpack_tree *t, const char *path, const char **base, struct err *err)
{
    int dir;

    if (count_name(t, err) < 0)
        return -1;
    dir = parent_of(t, path, base, err);
    if (dir < 0 || make_room(dir, *base, err) < 0)
        return -1;
    return dir;
}

int unpack_tree_file(struct unpack_tree *t, const char *path, struct err *err)
{
    const char *base;
    int dir = prepare(t, path, &base, err), fd;

    if (dir < 0)
        return -1;
    fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "cannot be made") : fd;
}

int unpack_tree_file_attr(const struct unpack_tree *t, int fd, const struct tree_attr *attr,
                          struct err *err)
{
    struct timespec times[2] = { attr->mtime, attr->mtime };

    /* the owner first: changing it clears setuid bits */
    if (!t->squash && fchown(fd, attr->uid, attr->gid))
        return err_sys(err, "cannot be given to %u:%u", attr->uid, attr->gid);
    if (fchmod(fd, attr->mode))
        return err_sys(err, "cannot be given mode %04o", (unsigned)attr->mode);
    if (futimens(fd, times))
        return err_sys(err, "cannot be given its time");
    return 0;
}

/* Path and time as bytes behind each other. */
static int remember_time(struct unpack_tree *t, const char *path, const struct timespec *mtime,
                         struct err *err)
{
    if (t->times.len + sizeof(*mtime) + strlen(path) + 1 > t->memory)
        return err_set(err, ERR_LIMIT,
                       "has more directories before it than unpack.memory-bytes can hold");
    buf_add(&t->times, mtime, sizeof(*mtime));
    buf_add(&t->times, path, strlen(path) + 1);
    return 0;
}

/* Opens the directory, or makes it in place of whatever has its name. */
static int open_or_make(struct unpack_tree *t, const char *path, struct err *err)
{
    int fd = open_beneath(t->root, path, O_RDONLY | O_DIRECTORY), dir;
    const char *base;

    if (fd >= 0)
        return fd;
    dir = parent_of(t, path, &base, err);
    if (dir < 0 || make_room(dir, base, err) < 0)
        return -1;
    if (mkdirat(dir, base, 0700))
        return err_sys(err, "cannot be made");
    fd = open_beneath(dir, base, O_RDONLY | O_DIRECTORY);
    return fd < 0 ? err_sys(err, "cannot be opened") : fd;
}

int unpack_tree_directory(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                          int *fd, struct err *err)
{
    AUTO(closep) int dir = -1;

    if (count_name(t, err) < 0)
        return -1;
    dir = open_or_make(t, path, err);
    if (dir < 0)
        return -1;
    /* Its own mode at once: a directory that is read-only to root stops nobody with
     * CAP_DAC_OVERRIDE over it, which the child has as an ordinary user's too. Only times must
     * wait. */
    if (!t->squash && fchown(dir, attr->uid, attr->gid))
        return err_sys(err, "cannot be given to %u:%u", attr->uid, attr->gid);
    if (fchmod(dir, attr->mode))
        return err_sys(err, "cannot be given mode %04o", (unsigned)attr->mode);
    if (remember_time(t, path, &attr->mtime, err) < 0)
        return -1;
    *fd = TAKE(dir, -1);
    return 0;
}

/* For what cannot be opened without consequences: by name, not followed. */
static int set_attr_at(const struct unpack_tree *t, int dir, const char *base,
                       const struct tree_attr *attr, struct err *err)
{
    struct timespec times[2] = { attr->mtime, attr->mtime };

    if (!t->squash && fchownat(dir, base, attr->uid, attr->gid, AT_SYMLINK_NOFOLLOW))
        return err_sys(err, "cannot be given to %u:%u", attr->uid, attr->gid);
    if (utimensat(dir, base, times, AT_SYMLINK_NOFOLLOW))
        return err_sys(err, "cannot be given its time");
    return 0;
}

int unpack_tree_symlink(struct unpack_tree *t, const char *path, const char *link,
                        const struct tree_attr *attr, struct err *err)
{
    const char *base;
    int dir = prepare(t, path, &base, err);

    if (dir < 0)
        return -1;
    if (symlinkat(link, dir, base))
        return err_sys(err, "cannot be made");
    return set_attr_at(t, dir, base, attr, err);
}

int unpack_tree_fifo(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                     struct err *err)
{
    const char *base;
    int dir = prepare(t, path, &base, err);

    if (dir < 0)
        return -1;
    if (mknodat(dir, base, S_IFIFO | (attr->mode & 0777), 0))
        return err_sys(err, "cannot be made");
    return set_attr_at(t, dir, base, attr, err);
}

/* By the way that overlayfs itself has them made: here no device can be, not even this one. */
int unpack_tree_whiteout(struct unpack_tree *t, const char *path, const struct tree_attr *attr,
                         struct err *err)
{
    static const char spare[] = ".whiteout"; /* at the top, where no entry of a layer is */
    const char *base;
    int dir = prepare(t, path, &base, err);

    if (dir < 0)
        return -1;
    if (mknodat(dir, base, S_IFREG | 0600, 0) ||
        renameat2(dir, base, t->root, spare, RENAME_WHITEOUT) || unlinkat(t->root, spare, 0))
        return err_sys(err, "cannot be made");
    return set_attr_at(t, dir, base, attr, err);
}

/* What a hard link names, as it is: a symlink is linked itself, what it points to never. */
static int find_target(struct unpack_tree *t, const char *link, struct stat *st, const char **base)
{
    const char *slash = strrchr(link, '/');
    AUTO(freep) char *dir = xstrndup(link, slash ? (size_t)(slash - link) : 0);
    AUTO(closep) int fd = open_beneath(t->root, dir, O_PATH | O_DIRECTORY);

    *base = slash ? slash + 1 : link;
    if (fd < 0 || fstatat(fd, *base, st, AT_SYMLINK_NOFOLLOW))
        return -1;
    return TAKE(fd, -1);
}

int unpack_tree_hardlink(struct unpack_tree *t, const char *path, const char *link, struct err *err)
{
    const char *base, *from_base;
    char label[ENTRY_LABEL];
    struct stat st, here;
    AUTO(closep) int from = find_target(t, link, &st, &from_base);
    int dir;

    unpack_entry_label(str_of(link), label);
    if (from < 0)
        return err_set(err, ERR_INVALID, "is a hard link to '%s', which the archive does not have",
                       label);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "is a hard link to the directory '%s'", label);
    if (count_name(t, err) < 0)
        return -1;
    dir = parent_of(t, path, &base, err);
    if (dir < 0)
        return -1;
    if (!fstatat(dir, base, &here, AT_SYMLINK_NOFOLLOW) && here.st_ino == st.st_ino)
        return 0; /* one file already, perhaps under one name: making room would lose it */
    if (make_room(dir, base, err) < 0)
        return -1;
    if (linkat(from, from_base, dir, base, 0))
        return err_sys(err, "cannot be linked to '%s'", label);
    return 0;
}

void unpack_tree_times(struct unpack_tree *t)
{
    const char *p = t->times.data, *end = p + t->times.len;

    while (p && p < end) {
        struct timespec mtime, times[2];
        const char *path = p + sizeof(mtime);
        int fd;

        memcpy(&mtime, p, sizeof(mtime));
        times[0] = times[1] = mtime;
        fd = open_beneath(t->root, path, O_RDONLY | O_DIRECTORY);
        if (fd >= 0) { /* else a later entry replaced it */
            futimens(fd, times);
            close(fd);
        }
        p = path + strlen(path) + 1;
    }
}
