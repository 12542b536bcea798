/* config.c - `cove config`: every setting of the server, its value, and where that comes from. */
#include "cli/config.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/columns.h"
#include "cli/commands.h"
#include "cli/dirs.h"
#include "cli/settings.h"

struct config_options {
    const char *file;
    bool json;
};

static const struct args_option config_options[] = {
    OPTION(struct config_options, file, "config", ARGS_FILE, .value = "FILE",
           .help = "a file of NAME=VALUE lines (default: what COVE_CONFIG names, or .env here)"),
    OPTION(struct config_options, json, "json", ARGS_SWITCH,
           .help = "print an array of objects, one for each"),
    {}
};

static const struct args_word config_words[] = {
    { .name = "OPTION",
      .help = "of cove serve, behind --: what would be in force with it",
      .flags = ARGS_OPTIONAL | ARGS_MANY },
    {}
};

/* What has no option, or is not the server's. */
static const struct {
    const char *env, *help;
    bool secret;
} variables[] = {
    { "COVE_API_KEY", "the admin's API key on the first start; the key that commands use", true },
    { "COVE_ADMIN_PASSWORD", "the admin's password on the first start", true },
    { "TOKEN_SECRET_KEY", "signs the tokens of logins; without it the store's own does", true },
    { "E2B_API_KEY", "of E2B's cloud; chooses nothing, SANDBOX_PROVIDER does", true },
    { "DAYTONA_API_KEY", "of Daytona's cloud; the same", true },
    { "DAYTONA_SERVER_URL", "Daytona's API", false },
    { "DAYTONA_TARGET", "Daytona's region", false },
    { "DATABASE_URL", "a PostgreSQL server; this release keeps its state in SQLite", true },
    { "REDIS_HOST", "a Redis server; this release has its queue in its own store", false },
    { "REDIS_PORT", "its port", false },
    { "REDIS_DATABASE", "its database", false },
    { "REDIS_PASSWORD", "its password", true },
    { "COVE_URL", "the server that commands speak to", false },
    { "COVE_CA_FILE", "certificates that commands trust, for a private authority", false },
};

/* ---- the file ---- */

const char *config_file(const char *given, bool *required)
{
    const char *named = given ? given : getenv("COVE_CONFIG");

    *required = named && *named;
    return *required ? named : ".env";
}

int config_load(const char *given, struct err *err)
{
    bool required;
    const char *path = config_file(given, &required);

    return envfile_load(path, required, err);
}

/* ---- the rows ---- */

struct config {
    struct columns table;
    struct buf json;
    const char *path; /* of the file */
    struct envfile file;
    struct arena arena;
};

static void put(struct config *c, const char *name, const char *value, const char *from,
                const char *help)
{
    const char *cells[] = { name, value, from };

    columns_row(&c->table, cells);
    json_open(&c->json, '{');
    json_kv_str(&c->json, "name", name);
    if (value) {
        json_kv_str(&c->json, "value", value);
    } else {
        json_key(&c->json, "value");
        json_put_null(&c->json);
    }
    json_kv_str(&c->json, "from", from);
    json_kv_str(&c->json, "help", help);
    json_close(&c->json, '}');
}

/* Where the variable is set: "environment NAME", "FILE:LINE", or NULL. The file's value goes into
 * our own environment, as it would into the server's. */
static const char *source(struct config *c, const char *env)
{
    const char *set = env ? getenv(env) : NULL;
    const struct envfile_pair *pair = env ? envfile_find(&c->file, env) : NULL;

    if (set) /* also an empty one hides the file's */
        return *set ? arena_printf(&c->arena, "environment %s", env) : NULL;
    if (!pair || !*pair->value)
        return NULL;
    setenv(env, pair->value, 0);
    return arena_printf(&c->arena, "%s:%zu", c->path, pair->line);
}

static const char *value_text(struct config *c, const struct args_option *o, const void *values)
{
    const void *at = (const char *)values + o->offset;
    int64_t number;

    if (o->flags & ARGS_REPEAT) {
        const struct args_list *l = at;
        AUTO(buf_free) struct buf b = { 0 };

        for (size_t i = 0; i < l->n; i++)
            buf_printf(&b, "%s%s", i ? "," : "", l->items[i]);
        return l->n ? arena_strdup(&c->arena, buf_str(&b)) : NULL;
    }
    if (o->type == ARGS_SWITCH)
        return *(const bool *)at ? "yes" : "no";
    if (!args_is_number(o->type))
        return *(const char *const *)at;
    memcpy(&number, at, sizeof(number));
    return arena_printf(&c->arena, "%lld", (long long)number);
}

static const char *built_in(struct config *c, const struct args_option *o)
{
    AUTO(freep)
    char *dir = !strcmp(o->name, "data")      ? dirs_data()
                : !strcmp(o->name, "run-dir") ? dirs_run()
                                              : NULL;

    return dir ? arena_strdup(&c->arena, str_of(dir)) : o->def;
}

/* given: what the command line had, before variables were looked at */
static int put_options(struct config *c, struct args *serve, struct err *err)
{
    uint64_t given = serve->given;
    const struct args_option *rows = serve->command->options;
    const char *from[ARGS_OPTIONS] = { NULL };

    for (size_t i = 0; rows[i].name; i++)
        from[i] = given & (uint64_t)1 << i ? "flag" : source(c, rows[i].env);
    if (args_environment(serve, err))
        return -1;
    for (size_t i = 0; rows[i].name; i++) {
        const struct args_option *o = &rows[i];

        if (o->flags & ARGS_HIDDEN || !strcmp(o->name, "set"))
            continue;
        if (from[i])
            put(c, o->name, value_text(c, o, serve->values), from[i], o->help);
        else if (o->type == ARGS_SWITCH)
            put(c, o->name, "no", "default", o->help);
        else
            put(c, o->name, built_in(c, o), "default", o->help);
    }
    return 0;
}

static void put_variables(struct config *c)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *from = source(c, variables[i].env);
        const char *value = from ? getenv(variables[i].env) : NULL;

        put(c, variables[i].env, value && variables[i].secret ? "********" : value,
            from ? from : "default", variables[i].help);
    }
}

static const struct args_list *set_list(const struct args *serve, const char **from)
{
    for (const struct args_option *o = serve->command->options; o->name; o++)
        if (!strcmp(o->name, "set")) {
            *from = args_given(serve, "set") ? "flag" : "environment";
            return (const void *)((const char *)serve->values + o->offset);
        }
    return NULL;
}

/* Bounds with a name; those that --set changed say so. */
static int put_settings(struct config *c, const struct args *serve, struct err *err)
{
    const char *from = NULL;
    const struct args_list *set = set_list(serve, &from);

    for (size_t i = 0; set && i < set->n; i++)
        if (setting_set(settings_of_serve, set->items[i], err))
            return -1;
    for (const struct setting *const *t = settings_of_serve; *t; t++)
        for (const struct setting *s = *t; s->name; s++) {
            AUTO(buf_free) struct buf text = { 0 };
            bool changed = false;

            for (size_t i = 0; set && i < set->n; i++)
                changed |= !strncmp(set->items[i], s->name, strlen(s->name)) &&
                           set->items[i][strlen(s->name)] == '=';
            setting_value(s, &text);
            put(c, s->name, buf_cstr(&text), changed ? from : "default", s->help);
        }
    return 0;
}

static int collect(struct config *c, struct args *a, struct err *err)
{
    const struct config_options *o = a->values;
    AUTO(freep) char **argv = xcalloc(a->n + 2, sizeof(*argv));
    bool required;
    struct args serve;
    int r;

    c->path = config_file(o->file, &required);
    if (envfile_read(c->path, required, &c->arena, &c->file, err) < 0)
        return -1;
    argv[0] = a->path;
    for (size_t i = 0; i < a->n; i++)
        argv[i + 1] = a->words[i];
    r = args_parse(&serve, &command_serve, (int)a->n + 1, argv, err);
    if (!r)
        r = put_options(c, &serve, err);
    put_variables(c);
    if (!r)
        r = put_settings(c, &serve, err);
    args_free(&serve);
    return r;
}

static int run_config(struct args *a)
{
    static const char *const heads[] = { "NAME", "VALUE", "FROM", NULL };
    const struct config_options *o = a->values;
    struct config c = { 0 };
    struct err err = { 0 };
    int status = 0;

    columns_init(&c.table, heads);
    json_open(&c.json, '[');
    if (collect(&c, a, &err))
        status = args_fail(a, 1, &err);
    json_close(&c.json, ']');
    if (!status && o->json)
        puts(buf_cstr(&c.json));
    else if (!status)
        columns_print(&c.table);
    envfile_free(&c.file);
    columns_finish(&c.table);
    buf_free(&c.json);
    arena_free(&c.arena);
    return status;
}

const struct command command_config = {
    .name = "config",
    .help = "every setting of cove serve, its value and where that comes from",
    .about = "A flag wins over the environment, that over the file, that over what is built in. "
             "Secrets are not shown. Bounds (those with a dot) are changed by `cove serve --set "
             "NAME=VALUE`.",
    .options = config_options,
    .size = sizeof(struct config_options),
    .words = config_words,
    .run = run_config,
};
