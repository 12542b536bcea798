/* test_control_marks.c - a machine says which store its sandbox is in, and whose it is. */
#include "control_rig.h"

static void start(void (*fn)(void), int pool)
{
    run_frame((struct frame){ .fn = fn, .lasts = true }, pool);
}

static bool is_marked(const char *id, const char *owner)
{
    char store[ORDER_ID];
    struct machine_state m;
    struct err err = { 0 };

    value_of(STORE_MARK, store);
    CHECK_INT(w.fake->ops->stat(w.fake, id, &m, &err), 0);
    return m.mark.claim == ORDER_CLAIMED && !strcmp(m.mark.store, store) &&
           !strcmp(m.mark.owner, owner);
}

static char last[SANDBOX_ID + 1];

static int last_is_alices(void) { return is_marked(last, "alice"); }

static void are_marked(void)
{
    struct create_spec s = spec();

    wait_until(machines, 1);
    for (int i = 0; i < 2; i++) { /* one that waited, and one that is made */
        s.strict = i;
        memcpy(last, create(&w.alice, &s)->id, sizeof(last));
        wait_until(last_is_alices, 1);
    }
}

TEST(a_machine_says_whose_it_is) { start(are_marked, 1); }

static void is_marked_later(void)
{
    struct create_spec s = spec();

    provider_fake_fail(w.fake, "claim", ERR_UNAVAILABLE, 2);
    memcpy(last, create(&w.alice, &s)->id, sizeof(last));
    wait_until(last_is_alices, 1);
}

TEST(as_soon_as_that_is_possible) { start(is_marked_later, 0); }

static void forgets_its_mark(void)
{
    const struct order_mark none = { .claim = ORDER_UNCLAIMED };
    struct create_spec s = spec();
    struct err err = { 0 };

    memcpy(last, create(&w.alice, &s)->id, sizeof(last));
    wait_until(last_is_alices, 1);
    CHECK_INT(w.fake->ops->claim(w.fake, last, &(struct limits){ 0 }, &none, &err), 0);
    reopen_control();
    wait_until(last_is_alices, 1);
}

TEST(or_at_the_next_start) { start(forgets_its_mark, 0); }
