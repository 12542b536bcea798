/* test_statedir.c - the directories of the keeper's files: which schema they have, how those of the
 * release before become ours, and what a file is when its writer was killed. */
#include "keep/statedir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

static char dir[64];
static struct err err;

static void in_new_directory(void)
{
    snprintf(dir, sizeof(dir), "%s", "/tmp/cove-statedir-XXXXXX");
    CHECK(mkdtemp(dir));
    CHECK_INT(chdir(dir), 0);
    err = (struct err){ 0 };
}

static void leave_directory(void)
{
    char command[96];

    CHECK_INT(chdir("/"), 0);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    CHECK_INT(system(command), 0); // NOLINT(cert-env33-c): a directory of the test's own
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");

    CHECK(f);
    fputs(text, f);
    fclose(f);
}

static void check_text(const char *name, const char *want)
{
    char text[128] = "";
    FILE *f = fopen(name, "r");

    if (!f)
        test_fail(__FILE__, __LINE__, "no %s", name);
    CHECK(fread(text, 1, sizeof(text) - 1, f) == strlen(want));
    fclose(f);
    CHECK_STR(text, want);
}

static void check_link(const char *name, const char *want)
{
    char to[64] = "";

    CHECK(readlink(name, to, sizeof(to) - 1) > 0);
    CHECK_STR(to, want);
}

TEST(a_directory_without_a_schema_is_taken_and_stamped)
{
    in_new_directory();
    CHECK_INT(schema_check(dir, &err), 0);
    CHECK_INT(schema_raise(dir, &err), 0);
    check_text("schema", "4\n");
    CHECK_INT(schema_check(dir, &err), 0);
    CHECK_INT(schema_raise(dir, &err), 0);
    leave_directory();
}

TEST(a_newer_schema_is_refused_and_an_older_one_raised)
{
    in_new_directory();
    put("schema", "5\n");
    CHECK_INT(schema_check(dir, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(strstr(err.msg, "was used by a newer release of Cove (schema 5; this one knows 4)"));
    put("schema", "3");
    CHECK_INT(schema_check(dir, &err), 0);
    CHECK_INT(schema_raise(dir, &err), 0);
    check_text("schema", "4\n");
    put("schema", "three\n");
    CHECK_INT(schema_check(dir, &err), -1);
    CHECK(strstr(err.msg, "is damaged: it should hold the number 4"));
    leave_directory();
}

TEST(a_new_directory_is_behind_a_link)
{
    int fd;

    in_new_directory();
    fd = statedir_open(dir, "boxes", &err);
    CHECK(fd >= 0);
    close(fd);
    check_link("boxes", "boxes-3");
    fd = statedir_open(dir, "boxes", &err);
    CHECK(fd >= 0);
    close(fd);
    leave_directory();
}

static void make_old(void)
{
    in_new_directory();
    CHECK_INT(mkdir("boxes", 0700), 0);
    put("boxes/a1", "old");
}

static void check_taken_over(void)
{
    int fd = statedir_open(dir, "boxes", &err);

    if (fd < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    close(fd);
    check_link("boxes", "boxes-3");
    check_text("boxes-3/a1", "old");
    CHECK(access(".boxes", F_OK) < 0);
    leave_directory();
}

TEST(the_directory_of_the_release_before_is_taken_over)
{
    make_old();
    check_taken_over();
}

TEST(killed_before_the_exchange_it_is_taken_over_later)
{
    make_old();
    CHECK_INT(symlink("boxes-3", ".boxes"), 0);
    check_taken_over();
}

TEST(killed_behind_the_exchange_it_is_taken_over_later)
{
    make_old();
    CHECK_INT(symlink("boxes-3", ".boxes"), 0);
    CHECK_INT(renameat2(AT_FDCWD, ".boxes", AT_FDCWD, "boxes", RENAME_EXCHANGE), 0);
    check_taken_over();
}

TEST(release_46eceed_cannot_open_it)
{
    int at, fd;

    in_new_directory();
    fd = statedir_open(dir, "boxes", &err);
    CHECK(fd >= 0);
    close(fd);
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(mkdirat(at, "boxes", 0700) < 0);
    CHECK(openat(at, "boxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) < 0);
    close(at);
    leave_directory();
}

TEST(two_directories_are_a_persons_business)
{
    make_old();
    CHECK_INT(mkdir("boxes-3", 0700), 0);
    CHECK_INT(statedir_open(dir, "boxes", &err), -1);
    CHECK(strstr(err.msg, "has both boxes and boxes-3"));
    CHECK_INT(unlink("boxes/a1"), 0);
    CHECK_INT(rmdir("boxes"), 0);
    CHECK_INT(symlink("boxes-9", "boxes"), 0);
    CHECK_INT(statedir_open(dir, "boxes", &err), -1);
    CHECK(strstr(err.msg, "leads to boxes-9, not to boxes-3"));
    leave_directory();
}

static void check_read(int at, struct str want)
{
    AUTO(buf_free) struct buf in = { 0 };

    CHECK_INT(statedir_read(at, "a1", &in, &err), 0);
    CHECK(in.len >= want.n && !memcmp(in.data, want.p, want.n));
}

TEST(a_file_is_written_in_each_way_and_read_again)
{
    AUTO(freep) char *big = malloc(9000);
    int at;

    in_new_directory();
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memset(big, 'b', 9000);
    for (enum statedir_how how = STATE_IN_PLACE; how <= STATE_LASTING; how++) {
        CHECK_INT(statedir_write(at, "a1", STR("small"), how, &err), 0);
        check_read(at, STR("small"));
        CHECK_INT(statedir_write(at, "a1", (struct str){ big, 9000 }, how, &err), 0);
        check_read(at, (struct str){ big, 9000 });
        CHECK_INT(statedir_write(at, "a1", STR("less"), how, &err), 0);
        check_read(at, STR("less"));
        CHECK(faccessat(at, ".a1", F_OK, 0) < 0);
    }
    close(at);
    leave_directory();
}

TEST(what_is_no_file_or_too_long_is_said)
{
    AUTO(buf_free) struct buf in = { 0 };
    int at;

    in_new_directory();
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(statedir_read(at, "a1", &in, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(mkdir("a1", 0700), 0);
    CHECK_INT(statedir_read(at, "a1", &in, &err), -1);
    CHECK_STR(err.msg, "it is no regular file");
    CHECK_INT(rmdir("a1"), 0);
    put("a1", "");
    CHECK_INT(truncate("a1", 1 << 20), 0);
    CHECK_INT(statedir_read(at, "a1", &in, &err), -1);
    CHECK_STR(err.msg, "it has 1048576 bytes; at most 65536");
    close(at);
    leave_directory();
}

TEST(a_damaged_file_keeps_a_second_name)
{
    int at;

    in_new_directory();
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put("a1", "damaged");
    statedir_set_aside(at, "a1");
    statedir_set_aside(at, "a1");
    CHECK_INT(unlink("a1"), 0);
    check_text("a1.damaged", "damaged");
    close(at);
    leave_directory();
}

TEST(a_draft_has_no_name_until_it_is_given_one)
{
    int at, draft;

    in_new_directory();
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put("a1", "before");
    put(".a1", "of one who was killed");
    draft = statedir_draft(at, STR("now"), &err);
    CHECK(draft >= 0);
    check_text("a1", "before");
    CHECK_INT(statedir_place(at, draft, "a1", &err), 0);
    check_text("a1", "now");
    CHECK_INT(access(".a1", F_OK), -1);
    close(draft);
    draft = statedir_draft(at, STR("later"), &err);
    CHECK_INT(mkdir(".a1", 0700), 0); /* in the way */
    CHECK_INT(statedir_place(at, draft, "a1", &err), -1);
    check_text("a1", "now");
    close(draft);
    close(at);
    leave_directory();
}
