/* test_queue.c - what every kind of queue promises: time, claims, retries, dead letters, crashes.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "queue_fixture.h"

static struct arena arena;
static struct job got[JOB_CLAIM];

static int push_as(struct queue *q, const char *key, const char *payload, int64_t due,
                   int64_t attempts_max, enum job_push how)
{
    struct job j = { .topic = "t",
                     .key = key,
                     .payload = str_of(payload),
                     .due_ms = due,
                     .attempts_max = attempts_max };
    int r = q->ops->push(q, &j, how, 1, &err);

    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return r;
}

static void push(struct queue *q, const char *key, int64_t due)
{
    CHECK_INT(push_as(q, key, key, due, 0, JOB_REPLACE), 1);
}

static int claim(struct queue *q, int64_t now, int64_t lease, int max)
{
    int n;

    arena_reset(&arena);
    n = q->ops->claim(q, "t", now, lease, max, got, &arena, &err);
    if (n < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return n;
}

/* Keys in the order of their claims: "a b c " */
static const char *keys(int n)
{
    static char text[512];

    text[0] = 0;
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", got[i].key);
    return text;
}

static struct job only(struct queue *q, int64_t now, int64_t lease)
{
    CHECK_INT(claim(q, now, lease, 10), 1);
    return got[0];
}

/* ---- time ---- */

QUEUE_TEST(what_is_due_is_claimed_the_most_overdue_first)
{
    int64_t next;

    OK(q->ops->next(q, "t", &next, &err));
    CHECK_INT(next, NEVER);
    push(q, "c", 300);
    push(q, "a", 100);
    push(q, "b", 200);
    CHECK_INT(claim(q, 99, 10, 10), 0);
    OK(q->ops->next(q, "t", &next, &err));
    CHECK_INT(next, 100);
    CHECK_STR(keys(claim(q, 250, 1000, 10)), "a b ");
    CHECK_STR(keys(claim(q, 300, 1000, 10)), "c ");
}

QUEUE_TEST(a_claim_takes_no_more_than_was_asked_for)
{
    char key[16];

    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "k%02d", i);
        push(q, key, i);
    }
    CHECK_INT(claim(q, 1000, 1000, 3), 3);
    CHECK_INT(claim(q, 1000, 1000, 100), JOB_CLAIM);
    CHECK_INT(claim(q, 1000, 1000, 100), 100 - 3 - JOB_CLAIM);
}

QUEUE_TEST(topics_do_not_see_each_other)
{
    struct job other = { .topic = "u", .key = "a", .due_ms = 1 };
    int64_t next;

    push(q, "a", 50);
    CHECK_INT(q->ops->push(q, &other, JOB_REPLACE, 1, &err), 1);
    OK(q->ops->next(q, "t", &next, &err));
    CHECK_INT(next, 50);
    only(q, 100, 1000);
    OK(q->ops->done(q, &got[0], &err));
    CHECK_INT(q->ops->claim(q, "u", 100, 10, 10, got, &arena, &err), 1);
    CHECK_STR(got[0].topic, "u");
}

QUEUE_TEST(a_job_comes_back_as_it_was_pushed)
{
    static const char bytes[] = "any\0bytes\xff";
    struct job j = { .topic = "t",
                     .key = "k",
                     .payload = { bytes, sizeof(bytes) },
                     .due_ms = 5,
                     .attempts_max = 7 };

    CHECK_INT(q->ops->push(q, &j, JOB_REPLACE, 3, &err), 1);
    j = only(q, 5, 100);
    CHECK_STR(j.topic, "t");
    CHECK_INT(j.payload.n, sizeof(bytes));
    CHECK(!memcmp(j.payload.p, bytes, sizeof(bytes)));
    CHECK_INT(j.first_ms, 3);
    CHECK_INT(j.attempts, 1);
    CHECK_INT(j.attempts_max, 7);
    CHECK_INT(j.dead_ms, 0);
    CHECK_STR(j.error, "");
    CHECK(j.ticket);
}

QUEUE_TEST(what_no_job_may_be_is_refused)
{
    static char big[JOB_PAYLOAD + 1], name[JOB_KEY + 2];
    struct job rows[] = {
        { .topic = "t", .key = "" },
        { .topic = "", .key = "k" },
        { .topic = "t" },
        { .topic = "t", .key = name },
        { .topic = "t", .key = "k", .payload = { big, sizeof(big) } },
    };

    memset(name, 'k', sizeof(name) - 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        FAILS(q->ops->push(q, &rows[i], JOB_REPLACE, 1, &err), ERR_INVALID);
    CHECK_INT(claim(q, INT64_MAX / 2, 1, 10), 0);
}

/* ---- keys ---- */

QUEUE_TEST(a_key_has_one_job_and_the_last_one_pushed_counts)
{
    push_as(q, "a", "first", 100, 0, JOB_REPLACE);
    push_as(q, "a", "second", 200, 0, JOB_REPLACE);
    CHECK_INT(claim(q, 150, 10, 10), 0);
    CHECK(str_is(only(q, 200, 10).payload, "second"));
}

QUEUE_TEST(a_job_may_stay_when_it_is_pushed_again)
{
    struct job j;

    CHECK_INT(push_as(q, "a", "first", 100, 0, JOB_STAY), 1);
    CHECK_INT(push_as(q, "a", "second", 50, 0, JOB_STAY), 0);
    CHECK_INT(claim(q, 99, 10, 10), 0);
    j = only(q, 100, 1000);
    CHECK(str_is(j.payload, "first"));
    CHECK_INT(push_as(q, "a", "third", 50, 0, JOB_STAY), 0); /* claimed ones too */
    OK(q->ops->done(q, &j, &err));
    CHECK_INT(push_as(q, "a", "fourth", 50, 0, JOB_STAY), 1);
}

QUEUE_TEST(whoever_held_a_job_that_was_replaced_has_lost_it)
{
    struct job old;

    push(q, "a", 1);
    old = only(q, 1, 1000);
    push(q, "a", 2);
    FAILS(q->ops->done(q, &old, &err), ERR_CONFLICT);
    FAILS(q->ops->retry(q, &old, 5, "x", 2, &err), ERR_CONFLICT);
    FAILS(q->ops->bury(q, &old, "x", 2, &err), ERR_CONFLICT);
    FAILS(q->ops->extend(q, &old, 5000, &err), ERR_CONFLICT);
    CHECK_INT(only(q, 2, 10).attempts, 1);
}

QUEUE_TEST(a_job_that_was_not_claimed_cannot_be_finished)
{
    struct job never = { .topic = "t", .key = "a" };

    push(q, "a", 1);
    FAILS(q->ops->done(q, &never, &err), ERR_CONFLICT);
    only(q, 1, 10);
}

QUEUE_TEST(a_cancelled_job_is_gone_in_every_state)
{
    struct job j;

    push(q, "a", 1);
    OK(q->ops->cancel(q, "t", "a", &err));
    FAILS(q->ops->cancel(q, "t", "a", &err), ERR_NOT_FOUND);
    CHECK_INT(claim(q, 10, 10, 10), 0);
    push(q, "a", 1);
    j = only(q, 10, 1000);
    OK(q->ops->cancel(q, "t", "a", &err));
    FAILS(q->ops->done(q, &j, &err), ERR_CONFLICT);
    push(q, "a", 1);
    j = only(q, 10, 1000);
    OK(q->ops->bury(q, &j, "no", 10, &err));
    OK(q->ops->cancel(q, "t", "a", &err));
    FAILS(q->ops->requeue(q, "t", "a", 11, &err), ERR_NOT_FOUND);
}

/* ---- claims ---- */

QUEUE_TEST(a_claimed_job_is_nobody_elses_until_its_lease_ends)
{
    struct job first, second;
    int64_t next;

    push(q, "a", 1);
    first = only(q, 100, 50);
    CHECK_INT(claim(q, 149, 50, 10), 0);
    OK(q->ops->next(q, "t", &next, &err));
    CHECK_INT(next, 150);
    second = only(q, 150, 50);
    CHECK_INT(second.attempts, 2);
    CHECK(second.ticket != first.ticket);
    FAILS(q->ops->done(q, &first, &err), ERR_CONFLICT);
    OK(q->ops->done(q, &second, &err));
    FAILS(q->ops->done(q, &second, &err), ERR_CONFLICT);
    CHECK_INT(claim(q, 10000, 50, 10), 0);
}

QUEUE_TEST(a_lease_can_be_extended)
{
    struct job j;

    push(q, "a", 1);
    j = only(q, 100, 50);
    OK(q->ops->extend(q, &j, 500, &err));
    CHECK_INT(claim(q, 499, 50, 10), 0);
    OK(q->ops->done(q, &j, &err));
}

/* ---- retries and dead letters ---- */

static int note(void *arg, const struct job *j)
{
    struct buf *b = arg;

    buf_printf(b, "%s/%s:%lld:%lld:%s ", j->topic, j->key, (long long)j->attempts,
               (long long)j->dead_ms, j->error);
    return 0;
}

static void expect_dead(struct queue *q, const char *topic, int64_t limit, const char *want)
{
    AUTO(buf_free) struct buf b = { 0 };

    OK(q->ops->dead(q, topic, limit, note, &b, &err));
    CHECK_STR(buf_cstr(&b), want);
}

QUEUE_TEST(a_retry_keeps_the_beginning_the_count_and_the_reason)
{
    struct job j;

    push(q, "a", 10);
    j = only(q, 10, 100);
    CHECK_INT(q->ops->retry(q, &j, 60, "no luck", 20, &err), 0);
    CHECK_INT(claim(q, 59, 100, 10), 0);
    j = only(q, 60, 100);
    CHECK_INT(j.attempts, 2);
    CHECK_INT(j.first_ms, 1);
    CHECK_STR(j.error, "no luck");
}

QUEUE_TEST(a_job_that_failed_too_often_dies_and_can_be_put_back)
{
    struct job j;

    push_as(q, "a", "p", 1, 2, JOB_REPLACE);
    j = only(q, 1, 100);
    CHECK_INT(q->ops->retry(q, &j, 2, "one", 1, &err), 0);
    j = only(q, 2, 100);
    CHECK_INT(q->ops->retry(q, &j, 3, "two", 77, &err), 1);
    CHECK_INT(claim(q, 10000, 100, 10), 0);
    expect_dead(q, "t", 10, "t/a:2:77:two ");
    FAILS(q->ops->requeue(q, "t", "b", 5, &err), ERR_NOT_FOUND);
    OK(q->ops->requeue(q, "t", "a", 200, &err));
    FAILS(q->ops->requeue(q, "t", "a", 200, &err), ERR_NOT_FOUND);
    expect_dead(q, "t", 10, "");
    CHECK_INT(claim(q, 199, 100, 10), 0);
    j = only(q, 200, 100);
    CHECK_INT(j.attempts, 1);
    CHECK_INT(j.first_ms, 200);
    CHECK_STR(j.error, "");
    CHECK(str_is(j.payload, "p"));
}

QUEUE_TEST(a_job_that_kills_its_workers_dies_too)
{
    push_as(q, "a", "p", 1, 3, JOB_REPLACE);
    for (int i = 0; i < 3; i++)
        CHECK_INT(only(q, 100 * i + 1, 100).attempts, i + 1); /* and never heard of again */
    CHECK_INT(claim(q, 301, 100, 10), 0);
    expect_dead(q, "t", 10, "t/a:3:301:it was begun 3 times and never done ");
}

QUEUE_TEST(dead_letters_are_listed_the_latest_first_and_pushing_revives)
{
    struct job other = { .topic = "u", .key = "x", .due_ms = 1 }, j;

    for (int i = 0; i < 3; i++) {
        const char *const key[] = { "a", "b", "c" };

        push(q, key[i], 1);
        j = only(q, 1, 100);
        OK(q->ops->bury(q, &j, "why", 10 + i, &err));
    }
    q->ops->push(q, &other, JOB_REPLACE, 1, &err);
    CHECK_INT(q->ops->claim(q, "u", 1, 10, 10, got, &arena, &err), 1);
    OK(q->ops->bury(q, &got[0], "why", 5, &err));
    expect_dead(q, "t", 2, "t/c:1:12:why t/b:1:11:why ");
    expect_dead(q, NULL, 10, "t/c:1:12:why t/b:1:11:why t/a:1:10:why u/x:1:5:why ");
    CHECK_INT(push_as(q, "a", "new", 1, 0, JOB_STAY), 1);
    push(q, "b", 1);
    expect_dead(q, "t", 10, "t/c:1:12:why ");
    CHECK_STR(keys(claim(q, 1, 10, 10)), "a b ");
    CHECK_INT(got[0].attempts, 1);
}

QUEUE_TEST(old_dead_letters_can_be_forgotten)
{
    for (int i = 0; i < 3; i++) {
        const char *const key[] = { "a", "b", "c" };

        push(q, key[i], 1);
        only(q, 1, 100);
        OK(q->ops->bury(q, &got[0], "why", 10 + i, &err));
    }
    push(q, "d", 1);
    CHECK_INT(q->ops->forget(q, 12, &err), 2);
    expect_dead(q, "t", 10, "t/c:1:12:why ");
    CHECK_STR(keys(claim(q, 1, 10, 10)), "d ");
}

QUEUE_TEST(a_long_reason_is_cut)
{
    char reason[2000];
    struct job j;

    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = 0;
    push(q, "a", 1);
    j = only(q, 1, 100);
    CHECK_INT(q->ops->retry(q, &j, 2, reason, 1, &err), 0);
    CHECK_INT(strlen(only(q, 2, 100).error), JOB_ERROR);
}

TEST(waits_double_up_to_their_bound)
{
    CHECK_INT(queue_backoff_ms(0, 100, 1000), 100);
    CHECK_INT(queue_backoff_ms(1, 100, 1000), 100);
    CHECK_INT(queue_backoff_ms(2, 100, 1000), 200);
    CHECK_INT(queue_backoff_ms(4, 100, 1000), 800);
    CHECK_INT(queue_backoff_ms(5, 100, 1000), 1000);
    CHECK_INT(queue_backoff_ms(INT64_MAX, 100, 1000), 1000);
}

/* ---- many at once ---- */

enum { WORKERS = 4, JOBS = 200 };

static struct queue *shared;
static atomic_int handled, twice, marks[JOBS];

static void *worker(void *arg)
{
    struct arena a = { 0 };
    struct job mine[8];
    struct err e = { 0 };
    int n;

    (void)arg;
    while ((n = shared->ops->claim(shared, "t", 100, 1000000, 8, mine, &a, &e)) > 0)
        for (int i = 0; i < n; i++) {
            uint64_t which = JOBS;

            if (str_u64(str_of(mine[i].key), &which) || which >= JOBS)
                return &handled;
            twice += marks[which]++;
            if (!shared->ops->done(shared, &mine[i], &e))
                handled++;
        }
    arena_free(&a);
    return n < 0 ? &handled : NULL;
}

QUEUE_TEST(each_job_goes_to_one_worker)
{
    pthread_t threads[WORKERS];
    int64_t since_us = clock_us();
    char key[16];

    shared = q;
    handled = twice = 0;
    memset(marks, 0, sizeof(marks));
    for (int i = 0; i < JOBS; i++) {
        snprintf(key, sizeof(key), "%d", i);
        push(q, key, i % 50);
    }
    for (int i = 0; i < WORKERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, worker, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        void *result;

        pthread_join(threads[i], &result);
        CHECK(!result);
    }
    CHECK_INT(handled, JOBS);
    CHECK_INT(twice, 0);
    printf("# %lld us per job pushed, claimed and done\n",
           (long long)(clock_us() - since_us) / JOBS);
}

/* ---- crashes and clocks ---- */

QUEUE_TEST(a_queue_that_is_opened_again_has_everything)
{
    push(q, "a", 100);
    push(q, "b", 1);
    only(q, 1, 1000);
    push_as(q, "c", "p", 2, 1, JOB_REPLACE);
    CHECK_INT(claim(q, 2, 1, 10), 1);
    CHECK_INT(claim(q, 3, 1, 10), 0); /* c dies */
    q = queue_again(p, "boot");
    expect_dead(q, "t", 10, "t/c:1:3:it was begun 1 times and never done ");
    CHECK_STR(keys(claim(q, 100, 10000, 10)), "a ");
    CHECK_STR(keys(claim(q, 1000, 10, 10)), "");
    CHECK_STR(keys(claim(q, 1001, 10, 10)), "b ");
    CHECK_INT(got[0].attempts, 2);
}

/* Pushes and claims, says each that was acknowledged, until it is killed. */
static void child(struct queue_place *p, int out)
{
    struct queue *q;

    if (kind_now->open(p, "boot"))
        _exit(1);
    q = p->queue;
    for (int i = 0;; i++) {
        char key[16];
        struct job j = { .topic = "t", .key = key, .due_ms = 1 };

        snprintf(key, sizeof(key), "%d", i);
        if (q->ops->push(q, &j, JOB_REPLACE, 1, &err) < 0 ||
            (i % 3 == 0 && q->ops->claim(q, "t", 1, 1000, 1, got, &arena, &err) < 0) ||
            write(out, &i, sizeof(i)) != sizeof(i))
            _exit(1);
    }
}

QUEUE_TEST(what_was_acknowledged_survives_kill_9)
{
    int pipes[2], last = -1, i, n = 0, r;
    pid_t pid;

    kind_now->close(p); /* a child may not use what its parent has open */
    CHECK_INT(pipe(pipes), 0);
    pid = fork();
    CHECK(pid >= 0);
    if (!pid)
        child(p, pipes[1]);
    close(pipes[1]);
    while (read(pipes[0], &i, sizeof(i)) == sizeof(i) && (last = i) < 150)
        ;
    kill(pid, SIGKILL);
    while (read(pipes[0], &i, sizeof(i)) == sizeof(i))
        last = i;
    close(pipes[0]);
    CHECK_INT(waitpid(pid, &r, 0), pid);
    CHECK(WIFSIGNALED(r));
    CHECK(last >= 150);
    q = queue_again(p, "boot");
    while ((r = claim(q, 2000, 100000, 50)) > 0) /* leases of the dead have ended by then */
        n += r;
    CHECK(n == last + 1 || n == last + 2); /* one may have been pushed, and not told */
    arena_free(&arena);
}

/* Other clocks cannot be set here; another boot, or the same one, can be said. */
QUEUE_TEST(its_clock_is_the_same_for_all_who_open_it_in_one_boot)
{
    int64_t offset = q->offset_ms, wall = clock_wall_s() * 1000;

    CHECK(queue_now(q) > wall - 3600000 && queue_now(q) < wall + 3600000);
    for (int i = 0; i < 3; i++) {
        usleep(1000);
        q = queue_again(p, "boot");
        CHECK_INT(q->offset_ms, offset);
    }
    q = queue_again(p, "another");
    CHECK(q->offset_ms >= offset - 60000 && q->offset_ms <= offset + 60000);
}

TEST(what_the_embedded_queue_remembers_of_its_clock_counts_and_what_it_cannot_read_does_not)
{
    static const struct {
        const char *value;
        bool kept;
    } rows[] = {
        { "boot 42", true }, { "other 42", false }, { "boot", false }, { "boot x", false }
    };
    AUTO(store_closep) struct store *s = open_at(scratch_path("clock.db"));

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTO(queue_closep) struct queue *q = NULL;

        OK(s->ops->value_set(s, "queue.clock", str_of(rows[i].value), &err));
        OK(queue_open_embedded(s, "boot", &q, &err));
        CHECK_INT(q->offset_ms == 42, rows[i].kept);
    }
}
