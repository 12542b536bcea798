/* test_control_restart.c - sandboxes whose first process dies and that are to be started again: at
 * once, after failures, ever later when they die again, and after a start of the server. */
#include "control_rig.h"

static struct sandbox *made(int64_t timeout_ms)
{
    struct create_spec s = spec();

    s.life = (struct life){ .timeout_ms = timeout_ms, .restart = true };
    return create(&w.alice, &s);
}

static char watched[SANDBOX_ID + 1];

/* Neither the record nor the machine says that it is being started. */
static int is_up(void)
{
    struct machine_state m = { 0 };
    struct err err = { 0 };
    const struct sandbox *b = control_find(w.c, &w.admin, str_of(watched), &err);

    return b && b->state == SANDBOX_RUNNING && !w.fake->ops->stat(w.fake, watched, &m, &err) &&
           !m.asleep;
}

static void die(const struct sandbox *b)
{
    memcpy(watched, b->id, sizeof(watched));
    provider_fake_die(w.fake, watched);
}

static void comes_back(void)
{
    struct sandbox *b = made(300000);
    struct machine_state m;
    struct err err = { 0 };
    int64_t end_ms = b->end_ms;

    die(b);
    CHECK_INT(is_up(), 0);
    wait_until(is_up, 1);
    CHECK_STR(events_of(watched), "created started restarted");
    CHECK_INT(b->end_ms, end_ms); /* dying gives no more time */
    CHECK(control_left_ms(b) > 200000 && control_left_ms(b) <= 300000);
    CHECK_INT(w.fake->ops->stat(w.fake, watched, &m, &err), 0);
    CHECK(m.left_ms > 200000 && m.left_ms <= 302000);
}

TEST(one_that_dies_is_started_again_on_its_files) { run(comes_back, 0); }
TEST(none_that_waited_is_used_for_it) { run(comes_back, 2); }

static void retried(void)
{
    struct sandbox *b = made(0);

    provider_fake_fail(w.fake, "resume", ERR_TIMEOUT, 1);
    die(b);
    wait_until(is_up, 1);
    CHECK_STR(events_of(watched), "created started restarted");
    CHECK(control_left_ms(b) == NEVER);
}

TEST(what_fails_then_is_tried_again) { run(retried, 0); }

static void untaught(void)
{
    struct sandbox *b = made(300000);

    provider_fake_fail(w.fake, "dial", ERR_UPSTREAM, 1); /* it knows no token yet */
    die(b);
    co_sleep(co_in(200));
    CHECK_INT(b->state, SANDBOX_RESUMING);
    wait_until(is_up, 1);
}

TEST(nobody_reaches_it_before_it_knows_its_token) { run(untaught, 0); }

static void again_and_again(void)
{
    struct sandbox *b = made(300000);
    int64_t since;

    die(b);
    wait_until(is_up, 1);
    for (int i = 0; i < 3; i++) { /* after 100, 200 and 400 ms */
        die(b);
        since = clock_ms();
        wait_until(is_up, 1);
        CHECK(clock_ms() - since >= 100 << i);
    }
}

TEST(one_that_dies_again_waits_ever_longer) { run(again_and_again, 0); }

static void while_down(void)
{
    struct sandbox *b = made(300000);
    struct err err = { 0 };

    die(b);
    wait_until(is_up, 1);
    die(b);
    while (b->state == SANDBOX_RUNNING)
        co_sleep(co_in(1));
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
}

TEST(one_that_is_down_can_be_killed) { run(while_down, 0); }

static void unwritten(void)
{
    struct sandbox *b = made(300000);

    save_fails = 2;
    die(b);
    wait_until(is_up, 1);
    CHECK_STR(events_of(watched), "created started unreachable reachable restarted");
    CHECK(control_left_ms(b) > 200000 && control_left_ms(b) <= 300000);
    CHECK_INT(machines(), 1);
}

TEST(one_whose_restart_cannot_be_written_down_is_started_when_it_can) { run(unwritten, 0); }

static void missed(void)
{
    struct sandbox *b = made(300000);

    w.fake->on_event = NULL; /* its keeper was not there to tell */
    die(b);
    w.fake->on_event = control_event;
    co_sleep(co_in(50));
    CHECK_INT(is_up(), 0);
    provider_fake_emit(w.fake, &(struct machine_event){ .kind = MACHINE_REGAINED });
    wait_until(is_up, 1);
    CHECK_STR(events_of(watched), "created started restarted");
}

TEST(one_whose_death_nobody_told_is_found) { run(missed, 0); }

static void without_us(void)
{
    struct sandbox *b = made(300000);

    w.fake->on_event = NULL;
    die(b);
    w.fake->on_event = control_event;
    reopen_control();
    wait_until(is_up, 1);
    CHECK_STR(events_of(watched), "created started restarted");
}

TEST(one_that_died_while_no_server_ran_is_started_by_the_next)
{
    struct frame f = { .fn = without_us, .lasts = true };

    set("pool.size=0");
    test_co(frame, &f);
}
