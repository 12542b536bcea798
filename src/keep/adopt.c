/* adopt.c - a record on disk per sandbox that outlives keepers, and finding it again.
 *
 * <place>/boxes/<id> is written before anything of a sandbox is made and again when it has a
 * process. A process is the one that was recorded if boot, pid and start time agree. What is
 * recorded and does not live is taken away: cgroups, layer (unless it is paused: note.c), number.
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

bool adopt_boot(char out[BOOT_ID])
{
    static char id[BOOT_ID]; /* it outlives us by definition */
    AUTO(closep) int fd = *id ? -1 : open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, id, BOOT_ID - 1) < 0)
        memset(id, 0, sizeof(id));
    memcpy(out, id, sizeof(id));
    return *id;
}

/* Field 22 of /proc/PID/stat; the second field is a name that may hold anything, so count from its
 * closing parenthesis. -1 with errno: it cannot be told, which says nothing about the process. */
int adopt_start_time(pid_t pid, uint64_t *out)
{
    char path[32], text[1024], *p, *save = NULL, *word;
    AUTO(closep) int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return -1;
    text[n] = 0;
    p = strrchr(text, ')');
    word = p ? strtok_r(p + 1, " ", &save) : NULL;
    for (int field = 3; word && field < 22; field++)
        word = strtok_r(NULL, " ", &save);
    *out = word ? strtoull(word, NULL, 10) : 0;
    errno = EIO;
    return *out ? 0 : -1;
}

/* ---- writing ---- */

static void fill_record(const struct box *b, struct boxfile *r)
{
    *r = (struct boxfile){
        .order = b->order,
        .family = b->family,
        .number = b->slot ? b->slot->ids.number : 0,
        .pid = b->jail.pid,
        .is = (b->frozen ? BOXFILE_FROZEN : 0) | (b->fresh ? BOXFILE_FRESH : 0) |
              (b->own_template ? BOXFILE_OWN : 0),
        .started = b->started,
        .deadline_ms = b->deadline,
        .oom_kills = b->oom_kills,
        .pids_refused = b->pids_refused,
        .client = b->client_pid,
        .client_started = b->client_started,
    };
    memcpy(r->id, b->id, sizeof(r->id));
    memcpy(r->name, b->name, sizeof(r->name));
    memcpy(r->python, b->python_id, sizeof(r->python));
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
    if (b->jail.pid > 0 && !b->started && adopt_start_time(b->jail.pid, &b->started) &&
        errno != ENOENT && errno != ESRCH) /* without it nobody could tell it from another */
        return err_sys(err, "record: look at its process");
    fill_record(b, &r);
    bytes.len = 0;
    if (boxfile_encode(&r, BOXFILE_RECORD, buf_str(&b->unknown), &bytes, err) ||
        statedir_write(k->records, b->id, buf_str(&bytes), STATE_IN_PLACE, err))
        return err_in(err, "record");
    stray_record(b, buf_str(&bytes));
    if (b->jail.pid > 0 || !b->slot)
        return 0;
    snprintf(note, sizeof(note), "%s/boxes/%s", k->place, b->id);
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

/* Its witness is the kernel: no such process, another start, or a descriptor that says that it has
 * ended. Whatever else fails on the way leaves it open. */
enum life adopt_process(pid_t pid, uint64_t began, int *pidfd, struct err *err)
{
    struct pollfd p = { .events = POLLIN };
    AUTO(closep) int fd = -1;
    uint64_t started = 0;
    int opened, looked;

    *pidfd = -1;
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    opened = fd < 0 ? errno : 0;
    if (opened == ESRCH)
        return LIFE_ENDED;
    /* read after the descriptor exists: the pid cannot be given to another meanwhile */
    looked = adopt_start_time(pid, &started) ? errno : 0;
    p.fd = fd; /* readable: it has ended, and nobody has collected it yet */
    if (poll(&p, 1, 0) > 0 || (!looked && began && started != began))
        return LIFE_ENDED;
    if (!opened && !looked && began)
        return *pidfd = TAKE(fd, -1), LIFE_LIVES;
    if (opened || looked) {
        errno = opened ? opened : looked;
        err_sys(err, "look at its process %d", pid);
    } else
        err_set(err, ERR_UNAVAILABLE, "its record does not say when its process %d began", pid);
    return LIFE_UNKNOWN;
}

enum life adopt_life(const struct boxfile *r, int *pidfd, struct err *err)
{
    char boot[BOOT_ID];

    *pidfd = -1;
    adopt_boot(boot);
    return r->pid <= 0 || memcmp(boot, r->boot, sizeof(boot))
               ? LIFE_ENDED
               : adopt_process(r->pid, r->started, pidfd, err);
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
    box_sleep(b);
}

/* A note that is damaged does not undo a pause: the record, which was written behind it, says that
 * the sandbox was paused. It is noted anew then. 1; 0 there is no note; -1 it cannot be read now.
 */
static int find_note(struct box *b, const struct boxfile *r, struct boxfile *n, struct err *err)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct err failed = { 0 };
    int old = note_read(b->keeper, b->id, n, &unknown, &failed);

    tag_merge(&b->unknown, buf_str(&unknown));
    if (old < 0 && failed.code == ERR_NOT_FOUND)
        return 0;
    if (old < 0 && failed.code != ERR_INVALID) {
        *err = failed;
        return err_in(err, "its note cannot be read");
    }
    if (old < 0) {
        log_error("a paused sandbox's note cannot be read", KV("sandbox", b->id),
                  KV("error", failed.msg));
        statedir_set_aside(b->keeper->notes, b->id);
        if (!(r->is & BOXFILE_FROZEN))
            return 0;
        *n = *r;
        snprintf(n->run_dir, sizeof(n->run_dir), "%s", b->keeper->o.run_dir);
    }
    if (old && note_put(b->keeper, n, buf_str(&b->unknown), true, &failed))
        log_warn("a note is not written anew", KV("sandbox", b->id), KV("error", failed.msg));
    return 1;
}

/* All that it needs, but for whom we hear of its end from. */
static int take_parts(struct box *b, const struct boxfile *r, struct err *err)
{
    b->layer = layer_open(b->keeper->volume, b->name, err);
    if (b->layer < 0)
        return -1;
    if (flock(b->layer, LOCK_SH | LOCK_NB))
        return err_sys(err, "lock layer %s", b->name);
    return (!b->keeper->o.rootless && take_slot(b, r, err)) || source_adopt(b, r->fingerprint, err)
               ? -1
               : 0;
}

/* It stays as we found it: nothing of it is given back or ended because we failed. */
static void let_go(struct box *b)
{
    loop_remove(&b->keeper->loop, &b->ended);
    loop_remove(&b->keeper->loop, &b->memory);
    closep(&b->memory.fd);
    closep(&b->jail.pidfd);
    closep(&b->layer);
    if (b->slot) {
        closep(&b->slot->net.ns);
        closep(&b->slot->ids.lock);
        free(b->slot);
    }
    source_close(b);
    list_remove(&b->all);
    b->keeper->nboxes--;
    buf_free(&b->unknown);
    free(b);
}

static struct box *make_adopted(struct keeper *k, const struct boxfile *r, struct str unknown,
                                int pidfd)
{
    struct box *b = box_new(k, r->id);

    memcpy(b->name, r->name, sizeof(b->name));
    b->order = r->order;
    memcpy(b->python_id, r->python, sizeof(b->python_id));
    b->family = r->family;
    b->started = r->started;
    b->fresh = r->is & BOXFILE_FRESH;
    b->own_template = r->is & BOXFILE_OWN;
    b->oom_kills = r->oom_kills;
    b->pids_refused = r->pids_refused;
    b->client_pid = r->client;
    b->client_started = r->client_started;
    b->jail = (struct jail){ .pid = r->pid, .pidfd = pidfd, .sock = -1, .net = -1 };
    b->cgroup_made = b->socket_made = true;
    b->phase = PHASE_RUNNING;
    b->deadline = r->deadline_ms;
    tag_merge(&b->unknown, unknown);
    return b;
}

/* A living one that we cannot take over now lives on: it is listed with the reason, and tried
 * again. 0: done, be it so. */
static int adopt_one(struct keeper *k, const struct boxfile *r, struct str unknown, int pidfd,
                     struct err *err)
{
    struct box *b = make_adopted(k, r, unknown, pidfd);
    struct boxfile note;
    int noted = find_note(b, r, &note, err);
    int half_woken = noted < 0 ? 0 : pause_adopt(b, noted ? &note : NULL);

    if (noted < 0 || take_parts(b, r, err) || (!half_woken && box_watch(b, err))) {
        let_go(b);
        err_in(err, "it cannot be taken over");
        unread_begin(k, r->id, BOXFILE_RECORD, err, r);
        return -1;
    }
    if (half_woken) { /* it was never used, and nobody but us will end it; its files stay */
        end_now(b);
        return 0;
    }
    if (b->order.flags & ORDER_TIED)
        tie_adopt(b);
    return 0;
}

/* One that is paused, whose note was lost, or that is to be started again died while no keeper ran.
 * Whoever ends one says in its record that it is not paused before its note goes. */
static bool is_to_stay(const struct keeper *k, const struct boxfile *r)
{
    AUTO(closep) int layer = -1;
    struct err err;

    if ((!(r->is & BOXFILE_FROZEN) && !(r->order.flags & ORDER_STAY)) || note_exists(k, r->id))
        return false;
    layer = layer_open(k->volume, r->name, &err);
    return layer < 0 || !keep_layer_ended(layer);
}

/* pause_adopt_all() finds its note. */
static int keep_files(struct keeper *k, const struct boxfile *r, struct str unknown,
                      struct err *err)
{
    bool lasting = r->is & BOXFILE_FROZEN;
    struct boxfile n = *r;

    snprintf(n.run_dir, sizeof(n.run_dir), "%s", k->o.run_dir);
    return note_put(k, &n, unknown, lasting, err) || (lasting && note_sync(k, err)) ? -1 : 0;
}

/* What is left of one that does not live any more. */
static void take_away(struct keeper *k, const struct boxfile *r, struct str unknown)
{
    struct ids_claim claim;
    struct err err = { 0 };
    int layer;

    if (is_to_stay(k, r) && keep_files(k, r, unknown, &err)) {
        err_in(&err, "its files are not noted yet");
        unread_begin(k, r->id, BOXFILE_RECORD, &err, r);
        return;
    }
    if (k->cgroups.unified >= 0)
        cgroup_write(k->cgroups.unified, r->name, "cgroup.kill", "1");
    late_cgroup(k, r->name);
    if (!k->o.rootless && !ids_retake(&k->ids, r->number, &claim, &err))
        ids_put(&k->ids, &claim);
    keeper_unlink(k->sockets, r->id);
    layer = note_exists(k, r->id) ? -1 : layer_open(k->volume, r->name, &err);
    if (layer >= 0) {
        close(layer);
        late_delete(k, r->name, -1, r->id);
    } else
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

    if (note_exists(k, id))
        return note_read(k, id, &note, NULL, &err) < 0 ||
               adopt_life(&note, &pidfd, &err) != LIFE_ENDED;
    box_name(k, id, name);
    layer = layer_open(k->volume, name, &err);
    return layer >= 0 || err.code != ERR_NOT_FOUND; /* a disk that fails is no witness */
}

static void adopt_unread(struct keeper *k, const char *id, struct err *err)
{
    if (err->code == ERR_NOT_FOUND && !was_begun(k, id)) {
        unlinkat(k->records, id, 0); /* its keeper died before it had made anything */
        return;
    }
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_INVALID; /* somebody cut it short */
    unread_begin(k, id, BOXFILE_RECORD, err, NULL);
}

int adopt_consider(struct keeper *k, const char *id, struct err *err)
{
    AUTO(buf_free) struct buf unknown = { 0 };
    struct boxfile r;
    int pidfd, old;

    *err = (struct err){ 0 };
    old = read_record(k, id, &r, &unknown, err);
    if (old < 0) {
        adopt_unread(k, id, err);
        return 0;
    }
    switch (adopt_life(&r, &pidfd, err)) {
    case LIFE_UNKNOWN: unread_begin(k, id, BOXFILE_RECORD, err, &r); return 0;
    case LIFE_ENDED:
        log_info("sandbox ended while no keeper ran", KV("sandbox", r.id),
                 KV("witness", "the kernel: its process is gone"));
        take_away(k, &r, buf_str(&unknown));
        return 0;
    case LIFE_LIVES: break;
    }
    if (adopt_one(k, &r, buf_str(&unknown), pidfd, err))
        return err->code == ERR_GONE ? -1 : 0; /* our own trouble: the next keeper adopts them */
    log_info("adopted", KV("sandbox", r.id), KVI("pid", r.pid));
    if (old)
        write_anew(k, id);
    return 0;
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
    while (d && !r && (errno = 0, e = readdir(d)))
        if (adopt_is_name(e->d_name))
            r = adopt_consider(k, e->d_name, err);
    if (d && !r && errno) /* those that we have not seen would be taken for ended */
        r = err_sys(err, "read the records of sandboxes");
    if (d)
        closedir(d);
    return r ? r : pause_adopt_all(k, err);
}
