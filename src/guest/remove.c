/* remove.c - see remove.h.
 *
 * Descends at most DEPTH levels; a directory below that is first moved up next to the tree's own
 * top-level entries, so that a tree of any depth needs a bounded number of descriptors. */
#include "guest/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

enum { DEPTH = 32 };

struct removal {
    int top; /* the directory being emptied */
    unsigned moved;
};

static int remove_entry(struct removal *r, int dir, const char *name, int depth);

/* Empties an open directory (which it takes). */
static int empty(struct removal *r, int fd, int depth)
{
    DIR *d = fdopendir(fd);
    int result = 0;

    if (!d) {
        close(fd);
        return -1;
    }
    for (struct dirent *e; !result && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            result = remove_entry(r, dirfd(d), e->d_name, depth);
    closedir(d);
    return result;
}

static int move_up(struct removal *r, int dir, const char *name)
{
    char temporary[32];
    int result;

    do {
        snprintf(temporary, sizeof(temporary), ".cove-removed-%u", r->moved++);
        result = renameat2(dir, name, r->top, temporary, RENAME_NOREPLACE);
    } while (result && errno == EEXIST && r->moved);
    return result;
}

static int remove_entry(struct removal *r, int dir, const char *name, int depth)
{
    int fd;

    for (int tries = 0; tries < 1000; tries++) {
        if (!unlinkat(dir, name, 0) || errno == ENOENT)
            return 0;
        if (errno != EISDIR && errno != EPERM)
            return -1;
        if (!unlinkat(dir, name, AT_REMOVEDIR) || errno == ENOENT)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return -1;
        if (depth >= DEPTH)
            return move_up(r, dir, name);
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return errno == ENOENT ? 0 : -1;
        if (r->top < 0)
            r->top = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        if (empty(r, fd, depth + 1))
            return -1;
        /* again: something may have been added, or moved up, meanwhile */
    }
    errno = ENOTEMPTY;
    return -1;
}

int remove_tree(int dir, const char *name, struct err *err)
{
    struct removal r = { .top = -1 };
    int result = remove_entry(&r, dir, name, 0);

    if (result)
        err_sys(err, "remove '%.150s'", name);
    if (r.top >= 0)
        close(r.top);
    return result;
}
