/* reaper.c - deletes layers, which may take a quarter of a second each, and makes the volume grow
 * before it is full: a child that lives as long as the keeper, and finishes its work after it.
 *
 * It also looks for what keepers that were killed left behind: layers and cgroups of private
 * sandboxes. A layer in use is locked by its keeper; one that nobody locks is nobody's.
 *
 * A private keeper starts it only when its sandbox lives longer than a moment: until then nothing
 * can be full, and at the end nobody is kept waiting by a keeper that deletes one layer itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "keep/box_parts.h"
#include "keep/rundir.h"

enum {
    LOOK_MS = 100,  /* how often the volume's room is looked at, ... */
    SOON_MS = 10,   /* ... and while it is written */
    AHEAD_MS = 500, /* growing may take so long */
    QUIET_MS = 60000,
    GRACE_S = 10,
    SWEEP_MS = 60000,
    AGAIN_MS = 1000,
    IDLE_MS = 100, /* a sweep slows down creates and ends: it waits for a pause of this length */
    QUEUE = 256,
    LOCK_TRIES = 25,
    LOCK_WAIT_US = 20000,
};

static bool layer_is_alive(const char *name, void *arg)
{
    struct volume *v = arg;
    struct err err;
    struct stat st;
    bool alive;
    int fd;

    if (strncmp(name, "run-", 4))
        return true; /* of sandboxes that outlive keepers: their records say who owns them */
    fd = layer_open(v, name, &err);
    if (fd < 0)
        return true;
    /* its keeper locks it right after making it: give it that moment */
    alive = fstat(fd, &st) || st.st_ctime + GRACE_S > time(NULL) || flock(fd, LOCK_EX | LOCK_NB);
    close(fd);
    return alive;
}

/* Its time says when somebody swept this volume last: where all sandboxes live but a moment, each
 * leaves a quota group that the kernel was not done with. */
static int open_stamp(const struct keeper *k)
{
    AUTO(freep) char *path = NULL;

    if (asprintf(&path, "%s/volume.swept", k->o.data_dir) < 0)
        abort();
    return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool is_due(const struct keeper *k)
{
    AUTO(closep) int fd = open_stamp(k);
    struct stat st;

    return fd >= 0 && !fstat(fd, &st) && st.st_mtime + SWEEP_MS / 1000 < time(NULL);
}

/* Returns in how many ms to look again: soon, while the kernel is still at it. */
static int64_t sweep(const struct keeper *k)
{
    AUTO(closep) int stamp = open_stamp(k);
    struct err err;
    int left;

    if (stamp >= 0 && futimens(stamp, NULL))
        log_debug("cannot mark the volume as swept", KV("error", strerrordesc_np(errno)));
    cgroups_sweep(&k->cgroups, "run-", GRACE_S, true);
    cgroups_sweep(&k->cgroups, "box-", GRACE_S, true); /* one that lives has a process in it */
    ids_sweep(&k->ids);
    source_sweep(k);
    if (k->o.socket >= 0 && !k->o.rootless)
        box_sweep_sockets(k);
    left = volume_sweep(k->volume, layer_is_alive, k->volume, &err);
    if (left < 0)
        log_warn("cannot sweep the volume", KV("error", err.msg));
    return left > 0 ? AGAIN_MS : SWEEP_MS;
}

/* Whose keeper has just closed it may be held for a moment by a child that it shares it with. */
static bool lock(int layer)
{
    for (int i = 0; flock(layer, LOCK_EX | LOCK_NB); i++) {
        if (i == LOCK_TRIES)
            return false;
        usleep(LOCK_WAIT_US);
    }
    return true;
}

/* A name may be asked for twice, by a keeper that was killed and by the next, and be a new
 * sandbox's by the time of the second: a layer goes if it says that its sandbox has ended, or,
 * where it cannot say that, if nobody uses it. layer: open while it is deleted, so that nobody can.
 */
static bool may_delete(const struct keeper *k, const char *name, int *layer)
{
    struct err err;

    if (strncmp(name, "box-", 4) != 0)
        return true;
    *layer = layer_open(k->volume, name, &err);
    if (*layer < 0 && err.code == ERR_NOT_FOUND)
        return false;
    if (*layer >= 0 && (keep_layer_ended(*layer) || lock(*layer)))
        return true;
    log_error("a layer is not deleted", KV("layer", name),
              KV("error", *layer < 0 ? err.msg : "it does not say that it has ended, and is used"));
    return false;
}

static void delete_one(const struct keeper *k, const char *name)
{
    AUTO(closep) int layer = -1;
    struct err err;

    if (may_delete(k, name, &layer) && layer_delete(k->volume, name, &err))
        log_error("cannot delete a layer", KV("layer", name), KV("error", err.msg));
}

/* ---- the volume's room ---- */

struct filling {
    int64_t room, at; /* how much there was, and when */
    int64_t next;     /* look */
    int64_t quiet_until;
    bool deleted; /* something was, since the last look */
};

/* Whoever writes fast must not meet the end before it has been moved. */
static int64_t written_ahead(struct filling *f, int64_t room, int64_t now)
{
    int64_t written = f->at && room < f->room ? f->room - room : 0;
    int64_t ahead = written * AHEAD_MS / MAX(now - f->at, (int64_t)1);

    f->room = room;
    f->at = now;
    f->next = now + (written ? SOON_MS : LOOK_MS);
    return MIN(ahead, volume_options.step_bytes);
}

/* Whoever waits for room on a full volume gets that of what was deleted at once, instead of half a
 * minute later. */
static void grow(const struct keeper *k, struct filling *f)
{
    int64_t now = clock_ms(), ahead = written_ahead(f, volume_room(k->volume), now);
    bool deleted = TAKE(f->deleted, false);
    struct err err;
    int r;

    if (now < f->quiet_until) {
        if (deleted && volume_reclaim(k->volume, &err))
            log_warn("deleted layers still take room", KV("error", err.msg));
        return;
    }
    while ((r = volume_grow_if_low(k->volume, ahead, &err)) > 0)
        f->at = 0;
    if (r < 0 && f->room < volume_options.low_bytes) {
        log_warn("the volume is nearly full and cannot grow", KV("error", err.msg));
        f->quiet_until = now + QUIET_MS;
    }
}

static void let_go_slot(const struct slot *s)
{
    closep(&s->net.ns);
    closep(&s->ids.lock);
}

/* A layer's space, mounts, a network namespace, a number and a generation are free when the last
 * descriptor is closed; one of ours must not be that: the next keeper would find them taken. */
void keeper_let_go(struct keeper *k)
{
    const struct box *b;
    const struct slot *s;

    list_each(b, &k->boxes, all) {
        closep(&b->layer);
        closep(&b->ended.fd);
        closep(&b->report.fd);
        closep(&b->memory.fd);
        if (b->slot)
            let_go_slot(b->slot);
        if (b->generation && b->generation != k->generation)
            closep(&b->generation->host.lock); /* more than once, for some: harmless */
    }
    for (enum order_network n = 0; n < ORDER_NETWORKS; n++)
        list_each(s, &k->stock[n], all)
            let_go_slot(s);
    list_each(s, &k->asked, all)
        let_go_slot(s);
    closep(&k->generation->host.lock);
    closep(&k->lock); /* the next keeper does not wait for what we do */
    takeover_end(k);
}

/* ---- the process ---- */

struct queue {
    char names[QUEUE][KEEP_NAME_ROOM];
    size_t first, n;
    bool may_sweep;
};

#define MAY_SWEEP "!" /* no layer's name */

static bool is_queued(const struct queue *q, const char *name)
{
    for (size_t i = 0; i < q->n; i++)
        if (!strcmp(q->names[(q->first + i) % QUEUE], name))
            return true;
    return false;
}

/* Takes one name, and takes down the mounts that came with it at once: memory that a sandbox left
 * in /dev/shm goes with them, and must not wait for other layers. False at the end of the keeper.
 */
static bool hear(int sock, struct queue *q)
{
    char *name = q->names[(q->first + q->n) % QUEUE];
    int mounts = -1;
    size_t nfds = 1;
    ssize_t n = fdpass_recv(sock, name, KEEP_NAME_ROOM - 1, &mounts, &nfds, 0);

    if (n <= 0)
        return n < 0 && errno == EINTR;
    name[n] = 0;
    if (!strcmp(name, MAY_SWEEP)) {
        q->may_sweep = true;
        return true;
    }
    if (!is_queued(q, name)) /* its first turn deletes it; by the second it may be another's */
        q->n++;
    if (nfds)
        close(mounts);
    return true;
}

/* Until when there is nothing to do. */
static int wait_ms(const struct queue *q, const struct filling *f)
{
    return q->n ? 0 : (int)MAX(f->next - clock_ms(), (int64_t)0);
}

/* A due sweep waits until no names come. One that is overdue by SWEEP_MS does not wait. */
static bool sweep_now(const struct queue *q, int64_t due, int64_t heard)
{
    int64_t now = clock_ms();

    return !q->n && q->may_sweep && now >= due && (now >= heard + IDLE_MS || now >= due + SWEEP_MS);
}

static void delete_first(const struct keeper *k, struct queue *q)
{
    delete_one(k, q->names[q->first]);
    q->first = (q->first + 1) % QUEUE;
    q->n--;
}

static _Noreturn void run(const struct keeper *k, int sock)
{
    static struct queue q;
    struct pollfd p = { .fd = sock, .events = POLLIN };
    struct filling filling = { 0 };
    int64_t next_sweep = clock_ms(), heard = next_sweep;
    bool more = true;

    q.may_sweep = k->adopted;
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_NAME, "cove-reaper");
    while (more || q.n) {
        if (more && q.n < QUEUE && poll(&p, 1, wait_ms(&q, &filling)) > 0) {
            more = hear(sock, &q);
            heard = clock_ms();
        } else if (q.n) {
            delete_first(k, &q);
            filling.deleted = true;
        }
        if (clock_ms() >= filling.next)
            grow(k, &filling);
        if (sweep_now(&q, next_sweep, heard))
            next_sweep = clock_ms() + sweep(k);
    }
    _exit(0); /* the keeper has closed it or is dead; all that was sent has been done */
}

int reaper_start(struct keeper *k, struct err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return err_sys(err, "socketpair");
    k->reaper.pid = fork();
    if (!k->reaper.pid) {
        close(pair[0]);
        keeper_forked(k);
        keeper_let_go(k);
        run(k, pair[1]);
    }
    close(pair[1]);
    k->reaper.sock = pair[0];
    if (k->reaper.pid < 0) {
        close(k->reaper.sock);
        k->reaper.sock = -1;
        return err_sys(err, "start the reaper");
    }
    return 0;
}

void reaper_may_sweep(struct keeper *k)
{
    k->adopted = true;
    if (k->reaper.sock >= 0 &&
        fdpass_send(k->reaper.sock, MAY_SWEEP, strlen(MAY_SWEEP), NULL, 0, MSG_DONTWAIT) < 0)
        log_warn("nothing is swept", KV("error", strerrordesc_np(errno)));
}

static void start_again(struct keeper *k)
{
    struct err err;

    close(TAKE(k->reaper.sock, -1));
    waitpid(k->reaper.pid, NULL, 0);
    if (reaper_start(k, &err))
        log_error("no reaper", KV("error", err.msg));
}

bool reaper_hand_over(struct keeper *k, const char *layer, int mounts, bool patient)
{
    size_t n = strlen(layer), nfds = mounts < 0 ? 0 : 1;
    int flags = patient ? 0 : MSG_DONTWAIT;

    for (int tries = 0; tries < 2 && k->reaper.sock >= 0; tries++) {
        if (fdpass_send(k->reaper.sock, layer, n, &mounts, nfds, flags) > 0 ||
            (nfds && errno == ETOOMANYREFS &&
             fdpass_send(k->reaper.sock, layer, n, NULL, 0, flags) > 0))
            return true;
        if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
            return false;
        start_again(k); /* it has died */
    }
    if (k->o.socket < 0 && !patient)
        return false; /* a shared one starts it again soon */
    delete_one(k, layer);
    return true;
}

/* Did somebody leave something? One look into a directory, unless so. */
static bool leftovers(const struct keeper *k)
{
    AUTO(freep) char *path = NULL;
    const struct dirent *e;
    bool found = false;
    DIR *d;

    if (asprintf(&path, "%s/volume/layers", k->o.data_dir) < 0)
        abort();
    d = opendir(path);
    while (d && !found && (e = readdir(d)))
        found = !strncmp(e->d_name, "run-", 4) && !layer_is_alive(e->d_name, k->volume);
    if (d)
        closedir(d);
    return found;
}

void reaper_finish(struct keeper *k)
{
    if (k->reaper.sock >= 0) {
        close(TAKE(k->reaper.sock, -1));
        waitpid(k->reaper.pid, NULL, 0);
    } else if (k->volume && k->o.socket >= 0 &&
               (is_due(k) || leftovers(k) || cgroups_sweep(&k->cgroups, "run-", GRACE_S, false)))
        sweep(k);
}
