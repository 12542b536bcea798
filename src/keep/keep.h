/* keep.h - the keeper as the rest of the program sees it: running one, and talking to one.
 *
 * keep_run() is `cove keep`: single-threaded, the only privileged process. It builds and ends
 * sandboxes and does nothing else. keep_private() starts one for the caller alone, which ends with
 * the caller and leaves nothing. */
#ifndef KEEP_KEEP_H
#define KEEP_KEEP_H

#include <sys/types.h>

#include "base/setting.h"
#include "keep/record.h"

struct boxfile;

struct keep_options {
    const char *data_dir;
    const char *run_dir;             /* shared: of all keepers; ours is in keep_place() */
    const char *const *allow_mounts; /* prefixes of host paths; ends with NULL; NULL: none */
    uid_t client_uid;                /* besides root */
    bool rootless;                   /* no privilege: own ids only */
    int socket;                      /* private: the only client; -1: listen in run_dir */
    int lifeline;                    /* shared: it ends at this one's end of file; 0: none */
    bool *taken;                     /* shared: set when another one has our place; may be NULL */
    enum order_network likely;       /* private: make this kind of network at once ... */
    size_t ahead;                    /* ... and hold so many ready: 0 for a single sandbox */
    void (*progress)(const char *what, const char *where); /* something takes long; may be NULL */
};

extern const struct setting keep_settings[];

#define KEEP_DATA_DIR "/var/lib/cove"
#define KEEP_RUN_DIR  "/run/cove"

/* ---- whose keeper it is: place.c
 *
 * <data>/id, random and never changed, names a data directory. What its keeper has in the run
 * directory is below that name; what all keepers of the machine share is beside it. */

/* As it is: ERR_NOT_FOUND none was made yet. */
int keep_owner_read(const char *data_dir, struct keep_owner *out, struct err *err);
/* The same, and makes it, once and on disk, however many try. One that was lost is found again by
 * the place in run_dir. */
int keep_owner_make(const char *data_dir, const char *run_dir, struct keep_owner *out,
                    struct err *err);
bool keep_owner_same(const struct keep_owner *a, const struct keep_owner *b);
char *keep_place(const char *run_dir, const struct keep_owner *o); /* the caller frees it */

struct keep_where {                 /* one keeper, to be found again whenever it was restarted */
    const char *dir;                /* its place */
    const char *old_dir;            /* where one of a release before may be instead; NULL: none */
    const struct keep_owner *owner; /* NULL: anybody */
};

/* Which keeper of a release without identities runs in run_dir itself? UNKNOWN: it is starting. */
enum keep_old { KEEP_OLD_NONE, KEEP_OLD_OURS, KEEP_OLD_ANOTHERS, KEEP_OLD_UNKNOWN };
enum keep_old keep_old_one(const char *run_dir, const char *data_dir);

/* Has a newer release used these directories? Then nothing of them may be touched: -1. run_dir may
 * be NULL. */
int keep_schema_check(const char *data_dir, const char *run_dir, struct err *err);

/* Does the file of a sandbox on this data directory name it, or may it, because it cannot be read?
 * Reads all of them: for who is about to delete it, with the exclusive lock on it. */
enum keep_named { KEEP_NAMED_GENERATION, KEEP_NAMED_TEMPLATE, KEEP_NAMED_LAYER };
bool keep_names(const char *data_dir, enum keep_named what, const char *name);

/* -1: sandboxes of this data directory live by another run directory, where they have to be found
 * again. */
int keep_check_run_dir(const char *data_dir, const char *run_dir, const struct keep_owner *o,
                       struct err *err);

bool keep_layer_ended(int layer); /* it says that its sandbox has, and is to be deleted */
/* It says whose it is, for the day on which the note is lost. */
void keep_layer_paused(int layer, const struct boxfile *note, struct str unknown);

int keep_run(const struct keep_options *o, struct err *err); /* until SIGTERM, or its client left */

/* ---- talking to one ---- */

struct keep {
    int fd;
    pid_t pid;        /* of a private keeper; 0: not ours */
    uint32_t version; /* of the wire that it speaks; 0: it has not said hello yet */
    uint32_t heard;   /* the version of the last record from it */
    uint64_t serial;
    const struct keep_owner *owner; /* whose it has to be; NULL: anybody's */
};

/* dir: where its socket is. owner outlives k. ERR_NOT_FOUND: none is there; ERR_CONFLICT: it is of
 * another data directory. */
int keep_connect(struct keep *k, const char *dir, const struct keep_owner *owner, struct err *err);
/* The same, never waiting, and the descriptor is non-blocking: for a loop, which sends keep_hello()
 * and gives the answer to keep_agree() before anything else. */
int keep_connect_now(struct keep *k, const char *dir, const struct keep_owner *owner,
                     struct err *err);
int keep_hello(struct keep *k, struct err *err);
int keep_agree(struct keep *k, const struct keep_reply *hello, struct err *err);
int keep_private(struct keep *k, const struct keep_options *o, struct err *err); /* forks */
void keep_close(struct keep *k); /* waits for a private keeper to have cleaned up */

/* Sends and waits for the answer; events that come meanwhile go to on_event (may be NULL).
 * A refusal of the keeper is -1 with its err. Blocks. */
typedef void keep_on_event(const struct keep_reply *event, void *arg);
int keep_call(struct keep *k, struct keep_request *r, struct keep_reply *reply, int *fds,
              size_t *nfds, keep_on_event *on_event, void *arg, struct err *err);
/* Says that nothing more will be asked and hears the last events. A private keeper ends its
 * sandboxes then; a shared one those that are tied to us, without a word. */
void keep_leave(struct keep *k, keep_on_event *on_event, void *arg);
/* One record if there is one: 1, 0 when there is none now, -1 with err (ERR_GONE: it has ended). */
int keep_next(struct keep *k, struct keep_reply *out, int *fds, size_t *nfds, struct err *err);
int keep_no_socket(struct err *err); /* says why an answer came without the descriptor in it; -1 */
int keep_send(struct keep *k, struct keep_request *r, struct err *err); /* fills serial */
/* The same as it is, and never waiting: -1 with errno. */
int keep_send_now(const struct keep *k, const struct keep_request *r);

#endif
