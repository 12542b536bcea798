/* ps.c - `cove ps`: the sandboxes there are. */
#include "base/clock.h"
#include "base/field.h"
#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/remote.h"

enum { PAGE = 1000 };

struct ps_options {
    struct remote_options remote;
    bool all, ended;
    const char *state, *template;
    struct args_list metadata;
};

static const struct args_option ps_options[] = {
    OPTION(struct ps_options, all, "all", ARGS_SWITCH, .letter = 'a',
           .help = "everybody's, for admins"),
    OPTION(struct ps_options, ended, "ended", ARGS_SWITCH,
           .help = "those that ended lately instead, and why"),
    OPTION(struct ps_options, state, "state", ARGS_TEXT, .letter = 's', .value = "STATE[,STATE]",
           .help = "only these: creating, running, pausing, paused, resuming, ending"),
    OPTION(struct ps_options, template, "template", ARGS_TEXT, .letter = 't', .value = "NAME",
           .help = "only those that began as this"),
    OPTION(struct ps_options, metadata, "metadata", ARGS_TEXT, .value = "KEY=VALUE",
           .flags = ARGS_REPEAT, .help = "only those that have this"),
    REMOTE_OPTIONS(struct ps_options, "print an array of objects, one for each"),
    {}
};

struct page {
    struct objs sandboxes;
    char *next;
};
static const struct field page_fields[] = {
    FIELD(struct page, sandboxes, F_OBJS, .sub = remote_sandbox_fields,
          .sub_size = sizeof(struct remote_sandbox), .max = PAGE),
    FIELD(struct page, next, F_STR, .max = 256),
    {},
};

static void put_parameter(struct buf *b, const char *name, const char *value)
{
    if (!value)
        return;
    buf_printf(b, "&%s=", name);
    remote_put_encoded(b, value);
}

static int put_target(const struct ps_options *o, const char *after, struct buf *b, struct err *err)
{
    AUTO(buf_free) struct buf pairs = { 0 };

    buf_printf(b, "/v1/sandboxes?limit=%d", PAGE);
    put_parameter(b, "all", o->all ? "true" : NULL);
    put_parameter(b, "ended", o->ended ? "true" : NULL);
    put_parameter(b, "state", o->state);
    put_parameter(b, "template", o->template);
    put_parameter(b, "after", after);
    for (size_t i = 0; i < o->metadata.n; i++) { /* pairs are encoded, and so is their whole */
        struct str key, value;

        if (!str_cut(str_of(o->metadata.items[i]), '=', &key, &value) || !key.n)
            return err_set(err, ERR_INVALID, "--metadata: '%.100s' is not KEY=VALUE",
                           o->metadata.items[i]);
        buf_printf(&pairs, "%s%.*s=", i ? "&" : "", STR_ARG(key));
        remote_put_encoded(&pairs, value.p);
    }
    put_parameter(b, "metadata", pairs.data);
    return 0;
}

/* ---- for people ---- */

static void put_row(struct columns *t, const struct ps_options *o, const struct remote_sandbox *s,
                    int64_t now)
{
    char age[16] = "", ends[16] = "never", memory[16] = "";
    int64_t born = columns_time(s->started ? s->started : s->created), end = columns_time(s->ends);
    const char *cells[COLUMNS_MAX] = { s->id, s->template, s->state, age, ends, memory };

    if (born >= 0)
        columns_span(now - born, age, sizeof(age));
    if (end >= 0)
        columns_span(end - now, ends, sizeof(ends));
    if (s->limits && s->limits->memory_bytes)
        args_print_size(s->limits->memory_bytes, memory, sizeof(memory));
    if (o->ended) {
        cells[3] = s->ended;
        cells[4] = s->reason;
    }
    cells[o->ended ? 5 : 6] = s->owner;
    columns_row(t, cells);
}

static void put_json(struct buf *out, struct str text)
{
    struct err ignored;
    AUTO(json_dropp) json_t *j = json_read(text, &ignored);
    json_t *one;
    size_t i;

    json_array_foreach(j ? json_object_get(j, "sandboxes") : NULL, i, one)
    {
        char *dumped = json_dumps(one, JSON_COMPACT);

        if (dumped)
            json_put_raw(out, str_of(dumped));
        free(dumped);
    }
}

/* ---- the command ---- */

static int read_page(struct remote *r, const char *after, struct columns *t, struct buf *json,
                     struct arena *a, struct page *p, struct err *err)
{
    const struct ps_options *o = r->args->values;
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    const struct remote_sandbox *s;

    if (put_target(o, after, &target, err) || remote_call(r, "GET", target.data, NULL, &reply, err))
        return -1;
    if (field_decode_text(page_fields, FIELDS_PROTO, buf_str(&reply), a, p, err))
        return err_in(err, "the server's answer");
    s = p->sandboxes.items;
    for (size_t i = 0; i < p->sandboxes.n; i++)
        put_row(t, o, &s[i], clock_wall_s());
    if (o->remote.json)
        put_json(json, buf_str(&reply));
    return 0;
}

static int ps(struct remote *r, struct err *err)
{
    static const char *const living[] = { "ID",      "TEMPLATE", "STATE", "AGE",
                                          "ENDS IN", "MEMORY",   "OWNER", NULL };
    static const char *const mine[] = {
        "ID", "TEMPLATE", "STATE", "AGE", "ENDS IN", "MEMORY", NULL
    };
    static const char *const gone[] = {
        "ID", "TEMPLATE", "STATE", "ENDED", "REASON", "OWNER", NULL
    };
    const struct ps_options *o = r->args->values;
    AUTO(columns_finish) struct columns t;
    AUTO(buf_free) struct buf json = { 0 };
    struct arena a = { 0 };
    struct page p = { 0 };
    int failed;

    columns_init(&t, o->ended ? gone : o->all ? living : mine);
    json_open(&json, '[');
    do {
        const char *after = p.next;

        p = (struct page){ 0 };
        failed = read_page(r, after, &t, &json, &a, &p, err);
    } while (!failed && p.next && p.sandboxes.n);
    json_close(&json, ']');
    if (!failed && o->remote.json)
        remote_print(&json);
    else if (!failed)
        columns_print(&t);
    arena_free(&a);
    return failed;
}

static int run_ps(struct args *a)
{
    const struct ps_options *o = a->values;

    return remote_command(a, &o->remote, ps);
}

const struct command command_ps = {
    .name = "ps",
    .help = "list sandboxes",
    .options = ps_options,
    .size = sizeof(struct ps_options),
    .run = run_ps,
};
