/* native_orphans.c - /v1/orphans: machines that the database does not know, for admins. */
#include "api/native.h"
#include "api/tables.h"

struct orphan_view {
    const char *id, *state, *owner, *uuid, *template, *network, *ends, *found, *kept_until, *reason,
        *unreachable;
    const struct limits *limits;
    int64_t disk_bytes;
};

#define V(member, type, ...) FIELD(struct orphan_view, member, type, __VA_ARGS__)

static const struct field orphan_view[] = {
    V(id, F_STR, .flags = F_REQUIRED, .help = "of the sandbox that it was"),
    V(state, F_STR, .flags = F_REQUIRED, .help = "running, paused, files-only or unreachable"),
    V(owner, F_STR, .flags = F_OMIT, .help = "whose it was; absent: it does not say"),
    V(uuid, F_STR, .flags = F_OMIT),
    V(template, F_STR, .flags = F_OMIT),
    V(network, F_STR, .flags = F_OMIT, .help = "open or none"),
    V(limits, F_OBJ, .flags = F_OMIT, .sub = native_limits, .sub_size = sizeof(struct limits)),
    V(disk_bytes, F_INT, .flags = F_REQUIRED, .help = "what its files use"),
    V(ends, F_STR, .flags = F_OMIT, .help = "when its own time is up; absent: never"),
    V(found, F_STR, .flags = F_REQUIRED, .help = "when it was set aside"),
    V(kept_until, F_STR, .flags = F_OMIT,
      .help = "then it is ended (control.orphan-retention-s); absent: never"),
    V(reason, F_STR, .flags = F_REQUIRED, .help = "why it was set aside"),
    V(unreachable, F_STR, .flags = F_OMIT, .help = "why nothing else is known of it for now"),
    {},
};
struct orphans_view {
    struct objs orphans;
};
static const struct field orphans_view[] = {
    FIELD(struct orphans_view, orphans, F_OBJS, .flags = F_REQUIRED, .sub = orphan_view,
          .sub_size = sizeof(struct orphan_view)),
    {},
};

static const char *state_of(const struct machine_state *m)
{
    if (*m->unreachable)
        return "unreachable";
    if (m->asleep)
        return "files-only";
    return m->paused ? "paused" : "running";
}

static const char *or_null(const char *text) { return *text ? text : NULL; }

static struct orphan_view show(struct call *c, const struct orphan *o)
{
    const struct machine_state *m = &o->state;
    bool known = !*m->unreachable;
    bool runs_out = known && !m->paused && m->limits.lifetime_ms < limit_rows[LIMIT_LIFETIME].max &&
                    m->left_ms > 0;

    return (struct orphan_view){
        .id = o->id,
        .state = state_of(m),
        .owner = or_null(m->mark.owner),
        .uuid = or_null(m->mark.uuid),
        .template = or_null(m->template),
        .network = known ? sandbox_network_names[m->network] : NULL,
        .limits = known ? &m->limits : NULL,
        .disk_bytes = (int64_t)m->disk_bytes,
        .ends = runs_out ? api_time(c, clock_wall_ms() + m->left_ms) : NULL,
        .found = api_time(c, o->found_ms),
        .kept_until = api_time(c, o->until_ms),
        .reason = o->reason,
        .unreachable = or_null(m->unreachable),
    };
}

static int put(void *arg, const struct orphan *o)
{
    struct api_list *a = arg;
    struct orphan_view view = show(a->call, o);

    api_list_add(a, &view);
    return 0;
}

static int list(struct call *c, void *body, struct err *err)
{
    struct api_list a;

    (void)body;
    api_list_begin(&a, c);
    return api_list_end(&a, control_orphan_list(api_of(c)->control, put, &a, err));
}

static int get(struct call *c, void *body, struct err *err)
{
    struct orphan_view view;
    struct orphan o;

    (void)body;
    if (control_orphan_get(api_of(c)->control, c->param[0], &o, err))
        return -1;
    view = show(c, &o);
    return api_reply(c, &view);
}

struct adopt {
    char *owner;
    bool restart;
};
static const struct field adopt_body[] = {
    FIELD(struct adopt, owner, F_STR, .flags = F_REQUIRED, .min = 1, .max = USER_NAME,
          .help = "the user whose sandbox it becomes"),
    FIELD(struct adopt, restart, F_BOOL,
          .help = "take over its files alone: its processes end, and a resume starts it again"),
    {},
};

static int adopt(struct call *c, void *body, struct err *err)
{
    const struct adopt *b = body;
    struct sandbox *s;

    if (control_orphan_adopt(api_of(c)->control, api_actor(c), c->param[0], b->owner, b->restart,
                             &s, err))
        return -1;
    return native_reply_sandbox(c, s, err);
}

static int end(struct call *c, void *body, struct err *err)
{
    (void)body;
    if (control_orphan_end(api_of(c)->control, api_actor(c), c->param[0], err))
        return -1;
    return api_reply_empty(c);
}

#define TAG .body_max = API_BODY_MAX, .tag = "Orphans"

const struct route native_orphan_routes[] = {
    { "GET", "/v1/orphans", ROUTE_RAW, ROUTE_ADMIN, .fn = list, .operation = "listOrphans",
      .help = "Machines that the database does not know, as after a backup was put back. They are "
              "kept for a while and served to nobody.",
      .reply = orphans_view, TAG },
    { "GET", "/v1/orphans/{id}", ROUTE_RAW, ROUTE_ADMIN, .fn = get, .operation = "getOrphan",
      .help = "One of them.", .reply = orphan_view, TAG },
    { "POST", "/v1/orphans/{id}", ROUTE_JSON, ROUTE_ADMIN, adopt_body, sizeof(struct adopt), adopt,
      "adoptOrphan", "Make it a sandbox of a user's again.", .reply = native_sandbox, TAG },
    { "DELETE", "/v1/orphans/{id}", ROUTE_RAW, ROUTE_ADMIN, .fn = end, .operation = "endOrphan",
      .help = "End it: its processes and its files are gone for good.", .status = 204, TAG },
    {}
};
