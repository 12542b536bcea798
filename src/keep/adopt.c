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

enum {
    RECORD_WALL = 0x626f7831, /* of the first release: its deadline is wall time */
    RECORD_MAGIC = 0x626f7832,
    END_MS = 2000,
};
enum { FROZEN = 1, FRESH = 2 }; /* how it is */

struct record {
    uint32_t magic, size;
    char id[KEEP_ID], name[KEEP_NAME_ROOM], boot[BOOT_ID], fingerprint[HOST_FINGERPRINT];
    struct keep_create spec;
    uint32_t family, number;
    int32_t pid; /* 0: it was being built */
    uint32_t is;
    uint64_t started; /* of pid 1, in clock ticks since boot */
    /* by the monotonic clock, which is one for all processes between two boots: setting the
     * machine's clock while no keeper runs ends nothing */
    int64_t deadline_ms;
    uint64_t oom_kills, pids_refused;
};

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

static int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- writing ---- */

int adopt_record(struct box *b, struct err *err)
{
    const struct keeper *k = b->keeper;
    AUTO(closep) int fd = -1;
    char note[512];
    struct record r;

    if (k->records < 0)
        return 0;
    if (b->jail.pid > 0 && !b->started)
        b->started = start_time(b->jail.pid);
    r = (struct record){
        .magic = RECORD_MAGIC,
        .size = sizeof(r),
        .spec = b->spec,
        .family = b->family,
        .number = b->slot ? b->slot->ids.number : 0,
        .pid = b->jail.pid,
        .is = (b->frozen ? FROZEN : 0) | (b->fresh ? FRESH : 0),
        .started = b->started,
        .deadline_ms = b->deadline,
        .oom_kills = b->oom_kills,
        .pids_refused = b->pids_refused,
    };
    memcpy(r.id, b->id, sizeof(r.id));
    memcpy(r.name, b->name, sizeof(r.name));
    if (b->generation)
        memcpy(r.fingerprint, b->generation->host.fingerprint, sizeof(r.fingerprint));
    adopt_boot(r.boot);
    fd = openat(k->records, b->id, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || pwrite(fd, &r, sizeof(r), 0) != sizeof(r))
        return err_sys(err, "write the record of sandbox %s", b->id);
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

static int read_record(const struct keeper *k, const char *id, struct record *r)
{
    AUTO(closep) int fd = openat(k->records, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || read(fd, r, sizeof(*r)) != sizeof(*r) ||
        (r->magic != RECORD_MAGIC && r->magic != RECORD_WALL) || r->size != sizeof(*r) ||
        strncmp(r->id, id, sizeof(r->id)) || !record_id_valid(r->id) ||
        !memchr(r->name, 0, sizeof(r->name)) || !layer_name_ok(r->name) ||
        !memchr(r->fingerprint, 0, sizeof(r->fingerprint)))
        return -1;
    if (r->magic == RECORD_WALL && r->deadline_ms != INT64_MAX)
        r->deadline_ms += clock_ms() - wall_ms();
    return 0;
}

static int open_if_alive(const struct record *r)
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

static int take_slot(struct box *b, const struct record *r, struct err *err)
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
                          r->spec.network == KEEP_NET_OPEN ? NET_OPEN : NET_NONE, r->number,
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

static int adopt_one(struct keeper *k, const struct record *r, int pidfd, struct err *err)
{
    struct box *b = box_new(k, r->id);
    struct note note;
    bool noted = !note_read(k, r->id, &note);
    int half_woken;

    memcpy(b->name, r->name, sizeof(b->name));
    b->spec = r->spec;
    b->family = r->family;
    b->started = r->started;
    b->fresh = r->is & FRESH;
    b->oom_kills = r->oom_kills;
    b->pids_refused = r->pids_refused;
    b->jail = (struct jail){ .pid = r->pid, .pidfd = pidfd, .sock = -1, .net = -1 };
    b->cgroup_made = b->socket_made = true;
    b->phase = PHASE_RUNNING;
    b->deadline = r->deadline_ms;
    half_woken = pause_adopt(b, noted ? &note : NULL);
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
    if (b->spec.flags & KEEP_TIED)
        box_end(b, ENDED_LEFT); /* its client was the last keeper's */
    return 0;
}

/* One that is to be started again died while no keeper ran: pause_adopt_all() finds its note. */
static void keep_files(struct keeper *k, const struct record *r)
{
    struct box b = {
        .keeper = k, .spec = r->spec, .family = r->family, .jail.pid = r->pid, .started = r->started
    };
    struct err err = { 0 };

    memcpy(b.id, r->id, sizeof(b.id));
    memcpy(b.name, r->name, sizeof(b.name));
    if (note_write(&b, false, &err))
        log_warn("its files are not kept", KV("sandbox", b.id), KV("error", err.msg));
}

/* What is left of one that does not live any more. */
static void take_away(struct keeper *k, const struct record *r)
{
    struct ids_claim claim;
    struct err err;
    int layer;

    if (k->cgroups.unified >= 0)
        cgroup_write(k->cgroups.unified, r->name, "cgroup.kill", "1");
    cgroup_remove(&k->cgroups, r->name);
    if (r->spec.flags & KEEP_STAY && !note_exists(k, r->id))
        keep_files(k, r);
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

/* Its keeper died while it wrote it first (a kill ends a write between two pages): there is nothing
 * yet that it could describe. */
static bool is_cut_short(const struct keeper *k, const char *id)
{
    AUTO(closep) int fd = openat(k->records, id, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint32_t head[2]; /* magic, size */
    struct stat st;

    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return false;
    return !st.st_size || (read(fd, head, sizeof(head)) == sizeof(head) &&
                           head[0] == RECORD_MAGIC && st.st_size < (off_t)head[1]);
}

/* -1: we cannot go on. */
static int consider(struct keeper *k, const char *id, struct err *err)
{
    struct record r;
    int pidfd;

    err->code = ERR_NONE;
    if (read_record(k, id, &r)) {
        if (is_cut_short(k, id))
            unlinkat(k->records, id, 0);
        else
            log_warn("a record that is not ours is left alone", KV("record", id));
        return 0;
    }
    pidfd = open_if_alive(&r);
    if (pidfd < 0) {
        log_info("sandbox ended while no keeper ran", KV("sandbox", r.id));
        take_away(k, &r);
    } else if (adopt_one(k, &r, pidfd, err))
        log_error("cannot adopt a sandbox", KV("sandbox", r.id), KV("error", err->msg));
    else
        log_info("adopted", KV("sandbox", r.id), KVI("pid", r.pid));
    return err->code == ERR_GONE ? -1 : 0;
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
        if (*e->d_name != '.')
            r = consider(k, e->d_name, err);
    if (d)
        closedir(d);
    return r ? r : pause_adopt_all(k, err);
}
