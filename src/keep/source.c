/* source.c - what sandboxes are built on: generations of template host, and other templates.
 *
 * The newest generation is held ready. When the machine changes (a package was installed), a child
 * builds the next one while sandboxes go on being made from the last; an old generation goes with
 * its last sandbox. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"

enum { CHECK_MS = 1000, LOOK_FACTOR = 32 };

/* The name server of every sandbox is the gateway of the sandbox network, so the file that names it
 * can be in the shared layer. */
static const struct host_options *options(const struct keeper *k)
{
    static char resolver[INET_ADDRSTRLEN], stamp[PATH_MAX];
    static struct host_options o = { .mirrors = true, .stamp = stamp };
    struct net_plan plan;
    struct err err;

    if (!o.resolver && !net_plan_init(&plan, &net_configured, &err))
        o.resolver = inet_ntop(AF_INET, &plan.gateway.v4, resolver, sizeof(resolver));
    snprintf(stamp, sizeof(stamp), "%s/host/changed", k->o.data_dir);
    return &o;
}

static char *host_dir(const struct keeper *k)
{
    char *dir = NULL;

    if (asprintf(&dir, "%s/host", k->o.data_dir) < 0)
        abort();
    return dir;
}

static void put(struct generation *g)
{
    if (!g || --g->users)
        return;
    for (size_t i = 0; i < g->root.n; i++)
        close(g->root.lowers[i].fd);
    for (size_t i = 0; i < g->usr.n; i++)
        close(g->usr.lowers[i].fd);
    host_close(&g->host);
    free(g);
}

static int add_lower(struct jail_stack *s, const char *path, struct err *err)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, "open %s", path);
    s->lowers[s->n++] = (struct jail_lower){ fd, path };
    return 0;
}

/* What /usr looks like inside; what is in its files lies in the machine's, which is the last one.
 * An ordinary user's sandbox has that alone. */
static int add_usr(const struct keeper *k, struct generation *g, struct err *err)
{
    int image;

    if (!k->o.rootless && g->host.image) {
        image = host_mount_image(&g->host, err);
        if (image < 0)
            return -1;
        g->usr.lowers[g->usr.n++] = (struct jail_lower){ image, g->host.image };
        g->usr.data = true;
    } else if (!k->o.rootless && add_lower(&g->usr, g->host.usrfix, err))
        return -1;
    return add_lower(&g->usr, "/usr", err);
}

/* Opens what is there; the caller has seen to it that it is. */
static int open_newest(struct keeper *k, struct err *err)
{
    AUTO(freep) char *dir = host_dir(k);
    struct generation *g = xcalloc(1, sizeof(*g));

    g->users = 1;
    if (host_open(dir, options(k), &g->host, err)) {
        free(g);
        return -1;
    }
    if (add_lower(&g->root, g->host.base, err) || add_usr(k, g, err)) {
        put(g);
        return -1;
    }
    put(k->generation);
    k->generation = g;
    return 0;
}

int source_start(struct keeper *k, struct err *err)
{
    k->generation_checked = k->generation_looked = clock_ms();
    k->generation_look_ms = keep_limits.look_ms;
    return open_newest(k, err);
}

/* Another time of change is enough: it is a part of the fingerprint. */
static int touch_stamp(const struct keeper *k, struct err *err)
{
    const char *path = options(k)->stamp;
    AUTO(closep) int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 || futimens(fd, NULL) ? err_sys(err, "%s", path) : 0;
}

/* looking: a new one also where only a look at all of /usr says that it has changed. */
static int build_next(struct keeper *k, void *looking, struct err *err)
{
    AUTO(freep) char *dir = host_dir(k);
    struct host_template t = { 0 };
    int r;

    if (host_open(dir, options(k), &t, err))
        return -1;
    r = looking ? host_look(&t, options(k), err) : 0;
    host_close(&t); /* the one before goes when the reaper sees that nobody needs it */
    if (r <= 0)
        return r;
    if (touch_stamp(k, err) || host_open(dir, options(k), &t, err))
        return -1;
    host_close(&t);
    return 0;
}

static bool is_newest(const struct keeper *k)
{
    char now[HOST_FINGERPRINT];
    struct err ignored;

    return host_fingerprint(options(k), now, &ignored) ||
           !strcmp(now, k->generation->host.fingerprint);
}

/* Where something in /usr changes all the time it would be built all the time. */
static void look_again_in(struct keeper *k, bool changed)
{
    int64_t most = keep_limits.look_ms * LOOK_FACTOR;

    k->generation_look_ms = changed ? MIN(2 * k->generation_look_ms, most) : keep_limits.look_ms;
    k->generation_looked = clock_ms();
}

static void next_is_built(struct keeper *k, void *looking, const struct err *err)
{
    bool changed = !is_newest(k);
    struct err e = { 0 };

    k->generation_building = false;
    if (looking)
        look_again_in(k, changed);
    if (err || (changed && open_newest(k, &e)))
        log_warn("template host keeps its last generation", KV("error", err ? err->msg : e.msg));
}

static void start_building(struct keeper *k, bool looking)
{
    struct err err;
    char *arg = looking ? xstrdup("looking") : NULL;

    k->generation_building = !job_start(k, build_next, next_is_built, arg, NULL, &err);
}

void source_refresh(struct keeper *k)
{
    if (k->generation_building || clock_ms() < k->generation_checked + CHECK_MS)
        return;
    k->generation_checked = clock_ms();
    if (!is_newest(k))
        start_building(k, false);
}

/* What somebody puts deep into /usr by hand nothing tells of, and it takes a moment to see. A
 * keeper of one run is gone before that. */
static void look_deeper(struct keeper *k)
{
    if (k->generation_building || k->o.socket >= 0 || !k->generation->host.image ||
        clock_ms() < k->generation_looked + k->generation_look_ms)
        return;
    start_building(k, true);
}

static bool is_named(void *data_dir, const char *fingerprint)
{
    return keep_names(data_dir, KEEP_NAMED_GENERATION, fingerprint);
}

/* The machine's present one stays even if nobody holds it just now: somebody will want it. */
void source_sweep(const struct keeper *k)
{
    AUTO(freep) char *dir = host_dir(k);
    AUTO(freep) char *data_dir = xstrdup(k->o.data_dir);
    char now[HOST_FINGERPRINT];
    struct err err;

    if (!host_fingerprint(options(k), now, &err))
        host_sweep(dir, now, is_named, data_dir);
}

/* ---- the Python layer ---- */

static void put_extra(struct extra *x)
{
    if (!x || --x->users)
        return;
    layers_release(&x->held);
    free(x);
}

/* It may be added, replaced and removed while we run; one look at a link tells. Sandboxes go on
 * with the one they began with. */
static struct extra *take_extra(struct keeper *k)
{
    char id[LAYERS_ID];
    struct extra *x;
    struct err err;

    layers_current(k->o.data_dir, "python", id);
    if (strcmp(id, k->python ? k->python->held.id : "")) {
        put_extra(TAKE(k->python, NULL));
        x = xcalloc(1, sizeof(*x));
        x->users = 1;
        if (*id && !layers_hold(k->o.data_dir, id, &x->held, &err))
            k->python = x;
        else
            free(x);
        if (*id && !k->python)
            log_warn("the Python layer is left out", KV("error", err.msg));
    }
    if (k->python)
        k->python->users++;
    return k->python;
}

void source_add_python(const struct box *b, struct jail_stack *root)
{
    if (b->python && root->n < JAIL_LOWERS)
        root->lowers[root->n++] = (struct jail_lower){ b->python->held.root, b->python->held.path };
}

void source_finish(struct keeper *k)
{
    put_extra(TAKE(k->python, NULL));
    put(k->generation);
    k->generation = NULL;
}

/* Nothing will be mounted from it any more; what counts is that nobody deletes it. */
static struct generation *hold(struct keeper *k, const char *fingerprint, struct err *err)
{
    AUTO(freep) char *dir = host_dir(k);
    struct generation *g;

    if (!strcmp(fingerprint, k->generation->host.fingerprint)) {
        k->generation->users++;
        return k->generation;
    }
    g = xcalloc(1, sizeof(*g));
    g->users = 1;
    if (host_hold(dir, fingerprint, &g->host, err)) {
        free(g);
        return NULL;
    }
    return g;
}

int source_adopt(struct box *b, const char *fingerprint, struct err *err)
{
    struct keeper *k = b->keeper;

    if (!k->old_layers) /* which of them it uses is not known any more: all stay */
        k->old_layers = layers_hold_all(k->o.data_dir);
    if (template_locate(k->o.data_dir, b->order.template, &b->template, err))
        return err_in(err, "template");
    if (b->template.kind != TEMPLATE_HOST) {
        b->own_template = true;
        return 0;
    }
    b->generation = hold(k, fingerprint, err);
    return b->generation ? 0 : -1;
}

int source_open(struct box *b, struct err *err)
{
    struct keeper *k = b->keeper;
    const char *name = b->order.template;

    if (*name == '/' && !box_path_allowed(b, name))
        return err_set(err, ERR_DENIED,
                       "template %s: not below a directory that --allow-mount names", name);
    if (template_locate(k->o.data_dir, name, &b->template, err))
        return err_in(err, "template");
    if (b->own_template && b->template.kind == TEMPLATE_HOST)
        return err_set(err, ERR_NOT_FOUND,
                       "template: the template '%s' that its files lie on is gone, and host is "
                       "another",
                       name);
    b->own_template = b->template.kind != TEMPLATE_HOST;
    b->python = take_extra(k);
    snprintf(b->python_id, sizeof(b->python_id), "%s",
             b->python ? b->python->held.id : KEEP_NO_LAYER);
    if (b->template.kind != TEMPLATE_HOST)
        return 0;
    source_refresh(k);
    look_deeper(k);
    b->generation = k->generation;
    b->generation->users++;
    return 0;
}

bool source_outdated(const struct box *b)
{
    struct keeper *k = b->keeper;
    char id[LAYERS_ID];

    layers_current(k->o.data_dir, "python", id);
    if (strcmp(id, b->python ? b->python->held.id : ""))
        return true;
    if (!b->generation)
        return false; /* a template of its own never changes, and stays while it is used */
    source_refresh(k);
    /* one that has a name of its own is held by its lock; only an alias of host can be taken */
    return b->generation != k->generation ||
           (b->template.lock < 0 && template_taken(k->o.data_dir, b->order.template));
}

static void fill_template(const struct template *t, struct keep_template *out)
{
    static_assert(sizeof(out->name) > TEMPLATE_NAME_MAX &&
                      sizeof(out->workdir) > TEMPLATE_WORKDIR_MAX &&
                      KEEP_TEMPLATE_KINDS == (int)TEMPLATE_ARCHIVE + 1,
                  "a record has room for every template");
    snprintf(out->name, sizeof(out->name), "%s", t->name);
    snprintf(out->user, sizeof(out->user), "%s", t->user ? t->user : "");
    if (t->workdir && strlen(t->workdir) < sizeof(out->workdir))
        snprintf(out->workdir, sizeof(out->workdir), "%s", t->workdir);
    else if (t->workdir)
        log_warn("a template's working directory is too long", KV("template", t->name));
    out->kind = (uint32_t)t->kind;
    if (t->limits)
        out->limits = *t->limits;
}

int source_page(struct keeper *k, const char *after, struct keep_reply *out, struct err *err)
{
    struct template page[KEEP_TEMPLATES_LISTED];
    size_t n;

    if (template_page(k->o.data_dir, after, page, ARRAY_LEN(page), &n, err))
        return -1;
    out->u.templates.count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        fill_template(&page[i], &out->u.templates.items[i]);
        template_close(&page[i]);
    }
    return 0;
}

void source_close(struct box *b)
{
    template_close(&b->template);
    put_extra(TAKE(b->python, NULL));
    put(b->generation);
    b->generation = NULL;
}
