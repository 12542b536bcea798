/* store.h - what must not be lost: sandboxes, their events, users, keys, jobs, settings of
 * the node.
 *
 * One table of functions per kind of store. Every call blocks: the caller runs it by co_call().
 * A store may be called from several threads at once. ERR_NOT_FOUND, ERR_CONFLICT (exists already,
 * or was not in the state the caller thought), ERR_NO_SPACE and ERR_UNAVAILABLE are told apart.
 *
 * "Written" means: survives kill -9 of every process of ours. Users, keys, values and pauses
 * survive power loss too. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "model/job.h"
#include "model/sandbox.h"
#include "model/user.h"

struct store;

#define STORE_MARK "mark" /* a value: names this store, until it is put back from a backup */
/* A value: the first STORE_MARK of one that a release without marks had used; other stores have
 * none. */
#define STORE_FORMER "former"

enum { ORPHAN_REASON = 200 };

struct orphan_row { /* a machine that no sandbox's row knows */
    char id[SANDBOX_ID + 1];
    int64_t found_ms;           /* unix, for people: when it was seen first */
    int64_t kept_ms;            /* for so long servers have kept it, by clocks that nobody sets */
    char reason[ORPHAN_REASON]; /* for people */
};

/* Called for each row; what it is given is valid for the call. Non-zero stops. Must not call the
 * store: other readers wait meanwhile. */
typedef int store_sandbox_fn(void *arg, const struct sandbox *s);
typedef int store_event_fn(void *arg, const struct event *e);
typedef int store_user_fn(void *arg, const struct user *u);
typedef int store_key_fn(void *arg, const struct api_key *k);
typedef int store_job_fn(void *arg, const struct job *j);
typedef int store_orphan_fn(void *arg, const struct orphan_row *o);

struct store_ops {
    const char *name; /* "sqlite" */
    void (*close)(struct store *s);

    /* ---- sandboxes ---- */
    /* With an event (may be NULL) in the same transaction. ERR_CONFLICT when the owner has used the
     * idempotency key before: then existing (may be NULL) is its id, else "". ERR_NOT_FOUND: no
     * such owner. template, provider, node and facade must not be NULL. */
    int (*sandbox_add)(struct store *s, const struct sandbox *b, const struct event *e,
                       char existing[SANDBOX_ID + 1], struct err *err);
    /* All but id, uuid, owner and the idempotency fields. expect: the state the row must be in now,
     * else ERR_CONFLICT. With an event (may be NULL) in the same transaction. One that ends without
     * having started lets go of its idempotency key: the same request may be tried again. */
    int (*sandbox_save)(struct store *s, const struct sandbox *b, enum sandbox_state expect,
                        const struct event *e, struct err *err);
    int (*sandbox_get)(struct store *s, const char *id_or_uuid, struct sandbox *out,
                       struct err *err);
    int (*sandbox_by_key)(struct store *s, int64_t owner, const char *idem_key, struct sandbox *out,
                          struct err *err);
    /* Those of a node that have not ended: what a start reads. */
    int (*sandbox_live)(struct store *s, const char *node, store_sandbox_fn *fn, void *arg,
                        struct err *err);
    /* The latest ended ones first; owner 0: anybody's */
    int (*sandbox_ended)(struct store *s, int64_t owner, int64_t limit, store_sandbox_fn *fn,
                         void *arg, struct err *err);
    /* Forgets ended ones, their events and idempotency keys, older than that; how many. */
    int64_t (*sandbox_prune)(struct store *s, int64_t ended_before_ms, struct err *err);

    /* ---- machines without a row ---- */
    /* One that is there keeps its found_ms, and the longer kept_ms. */
    int (*orphan_put)(struct store *s, const struct orphan_row *o, struct err *err);
    int (*orphan_list)(struct store *s, store_orphan_fn *fn, void *arg, struct err *err);
    int (*orphan_remove)(struct store *s, const char *id, struct err *err); /* none is fine */

    /* ---- events ---- */
    /* The store makes its seq: greater than that of any before, forgotten ones too. */
    int (*event_add)(struct store *s, const struct event *e, struct err *err);
    int (*event_list)(struct store *s, const char *sandbox, int64_t after_seq, int64_t limit,
                      store_event_fn *fn, void *arg, struct err *err);

    /* ---- users and keys ---- */
    int (*user_add)(struct store *s, struct user *u, struct err *err); /* fills id */
    int (*user_get)(struct store *s, const char *name, struct user *out, struct err *err);
    int (*user_by_id)(struct store *s, int64_t id, struct user *out, struct err *err);
    /* In one statement, so that it meets no other change half-way. With another password, or
     * locked, the user is logged in nowhere any more: that is one with the change. */
    int (*user_change)(struct store *s, int64_t id, const struct user_change *u, struct err *err);
    int (*user_list)(struct store *s, store_user_fn *fn, void *arg, struct err *err);
    int (*key_add)(struct store *s, const struct api_key *k, struct err *err);
    int (*key_by_hash)(struct store *s, const char *hash, struct api_key *out, struct err *err);
    int (*key_list)(struct store *s, int64_t user, store_key_fn *fn, void *arg, struct err *err);
    /* Not worth waiting for the disk: may be lost with the power. */
    int (*key_used)(struct store *s, const char *id, int64_t at_ms, struct err *err);
    int (*key_remove)(struct store *s, int64_t user, const char *id, struct err *err); /* 0: any */

    /* ---- logins ---- */
    /* password: the user's hash when it was found right. ERR_DENIED if the user has another one
     * now, or is locked. alone: the new login replaces all others of the user. Expired ones of that
     * user are deleted. */
    int (*session_add)(struct store *s, const struct session *x, const char *password, bool alone,
                       struct err *err);
    /* x takes the place of the login old of the same user; alone: and of all others of that user.
     * ERR_NOT_FOUND: there is none of that name, and nothing was done. Of several at once one wins.
     */
    int (*session_renew)(struct store *s, const char *old, const struct session *x, bool alone,
                         struct err *err);
    int (*session_get)(struct store *s, const char *id, struct session *out, struct err *err);
    int (*session_remove)(struct store *s, const char *id, struct err *err);

    /* ---- single values: the node's id, keys that sign ---- */
    /* Adds it to out. */
    int (*value_get)(struct store *s, const char *name, struct buf *out, struct err *err);
    int (*value_set)(struct store *s, const char *name, struct str value, struct err *err);
    /* Sets it where there is none, and gives what is there: two starts agree. */
    int (*value_once)(struct store *s, const char *name, struct str value, struct buf *out,
                      struct err *err);

    /* ---- jobs: the rows of the embedded queue, which says what each promises (queue.h) ---- */
    int (*job_push)(struct store *s, const struct job *j, enum job_push how, int64_t now_ms,
                    struct err *err);
    int (*job_claim)(struct store *s, const char *topic, int64_t now_ms, int64_t lease_ms, int max,
                     struct job *out, struct arena *a, struct err *err);
    int (*job_done)(struct store *s, const struct job *j, struct err *err);
    int (*job_extend)(struct store *s, const struct job *j, int64_t until_ms, struct err *err);
    int (*job_retry)(struct store *s, const struct job *j, int64_t due_ms, const char *error,
                     struct err *err);
    int (*job_bury)(struct store *s, const struct job *j, const char *error, int64_t now_ms,
                    struct err *err);
    int (*job_remove)(struct store *s, const char *topic, const char *key, struct err *err);
    int (*job_next)(struct store *s, const char *topic, int64_t *due_ms, struct err *err);
    int (*job_dead)(struct store *s, const char *topic, int64_t limit, store_job_fn *fn, void *arg,
                    struct err *err);
    int (*job_requeue)(struct store *s, const char *topic, const char *key, int64_t now_ms,
                       struct err *err);
    int64_t (*job_forget)(struct store *s, int64_t dead_before_ms, struct err *err);

    /* A copy of everything as of one moment, while the store goes on working. path must not exist;
     * it is whole or absent. */
    int (*backup)(struct store *s, const char *path, struct err *err);
};

struct store {
    const struct store_ops *ops;
};

/* SQLite in one file: migrates it, checks its integrity; one that is damaged or newer than we are
 * is refused with what to do. */
int store_open_sqlite(const char *path, struct store **out, struct err *err);
int store_backup(struct store *s, const char *path, struct err *err); /* of any kind of store */
void store_closep(struct store **s);

/* Is there one with tables in it? 1; 0: none, or an empty file. Opens no store. */
int store_sqlite_found(const char *path, struct err *err);
/* Without a store: copies a database that a server may be using, if it is whole; and puts a backup
 * in a database's place, which nobody may have open. What was there is beside it then, by the name
 * that aside gets. */
int store_sqlite_backup(const char *path, const char *to, struct err *err);
int store_sqlite_restore(const char *from, const char *path, struct buf *aside, struct err *err);

/* For the stores themselves: ERR_CONFLICT where the table of moves does not lead from expect to
 * b's state; staying is a save like any other. */
int store_move(const struct sandbox *b, enum sandbox_state expect, struct err *err);

#endif
