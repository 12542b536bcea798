/* test_host_life.c - generations of template host: found again, built side by side, held, swept;
 * as an ordinary user; and one from the machine that the tests run on. */
#include <nettle/md5.h>
#include <signal.h>
#include <sys/file.h>

#include "base/clock.h"
#include "host_fixture.h"
#include "jail/dpkg.h"
#include "jail/host_build.h"

static void options(struct host_options *o)
{
    *o = (struct host_options){ .source = machine, .resolver = "10.201.0.1" };
}

TEST(a_generation_is_found_again_while_the_machine_stays_as_it_is)
{
    char first[HOST_FINGERPRINT], now[HOST_FINGERPRINT];
    struct host_options o;
    struct stat before, after;

    debian();
    MUST_OPEN(0);
    snprintf(first, sizeof(first), "%s", t.fingerprint);
    CHECK_INT(strlen(first), 32);
    CHECK_INT(stat(t.base, &before), 0);
    MUST_OPEN(0);
    CHECK_STR(t.fingerprint, first);
    CHECK(t.merged_usr && t.whiteouts);
    CHECK_INT(stat(t.base, &after), 0);
    CHECK_INT(after.st_ino, before.st_ino);

    options(&o);
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK_STR(now, first);
    put("usr/local/app/tool", 0755, "tool");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
    snprintf(first, sizeof(first), "%s", now);
    put("usr/local/app/closed", 0600, "closed");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
    snprintf(first, sizeof(first), "%s", now);
    put("usr/local/lib/python3/dist-packages/module.py", 0644, "pip");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
    snprintf(first, sizeof(first), "%s", now);
    put("usr/local/lib/python3/dist-packages/another.py", 0644, "pip");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
    snprintf(first, sizeof(first), "%s", now);
    put("etc/passwd", 0644, "root:x:0:0::/root:/bin/sh\nnew:x:77:77::/:/\n");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
    MUST_OPEN(0);
    CHECK_STR(t.fingerprint, now);
    CHECK(strstr(text_of(t.base, "etc/passwd"), "new:x:77"));
    CHECK_INT(entries(), 2);
}

/* What others cannot read may come and go: it is in no generation. */
TEST(a_look_sees_what_the_fingerprint_does_not)
{
    char first[HOST_FINGERPRINT], now[HOST_FINGERPRINT];
    struct host_options o;

    debian();
    put("usr/share/deep/er/file", 0644, "one");
    put("usr/share/deep/er/link-to", 0644, "one");
    MUST_OPEN(0);
    options(&o);
    CHECK_INT(host_fingerprint(&o, first, &err), 0);
    CHECK_INT(host_look(&t, &o, &err), 0);
    put("usr/share/deep/er/closed", 0600, CANARY);
    CHECK_INT(host_look(&t, &o, &err), 0);
    CHECK_INT(chmod(in(machine, "usr/share/deep/er/closed"), 0644), 0);
    CHECK_INT(host_look(&t, &o, &err), 1);
    CHECK_INT(unlink(in(machine, "usr/share/deep/er/closed")), 0);
    CHECK_INT(host_look(&t, &o, &err), 0);
    put("usr/share/deep/er/file", 0644, "another");
    CHECK_INT(host_look(&t, &o, &err), 1);
    MUST_OPEN(0); /* still the same */
    CHECK_INT(host_look(&t, &o, &err), 1);
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK_STR(now, first);
    o.stamp = in(machine, "stamp");
    CHECK_INT(host_fingerprint(&o, first, &err), 0);
    put("stamp", 0600, "");
    CHECK_INT(host_fingerprint(&o, now, &err), 0);
    CHECK(strcmp(now, first));
}

TEST(every_option_is_part_of_the_fingerprint)
{
    static const char *const extra[] = { "pristine.conf", NULL };
    char seen[6][HOST_FINGERPRINT];
    struct host_options o[6];

    debian();
    for (int i = 0; i < 6; i++)
        options(&o[i]);
    o[1].hide_local = true;
    o[2].no_ca = true;
    o[3].mirrors = true;
    o[4].etc_extra = extra;
    o[5].resolver = "10.201.0.2";
    for (int i = 0; i < 6; i++) {
        CHECK_INT(host_fingerprint(&o[i], seen[i], &err), 0);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(seen[i], seen[k]));
    }
}

TEST(what_is_held_outlives_a_sweep_and_what_is_not_does_not)
{
    char first[HOST_FINGERPRINT];
    struct host_template held = { 0 };

    debian();
    MUST_OPEN(0);
    snprintf(first, sizeof(first), "%s", t.fingerprint);
    CHECK_INT(host_hold(dir, first, &held, &err), 0);
    CHECK_STR(held.base, t.base);
    put("etc/group", 0644, "root:x:0:\n");
    MUST_OPEN(0);
    host_sweep(dir, t.fingerprint, NULL, NULL);
    CHECK_INT(entries(), 2);
    CHECK(exists(held.base, "etc/passwd"));
    host_close(&held);
    host_sweep(dir, t.fingerprint, NULL, NULL);
    CHECK_INT(entries(), 1);
    CHECK_INT(host_hold(dir, first, &held, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(host_hold(dir, "../x", &held, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    host_close(&t);
    host_sweep(dir, NULL, NULL, NULL);
    CHECK_INT(entries(), 0);
    host_sweep("/nonexistent", NULL, NULL, NULL); /* nothing to do, and no complaint */
}

static bool tried_under_lock;

/* Who asks holds the lock: whoever wants it meanwhile is told that it is not gone. */
static bool is_named(void *name, const char *what)
{
    struct host_template other = { 0 };
    struct err e = { 0 };

    tried_under_lock = host_hold(dir, what, &other, &e) && e.code == ERR_UNAVAILABLE;
    return !strcmp(what, name);
}

TEST(what_a_file_names_stays_though_nobody_holds_it)
{
    char named[HOST_FINGERPRINT], other[] = "00000000000000000000000000000000";
    struct host_template held = { 0 };

    debian();
    MUST_OPEN(0);
    snprintf(named, sizeof(named), "%s", t.fingerprint);
    host_close(&t);
    host_sweep(dir, NULL, is_named, named);
    CHECK(tried_under_lock);
    CHECK_INT(host_hold(dir, named, &held, &err), 0);
    host_close(&held);
    host_sweep(dir, NULL, is_named, other);
    CHECK_INT(host_hold(dir, named, &held, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(entries(), 0);
}

#define DEAD   "0123456789abcdef0123456789abcdef.tmp.1-0"
#define LIVING "0123456789abcdef0123456789abcdef.tmp.2-0"

TEST(what_a_dead_builder_left_is_removed_and_a_living_ones_is_not)
{
    int lock;

    debian();
    CHECK_INT(mkdir(dir, 0700), 0);
    CHECK_INT(mkdir(in(dir, DEAD), 0700), 0);
    CHECK_INT(mkdir(in(dir, DEAD "/base"), 0500), 0);
    CHECK_INT(mkdir(in(dir, LIVING), 0700), 0);
    lock = open(in(dir, LIVING), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(flock(lock, LOCK_EX), 0);
    MUST_OPEN(0);
    CHECK_INT(entries(), 2);
    CHECK(exists(dir, LIVING));
    close(lock);
    host_sweep(dir, t.fingerprint, NULL, NULL);
    CHECK_INT(entries(), 1);
}

static pid_t builder(void)
{
    struct host_options o;
    struct host_template mine = { 0 };
    struct err e = { 0 };
    pid_t pid = fork();

    if (pid)
        return pid;
    options(&o);
    if (host_open(dir, &o, &mine, &e)) {
        printf("# builder: %s\n", e.msg);
        fflush(stdout);
        _exit(1);
    }
    _exit(!exists(mine.base, "etc/passwd") || !exists(usr_of(&mine), "sbin/policy-rc.d"));
}

TEST(builders_side_by_side_do_not_spoil_each_other)
{
    pid_t pids[6];
    int status, bad = 0;

    debian();
    for (size_t i = 0; i < ARRAY_LEN(pids); i++)
        pids[i] = builder();
    for (size_t i = 0; i < ARRAY_LEN(pids); i++) {
        CHECK_INT(waitpid(pids[i], &status, 0), pids[i]);
        bad += status != 0;
    }
    CHECK_INT(bad, 0);
    CHECK_INT(entries(), 1);
}

TEST(a_builder_killed_at_any_moment_leaves_nothing_half_made)
{
    debian();
    for (int us = 0; us < 20000; us += 700) {
        pid_t pid = builder();

        usleep((useconds_t)us);
        kill(pid, SIGKILL);
        CHECK_INT(waitpid(pid, NULL, 0), pid);
        MUST_OPEN(0); /* complete, whoever built it */
        CHECK(exists(t.base, "var/lib/dpkg/status"));
        CHECK(exists(usr_of(&t), "sbin/policy-rc.d"));
        host_close(&t);
        host_sweep(dir, NULL, NULL, NULL);
        CHECK_INT(entries(), 0);
    }
}

TEST(a_generation_that_others_may_write_is_refused)
{
    debian();
    MUST_OPEN(0);
    CHECK_INT(chmod(in(t.base, ".."), 0777), 0);
    CHECK_INT(open_with((struct host_options){ 0 }), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK(strstr(err.msg, "not ours alone"));
}

static int as_nobody(void)
{
    if (setgid(65534) || setuid(65534))
        return 2;
    if (open_with((struct host_options){ 0 })) {
        printf("# %s\n", err.msg);
        return 3;
    }
    if (t.owners || !t.whiteouts || !t.merged_usr)
        return 4;
    if (strcmp(text_of(t.base, "etc/pristine.conf"), HELLO) || exists(t.base, "etc/secret.conf"))
        return 5;
    if (!hidden("lib/closed") || !hidden("local/etc") || appears(CANARY))
        return 6;
    if (mode_of(t.base, "etc/shadow") != 0640 || !exists(t.base, "var/lib/dpkg/info/a.list"))
        return 7;
    host_close(&t);
    host_sweep(dir, NULL, NULL, NULL);
    return entries() ? 8 : 0;
}

TEST(an_ordinary_user_builds_one_too_without_roots_files)
{
    pid_t pid;
    int status;

    if (geteuid()) {
        printf("# not root: every other case is this one already\n");
        return;
    }
    debian();
    put("usr/lib/closed", 0600, CANARY);
    put("usr/local/etc/x", 0644, CANARY);
    put("etc/ssl/private/x", 0600, CANARY);
    put_dir("etc/ssl/private", 0700);
    CHECK_INT(mkdir(dir, 0700), 0);
    CHECK_INT(chown(dir, 65534, 65534), 0);
    fflush(stdout);
    pid = fork();
    if (!pid) {
        status = as_nobody();
        fflush(stdout);
        _exit(status);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* ---- the machine that this runs on ---- */

static int dangling; /* links in base/etc that lead nowhere, though the machine's do not */

/* Follows one hop at a time: a place in base, or one that the machine's /usr provides. */
static bool leads_somewhere(const char *link, int hops)
{
    AUTO(buf_free) struct buf to = { 0 };
    char target[4096];
    ssize_t n = readlink(in(t.base, link), target, sizeof(target));
    struct stat st;

    if (n < 0)
        return exists(t.base, link);
    if (!hops || !host_walk_resolve(link, (struct str){ target, (size_t)n }, &to))
        return false;
    if (host_in_usr(to.data) || host_below(to.data, "proc"))
        return host_below(to.data, "proc") || !lstat(in("/", to.data), &st);
    return leads_somewhere(to.data, hops - 1);
}

static int look_at_link(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    const char *inside = path + strlen(t.base) + 1;

    (void)kind;
    (void)ftw;
    if (S_ISLNK(st->st_mode) && !leads_somewhere(inside, 8) && !access(in("/", inside), F_OK)) {
        printf("# %s dangles inside\n", inside);
        dangling++;
    }
    return 0;
}

/* Exit status and output of a program that may not be installed; -1: it is not. */
static int run(const char *command, char *out, size_t size)
{
    FILE *p = popen(command, "r"); // NOLINT(cert-env33-c): a line of our own
    size_t n = p ? fread(out, 1, size - 1, p) : 0;
    int status = p ? pclose(p) : -1;

    out[n] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

/* A configuration file of a package that is in base is as the package brought it. A generated file
 * among them would make its next upgrade stop at a question. */
static void check_conffiles(void)
{
    AUTO(buf_free) struct buf status = { 0 };
    struct host_build in_base = { .source = open(t.base, O_PATH | O_DIRECTORY | O_CLOEXEC) };
    struct dpkg_conffiles it = { 0 };
    struct dpkg_conffile c;
    struct stat st;
    int taken = 0;

    if (!host_tree_read(&in_base, "var/lib/dpkg/status", 64 << 20, &status, &st))
        it.rest = buf_str(&status);
    while (dpkg_next_conffile(&it, &c)) {
        AUTO(buf_free) struct buf text = { 0 };
        AUTO(freep) char *path = xstrndup(c.path.p + 1, c.path.n - 1);
        unsigned char md5[MD5_DIGEST_SIZE];
        struct md5_ctx ctx;

        if (host_tree_read(&in_base, path, 64 << 20, &text, &st))
            continue;
        md5_init(&ctx);
        md5_update(&ctx, text.len, (const uint8_t *)buf_cstr(&text));
        md5_digest(&ctx, sizeof(md5), md5);
        if (memcmp(md5, c.md5, sizeof(md5)))
            test_fail(__FILE__, __LINE__, "%s is not as its package brought it", path);
        taken++;
    }
    close(in_base.source);
    printf("# %d files as their packages brought them\n", taken);
}

/* Packages may be half installed on the machine itself, or be so while we look. */
static bool dpkg_is_idle(const struct host_options *o)
{
    char out[4096], now[HOST_FINGERPRINT];

    return !run("dpkg --audit 2>&1", out, sizeof(out)) && !*out &&
           !host_fingerprint(o, now, &err) && !strcmp(now, t.fingerprint);
}

static void check_with_the_machines_tools(const struct host_options *o)
{
    char command[512], out[4096];
    int status;

    snprintf(command, sizeof(command), "dpkg --admindir=%s/var/lib/dpkg --audit 2>&1", t.base);
    status = exists(t.base, "var/lib/dpkg/status") ? run(command, out, sizeof(out)) : -1;
    if (status < 0 || (*out && !dpkg_is_idle(o)))
        printf("# no dpkg, or one at work: its database is not checked\n");
    else
        CHECK_STR(out, "");
    snprintf(command, sizeof(command), "visudo -cf %s/etc/sudoers.d/cove 2>&1", t.base);
    status = run(command, out, sizeof(out));
    if (status < 0)
        printf("# no visudo: sudoers.d/cove is not checked\n");
    else
        CHECK_INT(status, 0);
    snprintf(command, sizeof(command), "sh -n %s/etc/profile 2>&1", t.base);
    CHECK_INT(run(command, out, sizeof(out)), 0);
}

TEST(the_machine_itself_makes_a_template)
{
    struct host_options o = { .resolver = "10.201.0.1" };
    char name[256] = "";
    int64_t start, took, best = INT64_MAX;

    if (geteuid()) {
        printf("# not root: owners and closed files of this machine cannot be checked\n");
        return;
    }
    begin();
    start = clock_us();
    if (host_open(dir, &o, &t, &err) && err.code == ERR_UNSUPPORTED) {
        printf("# %s\n", err.msg);
        return;
    }
    CHECK_STR(err.msg, "");
    printf("# built in %lld ms\n", (long long)(clock_us() - start) / 1000);
    CHECK(t.whiteouts && t.owners);
    for (int i = 0; i < 100; i++) {
        host_close(&t);
        start = clock_us();
        CHECK_INT(host_open(dir, &o, &t, &err), 0);
        took = clock_us() - start;
        best = MIN(best, took);
    }
    printf("# found again in %lld us\n", (long long)best);
    CHECK(best < 2000); /* 30 on a quiet machine */
    CHECK_INT(mode_of(t.base, "tmp"), 01777);
    CHECK(!exists(t.base, "etc/machine-id") && !exists(t.base, "etc/gitconfig"));
    CHECK(!exists(t.base, "root/.ssh") && mode_of(t.base, "etc/shadow") < 0641);
    nftw(in(t.base, "etc"), look_at_link, 64, FTW_PHYS);
    CHECK_INT(dangling, 0);
    /* the machine's name, unless it is a word that stands in every system */
    if (!gethostname(name, sizeof(name)) && strlen(name) > 8)
        CHECK(!appears_in(t.base, name));
    check_conffiles();
    check_with_the_machines_tools(&o);
}
