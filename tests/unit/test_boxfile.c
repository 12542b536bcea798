/* test_boxfile.c - the keeper's files as bytes: what a release wrote is read by the ones before and
 * after it, and what is damaged is named. */
#include "keep/boxfile.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "test.h"

static struct buf bytes, unknown;
static struct boxfile f, out;
static struct err err;

static void fill(void)
{
    f = (struct boxfile){ .id = "a1",
                          .name = "box-a1",
                          .boot = "0d4c-boot\n",
                          .order = { .template = "host",
                                     .limits = { .memory_bytes = 1 << 30 },
                                     .network = ORDER_NET_OPEN,
                                     .flags = ORDER_STAY },
                          .family = 77,
                          .pid = 4711,
                          .started = 1234567,
                          .fingerprint = "0123456789abcdef0123456789abcdef",
                          .number = 9,
                          .is = BOXFILE_FROZEN | BOXFILE_FRESH,
                          .deadline_ms = 987654321,
                          .oom_kills = 2,
                          .pids_refused = 3,
                          .run_dir = "/run/cove" };
    CHECK_INT(order_add_mount(&f.order, "/srv", "/data", ORDER_MOUNT_READ_ONLY, &err), 0);
}

static void write_file(enum boxfile_kind kind, struct str rest)
{
    bytes.len = 0;
    CHECK_INT(boxfile_encode(&f, kind, rest, &bytes, &err), 0);
}

static int read_file(enum boxfile_kind kind, const char *id)
{
    memset(&out, 0x55, sizeof(out));
    unknown.len = 0;
    err = (struct err){ 0 };
    return boxfile_decode(buf_str(&bytes), kind, id, &out, &unknown, &err);
}

static void check_same(void)
{
    CHECK_STR(out.id, f.id);
    CHECK_STR(out.name, f.name);
    CHECK_STR(out.boot, f.boot);
    CHECK_STR(out.fingerprint, f.fingerprint);
    CHECK_STR(out.run_dir, f.run_dir);
    CHECK_STR(out.order.template, f.order.template);
    CHECK_STR(out.order.snapshot, f.order.snapshot);
    CHECK(!memcmp(&out.order.limits, &f.order.limits, sizeof(f.order.limits)));
    CHECK_INT(out.order.network, f.order.network);
    CHECK_INT(out.order.flags, f.order.flags);
    CHECK_INT(out.order.nmounts, f.order.nmounts);
    for (uint32_t i = 0; i < f.order.nmounts; i++) {
        CHECK_STR(out.order.mounts[i].host, f.order.mounts[i].host);
        CHECK_STR(out.order.mounts[i].guest, f.order.mounts[i].guest);
        CHECK_INT(out.order.mounts[i].flags, f.order.mounts[i].flags);
    }
    CHECK_INT(out.family, f.family);
    CHECK_INT(out.pid, f.pid);
    CHECK(out.started == f.started);
    CHECK_INT(out.number, f.number);
    CHECK_INT(out.is, f.is);
    CHECK(out.deadline_ms == f.deadline_ms);
    CHECK(out.oom_kills == f.oom_kills && out.pids_refused == f.pids_refused);
}

TEST(what_is_written_is_read_again)
{
    for (enum boxfile_kind kind = BOXFILE_RECORD; kind <= BOXFILE_NOTE; kind++) {
        fill();
        write_file(kind, (struct str){ 0 });
        CHECK_INT(read_file(kind, "a1"), 0);
        check_same();
        CHECK_INT(unknown.len, 0);
    }
}

TEST(a_record_without_mounts_fits_a_page)
{
    fill();
    f.order.nmounts = 0;
    write_file(BOXFILE_RECORD, (struct str){ 0 });
    CHECK(bytes.len < 512);
}

TEST(fields_of_a_newer_release_are_kept_and_written_back)
{
    AUTO(buf_free) struct buf order = { 0 };
    AUTO(buf_free) struct buf more = { 0 };
    AUTO(buf_free) struct buf kept = { 0 };

    fill();
    CHECK_INT(tag_put(90, STR("in the order"), &order, &err), 0);
    CHECK_INT(tag_put(91, STR("gpus"), &more, &err), 0);
    CHECK_INT(tag_put(BOXFILE_ORDER, buf_str(&order), &more, &err), 0);
    write_file(BOXFILE_RECORD, buf_str(&more));
    CHECK_INT(read_file(BOXFILE_RECORD, "a1"), 0);
    check_same();
    buf_add_str(&kept, buf_str(&unknown));
    f.deadline_ms = 5;
    write_file(BOXFILE_RECORD, buf_str(&kept));
    CHECK_INT(read_file(BOXFILE_RECORD, "a1"), 0);
    check_same();
    CHECK(str_is(tag_find(buf_str(&unknown), 91), "gpus"));
    CHECK(str_is(tag_find(tag_find(buf_str(&unknown), BOXFILE_ORDER), 90), "in the order"));
}

TEST(missing_fields_have_their_defaults)
{
    f = (struct boxfile){
        .id = "a1", .name = "box-a1", .order.template = "host", .deadline_ms = INT64_MAX
    };
    write_file(BOXFILE_RECORD, (struct str){ 0 });
    CHECK(bytes.len < 64);
    CHECK_INT(read_file(BOXFILE_RECORD, "a1"), 0);
    check_same();
}

TEST(what_a_longer_one_left_behind_it_does_not_matter)
{
    fill();
    write_file(BOXFILE_RECORD, (struct str){ 0 });
    buf_puts(&bytes, "the end of a longer one");
    CHECK_INT(read_file(BOXFILE_RECORD, "a1"), 0);
    check_same();
}

static void check_refused(enum boxfile_kind kind, const char *id, enum err_code code,
                          const char *says)
{
    CHECK_INT(read_file(kind, id), -1);
    CHECK_INT(err.code, code);
    CHECK_STR(err.msg, says);
}

TEST(a_damaged_file_is_named_whichever_byte_it_is)
{
    fill();
    write_file(BOXFILE_NOTE, (struct str){ 0 });
    for (size_t i = 0; i < bytes.len; i++) {
        bytes.data[i] ^= 0x10;
        CHECK_INT(read_file(BOXFILE_NOTE, "a1"), -1);
        bytes.data[i] ^= 0x10;
    }
    bytes.len--;
    check_refused(BOXFILE_NOTE, "a1", ERR_INVALID, "it has 184 bytes of 185");
    bytes.len = 3;
    check_refused(BOXFILE_NOTE, "a1", ERR_INVALID, "it does not begin as such a file does");
    bytes.len = 0;
    check_refused(BOXFILE_RECORD, "a1", ERR_NOT_FOUND, "it is empty");
}

TEST(another_sandboxs_or_another_kind_is_refused)
{
    fill();
    write_file(BOXFILE_NOTE, (struct str){ 0 });
    check_refused(BOXFILE_NOTE, "b2", ERR_INVALID, "it is of sandbox 'a1'");
    check_refused(BOXFILE_RECORD, "a1", ERR_INVALID, "it is a file of another kind (2)");
    memcpy(f.name, "../../etc", 10);
    write_file(BOXFILE_NOTE, (struct str){ 0 });
    check_refused(BOXFILE_NOTE, "a1", ERR_INVALID, "field 'name' cannot be a layer's");
    fill();
    f.family = 0;
    write_file(BOXFILE_NOTE, (struct str){ 0 });
    check_refused(BOXFILE_NOTE, "a1", ERR_INVALID, "field 'family' is missing");
    fill();
    f.order.network = 9;
    write_file(BOXFILE_NOTE, (struct str){ 0 });
    check_refused(BOXFILE_NOTE, "a1", ERR_INVALID, "field 'network': no mode 9");
}

TEST(a_file_of_a_newer_schema_is_not_taken_for_a_damaged_one)
{
    fill();
    write_file(BOXFILE_RECORD, (struct str){ 0 });
    bytes.data[4] = KEEP_SCHEMA + 1;
    check_refused(BOXFILE_RECORD, "a1", ERR_UNSUPPORTED,
                  "a newer release wrote it (schema 5; this one knows 4)");
}

/* ---- what release 46eceed wrote ---- */

static void load(const char *name)
{
    char path[512];
    FILE *in;
    char chunk[4096];
    size_t n;

    snprintf(path, sizeof(path), "%s/tests/data/46eceed/%s", COVE_SOURCE, name);
    in = fopen(path, "rb");
    if (!in)
        test_fail(__FILE__, __LINE__, "no %s", path);
    bytes.len = 0;
    while ((n = fread(chunk, 1, sizeof(chunk), in)) > 0)
        buf_add(&bytes, chunk, n);
    fclose(in);
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name)) ? json_string_value(json_object_get(o, name))
                                                       : "";
}

static int64_t number_of(const json_t *o, const char *name)
{
    return json_integer_value(json_object_get(o, name));
}

static void check_order(const json_t *o)
{
    const json_t *limits = json_object_get(o, "limits"), *mounts = json_object_get(o, "mounts");
    const json_t *mount;
    size_t i;

    CHECK_STR(out.order.template, text_of(o, "template"));
    CHECK_STR(out.order.snapshot, text_of(o, "snapshot"));
    CHECK_INT(out.order.network, number_of(o, "network"));
    CHECK_INT(out.order.flags, number_of(o, "flags"));
    CHECK_INT(out.order.limits.memory_bytes, number_of(limits, "memory_bytes"));
    CHECK_INT(out.order.limits.cpu_milli, number_of(limits, "cpu_milli"));
    CHECK_INT(out.order.limits.pids, number_of(limits, "pids"));
    CHECK_INT(out.order.limits.io_weight, number_of(limits, "io_weight"));
    CHECK_INT(out.order.limits.open_files, number_of(limits, "open_files"));
    CHECK_INT(out.order.limits.disk_bytes, number_of(limits, "disk_bytes"));
    CHECK_INT(out.order.limits.log_bytes, number_of(limits, "log_bytes"));
    CHECK_INT(out.order.limits.lifetime_ms, number_of(limits, "lifetime_ms"));
    CHECK_INT(out.order.nmounts, json_array_size(mounts));
    json_array_foreach(mounts, i, mount)
    {
        CHECK_STR(out.order.mounts[i].host, text_of(mount, "host"));
        CHECK_STR(out.order.mounts[i].guest, text_of(mount, "guest"));
        CHECK_INT(out.order.mounts[i].flags, number_of(mount, "flags"));
    }
}

/* A record of the older of its two magics has its deadline in wall time. */
static void check_deadline(const json_t *o)
{
    int64_t want = number_of(o, "deadline_ms");

    if (number_of(o, "magic") == 0x626f7831)
        want += clock_ms() - clock_wall_ms();
    CHECK(llabs(out.deadline_ms - want) < 1000);
}

static void check_old(const char *name, const json_t *o)
{
    enum boxfile_kind kind = strncmp(name, "paused/", 7) ? BOXFILE_RECORD : BOXFILE_NOTE;
    struct boxfile first;

    load(name);
    CHECK_INT(bytes.len, number_of(o, "size"));
    if (read_file(kind, text_of(o, "id")) != 1)
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.msg);
    CHECK_STR(out.name, text_of(o, "name"));
    CHECK_STR(out.boot, text_of(o, "boot"));
    CHECK_STR(out.fingerprint, text_of(o, "fingerprint"));
    CHECK_STR(out.run_dir, text_of(o, "run_dir"));
    CHECK_INT(out.family, number_of(o, "family"));
    CHECK_INT(out.number, number_of(o, "number"));
    CHECK_INT(out.pid, number_of(o, "pid"));
    CHECK_INT(out.is, number_of(o, "is"));
    CHECK_INT(out.started, number_of(o, "started"));
    CHECK_INT(out.oom_kills, number_of(o, "oom_kills"));
    CHECK_INT(out.pids_refused, number_of(o, "pids_refused"));
    check_order(json_object_get(o, "spec"));
    if (kind == BOXFILE_RECORD)
        check_deadline(o);
    first = f = out; /* in the new form it is the same */
    write_file(kind, (struct str){ 0 });
    CHECK_INT(read_file(kind, first.id), 0);
    check_same();
}

TEST(every_file_of_release_46eceed_is_read_and_written_in_the_new_form)
{
    json_error_t bad;
    json_t *all = json_load_file(COVE_SOURCE "/tests/data/46eceed/fields.json", 0, &bad), *one;
    const char *name;

    CHECK(all && json_object_size(all) >= 7);
    json_object_foreach(all, name, one) check_old(name, one);
    json_decref(all);
}

TEST(a_damaged_file_of_release_46eceed_is_named)
{
    load("paused/asleep");
    bytes.len--;
    check_refused(BOXFILE_NOTE, "asleep", ERR_INVALID, "it has 4839 bytes of 4840");
    load("paused/asleep");
    bytes.data[4] ^= 1;
    check_refused(BOXFILE_NOTE, "asleep", ERR_INVALID, "its head says 4841 bytes, not 4840");
    load("paused/asleep");
    memset(bytes.data + 416, 'x', 128); /* the template */
    check_refused(BOXFILE_NOTE, "asleep", ERR_INVALID, "a text in it has no end");
    load("boxes/plain"); /* a kill ends a write between two pages: it is the first one */
    bytes.len = 4096;
    check_refused(BOXFILE_RECORD, "plain", ERR_NOT_FOUND, "it has 4096 bytes of 4648");
}
