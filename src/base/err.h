/* err.h - a code for programs, a sentence for people.
 *
 * A function that can fail takes `struct err *` last and returns -1 (or NULL) after setting it.
 * What err_sys() says is about this machine, and so is what the store and the keeper say: `host` is
 * set then, and stays when the error is passed on. On success neither *err nor the outputs' owners
 * are touched. Only the top logs. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/str.h"

enum err_code {
    ERR_NONE,
    ERR_INVALID,         /* the request is wrong: 400 */
    ERR_UNAUTHENTICATED, /* we do not know who asks: 401 */
    ERR_DENIED,          /* we know and refuse: 403 */
    ERR_NOT_FOUND,       /* 404 */
    ERR_METHOD,          /* the path exists, the verb does not: 405 */
    ERR_NOT_ACCEPTABLE,  /* no encoding the client takes: 406 */
    ERR_CONFLICT,        /* it exists already, or is in the wrong state: 409 */
    ERR_PRECONDITION,    /* the system is not in a state for this: 400 in Connect's table */
    ERR_TOO_LARGE,       /* a body beyond its bound: 413 */
    ERR_LIMIT,           /* a bound on number or rate: 429 */
    ERR_HEADERS,         /* header bytes or count beyond their bound: 431 */
    ERR_TIMEOUT,         /* 504, or 408 where the client was slow */
    ERR_UNSUPPORTED,     /* 501 */
    ERR_UPSTREAM,        /* the other side failed us: 502 */
    ERR_UNAVAILABLE,     /* try again: 503 */
    ERR_NO_SPACE,        /* 507 */
    ERR_UNKNOWN,         /* Connect's "unknown": 500 */
    ERR_GONE,            /* the peer left in the middle: no answer can be given */
    ERR_INTERNAL,        /* 500 */
    ERR_DATA_LOSS,       /* bytes that were asked for are not kept any more: 500 */
    ERR_CODES
};

/* What a program may conclude from it that its code alone does not say. A code comes from wherever
 * something failed: a missing directory is ERR_NOT_FOUND too. */
enum err_reason {
    ERR_REASON_NONE,
    ERR_NO_SANDBOX, /* with ERR_NOT_FOUND: who keeps them looked it up, and there is none */
    ERR_REASONS
};

struct err {                /* on the caller's stack: nothing to free, nothing to leak */
    enum err_code code;     /* maps one to one to an HTTP status and a Connect code */
    enum err_reason reason; /* set behind err_set(), which clears it; context leaves it */
    bool host;              /* it may name files of this machine: err_hide_paths() for strangers */
    char msg[256];          /* "create s1: mount overlay: No space left on device" */
};

/* All are -1, so that a caller can write: return err_sys(err, "open %s", path);
 * As macros, so that the compiler and the analysers see the -1. */
#define err_set(err, code, ...) (err_set_((err), (code), __VA_ARGS__), err_failed())
#define err_set_host(err, code, ...)                                                               \
    (err_set_((err), (code), __VA_ARGS__), (err)->host = true, err_failed())
#define err_sys(err, ...) (err_sys_((err), __VA_ARGS__), err_failed())
#define err_in(err, ...)  (err_in_((err), __VA_ARGS__), err_failed())
static inline int err_failed(void) { return -1; }

void err_set_(struct err *err, enum err_code code, const char *fmt, ...) PRINTF(3, 4);
void err_sys_(struct err *err, const char *fmt, ...)
    PRINTF(2, 3); /* appends errno's text, maps its code */
void err_in_(struct err *err, const char *fmt, ...) PRINTF(2, 3); /* puts "context: " in front */

/* The sentence without the absolute paths in it, for those whose files they are not: "a file of the
 * server" stands for each that keep (may be NULL) does not know. */
typedef bool err_path_fn(const void *arg, struct str path);
void err_hide_paths(const char *msg, err_path_fn *keep, const void *arg, char *out, size_t size);

int err_status(enum err_code code);       /* the HTTP status */
const char *err_name(enum err_code code); /* the Connect code's name */
enum err_code err_from_errno(int error);

#endif
