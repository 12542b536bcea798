/* spawn.h - starting a program, and learning exactly how it ended.
 *
 * The child is a plain fork, not a vfork: a child that shares our memory while it already has the
 * user's id could be stopped by that user, and would stop us with it. Measured, the difference is
 * 5 % of a start, and the loop goes on while the program is loaded. */
#ifndef IO_SPAWN_H
#define IO_SPAWN_H

#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "io/co.h"

enum { SPAWN_PASS = 4 };

struct spawn {
    char *const *paths; /* tried in order until one can be executed; ends with NULL */
    char *const *argv;
    char *const *envp;
    int program;      /* a descriptor of what to execute instead of paths; 0: none */
    int stdio[3];     /* become 0, 1, 2; all must be >= 0 */
    const int *pass;  /* become 3, 4 ... */
    size_t npass;     /* at most SPAWN_PASS */
    int cwd;          /* a directory's descriptor */
    int root;         /* chroot here first; -1: no */
    bool tty;         /* stdio[0] becomes the controlling terminal */
    bool die_with_us; /* SIGKILL when we end, however; only from the main thread */
    bool set_ids;     /* change to the ids below */
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t ngroups;
};

struct child { /* lives until child_wait() has returned */
    struct list all;
    pid_t pid;
    int pidfd;
    int status; /* as of waitpid, valid when reaped */
    bool reaped;
    struct co_cond ended;
};

/* How pid 1 of a sandbox was set up; nothing special for an ordinary process. */
struct spawn_setup {
    int oom_fd;  /* our own oom_score_adj, where a child cannot open its own; -1: none */
    bool strict; /* children hold no capability and can gain nothing by exec */
};
extern struct spawn_setup spawn_setup;

/* Parks until the program runs or could not be started; one that ends within a millisecond or two
 * has been collected by then (out->reaped). It leads a session and a group of its own.
 */
int spawn_start(const struct spawn *s, struct child *out, struct err *err);
/* A process that somebody forked for us and left to us (PR_SET_CHILD_SUBREAPER): as if we had
 * started it. -1 with err: it is no child of ours, or no pidfd can be had; nothing is changed. */
int child_adopt(struct child *c, pid_t pid, struct err *err);
/* 0 when it ended (status is set), -1 with errno at the deadline, when cancelled, or when it cannot
 * be watched just now: that is not its end. */
int child_wait(struct child *c, int64_t until);
void child_forget(struct child *c); /* after the end: closes the pidfd */
void spawn_reap_orphans(void);      /* for pid 1, at SIGCHLD: collects what nobody waits for */

#endif
