/* late.c - what the end of a sandbox leaves to do that cannot be done at once: the reaper's queue
 * is full, a cgroup whose last process is gone is not quite free. The keeper never waits for these;
 * it comes back to them from its loop. A record goes when the layer has been handed over: were we
 * killed before, the next keeper would find it there and hand it over itself. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "keep/keeper.h"

enum { AGAIN_MS = 10 };

struct late {
    struct list all;
    char name[KEEP_NAME_ROOM]; /* of a layer, or a cgroup */
    char id[ORDER_ID];         /* whose record goes then; "": none */
    int mounts;                /* go with the layer; -1 */
    bool is_cgroup;
};

static struct late *add(struct keeper *k, const char *name)
{
    struct late *l = xcalloc(1, sizeof(*l));

    snprintf(l->name, sizeof(l->name), "%s", name);
    l->mounts = -1;
    list_push(&k->late, &l->all);
    return l;
}

static void done(struct late *l)
{
    list_remove(&l->all);
    closep(&l->mounts);
    free(l);
}

/* Whether it has been done. */
static bool try_one(struct keeper *k, const struct late *l)
{
    if (l->is_cgroup)
        return cgroup_try_remove(&k->cgroups, l->name);
    if (!reaper_hand_over(k, l->name, l->mounts, false))
        return false;
    if (*l->id && !box_find(k, l->id))
        keeper_unlink(k->records, l->id);
    return true;
}

void late_cgroup(struct keeper *k, const char *name)
{
    if (!cgroup_try_remove(&k->cgroups, name))
        add(k, name)->is_cgroup = true;
}

/* A new one may not begin with what the old one has counted. */
void late_cgroup_now(struct keeper *k, const char *name)
{
    struct late *l;

    list_each(l, &k->late, all)
        if (l->is_cgroup && !strcmp(l->name, name)) {
            cgroup_remove(&k->cgroups, name);
            done(l);
        }
}

void late_delete(struct keeper *k, const char *layer, int mounts, const char *id)
{
    struct late *l = NULL;

    stray_ended(k, layer); /* once: when it is tried again its name may be a new sandbox's */
    if (!reaper_hand_over(k, layer, mounts, false)) {
        l = add(k, layer);
        l->mounts = mounts < 0 ? -1 : fcntl(mounts, F_DUPFD_CLOEXEC, 0);
    }
    if (l && id && k->records >= 0)
        snprintf(l->id, sizeof(l->id), "%s", id);
    else if (id && k->records >= 0)
        keeper_unlink(k->records, id);
}

int64_t late_due(const struct keeper *k, int64_t now)
{
    return list_empty(&k->late) ? INT64_MAX : now + AGAIN_MS;
}

void late_tick(struct keeper *k)
{
    struct late *l;

    list_each(l, &k->late, all)
        if (try_one(k, l))
            done(l);
}

/* At our end: nobody waits for us any more. */
void late_finish(struct keeper *k)
{
    struct late *l;

    list_each(l, &k->late, all) {
        if (l->is_cgroup)
            cgroup_remove(&k->cgroups, l->name);
        else if (reaper_hand_over(k, l->name, l->mounts, true) && *l->id)
            keeper_unlink(k->records, l->id);
        done(l);
    }
}

void late_forked(const struct keeper *k)
{
    const struct late *l;

    list_each(l, &k->late, all)
        if (l->mounts >= 0)
            close(l->mounts);
}
