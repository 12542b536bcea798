/* takeover.c - sandboxes whose records a release without places left in the run directory itself.
 *
 * Those whose layers are in our volume are ours. Each record gets a second name in our place, then
 * its number is noted there, then its socket comes, and last its first name goes: whenever we are
 * killed it has one of them, and its number is taken. What is another data directory's stays for
 * its own server. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "keep/rundir.h"
#include "keep/statedir.h"

enum { LOCK_TRIES = 100, LOCK_WAIT_US = 20000 };

struct old {
    struct keeper *k;
    int sockets; /* -1: there are none */
    size_t left;
};

static bool is_directory(int at, const char *name)
{
    struct stat st;

    return !fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

/* Opened before we have mounts of our own, which would hide it. */
static int open_boxes(struct keeper *k, struct err *err)
{
    const char *run_dir = k->o.run_dir;

    k->old_dir = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->old_dir < 0)
        return err_sys(err, "open %s", run_dir);
    if (is_directory(k->old_dir, ".boxes")) { /* somebody was killed as he made the link */
        k->old_boxes = statedir_open(run_dir, "boxes", err);
        return k->old_boxes < 0 ? -1 : 0;
    }
    k->old_boxes = openat(k->old_dir, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return k->old_boxes < 0 && errno != ENOENT ? err_sys(err, "open %s/boxes", run_dir) : 0;
}

static int refuse(const struct keeper *k, enum keep_old which, struct err *err)
{
    if (which != KEEP_OLD_OURS)
        return err_set(err, ERR_UNAVAILABLE,
                       "it cannot be told for which data directory the keeper in %.120s works, "
                       "which is of a release before: end it",
                       k->o.run_dir);
    if (k->o.taken)
        *k->o.taken = true;
    return err_set(err, ERR_CONFLICT, "another keeper, of a release before, runs in %s",
                   k->o.run_dir);
}

/* No keeper of a release before may work there while we look, or begin to. One that does, and is
 * not ours, has all that is there. */
int takeover_begin(struct keeper *k, struct err *err)
{
    AUTO(freep) char *path = NULL;

    if (asprintf(&path, "%s/keep.lock", k->o.run_dir) < 0)
        abort();
    k->old_lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (k->old_lock < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open %s", path);
    for (int i = 0;; i++) {
        enum keep_old which;

        if (!flock(k->old_lock, LOCK_EX | LOCK_NB))
            return open_boxes(k, err);
        which = keep_old_one(k->o.run_dir, k->o.data_dir);
        if (which == KEEP_OLD_ANOTHERS) {
            close(TAKE(k->old_lock, -1));
            return 0;
        }
        if (which == KEEP_OLD_OURS || i == LOCK_TRIES)
            return refuse(k, which, err);
        usleep(LOCK_WAIT_US); /* it begins, or a child of one that was killed still has the lock */
    }
}

/* 1: its layer is in our volume. */
static int is_ours(struct keeper *k, const char *id, struct err *err)
{
    char name[KEEP_NAME_ROOM];
    int layer;

    box_name(k, id, name);
    layer = layer_open(k->volume, name, err);
    if (layer < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    close(layer);
    return 1;
}

/* false: its record has to keep its first name, too, because the number is noted by that. */
static bool note_anew(const struct keeper *k, const char *id)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    AUTO(freep) char *from = NULL, *to = NULL;
    struct boxfile r;
    struct err err = { 0 };

    if (k->o.rootless)
        return true;
    if (statedir_read(k->records, id, &bytes, &err) ||
        boxfile_decode(buf_str(&bytes), BOXFILE_RECORD, id, &r, NULL, &err) < 0)
        return false; /* adoption will say why */
    if (asprintf(&from, "%s/boxes/%s", k->o.run_dir, id) < 0 ||
        asprintf(&to, "%s/boxes/%s", k->place, id) < 0)
        abort();
    if (!ids_renote(&k->ids, r.number, from, to, &err))
        return true;
    log_warn("the number of a sandbox is noted by its old place", KV("sandbox", id),
             KV("error", err.msg));
    return false;
}

static int take_one(struct old *o, const char *id, struct err *err)
{
    struct keeper *k = o->k;

    /* a directory is no record, but has its place: adoption says so */
    if (linkat(k->old_boxes, id, k->records, id, 0) && errno != EEXIST &&
        renameat2(k->old_boxes, id, k->records, id, RENAME_NOREPLACE))
        return err_sys(err, "take over the record of sandbox %s", id);
    if (o->sockets >= 0 && renameat(o->sockets, id, k->sockets, id) && errno != ENOENT)
        return err_sys(err, "take over the socket of sandbox %s", id);
    if (note_anew(k, id) && unlinkat(k->old_boxes, id, 0) && errno != ENOENT)
        return err_sys(err, "take over the record of sandbox %s", id);
    log_info("taken over from a release before", KV("sandbox", id));
    return 0;
}

static int take_ours(struct old *o, struct err *err)
{
    int fd = openat(o->k->old_boxes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ours = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    if (!d) {
        err_sys(err, "read %s/boxes", o->k->o.run_dir);
        closep(&fd);
        return -1;
    }
    while (ours >= 0 && (e = readdir(d))) {
        if (!adopt_is_name(e->d_name))
            continue;
        ours = is_ours(o->k, e->d_name, err);
        if (ours > 0 && take_one(o, e->d_name, err))
            ours = -1;
        o->left += !ours;
    }
    closedir(d);
    return ours < 0 ? -1 : 0;
}

/* Release 46eceed follows no link: it must not find an empty directory, and take what is ours now
 * for gone. */
static int keep_others_out(const struct keeper *k, struct err *err)
{
    char dir[32];
    int fd;

    if (!is_directory(k->old_dir, "boxes"))
        return 0;
    snprintf(dir, sizeof(dir), "/proc/self/fd/%d", k->old_dir);
    fd = statedir_open(dir, "boxes", err);
    closep(&fd);
    return fd < 0 ? -1 : 0;
}

void takeover_end(struct keeper *k)
{
    closep(&k->old_boxes);
    closep(&k->old_dir);
    closep(&k->old_lock);
    k->old_boxes = k->old_dir = k->old_lock = -1;
}

int takeover_all(struct keeper *k, struct err *err)
{
    struct old o = { .k = k, .sockets = -1 };
    int r = 0;

    if (k->old_boxes >= 0) {
        o.sockets = openat(k->old_dir, "sockets", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = take_ours(&o, err) || (!o.left && keep_others_out(k, err)) ? -1 : 0;
        closep(&o.sockets);
    }
    takeover_end(k);
    return r;
}
