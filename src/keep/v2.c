/* v2.c - see v2.h. Every struct here is a copy of one of release 46eceed: none may change. */
#include "keep/v2.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

enum {
    MAGIC = 0x65766f43, /* "Cove" */
    VERSION = 2,
    VERBS = 13,          /* from here on verbs are unknown to it */
    WALL = 0x626f7831,   /* a record whose deadline is wall time */
    RECORD = 0x626f7832, /* a record */
    NOTE = 0x6e6f7431,   /* a note */
    ID = 40,
    NAME = 128,
    PATH = 256,
    MOUNTS = 8,
    LISTED = 64,
    TEMPLATES = 5,
    LIMITS = 8,
};

struct v2_mount {
    char host[PATH], guest[PATH];
    uint32_t flags, unused;
};

struct v2_create {
    char template[NAME], snapshot[ID];
    uint64_t limits[LIMITS];
    uint32_t network, flags, nmounts, unused;
    struct v2_mount mounts[MOUNTS];
};

struct v2_request {
    uint32_t magic, version, verb, unused;
    uint64_t serial;
    char id[ID];
    union {
        struct v2_create create;
        uint64_t limits[LIMITS];
        char snapshot[ID];
        char after[72];
        struct {
            uint32_t files_only, unused;
        } freeze;
        struct {
            uint32_t port, count, v6, unused;
        } socket;
    } u;
};

struct v2_state {
    uint64_t limits[LIMITS];
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, pids, disk_bytes, oom_kills;
    uint64_t memory_cache_bytes, net_rx_bytes, net_tx_bytes;
    int64_t left_ms;
    int32_t pid;
    uint32_t frozen, network, unenforced, outdated, stopped;
    char template[NAME];
    uint32_t asleep, fresh;
    uint64_t flush_us;
};

struct v2_template {
    char name[72], user[72], workdir[PATH];
    uint32_t kind, unused;
    uint64_t limits[LIMITS];
};

struct v2_reply {
    uint32_t magic, version, kind, verb;
    uint64_t serial;
    char id[ID];
    uint32_t code, unused;
    char message[256];
    union {
        struct v2_state state;
        struct {
            uint32_t limit, unused;
            uint64_t value, use;
        } limit;
        struct {
            uint32_t count, unused;
            char ids[LISTED][ID];
        } list;
        struct {
            uint32_t count, unused;
            struct v2_template items[TEMPLATES];
        } templates;
    } u;
    uint32_t reason, status;
};

struct v2_record {
    uint32_t magic, size;
    char id[ID], name[65], boot[40], fingerprint[33];
    struct v2_create spec;
    uint32_t family, number;
    int32_t pid;
    uint32_t is;
    uint64_t started;
    int64_t deadline_ms;
    uint64_t oom_kills, pids_refused;
};

struct v2_note {
    uint32_t magic, size;
    char id[ID], name[65], boot[40], run_dir[PATH];
    struct v2_create spec;
    uint32_t family;
    int32_t pid;
    uint64_t started;
};

static_assert(sizeof(struct v2_request) == V2_REQUEST_BYTES, "as released");
static_assert(sizeof(struct v2_reply) == V2_REPLY_BYTES, "as released");
static_assert(sizeof(struct v2_record) == 4648 && offsetof(struct v2_record, started) == 4616,
              "as released");
static_assert(sizeof(struct v2_note) == 4840 && offsetof(struct v2_note, started) == 4832,
              "as released");

static bool terminated(const char *s, size_t room) { return memchr(s, 0, room) != NULL; }

/* The limits of that release, in its order. */
static void read_limits(const uint64_t from[LIMITS], struct limits *to)
{
    *to = (struct limits){ from[0], from[1], from[2], from[3], from[4], from[5], from[6], from[7] };
}

static void write_limits(const struct limits *from, uint64_t to[LIMITS])
{
    to[0] = from->memory_bytes, to[1] = from->cpu_milli;
    to[2] = from->pids, to[3] = from->io_weight;
    to[4] = from->open_files, to[5] = from->disk_bytes;
    to[6] = from->log_bytes, to[7] = from->lifetime_ms;
}

/* A text without an end stays one: the checks behind this refuse it. */
static void read_order(const struct v2_create *from, struct order *to)
{
    *to =
        (struct order){ .network = from->network, .flags = from->flags, .nmounts = from->nmounts };
    memcpy(to->template, from->template, NAME);
    memcpy(to->snapshot, from->snapshot, ID);
    read_limits(from->limits, &to->limits);
    for (int i = 0; i < MOUNTS; i++) {
        memcpy(to->mounts[i].host, from->mounts[i].host, PATH);
        memcpy(to->mounts[i].guest, from->mounts[i].guest, PATH);
        to->mounts[i].flags = from->mounts[i].flags;
    }
}

static void write_order(const struct order *from, struct v2_create *to)
{
    memcpy(to->template, from->template, NAME);
    memcpy(to->snapshot, from->snapshot, ID);
    write_limits(&from->limits, to->limits);
    to->network = from->network;
    to->flags = from->flags;
    to->nmounts = from->nmounts;
    for (uint32_t i = 0; i < from->nmounts && i < MOUNTS; i++) {
        memcpy(to->mounts[i].host, from->mounts[i].host, PATH);
        memcpy(to->mounts[i].guest, from->mounts[i].guest, PATH);
        to->mounts[i].flags = from->mounts[i].flags;
    }
}

/* ---- requests ---- */

int v2_read_request(struct str in, struct keep_request *out, struct err *err)
{
    struct v2_request q;

    if (in.n != sizeof(q))
        return err_set(err, ERR_INVALID, "a record of %zu bytes; they have %zu", in.n, sizeof(q));
    memcpy(&q, in.p, sizeof(q));
    if (q.magic != MAGIC || q.version != VERSION)
        return err_set(err, ERR_INVALID, "a record of another program or version (%#x, %u)",
                       q.magic, q.version);
    if (q.verb >= VERBS)
        return err_set(err, ERR_UNSUPPORTED, "no verb %u", q.verb);
    *out = (struct keep_request){ .verb = q.verb, .serial = q.serial };
    memcpy(out->id, q.id, ID);
    switch ((enum keep_verb)q.verb) {
    case KEEP_CREATE:
    case KEEP_RESTORE: read_order(&q.u.create, &out->u.create); break;
    case KEEP_THAW:
    case KEEP_LIMITS: read_limits(q.u.limits, &out->u.limits); break;
    case KEEP_SNAPSHOT: memcpy(out->u.snapshot, q.u.snapshot, ID); break;
    case KEEP_TEMPLATES: memcpy(out->u.after, q.u.after, sizeof(q.u.after)); break;
    case KEEP_FREEZE: out->u.freeze.files_only = q.u.freeze.files_only; break;
    case KEEP_SOCKET:
        out->u.socket.port = q.u.socket.port;
        out->u.socket.count = q.u.socket.count;
        out->u.socket.v6 = q.u.socket.v6;
        break;
    case KEEP_KILL:
    case KEEP_STAT:
    case KEEP_LIST:
    case KEEP_ADOPT:
    case KEEP_HELLO:
    case KEEP_VERBS: break;
    }
    return 0;
}

int v2_write_request(const struct keep_request *r, struct buf *out, struct err *err)
{
    struct v2_request q = {
        .magic = MAGIC, .version = VERSION, .verb = r->verb, .serial = r->serial
    };

    if (r->verb >= VERBS)
        return err_set(err, ERR_UNSUPPORTED,
                       "the keeper is of an older release and does not know verb %u: restart it",
                       r->verb);
    memcpy(q.id, r->id, ID);
    switch ((enum keep_verb)r->verb) {
    case KEEP_CREATE:
    case KEEP_RESTORE: write_order(&r->u.create, &q.u.create); break;
    case KEEP_THAW:
    case KEEP_LIMITS: write_limits(&r->u.limits, q.u.limits); break;
    case KEEP_SNAPSHOT: memcpy(q.u.snapshot, r->u.snapshot, ID); break;
    case KEEP_TEMPLATES: memcpy(q.u.after, r->u.after, sizeof(q.u.after)); break;
    case KEEP_FREEZE: q.u.freeze.files_only = r->u.freeze.files_only; break;
    case KEEP_SOCKET:
        q.u.socket.port = r->u.socket.port;
        q.u.socket.count = r->u.socket.count;
        q.u.socket.v6 = r->u.socket.v6;
        break;
    case KEEP_KILL:
    case KEEP_STAT:
    case KEEP_LIST:
    case KEEP_ADOPT:
    case KEEP_HELLO:
    case KEEP_VERBS: break;
    }
    buf_add(out, &q, sizeof(q));
    return 0;
}

/* ---- replies ---- */

static void read_state(const struct v2_state *from, struct keep_state *to)
{
    *to = (struct keep_state){
        .memory_bytes = from->memory_bytes,
        .memory_peak_bytes = from->memory_peak_bytes,
        .cpu_us = from->cpu_us,
        .pids = from->pids,
        .disk_bytes = from->disk_bytes,
        .oom_kills = from->oom_kills,
        .memory_cache_bytes = from->memory_cache_bytes,
        .net_rx_bytes = from->net_rx_bytes,
        .net_tx_bytes = from->net_tx_bytes,
        .left_ms = from->left_ms,
        .pid = from->pid,
        .frozen = from->frozen,
        .network = from->network,
        .unenforced = from->unenforced,
        .outdated = from->outdated,
        .stopped = from->stopped,
        .asleep = from->asleep,
        .fresh = from->fresh,
        .flush_us = from->flush_us,
    };
    read_limits(from->limits, &to->limits);
    memcpy(to->template, from->template, NAME);
}

static void write_state(const struct keep_state *from, struct v2_state *to)
{
    *to = (struct v2_state){
        .memory_bytes = from->memory_bytes,
        .memory_peak_bytes = from->memory_peak_bytes,
        .cpu_us = from->cpu_us,
        .pids = from->pids,
        .disk_bytes = from->disk_bytes,
        .oom_kills = from->oom_kills,
        .memory_cache_bytes = from->memory_cache_bytes,
        .net_rx_bytes = from->net_rx_bytes,
        .net_tx_bytes = from->net_tx_bytes,
        .left_ms = from->left_ms,
        .pid = from->pid,
        .frozen = from->frozen,
        .network = from->network,
        .unenforced = from->unenforced,
        .outdated = from->outdated,
        .stopped = from->stopped,
        .asleep = from->asleep,
        .fresh = from->fresh,
        .flush_us = from->flush_us,
    };
    write_limits(&from->limits, to->limits);
    memcpy(to->template, from->template, NAME);
}

static void read_template(const struct v2_template *from, struct keep_template *to)
{
    memcpy(to->name, from->name, sizeof(from->name));
    memcpy(to->user, from->user, sizeof(from->user));
    memcpy(to->workdir, from->workdir, sizeof(from->workdir));
    to->kind = from->kind;
    read_limits(from->limits, &to->limits);
}

static void write_template(const struct keep_template *from, struct v2_template *to)
{
    memcpy(to->name, from->name, sizeof(to->name));
    memcpy(to->user, from->user, sizeof(to->user));
    memcpy(to->workdir, from->workdir, sizeof(to->workdir));
    to->kind = from->kind;
    write_limits(&from->limits, to->limits);
}

int v2_read_reply(struct str in, struct keep_reply *out, struct err *err)
{
    struct v2_reply r;

    if (in.n != sizeof(r))
        return err_set(err, ERR_UPSTREAM, "the keeper answered in another version's form");
    memcpy(&r, in.p, sizeof(r));
    *out = (struct keep_reply){ .kind = r.kind,
                                .verb = r.verb,
                                .serial = r.serial,
                                .code = r.code,
                                .reason = r.reason,
                                .status = r.status };
    memcpy(out->id, r.id, ID);
    memcpy(out->message, r.message, sizeof(r.message));
    if (r.kind == KEEP_LIMIT_MET)
        out->u.limit = (struct keep_limit_met){ r.u.limit.limit, r.u.limit.value, r.u.limit.use };
    else if (r.kind == KEEP_REPLY && r.verb == KEEP_LIST) {
        out->u.list.count = r.u.list.count;
        memcpy(out->u.list.ids, r.u.list.ids, sizeof(r.u.list.ids));
    } else if (r.kind == KEEP_REPLY && r.verb == KEEP_TEMPLATES) {
        out->u.templates.count = r.u.templates.count;
        for (int i = 0; i < TEMPLATES; i++)
            read_template(&r.u.templates.items[i], &out->u.templates.items[i]);
    } else
        read_state(&r.u.state, &out->u.state);
    return 0;
}

void v2_write_reply(const struct keep_reply *r, struct buf *out)
{
    struct v2_reply q = { .magic = MAGIC,
                          .version = VERSION,
                          .kind = r->kind,
                          .verb = r->verb,
                          .serial = r->serial,
                          .code = r->code,
                          .reason = r->reason,
                          .status = r->status };

    memcpy(q.id, r->id, ID);
    memcpy(q.message, r->message, sizeof(q.message));
    if (r->kind == KEEP_LIMIT_MET) {
        q.u.limit.limit = r->u.limit.limit;
        q.u.limit.value = r->u.limit.value;
        q.u.limit.use = r->u.limit.use;
    } else if (r->kind == KEEP_REPLY && r->verb == KEEP_LIST) {
        q.u.list.count = r->u.list.count;
        memcpy(q.u.list.ids, r->u.list.ids, sizeof(q.u.list.ids));
    } else if (r->kind == KEEP_REPLY && r->verb == KEEP_TEMPLATES) {
        q.u.templates.count = r->u.templates.count;
        for (int i = 0; i < TEMPLATES; i++)
            write_template(&r->u.templates.items[i], &q.u.templates.items[i]);
    } else
        write_state(&r->u.state, &q.u.state);
    buf_add(out, &q, sizeof(q));
}

/* ---- files ---- */

static int64_t wall_to_monotonic(int64_t deadline_ms)
{
    return deadline_ms == INT64_MAX ? deadline_ms : deadline_ms + clock_ms() - clock_wall_ms();
}

static int check_texts(const char *id, const char *name, const char *boot,
                       const struct v2_create *c, struct err *err)
{
    bool good = terminated(id, ID) && terminated(name, 65) && terminated(boot, 40) &&
                terminated(c->template, NAME) && terminated(c->snapshot, ID) &&
                c->nmounts <= MOUNTS;

    for (uint32_t i = 0; good && i < c->nmounts; i++)
        good = terminated(c->mounts[i].host, PATH) && terminated(c->mounts[i].guest, PATH);
    return good ? 0 : err_set(err, ERR_INVALID, "a text in it has no end");
}

static int read_record(struct str in, struct boxfile *out, struct err *err)
{
    struct v2_record r;

    memcpy(&r, in.p, sizeof(r));
    if (check_texts(r.id, r.name, r.boot, &r.spec, err))
        return -1;
    if (!terminated(r.fingerprint, sizeof(r.fingerprint)))
        return err_set(err, ERR_INVALID, "a text in it has no end");
    *out = (struct boxfile){ .family = r.family,
                             .number = r.number,
                             .pid = r.pid,
                             .is = r.is,
                             .started = r.started,
                             .deadline_ms =
                                 r.magic == WALL ? wall_to_monotonic(r.deadline_ms) : r.deadline_ms,
                             .oom_kills = r.oom_kills,
                             .pids_refused = r.pids_refused };
    memcpy(out->id, r.id, ID);
    memcpy(out->name, r.name, sizeof(r.name));
    memcpy(out->boot, r.boot, sizeof(r.boot));
    memcpy(out->fingerprint, r.fingerprint, sizeof(r.fingerprint));
    read_order(&r.spec, &out->order);
    return 1;
}

static int read_note(struct str in, struct boxfile *out, struct err *err)
{
    struct v2_note n;

    memcpy(&n, in.p, sizeof(n));
    if (check_texts(n.id, n.name, n.boot, &n.spec, err))
        return -1;
    if (!terminated(n.run_dir, sizeof(n.run_dir)))
        return err_set(err, ERR_INVALID, "a text in it has no end");
    *out = (struct boxfile){
        .family = n.family, .pid = n.pid, .started = n.started, .deadline_ms = INT64_MAX
    };
    memcpy(out->id, n.id, ID);
    memcpy(out->name, n.name, sizeof(n.name));
    memcpy(out->boot, n.boot, sizeof(n.boot));
    memcpy(out->run_dir, n.run_dir, sizeof(n.run_dir));
    read_order(&n.spec, &out->order);
    return 1;
}

int v2_read_boxfile(struct str in, enum boxfile_kind kind, struct boxfile *out, struct err *err)
{
    size_t size = kind == BOXFILE_NOTE ? sizeof(struct v2_note) : sizeof(struct v2_record);
    uint32_t head[2]; /* magic, size */

    if (in.n < sizeof(head))
        return 0;
    memcpy(head, in.p, sizeof(head));
    if (kind == BOXFILE_NOTE ? head[0] != NOTE : head[0] != RECORD && head[0] != WALL)
        return 0;
    if (head[1] != size)
        return err_set(err, ERR_INVALID, "its head says %u bytes, not %zu", head[1], size);
    if (in.n != size)
        return err_set(err, in.n < size && kind == BOXFILE_RECORD ? ERR_NOT_FOUND : ERR_INVALID,
                       "it has %zu bytes of %zu", in.n, size);
    return kind == BOXFILE_NOTE ? read_note(in, out, err) : read_record(in, out, err);
}
