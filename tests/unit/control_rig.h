/* control_rig.h - a control part over the fake provider and SQLite in a directory of its own, with
 * three users, for the tests of src/control. Each test program uses a part of it. */
#ifndef TESTS_CONTROL_RIG_H
#define TESTS_CONTROL_RIG_H

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "control/control.h"
#include "io/co.h"
#include "test.h"

#define UNUSED __attribute__((unused))

static struct {
    char dir[64];
    struct store *store;
    struct provider *fake;
    struct control *c;
    struct actor alice, bob, admin;
    struct control_options options;
} w; /* the world of one case */

static const struct store_ops *store_real;
static struct store_ops store_bent;           /* the same, with calls that fail on request */
static int add_fails, save_fails, save_skips; /* save_skips: these work first */
static struct provider_ops lasting;           /* the fake's, whose machines survive closing */

static int bent_add(struct store *s, const struct sandbox *b, const struct event *e,
                    char existing[SANDBOX_ID + 1], struct err *err)
{
    if (add_fails > 0 && add_fails--)
        return err_set(err, ERR_NO_SPACE, "no space for a row");
    return store_real->sandbox_add(s, b, e, existing, err);
}

static int bent_save(struct store *s, const struct sandbox *b, enum sandbox_state expect,
                     const struct event *e, struct err *err)
{
    if (save_skips > 0)
        save_skips--;
    else if (save_fails > 0 && save_fails--)
        return err_set(err, ERR_NO_SPACE, "no space for a row");
    return store_real->sandbox_save(s, b, expect, e, err);
}

static void no_close(struct provider *p) { (void)p; }

UNUSED static void set(const char *assignment)
{
    static const struct setting *const tables[] = { control_settings, NULL };
    struct err err = { 0 };

    CHECK_INT(setting_set(tables, assignment, &err), 0);
}

static struct actor user_made(const char *name, enum user_role role)
{
    struct user u = { .role = role, .created_ms = 1 };
    struct err err = { 0 };
    struct actor a = { 0 };

    snprintf(u.name, sizeof(u.name), "%s", name);
    CHECK_INT(w.store->ops->user_add(w.store, &u, &err), 0);
    a.user = u.id;
    a.admin = role == ROLE_ADMIN;
    memcpy(a.name, u.name, sizeof(a.name));
    return a;
}

UNUSED static void open_control(void)
{
    struct err err = { 0 };

    if (control_open(&w.options, &w.c, &err))
        test_fail(__FILE__, __LINE__, "control_open: %s", err.msg);
}

UNUSED static void reopen_control(void)
{
    control_close(w.c);
    w.c = NULL;
    open_control();
}

static void open_world(void)
{
    struct err err = { 0 };
    char path[96];

    snprintf(w.dir, sizeof(w.dir), "/tmp/cove-control-XXXXXX");
    CHECK(mkdtemp(w.dir) != NULL);
    snprintf(path, sizeof(path), "%s/store.db", w.dir);
    CHECK_INT(store_open_sqlite(path, &w.store, &err), 0);
    store_real = w.store->ops;
    store_bent = *store_real;
    store_bent.sandbox_add = bent_add;
    store_bent.sandbox_save = bent_save;
    w.store->ops = &store_bent;
    add_fails = save_fails = save_skips = 0;
    w.alice = user_made("alice", ROLE_USER);
    w.bob = user_made("bob", ROLE_USER);
    w.admin = user_made("root", ROLE_ADMIN);
    w.c = NULL;
    w.fake = provider_fake(control_event, &w.c);
    lasting = *w.fake->ops;
    lasting.close = no_close;
    w.options = (struct control_options){ .store = w.store,
                                          .provider = w.fake,
                                          .domain = "localhost:8000" };
}

static void close_world(void)
{
    char path[96];

    control_close(w.c);
    w.c = NULL;
    w.store->ops = store_real;
    store_closep(&w.store);
    for (const char *const *e = (const char *const[]){ "", "-wal", "-shm", NULL }; *e; e++) {
        snprintf(path, sizeof(path), "%s/store.db%s", w.dir, *e);
        unlink(path);
    }
    CHECK_INT(rmdir(w.dir), 0);
}

/* ---- the frame of a case ---- */

struct frame {
    void (*fn)(void);
    void (*before)(void); /* the control part opens; may be NULL */
    bool lasts;           /* machines survive it */
};

static void frame(void *arg)
{
    const struct frame *f = arg;
    const struct provider_ops *fake;

    log_set_level("off");
    co_skip_waits(true); /* nobody here is outside this process: back-offs cost no time */
    open_world();
    fake = w.fake->ops;
    if (f->lasts)
        w.fake->ops = &lasting;
    if (f->before)
        f->before();
    open_control();
    f->fn();
    if (f->lasts) {
        struct provider *p = w.fake;

        close_world();
        p->ops = fake;
        provider_closep(&p);
        return;
    }
    close_world();
}

static void run_frame(struct frame f, int pool)
{
    char text[32];

    snprintf(text, sizeof(text), "pool.size=%d", pool);
    set(text);
    test_co(frame, &f);
}

UNUSED static void run(void (*fn)(void), int pool) { run_frame((struct frame){ .fn = fn }, pool); }

/* ---- shorthands ---- */

UNUSED static struct create_spec spec(void)
{
    return (struct create_spec){ .template = "base",
                                 .facade = "v1",
                                 .life = { .timeout_ms = 300000 },
                                 .network = NETWORK_OPEN,
                                 .secure = true,
                                 .public = true };
}

UNUSED static int try_create(const struct actor *who, const struct create_spec *s,
                             struct sandbox **out, struct err *err)
{
    bool existed;

    *err = (struct err){ 0 };
    return control_create(w.c, who, s, out, &existed, err);
}

UNUSED static struct sandbox *create(const struct actor *who, const struct create_spec *s)
{
    struct sandbox *out = NULL;
    struct err err;

    if (try_create(who, s, &out, &err))
        test_fail(__FILE__, __LINE__, "create: %s", err.msg);
    return out;
}

static int count_ref(void *arg, const char *ref)
{
    (void)ref;
    ++*(int *)arg;
    return 0;
}

UNUSED static int machines(void)
{
    struct err err = { 0 };
    int n = 0;

    CHECK_INT(w.fake->ops->list(w.fake, count_ref, &n, &err), 0);
    return n;
}

static int count_box(void *arg, struct sandbox *s)
{
    (void)s;
    ++*(int *)arg;
    return 0;
}

UNUSED static int sandboxes(void)
{
    struct sandbox_filter f = { .states = ~0u };
    struct err err = { 0 };
    bool more;
    int n = 0;

    CHECK_INT(control_list(w.c, &w.admin, &f, count_box, &n, &more, &err), 0);
    return n;
}

UNUSED static void wait_until(int (*count)(void), int want)
{
    for (int64_t until = clock_ms() + 20000; count() != want && clock_ms() < until;)
        co_sleep(co_in(5));
    CHECK_INT(count(), want);
}

UNUSED static bool machine_paused(const char *id)
{
    struct machine_state m = { 0 };
    struct err err = { 0 };

    CHECK_INT(w.fake->ops->stat(w.fake, id, &m, &err), 0);
    return m.paused;
}

UNUSED static struct sandbox *found(const char *id)
{
    struct err err = { 0 };

    return control_find(w.c, &w.admin, str_of(id), &err);
}

static const char *wait_for;

static int state_now(void)
{
    const struct sandbox *b = found(wait_for);

    return b ? (int)b->state : SANDBOX_ENDED;
}

UNUSED static void await_state(const char *id, enum sandbox_state state)
{
    wait_for = id;
    wait_until(state_now, state);
}

/* What the store has kept by that name. */
UNUSED static void value_of(const char *name, char out[static ORDER_ID])
{
    AUTO(buf_free) struct buf value = { 0 };
    struct err err = { 0 };

    CHECK_INT(w.store->ops->value_once(w.store, name, STR("value0"), &value, &err), 0);
    snprintf(out, ORDER_ID, "%s", buf_cstr(&value));
}

static int copy_reason(void *arg, const struct sandbox *s)
{
    snprintf(arg, 256, "%s", s->reason ? s->reason : "(none)");
    return 1;
}

/* Why the last one ended; "" when none has. */
UNUSED static const char *last_reason(void)
{
    static char reason[256];
    struct err err = { 0 };

    reason[0] = 0;
    CHECK_INT(control_ended(w.c, &w.admin, 0, 1, copy_reason, reason, &err), 0);
    return reason;
}

static int add_kind(void *arg, const struct event *e)
{
    buf_printf(arg, "%s%s", ((struct buf *)arg)->len ? " " : "", e->kind);
    return 0;
}

/* The kinds of its events, in order. */
UNUSED static const char *events_of(const char *id)
{
    static struct buf kinds;
    struct err err = { 0 };

    buf_free(&kinds);
    kinds = (struct buf){ 0 };
    CHECK_INT(control_events(w.c, id, 0, 100, add_kind, &kinds, &err), 0);
    return buf_cstr(&kinds);
}

#endif
