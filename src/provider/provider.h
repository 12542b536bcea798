/* provider.h - a provider gives you a machine and a way to dial its ports. All that happens inside
 * is the guest's. One table of functions per kind of provider; every call may park its coroutine,
 * none blocks the loop. A ref is the sandbox's short id.
 *
 * A call that fails has done nothing, or has undone it. ERR_NO_SANDBOX (a reason): no such machine;
 * ERR_NOT_FOUND alone: something on the way was not there, a template or a directory; ERR_CONFLICT:
 * the ref exists; ERR_UNSUPPORTED: this provider cannot; ERR_LIMIT, ERR_NO_SPACE: the machine is
 * full; ERR_UNAVAILABLE: try again. Before anything ends because a machine is gone, provider_gone()
 * is asked. */
#ifndef PROVIDER_PROVIDER_H
#define PROVIDER_PROVIDER_H

#include "base/setting.h"
#include "model/order.h"
#include "model/sandbox.h"

struct provider;

struct machine_state {
    struct limits limits; /* in force */
    uint64_t memory_bytes, memory_cache_bytes, memory_peak_bytes, cpu_us, pids, disk_bytes;
    uint64_t net_rx_bytes, net_tx_bytes;
    int64_t left_ms; /* until the provider itself ends it; NEVER: it does not */
    int64_t network; /* enum sandbox_network */
    bool paused;
    bool asleep;        /* paused, and only its files are left: its processes are gone */
    bool stopped;       /* its first process was, from outside: it will never answer */
    bool outdated;      /* its template has changed: a new machine would begin with other files */
    char template[128]; /* as it was asked for */
    char unreachable[256];  /* of adopt(): see there; "": it can be reached */
    bool astray;            /* only its files were found: it ran when all else was lost */
    uint32_t flags;         /* ORDER_*, as create() was told */
    struct order_mark mark; /* whose it is: as create() or claim() were told last */
};

struct machine_template {
    char name[64 + 1];
    const char *kind;                    /* "host", "directory", "archive" */
    struct limits limits;                /* zeroes: the table's */
    char user[64 + 1], workdir[255 + 1]; /* defaults for commands; "": none */
};

enum machine_event_kind {
    MACHINE_LIMIT,
    MACHINE_ENDED,
    MACHINE_DOWN,        /* asleep now, and nobody asked for that; filled as for ENDED */
    MACHINE_UNREACHABLE, /* as adopt() says, of one that was known; text says why */
    MACHINE_ASTRAY,      /* the same: its files are there; has it ended? Its record knows */
    MACHINE_LOST,
    MACHINE_REGAINED
};

struct machine_event {
    enum machine_event_kind kind;
    const char *ref;
    enum limit_id limit; /* LIMIT: which was met, its value, the use; ENDED: or LIMIT_NONE */
    uint64_t value, use;
    uint64_t sockets;           /* of the use: what waited in sockets, if that was why; 0 */
    const char *reason;         /* ENDED: "request", "lifetime", "memory", "itself", "failed" */
    const char *text;           /* ENDED: a sentence */
    struct machine_state state; /* ENDED: the last */
};
/* Must not park. MACHINE_LOST: the provider lost touch with all of its machines (ref NULL). When it
 * has found them again it tells of those that ended meanwhile, then MACHINE_REGAINED (ref NULL). A
 * machine whose create() failed has no events; one that was destroyed has its MACHINE_ENDED. */
typedef void provider_event_fn(void *arg, const struct machine_event *e);

typedef int provider_ref_fn(void *arg, const char *ref);                       /* non-zero stops */
typedef int provider_template_fn(void *arg, const struct machine_template *t); /* the same */

struct provider_ops {
    const char *name; /* "local", "fake" */
    /* ORDER_STAY: when its first process dies its files stay: MACHINE_DOWN, and resume() it.
     * ORDER_EAGER: returns when only building is left; a failure then comes as an event. */
    int (*create)(struct provider *p, const char *ref, const struct order *order,
                  struct machine_state *out, struct err *err);
    /* Returns when nothing of it runs any more. ERR_NO_SANDBOX: there was none. */
    int (*destroy)(struct provider *p, const char *ref, struct err *err);
    /* Every machine but those that other programs hold (a `cove run` in another terminal). */
    int (*list)(struct provider *p, provider_ref_fn *fn, void *arg, struct err *err);
    int (*templates)(struct provider *p, provider_template_fn *fn, void *arg, struct err *err);
    int (*stat)(struct provider *p, const char *ref, struct machine_state *out, struct err *err);
    /* Zeroes: as they are. A lifetime counts from now. */
    int (*limits)(struct provider *p, const char *ref, const struct limits *l, struct err *err);
    /* The same, and whose it is from now on, which survives us when it returns. */
    int (*claim)(struct provider *p, const char *ref, const struct limits *l,
                 const struct order_mark *mark, struct err *err);
    /* Its files are on disk, its processes stand still, and so does its lifetime. May take as long
     * as writing out takes, which *flush_us says. One that is paused already: fine. */
    int (*pause)(struct provider *p, const char *ref, bool files_only, uint64_t *flush_us,
                 struct err *err);
    /* lifetime_ms: from now on; 0: what was left of it. Undoes a pause that is under way, too.
     * *anew: its processes are gone, it was started again on its files; the guest knows nothing. */
    int (*resume)(struct provider *p, const char *ref, uint64_t lifetime_ms, bool *anew,
                  struct err *err);
    int (*snapshot)(struct provider *p, const char *ref, const char *snapshot, struct err *err);
    /* A connected, non-blocking descriptor, close-on-exec. GUEST_PORT reaches the guest itself.
     * ERR_UPSTREAM "port N is not open" when nothing listens there. */
    int (*dial)(struct provider *p, const char *ref, uint16_t port, int64_t until, struct err *err);
    /* Takes over events of machines that a former process of ours made; fills their state. One of
     * which the provider cannot read what it wrote is there and says so (unreachable), with nothing
     * else in its state; every other call but destroy() is ERR_UNAVAILABLE until it can. */
    int (*adopt)(struct provider *p, const char *ref, struct machine_state *out, struct err *err);
    void (*close)(struct provider *p); /* leaves the machines as they are */
};

struct provider {
    const struct provider_ops *ops;
    provider_event_fn *on_event;
    void *arg;
};

enum {
    PROVIDER_GUEST_PORT = 49983,
    PROVIDER_FAKE_CLOSED = 1, /* nothing listens on this port of a fake machine */
};

struct provider_limits {
    int64_t start_ms, wait_ms, answer_ms, pause_ms, snapshot_ms;
};
extern struct provider_limits provider_limits;
extern const struct setting provider_settings[];

/* Machines of this computer through its keeper, at a place that outlives this call. In a coroutine:
 * waits for a keeper that is just starting; one of another data directory is ERR_CONFLICT.
 * Reconnects by itself when the keeper was restarted; calls meanwhile wait a bounded time, then are
 * ERR_UNAVAILABLE. */
struct keep_where;
int provider_local(const struct keep_where *where, provider_event_fn *on_event, void *arg,
                   struct provider **out, struct err *err);

/* In memory, for tests: machines are records that end at their lifetime, templates are those of a
 * fresh machine (host and its aliases), ports are socket pairs that answer HTTP: POST /init and GET
 * /health with 204, anything else with 200. fail(op) makes the next calls of that name fail with
 * the code, having done nothing; delay makes every one slow (0: no more). In a coroutine. */
struct provider *provider_fake(provider_event_fn *on_event, void *arg);
void provider_fake_fail(struct provider *p, const char *op, enum err_code code, int times);
void provider_fake_delay(struct provider *p, const char *op, int64_t ms);
/* A paused one loses its processes, as by a restart of the computer. */
void provider_fake_sleep(struct provider *p, const char *ref);
/* The same of any, and all that was found of it is its files. */
void provider_fake_astray(struct provider *p, const char *ref);
/* What was written of it cannot be read, for this reason; "": it can again. */
void provider_fake_unreachable(struct provider *p, const char *ref, const char *why);
/* It is not there any more, and nobody is told. */
void provider_fake_vanish(struct provider *p, const char *ref);
/* The first process of one that was made to stay dies. */
void provider_fake_die(struct provider *p, const char *ref);
/* Its guest takes connections and answers nobody; stopped: and shows why. false: as before. */
void provider_fake_hang(struct provider *p, const char *ref, bool hung, bool stopped);
void provider_fake_template(struct provider *p, const char *name); /* one was added; "": removed */
void provider_fake_emit(struct provider *p, const struct machine_event *e);

/* Logs every call of another one with its duration and outcome, and counts them for Prometheus. */
struct provider *provider_trace(struct provider *inner);
void provider_trace_metrics(struct provider *p, struct buf *out); /* of a provider_trace() */

/* A call of it failed so: is the machine gone? Only what the provider says it looked up counts, and
 * twice: it is asked once more, or two times if that failure was no such look-up. Parks. */
bool provider_gone(struct provider *p, const char *ref, const struct err *said);

void provider_closep(struct provider **p);

#endif
