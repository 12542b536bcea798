/* sandbox.c - see sandbox.h. */
#include "model/sandbox.h"

#include "base/id.h"

#define BIT(state) (1U << (state))

const char *const sandbox_state_names[SANDBOX_STATES] = {
    [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running",   [SANDBOX_PAUSING] = "pausing",
    [SANDBOX_PAUSED] = "paused",     [SANDBOX_RESUMING] = "resuming", [SANDBOX_ENDING] = "ending",
    [SANDBOX_ENDED] = "ended",
};
const char *const sandbox_network_names[SANDBOX_NETWORKS] = {
    [NETWORK_OPEN] = "open",
    [NETWORK_NONE] = "none",
};
const char *const sandbox_expiry_names[SANDBOX_EXPIRIES] = {
    [EXPIRY_KILL] = "kill",
    [EXPIRY_PAUSE] = "pause",
    [EXPIRY_PAUSE_FILES] = "pause-files",
};

/* Any state can be left for the end, because machines die by themselves; nothing leaves it. What
 * was interrupted while pausing or resuming goes back to where it was. One that runs is resumed
 * when its processes have died and it is to be started again. */
static const unsigned moves[SANDBOX_STATES] = {
    [SANDBOX_CREATING] = BIT(SANDBOX_RUNNING) | BIT(SANDBOX_ENDING) | BIT(SANDBOX_ENDED),
    [SANDBOX_RUNNING] =
        BIT(SANDBOX_PAUSING) | BIT(SANDBOX_RESUMING) | BIT(SANDBOX_ENDING) | BIT(SANDBOX_ENDED),
    [SANDBOX_PAUSING] =
        BIT(SANDBOX_PAUSED) | BIT(SANDBOX_RUNNING) | BIT(SANDBOX_ENDING) | BIT(SANDBOX_ENDED),
    [SANDBOX_PAUSED] = BIT(SANDBOX_RESUMING) | BIT(SANDBOX_ENDING) | BIT(SANDBOX_ENDED),
    [SANDBOX_RESUMING] =
        BIT(SANDBOX_RUNNING) | BIT(SANDBOX_PAUSED) | BIT(SANDBOX_ENDING) | BIT(SANDBOX_ENDED),
    [SANDBOX_ENDING] = BIT(SANDBOX_ENDED),
    [SANDBOX_ENDED] = 0,
};

bool sandbox_may(enum sandbox_state from, enum sandbox_state to)
{
    return from < SANDBOX_STATES && to < SANDBOX_STATES && moves[from] & BIT(to);
}

void sandbox_new_id(struct sandbox *s)
{
    s->id[0] = 'i';
    id_random(s->id + 1, SANDBOX_ID - 1);
    id_uuid(s->uuid);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool uuid_valid(struct str id)
{
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];

        if (i == 8 || i == 13 || i == 18 || i == 23 ? c != '-'
                                                    : !is_digit(c) && (c < 'a' || c > 'f'))
            return false;
    }
    return true;
}

bool sandbox_id_valid(struct str id)
{
    if (id.n == SANDBOX_UUID)
        return uuid_valid(id);
    if (id.n != SANDBOX_ID || id.p[0] != 'i')
        return false;
    for (size_t i = 1; i < id.n; i++)
        if (!is_digit(id.p[i]) && (id.p[i] < 'a' || id.p[i] > 'z'))
            return false;
    return true;
}

static char *copy_text(struct arena *a, const char *s)
{
    return s ? arena_strdup(a, str_of(s)) : NULL;
}

static void copy_map(struct arena *a, struct map *m)
{
    const struct map_item *from = TAKE(m->items, NULL);

    if (!m->n)
        return;
    m->items = arena_alloc(a, m->n * sizeof(*m->items));
    for (size_t i = 0; i < m->n; i++)
        m->items[i] = (struct map_item){ copy_text(a, from[i].key), copy_text(a, from[i].value) };
}

static void copy_objs(struct arena *a, struct objs *o, size_t size)
{
    const void *from = TAKE(o->items, NULL);

    if (!o->n)
        return;
    o->items = arena_alloc(a, o->n * size);
    memcpy(o->items, from, o->n * size);
}

void sandbox_copy(struct sandbox *to, const struct sandbox *from)
{
    struct arena *a = &to->strings;
    char **const texts[] = { &to->template, &to->provider, &to->node,      &to->label,
                             &to->facade,   &to->idem_key, &to->idem_hash, &to->reason };
    struct sandbox_mount *mounts;

    *to = *from;
    *a = (struct arena){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = copy_text(a, *texts[i]);
    copy_map(a, &to->metadata);
    copy_map(a, &to->env);
    copy_objs(a, &to->mounts, sizeof(struct sandbox_mount));
    copy_objs(a, &to->forwards, sizeof(struct sandbox_forward));
    mounts = to->mounts.items;
    for (size_t i = 0; i < to->mounts.n; i++) {
        mounts[i].host = copy_text(a, mounts[i].host);
        mounts[i].guest = copy_text(a, mounts[i].guest);
    }
}

void sandbox_finish(struct sandbox *s)
{
    arena_free(&s->strings);
    *s = (struct sandbox){ 0 };
}
