/* control.h - all the policy: who may have which sandbox, how it comes to be, how long it lives.
 * The facades rename and reshape, they decide nothing.
 *
 * One struct control per process, owned by its loop. Live sandboxes are in memory (the store is
 * their durable copy, written before anything is acknowledged), so finding one costs a look-up. A
 * struct sandbox * from here is valid until the next call that may park: hold it by control_hold()
 * to keep it longer (a held one stays in memory, its state may become SANDBOX_ENDED). */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include "base/setting.h"
#include "io/client.h"
#include "provider/provider.h"
#include "store/store.h"

struct control;

struct control_options {
    struct store *store;       /* borrowed: closed by the caller, after control_close() */
    const char *run_dir;       /* of the keeper */
    const char *boot;          /* names this start of the machine; NULL: unknown */
    struct provider *provider; /* owned from here on; its on_event was given control_event */
    const char *create_fault;  /* why no sandbox can be made; NULL: they can */
    const char *token_secret;  /* signs logins' tokens; NULL: the store's own */
    int template_news;         /* has something to read when one came or went; 0: nobody tells */
    const char *domain;        /* of sandboxes' host names: "localhost:8000", "cove.example" */
    const char *const *allow_mounts; /* prefixes; NULL-terminated; NULL: none */
    int64_t forward_min,
        forward_max; /* host ports that every user may name for forwards; 0: none */
    bool ephemeral;  /* control_close() ends every sandbox */
    bool no_network; /* the machine gives none: NETWORK_DEFAULT means that */
    bool one_user;   /* root is the only user inside, and the default */
};

extern const struct setting control_auth_settings[]; /* auth....: session.c */
extern const struct setting control_settings[];      /* pool.size, pool.memory-bytes, control.... */

/* Reads the store, adopts what lives, finishes or undoes what was half done, starts the pool and
 * the life cycle. In a coroutine. *out is set from the beginning on (NULL again on failure): it is
 * what the provider's events are given, and some come while we adopt. */
int control_open(const struct control_options *o, struct control **out, struct err *err);
void control_stop(struct control *c);  /* parks until creates under way are done; no more begin */
void control_close(struct control *c); /* parks; sandboxes stay, unless ephemeral; pool jails end */
provider_event_fn control_event;       /* arg: struct control ** */
const char *control_domain(const struct control *c);
const char *control_node(const struct control *c);

/* ---- who asks ---- */

struct actor {
    int64_t user;
    bool admin;
    char name[USER_NAME + 1];
};

/* From an API key, or the token of a login; remembered in memory for a while, so that a request
 * costs no query. */
int control_actor_by_key(struct control *c, struct str key, struct actor *out, struct err *err);
int control_user_add(struct control *c, const char *name, enum user_role role,
                     const char *password /* or NULL */, struct user *out, struct err *err);
int control_user_get(struct control *c, const char *name, struct user *out, struct err *err);
/* Forgets keys. Says no more of u than who it is: of what else it holds nothing is written. */
int control_user_change(struct control *c, const struct user *u, const struct user_change *change,
                        struct err *err);
/* The fn of this and of every other call with a store_*_fn runs on a worker thread while the caller
 * waits: it may use what is the caller's, and must not park. */
int control_user_list(struct control *c, store_user_fn *fn, void *arg, struct err *err);
int control_user_password(struct control *c, const char *name, const char *password,
                          struct err *err);
/* text gets the key itself, which cannot be had again. key: NULL makes one, else this one */
int control_key_add(struct control *c, int64_t user, const char *name, const char *key,
                    struct api_key *out, char text[static 64], struct err *err);
/* Is it one that could be given? They look at nothing else, and work without a struct control. */
int control_key_check(const char *key, struct err *err);
int control_password_check(const char *password, struct err *err);
int control_key_list(struct control *c, int64_t user, store_key_fn *fn, void *arg, struct err *err);
int control_key_remove(struct control *c, int64_t user, const char *id, struct err *err);

/* ---- logins ---- */

/* Sentences that a facade may have words of its own for; see also jwt.h. */
#define TOKEN_SUPERSEDED "the token works no more: its login has ended, log in again"
#define LOGIN_WRONG      "wrong user name or password"
#define LOGIN_LOCKED     "this user cannot log in now: locked, or too many wrong passwords"

struct login_request {
    const char *peer; /* the address it comes from: attempts are counted by it */
    const char *name, *password;
    bool by_query; /* the login of API pages, which has a rate of its own */
};

struct login { /* zeroed before; control_login_free() it */
    struct user user;
    struct session session;
    struct buf token;
};

/* ERR_NOT_FOUND no such user, ERR_DENIED a wrong password or a locked user, ERR_LIMIT too many
 * attempts. Parks for as long as hashing takes. Earlier logins of the user end, unless he may have
 * several. */
int control_login(struct control *c, const struct login_request *rq, struct login *out,
                  struct err *err);
/* A new token for one that works, which then works no more. */
int control_refresh(struct control *c, struct str token, struct login *out, struct err *err);
int control_logout(struct control *c, struct str token, struct err *err);
void control_login_free(struct login *l);

/* ---- sandboxes ---- */

enum { NETWORK_DEFAULT = -1 }; /* of a create_spec: open, unless control_options.no_network */

struct create_spec {
    const char *template, *label, *facade;
    struct limits limits; /* zeroes: the template's; lifetime is life's business */
    struct life life;
    int64_t network; /* enum sandbox_network or NETWORK_DEFAULT */
    bool secure, strict, public, ping;
    const struct map *metadata, *env; /* NULL: none */
    struct objs mounts, forwards;     /* struct sandbox_mount, struct sandbox_forward */
    const char *idem_key;             /* NULL: none */
    const char *idem_hash; /* of the request: another one under the same key is ERR_CONFLICT */
};

/* *existed: the idempotency key was used before, and this is what it made. */
int control_create(struct control *c, const struct actor *who, const struct create_spec *s,
                   struct sandbox **out, bool *existed, struct err *err);
/* By short id or uuid. What `who` may not see is ERR_NOT_FOUND. who NULL: anybody's. */
struct sandbox *control_find(struct control *c, const struct actor *who, struct str id,
                             struct err *err);
/* A copy of it, live or, from the store, ended; parks. The caller calls sandbox_finish(). */
int control_get(struct control *c, const struct actor *who, struct str id, struct sandbox *out,
                struct err *err);
/* Those that ended, the latest first; parks. owner 0: anybody's, for admins. */
int control_ended(struct control *c, const struct actor *who, int64_t owner, int64_t limit,
                  store_sandbox_fn *fn, void *arg, struct err *err);
int control_templates(struct control *c, provider_template_fn *fn, void *arg, struct err *err);
const char *control_provider_name(const struct control *c);
/* May clients read this path of the machine in a sentence? What they may mount, they may. */
bool control_may_show(const struct control *c, struct str path);
void control_hold(struct sandbox *s);
void control_release(struct sandbox *s);
int control_kill(struct control *c, const struct actor *who, struct sandbox *s, const char *reason,
                 struct err *err);
/* The deadline becomes now + ms. extend: only if that is later than the present one. A paused one
 * has it from the moment it is resumed on. */
int control_set_timeout(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                        bool extend, struct err *err);
/* Its files are on disk, its processes stand still, and so does its time. Parks for as long as
 * writing out takes. ERR_CONFLICT: it is paused already. */
int control_pause(struct control *c, const struct actor *who, struct sandbox *s,
                  const char *reason /* for the log; or NULL */, bool memory, struct err *err);
/* It goes on, and has ms from now on; 0: no time-out; -1: as it was last set. ERR_CONFLICT: it is
 * not paused. */
int control_resume(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                   bool memory, struct err *err);
/* It runs, and has at least ms: resumed if it was paused, extended otherwise. */
int control_connect(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                    bool memory, bool *resumed, struct err *err);
/* A request for it has come: a paused one with auto_resume goes on, for CONTROL_WAKE_MS at least
 * where it has a time-out. ERR_CONFLICT: it stays paused. */
enum { CONTROL_WAKE_MS = 300000 };
int control_wake(struct control *c, struct sandbox *s, struct err *err);
/* The same for a request of nobody knows whom: ERR_DENIED where only files are left of it, since
 * there is nothing to come to, and starting it anew is its owner's business. */
int control_wake_stray(struct control *c, struct sandbox *s, struct err *err);
/* An operation on it begins: one that is paused goes on, whatever its maker said of requests. While
 * one is under way it is not idle. ERR_CONFLICT: it neither runs nor is paused. Each that succeeded
 * is followed by control_work_end(); hold s meanwhile. */
int control_work_begin(struct control *c, const struct actor *who, struct sandbox *s,
                       struct err *err);
void control_work_end(struct sandbox *s);
/* It may be idle for so long, from now on. */
int control_set_idle(struct control *c, const struct actor *who, struct sandbox *s, int64_t ms,
                     struct err *err);
struct sandbox_times {                /* unix ms; 0: never */
    int64_t started, stopped, active; /* last: it began to run; it was paused; it was used */
};
int control_times(struct control *c, struct sandbox *s, struct sandbox_times *out, struct err *err);
int control_set_limits(struct control *c, const struct actor *who, struct sandbox *s,
                       const struct limits *l, struct err *err);
/* A call to its guest waits for long: a look at it, in the background. One that was stopped, or
 * that says nothing for control.hung-ms, is ended with that reason. */
void control_doubt(struct sandbox *s);
void control_touch(struct sandbox *s);            /* activity, for those with an idle rule */
int64_t control_left_ms(const struct sandbox *s); /* until it expires; NEVER */
/* Why its machine cannot be reached, because the provider cannot read what it wrote of it; NULL: it
 * can. Valid until the next call that parks. */
const char *control_unreachable(struct control *c, const char *id);
int control_stat(struct control *c, struct sandbox *s, struct machine_state *out, struct err *err);

struct sandbox_filter {
    int64_t owner;   /* 0: anybody's, for admins */
    unsigned states; /* bits 1 << enum sandbox_state; 0: running and paused; see control_ended() */
    const struct map *metadata; /* all pairs must match; NULL: any */
    const char *template;       /* NULL: any */
    int64_t started_after_ms;
    bool ascending; /* by start time (creating: by its creation), then id; else the latest first */
    struct str after; /* a cursor: "<started_ms>.<id>"; empty: from the beginning */
    size_t limit;     /* 0: all */
};
typedef int control_sandbox_fn(void *arg, struct sandbox *s); /* must not park; non-zero stops */
/* *more: there is another page behind the last one given. */
int control_list(struct control *c, const struct actor *who, const struct sandbox_filter *f,
                 control_sandbox_fn *fn, void *arg, bool *more, struct err *err);

/* ---- machines that the store does not know: for admins ---- */

struct orphan {
    char id[SANDBOX_ID + 1];
    int64_t found_ms, until_ms; /* unix; until 0: for ever */
    char reason[ORPHAN_REASON]; /* why it was set aside */
    struct machine_state state; /* unreachable: nothing else is known */
};
typedef int control_orphan_fn(void *arg,
                              const struct orphan *o); /* must not park; non-zero stops */
int control_orphan_list(struct control *c, control_orphan_fn *fn, void *arg, struct err *err);
int control_orphan_get(struct control *c, struct str id, struct orphan *out, struct err *err);
/* It becomes a sandbox of this user's. restart: only its files do, and it is paused; its processes
 * end. ERR_CONFLICT: it cannot be without that. */
int control_orphan_adopt(struct control *c, const struct actor *who, struct str id,
                         const char *owner, bool restart, struct sandbox **out, struct err *err);
int control_orphan_end(struct control *c, const struct actor *who, struct str id, struct err *err);

/* ---- metrics, events ---- */

struct sample {
    int64_t at_ms;  /* unix */
    double cpu_pct; /* of one core */
    uint64_t cpu_count_milli, memory, memory_max, memory_cache, disk, disk_max, pids, net_rx,
        net_tx;
};
/* The recent ones of a sandbox in [from, to], oldest first; the newest is taken now. */
typedef int control_sample_fn(void *arg, const struct sample *m);
int control_samples(struct control *c, struct sandbox *s, int64_t from_ms, int64_t to_ms,
                    control_sample_fn *fn, void *arg, struct err *err);

int control_events(struct control *c, const char *sandbox, int64_t after, int64_t limit,
                   store_event_fn *fn, void *arg, struct err *err);
/* Parks until there is an event of the sandbox behind `after`, or until then: 1, 0, -1. */
int control_events_wait(struct control *c, const char *sandbox, int64_t after, int64_t until,
                        struct err *err);
void control_metrics(struct control *c, struct buf *out); /* Prometheus: counts, pool, calls */

/* ---- browsers: door.c ---- */

enum { DOOR_TICKET = 40, DOOR_COOKIE = 96 };
/* For one request to this port; how long it is good for, in ms. */
int64_t control_door_ticket(struct sandbox *s, uint16_t port, char out[static DOOR_TICKET + 1]);
bool control_door_take(struct sandbox *s, uint16_t port, struct str ticket); /* it is spent */
/* What the browser has from then on; how long that is good for, in s. */
int64_t control_door_cookie(const struct sandbox *s, uint16_t port, char out[static DOOR_COOKIE]);
bool control_door_cookie_good(const struct sandbox *s, uint16_t port, struct str cookie);
/* Is this text the token of a login here, also of one that has ended? */
bool control_is_login(const struct control *c, struct str text);

/* ---- reaching into one ---- */

/* A client_to for a port of it: connections are kept per sandbox and port. Valid while s is held.
 */
void control_to(struct control *c, struct sandbox *s, uint16_t port, struct client_to *out);
struct client *control_client(struct control *c);

#endif
