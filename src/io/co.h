/* co.h - write blocking code, run it as coroutines.
 *
 * co_epoll.c runs them on edge-triggered epoll, one loop per thread; co_thread.c runs each on a
 * kernel thread of its own under one big lock, for the thread sanitizer, valgrind and debuggers.
 * Both keep the same promise: between two calls that may park, nobody else runs, so what the loop
 * owns needs no lock. After a call that may park, look up again what you looked up before it.
 *
 * Descriptors given to these calls are non-blocking. A deadline is absolute, in ms of clock_ms();
 * NEVER means none. A call that may park returns -1 with errno ETIMEDOUT when the deadline passed
 * and ECANCELED when another coroutine cancelled this one; cancelling is sticky. At most one waits
 * for a descriptor in a direction: a second one's call returns -1 with errno EBUSY at once.
 *
 * A coroutine has 64 KiB of stack: no recursion over input, no large locals. What blocks or
 * needs a deep stack runs in co_call(). */
#ifndef IO_CO_H
#define IO_CO_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/list.h"

typedef void co_fn(void *arg);

struct co;

struct co_ref { /* names a coroutine for ever: the id tells when the memory has a new owner */
    struct co *co;
    uint64_t id;
};

enum co_dir { CO_IN, CO_OUT };

int co_run(co_fn *fn, void *arg); /* runs fn and all it starts; returns when none is left */
int co_go(co_fn *fn, void *arg,
          struct co_ref *out); /* out may be NULL; -1: no memory for a stack */
struct co_ref co_self(void);
void co_cancel(struct co_ref ref); /* harmless when it has ended; co_call() is waited for */
void co_cancel_all(void);          /* all but the caller */
bool co_cancelled(void);           /* has the caller been cancelled? */
int64_t co_now(void);              /* ms; the time of the loop's last turn */
static inline int64_t co_in(int64_t ms) { return ms < 0 ? NEVER : co_now() + ms; }

int co_sleep(int64_t until);        /* 0 at the deadline, -1 cancelled */
void co_pass(void);                 /* let the others run */
void co_call(co_fn *fn, void *arg); /* runs fn on a worker thread with a full stack */
/* For a worker that met EAGAIN after moving this many bytes: true when the descriptor became ready
 * within a few ms, so that a fast peer does not cost a trip to the loop for every buffer. A slow
 * one goes back to the loop at once, and holds no thread. */
bool co_linger_in_call(int fd, enum co_dir dir, int64_t moved);
/* fn runs after two seconds with little to do, and once more after six others, when the worker
 * threads have left: the place to give memory back.
 * Registering it again changes nothing. (On threads there is no loop, and it never runs.) */
void co_on_idle(void (*fn)(void));
void co_trim(void); /* before a long wait: give back the stack pages below the caller */

int co_wait(int fd, enum co_dir dir, int64_t until); /* after EAGAIN; 0: try again */
void co_close(int fd); /* instead of close(): wakes who waits; ignores -1 */
void co_closep(const int *fd);

/* Something to wait for that is not a descriptor. Waking wakes every waiter. */
struct co_cond {
    struct list waiters;
};

void co_cond_init(struct co_cond *c);
int co_cond_wait(struct co_cond *c, int64_t until);
/* The same, and fd at once: 0 woken by the condition, 1 by the descriptor (which may be for what
 * the caller has read already). */
int co_cond_wait_fd(struct co_cond *c, int fd, enum co_dir dir, int64_t until);
void co_cond_wake(struct co_cond *c);

/* For tests, whose peers are all in this process: from now on nobody sleeps. When everybody waits,
 * no call is under way and no descriptor is ready, clock_skip() takes us to the nearest deadline.
 * (On threads nobody knows that everybody waits, and time passes as ever.) */
void co_skip_waits(bool on);

/* ---- the calls both runtimes share (co_io.c) ---- */

ssize_t co_read(int fd, void *buf, size_t n, int64_t until);
ssize_t co_read_full(int fd, void *buf, size_t n, int64_t until); /* less than n only at the end */
int co_write(int fd, const void *buf, size_t n, int64_t until);   /* all of it, or -1 */
int co_writev(int fd, struct iovec *v, int count, int64_t until); /* all of it; changes v */
/* All bytes of one connection into the other, whose reader then sees the end. */
void co_carry(int from, int to);
int co_accept(int listener);
int co_connect(int fd, const void *addr, socklen_t len, int64_t until); /* fd stays the caller's */

#endif
