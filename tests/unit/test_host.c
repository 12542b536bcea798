/* test_host.c - template host from a made-up machine: what comes along and what does not. */
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

#include "host_fixture.h"
#include "jail/host_build.h"

/* One marker in every place where a machine keeps something of its own. */
static void plant(void)
{
    static const struct {
        const char *path;
        mode_t mode;
    } files[] = {
        { "etc/apt/auth.conf", 0600 },
        { "etc/apt/auth.conf.d/site.conf", 0644 },
        { "etc/apt/apt.conf", 0644 },
        { "etc/apt/apt.conf.d/99proxy", 0644 },
        { "etc/apt/sources.list.d/site.list", 0644 },
        { "etc/apt/trusted.gpg.d/private.gpg", 0640 },
        { "etc/changed.conf", 0644 },
        { "etc/docker/config.json", 0644 },
        { "etc/environment", 0644 },
        { "etc/fstab", 0644 },
        { "etc/gitconfig", 0644 },
        { "etc/hostname", 0644 },
        { "etc/hosts", 0644 },
        { "etc/issue", 0644 },
        { "etc/krb5.keytab", 0600 },
        { "etc/ld.so.cache", 0600 }, /* listed, but not readable to everybody */
        { "etc/machine-id", 0444 },
        { "etc/mailname", 0644 },
        { "etc/motd", 0644 },
        { "etc/npmrc", 0644 },
        { "etc/nsswitch.conf", 0644 },
        { "etc/pam.d/common-auth", 0644 },
        { "etc/passwd-", 0644 },
        { "etc/pip.conf", 0644 },
        { "etc/profile", 0644 },
        { "etc/profile.d/site.sh", 0644 },
        { "etc/resolv.conf", 0644 },
        { "etc/shadow", 0640 },
        { "etc/shells", 0644 },
        { "etc/ssh/ssh_host_rsa_key", 0600 },
        { "etc/ssl/certs/ssl-cert-snakeoil.pem", 0644 },
        { "etc/ssl/private/site.key", 0600 },
        { "etc/subuid", 0644 },
        { "etc/sudoers.d/site", 0440 },
        { "home/x/.bashrc", 0644 },
        { "opt/app/config", 0644 },
        { "root/.ssh/id_rsa", 0600 },
        { "run/app.pid", 0644 },
        { "srv/data", 0644 },
        { "var/cache/debconf/passwords.dat", 0600 },
        { "var/lib/app/state", 0644 },
        { "var/lib/dpkg/status-old", 0644 },
        { "var/lib/dpkg/updates/0001", 0644 },
        { "var/lib/dpkg/info/private.list", 0600 },
        { "var/log/syslog", 0644 },
    };

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        put(files[i].path, files[i].mode, CANARY "\n");
    put("var/lib/dpkg/statoverride", 0644,
        CANARY " root 755 /x\nroot mail 2755 /y\nroot " CANARY " 755 /z\n");
    put_link("etc/to-private", "/etc/ssl/private/" CANARY);
    put_link("etc/to-home", "/home/" CANARY);
    put_link("etc/roundabout", "../home/" CANARY "/../../usr/bin/env");
    put_link("etc/ssl/certs/1.0", "/etc/ssl/private/" CANARY ".pem");
    put_link("etc/ssl/certs/2.0", "ssl-cert-snakeoil.pem");
    put_link("etc/closed.d/" CANARY, "/usr/bin/env");
    put_dir("etc/closed.d", 0710);
    put_link("usr/local/data", "/var/lib/app/state");
    put_link("usr/share/private", "/var/lib/closed/state");
    put("var/lib/closed/state", 0644, CANARY);
    put_dir("var/lib/closed", 0700);
    put_link("usr/share/unreadable", "/var/lib/app/unreadable");
    put("var/lib/app/unreadable", 0600, CANARY);
}

TEST(nothing_of_the_machine_itself_comes_along)
{
    debian();
    plant();
    MUST_OPEN(0);
    CHECK(!appears(CANARY));
    CHECK(!exists(t.base, "etc/machine-id"));
    CHECK_STR(text_of(t.base, "etc/hostname"), "cove\n");
    CHECK_STR(text_of(t.base, "etc/resolv.conf"), "nameserver 10.201.0.1\n");
    CHECK_STR(text_of(t.base, "var/lib/dpkg/statoverride"), "root mail 2755 /y\n");
}

TEST(what_a_package_brought_and_nobody_changed_comes_along)
{
    debian();
    put("etc/changed.conf", 0644, HELLO "changed\n");
    put("etc/cron.d/a", 0644, HELLO);
    put("usr/share/a.conf", 0644, HELLO);
    MUST_OPEN(0);
    CHECK_STR(text_of(t.base, "etc/pristine.conf"), HELLO);
    CHECK_INT(mode_of(t.base, "etc/pristine.conf"), 0644);
    CHECK_INT(mode_of(t.base, "etc/secret.conf"), 0440);
    CHECK(!exists(t.base, "etc/changed.conf"));
    CHECK(!exists(t.base, "etc/cron.d"));
    CHECK(!exists(t.base, "usr/share"));
    CHECK_STR(text_of(t.base, "home/user/.profile"), HELLO);
    CHECK(owned("home/user/.profile", 1000, 1000));
}

TEST(links_come_along_when_they_lead_into_usr)
{
    debian();
    put_link("etc/alternatives/awk", "/usr/bin/mawk");
    put_link("etc/rmt", "../usr/sbin/rmt");
    put_link("etc/rc3.d/S01x", "/usr/bin/env");
    put_link("etc/systemd/system/x.service", "/lib/systemd/x.service");
    put("etc/fonts/conf.avail/10.conf", 0644, HELLO);
    put_link("etc/fonts/conf.d/10.conf", "../conf.avail/10.conf");
    put_link("etc/fonts/conf.d/other.conf", "../conf.avail/10.conf");
    put_link("etc/localtime", "/usr/share/zoneinfo/Europe/Paris");
    put_link("etc/ssl/certs/ca.pem", "/usr/share/ca-certificates/x/ca.crt");
    put_link("etc/ssl/certs/abc.0", "ca.pem");
    put_link("etc/ssl/certs/own.pem", "/usr/local/share/ca-certificates/own.crt");
    MUST_OPEN(0);
    CHECK_STR(link_of("etc/alternatives/awk"), "/usr/bin/mawk");
    CHECK_STR(link_of("etc/rmt"), "../usr/sbin/rmt");
    CHECK(!exists(t.base, "etc/rc3.d") && !exists(t.base, "etc/systemd"));
    CHECK_STR(link_of("etc/fonts/conf.d/10.conf"), "../conf.avail/10.conf");
    CHECK_STR(link_of("etc/fonts/conf.d/other.conf"), "(absent)");
    CHECK_STR(link_of("etc/localtime"), "/usr/share/zoneinfo/Europe/Paris");
    CHECK_STR(link_of("etc/ssl/certs/abc.0"), "ca.pem");
    CHECK_STR(link_of("etc/ssl/certs/own.pem"), "/usr/local/share/ca-certificates/own.crt");
    MUST_OPEN(.no_ca = true);
    CHECK(!exists(t.base, "etc/ssl/certs"));
    MUST_OPEN(.hide_local = true);
    CHECK_STR(link_of("etc/ssl/certs/own.pem"), "(absent)");
}

/* A directory of /etc that is a link into /usr comes as that link. Writing a file "below" it would
 * write where the link leads while it is not yet in a root of its own: climbing from base/etc, it
 * is the directory of generations. */
TEST(no_file_is_written_through_a_link)
{
    debian();
    put("usr/share/linked.d/a.conf", 0644, HELLO);
    put_link("etc/linked.d", "../../../usr/share");
    put_link("etc/pam.d", "../../../usr/share");
    put_link("etc/apt", "../../../usr/share");
    CHECK_INT(mkdir(dir, 0700), 0);
    CHECK_INT(mkdir(in(dir, "usr"), 0755), 0);
    CHECK_INT(mkdir(in(dir, "usr/share"), 0755), 0);
    CHECK_INT(mkdir(in(dir, "usr/share/apt.conf.d"), 0755), 0);
    MUST_OPEN(0);
    CHECK_STR(link_of("etc/linked.d"), "../../../usr/share");
    CHECK_STR(link_of("etc/pam.d"), "../../../usr/share");
    CHECK(exists(t.base, "etc/pam.d/."));
    CHECK(!exists(dir, "usr/share/common-auth"));
    CHECK_INT(rmdir(in(dir, "usr/share/apt.conf.d")), 0); /* nothing is in it */
    CHECK_INT(rmdir(in(dir, "usr/share")), 0);
}

TEST(generated_files_have_their_modes_and_owners)
{
    static const struct {
        const char *path;
        mode_t mode;
        uid_t uid;
        gid_t gid;
    } want[] = {
        { "app", 0755, 1000, 1000 },
        { "etc/gshadow", 0640, 0, 42 },
        { "etc/shadow", 0640, 0, 42 },
        { "etc/ssl/private", 0710, 0, 0 },
        { "etc/sudoers.d", 0750, 0, 0 },
        { "etc/sudoers.d/cove", 0440, 0, 0 },
        { "home/user", 0755, 1000, 1000 },
        { "root", 0700, 0, 0 },
        { "run/lock", 01777, 0, 0 },
        { "run/user/1000", 0700, 1000, 1000 },
        { "shared", 01777, 0, 0 },
        { "tmp", 01777, 0, 0 },
        { "var/cache/apt/archives/partial", 0700, 42, 0 },
        { "var/lib/apt/lists/partial", 0700, 42, 0 },
        { "var/local", 02775, 0, 50 },
        { "var/log/btmp", 0660, 0, 43 },
        { "var/log/wtmp", 0664, 0, 43 },
        { "var/mail", 02775, 0, 8 },
        { "var/tmp", 01777, 0, 0 },
        { "workspace", 0755, 1000, 1000 },
    };
    mode_t mask;

    debian();
    mask = umask(077); /* must not matter */
    MUST_OPEN(0);
    umask(mask);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        printf("# %s\n", want[i].path);
        /* an ordinary user cannot set the group bit of a group it is not in: 2775 may be 775 */
        CHECK_INT(mode_of(t.base, want[i].path) & (geteuid() ? 01777 : 07777),
                  want[i].mode & (geteuid() ? 01777 : 07777));
        CHECK(owned(want[i].path, want[i].uid, want[i].gid));
    }
    CHECK_INT(mode_of(t.base, ""), 0755);
    CHECK_INT(mode_of(t.base, ".."), 0700);
    CHECK_INT(t.owners, geteuid() == 0);
    CHECK(!exists(t.base, "run/systemd"));
    CHECK_STR(link_of("etc/mtab"), "../proc/self/mounts");
    CHECK_STR(link_of("etc/localtime"), "/usr/share/zoneinfo/Etc/UTC");
    CHECK_STR(text_of(t.base, "sys/devices/system/cpu/online"), "0\n");
    CHECK_STR(text_of(t.base, "etc/shells"), "/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n");
    CHECK(strstr(text_of(t.base, "etc/passwd"), "\nsvc:x:120:120::/nonexistent:/usr/sbin/nologin"));
    CHECK(!exists(t.base, "etc/chromium.d"));
}

TEST(a_program_that_is_installed_gets_its_setting)
{
    debian();
    put("usr/bin/chromium", 0755, "x");
    put("sys/devices/system/cpu/online", 0444, "0-3,8\n");
    put("sys/devices/system/cpu/possible", 0444, "all of " CANARY "\n");
    MUST_OPEN(0);
    CHECK(strstr(text_of(t.base, "etc/chromium.d/cove"), "--no-sandbox"));
    CHECK_STR(text_of(t.base, "sys/devices/system/cpu/online"), "0-3,8\n");
    CHECK_STR(text_of(t.base, "sys/devices/system/cpu/possible"), "0\n");
}

TEST(what_is_not_for_everybody_in_usr_is_hidden)
{
    static const struct {
        const char *path;
        mode_t mode;
        bool hide;
    } files[] = {
        { "usr/lib/closed", 0600, true },
        { "usr/lib/group-only", 0750, true },
        { "usr/lib/run-only", 04711, false },
        { "usr/lib/public", 0644, false },
        { "usr/local/etc", 0, true }, /* 0: made by one of its files */
        { "usr/local/etc/app.conf", 0644, true },
        { "usr/etc/npmrc", 0644, true },
        { "usr/etc", 0, true },
        { "usr/lib/credstore.encrypted/x", 0644, true },
        { "usr/lib/credstore.encrypted", 0, true },
        { "usr/src/linux/certs/signing_key.pem", 0644, true },
        { "usr/src", 0, true },
        { "usr/share/polkit-1/rules.d/x", 0644, true },
        { "usr/share/polkit-1/rules.d", 0, true },
        { "usr/lib/ssl/private/x", 0644, true },
        { "usr/lib/ssl/private", 0, true },
        { "usr/lib/ssl/openssl.cnf", 0644, false },
        { "usr/local/app/.env", 0644, true },
        { "usr/local/app/server.key", 0644, true },
        { "usr/local/app/google-credentials-1.json", 0644, true },
        { "usr/local/bin/id_rsa.pub", 0644, true },
        { "usr/local/bin/tool", 0755, false },
        { "usr/local/share/test.key", 0644, false },
        { "usr/local/lib/python3/test.key", 0644, false },
        { "usr/lib/python3/test.key", 0644, false },
        { "usr/.netrc", 0644, true },
    };

    debian();
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (files[i].mode)
            put(files[i].path, files[i].mode, HELLO);
    put("usr/lib/run-only", 04711, "\177ELF of " HELLO);
    put("usr/lib/run-only-script", 0711, "#!/bin/sh");
    put("usr/lib/secret-dir/public", 0644, HELLO);
    put_dir("usr/lib/secret-dir", 0700);
    put_dir("usr/local/app", 0775);
    put_dir("usr/lib/list-only", 0754);
    put("usr/lib/enter-only/name", 0644, HELLO);
    put_dir("usr/lib/enter-only", 0711);
    CHECK_INT(mkfifo(in(machine, "usr/lib/fifo"), 0666), 0);
    MUST_OPEN(0);
    CHECK(t.whiteouts);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        printf("# %s\n", files[i].path);
        CHECK_INT(hidden(files[i].path + strlen("usr/")), files[i].hide);
    }
    CHECK(hidden("lib/secret-dir/public"));
    CHECK(hidden("lib/list-only"));
    CHECK(hidden("lib/enter-only/name"));
    CHECK(hidden("lib/fifo"));
    CHECK(hidden("lib/run-only-script") == !!t.image); /* in a layer the live one shows */
    if (t.image)
        CHECK_STR(text_of(usr_of(&t), "lib/run-only"), "\177ELF of " HELLO);
    /* a directory of two layers has the attributes of the upper one */
    CHECK_INT(mode_of(usr_of(&t), "local/app"), 0775);
    CHECK_INT(mode_of(usr_of(&t), "lib"), 0755);
    CHECK_STR(text_of(usr_of(&t), "sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n");
    CHECK_INT(mode_of(usr_of(&t), "sbin/policy-rc.d"), 0755);
    MUST_OPEN(.hide_local = true);
    CHECK(hidden("local") && hidden("src"));
}

TEST(want_of_descriptors_is_not_taken_for_an_old_kernel)
{
    struct err why = { 0 };
    struct rlimit was, none;
    int made, usr;

    debian();
    MUST_OPEN(0);
    if (!t.image)
        return;
    made = open(in(t.base, ".."), O_PATH | O_DIRECTORY);
    usr = open(in(machine, "usr"), O_PATH | O_DIRECTORY);
    CHECK_INT(host_image_works(made, usr, &why), 1);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &was), 0);
    for (rlim_t n = 0; n < 3; n++) { /* at each of its steps */
        none = (struct rlimit){ (rlim_t)usr + 1 + n, was.rlim_max };
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
        CHECK_INT(host_image_works(made, usr, &why), -1);
    }
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &was), 0);
    CHECK_INT(host_image_works(usr, usr, &why), 0); /* there is none */
    close(made);
    close(usr);
}

TEST(files_of_usr_that_live_in_var_come_along)
{
    debian();
    put("var/lib/pub/one", 0644, HELLO);
    put("var/lib/maps/a/b", 0644, HELLO);
    put_link("var/lib/maps/up", "/usr/share/maps");
    put_link("usr/share/one", "/var/lib/pub/one");
    put_link("usr/share/doc/maps", "../../../var/lib/maps");
    put_link("usr/share/all", "/var/lib");
    put("var/cache/fontconfig/x.cache-8", 0644, HELLO);
    put("var/cache/fontconfig/closed", 0600, CANARY);
    MUST_OPEN(0);
    CHECK_STR(text_of(t.base, "var/lib/pub/one"), HELLO);
    CHECK_STR(text_of(t.base, "var/lib/maps/a/b"), HELLO);
    CHECK_STR(link_of("var/lib/maps/up"), "/usr/share/maps");
    CHECK_STR(text_of(t.base, "var/cache/fontconfig/x.cache-8"), HELLO);
    CHECK(!appears(CANARY));
}

TEST(the_operator_may_name_more_of_etc)
{
    static const char *const more[] = { "changed.conf", "/etc/site", NULL };
    static const char *const climbs[] = { "../root/x", NULL };
    static const char *const absent[] = { "nothing", NULL };

    debian();
    put("etc/changed.conf", 0600, "changed\n");
    put("etc/site/a/b", 0644, "b\n");
    MUST_OPEN(.etc_extra = more);
    CHECK_STR(text_of(t.base, "etc/changed.conf"), "changed\n");
    CHECK_STR(text_of(t.base, "etc/site/a/b"), "b\n");
    CHECK_INT(open_with((struct host_options){ .etc_extra = climbs }), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(open_with((struct host_options){ .etc_extra = absent }), -1);
    CHECK(strstr(err.msg, "etc_extra names /etc/nothing"));
    CHECK_INT(entries(), 1); /* nothing is left of a build that failed */
}

TEST(the_machines_mirrors_are_used_when_they_hold_no_secret)
{
    debian();
    put("etc/apt/sources.list", 0644, "# " CANARY "\ndeb http://mirror/debian stable main\n");
    put("etc/apt/sources.list.d/bad.list", 0644, "deb http://u:" CANARY "@mirror/x stable main\n");
    put("etc/apt/sources.list.d/good.sources", 0644, "Types: deb\nURIs: http://mirror/y\n");
    put("etc/apt/sources.list.d/off.disabled", 0644, "deb http://" CANARY "/x stable main\n");
    put("etc/pip.conf", 0644, "[global]\nindex-url = http://mirror/simple\ncert = " CANARY "\n");
    put("etc/npmrc", 0644, "registry=http://mirror/npm\n//mirror/:_authToken=" CANARY "\n");
    MUST_OPEN(.mirrors = true);
    CHECK_STR(text_of(t.base, "etc/apt/sources.list"), "deb http://mirror/debian stable main\n");
    CHECK(exists(t.base, "etc/apt/sources.list.d/good.sources"));
    CHECK_STR(text_of(t.base, "etc/pip.conf"), "[global]\nindex-url = http://mirror/simple\n");
    CHECK_STR(text_of(t.base, "etc/npmrc"), "registry = http://mirror/npm\n");
    CHECK(!appears(CANARY));
    MUST_OPEN(0);
    CHECK(!appears("http://mirror"));
}

TEST(a_machine_with_a_bin_of_its_own_has_it_copied)
{
    begin();
    put("bin/busybox", 04755, "busybox");
    put_link("bin/sh", "/bin/busybox");
    put_link("usr/bin/env", "/bin/busybox");
    put("sbin/closed", 0700, CANARY);
    put("lib/ld-musl.so.1", 0755, "musl");
    put("lib/modules/6/x.ko", 0644, CANARY);
    put("lib/firmware/x", 0644, CANARY);
    put("lib/apk/db/installed", 0644, "P:busybox\n");
    put("etc/passwd", 0644, "root:x:0:0:root:/root:/bin/ash\n");
    put("etc/services", 0644, "http 80/tcp\n");
    put("etc/apk/repositories", 0644, "http://mirror/alpine/main\n@edge http://mirror/edge\n");
    MUST_OPEN(0);
    CHECK(!t.merged_usr);
    CHECK_STR(text_of(t.base, "bin/busybox"), "busybox");
    CHECK_INT(mode_of(t.base, "bin/busybox"), 04755);
    CHECK_STR(link_of("bin/sh"), "/bin/busybox");
    CHECK_STR(text_of(t.base, "lib/apk/db/installed"), "P:busybox\n");
    CHECK_STR(text_of(t.base, "etc/services"), "http 80/tcp\n");
    CHECK(strstr(text_of(t.base, "etc/apk/repositories"), "@edge"));
    CHECK(strstr(text_of(t.base, "etc/passwd"), "user:x:1000:1000::/home/user:/bin/sh\n"));
    CHECK_INT(mode_of(t.base, "etc/shadow"), 0600); /* there is no group for it */
    CHECK(!exists(t.base, "etc/pam.d") && !exists(t.base, "etc/apt"));
    CHECK(!exists(usr_of(&t), "sbin/policy-rc.d"));
    CHECK(!appears(CANARY));
}

TEST(a_machine_without_programs_in_usr_is_refused_with_a_reason)
{
    begin();
    CHECK_INT(open_with((struct host_options){ 0 }), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "/usr"));
    put("usr/share/x", 0644, "x");
    CHECK_INT(open_with((struct host_options){ 0 }), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "/usr/bin/env"));
    CHECK(strstr(err.msg, "image template"));
    put_link("usr/bin/env", "/nix/store/abc/bin/env");
    CHECK_INT(open_with((struct host_options){ 0 }), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "/nix/store"));
    CHECK_INT(unlink(in(machine, "usr/bin/env")), 0);
    put("usr/bin/env", 0755, "env");
    put_link("bin", "/somewhere/else");
    CHECK_INT(open_with((struct host_options){ 0 }), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK_INT(entries(), 0);
}

static int keep_longest(void *arg, const struct host_entry *e, struct err *ignored)
{
    size_t *longest = arg;

    (void)ignored;
    *longest = MAX(*longest, strlen(e->path));
    return 1;
}

TEST(what_no_path_can_name_is_passed_over)
{
    char place[] = "/tmp/cove-deep-XXXXXX", name[251] = { 0 };
    size_t longest = 0;
    int at, next;

    memset(name, 'd', sizeof(name) - 1);
    CHECK(mkdtemp(place) != NULL);
    at = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 20; i++, at = next) { /* 5,000 bytes */
        CHECK_INT(mkdirat(at, name, 0755), 0);
        next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        close(at);
    }
    close(at);
    at = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(host_walk(at, "", keep_longest, &longest, &err), 0);
    CHECK(longest > 15 * sizeof(name) && longest + 1 < PATH_MAX);
    close(at);
    at = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(rmtree(at, strrchr(place, '/') + 1), 0);
    close(at);
}
