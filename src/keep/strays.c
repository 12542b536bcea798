/* strays.c - layers that neither a record nor a note names: the run directory was emptied, or
 * somebody removed notes. What is in them may be all that somebody has.
 *
 * So each layer says itself what it is: it carries its sandbox's record as an attribute, written
 * whenever the record is. A layer whose sandbox has ended says that instead, from before it is
 * deleted.
 *
 *   the layer says            and its processes    it is
 *   that it has ended         -                    deleted
 *   whose it is               live                 adopted; if it has a note, too (its record is
 *                                                  gone): paused
 *   whose it is               are gone             asleep, with a note; astray, unless it was
 *                                                  paused or is to be started again: then nobody
 *                                                  said that it may stay
 *   unclaimed, not paused     are gone             deleted: nobody was ever told of it
 *   nothing of marks          are gone with a      deleted: who made it is told by its client's
 *                             former boot          records, and has none here
 *   nothing                   -                    unread: it is listed, and can be ended; astray
 *                                                  if the kernel says that it has no process
 *   what cannot be read now   -                    unread, and looked at again
 *
 * Who has the store decides about what is asleep or unread; nothing is deleted for not being known,
 * and what cannot be looked at is in the list all the same: who is in none is taken for ended. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/cgroup_files.h"
#include "keep/keeper.h"

enum { END_MS = 2000 };

#define LAYER_PREFIX "box-"
#define ENDED_WORD   "ended"

/* Root's is seen by nobody else, whatever the directory's mode is. */
static const char *attribute(const struct keeper *k)
{
    return k->o.rootless ? "user.cove.record" : "trusted.cove.record";
}

/* ---- what a layer says of itself ---- */

/* Where it cannot (a file system without attributes, a record beyond their room, a full volume) it
 * says nothing, and is unread if it is ever lost: what it said before may be a lie by now. */
static void say(int layer, const char *name, const char *id, struct str record)
{
    if (!fsetxattr(layer, name, record.p, record.n, 0))
        return;
    if (fremovexattr(layer, name) && errno != ENODATA && errno != EOPNOTSUPP)
        log_warn("a layer says of itself what was", KV("sandbox", id),
                 KV("error", strerrordesc_np(errno)));
    if (fsetxattr(layer, name, record.p, record.n, 0)) /* there may be room now */
        log_debug("a layer does not say whose it is", KV("sandbox", id),
                  KV("error", strerrordesc_np(errno)));
}

void stray_record(const struct box *b, struct str record)
{
    if (b->layer >= 0)
        say(b->layer, attribute(b->keeper), b->id, record);
}

void stray_ended(const struct keeper *k, const char *layer)
{
    AUTO(closep) int fd = -1;
    struct err err;

    if (strncmp(layer, LAYER_PREFIX, sizeof(LAYER_PREFIX) - 1) != 0)
        return;
    fd = layer_open(k->volume, layer, &err);
    if (fd >= 0 && fsetxattr(fd, attribute(k), ENDED_WORD, sizeof(ENDED_WORD) - 1, 0))
        log_debug("a layer does not say that it has ended", KV("layer", layer),
                  KV("error", strerrordesc_np(errno)));
}

/* NOTHING: nothing that could ever be read. UNREADABLE: not now, or not by us. */
enum said { SAID_NOTHING, SAID_ENDED, SAID_RECORD, SAID_UNREADABLE };

bool keep_layer_ended(int layer)
{
    static const char *const names[] = { "trusted.cove.record", "user.cove.record" };
    char word[sizeof(ENDED_WORD)];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        ssize_t n = fgetxattr(layer, names[i], word, sizeof(word));

        if (n == sizeof(ENDED_WORD) - 1 && !memcmp(word, ENDED_WORD, sizeof(ENDED_WORD) - 1))
            return true;
    }
    return false;
}

void keep_layer_paused(int layer, const struct boxfile *note, struct str unknown)
{
    const char *name = geteuid() ? "user.cove.record" : "trusted.cove.record";
    AUTO(buf_free) struct buf bytes = { 0 };
    struct boxfile record = *note;
    struct err err = { 0 };

    record.is |= BOXFILE_FROZEN;
    if (!boxfile_encode(&record, BOXFILE_RECORD, unknown, &bytes, &err))
        say(layer, name, note->id, buf_str(&bytes));
}

/* err: why it is UNREADABLE. */
static enum said read_said(const struct keeper *k, int layer, const char *id, struct boxfile *out,
                           struct buf *unknown, struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct err damage = { 0 };
    ssize_t n;

    buf_reserve(&bytes, BOXFILE_MAX);
    n = fgetxattr(layer, attribute(k), bytes.data, BOXFILE_MAX);
    if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP) {
        err_sys(err, "what its files say of it cannot be read");
        return SAID_UNREADABLE;
    }
    if (n <= 0)
        return SAID_NOTHING;
    bytes.len = (size_t)n;
    if (str_is(buf_str(&bytes), ENDED_WORD))
        return SAID_ENDED;
    if (boxfile_decode(buf_str(&bytes), BOXFILE_RECORD, id, out, unknown, &damage) >= 0)
        return SAID_RECORD;
    if (damage.code == ERR_UNSUPPORTED) {
        *err = damage;
        err_in(err, "what its files say of it");
        return SAID_UNREADABLE;
    }
    if (!k->still)
        log_warn("what a layer says of itself cannot be read", KV("sandbox", id),
                 KV("error", damage.msg));
    return SAID_NOTHING;
}

/* ---- one of them ---- */

/* It has a file there. That we cannot look is no reason to pass over it. */
bool stray_has(int dir, const char *id)
{
    return dir >= 0 && !faccessat(dir, id, F_OK, AT_SYMLINK_NOFOLLOW);
}

struct stray {
    const char *id, *name;
    int layer; /* ours, locked */
    struct boxfile f;
    struct buf unknown;
};

static void delete (struct keeper *k, const struct stray *s, const char *why)
{
    log_info(why, KV("layer", s->name));
    late_delete(k, s->name, -1, NULL);
}

static void let_go(struct stray *s)
{
    closep(&s->layer); /* and its lock: who takes it up takes its own */
    s->layer = -1;
}

/* It cannot be taken up now. It is in the list with the reason, and its layer is looked at again.
 */
static void take_up_later(struct keeper *k, struct stray *s, enum boxfile_kind kind,
                          const struct err *why, const struct boxfile *known)
{
    struct box *b;

    let_go(s);
    unread_begin(k, s->id, kind, why, known);
    b = box_find(k, s->id);
    if (b)
        b->stray = true;
}

/* Its note was lost, or would have been written now. One that is astray has one too, from here on:
 * that holds what it was built on. */
static void sleep_noted(struct keeper *k, struct stray *s, bool astray)
{
    struct err err = { 0 };

    snprintf(s->f.run_dir, sizeof(s->f.run_dir), "%s", k->o.run_dir);
    s->f.is = (s->f.is & BOXFILE_OWN) | (astray ? BOXFILE_ASTRAY : 0);
    s->f.pid = 0; /* it has ended: nobody need find that out again */
    if (note_put(k, &s->f, buf_str(&s->unknown), true, &err)) {
        take_up_later(k, s, BOXFILE_NOTE, &err, &s->f);
        return;
    }
    if (astray)
        log_warn("a sandbox was found by its files alone", KV("sandbox", s->id));
    let_go(s);
    pause_consider(k, s->id);
}

static void take_up_dead(struct keeper *k, struct stray *s)
{
    bool paused = s->f.is & BOXFILE_FROZEN, stays = s->f.order.flags & ORDER_STAY, former;
    enum order_claim claim = (enum order_claim)s->f.order.mark.claim;
    char boot[BOOT_ID];

    adopt_boot(boot);
    former = k->former || memcmp(boot, s->f.boot, sizeof(boot)) != 0;
    late_cgroup(k, s->name);
    if (paused || (stays && !former)) /* somebody was told, whatever the mark says */
        sleep_noted(k, s, false);
    else if (claim == ORDER_UNCLAIMED)
        delete (k, s, "the files of a machine that nobody was told of go");
    else if (claim == ORDER_CLAIMED)
        sleep_noted(k, s, true);
    else if (former)
        delete (k, s, "the files of a sandbox of a former boot go");
}

/* It lives, and its record is lost. Without its note a paused one would be let go on. */
static void take_up_living(struct keeper *k, struct stray *s, int pidfd)
{
    struct err err = { 0 };

    snprintf(s->f.run_dir, sizeof(s->f.run_dir), "%s", k->o.run_dir);
    if (s->f.is & BOXFILE_FROZEN && !stray_has(k->notes, s->id) &&
        note_put(k, &s->f, buf_str(&s->unknown), true, &err)) {
        closep(&pidfd);
        take_up_later(k, s, BOXFILE_RECORD, &err, &s->f);
        return;
    }
    log_warn("a sandbox that lives was found by its files: its record is gone",
             KV("sandbox", s->id));
    let_go(s);
    adopt_living(k, &s->f, buf_str(&s->unknown), pidfd);
}

/* Its record is lost, and its processes are those that its note was written for. Without what the
 * layer says they cannot be taken over; and none may be left to use files that are woken again.
 * Whether they have ended: if not, it is looked at again. */
static bool end_frozen(struct keeper *k, const struct boxfile *note, int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    struct err why = { 0 };
    bool ended;

    log_warn("a paused sandbox's record is gone: its processes end, its files stay",
             KV("sandbox", note->id));
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    ended = poll(&p, 1, k->adopted ? 0 : END_MS) > 0; /* once we serve, nobody waits for it */
    close(pidfd);
    if (ended) {
        late_cgroup(k, note->name);
        return true;
    }
    err_set(&why, ERR_UNAVAILABLE, "its record is gone, and its processes have not ended yet");
    unread_begin(k, note->id, BOXFILE_NOTE, &why, note);
    return false;
}

bool stray_frozen(struct keeper *k, const struct boxfile *note)
{
    struct stray s = { .id = note->id, .name = note->name };
    enum said said = SAID_UNREADABLE;
    struct err err = { 0 };
    bool taken = true;
    int pidfd;
    enum life life = adopt_life(note, &pidfd, &err);

    if (life == LIFE_ENDED) {
        if (note->pid) /* they have ended since, and nobody has taken their cgroup away */
            late_cgroup(k, note->name);
        return false;
    }
    s.layer = life == LIFE_LIVES ? layer_open(k->volume, s.name, &err) : -1;
    if (s.layer >= 0)
        said = read_said(k, s.layer, s.id, &s.f, &s.unknown, &err);
    if (said == SAID_UNREADABLE) {
        closep(&pidfd);
        unread_begin(k, note->id, BOXFILE_NOTE, &err, note);
    } else if (said == SAID_RECORD && s.f.pid == note->pid && s.f.started == note->started)
        take_up_living(k, &s, pidfd);
    else
        taken = !end_frozen(k, note, pidfd);
    closep(&s.layer);
    buf_free(&s.unknown);
    return taken;
}

/* Has it no process, by the kernel's word? That its cgroup is gone is one; that we cannot look, or
 * that this machine has none to look at, says nothing. */
static bool is_empty(const struct keeper *k, const char *name)
{
    uint64_t populated = 1;

    errno = 0;
    if (k->cgroups.unified < 0)
        return k->former;
    if (cgroup_read_key(k->cgroups.unified, name, "cgroup.events", "populated", &populated))
        return errno == ENOENT;
    return !populated;
}

static void take_up_silent(struct keeper *k, struct stray *s)
{
    bool empty = is_empty(k, s->name);
    struct err why = { 0 };
    struct box *b;

    err_set(&why, ERR_NOT_FOUND, "there is none, and its files do not say what it was");
    take_up_later(k, s, empty ? BOXFILE_NOTE : BOXFILE_RECORD, &why, NULL);
    b = box_find(k, s->id);
    if (b && empty) {
        b->astray = true;
        b->stray = false; /* there is nothing more to learn */
    }
}

static void take_up(struct keeper *k, struct stray *s)
{
    struct err err = { 0 };
    enum said said = read_said(k, s->layer, s->id, &s->f, &s->unknown, &err);
    enum life life;
    int pidfd;

    if (said == SAID_ENDED) {
        delete (k, s, "the files of a sandbox that has ended go");
        return;
    }
    if (said == SAID_NOTHING) {
        take_up_silent(k, s);
        return;
    }
    if (said == SAID_UNREADABLE) {
        take_up_later(k, s, BOXFILE_RECORD, &err, NULL);
        return;
    }
    if (held_by_another(k, &s->f))
        return;
    life = adopt_life(&s->f, &pidfd, &err);
    if (life == LIFE_ENDED)
        take_up_dead(k, s);
    else if (held_recorded(k, &s->f)) { /* of a keeper that does not run at the moment */
        closep(&pidfd);
        err_set(&err, ERR_UNAVAILABLE, "its record is in the run directory %.150s", s->f.run_dir);
        take_up_later(k, s, BOXFILE_RECORD, &err, &s->f);
    } else if (life == LIFE_LIVES)
        take_up_living(k, s, pidfd);
    else /* and no record is written: with that alone it would be let go on, or taken away */
        take_up_later(k, s, BOXFILE_RECORD, &err, &s->f);
}

/* Somebody holds it: another keeper, with a run directory of its own; or a child of ours that has
 * outlived its keeper. What it says tells which. */
static void take_up_locked(struct keeper *k, struct stray *s)
{
    struct err why = { 0 }, err = { 0 };
    enum said said;

    err_sys(&why, "its files cannot be locked");
    said = read_said(k, s->layer, s->id, &s->f, &s->unknown, &err);
    if (said == SAID_ENDED || (said == SAID_RECORD && held_by_another(k, &s->f)))
        return;
    take_up_later(k, s, BOXFILE_RECORD, &why, said == SAID_RECORD ? &s->f : NULL);
}

bool stray_is_anothers(const struct keeper *k, int layer, const char *id)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct boxfile f;
    struct err err = { 0 };
    enum said said = read_said(k, layer, id, &f, &unknown, &err);

    return said == SAID_NOTHING || (said == SAID_RECORD && held_by_another(k, &f));
}

static void consider(struct keeper *k, const char *name)
{
    struct stray s = { .id = name + sizeof(LAYER_PREFIX) - 1, .name = name };
    struct err err = { 0 };

    s.layer = layer_open(k->volume, s.name, &err);
    if (s.layer < 0) {
        if (err.code != ERR_NOT_FOUND && err.code != ERR_INVALID) /* else it is no directory */
            take_up_later(k, &s, BOXFILE_RECORD, &err, NULL);
    } else if (flock(s.layer, LOCK_EX | LOCK_NB) || flock(s.layer, LOCK_SH | LOCK_NB))
        take_up_locked(k, &s);
    else
        take_up(k, &s);
    closep(&s.layer);
    buf_free(&s.unknown);
}

void stray_consider(struct keeper *k, const char *id)
{
    char name[KEEP_NAME_ROOM];

    box_name(k, id, name);
    consider(k, name);
}

/* ---- all of them ---- */

/* <data>/boot is the boot in which a keeper used these layers last. */
static int find_former_boot(struct keeper *k, struct err *err)
{
    char now[BOOT_ID], last[BOOT_ID] = "";
    AUTO(freep) char *path = NULL;
    AUTO(closep) int fd = -1;

    if (asprintf(&path, "%s/boot", k->o.data_dir) < 0)
        abort();
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX))
        return err_sys(err, "open %s", path);
    adopt_boot(now);
    k->former = pread(fd, last, sizeof(last), 0) == sizeof(last) && memcmp(now, last, sizeof(now));
    return pwrite(fd, now, sizeof(now), 0) == sizeof(now) ? 0 : err_sys(err, "write %s", path);
}

/* Who has a record or a note has been dealt with; asked of the disk, as there may be thousands. */
static bool is_named(struct keeper *k, const char *id)
{
    return stray_has(k->records, id) || stray_has(k->notes, id) || box_find(k, id);
}

int strays_adopt(struct keeper *k, struct err *err)
{
    AUTO(freep) char *path = NULL;
    const struct dirent *e;
    DIR *d;

    if (find_former_boot(k, err))
        return -1;
    if (asprintf(&path, "%s/volume/layers", k->o.data_dir) < 0)
        abort();
    d = opendir(path);
    if (!d)
        return err_sys(err, "read %s", path);
    while ((errno = 0, e = readdir(d)))
        if (!strncmp(e->d_name, LAYER_PREFIX, sizeof(LAYER_PREFIX) - 1) &&
            adopt_is_name(e->d_name + sizeof(LAYER_PREFIX) - 1) &&
            !is_named(k, e->d_name + sizeof(LAYER_PREFIX) - 1))
            consider(k, e->d_name);
    if (errno) { /* those that we have not seen would be taken for ended */
        err_sys(err, "read %s", path);
        closedir(d);
        return -1;
    }
    closedir(d);
    return 0;
}
