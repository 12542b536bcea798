/* capture.h - runs a program to its end and keeps what it prints, within bounds. */
#ifndef GUEST_SERVICES_CAPTURE_H
#define GUEST_SERVICES_CAPTURE_H

#include "base/buf.h"
#include "base/err.h"
#include "io/conn.h"

struct capture {
    char *const *argv; /* argv[0]: a path, or a name to be found along PATH of envp */
    char *const *envp;
    const char *cwd;         /* NULL: ours */
    const int *pass;         /* become 3, 4 ... */
    size_t npass;            /* at most SPAWN_PASS */
    int64_t timeout_ms;      /* its whole session is killed then */
    size_t max;              /* bytes kept of each stream; what comes later is dropped */
    const struct conn *peer; /* whose leaving ends the program; NULL: nobody's */

    /* results */
    struct buf out, log; /* standard output, standard error; the caller frees both */
    bool cut;            /* something was dropped */
    bool timed_out;
    int status; /* as of waitpid */
};

/* Parks. -1: it could not be started, or the peer left (ERR_GONE). */
int capture_run(struct capture *c, struct err *err);
bool capture_ok(const struct capture *c); /* ended by itself with status 0 */
void capture_finish(struct capture *c);

#endif
