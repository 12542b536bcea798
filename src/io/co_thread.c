/* co_thread.c - the calls of co.h on kernel threads, one per coroutine.
 *
 * One lock is held by whoever runs and is let go only where co.h says that a call may park, so the
 * rule "the loop owns the state" holds here too, and the thread sanitizer can tell when co_call()
 * work touches what it should not. Built with -Dcoroutines=threads; slower, and meant to be. */
#include "io/co.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

enum { STACK = 512 << 10 };

struct co {
    struct list all, cond, free;
    co_fn *fn;
    void *arg;
    uint64_t id;
    int event; /* written to wake a thread that is parked */
    int fd;    /* what it waits for, -1 when nothing, or when it is being woken */
    enum co_dir dir;
    bool woken, cancelled;
};

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_gone = PTHREAD_COND_INITIALIZER;
static struct list all = LIST_INIT(all), spare = LIST_INIT(spare);
static uint64_t ids;
static _Thread_local struct co *self;

static struct co *co_new(co_fn *fn, void *arg)
{
    int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct co *c;

    if (event < 0)
        return NULL;
    if (list_empty(&spare)) {
        c = xcalloc(1, sizeof(*c));
    } else {
        c = CONTAINER_OF(spare.next, struct co, free);
        list_remove(&c->free);
    }
    *c = (struct co){ .fn = fn, .arg = arg, .event = event, .fd = -1, .id = ++ids };
    list_init(&c->cond);
    list_init(&c->free);
    list_push(&all, &c->all);
    return c;
}

static void co_end(struct co *c) /* never freed: a stale co_ref may still look at its id */
{
    list_remove(&c->all);
    c->id = 0;
    close(TAKE(c->event, -1));
    list_push(&spare, &c->free);
    if (list_empty(&all))
        pthread_cond_broadcast(&all_gone);
}

static void run(struct co *c)
{
    pthread_mutex_lock(&big);
    self = c;
    c->fn(c->arg);
    co_end(c);
    pthread_mutex_unlock(&big);
}

static void *thread(void *arg)
{
    run(arg);
    return NULL;
}

int co_go(co_fn *fn, void *arg, struct co_ref *out)
{
    struct co *c = co_new(fn, arg);
    pthread_attr_t attr;
    pthread_t t;
    sigset_t signals;
    int e;

    if (!c)
        return -1;
    sigfillset(&signals); /* they are the first thread's, which may take them from a signalfd */
    pthread_attr_init(&attr);
    pthread_attr_setsigmask_np(&attr, &signals);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    e = pthread_create(&t, &attr, thread, c);
    pthread_attr_destroy(&attr);
    if (e) {
        co_end(c);
        errno = e;
        return -1;
    }
    if (out)
        *out = (struct co_ref){ c, c->id };
    return 0;
}

int co_run(co_fn *fn, void *arg)
{
    struct co *c;

    pthread_mutex_lock(&big);
    c = co_new(fn, arg);
    pthread_mutex_unlock(&big);
    if (!c)
        return -1;
    run(c);
    self = NULL;
    pthread_mutex_lock(&big);
    while (!list_empty(&all))
        pthread_cond_wait(&all_gone, &big);
    pthread_mutex_unlock(&big);
    return 0;
}

struct co_ref co_self(void) { return (struct co_ref){ self, self->id }; }

static void poke(struct co *c)
{
    static const uint64_t one = 1;

    c->fd = -1;
    if (write(c->event, &one, sizeof(one)) < 0 && errno != EAGAIN)
        abort();
}

static void cancel(struct co *c)
{
    c->cancelled = true;
    poke(c);
}

void co_cancel(struct co_ref ref)
{
    if (ref.co && ref.co->id == ref.id)
        cancel(ref.co);
}

void co_cancel_all(void)
{
    struct co *c;

    list_each(c, &all, all)
        if (c != self)
            cancel(c);
}

bool co_cancelled(void) { return self->cancelled; }

int64_t co_now(void) { return clock_ms(); }
void co_skip_waits(bool on) { (void)on; }

static bool is_waited_for(int fd, enum co_dir dir)
{
    const struct co *c;

    list_each(c, &all, all)
        if (fd >= 0 && c->fd == fd && c->dir == dir)
            return true;
    return false;
}

/* Parks until the event, fd (when >= 0) or the deadline: 0 event, 1 fd, -1 with errno. */
static int park(int fd, enum co_dir dir, int64_t until)
{
    struct pollfd p[2] = { { self->event, POLLIN, 0 },
                           { fd, dir == CO_IN ? POLLIN | POLLPRI | POLLRDHUP : POLLOUT, 0 } };
    uint64_t n;
    int r;

    if (self->cancelled) {
        errno = ECANCELED;
        return -1;
    }
    if (is_waited_for(fd, dir)) {
        errno = EBUSY;
        return -1;
    }
    self->fd = fd;
    self->dir = dir;
    pthread_mutex_unlock(&big);
    do {
        int64_t ms = until == NEVER ? -1 : MAX(until - clock_ms(), (int64_t)0);

        r = poll(p, 2, (int)MIN(ms, (int64_t)1 << 30));
    } while ((r < 0 && errno == EINTR) || (r == 0 && (until == NEVER || clock_ms() < until)));
    pthread_mutex_lock(&big);
    self->fd = -1;
    if (p[0].revents)
        while (read(self->event, &n, sizeof(n)) > 0)
            ;
    errno = self->cancelled ? ECANCELED : ETIMEDOUT;
    if (self->cancelled || r <= 0)
        return -1;
    return p[1].revents ? 1 : 0;
}

int co_sleep(int64_t until)
{
    while (park(-1, CO_IN, until) == 0)
        ; /* a late poke of an earlier wait */
    return errno == ETIMEDOUT ? 0 : -1;
}

void co_pass(void)
{
    pthread_mutex_unlock(&big);
    sched_yield();
    pthread_mutex_lock(&big);
}

void co_call(co_fn *fn, void *arg)
{
    pthread_mutex_unlock(&big);
    fn(arg);
    pthread_mutex_lock(&big);
}

void co_on_idle(void (*fn)(void)) { (void)fn; }

void co_trim(void) {}

int co_wait(int fd, enum co_dir dir, int64_t until) { return park(fd, dir, until) < 0 ? -1 : 0; }

void co_close(int fd)
{
    struct co *c;

    if (fd < 0)
        return;
    list_each(c, &all, all) /* poll() does not notice that its descriptor was closed */
        if (c->fd == fd)
            poke(c);
    close(fd);
}

void co_cond_init(struct co_cond *c) { list_init(&c->waiters); }

int co_cond_wait_fd(struct co_cond *c, int fd, enum co_dir dir, int64_t until)
{
    int r;

    self->woken = false;
    list_push(&c->waiters, &self->cond);
    do
        r = park(fd, dir, until);
    while (r == 0 && !self->woken);
    list_remove(&self->cond);
    return r < 0 && self->woken && errno != ECANCELED ? 0 : r;
}

int co_cond_wait(struct co_cond *c, int64_t until) { return co_cond_wait_fd(c, -1, CO_IN, until); }

void co_cond_wake(struct co_cond *c)
{
    struct co *co;

    list_each(co, &c->waiters, cond) {
        list_remove(&co->cond);
        co->woken = true;
        poke(co);
    }
}
