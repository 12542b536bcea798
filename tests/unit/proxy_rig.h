/* proxy_rig.h - a front server that passes everything on to an upstream, which is a script or
 * httpd; for the tests of the proxy. */
#ifndef TESTS_PROXY_RIG_H
#define TESTS_PROXY_RIG_H

#include "io/proxy.h"

#include "rig.h"

static struct client client;
static struct rig front, upstream;
static struct httpd front_server, upstream_server;
static struct proxy options;        /* copied for each call */
static enum proxy_fault last_fault; /* of the last call */
static char last_error[256];

static int through(struct call *c, struct err *err)
{
    struct proxy p = options;
    int r;

    p.client = &client;
    if (!p.to.dial && !p.to.addr)
        p.to.addr = &upstream.addr;
    r = proxy_call(&p, c, err);
    last_fault = p.fault;
    snprintf(last_error, sizeof(last_error), "%s", r < 0 ? err->msg : "");
    return r < 0 ? -1 : 1;
}

/* ---- the frame of a case ---- */

struct frame {
    void (*fn)(void);
    void (*script)(int fd, int nth);
};

static void frame(void *arg)
{
    const struct frame *f = arg;
    static const struct route *const none[] = { NULL };

    client_init(&client);
    options = (struct proxy){ 0 };
    last_fault = PROXY_OK;
    front_server = (struct httpd){ .tables = none, .first = through };
    front = (struct rig){ .d = &front_server };
    upstream = (struct rig){ .d = f->script ? NULL : &upstream_server, .script = f->script };
    rig_start(&front);
    rig_start(&upstream);
    f->fn();
    for (int i = 0; i < 200 && front_server.conns; i++)
        co_sleep(co_in(5));
    CHECK_INT(front_server.conns, 0); /* no case leaves a connection of its own behind */
    client_finish(&client);
    for (int i = 0; i < 200 && upstream.ended < upstream.accepted; i++)
        co_sleep(co_in(5)); /* its script sees the end itself, where it waits for one */
    co_cancel_all();
}

static void run(void (*fn)(void), void (*script)(int, int))
{
    struct frame f = { fn, script };

    test_co(frame, &f);
}

#define CLOSE "Connection: close\r\n\r\n"

/* Sends text, hears everything that comes back; returns rig_hear_all()'s verdict. */
UNUSED static int talk(const char *text, struct buf *b)
{
    int fd = rig_connect(&front.addr), r;

    rig_say(fd, text);
    r = rig_hear_all(fd, b);
    co_close(fd);
    return r;
}

static void check_has(const struct buf *b, const char *text)
{
    if (!strstr(buf_cstr(b), text))
        CHECK_STR(buf_cstr(b), text);
}

UNUSED static void check_lacks(const struct buf *b, const char *text)
{
    if (strcasestr(buf_cstr(b), text))
        test_fail(__FILE__, __LINE__, "\"%s\" is in \"%s\"", text, buf_cstr(b));
}

#endif
