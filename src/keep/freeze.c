/* freeze.c - stopping a sandbox's processes and letting them go on.
 *
 * A freeze takes a tenth of a millisecond, unless a process is deep in the kernel: then the keeper
 * looks again from its loop, every millisecond, and serves others meanwhile. */
#include <unistd.h>

#include "base/clock.h"
#include "keep/keeper.h"

enum { LOOKS = 5, PAUSE_US = 20, FREEZE_MS = 100 };

static void forget(struct box *b)
{
    b->keeper->freezing -= b->freeze_until != 0;
    b->freeze_until = 0;
    b->freeze.client = NULL;
}

/* What comes first: frozen (1), a failure (-1), or neither yet. A failure leaves it running. */
static int look(struct box *b, struct err *err)
{
    const struct cgroups *c = &b->keeper->cgroups;
    int done = cgroup_freeze_done(c, b->name, true, err);
    struct err ignored;

    if (done > 0) {
        b->frozen = true;
        done = adopt_record(b, err) ? -1 : 1;
    }
    if (done < 0) {
        b->frozen = false;
        cgroup_freeze_ask(c, b->name, false, &ignored);
    }
    return done;
}

int box_freeze(struct box *b, const struct pending *reply, struct err *err)
{
    if (b->freeze_until)
        return err_set(err, ERR_CONFLICT, "sandbox %s is being frozen", b->id);
    if (cgroup_freeze_ask(&b->keeper->cgroups, b->name, true, err))
        return -1;
    for (int i = 0; i < LOOKS; i++) {
        int done = look(b, err);

        if (done)
            return done;
        usleep(PAUSE_US);
    }
    b->freeze = *reply;
    b->freeze_until = clock_ms() + FREEZE_MS;
    b->keeper->freezing++;
    return 0;
}

/* Whoever waits for the freeze hears why it does not come. */
void box_freeze_end(struct box *b, const char *why)
{
    struct err err = { 0 };

    if (!b->freeze_until)
        return;
    err_set(&err, ERR_CONFLICT, "sandbox %s %s", b->id, why);
    keeper_reply(&b->freeze, b->id, &err, NULL);
    forget(b);
}

/* The kernel lets them go at the word: there is nothing to wait for. */
int box_thaw(struct box *b, struct err *err)
{
    box_freeze_end(b, "was thawed before it was frozen");
    if (cgroup_freeze_ask(&b->keeper->cgroups, b->name, false, err))
        return -1;
    b->frozen = false;
    return adopt_record(b, err);
}

static void look_again(struct box *b)
{
    struct err err = { 0 }, ignored;
    int done = look(b, &err);

    if (!done && clock_ms() >= b->freeze_until) {
        cgroup_freeze_ask(&b->keeper->cgroups, b->name, false, &ignored);
        done =
            err_set(&err, ERR_TIMEOUT, "sandbox %s did not freeze within %d ms", b->id, FREEZE_MS);
    }
    if (!done)
        return;
    keeper_reply(&b->freeze, b->id, done < 0 ? &err : NULL, NULL);
    forget(b);
}

void freeze_tick(struct keeper *k)
{
    struct box *b;

    if (!k->freezing)
        return;
    list_each(b, &k->boxes, all)
        if (b->freeze_until)
            look_again(b);
}
