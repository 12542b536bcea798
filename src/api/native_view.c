/* native_view.c - a sandbox as /v1 shows it. */
#include "api/native.h"

/* Of one that never ran none are known: those are left out. */
const struct field native_limits[] = {
    FIELD(struct limits, memory_bytes, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "memory, caches of its own files and kernel memory included"),
    FIELD(struct limits, cpu_milli, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "thousandths of a core"),
    FIELD(struct limits, pids, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "processes and threads"),
    FIELD(struct limits, io_weight, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "share of disk time against others"),
    FIELD(struct limits, open_files, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "open files per process"),
    FIELD(struct limits, disk_bytes, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "bytes on disk that differ from the template"),
    FIELD(struct limits, log_bytes, F_INT, .flags = F_OMIT, .min = 1, .max = INT64_MAX,
          .help = "output kept per command for a reader that comes later"),
    {},
};

const struct field native_mounts[] = {
    FIELD(struct sandbox_mount, host, F_STR, .flags = F_REQUIRED, .min = 1, .max = 255,
          .help = "a directory of the server, under a prefix its operator allowed"),
    FIELD(struct sandbox_mount, guest, F_STR, .flags = F_REQUIRED, .min = 1, .max = 255,
          .help = "where it appears inside"),
    FIELD(struct sandbox_mount, ro, F_BOOL, .help = "read-only"),
    {},
};

const struct field native_forwards[] = {
    FIELD(struct sandbox_forward, host_port, F_INT, .flags = F_REQUIRED, .max = 65535,
          .help = "on the server's loopback; 0: any that is free"),
    FIELD(struct sandbox_forward, port, F_INT, .flags = F_REQUIRED, .min = 1, .max = 65535,
          .help = "inside"),
    FIELD(struct sandbox_forward, public, F_BOOL,
          .help = "every account of the server's machine may connect, and is asked for nothing: to "
                  "be said where `port` runs code (8765, 8888, 49999)"),
    {},
};

#define V(member, type, ...) FIELD(struct native_sandbox, member, type, __VA_ARGS__)

const struct field native_sandbox[] = {
    V(id, F_STR, .flags = F_REQUIRED, .help = "short: for host names and every route"),
    V(uuid, F_STR, .flags = F_REQUIRED, .help = "as good as id"),
    V(template, F_STR, .flags = F_REQUIRED),
    V(state, F_STR, .flags = F_REQUIRED,
      .help = "creating, running, pausing, paused, resuming, ending or ended"),
    V(owner, F_STR, .flags = F_REQUIRED, .help = "a user's name"),
    V(network, F_STR, .flags = F_REQUIRED, .help = "open or none"),
    V(secure, F_BOOL, .flags = F_REQUIRED, .help = "its guest demands the token"),
    V(strict, F_BOOL, .flags = F_REQUIRED, .help = "no capabilities, no new privileges"),
    V(public, F_BOOL, .flags = F_REQUIRED, .help = "its ports answer without traffic_token"),
    V(metadata, F_MAP, .flags = F_REQUIRED),
    V(label, F_STR, .flags = F_OMIT),
    V(limits, F_OBJ, .flags = F_REQUIRED, .sub = native_limits, .sub_size = sizeof(struct limits)),
    V(created, F_STR, .flags = F_REQUIRED),
    V(started, F_STR, .flags = F_OMIT),
    V(ends, F_STR, .flags = F_OMIT, .help = "absent: never"),
    V(ended, F_STR, .flags = F_OMIT),
    V(reason, F_STR, .flags = F_OMIT, .help = "why it ended"),
    V(unreachable, F_STR, .flags = F_OMIT,
      .help = "why its machine cannot be reached for now; nothing of it is lost"),
    V(timeout, F_INT, .flags = F_REQUIRED, .help = "seconds, as last set; 0: none"),
    V(idle, F_INT, .flags = F_REQUIRED, .help = "seconds without activity; 0: no such rule"),
    V(on_expiry, F_STR, .flags = F_REQUIRED, .help = "kill or pause"),
    V(auto_resume, F_BOOL, .flags = F_REQUIRED),
    V(restart, F_STR, .flags = F_REQUIRED, .help = "always or no: when its first process dies"),
    V(token, F_STR, .flags = F_OMIT, .help = "for X-Access-Token on requests to the guest"),
    V(traffic_token, F_STR, .flags = F_OMIT,
      .help = "for E2B-Traffic-Access-Token on requests to ports of services, and to all ports of "
              "one that is not public"),
    V(domain, F_STR, .flags = F_REQUIRED, .help = "ports are reached at {port}-{id}.{domain}"),
    V(mounts, F_OBJS, .flags = F_REQUIRED, .sub = native_mounts,
      .sub_size = sizeof(struct sandbox_mount)),
    V(forwards, F_OBJS, .flags = F_REQUIRED, .sub = native_forwards,
      .sub_size = sizeof(struct sandbox_forward)),
    V(facade, F_STR, .flags = F_REQUIRED, .help = "the API that made it"),
    {},
};

static const char *or_null(const char *text) { return text && text[0] ? text : NULL; }

static const char *owner_name(struct call *c, int64_t owner, const struct native_names *names)
{
    if (owner == api_actor(c)->user)
        return api_actor(c)->name;
    for (size_t i = 0; names && i < names->n; i++)
        if (names->items[i].id == owner)
            return names->items[i].name;
    return "";
}

void native_show(struct call *c, const struct sandbox *s, const struct native_names *names,
                 struct native_sandbox *out)
{
    bool lives = s->state != SANDBOX_ENDED;

    *out = (struct native_sandbox){
        .id = s->id,
        .uuid = s->uuid,
        .template = s->template,
        .state = sandbox_state_names[s->state],
        .owner = owner_name(c, s->owner, names),
        .network = sandbox_network_names[s->network],
        .secure = s->secure,
        .strict = s->strict,
        .public = s->public,
        .metadata = s->metadata,
        .label = or_null(s->label),
        .limits = &s->limits,
        .created = api_time(c, s->created_ms),
        .started = api_time(c, s->started_ms),
        .ends = lives ? api_time(c, s->end_ms) : NULL,
        .ended = api_time(c, s->ended_ms),
        .reason = api_public_text(c, or_null(s->reason)),
        .unreachable =
            lives ? api_public_text(c, control_unreachable(api_of(c)->control, s->id)) : NULL,
        .timeout = s->life.timeout_ms / 1000,
        .idle = s->life.idle_ms / 1000,
        .on_expiry = sandbox_expiry_names[s->life.expiry],
        .auto_resume = s->life.auto_resume,
        .restart = s->life.restart ? "always" : "no",
        .token = lives ? or_null(s->token) : NULL,
        .traffic_token = lives ? or_null(s->traffic_token) : NULL,
        .domain = control_domain(api_of(c)->control),
        .mounts = s->mounts,
        .forwards = s->forwards,
        .facade = s->facade,
    };
}

static int add_name(void *arg, const struct user *u)
{
    struct native_names *n = arg;
    struct arena *a = &n->call->arena;

    if (n->n == n->room) {
        struct native_name *more = arena_alloc(a, sizeof(*more) * (n->room * 2 + 16));

        if (n->n)
            memcpy(more, n->items, sizeof(*more) * n->n);
        n->items = more;
        n->room = n->room * 2 + 16;
    }
    n->items[n->n++] = (struct native_name){ u->id, arena_strdup(a, str_of(u->name)) };
    return 0;
}

int native_names_load(struct call *c, struct native_names *out, struct err *err)
{
    *out = (struct native_names){ .call = c };
    return api_actor(c)->admin ? control_user_list(api_of(c)->control, add_name, out, err) : 0;
}

int native_reply_sandbox(struct call *c, struct sandbox *s, struct err *err)
{
    struct native_names names = { .call = c };
    struct native_sandbox view;
    int r = 0;

    control_hold(s);
    if (s->owner != api_actor(c)->user)
        r = native_names_load(c, &names, err);
    if (!r) {
        native_show(c, s, &names, &view);
        r = api_reply(c, &view);
    }
    control_release(s);
    return r;
}

int native_check_limits(const struct limits *l, struct err *err)
{
    for (enum limit_id id = 0; native_limits[id].name; id++) {
        const struct limit_row *row = &limit_rows[id];
        uint64_t v = limits_get(l, id);

        if (v && (v < row->min || v > row->max))
            return err_set(err, ERR_INVALID, "field '%s' is %llu, must be from %llu to %llu",
                           native_limits[id].name, (unsigned long long)v,
                           (unsigned long long)row->min, (unsigned long long)row->max);
    }
    return 0;
}
