/* test_host_text.c - the parts of template host that take text and give text: accounts, package
 * sources, and where a link leads. */
#include "jail/host_accounts.h"
#include "jail/host_build.h"
#include "jail/host_mirrors.h"
#include "test.h"

static const struct host_shells shells = { "/bin/bash", "/usr/sbin/nologin" };
static struct host_accounts a;
static struct buf out;

static void parse(const char *passwd, const char *group, const char *defs)
{
    host_accounts_free(&a);
    host_accounts_parse(&a, str_of(passwd), str_of(group), str_of(defs), &shells);
    out.len = 0;
}

static void done(void)
{
    host_accounts_free(&a);
    buf_free(&out);
}

#define OURS "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"

TEST(system_accounts_keep_name_and_ids_only)
{
    parse("root:x:0:0:The Boss:/root:/bin/zsh\n"
          "daemon:x:1:1:some daemon:/usr/sbin:/usr/sbin/nologin\n"
          "svc:x:120:121:Ann's service,,,:/home/ann/svc:/bin/bash\n"
          "sync:x:4:65534:sync:/bin:/bin/sync\n"
          "postgres:x:101:104:PostgreSQL:/var/lib/postgresql:/bin/bash\n"
          "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
          "", "");
    host_accounts_passwd(&a, &out);
    CHECK_STR(buf_cstr(&out), OURS "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
                                   "svc:x:120:121::/nonexistent:/usr/sbin/nologin\n"
                                   "sync:x:4:65534::/bin:/bin/sync\n"
                                   "postgres:x:101:104::/var/lib/postgresql:/bin/sh\n"
                                   "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n");
    done();
}

TEST(people_do_not_come_along)
{
    parse("ann:x:1000:1000:Ann:/home/ann:/bin/bash\nben:x:60001:60001::/home/ben:/bin/sh\n"
          "toor:x:0:0:Ann's root:/root:/bin/sh\nuser:x:500:500::/home/user:/bin/sh\n"
          "mid:x:700:1000::/home/mid:/bin/sh\n",
          "sudo:x:27:ann,ben\nann:x:1000:\nstaff:x:50:ann\nzero:x:0:ann\n", "UID_MIN\t\t  700\n");
    host_accounts_passwd(&a, &out);
    CHECK_STR(buf_cstr(&out), OURS);
    out.len = 0;
    host_accounts_group(&a, &out);
    CHECK_STR(buf_cstr(&out), "root:x:0:\nuser:x:1000:\nsudo:x:27:user\nstaff:x:50:\n");
    out.len = 0;
    host_accounts_gshadow(&a, &out);
    CHECK_STR(buf_cstr(&out), "root:*::\nuser:*::\nsudo:*::user\nstaff:*::\n");
    done();
}

TEST(a_raised_uid_min_does_not_make_people_system_accounts)
{
    parse("ann:x:1500:1500::/home/ann:/bin/sh\nsvc:x:999:1500::/var/svc:/bin/false\n", "",
          "# UID_MIN 10\nUID_MIN 5000\nUID_MIN x\nUID_MIN 0\n");
    CHECK_INT(a.n_users, 3);
    CHECK_STR(a.users[2].name, "svc");
    CHECK_INT(a.users[2].gid, 65534); /* its group is a person's */
    CHECK(!host_accounts_system(&a, 1000));
    CHECK(host_accounts_system(&a, 999));
    CHECK(host_accounts_system(&a, 65534));
    done();
}

TEST(lines_that_are_no_account_are_passed_over)
{
    parse("\n#x:x:1:1:::\n+@nis\nx:y\na b:x:1:1::/:/\n-f:x:5:5::/:/\nneg:x:-1:1::/:/\n"
          "many:x:5:5::/:/:/\nbig:x:99999999999:1::/:/\n1a:x:5:5::/:/\nq:x:5:5::/var/a b:/\n",
          "x\ny:x:a:\n", "");
    CHECK_INT(a.n_users, 3);
    CHECK_STR(a.users[2].name, "q");
    CHECK_STR(a.users[2].home, "/nonexistent");
    CHECK_INT(a.n_groups, 2);
    CHECK_INT(host_accounts_uid(&a, "nobody-here"), 0);
    CHECK_INT(host_accounts_uid(&a, "user"), 1000);
    CHECK(host_accounts_has(&a, STR("q"), STR("user")));
    CHECK(!host_accounts_has(&a, STR("ann"), STR("user")));
    done();
}

TEST(nobody_has_a_password)
{
    parse("daemon:x:1:1::/:/\n", "", "");
    host_accounts_shadow(&a, &out);
    CHECK_STR(buf_cstr(&out), "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n"
                              "daemon:*:19000:0:99999:7:::\n");
    done();
}

TEST(lists_with_credentials_or_foreign_keys_are_not_safe)
{
    static const char *const bad[] = {
        "deb http://ann:secret@mirror/debian stable main\n",
        "URIs: https://token@mirror/debian\n",
        "deb [signed-by=/root/key.gpg] http://mirror/debian stable main\n",
        "Signed-By: /etc/apt/../private/key.gpg\n",
        "Signed-By:\n /home/ann/key.gpg\n",
        "deb file:/srv/mirror stable main\n",
        "deb FILE:///srv/mirror stable main\n",
        "@edge http://u:p@mirror/alpine/edge\n",
    };
    static const char *const good[] = {
        "deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] https://mirror:80/debian/@x s main\n",
        "Types: deb\nURIs: http://mirror/debian\nSuites: stable\nSigned-By: /etc/apt/keyrings/k.asc\n",
        "deb http://mirror/flat /\n",
        "@edge http://mirror/alpine/edge\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!host_mirrors_safe(str_of(bad[i])));
    CHECK(!host_mirrors_safe(STR("deb http://m/\0 x")));
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(host_mirrors_safe(str_of(good[i])));
}

TEST(comments_do_not_come_along)
{
    host_mirrors_strip(STR("# ann was here\n  # too\ndeb http://m/d s main # ask ben\n"), &out);
    CHECK_STR(buf_cstr(&out), "deb http://m/d s main \n");
    done();
}

TEST(of_other_settings_only_plain_addresses_are_kept)
{
    static const char *const keys[] = { "index-url", "trusted-host", NULL };

    CHECK_INT(host_mirrors_keys(STR("[global]\nindex-url=https://m/simple\ntrusted-host = m\n"
                                    "cert = /x\nproxy = http://p\n"),
                                keys, &out),
              2);
    CHECK_STR(buf_cstr(&out), "index-url = https://m/simple\ntrusted-host = m\n");
    out.len = 0;
    CHECK_INT(host_mirrors_keys(STR("index-url=https://u:p@m/simple\nindex-url=https://m/?t=1\n"
                                    "index-url=file:///x\nindex-url=a b\nindex-url=${TOKEN}\n"
                                    "index-url=\n"),
                                keys, &out),
              0);
    done();
}

static const char *leads(const char *link, const char *target)
{
    return host_walk_resolve(link, str_of(target), &out) ? out.data : "nowhere";
}

TEST(a_link_leads_where_its_text_says)
{
    CHECK_STR(leads("etc/a/b", "/usr/bin/x"), "usr/bin/x");
    CHECK_STR(leads("etc/a/b", "../../usr/./bin//x"), "usr/bin/x");
    CHECK_STR(leads("etc/a/b", "c"), "etc/a/c");
    CHECK_STR(leads("a", "b"), "b");
    CHECK_STR(leads("etc/a", "../../../../usr"), "usr");
    CHECK_STR(leads("etc/a", "/usr/../home/ann"), "nowhere");
    CHECK_STR(leads("etc/a", "x/../../usr"), "nowhere");
    CHECK_STR(leads("etc/a", "/"), "nowhere");
    CHECK_STR(leads("etc/a", ""), "nowhere");
    CHECK(host_below("usr/bin", "usr") && host_below("usr", "usr") && !host_below("usrx", "usr"));
    CHECK(host_in_usr("lib64/x") && !host_in_usr("libexec/x"));
    done();
}
