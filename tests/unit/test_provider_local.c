/* test_provider_local.c - the provider of this computer while its keeper comes and goes. */
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "provider_rig.h"

LOCAL(machines_and_their_events_outlive_who_made_them)
{
    struct machine_state state = { 0 };
    struct err err;

    must_make("heir");
    provider_closep(&p);
    p = open_local();
    CHECK_INT(listed("heir").found, 1);
    CHECK_INT(p->ops->adopt(p, ref_of("heir"), &state, &err), 0);
    CHECK_STR(state.template, "base");
    check_guest("heir");
    CHECK_INT(p->ops->destroy(p, ref_of("heir"), &err), 0);
    CHECK(find_event(MACHINE_ENDED, ref_of("heir")));
}

LOCAL(another_programs_machine_is_not_listed)
{
    struct keep_request q = { .verb = KEEP_CREATE, .u.create.flags = ORDER_TIED };
    struct keep_reply reply;
    struct keep k;
    struct err err = { 0 };

    snprintf(q.id, sizeof(q.id), "%s", ref_of("tied"));
    snprintf(q.u.create.template, sizeof(q.u.create.template), "host");
    CHECK_INT(keep_connect(&k, keeper_rig.place, &keeper_rig.whose, &err), 0);
    CHECK_INT(keep_call(&k, &q, &reply, NULL, NULL, NULL, NULL, &err), 0);
    CHECK_INT(listed("tied").found, 0);
    keep_close(&k);
}

LOCAL(a_killed_keeper_is_replaced_and_nothing_is_lost)
{
    struct limits l = { .lifetime_ms = 600000 };
    struct machine_state state = { 0 };
    uint64_t flush_us;
    struct err err;

    must_make("s1");
    must_make("s2");
    CHECK_INT(p->ops->pause(p, ref_of("s2"), false, &flush_us, &err), 0);
    keeper_rig_say(RIG_KILL);
    await(MACHINE_LOST, "");
    keeper_rig_say(RIG_START);
    CHECK_INT(p->ops->limits(p, ref_of("s1"), &l, &err), 0); /* waits for it */
    check_guest("s1");
    await(MACHINE_REGAINED, "");
    CHECK_INT(p->ops->stat(p, ref_of("s2"), &state, &err), 0);
    CHECK(state.paused);
    CHECK_INT(count_events(MACHINE_ENDED), 0);
    CHECK_INT(count_events(MACHINE_LOST), 1);
    l.lifetime_ms = 20;
    CHECK_INT(p->ops->limits(p, ref_of("s1"), &l, &err), 0);
    CHECK_STR(await(MACHINE_ENDED, ref_of("s1"))->reason, "lifetime");
}

/* Killed while no keeper runs; one that is just dying would be adopted by the next. */
static void dies_unseen(const char *name)
{
    struct keep_request q = { .verb = KEEP_STAT };
    struct keep_reply reply;
    struct pollfd p1 = { .events = POLLIN };
    struct keep k;
    struct err err = { 0 };

    snprintf(q.id, sizeof(q.id), "%s", ref_of(name));
    CHECK_INT(keep_connect(&k, keeper_rig.place, &keeper_rig.whose, &err), 0);
    CHECK_INT(keep_call(&k, &q, &reply, NULL, NULL, NULL, NULL, &err), 0);
    keep_close(&k);
    p1.fd = (int)syscall(SYS_pidfd_open, reply.u.state.pid, 0);
    CHECK(p1.fd >= 0);
    keeper_rig_say(RIG_KILL);
    CHECK_INT(kill(reply.u.state.pid, SIGKILL), 0);
    CHECK_INT(poll(&p1, 1, WAIT_MS), 1);
    close(p1.fd);
}

LOCAL(what_ended_while_no_keeper_ran_is_told)
{
    must_make("gone");
    dies_unseen("gone");
    keeper_rig_say(RIG_START);
    CHECK_STR(await(MACHINE_ENDED, ref_of("gone"))->reason, "itself");
    await(MACHINE_REGAINED, "");
    CHECK_INT(listed("gone").found, 0);
}

/* Whether that is its end only its record knows. */
LOCAL(what_was_found_by_its_files_alone_has_not_ended)
{
    const struct order_mark mark = { .claim = ORDER_CLAIMED, .store = "s", .owner = "ann" };
    struct machine_state state = { 0 };
    char record[256];
    struct err err = { 0 };

    must_make("stray");
    CHECK_INT(p->ops->claim(p, ref_of("stray"), &(struct limits){ 0 }, &mark, &err), 0);
    dies_unseen("stray");
    snprintf(record, sizeof(record), "%s/boxes/%s", keeper_rig.place, ref_of("stray"));
    CHECK_INT(unlink(record), 0);
    keeper_rig_say(RIG_START);
    await(MACHINE_REGAINED, "");
    CHECK(find_event(MACHINE_ASTRAY, ref_of("stray")));
    CHECK_INT(count_events(MACHINE_ENDED), 0);
    CHECK_INT(p->ops->adopt(p, ref_of("stray"), &state, &err), 0);
    CHECK(state.astray && state.asleep);
    CHECK_INT(p->ops->destroy(p, ref_of("stray"), &err), 0);
    CHECK(find_event(MACHINE_ENDED, ref_of("stray")));
}

/* As a server is while strangers hold all the connections there may be. */
LOCAL(a_full_table_is_the_error_of_a_request_and_not_the_keepers_end)
{
    struct machine_state state;
    struct rlimit before, full;
    struct err err = { 0 };
    int top;

    must_make("s1");
    check_guest("s1"); /* the connection that came with it is used up */
    top = dup(0);
    close(top);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
    full = (struct rlimit){ (rlim_t)top, before.rlim_max };
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &full), 0);
    CHECK_INT(p->ops->dial(p, ref_of("s1"), OPEN_PORT, co_in(WAIT_MS), &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, "RLIMIT_NOFILE"));
    CHECK_INT(make("s2", &state, &err), 0); /* its first connection is lost, it is not */
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_INT(count_events(MACHINE_LOST), 0);
    check_guest("s1");
    check_guest("s2");
}

static int made;

static int make_perhaps(const char *name, struct err *err)
{
    struct machine_state state;

    if (!make(name, &state, err)) {
        check_guest(name);
        made++;
    }
    return 0;
}

static void kill_keeper(void *arg)
{
    co_sleep(co_in(*(const int64_t *)arg));
    keeper_rig_say(RIG_KILL);
    keeper_rig_say(RIG_START);
}

/* Killed at several moments of a burst: what was said to be made is there, what was not is not. */
LOCAL(creates_under_a_dying_keeper_are_whole_or_nothing)
{
    static const int64_t moments[] = { 0, 3, 8, 15 };
    int64_t until = co_in(4 * WAIT_MS);

    for (size_t i = 0; i < ARRAY_LEN(moments); i++) {
        char prefix[4] = { 'k', (char)('a' + i), 0 };

        made = 0;
        CHECK_INT(co_go(kill_keeper, (void *)(size_t)&moments[i], NULL), 0);
        all_at_once(20, prefix, make_perhaps);
        printf("# killed after %lld ms: %d of 20 made\n", (long long)moments[i], made);
        while (listed("x").all != (size_t)made && co_now() < until)
            co_sleep(co_in(10)); /* given up, and ended in the background */
        CHECK_INT(listed("x").all, made);
        if (made == 20)
            all_at_once(20, prefix, end_one);
        else
            p->ops->list(p, kill_ref, NULL, &(struct err){ 0 });
        CHECK_INT(listed("x").all, 0);
    }
}

LOCAL(without_a_keeper_calls_fail_in_time)
{
    struct provider_limits had = provider_limits;
    struct machine_state state;
    struct provider *none = NULL;
    struct err err = { 0 };

    must_make("w");
    keeper_rig_say(RIG_KILL);
    provider_limits.wait_ms = provider_limits.start_ms = 50;
    CHECK_INT(p->ops->stat(p, ref_of("w"), &state, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, "keeper"));
    CHECK_INT(
        provider_local(&(struct keep_where){ .dir = keeper_rig.dir }, on_event, NULL, &none, &err),
        -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    provider_limits = had;
    keeper_rig_say(RIG_START);
    CHECK_INT(p->ops->stat(p, ref_of("w"), &state, &err), 0);
}

struct slow {
    bool begun, done;
};

static void slow_stat(void *arg)
{
    struct slow *s = arg;
    struct machine_state state;
    struct err err = { 0 };

    s->begun = true;
    CHECK_INT(p->ops->stat(p, ref_of("late"), &state, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    s->done = true;
}

LOCAL(closing_it_ends_calls_under_way)
{
    struct slow s = { false };

    must_make("late");
    keeper_rig_say(RIG_KILL);
    await(MACHINE_LOST, "");
    CHECK_INT(co_go(slow_stat, &s, NULL), 0);
    test_await(&s.begun);
    co_sleep(co_in(20));
    CHECK(!s.done);
    provider_closep(&p);
    test_await(&s.done);
    keeper_rig_say(RIG_START);
    p = open_local();
}
