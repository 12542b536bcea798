/* workers.c - threads are started as needed, up to MAX_WORKERS, and leave after a while without
 * work, so that an idle process has one thread. */
#include "io/workers.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { MAX_WORKERS = 16, WORKER_IDLE_S = 5, WORKER_STACK = 256 << 10 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct work *head, **tail;
    int idle, threads, queued;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER };

/* The next piece of work, or NULL after a time without any; with the lock held. */
static struct work *next_work(void)
{
    struct timespec until;
    struct work *w;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WORKER_IDLE_S;
    pool.idle++;
    while (!pool.head)
        if (pthread_cond_timedwait(&pool.some, &pool.lock, &until) == ETIMEDOUT)
            break;
    pool.idle--;
    w = pool.head;
    if (w) {
        pool.head = w->next;
        pool.queued--;
    }
    return w;
}

static void *worker(void *unused)
{
    struct work *w;

    (void)unused;
    pthread_mutex_lock(&pool.lock);
    while ((w = next_work())) {
        pthread_mutex_unlock(&pool.lock);
        w->fn(w->arg);
        w->done(w);
        pthread_mutex_lock(&pool.lock);
    }
    pool.threads--;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static int start_worker(void)
{
    pthread_attr_t attr;
    pthread_t t;
    int e;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WORKER_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    e = pthread_create(&t, &attr, worker, NULL);
    pthread_attr_destroy(&attr);
    return e;
}

bool workers_take(struct work *w)
{
    bool taken;

    w->next = NULL;
    pthread_mutex_lock(&pool.lock);
    if (pool.idle <= pool.queued && pool.threads < MAX_WORKERS && !start_worker())
        pool.threads++; /* the idle ones are spoken for by what is queued already */
    taken = pool.threads;
    if (taken) {
        if (!pool.head)
            pool.tail = &pool.head;
        *pool.tail = w;
        pool.tail = &w->next;
        pool.queued++;
        pthread_cond_signal(&pool.some);
    }
    pthread_mutex_unlock(&pool.lock);
    return taken;
}
