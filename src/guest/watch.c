/* watch.c - see watch.h. */
#include "guest/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "guest/path.h"

enum {
    MASK = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK,
    READ = 16 << 10
};

/* ---- the queue ---- */

static void add_event(struct watcher *w, enum watch_type type, const char *name)
{
    struct watch_event *e;

    if (w->nevents >= (size_t)guest_limits.watch_events) {
        w->overflowed = true;
        return;
    }
    e = xcalloc(1, sizeof(*e) + strlen(name) + 1);
    e->type = type;
    memcpy(e->name, name, strlen(name));
    list_push(&w->events, &e->all);
    w->nevents++;
}

struct watch_event *watch_next(struct watcher *w)
{
    struct watch_event *e;

    if (list_empty(&w->events)) {
        if (!w->overflowed)
            return NULL;
        w->overflowed = false;
        add_event(w, WATCH_WRITE, ".");
        CONTAINER_OF(w->events.next, struct watch_event, all)->overflow = true;
    }
    e = CONTAINER_OF(w->events.next, struct watch_event, all);
    list_remove(&e->all);
    w->nevents--;
    return e;
}

int watch_check(const struct watcher *w, struct err *err)
{
    if (!w->failed || w->overflowed || !list_empty(&w->events))
        return 0;
    return err_set(err, ERR_INTERNAL, "the watch of '%.150s' cannot be read any more: watch again",
                   w->path);
}

/* ---- directories under watch ---- */

static size_t dir_slot(const struct watcher *w, int wd)
{
    size_t low = 0, high = w->ndirs;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (w->dirs[mid].wd < wd)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const char *dir_name(const struct watcher *w, int wd)
{
    size_t i = dir_slot(w, wd);

    return i < w->ndirs && w->dirs[i].wd == wd ? w->dirs[i].name : NULL;
}

static void dir_put(struct watcher *w, int wd, const char *name)
{
    size_t i = dir_slot(w, wd);

    if (i < w->ndirs && w->dirs[i].wd == wd) { /* the same directory under a new name */
        free(w->dirs[i].name);
        w->dirs[i].name = xstrdup(name);
        return;
    }
    if (w->ndirs == w->cap) {
        w->cap = w->cap ? w->cap * 2 : 4;
        w->dirs = xrealloc(w->dirs, w->cap * sizeof(*w->dirs));
    }
    memmove(w->dirs + i + 1, w->dirs + i, (w->ndirs++ - i) * sizeof(*w->dirs));
    w->dirs[i] = (struct watch_dir){ wd, xstrdup(name) };
}

static void dir_remove(struct watcher *w, size_t i)
{
    free(w->dirs[i].name);
    memmove(w->dirs + i, w->dirs + i + 1, (--w->ndirs - i) * sizeof(*w->dirs));
}

/* A directory left the tree: so did everything below it. */
static void forget_below(struct watcher *w, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = w->ndirs; i--;)
        if (!strncmp(w->dirs[i].name, name, n) &&
            (!w->dirs[i].name[n] || w->dirs[i].name[n] == '/')) {
            inotify_rm_watch(w->inotify, w->dirs[i].wd);
            dir_remove(w, i);
        }
}

static char *join(struct arena *a, const char *dir, const char *name)
{
    return *dir ? arena_printf(a, "%s/%s", dir, name) : arena_strdup(a, str_of(name));
}

/* ---- adding trees (on a worker: the watcher is its own meanwhile) ---- */

struct pending {
    struct pending *next;
    char *name;
};

struct adding {
    struct watcher *w;
    struct arena arena;
    const char *name; /* relative: where to begin */
    bool announce;    /* what is found was made after the watch began: tell it */
    bool missed;      /* part of the tree is not watched */
    /* to be told when the worker is done: readers take from the queue meanwhile */
    struct pending *found, **last;
};

static int add_one(struct adding *a, const char *name, int *out)
{
    struct watcher *w = a->w;
    char *path = *name ? arena_printf(&a->arena, "%s/%s", w->path, name) : w->path;
    AUTO(closep) int fd = path_open(w->guest->root, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    char self[40];
    int wd;

    if (fd < 0 && !*name) /* the directory that was asked for may be reached through a link */
        fd = path_open(w->guest->root, path, O_PATH | O_DIRECTORY, 0);
    if (fd < 0)
        return -1;
    if (w->ndirs >= (size_t)guest_limits.watch_dirs) {
        errno = ENOSPC;
        return -1;
    }
    snprintf(self, sizeof(self), "/proc/self/fd/%d/.", fd);
    wd = inotify_add_watch(w->inotify, self, MASK & ~(unsigned)IN_DONT_FOLLOW);
    if (wd < 0)
        return -1;
    dir_put(w, wd, name);
    *out = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

/* Gone before we came, or not for us: there is nothing to be told of it. */
static bool is_passed_over(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES ||
           error == EPERM;
}

static struct pending *new_pending(struct adding *a, struct pending *next, char *name)
{
    struct pending *p = arena_alloc(&a->arena, sizeof(*p));

    *p = (struct pending){ next, name };
    return p;
}

static void scan_one(struct adding *a, const char *name, int fd, struct pending **stack)
{
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

    if (!d) {
        a->missed |= !is_passed_over(errno);
        closep(&fd);
        return;
    }
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0) {
        struct stat st;
        char *child;

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        child = join(&a->arena, name, e->d_name);
        if (a->announce) {
            *a->last = new_pending(a, NULL, child);
            a->last = &(*a->last)->next;
        }
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
            continue;
        *stack = new_pending(a, *stack, child);
    }
    a->missed |= errno && !is_passed_over(errno);
    closedir(d);
}

static int work_add(void *arg, struct err *err)
{
    struct adding *a = arg;
    struct pending first = { NULL, arena_strdup(&a->arena, str_of(a->name)) }, *stack = &first;

    while (stack) {
        const char *name = stack->name;
        int fd = -1;

        stack = stack->next;
        if (add_one(a, name, &fd)) {
            if (!*name || errno == ENOSPC)
                return errno == ENOSPC
                           ? err_set(err, ERR_LIMIT,
                                     "more directories than watch.directories or the kernel's "
                                     "fs.inotify.max_user_watches allow")
                           : err_sys(err, "watch '%.150s'", a->w->path);
            a->missed |= !is_passed_over(errno);
            continue;
        }
        if (a->w->recursive)
            scan_one(a, name, fd, &stack);
        else
            closep(&fd);
    }
    return 0;
}

static int add_tree(struct watcher *w, const char *name, bool announce, struct err *err)
{
    struct adding a = { .w = w, .name = name, .announce = announce };
    int r;

    a.last = &a.found;
    r = guest_work(work_add, &a, err);
    for (const struct pending *p = a.found; p; p = p->next)
        add_event(w, WATCH_CREATE, p->name);
    w->overflowed |= a.missed;
    arena_free(&a.arena);
    return r;
}

/* ---- the kernel's events ---- */

static void directory_appeared(struct watcher *w, const char *name)
{
    struct err err = { 0 };

    if (w->recursive && add_tree(w, name, true, &err))
        w->overflowed = true; /* part of the tree is not watched: the client must look */
}

/* An unnamed file (O_TMPFILE) shows as "#inode" when its owner changes: nobody can open that. */
static bool is_unnamed(struct watcher *w, const char *dir, const char *name)
{
    struct arena a = { 0 };
    AUTO(closep) int fd = -1;

    if (name[0] != '#' || name[1 + strspn(name + 1, "0123456789")])
        return false;
    fd = path_open(w->guest->root, arena_printf(&a, "%s/%s/%s", w->path, dir, name),
                   O_PATH | O_NOFOLLOW, 0);
    arena_free(&a);
    return fd < 0;
}

static void handle_named(struct watcher *w, const struct inotify_event *ev, const char *dir)
{
    struct arena a = { 0 };
    char *name = join(&a, dir, ev->name);
    bool is_dir = ev->mask & IN_ISDIR;

    if (ev->mask & IN_CREATE || ev->mask & IN_MOVED_TO)
        add_event(w, WATCH_CREATE, name);
    if (ev->mask & IN_MODIFY)
        add_event(w, WATCH_WRITE, name);
    if (ev->mask & IN_ATTRIB && !is_unnamed(w, dir, ev->name))
        add_event(w, WATCH_CHMOD, name);
    if (ev->mask & IN_DELETE)
        add_event(w, WATCH_REMOVE, name);
    if (ev->mask & IN_MOVED_FROM) {
        add_event(w, WATCH_RENAME, name);
        if (is_dir)
            forget_below(w, name);
    }
    if (is_dir && ev->mask & (IN_CREATE | IN_MOVED_TO))
        directory_appeared(w, name);
    arena_free(&a);
}

static void handle_event(struct watcher *w, const struct inotify_event *ev)
{
    const char *dir = dir_name(w, ev->wd);

    if (ev->mask & IN_Q_OVERFLOW) {
        w->overflowed = true;
        return;
    }
    if (!dir)
        return; /* of a directory that left the tree */
    if (ev->len) {
        handle_named(w, ev, dir);
        return;
    }
    if (!*dir && ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF))
        add_event(w, ev->mask & IN_DELETE_SELF ? WATCH_REMOVE : WATCH_RENAME, ".");
    if (ev->mask & IN_IGNORED)
        dir_remove(w, dir_slot(w, ev->wd));
}

static void watcher_free(struct watcher *w)
{
    struct watch_event *e;

    co_close(w->inotify);
    while (w->ndirs)
        dir_remove(w, w->ndirs - 1);
    free(w->dirs);
    list_each(e, &w->events, all)
        free(e);
    free(w->path);
    free(w);
}

static void read_events(void *arg)
{
    struct watcher *w = arg;

    while (!w->closed) {
        _Alignas(struct inotify_event) char buf[4096];
        ssize_t n = co_read(w->inotify, buf, sizeof(buf), NEVER);

        if (n <= 0)
            break;
        for (char *p = buf; p < buf + n && !w->closed;) {
            const struct inotify_event *ev = (const struct inotify_event *)(void *)p;

            handle_event(w, ev);
            p += sizeof(*ev) + ev->len;
        }
        co_cond_wake(&w->changed);
    }
    if (w->closed) {
        watcher_free(w);
        return;
    }
    w->failed = w->overflowed = true; /* whoever follows it hears so, and closes it */
    co_cond_wake(&w->changed);
}

/* ---- opening and closing ---- */

static bool is_network(const struct statfs *fs)
{
    static const unsigned kinds[] = { NFS_SUPER_MAGIC,
                                      SMB_SUPER_MAGIC,
                                      0xff534d42 /* cifs */,
                                      0xfe534d42 /* smb2 */,
                                      V9FS_MAGIC,
                                      0x00c36400 /* ceph */,
                                      0x65735546 /* fuse */ };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if ((unsigned)fs->f_type == kinds[i])
            return true;
    return false;
}

struct checking {
    int root;
    const struct watch_options *o;
};

static int work_check(void *arg, struct err *err)
{
    struct checking *c = arg;
    AUTO(closep) int fd = path_open(c->root, c->o->path, O_PATH, 0);
    struct statfs fs;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) || fstatfs(fd, &fs))
        return err_sys(err, "directory '%.150s'", c->o->path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "path '%.150s' is not a directory", c->o->path);
    if (!c->o->network && is_network(&fs))
        return err_set(err, ERR_INVALID,
                       "'%.150s' is on a network mount, where changes of others are not seen: set "
                       "allowNetworkMounts to watch it all the same",
                       c->o->path);
    return 0;
}

int watch_open(struct guest *g, const struct watch_options *o, struct watcher **out,
               struct err *err)
{
    struct checking check = { g->root, o };
    struct watcher *w;

    if (guest_work(work_check, &check, err))
        return -1;
    w = xcalloc(1, sizeof(*w));
    w->guest = g;
    w->path = xstrdup(o->path);
    w->recursive = o->recursive;
    w->include_entry = o->include_entry;
    id_random(w->id, sizeof(w->id) - 1);
    list_init(&w->events);
    list_init(&w->all);
    co_cond_init(&w->changed);
    w->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->inotify < 0) {
        err_sys(err, "inotify (fs.inotify.max_user_instances may be too low)");
    } else if (!add_tree(w, "", false, err)) {
        if (!co_go(read_events, w, &w->reader)) {
            *out = w;
            return 0;
        }
        err_set(err, ERR_LIMIT, "no memory for another watcher");
    }
    watcher_free(w);
    return -1;
}

void watch_close(struct watcher *w)
{
    list_remove(&w->all);
    w->closed = true;
    co_cond_wake(&w->changed);
    if (w->failed)
        watcher_free(w);
    else
        co_cancel(w->reader); /* it frees the watcher, once a worker has given it back */
}
