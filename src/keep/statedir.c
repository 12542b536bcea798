/* statedir.c - see statedir.h. */
#include "keep/statedir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

enum { PAGE = 4096, NAME_ROOM = 64, FIRST_SCHEMA = 3 };

/* ---- one file ---- */

static int put_in_place(int dir, const char *id, struct str bytes)
{
    AUTO(closep) int fd = openat(dir, id, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    return fd >= 0 && pwrite(fd, bytes.p, bytes.n, 0) == (ssize_t)bytes.n ? 0 : -1;
}

/* Under another name until it is whole. */
static int put_whole(int dir, const char *id, struct str bytes, bool lasting)
{
    char draft[NAME_ROOM];
    AUTO(closep) int fd = -1;
    int error;

    snprintf(draft, sizeof(draft), ".%s", id);
    fd = openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n && (!lasting || !fsync(fd)) &&
        !renameat(dir, draft, dir, id))
        return 0;
    error = errno;
    unlinkat(dir, draft, 0); /* nobody would ever remove it */
    errno = error;
    return -1;
}

/* A kill ends a write between two pages, never within one. */
int statedir_write(int dir, const char *id, struct str bytes, enum statedir_how how,
                   struct err *err)
{
    int r = how == STATE_IN_PLACE && bytes.n <= PAGE
                ? put_in_place(dir, id, bytes)
                : put_whole(dir, id, bytes, how == STATE_LASTING);

    return r ? err_sys(err, "write the file of sandbox %s", id) : 0;
}

int statedir_draft(int dir, struct str bytes, struct err *err)
{
    AUTO(closep) int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, bytes.p, bytes.n) != (ssize_t)bytes.n)
        return err_sys(err, "write the file of a sandbox");
    return TAKE(fd, -1);
}

int statedir_place(int dir, int draft, const char *id, struct err *err)
{
    char from[32], name[NAME_ROOM];

    snprintf(from, sizeof(from), "/proc/self/fd/%d", draft);
    snprintf(name, sizeof(name), ".%s", id);
    if (unlinkat(dir, name, 0) && errno != ENOENT)
        return err_sys(err, "write the file of sandbox %s", id);
    if (!linkat(AT_FDCWD, from, dir, name, AT_SYMLINK_FOLLOW) && !renameat(dir, name, dir, id))
        return 0;
    err_sys(err, "write the file of sandbox %s", id);
    unlinkat(dir, name, 0);
    return -1;
}

int statedir_read(int dir, const char *id, struct buf *out, struct err *err)
{
    AUTO(closep) int fd = openat(dir, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    ssize_t n;

    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_INVALID, "it is a link");
    if (fd < 0 || fstat(fd, &st))
        return err_sys(err, "open it");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "it is no regular file");
    if (st.st_size > BOXFILE_MAX)
        return err_set(err, ERR_INVALID, "it has %lld bytes; at most %d", (long long)st.st_size,
                       BOXFILE_MAX);
    buf_reserve(out, (size_t)st.st_size);
    n = pread(fd, out->data + out->len, (size_t)st.st_size, 0);
    if (n < 0)
        return err_sys(err, "read it");
    out->len += (size_t)n;
    return 0;
}

void statedir_set_aside(int dir, const char *id)
{
    char aside[NAME_ROOM];

    snprintf(aside, sizeof(aside), "%s.damaged", id);
    if (linkat(dir, id, dir, aside, 0) && errno != EEXIST)
        log_warn("a damaged file has no second name", KV("file", id),
                 KV("error", strerrordesc_np(errno)));
}

/* ---- the schema ---- */

static char *path_in(const char *dir, const char *name)
{
    char *path;

    if (asprintf(&path, "%s/%s", dir, name) < 0)
        abort();
    return path;
}

/* 0: there is none. */
static int read_schema(const char *path, uint64_t *out, struct err *err)
{
    char text[32] = "";
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    *out = 0;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (n < 0)
        return err_sys(err, "read %s", path);
    if (str_u64((struct str){ text, n && text[n - 1] == '\n' ? (size_t)n - 1 : (size_t)n }, out))
        return err_set(err, ERR_INVALID, "%s is damaged: it should hold the number %d", path,
                       KEEP_SCHEMA);
    return 0;
}

int schema_check(const char *dir, struct err *err)
{
    AUTO(freep) char *path = path_in(dir, "schema");
    uint64_t schema;

    if (read_schema(path, &schema, err))
        return -1;
    if (schema > KEEP_SCHEMA)
        return err_set(err, ERR_CONFLICT,
                       "%s was used by a newer release of Cove (schema %llu; this one knows %d): "
                       "nothing was touched; start that release again",
                       dir, (unsigned long long)schema, KEEP_SCHEMA);
    return 0;
}

int schema_raise(const char *dir, struct err *err)
{
    AUTO(freep) char *path = path_in(dir, "schema");
    AUTO(closep) int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char text[16];
    uint64_t schema;
    int n = snprintf(text, sizeof(text), "%d\n", KEEP_SCHEMA);

    if (read_schema(path, &schema, err) || schema == KEEP_SCHEMA)
        return schema == KEEP_SCHEMA ? 0 : -1;
    if (at < 0 || put_whole(at, "schema", (struct str){ text, (size_t)n }, true))
        return err_sys(err, "write %s", path);
    return 0;
}

/* ---- the directory ---- */

static bool is_directory(int at, const char *name)
{
    struct stat st;

    return !fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode);
}

/* The link takes the directory's place in one step, and the directory its new name in the next: at
 * no moment does the name lead to a directory that the release before would take for its own. */
static int make_link(int at, const char *name, const char *target)
{
    char draft[NAME_ROOM];

    snprintf(draft, sizeof(draft), ".%s", name);
    if (is_directory(at, draft)) /* we were killed between the two */
        return renameat2(at, draft, at, target, RENAME_NOREPLACE);
    if (unlinkat(at, draft, 0) && errno != ENOENT)
        return -1;
    if (symlinkat(target, at, draft))
        return -1;
    if (is_directory(at, name))
        return renameat2(at, draft, at, name, RENAME_EXCHANGE) ||
                       renameat2(at, draft, at, target, RENAME_NOREPLACE)
                   ? -1
                   : 0;
    if (mkdirat(at, target, 0700) && errno != EEXIST)
        return -1;
    return renameat(at, draft, at, name);
}

int statedir_open(const char *parent, const char *name, struct err *err)
{
    AUTO(closep) int at = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char target[NAME_ROOM], leads[NAME_ROOM] = "";
    int fd;

    snprintf(target, sizeof(target), "%s-%d", name, FIRST_SCHEMA);
    if (at >= 0 && readlinkat(at, name, leads, sizeof(leads) - 1) > 0 && strcmp(leads, target))
        return err_set(err, ERR_CONFLICT,
                       "%s/%s leads to %s, not to %s: start the release that "
                       "made it",
                       parent, name, leads, target);
    if (at >= 0 && !*leads && is_directory(at, name) && is_directory(at, target))
        return err_set(err, ERR_CONFLICT,
                       "%s has both %s and %s: move what is in %s to where it "
                       "belongs, and remove it",
                       parent, name, target, name);
    if (at < 0 || ((!*leads || !is_directory(at, target)) && make_link(at, name, target)))
        return err_sys(err, "make %s/%s", parent, name);
    fd = openat(at, target, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "open %s/%s", parent, target) : fd;
}
