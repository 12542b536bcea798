/* test_kernels.c - what the kernels' service decides without a kernel: which of them nobody uses.
 */
#include "guest/kernels/kernel.h"
#include "test.h"

static struct kernelspec spec;

static struct kernel idle_kernel(void)
{
    spec.cull_idle_s = -1;
    kernels_limits.cull_idle_s = 60;
    return (struct kernel){ .spec = &spec, .state = KERNEL_IDLE, .active_at = co_now() };
}

TEST(a_clock_that_is_set_ends_no_kernel)
{
    struct kernel k = idle_kernel();

    k.active_us = clock_wall_s() * 1000000 - INT64_C(86400) * 1000000; /* a day forward */
    CHECK(!kernels_idle_too_long(&k));
    k.active_us = clock_wall_s() * 1000000 + INT64_C(86400) * 1000000; /* and back */
    clock_skip(61000);
    CHECK(kernels_idle_too_long(&k));
}

TEST(a_pause_is_no_idleness)
{
    struct kernel k = idle_kernel();

    list_push(&kernels.all, &k.all);
    clock_skip(86400000);
    kernels_forgive(86399000);
    CHECK(!kernels_idle_too_long(&k));
    clock_skip(60000);
    CHECK(kernels_idle_too_long(&k));
    kernels_forgive(86400000);
    CHECK(k.active_at <= co_now());
    list_remove(&k.all);
}

TEST(idleness_is_told_from_use)
{
    struct kernel k = idle_kernel();

    clock_skip(59000);
    CHECK(!kernels_idle_too_long(&k));
    clock_skip(2000);
    CHECK(kernels_idle_too_long(&k));
    k.connections = 1;
    CHECK(!kernels_idle_too_long(&k));
    k.connections = 0;
    k.state = KERNEL_BUSY;
    CHECK(!kernels_idle_too_long(&k));
    k.state = KERNEL_IDLE;
    k.hidden = true;
    CHECK(!kernels_idle_too_long(&k));
    k.hidden = false;
    spec.cull_idle_s = 0; /* its own wish */
    CHECK(!kernels_idle_too_long(&k));
}
