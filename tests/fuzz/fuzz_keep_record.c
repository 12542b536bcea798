/* fuzz_keep_record.c - the keeper's records as bytes, requests and replies, of any version. The
 * first byte chooses which, and whether the rest is filled up with zeroes to the size of a record
 * of version 2; otherwise it is as long as it is. Promises: what is taken has every field that is
 * acted on within its bounds and can be written again, reading changes nothing, and what is refused
 * has a reason. */
#include "keep/wire.h"

#include "keep/v2.h"

#include "fuzz.h"

enum { REPLY = 1, FILL = 2 };

static void check_string(const char *s, size_t room) { MUST(memchr(s, 0, room)); }

static void check_id(const char *id)
{
    check_string(id, ORDER_ID);
    MUST(*id && strlen(id) <= ORDER_ID_MAX);
    MUST(!strchr(id, '/') && !strchr(id, '.') && *id != '-');
}

static void check_path(const char *path)
{
    check_string(path, ORDER_PATH);
    MUST(*path == '/' && !strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
    MUST(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/.."));
}

static void check_create(const struct keep_request *r)
{
    const struct order *c = &r->u.create;

    check_string(c->template, ORDER_NAME);
    MUST(*c->template);
    if (r->verb == KEEP_RESTORE)
        check_id(c->snapshot);
    MUST(c->network < ORDER_NETWORKS && !(c->flags & ~(uint32_t)ORDER_FLAGS));
    MUST(c->nmounts <= ORDER_MOUNTS);
    for (uint32_t i = 0; i < c->nmounts; i++) {
        check_path(c->mounts[i].host);
        check_path(c->mounts[i].guest);
        MUST(strlen(c->mounts[i].guest) > 1);
        MUST(!(c->mounts[i].flags & ~(uint32_t)ORDER_MOUNT_FLAGS));
    }
}

static void check_limits(const struct limits *l)
{
    for (enum limit_id id = 0; id < LIMIT_COUNT; id++) {
        uint64_t v = limits_get(l, id);

        MUST(!v || (v >= limit_rows[id].min && v <= limit_rows[id].max));
    }
}

static void check_taken(const struct keep_request *r)
{
    MUST(r->verb >= KEEP_CREATE && r->verb < KEEP_VERBS);
    if ((r->verb != KEEP_LIST && r->verb != KEEP_TEMPLATES && r->verb != KEEP_HELLO) || *r->id)
        check_id(r->id);
    if (r->verb == KEEP_TEMPLATES)
        check_string(r->u.after, KEEP_TEMPLATE);
    if (r->verb == KEEP_CREATE || r->verb == KEEP_RESTORE) {
        check_create(r);
        check_limits(&r->u.create.limits);
    }
    if (r->verb == KEEP_LIMITS)
        check_limits(&r->u.limits);
    if (r->verb == KEEP_SNAPSHOT)
        check_id(r->u.snapshot);
    if (r->verb == KEEP_SOCKET)
        MUST(r->u.socket.port <= 65535 && r->u.socket.count && r->u.socket.count <= KEEP_SOCKETS);
}

static void check_templates(const struct keep_reply *r)
{
    MUST(r->u.templates.count <= KEEP_TEMPLATES_LISTED);
    for (uint32_t i = 0; i < r->u.templates.count; i++) {
        const struct keep_template *t = &r->u.templates.items[i];

        check_string(t->name, sizeof(t->name));
        check_string(t->user, sizeof(t->user));
        check_string(t->workdir, sizeof(t->workdir));
        MUST(t->kind < KEEP_TEMPLATE_KINDS);
    }
}

static void check_list(const struct keep_reply *r)
{
    MUST(r->u.list.count <= KEEP_LISTED);
    for (uint32_t i = 0; i < r->u.list.count; i++)
        check_string(r->u.list.ids[i], ORDER_ID);
}

static void check_reply(const struct keep_reply *r)
{
    check_string(r->id, ORDER_ID);
    check_string(r->message, sizeof(r->message));
    MUST(r->kind >= KEEP_REPLY && r->kind <= KEEP_ENDED && r->code < ERR_CODES);
    MUST(r->reason < ENDED_REASONS);
    if (r->kind == KEEP_LIMIT_MET)
        MUST(r->u.limit.limit < LIMIT_COUNT);
    else if (r->kind == KEEP_REPLY && r->verb == KEEP_LIST)
        check_list(r);
    else if (r->kind == KEEP_REPLY && r->verb == KEEP_TEMPLATES)
        check_templates(r);
    else
        check_string(r->u.state.template, ORDER_NAME);
}

static void check_written(const struct keep_request *r, uint32_t version)
{
    static struct keep_request back;
    AUTO(buf_free) struct buf again = { 0 };
    AUTO(buf_free) struct buf unknown = { 0 };
    struct err err = { 0 };
    uint32_t now;

    MUST(!wire_write_request(r, version, &again, &err));
    MUST(!wire_read_request(buf_str(&again), &back, &now, &unknown, &err));
    MUST(now == version && back.verb == r->verb && back.serial == r->serial);
    MUST(!strcmp(back.id, r->id));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct keep_request q;
    static struct keep_reply reply;
    AUTO(buf_free) struct buf unknown = { 0 };
    size_t whole, n;
    struct err err = { 0 };
    uint32_t version = 0;
    char *copy;
    int r;

    if (!size)
        return 0;
    whole = *data & REPLY ? V2_REPLY_BYTES : V2_REQUEST_BYTES;
    n = *data & FILL ? whole : size - 1;
    if (size - 1 > n)
        size = n + 1;
    copy = calloc(1, n ? n : 1);
    MUST(copy);
    memcpy(copy, data + 1, size - 1);
    r = *data & REPLY ? wire_read_reply((struct str){ copy, n }, &reply, &version, &err)
                      : wire_read_request((struct str){ copy, n }, &q, &version, &unknown, &err);
    MUST(!memcmp(copy, data + 1, size - 1));
    MUST(r == 0 || (r == -1 && err.code != ERR_NONE && *err.msg));
    MUST(r || version == 2 || version == KEEP_VERSION);
    if (!r && *data & REPLY)
        check_reply(&reply);
    else if (!r) {
        check_taken(&q);
        check_written(&q, version);
    }
    free(copy);
    return 0;
}
