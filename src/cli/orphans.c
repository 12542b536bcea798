/* orphans.c - `cove orphans`: machines that the server's database does not know. For admins. */
#include "base/clock.h"
#include "base/field.h"
#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/orphans_export.h"
#include "cli/remote.h"

struct orphans_options {
    struct remote_options remote;
    const char *owner;
    bool restart;
};

struct orphan {
    char *id, *state, *owner, *template, *network, *ends, *found, *kept_until, *reason,
        *unreachable;
    struct remote_limits *limits;
    int64_t disk_bytes;
};

static const struct field limits_fields[] = {
    FIELD(struct remote_limits, memory_bytes, F_INT, .max = INT64_MAX),
    {},
};
static const struct field orphan_fields[] = {
    FIELD(struct orphan, id, F_STR),
    FIELD(struct orphan, state, F_STR),
    FIELD(struct orphan, owner, F_STR),
    FIELD(struct orphan, template, F_STR),
    FIELD(struct orphan, network, F_STR),
    FIELD(struct orphan, ends, F_STR),
    FIELD(struct orphan, found, F_STR),
    FIELD(struct orphan, kept_until, F_STR),
    FIELD(struct orphan, reason, F_STR),
    FIELD(struct orphan, unreachable, F_STR),
    FIELD(struct orphan, limits, F_OBJ, .sub = limits_fields,
          .sub_size = sizeof(struct remote_limits)),
    FIELD(struct orphan, disk_bytes, F_INT, .max = INT64_MAX),
    {},
};

struct orphans {
    struct objs orphans;
};
static const struct field orphans_fields[] = {
    FIELD(struct orphans, orphans, F_OBJS, .sub = orphan_fields, .sub_size = sizeof(struct orphan),
          .max = 1 << 20),
    {},
};

/* ---- looking ---- */

static const char *or_nothing(const char *text) { return text ? text : ""; }

struct texts { /* numbers for people */
    char memory[16], disk[16], age[16], kept[16];
};

static void put_texts(const struct orphan *o, struct texts *out)
{
    int64_t now = clock_wall_s(), found = columns_time(o->found), until;

    *out = (struct texts){ .kept = "for ever" };
    if (o->limits && o->limits->memory_bytes)
        args_print_size(o->limits->memory_bytes, out->memory, sizeof(out->memory));
    if (o->disk_bytes)
        args_print_size(o->disk_bytes / 1024 * 1024, out->disk, sizeof(out->disk));
    if (found >= 0)
        columns_span(now - found, out->age, sizeof(out->age));
    until = o->kept_until ? columns_time(o->kept_until) : -1;
    if (until >= 0)
        columns_span(MAX(until - now, (int64_t)0), out->kept, sizeof(out->kept));
}

static int list(struct remote *r, struct err *err)
{
    static const char *const heads[] = { "ID",   "STATE", "OWNER",    "TEMPLATE", "MEMORY",
                                         "DISK", "FOUND", "KEPT FOR", "REASON",   NULL };
    AUTO(buf_free) struct buf reply = { 0 };
    AUTO(columns_finish) struct columns t;
    struct arena a = { 0 };
    struct orphans all = { 0 };
    const struct orphan *o;
    int failed;

    columns_init(&t, heads);
    if (remote_call(r, "GET", "/v1/orphans", NULL, &reply, err))
        return -1;
    failed = field_decode_text(orphans_fields, FIELDS_PROTO, buf_str(&reply), &a, &all, err);
    o = all.orphans.items;
    for (size_t i = 0; !failed && i < all.orphans.n; i++) {
        struct texts n;
        const char *cells[] = { o[i].id,
                                o[i].state,
                                or_nothing(o[i].owner),
                                or_nothing(o[i].template),
                                n.memory,
                                n.disk,
                                n.age,
                                n.kept,
                                o[i].reason };

        put_texts(&o[i], &n);
        columns_row(&t, cells);
    }
    if (!failed && r->o->json)
        remote_print(&reply);
    else if (!failed)
        columns_print(&t);
    arena_free(&a);
    return failed ? err_in(err, "the server's answer") : 0;
}

static int target(struct remote *r, struct buf *out)
{
    buf_puts(out, "/v1/orphans/");
    remote_put_encoded(out, r->args->words[0]);
    return 0;
}

static void line(const char *name, const char *value)
{
    if (value && *value)
        printf("%-12s%s\n", name, value);
}

static int show(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 }, reply = { 0 };
    struct arena a = { 0 };
    struct orphan o = { 0 };
    struct texts n;
    int failed;

    target(r, &path);
    if (remote_call(r, "GET", path.data, NULL, &reply, err))
        return -1;
    if (r->o->json) {
        remote_print(&reply);
        return 0;
    }
    failed = field_decode_text(orphan_fields, FIELDS_PROTO, buf_str(&reply), &a, &o, err);
    if (!failed) {
        put_texts(&o, &n);
        line("id", o.id);
        line("state", o.state);
        line("owner", o.owner);
        line("template", o.template);
        line("network", o.network);
        line("memory", n.memory);
        line("disk", n.disk);
        line("ends", o.ends);
        line("found", o.found);
        line("kept until", o.kept_until ? o.kept_until : "for ever");
        line("reason", o.reason);
        line("unreachable", o.unreachable);
    }
    arena_free(&a);
    return failed ? err_in(err, "the server's answer") : 0;
}

/* ---- deciding ---- */

static int adopt(struct remote *r, struct err *err)
{
    const struct orphans_options *o = r->args->values;
    AUTO(buf_free) struct buf path = { 0 }, body = { 0 }, reply = { 0 };

    if (!o->owner)
        return err_set(err, ERR_INVALID, "--owner is missing: the user whose sandbox it becomes");
    target(r, &path);
    json_open(&body, '{');
    json_kv_str(&body, "owner", o->owner);
    if (o->restart)
        json_kv_bool(&body, "restart", true);
    json_close(&body, '}');
    if (remote_call(r, "POST", path.data, &body, &reply, err))
        return -1;
    if (r->o->json)
        remote_print(&reply);
    else
        printf("%s is a sandbox of %s%s\n", r->args->words[0], o->owner,
               o->restart ? ": its files are kept, its processes have ended (cove resume starts it)"
                          : "");
    return 0;
}

static int end(struct remote *r, struct err *err)
{
    AUTO(buf_free) struct buf path = { 0 };

    target(r, &path);
    if (remote_call(r, "DELETE", path.data, NULL, NULL, err))
        return -1;
    if (r->o->json)
        puts("{}");
    else
        printf("%s has ended\n", r->args->words[0]);
    return 0;
}

/* ---- the tables ---- */

#define COMMON REMOTE_OPTIONS(struct orphans_options, "print the server's answer")

static const struct args_option options[] = { COMMON, {} };
static const struct args_option adopt_options[] = {
    OPTION(struct orphans_options, owner, "owner", ARGS_TEXT, .value = "USER",
           .help = "the user whose sandbox it becomes"),
    OPTION(struct orphans_options, restart, "restart", ARGS_SWITCH,
           .help = "take over its files alone: its processes end (needed where a former release "
                   "made it, whose guest nobody can speak to)"),
    COMMON,
    {}
};
static const struct args_word words[] = { { .name = "ID", .help = "which" }, {} };

#define SUB(what, opts, wanted, text)                                                              \
    static int run_##what(struct args *a)                                                          \
    {                                                                                              \
        const struct orphans_options *o = a->values;                                               \
                                                                                                   \
        return remote_command(a, &o->remote, what);                                                \
    }                                                                                              \
    static const struct command command_##what = { .name = #what,                                  \
                                                   .help = (text),                                 \
                                                   .options = (opts),                              \
                                                   .size = sizeof(struct orphans_options),         \
                                                   .words = (wanted),                              \
                                                   .run = run_##what }
SUB(list, options, NULL, "show all of them, and why they were set aside");
SUB(show, options, words, "show one");
SUB(adopt, adopt_options, words, "make it a sandbox of a user's again");
SUB(end, options, words, "end it: its processes and its files are gone for good");

static const struct command *const subs[] = { &command_list,           &command_show,
                                              &command_adopt,          &command_end,
                                              &command_orphans_export, NULL };

const struct command command_orphans = {
    .name = "orphans",
    .help = "sandboxes that the server's database has lost",
    .about = "After a database was lost, or a backup put back, there may be sandboxes that it does "
             "not know. They are not ended but set aside: served to nobody, with their deadline "
             "and limits in force, and kept for control.orphan-retention-s. Without a command it "
             "lists them. For admins.",
    .options = options,
    .size = sizeof(struct orphans_options),
    .subs = subs,
    .run = run_list,
};
