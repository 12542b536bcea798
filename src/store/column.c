/* column.c - see column.h. Takes and returns values: a store is only needed to keep them. */
#include "store/column.h"

#include <limits.h>

#define AT(s, c) ((char *)(s) + (c)->offset)

static const struct field mount_fields[] = {
    FIELD(struct sandbox_mount, host, F_STR, .max = INT_MAX),
    FIELD(struct sandbox_mount, guest, F_STR, .max = INT_MAX),
    FIELD(struct sandbox_mount, ro, F_BOOL),
    {},
};
static const struct field forward_fields[] = {
    FIELD(struct sandbox_forward, host_port, F_INT),
    FIELD(struct sandbox_forward, port, F_INT),
    FIELD(struct sandbox_forward, public, F_BOOL, .flags = F_OMIT),
    {},
};

/* No bounds here: they were checked when the request came, and what was written must be readable
 * after a bound was lowered. */
#define JSON_FIELD(mem, ...)                                                                       \
    static const struct field mem##_field[] = {                                                    \
        FIELD(struct sandbox, mem, __VA_ARGS__, .flags = F_OMIT, .max = INT_MAX), {}               \
    }
JSON_FIELD(metadata, F_MAP);
JSON_FIELD(env, F_MAP);
JSON_FIELD(mounts, F_OBJS, .sub = mount_fields, .sub_size = sizeof(struct sandbox_mount));
JSON_FIELD(forwards, F_OBJS, .sub = forward_fields, .sub_size = sizeof(struct sandbox_forward));

#define COLUMN_AS(col, mem, k, ...)                                                                \
    {                                                                                              \
        .name = (col), .kind = (k), .offset = offsetof(struct sandbox, mem),                       \
        .size = sizeof(((struct sandbox *)0)->mem), __VA_ARGS__                                    \
    }
#define COLUMN(mem, k, ...) COLUMN_AS(#mem, mem, k, __VA_ARGS__)
#define NAMES(n)            .names = (n), .nnames = ARRAY_LEN(n)

const struct column column_sandbox[] = {
    COLUMN(id, COLUMN_CHARS, .fixed = true),
    COLUMN(uuid, COLUMN_CHARS, .fixed = true),
    COLUMN(owner, COLUMN_INT, .fixed = true),
    COLUMN(idem_key, COLUMN_TEXT, .fixed = true),
    COLUMN(idem_hash, COLUMN_TEXT, .fixed = true),
    COLUMN(state, COLUMN_NAME, NAMES(sandbox_state_names)),
    COLUMN(template, COLUMN_TEXT),
    COLUMN(provider, COLUMN_TEXT),
    COLUMN(node, COLUMN_TEXT),
    COLUMN(network, COLUMN_NAME, NAMES(sandbox_network_names)),
    COLUMN(facade, COLUMN_TEXT),
    COLUMN(label, COLUMN_TEXT),
    COLUMN_AS("memory_bytes", limits.memory_bytes, COLUMN_INT),
    COLUMN_AS("cpu_milli", limits.cpu_milli, COLUMN_INT),
    COLUMN_AS("pids", limits.pids, COLUMN_INT),
    COLUMN_AS("io_weight", limits.io_weight, COLUMN_INT),
    COLUMN_AS("open_files", limits.open_files, COLUMN_INT),
    COLUMN_AS("disk_bytes", limits.disk_bytes, COLUMN_INT),
    COLUMN_AS("log_bytes", limits.log_bytes, COLUMN_INT),
    COLUMN_AS("lifetime_ms", limits.lifetime_ms, COLUMN_INT),
    COLUMN_AS("timeout_ms", life.timeout_ms, COLUMN_INT),
    COLUMN_AS("idle_ms", life.idle_ms, COLUMN_INT),
    COLUMN_AS("expiry", life.expiry, COLUMN_NAME, NAMES(sandbox_expiry_names)),
    COLUMN_AS("auto_resume", life.auto_resume, COLUMN_BOOL),
    COLUMN_AS("restart", life.restart, COLUMN_BOOL),
    COLUMN(secure, COLUMN_BOOL),
    COLUMN(strict, COLUMN_BOOL),
    COLUMN(public, COLUMN_BOOL),
    COLUMN(token, COLUMN_CHARS),
    COLUMN(traffic_token, COLUMN_CHARS),
    COLUMN(created_ms, COLUMN_INT),
    COLUMN(started_ms, COLUMN_INT),
    COLUMN(ended_ms, COLUMN_INT),
    COLUMN(end_ms, COLUMN_INT),
    COLUMN(metadata, COLUMN_JSON, .json = metadata_field),
    COLUMN(env, COLUMN_JSON, .json = env_field),
    COLUMN(mounts, COLUMN_JSON, .json = mounts_field),
    COLUMN(forwards, COLUMN_JSON, .json = forwards_field),
    COLUMN(reason, COLUMN_TEXT),
    {},
};

/* The table writes {"env":{...}}; the column keeps what is behind the name. */
static const char *json_text(const struct column *c, const struct sandbox *s, struct arena *a)
{
    AUTO(buf_free) struct buf b = { 0 };
    size_t skip = strlen("{\"") + strlen(c->name) + strlen("\":");

    field_encode(c->json, s, &b);
    if (b.len <= skip) /* {}: nothing to keep */
        return NULL;
    return arena_strdup(a, (struct str){ b.data + skip, b.len - skip - 1 });
}

static int json_set(const struct column *c, const char *text, struct sandbox *s, struct err *err)
{
    AUTO(json_dropp) json_t *object = json_object();
    json_error_t why;
    json_t *j;

    if (json_check_depth(str_of(text), err))
        return -1;
    /* Not json_read(), which refuses a name that comes twice: two names that were not UTF-8 may
     * have become one when they were written. The last wins, as in map_get(). */
    j = json_loads(text, JSON_DECODE_ANY, &why);
    if (!j)
        return err_set(err, ERR_INTERNAL, "not valid JSON: %s", why.text);
    if (json_object_set_new(object, c->name, j))
        return err_set(err, ERR_INTERNAL, "out of memory");
    return field_decode(c->json, FIELDS_STRICT, object, &s->strings, s, err);
}

struct column_value column_get(const struct column *c, const struct sandbox *s, struct arena *a)
{
    const char *at = (const char *)s + c->offset;
    int64_t i;

    switch (c->kind) {
    case COLUMN_INT: memcpy(&i, at, sizeof(i)); return (struct column_value){ true, i, NULL };
    case COLUMN_BOOL: return (struct column_value){ true, *(const bool *)at, NULL };
    case COLUMN_NAME:
        memcpy(&i, at, sizeof(i));
        return (struct column_value){ .text = (size_t)i < c->nnames ? c->names[i] : NULL };
    case COLUMN_CHARS: return (struct column_value){ .text = at };
    case COLUMN_TEXT: return (struct column_value){ .text = *(char *const *)(const void *)at };
    case COLUMN_JSON: return (struct column_value){ .text = json_text(c, s, a) };
    }
    return (struct column_value){ 0 };
}

static int bad(const struct column *c, const char *what, struct err *err)
{
    return err_set(err, ERR_INTERNAL, "column '%s' %s", c->name, what);
}

static int name_set(const struct column *c, const char *text, void *at, struct err *err)
{
    for (size_t i = 0; text && i < c->nnames; i++)
        if (!strcmp(text, c->names[i])) {
            *(int64_t *)at = (int64_t)i;
            return 0;
        }
    return bad(c, "has a name that this program does not know", err);
}

static int chars_set(const struct column *c, const char *text, char *at, struct err *err)
{
    if (!text || strlen(text) >= c->size)
        return bad(c, "has no text, or too much of it", err);
    memcpy(at, text, strlen(text) + 1);
    return 0;
}

int column_set(const struct column *c, struct column_value v, struct sandbox *s, struct err *err)
{
    void *at = AT(s, c);

    if (v.is_int != (c->kind == COLUMN_INT || c->kind == COLUMN_BOOL))
        return bad(c, "has a value of another type", err);
    switch (c->kind) {
    case COLUMN_INT: *(int64_t *)at = v.i; return 0;
    case COLUMN_BOOL: *(bool *)at = v.i != 0; return 0;
    case COLUMN_NAME: return name_set(c, v.text, at, err);
    case COLUMN_CHARS: return chars_set(c, v.text, at, err);
    case COLUMN_TEXT:
        *(char **)at = v.text ? arena_strdup(&s->strings, str_of(v.text)) : NULL;
        return 0;
    case COLUMN_JSON:
        if (v.text && json_set(c, v.text, s, err)) {
            err_in(err, "column '%s'", c->name);
            err->code = ERR_INTERNAL;
            return -1;
        }
        return 0;
    }
    return bad(c, "has no kind", err);
}
