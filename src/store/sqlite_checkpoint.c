/* sqlite_checkpoint.c - moving the write-ahead log into the file, beside the requests that go on.
 *
 * Left to itself SQLite makes a checkpoint in the commit that crosses a bound: some request waits
 * for two fsyncs and for writing every page. Here a thread does it, on a connection of its own,
 * once the log has grown by DB_WAL_PAGES; it lives as long as one checkpoint, so that an idle
 * server has no thread for it. The log starts over only when it was moved to its last page, and
 * under a constant load there always is a newer one: from DB_WAL_PAGES_MAX on, the thread moves the
 * last few with the writers' lock held. */
#include <signal.h>

#include "store/sqlite.h"

enum { STACK = 128 << 10 };

/* Moves what was there when it began: how many pages the log had then. An error is not the end: the
 * log keeps everything, and a later commit starts the next try. */
static int passive(struct conn *spare)
{
    int pages = 0;

    sqlite3_wal_checkpoint_v2(spare->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, NULL);
    return pages;
}

/* The spare's lock comes before the writer's: a backup may hold it for long. */
static void *checkpoint(void *arg)
{
    struct sqlite *q = arg;
    struct conn *spare = sqlite_lock(&q->spare);

    if (passive(spare) >= DB_WAL_PAGES_MAX) {
        struct conn *writer;

        passive(spare); /* what came meanwhile, so that the rest is little */
        writer = sqlite_lock(&q->writer);
        passive(spare);
        sqlite_unlockp(&writer);
    }
    sqlite_unlockp(&spare);
    pthread_mutex_lock(&q->checkpoint.lock);
    q->checkpoint.running = false;
    pthread_mutex_unlock(&q->checkpoint.lock);
    return NULL;
}

/* With its lock held. Signals are for the thread that waits for them. */
static void start(struct sqlite *q)
{
    pthread_attr_t attr;
    sigset_t all;

    if (q->checkpoint.started)
        pthread_join(q->checkpoint.thread, NULL); /* it has ended already */
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_attr_setsigmask_np(&attr, &all);
    q->checkpoint.running = true;
    q->checkpoint.started = !pthread_create(&q->checkpoint.thread, &attr, checkpoint, q);
    q->checkpoint.running = q->checkpoint.started;
    pthread_attr_destroy(&attr);
}

/* After every commit, with the writer's lock held: how long the log is now. */
static int committed(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct sqlite *q = arg;

    (void)db;
    (void)name;
    if (pages < DB_WAL_PAGES)
        return SQLITE_OK;
    pthread_mutex_lock(&q->checkpoint.lock);
    if (pages < q->checkpoint.pages) /* it started over */
        q->checkpoint.pages = 0;
    if (!q->checkpoint.running && pages - q->checkpoint.pages >= DB_WAL_PAGES) {
        q->checkpoint.pages = pages;
        start(q);
    }
    pthread_mutex_unlock(&q->checkpoint.lock);
    return SQLITE_OK;
}

void sqlite_checkpoint_watch(struct sqlite *q)
{
    pthread_mutex_init(&q->checkpoint.lock, NULL);
    sqlite3_wal_hook(q->writer.db, committed, q);
}

void sqlite_checkpoint_finish(struct sqlite *q)
{
    if (q->checkpoint.started)
        pthread_join(q->checkpoint.thread, NULL);
}
