/* pause.c - pausing a sandbox so that nothing of it is lost, and letting it go on.
 *
 * Three steps: what it has written goes to disk while it still runs, which may take long; it is
 * frozen; what it wrote in between goes to disk, and a note of it (note.c). Writing out is a
 * child's work and the whole volume's, so one child does it for all sandboxes that want it by then.
 * Whatever fails, the sandbox goes on.
 *
 * Files without processes: a paused sandbox whose processes are gone, because the machine was
 * restarted or because that was asked for, is asleep. It has its name, its layer and its note, and
 * is built again on them when it is resumed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/keeper.h"

/* ---- the end of it ---- */

static void over(struct box *b, const struct err *err)
{
    struct keep_state state;

    b->pausing = PAUSING_NOT;
    b->in_flush = false;
    box_state(b, &state);
    state.flush_us = b->flush_us;
    keeper_reply(&b->freeze, b->id, err, &state);
    b->freeze.client = NULL;
}

static void go_on(struct box *b)
{
    struct err err = { 0 };

    if (pause_forget(b, &err))
        log_error("a sandbox that goes on is noted as paused", KV("sandbox", b->id),
                  KV("error", err.msg));
    if (cgroup_freeze_ask(&b->keeper->cgroups, b->name, false, &err))
        log_error("a sandbox stays frozen", KV("sandbox", b->id), KV("error", err.msg));
}

static void fail(struct box *b, const struct err *err)
{
    log_warn("not paused", KV("sandbox", b->id), KV("error", err->msg));
    go_on(b);
    over(b, err);
}

/* Whoever waits for the pause hears why it does not come. */
void pause_cancel(struct box *b, const char *why)
{
    struct err err = { 0 };

    if (b->pausing == PAUSING_NOT)
        return;
    freeze_forget(b);
    err_set(&err, ERR_CONFLICT, "sandbox %s %s", b->id, why);
    over(b, &err);
}

int pause_forget(struct box *b, struct err *err)
{
    if (note_remove(b->keeper, b->id, err))
        return -1;
    b->noted = false;
    return 0;
}

/* ---- giving memory back ---- */

static int reclaim(struct keeper *k, void *name, struct err *err)
{
    (void)err;
    cgroup_reclaim(&k->cgroups, name);
    return 0;
}

static void reclaimed(struct keeper *k, void *arg, const struct err *err)
{
    (void)k, (void)arg, (void)err;
}

/* Nobody will touch it for a while; but without swap there is nowhere to put it. */
static void give_back_memory(struct box *b)
{
    struct sysinfo info;
    struct err err = { 0 };

    if (sysinfo(&info) || !info.freeswap)
        return;
    cgroup_allow_swap(&b->keeper->cgroups, b->name, true); /* by us: it may be thawed meanwhile */
    if (job_start(b->keeper, reclaim, reclaimed, xstrdup(b->name), NULL, &err))
        log_debug("its memory stays", KV("sandbox", b->id), KV("error", err.msg));
}

/* ---- writing out ---- */

struct batch { /* what a flush is for */
    pid_t parent;
    size_t n; /* notes to write: of those that are frozen */
    char ids[][ORDER_ID];
};

/* In a child. It must not outlive the keeper: the next one lets a sandbox without a note go on, and
 * a note that is written later would be a lie. */
static int flush(struct keeper *k, void *arg, struct err *err)
{
    const struct batch *f = arg;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != f->parent)
        return err_set(err, ERR_INTERNAL, "the keeper has ended");
    if (volume_sync(k->volume, err))
        return -1;
    for (size_t i = 0; i < f->n; i++) {
        const struct box *b = box_find(k, f->ids[i]);

        if (b && note_write(b, true, err))
            return -1;
    }
    return f->n ? note_sync(k, err) : 0;
}

/* Its files are on disk and noted. It is killed frozen, so nothing of it sees that happen. */
static void drop(struct box *b)
{
    b->pausing = PAUSING_DROP;
    box_end_again(b);
}

void pause_sleep(struct box *b)
{
    bool asked = b->pausing == PAUSING_DROP;

    if (asked)
        b->pausing = PAUSING_NOT; /* what is done cannot be cancelled */
    box_sleep(b);
    if (asked)
        over(b, NULL);
}

static void settle(struct box *b)
{
    struct err err = { 0 };

    b->frozen = true;
    b->noted = b->keeper->notes >= 0;
    b->fresh = false;
    b->left = b->deadline == NEVER ? NEVER : MAX(b->deadline - clock_ms(), (int64_t)0);
    b->deadline = NEVER; /* time stands still for it */
    if (adopt_record(b, &err)) {
        b->frozen = false;
        b->deadline = b->left == NEVER ? NEVER : clock_ms() + b->left;
        fail(b, &err);
        return;
    }
    if (b->files_only) {
        drop(b);
        return;
    }
    over(b, NULL);
    give_back_memory(b);
}

static void start_flush(struct keeper *k);

static void flushed(struct keeper *k, void *arg, const struct err *err)
{
    const struct batch *f = arg;
    struct err ignored;
    struct box *b;

    /* who joins the next one meanwhile is not taken for one of this: k->flushing still holds */
    list_each(b, &k->boxes, all) {
        if (!b->in_flush)
            continue;
        b->in_flush = false;
        b->flush_us += (uint64_t)(clock_us() - b->flush_from);
        if (err)
            fail(b, err);
        else if (b->pausing == PAUSING_SETTLE)
            settle(b);
        else {
            b->pausing = PAUSING_FREEZE;
            freeze_begin(b);
        }
    }
    for (size_t i = 0; i < f->n; i++) { /* ended or thawed meanwhile, but noted by the child */
        b = box_find(k, f->ids[i]);
        if (!b || !b->noted)
            note_remove(k, f->ids[i], &ignored);
    }
    k->flushing = false;
    start_flush(k);
}

static bool wants_flush(const struct box *b)
{
    return b->pausing == PAUSING_FLUSH || b->pausing == PAUSING_SETTLE;
}

static struct batch *collect(struct keeper *k)
{
    struct batch *f = xcalloc(1, sizeof(*f) + k->nboxes * sizeof(f->ids[0]));
    bool any = false;
    struct box *b;

    *f = (struct batch){ .parent = getpid() };
    list_each(b, &k->boxes, all) {
        if (!wants_flush(b))
            continue;
        any = b->in_flush = true;
        if (b->pausing == PAUSING_SETTLE)
            memcpy(f->ids[f->n++], b->id, ORDER_ID);
    }
    if (any)
        return f;
    free(f);
    return NULL;
}

/* One at a time: who comes while it runs waits for the next, which is for all of them. */
static void start_flush(struct keeper *k)
{
    struct err err = { 0 };
    struct batch *f = k->flushing ? NULL : collect(k);
    struct box *b;

    if (!f)
        return;
    k->flushing = !job_start(k, flush, flushed, f, NULL, &err);
    if (k->flushing)
        return;
    list_each(b, &k->boxes, all)
        if (b->in_flush)
            fail(b, &err);
}

static void join_flush(struct box *b, enum pausing step)
{
    b->pausing = step;
    b->flush_from = clock_us();
    start_flush(b->keeper);
}

/* ---- pausing ---- */

int box_pause(struct box *b, const struct pending *reply, bool files_only, struct err *err)
{
    if (b->frozen && b->pausing == PAUSING_NOT && (!files_only || b->phase == PHASE_ASLEEP))
        return 1;
    if (b->pausing != PAUSING_NOT)
        return err_set(err, ERR_CONFLICT, "sandbox %s is being paused", b->id);
    if (b->snapshotting) /* its child freezes and thaws it */
        return err_set(err, ERR_CONFLICT, "a snapshot of sandbox %s is being taken", b->id);
    if (b->keeper->cgroups.unified < 0)
        return err_set(err, ERR_UNSUPPORTED, "this machine has no cgroup v2 to freeze with");
    if (files_only && b->keeper->notes < 0)
        return err_set(err, ERR_UNSUPPORTED, "this keeper keeps no files of paused sandboxes");
    b->freeze = *reply;
    b->files_only = files_only;
    b->flush_us = 0;
    if (b->frozen)
        drop(b);
    else
        join_flush(b, PAUSING_FLUSH);
    return 0;
}

void pause_frozen(struct box *b, const struct err *err)
{
    if (err)
        fail(b, err);
    else
        join_flush(b, PAUSING_SETTLE);
}

/* The note goes first: with it and with running processes the next keeper would pause it again. The
 * kernel lets them go at the word: there is nothing to wait for. */
int box_resume(struct box *b, uint64_t lifetime_ms, struct err *err)
{
    bool was_frozen = b->frozen;

    if (pause_forget(b, err))
        return -1;
    pause_cancel(b, "was thawed before it was frozen");
    if (b->keeper->cgroups.unified >= 0 && /* else it was never frozen */
        cgroup_freeze_ask(&b->keeper->cgroups, b->name, false, err))
        return -1;
    b->frozen = false;
    if (lifetime_ms) {
        b->order.limits.lifetime_ms = lifetime_ms;
        b->deadline = clock_ms() + (int64_t)lifetime_ms;
    } else if (was_frozen)
        b->deadline = b->left == NEVER ? NEVER : clock_ms() + b->left;
    return adopt_record(b, err);
}

/* ---- after a start of the keeper ---- */

int pause_adopt(struct box *b, const struct boxfile *n)
{
    struct err err = { 0 };

    b->noted = n != NULL;
    if (n && (n->pid != b->jail.pid || n->started != b->started))
        return 1;
    b->frozen = n != NULL;
    if (n) {
        b->left = b->deadline == NEVER ? (int64_t)b->order.limits.lifetime_ms
                                       : MAX(b->deadline - clock_ms(), (int64_t)0);
        b->deadline = NEVER;
    }
    /* a pause that was not finished is undone */
    if (b->keeper->cgroups.unified >= 0 &&
        cgroup_freeze_ask(&b->keeper->cgroups, b->name, b->frozen, &err))
        log_warn("cannot freeze or thaw", KV("sandbox", b->id), KV("error", err.msg));
    return 0;
}

/* Its layer, locked. Whoever else holds it is no keeper (held_by_another() has been asked), but
 * perhaps a child that has outlived one. */
static int take_layer(const struct keeper *k, const struct boxfile *n, struct err *err)
{
    AUTO(closep) int layer = layer_open(k->volume, n->name, err);

    if (layer < 0)
        return err_in(err, "its files cannot be opened");
    if (!flock(layer, LOCK_EX | LOCK_NB) && !flock(layer, LOCK_SH | LOCK_NB))
        return TAKE(layer, -1);
    return err_sys(err, "its files cannot be locked");
}

void pause_consider(struct keeper *k, const char *id)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct boxfile n;
    struct err err = { 0 };
    struct box *b;
    int layer, old;

    if (box_find(k, id))
        return;
    old = note_read(k, id, &n, &unknown, &err);
    if (old < 0) {
        unread_begin(k, id, BOXFILE_NOTE, &err, NULL);
        return;
    }
    if (held_by_another(k, &n)) /* which may be about to lock it */
        return;
    if (stray_frozen(k, &n))
        return;
    layer = take_layer(k, &n, &err);
    if (layer < 0) { /* the volume may be another one, or not be there */
        unread_begin(k, id, BOXFILE_NOTE, &err, &n);
        return;
    }
    b = box_new(k, id);
    memcpy(b->name, n.name, sizeof(b->name));
    b->order = n.order;
    tag_merge(&b->unknown, buf_str(&unknown));
    b->family = n.family;
    b->own_template = n.is & BOXFILE_OWN;
    b->layer = layer;
    b->left = (int64_t)b->order.limits.lifetime_ms;
    b->noted = b->frozen = true;
    b->astray = n.is & BOXFILE_ASTRAY;
    b->phase = PHASE_ASLEEP;
    note_mark(b); /* a release before, or a backup, has not */
    log_info("a paused sandbox has its files only", KV("sandbox", id));
    if (old && note_put(k, &n, buf_str(&unknown), true, &err))
        log_warn("a note is not written anew", KV("sandbox", id), KV("error", err.msg));
}

/* ---- what a kill left ---- */

#define LAYER_PREFIX "box-"

static DIR *open_dir(int at, const char *path)
{
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d && fd >= 0)
        close(fd);
    return d;
}

/* A keeper that was killed while it wrote a note has left its draft. That of another keeper, which
 * shares the directory and may be writing, stays: it holds the sandbox's layer. */
static void drop_draft(struct keeper *k, const char *draft)
{
    char layer[ORDER_ID + sizeof(LAYER_PREFIX)];
    AUTO(closep) int fd = -1;
    struct err err;

    if (!box_find(k, draft + 1)) {
        snprintf(layer, sizeof(layer), LAYER_PREFIX "%s", draft + 1);
        fd = layer_open(k->volume, layer, &err);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB))
            return;
    }
    unlinkat(k->notes, draft, 0);
}

int pause_adopt_all(struct keeper *k, struct err *err)
{
    const struct dirent *e;
    DIR *d;

    if (k->notes < 0)
        return 0;
    d = open_dir(k->notes, ".");
    if (!d)
        return err_sys(err, "read the notes of paused sandboxes");
    while ((errno = 0, e = readdir(d)))
        if (*e->d_name == '.' && adopt_is_name(e->d_name + 1))
            drop_draft(k, e->d_name);
        else if (adopt_is_name(e->d_name))
            pause_consider(k, e->d_name);
    if (errno) { /* those that we have not seen would be taken for ended */
        err_sys(err, "read the notes of paused sandboxes");
        closedir(d);
        return -1;
    }
    closedir(d);
    return strays_adopt(k, err);
}
