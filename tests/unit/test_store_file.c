/* test_store_file.c - the SQLite store as a file: its versions, what is refused and left as it is,
 * a full disk, kill -9 at any moment, the length of its log, copies of it. */
#include <grp.h>
#include <sys/wait.h>

#include "base/id.h"
#include "store/sqlite.h"
#include "store_fixture.h"
#include "store_v1.h"

static void refused(const char *path, enum err_code code, const char *says)
{
    struct store *s = NULL;

    CHECK_INT(store_open_sqlite(path, &s, &err), -1);
    CHECK(!s);
    if (!strstr(err.msg, says) || !strstr(err.msg, path))
        test_fail(__FILE__, __LINE__, "'%s' does not say '%s' of %s", err.msg, says, path);
    CHECK_INT(err.code, code);
}

/* Runs SQL on a file from outside. */
static void sql(const char *path, const char *text)
{
    sqlite3 *db = NULL;

    CHECK_INT(lazy_load(&lazy_sqlite, &err), 0);
    CHECK_INT(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
              SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, NULL))
        test_fail(__FILE__, __LINE__, "%s", sqlite3_errmsg(db));
    sqlite3_close_v2(db);
}

static void contents(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "re");
    char block[4096];
    size_t n;

    CHECK(f);
    while ((n = fread(block, 1, sizeof(block), f)))
        buf_add(out, block, n);
    fclose(f);
}

/* ---- making and opening ---- */

TEST(nobody_else_can_read_the_file_or_its_log)
{
    const char *path = scratch_path("store.db");
    mode_t old = umask(0);
    struct store *s = open_at(path);

    umask(old);
    sample_user(s, "ann");
    CHECK_INT(mode_of(path, ""), 0600);
    CHECK_INT(mode_of(path, "-wal"), 0600);
    CHECK_INT(mode_of(path, "-shm"), 0600);
    store_closep(&s);
    CHECK_INT(chmod(path, 0644), 0);
    s = open_at(path);
    CHECK_INT(mode_of(path, ""), 0600);
    store_closep(&s);
}

TEST(a_file_that_another_program_holds_is_unavailable_not_damaged)
{
    const char *path = filled(0);
    struct store *s = open_at(path);
    struct user u = { .name = "bob" };
    sqlite3 *other = NULL;

    CHECK_INT(sqlite3_open_v2(path, &other, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_busy_timeout(SELF(s)->writer.db, 30);
    FAILS(s->ops->user_add(s, &u, &err), ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, path));
    OK(s->ops->user_get(s, "ann", &u, &err)); /* readers do not wait for it */
    sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close_v2(other);
    sample_user(s, "bob");
    store_closep(&s);
}

static int synchronous(struct conn *c)
{
    sqlite3_stmt *stmt = NULL;
    int level;

    CHECK_INT(sqlite3_prepare_v2(c->db, "PRAGMA synchronous", -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    level = (int)sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return level;
}

TEST(only_what_must_survive_a_power_loss_waits_for_the_disk)
{
    struct store *s = open_at(filled(0));
    struct conn *c = sqlite_lock_full(&SELF(s)->writer);
    struct user again = { .name = "ann" };

    CHECK_INT(synchronous(c), 2);
    sqlite_unlockp(&c);
    CHECK_INT(synchronous(&SELF(s)->writer), 1);
    FAILS(s->ops->user_add(s, &again, &err), ERR_CONFLICT);
    CHECK_INT(synchronous(&SELF(s)->writer), 1);
    store_closep(&s);
}

/* ---- versions ---- */

TEST(a_file_of_version_1_opens_with_everything_in_it)
{
    const char *path = scratch_path("store.db");
    AUTO(buf_free) struct buf value = { 0 };
    struct sandbox b;
    struct api_key k;
    struct store *s;
    struct user u;
    int n = 0;

    sql(path, store_v1);
    s = open_at(path);
    OK(s->ops->user_get(s, "ann", &u, &err));
    CHECK_INT(u.role, ROLE_ADMIN);
    OK(s->ops->key_by_hash(s, "c0ffee", &k, &err));
    CHECK_INT(k.user, u.id);
    OK(s->ops->value_get(s, "node", &value, &err));
    CHECK_STR(buf_cstr(&value), "n1");
    OK(s->ops->sandbox_get(s, "iaaaaaaaaaaaaaaaaaaaa", &b, &err));
    CHECK_INT(b.state, SANDBOX_PAUSED);
    CHECK_INT(b.limits.memory_bytes, 2147483648);
    CHECK_INT(b.life.expiry, EXPIRY_PAUSE);
    CHECK_STR(map_get(&b.metadata, "project"), "\xe2\x98\x83");
    CHECK_STR(((struct sandbox_mount *)b.mounts.items)->guest, "/data");
    CHECK_INT(((struct sandbox_forward *)b.forwards.items)->port, 80);
    sandbox_finish(&b);
    OK(s->ops->sandbox_ended(s, u.id, 10, count, &n, &err));
    CHECK_INT(n, 1);
    store_closep(&s);
}

static const struct migration no_steps[] = {
    { "CREATE TABLE a (x TEXT) STRICT; CREATE TABLE a (x TEXT) STRICT" },
    {},
};
static const struct migration good_steps[] = {
    { "CREATE TABLE a (x TEXT) STRICT; INSERT INTO a VALUES ('kept')" },
    { "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7" },
    {},
};
static const struct migration bad_steps[] = {
    { "CREATE TABLE a (x TEXT) STRICT; INSERT INTO a VALUES ('kept')" },
    { "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7" },
    { "DELETE FROM a; CREATE TABLE b (z TEXT) STRICT; INSERT INTO nowhere VALUES (1)" },
    {},
};

static int64_t ask(struct conn *c, const char *text)
{
    sqlite3_stmt *stmt = NULL;
    int64_t v;

    CHECK_INT(sqlite3_prepare_v2(c->db, text, -1, &stmt, NULL), SQLITE_OK);
    CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
    v = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return v;
}

TEST(a_step_that_fails_undoes_itself_and_keeps_those_before_it)
{
    static const char *const none[] = { NULL };
    const char *path = scratch_path("steps.db");
    struct conn c;

    write_at(path, 0, "", 0);
    OK(sqlite_open(&c, path, none, &err));
    CHECK_INT(sqlite_migrate(&c, no_steps, &err), -1);
    CHECK(strstr(err.msg, "version 1"));
    CHECK_INT(ask(&c, "PRAGMA user_version"), 0);
    CHECK_INT(sqlite_newest(bad_steps), 3);
    CHECK_INT(sqlite_migrate(&c, bad_steps, &err), -1);
    CHECK(strstr(err.msg, "version 3"));
    CHECK_INT(ask(&c, "PRAGMA user_version"), 2);
    CHECK_INT(ask(&c, "SELECT count(*) FROM a"), 1);
    CHECK_INT(ask(&c, "SELECT count(*) FROM sqlite_schema"), 1);
    OK(sqlite_migrate(&c, good_steps, &err)); /* taken already: nothing happens */
    CHECK_INT(ask(&c, "SELECT y FROM a WHERE x = 'kept'"), 7);
    sqlite_shut(&c);
}

/* ---- the way back ---- */

static const char *beside(const char *path, const char *suffix)
{
    static char out[200];

    snprintf(out, sizeof(out), "%s%s", path, suffix);
    return out;
}

/* A database as the release before this one left it: all steps but the last. */
static const char *of_last_release(void)
{
    static const char *const none[] = { NULL };
    static struct migration steps[32];
    const char *path = scratch_path("last.db");
    int n = sqlite_newest(sqlite_migrations) - 1;
    struct conn c;

    memcpy(steps, sqlite_migrations, (size_t)n * sizeof(*steps));
    write_at(path, 0, "", 0);
    OK(sqlite_open(&c, path, none, &err));
    OK(sqlite_migrate(&c, steps, &err));
    OK(sqlite_exec(&c,
                   "INSERT INTO users VALUES (1, 'ann', 'admin', '', 0, 5, 0);"
                   "INSERT INTO node_values VALUES ('node', x'6e31')",
                   &err));
    sqlite_shut(&c);
    return path;
}

TEST(a_copy_is_kept_before_the_tables_change)
{
    const char *path = of_last_release();
    int last = sqlite_newest(sqlite_migrations) - 1;
    static const char *const none[] = { NULL };
    char kept[200], suffix[32];
    struct conn c;
    struct store *s;
    struct stat st;
    struct user u;

    snprintf(suffix, sizeof(suffix), ".schema-%d", last);
    snprintf(kept, sizeof(kept), "%s", beside(path, suffix));
    write_at(kept, 0, "of an attempt that failed", 25);
    write_at(beside(path, ".schema-1"), 0, "of long ago", 11);
    s = open_at(path);
    OK(s->ops->user_get(s, "ann", &u, &err));
    CHECK(access(beside(path, ".schema-1"), F_OK)); /* one is enough */
    store_closep(&s);
    CHECK_INT(stat(kept, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    OK(sqlite_open(&c, kept, none, &err));
    CHECK_INT(ask(&c, "PRAGMA user_version"), last);
    CHECK_INT(ask(&c, "SELECT count(*) FROM users WHERE name = 'ann'"), 1);
    sqlite_shut(&c);
    CHECK_INT(unlink(kept), 0);
    s = open_at(path); /* nothing changes any more */
    CHECK(access(kept, F_OK));
    store_closep(&s);
}

static void check_former(const char *path, int64_t values)
{
    static const char *const none[] = { NULL };
    struct conn c;
    struct store *s = open_at(path);

    store_closep(&s);
    OK(sqlite_open(&c, path, none, &err));
    CHECK_INT(ask(&c, "SELECT count(*) FROM node_values WHERE name = '" STORE_FORMER "'"), values);
    CHECK_INT(ask(&c, "SELECT count(*) FROM node_values f JOIN node_values m ON f.value = m.value"
                      " AND length(m.value) = 16 AND m.name = '" STORE_MARK "'"
                      " WHERE f.name = '" STORE_FORMER "'"),
              values);
    sqlite_shut(&c);
}

/* Which a restore changes: then it does not know everybody who was told of a machine. */
TEST(a_database_of_a_former_release_has_a_mark_that_says_so)
{
    AUTO(buf_free) struct buf aside = { 0 };
    char restored[200];
    const char *path = of_last_release();

    snprintf(restored, sizeof(restored), "%s", beside(path, ".restored"));
    OK(store_sqlite_restore(path, restored, &aside, &err));
    check_former(path, 1);
    check_former(restored, 0);
    check_former(filled(1), 0);
}

TEST(a_new_database_has_no_copy)
{
    const char *path = filled(1);

    CHECK(access(beside(path, ".schema-0"), F_OK));
    CHECK(access(beside(path, ".schema-1"), F_OK));
}

TEST(without_a_copy_the_tables_stay_as_they_are)
{
    const char *path = of_last_release();
    char in_the_way[200], suffix[32];
    struct store *s;

    snprintf(suffix, sizeof(suffix), ".schema-%d", sqlite_newest(sqlite_migrations) - 1);
    snprintf(in_the_way, sizeof(in_the_way), "%s", beside(path, suffix));
    CHECK_INT(mkdir(in_the_way, 0700), 0);
    refused(path, ERR_INVALID, suffix);
    CHECK_INT(rmdir(in_the_way), 0);
    s = open_at(path);
    store_closep(&s);
}

TEST(a_database_is_found_before_it_is_opened)
{
    const char *path = scratch_path("found.db");
    struct store *s;

    CHECK_INT(store_sqlite_found(path, &err), 0);
    write_at(path, 0, "", 0);
    CHECK_INT(store_sqlite_found(path, &err), 0);
    write_at(path, 0, "short", 5);
    CHECK_INT(store_sqlite_found(path, &err), 1); /* damaged, not missing */
    path = filled(1);
    CHECK_INT(store_sqlite_found(path, &err), 1);
    s = open_at(path);
    CHECK_INT(store_sqlite_found(path, &err), 1);
    store_closep(&s);
    CHECK_INT(store_sqlite_found(of_last_release(), &err), 1);
}

/* ---- refused, and left as it is ---- */

static void refused_untouched(const char *path, enum err_code code, const char *says)
{
    AUTO(buf_free) struct buf before = { 0 }, after = { 0 };

    contents(path, &before);
    refused(path, code, says);
    contents(path, &after);
    CHECK(str_eq(buf_str(&before), buf_str(&after)));
}

TEST(a_newer_file_is_refused_with_both_versions)
{
    const char *path = filled(1);
    char said[80];

    snprintf(said, sizeof(said), "is of version 99, this program knows up to %d",
             sqlite_newest(sqlite_migrations));
    sql(path, "PRAGMA user_version=99");
    refused_untouched(path, ERR_PRECONDITION, said);
    sql(path, "PRAGMA user_version=-1");
    refused_untouched(path, ERR_PRECONDITION, "is of version -1");
}

TEST(a_database_of_another_program_is_refused)
{
    const char *path = scratch_path("theirs.db");

    sql(path, "CREATE TABLE bookmarks (url TEXT)");
    refused_untouched(path, ERR_PRECONDITION, "another program");
    sql(path, "DROP TABLE bookmarks; PRAGMA application_id=42");
    refused_untouched(path, ERR_PRECONDITION, "another program");
}

TEST(a_file_that_is_no_database_is_refused)
{
    const char *text = scratch_path("text.db"), *zeroes = scratch_path("zeroes.db");
    char block[8192] = { 0 };

    write_at(zeroes, 0, block, sizeof(block));
    refused_untouched(zeroes, ERR_INTERNAL, "put a backup in its place");
    memset(block, 'x', sizeof(block));
    write_at(text, 0, block, sizeof(block));
    refused_untouched(text, ERR_INTERNAL, "put a backup in its place");
}

TEST(a_damaged_file_is_refused_wherever_the_damage_is)
{
    char rubbish[2048];
    struct stat st;

    for (int i = 0;; i += 3) {
        const char *path = filled(200);

        CHECK_INT(stat(path, &st), 0);
        if (i >= (int)(st.st_size / (off_t)sizeof(rubbish)) - 1) /* not each has the same size */
            break;
        id_bytes(rubbish, sizeof(rubbish));
        write_at(path, (i + 1) * (off_t)sizeof(rubbish), rubbish, sizeof(rubbish));
        refused_untouched(path, ERR_INTERNAL, "damaged");
        CHECK(strstr(err.msg, "backup"));
    }
}

TEST(a_file_that_was_cut_short_is_refused)
{
    const char *path = filled(200);

    CHECK_INT(truncate(path, 9 * 2048 + 100), 0);
    refused_untouched(path, ERR_INTERNAL, "damaged");
}

TEST(a_path_that_cannot_be_a_database_is_named)
{
    refused("/tmp", ERR_PRECONDITION, "is not a file");
    refused(scratch_path("none/store.db"), ERR_NOT_FOUND, "make the database");
}

/* In a child that is nobody, because root may write everything. */
static int as_nobody(int (*fn)(const char *path), const char *path)
{
    pid_t pid = fork();
    int status;

    if (!pid) {
        if (!geteuid() && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) ||
                           setresuid(65534, 65534, 65534)))
            _exit(99);
        _exit(fn(path));
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int open_refused(const char *path)
{
    struct store *s = NULL;

    if (store_open_sqlite(path, &s, &err) == 0)
        return 1;
    return strstr(err.msg, path) && strstr(err.msg, "right to write") ? 0 : 2;
}

TEST(a_file_that_may_only_be_read_is_refused_with_what_to_do)
{
    const char *path = filled(3);

    CHECK_INT(chmod(scratch, 0711), 0);
    if (!geteuid())
        CHECK_INT(chown(path, 65534, 65534), 0);
    CHECK_INT(chmod(path, 0400), 0);
    CHECK_INT(as_nobody(open_refused, path), 0);
    CHECK_INT(chmod(path, 0600), 0);
}
