/* jail.h - one sandbox's processes, namespaces and mounts.
 *
 * jail_start() clones the first process into new namespaces and hands it its layers; the child
 * builds its root while the caller puts it into its cgroups; jail_go() lets it execute the guest.
 * jail_report() then says how that went. On the way the child holds nothing that outlives it: a
 * caller that dies leaves a child that reads end of file and ends. */
#ifndef JAIL_JAIL_H
#define JAIL_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { JAIL_LOWERS = 4, JAIL_MOUNTS = 8 };

struct jail_lower {
    int fd;           /* opened after our own mount namespace was made */
    const char *path; /* for use without privilege, where descriptors cannot be cloned */
};

struct jail_stack { /* read-only layers, the topmost first; none: the stack is not used */
    struct jail_lower lowers[JAIL_LOWERS];
    size_t n;
};

struct jail_mount {
    int fd;
    const char *host, *guest; /* absolute */
    bool read_only, file;
};

struct jail_spec {
    const char *id;    /* host name and machine id are made of it */
    uint32_t first_id; /* host id of the sandbox's id 0 */
    int netns;         /* -1: make one */
    int cgroup;        /* version 2 directory to be born in; -1: ours */
    int guest;         /* the sealed memfd */
    int listener;      /* becomes the guest's descriptor 3 */
    int layer;         /* holds upper and work directories */
    const char *layer_path;
    int dev; /* the shared /dev; -1: bind the host's nodes */
    struct jail_stack root, usr;
    const struct jail_mount *mounts;
    size_t nmounts;
    uint64_t open_files, shm_bytes, log_bytes;
    const char *stage; /* an existing directory to mount things on meanwhile */
    bool strict, durable;
    bool rootless;   /* no privilege outside: own ids only, no mapped layers */
    bool mortal;     /* dies with the process that made it */
};

struct jail {
    pid_t pid;
    int pidfd;
    int sock; /* readable: jail_report() knows */
};

int jail_start(const struct jail_spec *s, struct jail *out, struct err *err);
int jail_go(const struct jail *j, struct err *err);
/* 1: the guest runs (sock is closed), 0: not yet, -1: it could not be built, and has ended. */
int jail_report(struct jail *j, struct err *err);

/* ---- made once per keeper ---- */

int jail_guest_memfd(const void *program, size_t n, struct err *err);
int jail_make_dev(struct err *err); /* a detached tmpfs with the device nodes and mount points */

/* ---- the child's side, for jail.c ---- */

_Noreturn void inside_main(const struct jail_spec *s, int sock);

#endif
