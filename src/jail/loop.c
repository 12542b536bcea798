/* loop.c - see loop.h. */
#include "jail/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"

enum {
    TRIES = 32,
    BLOCK_BYTES = 4096, /* direct I/O then works on any disk */
};

int loop_attach(int image, const char *name, unsigned flags, struct loop *out)
{
    struct loop_config c = { .fd = (uint32_t)image,
                             .block_size = BLOCK_BYTES,
                             /* autoclear: the device goes with its last mount */
                             .info.lo_flags = LO_FLAGS_AUTOCLEAR | flags };
    AUTO(closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    snprintf((char *)c.info.lo_file_name, LO_NAME_SIZE, "%s", name);
    for (int tries = 0; control >= 0 && tries < TRIES; tries++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);

        if (n < 0)
            break;
        snprintf(out->path, sizeof(out->path), "/dev/loop%d", n);
        out->fd = open(out->path, O_RDWR | O_CLOEXEC);
        if (out->fd < 0)
            return -1;
        if (!ioctl(out->fd, LOOP_CONFIGURE, &c))
            return 0;
        closep(&out->fd);
        if (errno != EBUSY && errno != ENXIO) /* somebody else was quicker: the next one */
            break;
    }
    return -1;
}
