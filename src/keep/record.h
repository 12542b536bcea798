/* record.h - what the keeper and its clients say to each other, as structs: one request and one
 * reply each, descriptors beside them, and events. wire.h says how they are written.
 * record_check() bounds every field before anything acts on one. */
#ifndef KEEP_RECORD_H
#define KEEP_RECORD_H

#include "model/order.h"

enum {
    KEEP_VERSION = 3,        /* of the wire; see wire.h */
    KEEP_VERSION_OLDEST = 2, /* that we still speak */
    KEEP_SOCKETS = 8,        /* at most, in one reply */
    KEEP_LISTED = 64,
    KEEP_TEMPLATE = 72, /* room for a template's name */
    KEEP_TEMPLATES_LISTED = 5,
    KEEP_TEMPLATE_KINDS = 3,
    KEEP_RELEASE = 64,
    KEEP_IDENTITY = 9, /* short: it is a part of a socket's path */
};

enum keep_verb {
    KEEP_CREATE = 1,
    KEEP_FREEZE,
    KEEP_THAW,
    KEEP_KILL,
    KEEP_SNAPSHOT,
    KEEP_RESTORE,
    KEEP_LIMITS,
    KEEP_SOCKET,
    KEEP_STAT,
    KEEP_LIST,
    KEEP_ADOPT,
    KEEP_TEMPLATES,
    KEEP_HELLO, /* the first of a connection: which versions the client speaks */
    KEEP_VERBS
};

/* A data directory. Identity "": of a release that gave them none. */
struct keep_owner {
    char identity[KEEP_IDENTITY];
    uint64_t device, inode;    /* a copy of it has the same identity, and is another one */
    char data_dir[ORDER_PATH]; /* for people */
};

struct keep_hello {
    uint32_t newest, oldest;    /* versions that the sender speaks */
    char release[KEEP_RELEASE]; /* for logs */
    struct keep_owner owner;    /* of a keeper: whose it is; of a client: whose it has to be */
};

struct keep_request {
    uint32_t verb;
    uint64_t serial;          /* the client's; comes back with the reply */
    char id[ORDER_ID];        /* of the sandbox; KEEP_LIST: list those after it */
    struct str unknown;       /* CREATE: fields of the order that we do not know; of who reads */
    struct {                  /* what the verb needs */
        struct order create;  /* CREATE; RESTORE: with the snapshot's id */
        struct limits limits; /* LIMITS; THAW: lifetime_ms, from now on; 0: what was left of it */
        char snapshot[ORDER_ID];   /* the new snapshot's id */
        char after[KEEP_TEMPLATE]; /* TEMPLATES: list those behind it; "": from host on */
        struct {
            uint32_t files_only; /* its processes end, and it is asleep; also one that is frozen */
        } freeze;
        struct {
            uint32_t port, count; /* port 0: connections to the guest */
            uint32_t v6;          /* otherwise unconnected ones in its network */
        } socket;
        struct keep_hello hello;
        struct order_mark mark; /* LIMITS: whose it is from now on; claim 0: as it was */
    } u;
};

enum keep_kind { KEEP_REPLY = 1, KEEP_LIMIT_MET, KEEP_ENDED };

enum keep_reason {
    ENDED_BY_REQUEST,
    ENDED_BY_ITSELF, /* pid 1 exited */
    ENDED_LIFETIME,
    ENDED_MEMORY,
    ENDED_LEFT, /* its client left */
    ENDED_FAILED,
    ENDED_REASONS
};
extern const char *const keep_reason_names[ENDED_REASONS];

struct keep_limit_met {
    uint32_t limit; /* enum limit_id */
    uint64_t value, use;
    uint64_t sockets; /* of the use: what waited in sockets, if it was met by that */
};

struct keep_state {
    struct limits limits;
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, pids, disk_bytes, oom_kills;
    /* these three, and stopped, only in answers to STAT and ADOPT */
    uint64_t memory_cache_bytes, net_rx_bytes, net_tx_bytes;
    int64_t left_ms; /* until its lifetime ends */
    int32_t pid;
    uint32_t frozen, network, unenforced; /* bits 1 << enum limit_id */
    uint32_t outdated;                    /* a new one of this template would be another */
    uint32_t stopped;          /* pid 1 is, by a signal: only somebody outside can do that */
    char template[ORDER_NAME]; /* as it was asked for */
    uint32_t asleep;           /* paused, and only its files are left */
    uint32_t fresh;            /* it was, and was started again on them: its processes are gone */
    uint64_t flush_us;         /* FREEZE: what it took to write its files out */
    char unreadable[256];      /* why the keeper cannot read what it wrote of it; "": it can */
    uint32_t astray;           /* only its files were found, and nothing said that they stay */
    uint32_t flags;            /* ORDER_*, as it was asked for */
    uint64_t socket_bytes;     /* what waited in its sockets when it was ended for that; 0 */
    struct order_mark mark;    /* whose it is */
};

struct keep_template {
    char name[KEEP_TEMPLATE], user[KEEP_TEMPLATE], workdir[ORDER_PATH];
    uint32_t kind;        /* enum template_kind */
    struct limits limits; /* zeroes: the table's */
};

struct keep_reply {
    uint32_t kind, verb;
    uint64_t serial;
    char id[ORDER_ID];
    uint32_t code; /* enum err_code; 0: done */
    uint32_t why;  /* enum err_reason; also one that we do not know yet */
    char message[256];
    struct {
        struct keep_state state; /* CREATE, RESTORE, STAT, ADOPT, LIMITS, and KEEP_ENDED */
        struct keep_limit_met limit;
        struct {
            uint32_t count;
            char ids[KEEP_LISTED][ORDER_ID];
        } list;
        struct {
            uint32_t count; /* less than there is room for: these were the last */
            struct keep_template items[KEEP_TEMPLATES_LISTED];
        } templates;
        struct keep_hello hello;
    } u;
    uint32_t reason,
        status; /* KEEP_ENDED: enum keep_reason, wait status of pid 1, ~0 if not known */
};

/* Is this a request that we would act on, or a reply that makes sense? */
int record_check(const struct keep_request *r, struct err *err);
int record_check_reply(const struct keep_reply *r, struct err *err);

#endif
