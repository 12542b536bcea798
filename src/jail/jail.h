/* jail.h - one sandbox's processes, namespaces and mounts.
 *
 * jail_begin() asks for the first process in new namespaces; jail_start() hands it its layers; the
 * child builds its root while the caller puts it into its cgroups; jail_go() lets it become the
 * guest. jail_report() then says how that went. On the way the child holds nothing that outlives
 * it: a caller that dies leaves a child that reads end of file and ends. */
#ifndef JAIL_JAIL_H
#define JAIL_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/order.h"

enum { JAIL_LOWERS = 4 };

struct jail_lower {
    int fd;           /* opened after our own mount namespace was made */
    const char *path; /* for use without privilege, where descriptors cannot be cloned */
};

struct jail_stack { /* read-only layers, the topmost first; none: the stack is not used */
    struct jail_lower lowers[JAIL_LOWERS];
    size_t n;
    /* the last one is not seen: it holds the contents of the files that the one above it names, and
     * they are opened as nobody that the machine knows */
    bool data;
};

struct jail_mount { /* what a mount of the order is on this machine */
    int fd;
    bool file;
    uint32_t owner, group; /* of what is mounted: seen as the sandbox's user, if that may be */
    bool system_group;     /* the operator said so of a group below IDS_PEOPLE */
};

struct jail_spec {
    const char *id;            /* host name and machine id are made of it */
    const struct order *order; /* its limits are filled */
    uint32_t first_id;         /* host id of the sandbox's id 0 */
    int netns;                 /* -1: make one ... */
    bool home_network;         /* ... or take the zygote's, which was started with one of its own */
    int cgroup;                /* version 2 directory to be born in; -1: ours */
    int listener;              /* becomes the guest's descriptor 3 */
    int layer;                 /* holds upper and work directories */
    const char *layer_path;
    int dev; /* its /dev; -1: bind the host's nodes */
    struct jail_stack root, usr;
    const struct jail_mount *mounts; /* one for each of the order's */
    const char *stage;               /* an existing directory to mount things on meanwhile */
    bool warm_kernels;               /* started with the sandbox, not at their first use */
    bool rootless;                   /* no privilege outside: own ids only, no mapped layers */
    bool mortal;                     /* dies with the process that made it */
};

struct jail {
    pid_t pid;
    int pidfd;
    int sock; /* readable: jail_report() knows */
    int net; /* rootless: its network namespace, which nobody can open once the guest runs; or -1 */
};

/* Every sandbox's first process is a copy of one that waits, with the guest loaded and set up but
 * nothing done yet: a copy costs half a millisecond less than loading it anew. Its program is a
 * sealed memfd that nobody can read; it knows nothing but how to be copied. */
struct zygote {
    pid_t pid;
    int sock;
};

#define ZYGOTE_STAGE "/mnt" /* in the root of its own */

enum {
    ZYGOTE_OWN_ROOT = 1,    /* in a mount namespace of its own; else it stays in ours */
    ZYGOTE_OWN_NETWORK = 2, /* with only lo, for the one sandbox that will take it */
};

/* The program is copied, sealed and executed in the child, while the caller goes on. */
int zygote_start(struct zygote *z, const void *program, size_t n, unsigned flags, struct err *err);
void zygote_close(struct zygote *z); /* it ends by itself; its copies live on */
void zygote_stop(struct zygote *z);  /* and waits for that */

/* Asks for the process; it is made while the caller goes on. Then exactly one of the other two.
 * layer, trees and mounts of the spec are looked at by jail_start() only. */
int jail_begin(const struct jail_spec *s, const struct zygote *z, struct jail *out,
               struct err *err);
int jail_start(const struct jail_spec *s, const struct zygote *z, struct jail *j, struct err *err);
void jail_abandon(const struct zygote *z, struct jail *j);
int jail_go(const struct jail *j, struct err *err);
/* 1: the guest runs (sock is closed), 0: not yet, -1: it could not be built, and has ended. */
int jail_report(struct jail *j, struct err *err);

/* ---- made by the keeper ---- */

int jail_seed(int layer, const char *id, struct err *err); /* a new, empty one */

/* A detached tmpfs with the device nodes and mount points, and room for shared memory. One for each
 * sandbox: on a shared inode they would see and block each other, by inotify and flock. */
int jail_make_dev(const struct order *o, struct err *err);
uint64_t jail_shm_bytes(const struct order *o);

#endif
