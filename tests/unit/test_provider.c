/* test_provider.c - one suite over the providers: what provider.h promises holds for the one in
 * memory, for the one that traces it, and for the one of this computer. */
#include "provider/provider.h"

#include "provider_rig.h"

/* ---- the suite ---- */

SUITE(a_machine_is_made_found_and_ended)
{
    struct machine_state state = { 0 };
    struct err err;
    const struct seen *s;

    if (make("a", &state, &err))
        CHECK_STR(err.msg, "");
    CHECK_STR(state.template, "base");
    CHECK_INT(state.network, NETWORK_NONE);
    CHECK_INT(state.limits.memory_bytes, limit_rows[LIMIT_MEMORY].def);
    CHECK_INT(listed("a").found, 1);
    CHECK_INT(p->ops->stat(p, ref_of("a"), &state, &err), 0);
    CHECK(state.memory_bytes && state.pids && !state.paused && !state.outdated);
    CHECK(state.left_ms > 0 && state.left_ms <= (int64_t)limit_rows[LIMIT_LIFETIME].def);
    CHECK_STR(state.template, "base");
    CHECK_INT(p->ops->destroy(p, ref_of("a"), &err), 0);
    s = find_event(MACHINE_ENDED, ref_of("a"));
    CHECK(s);
    CHECK_STR(s->reason, "request");
    CHECK_INT(s->limit, LIMIT_NONE);
    CHECK_INT(listed("a").found, 0);
    CHECK_INT(p->ops->stat(p, ref_of("a"), &state, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(count_events(MACHINE_ENDED), 1);
}

static void check_no_such(const char *ref)
{
    uint64_t flush_us;
    bool anew;
    struct machine_state state;
    struct limits l = { 0 };
    struct err err = { 0 };

    CHECK_INT(p->ops->stat(p, ref, &state, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->adopt(p, ref, &state, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->destroy(p, ref, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->limits(p, ref, &l, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->pause(p, ref, false, &flush_us, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->resume(p, ref, 0, &anew, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->snapshot(p, ref, "s1", &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->dial(p, ref, PROVIDER_GUEST_PORT, co_in(WAIT_MS), &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(p->ops->dial(p, ref, OPEN_PORT, co_in(WAIT_MS), &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
}

SUITE(what_is_not_there_is_not_found)
{
    check_no_such(ref_of("nobody"));
    check_no_such("");
    check_no_such("../../etc/passwd");
    check_no_such("a-name-that-is-longer-than-any-machine-can-have-it-for-sure");
}

SUITE(a_name_is_given_once)
{
    struct machine_state state;
    struct err err;

    must_make("twin");
    CHECK_INT(make("twin", &state, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(listed("twin").found, 1);
    check_guest("twin");
    CHECK_INT(count_events(MACHINE_ENDED), 0);
}

SUITE(an_unknown_template_is_named)
{
    struct order o = { .template = "no-such-template" };
    struct machine_state state;
    struct err err = { 0 };

    CHECK_INT(p->ops->create(p, ref_of("t"), &o, &state, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK(strstr(err.msg, "no-such-template"));
    CHECK_INT(listed("t").found, 0);
    o = plain_order();
    o.limits.memory_bytes = 1;
    CHECK_INT(p->ops->create(p, ref_of("t"), &o, &state, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(strstr(err.msg, "memory"));
    CHECK_INT(listed("t").all, 0);
    CHECK_INT(nseen, 0);
}

static int see_host(void *arg, const struct machine_template *t)
{
    if (!strcmp(t->name, "host"))
        CHECK_STR(t->kind, "host");
    *(int *)arg += !strcmp(t->name, "host");
    return 0;
}

SUITE(templates_begin_with_host)
{
    struct err err = { 0 };
    int hosts = 0;

    CHECK_INT(p->ops->templates(p, see_host, &hosts, &err), 0);
    CHECK_INT(hosts, 1);
}

SUITE(limits_change_while_it_runs)
{
    struct limits l = { .memory_bytes = 64 * MIB, .pids = 77 };
    struct machine_state state = { 0 };
    struct err err;

    must_make("l");
    CHECK_INT(p->ops->limits(p, ref_of("l"), &l, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("l"), &state, &err), 0);
    CHECK_INT(state.limits.memory_bytes, 64 * MIB);
    CHECK_INT(state.limits.pids, 77);
    CHECK_INT(state.limits.cpu_milli, limit_rows[LIMIT_CPU].def);
    l = (struct limits){ .pids = 1 };
    CHECK_INT(p->ops->limits(p, ref_of("l"), &l, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(p->ops->stat(p, ref_of("l"), &state, &err), 0);
    CHECK_INT(state.limits.pids, 77);
}

SUITE(a_machine_says_whose_it_is)
{
    struct order_mark mark = { .claim = ORDER_UNCLAIMED, .store = "s0" };
    struct limits l = { .pids = 78 };
    struct order o = plain_order();
    struct machine_state state = { 0 };
    struct err err = { 0 };

    o.mark = mark;
    CHECK_INT(p->ops->create(p, ref_of("m"), &o, &state, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("m"), &state, &err), 0);
    CHECK(!memcmp(&state.mark, &mark, sizeof(mark)));
    mark = (struct order_mark){ ORDER_CLAIMED, "s1", "ann", "u", "t", ORDER_PUBLIC };
    CHECK_INT(p->ops->claim(p, ref_of("m"), &l, &mark, &err), 0);
    CHECK_INT(p->ops->adopt(p, ref_of("m"), &state, &err), 0);
    CHECK(!memcmp(&state.mark, &mark, sizeof(mark)));
    CHECK_INT(state.limits.pids, 78);
    CHECK_INT(p->ops->limits(p, ref_of("m"), &(struct limits){ .pids = 79 }, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("m"), &state, &err), 0);
    CHECK(!memcmp(&state.mark, &mark, sizeof(mark))); /* it stays */
    CHECK_INT(p->ops->claim(p, ref_of("none"), &l, &mark, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
}

SUITE(a_lifetime_ends_it_and_says_so)
{
    struct limits l = { .lifetime_ms = 50 };
    const struct seen *s;
    struct err err;

    must_make("life");
    CHECK_INT(p->ops->limits(p, ref_of("life"), &l, &err), 0);
    s = await(MACHINE_ENDED, ref_of("life"));
    CHECK_STR(s->reason, "lifetime");
    CHECK_INT(s->limit, LIMIT_LIFETIME);
    CHECK(*s->text);
    CHECK_INT(listed("life").found, 0);
}

SUITE(the_guest_answers)
{
    struct order o = plain_order();
    struct machine_state state;
    struct err err = { 0 };

    o.flags = ORDER_EAGER;
    CHECK_INT(p->ops->create(p, ref_of("g"), &o, &state, &err), 0);
    for (int i = 0; i < 3; i++)
        check_guest("g");
}

/* A socket of the machine's own network, as a server inside would have it. */
static int listen_inside(const char *name, bool v6)
{
    struct sockaddr_in a4 = { .sin_family = AF_INET,
                              .sin_port = htons(OPEN_PORT),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons(OPEN_PORT),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    struct keep_request q = { .verb = KEEP_SOCKET, .u.socket = { OPEN_PORT, 1, v6 } };
    struct keep_reply reply;
    struct keep k;
    struct err err = { 0 };
    size_t n = 1;
    int fd = -1;

    snprintf(q.id, sizeof(q.id), "%s", ref_of(name));
    CHECK_INT(keep_connect(&k, keeper_rig.place, &keeper_rig.whose, &err), 0);
    CHECK_INT(keep_call(&k, &q, &reply, &fd, &n, NULL, NULL, &err), 0);
    keep_close(&k);
    CHECK_INT(v6 ? bind(fd, (struct sockaddr *)&a6, sizeof(a6))
                 : bind(fd, (struct sockaddr *)&a4, sizeof(a4)),
              0);
    CHECK_INT(listen(fd, 8), 0);
    return fd;
}

static void answer_once(void *arg)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    int fd = co_accept(*(int *)arg);

    CHECK(fd >= 0);
    CHECK_INT(co_write(fd, answer, strlen(answer), co_in(WAIT_MS)), 0);
    co_close(fd);
}

static void check_port(const char *name, bool v6)
{
    struct err err = { 0 };
    int listener = real ? listen_inside(name, v6) : -1, fd;

    if (real)
        CHECK_INT(co_go(answer_once, &listener, NULL), 0);
    fd = p->ops->dial(p, ref_of(name), OPEN_PORT, co_in(WAIT_MS), &err);
    if (fd < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    check_http(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 ");
    co_close(listener);
}

SUITE(ports_lead_inside_or_are_said_to_be_closed)
{
    struct err err = { 0 };

    must_make("port");
    check_port("port", false);
    check_port("port", true);
    CHECK_INT(p->ops->dial(p, ref_of("port"), PROVIDER_FAKE_CLOSED, co_in(WAIT_MS), &err), -1);
    CHECK_INT(err.code, ERR_UPSTREAM);
    CHECK_STR(err.msg, "port 1 is not open");
    CHECK_INT(p->ops->dial(p, ref_of("port"), 0, co_in(WAIT_MS), &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
}

SUITE(a_pause_is_seen_and_can_be_undone)
{
    struct machine_state state = { 0 };
    uint64_t flush_us = 0;
    bool anew = true;
    struct err err = { 0 };

    must_make("p");
    CHECK_INT(p->ops->pause(p, ref_of("p"), false, &flush_us, &err), 0);
    CHECK_INT(p->ops->pause(p, ref_of("p"), false, &flush_us, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("p"), &state, &err), 0);
    CHECK(state.paused && !state.asleep);
    CHECK_INT(p->ops->resume(p, ref_of("p"), 0, &anew, &err), 0);
    CHECK(!anew);
    CHECK_INT(p->ops->stat(p, ref_of("p"), &state, &err), 0);
    CHECK(!state.paused);
    check_guest("p");
    CHECK_INT(p->ops->resume(p, ref_of("p"), 0, &anew, &err), 0); /* one that runs: fine */
    CHECK_INT(p->ops->pause(p, ref_of("p"), false, &flush_us, &err), 0);
    CHECK_INT(p->ops->destroy(p, ref_of("p"), &err), 0);
}

SUITE(time_stands_still_for_a_paused_one)
{
    struct limits l = { .lifetime_ms = 10000 };
    struct machine_state state = { 0 };
    uint64_t flush_us;
    bool anew;
    struct err err = { 0 };

    must_make("still");
    CHECK_INT(p->ops->limits(p, ref_of("still"), &l, &err), 0);
    CHECK_INT(p->ops->pause(p, ref_of("still"), false, &flush_us, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("still"), &state, &err), 0);
    uint64_t left_ms = state.left_ms;
    CHECK(state.paused && left_ms > 0 && left_ms <= 10000);
    co_sleep(co_in(100));
    CHECK_INT(p->ops->stat(p, ref_of("still"), &state, &err), 0);
    CHECK_INT(state.left_ms, left_ms);
    CHECK_INT(p->ops->resume(p, ref_of("still"), 60000, &anew, &err), 0);
    CHECK_INT(p->ops->stat(p, ref_of("still"), &state, &err), 0);
    CHECK(state.left_ms > 59000 && state.left_ms <= 60000);
    CHECK_INT(state.limits.lifetime_ms, 60000);
    CHECK_INT(p->ops->destroy(p, ref_of("still"), &err), 0);
}

SUITE(a_hundred_are_made_at_once)
{
    all_at_once(MANY, "m", make_one);
    CHECK_INT(failures, 0);
    CHECK_INT(listed("m7").all, MANY);
    check_guest("m99");
    all_at_once(MANY, "m", end_one);
    CHECK_INT(failures, 0);
    CHECK_INT(listed("m7").all, 0);
    CHECK_INT(count_events(MACHINE_ENDED), MANY);
}

static int end_the_same(const char *name, struct err *err)
{
    (void)name;
    return p->ops->destroy(p, ref_of("same"), err) && err->code != ERR_NOT_FOUND ? -1 : 0;
}

SUITE(many_may_end_the_same_one)
{
    must_make("same");
    all_at_once(5, "x", end_the_same);
    CHECK_INT(failures, 0);
    CHECK_INT(listed("same").found, 0);
    CHECK_INT(count_events(MACHINE_ENDED), 1);
}

struct cut {
    bool done;
    int result;
};

static void make_and_be_cancelled(void *arg)
{
    struct cut *c = arg;
    struct machine_state state;
    struct err err;

    c->result = make("cut", &state, &err);
    c->done = true;
}

SUITE(a_create_that_was_cancelled_leaves_nothing)
{
    int64_t until = co_in(WAIT_MS);
    struct cut cut = { false };
    struct co_ref ref;

    CHECK_INT(co_go(make_and_be_cancelled, &cut, &ref), 0);
    co_pass();
    co_cancel(ref);
    while (!cut.done)
        co_sleep(co_in(1));
    if (!real) /* it had been made before anybody could cancel it */
        return;
#ifdef CO_THREADS
    if (!cut.result) { /* on threads that happens with real ones, too */
        CHECK_INT(p->ops->destroy(p, ref_of("cut"), &(struct err){ 0 }), 0);
        return;
    }
#endif
    CHECK_INT(cut.result, -1);
    while (listed("cut").found && co_now() < until)
        co_sleep(co_in(5));
    CHECK_INT(listed("cut").found, 0);
    CHECK_INT(nseen, 0);
}

/* ---- the fake's own ---- */

static void misbehave(void)
{
    struct machine_event over = { .kind = MACHINE_ENDED,
                                  .limit = LIMIT_MEMORY,
                                  .reason = "memory" };
    struct machine_state state;
    struct err err;
    int64_t began;

    provider_fake_fail(p, "create", ERR_NO_SPACE, 2);
    CHECK_INT(make("f", &state, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_INT(make("f", &state, &err), -1);
    CHECK_INT(listed("f").found, 0);
    must_make("f");
    provider_fake_delay(p, "stat", 30);
    began = clock_ms();
    CHECK_INT(p->ops->stat(p, ref_of("f"), &state, &err), 0);
    CHECK(clock_ms() - began >= 29);
    over.ref = ref_of("f");
    provider_fake_emit(p, &over);
    CHECK_STR(find_event(MACHINE_ENDED, ref_of("f"))->reason, "memory");
    CHECK_INT(listed("f").found, 0);
}

TEST(a_fake_fails_and_dawdles_on_request) { run(open_fake, misbehave); }

static void count(void)
{
    AUTO(buf_free) struct buf out = { 0 };
    struct machine_state state;
    struct err err;

    must_make("c");
    CHECK_INT(make("c", &state, &err), -1);
    provider_trace_metrics(p, &out);
    CHECK(strstr(out.data, "cove_provider_errors_total{op=\"create\"} 1\n"));
    CHECK(strstr(out.data, "cove_provider_seconds_count{op=\"create\"} 2\n"));
    CHECK(strstr(out.data, "cove_provider_seconds_bucket{op=\"create\",le=\"+Inf\"} 2\n"));
    CHECK(strstr(out.data, "cove_provider_seconds_count{op=\"dial\"} 0\n"));
}

TEST(traced_calls_are_counted) { run(open_traced, count); }
