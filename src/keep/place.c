/* place.c - the identity of a data directory, and which place in the run directory is its. */
#include <dirent.h>
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

#include "base/id.h"
#include "base/mem.h"
#include "keep/rundir.h"

enum { LETTERS = KEEP_IDENTITY - 1 };

static bool is_identity(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == LETTERS && !text[LETTERS];
}

bool keep_owner_same(const struct keep_owner *a, const struct keep_owner *b)
{
    return !strcmp(a->identity, b->identity) && a->device == b->device && a->inode == b->inode;
}

char *keep_place(const char *run_dir, const struct keep_owner *o)
{
    char *path;

    if (asprintf(&path, "%s/%s", run_dir, o->identity) < 0)
        abort();
    return path;
}

int keep_not_ours(const struct keep_owner *theirs, const struct keep_owner *ours, struct err *err)
{
    if (strcmp(theirs->identity, ours->identity))
        return err_set(err, ERR_CONFLICT, "the keeper is of data directory %.90s, not of %.90s",
                       theirs->data_dir, ours->data_dir);
    return err_set(err, ERR_CONFLICT,
                   "%.95s is a copy of %.95s, whose keeper runs: end that, or remove the copy's id",
                   ours->data_dir, theirs->data_dir);
}

/* ---- reading ---- */

static int open_data(const char *data_dir, struct keep_owner *out, struct err *err)
{
    int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO(freep) char *full = realpath(data_dir, NULL);
    struct stat st;

    *out = (struct keep_owner){ 0 };
    if (dir < 0 || fstat(dir, &st)) {
        err_sys(err, "open %s", data_dir);
        closep(&dir);
        return -1;
    }
    out->device = st.st_dev;
    out->inode = st.st_ino;
    snprintf(out->data_dir, sizeof(out->data_dir), "%s", full ? full : data_dir);
    return dir;
}

static int read_identity(int dir, struct keep_owner *out, struct err *err)
{
    char text[LETTERS + 2] = "";
    AUTO(closep) int fd = openat(dir, "id", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

    if (n < 0)
        return err_sys(err, "read %.150s/id", out->data_dir);
    if (n != LETTERS + 1 || text[LETTERS] != '\n')
        text[0] = 0;
    text[LETTERS] = 0;
    if (!is_identity(text))
        return err_set(err, ERR_INVALID,
                       "%.120s/id is damaged: it should hold %d letters and digits and the end of "
                       "the line; put it back, or remove it if no sandbox of this data directory "
                       "runs",
                       out->data_dir, LETTERS);
    memcpy(out->identity, text, sizeof(out->identity));
    return 0;
}

int keep_owner_read(const char *data_dir, struct keep_owner *out, struct err *err)
{
    AUTO(closep) int dir = open_data(data_dir, out, err);

    return dir < 0 ? -1 : read_identity(dir, out, err);
}

/* ---- making ---- */

int place_read_holder(int lock, struct place_holder *out)
{
    char text[ORDER_PATH + 64];
    ssize_t n = pread(lock, text, sizeof(text), 0);
    struct str rest = { text, n > 0 ? (size_t)n : 0 }, path;
    uint64_t numbers[3]; /* pid, device, inode */

    *out = (struct place_holder){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct str word;

        if (!str_next(&rest, ' ', &word) || str_u64(word, &numbers[i]))
            return -1;
    }
    if (!str_next(&rest, '\n', &path) || numbers[0] > INT32_MAX)
        return -1;
    out->pid = (pid_t)numbers[0];
    out->owner.device = numbers[1];
    out->owner.inode = numbers[2];
    snprintf(out->owner.data_dir, sizeof(out->owner.data_dir), "%.*s", STR_ARG(path));
    return 0;
}

/* The file was lost, but sandboxes may live by its name: the keeper that made them has left there
 * whose they are. */
static bool find_lost(const char *run_dir, struct keep_owner *o)
{
    DIR *d = opendir(run_dir);
    const struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        char path[LETTERS + 16];
        AUTO(closep) int lock = -1;
        struct place_holder h;

        if (!is_identity(e->d_name))
            continue;
        snprintf(path, sizeof(path), "%.8s/keep.lock", e->d_name);
        lock = openat(dirfd(d), path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        found = lock >= 0 && !place_read_holder(lock, &h) && h.owner.device == o->device &&
                h.owner.inode == o->inode && !strcmp(h.owner.data_dir, o->data_dir);
        if (found)
            memcpy(o->identity, e->d_name, sizeof(o->identity));
    }
    if (d)
        closedir(d);
    return found;
}

static int write_identity(int dir, const struct keep_owner *o, struct err *err)
{
    AUTO(closep)
    int fd = openat(dir, ".id", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    char text[LETTERS + 2];

    snprintf(text, sizeof(text), "%s\n", o->identity);
    if (fd < 0 || write(fd, text, LETTERS + 1) != LETTERS + 1 || fsync(fd) ||
        renameat(dir, ".id", dir, "id") || fsync(dir))
        return err_sys(err, "write %.150s/id", o->data_dir);
    return 0;
}

int keep_owner_make(const char *data_dir, const char *run_dir, struct keep_owner *out,
                    struct err *err)
{
    AUTO(closep) int dir = open_data(data_dir, out, err);

    if (dir < 0)
        return -1;
    if (!read_identity(dir, out, err))
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    while (flock(dir, LOCK_EX)) /* one makes it, the others find it */
        if (errno != EINTR)
            return err_sys(err, "lock %.150s", data_dir);
    if (!read_identity(dir, out, err))
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    err->code = ERR_NONE;
    if (!find_lost(run_dir, out))
        id_random(out->identity, LETTERS);
    return write_identity(dir, out, err);
}

/* ---- keepers of releases that had no places ---- */

static pid_t listener_of(const char *run_dir)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    AUTO(closep) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct ucred peer;
    socklen_t n = sizeof(peer);

    if (fd < 0 || snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/keep.sock", run_dir) >=
                      (int)sizeof(sa.sun_path))
        return 0;
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
        return 0;
    return peer.pid;
}

static bool is_notes(int fds, const char *fd)
{
    char path[ORDER_PATH] = "";
    ssize_t n = readlinkat(fds, fd, path, sizeof(path) - 1);
    const char *name = n > 0 ? strrchr(path, '/') : NULL;

    return name && (!strcmp(name, "/paused") || !strcmp(name, "/paused-3"));
}

/* It says nothing of its data directory, but has the notes of the paused in it open. */
enum keep_old keep_old_one(const char *run_dir, const char *data_dir)
{
    AUTO(freep) char *path = NULL;
    enum keep_old found = KEEP_OLD_UNKNOWN;
    pid_t pid = listener_of(run_dir);
    struct stat ours = { 0 }, one;
    char fds[32];
    const struct dirent *e;
    DIR *d;

    if (pid <= 0)
        return KEEP_OLD_NONE;
    if (asprintf(&path, "%s/paused", data_dir) < 0)
        abort();
    snprintf(fds, sizeof(fds), "/proc/%d/fd", pid);
    if (stat(path, &ours))
        ours.st_ino = 0;
    d = opendir(fds);
    while (d && found != KEEP_OLD_OURS && (e = readdir(d))) {
        if (*e->d_name == '.' || fstatat(dirfd(d), e->d_name, &one, 0) || !S_ISDIR(one.st_mode))
            continue;
        if (ours.st_ino && one.st_dev == ours.st_dev && one.st_ino == ours.st_ino)
            found = KEEP_OLD_OURS;
        else if (is_notes(dirfd(d), e->d_name))
            found = KEEP_OLD_ANOTHERS;
    }
    if (d)
        closedir(d);
    return found;
}
