/* unread.c - sandboxes that the keeper cannot reach.
 *
 * A file of one may be damaged, a newer release's, or out of reach for now (no descriptor, a
 * failing disk); or the file can be read, and what it names cannot be had (its layer, what it was
 * built on, a descriptor of its process). What it describes may be alive. So nothing of it is taken
 * away: it has a place in the list of sandboxes under the name of its file, says why it cannot be
 * reached, and is looked at again. Its layer is locked as that of every other, so that nobody takes
 * it for nobody's. If its file can be read its deadline holds, and its limits do in any case: the
 * kernel has them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
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

/* Does anybody else lock its layer? We have a shared lock then, if we can. */
static bool is_used(const struct box *b)
{
    bool used = b->layer >= 0 && flock(b->layer, LOCK_EX | LOCK_NB);

    return b->layer >= 0 && (flock(b->layer, LOCK_SH | LOCK_NB) || used);
}

/* A note does not say whose it is if it cannot be read; a layer that another keeper locks does. A
 * record is ours: it lies in our directory. */
static bool is_anothers(const struct box *b)
{
    if (b->unread_kind == BOXFILE_NOTE && !b->known)
        return is_used(b) && stray_is_anothers(b->keeper, b->layer, b->id);
    if (b->layer >= 0)
        (void)!flock(b->layer, LOCK_SH | LOCK_NB);
    return false;
}

static void forget(struct box *b)
{
    closep(&b->layer);
    list_remove(&b->all);
    b->keeper->nboxes--;
    buf_free(&b->unknown);
    free(b->known);
    free(b);
}

static void tell(const struct box *b, const struct err *why)
{
    bool damaged = !b->known && why->code == ERR_INVALID;

    if (b->keeper->still && !strcmp(b->keeper->still, b->unreadable))
        return; /* nothing new */
    if (b->known) {
        log_error("a sandbox cannot be reached: nothing of it is touched until it can",
                  KV("sandbox", b->id), KV("error", why->msg));
        return;
    }
    log_error(damaged ? "a sandbox's file is damaged: it is set aside and the sandbox unreachable"
                      : "a sandbox's file cannot be read: the sandbox is unreachable until it can",
              KV("sandbox", b->id), KV("file", kind_name(b->unread_kind)), KV("error", why->msg));
    if (damaged)
        statedir_set_aside(directory_of(b->keeper, b->unread_kind), b->id);
}

/* Its time goes on as long as it runs; a paused one's stands still. */
static void fill_known(struct box *b, const struct boxfile *known)
{
    b->known = xmalloc(sizeof(*b->known));
    *b->known = *known;
    memcpy(b->name, known->name, sizeof(b->name));
    b->order = known->order;
    b->family = known->family;
    b->frozen = b->unread_kind == BOXFILE_NOTE || known->is & BOXFILE_FROZEN;
    b->left = (int64_t)b->order.limits.lifetime_ms;
    if (!b->frozen)
        b->deadline = known->deadline_ms;
}

void unread_begin(struct keeper *k, const char *id, enum boxfile_kind kind, const struct err *why,
                  const struct boxfile *known)
{
    struct box *b = box_new(k, id);
    struct err err = { 0 };

    b->phase = PHASE_UNREAD;
    b->unread_kind = kind;
    b->look_again = clock_ms() + LOOK_MS;
    if (known)
        fill_known(b, known);
    snprintf(b->unreadable, sizeof(b->unreadable),
             known ? "%.0s%s" : "its %s cannot be read: %.200s", kind_name(kind), why->msg);
    b->layer = layer_open(k->volume, b->name, &err);
    if (is_anothers(b)) {
        log_warn("a note cannot be read, and its files are another keeper's", KV("note", id),
                 KV("error", why->msg));
        forget(b);
        return;
    }
    tell(b, why);
}

/* Worth another try? */
static bool readable(const struct box *b)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct boxfile f;
    struct err err = { 0 };

    if (b->known || b->stray)
        return true;
    return !statedir_read(directory_of(b->keeper, b->unread_kind), b->id, &bytes, &err) &&
           bytes.len && boxfile_decode(buf_str(&bytes), b->unread_kind, b->id, &f, NULL, &err) >= 0;
}

/* A layer that nothing names was being deleted when we found it. */
static bool is_gone(const struct box *b)
{
    bool nameless = b->astray || (b->stray && !b->known);
    struct err err = { 0 };
    AUTO(closep) int layer = nameless ? layer_open(b->keeper->volume, b->name, &err) : -1;

    return nameless && layer < 0 && err.code == ERR_NOT_FOUND;
}

/* Is there anything to look at? What we know is all that there is, if not. */
static bool can_look(const struct box *b)
{
    struct keeper *k = b->keeper;
    struct err err = { 0 };
    AUTO(closep) int layer = -1;

    if (stray_has(k->records, b->id) || stray_has(k->notes, b->id))
        return true;
    layer = layer_open(k->volume, b->name, &err);
    return layer >= 0;
}

static void look(struct keeper *k, const char *id)
{
    struct err err = { 0 };
    bool recorded = stray_has(k->records, id);

    if (recorded && adopt_consider(k, id, &err))
        k->loop.stop = true; /* we cannot go on, and the next keeper can */
    if (box_find(k, id))
        return;
    if (stray_has(k->notes, id))
        pause_consider(k, id);
    else if (!recorded) /* else it has been taken away */
        stray_consider(k, id);
}

void unread_look(struct box *b)
{
    struct keeper *k = b->keeper;
    struct client *owner = b->owner;
    char id[ORDER_ID], was[sizeof(b->unreadable)];
    struct box *now;

    b->look_again = clock_ms() + LOOK_MS;
    if (is_gone(b)) {
        unread_end(b, ENDED_BY_REQUEST);
        return;
    }
    if (!readable(b) || !can_look(b))
        return;
    memcpy(id, b->id, sizeof(id));
    memcpy(was, b->unreadable, sizeof(was));
    forget(b);
    k->still = was;
    look(k, id);
    k->still = NULL;
    now = box_find(k, id);
    if (now && tie_is_of(now, owner))
        now->owner = owner;
    if (!now || now->phase != PHASE_UNREAD)
        log_info("a sandbox can be reached again", KV("sandbox", id));
}

void unread_tick(struct box *b)
{
    if (b->look_again <= clock_ms())
        unread_look(b);
}

/* Its processes are those in its cgroup, whose name we know; or those of the one that its record or
 * note names. Without cgroups nothing is frozen: behind a note that cannot be read there is none.
 */
static int kill_processes(const struct box *b, struct err *err)
{
    int cgroups = b->keeper->cgroups.unified;
    AUTO(closep) int pidfd = -1;
    enum life life = b->known ? adopt_life(b->known, &pidfd, err) : LIFE_UNKNOWN;

    if (b->stray && !b->known && is_used(b)) /* another keeper of these layers may have made it */
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox %s goes on: its files are in use, and nothing says whose they are",
                       b->id);
    if (life == LIFE_ENDED || (b->unread_kind == BOXFILE_NOTE && !b->known && cgroups < 0))
        return 0;
    if (life == LIFE_LIVES && !syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0))
        return 0;
    if (cgroups < 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox %s goes on: without its record and a cgroup v2 its processes "
                       "cannot be found; mend %s/boxes/%s",
                       b->id, b->keeper->place, b->id);
    if (cgroup_write(cgroups, b->name, "cgroup.kill", "1") && errno != ENOENT)
        return err_sys(err, "kill the processes of sandbox %s", b->id);
    return 0;
}

static void put_number(const struct box *b)
{
    struct keeper *k = b->keeper;
    struct ids_claim claim;
    struct err err;

    if (b->known && b->unread_kind == BOXFILE_RECORD && !k->o.rootless &&
        !ids_retake(&k->ids, b->known->number, &claim, &err))
        ids_put(&k->ids, &claim);
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
        b->deadline = b->deadline == NEVER ? NEVER : clock_ms() + LOOK_MS;
        return;
    }
    b->reason = reason;
    box_state(b, &last);
    late_cgroup(k, b->name);
    keeper_unlink(k->sockets, id);
    if (note_remove(k, id, &err))
        log_warn("the note of a sandbox that has ended stays", KV("sandbox", id),
                 KV("error", err.msg));
    put_number(b);
    if (b->layer >= 0) {
        close(TAKE(b->layer, -1));
        late_delete(k, b->name, -1, id);
    } else
        keeper_unlink(k->records, id);
    keeper_event_ended(b, -1, &last);
    forget(b);
    keeper_reply(&end, id, NULL, &last);
}
