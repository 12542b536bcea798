/* The unpacker: its writer alone, which must hold without the check before it, and as a whole in
 * its namespaces. Hostile archives of every kind are in tests/e2e/test_template.py. */
#include "jail/unpack.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "jail/unpack_archive.h"
#include "jail/unpack_tree.h"
#include "tar.h"

static const struct tree_attr plain = { .mode = 0644, .mtime = { 1000000000, 0 } };
static const struct tree_attr folder = { .mode = 0755, .mtime = { 1000000000, 0 } };

/* ---- the writer ---- */

struct rig {
    const char *top; /* holds root/, in which the tree is, and canary */
    struct unpack_tree tree;
};

static void begin(struct rig *r)
{
    char path[128];

    r->top = tar_scratch();
    snprintf(path, sizeof(path), "%s/root", r->top);
    CHECK_INT(mkdir(path, 0755), 0);
    unpack_tree_init(&r->tree, open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    CHECK(r->tree.root >= 0);
    r->tree.squash = true;
    r->tree.entries = 100;
    r->tree.memory = 1 << 20;
}

static void end(struct rig *r)
{
    unpack_tree_finish(&r->tree);
    close(r->tree.root);
    tar_scratch_end(r->top);
}

static int put_file(struct rig *r, const char *path, struct err *err)
{
    AUTO(closep) int fd = unpack_tree_file(&r->tree, path, err);

    if (fd < 0)
        return -1;
    CHECK_INT(write(fd, "x", 1), 1);
    return unpack_tree_file_attr(&r->tree, fd, &plain, err);
}

static int put_folder(struct rig *r, const char *path, struct err *err)
{
    int fd = -1, n = unpack_tree_directory(&r->tree, path, &folder, &fd, err);

    closep(&fd);
    return n;
}

static mode_t type_at(struct rig *r, const char *path)
{
    struct stat st;

    return fstatat(r->tree.root, path, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_mode & S_IFMT;
}

TEST(the_kernel_keeps_the_writer_beneath_its_root)
{
    struct rig r;
    struct err err = { 0 };
    char path[128];

    begin(&r);
    snprintf(path, sizeof(path), "%s/escaped", r.top);
    CHECK_INT(put_file(&r, "../escaped/x", &err), -1);
    CHECK_INT(put_folder(&r, "../escaped", &err), -1);
    CHECK_INT(put_folder(&r, path, &err), -1);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "x", "../root", &err), -1);
    CHECK_INT(access(path, F_OK), -1);
    end(&r);
}

TEST(no_symlink_is_followed_on_the_way)
{
    struct rig r;
    struct err err = { 0 };

    begin(&r);
    CHECK_INT(unpack_tree_symlink(&r.tree, "out", "..", &plain, &err), 0);
    CHECK_INT(unpack_tree_symlink(&r.tree, "abs", r.top, &plain, &err), 0);
    CHECK_INT(put_file(&r, "out/x", &err), -1);
    CHECK_STR(err.msg, "goes through 'out', which is not a directory");
    CHECK_INT(put_file(&r, "abs/deep/x", &err), -1);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "y", "out/root", &err), -1);
    CHECK_INT(type_at(&r, "../x"), 0);
    end(&r);
}

TEST(a_file_replaces_a_symlink_instead_of_what_it_names)
{
    struct rig r;
    struct err err = { 0 };
    char path[128];
    struct stat st;
    int fd;

    begin(&r);
    snprintf(path, sizeof(path), "%s/canary", r.top);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(unpack_tree_symlink(&r.tree, "l", path, &plain, &err), 0);
    CHECK_INT(put_file(&r, "l", &err), 0);
    CHECK_INT(type_at(&r, "l"), S_IFREG);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_size, 0);
    end(&r);
}

TEST(the_later_entry_of_a_name_wins)
{
    struct rig r;
    struct err err = { 0 };

    begin(&r);
    CHECK_INT(put_file(&r, "a", &err), 0);
    CHECK_INT(put_folder(&r, "a", &err), 0);
    CHECK_INT(type_at(&r, "a"), S_IFDIR);
    CHECK_INT(put_file(&r, "a/b/c", &err), 0);
    CHECK_INT(put_folder(&r, "a", &err), 0); /* a directory stays, with what is in it */
    CHECK_INT(type_at(&r, "a/b/c"), S_IFREG);
    CHECK_INT(unpack_tree_fifo(&r.tree, "a", &plain, &err), 0);
    CHECK_INT(type_at(&r, "a"), S_IFIFO);
    CHECK_INT(put_file(&r, "a/b", &err),
              -1); /* what is not named a directory does not become one */
    end(&r);
}

TEST(a_hard_link_to_itself_loses_nothing)
{
    struct rig r;
    struct err err = { 0 };

    begin(&r);
    CHECK_INT(put_file(&r, "a", &err), 0);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "a", "a", &err), 0);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "b", "a", &err), 0);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "a", "b", &err), 0);
    CHECK_INT(type_at(&r, "a"), S_IFREG);
    CHECK_INT(type_at(&r, "b"), S_IFREG);
    CHECK_INT(put_folder(&r, "d", &err), 0);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "e", "d", &err), -1);
    CHECK_STR(err.msg, "is a hard link to the directory 'd'");
    end(&r);
}

TEST(a_hard_link_to_a_symlink_is_the_symlink)
{
    struct rig r;
    struct err err = { 0 };

    begin(&r);
    CHECK_INT(unpack_tree_symlink(&r.tree, "l", "/etc/passwd", &plain, &err), 0);
    CHECK_INT(unpack_tree_hardlink(&r.tree, "h", "l", &err), 0);
    CHECK_INT(type_at(&r, "h"), S_IFLNK);
    end(&r);
}

TEST(implied_directories_count_as_entries)
{
    struct rig r;
    struct err err = { 0 };

    begin(&r);
    r.tree.entries = 4;
    CHECK_INT(put_file(&r, "a/b/c/d", &err), 0);
    CHECK_INT(r.tree.made, 4);
    CHECK_INT(put_file(&r, "e", &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_STR(err.msg, "is one more than unpack.entries (4) allows");
    end(&r);
}

TEST(directories_get_their_times_when_their_files_are_there)
{
    struct rig r;
    struct err err = { 0 };
    struct stat st;

    begin(&r);
    CHECK_INT(put_folder(&r, "d", &err), 0);
    CHECK_INT(put_folder(&r, "gone", &err), 0);
    CHECK_INT(put_file(&r, "d/f", &err), 0);
    CHECK_INT(unpack_tree_symlink(&r.tree, "gone", "d", &plain, &err), 0);
    unpack_tree_times(&r.tree);
    CHECK_INT(fstatat(r.tree.root, "d", &st, 0), 0);
    CHECK_INT(st.st_mtime, 1000000000);
    r.tree.memory = r.tree.times.len;
    CHECK_INT(put_folder(&r, "more", &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    end(&r);
}

/* ---- the whole ---- */

static const struct setting *const settings[] = { unpack_settings, NULL };

static bool cannot_unpack(void)
{
    struct err err = { 0 };
    const char *why = NULL;
    FILE *f;
    int zero = 1;

    if (!unpack_archive_load(&err))
        why = err.msg;
    f = geteuid() ? fopen("/proc/sys/user/max_user_namespaces", "re") : NULL;
    if (f && fscanf(f, "%d", &zero) == 1 && !zero)
        why = "this machine lets ordinary users make no user namespace";
    if (f)
        fclose(f);
    if (why)
        printf("# skipped: %s\n", why);
    return why != NULL;
}

static int unpack_bytes(const void *p, size_t n, const char *target, struct unpack_result *out,
                        struct err *err)
{
    AUTO(closep) int fd = tar_open(p, n);

    return unpack_run(&(struct unpack_request){ .archive = fd, .target = target }, out, err);
}

static void sample(struct buf *b)
{
    tar_add(b, '5', "bin/", NULL, (struct str){ 0 });
    tar_add(b, '0', "bin/sh", NULL, STR("#!/bin/true\n"));
    tar_add(b, '2', "sh", "/bin/sh", (struct str){ 0 });
    tar_add(b, '1', "bin/link", "bin/sh", (struct str){ 0 });
    tar_add(b, '6', "fifo", NULL, (struct str){ 0 });
    tar_add(b, '3', "null", NULL, (struct str){ 0 });
    tar_add(b, '0', "deep/er/file", NULL, STR("text"));
}

TEST(an_archive_becomes_a_directory)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct unpack_result out;
    struct err err = { 0 };
    const char *top;
    char path[128];
    struct stat st;

    if (cannot_unpack())
        return;
    sample(&b);
    tar_end(&b);
    top = tar_scratch();
    CHECK_INT(unpack_bytes(b.data, b.len, top, &out, &err), 0);
    CHECK_INT(out.stats.entries, 8);
    CHECK_INT(out.stats.bytes, 16);
    CHECK_INT(out.stats.devices, 1);
    CHECK_INT(out.archive_bytes, b.len);
    CHECK_INT(strlen(out.sha256), 64);
    CHECK_INT(out.squashed, geteuid() != 0);
    snprintf(path, sizeof(path), "%s/bin/link", top);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_nlink, 2);
    CHECK_INT(st.st_size, 12);
    CHECK_INT(st.st_uid, geteuid());
    snprintf(path, sizeof(path), "%s/bin", top);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mtime, 1000000000);
    tar_scratch_end(top);
}

TEST(an_archive_cut_off_anywhere_is_refused)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct unpack_result out;
    const char *top;

    if (cannot_unpack())
        return;
    sample(&b);
    for (size_t n = 0; n <= b.len; n += 128) {
        struct err err = { 0 };

        top = tar_scratch();
        CHECK_INT(unpack_bytes(b.data, n, top, &out, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK(n < TAR_BLOCK || strstr(err.msg, "entry '"));
        tar_scratch_end(top);
    }
}

static void refused(const struct buf *b, const char *setting, enum err_code code, const char *text)
{
    struct unpack_result out;
    struct err err = { 0 };
    const char *top = tar_scratch();
    int64_t before[] = { *unpack_settings[0].value, *unpack_settings[1].value };

    CHECK_INT(setting ? setting_set(settings, setting, &err) : 0, 0);
    CHECK_INT(unpack_bytes(b->data, b->len, top, &out, &err), -1);
    *unpack_settings[0].value = before[0];
    *unpack_settings[1].value = before[1];
    CHECK_STR(err.msg, text);
    CHECK_INT(err.code, code);
    tar_scratch_end(top);
}

TEST(bounds_name_the_entry_and_the_setting)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (cannot_unpack())
        return;
    sample(&b);
    tar_end(&b);
    refused(&b, "unpack.entries=3", ERR_LIMIT,
            "entry 'bin/link': is one more than unpack.entries (3) allows");
    refused(&b, "unpack.bytes=11", ERR_LIMIT,
            "entry 'bin/sh': brings more than unpack.bytes (11) allows");
}

TEST(a_size_that_is_a_lie_is_refused_before_a_byte_is_written)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (cannot_unpack())
        return;
    tar_add(&b, 'x', "pax", NULL, STR("28 size=9223372036854775000\n"));
    tar_add(&b, '0', "huge", NULL, (struct str){ 0 });
    tar_end(&b);
    refused(&b, NULL, ERR_LIMIT,
            "entry 'huge': brings more than unpack.bytes (68719476736) allows");
}

TEST(what_is_no_archive_says_what_would_be)
{
    AUTO(buf_free) struct buf b = { 0 };

    if (cannot_unpack())
        return;
    buf_puts(&b, "this is not a tar archive");
    refused(&b, NULL, ERR_INVALID,
            "not an archive we read (tar; gzip, bzip2, xz or zstd): Unrecognized archive format");
}

TEST(nothing_of_the_unpacker_stays_behind)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct unpack_result out;
    int first = open("/dev/null", O_RDONLY | O_CLOEXEC), last;

    close(first);
    if (cannot_unpack())
        return;
    sample(&b);
    tar_end(&b);
    for (int i = 0; i < 10; i++) {
        struct err err = { 0 };
        const char *top = tar_scratch();

        CHECK_INT(unpack_bytes(b.data, i % 2 ? b.len : 700, top, &out, &err), i % 2 ? 0 : -1);
        tar_scratch_end(top);
    }
    last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(last);
    CHECK_INT(last, first);
}
