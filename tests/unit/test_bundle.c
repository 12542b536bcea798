/* A backup with files (keep/bundle.h): what is written is taken, and nothing else. */
#include "keep/bundle.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "test.h"

static struct err err;

static int new_file(void)
{
    int fd = memfd_create("bundle", MFD_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

static int put(int fd, struct bundle *b, enum bundle_kind kind, const char *id, const char *text)
{
    return bundle_put(fd, b, kind, id, str_of(text), &err);
}

static void write_sample(int fd)
{
    AUTO(bundle_free) struct bundle b = { 0 };

    CHECK_INT(put(fd, &b, BUNDLE_VERSION, NULL, BUNDLE_FORMAT), 0);
    CHECK_INT(put(fd, &b, BUNDLE_DATABASE, NULL, "database"), 0);
    CHECK_INT(put(fd, &b, BUNDLE_NOTE, "a1", "note"), 0);
    CHECK_INT(put(fd, &b, BUNDLE_LAYER, "a1", "layer"), 0);
    CHECK_INT(bundle_finish(fd, &b, &err), 0);
}

static int check(int fd)
{
    AUTO(bundle_free) struct bundle b = { 0 };

    err = (struct err){ 0 };
    return bundle_check(fd, &b, &err);
}

TEST(what_was_written_is_read)
{
    AUTO(bundle_free) struct bundle b = { 0 };
    AUTO(buf_free) struct buf text = { 0 };
    AUTO(closep) int fd = new_file();

    write_sample(fd);
    CHECK(bundle_is(fd));
    CHECK_INT(bundle_check(fd, &b, &err), 0);
    CHECK_INT(b.n, 5);
    CHECK_INT(bundle_read(fd, bundle_find(&b, BUNDLE_LAYER, "a1"), 16, &text, &err), 0);
    CHECK_STR(buf_cstr(&text), "layer");
    CHECK(!bundle_find(&b, BUNDLE_LAYER, "a2"));
    CHECK_INT(bundle_read(fd, bundle_find(&b, BUNDLE_LAYER, "a1"), 4, &text, &err), -1);
}

TEST(every_byte_counts)
{
    AUTO(closep) int fd = new_file();
    off_t size;

    write_sample(fd);
    size = lseek(fd, 0, SEEK_END);
    for (off_t at = 0; at < size; at++) {
        char was, is;

        CHECK_INT(pread(fd, &was, 1, at), 1);
        is = (char)(was ^ 1 << at % 7);
        CHECK_INT(pwrite(fd, &is, 1, at), 1);
        if (!check(fd))
            test_fail(__FILE__, __LINE__, "byte %lld is taken changed", (long long)at);
        CHECK_INT(pwrite(fd, &was, 1, at), 1);
    }
    CHECK_INT(check(fd), 0);
}

TEST(no_beginning_of_one_is_one)
{
    AUTO(closep) int fd = new_file();
    off_t size;

    write_sample(fd);
    CHECK_INT(write(fd, "", 1), 1);
    CHECK_INT(check(fd), -1);
    CHECK_STR(err.msg, "it has bytes behind its end");
    size = lseek(fd, 0, SEEK_END);
    for (off_t n = size - 2; n >= 0; n -= 7) {
        CHECK_INT(ftruncate(fd, n), 0);
        CHECK_INT(check(fd), -1);
        CHECK(*err.msg);
    }
}

TEST(a_member_can_be_taken_back)
{
    AUTO(bundle_free) struct bundle b = { 0 };
    AUTO(closep) int fd = new_file();

    CHECK_INT(put(fd, &b, BUNDLE_VERSION, NULL, BUNDLE_FORMAT), 0);
    CHECK_INT(put(fd, &b, BUNDLE_DATABASE, NULL, "database"), 0);
    CHECK_INT(put(fd, &b, BUNDLE_NOTE, "a1", "note"), 0);
    CHECK_INT(bundle_begin(fd, &b, BUNDLE_LAYER, "a1", &err), 0);
    CHECK_INT(write(fd, "half", 4), 4);
    CHECK_INT(bundle_drop_last(fd, &b, &err), 0);
    CHECK_INT(bundle_drop_last(fd, &b, &err), 0);
    CHECK_INT(put(fd, &b, BUNDLE_NOTE, "a2", "note"), 0);
    CHECK_INT(put(fd, &b, BUNDLE_LAYER, "a2", ""), 0);
    CHECK_INT(bundle_finish(fd, &b, &err), 0);
    CHECK_INT(check(fd), 0);
}

/* ---- order ---- */

static void refused(const enum bundle_kind *kinds, size_t n, const char *ids)
{
    AUTO(bundle_free) struct bundle b = { 0 };
    AUTO(closep) int fd = new_file();
    char id[2] = "";

    for (size_t i = 0; i < n; i++) {
        bool named = kinds[i] == BUNDLE_NOTE || kinds[i] == BUNDLE_LAYER;

        id[0] = ids[i];
        CHECK_INT(put(fd, &b, kinds[i], named ? id : NULL,
                      kinds[i] == BUNDLE_VERSION ? BUNDLE_FORMAT : "x"),
                  0);
    }
    CHECK_INT(bundle_finish(fd, &b, &err), 0);
    CHECK_INT(check(fd), -1);
    CHECK(strstr(err.msg, "order") || strstr(err.msg, "twice"));
}

#define REFUSED(ids, ...)                                                                          \
    refused((enum bundle_kind[]){ __VA_ARGS__ },                                                   \
            sizeof((enum bundle_kind[]){ __VA_ARGS__ }) / sizeof(enum bundle_kind), ids)

TEST(members_come_in_one_order_alone)
{
    REFUSED("-", BUNDLE_DATABASE);
    REFUSED("-", BUNDLE_VERSION);
    REFUSED("--", BUNDLE_VERSION, BUNDLE_VERSION);
    REFUSED("---", BUNDLE_VERSION, BUNDLE_DATABASE, BUNDLE_DATABASE);
    REFUSED("--a", BUNDLE_VERSION, BUNDLE_DATABASE, BUNDLE_NOTE);
    REFUSED("--a", BUNDLE_VERSION, BUNDLE_DATABASE, BUNDLE_LAYER);
    REFUSED("--ab", BUNDLE_VERSION, BUNDLE_DATABASE, BUNDLE_NOTE, BUNDLE_LAYER);
    REFUSED("-aa", BUNDLE_VERSION, BUNDLE_NOTE, BUNDLE_LAYER);
    REFUSED("--aaaa", BUNDLE_VERSION, BUNDLE_DATABASE, BUNDLE_NOTE, BUNDLE_LAYER, BUNDLE_NOTE,
            BUNDLE_LAYER);
}

TEST(a_newer_format_is_told_from_damage)
{
    AUTO(bundle_free) struct bundle b = { 0 };
    AUTO(closep) int fd = new_file();

    CHECK_INT(put(fd, &b, BUNDLE_VERSION, NULL, "2\n"), 0);
    CHECK_INT(put(fd, &b, BUNDLE_DATABASE, NULL, "x"), 0);
    CHECK_INT(bundle_finish(fd, &b, &err), 0);
    CHECK_INT(check(fd), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
}

TEST(a_head_that_a_small_number_does_not_fit_has_it_in_binary)
{
    char block[BUNDLE_BLOCK];
    struct bundle_member m = { .kind = BUNDLE_LAYER, .id = "a1", .size = 1ULL << 40, .time_s = 5 };
    struct bundle_member again;

    bundle_head(&m, block);
    CHECK_INT(bundle_read_head(block, &again, &err), 0);
    CHECK_INT(again.size, 1ULL << 40);
    CHECK_INT(again.time_s, 5);
    CHECK_STR(again.id, "a1");
}
