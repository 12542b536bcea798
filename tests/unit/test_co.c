/* test_co.c - the coroutine runtime: parking, cancelling, deadlines, workers, stacks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/co.h"
#include "net.h"

static int pair[2];

static void open_pipe(void) { CHECK_INT(pipe2(pair, O_NONBLOCK | O_CLOEXEC), 0); }

static void close_pipe(void)
{
    co_close(pair[0]);
    co_close(pair[1]);
}

/* Something must not happen meanwhile. To wait until something has, there is WAIT_FOR. */
static void nap(void) { CHECK_INT(co_sleep(co_in(30)), 0); }

#define WAIT_FOR(cond)                                                                             \
    do {                                                                                           \
        int64_t until_ = co_in(NET_MS);                                                            \
        while (!(cond) && co_now() < until_)                                                       \
            CHECK_INT(co_sleep(co_in(1)), 0);                                                      \
        CHECK(cond);                                                                               \
    } while (0)

/* ---- reading and writing ---- */

static void writer(void *arg)
{
    (void)arg;
    co_sleep(co_in(20));
    CHECK_INT(co_write(pair[1], "hello", 5, co_in(NET_MS)), 0);
}

static void reader(void *arg)
{
    char b[8];

    (void)arg;
    open_pipe();
    CHECK_INT(co_go(writer, NULL, NULL), 0);
    CHECK_INT(co_read(pair[0], b, sizeof(b), co_in(NET_MS)), 5);
    CHECK_INT(co_read(pair[0], b, sizeof(b), co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    close_pipe();
}

TEST(a_read_parks_until_the_writer_writes) { test_co(reader, NULL); }

enum { FLOOD = 3 << 20 };
static size_t written_before_reading;
static bool flood_done;

static void flood(void *arg)
{
    static char piece[100000];

    (void)arg;
    for (size_t n = 0; n < FLOOD; n += sizeof(piece)) {
        memset(piece, (int)(n / sizeof(piece)), sizeof(piece));
        CHECK_INT(co_write(pair[1], piece, MIN(sizeof(piece), FLOOD - n), co_in(NET_MS)), 0);
        written_before_reading += sizeof(piece);
    }
    co_close(pair[1]);
    flood_done = true;
}

static void read_flood(void *arg)
{
    char b[7000];
    size_t total = 0, wrong = 0;

    (void)arg;
    open_pipe();
    CHECK_INT(co_go(flood, NULL, NULL), 0);
    nap();
    CHECK(written_before_reading < 1 << 20); /* the pipe is full and the writer waits */
    for (;;) {
        ssize_t r = co_read(pair[0], b, sizeof(b), co_in(NET_MS));

        CHECK(r >= 0);
        if (!r)
            break;
        for (ssize_t i = 0; i < r; i++)
            wrong += (unsigned char)b[i] != (unsigned char)((total + (size_t)i) / 100000);
        total += (size_t)r;
    }
    CHECK_INT(total, FLOOD);
    CHECK_INT(wrong, 0);
    co_close(pair[0]);
}

TEST(a_fast_writer_waits_for_a_slow_reader_and_no_byte_is_lost)
{
    test_co(read_flood, NULL);
    CHECK(flood_done);
}

static void gather(void *arg)
{
    char b[64];
    struct iovec v[] = { { (char[]){ "ab" }, 2 }, { NULL, 0 }, { (char[]){ "cde" }, 3 } };

    (void)arg;
    open_pipe();
    CHECK_INT(co_writev(pair[1], v, 3, co_in(NET_MS)), 0);
    CHECK_INT(co_write(pair[1], NULL, 0, 0), 0);
    CHECK_INT(co_read_full(pair[0], b, 4, co_in(NET_MS)), 4);
    CHECK(!memcmp(b, "abcd", 4));
    co_close(TAKE(pair[1], -1));
    CHECK_INT(co_read_full(pair[0], b, 4, co_in(NET_MS)), 1);
    CHECK_INT(b[0], 'e');
    CHECK_INT(co_read(pair[0], b, 4, co_in(NET_MS)), 0);
    co_close(-1);
    close_pipe();
    CHECK_INT(co_write(pair[0], "x", 1, co_in(NET_MS)), -1);
    CHECK_INT(errno, EBADF);
}

TEST(pieces_are_written_in_order_and_a_full_read_stops_only_at_the_end) { test_co(gather, NULL); }

static void write_timeout(void *arg)
{
    static char much[1 << 20];
    int64_t began = clock_ms();

    (void)arg;
    open_pipe();
    CHECK_INT(co_write(pair[1], much, sizeof(much), co_in(50)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK(clock_ms() - began >= 45);
    close_pipe();
}

TEST(a_write_nobody_reads_ends_at_its_deadline) { test_co(write_timeout, NULL); }

/* ---- cancelling ---- */

static struct co_cond cond;
static int ended, cancelled_errno, second_errno;
static bool flag_seen;

static void note_cancelled(int r)
{
    CHECK_INT(r, -1);
    cancelled_errno = errno;
    flag_seen = co_cancelled();
    CHECK_INT(co_sleep(co_in(1)), -1); /* sticky: the next wait fails at once */
    second_errno = errno;
    CHECK_INT(co_wait(pair[0], CO_IN, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECANCELED);
    CHECK_INT(co_cond_wait(&cond, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECANCELED);
    CHECK_INT(co_cond_wait_fd(&cond, pair[0], CO_IN, co_in(NET_MS)), -1);
    CHECK_INT(errno, ECANCELED);
    ended++;
}

static void park_in_read(void *arg)
{
    char b;

    (void)arg;
    note_cancelled((int)co_read(pair[0], &b, 1, NEVER));
}

static void park_in_sleep(void *arg)
{
    (void)arg;
    note_cancelled(co_sleep(NEVER));
}

static void park_in_cond(void *arg)
{
    (void)arg;
    note_cancelled(co_cond_wait(&cond, NEVER));
}

static void park_in_cond_fd(void *arg)
{
    (void)arg;
    note_cancelled(co_cond_wait_fd(&cond, pair[0], CO_IN, NEVER));
}

static void park_in_accept(void *arg)
{
    (void)arg;
    note_cancelled(co_accept(pair[0]));
}

static void cancel_one(co_fn *fn)
{
    struct co_ref ref;

    ended = 0;
    CHECK_INT(co_go(fn, NULL, &ref), 0);
    nap();
    CHECK_INT(ended, 0);
    co_cancel(ref);
    WAIT_FOR(ended == 1);
    CHECK_INT(cancelled_errno, ECANCELED);
    CHECK_INT(second_errno, ECANCELED);
    CHECK(flag_seen);
    co_cancel(ref); /* it has ended: harmless */
}

static void cancel_each(void *arg)
{
    (void)arg;
    co_cond_init(&cond);
    open_pipe();
    cancel_one(park_in_read);
    cancel_one(park_in_sleep);
    cancel_one(park_in_cond);
    cancel_one(park_in_cond_fd);
    CHECK(list_empty(&cond.waiters));
    CHECK(!co_cancelled());
    close_pipe();
    CHECK_INT(pair[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), pair[0]);
    CHECK_INT(bind(pair[0], (struct sockaddr *)&(sa_family_t){ AF_UNIX }, sizeof(sa_family_t)), 0);
    CHECK_INT(listen(pair[0], 1), 0);
    cancel_one(park_in_accept);
    co_close(pair[0]);
}

TEST(cancelling_wakes_whatever_is_parked_and_sticks) { test_co(cancel_each, NULL); }

static void cancel_unstarted_body(void *arg) { *(int *)arg = co_cancelled() ? co_sleep(NEVER) : 1; }

static void cancel_unstarted(void *arg)
{
    struct co_ref ref;

    CHECK_INT(co_go(cancel_unstarted_body, arg, &ref), 0);
    co_cancel(ref);
    CHECK_INT(*(int *)arg, 5);
    WAIT_FOR(*(int *)arg != 5);
    CHECK_INT(*(int *)arg, -1);
}

TEST(cancelling_before_the_first_step_is_remembered)
{
    int r = 5;

    test_co(cancel_unstarted, &r);
}

static _Atomic int work_done;
static _Atomic bool let_go;

static void slow_work(void *arg) /* until it is let go */
{
    (void)arg;
    for (int i = 0; i < NET_MS && !let_go; i++)
        usleep(1000);
    work_done++;
}

static void calling(void *arg)
{
    co_call(slow_work, NULL);
    CHECK_INT(work_done, 1); /* had co_call left early, the worker would write to a dead stack */
    CHECK(co_cancelled());
    *(int *)arg = 2;
}

static void cancel_a_call(void *arg)
{
    struct co_ref ref;

    work_done = 0;
    let_go = false;
    CHECK_INT(co_go(calling, arg, &ref), 0);
    nap();
    co_cancel(ref);
    nap();
    CHECK_INT(work_done, 0);
    CHECK_INT(*(int *)arg, 0);
    let_go = true;
}

TEST(cancelling_does_not_abandon_work_on_a_worker)
{
    int done = 0;

    test_co(cancel_a_call, &done);
    CHECK_INT(done, 2);
}

static int stopped;

static void until_cancelled(void *arg)
{
    (void)arg;
    while (!co_sleep(co_in(5)))
        ;
    stopped++;
}

static void cancel_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < 50; i++)
        CHECK_INT(co_go(until_cancelled, NULL, NULL), 0);
    nap();
    co_cancel_all();
    CHECK(!co_cancelled());
    WAIT_FOR(stopped == 50);
}

TEST(cancel_all_spares_only_the_caller) { test_co(cancel_all, NULL); }

static void ends_at_once(void *arg) { ++*(int *)arg; }

static void lives_on(void *arg) { *(int *)arg = co_sleep(co_in(60)); }

static void stale(void *arg)
{
    struct co_ref old[64], young;
    int count = 0, slept = 9;

    (void)arg;
    for (int i = 0; i < 64; i++)
        CHECK_INT(co_go(ends_at_once, &count, &old[i]), 0);
    WAIT_FOR(count == 64);
    CHECK_INT(co_go(lives_on, &slept, &young), 0); /* lives in the memory of one of the old */
    for (int i = 0; i < 64; i++) {
        CHECK(old[i].id != young.id);
        co_cancel(old[i]);
    }
    co_cancel((struct co_ref){ 0 });
    WAIT_FOR(slept != 9);
    CHECK_INT(slept, 0);
}

TEST(a_stale_reference_harms_nobody) { test_co(stale, NULL); }

static void self_reference(void *arg)
{
    struct co_ref self = co_self();

    (void)arg;
    co_cancel(self);
    CHECK(co_cancelled());
    CHECK_INT(co_sleep(co_in(1)), -1);
}

TEST(a_coroutine_may_cancel_itself) { test_co(self_reference, NULL); }

/* ---- time ---- */

enum { SLEEPERS = 1000 };
static int64_t woke_at[SLEEPERS], due_at[SLEEPERS];
static int wake_order[SLEEPERS], woken;

static void sleeper(void *arg)
{
    int i = (int)(intptr_t)arg;

    CHECK_INT(co_sleep(due_at[i]), 0);
    woke_at[i] = clock_ms();
    wake_order[woken++] = i;
}

static void sleepers(void *arg)
{
    int64_t now = co_now();

    (void)arg;
    for (int i = 0; i < SLEEPERS; i++) {
        due_at[i] = now + 50 + i * 7919 % SLEEPERS / 5;
        CHECK_INT(co_go(sleeper, (void *)(intptr_t)i, NULL), 0);
    }
}

TEST(a_thousand_sleepers_wake_in_the_order_of_their_deadlines)
{
    woken = 0;
    test_co(sleepers, NULL);
    CHECK_INT(woken, SLEEPERS);
    for (int i = 0; i < SLEEPERS; i++)
        CHECK(woke_at[i] >= due_at[i]);
#ifndef CO_THREADS /* threads are woken by the kernel, in whatever order it likes */
    for (int i = 1; i < SLEEPERS; i++)
        CHECK(due_at[wake_order[i - 1]] <= due_at[wake_order[i]]);
#endif
}

static void some_cancelled_sleepers(void *arg)
{
    struct co_ref ref[100];

    (void)arg;
    stopped = 0;
    woken = 0;
    for (int i = 0; i < 100; i++) {
        due_at[i] = co_in(100 + i % 10);
        CHECK_INT(co_go(i % 3 ? sleeper : until_cancelled, (void *)(intptr_t)i, &ref[i]), 0);
    }
    nap();
    for (int i = 0; i < 100; i += 3)
        co_cancel(ref[i]);
}

TEST(timers_taken_out_of_the_middle_leave_the_rest_right)
{
    test_co(some_cancelled_sleepers, NULL);
    CHECK_INT(woken, 66);
    CHECK_INT(stopped, 34);
    for (int i = 0; i < 100; i++)
        CHECK(i % 3 == 0 || woke_at[i] >= due_at[i]);
}

static void past(void *arg)
{
    char b;

    (void)arg;
    open_pipe();
    CHECK_INT(co_sleep(co_now() - 1000), 0);
    CHECK_INT(co_sleep(0), 0);
    CHECK_INT(co_read(pair[0], &b, 1, co_now() - 1), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK_INT(co_write(pair[1], "x", 1, 0), 0); /* what need not wait succeeds late, too */
    CHECK_INT(co_read(pair[0], &b, 1, 0), 1);
    CHECK(co_in(-1) == NEVER);
    close_pipe();
}

TEST(a_deadline_in_the_past_ends_only_a_wait) { test_co(past, NULL); }

/* ---- many ---- */

static int alive, most_alive, finished;

static void short_life(void *arg)
{
    char local[512];

    memset(local, (int)(intptr_t)arg, sizeof(local));
    alive++;
    most_alive = MAX(most_alive, alive);
    co_pass();
    CHECK_INT(local[511], (char)(intptr_t)arg);
    alive--;
    finished++;
}

static size_t resident_pages(void)
{
    size_t total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f != NULL);
    CHECK_INT(fscanf(f, "%zu %zu", &total, &resident), 2);
    fclose(f);
    return resident;
}

static void many(void *arg)
{
#ifdef CO_THREADS
    int at_once = 100; /* a kernel thread and a descriptor each: more waves, the same number */
#else
    int at_once = 10000;
#endif

    (void)arg;
    for (int wave = 0; wave < 10000 / at_once; wave++) {
        for (int i = 0; i < at_once; i++)
            CHECK_INT(co_go(short_life, (void *)(intptr_t)i, NULL), 0);
        while (alive || finished < (wave + 1) * at_once)
            CHECK_INT(co_sleep(co_in(1)), 0);
    }
}

TEST(ten_thousand_coroutines_start_and_end)
{
    test_co(many, NULL);
    CHECK_INT(finished, 10000);
    CHECK_INT(alive, 0);
#ifndef CO_THREADS
    CHECK_INT(most_alive, 10000);
#endif
}

static void reuse(void *arg)
{
    size_t before;

    (void)arg;
    finished = 0;
    for (int i = 0; i < 200; i++)
        CHECK_INT(co_go(short_life, NULL, NULL), 0);
    WAIT_FOR(finished == 200);
    before = resident_pages();
    for (int wave = 0; wave < 100; wave++) {
        for (int i = 0; i < 100; i++)
            CHECK_INT(co_go(short_life, NULL, NULL), 0);
        while (finished < 200 + (wave + 1) * 100)
            CHECK_INT(co_sleep(co_in(1)), 0);
    }
    CHECK_INT(finished, 10200);
    CHECK(resident_pages() < before + 2000); /* 10,000 stacks of their own would be 20,000 pages */
}

TEST(stacks_are_used_again) { test_co(reuse, NULL); }

static void counting(void *arg)
{
    int *n = arg;

    for (int i = 0; i < 1000; i++) {
        int seen = *n;

        *n = seen + 1; /* nobody else runs between two calls that may park */
        if (i % 100 == 0)
            co_pass();
    }
}

static void count_together(void *arg)
{
    for (int i = 0; i < 20; i++)
        CHECK_INT(co_go(counting, arg, NULL), 0);
}

TEST(nobody_else_runs_between_two_calls_that_park)
{
    int n = 0;

    test_co(count_together, &n);
    CHECK_INT(n, 20000);
}

/* ---- workers ---- */

enum { PARTY = 8 };
static _Atomic int met;

static void meet(void *arg) /* ends only when all have come, or after a while */
{
    for (int i = 0; i < NET_MS / 2 && met < PARTY; i++)
        usleep(1000);
    (void)arg;
}

static void arrive_and_meet(void *arg)
{
    met++;
    meet(arg);
}

static void go_meet(void *arg)
{
    co_call(arrive_and_meet, arg);
    CHECK_INT(met, PARTY);
    finished++;
}

static void meeting(void *arg)
{
    (void)arg;
    met = PARTY;
    co_call(meet, NULL); /* leaves one idle worker behind, which must not be taken for eight */
    nap();
    met = finished = 0;
    for (int i = 0; i < PARTY; i++)
        CHECK_INT(co_go(go_meet, NULL, NULL), 0);
}

TEST(jobs_run_side_by_side)
{
    test_co(meeting, NULL);
    CHECK_INT(finished, PARTY);
}

enum { JOBS = 1000 };
static _Atomic int jobs_run;
static int jobs_back;
static pthread_t loop_thread;
static _Atomic int on_loop;

static void job(void *arg)
{
    char deep[100000]; /* more than a coroutine's stack holds */

    memset(deep, (int)(intptr_t)arg, sizeof(deep));
    if (deep[sizeof(deep) - 1] != (char)(intptr_t)arg)
        abort();
    on_loop += pthread_equal(pthread_self(), loop_thread) != 0;
    jobs_run++;
}

static void call_job(void *arg)
{
    co_call(job, arg);
    jobs_back++;
}

static void call_jobs(void *arg)
{
    (void)arg;
    loop_thread = pthread_self();
    for (int i = 0; i < JOBS; i++)
        CHECK_INT(co_go(call_job, (void *)(intptr_t)i, NULL), 0);
}

TEST(a_thousand_jobs_at_once_all_come_back)
{
    test_co(call_jobs, NULL);
    CHECK_INT(jobs_run, JOBS);
    CHECK_INT(jobs_back, JOBS);
    CHECK_INT(on_loop, 0);
}

static int ticks;
static bool ticking;

static void ticker(void *arg)
{
    (void)arg;
    while (ticking) {
        CHECK_INT(co_sleep(co_in(5)), 0);
        let_go = ++ticks > 5;
    }
}

static void tick_while_working(void *arg)
{
    (void)arg;
    ticking = true;
    let_go = false;
    CHECK_INT(co_go(ticker, NULL, NULL), 0);
    co_call(slow_work, NULL);
    ticking = false;
    CHECK(ticks > 5);
}

TEST(the_loop_goes_on_while_a_worker_works) { test_co(tick_while_working, NULL); }

/* ---- conditions ---- */

static int waiting, woken_by_cond;

static void cond_waiter(void *arg)
{
    (void)arg;
    waiting++;
    CHECK_INT(co_cond_wait(&cond, co_in(NET_MS)), 0);
    woken_by_cond++;
}

static void wake_all(void *arg)
{
    (void)arg;
    co_cond_init(&cond);
    co_cond_wake(&cond); /* nobody there: not remembered */
    for (int i = 0; i < 100; i++)
        CHECK_INT(co_go(cond_waiter, NULL, NULL), 0);
    WAIT_FOR(waiting == 100);
    CHECK_INT(woken_by_cond, 0);
    co_cond_wake(&cond);
    CHECK(list_empty(&cond.waiters));
    WAIT_FOR(woken_by_cond == 100);
    CHECK_INT(co_cond_wait(&cond, co_in(20)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    CHECK(list_empty(&cond.waiters));
}

TEST(waking_a_condition_wakes_every_waiter) { test_co(wake_all, NULL); }

static int both_result;

static void wait_both(void *arg)
{
    char b;

    (void)arg;
    waiting++;
    both_result = co_cond_wait_fd(&cond, pair[0], CO_IN, co_in(NET_MS));
    CHECK(list_empty(&cond.waiters));
    if (both_result == 1)
        CHECK_INT(co_read(pair[0], &b, 1, 0), 1);
}

static void both_ways(void *arg)
{
    (void)arg;
    co_cond_init(&cond);
    open_pipe();
    for (int round = 0; round < 4; round++) {
        both_result = 9;
        waiting = 0;
        CHECK_INT(co_go(wait_both, NULL, NULL), 0);
        WAIT_FOR(waiting);
        nap();
        CHECK_INT(both_result, 9);
        if (round % 2)
            CHECK_INT(co_write(pair[1], "x", 1, 0), 0);
        else
            co_cond_wake(&cond);
        WAIT_FOR(both_result != 9);
        CHECK_INT(both_result, round % 2);
    }
    CHECK_INT(co_cond_wait_fd(&cond, pair[0], CO_IN, co_in(20)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    close_pipe();
}

TEST(a_wait_for_two_things_says_which_came) { test_co(both_ways, NULL); }

/* ---- closing ---- */

static void read_until_closed(void *arg)
{
    char b;

    (void)arg;
    waiting++;
    CHECK_INT(co_read(pair[0], &b, 1, co_in(NET_MS)), -1);
    CHECK_INT(errno, EBADF);
    ended++;
}

static void close_under_reader(void *arg)
{
    int64_t began = clock_ms();

    (void)arg;
    ended = waiting = 0;
    open_pipe();
    CHECK_INT(co_go(read_until_closed, NULL, NULL), 0);
    WAIT_FOR(waiting);
    co_close(pair[0]);
    WAIT_FOR(ended == 1);
    CHECK(clock_ms() - began < NET_MS / 2);
    co_close(pair[1]);
}

TEST(closing_a_descriptor_wakes_who_waits_for_it) { test_co(close_under_reader, NULL); }

static void one_byte(void *arg)
{
    char b;

    CHECK_INT(co_read(pair[0], &b, 1, NEVER), 1);
    *(int *)arg = 1;
}

/* Each kind of wait, while another coroutine waits for the same. */
static void second_waiter(void *arg)
{
    struct co_cond never;
    int64_t began = co_now();
    int got = 0;
    char b;

    (void)arg;
    open_pipe();
    co_cond_init(&never);
    CHECK_INT(co_go(one_byte, &got, NULL), 0);
    nap();
    CHECK_INT(co_wait(pair[0], CO_IN, NEVER), -1);
    CHECK_INT(errno, EBUSY);
    CHECK_INT(co_read(pair[0], &b, 1, NEVER), -1);
    CHECK_INT(errno, EBUSY);
    CHECK_INT(co_cond_wait_fd(&never, pair[0], CO_IN, NEVER), -1);
    CHECK_INT(errno, EBUSY);
    CHECK(list_empty(&never.waiters));
    CHECK_INT(co_wait(pair[1], CO_OUT, NEVER), 0); /* another descriptor, another direction */
    CHECK(co_now() < began + NET_MS);
    CHECK_INT(got, 0);
    CHECK_INT(co_write(pair[1], "x", 1, co_in(NET_MS)), 0);
    WAIT_FOR(got); /* the first one is woken all the same */
    CHECK_INT(co_wait(pair[0], CO_IN, co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT); /* and then the second may wait */
    close_pipe();
}

TEST(a_second_waiter_is_refused_and_the_first_not_harmed) { test_co(second_waiter, NULL); }

static void reopen(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++) { /* the numbers come back; nothing of their past may */
        char b;

        open_pipe();
        CHECK_INT(co_read(pair[0], &b, 1, co_in(0)), -1);
        CHECK_INT(errno, ETIMEDOUT);
        CHECK_INT(co_write(pair[1], "y", 1, 0), 0);
        CHECK_INT(co_read(pair[0], &b, 1, co_in(NET_MS)), 1);
        close_pipe();
    }
}

TEST(a_descriptors_number_may_come_back) { test_co(reopen, NULL); }

/* ---- stacks ---- */

static void trim_with_data(void *arg)
{
    char local[3000];
    int sum = 0;

    (void)arg;
    for (size_t i = 0; i < sizeof(local); i++)
        local[i] = (char)i;
    for (int i = 0; i < 3; i++) {
        co_trim();
        CHECK_INT(co_sleep(co_in(2)), 0);
        co_trim();
    }
    for (size_t i = 0; i < sizeof(local); i++)
        sum += local[i] == (char)i;
    CHECK_INT(sum, sizeof(local));
    finished++;
}

static void trim_many(void *arg)
{
    (void)arg;
    finished = 0;
    for (int i = 0; i < 20; i++)
        CHECK_INT(co_go(trim_with_data, NULL, NULL), 0);
}

TEST(trimming_a_stack_keeps_what_is_on_it)
{
    test_co(trim_many, NULL);
    CHECK_INT(finished, 20);
}

/* ---- waits that tests skip ---- */

#ifndef CO_THREADS /* there nobody knows that everybody waits */
static struct timespec real_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

static void hold_worker(void *arg)
{
    (void)arg;
    usleep(50000);
}

static void call_worker(void *arg)
{
    co_call(hold_worker, NULL);
    *(int64_t *)arg = clock_ms();
}

static void write_soon(void *arg)
{
    CHECK_INT(co_sleep(co_in(30000)), 0);
    CHECK_INT(co_write(*(int *)arg, "x", 1, NEVER), 0);
}

static void skip_hours(void *arg)
{
    struct timespec began = real_now();
    int64_t start = co_now(), back = 0;
    int fd[2];
    char c;

    (void)arg;
    CHECK_INT(co_sleep(co_in(3600000)), 0);
    CHECK(co_now() >= start + 3600000 && co_now() < start + 3660000);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
    CHECK_INT(co_go(write_soon, &fd[1], NULL), 0);
    CHECK_INT(co_read(fd[0], &c, 1, co_in(60000)), 1); /* who writes first is heard first */
    CHECK_INT(co_read(fd[0], &c, 1, co_in(60000)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    start = clock_ms();
    CHECK_INT(co_go(call_worker, &back, NULL), 0);
    CHECK_INT(co_sleep(co_in(600000)), 0);
    CHECK(back >= start + 50 && back < start + 300000); /* the worker was waited for */
    CHECK(real_now().tv_sec - began.tv_sec < 60);
    co_close(fd[0]);
    co_close(fd[1]);
}

TEST(hours_pass_at_once_when_everybody_waits)
{
    co_skip_waits(true);
    test_co(skip_hours, NULL);
    co_skip_waits(false);
}
#endif

/* On threads the guard page is the kernel's, and forking from one of many threads is no test. */
#ifndef CO_THREADS
static int descend(volatile char *above, int depth)
{
    volatile char frame[1024];

    frame[0] = above ? above[0] : 1;
    frame[1023] = (char)depth;
    return depth > 10000 ? frame[1023] : descend(frame, depth + 1) + frame[0];
}

static void overflow(void *arg) { *(int *)arg = descend(NULL, 0); }

static void overflow_in_child(void *arg)
{
    int sink;

    (void)arg;
    CHECK_INT(co_go(overflow, &sink, NULL), 0);
}

TEST(a_coroutine_that_overflows_its_stack_dies_at_the_guard_page)
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (!pid) {
        /* a sanitizer would turn the signal into a report of its own */
        signal(SIGSEGV, SIG_DFL);
        close(STDERR_FILENO);
        alarm(20);
        co_run(overflow_in_child, NULL);
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGSEGV);
}
#endif

static void nothing(void *arg) { ++*(int *)arg; }

TEST(a_second_run_begins_where_the_first_has_ended)
{
    int n = 0;

    for (int i = 0; i < 5; i++)
        test_co(nothing, &n);
    CHECK_INT(n, 5);
}
