/* fetch_rig.h - for the tests of fetch: a server that speaks by script, names that are answered by
 * a resolver of the test's own, and 127.0.0.1 alone allowed: every other address of the machine
 * stands for what must not be reached. Each test program uses a part of it. */
#ifndef TESTS_FETCH_RIG_H
#define TESTS_FETCH_RIG_H

#include "io/fetch.h"

#include <netinet/in.h>
#include <stdatomic.h>

#include "io/fetch_impl.h"
#include "rig.h"

static struct rig rig;
static struct fetch *fetch;
static struct buf heard; /* by the server: all heads and bodies */

/* ---- names ---- */

static const char *const *answers; /* one list of addresses after the other */
static atomic_int lookups;
static atomic_int delay_ms;

static int resolve(void *arg, const char *name, uint16_t port, struct addr *out, int max,
                   struct err *err)
{
    struct str list, item;
    int n = 0, nth = lookups++;
    char text[80];

    (void)arg, (void)max;
    if (delay_ms)
        usleep((useconds_t)delay_ms * 1000);
    if (!strcmp(name, "none.test"))
        return 0;
    for (list = str_of(answers ? answers[nth] : "127.0.0.1"); str_next(&list, ',', &item);) {
        snprintf(text, sizeof(text), memchr(item.p, ':', item.n) ? "[%.*s]:%u" : "%.*s:%u",
                 STR_ARG(item), port);
        if (addr_parse(str_of(text), &out[n++], err))
            return -1;
    }
    return n;
}

/* ---- the frame of a case ---- */

struct frame {
    void (*fn)(void);
    void (*script)(int fd, int nth);
    const char *ca;
    struct httpd *d;
};

static void frame(void *arg)
{
    const struct frame *f = arg;
    struct netrange_list allow = { .n = 0 };
    struct fetch_options o = { .ca_file = f->ca, .allow = &allow, .resolve = resolve };
    struct err err = { 0 };

    CHECK_INT(netrange_list_add(&allow, STR("127.0.0.1"), &err), 0);
    lookups = delay_ms = 0;
    answers = NULL;
    heard.len = 0;
    fetch = fetch_new(&o);
    rig = (struct rig){ .script = f->script, .d = f->d };
    rig_start(&rig);
    f->fn();
    CHECK_INT(fetch->running, 0);
    fetch_closep(&fetch);
    co_cancel_all();
}

UNUSED static void run(void (*fn)(void), void (*script)(int, int))
{
    struct frame f = { .fn = fn, .script = script };

    test_co(frame, &f);
    buf_free(&heard);
}

static unsigned port(void)
{
    return ntohs(((const struct sockaddr_in *)(const void *)&rig.addr.sa)->sin_port);
}

UNUSED static const char *at(const char *format) /* "http://%u..": with the server's port */
{
    static char text[512];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), format, port());
#pragma GCC diagnostic pop
    return text;
}

static int into_buf(void *arg, const void *p, size_t n, struct err *err)
{
    (void)err;
    buf_add(arg, p, n);
    return 0;
}

UNUSED static void expect_get(const char *url, const char *want)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct fetch_result r;
    struct err err = { 0 };

    if (fetch_get(fetch, str_of(url), NULL, into_buf, &got, &r, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_STR(buf_cstr(&got), want);
    CHECK_INT(r.bytes, (int64_t)strlen(want));
}

UNUSED static void expect_refused(const char *url, const struct fetch_bounds *b, enum err_code code,
                                  const char *words)
{
    AUTO(buf_free) struct buf got = { 0 };
    struct fetch_result r;
    struct err err = { 0 };

    CHECK_INT(fetch_get(fetch, str_of(url), b, into_buf, &got, &r, &err), -1);
    if (err.code != code || !strstr(err.msg, words))
        test_fail(__FILE__, __LINE__, "%s: code %d \"%s\", expected %d \"%s\"", url, err.code,
                  err.msg, code, words);
    CHECK(!strstr(err.msg, "secret"));
}

UNUSED static void hear(int fd)
{
    AUTO(buf_free) struct buf b = { 0 };

    rig_hear(fd, &b, "\r\n\r\n");
    buf_add_str(&heard, buf_str(&b));
}

#endif
