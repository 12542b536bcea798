/* template.c - `cove template add|list|remove`: what sandboxes' files begin as. Works on the data
 * directory itself; no server has to run. */
#include "jail/template.h"

#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/limit_args.h"
#include "keep/keep.h"

struct template_options {
    bool json;
    const char *data_dir;
    struct limit_args limits;
    const char *user, *workdir, *kernels;
    struct args_list set;
};

static int fail(const struct args *a, const struct err *err) { return args_fail(a, 1, err); }

static char *data_dir(const struct template_options *o, struct err *err)
{
    if (!o->data_dir)
        return dirs_data();
    if (o->data_dir[0] == '/')
        return xstrdup(o->data_dir);
    err_set(err, ERR_INVALID, "--data-dir: '%.200s' must begin with a /", o->data_dir);
    return NULL;
}

static void print_json(struct buf *b)
{
    buf_putc(b, '\n');
    fwrite(b->data, 1, b->len, stdout);
}

/* ---- add ---- */

static void show_progress(void *arg, const struct unpack_stats *s)
{
    (void)arg;
    fprintf(stderr, "\r\033[K%llu entries, %llu MB", (unsigned long long)s->entries,
            (unsigned long long)(s->bytes / 1000000));
    fflush(stderr);
}

/* What was left out of an archive, and why that is right. */
static const struct {
    const char *name;
    size_t offset;
    const char *text;
} leftovers[] = {
    { "devices", offsetof(struct unpack_stats, devices),
      "device nodes left out: a sandbox's /dev has its own" },
    { "sockets", offsetof(struct unpack_stats, sockets), "sockets left out" },
    { "whiteouts", offsetof(struct unpack_stats, whiteouts),
      "'.wh.' names left out: they belong to one layer of a larger image" },
    { "xattrs", offsetof(struct unpack_stats, xattrs),
      "extended attributes left out (overlayfs's, labels, ACLs, bound capabilities)" },
    { "owners", offsetof(struct unpack_stats, owners), "owners above 65535 became 65534" },
    { "stripped", offsetof(struct unpack_stats, stripped), "absolute names became relative" },
};

static uint64_t leftover(const struct unpack_stats *s, size_t i)
{
    uint64_t n;

    memcpy(&n, (const char *)s + leftovers[i].offset, sizeof(n));
    return n;
}

static void print_added_json(const struct template_spec *spec, const struct template_added *added)
{
    AUTO(buf_free) struct buf b = { 0 };
    const struct unpack_result *u = &added->unpacked;

    json_open(&b, '{');
    json_kv_str(&b, "name", spec->name);
    json_kv_str(&b, "kind", template_kind_name(added->kind));
    json_kv_str(&b, "source", spec->source);
    if (added->kind == TEMPLATE_ARCHIVE) {
        json_kv_int(&b, "entries", (int64_t)u->stats.entries);
        json_kv_int(&b, "bytes", (int64_t)u->stats.bytes);
        json_kv_int(&b, "archive_bytes", (int64_t)u->archive_bytes);
        json_kv_str(&b, "sha256", u->sha256);
        json_kv_bool(&b, "squashed", u->squashed);
        json_key(&b, "left_out");
        json_open(&b, '{');
        for (size_t i = 0; i < ARRAY_LEN(leftovers); i++)
            json_kv_int(&b, leftovers[i].name, (int64_t)leftover(&u->stats, i));
        json_close(&b, '}');
    }
    json_kv_bool(&b, "has_programs", !added->no_programs);
    json_close(&b, '}');
    print_json(&b);
}

static void print_added(const struct template_spec *spec, const struct template_added *added)
{
    const struct unpack_result *u = &added->unpacked;

    if (added->kind == TEMPLATE_HOST) {
        printf("template %s: this machine's own programs, with defaults of its own\n", spec->name);
        return;
    }
    if (added->kind == TEMPLATE_DIRECTORY) {
        printf("template %s: the directory %s\n", spec->name, spec->source);
        return;
    }
    printf("template %s: %llu entries, %.1f MB, sha256 %s\n", spec->name,
           (unsigned long long)u->stats.entries, (double)u->stats.bytes / 1e6, u->sha256);
    for (size_t i = 0; i < ARRAY_LEN(leftovers); i++)
        if (leftover(&u->stats, i))
            printf("  %llu %s\n", (unsigned long long)leftover(&u->stats, i), leftovers[i].text);
    if (u->squashed)
        printf("  unpacked without root: every file belongs to root inside\n");
}

static int apply_settings(const struct args_list *set, struct err *err)
{
    static const struct setting *const tables[] = { unpack_settings, NULL };

    for (size_t i = 0; i < set->n; i++)
        if (setting_set(tables, set->items[i], err) < 0)
            return -1;
    return 0;
}

static int read_kernels(const char *text, int64_t *out, struct err *err)
{
    *out = text && !strcmp(text, "warm") ? TEMPLATE_KERNELS_WARM : TEMPLATE_KERNELS_ON_DEMAND;
    if (!text || *out == TEMPLATE_KERNELS_WARM || !strcmp(text, "on-demand"))
        return 0;
    return err_set(err, ERR_INVALID, "--kernels: '%.40s' is neither warm nor on-demand", text);
}

static int run_add(struct args *a)
{
    const struct template_options *o = a->values;
    bool terminal = isatty(STDERR_FILENO) && !o->json;
    struct err err = { 0 };
    AUTO(freep) char *dir = data_dir(o, &err);
    bool host = !strcmp(a->words[1], "host"); /* a directory of that name is ./host */
    AUTO(freep) char *source = host ? NULL : realpath(a->words[1], NULL);
    struct template_spec spec = { .name = a->words[0],
                                  .source = source,
                                  .user = o->user,
                                  .workdir = o->workdir,
                                  .limits = limit_args_read(&o->limits),
                                  .progress = terminal ? show_progress : NULL };
    struct template_added added;
    int r;

    if (!dir || apply_settings(&o->set, &err) < 0 || read_kernels(o->kernels, &spec.kernels, &err))
        return args_fail(a, args_usage_status(a), &err);
    if (!source && !host) {
        err_sys(&err, "%.150s", a->words[1]);
        return fail(a, &err);
    }
    r = template_add(dir, &spec, &added, &err);
    if (terminal)
        fputs("\r\033[K", stderr);
    if (r < 0)
        return fail(a, &err);
    if (o->json)
        print_added_json(&spec, &added);
    else
        print_added(&spec, &added);
    if (added.no_programs)
        fprintf(stderr,
                "%s: warning: %s has neither /bin/sh nor /usr/bin/env: is it a root file system?\n",
                a->path, source);
    return 0;
}

/* ---- list ---- */

static void print_list(const struct template *list, size_t n)
{
    printf("%-24s %-10s %10s  %s\n", "NAME", "KIND", "SIZE", "SOURCE");
    for (size_t i = 0; i < n; i++) {
        char size[32] = "-";

        if (list[i].kind == TEMPLATE_ARCHIVE)
            snprintf(size, sizeof(size), "%.1f MB", (double)list[i].bytes / 1e6);
        printf("%-24s %-10s %10s  %s\n", list[i].name, template_kind_name(list[i].kind), size,
               list[i].source ? list[i].source : "this machine's own /usr");
    }
}

static int run_list(struct args *a)
{
    const struct template_options *o = a->values;
    struct err err = { 0 };
    AUTO(freep) char *dir = data_dir(o, &err);
    AUTO(buf_free) struct buf b = { 0 };
    struct template *list;
    size_t n;

    if (!dir)
        return args_fail(a, args_usage_status(a), &err);
    if (template_list(dir, &list, &n, &err) < 0)
        return fail(a, &err);
    if (o->json) {
        json_open(&b, '[');
        for (size_t i = 0; i < n; i++) {
            AUTO(buf_free) struct buf one = { 0 };

            template_write(&list[i], &one);
            json_put_raw(&b, buf_str(&one));
        }
        json_close(&b, ']');
        print_json(&b);
    } else {
        print_list(list, n);
    }
    template_list_free(list, n);
    return 0;
}

/* ---- remove ---- */

static bool is_named(void *dir, const char *name)
{
    return keep_names(dir, KEEP_NAMED_TEMPLATE, name);
}

static int run_remove(struct args *a)
{
    const struct template_options *o = a->values;
    struct err err = { 0 };
    AUTO(freep) char *dir = data_dir(o, &err);
    AUTO(buf_free) struct buf b = { 0 };

    if (!dir)
        return args_fail(a, args_usage_status(a), &err);
    json_open(&b, '[');
    for (size_t i = 0; i < a->n; i++) {
        if (template_remove(dir, a->words[i], is_named, dir, &err) < 0)
            return fail(a, &err);
        json_put_str(&b, str_of(a->words[i]));
    }
    json_close(&b, ']');
    if (o->json)
        print_json(&b);
    return 0;
}

/* ---- the tables ---- */

#define DATA_DIR                                                                                   \
    OPTION(struct template_options, data_dir, "data-dir", ARGS_DIR, .value = "DIR",                \
           .help = "where layers and templates are kept")
#define LIMIT(member, name, type, unit, text)                                                      \
    OPTION(struct template_options, member, name, type, .value = (unit),                           \
           .help = "default of its sandboxes: " text)

static const struct args_option add_options[] = {
    LIMIT(limits.memory, "memory", ARGS_SIZE, "SIZE", "memory"),
    LIMIT(limits.cpus, "cpus", ARGS_CPUS, "NUMBER", "cores' worth of processor time"),
    LIMIT(limits.disk, "disk", ARGS_SIZE, "SIZE", "bytes on disk that differ from the template"),
    LIMIT(limits.pids, "pids", ARGS_COUNT, "NUMBER", "processes and threads"),
    LIMIT(limits.files, "files", ARGS_COUNT, "NUMBER", "open files per process"),
    LIMIT(limits.io_weight, "io-weight", ARGS_COUNT, "NUMBER", "share of disk time against others"),
    LIMIT(limits.log, "log", ARGS_SIZE, "SIZE", "output kept per command"),
    LIMIT(limits.timeout, "timeout", ARGS_DURATION, "TIME", "time until they end"),
    LIMIT(user, "user", ARGS_TEXT, "NAME", "user that commands run as"),
    LIMIT(workdir, "workdir", ARGS_TEXT, "DIR", "directory that commands start in"),
    OPTION(struct template_options, kernels, "kernels", ARGS_TEXT, .value = "WHEN",
           .help = "warm: Jupyter's kernels start with a sandbox, and one waits in it; on-demand, "
                   "the default: at their first use"),
    OPTION(struct template_options, set, "set", ARGS_TEXT, .value = "NAME=VALUE",
           .flags = ARGS_REPEAT,
           .help = "change a bound: unpack.entries, unpack.bytes, unpack.memory-bytes, "
                   "unpack.seconds"),
    OPTION(struct template_options, json, "json", ARGS_SWITCH, .help = "print the result as JSON"),
    DATA_DIR,
    {}
};

static const struct args_option list_options[] = {
    OPTION(struct template_options, json, "json", ARGS_SWITCH,
           .help = "print an array of objects, one for each template"),
    DATA_DIR,
    {}
};

static const struct args_option remove_options[] = {
    OPTION(struct template_options, json, "json", ARGS_SWITCH,
           .help = "print the names of those that were removed"),
    DATA_DIR,
    {}
};

static const struct args_word add_words[] = {
    { .name = "NAME", .help = "a-z 0-9 . _ -, up to 64 of them" },
    { .name = "SOURCE",
      .help =
          "a root file system: a directory, or a tar archive (plain, gzip, bzip2, xz, zstd); or "
          "host: this machine's own programs under another name, with defaults of its own",
      .type = ARGS_FILE },
    {}
};

static const struct args_word remove_words[] = {
    { .name = "NAME", .help = "a template that no sandbox uses", .flags = ARGS_MANY }, {}
};

static const struct command command_add = {
    .name = "add",
    .help = "add a root file system by name",
    .about = "A directory is used where it is, read-only, and must stay there. An archive is "
             "unpacked into the data directory, in namespaces of its own that see nothing else "
             "of the machine; what it must not bring (device nodes, overlayfs's attributes, "
             "whiteouts) is left out and counted, and an archive that names places outside itself "
             "is refused whole.",
    .options = add_options,
    .size = sizeof(struct template_options),
    .words = add_words,
    .run = run_add,
};

static const struct command command_list = {
    .name = "list",
    .help = "show all templates",
    .options = list_options,
    .size = sizeof(struct template_options),
    .run = run_list,
};

static const struct command command_remove = {
    .name = "remove",
    .help = "remove templates that are not in use",
    .options = remove_options,
    .size = sizeof(struct template_options),
    .words = remove_words,
    .run = run_remove,
};

static const struct command *const subs[] = { &command_add, &command_list, &command_remove, NULL };

const struct command command_template = {
    .name = "template",
    .help = "add, list and remove what sandboxes' files begin as",
    .about = "Without any, sandboxes begin with template 'host': this machine's own programs, and "
             "nothing else of it.",
    .subs = subs,
};
