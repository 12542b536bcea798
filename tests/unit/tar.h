/* tar.h - the smallest writer of tar archives, for tests that want an entry no tool would write,
 * and a directory of their own to unpack it in. */
#ifndef TESTS_TAR_H
#define TESTS_TAR_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "jail/rmtree.h"
#include "test.h"

enum { TAR_BLOCK = 512 };

/* type as in the format: '0' file, '1' hard link, '2' symlink, '3' and '4' devices, '5' directory,
 * '6' fifo, 'x' header of the next entry. */
static inline void tar_add(struct buf *b, char type, const char *name, const char *link,
                           struct str data)
{
    static const char zeros[TAR_BLOCK];
    char h[TAR_BLOCK] = { 0 };
    unsigned sum = 0;

    snprintf(h, 100, "%s", name);
    snprintf(h + 100, 8, "%07o", type == '5' ? 0755 : 0644);
    snprintf(h + 108, 8, "%07o", 0);
    snprintf(h + 116, 8, "%07o", 0);
    snprintf(h + 124, 12, "%011o", (unsigned)data.n);
    snprintf(h + 136, 12, "%011o", 1000000000);
    memset(h + 148, ' ', 8);
    h[156] = type;
    snprintf(h + 157, 100, "%s", link ? link : "");
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof(h); i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    buf_add(b, h, sizeof(h));
    buf_add_str(b, data);
    buf_add(b, zeros, -data.n % TAR_BLOCK);
}

static inline void tar_end(struct buf *b)
{
    static const char zeros[2 * TAR_BLOCK];

    buf_add(b, zeros, sizeof(zeros));
}

/* A descriptor to read these bytes from. */
static inline int tar_open(const void *p, size_t n)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n && !lseek(fd, 0, SEEK_SET));
    return fd;
}

static inline const char *tar_scratch(void) /* an empty directory */
{
    static char path[64];

    snprintf(path, sizeof(path), "/tmp/cove-unpack-XXXXXX");
    CHECK(mkdtemp(path));
    return path;
}

static inline void tar_scratch_end(const char *path)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = rmtree(tmp, strrchr(path, '/') + 1);

    close(tmp);
    CHECK_INT(r, 0);
}

#endif
