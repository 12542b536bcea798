/* rundir.c - see rundir.h. */
#include "keep/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/statedir.h"

enum { LOCK_TRIES = 50, LOCK_WAIT_US = 10000 };

int keep_make_dirs(const char *path, mode_t mode, struct err *err)
{
    AUTO(freep) char *copy = xstrdup(path);

    for (char *p = copy + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(copy, 0755) && errno != EEXIST)
            return err_sys(err, "make %s", copy);
    }
    if (mkdir(copy, mode) && errno != EEXIST)
        return err_sys(err, "make %s", copy);
    return 0;
}

/* Before anything else is looked at, let alone changed. */
int keep_schema_check(const char *data_dir, const char *run_dir, struct err *err)
{
    AUTO(freep) char *place = NULL;
    struct keep_owner o;
    struct err none = { 0 };

    if (schema_check(data_dir, err))
        return -1;
    if (!run_dir || keep_owner_read(data_dir, &o, &none))
        return 0;
    place = keep_place(run_dir, &o);
    return schema_check(place, err);
}

/* A child that a killed keeper had just forked holds its lock until it has closed it. */
static int take_lock(int fd)
{
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return -1;
        usleep(LOCK_WAIT_US);
    }
    return 0;
}

/* Another keeper of this data directory is no fault: whoever wants one may use that. */
static int refuse(const struct keeper *k, struct err *err)
{
    struct place_holder h;

    if (place_read_holder(k->lock, &h))
        return err_set(err, ERR_CONFLICT, "another keeper runs in %s", k->place);
    if (h.owner.device != k->owner.device || h.owner.inode != k->owner.inode) {
        memcpy(h.owner.identity, k->owner.identity, sizeof(h.owner.identity));
        return keep_not_ours(&h.owner, &k->owner, err);
    }
    if (k->o.taken)
        *k->o.taken = true;
    return err_set(err, ERR_CONFLICT, "another keeper runs in %s", k->place);
}

/* The keeper before us was of another data directory, and what it made lives: it has its files
 * there. Of a former boot nothing does, and devices may have other numbers. */
static int check_former(const struct keeper *k, struct err *err)
{
    AUTO(freep) char *records = NULL;
    struct place_holder h;

    if (place_read_holder(k->lock, &h) ||
        (h.owner.device == k->owner.device && h.owner.inode == k->owner.inode))
        return 0;
    if (asprintf(&records, "%s/boxes", k->place) < 0)
        abort();
    if (!held_living(records))
        return 0;
    return err_set(err, ERR_CONFLICT,
                   "%.80s is a copy of %.80s, whose sandboxes live: start with that, or remove the "
                   "copy's id",
                   k->owner.data_dir, h.owner.data_dir);
}

static int say_who(const struct keeper *k, struct err *err)
{
    char text[ORDER_PATH + 64];
    int n = snprintf(text, sizeof(text), "%d %llu %llu %s\n", getpid(),
                     (unsigned long long)k->owner.device, (unsigned long long)k->owner.inode,
                     k->owner.data_dir);

    return pwrite(k->lock, text, (size_t)n, 0) != n || ftruncate(k->lock, n)
               ? err_sys(err, "write %s/keep.lock", k->place)
               : 0;
}

int rundir_take(struct keeper *k, struct err *err)
{
    if (keep_make_dirs(k->o.data_dir, 0700, err) ||
        keep_owner_make(k->o.data_dir, k->o.run_dir, &k->owner, err))
        return -1;
    k->place = keep_place(k->o.run_dir, &k->owner);
    if (keep_make_dirs(k->place, 0755, err))
        return -1;
    k->place_dir = open(k->place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (k->place_dir < 0)
        return err_sys(err, "open %s", k->place);
    k->lock = openat(k->place_dir, "keep.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (k->lock < 0)
        return err_sys(err, "open %s/keep.lock", k->place);
    if (take_lock(k->lock))
        return refuse(k, err);
    return check_former(k, err) || takeover_begin(k, err) || schema_check(k->place, err) ||
                   say_who(k, err)
               ? -1
               : 0;
}

int rundir_open(struct keeper *k, struct err *err)
{
    if (schema_raise(k->place, err) || schema_raise(k->o.data_dir, err))
        return -1;
    if (mkdirat(k->place_dir, "sockets", 0711) && errno != EEXIST)
        return err_sys(err, "make %s/sockets", k->place);
    k->records = statedir_open(k->place, "boxes", err);
    if (k->records < 0 || held_register(k, err))
        return -1;
    k->sockets = openat(k->place_dir, "sockets", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return k->sockets < 0 ? err_sys(err, "open %s/sockets", k->place) : 0;
}

int rundir_listen(struct keeper *k, struct source *out, struct err *err)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };

    out->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/keep.sock", k->place_dir);
    unlinkat(k->place_dir, "keep.sock", 0); /* ours by the lock */
    if (out->fd < 0 || bind(out->fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(out->fd, 16) ||
        fchownat(k->place_dir, "keep.sock", k->o.client_uid, (gid_t)-1, 0))
        return err_sys(err, "listen on %s/keep.sock", k->place);
    return 0;
}
