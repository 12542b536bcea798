/* envd.h - a client of a guest: starting processes and following them, over E2B's envd protocol.
 * Everything it reads comes from inside a sandbox and is checked like any stranger's bytes. */
#ifndef PROVIDER_ENVD_H
#define PROVIDER_ENVD_H

#include "base/arena.h"
#include "io/client.h"

struct envd { /* borrowed: all of it belongs to the caller and outlives the calls */
    struct client *client;
    struct client_to to;
    const char *token;   /* X-Access-Token; NULL: none */
    const char *host;    /* NULL: "guest" */
    const char *headers; /* more "Name: value\r\n" lines, as a router needs them; NULL: none */
};

struct envd_env {
    const char *name, *value;
};

struct envd_command {
    const char *cmd;
    char *const *args; /* without cmd; ends with NULL */
    const struct envd_env *env;
    size_t nenv;
    const char *cwd, *user; /* NULL: the guest's default */
    bool pty, stdin_open;
    int64_t cols, rows;
};

enum envd_kind { ENVD_START, ENVD_STDOUT, ENVD_STDERR, ENVD_PTY, ENVD_LOST, ENVD_END };

struct envd_event {
    enum envd_kind kind;
    int64_t pid;       /* START */
    struct str data;   /* output; valid until the next event */
    int64_t lost;      /* LOST: bytes that nobody kept */
    int64_t exit_code; /* END */
    bool exited;       /* END: by itself, not by a signal */
    int64_t signal;    /* END: which; 0 where the guest does not say */
    struct str status; /* END: "exit status 3", "signal: killed" */
};

struct envd_stream;

struct envd_stream *envd_start(struct envd *e, const struct envd_command *c, struct err *err);
/* Follows a process that runs already, from the first byte of its output that is kept. wait_ms: end
 * with ERR_TIMEOUT after that long; 0: with the process. */
struct envd_stream *envd_connect(struct envd *e, int64_t pid, int64_t wait_ms, struct err *err);
/* 1 an event, 0 the stream has ended, -1 with err. Parks. */
int envd_next(struct envd_stream *s, struct envd_event *out, struct err *err);
void envd_close(struct envd_stream *s);
void envd_closep(struct envd_stream **s);

int envd_input(struct envd *e, int64_t pid, bool pty, const void *p, size_t n, struct err *err);
int envd_end_input(struct envd *e, int64_t pid, struct err *err);
int envd_resize(struct envd *e, int64_t pid, int64_t cols, int64_t rows, struct err *err);
int envd_signal(struct envd *e, int64_t pid, int signo, struct err *err);

/* ---- for the other files of this client ---- */

void envd_put_headers(const struct envd *e, const char *user, const char *type, struct buf *b);
/* One unary call: "/filesystem.Filesystem/Stat". reply may be NULL. */
int envd_call(struct envd *e, const char *path, const char *user, const struct buf *body,
              struct buf *reply, struct err *err);
/* What went wrong, from the guest's or the router's {"code": ..., "message": ...}: -1. */
int envd_problem(int status, struct str text, struct err *err);

#endif
