/* cgroup.h - limits that the kernel enforces, and the freezer.
 *
 * Each sandbox has a directory `cove/NAME` in the hierarchies that carry its limits: version 2
 * where it has the controller, version 1 otherwise. Its life (freezing, birth inside) is in version
 * 2 in any case, which works even where that has no controllers. A version 2 directory is never
 * used twice: after cgroup.kill it kills newcomers. */
#ifndef JAIL_CGROUP_H
#define JAIL_CGROUP_H

#include <stdbool.h>
#include <sys/types.h>

#include "model/limits.h"

enum cgroup_controller { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_IO, CGROUP_CONTROLLERS };

struct cgroups {
    int unified;                 /* `cove` in version 2; -1: none */
    int v1[CGROUP_CONTROLLERS];  /* `cove` in the controller's own hierarchy; -1: not used */
    bool v2[CGROUP_CONTROLLERS]; /* version 2 has the controller */
    int parents[CGROUP_CONTROLLERS + 1]; /* where the `cove` directories are, to remove them */
};

struct cgroup_usage {
    uint64_t memory_bytes, memory_peak_bytes, oom_kills;
    uint64_t cpu_us, throttled_us;
    uint64_t pids, pids_refused; /* forks that the limit refused */
};

int cgroups_open(struct cgroups *c, struct err *err);
void cgroups_close(struct cgroups *c); /* removes `cove` where nobody uses it */
void cgroups_favor_moves(const struct cgroups *c, const char *dir); /* mounts there; dir is made */
pid_t cgroups_expect_move(void); /* the child to wait for; 0: none */
bool cgroups_enforce(const struct cgroups *c, enum cgroup_controller k);

/* Two steps, so that the process can be born between them: the version 2 directory, whose
 * descriptor is for clone3 (-1: none), then the others and all limits. cgroup_remove() undoes both.
 */
int cgroup_create(const struct cgroups *c, const char *name, int *into, struct err *err);
int cgroup_set_up(const struct cgroups *c, const char *name, const struct limits *l,
                  struct err *err);
/* Writes what differs from `had` (NULL: all). When one is refused, the others may be set. */
int cgroup_limit(const struct cgroups *c, const char *name, const struct limits *l,
                 const struct limits *had, struct err *err);
int cgroup_attach(const struct cgroups *c, const char *name, pid_t pid, struct err *err);
void cgroup_remove(const struct cgroups *c, const char *name);     /* empty ones; waits a moment */
bool cgroup_try_remove(const struct cgroups *c, const char *name); /* never; whether all are gone */
/* Removes empty ones of this prefix; how many others there are. Without `remove` it only counts. */
size_t cgroups_sweep(const struct cgroups *c, const char *prefix, int64_t older_than_s,
                     bool remove);
/* Waits until it is done: a fraction of a ms, or up to 100 when a process is deep in the kernel.
 * The two steps for who cannot wait: asking, then looking (1 it is so, 0 not yet). */
int cgroup_freeze(const struct cgroups *c, const char *name, bool frozen, struct err *err);
int cgroup_freeze_ask(const struct cgroups *c, const char *name, bool frozen, struct err *err);
int cgroup_freeze_done(const struct cgroups *c, const char *name, bool frozen, struct err *err);
/* Only while it is frozen: then it cannot use up more. Letting it go on takes that back. */
void cgroup_allow_swap(const struct cgroups *c, const char *name, bool allow);
/* Asks the kernel to put its memory elsewhere: as far as that goes. Slow. */
void cgroup_reclaim(const struct cgroups *c, const char *name);
void cgroup_usage(const struct cgroups *c, const char *name, struct cgroup_usage *out);
uint64_t cgroup_cache_bytes(const struct cgroups *c, const char *name); /* of memory_bytes */
/* Of memory_bytes: pages of files, which the kernel can drop at any time. */
uint64_t cgroup_files_bytes(const struct cgroups *c, const char *name);
/* What is charged for TCP's and UDP's queues; in_memory: it is a part of memory_bytes (version 2).
 */
uint64_t cgroup_sockets_bytes(const struct cgroups *c, const char *name, bool *in_memory);
/* A descriptor that becomes readable (version 1) or urgent (EPOLLPRI, version 2) when the memory
 * limit was met; -1: cannot be watched. Compare oom_kills then: other things wake it too. */
int cgroup_watch_memory(const struct cgroups *c, const char *name, bool *urgent);

#endif
