/* test_control_retry.c - pauses that fail at a sandbox's end, tried again from the queue: across
 * restarts, with a store that cannot be written, and where there is nothing left to do. */
#include "control_rig.h"
#include "queue/queue.h"

static char topic[80];
static int push_fails;

static int bent_push(struct store *s, const struct job *j, enum job_push how, int64_t now_ms,
                     struct err *err)
{
    if (push_fails > 0 && push_fails--)
        return err_set(err, ERR_NO_SPACE, "no space for a row");
    return store_real->job_push(s, j, how, now_ms, err);
}

static void bend(void) { store_bent.job_push = bent_push; }

static void run_retry(void (*fn)(void), bool lasts)
{
    struct frame f = { .fn = fn, .before = bend, .lasts = lasts };

    push_fails = 0;
    set("pool.size=0");
    test_co(frame, &f);
}

static const char *our_topic(void)
{
    snprintf(topic, sizeof(topic), "retry/%s", control_node(w.c));
    return topic;
}

static int waiting(void) /* 0, or 1: some */
{
    struct err err = { 0 };
    int64_t due;

    CHECK_INT(w.store->ops->job_next(w.store, our_topic(), &due, &err), 0);
    return due != NEVER;
}

static int count_dead(void *arg, const struct job *j)
{
    CHECK(strlen(j->error) > 0);
    ++*(int *)arg;
    return 0;
}

static int dead(void)
{
    struct err err = { 0 };
    int n = 0;

    CHECK_INT(w.store->ops->job_dead(w.store, NULL, 10, count_dead, &n, &err), 0);
    return n;
}

/* One whose end has come, and which cannot be paused so many times. */
static struct sandbox *failing(int times)
{
    struct create_spec s = spec();

    s.life = (struct life){ .timeout_ms = 50, .expiry = EXPIRY_PAUSE };
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, times);
    return create(&w.alice, &s);
}

static struct sandbox *box; /* the one of the case */
static int is_paused(void) { return box->state == SANDBOX_PAUSED; }

static void retried(void)
{
    box = failing(2);
    wait_until(waiting, 1);
    CHECK_INT(box->state, SANDBOX_RUNNING);
    wait_until(is_paused, 1);
    wait_until(waiting, 0);
    CHECK_INT(dead(), 0);
}
TEST(a_pause_that_failed_is_tried_again_and_its_job_is_gone_then) { run_retry(retried, false); }

static void given_up(void)
{
    failing(100);
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "pausing it failed for") != NULL);
    wait_until(dead, 1);
    CHECK_INT(waiting(), 0);
    CHECK_INT(machines(), 0);
}

TEST(one_that_is_given_up_leaves_a_dead_letter)
{
    set("control.pause-give-up-s=1");
    run_retry(given_up, false);
    set("control.pause-give-up-s=600");
}

static void across(void)
{
    struct job was = { 0 }, is = { 0 };
    struct arena a = { 0 };
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    box = failing(1000);
    memcpy(id, box->id, sizeof(id));
    wait_until(waiting, 1);
    control_close(w.c);
    w.c = NULL;
    /* a claim whose lease has ended already: only to look */
    CHECK_INT(w.store->ops->job_claim(w.store, topic, INT64_MAX / 2, 1 - INT64_MAX / 2, 1, &was, &a,
                                      &err),
              1);
    CHECK_STR(was.key, id);
    open_control();
    co_sleep(co_in(1500)); /* it fails at least once more */
    control_close(w.c);
    w.c = NULL;
    CHECK_INT(
        w.store->ops->job_claim(w.store, topic, INT64_MAX / 2, 1 - INT64_MAX / 2, 1, &is, &a, &err),
        1);
    CHECK_INT(is.first_ms, was.first_ms);
    CHECK(is.attempts > was.attempts + 1);
    set("control.pause-give-up-s=1");
    open_control();
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "pausing it failed for") != NULL);
    set("control.pause-give-up-s=600");
    arena_free(&a);
}
TEST(since_when_it_fails_is_known_after_a_restart) { run_retry(across, true); }

static void moved(void)
{
    struct err err = { 0 };

    box = failing(1);
    wait_until(waiting, 1);
    CHECK_INT(control_set_timeout(w.c, &w.alice, box, 300000, false, &err), 0);
    wait_until(waiting, 0);
    CHECK_INT(box->state, SANDBOX_RUNNING);
    CHECK(control_left_ms(box) > 200000);
    CHECK_INT(dead(), 0);
}
TEST(one_whose_time_was_moved_is_left_alone) { run_retry(moved, false); }

static void ended(void)
{
    struct err err = { 0 };

    box = failing(100);
    wait_until(waiting, 1);
    CHECK_INT(control_kill(w.c, &w.alice, box, NULL, &err), 0);
    wait_until(waiting, 0);
    CHECK_INT(dead(), 0);
}
TEST(the_job_of_one_that_ended_goes) { run_retry(ended, false); }

static void no_room(void)
{
    push_fails = 1;
    box = failing(1);
    wait_until(is_paused, 1);
    CHECK_INT(push_fails, 0);
    CHECK_INT(waiting(), 0);
}
TEST(without_room_for_a_job_memory_serves) { run_retry(no_room, false); }

/* ---- deadlines after a restart ---- */

static void restarted(void)
{
    struct create_spec s = spec();
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    s.life = (struct life){ .timeout_ms = 60000, .expiry = EXPIRY_PAUSE };
    memcpy(id, create(&w.alice, &s)->id, sizeof(id));
    reopen_control();
    box = control_find(w.c, &w.alice, str_of(id), &err);
    CHECK(box);
    CHECK(control_left_ms(box) > 0 && control_left_ms(box) <= 60000);
}
/* Its machine lives as long as machines can, so that it is not ended before it can be paused. */
TEST(one_that_is_to_be_paused_has_its_own_deadline_after_a_restart) { run_retry(restarted, true); }
