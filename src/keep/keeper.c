/* keeper.c - the keeper's start, its loop, its clients, its end.
 *
 * Order of the start: what other processes share (volume, template host) is made in the host's
 * mount namespace; then a mount namespace of our own, and everything is opened anew in it, because
 * descriptors from before belong to the old one and cannot be cloned into a sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fdpass.h"
#include "jail/oom.h"
#include "keep/rundir.h"
#include "keep/statedir.h"
#include "keep/wire.h"
#include "keep/zygote_blob.h"

enum { FREEZING_MS = 1, TICK_MS = 500, FIRST_TICK_MS = 100, MEASURED = 16, ANSWER_BYTES = 4 << 20 };

struct keep_limits keep_limits = { 4, 10000, 5000, 60000 };

const struct setting keep_settings[] = {
    { "keep.stock", &keep_limits.stock, 0, 256, "network namespaces held ready" },
    { "keep.boxes", &keep_limits.boxes, 1, 40000, "sandboxes at the same time" },
    { "keep.mount-ms", &keep_limits.mount_ms, 10, 600000,
      "ms within which the host directories of a sandbox have to be open" },
    { "keep.look-ms", &keep_limits.look_ms, 100, 1 << 30,
      "ms between two looks whether all of /usr is as template host knows it" },
    { 0 },
};

/* ---- clients ---- */

static void forget_client(struct client *c)
{
    struct keeper *k = c->keeper;
    struct box *b;

    list_each(b, &k->boxes, all) {
        if (b->create.client == c)
            b->create.client = NULL;
        if (b->end.client == c)
            b->end.client = NULL;
        if (b->freeze.client == c) /* it becomes paused all the same */
            b->freeze.client = NULL;
        if (b->owner == c)
            b->owner = NULL;
    }
    jobs_forget(k, c);
    loop_remove(&k->loop, &c->source);
    close(c->source.fd);
    list_remove(&c->all);
}

static void end_owned(struct client *c, enum keep_reason reason)
{
    struct keeper *k = c->keeper;
    struct list *at, *next;

    /* ending one may free it, and only it */
    for (at = k->boxes.next; at != &k->boxes; at = next) {
        struct box *b = CONTAINER_OF(at, struct box, all);

        next = at->next;
        if (b->owner == c && (b->order.flags & ORDER_TIED || k->o.socket >= 0))
            box_end(b, reason);
    }
}

/* The one client of a private keeper wants no more; it may still listen for how things end. What we
 * need no longer ends meanwhile. */
static void last_client_left(struct client *c)
{
    struct keeper *k = c->keeper;

    k->stopping = true;
    loop_remove(&k->loop, &c->source);
    end_owned(c, ENDED_BY_REQUEST);
    zygote_close(&k->zygote);
}

static void client_left(struct client *c)
{
    if (c->keeper->o.socket >= 0) {
        last_client_left(c);
        return;
    }
    end_owned(c, ENDED_LEFT);
    forget_client(c);
    free(c);
}

/* A child that held the other end of a connection would hide our death from whoever waits there, a
 * sandbox that is being built among them, and one that held a mount namespace what is mounted in
 * it. */
void keeper_forked(struct keeper *k)
{
    const struct client *c;
    const struct box *b;

    list_each(c, &k->clients, all)
        close(c->source.fd);
    list_each(b, &k->boxes, all) {
        closep(&b->mounts);
        closep(&b->jail.sock);
        opening_forked(b);
    }
    late_forked(k);
    if (k->o.socket >= 0 && list_empty(&k->clients))
        close(k->o.socket);
    if (k->listener.fd >= 0)
        close(k->listener.fd);
    if (k->net_ready.fd >= 0)
        close(k->net_ready.fd);
    if (k->zygote.sock >= 0)
        close(k->zygote.sock);
    close(k->loop.epoll);
}

/* What it still asks for nobody waits for: whoever comes in its place is told by its records what
 * was begun, and has looked at the sandboxes by the time that we would come to do it. */
static bool has_gone(int fd)
{
    struct pollfd p = { .fd = fd };

    return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

static void on_client(struct source *s)
{
    static char bytes[WIRE_MAX];
    static struct buf unknown;
    struct client *c = CONTAINER_OF(s, struct client, source);
    struct keep_request r;
    struct pending p = { .client = c };
    struct err err = { 0 };
    size_t nfds = 0;
    ssize_t n = fdpass_recv(s->fd, bytes, sizeof(bytes), NULL, &nfds, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 && errno == EPROTO) {
        err_set(&err, ERR_INVALID, "a record of more than %d bytes, or with descriptors", WIRE_MAX);
        keeper_reply(&p, "", &err, NULL);
        return;
    }
    if (n <= 0 || (c->keeper->o.socket < 0 && has_gone(s->fd))) {
        client_left(c);
        return;
    }
    unknown.len = 0;
    if (!wire_read_request((struct str){ bytes, (size_t)n }, &r, &c->version, &unknown, &err)) {
        verbs_dispatch(c, &r);
        return;
    }
    p.serial = r.serial;
    keeper_reply(&p, "", &err, NULL);
}

static int add_client(struct keeper *k, int fd, pid_t pid, struct err *err)
{
    struct client *c = xcalloc(1, sizeof(*c));

    *c = (struct client){
        .source = { fd, on_client }, .keeper = k, .version = KEEP_VERSION_OLDEST, .pid = pid
    };
    list_push(&k->clients, &c->all);
    if (!loop_add(&k->loop, &c->source, EPOLLIN, err))
        return 0;
    list_remove(&c->all);
    free(c);
    return -1;
}

static void on_connection(struct source *s)
{
    struct keeper *k = CONTAINER_OF(s, struct keeper, listener);
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t n = sizeof(peer);
    struct err err;

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) ||
        (peer.uid != 0 && peer.uid != geteuid() && peer.uid != k->o.client_uid)) {
        log_warn("a stranger was turned away", KVI("uid", peer.uid), KVI("pid", peer.pid));
        close(fd);
        return;
    }
    /* the default holds some forty answers: a client may ask for more than that at once */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &(int){ ANSWER_BYTES }, sizeof(int)))
        log_debug("answers may be few", KV("error", strerrordesc_np(errno)));
    if (add_client(k, fd, peer.pid, &err))
        close(fd);
}

static void on_signal(struct source *s)
{
    struct keeper *k = CONTAINER_OF(s, struct keeper, signals);
    struct signalfd_siginfo info;

    while (read(s->fd, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            k->stopping = true;
}

/* Nobody writes to it: readable means that whom we work for is gone. */
static void on_lifeline(struct source *s)
{
    struct keeper *k = CONTAINER_OF(s, struct keeper, lifeline);

    loop_remove(&k->loop, s);
    k->stopping = true;
}

/* ---- starting ---- */

/* The first time on a machine takes a second or two: say so. */
static void tell_of_first_use(const struct keeper *k)
{
    AUTO(freep) char *volume = NULL;

    if (asprintf(&volume, "%s/volume", k->o.data_dir) < 0)
        abort();
    if (k->o.progress && access(volume, F_OK))
        k->o.progress("making the volume for layers and template host in", k->o.data_dir);
}

/* What survives us, in the host's own mount namespace. Slow the first time on a machine. */
static int prepare_machine(struct keeper *k, struct err *err)
{
    AUTO(volume_closep) struct volume *v = NULL;
    char dir[sizeof(KEEP_RUN_DIR "/ids")];

    if (keep_make_dirs(k->o.data_dir, 0700, err))
        return -1;
    snprintf(dir, sizeof(dir), "%s/ids", KEEP_RUN_DIR);
    if (!k->o.rootless && (keep_make_dirs(KEEP_RUN_DIR, 0755, err) || ids_open(&k->ids, dir, err)))
        return -1;
    if (held_check_volume(k->o.data_dir, false, err))
        return -1;
    tell_of_first_use(k);
    return volume_open(k->o.data_dir, &v, err) ||
                   (k->o.socket < 0 && held_check_volume(k->o.data_dir, true, err))
               ? -1
               : 0;
}

static int start_zygote(struct keeper *k, struct err *err)
{
    unsigned flags = k->o.rootless ? 0 : ZYGOTE_OWN_ROOT | (k->single ? ZYGOTE_OWN_NETWORK : 0);

    return zygote_start(&k->zygote, zygote_blob, zygote_blob_size, flags, err);
}

/* One that has died is replaced, once. */
int keeper_begin(struct keeper *k, const struct jail_spec *s, struct jail *out, struct err *err)
{
    if (!jail_begin(s, &k->zygote, out, err))
        return 0;
    if (err->code != ERR_GONE)
        return -1;
    log_warn("the zygote has died");
    zygote_stop(&k->zygote);
    return start_zygote(k, err) ? -1 : jail_begin(s, &k->zygote, out, err);
}

static int watch_signals(struct keeper *k, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    k->signals = (struct source){ signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), on_signal };
    return k->signals.fd < 0 ? err_sys(err, "signalfd")
                             : loop_add(&k->loop, &k->signals, EPOLLIN, err);
}

static void init(struct keeper *k, const struct keep_options *o)
{
    *k = (struct keeper){ .o = *o,
                          .lock = -1,
                          .old_lock = -1,
                          .old_dir = -1,
                          .old_boxes = -1,
                          .zygote.sock = -1,
                          .sockets = -1,
                          .records = -1,
                          .notes = -1 };
    k->listener.fd = k->signals.fd = k->net_ready.fd = k->reaper.sock = k->ids.dir = -1;
    k->lifeline = (struct source){ o->lifeline ? o->lifeline : -1, on_lifeline };
    k->outside = k->place_dir = -1;
    list_init(&k->clients);
    list_init(&k->boxes);
    list_init(&k->jobs);
    list_init(&k->late);
    list_init(&k->openings);
    list_init(&k->asked);
    list_init(&k->waiting);
    for (enum order_network n = 0; n < ORDER_NETWORKS; n++)
        list_init(&k->stock[n]);
    k->single = k->home_free =
        o->socket >= 0 && !o->rootless && !o->ahead && o->likely == ORDER_NET_NONE;
    k->wanted[o->likely] = o->socket < 0 ? (size_t)keep_limits.stock : o->ahead;
}

/* Half a dozen descriptors belong to each sandbox. */
static void raise_open_files(void)
{
    struct rlimit l;

    if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
}

static void hurry_cgroups(const struct keeper *k)
{
    if (!k->o.rootless && (k->o.socket < 0 || k->o.ahead))
        cgroups_favor_moves(&k->cgroups, KEEP_RUN_DIR "/g");
}

static int open_place(struct keeper *k, struct err *err)
{
    k->listener.ready = on_connection;
    return rundir_open(k, err) || rundir_listen(k, &k->listener, err)
               ? -1
               : loop_add(&k->loop, &k->listener, EPOLLIN, err);
}

static int start(struct keeper *k, struct err *err)
{
    char boot[BOOT_ID];

    raise_open_files();
    if (!adopt_boot(boot)) /* without it every living sandbox would be one of a former boot */
        return err_sys(err, "read /proc/sys/kernel/random/boot_id");
    if (start_zygote(k, err) || loop_open(&k->loop, err) || watch_signals(k, err) ||
        (k->lifeline.fd >= 0 && loop_add(&k->loop, &k->lifeline, EPOLLIN, err)) ||
        prepare_machine(k, err) || slots_start(k, err))
        return -1;
    /* in the background from here on, while we do the rest */
    if (k->o.socket >= 0 && !k->o.rootless)
        slots_ahead(k, 1);
    if (k->o.socket < 0 && open_place(k, err))
        return -1;
    if ((k->o.rootless ? mounts_rootless(k, err) : mounts_own(k, err)) ||
        cgroups_open(&k->cgroups, err))
        return -1;
    hurry_cgroups(k);
    if (volume_open(k->o.data_dir, &k->volume, err) || source_start(k, err) ||
        (k->o.socket < 0 && reaper_start(k, err)) || note_open(k, err))
        return -1;
    if ((k->o.socket < 0 && takeover_all(k, err)) || adopt_all(k, err))
        return -1;
    reaper_may_sweep(k);
    if (!k->o.rootless)
        slots_ahead(k, k->wanted[k->o.likely]);
    return k->o.socket >= 0 ? add_client(k, k->o.socket, 0, err) : 0;
}

void keeper_unlink(int dir, const char *name)
{
    if (!unlinkat(dir, name, 0) || errno == ENOENT || !unlinkat(dir, name, 0))
        return;
    log_warn("a file of an ended sandbox stays until the next start", KV("file", name),
             KV("error", strerrordesc_np(errno)));
}

/* ---- running ---- */

/* One that cannot be reached ends at its time, if that is known. */
static bool has_time(const struct box *b)
{
    return b->phase == PHASE_RUNNING || (b->phase == PHASE_UNREAD && b->known);
}

static int64_t next_deadline(struct keeper *k)
{
    int64_t next = k->nboxes ? k->next_tick : NEVER;
    const struct box *b;

    list_each(b, &k->boxes, all) {
        next = MIN(next, has_time(b) ? b->deadline : NEVER);
        next = MIN(next, sockets_due(k, b));
    }
    next = MIN(next, openings_due(k));
    return MIN(next, late_due(k, clock_ms()));
}

static void tick(struct keeper *k)
{
    int64_t now = clock_ms();
    struct keep_state ignored;
    struct err err;
    struct box *b;

    list_each(b, &k->boxes, all)
        if (has_time(b) && b->deadline <= now) {
            keeper_event_limit(b, LIMIT_LIFETIME, b->order.limits.lifetime_ms,
                               b->order.limits.lifetime_ms + (uint64_t)(now - b->deadline));
            box_end(b, ENDED_LIFETIME);
        }
    if (now < k->next_tick)
        return;
    k->next_tick = now + TICK_MS;
    if (k->reaper.sock < 0 && reaper_start(k, &err))
        log_error("no reaper", KV("error", err.msg));
    for (int n = 0; n < MEASURED && !list_empty(&k->boxes); n++) { /* all of them, by turns */
        b = CONTAINER_OF(k->boxes.next, struct box, all);
        list_remove(&b->all);
        list_push(&k->boxes, &b->all);
        if (b->phase == PHASE_RUNNING)
            tie_tick(b);
        if (b->phase == PHASE_RUNNING && b->owner)
            box_measure(b, &ignored);
        else if (b->phase == PHASE_ENDING)
            box_end_again(b);
        else if (b->phase == PHASE_UNREAD)
            unread_tick(b);
    }
}

static void serve(struct keeper *k)
{
    struct err err;

    k->next_tick = clock_ms() + FIRST_TICK_MS;
    sockets_start(k);
    /* a private keeper stays until its last sandbox is gone; a shared one leaves them running */
    while (!k->loop.stop && !(k->stopping && (k->o.socket < 0 || !k->nboxes))) {
        int64_t next = next_deadline(k), now = clock_ms();
        int64_t left = MAX(next - now, 0);
        int wait = k->freezing ? FREEZING_MS : next == NEVER ? -1 : (int)MIN(left, 60000);

        if (loop_turn(&k->loop, wait, &err)) {
            log_error("keeper", KV("error", err.msg));
            return;
        }
        freeze_tick(k);
        late_tick(k);
        openings_tick(k);
        sockets_tick(k);
        tick(k);
    }
}

/* Children are told first and waited for last: they end while we tidy up. */
static void finish(struct keeper *k)
{
    struct client *c;

    if (k->listener.fd >= 0) /* while the lock is ours */
        unlinkat(k->place_dir, "keep.sock", 0);
    zygote_close(&k->zygote);
    openings_finish(k);
    jobs_finish(k);
    slots_finish(k);
    late_finish(k);
    reaper_finish(k);
    source_finish(k);
    volume_close(k->volume);
    if (k->o.rootless)
        rmdir(k->stage);
    cgroups_close(&k->cgroups);
    ids_close(&k->ids);
    zygote_stop(&k->zygote);
    slots_wait(k);
    list_each(c, &k->clients, all) {
        forget_client(c);
        free(c);
    }
    loop_close(&k->loop);
    takeover_end(k);
    closep(&k->place_dir);
    freep(&k->place);
}

/* What a machine cannot hold sandboxes to is said once, before the first one. */
static void tell(const struct keeper *k)
{
    AUTO(buf_free) struct buf names = { 0 };
    uint32_t bits = box_unenforced(k);

    for (enum limit_id i = 0; i < LIMIT_COUNT; i++)
        if (bits & 1u << i)
            buf_printf(&names, "%s%s", names.len ? "," : "", limit_rows[i].name);
    log_info("keeping", KV("data", k->o.data_dir), KV("run", k->place),
             KV("volume", volume_describe(k->volume)));
    if (bits)
        log_warn("limits that are not enforced here (cove doctor says why)",
                 KV("limits", buf_cstr(&names)));
    if (k->o.rootless)
        log_warn("without root sandboxes have no network but their own");
}

/* Those that sleep need no volume until they are woken. */
static bool all_asleep(struct keeper *k)
{
    struct box *b;

    list_each(b, &k->boxes, all) {
        if (b->phase != PHASE_ASLEEP &&
            !(b->phase == PHASE_UNREAD && b->unread_kind == BOXFILE_NOTE))
            return false;
        close(TAKE(b->layer, -1));
    }
    return true;
}

int keep_run(const struct keep_options *o, struct err *err)
{
    static struct keeper k;
    int r;

    init(&k, o);
    prctl(PR_SET_NAME, "cove-keep");
    if (o->socket < 0)
        oom_protect();
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    if (keep_schema_check(o->data_dir, o->socket < 0 ? o->run_dir : NULL, err) ||
        (o->socket < 0 && rundir_take(&k, err)))
        return -1;
    r = start(&k, err);
    if (!r) {
        if (o->socket < 0)
            tell(&k);
        serve(&k);
    }
    finish(&k);
    if (!r && o->socket < 0 && all_asleep(&k))
        mounts_leave(&k);
    return r;
}
