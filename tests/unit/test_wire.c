/* test_wire.c - the keeper's records as bytes, in every version that we speak. */
#include "keep/wire.h"

#include "keep/v2.h"
#include "test.h"

static struct keep_request q, back;
static struct keep_reply reply, said;
static struct buf bytes, unknown;
static struct err err;
static uint32_t version;

static const struct order_mark a_mark = { .claim = ORDER_CLAIMED,
                                          .store = "store0",
                                          .owner = "alice",
                                          .uuid = "0e4a5f3c-0000-4000-8000-000000000000",
                                          .token = "secret",
                                          .flags = ORDER_PUBLIC };

static void fresh(enum keep_verb verb)
{
    q = (struct keep_request){ .verb = verb, .serial = 0x1122334455667788, .id = "a1" };
    if (verb == KEEP_CREATE || verb == KEEP_RESTORE) {
        q.u.create = (struct order){ .template = "host",
                                     .limits = { .memory_bytes = 64 << 20, .lifetime_ms = 5000 },
                                     .network = ORDER_NET_OPEN,
                                     .flags = ORDER_STRICT | ORDER_STAY | ORDER_PING };
        CHECK_INT(order_add_mount(&q.u.create, "/srv", "/data", ORDER_MOUNT_READ_ONLY, &err), 0);
    }
    if (verb == KEEP_RESTORE)
        memcpy(q.u.create.snapshot, "s1", 3);
    if (verb == KEEP_SNAPSHOT)
        memcpy(q.u.snapshot, "s2", 3);
    if (verb == KEEP_SOCKET)
        q.u.socket.port = 80, q.u.socket.count = 2, q.u.socket.v6 = 1;
    if (verb == KEEP_FREEZE)
        q.u.freeze.files_only = 1;
    if (verb == KEEP_LIMITS || verb == KEEP_THAW)
        q.u.limits.lifetime_ms = 77000;
    if (verb == KEEP_LIMITS)
        q.u.mark = a_mark;
    if (verb == KEEP_CREATE)
        q.u.create.mark = a_mark;
    if (verb == KEEP_TEMPLATES)
        memcpy(q.u.after, "base", 5);
    if (verb == KEEP_HELLO)
        q.u.hello = (struct keep_hello){ 3, 2, "9.9" };
}

static int read_back(void)
{
    memset(&back, 0x55, sizeof(back));
    err = (struct err){ 0 };
    unknown.len = 0;
    return wire_read_request(buf_str(&bytes), &back, &version, &unknown, &err);
}

/* Version 2 has no word for it: whose one is stays unknown. */
static void check_mark(const struct order_mark *got, const struct order_mark *want)
{
    const struct order_mark none = { 0 };

    CHECK(!memcmp(got, version == 2 ? &none : want, sizeof(*got)));
}

static void check_same(void)
{
    check_mark(&back.u.mark, &q.u.mark);
    check_mark(&back.u.create.mark, &q.u.create.mark);
    CHECK_INT(back.verb, q.verb);
    CHECK(back.serial == q.serial);
    CHECK_STR(back.id, q.id);
    CHECK_STR(back.u.create.template, q.u.create.template);
    CHECK_STR(back.u.create.snapshot, q.u.create.snapshot);
    CHECK(!memcmp(&back.u.create.limits, &q.u.create.limits, sizeof(q.u.create.limits)));
    CHECK_INT(back.u.create.network, q.u.create.network);
    CHECK_INT(back.u.create.flags, q.u.create.flags);
    CHECK_INT(back.u.create.nmounts, q.u.create.nmounts);
    CHECK_STR(back.u.snapshot, q.u.snapshot);
    CHECK_STR(back.u.after, q.u.after);
    CHECK_INT(back.u.socket.port, q.u.socket.port);
    CHECK_INT(back.u.socket.count, q.u.socket.count);
    CHECK_INT(back.u.socket.v6, q.u.socket.v6);
    CHECK_INT(back.u.freeze.files_only, q.u.freeze.files_only);
    CHECK(back.u.limits.lifetime_ms == q.u.limits.lifetime_ms);
    CHECK_INT(back.u.hello.newest, q.u.hello.newest);
    for (uint32_t i = 0; i < q.u.create.nmounts; i++) {
        CHECK_STR(back.u.create.mounts[i].host, q.u.create.mounts[i].host);
        CHECK_STR(back.u.create.mounts[i].guest, q.u.create.mounts[i].guest);
        CHECK_INT(back.u.create.mounts[i].flags, q.u.create.mounts[i].flags);
    }
}

TEST(every_request_comes_back_in_every_version)
{
    for (uint32_t v = KEEP_VERSION_OLDEST; v <= KEEP_VERSION; v++)
        for (enum keep_verb verb = KEEP_CREATE; verb < (v == 2 ? KEEP_HELLO : KEEP_VERBS); verb++) {
            fresh(verb);
            bytes.len = 0;
            CHECK_INT(wire_write_request(&q, v, &bytes, &err), 0);
            if (read_back())
                test_fail(__FILE__, __LINE__, "version %u, verb %d: %s", v, (int)verb, err.msg);
            CHECK_INT(version, v);
            check_same();
        }
}

static void fill_state(struct keep_state *s)
{
    *s = (struct keep_state){ .limits = { .memory_bytes = 1 << 30, .pids = 9 },
                              .memory_bytes = 1,
                              .memory_peak_bytes = 2,
                              .cpu_us = 3,
                              .pids = 4,
                              .disk_bytes = 5,
                              .oom_kills = 6,
                              .memory_cache_bytes = 7,
                              .net_rx_bytes = 8,
                              .net_tx_bytes = 9,
                              .left_ms = INT64_MAX,
                              .pid = 4711,
                              .frozen = 1,
                              .network = ORDER_NET_OPEN,
                              .unenforced = 3,
                              .outdated = 1,
                              .stopped = 1,
                              .template = "host",
                              .asleep = 1,
                              .fresh = 1,
                              .flush_us = 12 };
}

static void send_reply(uint32_t v)
{
    bytes.len = 0;
    CHECK_INT(wire_write_reply(&reply, v, &bytes, &err), 0);
    memset(&said, 0x55, sizeof(said));
    err = (struct err){ 0 };
    if (wire_read_reply(buf_str(&bytes), &said, &version, &err))
        test_fail(__FILE__, __LINE__, "version %u: %s", v, err.msg);
    CHECK_INT(version, v);
    CHECK_INT(said.kind, reply.kind);
    CHECK_INT(said.verb, reply.verb);
    CHECK(said.serial == reply.serial);
    CHECK_STR(said.id, reply.id);
    CHECK_STR(said.message, reply.message);
    CHECK_INT(said.code, reply.code);
    CHECK_INT(said.reason, reply.reason);
    CHECK_INT(said.status, reply.status);
}

TEST(every_reply_comes_back_in_every_version)
{
    for (uint32_t v = KEEP_VERSION_OLDEST; v <= KEEP_VERSION; v++) {
        reply =
            (struct keep_reply){ .kind = KEEP_REPLY, .verb = KEEP_STAT, .serial = 5, .id = "a" };
        fill_state(&reply.u.state);
        send_reply(v);
        CHECK(!memcmp(&said.u.state, &reply.u.state, sizeof(said.u.state)));
        reply.u.state.mark = a_mark;
        reply.u.state.flags = ORDER_STAY;
        reply.u.state.socket_bytes = 7 << 20;
        reply.u.state.astray = 1;
        send_reply(v);
        check_mark(&said.u.state.mark, &a_mark);
        CHECK_INT(said.u.state.flags, v == 2 ? 0 : ORDER_STAY);
        CHECK_INT(said.u.state.socket_bytes, v == 2 ? 0 : 7 << 20);
        CHECK_INT(said.u.state.astray, v > 2);
        fill_state(&reply.u.state);
        reply.kind = KEEP_ENDED;
        reply.reason = ENDED_MEMORY;
        reply.status = ~0u;
        send_reply(v);
        CHECK(!memcmp(&said.u.state, &reply.u.state, sizeof(said.u.state)));
        reply = (struct keep_reply){ .kind = KEEP_LIMIT_MET, .id = "a" };
        reply.u.limit = (struct keep_limit_met){ LIMIT_DISK, 1, 2, 3 };
        send_reply(v);
        CHECK(said.u.limit.limit == LIMIT_DISK && said.u.limit.use == 2);
        CHECK_INT(said.u.limit.sockets, v == 2 ? 0 : 3); /* that release knew none */
        reply = (struct keep_reply){ .kind = KEEP_REPLY, .verb = KEEP_LIST };
        reply.u.list.count = KEEP_LISTED;
        for (int i = 0; i < KEEP_LISTED; i++)
            snprintf(reply.u.list.ids[i], ORDER_ID, "%036d", i);
        send_reply(v);
        CHECK_INT(said.u.list.count, KEEP_LISTED);
        CHECK_STR(said.u.list.ids[63], reply.u.list.ids[63]);
        reply = (struct keep_reply){ .kind = KEEP_REPLY, .verb = KEEP_TEMPLATES };
        reply.u.templates.count = KEEP_TEMPLATES_LISTED;
        for (int i = 0; i < KEEP_TEMPLATES_LISTED; i++) {
            struct keep_template *t = &reply.u.templates.items[i];

            memset(t->name, 'n', sizeof(t->name) - 1);
            memset(t->user, 'u', sizeof(t->user) - 1);
            memset(t->workdir, 'w', sizeof(t->workdir) - 1);
            t->kind = 2;
            t->limits.pids = 6;
        }
        send_reply(v);
        CHECK_STR(said.u.templates.items[4].workdir, reply.u.templates.items[4].workdir);
        CHECK_INT(said.u.templates.items[4].limits.pids, 6);
        reply = (struct keep_reply){ .kind = KEEP_REPLY, .code = ERR_LIMIT, .message = "no more" };
        send_reply(v);
    }
}

TEST(a_reason_is_told_where_the_version_has_one_and_absent_it_is_none)
{
    reply = (struct keep_reply){
        .kind = KEEP_REPLY, .code = ERR_NOT_FOUND, .why = ERR_NO_SANDBOX, .message = "no sandbox a"
    };
    send_reply(KEEP_VERSION);
    CHECK_INT(said.why, ERR_NO_SANDBOX);
    send_reply(2);
    CHECK_INT(said.why, ERR_REASON_NONE);
    reply.why = 77; /* a later release's */
    send_reply(KEEP_VERSION);
    CHECK_INT(said.code, ERR_NOT_FOUND);
    reply.why = 0;
    send_reply(KEEP_VERSION);
    CHECK_INT(said.why, ERR_REASON_NONE);
}

TEST(the_longest_record_fits)
{
    fresh(KEEP_CREATE);
    q.u.create.nmounts = 0;
    memset(q.u.create.template, 't', ORDER_NAME - 1);
    for (int i = 0; i < ORDER_MOUNTS; i++) {
        char path[ORDER_PATH] = "/";

        memset(path + 1, 'p', ORDER_PATH - 2);
        CHECK_INT(order_add_mount(&q.u.create, path, path, 1, &err), 0);
    }
    bytes.len = 0;
    CHECK_INT(wire_write_request(&q, KEEP_VERSION, &bytes, &err), 0);
    CHECK(bytes.len < WIRE_MAX);
    CHECK_INT(read_back(), 0);
    check_same();
}

TEST(a_short_request_is_short)
{
    fresh(KEEP_SOCKET);
    bytes.len = 0;
    CHECK_INT(wire_write_request(&q, KEEP_VERSION, &bytes, &err), 0);
    CHECK(bytes.len < 64);
}

TEST(a_newer_release_is_understood_and_its_order_kept_whole)
{
    static const char order[] = "\x01\0\x04\0host\x63\0\x03\0new"; /* template, field 99 */
    struct str more = { order, sizeof(order) - 1 };

    bytes.len = 0;
    buf_add(&bytes, "Cove\x09\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0", 24); /* version 9 */
    CHECK_INT(tag_put(1, STR("a1"), &bytes, &err), 0);
    CHECK_INT(tag_put(2, more, &bytes, &err), 0);
    CHECK_INT(tag_put(77, STR("unknown"), &bytes, &err), 0);
    CHECK_INT(read_back(), 0);
    CHECK_INT(version, KEEP_VERSION);
    CHECK_INT(back.verb, KEEP_CREATE);
    CHECK_INT(back.serial, 7);
    CHECK_STR(back.u.create.template, "host");
    CHECK(str_is(tag_find(back.unknown, 99), "new"));
    CHECK_INT(tag_find(back.unknown, 1).n, 0);
}

TEST(what_must_be_understood_is_refused_with_the_serial_to_answer)
{
    bytes.len = 0;
    buf_add(&bytes, "Cove\x03\0\0\0\x0a\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0", 24);
    CHECK_INT(tag_put(0x8001, STR("x"), &bytes, &err), 0);
    CHECK_INT(read_back(), -1);
    CHECK_STR(err.msg, "field 0x8001 is of a newer release");
    CHECK_INT(back.serial, 7);
    CHECK_INT(version, KEEP_VERSION);
}

static void check_v2_refused(const char *says)
{
    CHECK_INT(read_back(), -1);
    CHECK_INT(version, 2);
    CHECK(strstr(err.msg, says));
}

TEST(a_record_of_version_2_has_one_size)
{
    static const size_t sizes[] = { 0, 1, 24, V2_REQUEST_BYTES - 1, V2_REQUEST_BYTES + 1 };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        fresh(KEEP_LIST);
        bytes.len = 0;
        CHECK_INT(wire_write_request(&q, 2, &bytes, &err), 0);
        buf_add(&bytes, "", 1);
        bytes.len = sizes[i];
        check_v2_refused("bytes; they have 4472");
    }
}

TEST(another_program_or_an_older_version_is_refused)
{
    fresh(KEEP_LIST);
    bytes.len = 0;
    CHECK_INT(wire_write_request(&q, 2, &bytes, &err), 0);
    bytes.data[0] ^= 1;
    check_v2_refused("a record of another program or version (0x65766f42, 2)");
    bytes.data[0] ^= 1;
    bytes.data[4] = 1;
    check_v2_refused("a record of another program or version (0x65766f43, 1)");
    bytes.data[4] = 2;
    bytes.data[8] = KEEP_HELLO;
    check_v2_refused("no verb 13");
}

TEST(an_old_keeper_is_not_asked_for_what_it_does_not_know)
{
    fresh(KEEP_HELLO);
    bytes.len = 0;
    CHECK_INT(wire_write_request(&q, 2, &bytes, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
}

TEST(a_broken_reply_is_the_keepers_fault)
{
    bytes.len = 0;
    buf_add(&bytes, "Cove", 4);
    CHECK_INT(wire_read_reply(buf_str(&bytes), &said, &version, &err), -1);
    CHECK_STR(err.msg, "the keeper answered in another version's form");
    bytes.len = 0;
    buf_add(&bytes, "Cove\x03\0\0\0\x01\0\0\0\x09\0\0\0\x07\0\0\0\0\0\0\0\x01", 25);
    CHECK_INT(wire_read_reply(buf_str(&bytes), &said, &version, &err), -1);
    CHECK_INT(err.code, ERR_UPSTREAM);
    CHECK_STR(err.msg, "the keeper sent a broken record: a field is cut short");
}
