/* adopt.c - a record on disk per sandbox that outlives keepers, and finding it again.
 *
 * <run>/boxes/<id> is written before anything of a sandbox is made and again when it has a process.
 * A process is the one that was recorded if boot, pid and start time agree. What is recorded and
 * does not live is taken away: cgroups, layer (unless it is paused: note.c), number. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jail/cgroup_files.h"
#include "keep/keeper.h"
#include "keep/statedir.h"

enum { END_MS = 2000 };

void adopt_boot(char out[BOOT_ID])
{
    static char id[BOOT_ID]; /* it outlives us by definition */
    AUTO(closep) int fd = *id ? -1 : open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, id, BOOT_ID - 1) < 0)
        memset(id, 0, sizeof(id));
    memcpy(out, id, sizeof(id));
}

/* Field 22 of /proc/PID/stat; the second field is a name that may hold anything, so count from its
 * closing parenthesis. 0: no such process. */
static uint64_t start_time(pid_t pid)
{
    char path[32], text[1024], *p, *save = NULL, *word;
    AUTO(closep) int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    p = strrchr(text, ')');
    word = p ? strtok_r(p + 1, " ", &save) : NULL;
    for (int field = 3; word && field < 22; field++)
        word = strtok_r(NULL, " ", &save);
    return word ? strtoull(word, NULL, 10) : 0;
}

/* ---- writing ---- */

static void fill_record(const struct box *b, struct boxfile *r)
{
    *r = (struct boxfile){
        .order = b->order,
        .family = b->family,
        .number = b->slot ? b->slot->ids.number : 0,
        .pid = b->jail.pid,
        .is = (b->frozen ? BOXFILE_FROZEN : 0) | (b->fresh ? BOXFILE_FRESH : 0),
        .started = b->started,
        .deadline_ms = b->deadline,
        .oom_kills = b->oom_kills,
        .pids_refused = b->pids_refused,
    };
    memcpy(r->id, b->id, sizeof(r->id));
    memcpy(r->name, b->name, sizeof(r->name));
    snprintf(r->run_dir, sizeof(r->run_dir), "%s", b->keeper->o.run_dir);
    if (b->generation)
        memcpy(r->fingerprint, b->generation->host.fingerprint, sizeof(r->fingerprint));
    adopt_boot(r->boot);
}

int adopt_record(struct box *b, struct err *err)
{
    static struct buf bytes; /* of every record: nothing is allocated once one was as long */
    const struct keeper *k = b->keeper;
    struct boxfile r;
    char note[512];

    if (k->records < 0)
        return 0;
    if (b->jail.pid > 0 && !b->started)
        b->started = start_time(b->jail.pid);
    fill_record(b, &r);
    bytes.len = 0;
    if (boxfile_encode(&r, BOXFILE_RECORD, buf_str(&b->unknown), &bytes, err) ||
        statedir_write(k->records, b->id, buf_str(&bytes), STATE_IN_PLACE, err))
        return err_in(err, "record");
    stray_record(b, buf_str(&bytes));
    if (b->jail.pid > 0 || !b->slot)
        return 0;
    snprintf(note, sizeof(note), "%s/boxes/%s", k->o.run_dir, b->id);
    return ids_note(&b->slot->ids, note, err);
}

void adopt_forget(const struct box *b)
{
    if (b->keeper->records >= 0)
        keeper_unlink(b->keeper->records, b->id);
}

/* ---- reading ---- */

/* As boxfile_decode(). */
static int read_record(const struct keeper *k, const char *id, struct boxfile *r,
                       struct buf *unknown, struct err *err)
{
    AUTO(buf_free) struct buf bytes = { 0 };

    if (statedir_read(k->records, id, &bytes, err))
        return -1;
    return boxfile_decode(buf_str(&bytes), BOXFILE_RECORD, id, r, unknown, err);
}

int adopt_open_if_alive(const struct boxfile *r)
{
    char boot[BOOT_ID];
    struct pollfd p = { .events = POLLIN };
    int pidfd;

    adopt_boot(boot);
    if (r->pid <= 0 || memcmp(boot, r->boot, sizeof(boot)))
        return -1;
    pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0);
    /* read after the descriptor exists: the pid cannot be given to another meanwhile */
    p.fd = pidfd; /* readable: it has ended, and nobody has collected it yet */
    if (pidfd >= 0 && (start_time(r->pid) != r->started || poll(&p, 1, 0) > 0)) {
        close(pidfd);
        return -1;
    }
    return pidfd;
}

static int take_slot(struct box *b, const struct boxfile *r, struct err *err)
{
    char path[64];
    int ns;

    b->slot = xcalloc(1, sizeof(*b->slot));
    list_init(&b->slot->all);
    b->slot->ids.lock = b->slot->net.ns = -1;
    if (ids_retake(&b->keeper->ids, r->number, &b->slot->ids, err))
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/ns/net", r->pid);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        return err_sys(err, "open %s", path);
    return netmaker_adopt(&b->keeper->net, ns,
                          r->order.network == ORDER_NET_OPEN ? NET_OPEN : NET_NONE, r->number,
                          &b->slot->net, err);
}

static void end_now(struct box *b)
{
    struct pollfd p = { .fd = b->jail.pidfd, .events = POLLIN };

    syscall(SYS_pidfd_send_signal, b->jail.pidfd, SIGKILL, NULL, 0);
    poll(&p, 1, END_MS);
    if (b->noted && b->layer >= 0)
        box_sleep(b);
    else
        box_free(b);
}

/* A note that cannot be read does not undo a pause: the record, which was written behind it, says
 * that the sandbox was paused. It is noted anew then. 0: there is no note. */
static bool find_note(struct box *b, const struct boxfile *r, struct boxfile *n)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct err err = { 0 };
    int old = note_read(b->keeper, b->id, n, &unknown, &err);

    tag_merge(&b->unknown, buf_str(&unknown));
    if (old < 0 && err.code == ERR_NOT_FOUND)
        return false;
    if (old < 0) {
        log_error("a paused sandbox's note cannot be read", KV("sandbox", b->id),
                  KV("error", err.msg));
        statedir_set_aside(b->keeper->notes, b->id);
        if (!(r->is & BOXFILE_FROZEN))
            return false;
        *n = *r;
        snprintf(n->run_dir, sizeof(n->run_dir), "%s", b->keeper->o.run_dir);
    }
    if (old && note_put(b->keeper, n, buf_str(&b->unknown), true, &err))
        log_warn("a note is not written anew", KV("sandbox", b->id), KV("error", err.msg));
    return true;
}

static int adopt_one(struct keeper *k, const struct boxfile *r, struct str unknown, int pidfd,
                     struct err *err)
{
    struct box *b = box_new(k, r->id);
    struct boxfile note;
    int half_woken;

    memcpy(b->name, r->name, sizeof(b->name));
    b->order = r->order;
    b->family = r->family;
    b->started = r->started;
    b->fresh = r->is & BOXFILE_FRESH;
    b->oom_kills = r->oom_kills;
    b->pids_refused = r->pids_refused;
    b->jail = (struct jail){ .pid = r->pid, .pidfd = pidfd, .sock = -1, .net = -1 };
    b->cgroup_made = b->socket_made = true;
    b->phase = PHASE_RUNNING;
    b->deadline = r->deadline_ms;
    tag_merge(&b->unknown, unknown);
    half_woken = pause_adopt(b, find_note(b, r, &note) ? &note : NULL);
    b->layer = layer_open(k->volume, b->name, err);
    if (b->layer >= 0 && flock(b->layer, LOCK_SH | LOCK_NB))
        err_sys(err, "lock layer %s", b->name);
    if (half_woken && b->layer >= 0 && !err->code) {
        end_now(b);
        return 0;
    }
    if (b->layer < 0 || err->code || (!k->o.rootless && take_slot(b, r, err)) ||
        source_adopt(b, r->fingerprint, err) || box_watch(b, err)) {
        if (err->code != ERR_GONE) /* that is our own trouble: the next keeper adopts it */
            end_now(b);            /* nobody could ever end it later */
        return -1;
    }
    if (b->order.flags & ORDER_TIED)
        box_end(b, ENDED_LEFT); /* its client was the last keeper's */
    return 0;
}

/* One that is to be started again died while no keeper ran: pause_adopt_all() finds its note. */
static void keep_files(struct keeper *k, const struct boxfile *r, struct str unknown)
{
    struct box b = { .keeper = k,
                     .order = r->order,
                     .family = r->family,
                     .jail.pid = r->pid,
                     .started = r->started };
    struct err err = { 0 };

    memcpy(b.id, r->id, sizeof(b.id));
    memcpy(b.name, r->name, sizeof(b.name));
    tag_merge(&b.unknown, unknown);
    if (note_write(&b, false, &err))
        log_warn("its files are not kept", KV("sandbox", b.id), KV("error", err.msg));
    buf_free(&b.unknown);
}

/* What is left of one that does not live any more. */
static void take_away(struct keeper *k, const struct boxfile *r, struct str unknown)
{
    struct ids_claim claim;
    struct err err;
    int layer;

    if (k->cgroups.unified >= 0)
        cgroup_write(k->cgroups.unified, r->name, "cgroup.kill", "1");
    cgroup_remove(&k->cgroups, r->name);
    if (r->order.flags & ORDER_STAY && !note_exists(k, r->id))
        keep_files(k, r, unknown);
    layer = note_exists(k, r->id) ? -1 : layer_open(k->volume, r->name, &err);
    if (layer >= 0) {
        close(layer);
        reaper_delete(k, r->name, -1);
    }
    if (!k->o.rootless && !ids_retake(&k->ids, r->number, &claim, &err))
        ids_put(&k->ids, &claim);
    keeper_unlink(k->sockets, r->id);
    keeper_unlink(k->records, r->id);
}

/* What the release before wrote is written in our form, so that one form is left. */
static void write_anew(struct keeper *k, const char *id)
{
    struct box *b = box_find(k, id);
    struct err err = { 0 };

    if (b && b->phase == PHASE_RUNNING && adopt_record(b, &err))
        log_warn("a record is not written anew", KV("sandbox", id), KV("error", err.msg));
}

void adopt_living(struct keeper *k, const struct boxfile *r, struct str unknown, int pidfd)
{
    struct err err = { 0 };

    if (adopt_one(k, r, unknown, pidfd, &err))
        log_error("cannot adopt a sandbox", KV("sandbox", r->id), KV("error", err.msg));
    else
        write_anew(k, r->id);
}

/* Nothing is made of a sandbox before its record: one without a layer was never begun, and one with
 * a note was being woken, unless the processes of its pause still live. */
static bool was_begun(struct keeper *k, const char *id)
{
    char name[KEEP_NAME_ROOM];
    AUTO(closep) int layer = -1, pidfd = -1;
    struct boxfile note;
    struct err err = { 0 };

    if (note_exists(k, id)) {
        if (note_read(k, id, &note, NULL, &err) >= 0)
            pidfd = adopt_open_if_alive(&note);
        return pidfd >= 0;
    }
    box_name(k, id, name);
    layer = layer_open(k->volume, name, &err);
    return layer >= 0 || err.code != ERR_NOT_FOUND; /* a disk that fails is no witness */
}

int adopt_consider(struct keeper *k, const char *id, struct err *err)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct boxfile r;
    int pidfd, old;

    err->code = ERR_NONE;
    old = read_record(k, id, &r, &unknown, err);
    if (old < 0 && err->code == ERR_NOT_FOUND && !was_begun(k, id)) {
        unlinkat(k->records, id, 0); /* its keeper died before it had made anything */
        return 0;
    }
    if (old < 0 && err->code == ERR_NOT_FOUND)
        err->code = ERR_INVALID; /* somebody cut it short */
    if (old < 0) {
        unread_begin(k, id, BOXFILE_RECORD, err);
        return 0;
    }
    pidfd = adopt_open_if_alive(&r);
    if (pidfd < 0) {
        log_info("sandbox ended while no keeper ran", KV("sandbox", r.id));
        take_away(k, &r, buf_str(&unknown));
    } else if (adopt_one(k, &r, buf_str(&unknown), pidfd, err))
        log_error("cannot adopt a sandbox", KV("sandbox", r.id), KV("error", err->msg));
    else {
        log_info("adopted", KV("sandbox", r.id), KVI("pid", r.pid));
        if (old)
            write_anew(k, id);
    }
    return err->code == ERR_GONE ? -1 : 0;
}

/* Our drafts are of nothing, and what was set aside waits for somebody. */
bool adopt_is_name(const char *name)
{
    char id[ORDER_ID] = "";

    if (strlen(name) > ORDER_ID_MAX)
        return false;
    snprintf(id, sizeof(id), "%s", name);
    return order_id_valid(id);
}

int adopt_all(struct keeper *k, struct err *err)
{
    int fd = k->records < 0 ? -1 : openat(k->records, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    int r = 0;

    if (k->records >= 0 && !d)
        return err_sys(err, "read the records of sandboxes");
    while (d && !r && (e = readdir(d)))
        if (adopt_is_name(e->d_name))
            r = adopt_consider(k, e->d_name, err);
    if (d)
        closedir(d);
    return r ? r : pause_adopt_all(k, err);
}
