/* kernels.h - all kernels of the sandbox: the table, what waits in advance, and the bounds. One per
 * process; the loop owns it. */
#ifndef GUEST_KERNELS_KERNELS_H
#define GUEST_KERNELS_KERNELS_H

#include "base/setting.h"
#include "guest/kernels/kernelspec.h"
#include "io/co.h"

struct engine;
struct kernel;

extern struct kernels_limits {
    int64_t count, message_bytes, queue_bytes, replay_bytes, replay_count;
    int64_t starts, start_ms, fork_ms, stop_ms, restarts, stable_ms, park, rest_ms;
    int64_t cull_idle_s, cull_interval_s, cull_connected, cull_busy;
} kernels_limits;
extern const struct setting kernels_settings[];

struct kernels {
    char *dir;  /* connection files and sockets: ours alone */
    char *home; /* where kernels begin, and what `path` is relative to */
    int log;    /* where kernels write what is no message; -1: nowhere */
    struct list all;
    struct list starting; /* engines that nobody has heard of yet */
    struct co_cond turn;  /* there is one fewer of them */
    size_t count;
    struct engine *parked; /* ready, and nobody's yet */
    bool parking, ending;
    bool keep;    /* what was started in advance stays, used or not: the template wants it warm */
    bool resting; /* it was ended for want of use */
    int64_t asked_at; /* co_now() of the last request */
    uint64_t started; /* engines ever: names their files */
    size_t engines;   /* that have files now */
    int64_t used_at;  /* wall clock, seconds: the last activity of any kernel */
    struct co_ref culler, rester;
};
extern struct kernels kernels;

int kernels_open(const char *home, int log, struct err *err);
void kernels_close(void);   /* ends all of them; parks */
void kernels_prepare(void); /* warms up and parks, in the background; harmless to repeat */
void kernels_asked(void);   /* every request begins with it */
struct engine *kernels_take_parked(const struct kernelspec *spec); /* NULL: none; ready if not */

struct kernel *kernels_find(struct str id);
/* Activity of any kernel: for /api/status. */
void kernels_touch(void);
bool kernels_idle_too_long(const struct kernel *k); /* nobody has used it: it may be culled */
void kernels_forgive(int64_t ms);                   /* so long nobody could have used any */

#endif
