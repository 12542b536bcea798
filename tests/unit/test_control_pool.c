/* test_control_pool.c - machines made ahead, idempotency, and failures at each step of a create:
 * whatever fails, nothing is left. */
#include <fcntl.h>

#include "control_rig.h"

static int ready(void) /* machines that wait, in all pools */
{
    AUTO(buf_free) struct buf b = { 0 };
    int n = 0;

    control_metrics(w.c, &b);
    for (const char *at = b.data; (at = strstr(at, "\ncove_pool_ready{")); at++)
        n += (int)strtol(strchr(at, ' '), NULL, 10);
    return n;
}

static int surplus(void) { return machines() - sandboxes() - ready(); }

static void claimed(void)
{
    struct create_spec s = spec();
    struct machine_state m;
    struct sandbox *b;
    struct err err = { 0 };

    wait_until(ready, 3);
    s.limits.memory_bytes = 32 << 20;
    b = create(&w.alice, &s);
    CHECK_STR(events_of(b->id), "created started");
    CHECK_INT(b->limits.memory_bytes, 32 << 20);
    CHECK_INT(control_stat(w.c, b, &m, &err), 0);
    CHECK_INT(m.limits.memory_bytes, 32 << 20);
    CHECK_INT(m.limits.lifetime_ms, 302000);
    wait_until(ready, 3);
}

TEST(a_waiting_machine_is_claimed_with_new_limits_and_replaced) { run(claimed, 3); }

static int warm_count(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *at;

    control_metrics(w.c, &b);
    at = strstr(b.data, "created_total{kind=\"warm\"} ");
    CHECK(at != NULL);
    return (int)strtol(strchr(at, ' '), NULL, 10);
}

static void guarded(void)
{
    struct create_spec s = spec();
    struct machine_state m = { 0 };
    struct sandbox *b;
    struct err err = { 0 };

    wait_until(ready, 1);
    provider_fake_fail(w.fake, "limits", ERR_UNAVAILABLE, 1);
    b = create(&w.alice, &s); /* its lifetime is set after the answer, and again if that fails */
    control_hold(b);
    CHECK_INT(warm_count(), 1);
    for (int i = 0; i < 100 && m.limits.lifetime_ms != 302000; i++) {
        co_sleep(co_in(20));
        CHECK_INT(control_stat(w.c, b, &m, &err), 0);
    }
    CHECK_INT(m.limits.lifetime_ms, 302000);
    control_release(b);
}

TEST(the_provider_watches_over_a_claimed_machine_too) { run(guarded, 1); }

struct burst {
    int left, failed;
    struct co_cond done;
};

static void burst_one(void *arg)
{
    struct burst *b = arg;
    struct create_spec s = spec();
    struct sandbox *out;
    struct err err;

    b->failed += try_create(&w.alice, &s, &out, &err) != 0;
    if (!--b->left)
        co_cond_wake(&b->done);
}

static void burst(void)
{
    struct burst b = { .left = 100 };
    int64_t since;

    wait_until(ready, 4);
    provider_fake_delay(w.fake, "create", 200);
    co_cond_init(&b.done);
    since = clock_ms();
    for (int i = 0; i < 100; i++)
        CHECK_INT(co_go(burst_one, &b, NULL), 0);
    while (b.left)
        CHECK_INT(co_cond_wait(&b.done, co_in(30000)), 0);
    CHECK_INT(b.failed, 0);
    CHECK(clock_ms() - since < 12000); /* in turn it would be twenty seconds */
    CHECK_INT(warm_count(), 4);
    provider_fake_delay(w.fake, "create", 0);
    CHECK_INT(sandboxes(), 100);
    wait_until(ready, 4);
}

TEST(a_burst_beyond_the_pool_is_made_at_once) { run(burst, 4); }

static void cold(void)
{
    struct create_spec s = spec();

    wait_until(ready, 1);
    s.strict = true;
    create(&w.alice, &s);
    s = spec();
    s.limits.open_files = 100;
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 0);
    s = spec();
    s.network = NETWORK_NONE;
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 0);
    wait_until(ready, 2); /* that kind is kept from now on */
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 1);
}

TEST(what_the_pool_cannot_give_is_made_cold_and_learnt) { run(cold, 1); }

static int news[2]; /* a pipe */

static void with_news(void)
{
    CHECK_INT(pipe2(news, O_CLOEXEC | O_NONBLOCK), 0);
    w.options.template_news = news[0];
}

/* Not once the server next looks by itself, ten seconds later. */
static void renamed(void)
{
    struct create_spec s = spec();

    wait_until(ready, 2);
    provider_fake_template(w.fake, "base");
    CHECK_INT(write(news[1], "!", 1), 1);
    provider_fake_fail(w.fake, "templates", ERR_UNAVAILABLE, 1);
    create(&w.alice, &s); /* what it is now is not known: not one of those that wait */
    CHECK_INT(warm_count(), 0);
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 0);
    wait_until(ready, 2);
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 1);
    provider_fake_template(w.fake, "");
    CHECK_INT(write(news[1], "!", 1), 1);
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 1);
    CHECK_INT(surplus(), 0);
    close(news[0]);
    close(news[1]);
    w.options.template_news = 0;
}

TEST(a_template_that_takes_an_alias_is_what_the_next_create_gets)
{
    struct frame f = { .fn = renamed, .before = with_news };

    set("pool.size=2");
    test_co(frame, &f);
}

static int pool_made(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    const char *at;

    control_metrics(w.c, &b);
    at = strstr(b.data, "\ncove_pool_made_total ");
    CHECK(at != NULL);
    return (int)strtol(strchr(at, ' '), NULL, 10);
}

static void overtaken(void)
{
    struct create_spec s = spec();

    co_sleep(co_in(100));
    provider_fake_template(w.fake, "base"); /* while the first are being made */
    CHECK_INT(write(news[1], "!", 1), 1);
    create(&w.alice, &s);
    CHECK_INT(warm_count(), 0);
    wait_until(pool_made, 4); /* two of them were of another template */
    wait_until(ready, 2);
    CHECK_INT(surplus(), 0);
    close(news[0]);
    close(news[1]);
    w.options.template_news = 0;
}

static void with_news_and_slowly(void)
{
    with_news();
    provider_fake_delay(w.fake, "create", 300);
}

TEST(machines_that_were_begun_before_it_are_not_given_out)
{
    struct frame f = { .fn = overtaken, .before = with_news_and_slowly };

    set("pool.size=2");
    test_co(frame, &f);
}

static int first_ref(void *arg, const char *ref)
{
    snprintf(arg, SANDBOX_ID + 1, "%s", ref);
    return 1;
}

static void dead(void)
{
    char ref[SANDBOX_ID + 1] = "";
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err = { 0 };

    wait_until(ready, 1);
    CHECK_INT(w.fake->ops->list(w.fake, first_ref, ref, &err), 0);
    CHECK_INT(w.fake->ops->destroy(w.fake, ref, &err), 0); /* behind the pool's back, with a word */
    wait_until(ready, 1);
    provider_fake_fail(w.fake, "limits", ERR_UPSTREAM, 1);
    s.limits.cpu_milli = 500;
    b = create(&w.alice, &s); /* of no use: another takes its place and its name */
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK_INT(b->limits.cpu_milli, 500);
    CHECK_INT(warm_count(), 0);
    wait_until(ready, 1);
    CHECK_INT(sandboxes(), 1);
    wait_until(surplus, 0);
}

TEST(a_dead_machine_in_the_pool_fails_nobody) { run(dead, 1); }

static void bounded(void)
{
    AUTO(buf_free) struct buf b = { 0 };

    co_sleep(co_in(200));
    control_metrics(w.c, &b); /* a fake machine uses 4 MiB */
    CHECK(strstr(b.data, "cove_pool_ready{template=\"base\",network=\"open\"} 2") != NULL);
    CHECK_INT(machines(), 2);
}

TEST(the_pool_is_bounded_by_memory)
{
    set("pool.memory-bytes=10000000");
    run(bounded, 10);
    set("pool.memory-bytes=67108864");
}

/* ---- failures ---- */

static void fails(void)
{
    static const struct {
        const char *op;
        enum err_code code;
    } steps[] = {
        { "create", ERR_NO_SPACE },
        { "create", ERR_UNAVAILABLE },
        { "dial", ERR_UNAVAILABLE },
    };
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        provider_fake_fail(w.fake, steps[i].op, steps[i].code, 1);
        CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
        CHECK_INT(err.code, steps[i].code);
        CHECK_INT(machines(), 0);
        CHECK_INT(sandboxes(), 0);
        CHECK_STR(last_reason(), err.msg);
    }
    add_fails = 1;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_INT(machines(), 0);
    save_fails = 1;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_INT(machines(), 0);
    CHECK_INT(sandboxes(), 0);
    save_fails = 2; /* neither as running nor as ended: written a moment later */
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(machines(), 0);
    create(&w.alice, &s);
}

TEST(a_create_that_fails_at_any_step_leaves_nothing) { run(fails, 0); }

static void fails_warm(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    for (int secure = 0; secure < 2; secure++) {
        s.secure = secure;
        wait_until(ready, 1);
        add_fails = 1;
        CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
        CHECK_INT(sandboxes(), 0);
        wait_until(ready, 1);
        save_fails = 1;
        CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
        CHECK_INT(sandboxes(), 0);
        wait_until(ready, 1);
        wait_until(surplus, 0);
    }
}

TEST(so_does_one_that_had_a_waiting_machine) { run(fails_warm, 1); }

static void unborn(void *arg)
{
    struct machine_event e = { .kind = MACHINE_ENDED,
                               .limit = LIMIT_NONE,
                               .reason = "failed",
                               .text = "mount: no such device" };
    char ref[SANDBOX_ID + 1] = "";
    struct err err = { 0 };

    (void)arg;
    co_sleep(co_in(30));
    w.fake->ops->list(w.fake, first_ref, ref, &err);
    e.ref = ref;
    provider_fake_emit(w.fake, &e);
}

static void breaks(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    provider_fake_delay(w.fake, "dial", 100);
    CHECK_INT(co_go(unborn, NULL, NULL), 0);
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK(strstr(err.msg, "mount: no such device") != NULL);
    CHECK_INT(sandboxes(), 0);
    provider_fake_delay(w.fake, "dial", 0);
}

TEST(a_machine_that_ends_while_it_is_made_says_why) { run(breaks, 0); }

static void mended(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };

    /* the keeper may open no more, say: that is no limit of who asks */
    provider_fake_fail(w.fake, "destroy", ERR_LIMIT, 1);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK_INT(sandboxes(), 0);
    CHECK_INT(machines(), 1);
    wait_until(machines, 0);
    b = create(&w.alice, &s);
    save_fails = 1;
    CHECK_INT(control_kill(w.c, &w.alice, b, "of a full disk", &err), 0);
    for (int i = 0; i < 200 && strcmp(last_reason(), "request: of a full disk"); i++)
        co_sleep(co_in(20));
    CHECK_STR(last_reason(), "request: of a full disk");
}

TEST(an_end_that_could_not_be_finished_is_finished_later) { run(mended, 0); }

/* ---- idempotency ---- */

struct twin {
    struct sandbox *out;
    bool existed, done;
};

static void twin(void *arg)
{
    struct twin *t = arg;
    struct create_spec s = spec();
    struct err err = { 0 };

    s.idem_key = "key-2";
    s.idem_hash = "a";
    CHECK_INT(control_create(w.c, &w.alice, &s, &t->out, &t->existed, &err), 0);
    t->done = true;
}

static void repeated(void)
{
    struct create_spec s = spec();
    struct sandbox *b, *again = NULL;
    struct twin twins[2] = { 0 };
    struct err err = { 0 };
    bool existed;

    s.idem_key = "key-1";
    s.idem_hash = "a";
    b = create(&w.alice, &s);
    CHECK_INT(control_create(w.c, &w.alice, &s, &again, &existed, &err), 0);
    CHECK(existed && again == b);
    CHECK(create(&w.bob, &s) != b); /* another's key is another's */
    s.idem_hash = "b";
    CHECK_INT(control_create(w.c, &w.alice, &s, &again, &existed, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(sandboxes(), 2);

    provider_fake_delay(w.fake, "create", 30);
    for (int i = 0; i < 2; i++)
        CHECK_INT(co_go(twin, &twins[i], NULL), 0);
    while (!twins[0].done || !twins[1].done)
        co_sleep(co_in(5));
    provider_fake_delay(w.fake, "create", 0);
    CHECK(twins[0].out == twins[1].out);
    CHECK_INT(twins[0].existed + twins[1].existed, 1);

    s.idem_key = "key-3"; /* one that failed may be tried again */
    provider_fake_fail(w.fake, "create", ERR_UNAVAILABLE, 1);
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    b = create(&w.alice, &s);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1); /* what it made has ended */
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(sandboxes(), 3);
    CHECK_INT(machines(), 3);
}

TEST(the_same_key_makes_the_same_sandbox) { run(repeated, 0); }
