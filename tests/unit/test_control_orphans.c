/* test_control_orphans.c - machines that the store does not know are set aside, not ended. */
#include "control_rig.h"

static char stranger[SANDBOX_ID + 1];
static struct order_mark mark; /* of the machine of the case */
static uint64_t lifetime_ms;

/* ---- worlds ---- */

static void machine(void)
{
    struct order order = { .template = "base",
                           .network = ORDER_NET_OPEN,
                           .limits = { .lifetime_ms = lifetime_ms },
                           .mark = mark };
    struct sandbox name = { 0 };
    struct machine_state m;
    struct err err = { 0 };

    sandbox_new_id(&name);
    memcpy(stranger, name.id, sizeof(stranger));
    sandbox_finish(&name);
    CHECK_INT(w.fake->ops->create(w.fake, stranger, &order, &m, &err), 0);
}

static void ours(enum order_claim claim)
{
    lifetime_ms = 302000;
    mark = (struct order_mark){ .claim = claim, .owner = "alice", .flags = ORDER_PUBLIC };
    value_of(STORE_MARK, mark.store);
    machine();
}

static void claimed(void) { ours(ORDER_CLAIMED); }
static void unclaimed(void) { ours(ORDER_UNCLAIMED); }

static void anothers(void)
{
    lifetime_ms = 302000;
    mark = (struct order_mark){ .claim = ORDER_UNCLAIMED, .store = "another" };
    machine();
}

static void unmarked(void) /* a former release made it */
{
    lifetime_ms = 302000;
    mark = (struct order_mark){ 0 };
    machine();
}

static void waited(void)
{
    lifetime_ms = 3600000 + 600000 + 777;
    mark = (struct order_mark){ 0 };
    machine();
}

static void waited_in_this_store(void)
{
    char name[ORDER_ID];
    struct err err = { 0 };

    value_of(STORE_MARK, name);
    CHECK_INT(w.store->ops->value_set(w.store, STORE_FORMER, str_of(name), &err), 0);
    waited();
}

static void waited_before_a_restore(void)
{
    struct err err = { 0 };

    CHECK_INT(w.store->ops->value_set(w.store, STORE_FORMER, STR("another"), &err), 0);
    waited();
}

static void stand_still(bool asleep)
{
    struct err err = { 0 };
    uint64_t flush_us;

    CHECK_INT(w.fake->ops->pause(w.fake, stranger, false, &flush_us, &err), 0);
    if (asleep)
        provider_fake_sleep(w.fake, stranger);
}

static void asleep(void)
{
    claimed();
    stand_still(true);
}

static void frozen(void)
{
    claimed();
    stand_still(false);
}

static void start(void (*before)(void), void (*fn)(void), int pool)
{
    run_frame((struct frame){ .fn = fn, .before = before, .lasts = true }, pool);
}

/* ---- what there is ---- */

static int keep_last(void *arg, const struct orphan *o)
{
    *(struct orphan *)arg = *o;
    return 0;
}

static int count_one(void *arg, const struct orphan *o)
{
    CHECK(o->found_ms > 0);
    ++*(int *)arg;
    return 0;
}

static int orphans(void)
{
    struct err err = { 0 };
    int n = 0;

    CHECK_INT(control_orphan_list(w.c, count_one, &n, &err), 0);
    return n;
}

static int count_row(void *arg, const struct orphan_row *o)
{
    CHECK_STR(o->id, stranger);
    ++*(int *)arg;
    return 0;
}

static int rows(void)
{
    struct err err = { 0 };
    int n = 0;

    CHECK_INT(w.store->ops->orphan_list(w.store, count_row, &n, &err), 0);
    return n;
}

enum { DAY = 86400 * 1000 };

static void check_left(const struct orphan *o, int64_t ms)
{
    int64_t left = o->until_ms - clock_wall_ms();

    if (left > ms || left < ms - 60000)
        test_fail(__FILE__, __LINE__, "%lld ms are left of %lld", (long long)left, (long long)ms);
}

static void check_aside(const char *why)
{
    struct orphan o = { 0 };
    struct sandbox *none;
    struct err err = { 0 };

    CHECK_INT(orphans(), 1);
    CHECK_INT(rows(), 1);
    CHECK_INT(machines(), 1);
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(control_orphan_list(w.c, keep_last, &o, &err), 0);
    CHECK_STR(o.id, stranger);
    check_left(&o, 7 * DAY);
    if (!strstr(o.reason, why))
        test_fail(__FILE__, __LINE__, "the reason is '%s'", o.reason);
    none = control_find(w.c, &w.admin, str_of(stranger), &err);
    CHECK(!none); /* it is served to nobody */
}

/* ---- who is one ---- */

static void is_aside(void)
{
    struct orphan o = { 0 }, again = { 0 };
    struct err err = { 0 };

    check_aside("of this database");
    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &o, &err), 0);
    CHECK_STR(o.state.mark.owner, "alice");
    CHECK_STR(o.state.template, "base");
    co_sleep(co_in(5));
    reopen_control();
    check_aside("of this database");
    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &again, &err), 0);
    CHECK_INT(again.found_ms, o.found_ms); /* its time does not begin again */
}

TEST(a_machine_without_a_record_is_set_aside) { start(claimed, is_aside, 0); }

static void is_of_another(void) { check_aside("of another database"); }

TEST(and_one_that_waited_for_another_database) { start(anothers, is_of_another, 4); }

static void newer(void)
{
    lifetime_ms = 302000;
    mark = (struct order_mark){ .claim = ORDER_CLAIMED, .store = "another", .owner = "ann" };
    machine();
}

static void is_newer(void) { check_aside("newer than the backup"); }

TEST(and_one_of_before_a_backup_was_put_back) { start(newer, is_newer, 4); }

static void is_old(void) { check_aside("a former release made it"); }

TEST(and_one_that_does_not_say_whose_it_is) { start(unmarked, is_old, 0); }

static void none_left(void)
{
    CHECK_INT(orphans(), 0);
    CHECK_INT(rows(), 0);
    CHECK_INT(machines(), 0);
}

TEST(one_that_nobody_was_told_of_is_ended) { start(unclaimed, none_left, 0); }
TEST(and_one_that_waited_in_a_former_release_if_none_is_wanted)
{
    start(waited_in_this_store, none_left, 0);
}

TEST(but_not_if_another_store_may_have_told_somebody)
{
    start(waited, is_old, 0);
    start(waited, is_old, 4);
    start(waited_before_a_restore, is_old, 4);
}

static void is_used(void)
{
    struct create_spec s = spec();

    CHECK_STR(create(&w.alice, &s)->id, stranger);
    CHECK_INT(orphans(), 0);
}

static void waits(void)
{
    unclaimed();
    CHECK_INT(w.fake->ops->destroy(w.fake, stranger, &(struct err){ 0 }), 0);
    lifetime_ms = 3600000 + 600000 + 777;
    machine();
}

TEST(one_that_waited_in_the_pool_waits_again) { start(waits, is_used, 1); }

static void begins(void)
{
    unclaimed();
    provider_fake_fail(w.fake, "adopt", ERR_CONFLICT, 3);
}

TEST(one_that_is_still_being_made_is_waited_for) { start(begins, none_left, 0); }

static void ended_row(void)
{
    struct sandbox row = { .owner = w.alice.user, .state = SANDBOX_CREATING };
    static char base[] = "base", fake[] = "fake", v1[] = "v1";
    struct err err = { 0 };
    char node[ORDER_ID];

    value_of("node", node);
    claimed();
    sandbox_new_id(&row);
    memcpy(row.id, stranger, sizeof(row.id));
    row.template = base;
    row.provider = fake;
    row.node = node;
    row.facade = v1;
    CHECK_INT(w.store->ops->sandbox_add(w.store, &row, NULL, NULL, &err), 0);
    row.state = SANDBOX_ENDED;
    CHECK_INT(w.store->ops->sandbox_save(w.store, &row, SANDBOX_CREATING, NULL, &err), 0);
}

TEST(one_whose_record_says_that_it_has_ended_is_ended) { start(ended_row, none_left, 0); }

static void unreadable(void)
{
    claimed();
    provider_fake_unreachable(w.fake, stranger, "its note cannot be read");
}

static void is_unreachable(void)
{
    struct sandbox *s;
    struct err err = { 0 };

    check_aside("its note cannot be read");
    CHECK_INT(control_orphan_adopt(w.c, &w.admin, str_of(stranger), "bob", false, &s, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, "its note cannot be read"));
    check_aside("its note cannot be read");
    CHECK_INT(control_orphan_end(w.c, &w.admin, str_of(stranger), &err), 0);
    none_left();
}

TEST(one_that_cannot_be_read_is_listed_with_the_reason) { start(unreadable, is_unreachable, 0); }

/* ---- its end ---- */

static void can_be_ended(void)
{
    struct err err = { 0 };

    CHECK_INT(control_orphan_end(w.c, &w.admin, str_of(stranger), &err), 0);
    wait_until(rows, 0);
    none_left();
    CHECK_INT(control_orphan_end(w.c, &w.admin, str_of(stranger), &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
}

TEST(an_admin_can_end_it) { start(claimed, can_be_ended, 0); }

static void ends_by_itself(void)
{
    struct machine_event e = { .kind = MACHINE_ENDED, .ref = stranger, .limit = LIMIT_NONE };

    provider_fake_emit(w.fake, &e);
    wait_until(rows, 0);
    none_left();
}

TEST(its_own_end_is_heard) { start(claimed, ends_by_itself, 0); }

static void short_lived(void)
{
    ours(ORDER_CLAIMED);
    CHECK_INT(w.fake->ops->limits(w.fake, stranger, &(struct limits){ .lifetime_ms = 1000 },
                                  &(struct err){ 0 }),
              0);
}

static void is_over(void)
{
    wait_until(machines, 0);
    wait_until(rows, 0);
    none_left();
}

TEST(its_deadline_holds) { start(short_lived, is_over, 0); }

static void soon(void)
{
    claimed();
    set("control.orphan-retention-s=1");
}

TEST(its_time_passes)
{
    start(soon, is_over, 0);
    set("control.orphan-retention-s=604800");
}

static void is_not_ended_yet(void)
{
    provider_fake_fail(w.fake, "destroy", ERR_UNAVAILABLE, 1);
    is_over();
}

TEST(and_an_end_that_fails_is_tried_again)
{
    start(soon, is_not_ended_yet, 0);
    set("control.orphan-retention-s=604800");
}

/* ---- and no clock on the wall ---- */

static void row_of(int64_t found_ms, int64_t kept_ms)
{
    struct orphan_row o = { .found_ms = found_ms, .kept_ms = kept_ms, .reason = "r" };
    struct err err = { 0 };

    claimed();
    stand_still(false); /* it has no deadline of its own then */
    memcpy(o.id, stranger, sizeof(o.id));
    CHECK_INT(w.store->ops->orphan_put(w.store, &o, &err), 0);
}

static void long_ago(void) { row_of(1, 0); } /* the clock was at its beginning, and is set now */
static void in_time_to_come(void) { row_of(clock_wall_ms() + 365 * (int64_t)DAY, 0); }

static void has_all_its_time(void)
{
    co_sleep(co_in(5));
    check_aside("of this database");
}

TEST(a_clock_that_was_set_ends_nothing)
{
    start(long_ago, has_all_its_time, 0);
    start(in_time_to_come, has_all_its_time, 0);
}

static int64_t written;

static int read_written(void *arg, const struct orphan_row *o)
{
    *(int64_t *)arg = o->kept_ms;
    return 0;
}

UNUSED static int is_written(void)
{
    struct err err = { 0 };

    CHECK_INT(w.store->ops->orphan_list(w.store, read_written, &written, &err), 0);
    return written >= DAY + 3 * 3600000;
}

static void goes_on(void)
{
    struct orphan o = { 0 };
    struct err err = { 0 };

    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &o, &err), 0);
    check_left(&o, 6 * DAY);
    co_sleep(co_in(1)); /* its services have begun */
    clock_skip(3 * 3600000);
    co_sleep(co_in(1)); /* the loop looks at the clock */
    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &o, &err), 0);
    check_left(&o, 6 * DAY - 3 * 3600000);
#ifndef CO_THREADS /* where a sleep does not follow the clock that was moved */
    wait_until(is_written, 1);
#endif
    clock_skip(60000);
    co_sleep(co_in(1));
    reopen_control();
    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &o, &err), 0);
    check_left(&o, 6 * DAY - 3 * 3600000 - 60000);
}

static void since_a_day(void) { row_of(1000, DAY); }

TEST(what_servers_have_kept_it_counts_across_restarts) { start(since_a_day, goes_on, 0); }

static void to_its_end(void) { row_of(clock_wall_ms(), 7 * DAY); }

TEST(and_is_up_at_the_next_start_if_it_was) { start(to_its_end, is_over, 0); }

static void for_ever(void)
{
    struct orphan o;
    struct err err = { 0 };

    set("control.orphan-retention-s=0");
    CHECK_INT(control_orphan_get(w.c, str_of(stranger), &o, &err), 0);
    CHECK_INT(o.until_ms, 0);
    set("control.orphan-retention-s=604800");
}

TEST(or_never) { start(claimed, for_ever, 0); }

static void counts(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    set("control.sandboxes-max=1");
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK_INT(control_orphan_end(w.c, &w.admin, str_of(stranger), &err), 0);
    create(&w.alice, &s);
    set("control.sandboxes-max=2000");
}

TEST(it_counts_as_a_sandbox) { start(claimed, counts, 0); }

/* ---- adopting it ---- */

static struct sandbox *adopted(const char *owner, bool restart)
{
    struct sandbox *s = NULL;
    struct err err = { 0 };

    if (control_orphan_adopt(w.c, &w.admin, str_of(stranger), owner, restart, &s, &err))
        test_fail(__FILE__, __LINE__, "adopt: %s", err.msg);
    CHECK_INT(orphans(), 0);
    CHECK_INT(rows(), 0);
    CHECK_INT(machines(), 1);
    CHECK_STR(s->id, stranger);
    CHECK_STR(s->template, "base");
    CHECK_INT(strlen(s->token), SANDBOX_TOKEN);
    CHECK_STR(events_of(stranger), "adopted");
    return s;
}

static void becomes_one(void)
{
    struct sandbox *s = adopted("bob", false);
    struct machine_state m;
    struct err err = { 0 };

    CHECK_INT(s->state, SANDBOX_RUNNING);
    CHECK(!s->public); /* whatever its mark says: nobody knows where its services listen */
    CHECK(control_left_ms(s) > 290000 && control_left_ms(s) <= 300000);
    CHECK(control_find(w.c, &w.bob, str_of(stranger), &err) == s);
    CHECK(!control_find(w.c, &w.alice, str_of(stranger), &err));
    CHECK_INT(w.fake->ops->stat(w.fake, stranger, &m, &err), 0);
    CHECK_STR(m.mark.owner, "bob");
    CHECK_STR(m.mark.token, s->token);
    CHECK_STR(m.mark.uuid, s->uuid);
    reopen_control();
    s = control_find(w.c, &w.bob, str_of(stranger), &err);
    CHECK(s && s->state == SANDBOX_RUNNING);
    CHECK_INT(control_kill(w.c, &w.bob, s, NULL, &err), 0);
    none_left();
}

TEST(a_running_one_becomes_a_users_sandbox) { start(claimed, becomes_one, 0); }

static void stays_paused(void)
{
    struct sandbox *s = adopted("alice", false);
    struct err err = { 0 };

    CHECK_INT(s->state, SANDBOX_PAUSED);
    reopen_control();
    s = control_find(w.c, &w.alice, str_of(stranger), &err);
    CHECK(s && s->state == SANDBOX_PAUSED);
    CHECK_INT(control_resume(w.c, &w.alice, s, -1, true, &err), 0);
    CHECK_INT(s->state, SANDBOX_RUNNING);
}

TEST(a_frozen_one_stays_paused) { start(frozen, stays_paused, 0); }
TEST(and_one_of_which_only_files_are_left) { start(asleep, stays_paused, 0); }

static void only_files(void)
{
    const struct sandbox *s = adopted("alice", true);
    struct machine_state m;
    struct err err = { 0 };

    CHECK_INT(s->state, SANDBOX_PAUSED);
    CHECK_INT(w.fake->ops->stat(w.fake, stranger, &m, &err), 0);
    CHECK(m.asleep);
}

TEST(with_restart_only_its_files_are_taken_over) { start(claimed, only_files, 0); }

static void is_refused(void)
{
    struct sandbox *s;
    struct err err = { 0 };

    CHECK_INT(control_orphan_adopt(w.c, &w.admin, str_of(stranger), "nobody", false, &s, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(strstr(err.msg, "there is no user 'nobody'"));
    err = (struct err){ 0 };
    CHECK_INT(control_orphan_adopt(w.c, &w.admin, STR("i0"), "bob", false, &s, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    provider_fake_fail(w.fake, "claim", ERR_UNAVAILABLE, 1);
    CHECK_INT(control_orphan_adopt(w.c, &w.admin, str_of(stranger), "bob", false, &s, &err), -1);
    check_aside("of this database");
    add_fails = 1;
    CHECK_INT(control_orphan_adopt(w.c, &w.admin, str_of(stranger), "bob", false, &s, &err), -1);
    check_aside("of this database");
    adopted("bob", false);
}

TEST(an_adoption_that_fails_leaves_it_set_aside) { start(claimed, is_refused, 0); }
