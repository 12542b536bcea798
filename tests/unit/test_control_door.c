/* test_control_door.c - tickets and cookies of browsers. */
#include "control/impl.h"
#include "control_rig.h"
#include "io/jwt.h"

#define OTHER_PORT 8888
#define PORT       8765

static struct sandbox *secure(void)
{
    struct create_spec s = spec();

    s.secure = true;
    return create(&w.alice, &s);
}

static bool takes(struct sandbox *s, uint16_t port, const char *ticket)
{
    return control_door_take(s, port, str_of(ticket));
}

static void tickets(void)
{
    struct sandbox *a = secure(), *b = secure();
    char first[DOOR_TICKET + 1], second[DOOR_TICKET + 1], other[DOOR_TICKET + 1];

    CHECK_INT(control_door_ticket(a, PORT, first), 60000);
    control_door_ticket(a, PORT, second);
    control_door_ticket(a, OTHER_PORT, other);
    CHECK(strcmp(first, second) != 0);
    CHECK(!takes(b, PORT, first)); /* another sandbox */
    CHECK(!takes(a, PORT, ""));
    CHECK(!takes(a, PORT, "0123456789012345678901234567890123456789"));
    CHECK(takes(a, PORT, first));
    CHECK(!takes(a, PORT, first));       /* once */
    CHECK(takes(a, PORT, second));       /* of several each */
    CHECK(!takes(a, PORT, other));       /* another port ... */
    CHECK(!takes(a, OTHER_PORT, other)); /* ... spends it */
}

TEST(a_ticket_is_good_once_for_its_sandbox_and_port) { run(tickets, 0); }

static void bounded(void)
{
    struct sandbox *s = secure();
    char oldest[DOOR_TICKET + 1], latest[DOOR_TICKET + 1];

    control_door_ticket(s, PORT, oldest);
    for (int i = 0; i < 100; i++)
        control_door_ticket(s, PORT, latest);
    CHECK(!takes(s, PORT, oldest));
    CHECK(takes(s, PORT, latest));
}

TEST(of_many_tickets_the_oldest_go) { run(bounded, 0); }

static void old(void)
{
    struct sandbox *s = secure();
    char ticket[DOOR_TICKET + 1];

    control_limits.door_ticket_s = 0;
    control_door_ticket(s, PORT, ticket);
    control_limits.door_ticket_s = 60;
    co_sleep(co_in(2));
    CHECK(!takes(s, PORT, ticket));
}

TEST(an_old_ticket_is_spent) { run(old, 0); }

static bool good(const struct sandbox *s, uint16_t port, const char *cookie)
{
    return control_door_cookie_good(s, port, str_of(cookie));
}

static void cookies(void)
{
    struct sandbox *a = secure(), *b = secure();
    char cookie[DOOR_COOKIE], broken[DOOR_COOKIE], token[SANDBOX_TOKEN + 1];

    CHECK_INT(control_door_cookie(a, PORT, cookie), 12 * 3600);
    CHECK(good(a, PORT, cookie));
    CHECK(good(a, PORT, cookie)); /* again and again */
    CHECK(!good(a, OTHER_PORT, cookie));
    CHECK(!good(b, PORT, cookie));
    for (size_t i = 0; cookie[i]; i++) { /* no byte of it may differ */
        memcpy(broken, cookie, sizeof(broken));
        broken[i] = broken[i] == '9' ? '8' : '9';
        CHECK(!good(a, PORT, broken));
    }
    memcpy(broken, cookie, sizeof(broken));
    broken[strlen(broken) - 1] = 0;
    CHECK(!good(a, PORT, broken));
    CHECK(!good(a, PORT, "") && !good(a, PORT, "1") && !good(a, PORT, "1..") &&
          !good(a, PORT, "1.99999999999."));
    memcpy(token, a->token, sizeof(token));
    a->token[0] ^= 1; /* it ends with the token */
    CHECK(!good(a, PORT, cookie));
    memcpy(a->token, token, sizeof(token));
    CHECK(good(a, PORT, cookie));
    control_limits.door_cookie_s = 0;
    control_door_cookie(a, PORT, cookie);
    control_limits.door_cookie_s = 12 * 3600;
    CHECK(!good(a, PORT, cookie));
}

TEST(a_cookie_is_good_for_its_port_its_tokens_and_its_time) { run(cookies, 0); }

static void logins(void)
{
    AUTO(buf_free) struct buf ours = { 0 }, old_one = { 0 }, theirs = { 0 };
    const char *secret = sessions_secret(w.c);
    struct jwt t = { .session = "s", .user = 1, .expires_s = INT32_MAX };
    struct err err = { 0 };

    CHECK_INT(jwt_sign(str_of(secret), &t, &ours, &err), 0);
    t.expires_s = 1;
    CHECK_INT(jwt_sign(str_of(secret), &t, &old_one, &err), 0);
    CHECK_INT(jwt_sign(STR("another server's secret"), &t, &theirs, &err), 0);
    CHECK(control_is_login(w.c, buf_str(&ours)));
    CHECK(control_is_login(w.c, buf_str(&old_one))); /* its session may be extended */
    CHECK(!control_is_login(w.c, buf_str(&theirs))); /* an application's own */
    ours.data[ours.len - 2] ^= 1;
    CHECK(!control_is_login(w.c, buf_str(&ours)));
    CHECK(!control_is_login(w.c, STR("")) && !control_is_login(w.c, STR("eyJ")));
}

TEST(a_logins_token_is_known_by_its_signature) { run(logins, 0); }

static void former(void)
{
    struct sandbox *a = secure(), *b = secure();
    char first[SANDBOX_TOKEN + 1];

    a->traffic_token[0] = b->traffic_token[0] = 0;
    door_adopt(live_of(a));
    door_adopt(live_of(b));
    CHECK_INT(strlen(a->traffic_token), SANDBOX_TOKEN);
    CHECK(strcmp(a->traffic_token, b->traffic_token) != 0);
    memcpy(first, a->traffic_token, sizeof(first));
    a->traffic_token[0] = 0;
    door_adopt(live_of(a));
    CHECK_STR(a->traffic_token, first); /* at every start */
    a->token[0] = a->traffic_token[0] = 0;
    door_adopt(live_of(a));
    CHECK_STR(a->traffic_token, ""); /* open, as its maker wanted it */
}

TEST(a_sandbox_of_a_former_release_has_a_token_for_its_services) { run(former, 0); }

static void pairs(void)
{
    struct create_spec s = spec();
    struct sandbox *made;
    bool existed;
    struct err err = { 0 };

    s.secure = s.public = false;
    CHECK_INT(control_create(w.c, &w.alice, &s, &made, &existed, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(strstr(err.msg, "secure: true"));
    s.public = true;
    CHECK(create(&w.alice, &s));
    s.secure = true;
    s.public = false;
    CHECK(create(&w.alice, &s));
}

TEST(private_ports_need_a_token_of_the_guest) { run(pairs, 0); }
