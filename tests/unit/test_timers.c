/* test_timers.c - the heap of deadlines. */
#include "io/timers.h"
#include "test.h"

enum { MANY = 500 };

static struct timer *nearest_of(struct timer *t, int n)
{
    struct timer *found = NULL;

    for (int i = 0; i < n; i++)
        if (t[i].at != TIMER_OFF && (!found || t[i].until < found->until))
            found = &t[i];
    return found;
}

static int count(const struct timer *t, int n)
{
    int on = 0;

    for (int i = 0; i < n; i++)
        on += t[i].at != TIMER_OFF;
    return on;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

TEST(without_a_timer_none_is_the_nearest)
{
    struct timers all = { 0 };
    struct timer t = { .at = TIMER_OFF };

    CHECK(timers_nearest(&all) == NULL);
    timers_add(&all, &t, 7);
    CHECK(timers_nearest(&all) == &t);
    CHECK_INT(t.until, 7);
    timers_remove(&all, &t);
    CHECK(timers_nearest(&all) == NULL);
    CHECK_INT(t.at, TIMER_OFF);
    timers_free(&all);
}

TEST(one_that_is_off_can_be_removed)
{
    struct timers all = { 0 };
    struct timer on = { .at = TIMER_OFF }, off = { .at = TIMER_OFF };

    timers_add(&all, &on, 1);
    timers_remove(&all, &off);
    CHECK(timers_nearest(&all) == &on);
    CHECK_INT(all.n, 1);
    timers_free(&all);
}

TEST(they_come_out_in_the_order_of_their_deadlines)
{
    struct timers all = { 0 };
    struct timer t[MANY], *first;
    unsigned state = 1;
    int64_t last = -1;

    for (int i = 0; i < MANY; i++) {
        t[i].at = TIMER_OFF;
        timers_add(&all, &t[i], next_random(&state) % 100); /* many are the same */
    }
    for (int i = 0; i < MANY; i++) {
        first = timers_nearest(&all);
        CHECK(first != NULL);
        CHECK(first->until >= last);
        last = first->until;
        timers_remove(&all, first);
    }
    CHECK(timers_nearest(&all) == NULL);
    CHECK_INT(count(t, MANY), 0);
    timers_free(&all);
}

TEST(whichever_is_taken_out_the_nearest_of_the_rest_is_at_hand)
{
    struct timers all = { 0 };
    struct timer t[MANY];
    unsigned state = 42;

    for (int i = 0; i < MANY; i++)
        t[i].at = TIMER_OFF;
    for (int step = 0; step < 20 * MANY; step++) {
        struct timer *one = &t[next_random(&state) % MANY], *nearest;

        if (one->at == TIMER_OFF)
            timers_add(&all, one, next_random(&state) % 10000);
        else
            timers_remove(&all, one);
        nearest = nearest_of(t, MANY);
        CHECK((timers_nearest(&all) == NULL) == (nearest == NULL));
        CHECK(!nearest || timers_nearest(&all)->until == nearest->until);
        CHECK_INT(all.n, count(t, MANY));
    }
    timers_free(&all);
}
