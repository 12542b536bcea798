/* templates.c - what the provider's templates say of themselves, remembered, because the keeper
 * reads a directory for each answer and creates ask again and again. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "control/impl.h"

enum { TEMPLATES_MAX = 4096 };

int control_templates(struct control *c, provider_template_fn *fn, void *arg, struct err *err)
{
    if (!c->provider->ops->templates)
        return err_set(err, ERR_UNSUPPORTED, "the provider has no list of templates");
    return c->provider->ops->templates(c->provider, fn, arg, err);
}

const char *control_provider_name(const struct control *c) { return c->provider->ops->name; }

static int collect(void *arg, const struct machine_template *t)
{
    struct templates *all = arg;

    if (all->n == TEMPLATES_MAX)
        return 1;
    if (!(all->n & (all->n - 1))) /* at each power of two: twice the room */
        all->items = xrealloc(all->items, (all->n ? all->n * 2 : 1) * sizeof(*all->items));
    all->items[all->n++] = *t;
    return 0;
}

int template_refresh(struct control *c, struct err *err)
{
    struct templates all = { .news = c->templates.news, .known = c->templates.heard };

    if (control_templates(c, collect, &all, err)) {
        free(all.items);
        return -1;
    }
    all.heard = c->templates.heard; /* more may have come while we asked */
    free(c->templates.items);
    c->templates = all;
    return 0;
}

bool template_stale(const struct control *c) { return c->templates.known != c->templates.heard; }

void template_follow(struct control *c)
{
    struct err ignored = { 0 };
    char news[4096];

    while (c->templates.news > 0 && read(c->templates.news, news, sizeof(news)) > 0)
        c->templates.heard++;
    if (template_stale(c) && !template_refresh(c, &ignored))
        pool_follow(c);
}

static const struct machine_template *look_up(const struct control *c, const char *name)
{
    for (size_t i = 0; i < c->templates.n; i++)
        if (!strcmp(c->templates.items[i].name, name))
            return &c->templates.items[i];
    return NULL;
}

bool template_listed(const struct control *c, const char *name) { return look_up(c, name); }

/* An alias of the default is never listed: only a name that is new to us is worth a question.
 * pool_tend() asks again every few seconds. */
const struct machine_template *template_find(struct control *c, const char *name)
{
    const struct machine_template *t = look_up(c, name);
    struct err ignored;

    if (t || pool_knows(c, name) || template_refresh(c, &ignored))
        return t;
    return look_up(c, name);
}
