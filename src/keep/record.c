/* record.c - see record.h. Pure: bytes in, a verdict out. */
#include "keep/record.h"

#include <string.h>

const char *const keep_reason_names[ENDED_REASONS] = {
    [ENDED_BY_REQUEST] = "ended by request", [ENDED_BY_ITSELF] = "ended by itself",
    [ENDED_LIFETIME] = "lifetime",           [ENDED_MEMORY] = "memory",
    [ENDED_LEFT] = "its client left",        [ENDED_FAILED] = "could not be built",
};

static bool terminated(const char *s, size_t room) { return memchr(s, 0, room) != NULL; }

/* What may become a part of a path, a cgroup's name and a host name. */
bool record_id_valid(const char id[KEEP_ID])
{
    size_t n = 0;

    for (; n < KEEP_ID && id[n]; n++)
        if (!(id[n] >= 'a' && id[n] <= 'z') && !(id[n] >= '0' && id[n] <= '9') &&
            !(id[n] == '-' && n))
            return false;
    return n && n <= KEEP_ID_MAX;
}

static int check_id(const char *field, const char id[KEEP_ID], struct err *err)
{
    if (record_id_valid(id))
        return 0;
    return err_set(err, ERR_INVALID, "field '%s' must be 1 to %d characters of a-z, 0-9 and -",
                   field, KEEP_ID_MAX);
}

/* Absolute, no empty or dotted part: what is opened is what was meant. */
static bool path_valid(const char *p)
{
    if (!terminated(p, KEEP_PATH) || *p != '/')
        return false;
    while (*p == '/') {
        size_t n = strcspn(++p, "/");

        if ((!n && *p) || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
    }
    return true;
}

static int check_mounts(const struct keep_create *c, struct err *err)
{
    if (c->nmounts > KEEP_MOUNTS)
        return err_set(err, ERR_LIMIT, "%u mounts; at most %d", c->nmounts, KEEP_MOUNTS);
    for (uint32_t i = 0; i < c->nmounts; i++) {
        const struct keep_mount *m = &c->mounts[i];

        if (!path_valid(m->host) || !path_valid(m->guest) || !m->guest[1])
            return err_set(err, ERR_INVALID,
                           "mount %u: paths must be absolute, plain and below %d bytes", i,
                           KEEP_PATH);
        if (m->flags & ~(uint32_t)KEEP_MOUNT_FLAGS)
            return err_set(err, ERR_INVALID, "mount %u: unknown flags %#x", i, m->flags);
    }
    return 0;
}

static int check_create(const struct keep_request *r, struct err *err)
{
    const struct keep_create *c = &r->u.create;
    struct limits l = c->limits;

    if (!terminated(c->template, KEEP_NAME) || !*c->template)
        return err_set(err, ERR_INVALID, "field 'template' must be 1 to %d bytes", KEEP_NAME - 1);
    if (r->verb == KEEP_RESTORE && check_id("snapshot", c->snapshot, err))
        return -1;
    if (c->network >= KEEP_NETWORKS)
        return err_set(err, ERR_INVALID, "field 'network': no mode %u", c->network);
    if (c->flags & ~(uint32_t)KEEP_FLAGS)
        return err_set(err, ERR_INVALID, "field 'flags': unknown bits %#x", c->flags);
    return limits_fill(&l, NULL, err) || check_mounts(c, err) ? -1 : 0;
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
    case KEEP_SNAPSHOT: return check_id("snapshot", r->u.snapshot, err);
    case KEEP_THAW:
    case KEEP_LIMITS: l = r->u.limits; return limits_fill(&l, NULL, err);
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
    case KEEP_VERBS: break;
    }
    return 0;
}

static bool needs_id(uint32_t verb) { return verb != KEEP_LIST && verb != KEEP_TEMPLATES; }

int record_check(const struct keep_request *r, size_t n, struct err *err)
{
    if (n != sizeof(*r))
        return err_set(err, ERR_INVALID, "a record of %zu bytes; they have %zu", n, sizeof(*r));
    if (r->magic != KEEP_MAGIC || r->version != KEEP_VERSION)
        return err_set(err, ERR_INVALID, "a record of another program or version (%#x, %u)",
                       r->magic, r->version);
    if (r->verb < KEEP_CREATE || r->verb >= KEEP_VERBS)
        return err_set(err, ERR_UNSUPPORTED, "no verb %u", r->verb);
    if ((needs_id(r->verb) || *r->id) && check_id("id", r->id, err))
        return -1;
    return check_body(r, err);
}

static bool list_valid(const struct keep_reply *r)
{
    if (r->u.list.count > KEEP_LISTED)
        return false;
    for (uint32_t i = 0; i < r->u.list.count; i++)
        if (!terminated(r->u.list.ids[i], KEEP_ID))
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
    return terminated(r->u.state.template, KEEP_NAME) && r->u.state.network < KEEP_NETWORKS;
}

int record_check_reply(const struct keep_reply *r, size_t n, struct err *err)
{
    if (n != sizeof(*r) || r->magic != KEEP_MAGIC || r->version != KEEP_VERSION)
        return err_set(err, ERR_UPSTREAM, "the keeper answered in another version's form");
    if (r->kind < KEEP_REPLY || r->kind > KEEP_ENDED || r->code >= ERR_CODES ||
        !terminated(r->id, KEEP_ID) || !terminated(r->message, sizeof(r->message)) ||
        r->reason >= ENDED_REASONS)
        return err_set(err, ERR_UPSTREAM, "the keeper sent a broken record");
    if (!body_valid(r))
        return err_set(err, ERR_UPSTREAM, "the keeper sent a record with a broken body");
    return 0;
}
