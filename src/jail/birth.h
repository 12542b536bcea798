/* birth.h - what a keeper asks its zygote for, as one fixed record; and what the new process does
 * with it. Both ends are the same build of the same program. */
#ifndef JAIL_BIRTH_H
#define JAIL_BIRTH_H

#include "jail/jail.h"

enum { BIRTH_ID = 40, BIRTH_PATH = 512, BIRTH_STAGE = 64 };

enum { /* flags */
       BIRTH_STRICT = 1,
       BIRTH_DURABLE = 2,
       BIRTH_ROOTLESS = 4,
       BIRTH_MORTAL = 8,
       BIRTH_NETNS = 16,    /* a descriptor of it comes along; else a new one is made */
       BIRTH_CGROUP = 32,   /* the same */
       BIRTH_HOME = 64,     /* in the zygote's own network namespace, which is no other sandbox's */
       BIRTH_KERNELS = 128, /* with its kernels started in advance */
};

struct birth_mount {
    char guest[BIRTH_PATH], host[BIRTH_PATH]; /* host: without privilege only */
    uint32_t read_only, file;
};

/* With it come the child's end of the report socket, the guest's listener, then network namespace
 * and cgroup as the flags say. */
struct birth {
    char id[BIRTH_ID], stage[BIRTH_STAGE];
    uint32_t first_id, flags;
    uint32_t nroot, nusr, nmounts, unused;
    uint64_t open_files, shm_bytes, log_bytes;
    /* without privilege layers are opened by the sandbox itself, by path */
    char layer[BIRTH_PATH], root[JAIL_LOWERS][BIRTH_PATH], usr[BIRTH_PATH];
    struct birth_mount mounts[JAIL_MOUNTS];
};

struct birth_reply { /* and the pidfd */
    int32_t pid, error;
};

/* In the new process: builds the sandbox around itself. Returns when it may become the guest: 3 is
 * the listener, 4 its oom_score_adj, nothing else is open. Any failure ends it with a sentence for
 * the keeper. */
void inside_build(const struct birth *b, int sock, int listener);

#endif
