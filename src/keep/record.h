/* record.h - what the keeper and its clients say to each other: fixed binary records on a seqpacket
 * socket, one request and one reply each, descriptors beside them. The keeper interprets these and
 * nothing else; record_check() bounds every field before anything acts on one. */
#ifndef KEEP_RECORD_H
#define KEEP_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "model/limits.h"

enum {
    KEEP_MAGIC = 0x65766f43, /* "Cove" */
    KEEP_VERSION = 2,
    KEEP_ID = 40, /* room for an id and its NUL; KEEP_ID_MAX characters are used */
    KEEP_ID_MAX = 36,
    KEEP_NAME = 128,
    KEEP_PATH = 256,
    KEEP_MOUNTS = 8,
    KEEP_SOCKETS = 8, /* at most, in one reply */
    KEEP_LISTED = 64,
    KEEP_TEMPLATE = 72, /* room for a template's name */
    KEEP_TEMPLATES_LISTED = 5,
    KEEP_TEMPLATE_KINDS = 3,
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
    KEEP_VERBS
};

enum keep_network { KEEP_NET_NONE, KEEP_NET_OPEN, KEEP_NETWORKS };

enum {                   /* flags of a new sandbox */
       KEEP_STRICT = 1,  /* no_new_privs, no capability */
       KEEP_DURABLE = 2, /* fsync reaches the disk */
       KEEP_TIED = 4,    /* ended when the client that made it leaves */
       KEEP_EAGER = 8, /* answered with a connection to the guest as soon as nothing but building is
                          left to do; if that fails, KEEP_ENDED says why */
       KEEP_STAY = 16, /* when its first process dies by itself its files stay, and it is asleep:
                          KEEP_ENDED says so in its state */
       KEEP_FLAGS = 31
};

enum {
    KEEP_MOUNT_READ_ONLY = 1,
    KEEP_MOUNT_ROOT =
        2, /* what root inside makes there is the machine's root's; private keepers only */
    KEEP_MOUNT_FLAGS = 3
};

struct keep_mount {
    char host[KEEP_PATH], guest[KEEP_PATH]; /* absolute, without ".." */
    uint32_t flags, unused;
};

struct keep_create {
    char template[KEEP_NAME]; /* KEEP_RESTORE: of the snapshot's sandbox */
    char snapshot[KEEP_ID];   /* KEEP_RESTORE only */
    struct limits limits;     /* zeroes: the template's or the table's */
    uint32_t network, flags, nmounts, unused;
    struct keep_mount mounts[KEEP_MOUNTS];
};

struct keep_request {
    uint32_t magic, version, verb, unused;
    uint64_t serial;  /* the client's; comes back with the reply */
    char id[KEEP_ID]; /* of the sandbox; KEEP_LIST: list those after it */
    union {
        struct keep_create create;
        struct limits limits;   /* LIMITS; THAW: lifetime_ms, from now on; 0: what was left of it */
        char snapshot[KEEP_ID]; /* the new snapshot's id */
        char after[KEEP_TEMPLATE]; /* KEEP_TEMPLATES: list those behind it; "": from host on */
        struct {
            uint32_t files_only; /* its processes end, and it is asleep; also one that is frozen */
            uint32_t unused;
        } freeze;
        struct {
            uint32_t port, count; /* port 0: connections to the guest */
            uint32_t v6, unused;  /* otherwise unconnected ones in its network */
        } socket;
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
    uint32_t limit, unused; /* enum limit_id */
    uint64_t value, use;
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
    uint32_t stopped;         /* pid 1 is, by a signal: only somebody outside can do that */
    char template[KEEP_NAME]; /* as it was asked for */
    uint32_t asleep;          /* paused, and only its files are left */
    uint32_t fresh;           /* it was, and was started again on them: its processes are gone */
    uint64_t flush_us;        /* FREEZE: what it took to write its files out */
};

struct keep_template {
    char name[KEEP_TEMPLATE], user[KEEP_TEMPLATE], workdir[KEEP_PATH];
    uint32_t kind, unused; /* enum template_kind */
    struct limits limits;  /* zeroes: the table's */
};

struct keep_reply {
    uint32_t magic, version, kind, verb;
    uint64_t serial;
    char id[KEEP_ID];
    uint32_t code, unused; /* enum err_code; 0: done */
    char message[256];
    union {
        struct keep_state state; /* CREATE, RESTORE, STAT, ADOPT, LIMITS, and KEEP_ENDED */
        struct keep_limit_met limit;
        struct {
            uint32_t count, unused;
            char ids[KEEP_LISTED][KEEP_ID];
        } list;
        struct {
            uint32_t count, unused; /* less than there is room for: these were the last */
            struct keep_template items[KEEP_TEMPLATES_LISTED];
        } templates;
    } u;
    uint32_t reason,
        status; /* KEEP_ENDED: enum keep_reason, wait status of pid 1, ~0 if not known */
};

/* Is this a request we would act on? n is the size of what arrived. */
int record_check(const struct keep_request *r, size_t n, struct err *err);
int record_check_reply(const struct keep_reply *r, size_t n, struct err *err);
bool record_id_valid(const char id[KEEP_ID]);

#endif
