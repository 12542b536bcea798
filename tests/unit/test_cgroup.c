/* test_cgroup.c - limits on real processes, in cgroups of our own. Needs root. */
#include "jail/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "jail/cgroup_files.h"
#include "jail/rmtree.h"
#include "test.h"

enum { MIB = 1 << 20 };

static struct cgroups groups = { .unified = -1, .v1 = { -1, -1, -1, -1 } };
static struct limits limits;
static struct err err;
static char name[64];
static int into;
static volatile uint64_t *shared; /* with the processes under test */

static pid_t children[8];
static int nchildren;

/* Also for a case that failed in the middle. */
static void clean_up(void)
{
    while (nchildren) {
        kill(children[--nchildren], SIGKILL);
        waitpid(children[nchildren], NULL, 0);
    }
    if (groups.unified >= 0 || groups.v1[CGROUP_PIDS] >= 0) {
        cgroup_remove(&groups, name);
        cgroups_close(&groups);
    }
}

/* false: the case cannot run here, and says why. */
static bool begin(enum cgroup_controller needed)
{
    static int serial;

    if (geteuid()) {
        printf("# skipped: cgroups need root\n");
        return false;
    }
    clean_up();
    CHECK_INT(cgroups_open(&groups, &err), 0);
    if (needed < CGROUP_CONTROLLERS ? !cgroups_enforce(&groups, needed) : groups.unified < 0) {
        printf("# skipped: this machine lacks the controller\n");
        cgroups_close(&groups);
        return false;
    }
    limits = (struct limits){ 0 };
    CHECK_INT(limits_fill(&limits, NULL, &err), 0);
    snprintf(name, sizeof(name), "test-%d-%d", getpid(), serial++);
    if (!shared) {
        atexit(clean_up);
        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    CHECK(shared != MAP_FAILED);
    *shared = 0;
    return true;
}

static void make(void)
{
    CHECK_INT(cgroup_create(&groups, name, &into, &err), 0);
    CHECK_INT(cgroup_set_up(&groups, name, &limits, &err), 0);
}

static bool is_there(void)
{
    bool found = groups.unified >= 0 && !faccessat(groups.unified, name, F_OK, 0);

    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
        found |= groups.v1[k] >= 0 && !faccessat(groups.v1[k], name, F_OK, 0);
    return found;
}

static void finish(void)
{
    closep(&into);
    into = -1;
    cgroup_remove(&groups, name);
    CHECK(!is_there());
    cgroups_close(&groups);
}

/* A process in the cgroup that does the work when it is told to. */
static pid_t start(void (*work)(void))
{
    int go[2];
    pid_t pid;

    CHECK_INT(pipe2(go, O_CLOEXEC), 0);
    pid = test_fork(0);
    if (!pid) {
        char byte;

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || read(go[0], &byte, 1) != 1)
            _exit(99);
        work();
        _exit(0);
    }
    children[nchildren++] = pid;
    close(go[0]);
    if (groups.unified >= 0) { /* as clone3 would have it */
        char text[16];

        snprintf(text, sizeof(text), "%d", pid);
        CHECK_INT(cgroup_write(groups.unified, name, "cgroup.procs", text), 0);
    }
    CHECK_INT(cgroup_attach(&groups, name, pid, &err), 0);
    CHECK_INT(write(go[1], "x", 1), 1);
    close(go[1]);
    return pid;
}

static int ended(pid_t pid)
{
    int status;

    CHECK_INT(waitpid(pid, &status, 0), pid);
    nchildren = 0; /* a case has one */
    return status;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    ended(pid);
}

static void count(void)
{
    for (;;)
        ++*shared;
}

static void sleep_long(void) { sleep(60); }

/* Written to by way of volatile: nobody reads it, and a compiler knows. */
static void use_memory(size_t n)
{
    volatile char *p = malloc(n);

    for (size_t i = 0; p && i < n; i += 1024)
        p[i] = 1;
}

static void eat_memory(void)
{
    for (;;)
        use_memory(MIB);
}

static void hold_memory(void)
{
    use_memory((size_t)100 * MIB);
    *shared = 1;
    sleep(60);
}

static void fork_many(void)
{
    int n = 0;

    for (;; n++) {
        pid_t pid = test_fork(0);

        if (!pid)
            sleep_long();
        if (pid < 0)
            break;
    }
    *shared = (uint64_t)n << 32 | (uint32_t)errno;
    kill(0, SIGKILL); /* our own group: see below */
}

static void fork_in_group(void)
{
    setpgid(0, 0);
    fork_many();
}

TEST(limits_are_in_force_and_everything_is_gone_at_the_end)
{
    uint64_t value;

    if (!begin(CGROUP_PIDS))
        return;
    limits.pids = 77;
    make();
    CHECK(is_there());
    CHECK_INT(cgroup_read_number(groups.v2[CGROUP_PIDS] ? groups.unified : groups.v1[CGROUP_PIDS],
                                 name, "pids.max", &value),
              0);
    CHECK_INT(value, 77);
    CHECK(groups.unified < 0 || into >= 0);
    finish();
}

TEST(a_name_that_is_taken_is_refused_and_its_owner_keeps_it)
{
    int other;

    if (!begin(CGROUP_CONTROLLERS))
        return;
    make();
    CHECK_INT(cgroup_create(&groups, name, &other, &err), -1);
    CHECK(strstr(err.msg, name));
    CHECK(is_there());
    finish();
}

TEST(removing_what_is_not_there_is_harmless)
{
    if (!begin(CGROUP_CONTROLLERS))
        return;
    cgroup_remove(&groups, name);
    cgroup_remove(&groups, name);
    make();
    finish();
}

TEST(use_is_counted)
{
    struct cgroup_usage u = { 0 };
    pid_t pid;

    if (!begin(CGROUP_MEMORY))
        return;
    make();
    pid = start(hold_memory);
    while (!*shared)
        usleep(1000);
    cgroup_usage(&groups, name, &u);
    CHECK(u.memory_bytes >= 100 * MIB && u.memory_peak_bytes >= u.memory_bytes);
    CHECK(u.cpu_us > 0);
    CHECK_INT(u.oom_kills, 0);
    if (cgroups_enforce(&groups, CGROUP_PIDS))
        CHECK_INT(u.pids, 1);
    end(pid);
    finish();
}

TEST(a_fork_beyond_the_limit_is_refused_and_counted)
{
    struct cgroup_usage u = { 0 };
    pid_t pid;

    if (!begin(CGROUP_PIDS))
        return;
    limits.pids = 10;
    make();
    pid = start(fork_in_group);
    ended(pid);
    CHECK_INT(*shared & UINT32_MAX, EAGAIN);
    CHECK_INT(*shared >> 32, 9);
    cgroup_usage(&groups, name, &u);
    CHECK_INT(u.pids_refused, 1);
    finish();
}

TEST(memory_beyond_the_limit_ends_the_process_and_is_told)
{
    struct cgroup_usage u = { 0 };
    struct pollfd p = { 0 };
    bool urgent;

    if (!begin(CGROUP_MEMORY))
        return;
    limits.memory_bytes = 32 * MIB;
    make();
    p.fd = cgroup_watch_memory(&groups, name, &urgent);
    CHECK(p.fd >= 0);
    p.events = urgent ? POLLPRI : POLLIN;
    CHECK_INT(WTERMSIG(ended(start(eat_memory))), SIGKILL);
    CHECK_INT(poll(&p, 1, 5000), 1);
    cgroup_usage(&groups, name, &u);
    CHECK(u.oom_kills >= 1);
    CHECK(u.memory_peak_bytes > 24 * MIB && u.memory_peak_bytes <= 32 * MIB);
    close(p.fd);
    finish();
}

enum { QUEUES = 24, QUEUE = 4 * MIB, QUEUES_LIMIT = 32 * MIB };

/* Nobody reads what waits there; a UDP packet that is not taken is dropped. */
static void fill_queues(void)
{
    static char packet[60000];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t n = sizeof(to);

    for (int i = 0; i < QUEUES; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);

        to.sin_port = 0;
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &(int){ QUEUE }, sizeof(int)) ||
            bind(fd, (struct sockaddr *)&to, n) || getsockname(fd, (struct sockaddr *)&to, &n))
            _exit(1);
        for (int k = 0; k < QUEUE / (int)sizeof(packet); k++)
            if (sendto(sender, packet, sizeof(packet), 0, (struct sockaddr *)&to, n) < 0)
                _exit(2);
    }
    *shared = 1;
    sleep(60);
}

/* What waits then, in bytes. Version 2 counts it as memory. */
static uint64_t queued(bool limited)
{
    bool v2 = groups.v2[CGROUP_MEMORY];
    uint64_t bytes = 0;
    pid_t pid;

    *shared = 0;
    if (!limited)
        CHECK_INT(cgroup_write(v2 ? groups.unified : groups.v1[CGROUP_MEMORY], name,
                               v2 ? "memory.max" : "memory.kmem.tcp.limit_in_bytes", "1G"),
                  0);
    pid = start(fill_queues);
    for (int i = 0; i < 5000 && !*shared; i++)
        usleep(1000);
    CHECK_INT(*shared, 1);
    CHECK_INT(cgroup_read_number(v2 ? groups.unified : groups.v1[CGROUP_MEMORY], name,
                                 v2 ? "memory.current" : "memory.kmem.tcp.usage_in_bytes", &bytes),
              0);
    end(pid);
    return bytes;
}

TEST(what_waits_in_udp_sockets_is_limited)
{
    if (!begin(CGROUP_MEMORY))
        return;
    limits.memory_bytes = QUEUES_LIMIT;
    make();
    CHECK(queued(true) <= QUEUES_LIMIT);
    CHECK(queued(false) > QUEUES_LIMIT); /* the control: they would hold more */
    finish();
}

static void check_file(int dir, const char *file, const char *want)
{
    char text[32] = "";
    AUTO(closep) int fd = openat(dir, file, O_RDONLY);

    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
    CHECK_STR(text, want);
}

static void make_file(int dir, const char *file)
{
    closep(&(int){ openat(dir, file, O_WRONLY | O_CREAT | O_TRUNC, 0600) });
}

/* In a plain directory: not every machine has the controller in version 2. */
TEST(swap_is_for_those_that_are_paused)
{
    char dir[] = "/tmp/test-cgroup-XXXXXX";
    struct cgroups c = { .v1 = { -1, -1, -1, -1 }, .v2 = { [CGROUP_MEMORY] = true } };
    AUTO(closep) int box = -1;
    AUTO(closep) int tmp = open("/tmp", O_RDONLY | O_DIRECTORY);

    CHECK(mkdtemp(dir));
    c.unified = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK_INT(mkdirat(c.unified, "box", 0700), 0);
    box = openat(c.unified, "box", O_RDONLY | O_DIRECTORY);
    make_file(box, "memory.max");
    CHECK_INT(limits_fill(&limits, NULL, &err), 0);
    limits.memory_bytes = 32 * MIB;
    CHECK_INT(cgroup_limit(&c, "box", &limits, NULL, &err), 0); /* no swap is accounted here */
    check_file(box, "memory.max", "33554432");
    make_file(box, "memory.swap.max");
    CHECK_INT(cgroup_limit(&c, "box", &limits, NULL, &err), 0);
    check_file(box, "memory.swap.max", "0");
    make_file(box, "memory.swap.max");
    cgroup_allow_swap(&c, "box", true);
    check_file(box, "memory.swap.max", "max");
    make_file(box, "memory.swap.max");
    make_file(box, "cgroup.freeze");
    CHECK_INT(cgroup_freeze_ask(&c, "box", false, &err), 0);
    check_file(box, "memory.swap.max", "0");
    make_file(box, "memory.swap.max");
    CHECK_INT(cgroup_freeze_ask(&c, "box", true, &err), 0);
    check_file(box, "memory.swap.max", "");
    close(c.unified);
    CHECK_INT(rmtree(tmp, dir + strlen("/tmp/")), 0);
}

TEST(processor_time_is_limited)
{
    struct cgroup_usage u = { 0 };
    int64_t begun;
    pid_t pid;

    if (!begin(CGROUP_CPU))
        return;
    limits.cpu_milli = 100;
    make();
    begun = clock_ms();
    pid = start(count);
    /* on a busy machine it may take a while until it had as much as it may have */
    for (int i = 0; i < 200 && (i < 5 || !u.throttled_us); i++) {
        usleep(100000);
        cgroup_usage(&groups, name, &u);
    }
    end(pid);
    cgroup_usage(&groups, name, &u);
    CHECK(u.throttled_us > 0);
    CHECK(u.cpu_us > 0 && u.cpu_us < (uint64_t)(clock_ms() - begun) * 100 + 100000);
    finish();
}

TEST(limits_change_up_and_down)
{
    static const uint64_t steps[] = { 256, 64, 512, 32 };
    uint64_t value;
    bool v2;

    if (!begin(CGROUP_MEMORY))
        return;
    make();
    v2 = groups.v2[CGROUP_MEMORY];
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) { /* memory and memsw want opposite orders */
        limits.memory_bytes = steps[i] * MIB;
        CHECK_INT(cgroup_limit(&groups, name, &limits, NULL, &err), 0);
        CHECK_INT(cgroup_read_number(v2 ? groups.unified : groups.v1[CGROUP_MEMORY], name,
                                     v2 ? "memory.max" : "memory.limit_in_bytes", &value),
                  0);
        CHECK_INT(value, steps[i] * MIB);
    }
    finish();
}

TEST(what_does_not_change_is_not_written)
{
    uint64_t value;
    bool v2;
    int dir;

    if (!begin(CGROUP_PIDS))
        return;
    make();
    v2 = groups.v2[CGROUP_PIDS];
    dir = v2 ? groups.unified : groups.v1[CGROUP_PIDS];
    CHECK_INT(cgroup_write(dir, name, "pids.max", "33"), 0);
    CHECK_INT(cgroup_limit(&groups, name, &limits, &limits, &err), 0);
    CHECK_INT(cgroup_read_number(dir, name, "pids.max", &value), 0);
    CHECK_INT(value, 33);
    CHECK_INT(cgroup_limit(&groups, name, &limits, &(struct limits){ 0 }, &err), 0);
    CHECK_INT(cgroup_read_number(dir, name, "pids.max", &value), 0);
    CHECK_INT(value, limits.pids);
    finish();
}

TEST(a_limit_below_the_use_is_refused_by_name)
{
    pid_t pid;

    if (!begin(CGROUP_MEMORY))
        return;
    if (groups.v2[CGROUP_MEMORY]) {
        printf("# skipped: version 2 reclaims and kills instead\n");
        cgroups_close(&groups);
        return;
    }
    make();
    pid = start(hold_memory);
    while (!*shared)
        usleep(1000);
    limits.memory_bytes = 20 * MIB;
    CHECK_INT(cgroup_limit(&groups, name, &limits, NULL, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(strstr(err.msg, "'memory'"));
    end(pid);
    finish();
}

TEST(frozen_processes_stand_still_until_thawed_and_can_be_killed)
{
    uint64_t at;
    pid_t pid;

    if (!begin(CGROUP_CONTROLLERS))
        return;
    make();
    pid = start(count);
    while (!*shared)
        usleep(1000);
    CHECK_INT(cgroup_freeze(&groups, name, true, &err), 0);
    at = *shared;
    usleep(50000);
    CHECK_INT(*shared, at);
    CHECK_INT(cgroup_freeze(&groups, name, true, &err), 0);
    CHECK_INT(cgroup_freeze(&groups, name, false, &err), 0);
    for (int i = 0; i < 1000 && *shared == at; i++)
        usleep(1000);
    CHECK(*shared != at);
    CHECK_INT(cgroup_freeze(&groups, name, true, &err), 0);
    end(pid);
    finish();
}

enum { CACHED = 16 << 20 };

/* A file's pages, which can go without swap: they are on disk. */
static void hold_cache(void)
{
    static char block[1 << 16];
    char path[] = "/var/tmp/cove-cache-XXXXXX";
    int fd = mkstemp(path);

    unlink(path);
    for (int i = 0; i < CACHED / (int)sizeof(block); i++)
        if (write(fd, block, sizeof(block)) != sizeof(block))
            _exit(1);
    fsync(fd);
    *shared = 1;
    sleep(60);
}

TEST(memory_of_frozen_processes_can_be_put_elsewhere)
{
    struct cgroup_usage before = { 0 }, after = { 0 };
    struct statfs fs;
    pid_t pid;

    if (!begin(CGROUP_MEMORY))
        return;
    if (statfs("/var/tmp", &fs) || fs.f_type == TMPFS_MAGIC) {
        printf("# skipped: /var/tmp is in memory, where nothing can go without swap\n");
        cgroups_close(&groups);
        return;
    }
    make();
    *shared = 0;
    pid = start(hold_cache);
    while (!*shared)
        usleep(1000);
    CHECK_INT(cgroup_freeze(&groups, name, true, &err), 0);
    cgroup_usage(&groups, name, &before);
    CHECK(before.memory_bytes >= CACHED);
    cgroup_reclaim(&groups, name);
    cgroup_usage(&groups, name, &after);
    CHECK(after.memory_bytes < before.memory_bytes - CACHED / 2);
    CHECK_INT(cgroup_freeze(&groups, name, false, &err), 0);
    end(pid);
    finish();
}

TEST(a_cgroup_that_is_not_there_cannot_be_frozen_or_limited)
{
    struct cgroup_usage u = { .pids = 5 };

    if (!begin(CGROUP_CONTROLLERS))
        return;
    CHECK_INT(cgroup_freeze(&groups, name, true, &err), -1);
    if (cgroups_enforce(&groups, CGROUP_MEMORY))
        CHECK_INT(cgroup_limit(&groups, name, &limits, NULL, &err), -1);
    cgroup_usage(&groups, name, &u);
    CHECK_INT(u.pids, 0);
    cgroups_close(&groups);
}

TEST(a_sweep_takes_what_is_empty_old_and_has_the_prefix)
{
    char kept[80];
    pid_t pid;

    if (!begin(CGROUP_CONTROLLERS))
        return;
    make();
    cgroups_sweep(&groups, name, 100, true); /* younger than that */
    CHECK(is_there());
    snprintf(kept, sizeof(kept), "%s-other", name);
    cgroups_sweep(&groups, kept, -2, true);
    CHECK(is_there());
    pid = start(sleep_long);
    cgroups_sweep(&groups, name, -2, true); /* somebody lives there */
    CHECK(groups.unified < 0 || !faccessat(groups.unified, name, F_OK, 0));
    end(pid);
    cgroups_sweep(&groups, name, -2, true);
    CHECK(!is_there());
    finish();
}

TEST(the_parents_removal_by_another_keeper_is_survived)
{
    if (!begin(CGROUP_CONTROLLERS))
        return;
    for (int k = 0; k <= CGROUP_CONTROLLERS; k++) /* fails while others use it: then it is there */
        if (groups.parents[k] >= 0)
            unlinkat(groups.parents[k], "cove", AT_REMOVEDIR);
    make();
    CHECK(is_there());
    finish();
}
