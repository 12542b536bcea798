/* traffic.h - the calls that are under way to each sandbox: counted, bounded, taken as activity
 * while they move, and reset when their sandbox has ended. */
#ifndef ROUTER_TRAFFIC_H
#define ROUTER_TRAFFIC_H

#include "control/control.h"
#include "io/proxy.h"

struct traffic_limits {
    int64_t sandbox_calls;
};
extern struct traffic_limits traffic_limits;

enum { TRAFFIC_BUCKETS = 64 };

struct traffic { /* one per router */
    struct list bucket[TRAFFIC_BUCKETS];
    struct co_ref sweeper;
    bool sweeping, closing;
    int64_t calls;   /* now */
    uint64_t resets; /* ever */
};

struct lane;

struct flight { /* one call, on its coroutine's stack */
    struct list link;
    struct lane *lane;
    struct call *call;
    const struct proxy *proxy;
    int64_t seen; /* proxy->moved_at when it was last taken as activity */
    bool idle;    /* its bytes are no activity */
    bool guest;   /* to the guest itself, which answers at once or is in trouble */
};

void traffic_init(struct traffic *t);
void traffic_finish(struct traffic *t); /* no call may be under way any more */
/* Holds the sandbox until traffic_leave(). -1: too many at once. */
int traffic_enter(struct traffic *t, struct sandbox *s, struct flight *f);
void traffic_leave(struct traffic *t, struct flight *f);

#endif
