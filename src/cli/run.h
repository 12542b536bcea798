/* run.h - what the files of `cove run` share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli/args.h"
#include "cli/limit_args.h"
#include "cli/session.h"
#include "keep/keep.h"

enum { RUN_FORWARDS = 16 };

struct run_options {
    const char *template;
    struct limit_args limits;
    const char *network;
    struct args_list mounts, forwards, network_allow, env, set;
    const char *user, *workdir;
    const char *data_dir, *run_dir;
    bool strict, durable, ping, json, private;
};

struct run_forward {
    int listener;
    uint16_t port;
};

struct run { /* one `cove run` */
    const struct args *args;
    const struct run_options *o;
    char id[ORDER_ID];
    bool rootless;
    struct keep keep;        /* fd -1: it was lost, and the next one is looked for */
    struct keep_owner owner; /* whose it is, where that is known */
    char *place;             /* of its socket; NULL: it is our own */
    int pidfd;               /* of the sandbox's first process; -1: not known */
    pid_t mover;             /* of cgroups_expect_move(); 0: none */
    int first;               /* the connection that came with the sandbox; -1: used */
    struct client client;
    struct envd envd;
    struct run_forward forwards[RUN_FORWARDS];
    size_t nforwards;

    struct session session;
    struct keep_limit_met met[LIMIT_COUNT]; /* the last of each */
    bool was_met[LIMIT_COUNT];
    bool ended; /* the sandbox did, before the command */
    enum keep_reason reason;
    struct err why; /* with ENDED_FAILED */
    struct keep_state state;
    int64_t started_us, created_us, ended_us, gone_us;
};

/* run_session.c: the command, and what the keeper says meanwhile. Runs as the first coroutine; on
 * return run->session, run->ended or err tells how it went. */
struct run_session {
    struct run *run;
    struct err err;
    bool failed;
};
void run_session(void *session);
void run_event(const struct keep_reply *event, void *run); /* a keep_on_event */

/* run_keeper.c */
int run_keeper_find(struct run *r, const char *data_dir, const char *run_dir, struct err *err);
/* Asks for one descriptor. May park: until the next keeper is there, where one was lost. */
int run_keeper_ask(struct run *r, struct keep_request *q, int *fd, struct err *err);
void run_keeper_watch(void *session); /* a coroutine */
void run_keeper_end(struct run *r);   /* the sandbox; behind the loop */

/* run_forward.c: ports of this machine that lead inside */
int run_forward_open(struct run *r, const char *text, struct err *err);
void run_forward_serve(struct run *r);

/* run_report.c */
void run_report(const struct run *r, const struct err *err, int status);
int run_status(const struct run *r, const struct err *err);

#endif
