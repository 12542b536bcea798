/* test_strays.c - what a layer says of its sandbox when that could not be written down again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "keep/keeper.h"
#include "test.h"

enum { TOO_MUCH = 70000 }; /* no attribute has room for that */

static char dir[64];

static const char *attribute(void)
{
    return geteuid() ? "user.cove.record" : "trusted.cove.record";
}

/* The layer is a directory; -1: its file system knows no attributes. */
static int layer_that_says(const char *text)
{
    int fd;

    snprintf(dir, sizeof(dir), "%s", "/tmp/cove-strays-XXXXXX");
    CHECK(mkdtemp(dir));
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    if (!fsetxattr(fd, attribute(), text, strlen(text), 0))
        return fd;
    printf("# skipped: no attributes in /tmp: %s\n", strerrordesc_np(errno));
    close(fd);
    CHECK_INT(rmdir(dir), 0);
    return -1;
}

TEST(a_layer_does_not_go_on_saying_what_was)
{
    static const char record[TOO_MUCH];
    struct keeper k = { .o.rootless = geteuid() != 0 };
    struct box b = { .keeper = &k, .id = "one" };
    char said[64];

    b.layer = layer_that_says("unclaimed");
    if (b.layer < 0)
        return;
    stray_record(&b, str_of("claimed"));
    CHECK_INT(fgetxattr(b.layer, attribute(), said, sizeof(said)), 7);
    CHECK(!memcmp(said, "claimed", 7));
    stray_record(&b, (struct str){ record, sizeof(record) });
    CHECK_INT(fgetxattr(b.layer, attribute(), said, sizeof(said)), -1);
    CHECK_INT(errno, ENODATA);
    close(b.layer);
    CHECK_INT(rmdir(dir), 0);
}
