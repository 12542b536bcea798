/* router_rig.h - a router whose control part is a handful of records, and whose sandboxes' ports
 * are scripts on the loopback. */
#ifndef UNIT_ROUTER_RIG_H
#define UNIT_ROUTER_RIG_H

#include "router/router.h"

#include "api/api.h"
#include "rig.h"
#include "router/target.h"
#include "router/traffic.h"

#define ID   "iaaaaaaaaaaaaaaaaaaaa"
#define OTH  "ibbbbbbbbbbbbbbbbbbbb" /* private */
#define GONE "icccccccccccccccccccc" /* paused */
#define MOVE "idddddddddddddddddddd" /* resuming */
#define WAKE "ieeeeeeeeeeeeeeeeeeee" /* paused, and woken by a request */
#define SHUT "iffffffffffffffffffff" /* the same, private */
#define TRY  "igggggggggggggggggggg" /* as a case wants it */
#define UUID "01234567-89ab-4cde-8f01-23456789abcd"

/* ---- the control part ---- */

static struct sandbox boxes[] = {
    { .id = ID, .uuid = UUID, .state = SANDBOX_RUNNING, .public = true },
    { .id = OTH, .state = SANDBOX_RUNNING, .traffic_token = "secret-token" },
    { .id = GONE, .state = SANDBOX_PAUSED, .public = true },
    { .id = MOVE, .state = SANDBOX_RESUMING, .public = true },
    { .id = WAKE, .state = SANDBOX_PAUSED, .public = true, .life.auto_resume = true },
    { .id = SHUT, .state = SANDBOX_PAUSED, .traffic_token = "t", .life.auto_resume = true },
    { .id = TRY, .life.auto_resume = true },
};
static struct sandbox *const trial = &boxes[ARRAY_LEN(boxes) - 1];
static int holds, touches, wakes, doubts, key_questions;
static bool files_only;      /* is all that is left of a paused one */
static const char *ticket;   /* that is good now, for any port */
static uint16_t cookie_port; /* the cookie "good" is good for */
static enum err_code wake_fails;
static struct client client;
static struct rig upstream;
static enum err_code dial_fails;
static enum err_reason dial_reason;

const char *control_domain(const struct control *c)
{
    (void)c;
    return "cove.test:8000";
}

struct client *control_client(struct control *c)
{
    (void)c;
    return &client;
}

/* "key-1" owns everything, "key-2" nothing */
int control_actor_by_key(struct control *c, struct str key, struct actor *out, struct err *err)
{
    (void)c;
    key_questions++;
    if (str_is(key, "down"))
        return err_set(err, ERR_UNAVAILABLE, "the store is away");
    co_pass(); /* as the real one may */
    *out = (struct actor){ .user = str_is(key, "key-1") ? 1 : 2 };
    return str_starts(key, "key-") ? 0 : err_set(err, ERR_UNAUTHENTICATED, "no such key");
}

struct sandbox *control_find(struct control *c, const struct actor *who, struct str id,
                             struct err *err)
{
    (void)c;
    for (size_t i = 0; i < ARRAY_LEN(boxes) && (!who || who->user == 1); i++)
        if (str_is(id, boxes[i].id) || str_is(id, boxes[i].uuid))
            return &boxes[i];
    err_set(err, ERR_NOT_FOUND, "no such sandbox");
    return NULL;
}

void control_hold(struct sandbox *s)
{
    (void)s;
    holds++;
}

void control_release(struct sandbox *s)
{
    (void)s;
    holds--;
}

void control_touch(struct sandbox *s)
{
    (void)s;
    touches++;
}

int control_wake(struct control *c, struct sandbox *s, struct err *err)
{
    (void)c;
    co_sleep(co_in(20));
    if (wake_fails)
        return err_set(err, wake_fails, "it does not wake");
    wakes += s->state != SANDBOX_RUNNING;
    s->state = SANDBOX_RUNNING;
    return 0;
}

int control_wake_stray(struct control *c, struct sandbox *s, struct err *err)
{
    if (files_only && s->state == SANDBOX_PAUSED)
        return err_set(err, ERR_DENIED, "only its files are kept");
    return control_wake(c, s, err);
}

bool control_door_take(struct sandbox *s, uint16_t port, struct str text)
{
    (void)s, (void)port;
    if (!ticket || !str_is(text, ticket))
        return false;
    ticket = NULL;
    return true;
}

int64_t control_door_cookie(const struct sandbox *s, uint16_t port, char out[static DOOR_COOKIE])
{
    (void)s;
    cookie_port = port;
    snprintf(out, DOOR_COOKIE, "good");
    return 60;
}

bool control_door_cookie_good(const struct sandbox *s, uint16_t port, struct str text)
{
    (void)s;
    return port == cookie_port && str_is(text, "good");
}

bool control_is_login(const struct control *c, struct str text)
{
    (void)c;
    return str_is(text, "eyJ.login");
}

void control_doubt(struct sandbox *s)
{
    (void)s;
    doubts++;
}

static int dial(void *arg, int64_t until, struct err *err)
{
    AUTO(co_closep) int fd = -1;

    (void)arg;
    if (dial_fails) {
        err_set(err, dial_fails, "port is not open");
        err->reason = dial_reason;
        return -1;
    }
    fd = sock_open(&upstream.addr, err);
    CHECK_INT(co_connect(fd, &upstream.addr.sa, upstream.addr.len, until), 0);
    return TAKE(fd, -1);
}

void control_to(struct control *c, struct sandbox *s, uint16_t port, struct client_to *out)
{
    (void)c, (void)port;
    *out = (struct client_to){ .dial = dial, .key = s->id };
}

/* ---- the rig ---- */

static const char *const names[] = { "also.example", NULL };
static struct router *router;
static struct api api;
static struct httpd front_server, preview_server;
static struct rig front, preview;

static int get_api(struct call *c, void *body, struct err *err)
{
    (void)body, (void)err;
    return call_reply(c, 200, "text/plain", STR("the API"));
}

static const struct route routes[] = {
    { "GET", "/", ROUTE_RAW, ROUTE_OPEN, NULL, 0, get_api, "api", "", 0 }, { 0 }
};
static const struct route *const tables[] = { routes, NULL };

struct frame {
    void (*fn)(void);
    void (*script)(int fd, int nth);
};

static void frame(void *arg)
{
    const struct frame *f = arg;

    client_init(&client);
    dial_fails = ERR_NONE;
    dial_reason = ERR_REASON_NONE;
    router = router_open(NULL, &(struct router_options){ .names = names });
    api = (struct api){ .router = router };
    front_server = (struct httpd){ .tables = tables, .ctx = &api, .first = router_first };
    preview_server =
        (struct httpd){ .tables = router_preview_tables, .ctx = &api, .first = router_preview };
    front = (struct rig){ .d = &front_server };
    preview = (struct rig){ .d = &preview_server };
    upstream = (struct rig){ .script = f->script };
    rig_start(&front);
    rig_start(&preview);
    rig_start(&upstream);
    f->fn();
    for (int i = 0; i < 400 && (front_server.conns || preview_server.conns); i++)
        co_sleep(co_in(5));
    CHECK_INT(front_server.conns + preview_server.conns, 0);
    router_close(router);
    CHECK_INT(holds, 0);
    client_finish(&client);
    co_cancel_all();
}

static void run(void (*fn)(void), void (*script)(int, int))
{
    struct frame f = { fn, script };

    test_co(frame, &f);
}

static int mirrored; /* so many */

UNUSED static void mirror(int fd, int nth) /* answers with the head it got */
{
    (void)nth;
    for (;;) {
        AUTO(buf_free) struct buf b = { 0 }, head = { 0 };

        if (!rig_hear(fd, &b, "\r\n\r\n"))
            return;
        mirrored++;
        buf_printf(&head,
                   "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nSet-Cookie: a=b\r\n"
                   "Service-Worker-Allowed: /\r\nX-Own: 1\r\n\r\n%s",
                   b.len, b.data);
        rig_say(fd, head.data);
    }
}

static char heard[16384];

/* One request on a connection of its own; the answer is in `heard`, its status is returned. */
static int ask_by(const struct addr *a, const char *method, const char *target, const char *host,
                  const char *lines)
{
    AUTO(buf_free) struct buf rq = { 0 }, b = { 0 };
    int fd = rig_connect(a);

    buf_printf(&rq, "%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", method, target,
               host, lines);
    rig_say(fd, rq.data);
    rig_hear_all(fd, &b);
    co_close(fd);
    snprintf(heard, sizeof(heard), "%s", buf_cstr(&b));
    return strlen(heard) > 12 ? (heard[9] - '0') * 100 + (heard[10] - '0') * 10 + heard[11] - '0'
                              : 0;
}

UNUSED static int ask_of(const struct addr *a, const char *target, const char *host,
                         const char *lines)
{
    return ask_by(a, "GET", target, host, lines);
}

UNUSED static int ask(const char *target, const char *host, const char *lines)
{
    return ask_of(&front.addr, target, host, lines);
}

UNUSED static void has(const char *text)
{
    if (!strstr(heard, text))
        CHECK_STR(heard, text);
}

UNUSED static void lacks(const char *text)
{
    if (strcasestr(heard, text))
        test_fail(__FILE__, __LINE__, "\"%s\" is in \"%s\"", text, heard);
}

#define E2B_TO(id, port) "E2b-Sandbox-Id: " id "\r\nE2b-Sandbox-Port: " port "\r\n"
#define X_TO(id)         "X-Sandbox-ID: " id "\r\n"

#endif
