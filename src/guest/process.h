/* process.h - the processes of the sandbox. They belong to the guest, not to a connection: a client
 * that leaves takes nothing with it, and one that comes back reads on where it stopped. */
#ifndef GUEST_PROCESS_H
#define GUEST_PROCESS_H

#include "guest/guest.h"
#include "guest/ring.h"
#include "guest/user.h"
#include "io/spawn.h"

struct process_config { /* Config and Start of the protocol */
    char *cmd, *cwd;
    struct strs args;
    struct map envs;
};

struct process_start {
    const struct process_config *config;
    const struct user *user;
    const char *tag; /* NULL: none */
    bool stdin_open; /* false: /dev/null */
    bool pty;
    unsigned short cols, rows;
    int64_t timeout_ms; /* -1: none */
};

struct process {
    struct list all;
    struct guest *guest;
    struct child child;
    struct buf config; /* Config as JSON, for List */
    char *tag;         /* owned; NULL: none */
    int input;         /* stdin's write end or the pty's master; -1: closed */
    int output[2];     /* stdout and stderr, or the master in [0]; -1: at its end */
    bool pty, stdin_open;
    bool input_busy;   /* somebody is writing to input */
    int input_waiting; /* how many wait for their turn */
    struct co_cond input_free;
    struct ring ring;
    struct list readers;     /* struct process_reader */
    uint64_t left;           /* the offset at which the last reader left */
    struct co_cond changed;  /* output, or the end */
    struct co_cond progress; /* a reader took something or left */
    int64_t deadline;        /* killed then; NEVER: none */
    bool timed_out;
    bool ended;      /* the end event can be told */
    bool exited;     /* false: killed by a signal */
    int exit_code;   /* -1 when killed by a signal */
    char status[48]; /* as Go says it: "exit status 2", "signal: killed" */
    int64_t ended_ms;
    bool quiet[2];   /* a pump found its stream empty and waits */
    ssize_t owed[2]; /* so much is read whoever lags behind */
    int pumps;       /* coroutines that still read output */
    bool discard;    /* nobody will ever read more: drain to nowhere */
};

struct process_reader { /* on the stack of the coroutine that serves a stream */
    struct list all;
    uint64_t offset; /* the next byte it will take */
    uint64_t sent;   /* what came before this is out of our hands */
    uint64_t lost;   /* what fell out before it came: it is told first */
    bool gaps;       /* is told of bytes that fell out, whenever that is; else its stream ends */
    bool resumed;    /* began at an offset, as the one that started the process did */
};

int process_start(struct guest *g, const struct process_start *s, struct process **out,
                  struct err *err);
struct process *process_by_pid(struct guest *g, int64_t pid); /* ended ones too, while kept */
struct process *process_by_tag(struct guest *g, const char *tag);

/* offset NULL: what was produced since the last reader left. */
void process_attach(struct process *p, struct process_reader *r, const uint64_t *offset, bool gaps);
void process_detach(struct process *p, struct process_reader *r);
void process_took(struct process *p, struct process_reader *r, uint64_t offset);
/* Bytes that it would have taken next fell out: only where another sets the pace. */
static inline bool process_behind(const struct process *p, const struct process_reader *r)
{
    return r->offset < p->ring.first;
}

/* Answers a call with the process's events, until it has ended, the client leaves or it is `until`.
 * Parks for as long as the client is there. */
int process_follow(struct call *c, struct process *p, const uint64_t *offset, bool gaps,
                   int64_t until, struct err *err);

/* *taken: so much of it went in, also when it fails. */
int process_write(struct process *p, const void *data, size_t n, int64_t until, size_t *taken,
                  struct err *err);
int process_close_input(struct process *p, struct err *err);
int process_resize(struct process *p, unsigned short cols, unsigned short rows, struct err *err);
void process_signal(struct process *p, int signal); /* its whole group; KILL: the session too */
void process_stop_all(struct guest *g);             /* TERM, then KILL; parks */

#endif
