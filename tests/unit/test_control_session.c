/* test_control_session.c - logins: their tokens, what ends them, what is counted; and operations,
 * which keep a sandbox from being idle. */
#include "control_rig.h"
#include "io/jwt.h"

static void set_auth(const char *assignment)
{
    static const struct setting *const tables[] = { control_auth_settings, NULL };
    struct err err = { 0 };

    CHECK_INT(setting_set(tables, assignment, &err), 0);
}

static int log_in(const char *name, const char *password, struct login *out, struct err *err)
{
    struct login_request rq = { .peer = "192.0.2.1", .name = name, .password = password };

    *err = (struct err){ 0 };
    return control_login(w.c, &rq, out, err);
}

static void with_password(const char *name)
{
    struct err err = { 0 };

    CHECK_INT(control_user_password(w.c, name, "open-sesame-1", &err), 0);
    set_auth("auth.login-rate=0");
    set_auth("auth.lockout-failures=3");
    set_auth("auth.lockout-s=1");
    set_auth("auth.token-s=86400");
}

static const char *whose(struct str token)
{
    static struct actor a;
    static struct err err;

    err = (struct err){ 0 };
    return control_actor_by_key(w.c, token, &a, &err) ? err.msg : a.name;
}

static void tokens(void)
{
    AUTO(control_login_free) struct login first = { 0 }, second = { 0 }, third = { 0 };
    struct err err = { 0 };

    with_password("alice");
    CHECK_INT(log_in("alice", "open-sesame-1", &first, &err), 0);
    CHECK_STR(first.user.name, "alice");
    CHECK_STR(whose(buf_str(&first.token)), "alice");
    CHECK_STR(whose(buf_str(&first.token)), "alice"); /* from memory */
    CHECK_INT(log_in("alice", "open-sesame-1", &second, &err), 0);
    CHECK_STR(whose(buf_str(&first.token)), TOKEN_SUPERSEDED);
    CHECK_STR(whose(buf_str(&second.token)), "alice");
    CHECK_INT(control_refresh(w.c, buf_str(&second.token), &third, &err), 0);
    CHECK_STR(whose(buf_str(&second.token)), TOKEN_SUPERSEDED);
    reopen_control(); /* both the secret and the login are the store's */
    CHECK_STR(whose(buf_str(&third.token)), "alice");
    CHECK_INT(control_logout(w.c, buf_str(&third.token), &err), 0);
    CHECK_STR(whose(buf_str(&third.token)), TOKEN_SUPERSEDED);
    CHECK_INT(control_logout(w.c, buf_str(&third.token), &err), -1);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    third.token.data[third.token.len - 2] ^= 1;
    CHECK_STR(whose(buf_str(&third.token)), JWT_INVALID);
}

static void lasts(void) { w.options.ephemeral = false; }

TEST(a_token_is_good_until_its_login_ends)
{
    struct frame f = { .fn = tokens, .before = lasts, .lasts = true };

    test_co(frame, &f);
}

static void several(void)
{
    AUTO(control_login_free) struct login first = { 0 }, second = { 0 };
    struct user_change change = USER_UNCHANGED;
    struct user u = { 0 };
    struct err err = { 0 };

    with_password("alice");
    CHECK_INT(control_user_get(w.c, "alice", &u, &err), 0);
    change.multi_login = true;
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    CHECK_INT(log_in("alice", "open-sesame-1", &first, &err), 0);
    CHECK_INT(log_in("alice", "open-sesame-1", &second, &err), 0);
    CHECK_STR(whose(buf_str(&first.token)), "alice");
    CHECK_STR(whose(buf_str(&second.token)), "alice");
    CHECK_INT(control_user_password(w.c, "alice", "open-sesame-2", &err), 0);
    CHECK_STR(whose(buf_str(&first.token)), TOKEN_SUPERSEDED); /* a new password ends all */
    CHECK_INT(log_in("alice", "open-sesame-2", &first, &err), 0);
    CHECK_INT(control_user_get(w.c, "alice", &u, &err), 0);
    change.locked = true;
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    CHECK_STR(whose(buf_str(&first.token)), TOKEN_SUPERSEDED);
    CHECK_INT(log_in("alice", "open-sesame-2", &second, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK_STR(err.msg, LOGIN_LOCKED);
}

TEST(several_logins_end_with_a_new_password_and_with_a_lock) { run(several, 0); }

static void short_lived(void)
{
    AUTO(control_login_free) struct login l = { 0 };
    struct err err = { 0 };
    int64_t until = co_in(20000);

    with_password("alice");
    set_auth("auth.token-s=1");
    CHECK_INT(log_in("alice", "open-sesame-1", &l, &err), 0);
    while (!strcmp(whose(buf_str(&l.token)), "alice") && co_now() < until)
        co_sleep(co_in(50));
    CHECK_STR(whose(buf_str(&l.token)), JWT_EXPIRED); /* although it was remembered */
}

TEST(a_token_expires_though_it_is_remembered) { run(short_lived, 0); }

static void refused(const char *name, const char *password, enum err_code code, const char *msg)
{
    AUTO(control_login_free) struct login l = { 0 };
    struct err err;

    CHECK_INT(log_in(name, password, &l, &err), -1);
    CHECK_INT(err.code, code);
    CHECK_STR(err.msg, msg);
}

static void wrong(void)
{
    AUTO(control_login_free) struct login l = { 0 };
    struct err err = { 0 };
    int64_t until = co_in(30000);

    with_password("alice");
    refused("nobody", "open-sesame-1", ERR_NOT_FOUND, LOGIN_WRONG);
    refused("No One", "open-sesame-1", ERR_NOT_FOUND, LOGIN_WRONG);
    refused("bob", "", ERR_DENIED, LOGIN_WRONG); /* he has none */
    CHECK_INT(log_in("alice", "open-sesame-1", &l, &err), 0);
    for (int i = 0; i < 3; i++)
        refused("alice", "open-sesame-2", ERR_DENIED, LOGIN_WRONG);
    refused("alice", "open-sesame-1", ERR_DENIED, LOGIN_LOCKED);
    while (log_in("alice", "open-sesame-1", &l, &err) && co_now() < until)
        co_sleep(co_in(100));
    CHECK_INT(err.code, ERR_NONE); /* after a while, and the count begins anew */
    refused("alice", "open-sesame-2", ERR_DENIED, LOGIN_WRONG);
    refused("alice", "open-sesame-2", ERR_DENIED, LOGIN_WRONG);
    CHECK_INT(log_in("alice", "open-sesame-1", &l, &err), 0);
}

TEST(wrong_passwords_in_a_row_lock_out_for_a_while) { run(wrong, 0); }

static void often(void)
{
    struct login_request rq = { .peer = "192.0.2.1", .name = "nobody!", .password = "x" };
    struct login l = { 0 };
    struct err err = { 0 };

    set_auth("auth.login-rate=3");
    set_auth("auth.swagger-rate=4");
    for (int i = 0; i < 3; i++)
        CHECK(control_login(w.c, &rq, &l, &err) && err.code == ERR_NOT_FOUND);
    CHECK(control_login(w.c, &rq, &l, &err) && err.code == ERR_LIMIT);
    CHECK(strstr(err.msg, "auth.login-rate"));
    rq.by_query = true; /* counted apart */
    for (int i = 0; i < 4; i++)
        CHECK(control_login(w.c, &rq, &l, &err) && err.code == ERR_NOT_FOUND);
    CHECK(control_login(w.c, &rq, &l, &err) && err.code == ERR_LIMIT);
    rq.peer = "192.0.2.2"; /* and by address */
    CHECK(control_login(w.c, &rq, &l, &err) && err.code == ERR_NOT_FOUND);
}

TEST(attempts_are_counted_by_address) { run(often, 0); }

/* ---- many at once ---- */

enum { AT_ONCE = 45 };

struct asked { /* one login of several that are under way */
    const char *name, *password;
    struct err err;
    bool in;
};
static int under_way;

static void ask(void *arg)
{
    struct asked *a = arg;
    AUTO(control_login_free) struct login l = { 0 };

    a->in = !log_in(a->name, a->password, &l, &a->err);
    under_way--;
}

static void all_at_once(struct asked *all, size_t n)
{
    under_way = 0;
    for (size_t i = 0; i < n; i++, under_way++)
        CHECK_INT(co_go(ask, &all[i], NULL), 0);
    while (under_way)
        co_pass();
}

static void crowd(void)
{
    struct asked all[AT_ONCE + 1];
    size_t wrong_ones = 0;

    with_password("alice");
    set_auth("auth.lockout-s=300");
    for (size_t i = 0; i < AT_ONCE; i++)
        all[i] = (struct asked){ .name = "alice", .password = "open-sesame-2" };
    all[AT_ONCE] = (struct asked){ .name = "bob", .password = "open-sesame-1" };
    CHECK_INT(control_user_password(w.c, "bob", "open-sesame-1", &all[0].err), 0);
    all_at_once(all, AT_ONCE + 1);
    for (size_t i = 0; i < AT_ONCE; i++) {
        CHECK(!all[i].in);
        CHECK_INT(all[i].err.code, ERR_DENIED);
        wrong_ones += !strcmp(all[i].err.msg, LOGIN_WRONG);
    }
    CHECK_INT(wrong_ones, 3); /* as many as were hashed: auth.lockout-failures */
    CHECK(all[AT_ONCE].in);   /* one name's lock is not another's */
    refused("alice", "open-sesame-1", ERR_DENIED, LOGIN_LOCKED);
}

TEST(asking_at_once_does_not_pass_the_lockout) { run(crowd, 0); }

static void right_crowd(void)
{
    struct user_change change = USER_UNCHANGED;
    struct asked all[10];
    struct err err;
    struct user u = { 0 };

    with_password("alice");
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i] = (struct asked){ .name = "alice", .password = "open-sesame-1" };
    CHECK_INT(control_user_get(w.c, "alice", &u, &err), 0);
    change.multi_login = true;
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    all_at_once(all, ARRAY_LEN(all));
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        CHECK(all[i].in); /* more than may be wrong: they wait for each other */
}

TEST(right_passwords_at_once_are_not_taken_for_wrong_ones) { run(right_crowd, 0); }

struct refreshing {
    struct str token;
    struct login out;
    struct err err;
    bool done;
};

static void refresh(void *arg)
{
    struct refreshing *r = arg;

    r->done = !control_refresh(w.c, r->token, &r->out, &r->err);
    under_way--;
}

static void refreshed_twice(void)
{
    struct user_change change = USER_UNCHANGED;
    AUTO(control_login_free) struct login l = { 0 };
    struct refreshing both[2] = { 0 };
    struct user u = { 0 };
    struct err err = { 0 };
    int live = 0;

    with_password("alice");
    CHECK_INT(control_user_get(w.c, "alice", &u, &err), 0);
    change.multi_login = true; /* so that nothing else ends a login */
    CHECK_INT(control_user_change(w.c, &u, &change, &err), 0);
    CHECK_INT(log_in("alice", "open-sesame-1", &l, &err), 0);
    under_way = 2;
    for (size_t i = 0; i < 2; i++) {
        both[i].token = buf_str(&l.token);
        CHECK_INT(co_go(refresh, &both[i], NULL), 0);
    }
    while (under_way)
        co_pass();
    for (size_t i = 0; i < 2; i++) {
        live += both[i].done && !strcmp(whose(buf_str(&both[i].out.token)), "alice");
        if (!both[i].done)
            CHECK_STR(both[i].err.msg, TOKEN_SUPERSEDED);
        control_login_free(&both[i].out);
    }
    CHECK_INT(live, 1);
    CHECK_STR(whose(buf_str(&l.token)), TOKEN_SUPERSEDED);
}

TEST(two_refreshes_of_one_token_give_one_login) { run(refreshed_twice, 0); }

static void given(void)
{
    AUTO(control_login_free) struct login l = { 0 };
    struct err err = { 0 };
    struct jwt t;

    with_password("alice");
    CHECK_INT(log_in("alice", "open-sesame-1", &l, &err), 0);
    CHECK_INT(jwt_verify(str_of(w.options.token_secret), buf_str(&l.token), 1, &t, &err), 0);
    CHECK_INT(t.user, l.user.id);
    CHECK_STR(t.session, l.session.id);
}

static void give_secret(void) { w.options.token_secret = "a secret of the operator"; }

TEST(a_secret_that_was_given_signs)
{
    struct frame f = { .fn = given, .before = give_secret };

    test_co(frame, &f);
}

/* ---- operations ---- */

static void await(const struct sandbox *s, enum sandbox_state state)
{
    int64_t until = co_in(20000);

    while (s->state != (int64_t)state && co_now() < until)
        co_sleep(co_in(5));
    CHECK_INT(s->state, state);
}

static void working(void)
{
    struct create_spec asked = spec();
    struct sandbox_times before, after;
    struct sandbox *s;
    struct err err = { 0 };

    asked.life = (struct life){ .idle_ms = 50, .expiry = EXPIRY_PAUSE };
    s = create(&w.alice, &asked);
    control_hold(s);
    CHECK_INT(control_work_begin(w.c, &w.alice, s, &err), 0);
    co_sleep(co_in(300));
    CHECK_INT(s->state, SANDBOX_RUNNING); /* not while somebody works */
    control_work_end(s);
    await(s, SANDBOX_PAUSED);
    CHECK_INT(control_times(w.c, s, &before, &err), 0);
    CHECK(before.stopped >= s->created_ms);
    CHECK_INT(control_work_begin(w.c, &w.bob, s, &err), -1); /* not his */
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(control_work_begin(w.c, &w.alice, s, &err), 0); /* though it has no auto_resume */
    CHECK_INT(s->state, SANDBOX_RUNNING);
    CHECK_INT(control_times(w.c, s, &after, &err), 0);
    CHECK(!after.stopped && after.started >= before.started && after.active >= before.active);
    control_work_end(s);
    await(s, SANDBOX_PAUSED);
    CHECK_INT(control_set_idle(w.c, &w.bob, s, 60000, &err), -1);
    CHECK_INT(control_set_idle(w.c, &w.alice, s, 60000, &err), 0);
    CHECK_INT(s->state, SANDBOX_PAUSED);
    CHECK_INT(s->life.idle_ms, 60000);
    CHECK_INT(control_kill(w.c, &w.alice, s, NULL, &err), 0);
    CHECK_INT(control_work_begin(w.c, &w.alice, s, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    control_release(s);
}

TEST(an_operation_wakes_and_while_it_lasts_nothing_is_idle) { run(working, 0); }
