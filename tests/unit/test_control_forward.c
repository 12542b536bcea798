/* test_control_forward.c - who may take which port of this machine for a forward, what a forward
 * may lead to without being asked for a token, and what it wakes. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control_rig.h"

static struct sandbox *forwarded(const struct actor *who, struct sandbox_forward f, bool secure,
                                 const struct map *env, struct err *err)
{
    struct create_spec s = spec();
    struct sandbox *b = NULL;

    s.secure = secure;
    s.env = env;
    s.forwards = (struct objs){ 1, &f };
    return try_create(who, &s, &b, err) ? NULL : b;
}

/* A port that is free; others may take it before we do. */
static int64_t free_port(void)
{
    struct err err = { 0 };
    struct sandbox *b = forwarded(&w.admin, (struct sandbox_forward){ 0, 80 }, true, NULL, &err);
    int64_t port = b ? ((struct sandbox_forward *)b->forwards.items)->host_port : 0;

    CHECK(port > 0);
    CHECK_INT(control_kill(w.c, &w.admin, b, NULL, &err), 0);
    return port;
}

static bool may_name(const struct actor *who, int64_t host_port)
{
    struct err err = { 0 };

    if (forwarded(who, (struct sandbox_forward){ host_port, 80 }, true, NULL, &err))
        return true;
    if (err.code != ERR_DENIED || !strstr(err.msg, "forwards[0]"))
        return strstr(err.msg, "forward of host port"); /* somebody else has it: it was tried */
    CHECK(strstr(err.msg, "--forward-ports"));
    return false;
}

static void naming(void)
{
    int64_t port = free_port();

    CHECK(!may_name(&w.alice, port));
    CHECK(!may_name(&w.alice, 25432));
    CHECK(may_name(&w.admin, port)); /* the same one */
    CHECK(may_name(&w.alice, 0));    /* any that is free takes nothing from anybody */
}

TEST(only_an_admin_names_a_port_of_the_machine) { run(naming, 0); }

static void range(void)
{
    CHECK(may_name(&w.alice, 20000));
    CHECK(may_name(&w.alice, 20009));
    CHECK(!may_name(&w.alice, 19999));
    CHECK(!may_name(&w.alice, 20010));
    CHECK(may_name(&w.admin, 20010));
    CHECK(may_name(&w.alice, 0));
}

static void allow_range(void)
{
    w.options.forward_min = 20000;
    w.options.forward_max = 20009;
}

TEST(everybody_names_ports_of_the_operators_range)
{
    run_frame((struct frame){ .fn = range, .before = allow_range }, 0);
}

static struct map_item moved_item[] = { { (char[]){ "COVE_REST_PORT" }, (char[]){ "9100" } } };
static struct map_item none_item[] = { { (char[]){ "COVE_SERVICES" }, (char[]){ "none" } } };
static struct map moved = { 1, moved_item }, none = { 1, none_item };

static const struct door_row {
    const char *name;
    struct sandbox_forward f;
    bool secure;
    const struct map *env;
    bool made;
} doors[] = {
    { "REST", { 0, 8765, false }, true, NULL, false },
    { "Jupyter", { 0, 8888, false }, true, NULL, false },
    { "the code interpreter", { 0, 49999, false }, true, NULL, false },
    { "one that is meant", { 0, 8765, true }, true, NULL, true },
    { "one without a token to ask for", { 0, 8765, false }, false, NULL, true },
    { "a port of the sandbox's own", { 0, 8080, false }, true, NULL, true },
    { "the guest asks for itself", { 0, 49983, false }, true, NULL, true },
    { "a door that was moved here", { 0, 9100, false }, true, &moved, false },
    { "a door that was moved away", { 0, 8765, false }, true, &moved, true },
    { "no services", { 0, 8765, false }, true, &none, true },
};
static const struct door_row *at;

static void door(void)
{
    struct err err = { 0 };
    const struct sandbox *b = forwarded(&w.admin, at->f, at->secure, at->env, &err);

    CHECK_INT(b != NULL, at->made);
    if (b) {
        CHECK_INT(((struct sandbox_forward *)b->forwards.items)->public, at->f.public);
        return;
    }
    CHECK_INT(err.code, ERR_INVALID); /* for admins, too: it is a question of what is meant */
    CHECK(strstr(err.msg, "forwards[0]") && strstr(err.msg, "\"public\": true"));
}

TEST_ROWS(a_forward_to_a_door_says_that_it_is_public, doors, test_once)
{
    at = row;
    run(door, 0);
}

/* What the release before has left: a record without the field. */
static void left_behind(void)
{
    struct sandbox row = { 0 };
    struct sandbox *b;
    struct sandbox_forward *f;
    struct err err = { 0 };
    char id[SANDBOX_ID + 1];

    b = forwarded(&w.alice, (struct sandbox_forward){ 0, 8765, true }, true, NULL, &err);
    CHECK(b != NULL);
    memcpy(id, b->id, sizeof(id));
    sandbox_copy(&row, b);
    f = row.forwards.items;
    f->public = false;
    CHECK_INT(w.store->ops->sandbox_save(w.store, &row, SANDBOX_RUNNING, NULL, &err), 0);
    sandbox_finish(&row);
    reopen_control();
    b = found(id);
    CHECK(b != NULL);
    f = b->forwards.items;
    CHECK_INT(f->port, 8765);
    CHECK(!f->public && f->host_port > 0);
}

static void lasts(void) { w.options.ephemeral = false; }

TEST(what_the_release_before_forwarded_stays_open)
{
    struct frame f = { .fn = left_behind, .before = lasts, .lasts = true };

    test_co(frame, &f);
}

/* ---- waking ---- */

static const struct wake_row {
    const char *name;
    int64_t port;
    bool secure, memory, private, wakes;
} wake_rows[] = {
    { "a user's port", 80, true, true, false, true },
    { "a user's private port", 80, true, true, true, false },
    { "a user's port, of files alone", 80, true, false, false, false },
    { "the guest's", 49983, true, true, false, false },
    { "the guest's, which has no token", 49983, false, true, false, true },
};
static const struct wake_row *waking;

static int connected_to(int64_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK_INT(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0); /* the kernel takes it in */
    return fd;
}

static void wakes(void)
{
    struct sandbox_forward f = { 0, waking->port };
    struct create_spec s = spec();
    struct sandbox *b = NULL;
    struct err err = { 0 };
    AUTO(closep) int fd = -1;
    char end;

    s.secure = waking->secure;
    s.public = !waking->private;
    s.life.auto_resume = true;
    s.forwards = (struct objs){ 1, &f };
    CHECK_INT(try_create(&w.alice, &s, &b, &err), 0);
    CHECK_INT(control_pause(w.c, &w.alice, b, NULL, waking->memory, &err), 0);
    fd = connected_to(((struct sandbox_forward *)b->forwards.items)->host_port);
    for (int i = 0; i < 5000 && b->state != SANDBOX_RUNNING; i++) {
        if (recv(fd, &end, 1, MSG_DONTWAIT) == 0) /* it was looked at, and let go */
            break;
        usleep(1000);
        co_pass();
    }
    CHECK_INT(b->state, waking->wakes ? SANDBOX_RUNNING : SANDBOX_PAUSED);
}

TEST_ROWS(a_connection_to_a_forward_is_a_stray_request, wake_rows, test_once)
{
    waking = row;
    run(wakes, 0);
}
