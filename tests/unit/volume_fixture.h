/* volume_fixture.h - what the tests of the volume and of its layers share: small images in
 * directories of our own, of which nothing is left at the end, whatever failed. */
#ifndef TESTS_VOLUME_FIXTURE_H
#define TESTS_VOLUME_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "jail/volume.h"
#include "test.h"

enum { MIB = 1 << 20, DIRS = 16, LIMIT = 64 * MIB };

static struct err err;
static char *dirs[DIRS]; /* every data directory, for the end */
static int ndirs;
static pid_t owner;

/* ---- the place ---- */

static inline void clean_up(void)
{
    char path[128], command[160];

    if (getpid() != owner) /* a child that left by exit() */
        return;
    for (int i = 0; i < ndirs; i++) {
        snprintf(path, sizeof(path), "%s/volume", dirs[i]);
        while (!umount2(path, MNT_DETACH))
            ;
        snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf --one-file-system %s",
                 dirs[i], dirs[i]);
        if (system(command)) // NOLINT(cert-env33-c): a name of our own
            printf("# left behind: %s\n", dirs[i]);
    }
}

static inline const char *new_dir(void)
{
    char *dir = xstrdup("/tmp/cove-volume-XXXXXX");

    if (!owner) {
        owner = getpid();
        atexit(clean_up);
        log_level = LOG_WARN;
        /* a mount namespace that somebody else makes meanwhile would keep a copy of our mounts, and
         * ours takes them along even when we are killed */
        if (!geteuid() && !unshare(CLONE_NEWNS))
            CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    }
    CHECK(ndirs < DIRS && mkdtemp(dir));
    dirs[ndirs++] = dir;
    volume_options.initial_bytes = 256LL * MIB;
    volume_options.step_bytes = 64LL * MIB;
    volume_options.low_bytes = 16LL * MIB;
    volume_options.cap_bytes = 1024LL * MIB;
    return dir;
}

static inline struct volume *must_open(const char *dir)
{
    struct volume *v = NULL;

    if (volume_open(dir, &v, &err))
        test_fail(__FILE__, __LINE__, "volume_open: %s", err.msg);
    return v;
}

/* The volume that most cases share; NULL: none on this machine, which is said once a case. */
static inline struct volume *shared(void)
{
    static struct volume *v;
    static const char *dir;

    if (!v) {
        dir = new_dir();
        v = must_open(dir);
    }
    if (volume_kind(v) == VOLUME_BTRFS_LOOP)
        return v;
    printf("# skipped, no btrfs here: %s\n", volume_describe(v));
    return NULL;
}

static inline bool only_one(const char *layer, void *arg) { return arg && !strcmp(layer, arg); }

static inline bool all_alive(const char *layer, void *arg) { return layer != arg; }

static inline int sweep_all(struct volume *v)
{
    int left = -1;

    for (int i = 0; i < 200 && left; i++) {
        left = volume_sweep(v, only_one, NULL, &err);
        if (left)
            usleep(50000);
    }
    return left;
}

static inline int count_lines(const char *command)
{
    FILE *f = popen(command, "r"); // NOLINT(cert-env33-c): for reading the kernel's files
    int n = 0;

    CHECK(f);
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    pclose(f);
    return n;
}

static inline int loops_of(const char *dir)
{
    char command[160];

    snprintf(command, sizeof(command), "grep -ls '%s/' /sys/block/loop*/loop/backing_file", dir);
    return count_lines(command);
}

static inline int mounts_of(const char *dir)
{
    char command[160];

    snprintf(command, sizeof(command), "grep ' %s/' /proc/self/mountinfo", dir);
    return count_lines(command);
}

/* ---- writing ---- */

/* errno of what failed, or 0. */
static inline int write_mib(int fd, int mib)
{
    AUTO(freep) char *block = xcalloc(1, MIB);

    for (int i = 0; i < mib; i++)
        for (ssize_t done = 0, n; done < MIB; done += n) {
            n = write(fd, block, (size_t)(MIB - done)); /* what fits, and then the error */
            if (n < 0)
                return errno;
        }
    return 0;
}

static inline int fill(int dir, const char *name, int mib)
{
    AUTO(closep) int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : write_mib(fd, mib);

    return error ? error : fsync(fd) ? errno : 0;
}

static inline int fill_small(int dir, int most, int *made)
{
    char name[32], text[1000] = { 0 };

    for (*made = 0; *made < most; (*made)++) {
        snprintf(name, sizeof(name), "f%d", *made);
        AUTO(closep) int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, text, sizeof(text)) != sizeof(text))
            return errno;
    }
    return 0;
}

static inline int wait_for(pid_t pid)
{
    int status;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
