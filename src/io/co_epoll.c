/* co_epoll.c - stackful coroutines on epoll.
 *
 * Each descriptor is registered once, edge-triggered, for both directions; a call tries the system
 * call first and parks only after EAGAIN, so a request costs no epoll_ctl. A turn of the loop runs
 * what is ready, then waits for events or the nearest deadline.
 *
 * Stacks are cut from slabs, touched lazily, each with a guard page below it. struct co sits at the
 * top of its own stack and is never unmapped, so that a stale co_ref can be checked safely. */
#include "io/co.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/co_switch.h"
#include "io/timers.h"
#include "io/workers.h"

#ifdef CO_ASAN
enum { STACK = 512 << 10 }; /* red zones make frames several times larger */
#else
enum { STACK = 64 << 10 };
#endif
enum { PAGE = 4096, SLAB = 64, HOT = 64, EVENTS = 256 };

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13: a guard without a mapping of its own */
#endif

enum wake { WOKEN_COND, WOKEN_FD, WOKEN_TIME, WOKEN_CANCEL };

struct co {
    struct co_context ctx;
    struct co *next;  /* ready list, free list, done list */
    struct list all;  /* every live coroutine */
    struct list cond; /* in a co_cond's waiters */
    co_fn *fn;
    void *arg;
    uint64_t id; /* 0 while free */
    struct timer timer;
    int fd; /* what it waits for, -1 when nothing */
    enum co_dir dir;
    enum wake woken;
    bool parked, cancelled, calling;
};

struct fdslot {
    struct co *wait[2]; /* by enum co_dir */
    bool missed[2];     /* became ready while nobody waited: an edge is told only once */
    bool registered;
};

static _Thread_local struct loop {
    int ep, event;
    int nfree, nfresh, nfd;
    char *fresh; /* the rest of the newest slab of stacks */
    struct co_context main;
    struct co *current, *head, **tail, *free;
    struct co **cold; /* stacks without a page; not a list, which would need one */
    int ncold, capcold;
    struct timers timers;
    struct fdslot *fd;
    struct list all;
    uint64_t ids;
    int64_t now;
    int64_t window;       /* its end */
    int events;           /* in it */
    int calls;            /* under way on workers */
    int quiet;            /* windows in a row with few */
    pthread_mutex_t lock; /* guards done */
    struct co *done;      /* finished co_call()s */
} * L;

/* ---- parking and waking ---- */

static void make_ready(struct co *c)
{
    c->next = NULL;
    *L->tail = c;
    L->tail = &c->next;
}

static void wake(struct co *c, enum wake why)
{
    if (!c->parked)
        return;
    timers_remove(&L->timers, &c->timer);
    if (c->fd >= 0)
        L->fd[c->fd].wait[c->dir] = NULL;
    list_remove(&c->cond);
    c->fd = -1;
    c->parked = false;
    c->woken = why;
    make_ready(c);
}

static void switch_away(struct co *c) { co_context_switch(&c->ctx, &L->main); }

static enum wake park(int64_t until)
{
    struct co *c = L->current;

    if (until != NEVER)
        timers_add(&L->timers, &c->timer, until);
    c->parked = true;
    switch_away(c);
    return c->woken;
}

/* park for a caller that reports time-out and cancelling; the waits are registered already */
static int park_errno(int64_t until)
{
    switch (park(until)) {
    case WOKEN_TIME: errno = ETIMEDOUT; return -1;
    case WOKEN_CANCEL: errno = ECANCELED; return -1;
    case WOKEN_FD: return 1;
    case WOKEN_COND: break;
    }
    return 0;
}

static bool refuse_cancelled(void)
{
    if (LIKELY(!L->current->cancelled))
        return false;
    errno = ECANCELED;
    return true;
}

/* ---- coroutines ---- */

static void entry(void)
{
    struct co *c = L->current;

    co_context_entered(&c->ctx, &L->main);
    c->fn(c->arg);
    list_remove(&c->all);
    c->id = 0;
    c->next = L->free;
    L->free = c;
    L->nfree++;
    co_context_leave(&c->ctx, &L->main);
    __builtin_unreachable();
}

static char *stack_base(struct co *c) { return (char *)(c + 1) - STACK; }

/* A stack never used before is cut from a slab only now, which keeps a small program small. */
static struct co *new_stack(void)
{
    char *p;

    if (!L->nfresh) {
        size_t n = (size_t)STACK * SLAB;

        p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
                 /* cppcheck-suppress invalidFunctionArg ; what an anonymous mapping wants */
                 -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        madvise(p, n, MADV_NOHUGEPAGE);
        L->fresh = p;
        L->nfresh = SLAB;
    }
    p = L->fresh;
    if (madvise(p, PAGE, MADV_GUARD_INSTALL) && mprotect(p, PAGE, PROT_NONE))
        return NULL;
    L->fresh += STACK;
    L->nfresh--;
    return (struct co *)(void *)(p + STACK) - 1;
}

int co_go(co_fn *fn, void *arg, struct co_ref *out)
{
    struct co *c = L->free;

    if (c) {
        L->free = c->next;
        L->nfree--;
    } else if (L->ncold) {
        c = L->cold[--L->ncold];
    } else if (!(c = new_stack())) {
        return -1;
    }
    *c = (struct co){ .fn = fn, .arg = arg, .timer.at = TIMER_OFF, .fd = -1, .id = ++L->ids };
    co_context_init(&c->ctx, entry, stack_base(c), c);
    list_init(&c->cond);
    list_push(&L->all, &c->all);
    make_ready(c);
    if (out)
        *out = (struct co_ref){ c, c->id };
    return 0;
}

struct co_ref co_self(void) { return (struct co_ref){ L->current, L->current->id }; }

static void cancel(struct co *c)
{
    c->cancelled = true;
    if (!c->calling)
        wake(c, WOKEN_CANCEL);
}

void co_cancel(struct co_ref ref)
{
    if (ref.co && ref.co->id == ref.id)
        cancel(ref.co);
}

void co_cancel_all(void)
{
    struct co *c;

    list_each(c, &L->all, all)
        if (c != L->current)
            cancel(c);
}

bool co_cancelled(void) { return L->current->cancelled; }

int64_t co_now(void) { return L ? L->now : clock_ms(); } /* a worker has no loop */

/* A finished stack beyond the hot few gives its pages back. */
static void trim_free(struct co *c)
{
    if (L->nfree > HOT)
        madvise(stack_base(c) + PAGE, STACK - 2 * PAGE, MADV_DONTNEED);
}

void co_trim(void)
{
#ifndef CO_ASAN /* its shadow would say that the fresh pages are still poisoned */
    uintptr_t sp = ((uintptr_t)__builtin_frame_address(0) - 512) & ~(uintptr_t)(PAGE - 1);
    uintptr_t base = (uintptr_t)stack_base(L->current) + PAGE;

    if (sp > base)
        madvise((void *)base, sp - base, MADV_DONTNEED);
#endif
}

/* ---- the loop ---- */

static void collect_done(void)
{
    struct co *c;
    uint64_t n;

    if (read(L->event, &n, sizeof(n)) < 0)
        return;
    pthread_mutex_lock(&L->lock);
    c = TAKE(L->done, NULL);
    pthread_mutex_unlock(&L->lock);
    for (struct co *next; c; c = next) {
        next = c->next;
        c->calling = false;
        L->calls--;
        wake(c, WOKEN_COND);
    }
}

static void deliver(const struct epoll_event *ev)
{
    static const uint32_t wanted[2] = { EPOLLIN | EPOLLRDHUP | EPOLLPRI, EPOLLOUT };
    struct fdslot *s;

    if (ev->data.fd == L->event) {
        collect_done();
        return;
    }
    s = &L->fd[ev->data.fd];
    for (int d = 0; d < 2; d++) {
        if (!(ev->events & (wanted[d] | EPOLLHUP | EPOLLERR)))
            continue;
        if (s->wait[d])
            wake(s->wait[d], WOKEN_FD);
        else
            s->missed[d] = true;
    }
}

/* ---- after a burst: the memory it needed goes back ---- */

/* A window with few events is an idle one, and not one without any: somebody who asks for our
 * health each second must not keep us as large as we ever were. */
enum { WINDOW_MS = 2000, BUSY = 256, TIDY_SOON = 1, TIDY_LATE = 4, IDLE_HOOKS = 8 };

static void (*idle_hooks[IDLE_HOOKS])(void); /* filled at start, before there are threads */

void co_on_idle(void (*fn)(void))
{
    for (size_t i = 0; i < IDLE_HOOKS; i++) {
        if (!idle_hooks[i])
            idle_hooks[i] = fn;
        if (idle_hooks[i] == fn)
            return;
    }
    abort(); /* more kinds of pools than anybody needs */
}

/* Free stacks lose every page, with struct co in it: a stale co_ref then reads the id 0. */
static void chill_free(void)
{
    if (L->capcold < L->ncold + L->nfree) {
        L->capcold = L->ncold + L->nfree;
        L->cold = xrealloc(L->cold, sizeof(struct co *) * (size_t)L->capcold);
    }
    for (struct co *c = TAKE(L->free, NULL), *next; c; c = next) {
        next = c->next;
        L->cold[L->ncold++] = c;
        madvise(stack_base(c) + PAGE, STACK - PAGE, MADV_DONTNEED);
    }
    L->nfree = 0;
}

static void tidy(void)
{
    chill_free();
    for (size_t i = IDLE_HOOKS; i--;) /* the first registered is the heap that all others free to */
        if (idle_hooks[i])
            idle_hooks[i]();
}

/* Tidies up after the first quiet window behind some events, and once more when the worker threads
 * have left, with what they kept for themselves. */
static void end_window(void)
{
    if (L->events >= BUSY)
        L->quiet = 0;
    else if (++L->quiet == TIDY_SOON || L->quiet == TIDY_LATE)
        tidy();
    L->events = 0;
    L->window = L->now + WINDOW_MS;
}

/* How long to wait for events at most, in the terms of epoll_wait. */
static int wait_ms(void)
{
    const struct timer *nearest = timers_nearest(&L->timers);
    int64_t until = nearest ? nearest->until : NEVER;

    if (L->quiet < TIDY_LATE)
        until = MIN(until, L->window);
    if (L->head || until <= L->now)
        return 0;
    return until == NEVER ? -1 : (int)MIN(until - L->now, (int64_t)1 << 30);
}

static bool skips_waits; /* set by tests, before there are threads */

void co_skip_waits(bool on) { skips_waits = on; }

/* epoll_wait() for tests: instead of sleeping until the nearest deadline it takes the clock there.
 */
static int skip_wait(struct epoll_event *ev, int ms)
{
    const struct timer *nearest = timers_nearest(&L->timers);
    int n = epoll_wait(L->ep, ev, EVENTS, 0);

    if (n || !ms)
        return n;
    if (L->calls || !nearest)
        return epoll_wait(L->ep, ev, EVENTS, ms);
    clock_skip(MAX(nearest->until - clock_ms(), (int64_t)0));
    return 0;
}

static int wait_events(struct epoll_event *ev)
{
    int ms = wait_ms(),
        n = UNLIKELY(skips_waits) ? skip_wait(ev, ms) : epoll_wait(L->ep, ev, EVENTS, ms);

    L->now = clock_ms();
    if (n <= 0)
        return n;
    if (L->quiet >= TIDY_LATE) { /* it begins with this event */
        L->window = L->now + WINDOW_MS;
        L->quiet = 0;
    }
    L->events += n;
    return n;
}

static void poll_events(void)
{
    struct epoll_event ev[EVENTS];
    int n = wait_events(ev);
    struct timer *t;

    if (L->quiet < TIDY_LATE && L->now >= L->window)
        end_window();
    for (int i = 0; i < n; i++)
        deliver(&ev[i]);
    while ((t = timers_nearest(&L->timers)) && t->until <= L->now)
        wake(CONTAINER_OF(t, struct co, timer), WOKEN_TIME);
}

static void run_ready(void)
{
    struct co *c = TAKE(L->head, NULL);

    L->tail = &L->head;
    for (struct co *next; c; c = next) {
        next = c->next;
        L->current = c;
        co_context_switch(&L->main, &c->ctx);
        L->current = NULL;
        if (L->free == c)
            trim_free(c);
    }
}

static void loop_free(struct loop *l)
{
    close(l->ep);
    close(l->event);
    free(l->fd);
    timers_free(&l->timers);
    free(l->cold);
    free(l); /* the stacks stay mapped: a worker's stale reference must never fault */
}

int co_run(co_fn *fn, void *arg)
{
    struct epoll_event ev = { .events = EPOLLIN };

    assert(!L);
    L = xcalloc(1, sizeof(*L));
    L->ep = epoll_create1(EPOLL_CLOEXEC);
    L->event = ev.data.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    L->now = clock_ms();
    L->window = L->now + WINDOW_MS;
    L->tail = &L->head;
    list_init(&L->all);
    pthread_mutex_init(&L->lock, NULL);
    if (L->ep < 0 || L->event < 0 || epoll_ctl(L->ep, EPOLL_CTL_ADD, L->event, &ev) ||
        co_go(fn, arg, NULL)) {
        loop_free(TAKE(L, NULL));
        return -1;
    }
    for (;;) {
        run_ready();
        if (list_empty(&L->all))
            break;
        poll_events();
    }
    loop_free(TAKE(L, NULL));
    return 0;
}

int co_sleep(int64_t until)
{
    if (refuse_cancelled())
        return -1;
    return park(until) == WOKEN_CANCEL ? refuse_cancelled(), -1 : 0;
}

void co_pass(void)
{
    make_ready(L->current);
    switch_away(L->current);
}

/* ---- blocking work on a worker thread ---- */

struct job {
    struct work work; /* first: finish() is given it */
    struct loop *loop;
    struct co *co;
};

static void finish(struct work *w) /* it is on the coroutine's stack: gone once that is woken */
{
    static const uint64_t one = 1;
    struct job *j = (struct job *)w;
    struct loop *l = j->loop;

    pthread_mutex_lock(&l->lock);
    j->co->next = l->done;
    l->done = j->co;
    if (write(l->event, &one, sizeof(one)) < 0)
        abort();
    pthread_mutex_unlock(&l->lock);
}

void co_call(co_fn *fn, void *arg)
{
    struct job j = { { fn, arg, finish, NULL }, L, L->current };

    if (!workers_take(&j.work)) { /* no thread to be had: blocking the loop beats failing */
        fn(arg);
        return;
    }
    L->current->calling = true;
    L->calls++;
    park(NEVER);
}

/* ---- descriptors and conditions ---- */

static struct fdslot *slot(int fd)
{
    if (UNLIKELY(fd >= L->nfd)) {
        int n = L->nfd ? L->nfd : 32;

        while (n <= fd)
            n *= 2;
        L->fd = xrealloc(L->fd, sizeof(*L->fd) * (size_t)n);
        memset(L->fd + L->nfd, 0, sizeof(*L->fd) * (size_t)(n - L->nfd));
        L->nfd = n;
    }
    return &L->fd[fd];
}

/* 0 the caller is the one who waits, 1 there is no need to, -1 the descriptor cannot be watched. An
 * edge may have come since the EAGAIN, while a worker had the descriptor or the caller waited for
 * something else; it will not come again, so it is remembered. */
static int watch(int fd, enum co_dir dir)
{
    struct fdslot *s = slot(fd);

    if (!s->registered) {
        struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET,
                                  .data.fd = fd };

        if (epoll_ctl(L->ep, EPOLL_CTL_ADD, fd, &ev))
            return -1;
        s->registered = true;
    }
    if (TAKE(s->missed[dir], false))
        return 1;
    if (UNLIKELY(s->wait[dir])) { /* its wake-up would be lost: an error of this call alone */
        errno = EBUSY;
        return -1;
    }
    s->wait[dir] = L->current;
    L->current->fd = fd;
    L->current->dir = dir;
    return 0;
}

int co_wait(int fd, enum co_dir dir, int64_t until)
{
    int r = refuse_cancelled() ? -1 : watch(fd, dir);

    return r < 0 || (!r && park_errno(until) < 0) ? -1 : 0;
}

void co_close(int fd)
{
    if (fd < 0)
        return;
    if (fd < L->nfd && L->fd[fd].registered) {
        for (int d = 0; d < 2; d++)
            if (L->fd[fd].wait[d])
                wake(L->fd[fd].wait[d], WOKEN_FD);
        L->fd[fd] = (struct fdslot){ 0 };
        epoll_ctl(L->ep, EPOLL_CTL_DEL, fd,
                  NULL); /* a child between fork and exec may hold a copy */
    }
    close(fd);
}

void co_cond_init(struct co_cond *c) { list_init(&c->waiters); }

int co_cond_wait(struct co_cond *c, int64_t until)
{
    if (refuse_cancelled())
        return -1;
    list_push(&c->waiters, &L->current->cond);
    return park_errno(until);
}

int co_cond_wait_fd(struct co_cond *c, int fd, enum co_dir dir, int64_t until)
{
    int r = refuse_cancelled() ? -1 : watch(fd, dir);

    if (r)
        return r;
    list_push(&c->waiters, &L->current->cond);
    return park_errno(until);
}

void co_cond_wake(struct co_cond *c)
{
    struct co *co;

    list_each(co, &c->waiters, cond)
        wake(co, WOKEN_COND);
}
