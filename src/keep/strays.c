/* strays.c - layers that neither a record nor a note names: the run directory was emptied, or
 * somebody removed notes. What is in them may be all that somebody has.
 *
 * So each layer says itself what it is: it carries its sandbox's record as an attribute, written
 * whenever the record is. A layer whose sandbox has ended says that instead, from before it is
 * deleted.
 *
 *   the layer says            and its processes    it is
 *   that it has ended         -                    deleted
 *   unclaimed                 are gone             deleted: nobody was ever told of it
 *   whose it is               live                 adopted; if it has a note, too (its record is
 *                                                  gone): paused
 *   whose it is               are gone             asleep; astray, unless it was paused or is to be
 *                                                  started again: then nobody said that it may stay
 *   nothing of marks          are gone with a      deleted: who made it is told by its client's
 *                             former boot          records, and has none here
 *   nothing that can be read  -                    unread: it is listed, and can be ended
 *
 * Who has the store decides about what is asleep or unread; nothing is deleted for not being known.
 */
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
#include "keep/statedir.h"

enum { END_MS = 2000 };

#define LAYER_PREFIX "box-"
#define ENDED_WORD   "ended"

/* Root's is seen by nobody else, whatever the directory's mode is. */
static const char *attribute(const struct keeper *k)
{
    return k->o.rootless ? "user.cove.record" : "trusted.cove.record";
}

/* ---- what a layer says of itself ---- */

/* Where it cannot (a file system without attributes, a record beyond their room) it says nothing,
 * and is unread if it is ever lost. */
void stray_record(const struct box *b, struct str record)
{
    if (b->layer >= 0 && fsetxattr(b->layer, attribute(b->keeper), record.p, record.n, 0))
        log_debug("a layer does not say whose it is", KV("sandbox", b->id),
                  KV("error", strerrordesc_np(errno)));
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

enum said { SAID_NOTHING, SAID_ENDED, SAID_RECORD };

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
    if (!boxfile_encode(&record, BOXFILE_RECORD, unknown, &bytes, &err) &&
        fsetxattr(layer, name, bytes.data, bytes.len, 0))
        log_debug("a layer does not say whose it is", KV("sandbox", note->id),
                  KV("error", strerrordesc_np(errno)));
}

static enum said read_said(const struct keeper *k, int layer, const char *id, struct boxfile *out,
                           struct buf *unknown)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct err err = { 0 };
    ssize_t n;

    buf_reserve(&bytes, BOXFILE_MAX);
    n = fgetxattr(layer, attribute(k), bytes.data, BOXFILE_MAX);
    if (n <= 0)
        return SAID_NOTHING;
    bytes.len = (size_t)n;
    if (str_is(buf_str(&bytes), ENDED_WORD))
        return SAID_ENDED;
    if (boxfile_decode(buf_str(&bytes), BOXFILE_RECORD, id, out, unknown, &err) >= 0)
        return SAID_RECORD;
    log_warn("what a layer says of itself cannot be read", KV("sandbox", id), KV("error", err.msg));
    return SAID_NOTHING;
}

/* ---- one of them ---- */

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

static void sleep_astray(struct keeper *k, struct stray *s)
{
    struct box *b = box_new(k, s->id);

    memcpy(b->name, s->f.name, sizeof(b->name));
    b->order = s->f.order;
    tag_merge(&b->unknown, buf_str(&s->unknown));
    b->family = s->f.family;
    b->own_template = s->f.is & BOXFILE_OWN;
    b->layer = TAKE(s->layer, -1);
    b->left = (int64_t)b->order.limits.lifetime_ms;
    b->frozen = b->astray = true;
    b->phase = PHASE_ASLEEP;
    log_warn("a sandbox was found by its files alone", KV("sandbox", s->id));
}

/* Its note was lost, or would have been written now. */
static void sleep_noted(struct keeper *k, struct stray *s)
{
    struct err err = { 0 };

    snprintf(s->f.run_dir, sizeof(s->f.run_dir), "%s", k->o.run_dir);
    if (note_put(k, &s->f, buf_str(&s->unknown), true, &err)) {
        log_error("a lost note is not written anew", KV("sandbox", s->id), KV("error", err.msg));
        return; /* the layer stays as it is, for the next keeper */
    }
    closep(&s->layer); /* and its lock: who takes it up takes its own */
    s->layer = -1;
    pause_consider(k, s->id);
}

static void take_up_dead(struct keeper *k, struct stray *s, bool former)
{
    bool paused = s->f.is & BOXFILE_FROZEN, stays = s->f.order.flags & ORDER_STAY;
    enum order_claim claim = (enum order_claim)s->f.order.mark.claim;
    char boot[BOOT_ID];

    adopt_boot(boot);
    former = former || memcmp(boot, s->f.boot, sizeof(boot)) != 0;
    cgroup_remove(&k->cgroups, s->name);
    if (claim == ORDER_UNCLAIMED)
        delete (k, s, "the files of a machine that nobody was told of go");
    else if (paused || (stays && !former))
        sleep_noted(k, s);
    else if (claim == ORDER_CLAIMED)
        sleep_astray(k, s);
    else if (former)
        delete (k, s, "the files of a sandbox of a former boot go");
}

/* It lives, and its record is lost. */
static void take_up_living(struct keeper *k, struct stray *s, int pidfd)
{
    struct err err = { 0 };

    log_warn("a sandbox that lives was found by its files: its record is gone",
             KV("sandbox", s->id));
    closep(&s->layer);
    s->layer = -1;
    snprintf(s->f.run_dir, sizeof(s->f.run_dir), "%s", k->o.run_dir);
    if (s->f.is & BOXFILE_FROZEN && note_put(k, &s->f, buf_str(&s->unknown), true, &err))
        log_error("a lost note is not written anew", KV("sandbox", s->id), KV("error", err.msg));
    adopt_living(k, &s->f, buf_str(&s->unknown), pidfd);
}

/* Nobody can tell now whether it lives. With its record back it is looked at again. */
static void take_up_later(struct keeper *k, struct stray *s, const struct err *why)
{
    AUTO(buf_free) struct buf bytes = { 0 };
    struct err err = { 0 };

    closep(&s->layer);
    s->layer = -1;
    if (boxfile_encode(&s->f, BOXFILE_RECORD, buf_str(&s->unknown), &bytes, &err) ||
        statedir_write(k->records, s->id, buf_str(&bytes), STATE_IN_PLACE, &err))
        log_error("a lost record is not written anew", KV("sandbox", s->id), KV("error", err.msg));
    unread_begin(k, s->id, BOXFILE_RECORD, why, &s->f);
}

/* Its record is lost, and its processes are those that its note was written for. Without what the
 * layer says they cannot be taken over; and none may be left to use files that are woken again. */
static void end_frozen(struct keeper *k, const struct boxfile *note, int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    log_warn("a paused sandbox's record is gone: its processes end, its files stay",
             KV("sandbox", note->id));
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    poll(&p, 1, END_MS);
    close(pidfd);
    cgroup_remove(&k->cgroups, note->name);
}

bool stray_frozen(struct keeper *k, const struct boxfile *note)
{
    struct stray s = { .id = note->id, .name = note->name };
    struct err err = { 0 };
    bool taken = true;
    int pidfd;
    enum life life = adopt_life(note, &pidfd, &err);

    if (life == LIFE_ENDED)
        return false;
    if (life == LIFE_UNKNOWN) {
        unread_begin(k, note->id, BOXFILE_NOTE, &err, note);
        return true;
    }
    s.layer = layer_open(k->volume, s.name, &err);
    taken = s.layer >= 0 && read_said(k, s.layer, s.id, &s.f, &s.unknown) == SAID_RECORD &&
            s.f.pid == note->pid && s.f.started == note->started;
    if (taken)
        take_up_living(k, &s, pidfd);
    else
        end_frozen(k, note, pidfd);
    closep(&s.layer);
    buf_free(&s.unknown);
    return taken;
}

static bool has_processes(const struct keeper *k, const char *name)
{
    uint64_t populated = 0;

    return k->cgroups.unified >= 0 &&
           !cgroup_read_key(k->cgroups.unified, name, "cgroup.events", "populated", &populated) &&
           populated;
}

static void take_up_unread(struct keeper *k, struct stray *s)
{
    bool lives = has_processes(k, s->name);
    struct err why = { 0 };
    struct box *b;

    closep(&s->layer);
    s->layer = -1;
    err_set(&why, ERR_NOT_FOUND, "there is none, and its files do not say what it was");
    unread_begin(k, s->id, lives ? BOXFILE_RECORD : BOXFILE_NOTE, &why, NULL);
    b = box_find(k, s->id);
    if (b)
        b->astray = !lives;
}

static void take_up(struct keeper *k, struct stray *s, bool former)
{
    enum said said = read_said(k, s->layer, s->id, &s->f, &s->unknown);
    struct err err = { 0 };
    enum life life;
    int pidfd;

    if (said == SAID_ENDED) {
        delete (k, s, "the files of a sandbox that has ended go");
        return;
    }
    if (said == SAID_NOTHING) {
        take_up_unread(k, s);
        return;
    }
    if (held_by_another(k, &s->f))
        return;
    life = adopt_life(&s->f, &pidfd, &err);
    if (life == LIFE_ENDED)
        take_up_dead(k, s, former);
    else if (held_elsewhere(k, &s->f)) /* of a keeper that does not run at the moment */
        closep(&pidfd);
    else if (life == LIFE_LIVES)
        take_up_living(k, s, pidfd);
    else
        take_up_later(k, s, &err);
}

/* ---- all of them ---- */

/* <data>/boot is the boot in which a keeper used these layers last. */
static int is_former_boot(struct keeper *k, bool *former, struct err *err)
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
    *former = pread(fd, last, sizeof(last), 0) == sizeof(last) && memcmp(now, last, sizeof(now));
    return pwrite(fd, now, sizeof(now), 0) == sizeof(now) ? 0 : err_sys(err, "write %s", path);
}

/* Who has a record or a note has been dealt with; asked of the disk, as there may be thousands. */
static bool is_named(struct keeper *k, const char *id)
{
    return (k->records >= 0 && !faccessat(k->records, id, F_OK, AT_SYMLINK_NOFOLLOW)) ||
           note_exists(k, id) || box_find(k, id);
}

int strays_adopt(struct keeper *k, struct err *err)
{
    AUTO(freep) char *path = NULL;
    const struct dirent *e;
    bool former;
    DIR *d;

    if (is_former_boot(k, &former, err))
        return -1;
    if (asprintf(&path, "%s/volume/layers", k->o.data_dir) < 0)
        abort();
    d = opendir(path);
    while (d && (e = readdir(d))) {
        struct stray s = { .id = e->d_name + sizeof(LAYER_PREFIX) - 1, .name = e->d_name };
        struct err ignored;

        if (strncmp(e->d_name, LAYER_PREFIX, sizeof(LAYER_PREFIX) - 1) != 0 ||
            !adopt_is_name(s.id) || is_named(k, s.id))
            continue;
        s.layer = layer_open(k->volume, s.name, &ignored);
        /* another keeper's, with a run directory of its own */
        if (s.layer >= 0 && !flock(s.layer, LOCK_EX | LOCK_NB) && !flock(s.layer, LOCK_SH))
            take_up(k, &s, former);
        closep(&s.layer);
        buf_free(&s.unknown);
    }
    if (d)
        closedir(d);
    return 0;
}
