/* A layer as an archive and back (jail/pack.h, jail/unpack.h): what comes back is packed again, and
 * has to be the same to the byte. */
#include "jail/pack.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "jail/unpack.h"
#include "jail/unpack_archive.h"
#include "tar.h"

static struct err err;

static bool cannot_unpack(void)
{
    if (unpack_archive_load(&err))
        return false;
    printf("# skipped: %s\n", err.msg);
    return true;
}

static int open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

static void put_file(int dir, const char *name, const char *text)
{
    AUTO(closep) int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void put_holes(int dir, const char *name)
{
    AUTO(closep) int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_INT(pwrite(fd, "begin", 5, 0), 5);
    CHECK_INT(pwrite(fd, "middle", 6, 3 << 20), 6);
    CHECK_INT(ftruncate(fd, 5LL << 30), 0);
}

/* Deeper than a template may be, with a path of nearly all the bytes that one can have. */
static void put_deep(int dir)
{
    AUTO(closep) int at = dup(dir);
    char name[16];

    CHECK(at >= 0);
    for (int i = 0; i < 400; i++) {
        int next;

        snprintf(name, sizeof(name), "deep%04d", i);
        CHECK_INT(mkdirat(at, name, 0700 + i % 8), 0);
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        close(at);
        at = next;
    }
    put_file(at, "leaf", "leaf");
}

static void fill(int top)
{
    AUTO(closep) int r = -1;
    struct timespec times[2] = { { 1, 2 }, { 1600000000, 123456789 } };

    CHECK_INT(mkdirat(top, "r", 0755) || mkdirat(top, "u", 0711) || mkdirat(top, "rw0", 0700), 0);
    put_file(top, "rw0/not-packed", "");
    r = openat(top, "r", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(r >= 0);
    put_file(r, "one", "text");
    put_file(r, "empty", "");
    put_file(r, ".wh.name", "an ordinary name");
    put_file(r, "new\nline and \xff", "bytes");
    CHECK_INT(linkat(r, "one", r, "two", 0), 0);
    CHECK_INT(symlinkat("/no/such/place", r, "link"), 0);
    CHECK_INT(mkfifoat(r, "fifo", 0600), 0);
    CHECK_INT(mknodat(r, "gone", S_IFCHR, makedev(0, 0)), 0);
    CHECK_INT(mkdirat(r, "hides", 0750), 0);
    put_holes(r, "holes");
    put_deep(r);
    CHECK_INT(utimensat(r, "one", times, 0), 0);
    AUTO(closep) int hides = openat(r, "hides", O_RDONLY | O_CLOEXEC);
    CHECK_INT(fsetxattr(hides, "user.overlay.opaque", "y", 1, 0), 0);
    CHECK_INT(fsetxattr(hides, "user.overlay.origin", "inode", 5, 0), 0);
    CHECK_INT(fsetxattr(hides, "user.a=\xff b", "\0\n", 2, 0), 0);
    if (!geteuid()) {
        CHECK_INT(fchownat(r, "one", 1000, 65535, 0), 0);
        CHECK_INT(fchmodat(r, "one", 06751, 0), 0);
    }
}

static int pack(int layer, enum pack_style style, struct pack_stats *stats)
{
    int fd = memfd_create("layer", MFD_CLOEXEC);

    CHECK(fd >= 0);
    if (pack_run(&(struct pack_request){ .layer = layer, .out = fd, .style = style }, stats, &err))
        test_fail(__FILE__, __LINE__, "pack: %s", err.msg);
    CHECK_INT(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void read_all(int fd, struct buf *out)
{
    struct stat st;

    CHECK_INT(fstat(fd, &st), 0);
    buf_reserve(out, (size_t)st.st_size);
    CHECK_INT(pread(fd, out->data, (size_t)st.st_size, 0), st.st_size);
    out->len = (size_t)st.st_size;
}

static void come_and_go(const char *top)
{
    AUTO(buf_free) struct buf before = { 0 };
    AUTO(buf_free) struct buf after = { 0 };
    struct pack_stats stats;
    struct unpack_result result;
    char from[96], to[96];

    snprintf(from, sizeof(from), "%s/from", top);
    snprintf(to, sizeof(to), "%s/to", top);
    CHECK_INT(mkdir(from, 0755) || mkdir(to, 0755), 0);
    AUTO(closep) int layer = open_dir(from);
    AUTO(closep) int again = open_dir(to);
    fill(layer);
    AUTO(closep) int archive = pack(layer, PACK_LAYER, &stats);
    CHECK_INT(stats.left_out, 0);
    CHECK_INT(stats.removed, 2);
    read_all(archive, &before);
    CHECK_INT(before.len, stats.bytes);
    CHECK(before.len < 4 << 20);
    if (unpack_run(
            &(struct unpack_request){ .archive = archive, .target = to, .layer_bytes = before.len },
            &result, &err))
        test_fail(__FILE__, __LINE__, "unpack: %s", err.msg);
    CHECK_INT(result.stats.whiteouts, 1);
    AUTO(closep) int second = pack(again, PACK_LAYER, &stats);
    read_all(second, &after);
    CHECK_INT(after.len, before.len);
    CHECK(!memcmp(after.data, before.data, before.len));
    CHECK(memmem(before.data, before.len, "not-packed", 10) == NULL);
    CHECK(memmem(before.data, before.len, "overlay.origin", 14) == NULL);
}

TEST(a_layer_comes_back_as_it_was)
{
    const char *top;

    if (cannot_unpack())
        return;
    top = tar_scratch();
    come_and_go(top);
    tar_scratch_end(top);
}

/* Its files are its own then, and the archive's, too. */
TEST(a_layer_of_an_ordinary_user_comes_back)
{
    const char *top;
    int status;
    pid_t pid;

    if (cannot_unpack() || geteuid())
        return;
    top = tar_scratch();
    CHECK_INT(chown(top, 61234, 61234), 0);
    pid = fork();
    if (!pid) {
        if (setresgid(61234, 61234, 61234) || setresuid(61234, 61234, 61234) ||
            prctl(PR_SET_DUMPABLE, 1)) /* as one that was started by that user */
            _exit(1);
        come_and_go(top);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    tar_scratch_end(top);
}

TEST(an_export_has_paths_as_inside_and_a_list_of_what_was_removed)
{
    static const char list[] = "usr/bin/gone\\nline\nhides/\ngone\n";
    AUTO(buf_free) struct buf bytes = { 0 };
    struct pack_stats stats;
    const char *top = tar_scratch(), *found;

    AUTO(closep) int layer = open_dir(top);
    fill(layer);
    CHECK_INT(mkdirat(layer, "u/bin", 0755), 0);
    CHECK_INT(mknodat(layer, "u/bin/gone\nline", S_IFCHR, makedev(0, 0)), 0);
    AUTO(closep) int fd = pack(layer, PACK_EXPORT, &stats);
    CHECK_INT(stats.removed, 3);
    read_all(fd, &bytes);
    CHECK(memmem(bytes.data, bytes.len, "user.overlay", 12) == NULL);
    CHECK(memmem(bytes.data, bytes.len, "usr/bin", 7));
    found = memmem(bytes.data, bytes.len, ".cove-removed", 13);
    CHECK(found && found - bytes.data < (ptrdiff_t)bytes.len - 1024);
    for (const char *line = list, *end; (end = strchr(line, '\n')); line = end + 1)
        CHECK(memmem(found + 512, 512, line, (size_t)(end - line) + 1));
    tar_scratch_end(top);
}

TEST(names_that_no_archive_can_hold_are_counted)
{
    struct pack_stats stats;
    const char *top = tar_scratch();
    char name[200];

    AUTO(closep) int layer = open_dir(top);
    AUTO(closep) int at = open_dir(top);
    CHECK_INT(mkdirat(layer, "r", 0755) || mkdirat(layer, "u", 0755), 0);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = 0;
    for (int i = 0; i < 30; i++) {
        int next;

        CHECK_INT(mkdirat(at, i ? name : "r/top", 0755), 0);
        next = openat(at, i ? name : "r/top", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        close(at);
        at = next;
    }
    close(pack(layer, PACK_LAYER, &stats));
    CHECK_INT(stats.left_out, 1); /* the first that is too deep, with what is in it */
    CHECK_INT(stats.entries, 2 + 1 + 20);
    tar_scratch_end(top);
}
