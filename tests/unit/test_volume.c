/* test_volume.c - making, finding, growing and detaching the volume, in each of its kinds. As an
 * ordinary user, or without btrfs, the cases that need it say so and pass. */
#include <linux/btrfs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "volume_fixture.h"

TEST(a_volume_is_preallocated_private_and_found_again)
{
    struct volume *v = shared(), *again;
    char path[128];
    struct stat st;
    struct statvfs s;
    int64_t took = INT64_MAX; /* the least of many: the machine may be busy */

    if (!v)
        return;
    printf("# %s\n", volume_describe(v));
    CHECK(volume_quota_enforced(v));
    snprintf(path, sizeof(path), "%s/volume.img", dirs[0]);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_size, 256LL * MIB);
    CHECK(st.st_blocks * 512 >= st.st_size);
    CHECK_INT(st.st_mode & 07777, 0600);
    snprintf(path, sizeof(path), "%s/volume", dirs[0]);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 07777, 0700);
    CHECK_INT(statvfs(path, &s), 0);
    CHECK_INT(s.f_flag & (ST_NOSUID | ST_NODEV | ST_NOATIME), ST_NOSUID | ST_NODEV | ST_NOATIME);

    close(layer_create(v, "found-again", 1, LIMIT, &err));
    for (int i = 0; i < 50; i++) {
        int64_t start = clock_us();
        again = must_open(dirs[0]);
        took = MIN(took, clock_us() - start);
        int fd = layer_open(again, "found-again", &err);
        CHECK(fd >= 0);
        close(fd);
        volume_close(again);
    }
    printf("# an open takes %lld us\n", (long long)took);
    CHECK(took < 1000);
    CHECK_INT(loops_of(dirs[0]), 1);
    CHECK_INT(layer_delete(v, "found-again", &err), 0);
}

TEST(openers_in_several_processes_make_and_attach_it_once)
{
    const char *dir = new_dir();
    struct volume *v = NULL;
    int go[2], bad = 0;
    pid_t pids[4];
    char c;

    if (!shared())
        return;
    CHECK_INT(pipe2(go, O_CLOEXEC), 0);
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            close(go[1]);
            if (read(go[0], &c, 1))
                _exit(2);
            _exit(volume_open(dir, &v, &err) || volume_kind(v) != VOLUME_BTRFS_LOOP);
        }
    }
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < 4; i++)
        bad += wait_for(pids[i]) != 0;
    CHECK_INT(bad, 0);
    CHECK_INT(loops_of(dir), 1);
    CHECK_INT(mounts_of(dir), 1);
    CHECK_INT(volume_detach(dir, &err), 0);
    CHECK_INT(loops_of(dir), 0);
    CHECK_INT(mounts_of(dir), 0);
}

static int open_elsewhere(const char *dir)
{
    struct volume *v = NULL;
    char path[128];

    snprintf(path, sizeof(path), "%s/volume", dir);
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        umount2(path, MNT_DETACH) || mounts_of(dir))
        return 2;
    if (volume_open(dir, &v, &err) || layer_open(v, "seen", &err) < 0)
        return 3;
    return mounts_of(dir) == 1 && loops_of(dir) == 1 ? 0 : 4;
}

TEST(another_mount_namespace_finds_the_same_device)
{
    struct volume *v = shared();
    pid_t pid;

    if (!v)
        return;
    close(layer_create(v, "seen", 3, 0, &err));
    pid = fork();
    if (!pid)
        _exit(open_elsewhere(dirs[0]));
    CHECK_INT(wait_for(pid), 0);
    CHECK_INT(mounts_of(dirs[0]), 1);
    CHECK_INT(layer_delete(v, "seen", &err), 0);
}

TEST(the_volume_grows_once_while_it_is_written)
{
    const char *dir = new_dir();
    struct volume *v;
    struct statvfs s;
    char path[128];
    struct stat st;
    int grown = 0, fd;
    pid_t writer, keepers[2];

    if (!shared())
        return;
    v = must_open(dir);
    CHECK_INT(volume_grow_if_low(v, 0, &err), 0);
    fd = layer_create(v, "writer", 1, 0, &err);
    CHECK_INT(fstatvfs(fd, &s), 0);
    writer = fork();
    if (!writer)
        _exit(fill(fd, "a", 150));
    volume_options.low_bytes = (int64_t)(s.f_bavail * s.f_frsize) + MIB;
    for (int i = 0; i < 2; i++) {
        keepers[i] = fork();
        if (!keepers[i])
            _exit(volume_grow_if_low(v, 0, &err) + 1);
    }
    for (int i = 0; i < 2; i++)
        grown += wait_for(keepers[i]);
    printf("# two keepers grew it %d times while it was written\n", grown - 2);
    CHECK(grown >= 3 && grown <= 4); /* twice, if the writer was that quick */
    CHECK_INT(wait_for(writer), 0);
    volume_options.low_bytes = 1LL << 40;
    volume_options.cap_bytes = 500LL * MIB;
    while ((grown = volume_grow_if_low(v, 0, &err)) == 1)
        ;
    CHECK_INT(grown, -1);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK(strstr(err.msg, "volume.cap-bytes"));
    snprintf(path, sizeof(path), "%s/volume.img", dir);
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_size > 436LL * MIB && st.st_size <= 500LL * MIB);
    CHECK(st.st_blocks * 512 >= st.st_size);
    CHECK_INT(fill(fd, "b", 180), 0);
    close(fd);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

TEST(what_waits_in_memory_takes_room)
{
    const char *dir = new_dir();
    struct volume *v;
    int64_t before, low = volume_options.low_bytes;
    int fd, file;

    if (!shared())
        return;
    v = must_open(dir);
    fd = layer_create(v, "writer", 1, 0, &err);
    before = volume_room(v);
    file = openat(fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(write_mib(file, 60), 0);
    CHECK(volume_room(v) <= before - 60LL * MIB);
    CHECK(volume_room(v) >= before - 80LL * MIB);
    volume_options.low_bytes = volume_room(v) - 10LL * MIB;
    CHECK_INT(volume_grow_if_low(v, 0, &err), 0);
    CHECK_INT(volume_grow_if_low(v, 20LL * MIB, &err), 1); /* so much comes until it has grown */
    CHECK(volume_room(v) > before);
    volume_options.low_bytes = low;
    close(file);
    close(fd);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

TEST(a_full_volume_is_enospc_and_stays_writable)
{
    const char *dir = new_dir();
    struct volume *v;
    int fd;

    if (!shared())
        return;
    v = must_open(dir);
    fd = layer_create(v, "greedy", 1, 0, &err);
    CHECK_INT(fill(fd, "a", 400), ENOSPC);
    CHECK_INT(fill(fd, "b", 400), ENOSPC);
    CHECK_INT(unlinkat(fd, "a", 0), 0);
    CHECK_INT(volume_sync(v, &err), 0);
    CHECK_INT(fill(fd, "c", 50), 0);
    close(fd);
    fd = layer_create(v, "other", 2, LIMIT, &err);
    CHECK(fd >= 0);
    CHECK_INT(fill(fd, "a", 20), 0);
    close(fd);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

static void put_file(const char *dir, const char *name, long long size)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    AUTO(closep) int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(ftruncate(fd, size), 0);
}

TEST(an_interrupted_creation_is_done_again)
{
    const char *dir = new_dir();
    struct volume *v;
    char path[128];

    if (!shared())
        return;
    put_file(dir, "volume.img.new", 300LL * MIB);
    v = must_open(dir);
    CHECK_INT(volume_kind(v), VOLUME_BTRFS_LOOP);
    volume_close(v);
    snprintf(path, sizeof(path), "%s/volume.img.new", dir);
    CHECK_INT(access(path, F_OK), -1);

    /* and one that died between mounting and preparing it */
    snprintf(path, sizeof(path), "%s/volume/layers", dir);
    CHECK_INT(rmdir(path), 0);
    v = must_open(dir);
    CHECK_INT(mounts_of(dir), 1);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

TEST(a_damaged_image_is_named_and_left_alone)
{
    const char *dir = new_dir();
    struct volume *v = NULL;
    char path[128];
    struct stat before, after;

    if (!shared())
        return;
    put_file(dir, "volume.img", 200LL * MIB);
    snprintf(path, sizeof(path), "%s/volume.img", dir);
    CHECK_INT(stat(path, &before), 0);
    CHECK_INT(volume_open(dir, &v, &err), -1);
    printf("# %s\n", err.msg);
    CHECK_INT(err.code, ERR_PRECONDITION);
    CHECK(strstr(err.msg, path));
    CHECK_INT(stat(path, &after), 0);
    CHECK_INT(after.st_size, before.st_size);
    CHECK_INT(loops_of(dir), 0);
    CHECK_INT(mounts_of(dir), 0);
}

TEST(a_disk_that_is_too_full_is_named_with_the_way_out)
{
    const char *dir = new_dir();
    struct volume *v = NULL;
    char path[128];

    if (!shared())
        return;
    volume_options.initial_bytes = volume_options.cap_bytes = 1LL << 50;
    CHECK_INT(volume_open(dir, &v, &err), -1);
    printf("# %s\n", err.msg);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK(strstr(err.msg, "volume.img") && strstr(err.msg, "volume.initial-bytes"));
    snprintf(path, sizeof(path), "%s/volume.img.new", dir);
    CHECK_INT(access(path, F_OK), -1);
}

TEST(detaching_is_refused_while_anything_uses_the_volume)
{
    const char *dir = new_dir();
    struct volume *v;
    int fd, tree;

    if (!shared())
        return;
    v = must_open(dir);
    CHECK_INT(volume_detach(dir, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    fd = layer_create(v, "used", 1, LIMIT, &err);
    tree = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    CHECK(tree >= 0); /* as a sandbox has it */
    close(fd);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(mounts_of(dir), 1);
    close(tree);
    CHECK_INT(volume_detach(dir, &err), 0);
    CHECK_INT(loops_of(dir), 0);
    CHECK_INT(volume_detach(dir, &err), 0); /* again is fine */
    v = must_open(dir);
    fd = layer_open(v, "used", &err);
    CHECK(fd >= 0);
    close(fd);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
}

TEST(on_btrfs_the_data_directory_itself_is_the_volume)
{
    const char *dir = new_dir();
    struct btrfs_ioctl_quota_ctl_args off = { .cmd = BTRFS_QUOTA_CTL_DISABLE };
    struct volume *host, *v;
    struct layer_usage use;
    char inner[128];
    int fd;

    if (!shared())
        return;
    host = must_open(dir);
    snprintf(inner, sizeof(inner), "%s/volume/data", dir);
    CHECK_INT(mkdir(inner, 0700), 0);
    v = must_open(inner);
    CHECK_INT(volume_kind(v), VOLUME_BTRFS_NATIVE);
    CHECK(volume_quota_enforced(v));
    close(layer_create(host, "same-number", 5, 0, &err));
    fd = layer_create(v, "inner", 5, LIMIT, &err);
    CHECK_INT(fill(fd, "a", 80), EDQUOT);
    CHECK_INT(layer_usage(host, 5, &use, &err), 0); /* another family, with the same number */
    CHECK_INT(use.limit, 0);
    CHECK(use.used < MIB);
    close(fd);
    CHECK_INT(sweep_all(v), 0);
    CHECK_INT(layer_usage(host, 5, &use, &err), 0);
    fd = open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(ioctl(fd, BTRFS_IOC_QUOTA_CTL, &off), 0);
    close(fd);
    volume_close(v);
    v = must_open(inner);
    printf("# %s\n", volume_describe(v));
    CHECK(!volume_quota_enforced(v));
    fd = layer_create(v, "free", 6, LIMIT, &err);
    CHECK_INT(fill(fd, "a", 80), 0);
    CHECK_INT(layer_usage(v, 6, &use, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    close(fd);
    CHECK_INT(sweep_all(v), 0);
    volume_close(v);
    volume_close(host);
    CHECK_INT(volume_detach(dir, &err), 0);
}

/* ---- plain ---- */

static void make_deep(int dir, int levels)
{
    for (int i = 0; i < levels; i++) {
        CHECK_INT(mkdirat(dir, "d", 0700), 0);
        CHECK_INT(mkdirat(dir, ".removed-0", 0700), 0);
        CHECK_INT(symlinkat("/", dir, "link"), 0);
        int next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(next >= 0);
        if (i)
            close(dir);
        dir = next;
    }
    close(dir);
}

static void check_plain(const char *dir)
{
    struct volume *v = must_open(dir), *again;
    struct layer_usage use;
    char layers[256];
    int fd;

    printf("# %s\n", volume_describe(v));
    CHECK_INT(volume_kind(v), VOLUME_PLAIN);
    CHECK(!volume_quota_enforced(v) && !volume_has_snapshots(v));
    fd = layer_create(v, "plain", 1, LIMIT, &err);
    CHECK(fd >= 0);
    CHECK_INT(layer_snapshot(v, "copy", fd, 1, LIMIT, false, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK_INT(layer_usage(v, 1, &use, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    make_deep(fd, 1500);
    CHECK_INT(mkdirat(fd, "locked", 0700), 0);
    CHECK_INT(mkdirat(fd, "locked/inner", 0700), 0);
    CHECK_INT(mkdirat(fd, "locked/inner/most", 0), 0);
    CHECK_INT(fchmodat(fd, "locked/inner", 0, 0), 0);
    CHECK_INT(fchmodat(fd, "locked", 0, 0), 0);
    CHECK_INT(fchmod(fd, 0500), 0);
    close(fd);
    again = must_open(dir);
    CHECK_INT(volume_kind(again), VOLUME_PLAIN);
    fd = layer_open(again, "plain", &err);
    CHECK(fd >= 0);
    close(fd);
    volume_close(again);
    if (layer_delete(v, "plain", &err))
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_INT(layer_open(v, "plain", &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_INT(access("/etc/passwd", F_OK), 0); /* nobody followed a link */
    close(layer_create(v, "swept", 1, 0, &err));
    CHECK_INT(volume_sweep(v, only_one, NULL, &err), 0);
    CHECK_INT(layer_open(v, "swept", &err), -1);
    snprintf(layers, sizeof(layers), "%s/volume/layers", dir);
    CHECK_INT(rmdir(layers), 0); /* as when the machine goes down: no layer is missing */
    CHECK_INT(layer_create(v, "late", 1, 0, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    volume_close(v);
    CHECK_INT(volume_detach(dir, &err), 0);
    put_file(dir, "volume.img", MIB); /* of a root who was here before */
    CHECK_INT(volume_open(dir, &v, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
}

TEST(without_root_layers_are_plain_directories_and_any_tree_can_be_deleted)
{
    const char *dir = new_dir();
    pid_t pid;

    if (geteuid()) {
        check_plain(dir);
        return;
    }
    CHECK_INT(chown(dir, 65534, 65534), 0);
    pid = fork();
    if (!pid) {
        if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(2);
        if (!setjmp(test_leave)) {
            check_plain(dir);
            fflush(stdout);
            _exit(0);
        }
        fflush(stdout);
        _exit(1);
    }
    CHECK_INT(wait_for(pid), 0);
}

TEST(a_directory_that_others_may_write_to_is_refused)
{
    const char *dir = new_dir();
    struct volume *v = NULL;

    CHECK_INT(chmod(dir, 0777), 0);
    CHECK_INT(volume_open(dir, &v, &err), -1);
    CHECK_INT(err.code, ERR_DENIED);
    CHECK_INT(chmod(dir, 0700), 0);
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
