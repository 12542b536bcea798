/* session.h - one command in one sandbox, between our descriptors and the process inside: its
 * output to ours, our input to it, signals, the window's size. `cove run`, `exec` and `shell` are
 * this and what they do before and after. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/args.h"
#include "provider/envd.h"

enum { /* exit statuses beside the command's own */
       SESSION_TIMED_OUT = 124,
       SESSION_FAILED = 125,
       SESSION_NOT_EXECUTABLE = 126,
       SESSION_NOT_FOUND = 127,
};

enum { SESSION_HELPERS = 4 };

struct session {
    struct envd *envd; /* this and the rest of the request: borrowed */
    char **argv;
    const struct args_list *env; /* NAME=VALUE, or NAME for ours; NULL: none */
    const char *user, *workdir;  /* NULL: the sandbox's */
    bool terminal;               /* a PTY inside, our own terminal outside */
    bool capture;                /* output goes to out and err, not to ours */
    bool detach;                 /* leave when it has started; it has no input */

    bool input;     /* there is some for the command */
    int signals;    /* signalfd */
    bool watched;   /* a coroutine reads it */
    int64_t pid;    /* inside; 0: not started yet */
    int early;      /* a signal that came before that */
    int64_t code;   /* exit status, or the signal's number ... */
    bool exited;    /* ... when this is false */
    bool done;      /* code is known */
    bool closed;    /* our own output is: the command was ended for it */
    bool truncated; /* out or err does not hold all */
    struct buf out, err;
    struct co_ref helpers[SESSION_HELPERS];
    size_t nhelpers, live;
};

/* From here on the signals a user can send are the command's; before any coroutine runs. */
int session_catch_signals(struct session *s, struct err *err);
/* Runs it, in a coroutine, until it has ended or our output has; starts others, which
 * session_leave() ends. 0: done, closed or detach tell how; -1 with err. */
int session_run(struct session *s, struct err *err);
void session_leave(struct session *s); /* waits for them: what is borrowed may go afterwards */
void session_finish(struct session *s);

/* The command's own exit status; 128 + n for a signal; what a shell says of a command that cannot
 * be executed; else SESSION_FAILED. */
int session_status(const struct session *s, const struct err *err);
/* "exit_code", "signal", "error", "stdout", "stderr", "truncated" */
void session_put_json(const struct session *s, const struct err *err, int status, struct buf *b);

#endif
