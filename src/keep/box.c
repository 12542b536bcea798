/* box.c - one sandbox, from the request until it runs.
 *
 * A sandbox waits for a network namespace (usually one is ready), is built, runs, ends. Whatever
 * stage it is in, box_free() (box_end.c) gives back what it holds by then, so every failure is
 * undone whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"

struct box *box_find(struct keeper *k, const char *id)
{
    struct box *b;

    list_each(b, &k->boxes, all)
        if (!strcmp(b->id, id))
            return b;
    return NULL;
}

static uint32_t random_family(void)
{
    uint32_t f = 0;

    while (!f)
        if (getrandom(&f, sizeof(f), 0) != sizeof(f))
            f = (uint32_t)clock_us();
    return f;
}

void box_name(const struct keeper *k, const char *id, char out[static KEEP_NAME_ROOM])
{
    /* the prefix tells who may sweep it: private ones are nobody's when nobody holds their lock */
    snprintf(out, KEEP_NAME_ROOM, "%s-%s", k->o.socket < 0 ? "box" : "run", id);
}

struct box *box_new(struct keeper *k, const char *id)
{
    struct box *b = xcalloc(1, sizeof(*b));

    b->keeper = k;
    snprintf(b->id, sizeof(b->id), "%s", id);
    box_name(k, id, b->name);
    b->family = random_family();
    b->layer = b->mounts = b->jail.pidfd = b->jail.sock = b->jail.net = b->ended.fd = b->report.fd =
        b->memory.fd = b->client.fd = -1;
    b->template.root = -1;
    b->deadline = NEVER;
    list_init(&b->waiting);
    list_push(&k->boxes, &b->all);
    k->nboxes++;
    return b;
}

/* ---- building ---- */

static int make_layer(struct box *b, struct err *err)
{
    struct volume *v = b->keeper->volume;
    char from[KEEP_NAME_ROOM];
    AUTO(closep) int source = -1;

    if (b->layer >= 0) /* it slept */
        return 0;
    if (b->create.verb == KEEP_RESTORE) {
        snprintf(from, sizeof(from), "snap-%s", b->order.snapshot);
        source = layer_open(v, from, err);
        if (source < 0)
            return err_in(err, "snapshot %s", b->order.snapshot);
        b->layer =
            layer_snapshot(v, b->name, source, b->family, b->order.limits.disk_bytes, false, err);
    } else
        b->layer = layer_create(v, b->name, b->family, b->order.limits.disk_bytes, err);
    if (b->layer < 0 || (source < 0 && jail_seed(b->layer, b->id, err)))
        return err->code == ERR_NO_SPACE
                   ? err_in(err, "the volume is full (end sandboxes, or see volume.cap-bytes)")
                   : -1;
    if (flock(b->layer, LOCK_SH | LOCK_NB))
        return err_sys(err, "lock layer %s", b->name);
    return 0;
}

int box_network(const struct box *b)
{
    char path[32];

    if (b->slot->home && b->slot->net.ns < 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/net", b->jail.pid);
        b->slot->net.ns = open(path, O_RDONLY | O_CLOEXEC);
    }
    return b->slot->net.ns;
}

static void fill_spec(const struct box *b, struct jail_spec *s)
{
    const struct keeper *k = b->keeper;

    *s = (struct jail_spec){
        .id = b->id,
        .order = &b->order,
        .first_id = b->slot ? ids_host(b->slot->ids.number) : 0,
        .netns = b->slot ? b->slot->net.ns : -1,
        .home_network = b->slot && b->slot->home,
        .cgroup = -1,
        .layer = b->layer,
        .dev = -1,
        .stage = k->o.rootless ? k->stage : ZYGOTE_STAGE,
        .warm_kernels = b->template.kernels == TEMPLATE_KERNELS_WARM,
        .rootless = k->o.rootless,
        .mortal = k->o.socket >= 0,
    };
    if (b->generation) {
        s->root = b->generation->root;
        s->usr = b->generation->usr;
    } else
        s->root = (struct jail_stack){ .lowers = { { b->template.root, b->template.root_path } },
                                       .n = 1 };
    source_add_python(b, &s->root);
}

/* Without privilege a sandbox has to open its layer itself, in its own mount namespace. */
static int path_of(int fd, char *out, size_t room, struct err *err)
{
    char link[32];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, out, room - 1);
    if (n < 0)
        return err_sys(err, "find the path of a layer");
    out[n] = 0;
    return 0;
}

/* All that needs no process yet, while the zygote makes one. */
static int prepare(struct box *b, struct jail_spec *s, struct err *err)
{
    struct keeper *k = b->keeper;

    if (make_layer(b, err))
        return -1;
    s->layer = b->layer;
    if (!k->o.rootless)
        s->dev = jail_make_dev(&b->order, err);
    return !k->o.rootless && s->dev < 0 ? -1 : 0;
}

/* Without privilege the process opens its layer itself: that must exist before it does. */
static int begin_rootless(struct box *b, struct jail_spec *s, struct err *err)
{
    char path[PATH_MAX];
    int r;

    if (prepare(b, s, err) || path_of(b->layer, path, sizeof(path), err))
        return -1;
    s->layer_path = path;
    r = keeper_begin(b->keeper, s, &b->jail, err);
    s->layer_path = NULL;
    return r;
}

static int begin(struct box *b, struct jail_spec *s, struct err *err)
{
    if (b->keeper->o.rootless)
        return begin_rootless(b, s, err);
    if (keeper_begin(b->keeper, s, &b->jail, err))
        return -1;
    if (!prepare(b, s, err))
        return 0;
    jail_abandon(&b->keeper->zygote, &b->jail);
    return -1;
}

static int allow_ping(const struct box *b, struct err *err)
{
    int ns;

    if (!(b->order.flags & ORDER_PING))
        return 0;
    ns = box_network(b);
    if (ns < 0)
        return err_sys(err, "option 'ping': open the sandbox's network");
    return net_allow_ping(ns, err) ? err_in(err, "option 'ping'") : 0;
}

static int start(struct box *b, struct err *err)
{
    struct keeper *k = b->keeper;
    AUTO(closep) int listener = -1;
    AUTO(closep) int cgroup = -1;
    struct jail_spec s;
    int r;

    fill_spec(b, &s);
    late_cgroup_now(k, b->name);
    if (cgroup_create(&k->cgroups, b->name, &cgroup, err))
        return -1;
    b->cgroup_made = true;
    listener = box_listen(b, err);
    if (listener < 0)
        return -1;
    s.cgroup = cgroup;
    s.listener = listener;
    s.mounts = b->sources;
    /* from jail_start() on it builds its root, and does nothing else before it is told to go */
    r = begin(b, &s, err) || jail_start(&s, &k->zygote, &b->jail, err) || allow_ping(b, err) ||
        cgroup_set_up(&k->cgroups, b->name, &b->order.limits, err) ||
        cgroup_attach(&k->cgroups, b->name, b->jail.pid, err) || jail_go(&b->jail, err);
    closep(&s.dev);
    opening_forget(b);
    return r;
}

static void reply_created(struct box *b)
{
    struct keep_state state;

    box_state(b, &state);
    keeper_reply(&b->create, b->id, NULL, &state);
    b->create.client = NULL;
}

/* Whoever connects now is served when the guest is there: the socket exists already. */
static void reply_eagerly(struct box *b)
{
    struct keep_reply r = { .kind = KEEP_REPLY,
                            .verb = b->create.verb,
                            .serial = b->create.serial };
    struct err err;
    AUTO(closep) int fd = b->create.client ? box_dial_guest(b, &err) : -1;

    if (fd < 0)
        return; /* then it is answered when it is built, if anybody waits for it still */
    memcpy(r.id, b->id, sizeof(r.id));
    box_state(b, &r.u.state);
    keeper_send(b->create.client, &r, &fd, 1);
    b->create.client = NULL;
}

/* From here on it is one like any other. Without whoever wanted that it has nobody who teaches its
 * guest whom it may let in, and who would know that it runs until its time ends it, files and all.
 */
static int woken(struct box *b, struct err *err)
{
    if (!b->create.client)
        return err_set(err, ERR_CONFLICT, "who woke sandbox %s is gone", b->id);
    b->frozen = b->waking = false;
    b->fresh = true;
    return adopt_record(b, err) || pause_forget(b, err) ? -1 : 0;
}

/* The child said how its building went, by a word or by executing the guest. */
void box_on_report(struct source *s)
{
    struct box *b = CONTAINER_OF(s, struct box, report);
    struct err err = { 0 };
    int r;

    loop_remove(&b->keeper->loop, s);
    if (b->phase == PHASE_ENDING) { /* somebody ended it meanwhile: that is the news */
        close(TAKE(s->fd, -1));
        b->jail.sock = -1; /* the same one: closed again it would be somebody else's */
        return;
    }
    r = jail_report(&b->jail, &err); /* closes it, unless it was woken for nothing */
    s->fd = b->jail.sock;
    if (!r && !loop_add(&b->keeper->loop, s, EPOLLIN, &err))
        return;
    if (r < 0) {
        box_fail(b, &err);
        return;
    }
    b->phase = PHASE_RUNNING;
    if (b->waking && woken(b, &err)) {
        box_fail(b, &err);
        return;
    }
    reply_created(b);
    if (b->slot) /* now, not when it was taken: another core builds what we wait for */
        slots_want(b->keeper, b->order.network, &err);
}

static void on_memory(struct source *s)
{
    struct box *b = CONTAINER_OF(s, struct box, memory);
    struct keep_state ignored;
    uint64_t n;

    if (read(s->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        log_debug("memory notice", KV("error", strerrordesc_np(errno)));
    box_measure(b, &ignored);
}

int box_watch(struct box *b, struct err *err)
{
    struct loop *l = &b->keeper->loop;
    bool urgent;
    int memory = cgroup_watch_memory(&b->keeper->cgroups, b->name, &urgent);

    b->ended = (struct source){ b->jail.pidfd, box_on_ended };
    if (memory >= 0) {
        b->memory = (struct source){ memory, on_memory };
        if (loop_add(l, &b->memory, urgent ? EPOLLPRI : EPOLLIN, err))
            return -1;
    }
    return loop_add(l, &b->ended, EPOLLIN, err);
}

/* Whoever holds it last takes down its mounts, three grace periods. Pid 1 would, and be that much
 * later in telling us of its end. Not known (-1) is no harm. */
static void hold_mounts(struct box *b)
{
    char path[32];

    if (b->keeper->reaper.sock < 0)
        return;
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", b->jail.pid);
    b->mounts = open(path, O_RDONLY | O_CLOEXEC);
}

static int build(struct box *b, struct err *err)
{
    b->phase = PHASE_BUILDING;
    b->deadline = clock_ms() + (int64_t)b->order.limits.lifetime_ms; /* a part of its record */
    if (adopt_record(b, err) || start(b, err) || adopt_record(b, err))
        return -1;
    if (b->order.flags & ORDER_EAGER && !b->waking)
        reply_eagerly(b);
    hold_mounts(b);
    if (box_watch(b, err))
        return -1;
    b->report = (struct source){ b->jail.sock, box_on_report };
    return loop_add(&b->keeper->loop, &b->report, EPOLLIN, err);
}

void box_continue(struct box *b)
{
    struct err err = { 0 };

    if (build(b, &err))
        box_fail(b, &err);
}

/* As soon as it has a network; answers by itself from here on, unless there will be none: -1. */
static int begin_building(struct box *b, struct err *err)
{
    struct keeper *k = b->keeper;

    if (!k->o.rootless) {
        b->slot = slots_take(k, b->order.network);
        if (!b->slot) {
            list_push(&k->waiting, &b->waiting);
            if (slots_want(k, b->order.network, err))
                return -1;
        }
    }
    if (b->slot || k->o.rootless)
        box_continue(b);
    return 0;
}

/* Its host directories first, if it has any; answers by itself from here on, unless it is -1. */
static int begin_opening(struct box *b, struct err *err)
{
    return opening_needed(b) ? opening_begin(b, err) : begin_building(b, err);
}

/* It is not the sandbox that is not there. */
static int not_woken(const struct box *b, struct err *err)
{
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_CONFLICT;
    return err_in(err, "sandbox %s cannot be started again on its files", b->id);
}

void box_opened(struct box *b, const struct err *err)
{
    struct err e = err ? *err : (struct err){ 0 };

    if (err && b->waking)
        not_woken(b, &e);
    if (err || begin_building(b, &e))
        box_fail(b, &e);
}

int box_wake(struct box *b, const struct pending *reply, struct err *err)
{
    if (b->keeper->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the keeper is ending");
    if (source_open(b, err)) {
        source_close(b);
        return not_woken(b, err);
    }
    b->create = *reply;
    b->waking = true;
    b->phase = PHASE_WAITING;
    if (begin_opening(b, err)) {
        b->create = (struct pending){ 0 }; /* the caller answers */
        box_sleep(b);
        return -1;
    }
    return 0;
}

int box_create(struct keeper *k, struct client *c, const struct keep_request *r, struct err *err)
{
    struct box *b;

    if (k->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the keeper is ending");
    if (k->o.rootless && r->u.create.network != ORDER_NET_NONE)
        return err_set(err, ERR_UNSUPPORTED,
                       "network open needs root: only root can join the host's network");
    if (k->o.rootless && r->u.create.flags & ORDER_PING)
        return err_set(err, ERR_UNSUPPORTED,
                       "option 'ping' needs root: without it a sandbox makes its own network");
    if (r->u.create.flags & ORDER_STAY && k->notes < 0)
        return err_set(err, ERR_UNSUPPORTED, "this keeper keeps no files of dead sandboxes");
    if (k->nboxes >= (size_t)keep_limits.boxes)
        return err_set(err, ERR_LIMIT, "keep.boxes: %lld sandboxes are here already",
                       (long long)keep_limits.boxes);
    if (box_find(k, r->id))
        return err_set(err, ERR_CONFLICT, "sandbox %s exists", r->id);
    b = box_new(k, r->id);
    b->order = r->u.create;
    if (r->unknown.n)
        tag_put(BOXFILE_ORDER, r->unknown, &b->unknown, err);
    b->create = (struct pending){ c, r->serial, r->verb };
    b->owner = c;
    tie_note(b, c);
    if (source_open(b, err) || limits_fill(&b->order.limits, b->template.limits, err)) {
        box_free(b);
        return -1;
    }
    if (begin_opening(b, err)) {
        box_free(b);
        return -1;
    }
    return 0;
}
