/* e2b_templates.c - E2B's view of the templates this machine has. They are added by `cove
 * template`; the API builds none. */
#include "api/e2b.h"
#include "api/tables.h"
#include "model/envd.h"

struct template_view {
    const char *templateID, *buildID, *createdAt, *updatedAt, *envdVersion, *buildStatus;
    const char *createdBy, *lastSpawnedAt; /* null: nobody kept count */
    int64_t cpuCount, memoryMB, diskSizeMB, spawnCount, buildCount;
    bool public;
    struct strs aliases, names;
};
static const struct field template_view[] = {
    FIELD(struct template_view, templateID, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, buildID, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, cpuCount, F_INT, .flags = F_REQUIRED),
    FIELD(struct template_view, memoryMB, F_INT, .flags = F_REQUIRED),
    FIELD(struct template_view, diskSizeMB, F_INT, .flags = F_REQUIRED),
    FIELD(struct template_view, public, F_BOOL, .flags = F_REQUIRED),
    FIELD(struct template_view, aliases, F_STRS, .flags = F_REQUIRED),
    FIELD(struct template_view, names, F_STRS, .flags = F_REQUIRED),
    FIELD(struct template_view, createdAt, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, updatedAt, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, createdBy, F_JSON, .flags = F_REQUIRED),
    FIELD(struct template_view, lastSpawnedAt, F_JSON, .flags = F_REQUIRED),
    FIELD(struct template_view, spawnCount, F_INT, .flags = F_REQUIRED),
    FIELD(struct template_view, buildCount, F_INT, .flags = F_REQUIRED),
    FIELD(struct template_view, envdVersion, F_STR, .flags = F_REQUIRED),
    FIELD(struct template_view, buildStatus, F_STR, .flags = F_REQUIRED),
    {},
};

static int put_template(void *arg, const struct machine_template *t)
{
    char *name = (char[sizeof(t->name)]){ 0 };
    struct limits l = t->limits;
    struct err none = { 0 };
    struct template_view view = {
        .templateID = name,
        .buildID = "00000000-0000-0000-0000-000000000000",
        .public = true,
        .aliases = { 1, &name },
        .names = { 1, &name },
        .createdAt = "1970-01-01T00:00:00Z",
        .updatedAt = "1970-01-01T00:00:00Z",
        .buildCount = 1,
        .envdVersion = ENVD_VERSION,
        .buildStatus = "ready",
    };

    memcpy(name, t->name, sizeof(t->name) - 1);
    limits_fill(&l, NULL, &none);
    view.cpuCount = (int64_t)(l.cpu_milli + 999) / 1000;
    view.memoryMB = (int64_t)(l.memory_bytes >> 20);
    view.diskSizeMB = (int64_t)(l.disk_bytes >> 20);
    api_list_add(arg, &view);
    return 0;
}

static int list_templates(struct call *c, void *body, struct err *err)
{
    struct api_list all;

    (void)body;
    api_list_begin(&all, c);
    return api_list_end(&all, control_templates(api_of(c)->control, put_template, &all, err));
}

struct alias {
    const char *templateID;
    bool public;
};
static const struct field alias[] = {
    FIELD(struct alias, templateID, F_STR, .flags = F_REQUIRED),
    FIELD(struct alias, public, F_BOOL, .flags = F_REQUIRED),
    {},
};

struct wanted {
    struct str name;
    bool found;
};

static int match_template(void *arg, const struct machine_template *t)
{
    struct wanted *w = arg;

    w->found |= str_is(w->name, t->name);
    return w->found;
}

static int get_alias(struct call *c, void *body, struct err *err)
{
    struct wanted w = { .name = c->param[0] };
    struct alias view = { .public = true };

    (void)body;
    if (control_templates(api_of(c)->control, match_template, &w, err))
        return -1;
    if (!w.found)
        return err_set(err, ERR_NOT_FOUND, "there is no template '%.*s'",
                       (int)MIN(w.name.n, (size_t)E2B_TEMPLATE_MAX), w.name.p);
    view.templateID = arena_strdup(&c->arena, w.name);
    return api_reply(c, &view);
}

#define TAG .body_max = API_BODY_MAX, .tag = "E2B templates"

const struct route e2b_template_routes[] = {
    { "GET", "/templates", ROUTE_RAW, ROUTE_LIST, .fn = list_templates,
      .operation = "e2bListTemplates", .help = "The templates of this machine.",
      .reply = template_view, TAG },
    { "GET", "/v2/templates", ROUTE_RAW, ROUTE_LIST, .fn = list_templates,
      .operation = "e2bListTemplatesV2", .help = "The templates of this machine.",
      .reply = template_view, TAG },
    { "GET", "/templates/aliases/{name}", ROUTE_RAW, .fn = get_alias,
      .operation = "e2bGetTemplateAlias", .help = "Whether there is a template of that name.",
      .reply = alias, TAG },
    {}
};
