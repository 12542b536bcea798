/* host_image.c - using the image of /usr, and whether this kernel can. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/host_build.h"
#include "jail/loop.h"
#include "jail/mounts.h"

static int mount_from(const char *source, struct err *err)
{
    const struct mount_option options[] = { { "source", source, -1 }, { "ro", NULL, -1 }, { 0 } };

    return mounts_new("erofs", options, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, err);
}

/* Straight from the file, or, where its file system or the kernel cannot do that (tmpfs), by a loop
 * device. */
static int mount_image(const char *path, struct err *err)
{
    int mount = mount_from(path, err);
    AUTO(closep) int file = -1;
    struct loop loop = { .fd = -1 };

    if (mount >= 0)
        return mount;
    file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    *err = (struct err){ 0 };
    if (file < 0 || loop_attach(file, HOST_IMAGE, LO_FLAGS_READ_ONLY, &loop))
        return err_sys(err, "attach it to a loop device");
    mount = mount_from(loop.path, err);
    close(loop.fd);
    return mount;
}

int host_mount_image(const struct host_template *t, struct err *err)
{
    int mount = mount_image(t->image, err);

    return mount < 0 ? err_in(err, "%s", t->image) : mount;
}

/* This moment's trouble, or what the kernel will say the next time, too? */
static bool will_pass(int error)
{
    switch (error) {
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC: return true;
    default: return false;
    }
}

/* Contents in a data layer, found without privilege: Linux 6.16. A file as the source: 6.12. */
int host_image_works(int dir, int usr, struct err *why)
{
    AUTO(buf_free) struct buf path = { 0 };
    AUTO(closep) int image = -1;
    AUTO(closep) int both = -1;
    int error;

    buf_printf(&path, "/proc/self/fd/%d/" HOST_IMAGE, dir);
    image = mount_image(path.data, why);
    if (image >= 0)
        both = mounts_new("overlay",
                          (const struct mount_option[]){ { "userxattr", NULL, -1 },
                                                         { "lowerdir+", NULL, image },
                                                         { "datadir+", NULL, usr },
                                                         { 0 } },
                          MOUNT_ATTR_RDONLY, why);
    error = errno;
    if (both >= 0)
        return 1;
    return will_pass(error) ? -1 : 0;
}
