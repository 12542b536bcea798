/* impl.h - what the files of this folder share and nobody else sees.
 *
 * A live sandbox's record (struct live) changes only in the hands of whoever has its lock: calls to
 * the store and the provider park in the middle of every change. Workers get copies of the struct
 * sandbox; its strings never change once made. */
#ifndef CONTROL_IMPL_H
#define CONTROL_IMPL_H

#include "base/lazy.h"
#include "control/control.h"
#include "queue/queue.h"

extern struct lazy lazy_crypt;

enum {
    TABLE_BUCKETS = 1024,
    WAY_BUCKETS = 16,
    GRACE_MS = 2000, /* the provider ends a sandbox so long after we should have */
    SERVICES = 8,
    NOT_IN_HEAP = 0, /* the heap's slots count from 1 */
};

/* Why one ended that provider_gone() says so of: the witness belongs to it. */
#define MACHINE_IS_GONE "itself: its machine is gone: its provider, asked twice, has none"

struct control_limits {
    int64_t sandboxes, user_sandboxes, map_bytes, init_ms, hung_ms, sample_s, ended_days,
        forward_conns;
    int64_t paused_retention_s, pause_give_up_s, orphan_retention_s;
    int64_t door_ticket_s, door_cookie_s;
    int64_t pool_size, pool_memory, pool_age_s, pool_idle_s;
};
extern struct control_limits control_limits;

struct samples;  /* samples.c */
struct forward;  /* forward.c */
struct pool;     /* pool.c */
struct tally;    /* table.c */
struct leftover; /* end.c */
struct ticket;   /* door.c */
struct key_cache;
struct sessions; /* session.c */

struct way { /* to one port of one sandbox: what a struct client_to points to */
    struct way *next;
    struct live *live;
    uint16_t port;
    char key[SANDBOX_ID + 8];
};

struct live {
    struct sandbox s;
    struct control *control;
    int refs;            /* one is the table's */
    bool busy;           /* somebody has the lock ... */
    struct co_cond idle; /* ... and lets go of it */
    struct list all; /* in control.all, in order of creation; a removed one is out of all lists */
    struct list by_id, by_uuid, by_key;

    int64_t working;           /* operations under way: while there are any it is not idle */
    int64_t deadline, touched; /* monotonic ms; NEVER: no deadline */
    int64_t due;               /* when to look at it: the heap's key */
    size_t slot;               /* in the heap */
    int64_t again;             /* 0, or not before this: what failed at its time is tried again */
    int64_t settle_ms;         /* ... after so long the last time */
    int64_t failing;           /* since when pausing it at its end has failed; 0: it has not */
    int64_t paused_ms;         /* since when, unix; 0: a former server knows */
    int64_t paused_for;        /* the last time: ms */
    char down[256];            /* why its machine died, until it was started again; "": it lives */
    int64_t woken, crash_ms;   /* when that was, and how long it waited for it */

    char unreachable[256]; /* why the provider cannot say anything of its machine; "": it can */

    bool unmarked; /* its machine does not say yet whose it is */
    bool doubted;  /* somebody looks whether its guest still answers */

    bool machine_gone; /* while it was being created: */
    struct err fault;  /* what ended its machine */

    uint64_t news; /* counts its events, so that a waiter misses none */
    struct co_cond happened;
    int64_t limit_told_ms[LIMIT_COUNT]; /* when the log last heard of each */
    int64_t limits_told;

    int spare; /* a connection to the guest made ahead; -1: none */
    struct way *ways[WAY_BUCKETS];
    struct forward *forwards;
    struct ticket *tickets; /* the latest first */
    struct samples *samples;
    struct list sampling; /* in control.sampling, by sample_at */
    int64_t sample_at;
};

struct counts {
    uint64_t created_warm, created_cold, create_failed, ended, expired, pool_made, pool_failed;
    uint64_t create_us, paused, resumed;
};

struct templates { /* a copy of the provider's list, because creates ask for it again and again */
    struct machine_template *items;
    size_t n;
    int news;              /* a descriptor, see control.h */
    uint64_t heard, known; /* changes that it told of, and how many of them the list has */
};

struct control {
    struct store *store;
    struct provider *provider;
    struct client client;
    char *domain, *node;
    char *mark;                       /* of the store, on machines */
    const char *create_fault;         /* borrowed; NULL: none */
    char **allow_mounts;              /* NULL-terminated; NULL: none */
    int64_t forward_min, forward_max; /* host ports that every user may name; 0: none */
    bool ephemeral, no_network, one_user, closing;
    bool deaf;   /* to the provider's events: we are about to be gone */
    bool former; /* the store is the one that a release without marks used */

    struct list all;
    struct list by_id[TABLE_BUCKETS], by_uuid[TABLE_BUCKETS], by_key[TABLE_BUCKETS];
    size_t count;
    struct tally *tallies; /* sandboxes by owner */

    struct list tasks; /* coroutines of ours that must have ended before we do */
    struct co_cond task_ended;
    struct co_ref services[SERVICES];
    size_t nservices;

    struct live **heap; /* [1 .. nheap] */
    size_t nheap, heap_cap;
    struct co_cond heap_changed;

    struct queue *queue; /* what failed and is tried again */
    char *retries;       /* our topic in it */
    struct co_cond retry_added;
    uint64_t retry_news; /* counts them, so that one that comes while we look is not missed */

    struct list orphans; /* orphans.c */
    size_t norphans;
    struct list pools;
    struct pool *pool_default;
    struct co_cond refill;
    size_t creating, pool_making;
    uint64_t pool_bytes; /* measured, of all that wait */
    struct templates templates;

    struct list sampling;
    struct co_cond sampling_begun;
    struct leftover *leftovers; /* what could not be ended or written yet */
    struct leftover *trying;    /* those of them that are being tried again */
    struct co_cond leftover_added;
    struct key_cache *keys;
    struct sessions *sessions;
    char *door_secret; /* signs cookies */
    struct counts counts;
};

/* of a sandbox whose maker did not say */
static inline enum sandbox_network control_network(const struct control *c)
{
    return c->no_network ? NETWORK_NONE : NETWORK_OPEN;
}

int64_t control_wall_ms(void);
/* Runs fn as a coroutine that control_close() waits for. -1: no memory for it. */
int control_go(struct control *c, co_fn *fn, void *arg);
bool control_unclear(const struct err *err); /* has a create that failed so left anything? */
int control_cancelled(struct err *err);      /* the error of a wait that was cancelled */

/* ---- the store, always on a worker ---- */

typedef int control_store_fn(struct store *s, void *arg, struct err *err);
int control_store(struct control *c, control_store_fn *fn, void *arg, struct err *err);
/* One of this store, made at its first use; the caller's. */
int control_secret(struct control *c, const char *name, char **out, struct err *err);
int control_write(struct control *c, const struct sandbox *row, enum sandbox_state expect,
                  const struct event *e, struct err *err);
/* Writes `next` over l's row and then over l. With l's lock. e may be NULL. */
int control_save(struct live *l, const struct sandbox *next, const struct event *e,
                 struct err *err);
struct event control_event_of(const struct sandbox *s, const char *kind, const char *actor,
                              const char *text);
void control_event_add(struct live *l, const char *kind, const char *actor, const char *text,
                       const char *detail);
void control_news(struct live *l); /* an event of it was written */
/* A call about its machine failed so, while it ran: if the machine is gone, it ends. Parks. */
void control_gone(struct live *l, const struct err *said);

/* ---- table.c ---- */

struct live *live_of(struct sandbox *s);
const struct live *live_of_const(const struct sandbox *s);
struct live *live_new(struct control *c);
void live_hold(struct live *l);
void live_release(struct live *l);
void live_releasep(struct live **l);
int live_lock(struct live *l, struct err *err); /* parks; hold it */
void live_unlock(struct live *l);
void table_init(struct control *c);
void table_add(struct control *c, struct live *l); /* the table holds it from now on */
void table_remove(struct control *c, struct live *l);
struct live *table_find(struct control *c, struct str id);
struct live *table_hold(struct control *c, const char *id); /* the same, held; NULL: none */
struct live *table_find_key(struct control *c, int64_t owner, const char *idem_key);
size_t table_count_of(const struct control *c, int64_t owner);
int table_not_found(struct str id, struct err *err); /* E2B's sentence */
bool table_may_see(const struct actor *who, const struct sandbox *s);

/* ---- create ---- */

int spec_check(struct control *c, const struct actor *who, const struct create_spec *s,
               struct err *err);
int spec_quota(struct control *c, const struct actor *who, struct err *err);
void spec_fill(struct control *c, const struct actor *who, const struct create_spec *s,
               struct sandbox *out);

struct guest_init {
    const struct map *env;
    const char *token, *user, *workdir; /* NULL, "": not said */
    const char *was;                    /* what it demands now; NULL: the token, if any */
    bool known;                         /* the guest may demand the token already */
    int64_t paused_ms;                  /* it has just stood still for so long; 0: it has not */
};
int guest_init(struct control *c, const struct client_to *to, const struct guest_init *g,
               struct err *err);
int guest_dial(struct control *c, const char *ref, struct err *err); /* a connection made ahead */
/* NULL: it says nothing of itself, or is not there. Parks; valid until the next call that does. */
const struct machine_template *template_find(struct control *c, const char *name);
bool template_listed(const struct control *c, const char *name); /* as far as we know */
int template_refresh(struct control *c, struct err *err);
/* Parks if there is news: reads the list again, and empties pools that are of another one now. */
void template_follow(struct control *c);
bool template_stale(const struct control *c); /* what a name leads to may not be what we know */

/* ---- life ---- */

int64_t life_check_timeout(int64_t ms, struct err *err);
uint64_t life_net_ms(const struct life *l); /* the provider's own lifetime for it */
void life_arm(struct live *l);              /* after its deadline or state changed */
void life_disarm(struct live *l);
void life_serve(void *control);
/* Tries once more what has failed for so long since its end came, at end_ms of its record (0: it
 * was idle). 0: done, or nothing left to do; 1 given up, with err; -1 with err. With its lock. */
int life_retry(struct live *l, int64_t end_ms, int64_t failed_ms, struct err *err);
/* Holds off others; what `who` may not see or has ended is ERR_NOT_FOUND. live_unlock() it. */
int life_lock(struct live *l, const struct actor *who, struct err *err);
int life_extend(struct live *l, const struct actor *who, int64_t ms, struct err *err);
/* Ends it. With its lock; machine: there is one to destroy. The row is written, or will be. */
int life_end(struct live *l, const char *actor, const char *reason, bool machine, struct err *err);
void leftover_machine(struct control *c, const char *ref);
void leftover_row(struct control *c, const struct sandbox *ended, enum sandbox_state expect);
const struct sandbox *leftover_find(const struct control *c, const char *id); /* NULL: none */
void leftover_serve(void *control);
void leftover_finish(struct control *c); /* one last try, then forgets them */

/* ---- health ---- */

void health_doubt(struct live *l); /* looks at its guest in the background */

/* ---- pool ---- */

struct warm { /* a machine that waits for its sandbox */
    struct list in;
    struct pool *pool;
    char id[SANDBOX_ID + 1];
    int fd; /* connected to its guest; -1: it left */
    int64_t since;
    struct machine_state state;
};

void pool_init(struct control *c);
void pool_finish(struct control *c);                                    /* ends what waits */
struct warm *pool_take(struct control *c, const struct create_spec *s); /* NULL: none that fits */
void warm_free(struct warm *w);
bool pool_knows(struct control *c, const char *template); /* it was asked for before */
void pool_asked(struct control *c, const char *template, int64_t network);
bool pool_adopt(struct control *c, const char *ref, const struct machine_state *m);
bool pool_ended(struct control *c, const char *ref); /* its machine is gone: was it one of ours? */
bool pool_marked(const struct machine_state *m);     /* as a former release marked what waits */
void pool_serve(void *control);                      /* refills */
void pool_tend(struct control *c);                   /* what grew old, idle or outdated goes */
void pool_follow(struct control *c);                 /* after the list of templates was read */
void pool_metrics(struct control *c, struct buf *out);

int control_adopt(struct control *c, struct err *err);
/* With its lock: its machine cannot be reached, for this reason; and a look whether it can again.
 */
void adopt_unreachable(struct live *l, const char *why);
void adopt_look(struct live *l);
int adopt_refuse(struct live *l, struct err *err); /* -1: it is unreachable, still */

/* ---- mark.c: whose a machine is, on the machine ---- */

void mark_unclaimed(const struct control *c, struct order_mark *out);
void mark_of(const struct live *l, const char *owner, struct order_mark *out);
/* lifetime_ms: the provider's, from now on; 0: as it is. On disk when it returns. */
int mark_claim(struct live *l, const char *owner, uint64_t lifetime_ms, struct err *err);
bool mark_is_ours(const struct control *c, const struct order_mark *m); /* of this store */
void mark_see(struct live *l, const struct machine_state *m);           /* of one that is adopted */
void mark_renew(void *control); /* of those that mark_see() found wanting; parks */

/* ---- orphans.c ---- */

/* At start: what becomes of machines that no record knows. each() gives their names, then NULL. */
void orphans_settle(struct control *c, const char *(*each)(void *arg, size_t i), void *arg);
bool orphans_know(struct control *c, const char *ref);
/* A machine is gone: was it one of them? */
bool orphans_ended(struct control *c, const char *ref, const char *why);
void orphans_serve(void *control); /* ends those whose time is up */
void orphans_finish(struct control *c);
/* orphan_adopt.c: held, and in the table; NULL with err: all is as it was. */
struct live *orphan_take_over(struct control *c, const struct actor *who, const char *id,
                              const char *owner, bool restart, struct err *err);

/* ---- retry.c ---- */
int retry_open(struct control *c, const char *boot, struct err *err);
void retry_close(struct control *c);
int retry_later(struct live *l, struct err *err); /* life_retry() is called in a while */
void retry_serve(void *control);
void retry_tend(struct control *c); /* forgets old dead letters */

/* ---- pause, all with l's lock ---- */

int life_pause(struct live *l, const char *actor, const char *why, bool files_only,
               struct err *err);
int pause_settle(struct live *l, const struct machine_state *m, struct err *err);
/* It has no processes: PAUSED, if a pause or a resume was under way. */
int pause_over(struct live *l, struct err *err);
void pause_wait(struct live *l, int64_t ms); /* then it is settled */
void pause_settle_now(struct live *l); /* one that is PAUSING or RESUMING, and nobody is at it */
void pause_settle_later(struct live *l);
int64_t pause_deadline(const struct live *l);

/* ---- restart.c: life.restart ---- */

/* Its machine is asleep: written down as RESUMING, so that nobody reaches it before it knows its
 * token. why NULL: that was while we were not there. With its lock. */
int restart_note(struct live *l, const char *why, struct err *err);
void restart_down(struct live *l, const char *why); /* its machine may be; parks */
void restart_look(struct control *c);               /* for all: nobody told us; parks */

/* ---- the rest ---- */

int forward_open(struct live *l, struct err *err);
void forward_close(struct live *l);
void samples_begin(struct live *l);
void samples_end(struct live *l); /* of one that leaves the table */
void samples_free(struct live *l);
void samples_serve(void *control);
int door_open(struct control *c, struct err *err);
void door_close(struct control *c);
void door_forget(struct live *l); /* its tickets */
void door_adopt(struct live *l);  /* a record of a release before doors asked for anything */
void reach_free(struct live *l);
/* Who waits for an answer from it is told that none comes; streams that have begun go on later. */
void reach_interrupt(struct live *l);
void keys_finish(struct control *c);
void users_changed(struct control *c); /* what keys and tokens stand for is forgotten */
int sessions_init(struct control *c, const char *secret, struct err *err);
const char *sessions_secret(const struct control *c); /* that signs logins' tokens; or NULL */
void sessions_finish(struct control *c);
/* Whose token it is, and how long it is good for. */
int session_user(struct control *c, struct str token, struct user *out, int64_t *left_ms,
                 struct err *err);

#endif
