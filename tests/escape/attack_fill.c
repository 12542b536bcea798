/* attack_fill.c - using up what belongs to everybody: processes, memory, disk, kernel objects. Each
 * goes on to a few times the limit the sandbox was given, and no further: as a control it gets it.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

enum { MIB = 1 << 20, PAGE = 4096 };

static long limit(const char *name) { return strtol(setting(name), NULL, 10); }

/* ---- processes ---- */

static long fork_bomb(const struct attempt *a)
{
    long most = limit("LIMIT_PIDS"), n = 0;
    pid_t pid = 0;

    (void)a;
    setpgid(0, 0);
    while (n < 2 * most && (pid = fork()) > 0)
        n++;
    if (!pid) {
        pause();
        _exit(0);
    }
    int error = errno;
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM); /* the rest of the group; what is stopped or deaf goes with the sandbox */
    if (n >= most)
        escaped("%ld processes", n);
    if (error != EAGAIN)
        unclear("%s after %ld", strerrorname_np(error), n);
    held("EAGAIN after %ld", n);
}

/* ---- memory ---- */

/* Memory that nobody has mapped counts for nobody, and then just anybody is killed: so that the one
 * who watches lives to tell, its child offers itself. */
static void prefer_me(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);

    if (fd < 0 || write(fd, "1000", 4) != 4)
        unclear("cannot raise our own score");
    close(fd);
}

/* Runs in a child that is expected to die of it. */
static _Noreturn void expect_killed(void (*use)(long bytes), long bytes)
{
    pid_t pid = fork();
    int status;

    if (!pid) {
        prefer_me();
        use(bytes);
        _exit(errno == ENOSPC ? 10 : errno == ENOMEM ? 11 : 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        unclear("no child");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        held("killed");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS)
        held("SIGBUS");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 10)
        held("ENOSPC");
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        escaped("%ld MiB", bytes / MIB);
    unclear("status %x", (unsigned)status);
}

static void touch(char *p, long bytes)
{
    for (long i = 0; i < bytes; i += PAGE)
        ((volatile char *)p)[i] = 1;
    errno = 0;
}

static void use_anonymous(long bytes)
{
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p != MAP_FAILED)
        touch(p, bytes);
}

static void write_all(int fd, long bytes)
{
    static char block[MIB];

    errno = 0;
    for (long done = 0; done < bytes; done += MIB)
        if (write(fd, block, sizeof(block)) < 0)
            return;
    errno = 0;
}

static void use_memfd(long bytes) { write_all(memfd_create("hog", 0), bytes); }

static void use_shm(long bytes)
{
    int fd = open("/dev/shm/hog", O_CREAT | O_RDWR, 0600);

    unlink("/dev/shm/hog");
    write_all(fd, bytes);
}

static void use_system_v(long bytes)
{
    int id = shmget(IPC_PRIVATE, (size_t)bytes, IPC_CREAT | 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

    if (id >= 0)
        shmctl(id, IPC_RMID, NULL);
    if (p != (char *)-1)
        touch(p, bytes);
}

static void (*const hogs[])(long bytes) = { use_anonymous, use_memfd, use_shm, use_system_v };

static long memory(const struct attempt *a)
{
    expect_killed(hogs[a->nr], 3 * limit("LIMIT_MEMORY"));
}

/* ---- disk ---- */

static _Noreturn void judge_disk(long used)
{
    long most = limit("LIMIT_DISK");

    if (used >= 2 * most)
        escaped("%ld KiB of %ld", used / 1024, most / 1024);
    if (errno != EDQUOT && errno != ENOSPC)
        unclear("%s after %ld KiB", strerrorname_np(errno), used / 1024);
    held("%s after %ld KiB of %ld", strerrorname_np(errno), used / 1024, most / 1024);
}

static int scratch(const char *name) { return open(name, O_CREAT | O_RDWR | O_TRUNC, 0600); }

/* Random, or compression would make it nothing; and written out, for limits met late. */
static long fill(int fd, long bytes)
{
    static char block[64 << 10];
    long n = 0;

    syscall(SYS_getrandom, block, sizeof(block), 0);
    while (n < bytes) {
        ssize_t part = write(fd, block, sizeof(block)); /* a part, then the refusal */

        block[0]++;
        if (part < 0)
            return n;
        n += part;
    }
    if (n >= bytes && syncfs(fd))
        return n - 1;
    return n;
}

static long disk_write(const struct attempt *a)
{
    judge_disk(fill(scratch(a->path), 2 * limit("LIMIT_DISK")));
}

static long disk_deleted(const struct attempt *a)
{
    long used = 0, one = 0;

    for (int i = 0; i < 8; i++) {
        int fd = scratch(a->path);

        unlink(a->path); /* stays open: nobody can find it, and it is still there */
        one = fill(fd, limit("LIMIT_DISK") / 4);
        used += one;
        if (one < limit("LIMIT_DISK") / 4)
            break;
    }
    judge_disk(used);
}

static long disk_allocate(const struct attempt *a)
{
    int fd = scratch(a->path);
    long used = 0;

    while (used < 2 * limit("LIMIT_DISK") && !fallocate(fd, 0, used, MIB))
        used += MIB;
    judge_disk(used);
}

/* Holes cost nothing; what is written around them and punched must be given back or counted. */
static long disk_sparse(const struct attempt *a)
{
    static char block[256 << 10];
    int fd = scratch(a->path);
    long used = 0;

    syscall(SYS_getrandom, block, sizeof(block), 0);
    while (used < 2 * limit("LIMIT_DISK")) {
        if (pwrite(fd, block, sizeof(block), used * 1024) < 0 || fdatasync(fd))
            break;
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, used * 1024 + PAGE, PAGE);
        used += (long)sizeof(block);
    }
    judge_disk(used);
}

/* What small things cost is the file system's business; that they end is ours. */
static _Noreturn void judge_count(long n, long most)
{
    if (n >= most)
        escaped("%ld of them", n);
    if (errno != EDQUOT && errno != ENOSPC)
        unclear("%s after %ld", strerrorname_np(errno), n);
    held("%s after %ld", strerrorname_np(errno), n);
}

static long disk_files(const struct attempt *a)
{
    char name[256];
    long n = 0;
    int fd;

    mkdir(a->path, 0700);
    for (; n < a->nr; n++) {
        /* long names: a file's name and its first kilobytes are in the file system's own trees */
        snprintf(name, sizeof(name), "%s/%0200ld", a->path, n);
        fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0 || write(fd, name, sizeof(name)) < 0 || close(fd))
            break;
    }
    judge_count(n, a->nr);
}

static long disk_directories(const struct attempt *a)
{
    char name[256];
    long n = 0;

    mkdir(a->path, 0700);
    if (chdir(a->path))
        return -1;
    for (; n < a->nr; n++) {
        snprintf(name, sizeof(name), "%0200ld", n);
        if (mkdir(name, 0700) || (n % 50 == 0 && chdir(name)))
            break;
    }
    judge_count(n, a->nr);
}

static long disk_attributes(const struct attempt *a)
{
    static char value[3000];
    char name[64], file[128];
    long n = 0;
    int fd = -1;

    mkdir(a->path, 0700);
    for (; n < a->nr; n++) {
        snprintf(file, sizeof(file), "%s/%ld", a->path, n / 4);
        if (n % 4 == 0 && ((fd = open(file, O_CREAT | O_WRONLY, 0600)) < 0 || close(fd)))
            break;
        snprintf(name, sizeof(name), "user.%ld", n);
        syscall(SYS_getrandom, value, sizeof(value), 0);
        if (setxattr(file, name, value, sizeof(value), 0))
            break;
    }
    judge_count(n, a->nr);
}

/* ---- objects that the kernel counts by user ---- */

/* Used with `hold`: takes all it can get, and says how many. */
static long take_watchers(const struct attempt *a)
{
    long n = 0;

    while (n < a->nr && inotify_init1(0) >= 0)
        n++;
    return n;
}

static long take_queues(const struct attempt *a)
{
    struct mq_attr size = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
    char name[32];
    long n = 0;

    for (; n < a->nr; n++) {
        snprintf(name, sizeof(name), "/hog%d.%ld", getpid(), n);
        if (mq_open(name, O_CREAT | O_RDWR, 0600, &size) == (mqd_t)-1)
            break;
        mq_unlink(name);
    }
    return n;
}

static long take_timers(const struct attempt *a)
{
    timer_t timer;
    long n = 0;

    while (n < a->nr && !timer_create(CLOCK_MONOTONIC, NULL, &timer))
        n++;
    return n;
}

/* Beside a sandbox that has taken all it could. */
static long spare(const struct attempt *a)
{
    struct attempt one = { .nr = 1 };

    if (!take_queues(&one))
        escaped("no message queue left");
    if (!take_watchers(&one))
        escaped("no watcher left");
    if (!take_timers(&one))
        escaped("no timer left");
    held("there are %s left", a->path);
}

const struct attempt attack_fill[] = {
    { "fork-bomb", fork_bomb, {} },
    { "memory-anonymous", memory, {}, NULL, 0 },
    { "memory-memfd", memory, {}, NULL, 1 },
    { "memory-shm", memory, {}, NULL, 2 },
    { "memory-system-v", memory, {}, NULL, 3 },
    { "disk-write", disk_write, {}, "/tmp/fill" },
    { "disk-deleted", disk_deleted, {}, "/tmp/fill" },
    { "disk-allocate", disk_allocate, {}, "/tmp/fill" },
    { "disk-sparse", disk_sparse, {}, "/tmp/fill" },
    { "disk-files", disk_files, {}, "/tmp/many", 20000 },
    { "disk-directories", disk_directories, {}, "/tmp/many", 20000 },
    { "disk-attributes", disk_attributes, {}, "/tmp/many", 6000 },
    { "take-watchers", take_watchers, {}, NULL, 100000 },
    { "take-queues", take_queues, {}, NULL, 100000 },
    { "take-timers", take_timers, {}, NULL, 200000 },
    { "neighbour", spare, {}, "some" },
    {}
};
