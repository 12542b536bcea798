/* record.c - see record.h. Pure: a struct in, a verdict out. */
#include "keep/record.h"

#include <string.h>

const char *const keep_reason_names[ENDED_REASONS] = {
    [ENDED_BY_REQUEST] = "ended by request", [ENDED_BY_ITSELF] = "ended by itself",
    [ENDED_LIFETIME] = "lifetime",           [ENDED_MEMORY] = "memory",
    [ENDED_LEFT] = "its client left",        [ENDED_FAILED] = "could not be built",
};

static bool terminated(const char *s, size_t room) { return memchr(s, 0, room) != NULL; }

static int check_create(const struct keep_request *r, struct err *err)
{
    if (r->verb == KEEP_RESTORE && order_check_id("snapshot", r->u.create.snapshot, err))
        return -1;
    return order_check(&r->u.create, err);
}

static int check_socket(const struct keep_request *r, struct err *err)
{
    if (r->u.socket.port > 65535)
        return err_set(err, ERR_INVALID, "field 'port' is %u; at most 65535", r->u.socket.port);
    if (!r->u.socket.count || r->u.socket.count > KEEP_SOCKETS)
        return err_set(err, ERR_INVALID, "field 'count' must be 1 to %d", KEEP_SOCKETS);
    return 0;
}

static int check_body(const struct keep_request *r, struct err *err)
{
    struct limits l;

    switch ((enum keep_verb)r->verb) {
    case KEEP_CREATE:
    case KEEP_RESTORE: return check_create(r, err);
    case KEEP_SNAPSHOT: return order_check_id("snapshot", r->u.snapshot, err);
    case KEEP_THAW:
    case KEEP_LIMITS:
        l = r->u.limits;
        return limits_fill(&l, NULL, err) || order_check_mark(&r->u.mark, err) ? -1 : 0;
    case KEEP_SOCKET: return check_socket(r, err);
    case KEEP_TEMPLATES:
        return terminated(r->u.after, KEEP_TEMPLATE)
                   ? 0
                   : err_set(err, ERR_INVALID, "field 'after' must be at most %d bytes",
                             KEEP_TEMPLATE - 1);
    case KEEP_FREEZE:
        return r->u.freeze.files_only > 1
                   ? err_set(err, ERR_INVALID, "field 'files_only' must be 0 or 1")
                   : 0;
    case KEEP_KILL:
    case KEEP_STAT:
    case KEEP_LIST:
    case KEEP_ADOPT:
    case KEEP_HELLO:
    case KEEP_VERBS: break;
    }
    return 0;
}

static bool needs_id(uint32_t verb)
{
    return verb != KEEP_LIST && verb != KEEP_TEMPLATES && verb != KEEP_HELLO;
}

int record_check(const struct keep_request *r, struct err *err)
{
    if (r->verb < KEEP_CREATE || r->verb >= KEEP_VERBS)
        return err_set(err, ERR_UNSUPPORTED, "no verb %u", r->verb);
    if ((needs_id(r->verb) || *r->id) && order_check_id("id", r->id, err))
        return -1;
    return check_body(r, err);
}

static bool list_valid(const struct keep_reply *r)
{
    if (r->u.list.count > KEEP_LISTED)
        return false;
    for (uint32_t i = 0; i < r->u.list.count; i++)
        if (!terminated(r->u.list.ids[i], ORDER_ID))
            return false;
    return true;
}

static bool templates_valid(const struct keep_reply *r)
{
    if (r->u.templates.count > KEEP_TEMPLATES_LISTED)
        return false;
    for (uint32_t i = 0; i < r->u.templates.count; i++) {
        const struct keep_template *t = &r->u.templates.items[i];

        if (!terminated(t->name, sizeof(t->name)) || !terminated(t->user, sizeof(t->user)) ||
            !terminated(t->workdir, sizeof(t->workdir)) || t->kind >= KEEP_TEMPLATE_KINDS)
            return false;
    }
    return true;
}

/* What the rest of it holds, which no sender of ours gets wrong. */
static bool body_valid(const struct keep_reply *r)
{
    if (r->kind == KEEP_LIMIT_MET)
        return r->u.limit.limit < LIMIT_COUNT;
    if (r->kind == KEEP_REPLY && r->verb == KEEP_LIST)
        return list_valid(r);
    if (r->kind == KEEP_REPLY && r->verb == KEEP_TEMPLATES)
        return templates_valid(r);
    return terminated(r->u.state.template, ORDER_NAME) && r->u.state.network < ORDER_NETWORKS;
}

int record_check_reply(const struct keep_reply *r, struct err *err)
{
    if (r->kind < KEEP_REPLY || r->kind > KEEP_ENDED || r->code >= ERR_CODES ||
        !terminated(r->id, ORDER_ID) || !terminated(r->message, sizeof(r->message)) ||
        r->reason >= ENDED_REASONS)
        return err_set(err, ERR_UPSTREAM, "the keeper sent a broken record");
    if (!body_valid(r))
        return err_set(err, ERR_UPSTREAM, "the keeper sent a record with a broken body");
    return 0;
}
