/* run.h - what the files of `cove run` share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli/args.h"
#include "cli/limit_args.h"
#include "keep/keep.h"
#include "provider/envd.h"

enum {
    RUN_FORWARDS = 16,
    RUN_TIMED_OUT = 124,
    RUN_FAILED = 125,
    RUN_NOT_EXECUTABLE = 126,
    RUN_NOT_FOUND = 127,
};

struct run_options {
    const char *template;
    struct limit_args limits;
    const char *network;
    struct args_list mounts, forwards, env;
    const char *user, *workdir;
    const char *data_dir, *run_dir;
    bool strict, durable, json, private;
};

struct run_forward {
    int listener;
    uint16_t port;
};

struct run { /* one `cove run` */
    const struct args *args;
    const struct run_options *o;
    char **argv;
    char id[KEEP_ID];
    bool rootless;
    struct keep keep;
    pid_t mover; /* of cgroups_expect_move(); 0: none */
    int first;   /* the connection that came with the sandbox; -1: used */
    struct client client;
    struct envd envd;
    struct run_forward forwards[RUN_FORWARDS];
    size_t nforwards;

    bool input;          /* there is some for the command */
    bool terminal;       /* a PTY inside, our own terminal outside */
    int signals;         /* signalfd */
    int64_t pid;         /* inside; 0: not started yet */
    int early;           /* a signal that came before that */
    int64_t code;        /* exit status, or the signal's number ... */
    bool exited;         /* ... when this is false */
    bool done;           /* code is known */
    bool closed;         /* our own output is: the command was ended for it */
    struct buf out, err; /* with --json */
    bool truncated;
    struct keep_limit_met met[LIMIT_COUNT]; /* the last of each */
    bool was_met[LIMIT_COUNT];
    bool ended; /* the sandbox did, before the command */
    enum keep_reason reason;
    struct err why; /* with ENDED_FAILED */
    struct keep_state state;
    int64_t started_us, created_us, ended_us, gone_us;
};

/* run_session.c: between our descriptors and the process inside. Runs as the first coroutine; on
 * return done, ended or err tells how it went. */
struct run_session {
    struct run *run;
    struct err err;
    bool failed;
};
void run_session(void *session);
void run_event(const struct keep_reply *event, void *run); /* a keep_on_event */

/* run_terminal.c */
bool run_terminal_wanted(void);
void run_terminal_raw(void); /* until run_terminal_restore(); also after a crash of ours */
void run_terminal_restore(void);
void run_terminal_size(int64_t *cols, int64_t *rows);
/* Like read and write, but park the coroutine, whatever mode the descriptor is in: it is shared
 * with others, so we must not make it non-blocking. */
ssize_t run_read(int fd, void *p, size_t n);
int run_write(int fd, const void *p, size_t n);

/* run_forward.c: ports of this machine that lead inside */
int run_forward_open(struct run *r, const char *text, struct err *err);
void run_forward_serve(struct run *r);

/* run_report.c */
void run_report(const struct run *r, const struct err *err, int status);
int run_status(const struct run *r, const struct err *err);

#endif
