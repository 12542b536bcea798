/* test_place.c - the identity of a data directory: made once, by whoever comes first, and never
 * changed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "jail/rmtree.h"
#include "keep/keep.h"
#include "test.h"

enum { STARTERS = 12, KILLS = 40 };

static char top[64], data[80], run[80];
static struct keep_owner one, two;
static struct err err;

static void begin(void)
{
    snprintf(top, sizeof(top), "/tmp/cove-place-XXXXXX");
    CHECK(mkdtemp(top));
    snprintf(data, sizeof(data), "%s/data", top);
    snprintf(run, sizeof(run), "%s/run", top);
    CHECK_INT(mkdir(data, 0700), 0);
    CHECK_INT(mkdir(run, 0755), 0);
    err = (struct err){ 0 };
}

static void end(void)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK_INT(rmtree(tmp, top + strlen("/tmp/")), 0);
    close(tmp);
}

static void put(const char *dir, const char *name, const char *text)
{
    AUTO(freep) char *path = NULL;
    FILE *f;

    CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
    f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST(it_is_made_once_and_stays)
{
    AUTO(freep) char *path = NULL;
    struct stat st;

    begin();
    CHECK_INT(keep_owner_read(data, &one, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(keep_owner_make(data, run, &one, &err), 0);
    CHECK_INT(strlen(one.identity), KEEP_IDENTITY - 1);
    CHECK_INT(keep_owner_make(data, run, &two, &err), 0);
    CHECK(keep_owner_same(&one, &two));
    CHECK_INT(keep_owner_read(data, &two, &err), 0);
    CHECK(keep_owner_same(&one, &two));
    CHECK(asprintf(&path, "%s/id", data) > 0);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK_INT(st.st_size, KEEP_IDENTITY);
    end();
}

TEST(all_who_begin_at_once_get_the_same)
{
    int pipes[2];

    begin();
    CHECK_INT(pipe(pipes), 0);
    for (int i = 0; i < STARTERS; i++)
        if (!fork())
            _exit(keep_owner_make(data, run, &one, &err) ||
                  write(pipes[1], &one, sizeof(one)) != sizeof(one));
    for (int i = 0, status; i < STARTERS; i++) {
        CHECK(wait(&status) > 0 && !status);
        CHECK_INT(read(pipes[0], i ? &two : &one, sizeof(one)), sizeof(one));
        CHECK(!i || keep_owner_same(&one, &two));
    }
    close(pipes[0]);
    close(pipes[1]);
    end();
}

/* Whenever it is killed: the file is whole or absent, and the next one goes on from there. */
TEST(who_is_killed_leaves_a_whole_one_or_none)
{
    for (int i = 0; i < KILLS; i++) {
        pid_t pid;

        begin();
        pid = fork();
        if (!pid)
            _exit(keep_owner_make(data, run, &one, &err) != 0);
        usleep((useconds_t)i * 10);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (keep_owner_read(data, &one, &err))
            CHECK_INT(err.code, ERR_NOT_FOUND);
        CHECK_INT(keep_owner_make(data, run, &two, &err), 0);
        CHECK(!*one.identity || keep_owner_same(&one, &two));
        end();
    }
}

TEST(a_damaged_one_is_refused_and_named)
{
    static const char *const damaged[] = { "",
                                           "\n",
                                           "abc\n",
                                           "0123456789abcdef",
                                           "../../../../etc/x\n",
                                           "0123456789abcdef0\n",
                                           "0123456789ABCDEF\n" };

    begin();
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        put(data, "id", damaged[i]);
        CHECK_INT(keep_owner_make(data, run, &one, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK(strstr(err.msg, "/id is damaged"));
    }
    end();
}

/* By what its keeper left in the run directory, and by nothing else. */
TEST(one_that_was_lost_is_found_again)
{
    AUTO(freep) char *place = NULL, *id = NULL;
    char holder[300];

    begin();
    CHECK_INT(keep_owner_make(data, run, &one, &err), 0);
    place = keep_place(run, &one);
    CHECK_INT(mkdir(place, 0755), 0);
    CHECK(asprintf(&id, "%s/id", data) > 0);
    snprintf(holder, sizeof(holder), "1 %llu %llu %s\n", (unsigned long long)one.device,
             (unsigned long long)one.inode, one.data_dir);
    put(place, "keep.lock", holder);
    CHECK_INT(unlink(id), 0);
    CHECK_INT(keep_owner_make(data, run, &two, &err), 0);
    CHECK(keep_owner_same(&one, &two));
    snprintf(holder, sizeof(holder), "1 %llu %llu /another\n", (unsigned long long)one.device,
             (unsigned long long)one.inode);
    put(place, "keep.lock", holder);
    CHECK_INT(unlink(id), 0);
    CHECK_INT(keep_owner_make(data, run, &two, &err), 0);
    CHECK(!keep_owner_same(&one, &two));
    end();
}

TEST(a_copy_has_its_name_and_is_another)
{
    char copy[80], text[KEEP_IDENTITY + 1];

    begin();
    CHECK_INT(keep_owner_make(data, run, &one, &err), 0);
    snprintf(copy, sizeof(copy), "%s/copy", top);
    CHECK_INT(mkdir(copy, 0700), 0);
    snprintf(text, sizeof(text), "%s\n", one.identity);
    put(copy, "id", text);
    CHECK_INT(keep_owner_read(copy, &two, &err), 0);
    CHECK_STR(two.identity, one.identity);
    CHECK(!keep_owner_same(&one, &two));
    end();
}
