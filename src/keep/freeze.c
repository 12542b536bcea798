/* freeze.c - stopping a sandbox's processes, the middle of pausing it.
 *
 * A freeze takes a tenth of a millisecond, unless a process is deep in the kernel: then the keeper
 * looks again from its loop, every millisecond, and serves others meanwhile. */
#include <unistd.h>

#include "base/clock.h"
#include "keep/keeper.h"

enum { LOOKS = 5, PAUSE_US = 20, FREEZE_MS = 2000 };

void freeze_forget(struct box *b)
{
    b->keeper->freezing -= b->freeze_until != 0;
    b->freeze_until = 0;
}

/* What comes first: frozen, a failure, or neither yet (false). */
static bool look(struct box *b)
{
    struct err err = { 0 };
    int done = cgroup_freeze_done(&b->keeper->cgroups, b->name, true, &err);

    if (!done && b->freeze_until && clock_ms() >= b->freeze_until)
        done =
            err_set(&err, ERR_TIMEOUT, "sandbox %s did not freeze within %d ms", b->id, FREEZE_MS);
    if (!done)
        return false;
    freeze_forget(b);
    pause_frozen(b, done < 0 ? &err : NULL);
    return true;
}

void freeze_begin(struct box *b)
{
    struct err err = { 0 };

    if (cgroup_freeze_ask(&b->keeper->cgroups, b->name, true, &err)) {
        pause_frozen(b, &err);
        return;
    }
    for (int i = 0; i < LOOKS; i++) {
        if (look(b))
            return;
        usleep(PAUSE_US);
    }
    b->freeze_until = clock_ms() + FREEZE_MS;
    b->keeper->freezing++;
}

void freeze_tick(struct keeper *k)
{
    struct box *b;

    if (!k->freezing)
        return;
    list_each(b, &k->boxes, all)
        if (b->freeze_until)
            look(b);
}
