/* doctor.h - one question about this machine is one row: asked by trying, never by version number.
 *
 * A probe runs in a child of its own, with a time limit: it may crash, hang, drop privileges or
 * mount what it likes in namespaces of its own, and is gone afterwards with all of it. It writes
 * its finding into memory that is shared with the parent, so a child of the probe can write there
 * too. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "base/err.h"
#include "base/str.h"

enum doctor_status {
    DOCTOR_OK,
    DOCTOR_WARN, /* works, with less */
    DOCTOR_FAIL, /* missing. Where the row does not need it in this mode, it becomes a warning */
};

enum { DOCTOR_ROOT = 1, DOCTOR_ROOTLESS = 2, DOCTOR_BOTH = 3 }; /* who needs it */

struct doctor_check;

struct doctor {
    const char *data_dir, *run_dir; /* as given; need not exist */
    char *data_there;               /* the nearest directory above data_dir that exists; owned */
    bool root, deep;
    char scratch[32];                 /* what a cgroup of ours is called while a probe runs */
    const struct doctor_check *check; /* the row being asked */
};

struct finding { /* in shared memory: no pointers */
    enum doctor_status status;
    char seen[768];
    char fix[384]; /* the exact command that would change it */
};

struct doctor_check {
    const char *name;    /* stable: programs read it in --json; NULL ends the table */
    const char *title;   /* for people */
    const char *without; /* what sandboxes lose where it is missing */
    unsigned need;       /* DOCTOR_ROOT | DOCTOR_ROOTLESS */
    const char *arg;     /* for rows that share a probe */
    void (*probe)(const struct doctor *d, struct finding *f);
    void (*after)(const struct doctor *d); /* in the parent, also when the probe was killed */
};

struct doctor_group {
    const char *name;
    const struct doctor_check *checks;
};

/* One table a file. */
extern const struct doctor_check doctor_btrfs[], doctor_cgroup[], doctor_files[], doctor_kernel[],
    doctor_kvm[], doctor_limits[], doctor_machine[], doctor_namespace[], doctor_network[];

/* doctor_ask.c: runs the row's probe in a child and brings its finding back. */
void doctor_ask(struct doctor *d, const struct doctor_check *check, struct finding *out);

#endif
