/* guest.h - what one running guest is: its identity, its settings, and the state that its parts
 * share. The loop owns all of it; work on other threads gets copies. */
#ifndef GUEST_GUEST_H
#define GUEST_GUEST_H

#include "base/field.h"
#include "base/list.h"
#include "io/co.h"
#include "io/httpd.h"

enum { GUEST_PORT = 49983 }; /* where E2B's clients expect envd */

struct guest {
    int root;                  /* descriptor of the directory that all paths are resolved in */
    bool chrooted;             /* root is not our own "/": commands enter it first */
    bool privileged;           /* we may become other users */
    bool init;                 /* pid 1: reaps orphans, and ends the sandbox when it ends */
    char *default_user;        /* owned; never NULL */
    char *default_workdir;     /* owned; NULL: the user's home */
    char *token;               /* owned; NULL: not in secure mode */
    struct map env;            /* owned; given by /init to every process */
    int64_t pauses, paused_ms; /* how often and how long the sandbox stood still */
    struct list processes;
    struct list watchers;
    bool stopping;
};

extern const struct setting guest_settings[];
extern struct guest_limits {
    int64_t output_bytes, stall_ms, keep_ms, keep_bytes, pipe_grace_ms, stop_ms;
    int64_t list_entries, watch_events, watch_dirs;
} guest_limits;

extern const struct route system_routes[], process_routes[], filesystem_routes[], files_routes[],
    watch_routes[];

static inline struct guest *call_guest(struct call *c) { return c->server->ctx; }

/* Runs work on a worker thread and gives its result back; err and arg belong to it meanwhile. */
typedef int guest_work_fn(void *arg, struct err *err);
int guest_work(guest_work_fn *fn, void *arg, struct err *err);

int guest_set_env(struct guest *g, const struct map *env, struct err *err); /* replaces all */

#endif
