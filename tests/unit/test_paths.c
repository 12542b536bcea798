/* test_paths.c - names stay inside the root; trees are removed whole. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/mem.h"
#include "guest/path.h"
#include "guest/remove.h"
#include "guest/user.h"
#include "test.h"

static char dir[64];
static int root;
static struct arena arena;
static const struct user nobody = { .name = "me", .home = "/home/me" };

static void begin(void)
{
    snprintf(dir, sizeof(dir), "/tmp/cove-test-XXXXXX");
    CHECK(mkdtemp(dir));
    root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(root >= 0);
}

static void end(void)
{
    struct err err = { 0 };

    CHECK_INT(remove_tree(AT_FDCWD, dir, &err), 0);
    CHECK_INT(access(dir, F_OK), -1);
    close(root);
    arena_free(&arena);
}

TEST(names_are_expanded_as_the_protocol_says)
{
    CHECK_STR(path_expand(&arena, "", &nobody, NULL), "/home/me");
    CHECK_STR(path_expand(&arena, "", &nobody, "/work"), "/work");
    CHECK_STR(path_expand(&arena, "", &nobody, "~/w"), "/home/me/w");
    CHECK_STR(path_expand(&arena, "~", &nobody, "/work"), "/home/me");
    CHECK_STR(path_expand(&arena, "~/x", &nobody, NULL), "/home/me/x");
    CHECK_STR(path_expand(&arena, "~x", &nobody, NULL), "/home/me/~x");
    CHECK_STR(path_expand(&arena, "a/b", &nobody, "/work"), "/home/me/a/b");
    CHECK_STR(path_expand(&arena, "/a/../b", &nobody, NULL), "/a/../b");
    arena_free(&arena);
}

TEST(dots_and_links_lead_nowhere_outside)
{
    struct stat inside, seen;
    int fd;

    begin();
    CHECK_INT(fstat(root, &inside), 0);
    fd = path_open(root, "/../../..", O_PATH, 0);
    CHECK(fd >= 0);
    CHECK_INT(fstat(fd, &seen), 0);
    CHECK_INT(seen.st_ino, inside.st_ino);
    close(fd);
    CHECK_INT(symlinkat("/etc/passwd", root, "absolute"), 0);
    CHECK_INT(path_open(root, "/absolute", O_RDONLY, 0), -1);
    CHECK_INT(errno, ENOENT);
    CHECK_INT(symlinkat("../../../../etc/passwd", root, "relative"), 0);
    CHECK_INT(path_open(root, "/relative", O_RDONLY, 0), -1);
    CHECK_INT(symlinkat("loop", root, "loop"), 0);
    CHECK_INT(path_open(root, "/loop", O_RDONLY, 0), -1);
    CHECK_INT(errno, ELOOP);
    end();
}

TEST(the_magic_links_of_proc_are_not_followed)
{
    int slash = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    CHECK_INT(path_open(slash, "/proc/self/root/etc", O_PATH, 0), -1);
    CHECK_INT(errno, ELOOP);
    CHECK_INT(path_open(slash, "/proc/self/cwd", O_PATH | O_DIRECTORY, 0), -1);
    close(slash);
}

TEST(missing_parents_are_made_inside)
{
    struct err err = { 0 };
    char *name;
    int fd;

    begin();
    fd = path_open_parent(&arena, root, "/a/b/../c/file", &nobody, &name, &err);
    CHECK(fd >= 0); /* as mkdir -p does it: b is made, then left again */
    close(fd);
    CHECK_INT(faccessat(root, "a/c", F_OK, 0), 0);
    fd = path_open_parent(&arena, root, "/a/b/c/file/", &nobody, &name, &err);
    CHECK(fd >= 0);
    CHECK_STR(name, "file");
    close(fd);
    CHECK_INT(faccessat(root, "a/b/c", F_OK, 0), 0);
    CHECK_INT(path_open_parent(&arena, root, "/a/b/..", NULL, &name, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(path_open_parent(&arena, root, "/", NULL, &name, &err), -1);
    CHECK_INT(path_open_parent(&arena, root, "/nope/x", NULL, &name, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    end();
}

TEST(a_very_deep_tree_is_removed_without_following_links)
{
    struct err err = { 0 };
    int at, outside;

    begin();
    CHECK_INT(mkdirat(root, "keep", 0755), 0);
    outside = openat(root, "keep/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(outside >= 0);
    close(outside);
    CHECK_INT(mkdirat(root, "deep", 0755), 0);
    at = openat(root, "deep", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3000; i++) {
        int next;

        CHECK_INT(mkdirat(at, "d", 0755), 0);
        if (i % 100 == 0)
            CHECK_INT(symlinkat("/keep", at, "link"), 0);
        next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        close(at);
        at = next;
    }
    close(at);
    CHECK_INT(remove_tree(root, "deep", &err), 0);
    CHECK_INT(faccessat(root, "deep", F_OK, 0), -1);
    CHECK_INT(faccessat(root, "keep/file", F_OK, 0), 0);
    CHECK_INT(remove_tree(root, "missing", &err), 0);
    end();
}

TEST(lines_of_passwd_are_split_and_comments_skipped)
{
    struct str rest = STR("# no\n\nroot:x:0:0:r:/root:/bin/bash\nshort:x:1"), f[7];
    int n;

    CHECK(user_next_line(&rest, f, &n));
    CHECK_INT(n, 7);
    CHECK(str_is(f[5], "/root"));
    CHECK(user_next_line(&rest, f, &n));
    CHECK_INT(n, 3);
    CHECK(!user_next_line(&rest, f, &n));
}
