/* unread.c - sandboxes of which the keeper has a file that it cannot read.
 *
 * The file may be damaged, a newer release's, or out of reach for now (no descriptor, a failing
 * disk). What it describes may be alive. So nothing of it is taken away: it has a place in the
 * list of sandboxes under the name of its file, says why it cannot be reached, and is looked at
 * again. Its layer is locked as that of every other, so that nobody takes it for nobody's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jail/cgroup_files.h"
#include "keep/keeper.h"
#include "keep/statedir.h"

enum { LOOK_MS = 1000 };

static int directory_of(const struct keeper *k, enum boxfile_kind kind)
{
    return kind == BOXFILE_NOTE ? k->notes : k->records;
}

static const char *kind_name(enum boxfile_kind kind)
{
    return kind == BOXFILE_NOTE ? "note" : "record";
}

/* A note does not say whose it is if it cannot be read; a layer that another keeper locks does. */
static bool is_anothers(const struct box *b)
{
    return b->layer >= 0 &&
           (flock(b->layer, LOCK_EX | LOCK_NB) || flock(b->layer, LOCK_SH | LOCK_NB));
}

static void forget(struct box *b)
{
    closep(&b->layer);
    list_remove(&b->all);
    b->keeper->nboxes--;
    buf_free(&b->unknown);
    free(b);
}

static void tell(const struct box *b, const struct err *why)
{
    bool damaged = why->code == ERR_INVALID;

    log_error(damaged ? "a sandbox's file is damaged: it is set aside and the sandbox unreachable"
                      : "a sandbox's file cannot be read: the sandbox is unreachable until it can",
              KV("sandbox", b->id), KV("file", kind_name(b->unread_kind)), KV("error", why->msg));
    if (damaged)
        statedir_set_aside(directory_of(b->keeper, b->unread_kind), b->id);
}

void unread_begin(struct keeper *k, const char *id, enum boxfile_kind kind, const struct err *why)
{
    struct box *b = box_new(k, id);
    struct err err = { 0 };

    b->phase = PHASE_UNREAD;
    b->unread_kind = kind;
    b->look_again = clock_ms() + LOOK_MS;
    snprintf(b->unreadable, sizeof(b->unreadable), "its %s cannot be read: %.200s", kind_name(kind),
             why->msg);
    b->layer = layer_open(k->volume, b->name, &err);
    if (is_anothers(b) || (kind == BOXFILE_NOTE && err.code == ERR_NOT_FOUND)) {
        log_warn("a note cannot be read, and no files here belong to it", KV("note", id),
                 KV("error", why->msg));
        forget(b);
        return;
    }
    tell(b, why);
}

static bool readable(const struct box *b)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct boxfile f;
    struct err err = { 0 };

    return !statedir_read(directory_of(b->keeper, b->unread_kind), b->id, &bytes, &err) &&
           bytes.len && boxfile_decode(buf_str(&bytes), b->unread_kind, b->id, &f, NULL, &err) >= 0;
}

/* A layer that nothing names was being deleted when we found it. */
static bool is_gone(const struct box *b)
{
    struct err err = { 0 };
    AUTO(closep) int layer = b->astray ? layer_open(b->keeper->volume, b->name, &err) : -1;

    return b->astray && layer < 0 && err.code == ERR_NOT_FOUND;
}

void unread_look(struct box *b)
{
    struct keeper *k = b->keeper;
    struct client *owner = b->owner;
    enum boxfile_kind kind = b->unread_kind;
    struct err err = { 0 };
    char id[ORDER_ID];
    struct box *now;

    b->look_again = clock_ms() + LOOK_MS;
    if (is_gone(b)) {
        unread_end(b, ENDED_BY_REQUEST);
        return;
    }
    if (!readable(b))
        return;
    memcpy(id, b->id, sizeof(id));
    log_info("a sandbox's file can be read again", KV("sandbox", id), KV("file", kind_name(kind)));
    forget(b);
    if (kind == BOXFILE_RECORD)
        adopt_consider(k, id, &err);
    if (!box_find(k, id) && note_exists(k, id))
        pause_consider(k, id);
    now = box_find(k, id);
    if (now)
        now->owner = owner;
}

void unread_tick(struct box *b)
{
    if (b->look_again <= clock_ms())
        unread_look(b);
}

/* Its processes are those in its cgroup, whose name we know. Only one with a record has any. */
static int kill_processes(const struct box *b, struct err *err)
{
    int cgroups = b->keeper->cgroups.unified;

    if (b->unread_kind == BOXFILE_NOTE)
        return 0;
    if (cgroups < 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox %s goes on: without its record and a cgroup v2 its processes "
                       "cannot be found; mend <run>/boxes/%s",
                       b->id, b->id);
    if (cgroup_write(cgroups, b->name, "cgroup.kill", "1") && errno != ENOENT)
        return err_sys(err, "kill the processes of sandbox %s", b->id);
    return 0;
}

void unread_end(struct box *b, enum keep_reason reason)
{
    struct keeper *k = b->keeper;
    struct pending end = TAKE(b->end, (struct pending){ 0 });
    struct keep_state last;
    struct err err = { 0 };
    char id[ORDER_ID];

    memcpy(id, b->id, sizeof(id));
    if (kill_processes(b, &err)) {
        log_error("an unreachable sandbox is not ended", KV("sandbox", id), KV("error", err.msg));
        keeper_reply(&end, id, &err, NULL);
        return;
    }
    b->reason = reason;
    box_state(b, &last);
    cgroup_remove(&k->cgroups, b->name);
    keeper_unlink(k->sockets, id);
    if (b->layer >= 0) {
        close(TAKE(b->layer, -1));
        reaper_delete(k, b->name, -1);
    }
    note_remove(k, id);
    keeper_unlink(k->records, id);
    keeper_event_ended(b, -1, &last);
    forget(b);
    keeper_reply(&end, id, NULL, &last);
}
