/* test_dpkg.c - the configuration files in dpkg's status file. */
#include "jail/dpkg.h"
#include "test.h"

#define MD5 "b1946ac92492d2347c6235b4d2611184"

static int count(const char *text, struct dpkg_conffile *last)
{
    struct dpkg_conffiles it = { .rest = str_of(text) };
    int n = 0;

    while (dpkg_next_conffile(&it, last))
        n++;
    return n;
}

TEST(conffiles_of_all_packages_come_in_order)
{
    struct dpkg_conffiles it = { .rest = STR("Package: a\nStatus: install ok installed\n"
                                             "Conffiles:\n"
                                             " /etc/a " MD5 "\n"
                                             " /etc/a.d/with space " MD5 "\n"
                                             "Description: a\n /etc/not " MD5 "\n"
                                             "\n"
                                             "Package: b\nconffiles:\n"
                                             " /etc/b " MD5 " obsolete\n") };
    struct dpkg_conffile c;

    CHECK(dpkg_next_conffile(&it, &c));
    CHECK(str_is(c.path, "/etc/a"));
    CHECK_INT(c.md5[0], 0xb1);
    CHECK_INT(c.md5[15], 0x84);
    CHECK(dpkg_next_conffile(&it, &c));
    CHECK(str_is(c.path, "/etc/a.d/with space"));
    CHECK(dpkg_next_conffile(&it, &c));
    CHECK(str_is(c.path, "/etc/b"));
    CHECK(!dpkg_next_conffile(&it, &c));
    CHECK(!dpkg_next_conffile(&it, &c));
}

TEST(lines_that_are_no_conffile_are_passed_over)
{
    struct dpkg_conffile c;

    CHECK_INT(count("", &c), 0);
    CHECK_INT(count("Conffiles:", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc/a newconffile\n", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc/a\n \n " MD5 "\n obsolete\n", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc/a " MD5 "0\n", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc/a x" MD5 "\n", &c), 0);
    CHECK_INT(count("Conffiles:\n\n /etc/a " MD5 "\n", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc/a " MD5, &c), 1);
}

TEST(a_path_that_climbs_is_none)
{
    struct dpkg_conffile c;

    CHECK_INT(count("Conffiles:\n /etc/../root/x " MD5 "\n etc/x " MD5 "\n / " MD5 "\n", &c), 0);
    CHECK_INT(count("Conffiles:\n /etc//x " MD5 "\n /etc/./x " MD5 "\n /etc/x/ " MD5 "\n", &c), 0);
    CHECK(dpkg_clean_path(STR("/etc/..x/.y")));
    CHECK(!dpkg_clean_path(STR("/etc/x/..")));
    CHECK(!dpkg_clean_path(STR("/etc/a\nb")));
    CHECK(!dpkg_clean_path(STR("/etc/a\0b")));
}
