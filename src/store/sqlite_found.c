/* sqlite_found.c - is there a database? Asked before a start would make an empty one, by who may
 * not open it yet: from the first bytes of the file, nothing of which changes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/sqlite.h"

enum { HEAD = 100, USER_VERSION = 60, APPLICATION = 68 };

static bool is_zero(const char *p)
{
    static const char zeroes[4];

    return !memcmp(p, zeroes, sizeof(zeroes));
}

/* Its tables may be in the log only, until that is moved into the file. */
static bool has_log(const char *path)
{
    AUTO(buf_free) struct buf log = { 0 };
    struct stat st;

    buf_printf(&log, "%s-wal", path);
    return !stat(log.data, &st) && st.st_size > 0;
}

int store_sqlite_found(const char *path, struct err *err)
{
    AUTO(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char head[HEAD];
    ssize_t n;

    if (fd < 0 && errno == ENOENT)
        return 0;
    n = fd < 0 ? -1 : read(fd, head, sizeof(head));
    if (n < 0)
        return err_sys(err, "look at the database %s", path);
    if (!n) /* SQLite, too, takes the log beside an empty file for nobody's */
        return 0;
    if (n < HEAD) /* damaged: opening it says so */
        return 1;
    return !is_zero(head + USER_VERSION) || !is_zero(head + APPLICATION) || has_log(path);
}
