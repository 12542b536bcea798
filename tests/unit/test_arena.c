/* test_arena.c - memory that is freed in one step. */
#include "base/arena.h"

#include "base/mem.h"
#include "test.h"

TEST(memory_is_zeroed_and_aligned_for_any_type)
{
    struct arena a = { 0 };

    for (size_t n = 1; n < 700; n += 7) {
        char *p = arena_alloc(&a, n);

        CHECK_INT((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            CHECK_INT(p[i], 0);
        memset(p, 0xff, n); /* must not reach a neighbour, nor come back from a reset */
    }
    arena_reset(&a);
    for (size_t n = 1; n < 700; n += 7) {
        char *p = arena_alloc(&a, n);

        for (size_t i = 0; i < n; i++)
            CHECK_INT(p[i], 0);
        memset(p, 0xff, n);
    }
    arena_free(&a);
}

TEST(allocations_never_overlap)
{
    struct arena a = { 0 };
    unsigned char *p[300];

    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        p[i] = arena_alloc(&a, i + 1);
        memset(p[i], (int)i, i + 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        for (size_t k = 0; k <= i; k++)
            CHECK_INT(p[i][k], (unsigned char)i);
    arena_free(&a);
}

TEST(one_allocation_may_be_larger_than_any_block)
{
    struct arena a = { 0 };
    char *small = arena_alloc(&a, 8), *large = arena_alloc(&a, 5 << 20), *after;

    memset(large, 1, 5 << 20);
    after = arena_alloc(&a, 8);
    CHECK_INT(after[0], 0);
    CHECK_INT(small[0], 0);
    CHECK_INT(a.used, (5 << 20) + 32);
    arena_reset(&a);
    CHECK_INT(a.used, 0);
    arena_free(&a);
    CHECK(!a.block);
}

TEST(a_reset_keeps_one_small_block_for_the_next_request)
{
    struct arena a = { 0 };
    void *first = arena_alloc(&a, 100);

    arena_alloc(&a, 100000);
    arena_reset(&a);
    CHECK(a.block != NULL);
    CHECK(arena_alloc(&a, 100) == first);
    arena_free(&a);
    arena_alloc(&a, 100000); /* a large first block is not worth keeping */
    arena_reset(&a);
    CHECK(!a.block);
    arena_reset(&a);
    arena_free(&a);
}

TEST(copies_end_in_nul_and_are_not_the_original)
{
    struct arena a = { 0 };
    char text[] = "abc";
    char *copy = arena_strdup(&a, (struct str){ text, 2 });

    text[0] = 'x';
    CHECK_STR(copy, "ab");
    CHECK_STR(arena_strdup(&a, (struct str){ 0 }), "");
    CHECK_STR(arena_printf(&a, "%s-%d", "n", 5), "n-5");
    CHECK_STR(arena_printf(&a, "%s", ""), "");
    CHECK_INT(strlen(arena_printf(&a, "%05000d", 1)), 5000);
    arena_free(&a);
}

TEST(the_owner_of_a_local_frees_it)
{
    AUTO(freep) char *p = xstrdup("kept");
    char *taken = TAKE(p, NULL);

    CHECK(!p);
    CHECK_STR(taken, "kept");
    free(taken);
    p = xstrndup("only this", 4);
    CHECK_STR(p, "only");
    p = xrealloc(p, 100);
    CHECK_STR(p, "only");
    free(xcalloc(0, 0));
}
