/* test_record.c - the keeper's records: what is acted on, and the sentence for what is not. */
#include "keep/record.h"

#include "test.h"

static struct keep_request r;
static struct keep_reply reply;
static struct err err;

static void fresh(enum keep_verb verb)
{
    r = (struct keep_request){ .verb = verb };
    memcpy(r.id, "a1", 3);
    if (verb == KEEP_CREATE || verb == KEEP_RESTORE)
        memcpy(r.u.create.template, "host", 5);
    if (verb == KEEP_RESTORE)
        memcpy(r.u.create.snapshot, "s1", 3);
    if (verb == KEEP_SNAPSHOT)
        memcpy(r.u.snapshot, "s1", 3);
    if (verb == KEEP_SOCKET)
        r.u.socket.count = 1;
    err = (struct err){ 0 };
}

static void check_refused(const char *says)
{
    CHECK_INT(record_check(&r, &err), -1);
    CHECK_STR(err.msg, says);
}

static void fresh_reply(void)
{
    reply = (struct keep_reply){ .kind = KEEP_REPLY };
    err = (struct err){ 0 };
}

static void check_broken(void)
{
    CHECK_INT(record_check_reply(&reply, &err), -1);
    CHECK_INT(err.code, ERR_UPSTREAM);
}

TEST(every_verb_is_taken_when_its_record_is_right)
{
    for (enum keep_verb verb = KEEP_CREATE; verb < KEEP_VERBS; verb++) {
        fresh(verb);
        CHECK_INT(record_check(&r, &err), 0);
    }
}

TEST(a_verb_that_does_not_exist_is_refused)
{
    fresh(KEEP_LIST);
    r.verb = 0;
    check_refused("no verb 0");
    r.verb = KEEP_VERBS;
    check_refused("no verb 14");
    CHECK_INT(err.code, ERR_UNSUPPORTED);
}

TEST(an_id_is_what_may_become_a_part_of_a_path)
{
    static const char *const good[] = {
        "a", "0", "a-", "a--b", "i0123456789abcdefghij", "00000000-0000-4000-8000-000000000000"
    };
    static const char *const bad[] = { "",  "-",   "-a",  ".",   "..",   "a/b", "a.b",
                                       "A", "a_b", "a b", "a\n", "\x7f", "\xff" };
    char id[ORDER_ID];

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        memset(id, 0, sizeof(id));
        memcpy(id, good[i], strlen(good[i]));
        CHECK(order_id_valid(id));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        memset(id, 0, sizeof(id));
        memcpy(id, bad[i], strlen(bad[i]));
        CHECK(!order_id_valid(id));
    }
    for (size_t n = ORDER_ID_MAX + 1; n <= ORDER_ID; n++) { /* the last is not terminated */
        memset(id, 0, sizeof(id));
        memset(id, 'a', n);
        CHECK(!order_id_valid(id));
    }
}

TEST(a_bad_id_is_named_and_a_list_may_have_none)
{
    static const char *const says = "field 'id' must be 1 to 36 characters of a-z, 0-9 and -";

    fresh(KEEP_STAT);
    r.id[0] = 0;
    check_refused(says);
    fresh(KEEP_LIST);
    r.id[0] = 0;
    CHECK_INT(record_check(&r, &err), 0);
    fresh(KEEP_LIST);
    r.id[0] = '/';
    check_refused(says);
    fresh(KEEP_SNAPSHOT);
    memset(r.u.snapshot, 'x', sizeof(r.u.snapshot));
    check_refused("field 'snapshot' must be 1 to 36 characters of a-z, 0-9 and -");
    fresh(KEEP_RESTORE);
    r.u.create.snapshot[0] = 0;
    check_refused("field 'snapshot' must be 1 to 36 characters of a-z, 0-9 and -");
}

TEST(the_fields_of_a_creation_are_bounded)
{
    fresh(KEEP_CREATE);
    r.u.create.template[0] = 0;
    check_refused("field 'template' must be 1 to 127 bytes");
    memset(r.u.create.template, 'x', sizeof(r.u.create.template));
    check_refused("field 'template' must be 1 to 127 bytes");
    fresh(KEEP_CREATE);
    r.u.create.network = ORDER_NETWORKS;
    check_refused("field 'network': no mode 2");
    fresh(KEEP_CREATE);
    r.u.create.flags = ORDER_FLAGS + 1;
    check_refused("field 'flags': unknown bits 0x40");
    fresh(KEEP_CREATE);
    r.u.create.limits.memory_bytes = 1;
    CHECK_INT(record_check(&r, &err), -1);
    CHECK(!strncmp(err.msg, "limit 'memory' is ", 18));
    CHECK_INT(r.u.create.limits.pids, 0); /* checking fills nothing in */
}

static void set_mount(struct order_mount *m, const char *host, const char *guest)
{
    *m = (struct order_mount){ 0 };
    memcpy(m->host, host, strlen(host));
    memcpy(m->guest, guest, strlen(guest));
}

TEST(mounts_are_absolute_plain_and_few)
{
    static const struct {
        const char *host, *guest;
        bool good;
    } rows[] = {
        { "/a", "/b", true },      { "/", "/b", true },      { "/a/b.c/..d", "/b/...", true },
        { "/a/", "/b/", true },    { "", "/b", false },      { "a", "/b", false },
        { "/a", "", false },       { "/a", "b", false },     { "/a", "/", false },
        { "/a/..", "/b", false },  { "/../a", "/b", false }, { "/a/./b", "/b", false },
        { "/a//b", "/b", false },  { "//a", "/b", false },   { "/a", "/b/../c", false },
        { "/a/../", "/b", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        fresh(KEEP_CREATE);
        r.u.create.nmounts = 2;
        set_mount(&r.u.create.mounts[0], "/ok", "/ok");
        set_mount(&r.u.create.mounts[1], rows[i].host, rows[i].guest);
        CHECK_INT(record_check(&r, &err), rows[i].good ? 0 : -1);
        if (!rows[i].good)
            CHECK_STR(err.msg, "mount 1: paths must be absolute, plain and below 256 bytes");
    }
    fresh(KEEP_CREATE);
    r.u.create.nmounts = 1;
    set_mount(&r.u.create.mounts[0], "/a", "/b");
    memset(r.u.create.mounts[0].host + 1, 'a', ORDER_PATH - 1); /* not terminated */
    check_refused("mount 0: paths must be absolute, plain and below 256 bytes");
    set_mount(&r.u.create.mounts[0], "/a", "/b");
    r.u.create.mounts[0].flags = 0x80;
    check_refused("mount 0: unknown flags 0x80");
    r.u.create.nmounts = 9;
    check_refused("9 mounts; at most 8");
    CHECK_INT(err.code, ERR_LIMIT);
    r.u.create.nmounts = UINT32_MAX;
    check_refused("4294967295 mounts; at most 8");
}

TEST(sockets_are_bounded)
{
    fresh(KEEP_SOCKET);
    r.u.socket.port = 65536;
    check_refused("field 'port' is 65536; at most 65535");
    fresh(KEEP_SOCKET);
    r.u.socket.count = 0;
    check_refused("field 'count' must be 1 to 8");
    r.u.socket.count = 9;
    check_refused("field 'count' must be 1 to 8");
}

TEST(a_limit_out_of_bounds_is_refused_by_name)
{
    fresh(KEEP_LIMITS);
    r.u.limits.lifetime_ms = UINT64_MAX;
    CHECK_INT(record_check(&r, &err), -1);
    CHECK(!strncmp(err.msg, "limit 'timeout' is ", 19));
}

TEST(a_reply_is_checked_as_hard)
{
    fresh_reply();
    CHECK_INT(record_check_reply(&reply, &err), 0);
    reply.kind = KEEP_ENDED + 1;
    check_broken();
    fresh_reply();
    reply.code = ERR_CODES;
    check_broken();
    fresh_reply();
    reply.reason = ENDED_REASONS;
    check_broken();
    fresh_reply();
    memset(reply.id, 'a', sizeof(reply.id));
    check_broken();
    fresh_reply();
    memset(reply.message, 'a', sizeof(reply.message));
    check_broken();
    fresh_reply();
    reply.kind = KEEP_LIMIT_MET;
    reply.u.limit.limit = LIMIT_COUNT;
    check_broken();
    fresh_reply();
    reply.verb = KEEP_LIST;
    reply.u.list.count = KEEP_LISTED + 1;
    check_broken();
    fresh_reply();
    reply.verb = KEEP_LIST;
    reply.u.list.count = 1;
    memset(reply.u.list.ids[0], 'x', ORDER_ID);
    check_broken();
    fresh_reply();
    reply.verb = KEEP_STAT;
    memset(reply.u.state.template, 'x', ORDER_NAME);
    check_broken();
    fresh_reply();
    reply.kind = KEEP_ENDED;
    reply.u.state.network = ORDER_NETWORKS;
    check_broken();
}

TEST(templates_are_bounded_both_ways)
{
    struct keep_template *t = &reply.u.templates.items[KEEP_TEMPLATES_LISTED - 1];

    fresh(KEEP_TEMPLATES);
    r.id[0] = 0;
    CHECK_INT(record_check(&r, &err), 0);
    memset(r.u.after, 'x', sizeof(r.u.after));
    check_refused("field 'after' must be at most 71 bytes");
    for (int i = 0; i < 6; i++) {
        fresh_reply();
        reply.verb = KEEP_TEMPLATES;
        reply.u.templates.count = KEEP_TEMPLATES_LISTED + (i == 1);
        memset(t->name, 'x', i == 2 ? sizeof(t->name) : 3);
        memset(t->user, 'x', i == 3 ? sizeof(t->user) : 3);
        memset(t->workdir, 'x', i == 4 ? sizeof(t->workdir) : 3);
        t->kind = i == 5 ? KEEP_TEMPLATE_KINDS : 0;
        if (i)
            check_broken();
        else
            CHECK_INT(record_check_reply(&reply, &err), 0);
    }
}

TEST(every_reason_has_a_name)
{
    for (size_t i = 0; i < ENDED_REASONS; i++)
        CHECK(keep_reason_names[i] && *keep_reason_names[i]);
}
