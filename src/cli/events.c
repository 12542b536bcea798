/* events.c - `cove events`: what happened to a sandbox, and who did it. */
#include "cli/events.h"

#include "base/field.h"
#include "cli/columns.h"
#include "cli/commands.h"

enum { PAGE = 1000, WAIT_S = 50, SOON_MS = 1000 };

static const struct args_option events_options[] = {
    OPTION(struct events_options, follow, "follow", ARGS_SWITCH, .letter = 'f',
           .help = "wait for more, until the sandbox has ended"),
    OPTION(struct events_options, tail, "tail", ARGS_COUNT, .value = "N", .min = 1,
           .help = "begin with the last N (default: all)"),
    REMOTE_OPTIONS(struct events_options, "print a JSON object for each, one a line"),
    {}
};

static const struct args_word words[] = { { .name = "ID", .help = "the sandbox" }, {} };

struct page {
    struct objs events;
};
static const struct field event_fields[] = {
    FIELD(struct events_event, seq, F_INT, .max = INT64_MAX),
    FIELD(struct events_event, at, F_STR, .max = 64),
    FIELD(struct events_event, kind, F_STR, .max = 64),
    FIELD(struct events_event, actor, F_STR, .max = 256),
    FIELD(struct events_event, text, F_STR),
    {},
};
static const struct field page_fields[] = {
    FIELD(struct page, events, F_OBJS, .sub = event_fields, .sub_size = sizeof(struct events_event),
          .max = PAGE),
    {},
};

struct reading {
    struct remote *remote;
    const struct events_options *o;
    const char *id;
    events_print *print;
    int64_t after;
    bool ended; /* its last one was there */
};

/* The server's own objects, with what this version does not know. */
static void print_json(struct str reply, size_t skip)
{
    struct err ignored;
    AUTO(json_dropp) json_t *j = json_read(reply, &ignored);
    json_t *one;
    size_t i;

    json_array_foreach(j ? json_object_get(j, "events") : NULL, i, one)
    {
        char *dumped = i < skip ? NULL : json_dumps(one, JSON_COMPACT);

        if (dumped)
            puts(dumped);
        free(dumped);
    }
}

static char *shown(char *text)
{
    static char none[] = "";

    if (!text)
        return none;
    columns_clean(text);
    return text;
}

static void take(struct reading *w, struct page *p, size_t skip)
{
    struct events_event *e = p->events.items;

    for (size_t i = 0; i < p->events.n; i++) {
        w->after = MAX(w->after, e[i].seq);
        w->ended |= e[i].kind && !strcmp(e[i].kind, "ended");
        e[i].at = shown(e[i].at);
        e[i].kind = shown(e[i].kind);
        e[i].actor = shown(e[i].actor);
        e[i].text = shown(e[i].text);
        if (!w->o->remote.json && i >= skip)
            w->print(&e[i]);
    }
}

/* One page: how many there were. first: the log so far, of which --tail may want the end only. */
static ssize_t read_page(struct reading *w, bool wait, bool first, struct err *err)
{
    AUTO(buf_free) struct buf target = { 0 };
    AUTO(buf_free) struct buf more = { 0 };
    AUTO(buf_free) struct buf reply = { 0 };
    struct arena a = { 0 };
    struct page p = { 0 };
    size_t skip;
    int failed;

    buf_printf(&more, "/events?limit=%d&after=%lld", PAGE, (long long)w->after);
    if (wait)
        buf_printf(&more, "&wait=%d", WAIT_S);
    if (remote_sandbox_target(w->id, more.data, &target, err) ||
        remote_call(w->remote, "GET", target.data, NULL, &reply, err))
        return -1;
    failed = field_decode_text(page_fields, FIELDS_PROTO, buf_str(&reply), &a, &p, err);
    skip = first && w->o->tail && p.events.n > (size_t)w->o->tail ? p.events.n - (size_t)w->o->tail
                                                                  : 0;
    if (!failed) {
        take(w, &p, skip);
        if (w->o->remote.json)
            print_json(buf_str(&reply), skip);
    }
    arena_free(&a);
    fflush(stdout);
    return failed ? err_in(err, "the server's answer") : (ssize_t)p.events.n;
}

int events_read(struct remote *r, const char *id, const struct events_options *o,
                events_print *print, struct err *err)
{
    struct reading w = { .remote = r, .o = o, .id = id, .print = print };

    for (bool first = true, wait = false;; first = false) {
        int64_t asked = co_now();
        ssize_t n = read_page(&w, wait, first, err);

        if (n < 0)
            return !first && err->code == ERR_NOT_FOUND ? 0 : -1; /* ended, and forgotten */
        if (n == PAGE)
            continue;
        if (!o->follow || w.ended || ferror(stdout))
            return 0;
        wait = true;
        if (!n && co_now() - asked < SOON_MS && co_sleep(asked + SOON_MS))
            return 0; /* whatever answered did not wait: do not turn into a flood */
    }
}

static void print(const struct events_event *e)
{
    printf("%s  %-16s %-12s %s\n", e->at, e->kind, e->actor, e->text);
}

static int events(struct remote *r, struct err *err)
{
    return events_read(r, r->args->words[0], r->args->values, print, err);
}

static int run_events(struct args *a)
{
    const struct events_options *o = a->values;

    return remote_command(a, &o->remote, events);
}

const struct command command_events = {
    .name = "events",
    .help = "what happened to a sandbox: when, what, by whom",
    .options = events_options,
    .size = sizeof(struct events_options),
    .words = words,
    .run = run_events,
};
