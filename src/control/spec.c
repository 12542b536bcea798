/* spec.c - may this sandbox be made as it was asked for? Bounds, quotas, and the first record. */
#include <ctype.h>
#include <string.h>

#include "base/id.h"
#include "control/impl.h"
#include "model/door.h"

enum { TEMPLATE_MAX = 127, LABEL_MAX = 256, KEY_MAX = 255, MOUNTS_MAX = 8, PATH_LEN_MAX = 255 };

/* A path would name a directory of the machine, which is for its operator alone. */
static int check_template(const char *name, struct err *err)
{
    size_t n = name ? strlen(name) : 0;

    if (n && n <= TEMPLATE_MAX && isalnum((unsigned char)name[0]) && !strstr(name, "..") &&
        n == strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-"))
        return 0;
    return err_set(err, ERR_INVALID,
                   "'%.64s' cannot be a template's name: letters, digits and . _ - only", //
                   name ? name : "");
}

static int check_map(const struct map *m, const char *what, bool env, struct err *err)
{
    int64_t bytes = 0;

    for (size_t i = 0; m && i < m->n; i++) {
        const char *key = m->items[i].key;

        if (!*key || (env && strchr(key, '=')))
            return err_set(err, ERR_INVALID, "%s: '%.64s' cannot be a name", what, key);
        bytes += (int64_t)(strlen(key) + strlen(m->items[i].value));
    }
    if (bytes > control_limits.map_bytes)
        return err_set(err, ERR_INVALID, "%s: %lld bytes; control.map-bytes allows %lld", what,
                       (long long)bytes, (long long)control_limits.map_bytes);
    return 0;
}

static bool path_plain(const char *path)
{
    struct str rest = str_of(path), part;

    if (!path || path[0] != '/' || rest.n > PATH_LEN_MAX)
        return false;
    while (rest.n) {
        if (!str_cut(rest, '/', &part, &rest))
            rest = (struct str){ 0 };
        if (str_is(part, "..") || str_is(part, "."))
            return false;
    }
    return true;
}

bool control_may_show(const struct control *c, struct str path)
{
    char text[PATH_LEN_MAX + 1];

    if (path.n >= sizeof(text))
        return false;
    memcpy(text, path.p, path.n);
    text[path.n] = 0;
    return path_plain(text) && order_mount_allowed((const char *const *)c->allow_mounts, text);
}

/* The keeper looks again, beneath the directory itself: links cannot lead out there. This is for
 * the sentence. */
static int check_mounts(const struct control *c, const struct objs *mounts, struct err *err)
{
    const struct sandbox_mount *m = mounts->items;

    if (mounts->n > MOUNTS_MAX)
        return err_set(err, ERR_INVALID, "mounts: %zu; at most %d", mounts->n, MOUNTS_MAX);
    for (size_t i = 0; i < mounts->n; i++) {
        if (!path_plain(m[i].host) || !path_plain(m[i].guest))
            return err_set(err, ERR_INVALID,
                           "mounts[%zu]: host and guest must be absolute paths without . and .., "
                           "of at most %d bytes",
                           i, PATH_LEN_MAX);
        if (!order_mount_allowed((const char *const *)c->allow_mounts, m[i].host))
            return err_set(err, ERR_DENIED,
                           "mounts[%zu]: %.128s is not below a directory that the server's "
                           "--allow-mount names",
                           i, m[i].host);
    }
    return 0;
}

/* A listener on this machine's loopback takes a port away from everybody else here, and lets in
 * every local account: who may name one, and what it may lead to. */
static int check_forward(const struct control *c, const struct actor *who,
                         const struct create_spec *s, size_t i, struct err *err)
{
    const struct sandbox_forward *f = (const struct sandbox_forward *)s->forwards.items + i;
    const struct sandbox asked = { .env = s->env ? *s->env : (struct map){ 0 } };
    bool free_for_all =
        c->forward_min && f->host_port >= c->forward_min && f->host_port <= c->forward_max;

    if (f->port < 1 || f->port > 65535 || f->host_port < 0 || f->host_port > 65535)
        return err_set(err, ERR_INVALID,
                       "forwards[%zu]: port must be from 1 to 65535, host_port from 0 (any free "
                       "one) to 65535",
                       i);
    if (f->host_port && !who->admin && !free_for_all)
        return err_set(err, ERR_DENIED,
                       "forwards[%zu]: only an admin may name host port %lld: ask for 0, which is "
                       "any free one; the server's --forward-ports A-B lets everybody name some",
                       i, (long long)f->host_port);
    if (s->secure && !f->public && door_of_sandbox(&asked, (uint16_t)f->port))
        return err_set(
            err, ERR_INVALID,
            "forwards[%zu]: port %lld runs code for everybody who connects, and every account "
            "of the server's machine could: add \"public\": true if that is meant, or "
            "use `cove forward`",
            i, (long long)f->port);
    return 0;
}

static int check_forwards(const struct control *c, const struct actor *who,
                          const struct create_spec *s, struct err *err)
{
    if (s->forwards.n > SANDBOX_FORWARDS)
        return err_set(err, ERR_INVALID, "forwards: %zu; at most %d", s->forwards.n,
                       SANDBOX_FORWARDS);
    for (size_t i = 0; i < s->forwards.n; i++)
        if (check_forward(c, who, s, i, err))
            return -1;
    return 0;
}

static int check_life(const struct life *l, struct err *err)
{
    if (l->expiry < 0 || l->expiry >= SANDBOX_EXPIRIES)
        return err_set(err, ERR_INVALID, "a sandbox is killed or paused at its end");
    if (l->idle_ms < 0 || l->idle_ms > (int64_t)limit_rows[LIMIT_LIFETIME].max)
        return err_set(err, ERR_INVALID, "the idle time must be from 0 to %lld s",
                       (long long)(limit_rows[LIMIT_LIFETIME].max / 1000));
    return life_check_timeout(l->timeout_ms, err) < 0 ? -1 : 0;
}

int spec_check(struct control *c, const struct actor *who, const struct create_spec *s,
               struct err *err)
{
    struct limits limits = s->limits;

    limits.lifetime_ms = 0;
    if (check_template(s->template, err) || check_life(&s->life, err) ||
        check_map(s->metadata, "metadata", false, err) ||
        check_map(s->env, "environment", true, err) || check_mounts(c, &s->mounts, err) ||
        check_forwards(c, who, s, err) || limits_fill(&limits, NULL, err))
        return -1;
    if (!s->public && !s->secure)
        return err_set(err, ERR_INVALID,
                       "a sandbox whose ports are private (public: false, allowPublicTraffic: "
                       "false) needs secure: true, as else its guest has no token to ask for");
    if (s->label && strlen(s->label) > LABEL_MAX)
        return err_set(err, ERR_INVALID, "the label has more than %d bytes", LABEL_MAX);
    if (s->idem_key && (!*s->idem_key || strlen(s->idem_key) > KEY_MAX))
        return err_set(err, ERR_INVALID, "an idempotency key has 1 to %d characters", KEY_MAX);
    if (s->network < 0 || s->network >= SANDBOX_NETWORKS)
        return err_set(err, ERR_INVALID, "there is no such network");
    return 0;
}

int spec_quota(struct control *c, const struct actor *who, struct err *err)
{
    if (c->closing)
        return err_set(err, ERR_UNAVAILABLE, "the server is ending");
    if (c->create_fault)
        return err_set(err, ERR_UNSUPPORTED, "%s", c->create_fault);
    if ((int64_t)(c->count + c->norphans) >= control_limits.sandboxes)
        return err_set(err, ERR_LIMIT,
                       "the server has %zu sandboxes, as many as control.sandboxes-max allows: end "
                       "one first",
                       c->count + c->norphans);
    if ((int64_t)table_count_of(c, who->user) >= control_limits.user_sandboxes)
        return err_set(err, ERR_LIMIT,
                       "%s has %zu sandboxes, as many as control.user-sandboxes-max allows: end "
                       "one first",
                       who->name, table_count_of(c, who->user));
    return 0;
}

/* ---- the first record ---- */

static char *copy_text(struct arena *a, const char *text)
{
    return text ? arena_strdup(a, str_of(text)) : NULL;
}

static void copy_map(struct arena *a, const struct map *from, struct map *to)
{
    if (!from || !from->n)
        return;
    to->items = arena_alloc(a, from->n * sizeof(*to->items));
    for (; to->n < from->n; to->n++)
        to->items[to->n] = (struct map_item){ copy_text(a, from->items[to->n].key),
                                              copy_text(a, from->items[to->n].value) };
}

static void copy_mounts(struct arena *a, const struct objs *from, struct objs *to)
{
    const struct sandbox_mount *m = from->items;
    struct sandbox_mount *copy;

    if (!from->n)
        return;
    copy = arena_alloc(a, from->n * sizeof(*copy));
    for (size_t i = 0; i < from->n; i++)
        copy[i] =
            (struct sandbox_mount){ copy_text(a, m[i].host), copy_text(a, m[i].guest), m[i].ro };
    *to = (struct objs){ from->n, copy };
}

void spec_fill(struct control *c, const struct actor *who, const struct create_spec *s,
               struct sandbox *out)
{
    struct arena *a = &out->strings;

    sandbox_new_id(out);
    out->owner = who->user;
    out->state = SANDBOX_CREATING;
    out->network = s->network;
    out->template = copy_text(a, s->template);
    out->provider = copy_text(a, c->provider->ops->name);
    out->node = copy_text(a, c->node);
    out->label = copy_text(a, s->label);
    out->facade = copy_text(a, s->facade ? s->facade : "v1");
    out->life = s->life;
    out->secure = s->secure;
    out->strict = s->strict;
    out->public = s->public;
    if (s->secure)
        id_random(out->token, SANDBOX_TOKEN);
    if (!s->public || s->secure) /* its services ask for it, too */
        id_random(out->traffic_token, SANDBOX_TOKEN);
    out->created_ms = control_wall_ms();
    copy_map(a, s->metadata, &out->metadata);
    copy_map(a, s->env, &out->env);
    copy_mounts(a, &s->mounts, &out->mounts);
    if (s->forwards.n) {
        out->forwards =
            (struct objs){ s->forwards.n,
                           arena_alloc(a, s->forwards.n * sizeof(struct sandbox_forward)) };
        memcpy(out->forwards.items, s->forwards.items,
               s->forwards.n * sizeof(struct sandbox_forward));
    }
    out->idem_key = copy_text(a, s->idem_key);
    out->idem_hash = copy_text(a, s->idem_hash);
}
