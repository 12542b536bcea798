/* verbs.c - one function per verb. A verb answers at once, or remembers whom to answer. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "keep/box_parts.h"
#include "keep/keeper.h"
#include "keep/rundir.h"

struct verb_call {
    struct client *client;
    struct keeper *keeper;
    const struct keep_request *r;
    struct box *box; /* NULL for verbs that need none */
};

/* 0: the reply has been sent or will be; 1: send a plain one; -1: refused with err. */
typedef int verb_fn(struct verb_call *v, struct err *err);

static int do_create(struct verb_call *v, struct err *err)
{
    return box_create(v->keeper, v->client, v->r, err);
}

static int do_freeze(struct verb_call *v, struct err *err)
{
    struct pending p = { v->client, v->r->serial, KEEP_FREEZE };

    return box_pause(v->box, &p, v->r->u.freeze.files_only, err);
}

/* It was astray, and somebody has claimed it; or what its note says has changed, and no child can
 * wait for the disk. */
static int note_again(struct box *b, struct err *err)
{
    if (note_write(b, true, err))
        return -1;
    if (b->phase == PHASE_ASLEEP) /* of others their record has just said it */
        note_mark(b);
    b->noted = true;
    b->astray = false;
    return 0;
}

static int do_thaw(struct verb_call *v, struct err *err)
{
    struct pending p = { v->client, v->r->serial, KEEP_THAW };
    uint64_t lifetime_ms = v->r->u.limits.lifetime_ms;
    struct box *b = v->box;
    struct keep_state state;

    if (b->noted) /* it sleeps then: without its note it would be gone, files too */
        box_notice_end(b);
    if (b->phase == PHASE_ASLEEP && b->astray && note_again(b, err))
        return -1;
    if (b->phase == PHASE_ASLEEP) {
        if (lifetime_ms)
            b->order.limits.lifetime_ms = lifetime_ms;
        return box_wake(b, &p, err);
    }
    if (b->pausing == PAUSING_DROP) /* thawed now, it would be gone with its processes */
        return err_set(err, ERR_CONFLICT, "the processes of sandbox %s are being ended", b->id);
    if (b->waking)
        return err_set(err, ERR_CONFLICT, "sandbox %s is being started again", b->id);
    if (box_resume(b, lifetime_ms, err))
        return -1;
    box_state(b, &state);
    keeper_reply(&p, b->id, NULL, &state);
    return 0;
}

static int do_kill(struct verb_call *v, struct err *err)
{
    if (v->box->end.client)
        return err_set(err, ERR_CONFLICT, "sandbox %s is being ended", v->box->id);
    v->box->end = (struct pending){ v->client, v->r->serial, KEEP_KILL };
    box_end(v->box, ENDED_BY_REQUEST);
    return 0;
}

/* ---- snapshots ---- */

struct snapshot {
    struct pending reply;
    char id[ORDER_ID], name[KEEP_NAME_ROOM], target[KEEP_NAME_ROOM];
    uint32_t family;
    uint64_t quota;
    int layer;
    bool was_frozen;
};

/* In a child. What is dirty is written before the freeze: then only a millisecond of it is left. */
static int take_snapshot(struct keeper *k, void *arg, struct err *err)
{
    const struct snapshot *s = arg;
    struct err ignored;
    int fd = -1;

    if (volume_sync(k->volume, err))
        return -1;
    if (s->was_frozen || !cgroup_freeze(&k->cgroups, s->name, true, err))
        fd = layer_snapshot(k->volume, s->target, s->layer, s->family, s->quota, true, err);
    if (!s->was_frozen)
        cgroup_freeze_ask(&k->cgroups, s->name, false, &ignored);
    return fd < 0 ? -1 : close(fd);
}

static void snapshot_taken(struct keeper *k, void *arg, const struct err *err)
{
    const struct snapshot *s = arg;
    struct box *b = box_find(k, s->id);
    struct err ignored;

    if (b)
        b->snapshotting = false;
    if (b && err && !s->was_frozen) /* the child may have died between the two */
        cgroup_freeze_ask(&k->cgroups, s->name, false, &ignored);
    keeper_reply(&s->reply, s->id, err, NULL);
    close(s->layer);
}

static int do_snapshot(struct verb_call *v, struct err *err)
{
    struct box *b = v->box;
    struct snapshot *s;
    int layer;

    if (!volume_has_snapshots(v->keeper->volume))
        return err_set(err, ERR_UNSUPPORTED, "no snapshots: %s",
                       volume_describe(v->keeper->volume));
    if (b->pausing != PAUSING_NOT || b->snapshotting)
        return err_set(err, ERR_CONFLICT, "sandbox %s is being %s", b->id,
                       b->snapshotting ? "taken a snapshot of" : "paused");
    layer = fcntl(b->layer, F_DUPFD_CLOEXEC, 0); /* the child's own */
    s = xcalloc(1, sizeof(*s));
    *s = (struct snapshot){ .reply = { v->client, v->r->serial, KEEP_SNAPSHOT },
                            .family = b->family,
                            .quota = b->order.limits.disk_bytes,
                            .layer = layer,
                            .was_frozen = b->frozen };
    memcpy(s->id, b->id, sizeof(s->id));
    memcpy(s->name, b->name, sizeof(s->name));
    snprintf(s->target, sizeof(s->target), "snap-%s", v->r->u.snapshot);
    if (job_start(v->keeper, take_snapshot, snapshot_taken, s, &s->reply, err)) {
        close(layer);
        return -1;
    }
    b->snapshotting = true;
    return 0;
}

/* ---- the rest ---- */

static int do_limits(struct verb_call *v, struct err *err)
{
    struct limits l = v->r->u.limits;
    struct box *b = v->box;
    struct keep_state state;
    struct pending p = { v->client, v->r->serial, KEEP_LIMITS };
    bool noted = v->r->u.mark.claim && b->noted && !b->waking; /* a woken one's note goes */
    struct err ignored;

    if (limits_fill(&l, &b->order.limits, err))
        return -1;
    if ((b->cgroup_made && cgroup_limit(&v->keeper->cgroups, b->name, &l, &b->order.limits, err)) ||
        (l.disk_bytes != b->order.limits.disk_bytes &&
         layer_quota_set(v->keeper->volume, b->family, l.disk_bytes, err))) {
        if (b->cgroup_made)
            cgroup_limit(&v->keeper->cgroups, b->name, &b->order.limits, &l, &ignored);
        return -1;
    }
    if (v->r->u.limits.lifetime_ms)
        *(b->frozen ? &b->left : &b->deadline) =
            (int64_t)l.lifetime_ms + (b->frozen ? 0 : clock_ms());
    b->order.limits = l;
    if (v->r->u.mark.claim)
        b->order.mark = v->r->u.mark;
    if (b->phase != PHASE_ASLEEP && adopt_record(b, err))
        return -1;
    if (noted && !note_renew(b, &p, err))
        return 0;
    if ((noted || (v->r->u.mark.claim && b->astray)) && note_again(b, err))
        return -1;
    box_state(b, &state);
    keeper_reply(&p, b->id, NULL, &state);
    return 0;
}

static int port_socket(struct box *b, int domain, struct err *err)
{
    if (!b->slot && b->jail.net < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "without root the ports of a sandbox that is older than its keeper cannot "
                       "be reached");
    if (!b->slot) /* without root: its network was made with its user namespace */
        return net_socket_owned(b->jail.net, domain, SOCK_STREAM, err);
    return net_socket(box_network(b), domain, SOCK_STREAM, err);
}

static int do_socket(struct verb_call *v, struct err *err)
{
    int fds[KEEP_SOCKETS];
    uint32_t n = 0, want = v->r->u.socket.count;
    int domain = v->r->u.socket.v6 ? AF_INET6 : AF_INET;
    int r = 0;

    if (v->box->phase == PHASE_ASLEEP)
        return err_set(err, ERR_CONFLICT, "sandbox %s is paused", v->box->id);
    for (; n < want && !r; n += !r) {
        fds[n] =
            v->r->u.socket.port ? port_socket(v->box, domain, err) : box_dial_guest(v->box, err);
        r = fds[n] < 0 ? -1 : 0;
    }
    if (!r) {
        struct keep_reply reply = { .kind = KEEP_REPLY,
                                    .verb = KEEP_SOCKET,
                                    .serial = v->r->serial };

        memcpy(reply.id, v->box->id, sizeof(reply.id));
        keeper_send(v->client, &reply, fds, n);
    }
    while (n)
        close(fds[--n]);
    return r;
}

static int do_stat(struct verb_call *v, struct err *err)
{
    struct pending p = { v->client, v->r->serial, (enum keep_verb)v->r->verb };
    struct keep_state state;

    if (v->box->phase == PHASE_UNREAD && v->client->version == 2) /* it has no word for that */
        return err_set(err, ERR_UNAVAILABLE, "sandbox %s: %s", v->box->id, v->box->unreadable);
    if (v->box->phase == PHASE_UNREAD)
        box_state(v->box, &state);
    else
        box_examine(v->box, &state);
    keeper_reply(&p, v->box->id, NULL, &state);
    return 0;
}

static int do_adopt(struct verb_call *v, struct err *err)
{
    if (!tie_is_of(v->box, v->client))
        return err_set(err, ERR_CONFLICT, "sandbox %s is tied to another program", v->box->id);
    v->box->owner = v->client; /* also of one that is tied: its client has come back */
    return do_stat(v, err);
}

static int compare_ids(const void *a, const void *b) { return strcmp(a, b); }

/* In order of their ids, so that a long list can be read in parts. */
static int do_list(struct verb_call *v, struct err *err)
{
    struct keep_reply reply = { .kind = KEEP_REPLY, .verb = KEEP_LIST, .serial = v->r->serial };
    AUTO(freep) char(*all)[ORDER_ID] = xcalloc(v->keeper->nboxes + 1, sizeof(*all));
    const struct box *b;
    size_t n = 0;

    (void)err;
    list_each(b, &v->keeper->boxes, all)
        if (strcmp(b->id, v->r->id) > 0 && tie_lists(b, v->client))
            memcpy(all[n++], b->id, ORDER_ID);
    qsort(all, n, sizeof(*all), compare_ids);
    reply.u.list.count = (uint32_t)MIN(n, (size_t)KEEP_LISTED);
    memcpy(reply.u.list.ids, all, reply.u.list.count * sizeof(*all));
    keeper_send(v->client, &reply, NULL, 0);
    return 0;
}

static int do_templates(struct verb_call *v, struct err *err)
{
    struct keep_reply reply = { .kind = KEEP_REPLY,
                                .verb = KEEP_TEMPLATES,
                                .serial = v->r->serial };

    if (source_page(v->keeper, v->r->u.after, &reply, err))
        return -1;
    keeper_send(v->client, &reply, NULL, 0);
    return 0;
}

static int do_hello(struct verb_call *v, struct err *err)
{
    const struct keep_owner *theirs = &v->r->u.hello.owner, *ours = &v->keeper->owner;
    struct keep_reply reply = { .kind = KEEP_REPLY,
                                .verb = KEEP_HELLO,
                                .serial = v->r->serial,
                                .u.hello = { KEEP_VERSION, KEEP_VERSION_OLDEST, COVE_VERSION,
                                             *ours } };

    if (*theirs->identity && *ours->identity && !keep_owner_same(theirs, ours))
        return keep_not_ours(ours, theirs, err);
    keeper_send(v->client, &reply, NULL, 0);
    return 0;
}

/* What a sandbox with an unreadable file can be asked for. */
static bool needs_no_file(uint32_t verb)
{
    return verb == KEEP_KILL || verb == KEEP_STAT || verb == KEEP_ADOPT;
}

static const struct verb {
    verb_fn *fn;
    bool needs_box;
} verbs[KEEP_VERBS] = {
    [KEEP_CREATE] = { do_create, false },    [KEEP_RESTORE] = { do_create, false },
    [KEEP_FREEZE] = { do_freeze, true },     [KEEP_THAW] = { do_thaw, true },
    [KEEP_KILL] = { do_kill, true },         [KEEP_LIMITS] = { do_limits, true },
    [KEEP_SNAPSHOT] = { do_snapshot, true }, [KEEP_SOCKET] = { do_socket, true },
    [KEEP_STAT] = { do_stat, true },         [KEEP_ADOPT] = { do_adopt, true },
    [KEEP_LIST] = { do_list, false },        [KEEP_TEMPLATES] = { do_templates, false },
    [KEEP_HELLO] = { do_hello, false },
};

/* The one place that says so: whoever hears it may take the sandbox for ended. */
static int no_sandbox(const char *id, struct err *err)
{
    err_set(err, ERR_NOT_FOUND, "no sandbox %s", id);
    err->reason = ERR_NO_SANDBOX;
    return -1;
}

void verbs_dispatch(struct client *c, const struct keep_request *r)
{
    struct verb_call v = { c, c->keeper, r, box_find(c->keeper, r->id) };
    struct pending plain = { c, r->serial, (enum keep_verb)r->verb };
    const struct verb *verb = &verbs[r->verb];
    struct err err = { 0 };
    int done;

    if (v.box && v.box->phase == PHASE_UNREAD && r->verb != KEEP_KILL) {
        unread_look(v.box);
        v.box = box_find(c->keeper, r->id);
    }
    if (verb->needs_box && !v.box)
        done = no_sandbox(r->id, &err);
    else if (verb->needs_box && r->verb != KEEP_KILL &&
             (v.box->phase == PHASE_ENDING || v.box->phase == PHASE_WAITING))
        done = err_set(&err, ERR_CONFLICT, "sandbox %s is %s", r->id,
                       v.box->phase == PHASE_ENDING ? "ending" : "not begun yet");
    else if (verb->needs_box && v.box->phase == PHASE_UNREAD && !needs_no_file(r->verb))
        done = err_set(&err, ERR_UNAVAILABLE, "sandbox %s cannot be reached: %s", r->id,
                       v.box->unreadable);
    else
        done = verb->fn(&v, &err);
    if (done)
        keeper_reply(&plain, r->id, done < 0 ? &err : NULL, NULL);
}
