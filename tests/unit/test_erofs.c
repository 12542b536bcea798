/* test_erofs.c - images that the kernel mounts: what was added is there and nothing else. */
#include "jail/erofs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "jail/loop.h"
#include "jail/mounts.h"
#include "test.h"

#define IMAGE "/tmp/cove-erofs.img"

static struct err err;
static char at[32]; /* where the image is mounted */

static struct stat stat_of(mode_t mode, uid_t uid, gid_t gid, off_t size)
{
    return (struct stat){ .st_mode = mode,
                          .st_uid = uid,
                          .st_gid = gid,
                          .st_size = size,
                          .st_mtim = { 1234567890, 987654321 } };
}

static struct erofs *begin(void)
{
    struct stat root = stat_of(S_IFDIR | 0755, 0, 0, 4096);

    return erofs_create(&root);
}

static uint32_t add(struct erofs *e, uint32_t dir, const char *name, mode_t mode, const char *bytes)
{
    struct stat st = stat_of(mode, 7, 70000, 5);

    return erofs_add(e, dir,
                     &(struct erofs_node){ .name = name, .st = &st, .bytes = str_of(bytes) });
}

/* Through a loop device, since /tmp here is a tmpfs. false: only root can look at it. */
static bool mounted(struct erofs *e)
{
    static int mount = -1;
    AUTO(closep) int fd = open(IMAGE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct mount_option options[] = { { "source", NULL, -1 }, { "ro", NULL, -1 }, { 0 } };
    struct loop loop = { .fd = -1 };

    closep(&mount);
    err = (struct err){ 0 };
    CHECK_INT(erofs_write(e, fd, &err), 0);
    erofs_destroy(e);
    unlink(IMAGE);
    if (geteuid() || loop_attach(fd, "erofs", 0, &loop)) {
        printf("# not root, or no loop device: written, and not looked at\n");
        return false;
    }
    options[0].text = loop.path;
    mount = mounts_new("erofs", options, MOUNT_ATTR_RDONLY, &err);
    close(loop.fd);
    CHECK_STR(err.msg, "");
    snprintf(at, sizeof(at), "/proc/self/fd/%d", mount);
    return true;
}

static char *in(const char *path)
{
    static char text[8192];

    snprintf(text, sizeof(text), "%s/%s", at, path);
    return text;
}

static size_t count(const char *path)
{
    DIR *d = opendir(in(path));
    size_t n = 0;

    CHECK(d);
    while ((errno = 0, readdir(d)))
        n++;
    CHECK_INT(errno, 0);
    closedir(d);
    return n;
}

TEST(an_entry_is_what_it_was_given_as)
{
    struct erofs *e = begin();
    uint32_t dir = add(e, EROFS_ROOT, "dir", S_IFDIR | 02775, "");
    struct stat elsewhere = stat_of(S_IFREG | 04755, 0, 42, 1LL << 40), st;
    char value[64];

    add(e, dir, "inner", S_IFREG | 0711, "contents");
    add(e, dir, "link", S_IFLNK | 0777, "../dir/inner");
    erofs_add(
        e, dir,
        &(struct erofs_node){ .name = "big",
                              .st = &elsewhere,
                              .elsewhere = true,
                              .capability = STR("\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0") });
    if (!mounted(e))
        return;
    CHECK_INT(stat(in("dir"), &st), 0);
    CHECK_INT(st.st_mode, S_IFDIR | 02775);
    CHECK_INT(st.st_uid, 7);
    CHECK_INT(st.st_gid, 70000);
    CHECK_INT(st.st_nlink, 2);
    CHECK_INT(st.st_mtim.tv_sec, 1234567890);
    CHECK_INT(st.st_mtim.tv_nsec, 987654321);
    CHECK_INT(stat(in("dir/big"), &st), 0);
    CHECK_INT(st.st_mode, S_IFREG | 04755);
    CHECK_INT(st.st_size, 1LL << 40);
    CHECK_INT(getxattr(in("dir/big"), "user.overlay.metacopy", value, sizeof(value)), 0);
    CHECK_INT(getxattr(in("dir/big"), "user.overlay.redirect", value, sizeof(value)), 8);
    CHECK(!memcmp(value, "/dir/big", 8));
    CHECK_INT(lgetxattr(in("dir/inner"), "user.overlay.redirect", value, sizeof(value)), -1);
    CHECK(getxattr(in("dir/big"), "security.capability", value, sizeof(value)) >= 20);
    CHECK_INT(readlink(in("dir/link"), value, sizeof(value)), 12);
    CHECK(!memcmp(value, "../dir/inner", 12));
    CHECK_INT(stat(in("dir/link"), &st), 0);
    CHECK_INT(st.st_size, 8);
    CHECK_INT(stat(in(""), &st), 0);
    CHECK_INT(st.st_nlink, 3);
    CHECK_INT(lstat(in("dir/inne"), &st), -1);
    CHECK_INT(lstat(in("dir/innera"), &st), -1);
}

/* Around the ends of blocks: names of every length, directories of every size up to some blocks,
 * and one with many. Entries that sort before "." and between it and ".." are among them. */
TEST(directories_of_any_size_list_and_find_all_that_is_in_them)
{
    enum { DIRS = 120, MANY = 5000 };
    struct erofs *e = begin();
    uint32_t many = add(e, EROFS_ROOT, "many", S_IFDIR | 0755, "");
    char name[300];
    struct stat st;

    for (int i = 0; i < DIRS; i++) {
        uint32_t dir;

        snprintf(name, sizeof(name), "d%d", i);
        dir = add(e, EROFS_ROOT, name, S_IFDIR | 0755, "");
        for (int j = 0; j < i; j++) {
            snprintf(name, sizeof(name), "%c%0*d", "+-.A\xff"[j % 5], 1 + j * 7 % 250, j);
            add(e, dir, name, S_IFREG | 0644, "x");
        }
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "%d", i);
        add(e, many, name, S_IFREG | 0644, "");
    }
    if (!mounted(e))
        return;
    for (int i = 0; i < DIRS; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        CHECK_INT(count(name), i + 2);
        for (int j = 0; j < i; j++) {
            snprintf(name, sizeof(name), "d%d/%c%0*d", i, "+-.A\xff"[j % 5], 1 + j * 7 % 250, j);
            CHECK_INT(stat(in(name), &st), 0);
            CHECK_INT(st.st_size, 1);
        }
    }
    CHECK_INT(count("many"), MANY + 2);
    CHECK_INT(stat(in("many/4999"), &st), 0);
    CHECK_INT(stat(in("many/5000"), &st), -1);
}

/* What fits behind its inode is there; what does not has blocks of its own. */
TEST(contents_and_links_of_any_length_come_whole)
{
    static const size_t sizes[] = { 0, 1, 4031, 4032, 4033, 4095, 4096, 4097, 8192, 12000 };
    AUTO(buf_free) struct buf bytes = { 0 };
    struct erofs *e = begin();
    char name[32], got[16384];

    for (size_t i = 0; i < 12000; i++)
        buf_putc(&bytes, (char)('a' + i % 26));
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct stat st = stat_of(S_IFREG | 0600, 0, 0, 0);
        const struct erofs_node n = { .name = name, .st = &st, .bytes = { bytes.data, sizes[i] } };

        snprintf(name, sizeof(name), "f%zu", sizes[i]);
        erofs_add(e, EROFS_ROOT, &n);
        if (!sizes[i] || sizes[i] > 4095)
            continue;
        name[0] = 'l';
        st.st_mode = S_IFLNK | 0777;
        erofs_add(e, EROFS_ROOT, &n);
    }
    if (!mounted(e))
        return;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        AUTO(closep) int fd = -1;

        printf("# %zu\n", sizes[i]);
        snprintf(name, sizeof(name), "f%zu", sizes[i]);
        fd = open(in(name), O_RDONLY | O_CLOEXEC);
        CHECK_INT(read(fd, got, sizeof(got)), sizes[i]);
        CHECK(!memcmp(got, bytes.data, sizes[i]));
        if (!sizes[i] || sizes[i] > 4095)
            continue;
        name[0] = 'l';
        CHECK_INT(readlink(in(name), got, sizeof(got)), sizes[i]);
        CHECK(!memcmp(got, bytes.data, sizes[i]));
    }
}

TEST(a_path_may_be_as_long_as_the_kernel_looks_one_up_and_no_longer)
{
    for (int more = 0; more < 2; more++) {
        struct erofs *e = begin();
        struct stat st = stat_of(S_IFREG | 0644, 0, 0, 3);
        char name[256] = { 0 };
        uint32_t dir = EROFS_ROOT;
        AUTO(closep) int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

        memset(name, 'n', 255);
        for (int i = 0; i < 15; i++)
            dir = add(e, dir, name, S_IFDIR | 0755, "");
        erofs_add(e, dir,
                  &(struct erofs_node){ .name = name + !more, .st = &st, .elsewhere = true });
        err = (struct err){ 0 };
        CHECK_INT(erofs_write(e, fd, &err), more ? -1 : 0);
        CHECK_INT(err.code, more ? ERR_LIMIT : 0);
        erofs_destroy(e);
    }
}

TEST(a_full_disk_is_an_error)
{
    struct erofs *e = begin();
    AUTO(closep) int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

    add(e, EROFS_ROOT, "file", S_IFREG | 0644, "x");
    err = (struct err){ 0 };
    CHECK_INT(erofs_write(e, fd, &err), -1);
    CHECK(strstr(err.msg, "No space left"));
    erofs_destroy(e);
}
