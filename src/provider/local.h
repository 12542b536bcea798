/* local.h - what the files of provider `local` share: one connection to the keeper that many
 * coroutines use at once, and the machines whose events it brings. */
#ifndef PROVIDER_LOCAL_H
#define PROVIDER_LOCAL_H

#include "io/co.h"
#include "keep/keep.h"
#include "provider/provider.h"

struct machine { /* one that we hear events of */
    char ref[ORDER_ID];
    bool creating;  /* its create() has not returned: what ends it now is that call's failure */
    bool ended;     /* ... this one */
    struct err why; /* ... and its reason */
    int spare;      /* a connection to the guest that came with the answer to create; -1 */
};

struct local {
    struct provider provider;
    struct keep_where where;
    struct err refused; /* code set: there is a keeper, and it is not for us */
    struct keep keep;   /* fd -1 while there is none */
    uint64_t serial, epoch;
    bool heard, closing;
    struct co_cond changed; /* there is a connection, or closing */
    struct list asks;       /* of struct ask, inside local_ask() */
    struct co_cond sent;    /* whoever was sending is done */
    bool sending;
    void *machines; /* of struct machine: a tree of search.h */
    struct co_ref watcher;
    size_t users; /* coroutines that will look at this again: the last one frees it */
};

enum ask {
    ASK_DONE,
    ASK_REFUSED = -1, /* by the keeper, or never sent: nothing has happened */
    ASK_LOST = -2,    /* the keeper died: it may have happened */
    ASK_LEFT = -3     /* cancelled or out of time: it may still happen */
};

/* One request and its answer; err is set for all but ASK_DONE. *nfds is the room for descriptors,
 * then their number; NULL: none are wanted. Parks: the caller is one of l's users. */
enum ask local_ask(struct local *l, struct keep_request *q, struct keep_reply *reply, int *fds,
                   size_t *nfds, int64_t until, struct err *err);
void local_start(struct local *l); /* connects, and again whenever that ends */
void local_stop(struct local *l);  /* all calls under way fail */
void local_put(struct local *l);   /* one user less */

int local_no_sandbox(const char *ref, struct err *err); /* -1: it was looked up */

/* local_event.c: the table of machines, and what happens to them */
struct machine *local_find(struct local *l, const char *ref);
struct machine *local_add(struct local *l, const char *ref); /* NULL: it is there already */
void local_forget(struct local *l, struct machine *m);
void local_forget_all(struct local *l);
char (*local_refs(struct local *l, size_t *n))[ORDER_ID]; /* of those that were created; owned */
void local_state(const struct keep_state *s, struct machine_state *out);
void local_event(struct local *l, const struct keep_reply *e);
void local_emit(struct local *l, enum machine_event_kind kind);
void local_unreachable(struct local *l, struct machine *m, const char *why);
void local_astray(struct local *l, struct machine *m);
/* It is not there any more, and nobody told us. Forgets it. */
void local_gone(struct local *l, struct machine *m, const char *reason, const char *text);

#endif
