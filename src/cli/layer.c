/* layer.c - `cove layer add|list|remove`: read-only layers that all sandboxes see. Works on the
 * data directory itself; no server has to run, and one that runs takes the change for the sandboxes
 * that it makes from then on. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/layer_build.h"
#include "jail/layers.h"
#include "keep/keep.h"

enum { REQUIREMENTS = 64, REQUIREMENT_BYTES = 256 };

/* What the services need: a kernel, and what the documents' code may call without installing. */
static const char *const basics[] = { "ipykernel", "pyautogui", "pillow" };

struct layer_options {
    bool json;
    const char *data_dir, *template, *index;
    struct args_list with;
};

static char *layer_data_dir(const struct layer_options *o, struct err *err)
{
    if (!o->data_dir)
        return dirs_data();
    if (o->data_dir[0] == '/')
        return xstrdup(o->data_dir);
    err_set(err, ERR_INVALID, "--data-dir: '%.200s' must begin with a /", o->data_dir);
    return NULL;
}

static int check_name(const char *name, struct err *err)
{
    if (!strcmp(name, "python"))
        return 0;
    return err_set(err, ERR_INVALID, "there is no layer '%.64s' to be had: only python", name);
}

/* ---- add ---- */

static int add_requirements(struct args_list with, struct arena *a, char **out, struct err *err)
{
    size_t n = 0;

    for (; n < ARRAY_LEN(basics); n++)
        out[n] = arena_strdup(a, str_of(basics[n]));
    for (size_t i = 0; i < with.n; i++) {
        struct str rest = str_of(with.items[i]), item;

        while (str_next(&rest, ',', &item)) {
            if (!item.n || item.p[0] == '-' || item.n > REQUIREMENT_BYTES)
                return err_set(err, ERR_INVALID, "--with: '%.*s' is not a package's name",
                               (int)MIN(item.n, (size_t)64), item.p);
            if (n == REQUIREMENTS)
                return err_set(err, ERR_LIMIT, "--with: more than %d packages", REQUIREMENTS);
            out[n++] = arena_strdup(a, item);
        }
    }
    out[n] = NULL;
    return 0;
}

static void put_about(struct buf *b, const char *template, char *const *requirements)
{
    AUTO(buf_free) struct buf json = { 0 };

    json_open(&json, '{');
    json_kv_str(&json, "template", template);
    json_key(&json, "requirements");
    json_open(&json, '[');
    for (; *requirements; requirements++)
        json_put_str(&json, str_of(*requirements));
    json_close(&json, ']');
    buf_add(b, json.data + 1, json.len - 1); /* its members alone */
}

/* The archive has no name: it goes with us, however we end. */
static int open_archive(const char *data_dir, struct err *err)
{
    AUTO(closep) int folder = layers_folder(data_dir, err);
    int fd = folder < 0 ? -1 : openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (folder >= 0 && fd < 0)
        return err_sys(err, "a temporary file in %s/layers", data_dir);
    return fd;
}

static bool is_named(void *dir, const char *id) { return keep_names(dir, KEEP_NAMED_LAYER, id); }

static int add_layer(const struct layer_options *o, char *dir, struct layers_added *added,
                     struct err *err)
{
    AUTO(arena_free) struct arena a = { 0 };
    AUTO(buf_free) struct buf about = { 0 };
    char *requirements[REQUIREMENTS + 1];
    AUTO(closep) int archive = -1;

    if (add_requirements(o->with, &a, requirements, err))
        return -1;
    archive = open_archive(dir, err);
    if (archive < 0)
        return -1;
    put_about(&about, o->template, requirements);
    if (layer_build(&(struct layer_build){ .data_dir = dir,
                                           .template = o->template,
                                           .index = o->index,
                                           .requirements = requirements,
                                           .archive = archive,
                                           .quiet = o->json },
                    err) ||
        lseek(archive, 0, SEEK_SET) < 0)
        return -1;
    return layers_add(dir, "python", archive, buf_cstr(&about), is_named, dir, added, err);
}

static int run_layer_add(struct args *a)
{
    const struct layer_options *o = a->values;
    struct err err = { 0 };
    AUTO(freep) char *dir = layer_data_dir(o, &err);
    AUTO(buf_free) struct buf json = { 0 };
    struct layers_added added;

    if (!dir || check_name(a->words[0], &err))
        return args_fail(a, args_usage_status(a), &err);
    if (add_layer(o, dir, &added, &err))
        return args_fail(a, 1, &err);
    if (o->json && layers_describe(dir, a->words[0], &json, &err))
        return args_fail(a, 1, &err);
    if (o->json)
        printf("%s\n", buf_cstr(&json));
    else
        printf("layer %s: %llu files, %.1f MB%s\n", added.id,
               (unsigned long long)added.unpacked.stats.entries,
               (double)added.unpacked.stats.bytes / 1e6, added.same ? ", as before" : "");
    return 0;
}

/* ---- list and remove ---- */

static int run_layer_list(struct args *a)
{
    const struct layer_options *o = a->values;
    struct err err = { 0 };
    AUTO(freep) char *dir = layer_data_dir(o, &err);
    AUTO(buf_free) struct buf json = { 0 };
    bool none;

    if (!dir)
        return args_fail(a, args_usage_status(a), &err);
    none = layers_describe(dir, "python", &json, &err) != 0;
    if (none && err.code != ERR_NOT_FOUND)
        return args_fail(a, 1, &err);
    if (o->json)
        printf("[%s]\n", none ? "" : buf_cstr(&json));
    else if (none)
        printf("no layers (cove layer add python)\n");
    else
        printf("%s\n", buf_cstr(&json));
    return 0;
}

static int run_layer_remove(struct args *a)
{
    const struct layer_options *o = a->values;
    struct err err = { 0 };
    AUTO(freep) char *dir = layer_data_dir(o, &err);

    if (!dir || check_name(a->words[0], &err))
        return args_fail(a, args_usage_status(a), &err);
    return layers_remove(dir, a->words[0], is_named, dir, &err) ? args_fail(a, 1, &err) : 0;
}

/* ---- the tables ---- */

#define DATA_DIR                                                                                   \
    OPTION(struct layer_options, data_dir, "data-dir", ARGS_DIR, .value = "DIR",                   \
           .help = "where layers and templates are kept")

static const struct args_option layer_add_options[] = {
    OPTION(struct layer_options, with, "with", ARGS_TEXT, .value = "PACKAGES", .flags = ARGS_REPEAT,
           .help = "more packages, separated by commas: numpy,pandas"),
    OPTION(struct layer_options, index, "index", ARGS_TEXT, .value = "URL",
           .help = "package index (default: as pip and uv are configured)"),
    OPTION(struct layer_options, template, "template", ARGS_TEXT, .letter = 't', .value = "NAME",
           .def = "host", .help = "whose Python it is built for"),
    OPTION(struct layer_options, json, "json", ARGS_SWITCH, .help = "print the result as JSON"),
    DATA_DIR,
    {}
};

static const struct args_option layer_options[] = {
    OPTION(struct layer_options, json, "json", ARGS_SWITCH, .help = "print JSON"), DATA_DIR, {}
};

static const struct args_word layer_words[] = { { .name = "NAME", .help = "python" }, {} };

static const struct command command_layer_add = {
    .name = "add",
    .help = "build a layer and put it in force",
    .about = "python: uv, ipykernel, pyautogui and what --with names, installed once, in a sandbox "
             "made for it, from the package index that pip and uv are configured for. Sandboxes "
             "made from then on see it at /opt/cove/python, read-only and without network.",
    .options = layer_add_options,
    .size = sizeof(struct layer_options),
    .words = layer_words,
    .run = run_layer_add,
};

static const struct command command_layer_list = {
    .name = "list",
    .help = "show the layers in force",
    .options = layer_options,
    .size = sizeof(struct layer_options),
    .run = run_layer_list,
};

static const struct command command_layer_remove = {
    .name = "remove",
    .help = "take a layer out of force",
    .about = "Sandboxes that were made with it keep it; its files go with the last of them.",
    .options = layer_options,
    .size = sizeof(struct layer_options),
    .words = layer_words,
    .run = run_layer_remove,
};

static const struct command *const layer_subs[] = { &command_layer_add, &command_layer_list,
                                                    &command_layer_remove, NULL };

const struct command command_layer = {
    .name = "layer",
    .help = "build, list and remove read-only layers for all sandboxes",
    .subs = layer_subs,
};
