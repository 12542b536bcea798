/* test_control_start.c - starts after a crash or a restart: what the store says against what the
 * provider has. */
#include "control_rig.h"

#include <time.h>

static struct sandbox row; /* the record of the case */
static int64_t row_end_ms; /* its deadline for people */

/* A record of a former run, in the state given, and perhaps a machine by its name. */
static void former(enum sandbox_state state, uint64_t machine_lifetime_ms)
{
    AUTO(buf_free) struct buf node = { 0 };
    enum sandbox_state now = SANDBOX_CREATING;
    static const enum sandbox_state way[SANDBOX_STATES][4] = {
        [SANDBOX_RUNNING] = { SANDBOX_RUNNING },
        [SANDBOX_PAUSING] = { SANDBOX_RUNNING, SANDBOX_PAUSING },
        [SANDBOX_PAUSED] = { SANDBOX_RUNNING, SANDBOX_PAUSING, SANDBOX_PAUSED },
        [SANDBOX_RESUMING] = { SANDBOX_RUNNING, SANDBOX_PAUSING, SANDBOX_PAUSED, SANDBOX_RESUMING },
        [SANDBOX_ENDING] = { SANDBOX_ENDING },
    };
    struct order order = { .template = "base",
                           .network = ORDER_NET_OPEN,
                           .limits = { .lifetime_ms = machine_lifetime_ms } };
    struct machine_state m;
    struct err err = { 0 };

    sandbox_finish(&row);
    row = (struct sandbox){ .owner = w.alice.user, .state = SANDBOX_CREATING };
    sandbox_new_id(&row);
    CHECK_INT(w.store->ops->value_once(w.store, "node", STR("node0"), &node, &err), 0);
    row.template = arena_strdup(&row.strings, STR("base"));
    row.provider = arena_strdup(&row.strings, STR("fake"));
    row.node = arena_strdup(&row.strings, buf_str(&node));
    row.facade = arena_strdup(&row.strings, STR("v1"));
    row.life.timeout_ms = 300000;
    row.created_ms = 1000;
    CHECK_INT(w.store->ops->sandbox_add(w.store, &row, NULL, NULL, &err), 0);
    row.started_ms = 2000;
    row.end_ms = row_end_ms;
    for (int i = 0; i < 4 && way[state][i]; i++) {
        row.state = way[state][i];
        CHECK_INT(w.store->ops->sandbox_save(w.store, &row, now, NULL, &err), 0);
        now = way[state][i];
    }
    if (machine_lifetime_ms)
        CHECK_INT(w.fake->ops->create(w.fake, row.id, &order, &m, &err), 0);
}

static void start(void (*before)(void), void (*fn)(void), int pool)
{
    row_end_ms = 302000; /* long ago: a wall clock decides nothing while the machine is there */
    run_frame((struct frame){ .fn = fn, .before = before, .lasts = true }, pool);
    sandbox_finish(&row);
    row = (struct sandbox){ 0 };
}

static void check_live(enum sandbox_state state)
{
    struct err err = { 0 };
    const struct sandbox *b = control_find(w.c, &w.alice, str_of(row.id), &err);

    CHECK(b != NULL);
    CHECK_INT(b->state, state);
    CHECK_INT(machines(), 1);
}

static void running(void) { former(SANDBOX_RUNNING, 302000); }

static void is_running(void)
{
    struct err err = { 0 };
    struct sandbox *b;

    check_live(SANDBOX_RUNNING);
    b = control_find(w.c, &w.alice, str_of(row.id), &err);
    CHECK(control_left_ms(b) > 299000 && control_left_ms(b) <= 300000);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    CHECK_INT(machines(), 0);
}

TEST(a_running_sandbox_is_adopted_by_the_clock_that_ran_on) { start(running, is_running, 0); }

static void just_claimed(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    row_end_ms = t.tv_sec * 1000 + t.tv_nsec / 1000000 + 2000;
    former(SANDBOX_RUNNING, 3600000 + 600000 + 777); /* the pool's lifetime is still in force */
}

static void is_over(void)
{
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "lifetime") != NULL);
    CHECK_INT(machines(), 0);
}

TEST(one_that_was_just_claimed_has_the_deadline_of_its_record) { start(just_claimed, is_over, 0); }

/* ended long ago, by a clock that somebody has set */
static void claimed_then_set(void) { former(SANDBOX_RUNNING, 3600000 + 600000 + 777); }

TEST(a_clock_that_was_set_does_not_end_one_that_was_just_claimed)
{
    start(claimed_then_set, is_running, 0);
}

static void pausing(void)
{
    struct err err = { 0 };
    uint64_t flush_us;

    former(SANDBOX_PAUSING, 302000);
    CHECK_INT(w.fake->ops->pause(w.fake, row.id, false, &flush_us, &err), 0);
}

static void is_paused(void)
{
    check_live(SANDBOX_PAUSED);
    reopen_control();
    check_live(SANDBOX_PAUSED);
}

TEST(one_that_was_pausing_is_as_its_machine_is) { start(pausing, is_paused, 0); }

static void resuming(void) { former(SANDBOX_RESUMING, 302000); }
static void has_resumed(void) { check_live(SANDBOX_RUNNING); }

TEST(one_that_was_resuming_runs) { start(resuming, has_resumed, 0); }

static void creating(void) { former(SANDBOX_CREATING, 302000); }

static void is_undone(void)
{
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
    CHECK(strstr(last_reason(), "interrupted") != NULL);
}

TEST(one_that_was_being_created_is_undone) { start(creating, is_undone, 0); }

static void creating_marked(const char *store)
{
    struct order_mark mark = { .claim = ORDER_CLAIMED, .owner = "alice" };
    struct err err = { 0 };

    creating();
    snprintf(mark.store, sizeof(mark.store), "%s", store);
    CHECK_INT(w.fake->ops->claim(w.fake, row.id, &(struct limits){ 0 }, &mark, &err), 0);
}

static void told_by_another(void) { creating_marked("another"); }

static void told_by_ours(void)
{
    AUTO(buf_free) struct buf mark = { 0 };
    struct err err = { 0 };

    CHECK_INT(w.store->ops->value_once(w.store, STORE_MARK, STR("mark0"), &mark, &err), 0);
    creating_marked(buf_cstr(&mark));
}

static void was_created(void)
{
    check_live(SANDBOX_RUNNING);
    CHECK_STR(events_of(row.id), "started");
    reopen_control();
    is_running();
}

TEST(unless_its_machine_is_newer_than_the_backup_and_was_given_to_its_client)
{
    start(told_by_another, was_created, 0);
    start(told_by_ours, is_undone, 0);
}

static void creating_without(void) { former(SANDBOX_CREATING, 0); }

TEST(and_so_is_one_that_had_no_machine_yet) { start(creating_without, is_undone, 0); }

static void ending(void) { former(SANDBOX_ENDING, 302000); }

static void is_ended(void)
{
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
    CHECK_STR(last_reason(), "request: the server ended while it was being ended");
}

TEST(one_that_was_ending_is_finished) { start(ending, is_ended, 0); }

static void lost(void) { former(SANDBOX_RUNNING, 0); }

static void is_late(void)
{
    CHECK_INT(sandboxes(), 0);
    CHECK_STR(last_reason(), "lifetime: its time-out passed while the server was not running");
}

TEST(one_whose_machine_is_gone_has_ended) { start(lost, is_late, 0); }

static void lost_early(void)
{
    row_end_ms = 0;
    former(SANDBOX_RUNNING, 0);
}

static void is_gone(void)
{
    CHECK_INT(sandboxes(), 0);
    CHECK_STR(last_reason(), "itself: its machine was gone at start");
}

TEST(of_itself_when_that_was_before_its_time) { start(lost_early, is_gone, 0); }

/* ---- machines of which the provider cannot read what it wrote ---- */

#define WHY "its note cannot be read: its sum is wrong"

static void paused(void)
{
    struct err err = { 0 };
    uint64_t flush_us;

    former(SANDBOX_PAUSED, 302000);
    CHECK_INT(w.fake->ops->pause(w.fake, row.id, false, &flush_us, &err), 0);
}

static void paused_unreadable(void)
{
    paused();
    provider_fake_unreachable(w.fake, row.id, WHY);
}

static void running_unreadable(void)
{
    former(SANDBOX_RUNNING, 302000);
    provider_fake_unreachable(w.fake, row.id, WHY);
}

static int reachable(void) { return !control_unreachable(w.c, row.id); }

/* Whatever is asked, nothing is lost; with a reason, until it can be read. */
static void check_kept(enum sandbox_state state)
{
    struct err err = { 0 };
    struct sandbox *b = control_find(w.c, &w.alice, str_of(row.id), &err);

    check_live(state);
    CHECK_STR(control_unreachable(w.c, row.id), WHY);
    CHECK_INT(control_work_begin(w.c, &w.alice, b, &err),
              state == SANDBOX_RUNNING ? 0 : -1); /* of a running one its guest is asked */
    if (state != SANDBOX_RUNNING) {
        CHECK_INT(err.code, ERR_UNAVAILABLE);
        CHECK(strstr(err.msg, WHY));
    } else
        control_work_end(b);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, true, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    check_live(state);
    reopen_control();
    check_live(state);
    CHECK(strstr(events_of(row.id), "unreachable"));
}

static void is_paused_and_comes_back(void)
{
    struct err err = { 0 };
    struct sandbox *b;

    check_kept(SANDBOX_PAUSED);
    provider_fake_unreachable(w.fake, row.id, "");
    wait_until(reachable, 1);
    check_live(SANDBOX_PAUSED);
    b = control_find(w.c, &w.alice, str_of(row.id), &err);
    CHECK_INT(control_resume(w.c, &w.alice, b, -1, true, &err), 0);
    check_live(SANDBOX_RUNNING);
    CHECK(strstr(events_of(row.id), "unreachable reachable resumed"));
}

TEST(a_paused_sandbox_is_not_ended_because_its_note_cannot_be_read)
{
    start(paused_unreadable, is_paused_and_comes_back, 0);
}

static void runs_and_comes_back(void)
{
    struct err err = { 0 };

    check_kept(SANDBOX_RUNNING);
    provider_fake_unreachable(w.fake, row.id, "");
    wait_until(reachable, 1);
    check_live(SANDBOX_RUNNING);
    CHECK(control_left_ms(control_find(w.c, &w.alice, str_of(row.id), &err)) > 200000);
}

TEST(nor_is_a_running_one) { start(running_unreadable, runs_and_comes_back, 0); }

static void can_be_ended(void)
{
    struct err err = { 0 };

    CHECK_INT(
        control_kill(w.c, &w.alice, control_find(w.c, &w.alice, str_of(row.id), &err), NULL, &err),
        0);
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
}

TEST(its_owner_can_end_it_all_the_same) { start(paused_unreadable, can_be_ended, 0); }

static void told_later(void)
{
    struct machine_event e = {
        .kind = MACHINE_UNREACHABLE, .ref = row.id, .limit = LIMIT_NONE, .text = WHY
    };

    check_live(SANDBOX_RUNNING);
    provider_fake_unreachable(w.fake, row.id, WHY);
    provider_fake_emit(w.fake, &e);
    wait_until(reachable, 0);
    check_kept(SANDBOX_RUNNING);
    provider_fake_unreachable(w.fake, row.id, "");
    wait_until(reachable, 1);
    check_live(SANDBOX_RUNNING);
}

TEST(a_keeper_that_comes_back_may_say_so_too) { start(running, told_later, 0); }

static void found_astray(void)
{
    struct machine_event e = { .kind = MACHINE_ASTRAY, .ref = row.id, .limit = LIMIT_NONE };

    provider_fake_astray(w.fake, row.id);
    provider_fake_emit(w.fake, &e);
    co_sleep(co_in(5));
}

static void is_paused_all_the_same(void)
{
    struct err err = { 0 };

    found_astray();
    check_live(SANDBOX_PAUSED);
    CHECK_INT(control_resume(w.c, &w.alice, control_find(w.c, &w.alice, str_of(row.id), &err), -1,
                             true, &err),
              0);
    check_live(SANDBOX_RUNNING);
}

TEST(a_keeper_that_finds_files_alone_of_a_paused_one_ends_nothing)
{
    start(paused, is_paused_all_the_same, 0);
}

static void has_ended_astray(void)
{
    found_astray();
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "only its files were found") != NULL);
    CHECK_INT(machines(), 0);
}

TEST(of_one_that_ran_they_are_the_end) { start(running, has_ended_astray, 0); }

/* ---- machines that no record knows: see test_control_orphans.c ---- */

static char stranger[SANDBOX_ID + 1];

static void machine_of(uint64_t lifetime_ms, int64_t network)
{
    struct sandbox name = { 0 };
    struct order order = { .template = "base",
                           .network = network == NETWORK_OPEN ? ORDER_NET_OPEN : ORDER_NET_NONE,
                           .limits = { .lifetime_ms = lifetime_ms } };
    struct machine_state m;
    struct err err = { 0 };

    sandbox_new_id(&name);
    memcpy(stranger, name.id, sizeof(stranger));
    sandbox_finish(&name);
    CHECK_INT(w.fake->ops->create(w.fake, stranger, &order, &m, &err), 0);
}

static void none_left(void) { CHECK_INT(machines(), 0); }

static void foreign(void)
{
    struct order order = { .template = "base" };
    struct machine_state m;
    struct err err = { 0 };

    CHECK_INT(w.fake->ops->create(w.fake, "somebody-elses", &order, &m, &err), 0);
}

static void one_left(void) { CHECK_INT(machines(), 1); }

TEST(one_with_a_name_that_is_not_ours_is_left_alone) { start(foreign, one_left, 0); }

/* As a release left it that marked no machines, with this store. */
static void waited(int64_t network)
{
    AUTO(buf_free) struct buf mark = { 0 };
    struct err err = { 0 };

    CHECK_INT(w.store->ops->value_once(w.store, STORE_MARK, STR("mark0"), &mark, &err), 0);
    CHECK_INT(w.store->ops->value_set(w.store, STORE_FORMER, buf_str(&mark), &err), 0);
    machine_of(3600000 + 600000 + 777, network);
}

static void waiting(void) { waited(NETWORK_OPEN); }

static void is_used(void)
{
    struct create_spec s = spec();
    const struct sandbox *b = create(&w.alice, &s);

    CHECK_STR(b->id, stranger);
}

TEST(one_that_waited_in_the_pool_waits_again) { start(waiting, is_used, 1); }

TEST(unless_the_pool_wants_none) { start(waiting, none_left, 0); }

static void waiting_elsewhere(void) { waited(NETWORK_NONE); }

static int not_stranger(void *arg, const char *ref)
{
    (void)arg;
    CHECK(strcmp(ref, stranger) != 0);
    return 0;
}

static void is_replaced(void)
{
    struct err err = { 0 };

    wait_until(machines, 1);
    CHECK_INT(w.fake->ops->list(w.fake, not_stranger, NULL, &err), 0);
}

TEST(or_none_of_its_kind) { start(waiting_elsewhere, is_replaced, 1); }

static void closes(void)
{
    wait_until(machines, 2);
    control_close(w.c);
    CHECK_INT(machines(), 0);
    w.c = NULL;
    open_control();
}

TEST(closing_ends_what_waits) { start(NULL, closes, 2); }

/* ---- restarts ---- */

static void restarts(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    char ids[3][SANDBOX_ID + 1], node[64];
    struct err err = { 0 };
    int64_t left;

    snprintf(node, sizeof(node), "%s", control_node(w.c));
    for (int i = 0; i < 3; i++) {
        s.life.timeout_ms = 300000 * i;
        s.metadata = NULL;
        memcpy(ids[i], create(&w.alice, &s)->id, sizeof(ids[i]));
    }
    reopen_control();
    CHECK_STR(control_node(w.c), node);
    CHECK_INT(sandboxes(), 3);
    for (int i = 0; i < 3; i++) {
        b = control_find(w.c, &w.alice, str_of(ids[i]), &err);
        CHECK(b != NULL);
        left = control_left_ms(b);
        CHECK(i ? left > 300000 * i - 1000 && left <= 300000 * i : left == NEVER);
        CHECK_INT(strlen(b->token), SANDBOX_TOKEN);
    }
    CHECK_INT(w.fake->ops->destroy(w.fake, ids[1], &err), 0); /* events flow again */
    wait_until(sandboxes, 2);
    w.options.ephemeral = true;
    reopen_control();
    CHECK_INT(sandboxes(), 2);
    w.options.ephemeral = false;
    reopen_control(); /* the one before was told to take them along */
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 0);
    CHECK_STR(last_reason(), "request: the server ended (--ephemeral)");
}

TEST(sandboxes_outlive_a_server_that_is_not_ephemeral) { start(NULL, restarts, 0); }

static void unreachable(void)
{
    struct err err = { 0 };

    control_close(w.c);
    w.c = NULL;
    provider_fake_fail(w.fake, "list", ERR_UNAVAILABLE, 1);
    CHECK_INT(control_open(&w.options, &w.c, &err), -1);
    CHECK(w.c == NULL);
    open_control();
}

TEST(a_start_that_cannot_ask_the_provider_fails_and_ends_nothing) { start(NULL, unreachable, 0); }
