/* sandbox.h - one sandbox as every facade, the store and the control part know it: its record, the
 * states it can be in, and the table of moves between them. No I/O. */
#ifndef MODEL_SANDBOX_H
#define MODEL_SANDBOX_H

#include "base/arena.h"
#include "base/field.h"
#include "model/limits.h"

enum {
    SANDBOX_ID = 21, /* "i" and 20 of [a-z0-9]: E2B's sandboxID, host names, the machine's ref */
    SANDBOX_UUID = 36,
    SANDBOX_TOKEN = 40,
    SANDBOX_FORWARDS = 16,
};

enum sandbox_state {
    SANDBOX_CREATING, /* the intent: written before a machine is asked for */
    SANDBOX_RUNNING,
    SANDBOX_PAUSING,
    SANDBOX_PAUSED,
    SANDBOX_RESUMING,
    SANDBOX_ENDING, /* whoever finds it so finishes it */
    SANDBOX_ENDED,
    SANDBOX_STATES
};
extern const char *const sandbox_state_names[SANDBOX_STATES];
bool sandbox_may(enum sandbox_state from, enum sandbox_state to); /* the table of allowed moves */

enum sandbox_network { NETWORK_OPEN, NETWORK_NONE, SANDBOX_NETWORKS };
extern const char *const sandbox_network_names[SANDBOX_NETWORKS];

enum sandbox_expiry {
    EXPIRY_KILL,
    EXPIRY_PAUSE,
    EXPIRY_PAUSE_FILES, /* its processes end */
    SANDBOX_EXPIRIES
};
extern const char *const sandbox_expiry_names[SANDBOX_EXPIRIES];

struct life {           /* one record drives it; every facade edits the same one */
    int64_t timeout_ms; /* what the deadline was last set to, from then on; 0: none */
    int64_t idle_ms;    /* so long without activity is the end; 0: no such rule */
    int64_t expiry;     /* enum sandbox_expiry: what happens then */
    bool auto_resume;   /* a request to a paused one wakes it */
    bool restart;       /* when its first process dies it is started again on its files */
};

struct sandbox_mount { /* a host directory inside */
    char *host, *guest;
    bool ro;
};
struct sandbox_forward { /* a port of this machine's loopback that leads inside */
    int64_t host_port, port;
    bool public; /* that every local account may use it is meant: see door.h */
};

struct sandbox {
    char id[SANDBOX_ID + 1], uuid[SANDBOX_UUID + 1];
    int64_t owner;                    /* a user's id */
    int64_t state;                    /* enum sandbox_state */
    int64_t network;                  /* enum sandbox_network */
    char *template, *provider, *node; /* these and all other strings live in `strings` */
    char *label;                      /* the contract's user_id: stored, never authority; or NULL */
    char *facade;                     /* "e2b", "v1", ...: which made it */
    struct limits limits;             /* as in force; zeroes until it was created */
    struct life life;
    bool secure, strict, public;   /* public: ports answer without traffic_token */
    char token[SANDBOX_TOKEN + 1]; /* the guest's access token; "": none */
    char traffic_token[SANDBOX_TOKEN + 1];
    int64_t created_ms, started_ms, ended_ms; /* unix milliseconds; 0: not yet */
    int64_t end_ms; /* when it will expire, for people: wall clock; 0: never */
    struct map metadata, env;
    struct objs mounts, forwards; /* of struct sandbox_mount, struct sandbox_forward */
    char *idem_key, *idem_hash;   /* of the create request; NULL: none */
    char *reason;                 /* why it ended: one sentence for people; NULL while it lives */
    struct arena strings;
};

void sandbox_new_id(struct sandbox *s); /* fills id and uuid */
bool sandbox_id_valid(struct str id);   /* short id or uuid, by form */
/* Deep, with an arena of its own; what `to` held before is forgotten, not freed. */
void sandbox_copy(struct sandbox *to, const struct sandbox *from);
void sandbox_finish(struct sandbox *s); /* frees, and zeroes all of it */

/* ---- what happened to it ---- */

struct event {
    int64_t seq; /* of the store; grows */
    char sandbox[SANDBOX_ID + 1];
    int64_t at_ms;      /* unix */
    const char *kind;   /* created started limit paused resumed timeout-changed ended failed ... */
    const char *actor;  /* user's name, "system" */
    const char *text;   /* one sentence */
    const char *detail; /* a JSON object, or NULL */
};

#endif
