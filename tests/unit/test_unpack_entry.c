/* What one entry of an archive may become (jail/unpack_entry.c). */
#include <linux/capability.h>

#include "base/util.h"
#include "jail/unpack_entry.h"
#include "test.h"

static struct entry_clean clean;

static enum entry_verdict check(enum entry_type type, struct str name, const char *link)
{
    struct entry_raw raw = { .type = type, .name = name, .link = str_of(link) };

    return unpack_entry_check(&raw, &clean);
}

static enum entry_verdict file(const char *name) { return check(ENTRY_FILE, str_of(name), NULL); }

TEST(an_ordinary_name_stays_as_it_is)
{
    CHECK_INT(file("usr/bin/env"), ENTRY_KEEP);
    CHECK_STR(clean.path, "usr/bin/env");
    CHECK(!clean.stripped);
}

TEST(dots_and_doubled_slashes_vanish)
{
    CHECK_INT(file("./usr//./bin/env/"), ENTRY_KEEP);
    CHECK_STR(clean.path, "usr/bin/env");
}

TEST(an_absolute_name_becomes_relative)
{
    CHECK_INT(file("//etc/passwd"), ENTRY_KEEP);
    CHECK_STR(clean.path, "etc/passwd");
    CHECK(clean.stripped);
}

TEST(two_dots_anywhere_refuse_the_archive)
{
    static const char *const names[] = { "..",      "../x",    "a/..",   "a/../b", "/../x",
                                         "./../x/", "a/b/../", "..//x/", "a/.//.." };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CHECK_INT(file(names[i]), ENTRY_REJECT);
        CHECK_STR(clean.why, "has '..' in its path");
    }
}

TEST(names_that_only_look_like_two_dots_are_names)
{
    static const char *const names[] = { "...", "..a", "a..", ". .", ".. ", "..\\x" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CHECK_INT(file(names[i]), ENTRY_KEEP);
        CHECK_STR(clean.path, names[i]);
    }
}

TEST(only_a_directory_may_be_the_root)
{
    static const char *const names[] = { "", "/", ".", "./", "//./" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CHECK_INT(file(names[i]), ENTRY_REJECT);
        CHECK_INT(check(ENTRY_DIRECTORY, str_of(names[i]), NULL), ENTRY_KEEP);
        CHECK_STR(clean.path, "");
    }
}

TEST(bytes_of_a_name_are_free_but_for_nul)
{
    CHECK_INT(file("a\n\033[31m\x80\xff b"), ENTRY_KEEP);
    CHECK_STR(clean.path, "a\n\033[31m\x80\xff b");
    CHECK_INT(check(ENTRY_FILE, STR("a\0b"), NULL), ENTRY_REJECT);
}

TEST(what_the_kernel_cannot_name_is_refused_before)
{
    char name[2 * ENTRY_PATH];

    memset(name, 'a', sizeof(name));
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 255 }, NULL), ENTRY_KEEP);
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 256 }, NULL), ENTRY_REJECT);
    for (size_t i = 200; i < sizeof(name); i += 201)
        name[i] = '/';
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 4095 }, NULL), ENTRY_KEEP);
    CHECK_INT(strlen(clean.path), 4095);
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 4096 }, NULL), ENTRY_REJECT);
}

TEST(depth_is_bounded)
{
    char name[2 * ENTRY_DEPTH + 2];

    for (size_t i = 0; i < sizeof(name); i++)
        name[i] = i % 2 ? '/' : 'd';
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 2 * ENTRY_DEPTH }, NULL), ENTRY_KEEP);
    CHECK_INT(check(ENTRY_FILE, (struct str){ name, 2 * ENTRY_DEPTH + 1 }, NULL), ENTRY_REJECT);
}

TEST(a_symlink_may_say_anything)
{
    CHECK_INT(check(ENTRY_SYMLINK, STR("l"), "/../../etc/passwd"), ENTRY_KEEP);
    CHECK_STR(clean.link, "/../../etc/passwd");
    CHECK_INT(check(ENTRY_SYMLINK, STR("l"), ""), ENTRY_REJECT);
}

TEST(a_hard_link_stays_inside)
{
    CHECK_INT(check(ENTRY_HARDLINK, STR("l"), "/etc//passwd"), ENTRY_KEEP);
    CHECK_STR(clean.link, "etc/passwd");
    CHECK_INT(check(ENTRY_HARDLINK, STR("l"), "../x"), ENTRY_REJECT);
    CHECK_INT(check(ENTRY_HARDLINK, STR("l"), "/"), ENTRY_REJECT);
}

TEST(devices_sockets_and_whiteouts_are_left_out)
{
    CHECK_INT(check(ENTRY_DEVICE, STR("dev/sda"), NULL), ENTRY_SKIP_DEVICE);
    CHECK_INT(check(ENTRY_SOCKET, STR("run/s"), NULL), ENTRY_SKIP_SOCKET);
    CHECK_INT(file("etc/.wh.passwd"), ENTRY_SKIP_WHITEOUT);
    CHECK_INT(file(".wh..wh.plnk/1.2"), ENTRY_SKIP_WHITEOUT);
    CHECK_INT(check(ENTRY_HARDLINK, STR("l"), ".wh..wh.plnk/1.2"), ENTRY_SKIP_WHITEOUT);
    CHECK_INT(file("etc/x.wh.passwd"), ENTRY_KEEP);
    CHECK_INT(check(ENTRY_UNKNOWN, STR("x"), NULL), ENTRY_REJECT);
    /* being left out excuses no bad name */
    CHECK_INT(check(ENTRY_DEVICE, STR("../sda"), NULL), ENTRY_REJECT);
}

static bool keeps(enum entry_type type, const char *name)
{
    return unpack_entry_keep_xattr(type, str_of(name), "y", 1);
}

TEST(only_user_attributes_come_along_and_not_those_of_overlayfs)
{
    CHECK(keeps(ENTRY_FILE, "user.mime_type"));
    CHECK(keeps(ENTRY_DIRECTORY, "user.x"));
    CHECK(!keeps(ENTRY_SYMLINK, "user.x"));
    CHECK(!keeps(ENTRY_FILE, "user."));
    CHECK(!keeps(ENTRY_DIRECTORY, "user.overlay.opaque"));
    CHECK(!keeps(ENTRY_FILE, "user.overlay.whiteout"));
    CHECK(!keeps(ENTRY_FILE, "user.overlay.overlay.redirect"));
    CHECK(!keeps(ENTRY_DIRECTORY, "trusted.overlay.opaque"));
    CHECK(!keeps(ENTRY_FILE, "trusted.x"));
    CHECK(!keeps(ENTRY_FILE, "security.selinux"));
    CHECK(!keeps(ENTRY_FILE, "security.ima"));
    CHECK(!keeps(ENTRY_FILE, "system.posix_acl_access"));
    CHECK(!keeps(ENTRY_FILE, "btrfs.compression"));
}

TEST(a_capability_comes_along_in_its_plain_form_only)
{
    unsigned char v2[20] = { 1, 0, 0, 2, 0, 4 }, v3[24] = { 1, 0, 0, 3, 0, 4 };
    struct str name = STR("security.capability");

    CHECK(unpack_entry_keep_xattr(ENTRY_FILE, name, v2, sizeof(v2)));
    CHECK(!unpack_entry_keep_xattr(ENTRY_DIRECTORY, name, v2, sizeof(v2)));
    CHECK(!unpack_entry_keep_xattr(ENTRY_FILE, name, v2, sizeof(v2) - 1));
    CHECK(!unpack_entry_keep_xattr(ENTRY_FILE, name, v3, sizeof(v3)));
    CHECK(!unpack_entry_keep_xattr(ENTRY_FILE, name, v3, sizeof(v2)));
    CHECK(!unpack_entry_keep_xattr(ENTRY_FILE, name, NULL, 0));
}

TEST(a_label_is_fit_for_a_terminal)
{
    char label[ENTRY_LABEL];

    unpack_entry_label(STR("usr/caf\xc3\xa9/\033]0;x\007\\\xff\xc2\x9b\x7f"), label);
    CHECK_STR(label, "usr/caf\xc3\xa9/\\x1b]0;x\\x07\\x5c\\xff\\xc2\\x9b\\x7f");
    unpack_entry_label(STR(""), label);
    CHECK_STR(label, "");
}

TEST(a_long_label_is_cut_off_with_dots)
{
    char name[ENTRY_PATH], label[ENTRY_LABEL];

    memset(name, 'n', sizeof(name));
    unpack_entry_label((struct str){ name, sizeof(name) }, label);
    CHECK_INT(strlen(label), ENTRY_LABEL - 1);
    CHECK_STR(label + ENTRY_LABEL - 5, "n...");
    unpack_entry_label((struct str){ name, ENTRY_LABEL - 4 }, label);
    CHECK_INT(strlen(label), ENTRY_LABEL - 4);
}

/* ---- of a layer ---- */

static enum entry_verdict in_layer(enum entry_type type, const char *name, const char *link)
{
    struct entry_raw raw = { .type = type, .name = str_of(name), .link = str_of(link) };

    return unpack_entry_check_layer(&raw, &clean);
}

TEST(a_layer_has_all_below_its_two_directories)
{
    CHECK_INT(in_layer(ENTRY_DIRECTORY, "r", NULL), ENTRY_KEEP);
    CHECK_INT(in_layer(ENTRY_FILE, "u/bin/.wh.x", NULL), ENTRY_KEEP);
    CHECK_STR(clean.path, "u/bin/.wh.x");
    CHECK_INT(in_layer(ENTRY_HARDLINK, "r/a", "u/b"), ENTRY_KEEP);
    CHECK_INT(in_layer(ENTRY_FILE, "r", NULL), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_DIRECTORY, ".", NULL), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_FILE, "rw0/x", NULL), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_FILE, "x", NULL), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_HARDLINK, "r/a", "x"), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_HARDLINK, "r/a", "r"), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_FILE, "/r/x", NULL), ENTRY_REJECT);
    CHECK_INT(in_layer(ENTRY_FILE, "r/../x", NULL), ENTRY_REJECT);
}

TEST(the_only_device_of_a_layer_is_the_whiteout)
{
    struct entry_raw raw = { .type = ENTRY_DEVICE, .name = STR("r/x"), .zero = true };

    CHECK_INT(unpack_entry_check_layer(&raw, &clean), ENTRY_KEEP_WHITEOUT);
    raw.zero = false;
    CHECK_INT(unpack_entry_check_layer(&raw, &clean), ENTRY_REJECT);
    CHECK_STR(clean.why, "is a device");
    CHECK_INT(in_layer(ENTRY_SOCKET, "r/x", NULL), ENTRY_REJECT);
}

TEST(a_layer_keeps_what_hides_and_not_what_leads_elsewhere)
{
    CHECK(unpack_entry_layer_xattr(STR("user.overlay.opaque"), "y", 1));
    CHECK(unpack_entry_layer_xattr(STR("user.overlay.overlay.redirect"), "/x", 2));
    CHECK(unpack_entry_layer_xattr(STR("user.any"), "", 0));
    CHECK(!unpack_entry_layer_xattr(STR("user.overlay.opaque"), "yy", 2));
    CHECK(!unpack_entry_layer_xattr(STR("user.overlay.redirect"), "/x", 2));
    CHECK(!unpack_entry_layer_xattr(STR("user.overlay.metacopy"), "", 0));
    CHECK(!unpack_entry_layer_xattr(STR("user.overlay.origin"), "x", 1));
    CHECK(!unpack_entry_layer_xattr(STR("trusted.overlay.opaque"), "y", 1));
    CHECK(!unpack_entry_layer_xattr(STR("security.selinux"), "x", 1));
    CHECK(!unpack_entry_layer_xattr(STR("user."), "x", 1));
}
