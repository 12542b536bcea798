/* test_layer.c - layers of a btrfs volume: their limits, their families, and what is left of them.
 * Without root or btrfs the cases say so and pass. */
#include <linux/btrfs.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "volume_fixture.h"

TEST(names_families_and_limits_are_bounded)
{
    static const char *const bad[] = { "", ".", "..", ".x", "a/b", "A", "a b", "\xc3\xa9", "a\n" };
    struct volume *v = shared();
    char longest[LAYER_NAME_MAX + 2];
    int fd;

    memset(longest, 'a', sizeof(longest));
    longest[LAYER_NAME_MAX + 1] = 0;
    CHECK(!layer_name_ok(longest));
    longest[LAYER_NAME_MAX] = 0;
    CHECK(layer_name_ok(longest));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!layer_name_ok(bad[i]));
    if (!v)
        return;
    CHECK_INT(layer_open(v, "../x", &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(layer_delete(v, "..", &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(layer_create(v, "x", 0, LIMIT, &err), -1);
    CHECK_INT(layer_create(v, "x", 1ULL << 32, LIMIT, &err), -1);
    CHECK_INT(layer_create(v, "x", 1, 4096, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK_INT(layer_delete(v, "never-was", &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    fd = layer_create(v, longest, 2, 0, &err);
    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(layer_create(v, longest, 2, 0, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(layer_delete(v, longest, &err), 0);
}

TEST(a_full_layer_is_edquot_whatever_filled_it)
{
    struct volume *v = shared();
    struct layer_usage use;
    int fd, file, made;

    if (!v)
        return;
    fd = layer_create(v, "big", 10, LIMIT, &err);
    CHECK_INT(fill(fd, "a", 100), EDQUOT);
    CHECK_INT(layer_usage(v, 10, &use, &err), 0);
    CHECK_INT(use.limit, LIMIT);
    CHECK(use.used > LIMIT - 2 * MIB && use.used <= LIMIT);
    CHECK_INT(unlinkat(fd, "a", 0), 0);
    close(fd);

    fd = layer_create(v, "small", 11, 8 * MIB, &err);
    CHECK_INT(fill_small(fd, 100000, &made), EDQUOT);
    printf("# %d files of 1000 bytes fit into 8 MiB\n", made);
    close(fd);

    fd = layer_create(v, "reserved", 12, LIMIT, &err);
    file = openat(fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(fallocate(file, 0, 0, 80 * MIB), -1);
    CHECK_INT(errno, EDQUOT);
    close(file);
    close(fd);

    fd = layer_create(v, "hidden", 13, LIMIT, &err);
    CHECK_INT(fill(fd, "a", 40), 0);
    file = openat(fd, "a", O_RDONLY | O_CLOEXEC);
    CHECK_INT(unlinkat(fd, "a", 0), 0);
    CHECK_INT(fill(fd, "b", 40), EDQUOT);
    CHECK_INT(layer_quota_set(v, 13, 2ULL * LIMIT, &err), 0);
    CHECK_INT(fill(fd, "b", 40), 0);
    CHECK_INT(layer_quota_set(v, 13, 0, &err), 0);
    CHECK_INT(layer_usage(v, 13, &use, &err), 0);
    CHECK_INT(use.limit, 0);
    close(file);
    close(fd);
    CHECK_INT(layer_quota_set(v, 99, LIMIT, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(sweep_all(v), 0);
}

static void check_family(struct volume *v)
{
    struct layer_usage use;
    int fd = layer_create(v, "live", 20, LIMIT, &err), point, full;

    CHECK(fd >= 0);
    CHECK_INT(fill(fd, "a", 40), 0);
    point = layer_snapshot(v, "point", fd, 20, LIMIT, true, &err);
    CHECK(point >= 0);
    CHECK_INT(fill(point, "x", 1), EROFS);
    CHECK_INT(unlinkat(fd, "a", 0), 0); /* the checkpoint has it still */
    CHECK_INT(fill(fd, "b", 40), EDQUOT);
    CHECK_INT(layer_usage(v, 20, &use, &err), 0);
    CHECK(use.used > LIMIT - 2 * MIB && use.used <= LIMIT);
    full = layer_snapshot(v, "no-room", point, 20, LIMIT, false, &err);
    CHECK(full >= 0 || err.code == ERR_NO_SPACE); /* by a few KiB, one or the other */
    if (full >= 0)
        close(full);
    close(point);
    CHECK_INT(layer_delete(v, "point", &err), 0);
    CHECK_INT(layer_delete(v, "no-room", &err) == 0 || err.code == ERR_NOT_FOUND, 1);
    for (int i = 0; i < 100 && use.used > 30 * MIB; i++) { /* when the kernel's cleaner has run */
        CHECK(volume_sweep(v, all_alive, NULL, &err) >= 0);
        usleep(50000);
        layer_usage(v, 20, &use, &err);
    }
    CHECK(use.used < 30 * MIB);
    CHECK_INT(fill(fd, "c", 30), 0);
    close(fd);
    CHECK_INT(sweep_all(v), 0);
}

TEST(a_checkpoint_counts_for_its_sandbox_until_it_is_deleted)
{
    struct volume *v = shared();

    if (v)
        check_family(v);
}

TEST(what_a_deleted_layer_wrote_counts_while_a_snapshot_shares_it)
{
    struct volume *v = shared();
    struct layer_usage use;
    int fd, back;

    if (!v)
        return;
    fd = layer_create(v, "first", 30, LIMIT, &err);
    CHECK_INT(fill(fd, "a", 40), 0);
    back = layer_snapshot(v, "rolled-back", fd, 30, LIMIT, false, &err);
    CHECK(back >= 0);
    close(fd);
    CHECK_INT(layer_delete(v, "first", &err), 0);
    for (int i = 0; i < 10; i++) { /* the cleaner, and sweeps that must not take the group */
        usleep(50000);
        CHECK(volume_sweep(v, all_alive, NULL, &err) >= 0);
    }
    CHECK_INT(layer_usage(v, 30, &use, &err), 0);
    CHECK(use.used > 39 * MIB);
    CHECK_INT(fill(back, "b", 40), EDQUOT);
    close(back);
    CHECK_INT(sweep_all(v), 0);
    CHECK_INT(layer_usage(v, 30, &use, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
}

TEST(full_accounting_serves_where_there_are_no_simple_quotas)
{
    const char *dir = new_dir();
    struct btrfs_ioctl_quota_ctl_args off = { .cmd = BTRFS_QUOTA_CTL_DISABLE },
                                      full = { .cmd = BTRFS_QUOTA_CTL_ENABLE };
    struct volume *v;
    int fd;

    if (!shared())
        return;
    v = must_open(dir);
    fd = layer_create(v, "a", 1, 0, &err);
    CHECK_INT(ioctl(fd, BTRFS_IOC_QUOTA_CTL, &off), 0);
    CHECK_INT(ioctl(fd, BTRFS_IOC_QUOTA_CTL, &full), 0);
    close(fd);
    volume_close(v);
    v = must_open(dir);
    CHECK(strstr(volume_describe(v), "full quotas"));
    check_family(v);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

TEST(a_sweep_leaves_what_lives_and_nothing_else)
{
    struct volume *v = shared();
    char name[32], command[200], survivor[] = "swept-7";
    int fd, left = -1;

    if (!v)
        return;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "swept-%d", i);
        fd = layer_create(v, name, 100 + (uint64_t)i, LIMIT, &err);
        CHECK(fd >= 0);
        CHECK_INT(fill(fd, "a", 1), 0);
        snprintf(name, sizeof(name), "swept-%d.copy", i);
        close(layer_snapshot(v, name, fd, 100 + (uint64_t)i, LIMIT, true, &err));
        close(fd);
    }
    for (int i = 0; i < 200 && left; i++, usleep(50000))
        left = volume_sweep(v, only_one, survivor, &err);
    CHECK_INT(left, 0);
    snprintf(command, sizeof(command), "ls %s/volume/layers", dirs[0]);
    CHECK_INT(count_lines(command), 1);
    CHECK_INT(layer_quota_set(v, 107, LIMIT, &err), 0);  /* its group is there, */
    CHECK_INT(layer_quota_set(v, 108, LIMIT, &err), -1); /* and no other */
    CHECK_INT(sweep_all(v), 0);
    CHECK_INT(layer_quota_set(v, 107, LIMIT, &err), -1);
    snprintf(command, sizeof(command),
             "ls /sys/fs/btrfs/$(findmnt -no UUID %s/volume)/qgroups | grep _ | grep -v "
             "'^drop_\\|^0_5$'",
             dirs[0]);
    CHECK_INT(count_lines(command), 0);
}

TEST(a_sweep_beside_it_never_costs_a_new_layer_its_limit)
{
    struct volume *v = shared();
    struct layer_usage use;
    char name[32], block[65536] = { 0 };
    bool bad = false;
    pid_t sweeper;

    if (!v)
        return;
    sweeper = fork();
    if (!sweeper)
        for (;;)
            volume_sweep(v, all_alive, NULL, &err);
    for (int i = 0; i < 300 && !bad; i++) {
        snprintf(name, sizeof(name), "raced-%d", i);
        int fd = layer_create(v, name, 1000 + (uint64_t)i, LIMIT, &err);
        int file = openat(fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        bad = write(file, block, sizeof(block)) != sizeof(block) ||
              layer_usage(v, 1000 + (uint64_t)i, &use, &err) || use.limit != LIMIT ||
              use.used < sizeof(block);
        close(file);
        close(fd);
    }
    kill(sweeper, SIGKILL);
    wait_for(sweeper);
    CHECK(!bad);
    CHECK_INT(sweep_all(v), 0);
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

TEST(an_empty_layer_costs_microseconds)
{
    enum { N = 200, CREATE, SNAPSHOT, USAGE, DELETE, KINDS };
    static int64_t took[KINDS - CREATE][N];
    static const char *const names[] = { "create", "snapshot", "usage", "delete" };
    struct volume *v = shared();
    struct layer_usage use;
    char a[32], b[32];

    if (!v)
        return;
    for (int i = 0; i < N; i++) {
        int64_t t[5];

        snprintf(a, sizeof(a), "timed-%d", i);
        snprintf(b, sizeof(b), "timed-%d.copy", i);
        t[0] = clock_us();
        int fd = layer_create(v, a, 5000 + (uint64_t)i, LIMIT, &err);
        t[1] = clock_us();
        int copy = layer_snapshot(v, b, fd, 5000 + (uint64_t)i, LIMIT, true, &err);
        t[2] = clock_us();
        CHECK_INT(layer_usage(v, 5000 + (uint64_t)i, &use, &err), 0);
        t[3] = clock_us();
        close(fd);
        close(copy);
        CHECK_INT(layer_delete(v, b, &err), 0);
        t[4] = clock_us();
        CHECK(fd >= 0 && copy >= 0);
        CHECK_INT(layer_delete(v, a, &err), 0);
        for (int k = 0; k < 4; k++)
            took[k][i] = t[k + 1] - t[k];
    }
    for (int k = 0; k < 4; k++) {
        qsort(took[k], N, sizeof(took[k][0]), by_value);
        printf("# %s: p50 %lld us, p95 %lld us\n", names[k], (long long)took[k][N / 2],
               (long long)took[k][N * 95 / 100]);
    }
    CHECK(took[0][N / 2] < 5000);
    CHECK_INT(sweep_all(v), 0);
}

TEST(at_the_end_detaching_leaves_no_loop_device_and_no_mount)
{
    struct volume *v = shared();

    if (!v)
        return;
    for (int i = 0; i < ndirs; i++) {
        if (i)
            CHECK_INT(mounts_of(dirs[i]), 0);
        CHECK_INT(loops_of(dirs[i]), i == 0);
    }
    volume_close(v);
    CHECK_INT(volume_detach(dirs[0], &err), 0);
    CHECK_INT(loops_of(dirs[0]), 0);
    CHECK_INT(mounts_of(dirs[0]), 0);
}
