/* engine.h - one kernel process and our private sockets to it. What a client sees as one kernel may
 * be several engines, one after the other: a restart takes a new one.
 *
 *   e = engine_start(spec, cwd, env, err);          a process
 *   engine_wait(e, until, err);                     it answers, and its output reaches us
 *   engine_ask(e, ...)                              requests of our own
 *   engine_stop(e); engine_put(e);
 */
#ifndef GUEST_KERNELS_ENGINE_H
#define GUEST_KERNELS_ENGINE_H

#include "guest/kernels/kernels.h"
#include "guest/kernels/message.h"
#include "guest/services/environment.h"
#include "io/spawn.h"

struct engine {
    unsigned refs;   /* its owner, and each of its coroutines */
    uint64_t number; /* no other engine has had it, unlike the address */
    struct kernelspec *spec;
    struct kernel *owner;            /* NULL: parked, or given up */
    struct environment *environment; /* of the sandbox, as it knows it */
    char *file;                      /* the connection file */
    char *base;                      /* "ipc:///...-" or "tcp://127.0.0.1:"; a port follows */
    unsigned port[CHANNELS];
    char key[65];
    struct signer signer;
    bool forked; /* by a warmed parent; else we executed its command line */
    struct child child;
    pid_t pid;
    struct list starting;       /* in kernels.starting while it starts */
    int64_t began_at;           /* co_now() */
    struct zmtp link[CHANNELS]; /* ours: shell, control and iopub */
    bool connected, heard;      /* the links are up; something came on iopub */
    bool ready, dead, stopping;
    bool late, hopeless; /* it did not answer in time; another one would end as it did */
    char why[256];       /* why it is dead before it was ready */
    struct co_cond changed;
    struct list asking; /* struct ask */
};

struct engine_spec { /* all borrowed */
    struct kernelspec *spec;
    const char *cwd;
    const struct map *env;
    bool unforked; /* by the spec's command line, though it could be forked: a fork has failed */
};

/* An engine whose process runs; its sockets follow in the background. Waits for its turn: no more
 * than kernel.starts are being started. */
struct engine *engine_start(const struct engine_spec *s, struct err *err);
void engine_started(struct engine *e); /* or given up: the turn is another's; may be repeated */
int engine_wait(struct engine *e, int64_t until, struct err *err);
struct engine *engine_get(struct engine *e);
void engine_put(struct engine *e);

/* A request of ours and its reply. */
struct ask {
    struct list node;
    char id[33];
    struct message *reply; /* the asker's to put */
};

int engine_send(struct engine *e, enum channel channel, const char *type, struct str content,
                struct ask *ask, struct err *err);
int engine_await(struct engine *e, struct ask *ask, int64_t until, struct err *err);
void engine_forget(struct ask *ask); /* always, at the end: it lives on somebody's stack */
/* The three in one; out may be NULL. */
int engine_ask(struct engine *e, enum channel channel, const char *type, struct str content,
               int64_t until, struct message **out, struct err *err);

void engine_signal(struct engine *e, int signal); /* to its process group */
int engine_interrupt(struct engine *e, struct err *err);
void engine_stop(struct engine *e, bool restart); /* politely, then by force; parks */
void engine_kill(struct engine *e);               /* by force; does not wait */

void engine_address(const struct engine *e, enum channel channel, char *out, size_t n);

#endif
