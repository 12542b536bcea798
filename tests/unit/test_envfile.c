/* test_envfile.c - settings in a file: what a line means, which lines are refused, whose file
 * counts. */
#include "base/envfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static struct arena arena;
static struct envfile file;
static struct err err;

static int parse(const char *text)
{
    envfile_free(&file);
    arena_free(&arena);
    err = (struct err){ 0 };
    return envfile_parse(str_of(text), &arena, &file, &err);
}

static const char *value(const char *text)
{
    CHECK_INT(parse(text), 0);
    CHECK_INT(file.n, 1);
    CHECK_STR(file.items[0].name, "A");
    return file.items[0].value;
}

TEST(a_value_is_what_is_behind_the_sign)
{
    CHECK_STR(value("A=1"), "1");
    CHECK_STR(value("A=1\n"), "1");
    CHECK_STR(value("A=1\r\n"), "1");
    CHECK_STR(value("  A=1  "), "1");
    CHECK_STR(value("A="), "");
    CHECK_STR(value("A=  "), "");
    CHECK_STR(value("A=two words"), "two words");
    CHECK_STR(value("A=x=y"), "x=y");
    CHECK_STR(value("export A=1"), "1");
    CHECK_STR(value("export\t A=1"), "1");
    CHECK_STR(value("\xef\xbb\xbf"
                    "A=1"),
              "1");
}

TEST(a_comment_begins_behind_a_blank)
{
    CHECK_STR(value("A=1 # one"), "1");
    CHECK_STR(value("A=1#one"), "1#one");
    CHECK_STR(value("A=#one"), "");
    CHECK_STR(value("# B=2\n\n   # C\nA=1"), "1");
    CHECK_INT(file.items[0].line, 4);
}

TEST(quotes_keep_what_is_in_them)
{
    CHECK_STR(value("A='a b # \"$X'"), "a b # \"$X");
    CHECK_STR(value("A=\" a \""), " a ");
    CHECK_STR(value("A=\"a\\nb\\tc\\\"d\\\\e\\$f\""), "a\nb\tc\"d\\e$f");
    CHECK_STR(value("A='\\n'"), "\\n");
    CHECK_STR(value("A=\"x\"   # y"), "x");
    CHECK_STR(value("A=a\"b\""), "a\"b\"");
}

TEST(nothing_is_expanded) { CHECK_STR(value("A=$HOME/`id`/$(id)"), "$HOME/`id`/$(id)"); }

TEST(a_bad_line_is_named_and_its_value_is_not)
{
    static const char *const bad[] = { "A",      "A B=1",        "=1",         "1A=secret",
                                       "A =1",   "A='secret",    "A=\"secret", "A='secret'x",
                                       "A-B=1",  "A=\"secret\\", "export",     "export A",
                                       "A='x' y" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[64];

        snprintf(text, sizeof(text), "OK=1\n\n%s\n", bad[i]);
        CHECK_INT(parse(text), -1);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK(!strncmp(err.msg, "line 3: ", 8));
        CHECK(!strstr(err.msg, "secret"));
        CHECK_INT(file.n, 0);
    }
    envfile_free(&file);
    CHECK_INT(envfile_parse((struct str){ "A=\0b", 4 }, &arena, &file, &err), -1);
}

TEST(the_last_of_a_name_counts)
{
    CHECK_INT(parse("A=1\nB=2\nA=3\n"), 0);
    CHECK_STR(envfile_find(&file, "A")->value, "3");
    CHECK_INT(envfile_find(&file, "A")->line, 3);
    CHECK(!envfile_find(&file, "C"));
}

static char dir[] = "/tmp/cove-test-XXXXXX";
static char path[64];

static void write_file(const char *text, mode_t mode)
{
    int fd;

    unlink(path);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
    CHECK_INT(fchmod(fd, mode), 0);
    close(fd);
    err = (struct err){ 0 };
}

TEST(a_file_fills_what_the_environment_lacks)
{
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/env", dir);
    write_file("COVE_TEST_A=file\nCOVE_TEST_B=first\nCOVE_TEST_B=second\n", 0644);
    setenv("COVE_TEST_A", "set", 1);
    unsetenv("COVE_TEST_B");
    CHECK_INT(envfile_load(path, true, &err), 1);
    CHECK_STR(getenv("COVE_TEST_A"), "set");
    CHECK_STR(getenv("COVE_TEST_B"), "second");
}

TEST(a_file_that_others_can_write_is_refused)
{
    write_file("COVE_TEST_C=1\n", 0666);
    CHECK_INT(envfile_load(path, true, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK(!getenv("COVE_TEST_C"));
    write_file("COVE_TEST_C=1\n", 0620);
    CHECK_INT(envfile_load(path, true, &err), -1);
    CHECK_INT(envfile_load(dir, true, &err), -1); /* a directory */
}

TEST(a_missing_file_matters_only_if_it_was_named)
{
    unlink(path);
    CHECK_INT(envfile_load(path, false, &err), 0);
    CHECK_INT(envfile_load(path, true, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    rmdir(dir);
    envfile_free(&file);
    arena_free(&arena);
}
