/* doctor.c - `cove doctor`: asks every row and prints what was found, for people or as JSON. */
#include "cli/doctor.h"

#include <signal.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/help.h"

static const struct doctor_group groups[] = {
    { "machine", doctor_machine },      { "kernel", doctor_kernel },
    { "namespaces", doctor_namespace }, { "cgroups", doctor_cgroup },
    { "layers", doctor_files },         { "volume", doctor_btrfs },
    { "network", doctor_network },      { "virtual machines", doctor_kvm },
    { "limits", doctor_limits },
};

static const struct {
    const char *word, *colour;
} words[] = {
    [DOCTOR_OK] = { "ok", "\033[32m" },
    [DOCTOR_WARN] = { "warn", "\033[33m" },
    [DOCTOR_FAIL] = { "fail", "\033[31m" },
};

struct doctor_options {
    bool json, deep;
    const char *data_dir, *run_dir;
};

struct report {
    bool json, colours;
    struct buf out; /* JSON: all of it; text: what has not been printed yet */
    size_t counts[3];
    struct {
        const char *text; /* of .without: each once, and lost as soon as one row says so */
        bool lost;
    } gifts[64];
    size_t ngifts;
};

static void add_json(struct buf *b, const struct doctor_group *g, const struct doctor_check *c,
                     const struct finding *f)
{
    json_open(b, '{');
    json_kv_str(b, "name", c->name);
    json_kv_str(b, "group", g->name);
    json_kv_str(b, "title", c->title);
    json_kv_str(b, "status", words[f->status].word);
    json_kv_str(b, "seen", f->seen);
    json_kv_str(b, "fix", f->fix);
    json_kv_str(b, "without", c->without ? c->without : "");
    json_key(b, "needed");
    json_open(b, '[');
    if (c->need & DOCTOR_ROOT)
        json_put_str(b, STR("root"));
    if (c->need & DOCTOR_ROOTLESS)
        json_put_str(b, STR("rootless"));
    json_close(b, ']');
    json_close(b, '}');
}

/* One line whatever its length: it can be searched for, and its fix copied. */
static void add_line(struct report *r, const struct doctor_check *c, const struct finding *f)
{
    buf_printf(&r->out, "%s%-4s%s %s", r->colours ? words[f->status].colour : "",
               words[f->status].word, r->colours ? "\033[m" : "", c->title);
    if (f->seen[0])
        buf_printf(&r->out, ": %s", f->seen);
    if (f->fix[0])
        buf_printf(&r->out, "; fix: %s", f->fix);
    buf_putc(&r->out, '\n');
}

static void remember(struct report *r, const char *text, bool lost)
{
    size_t i = 0;

    if (!text)
        return;
    while (i < r->ngifts && strcmp(r->gifts[i].text, text) != 0)
        i++;
    if (i == ARRAY_LEN(r->gifts))
        return;
    r->gifts[i].text = text;
    r->gifts[i].lost |= lost;
    r->ngifts = MAX(r->ngifts, i + 1);
}

static void flush_text(struct report *r)
{
    fputs(buf_cstr(&r->out), stdout);
    fflush(stdout); /* a row may take seconds: what is known by now can be read */
    r->out.len = 0;
}

static void ask_group(struct doctor *d, struct report *r, const struct doctor_group *g)
{
    struct finding f;

    if (!r->json)
        buf_printf(&r->out, "%s%s%s%s\n", g == groups ? "" : "\n", r->colours ? "\033[1m" : "",
                   g->name, r->colours ? "\033[m" : "");
    for (const struct doctor_check *c = g->checks; c->name; c++) {
        doctor_ask(d, c, &f);
        r->counts[f.status]++;
        remember(r, c->without, f.status != DOCTOR_OK);
        if (r->json) {
            add_json(&r->out, g, c, &f);
        } else {
            add_line(r, c, &f);
            flush_text(r);
        }
    }
}

static void list_gifts(struct report *r, bool lost, const char *mode, const char *verb)
{
    bool any = false;

    for (size_t i = 0; i < r->ngifts; i++) {
        if (r->gifts[i].lost != lost)
            continue;
        if (!any)
            buf_printf(&r->out, "\n%s mode on this machine %s:\n", mode, verb);
        buf_printf(&r->out, "  %s\n", r->gifts[i].text);
        any = true;
    }
}

/* The mode that would run here. Of root's all is expected but what is said to be missing. */
static void summarise(const struct doctor *d, struct report *r)
{
    const char *mode = d->root ? "root" : "rootless";

    if (!d->root)
        list_gifts(r, false, mode, "has");
    list_gifts(r, true, mode, "lacks, or has less of");
    buf_printf(&r->out, "\n%zu ok, %zu warnings, %zu failures: ", r->counts[DOCTOR_OK],
               r->counts[DOCTOR_WARN], r->counts[DOCTOR_FAIL]);
    buf_printf(&r->out, "cove %s work here in %s mode\n",
               r->counts[DOCTOR_FAIL] ? "will not" : "will", mode);
    flush_text(r);
}

/* Asking what a file system can do needs a directory on it; the one that will be made is there. */
static char *existing(const char *dir)
{
    char *path = xstrdup(dir), *slash;

    while (access(path, F_OK) && (slash = strrchr(path, '/')) && slash != path)
        *slash = 0;
    if (access(path, F_OK))
        path[1] = 0;
    return path;
}

static int check_dir(const char *name, const char *dir, struct err *err)
{
    return dir[0] == '/'
               ? 0
               : err_set(err, ERR_INVALID, "--%s: '%.200s' must begin with a /", name, dir);
}

static int run_doctor(struct args *a)
{
    const struct doctor_options *o = a->values;
    AUTO(freep) char *data = o->data_dir ? xstrdup(o->data_dir) : dirs_data();
    AUTO(freep) char *run = o->run_dir ? xstrdup(o->run_dir) : dirs_run();
    struct doctor d = { .data_dir = data, .run_dir = run, .root = geteuid() == 0, .deep = o->deep };
    struct report r = { .json = o->json, .colours = help_colours() };
    struct err err;

    if (check_dir("data-dir", data, &err) || check_dir("run-dir", run, &err))
        return args_fail(a, args_usage_status(a), &err);
    d.data_there = existing(data);
    snprintf(d.scratch, sizeof(d.scratch), "cove-doctor-%d", getpid());
    signal(SIGCHLD, SIG_DFL); /* ignored by whoever started us, children could not be waited for */
    if (r.json)
        json_open(&r.out, '[');
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        ask_group(&d, &r, &groups[i]);
    if (r.json) {
        json_close(&r.out, ']');
        buf_putc(&r.out, '\n');
        flush_text(&r);
    } else {
        summarise(&d, &r);
    }
    free(d.data_there);
    buf_free(&r.out);
    return r.counts[DOCTOR_FAIL] ? 1 : 0;
}

static const struct args_option options[] = {
    OPTION(struct doctor_options, json, "json", ARGS_SWITCH,
           .help = "print an array of objects, one for each check"),
    OPTION(struct doctor_options, deep, "deep", ARGS_SWITCH,
           .help = "try more, which takes seconds: a scratch btrfs volume with a quota"),
    OPTION(struct doctor_options, data_dir, "data-dir", ARGS_DIR, .value = "DIR",
           .help = "where layers and templates are to be kept"),
    OPTION(struct doctor_options, run_dir, "run-dir", ARGS_DIR, .value = "DIR",
           .help = "where sockets are to be kept"),
    {}
};

static const struct args_exit exits[] = {
    { "0", "everything that is needed works; there may be warnings" },
    { "1", "something that is needed is missing" },
    { "2", "the command line is wrong" },
    {}
};

const struct command command_doctor = {
    .name = "doctor",
    .help = "find out what this machine can do",
    .about = "Tries on this machine everything that a sandbox is made of and prints a line for "
             "each: ok, warn (works, with less) or fail (missing, and needed), what was seen and "
             "the command that would change it. Started by an ordinary user it examines rootless "
             "mode. Everything is tried in namespaces that end with it: nothing stays behind.",
    .options = options,
    .size = sizeof(struct doctor_options),
    .exits = exits,
    .run = run_doctor,
};
