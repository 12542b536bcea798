/* test_ids.c - numbers of sandboxes: taken once, given back by whatever end, never somebody else's.
 */
#include "jail/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

static char dir[] = "/tmp/cove-ids-XXXXXX", path[64], note[64];
static struct ids ids;
static struct err err;

static void begin(void)
{
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/ids", dir);
    snprintf(note, sizeof(note), "%s/note", dir);
    CHECK_INT(ids_open(&ids, path, &err), 0);
}

static void end(void)
{
    ids_close(&ids);
    unlink(note);
    CHECK_INT(rmdir(path), 0); /* nothing is left in it */
    CHECK_INT(rmdir(dir), 0);
}

static bool exists(uint32_t number)
{
    char file[96];

    snprintf(file, sizeof(file), "%s/%u", path, number);
    return !access(file, F_OK);
}

static void make_note(void) { close(open(note, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }

/* Another keeper: takes a number in a process of its own and is killed, or stays. */
static pid_t other_keeper(uint32_t *number, bool stays, bool leaves_note)
{
    int out[2];
    pid_t pid;

    CHECK_INT(pipe2(out, O_CLOEXEC), 0);
    pid = fork();
    if (!pid) {
        struct ids own;
        struct ids_claim c;

        if (ids_open(&own, path, &err) || ids_take(&own, &c, &err) ||
            (leaves_note && ids_note(&c, note, &err)) || write(out[1], &c.number, 4) != 4)
            _exit(1);
        if (stays)
            pause();
        kill(getpid(), SIGKILL);
    }
    close(out[1]);
    CHECK_INT(read(out[0], number, 4), 4);
    close(out[0]);
    if (!stays)
        CHECK_INT(waitpid(pid, NULL, 0), pid);
    return pid;
}

TEST(the_directory_is_for_its_owner_alone)
{
    struct stat st;

    begin();
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    end();
}

TEST(numbers_differ_and_stand_for_ranges_that_do_not_touch)
{
    struct ids_claim c[100];

    begin();
    for (int i = 0; i < 100; i++) {
        CHECK_INT(ids_take(&ids, &c[i], &err), 0);
        CHECK(c[i].number >= 2 && c[i].number < IDS_NUMBERS); /* 0 and 1 are the network's own */
        CHECK(exists(c[i].number));
        for (int j = 0; j < i; j++)
            CHECK(c[i].number != c[j].number);
    }
    CHECK_INT(ids_host(1) - ids_host(0), IDS_RANGE);
    CHECK((uint64_t)ids_host(0) + (uint64_t)IDS_NUMBERS * IDS_RANGE <= UINT32_MAX);
    for (int i = 0; i < 100; i++)
        ids_put(&ids, &c[i]);
    end();
}

TEST(a_number_is_gone_when_given_back_and_giving_back_twice_is_harmless)
{
    struct ids_claim c;

    begin();
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    ids_put(&ids, &c);
    CHECK(!exists(c.number));
    CHECK_INT(c.lock, -1);
    ids_put(&ids, &c);
    end();
}

TEST(another_keepers_number_is_not_given_out)
{
    struct ids_claim c;
    uint32_t number;
    pid_t pid;

    begin();
    pid = other_keeper(&number, true, false);
    ids.next = number;
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    CHECK(c.number != number);
    ids_put(&ids, &c);
    CHECK_INT(ids_retake(&ids, number, &c, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    ids_sweep(&ids);
    CHECK(exists(number));
    kill(pid, SIGKILL);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    ids_sweep(&ids);
    CHECK(!exists(number));
    end();
}

TEST(a_killed_keeper_gives_its_numbers_back)
{
    struct ids_claim c;
    uint32_t number;

    begin();
    other_keeper(&number, false, false);
    CHECK(exists(number)); /* nobody could remove it, but nobody holds it */
    ids.next = number;
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    CHECK_INT(c.number, number);
    ids_put(&ids, &c);
    end();
}

TEST(a_note_keeps_a_number_while_what_it_names_exists)
{
    struct ids_claim c;
    uint32_t number;

    begin();
    make_note();
    other_keeper(&number, false, true);
    ids.next = number;
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    CHECK(c.number != number);
    ids_put(&ids, &c);
    ids_sweep(&ids);
    CHECK(exists(number));
    CHECK_INT(ids_retake(&ids, number, &c, &err), 0); /* who adopts its sandbox */
    CHECK_INT(c.number, number);
    close(c.lock);
    unlink(note);
    ids_sweep(&ids);
    CHECK(!exists(number));
    end();
}

TEST(a_note_has_a_bound)
{
    static char large[600];
    char text[16] = "";
    struct ids_claim c;

    begin();
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    memset(large, 'a', sizeof(large) - 1);
    CHECK_INT(ids_note(&c, large, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(ids_note(&c, "/long/path", &err), 0);
    CHECK_INT(ids_note(&c, "/x", &err), 0); /* a shorter one leaves nothing of the longer */
    CHECK_INT(pread(c.lock, text, sizeof(text) - 1, 0), 2);
    CHECK_STR(text, "/x");
    ids_put(&ids, &c);
    end();
}

TEST(numbers_that_are_none_cannot_be_adopted)
{
    struct ids_claim c;

    begin();
    CHECK_INT(ids_retake(&ids, IDS_NUMBERS, &c, &err), -1);
    CHECK_INT(ids_retake(&ids, UINT32_MAX, &c, &err), -1);
    end();
}

TEST(ranges_of_the_distribution_are_left_alone)
{
    struct ids_claim c;
    char text[200];

    begin();
    ids.nforeign = 0; /* whatever this machine's own files say */
    snprintf(text, sizeof(text), "ann:%u:65536\nbob:%u:1\n", ids_host(10), ids_host(12) + 65535);
    ids_read_foreign(&ids, str_of(text));
    CHECK_INT(ids.nforeign, 2);
    ids.next = 10;
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    CHECK_INT(c.number, 11);
    ids_put(&ids, &c);
    ids.next = 12;
    CHECK_INT(ids_take(&ids, &c, &err), 0);
    CHECK_INT(c.number, 13);
    ids_put(&ids, &c);
    end();
}

TEST(lines_that_make_no_sense_or_do_not_reach_us_are_skipped)
{
    begin();
    ids.nforeign = 0;
    ids_read_foreign(&ids, STR("\n# no\nann\nann:1\nann:x:1\nann:1:x\nann:-1:5\nann:100000:65536\n"
                               "ann:4294967295:0\nann:5:18446744073709551615\n"
                               "ann:18446744073709551615:1\nann:3221225472:18446744073709551615\n"
                               "ann:99999999999999999999:1"));
    CHECK_INT(ids.nforeign, 0);
    ids_read_foreign(&ids, STR("ann:805306367:2")); /* one id of ours, without a line's end */
    CHECK_INT(ids.nforeign, 1);
    end();
}

TEST(all_taken_is_said)
{
    struct ids_claim c;

    begin();
    ids.nforeign = 0;
    ids_read_foreign(&ids, STR("all:0:4294967295"));
    CHECK_INT(ids_take(&ids, &c, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK(strstr(err.msg, "/etc/subuid"));
    end();
}

TEST(a_sweep_touches_only_numbers)
{
    char file[96];

    begin();
    snprintf(file, sizeof(file), "%s/README", path);
    close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ids_sweep(&ids);
    CHECK_INT(unlink(file), 0);
    end();
}
