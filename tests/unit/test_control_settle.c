/* test_control_settle.c - every pair of record and machine that a crash during a pause or a resume
 * can leave. */
#include "control_rig.h"

enum was { RUNS, STANDS, SLEEPS, ASTRAY, SILENT };

static struct {
    enum sandbox_state row;
    enum was machine;
    enum sandbox_state becomes;
} crash;

static char crashed_id[SANDBOX_ID + 1];

/* Leaves the record and the machine as a crash at that point would. */
static void crashed(void)
{
    struct create_spec s = spec();
    struct sandbox row = { 0 };
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };
    uint64_t flush_us;
    bool anew;

    memcpy(crashed_id, b->id, sizeof(crashed_id));
    if (crash.row != SANDBOX_RUNNING)
        CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    sandbox_copy(&row, b);
    control_close(w.c);
    w.c = NULL;
    if (crash.row == SANDBOX_PAUSING) { /* back to where it began */
        row.state = SANDBOX_RESUMING;
        CHECK_INT(w.store->ops->sandbox_save(w.store, &row, SANDBOX_PAUSED, NULL, &err), 0);
        row.state = SANDBOX_RUNNING;
        CHECK_INT(w.store->ops->sandbox_save(w.store, &row, SANDBOX_RESUMING, NULL, &err), 0);
    }
    if (crash.row != row.state) {
        enum sandbox_state from = (enum sandbox_state)row.state;

        row.state = crash.row;
        CHECK_INT(w.store->ops->sandbox_save(w.store, &row, from, NULL, &err), 0);
    }
    if (crash.machine == RUNS)
        CHECK_INT(w.fake->ops->resume(w.fake, crashed_id, 0, &anew, &err), 0);
    else
        CHECK_INT(w.fake->ops->pause(w.fake, crashed_id, false, &flush_us, &err), 0);
    if (crash.machine == SLEEPS)
        provider_fake_sleep(w.fake, crashed_id);
    if (crash.machine >= ASTRAY)
        provider_fake_astray(w.fake, crashed_id);
    if (crash.machine == SILENT)
        provider_fake_unreachable(w.fake, crashed_id, "there is none");
    sandbox_finish(&row);
    open_control();
}

static void settled(void)
{
    struct sandbox *b;
    struct err err = { 0 };

    crashed();
    b = found(crashed_id);
    if (crash.becomes == SANDBOX_ENDED) {
        CHECK(b == NULL);
        CHECK_INT(machines(), 0);
        CHECK(strstr(last_reason(), "only its files were found"));
        return;
    }
    CHECK(b != NULL);
    CHECK_INT(b->state, crash.becomes);
    CHECK_INT(machine_paused(crashed_id), crash.becomes == SANDBOX_PAUSED);
    if (crash.becomes == SANDBOX_PAUSED)
        CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    CHECK(control_left_ms(b) > 290000 && control_left_ms(b) <= 300000);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), 0);
    reopen_control();
    CHECK_INT(found(crashed_id)->state, SANDBOX_PAUSED);
}

TEST(whatever_a_crash_leaves_is_finished_or_undone)
{
    static const enum sandbox_state R = SANDBOX_RUNNING, P = SANDBOX_PAUSED, E = SANDBOX_ENDED;
    const struct {
        /* the machine runs, stands still, has files only, was found by its files alone */
        enum sandbox_state row, becomes[4];
    } table[] = {
        { SANDBOX_RUNNING, { R, R, P, E } },
        { SANDBOX_PAUSING, { R, P, P, P } },
        { SANDBOX_PAUSED, { P, P, P, P } },
        { SANDBOX_RESUMING, { R, P, P, P } },
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        for (int m = RUNS; m <= ASTRAY; m++) {
            struct frame f = { .fn = settled, .lasts = true };

            crash.row = table[i].row;
            crash.machine = (enum was)m;
            crash.becomes = table[i].becomes[m];
            run_frame(f, 0);
        }
}

static void told_why(void)
{
    settled();
    CHECK_STR(events_of(crashed_id), "created started paused restarted paused");
}

/* As an older backup says, or a power loss that forgot that a note was removed. */
TEST(one_that_was_found_paused_says_so)
{
    struct frame f = { .fn = told_why, .lasts = true };

    crash.row = SANDBOX_RUNNING;
    crash.machine = SLEEPS;
    crash.becomes = SANDBOX_PAUSED;
    run_frame(f, 0);
}

static void silent(void)
{
    const bool ended = crash.becomes == SANDBOX_ENDED;
    struct sandbox *b;
    struct err err = { 0 };

    crashed();
    b = found(crashed_id);
    if (ended) {
        CHECK(b == NULL);
        CHECK_INT(machines(), 0);
        return;
    }
    CHECK(b != NULL);
    CHECK_INT(b->state, SANDBOX_PAUSED);
    CHECK_STR(control_unreachable(w.c, crashed_id), "there is none");
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), -1);
    CHECK(strstr(err.msg, "there is none"));
    reopen_control();
    CHECK_INT(found(crashed_id)->state, SANDBOX_PAUSED);
    err = (struct err){ 0 };
    CHECK_INT(control_kill(w.c, &w.alice, found(crashed_id), NULL, &err), 0);
    CHECK_INT(machines(), 0);
}

/* A power loss forgot what its files say of it: nobody can wake it, and nothing is half done. */
TEST(of_one_whose_files_say_nothing_no_move_is_under_way)
{
    static const enum sandbox_state rows[] = { SANDBOX_RUNNING, SANDBOX_PAUSING, SANDBOX_PAUSED,
                                               SANDBOX_RESUMING };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct frame f = { .fn = silent, .lasts = true };

        crash.row = rows[i];
        crash.machine = SILENT;
        crash.becomes = rows[i] == SANDBOX_RUNNING ? SANDBOX_ENDED : SANDBOX_PAUSED;
        run_frame(f, 0);
    }
}

static int unreachable_now(void) { return control_unreachable(w.c, crashed_id) != NULL; }

static void unsettled(void)
{
    crash.row = SANDBOX_PAUSED;
    crash.machine = RUNS;
    provider_fake_fail(w.fake, "pause", ERR_TIMEOUT, 0);
    crashed();
    await_state(crashed_id, SANDBOX_PAUSED);
    control_close(w.c);
    w.c = NULL;
    provider_fake_fail(w.fake, "adopt", ERR_NOT_FOUND, 1); /* something of it, not all */
    open_control();
    CHECK_INT(sandboxes(), 1);
    CHECK(control_unreachable(w.c, crashed_id) != NULL);
    await_state(crashed_id, SANDBOX_PAUSED);
    wait_until(unreachable_now, 0);
    control_close(w.c);
    w.c = NULL;
    provider_fake_vanish(w.fake, crashed_id); /* its machine and its files */
    open_control();
    CHECK_INT(sandboxes(), 0);
    CHECK(strstr(last_reason(), "itself") != NULL);
}

TEST(a_paused_one_of_which_nothing_is_left_has_ended)
{
    struct frame f = { .fn = unsettled, .lasts = true };

    run_frame(f, 0);
}
