/* test_store_crash.c - the SQLite store in bad times: a full disk, a log that never rests; and
 * copies of it. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/id.h"
#include "store/sqlite.h"
#include "store_fixture.h"

/* ---- a full disk ---- */

/* Writes until there is no room; then makes room and goes on. 0, or the line that failed. */
static int fill(const char *path, int (*make_room)(const char *path))
{
    struct user_change change = USER_UNCHANGED;
    struct user u = { .name = "ann" };
    struct store *s = NULL;
    static char big[8 << 10];
    int acknowledged = 0, n = 0;

    memset(big, 'x', sizeof(big) - 1);
    if (store_open_sqlite(path, &s, &err) || s->ops->user_add(s, &u, &err))
        return __LINE__;
    for (;; acknowledged++) {
        struct sandbox b = sample(u.id);

        b.label = big;
        if (s->ops->sandbox_add(s, &b, NULL, NULL, &err))
            break;
        if (acknowledged == 100000)
            return __LINE__;
    }
    if (err.code != ERR_NO_SPACE || !strstr(err.msg, path))
        return __LINE__;
    if (s->ops->sandbox_live(s, "n1", count, &n, &err) || n != acknowledged)
        return __LINE__;
    if (make_room(path))
        return __LINE__;
    change.locked = true;
    if (s->ops->user_change(s, u.id, &change, &err))
        return __LINE__;
    store_closep(&s);
    n = 0;
    if (store_open_sqlite(path, &s, &err) || s->ops->sandbox_live(s, "n1", count, &n, &err))
        return __LINE__;
    store_closep(&s);
    return n == acknowledged ? 0 : __LINE__;
}

static int raise_bound(const char *path)
{
    struct rlimit l;

    (void)path;
    return getrlimit(RLIMIT_FSIZE, &l) ||
           setrlimit(RLIMIT_FSIZE, &(struct rlimit){ l.rlim_max, l.rlim_max });
}

static void run_child(int (*fn)(void))
{
    pid_t pid = fork();
    int status;

    if (!pid) {
        int line = fn();

        if (line)
            fprintf(stderr, "# line %d: %s\n", line, err.msg);
        _exit(line != 0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

static int fill_to_bound(void)
{
    struct rlimit l;

    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &l) ||
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 3 << 20, l.rlim_max }))
        return __LINE__;
    return fill(scratch_path("bound.db"), raise_bound);
}

TEST(a_bound_on_file_sizes_is_no_space_and_raising_it_lets_work_go_on)
{
    scratch_path(""); /* the directory is this process's */
    run_child(fill_to_bound);
}

static char ballast[160];
static int drop_ballast(const char *path)
{
    (void)path;
    return unlink(ballast);
}

static int fill_disk(void)
{
    char dir[128], path[160], block[64 << 10] = { 1 };

    snprintf(dir, sizeof(dir), "%s", scratch_path("disk"));
    snprintf(path, sizeof(path), "%s/store.db", dir);
    snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
    if (mkdir(dir, 0700) || unshare(CLONE_NEWNS) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("cove-test", dir, "tmpfs", 0, "size=4m"))
        return __LINE__;
    for (int i = 0; i < 16; i++)
        write_at(ballast, i * (off_t)sizeof(block), block, sizeof(block));
    return fill(path, drop_ballast);
}

TEST(a_full_disk_is_no_space_and_making_room_lets_work_go_on)
{
    scratch_path("");
    if (geteuid()) {
        printf("# skipped: mounting a small file system needs root\n");
        return;
    }
    run_child(fill_disk);
}

/* ---- the log, and copies ---- */

/* The log's header counts how often it started over. */
static unsigned times_started_over(const char *wal)
{
    unsigned char number[4] = { 0 };
    int fd = open(wal, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0); /* the log is no file that SQLite has locks on */
    CHECK_INT(pread(fd, number, sizeof(number), 12), sizeof(number));
    close(fd);
    return (unsigned)number[2] << 8 | number[3];
}

TEST(the_log_starts_over_while_writing_never_stops)
{
    const char *path = filled(0);
    struct store *s = open_at(path);
    unsigned before;
    char wal[160];
    int rows = 0;

    snprintf(wal, sizeof(wal), "%s-wal", path);
    sample_user(s, "bob"); /* makes the log */
    before = times_started_over(wal);
    while (rows % 100 || times_started_over(wal) < before + 2) {
        struct sandbox b = sample(1);

        OK(s->ops->sandbox_add(s, &b, NULL, NULL, &err));
        CHECK(++rows < 200000);
    }
    printf("# twice within %d rows\n", rows);
    store_closep(&s);
    CHECK_INT(access(wal, F_OK), -1);
}

TEST(a_backup_is_a_store_of_its_own_made_while_the_other_works)
{
    const char *path = filled(500), *copy = scratch_path("copy.db");
    struct store *s = open_at(path), *c;
    int n = 0;
    char part[160];

    OK(store_backup(s, copy, &err));
    CHECK_INT(mode_of(copy, ""), 0600);
    sample_user(s, "bob"); /* comes too late for the copy */
    FAILS(store_backup(s, copy, &err), ERR_CONFLICT);
    CHECK(strstr(err.msg, copy));
    c = open_at(copy);
    OK(c->ops->sandbox_live(c, "n1", count, &n, &err));
    CHECK_INT(n, 500);
    sample_user(c, "bob");
    store_closep(&c);
    store_closep(&s);
    snprintf(part, sizeof(part), "%s.part", copy);
    CHECK_INT(access(part, F_OK), -1);
}

TEST(a_backup_that_cannot_be_written_leaves_nothing)
{
    struct store *s = open_at(filled(1));
    const char *copy = scratch_path("none/copy.db");

    FAILS(store_backup(s, copy, &err), ERR_NOT_FOUND);
    CHECK(strstr(err.msg, copy));
    store_closep(&s);
}

/* ---- putting one back ---- */

TEST(a_backup_is_put_back_and_what_was_there_stays_beside_it)
{
    const char *path = scratch_path("store.db"), *copy = scratch_path("copy.db");
    AUTO(buf_free) struct buf aside = { 0 };
    struct store *s = open_at(path);
    struct user u;

    sample_user(s, "ann");
    OK(store_sqlite_backup(path, copy, &err)); /* beside a server that uses it */
    sample_user(s, "bob");
    store_closep(&s);
    OK(store_sqlite_restore(copy, path, &aside, &err));
    s = open_at(path);
    OK(s->ops->user_get(s, "ann", &u, &err));
    FAILS(s->ops->user_get(s, "bob", &u, &err), ERR_NOT_FOUND);
    store_closep(&s);
    s = open_at(aside.data);
    OK(s->ops->user_get(s, "bob", &u, &err));
    store_closep(&s);
}

TEST(a_damaged_database_is_replaced_and_kept)
{
    const char *path = scratch_path("store.db"), *copy = scratch_path("copy.db");
    AUTO(buf_free) struct buf aside = { 0 };
    struct store *s = open_at(path);
    struct user u;

    sample_user(s, "ann");
    store_closep(&s);
    OK(store_sqlite_backup(path, copy, &err));
    CHECK_INT(truncate(path, 3000), 0);
    FAILS(store_open_sqlite(path, &s, &err), ERR_INTERNAL);
    CHECK(strstr(err.msg, "cove restore"));
    FAILS(store_sqlite_backup(path, scratch_path("none.db"), &err), ERR_INTERNAL);
    OK(store_sqlite_restore(copy, path, &aside, &err));
    s = open_at(path);
    OK(s->ops->user_get(s, "ann", &u, &err));
    store_closep(&s);
    CHECK_INT(access(aside.data, F_OK), 0);
}

/* The calls by which a restore changes names: one of them fails, or is the last before a crash. */
enum { NEVER_FAILS, EVERY_LINK, ONE, CRASH };
static int calls, at_call, way;

static bool goes_wrong(bool is_link)
{
    if (way == EVERY_LINK) {
        errno = EPERM;
        return is_link;
    }
    if (way == NEVER_FAILS || ++calls != at_call)
        return false;
    if (way == CRASH)
        _exit(77);
    errno = EIO;
    return true;
}

int link(const char *from, const char *to)
{
    return goes_wrong(true) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int rename(const char *from, const char *to)
{
    return goes_wrong(false) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path) { return goes_wrong(false) ? -1 : unlinkat(AT_FDCWD, path, 0); }

/* Its newest row, bob, is in the log alone: as after a power loss. */
static char old_database[128], backup_of_it[128];

static int die_with_bob_in_the_log(void)
{
    struct store *s = NULL;
    struct user u = { .name = "bob" };

    if (store_open_sqlite(old_database, &s, &err) || s->ops->user_add(s, &u, &err))
        return __LINE__;
    _exit(0);
}

static void make_old(const char *name)
{
    struct store *s;

    snprintf(old_database, sizeof(old_database), "%s", scratch_path(name));
    s = open_at(old_database);
    sample_user(s, "ann");
    store_closep(&s);
    snprintf(backup_of_it, sizeof(backup_of_it), "%s", scratch_path("backup.db"));
    OK(store_sqlite_backup(old_database, backup_of_it, &err));
    run_child(die_with_bob_in_the_log);
}

static bool has_bob(const char *path)
{
    struct store *s = open_at(path);
    struct user u;
    bool found;

    OK(s->ops->user_get(s, "ann", &u, &err));
    err = (struct err){ 0 };
    found = !s->ops->user_get(s, "bob", &u, &err);
    store_closep(&s);
    return found;
}

/* In a process of its own. Its exit status: 0 restored, 1 said that it failed, 77 crashed, 10
 * restored before it came to that call. */
static int restored(int how, int nth)
{
    AUTO(buf_free) struct buf aside = { 0 };
    pid_t pid = fork();
    int status, r;

    if (!pid) {
        way = how;
        at_call = nth;
        r = store_sqlite_restore(backup_of_it, old_database, &aside, &err) ? 1 : 0;
        way = NEVER_FAILS;
        if (!r && !has_bob(aside.data))
            r = 2;
        _exit(!r && calls < at_call ? 10 : r);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void at_every_call(int how, int status)
{
    int n = 1, r;

    for (r = 0; r != 10; n++) {
        char name[32];

        snprintf(name, sizeof(name), "%d-%d.db", how, n);
        make_old(name);
        r = restored(how, n);
        if (r != status && r && r != 10)
            test_fail(__FILE__, __LINE__, "call %d: status %d", n, r);
        CHECK_INT(has_bob(old_database), r == status);
        if (r == status) /* nothing of it is in the way */
            CHECK_INT(restored(NEVER_FAILS, 0), 0);
        CHECK(!has_bob(old_database));
    }
    CHECK(n > 7); /* the calls are ours: not one of them was missed */
}

TEST(a_restore_that_fails_at_any_call_leaves_the_old_database_with_its_log)
{
    at_every_call(ONE, 1);
}

TEST(a_restore_that_crashes_at_any_call_leaves_the_old_database_with_its_log)
{
    at_every_call(CRASH, 77);
}

TEST(a_backup_is_put_back_where_no_file_can_have_two_names)
{
    make_old("store.db");
    CHECK_INT(restored(EVERY_LINK, 0), 0);
    CHECK(!has_bob(old_database));
}

TEST(a_damaged_database_is_kept_with_its_log)
{
    AUTO(buf_free) struct buf aside = { 0 };
    static const char noise[8192] = { 'x' };
    struct stat st;

    make_old("store.db");
    write_at(old_database, 0, noise, sizeof(noise));
    OK(store_sqlite_restore(backup_of_it, old_database, &aside, &err));
    CHECK(!has_bob(old_database));
    CHECK(!stat(aside.data, &st) && st.st_size >= (off_t)sizeof(noise));
    buf_puts(&aside, "-wal");
    CHECK(!stat(aside.data, &st) && st.st_size > 0);
}

static void not_restored(const char *from, enum err_code code, const char *says)
{
    const char *path = scratch_path("store.db");
    AUTO(buf_free) struct buf aside = { 0 }, part = { 0 };
    struct store *s = open_at(path);
    struct user u;

    sample_user(s, "ann");
    store_closep(&s);
    FAILS(store_sqlite_restore(from, path, &aside, &err), code);
    CHECK(strstr(err.msg, says));
    buf_printf(&part, "%s.part", path);
    CHECK_INT(access(part.data, F_OK), -1);
    s = open_at(path);
    OK(s->ops->user_get(s, "ann", &u, &err));
    store_closep(&s);
}

TEST(what_is_no_whole_backup_is_refused_and_changes_nothing)
{
    const char *text = scratch_path("text"), *used = scratch_path("used.db");
    int fd = open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct store *s = open_at(used);

    not_restored(text, ERR_PRECONDITION, "empty");
    CHECK_INT(write(fd, "words, words", 12), 12);
    not_restored(text, ERR_INTERNAL, "no database");
    not_restored(scratch_path("none"), ERR_NOT_FOUND, "open the backup");
    sample_user(s, "ann");
    not_restored(used, ERR_PRECONDITION, "in use");
    store_closep(&s);
    close(fd);
}

TEST(a_database_that_is_not_there_has_no_backup)
{
    FAILS(store_sqlite_backup(scratch_path("none.db"), scratch_path("copy.db"), &err),
          ERR_NOT_FOUND);
}
