/* list.c - sandboxes by the page, and single ones that may have ended. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "control/impl.h"

enum { USUAL = 1 << SANDBOX_RUNNING | 1 << SANDBOX_PAUSED };

static int64_t begun_ms(const struct sandbox *s)
{
    return s->started_ms ? s->started_ms : s->created_ms;
}

struct cursor {
    int64_t at_ms;
    struct str id;
};

static int parse_cursor(struct str text, struct cursor *out, struct err *err)
{
    struct str at;

    if (!str_cut(text, '.', &at, &out->id) || str_i64(at, &out->at_ms) || out->id.n != SANDBOX_ID ||
        !sandbox_id_valid(out->id))
        return err_set(err, ERR_INVALID, "the cursor is not one that a list gave");
    return 0;
}

static int compare_to(const struct sandbox *s, const struct cursor *c)
{
    int64_t at = begun_ms(s);

    if (at != c->at_ms)
        return at < c->at_ms ? -1 : 1;
    return memcmp(s->id, c->id.p, SANDBOX_ID);
}

static int by_begin(const void *a, const void *b)
{
    const struct sandbox *x = *(struct sandbox *const *)a, *y = *(struct sandbox *const *)b;
    struct cursor c = { begun_ms(y), str_of(y->id) };

    return compare_to(x, &c);
}

static bool has_all(const struct map *have, const struct map *want)
{
    for (size_t i = 0; want && i < want->n; i++) {
        const char *v = map_get(have, want->items[i].key);

        if (!v || strcmp(v, want->items[i].value))
            return false;
    }
    return true;
}

static bool matches(const struct sandbox *s, const struct sandbox_filter *f, int64_t owner)
{
    unsigned states = f->states ? f->states : USUAL;

    return states >> s->state & 1 && (!owner || s->owner == owner) &&
           (!f->template || !strcmp(f->template, s->template)) &&
           (!f->started_after_ms || begun_ms(s) > f->started_after_ms) &&
           has_all(&s->metadata, f->metadata);
}

int control_list(struct control *c, const struct actor *who, const struct sandbox_filter *f,
                 control_sandbox_fn *fn, void *arg, bool *more, struct err *err)
{
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the table holds pointers
    AUTO(freep) struct sandbox **found = xcalloc(c->count + 1, sizeof(*found));
    int64_t owner = who && !who->admin ? who->user : f->owner;
    struct cursor after = { 0 };
    size_t n = 0, given = 0;
    struct live *l;

    *more = false;
    if (f->after.n && parse_cursor(f->after, &after, err))
        return -1;
    list_each(l, &c->all, all) {
        int side = f->after.n ? compare_to(&l->s, &after) : 0;

        if (f->after.n && (f->ascending ? side <= 0 : side >= 0))
            continue;
        if (matches(&l->s, f, owner))
            found[n++] = &l->s;
    }
    qsort(found, n, sizeof(struct sandbox *), by_begin);
    for (; given < n && (!f->limit || given < f->limit); given++)
        if (fn(arg, found[f->ascending ? given : n - 1 - given]))
            return 0;
    *more = given < n;
    return 0;
}

/* ---- what may have ended ---- */

struct getting {
    const char *id;
    struct sandbox *out;
};

static int get(struct store *s, void *arg, struct err *err)
{
    const struct getting *g = arg;

    return s->ops->sandbox_get(s, g->id, g->out, err);
}

int control_get(struct control *c, const struct actor *who, struct str id, struct sandbox *out,
                struct err *err)
{
    const struct live *l = table_find(c, id);
    const struct sandbox *unwritten;
    char text[SANDBOX_UUID + 1] = "";
    struct getting g = { text, out };

    if (l) {
        if (!table_may_see(who, &l->s))
            return table_not_found(id, err);
        sandbox_copy(out, &l->s);
        return 0;
    }
    if (!sandbox_id_valid(id) || id.n >= sizeof(text))
        return table_not_found(id, err);
    memcpy(text, id.p, id.n);
    unwritten = leftover_find(c, text);
    if (unwritten) /* it has ended, and the store does not know yet */
        sandbox_copy(out, unwritten);
    else if (control_store(c, get, &g, err))
        return err->code == ERR_NOT_FOUND ? table_not_found(id, err) : -1;
    if (table_may_see(who, out))
        return 0;
    sandbox_finish(out);
    return table_not_found(id, err);
}

struct listing {
    int64_t owner, limit;
    store_sandbox_fn *fn;
    void *arg;
};

static int list_ended(struct store *s, void *arg, struct err *err)
{
    const struct listing *w = arg;

    return s->ops->sandbox_ended(s, w->owner, w->limit, w->fn, w->arg, err);
}

int control_ended(struct control *c, const struct actor *who, int64_t owner, int64_t limit,
                  store_sandbox_fn *fn, void *arg, struct err *err)
{
    struct listing w = { who && !who->admin ? who->user : owner, limit, fn, arg };

    return control_store(c, list_ended, &w, err);
}
