/* provider_rig.h - the frame of the providers' tests: a provider is opened in a coroutine, its
 * events are written down, and what a case leaves is ended. Each test program uses a part of it. */
#ifndef TESTS_PROVIDER_RIG_H
#define TESTS_PROVIDER_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/id.h"
#include "base/mem.h"
#include "io/co.h"
#include "keeper_rig.h"
#include "provider/provider.h"

#define UNUSED __attribute__((unused))

enum { WAIT_MS = 15000, MANY = 100, EVENTS = 512, OPEN_PORT = 8080, MIB = 1 << 20 };

static struct provider *p;
static bool real; /* p is the local one */
static char session[8];

/* ---- events ---- */

static struct seen {
    enum machine_event_kind kind;
    char ref[48], reason[16], text[128];
    enum limit_id limit;
} seen[EVENTS];
static size_t nseen;

UNUSED static void on_event(void *arg, const struct machine_event *e)
{
    struct seen *s = &seen[nseen];

    (void)arg;
    CHECK(nseen < EVENTS);
    *s = (struct seen){ .kind = e->kind, .limit = e->limit };
    snprintf(s->ref, sizeof(s->ref), "%s", e->ref ? e->ref : "");
    snprintf(s->reason, sizeof(s->reason), "%s", e->reason ? e->reason : "");
    snprintf(s->text, sizeof(s->text), "%s", e->text ? e->text : "");
    nseen++;
}

UNUSED static const struct seen *find_event(enum machine_event_kind kind, const char *ref)
{
    for (size_t i = 0; i < nseen; i++)
        if (seen[i].kind == kind && !strcmp(seen[i].ref, ref))
            return &seen[i];
    return NULL;
}

UNUSED static const struct seen *await(enum machine_event_kind kind, const char *ref)
{
    int64_t until = co_in(WAIT_MS);
    const struct seen *s;

    while (!(s = find_event(kind, ref))) {
        if (co_now() > until)
            test_fail(__FILE__, __LINE__, "no event %d of '%s'", (int)kind, ref);
        co_sleep(co_in(2));
    }
    return s;
}

UNUSED static size_t count_events(enum machine_event_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < nseen; i++)
        n += seen[i].kind == kind;
    return n;
}

/* ---- the frame of a case ---- */

/* Names of this run alone: cgroups have them machine-wide, where others may run these tests too. */
UNUSED static const char *ref_of(const char *name)
{
    static char refs[8][48];
    static size_t next;
    char *out = refs[next++ % ARRAY_LEN(refs)];

    if (!*session)
        id_random(session, sizeof(session) - 1);
    snprintf(out, sizeof(refs[0]), "%s-%s", name, session);
    return out;
}

UNUSED static struct provider *open_fake(void) { return provider_fake(on_event, NULL); }

UNUSED static struct provider *open_traced(void) { return provider_trace(open_fake()); }

UNUSED static struct provider *open_local(void)
{
    struct provider *out = NULL;
    struct err err = { 0 };

    if (provider_local(&(struct keep_where){ keeper_rig.place, NULL, &keeper_rig.whose }, on_event,
                       NULL, &out, &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return out;
}

UNUSED static int kill_ref(void *arg, const char *ref)
{
    struct err err = { 0 };

    (void)arg;
    if (strstr(ref, session))
        (void)!p->ops->destroy(p, ref, &err);
    return 0;
}

struct frame {
    struct provider *(*open)(void);
    void (*fn)(void);
};

UNUSED static void frame(void *arg)
{
    const struct frame *f = arg;
    struct err err = { 0 };

    nseen = 0;
    p = f->open();
    f->fn();
    CHECK_INT(p->ops->list(p, kill_ref, NULL, &err), 0);
    provider_closep(&p);
    co_cancel_all();
}

UNUSED static void run(struct provider *(*open)(void), void (*fn)(void))
{
    struct frame f = { open, fn };

    real = open == open_local;
    if (real && !keeper_rig_start())
        return;
    test_co(frame, &f);
}

#define SUITE(name)                                                                                \
    static void name(void);                                                                        \
    TEST(name##_in_memory) { run(open_fake, name); }                                               \
    TEST(name##_traced) { run(open_traced, name); }                                                \
    TEST(name##_on_this_computer) { run(open_local, name); }                                       \
    static void name(void)
#define LOCAL(name)                                                                                \
    static void name##_case(void);                                                                 \
    TEST(name) { run(open_local, name##_case); }                                                   \
    static void name##_case(void)

UNUSED static struct order plain_order(void)
{
    return (struct order){ .template = "base", .network = ORDER_NET_NONE };
}

UNUSED static int make(const char *name, struct machine_state *out, struct err *err)
{
    struct order o = plain_order();

    *err = (struct err){ 0 };
    return p->ops->create(p, ref_of(name), &o, out, err);
}

UNUSED static void must_make(const char *name)
{
    struct machine_state state;
    struct err err;

    if (make(name, &state, &err))
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.msg);
}

struct looking {
    const char *ref;
    size_t found, all;
};

UNUSED static int look(void *arg, const char *ref)
{
    struct looking *l = arg;

    l->found += !strcmp(l->ref, ref);
    l->all += strstr(ref, session) != NULL;
    return 0;
}

UNUSED static struct looking listed(const char *name)
{
    struct looking l = { .ref = ref_of(name) };
    struct err err = { 0 };

    if (p->ops->list(p, look, &l, &err))
        test_fail(__FILE__, __LINE__, "list: %s", err.msg);
    return l;
}

/* Says something and hears how the answer begins; closes fd. */
UNUSED static void check_http(int fd, const char *ask, const char *begins)
{
    char in[256] = "";
    ssize_t n;

    CHECK_INT(co_write(fd, ask, strlen(ask), co_in(WAIT_MS)), 0);
    n = co_read(fd, in, sizeof(in) - 1, co_in(WAIT_MS));
    in[MAX(n, 0)] = 0;
    if (strncmp(in, begins, strlen(begins)))
        CHECK_STR(in, begins);
    co_close(fd);
}

UNUSED static void check_guest(const char *name)
{
    struct err err = { 0 };
    int fd = p->ops->dial(p, ref_of(name), PROVIDER_GUEST_PORT, co_in(WAIT_MS), &err);

    if (fd < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    check_http(fd, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 204 ");
}

/* ---- many at once ---- */

static int going, failures;

struct errand {
    char name[16];
    int (*fn)(const char *name, struct err *err);
};

UNUSED static void do_errand(void *arg)
{
    struct errand *e = arg;
    struct err err = { 0 };

    if (e->fn(e->name, &err)) {
        failures++;
        printf("# %s: %s\n", e->name, err.msg);
    }
    free(e);
    going--;
}

UNUSED static void all_at_once(int n, const char *prefix,
                               int (*fn)(const char *name, struct err *err))
{
    going = n;
    failures = 0;
    for (int i = 0; i < n; i++) {
        struct errand *e = xcalloc(1, sizeof(*e));

        e->fn = fn;
        snprintf(e->name, sizeof(e->name), "%s%d", prefix, i);
        CHECK_INT(co_go(do_errand, e, NULL), 0);
    }
    while (going)
        co_sleep(co_in(1));
}

UNUSED static int make_one(const char *name, struct err *err)
{
    struct machine_state state;

    return make(name, &state, err);
}

UNUSED static int end_one(const char *name, struct err *err)
{
    return p->ops->destroy(p, ref_of(name), err);
}

#endif
