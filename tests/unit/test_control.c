/* test_control.c - sandboxes from their creation to their end: over the fake provider and SQLite.
 */
#include "control_rig.h"

/* ---- creating, finding, ending ---- */

static void created(void)
{
    struct create_spec s = spec();
    struct map_item env = { (char[]){ "A" }, (char[]){ "1" } };
    struct map m = { 1, &env };
    struct sandbox *b, *again;
    struct err err = { 0 };

    s.env = s.metadata = &m;
    b = create(&w.alice, &s);
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK_INT(strlen(b->id), SANDBOX_ID);
    CHECK_INT(strlen(b->token), SANDBOX_TOKEN);
    CHECK_INT(strlen(b->traffic_token), SANDBOX_TOKEN); /* for its services */
    CHECK_STR(b->provider, "fake");
    CHECK_STR(b->node, control_node(w.c));
    CHECK_INT(b->owner, w.alice.user);
    CHECK_INT(b->limits.memory_bytes, limit_rows[LIMIT_MEMORY].def);
    CHECK_INT(b->end_ms - b->started_ms, 300000);
    CHECK(control_left_ms(b) > 299000 && control_left_ms(b) <= 300000);
    CHECK_STR(map_get(&b->metadata, "A"), "1");
    again = control_find(w.c, &w.alice, str_of(b->uuid), &err);
    CHECK(again == b);
    CHECK_STR(events_of(b->id), "created started");
    CHECK_INT(machines(), 1);
}

TEST(a_created_sandbox_runs_and_is_found) { run(created, 0); }

static void killed(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s), copy = { 0 };
    struct err err = { 0 };
    char id[SANDBOX_ID + 1], want[128];

    memcpy(id, b->id, sizeof(id));
    control_hold(b);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    CHECK_INT(b->state, SANDBOX_ENDED);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    control_release(b);
    CHECK(control_find(w.c, &w.alice, str_of(id), &err) == NULL);
    snprintf(want, sizeof(want), "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
    CHECK_STR(err.msg, want);
    CHECK_STR(events_of(id), "created started ended");
    CHECK_INT(control_get(w.c, &w.alice, str_of(id), &copy, &err), 0);
    CHECK_INT(copy.state, SANDBOX_ENDED);
    CHECK_STR(copy.reason, "request: ended by alice");
    sandbox_finish(&copy);
    CHECK_INT(machines(), 0);
    CHECK_INT(sandboxes(), 0);
}

TEST(a_killed_sandbox_is_gone_and_its_record_says_why) { run(killed, 0); }

static void owned(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s), copy = { 0 };
    struct err err = { 0 };

    CHECK(control_find(w.c, &w.bob, str_of(b->id), &err) == NULL);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(control_get(w.c, &w.bob, str_of(b->id), &copy, &err), -1);
    CHECK_INT(control_kill(w.c, &w.bob, b, NULL, &err), -1);
    CHECK_INT(control_set_timeout(w.c, &w.bob, b, 1000, false, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK(control_find(w.c, &w.admin, str_of(b->id), &err) == b);
    CHECK(control_find(w.c, NULL, str_of(b->id), &err) == b);
    CHECK_INT(control_kill(w.c, &w.admin, b, NULL, &err), 0);
    CHECK_STR(last_reason(), "request: ended by root");
}

TEST(users_see_their_own_and_admins_all) { run(owned, 0); }

static void refused(void)
{
    static char long_text[20000];
    struct map_item item = { (char[]){ "K" }, long_text };
    struct map m = { 1, &item };
    struct sandbox_forward f = { 0, 70000 };
    struct sandbox_mount mount = { (char[]){ "/etc" }, (char[]){ "/mnt" }, true };
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    memset(long_text, 'x', sizeof(long_text) - 1);
    s.metadata = &m;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_STR(err.msg, "metadata: 20000 bytes; control.map-bytes allows 16384");
    s = spec();
    item = (struct map_item){ (char[]){ "A=B" }, (char[]){ "" } };
    s.env = &m;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    s = spec();
    s.template = "/etc";
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    s.template = "no-such-template";
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    s = spec();
    s.forwards = (struct objs){ 1, &f };
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    s = spec();
    s.mounts = (struct objs){ 1, &mount };
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    s = spec();
    s.life.expiry = SANDBOX_EXPIRIES;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    s = spec();
    s.life.timeout_ms = -1;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    s = spec();
    s.limits.memory_bytes = 1;
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(machines(), 0);
    CHECK_INT(sandboxes(), 0);
}

TEST(what_cannot_be_is_refused_by_name) { run(refused, 0); }

static void bounded(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err;

    set("control.user-sandboxes-max=2");
    create(&w.alice, &s);
    create(&w.alice, &s);
    CHECK_INT(try_create(&w.alice, &s, &b, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK(strstr(err.msg, "control.user-sandboxes-max") != NULL);
    set("control.sandboxes-max=3");
    create(&w.bob, &s);
    CHECK_INT(try_create(&w.bob, &s, &b, &err), -1);
    CHECK(strstr(err.msg, "control.sandboxes-max") != NULL);
    set("control.sandboxes-max=2000");
    set("control.user-sandboxes-max=1000");
    CHECK_INT(machines(), 3);
}

TEST(the_number_of_sandboxes_is_bounded) { run(bounded, 0); }

/* ---- lists ---- */

struct page {
    char last[64], first[64];
    int n;
};

static int on_page(void *arg, struct sandbox *s)
{
    struct page *p = arg;

    snprintf(p->last, sizeof(p->last), "%lld.%s", (long long)s->started_ms, s->id);
    if (!p->n++)
        memcpy(p->first, p->last, sizeof(p->first));
    return 0;
}

static void listed(void)
{
    struct create_spec s = spec();
    struct map_item item = { (char[]){ "team" }, (char[]){ "blue" } };
    struct map m = { 1, &item };
    struct err err = { 0 };
    char first_desc[64] = "";

    for (int i = 0; i < 7; i++) {
        s.metadata = i % 2 ? &m : NULL;
        create(i < 5 ? &w.alice : &w.bob, &s);
    }
    for (int ascending = 0; ascending < 2; ascending++) {
        struct sandbox_filter f = { .limit = 3, .ascending = ascending };
        struct page p = { 0 };
        char before[64] = "";
        int total = 0;
        bool more = true;

        for (int pages = 0; more; pages++) {
            p = (struct page){ 0 };
            f.after = str_of(before);
            CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), 0);
            CHECK(pages < 3);
            memcpy(before, p.last, sizeof(before));
            total += p.n;
            if (!pages && !ascending)
                memcpy(first_desc, p.first, sizeof(first_desc));
        }
        CHECK_INT(total, 7);
        if (ascending)
            CHECK_STR(p.last, first_desc);
    }
    {
        struct sandbox_filter f = { .metadata = &m };
        struct page p = { 0 };
        bool more;

        CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), 0);
        CHECK_INT(p.n, 3);
        p.n = 0;
        f = (struct sandbox_filter){ .owner = w.bob.user };
        CHECK_INT(control_list(w.c, &w.alice, &f, on_page, &p, &more, &err), 0);
        CHECK_INT(p.n, 5); /* her own, whatever she asked for */
        p.n = 0;
        f = (struct sandbox_filter){ .states = 1 << SANDBOX_PAUSED };
        CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), 0);
        CHECK_INT(p.n, 0);
        f = (struct sandbox_filter){ .template = "host" };
        CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), 0);
        CHECK_INT(p.n, 0);
        f = (struct sandbox_filter){ .started_after_ms = INT64_MAX };
        CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), 0);
        CHECK_INT(p.n, 0);
        f = (struct sandbox_filter){ .after = STR("x.y") };
        CHECK_INT(control_list(w.c, &w.admin, &f, on_page, &p, &more, &err), -1);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

TEST(lists_are_paged_filtered_and_ordered) { run(listed, 0); }

/* ---- life ---- */

static void expires(void)
{
    struct create_spec s = spec();

    s.life.timeout_ms = 80;
    create(&w.alice, &s);
    create(&w.alice, &s);
    s.life.timeout_ms = 0;
    create(&w.alice, &s);
    wait_until(sandboxes, 1);
    CHECK(strstr(last_reason(), "lifetime: its time-out") != NULL);
    CHECK_INT(machines(), 1);
}

TEST(a_sandbox_ends_at_its_time_out) { run(expires, 0); }

static void idles(void)
{
    struct create_spec s = spec();
    struct sandbox *b;
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    s.life = (struct life){ .idle_ms = 500 };
    b = create(&w.alice, &s);
    memcpy(id, b->id, sizeof(id));
    for (int i = 0; i < 6; i++) {
        co_sleep(co_in(100));
        b = control_find(w.c, &w.alice, str_of(id), &err);
        CHECK(b != NULL);
        control_touch(b);
    }
    wait_until(sandboxes, 0);
    CHECK(strstr(last_reason(), "lifetime: nobody used it") != NULL);
}

TEST(an_idle_sandbox_ends_and_a_used_one_does_not) { run(idles, 0); }

static uint64_t net_of(const char *id)
{
    struct machine_state m;
    struct err err = { 0 };

    CHECK_INT(w.fake->ops->stat(w.fake, id, &m, &err), 0);
    return m.limits.lifetime_ms;
}

static void moved(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };

    CHECK_INT(net_of(b->id), 302000);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 60000, true, &err), 0);
    CHECK(control_left_ms(b) > 290000); /* extending never shortens */
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 600000, true, &err), 0);
    CHECK(control_left_ms(b) > 590000);
    CHECK_INT(net_of(b->id), 602000);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 50000, false, &err), 0);
    CHECK(control_left_ms(b) <= 50000);
    CHECK_INT(net_of(b->id), 52000);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 0, false, &err), 0);
    CHECK(control_left_ms(b) == NEVER);
    CHECK_INT(b->end_ms, 0);
    CHECK_INT(net_of(b->id), limit_rows[LIMIT_LIFETIME].max);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, INT64_MAX, false, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    provider_fake_fail(w.fake, "limits", ERR_UNAVAILABLE, 1);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 1000, false, &err), -1);
    CHECK(control_left_ms(b) == NEVER);
    save_fails = 1;
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 1000, false, &err), -1);
    CHECK_INT(net_of(b->id), limit_rows[LIMIT_LIFETIME].max);
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 60, false, &err), 0);
    wait_until(sandboxes, 0);
}

TEST(a_time_out_moves_both_ways_and_extending_only_forward) { run(moved, 0); }

static void relimited(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct machine_state m;
    struct limits l = { .memory_bytes = 64 << 20 };
    struct err err = { 0 };

    CHECK_INT(control_set_limits(w.c, &w.alice, b, &l, &err), 0);
    CHECK_INT(b->limits.memory_bytes, 64 << 20);
    CHECK_INT(control_stat(w.c, b, &m, &err), 0);
    CHECK_INT(m.limits.memory_bytes, 64 << 20);
    CHECK_INT(m.limits.lifetime_ms, 302000);
    l = (struct limits){ .memory_bytes = 1 };
    CHECK_INT(control_set_limits(w.c, &w.alice, b, &l, &err), -1);
    l = (struct limits){ .open_files = 100 };
    CHECK_INT(control_set_limits(w.c, &w.alice, b, &l, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK_STR(events_of(b->id), "created started limits-changed");
}

TEST(limits_of_a_running_sandbox_change) { run(relimited, 0); }

/* ---- what the provider tells ---- */

static void told(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct machine_event e = {
        .kind = MACHINE_LIMIT, .ref = b->id, .limit = LIMIT_PIDS, .value = 1024, .use = 1024
    };
    char id[SANDBOX_ID + 1];
    struct err err = { 0 };

    memcpy(id, b->id, sizeof(id));
    e.ref = id;
    for (int i = 0; i < 5; i++)
        provider_fake_emit(w.fake, &e);
    CHECK_INT(control_events_wait(w.c, id, 2, co_in(2000), &err), 1);
    CHECK_STR(events_of(id), "created started limit"); /* five times the same is one */
    provider_fake_emit(w.fake, &(struct machine_event){ .kind = MACHINE_LOST });
    e = (struct machine_event){ .kind = MACHINE_ENDED,
                                .ref = id,
                                .limit = LIMIT_MEMORY,
                                .value = 64 << 20,
                                .use = 64 << 20,
                                .reason = "memory" };
    provider_fake_emit(w.fake, &e);
    wait_until(sandboxes, 0);
    CHECK_STR(last_reason(), "memory: the limit 'memory' of 64 MiB was met (in use: 64 MiB)");
    CHECK_STR(events_of(id), "created started limit ended");
    CHECK_INT(control_events_wait(w.c, id, INT32_MAX, co_in(20), &err), 0);
    w.fake->ops->destroy(w.fake, id, &err);
}

TEST(a_machine_that_ends_by_itself_ends_its_sandbox_with_the_limit_it_met) { run(told, 0); }

static void wake_later(void *arg)
{
    struct sandbox *b = arg;
    struct err err = { 0 };

    co_sleep(co_in(30));
    CHECK_INT(control_set_timeout(w.c, &w.alice, b, 1000000, false, &err), 0);
    control_release(b);
}

static void awaited(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    memcpy(id, b->id, sizeof(id));
    control_hold(b);
    CHECK_INT(co_go(wake_later, b, NULL), 0);
    CHECK_INT(control_events_wait(w.c, id, 2, co_in(5000), &err), 1);
    CHECK_INT(control_events_wait(w.c, id, 3, co_in(20), &err), 0);
}

TEST(a_reader_of_events_is_woken_by_the_next) { run(awaited, 0); }

/* ---- measuring ---- */

static int count_sample(void *arg, const struct sample *m)
{
    CHECK(m->memory > 0 && m->memory_max > m->memory && m->at_ms > 0);
    ++*(int *)arg;
    return 0;
}

static void sampled(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };
    int n = 0;

    for (int i = 0; i < 3; i++) { /* at most one a second */
        n = 0;
        CHECK_INT(control_samples(w.c, b, 0, INT64_MAX, count_sample, &n, &err), 0);
        CHECK_INT(n, 1);
    }
    n = 0;
    CHECK_INT(control_samples(w.c, b, 0, 1000, count_sample, &n, &err), 0);
    CHECK_INT(n, 0);
}

static void sampled_often(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };
    int n = 0;

    control_hold(b);
    co_sleep(co_in(2300));
    CHECK_INT(control_samples(w.c, b, 0, INT64_MAX, count_sample, &n, &err), 0);
    CHECK(n >= 2 && n <= 3);
    control_release(b);
}

TEST(use_is_measured_on_demand_but_not_twice_a_second) { run(sampled, 0); }

TEST(use_is_measured_every_few_seconds)
{
    set("control.sample-s=1");
    run(sampled_often, 0);
    set("control.sample-s=10");
}

static void counted(void)
{
    AUTO(buf_free) struct buf b = { 0 };
    struct create_spec s = spec();

    create(&w.alice, &s);
    control_metrics(w.c, &b);
    CHECK(strstr(b.data, "cove_sandboxes{state=\"running\"} 1") != NULL);
    CHECK(strstr(b.data, "cove_sandboxes_created_total{kind=\"cold\"} 1") != NULL);
}

TEST(prometheus_hears_of_sandboxes) { run(counted, 0); }

/* ---- forwarded ports ---- */

static int64_t port_of(const struct sandbox *b)
{
    return ((struct sandbox_forward *)b->forwards.items)->host_port;
}

static void check_leads_inside(int64_t port)
{
    struct client_to to = { 0 };
    struct client client;
    struct exchange *x;
    struct addr a;
    struct err err = { 0 };
    char where[32];

    CHECK(port > 0);
    snprintf(where, sizeof(where), "127.0.0.1:%lld", (long long)port);
    CHECK_INT(addr_parse(str_of(where), &a, &err), 0);
    to.addr = &a;
    client_init(&client);
    x = client_do(&client, &to,
                  &(struct client_request){ .method = STR("GET"), .target = STR("/") }, &err);
    CHECK(x != NULL);
    CHECK_INT(x->head.status, 200);
    client_close(x);
    client_finish(&client);
}

static void forwarded(void)
{
    struct sandbox_forward f = { 0, 8080 };
    struct create_spec s = spec();

    s.forwards = (struct objs){ 1, &f };
    check_leads_inside(port_of(create(&w.alice, &s)));
}

TEST(a_forwarded_port_leads_inside) { run(forwarded, 0); }

/* On a port below those that the kernel gives to clients: when it is free, nobody else takes it. */
static struct sandbox *create_on_a_port(struct create_spec *s, struct sandbox_forward *f)
{
    struct sandbox *b = NULL;
    struct err err = { 0 };

    for (int i = 0; i < 1000 && !b; i++) {
        f->host_port = 20000 + (getpid() * 31 + i) % 12000;
        if (try_create(&w.alice, s, &b, &err))
            CHECK(strstr(err.msg, "forward of host port") != NULL);
    }
    CHECK(b != NULL);
    return b;
}

/* The port is free again: at once, or where each coroutine is a thread, when the one that waited
 * for connections has let go of it. */
static struct sandbox *create_again(const struct create_spec *s)
{
    struct sandbox *b = NULL;
#ifdef CO_THREADS
    struct err err = { 0 };

    for (int i = 0; i < 1000 && try_create(&w.alice, s, &b, &err); i++)
        co_sleep(co_in(5));
#endif
    return b ? b : create(&w.alice, s);
}

static void held(void)
{
    struct sandbox_forward f = { 0, 8080 };
    struct create_spec s = spec();
    struct sandbox *b, *other;
    struct err err = { 0 };

    s.forwards = (struct objs){ 1, &f };
    b = create_on_a_port(&s, &f);
    CHECK_INT(port_of(b), f.host_port);
    CHECK_INT(try_create(&w.alice, &s, &other, &err), -1); /* the port is taken */
    CHECK(strstr(err.msg, "forward of host port") != NULL);
    CHECK_INT(sandboxes(), 1);
    CHECK_INT(machines(), 1);
    b = control_find(w.c, NULL, str_of(b->id), &err);
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    other = create_again(&s);
    CHECK_INT(port_of(other), f.host_port);
}

static void allow_ports(void)
{
    w.options.forward_min = 20000;
    w.options.forward_max = 31999;
}

TEST(a_forwarded_port_is_its_sandboxs_until_that_ends)
{
    run_frame((struct frame){ .fn = held, .before = allow_ports }, 0);
}

/* ---- one that cannot be reached for a while, and a server that stays ---- */

static const char *away; /* its id */

static int reachable(void) { return !control_unreachable(w.c, away); }

static void lose_sight_of(const char *id)
{
    struct machine_event e = { .kind = MACHINE_UNREACHABLE, .ref = id, .text = "it is damaged" };

    away = id;
    provider_fake_unreachable(w.fake, id, e.text);
    provider_fake_emit(w.fake, &e);
    wait_until(reachable, 0);
}

static void check_metric(const char *line)
{
    AUTO(buf_free) struct buf b = { 0 };

    control_metrics(w.c, &b);
    if (!strstr(buf_cstr(&b), line))
        test_fail(__FILE__, __LINE__, "there is no %s", line);
}

static void find_again(void)
{
    provider_fake_unreachable(w.fake, away, "");
    wait_until(reachable, 1);
}

static int samples_of(struct sandbox *b)
{
    struct err err = { 0 };
    int n = 0;

    CHECK_INT(control_samples(w.c, b, 0, INT64_MAX, count_sample, &n, &err), 0);
    return n;
}

static void as_before(void)
{
    struct sandbox_forward f = { 0, 8080 };
    struct create_spec s = spec();
    struct sandbox *other, *b;
    struct err err = { 0 };
    int had;

    s.forwards = (struct objs){ 1, &f };
    b = create(&w.alice, &s);
    s.forwards = (struct objs){ 0 };
    other = create(&w.alice, &s);
    control_hold(other);
    check_metric("cove_unreachable 0\n");
    lose_sight_of(b->id);
    check_metric("cove_unreachable 1\n");
    find_again();
    check_metric("cove_unreachable 0\n");
    check_leads_inside(port_of(b));
    CHECK_STR(events_of(b->id), "created started unreachable reachable");
    had = samples_of(other);
    co_sleep(co_in(5000));
    CHECK(samples_of(other) > had + 2); /* those behind it are measured as before */
    CHECK_INT(control_kill(w.c, &w.alice, b, NULL, &err), 0);
    had = samples_of(other);
    co_sleep(co_in(5000));
    CHECK(samples_of(other) > had + 2);
    control_release(other);
}

TEST(one_that_can_be_reached_again_is_as_it_was)
{
    set("control.sample-s=1");
    run(as_before, 0);
    set("control.sample-s=10");
}

static void idle_changed(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct err err = { 0 };

    lose_sight_of(b->id);
    CHECK_INT(control_set_idle(w.c, &w.alice, b, 5000, &err), 0);
    find_again();
    wait_until(sandboxes, 0);
    CHECK_STR(last_reason(), "lifetime: nobody used it for 5 s");
}

TEST(one_whose_time_changes_meanwhile_is_found_again_and_ends_by_it) { run(idle_changed, 0); }

static void reached(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct client_to to, same;
    struct exchange *x;
    struct err err = { 0 };

    control_hold(b);
    control_to(w.c, b, 3000, &to);
    control_to(w.c, b, 3000, &same);
    CHECK(to.arg == same.arg && to.key == same.key);
    x = client_do(control_client(w.c), &to,
                  &(struct client_request){ .method = STR("GET"), .target = STR("/") }, &err);
    CHECK(x != NULL);
    client_close(x);
    control_to(w.c, b, PROVIDER_FAKE_CLOSED, &to);
    x = client_do(control_client(w.c), &to,
                  &(struct client_request){ .method = STR("GET"), .target = STR("/") }, &err);
    CHECK(!x && err.code == ERR_UPSTREAM);
    CHECK_INT(control_kill(w.c, NULL, b, "a test", &err), 0);
    control_to(w.c, b, 3000, &to);
    client_forget(control_client(w.c), &to);
    x = client_do(control_client(w.c), &to,
                  &(struct client_request){ .method = STR("GET"), .target = STR("/") }, &err);
    CHECK(!x && err.code == ERR_NOT_FOUND);
    control_release(b);
    CHECK_STR(last_reason(), "request: a test");
}

TEST(ports_of_a_sandbox_are_reached_while_it_lives) { run(reached, 0); }

/* ---- guests that do not answer ---- */

static void stopped(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    int64_t at = clock_ms();

    provider_fake_hang(w.fake, b->id, true, true);
    control_doubt(b);
    control_doubt(b); /* is one look */
    wait_until(sandboxes, 0);
    CHECK(clock_ms() - at < 900);
    CHECK_INT(machines(), 0);
    CHECK_STR(last_reason(),
              "failed: its first process was stopped from outside, and answers nobody");
}

TEST(a_guest_that_was_stopped_ends_its_sandbox_within_a_second) { run(stopped, 0); }

static void measured(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct machine_state m;
    struct err err = { 0 };

    provider_fake_hang(w.fake, b->id, true, true);
    CHECK_INT(control_stat(w.c, b, &m, &err), 0);
    wait_until(sandboxes, 0);
}

TEST(whoever_measures_a_stopped_one_finds_it_out) { run(measured, 0); }

static void let_go_on(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);

    provider_fake_hang(w.fake, b->id, true, true);
    control_doubt(b);
    co_sleep(co_in(30));
    provider_fake_hang(w.fake, b->id, false, false);
    co_sleep(co_in(300));
    CHECK_INT(b->state, SANDBOX_RUNNING);
    CHECK_INT(machines(), 1);
}

TEST(one_that_is_let_go_on_in_time_lives) { run(let_go_on, 0); }

static void healthy(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);

    provider_fake_fail(w.fake, "stat", ERR_UNAVAILABLE, 1); /* nobody can tell: no reason to end */
    control_doubt(b);
    co_sleep(co_in(200));
    CHECK_INT(b->state, SANDBOX_RUNNING);
}

TEST(a_doubt_ends_no_guest_that_answers) { run(healthy, 0); }

static void silent(void)
{
    struct create_spec s = spec();
    struct sandbox *b = create(&w.alice, &s);
    struct client_to to;

    provider_fake_hang(w.fake, b->id, true, false);
    control_to(w.c, b, PROVIDER_GUEST_PORT, &to);
    client_forget(control_client(w.c), &to); /* what was connected before answers still */
    control_doubt(b);
    co_sleep(co_in(1500));
    CHECK_INT(b->state, SANDBOX_RUNNING); /* slow is not hung ... */
    wait_until(sandboxes, 0);             /* ... but silence has an end */
    CHECK_STR(last_reason(), "failed: its guest has not answered for 2 s (control.hung-ms)");
}

TEST(a_guest_that_is_silent_for_long_has_failed)
{
    set("control.hung-ms=2000");
    run(silent, 0);
    set("control.hung-ms=60000");
}
