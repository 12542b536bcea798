/* test_control_pause.c - sandboxes that stand still: every move, and a failure at each step of it.
 */
#include "control_rig.h"

static struct sandbox *made(enum sandbox_expiry expiry, bool auto_resume)
{
    struct create_spec s = spec();

    s.life = (struct life){ .timeout_ms = 300000, .expiry = expiry, .auto_resume = auto_resume };
    return create(&w.alice, &s);
}

static struct sandbox *paused(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };

    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    return b;
}

/* ---- by request ---- */

static void files_alone(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    memcpy(id, b->id, sizeof(id));
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, false, &err), 0);
    CHECK(machine_paused(id));
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK_STR(events_of(id), "created started paused restarted");
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, false, &err), 0);
    CHECK_STR(events_of(id), "created started paused restarted paused restarted");
}

static void there_and_back(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    memcpy(id, b->id, sizeof(id));
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK(machine_paused(id));
    CHECK_INT(b->end_ms, 0);
    CHECK(control_left_ms(b) == NEVER);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(control_pause(w.c, &w.bob, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(control_resume(w.c, &w.bob, b, -1, true, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(control_resume(w.c, &w.alice, b, 60000, true, &err), 0);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK(!machine_paused(id));
    CHECK(control_left_ms(b) > 59000 && control_left_ms(b) <= 60000);
    CHECK(b->end_ms != 0);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_STR(events_of(id), "created started paused resumed");
}

TEST(a_sandbox_is_paused_and_goes_on) { run(there_and_back, 0); }
TEST(files_may_be_kept_alone) { run(files_alone, 0); }

static void connected(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };
    bool resumed = false;

    CHECK_INT(control_connect(w.c, &w.alice, b, 10000, true, &resumed, &err), 0);
    CHECK(resumed);
    CHECK(control_left_ms(b) <= 10000);
    CHECK_INT(control_connect(w.c, &w.alice, b, 60000, true, &resumed, &err), 0);
    CHECK(!resumed);
    CHECK(control_left_ms(b) > 59000);
    CHECK_INT(control_connect(w.c, &w.alice, b, 10000, true, &resumed, &err), 0);
    CHECK(control_left_ms(b) > 59000); /* it only ever extends */
    CHECK_INT(control_connect(w.c, &w.alice, b, -5, true, &resumed, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
}

TEST(connecting_resumes_or_extends) { run(connected, 0); }

static void timed(void)
{
    struct sandbox *b = paused();
    struct machine_state m;
    struct err err = { 0 };

    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 5000, false, &err), 0);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK(control_left_ms(b) == NEVER);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 4000, true, &err), 0);
    CHECK_INT(b->life.timeout_ms, 5000);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK(control_left_ms(b) > 4000 && control_left_ms(b) <= 5000);
    CHECK_INT(w.fake->ops->stat(w.fake, b->id, &m, &err), 0);
    CHECK(m.left_ms > 5000 && m.left_ms <= 7000); /* the safety net moves with it */
}

TEST(a_time_out_set_on_a_paused_one_begins_when_it_goes_on) { run(timed, 0); }

static void no_time_passes(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err = { 0 };

    s.life.timeout_ms = 200;
    s.life.idle_ms = 100;
    b = create(&w.alice, &s);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    co_sleep(co_in(400));
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK_INT(machines(), 1);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    wait_until(sandboxes, 0); /* and now it does */
}

TEST(deadlines_stand_still_while_it_is_paused) { run(no_time_passes, 0); }

static void killed(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };

    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
}

TEST(a_paused_one_can_be_ended) { run(killed, 0); }

struct race {
    struct sandbox *b;
    int done, failed;
};

static void pause_it(void *arg)
{
    struct race *r = arg;
    struct err err = { 0 };

    r->failed += control_pause(w.c, &w.alice, r->b, NULL, true, &err) != 0;
    r->done++;
}

static void wake_it(void *arg)
{
    struct race *r = arg;
    struct err err = { 0 };

    r->failed += control_wake(w.c, r->b, &err) != 0;
    r->done++;
}

static struct race *racing;
static int race_done(void) { return racing->done; }

static void together(void)
{
    struct race r = { .b = made(EXPIRY_KILL, true) };

    racing = &r;
    provider_fake_delay(w.fake, "pause", 20);
    for (int i = 0; i < 10; i++)
        co_go(pause_it, &r, NULL);
    wait_until(race_done, 10);
    CHECK_INT(r.failed, 9);
    r.done = r.failed = 0;
    provider_fake_delay(w.fake, "resume", 20);
    for (int i = 0; i < 10; i++)
        co_go(wake_it, &r, NULL);
    wait_until(race_done, 10);
    CHECK_INT(r.failed, 0);
    CHECK_INT(r.b->state, SANDBOX_RUNNING);
    CHECK_STR(events_of(r.b->id), "created started paused resumed");
}

TEST(of_many_at_once_one_pauses_it_and_one_wakes_it) { run(together, 0); }

static void stays_asleep(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };

    CHECK_INT(control_wake(w.c, b, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(b->state, SANDBOX_PAUSED);
}

TEST(without_auto_resume_a_request_wakes_nobody) { run(stays_asleep, 0); }

/* ---- at the end of its time ---- */

static void wakes_strays(void)
{
    struct sandbox *b = made(EXPIRY_KILL, true);
    struct err err = { 0 };

    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    CHECK_INT(control_wake_stray(w.c, b, &err), 0);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, false, &err), 0); /* files only */
    CHECK_INT(control_wake_stray(w.c, b, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK_INT(control_wake(w.c, b, &err), 0);
    CHECK_INT(b->state, SANDBOX_RUNNING);
}

TEST(stray_requests_do_not_undo_a_pause_of_files_alone) { run(wakes_strays, 0); }

static const struct span_row {
    const char *name;
    int64_t timeout_ms, lasts_ms; /* 0: for ever */
} spans[] = {
    { "a short one", 2000, CONTROL_WAKE_MS },
    { "a long one", 900000, 900000 },
    { "none", 0, 0 },
};
static const struct span_row *given;

static void lasts(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err = { 0 };
    int64_t left;

    s.life = (struct life){ .timeout_ms = given->timeout_ms,
                            .expiry = EXPIRY_PAUSE,
                            .auto_resume = true };
    b = create(&w.alice, &s);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    CHECK_INT(control_wake(w.c, b, &err), 0);
    left = control_left_ms(b);
    CHECK(given->lasts_ms ? left > given->lasts_ms - 5000 && left <= given->lasts_ms
                          : left == NEVER);
}

TEST_ROWS(who_is_woken_by_a_request_has_five_minutes_at_least, spans, test_once)
{
    given = row;
    run(lasts, 0);
}

static void expires(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err = { 0 };

    s.life = (struct life){ .timeout_ms = 100, .expiry = EXPIRY_PAUSE, .auto_resume = true };
    b = create(&w.alice, &s);
    await_state(b->id, SANDBOX_PAUSED);
    CHECK(machine_paused(b->id));
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    await_state(b->id, SANDBOX_PAUSED); /* again, after its time-out */
    CHECK_STR(events_of(b->id), "created started paused resumed paused");
}

TEST(one_that_is_to_be_paused_at_its_end_is) { run(expires, 0); }

static void idles(void)
{
    struct create_spec s = spec();
    struct sandbox *b;

    s.life = (struct life){ .idle_ms = 100, .expiry = EXPIRY_PAUSE };
    b = create(&w.alice, &s);
    await_state(b->id, SANDBOX_PAUSED);
}

TEST(the_same_when_nobody_uses_it) { run(idles, 0); }

static void retried(void)
{
    struct create_spec s = spec();
    struct sandbox *b;

    s.life = (struct life){ .timeout_ms = 50, .expiry = EXPIRY_PAUSE };
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, 1);
    b = create(&w.alice, &s);
    co_sleep(co_in(300));
    CHECK_INT(b->state, SANDBOX_RUNNING); /* it goes on meanwhile */
    await_state(b->id, SANDBOX_PAUSED);
}

TEST(a_pause_at_the_end_that_fails_is_tried_again) { run(retried, 0); }

static void given_up(void)
{
    struct create_spec s = spec();

    s.life = (struct life){ .timeout_ms = 50, .expiry = EXPIRY_PAUSE };
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, 100);
    create(&w.alice, &s);
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "pausing it failed for") != NULL);
    CHECK_INT(machines(), 0);
}

TEST(one_that_cannot_be_paused_for_long_is_ended)
{
    set("control.pause-give-up-s=1");
    run(given_up, 0);
    set("control.pause-give-up-s=600");
}

static void retained(void)
{
    const struct sandbox *b = paused();

    CHECK(b->end_ms > 0);
    CHECK(control_left_ms(b) <= 1000);
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "--paused-retention") != NULL);
    CHECK_INT(machines(), 0);
}

TEST(a_paused_one_is_kept_as_long_as_was_said)
{
    set("control.paused-retention-s=1");
    run(retained, 0);
    set("control.paused-retention-s=0");
}

static int64_t moved_ms; /* so far off is the clock at the next start */

static void clock_was_set(void)
{
    struct sandbox *b = paused(), row = { 0 };
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    memcpy(id, b->id, sizeof(id));
    sandbox_copy(&row, b);
    control_close(w.c);
    w.c = NULL;
    row.end_ms -= moved_ms;
    CHECK_INT(w.store->ops->sandbox_save(w.store, &row, SANDBOX_PAUSED, NULL, &err), 0);
    sandbox_finish(&row);
    open_control();
    co_sleep(co_in(5));
    CHECK_INT(sandboxes(), 1);
    CHECK_INT(machines(), 1);
    CHECK(control_left_ms(found(id)) > 86000000 && control_left_ms(found(id)) <= 86400000);
}

TEST(a_clock_that_was_set_ends_no_paused_one)
{
    struct frame f = { .fn = clock_was_set, .lasts = true };
    const int64_t year = 365 * (int64_t)86400000;

    set("pool.size=0");
    set("control.paused-retention-s=86400");
    for (moved_ms = -year; moved_ms <= year; moved_ms += year)
        test_co(frame, &f);
    set("control.paused-retention-s=0");
}

/* ---- failures ---- */

/* A mount's directory is gone, say: the machine is not. */
static void not_found(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };

    provider_fake_fail(w.fake, "pause", ERR_NOT_FOUND, 1);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    provider_fake_fail(w.fake, "resume", ERR_NOT_FOUND, 1);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    provider_fake_fail(w.fake, "pause", ERR_NOT_FOUND, 1);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, false, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    provider_fake_fail(w.fake, "resume", ERR_NOT_FOUND, 1); /* and nobody can say whether it is */
    provider_fake_fail(w.fake, "stat", ERR_NOT_FOUND, 1);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK_STR(events_of(b->id), "created started paused resumed");
    CHECK_INT(machines(), 1);
}

TEST(what_is_not_found_on_the_way_ends_nothing) { run(not_found, 0); }

static void settled_late(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };

    provider_fake_fail(w.fake, "resume", ERR_NOT_FOUND, 1);
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, 1); /* it is not undone either */
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_RESUMING);
    provider_fake_fail(w.fake, "stat", ERR_NOT_FOUND, 2); /* while it is settled */
    await_state(b->id, SANDBOX_PAUSED);
    CHECK_INT(machines(), 1);
}

TEST(nor_while_it_is_settled) { run(settled_late, 0); }

static void pause_fails(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };

    save_fails = 1; /* the intent */
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, 1); /* the machine */
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_TIMEOUT);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    save_skips = save_fails = 1; /* the record */
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK(!machine_paused(b->id));
    CHECK(control_left_ms(b) > 290000 && control_left_ms(b) <= 300000);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0); /* and now it works */
}

TEST(a_pause_that_fails_leaves_it_running) { run(pause_fails, 0); }

static void pause_stuck(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };

    save_skips = 1; /* no space from the second write on */
    save_fails = 3;
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSING);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    await_state(b->id, SANDBOX_RUNNING);
    CHECK(!machine_paused(b->id));
    CHECK(control_left_ms(b) > 290000);
}

TEST(what_cannot_be_undone_at_once_is_settled_later) { run(pause_stuck, 0); }

static void pause_cut_off(void)
{
    struct sandbox *b = made(EXPIRY_KILL, false);
    struct err err = { 0 };
    uint64_t flush_us;

    provider_fake_fail(w.fake, "pause", ERR_UNAVAILABLE, 1);
    provider_fake_fail(w.fake, "resume", ERR_UNAVAILABLE, 1); /* nor can that be undone */
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSING);
    CHECK_INT(w.fake->ops->pause(w.fake, b->id, false, &flush_us, &err), 0); /* it had happened */
    await_state(b->id, SANDBOX_PAUSED);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
}

TEST(a_provider_that_was_away_is_asked_what_happened) { run(pause_cut_off, 0); }

static void resume_fails(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };

    save_fails = 1; /* the intent */
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    provider_fake_fail(w.fake, "resume", ERR_LIMIT, 1); /* the machine */
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    save_skips = save_fails = 1; /* the record */
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK(machine_paused(b->id));
    save_skips = 1;
    save_fails = 2;
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_RESUMING);
    await_state(b->id, SANDBOX_PAUSED);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
}

TEST(a_resume_that_fails_leaves_it_paused) { run(resume_fails, 0); }

static void gone_meanwhile(void)
{
    struct sandbox *b = paused(), *other = made(EXPIRY_KILL, false);
    struct err err = { 0 };

    provider_fake_vanish(w.fake, b->id);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK(strstr(last_reason(), "its provider, asked twice") != NULL);
    provider_fake_vanish(w.fake, other->id);
    CHECK_INT(control_pause(w.c, &w.alice, other, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(sandboxes(), 0);
}

TEST(one_whose_machine_is_gone_has_ended) { run(gone_meanwhile, 0); }

/* ---- only files are left ---- */

static void restarted(void)
{
    struct sandbox *b = paused();
    struct err err = { 0 };

    provider_fake_sleep(w.fake, b->id);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    provider_fake_fail(w.fake, "dial", ERR_UPSTREAM, 1); /* its guest does not answer */
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK(machine_paused(b->id));
    provider_fake_sleep(w.fake, b->id);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK_STR(events_of(b->id), "created started paused restarted");
}

TEST(one_without_processes_starts_again_on_its_files) { run(restarted, 0); }
