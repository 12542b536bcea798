/* doctor_cgroup.c - limits and life: which hierarchy limits memory, processors, processes and I/O,
 * and whether version 2 can start, freeze and kill a sandbox as one.
 *
 * A cgroup cannot be private to a child as a mount can: each probe makes one with a name of this
 * run's own, and the parent removes it once more when the probe is over, however it ended. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/mountinfo.h"
#include "cli/probe.h"
#include "jail/queues.h"

struct place {
    const char *controller; /* NULL: version 2 */
    char dir[PATH_MAX];     /* where we would make ours; "" when there is none */
};

static bool is_place(const struct mountinfo *m, void *arg)
{
    struct place *p = arg;
    bool match = p->controller ? !strcmp(m->type, "cgroup") && mountinfo_has(m, p->controller)
                               : !strcmp(m->type, "cgroup2");

    if (match)
        snprintf(p->dir, sizeof(p->dir), "%s", m->point);
    return !match;
}

/* An ordinary user may at most make one below the one it is in: "0::/user.slice/..." */
static void add_own_path(char *dir, size_t n)
{
    char text[4096];
    const char *own;
    size_t len = strlen(dir);

    if (probe_read("/proc/self/cgroup", text, sizeof(text)) < 0)
        return;
    own = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
    if (!own)
        return;
    own += *own == '\n' ? 4 : 3;
    snprintf(dir + len, n - len, "%.*s", (int)strcspn(own, "\n"), own);
    len = strlen(dir);
    if (len > 1 && dir[len - 1] == '/')
        dir[len - 1] = 0;
}

static bool find_v1(const char *controller, struct place *p)
{
    *p = (struct place){ .controller = controller };
    mountinfo_each(is_place, p);
    return p->dir[0];
}

static bool find_v2(const struct doctor *d, struct place *p)
{
    *p = (struct place){ 0 };
    mountinfo_each(is_place, p);
    if (p->dir[0] && !d->root)
        add_own_path(p->dir, sizeof(p->dir));
    return p->dir[0];
}

static int open_dir(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* "cpu io memory" without the newline; -1 with errno */
static int read_controllers(const struct place *v2, char *out, size_t n)
{
    AUTO(closep) int dir = open_dir(AT_FDCWD, v2->dir);

    if (dir < 0 || probe_read_at(dir, "cgroup.controllers", out, n) < 0)
        return -1;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

static bool v2_has(const struct place *v2, const char *controller)
{
    char text[512];
    struct str rest, item;

    if (read_controllers(v2, text, sizeof(text)))
        return false;
    rest = str_of(text);
    while (str_next(&rest, ' ', &item))
        if (str_is(item, controller))
            return true;
    return false;
}

/* systemd hands a cgroup of its own to whoever asks; elsewhere only root can. */
static void fix_delegation(const struct doctor *d, struct finding *f)
{
    if (!d->root && !access("/run/systemd/system", F_OK))
        probe_fix(f, "systemd-run --user --scope -p Delegate=yes cove doctor");
    else if (!d->root)
        probe_fix(f, "sudo cove doctor (and run cove as root)");
}

/* ---- version 2 ---- */

static void probe_v2(const struct doctor *d, struct finding *f)
{
    char text[512];
    struct place v2;

    if (!find_v2(d, &v2)) {
        probe_say(f, DOCTOR_FAIL, "not mounted");
        probe_fix_root(d, f,
                       "mkdir -p /sys/fs/cgroup/unified && %smount -t cgroup2 none "
                       "/sys/fs/cgroup/unified",
                       d->root ? "" : "sudo ");
    } else if (read_controllers(&v2, text, sizeof(text))) {
        probe_fail(f, "%s/cgroup.controllers", v2.dir);
    } else {
        probe_say(f, DOCTOR_OK, "%s, controllers: %s", v2.dir, text[0] ? text : "none");
    }
}

static void remove_scratch(const struct doctor *d, const struct place *p)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    AUTO(closep) int dir = open_dir(AT_FDCWD, p->dir);

    /* Its members may still be going: EBUSY until they are gone. */
    for (int i = 0; i < 500 && unlinkat(dir, d->scratch, AT_REMOVEDIR) && errno == EBUSY; i++)
        nanosleep(&pause, NULL);
}

/* Makes ours below the place and opens it. */
static int make_scratch(const struct doctor *d, const struct place *p, struct finding *f)
{
    AUTO(closep) int dir = open_dir(AT_FDCWD, p->dir);
    int fd = -1;

    if (dir < 0 || mkdirat(dir, d->scratch, 0755) || (fd = open_dir(dir, d->scratch)) < 0)
        probe_fail(f, "make a cgroup in %s", p->dir);
    return fd;
}

/* Born there, not moved there: between the two a fork bomb could escape its limits. */
static void try_into(const struct doctor *d, int dir, pid_t pid, struct finding *f)
{
    char path[64], text[4096];

    (void)dir;
    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    if (probe_read(path, text, sizeof(text)) < 0)
        probe_fail(f, "%s", path);
    else if (strstr(text, d->scratch))
        probe_say(f, DOCTOR_OK, "a child was born in one");
    else
        probe_say(f, DOCTOR_FAIL, "clone3 worked, but the child is not in the cgroup");
}

/* Reads again and again: the kernel limits how often it tells a poller of changes. */
static bool becomes(int dir, const char *line)
{
    const struct timespec pause = { .tv_nsec = 100000 };
    int64_t deadline = clock_ms() + 1000;
    char text[256];

    do {
        if (probe_read_at(dir, "cgroup.events", text, sizeof(text)) > 0 && strstr(text, line))
            return true;
        nanosleep(&pause, NULL);
    } while (clock_ms() < deadline);
    return false;
}

static void try_freeze(const struct doctor *d, int dir, pid_t pid, struct finding *f)
{
    (void)d, (void)pid;
    if (probe_write_at(dir, "cgroup.freeze", "1"))
        probe_fail(f, "write 1 to cgroup.freeze");
    else if (!becomes(dir, "frozen 1"))
        probe_say(f, DOCTOR_FAIL, "not frozen within a second");
    else if (probe_write_at(dir, "cgroup.freeze", "0") || !becomes(dir, "frozen 0"))
        probe_say(f, DOCTOR_FAIL, "frozen, but not thawed within a second");
    else
        probe_say(f, DOCTOR_OK, "a child was frozen and thawed");
}

/* Linux 5.14. Without it every process must be found and killed, while it makes new ones. */
static void try_kill(const struct doctor *d, int dir, pid_t pid, struct finding *f)
{
    (void)d, (void)pid;
    if (probe_write_at(dir, "cgroup.kill", "1"))
        probe_fail(f, "write 1 to cgroup.kill");
    else if (!becomes(dir, "populated 0"))
        probe_say(f, DOCTOR_FAIL, "the child is still there after a second");
    else
        probe_say(f, DOCTOR_OK, "a child was killed by one write");
}

static const struct {
    const char *name;
    void (*fn)(const struct doctor *d, int dir, pid_t pid, struct finding *f);
} deeds[] = { { "into", try_into }, { "freeze", try_freeze }, { "kill", try_kill } };

static void do_deed(const struct doctor *d, int dir, struct finding *f)
{
    pid_t pid = probe_clone(0, dir, NULL);

    if (pid == 0)
        for (;;)
            pause();
    if (pid < 0) {
        probe_fail(f, "clone3 into a cgroup");
        fix_delegation(d, f);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(deeds); i++)
        if (!strcmp(deeds[i].name, d->check->arg))
            deeds[i].fn(d, dir, pid, f);
    kill(pid, SIGKILL);
    probe_write_at(dir, "cgroup.freeze", "0"); /* one who is frozen is not reaped */
    probe_wait(pid);
}

static void probe_deed(const struct doctor *d, struct finding *f)
{
    AUTO(closep) int dir = -1;
    struct place v2;

    if (!find_v2(d, &v2)) {
        probe_say(f, DOCTOR_FAIL, "cgroup version 2 is not mounted");
        return;
    }
    dir = make_scratch(d, &v2, f);
    if (dir < 0) {
        fix_delegation(d, f);
        return;
    }
    do_deed(d, dir, f);
    remove_scratch(d, &v2);
}

/* ---- limits: in version 2 where it has the controller, else in version 1 ---- */

static const struct {
    const char *name, *v1, *file; /* a file that a cgroup of version 1 has only if it can limit */
} controllers[] = {
    { "memory", "memory", "memory.limit_in_bytes" },
    { "cpu", "cpu", "cpu.cfs_quota_us" },
    { "pids", "pids", "pids.max" },
    { "io", "blkio", "blkio.throttle.read_bps_device" },
};

static void probe_limit_v1(const struct doctor *d, const struct place *v1, const char *file,
                           struct finding *f)
{
    AUTO(closep) int dir = make_scratch(d, v1, f);

    if (dir < 0)
        return;
    if (faccessat(dir, file, W_OK, 0))
        probe_fail(f, "%s of a cgroup in %s", file, v1->dir);
    else
        probe_say(f, DOCTOR_OK, "version 1, %s", v1->dir);
    remove_scratch(d, v1);
}

static void probe_limit(const struct doctor *d, struct finding *f)
{
    struct place v1, v2;
    size_t i = 0;

    while (strcmp(controllers[i].name, d->check->arg) != 0)
        i++;
    /* Not tried further in version 2: handing a controller down changes a file that is not ours. */
    if (find_v2(d, &v2) && v2_has(&v2, controllers[i].name)) {
        if (access(v2.dir, W_OK)) {
            probe_fail(f, "make a cgroup in %s", v2.dir);
            fix_delegation(d, f);
        } else {
            probe_say(f, DOCTOR_OK, "version 2, %s", v2.dir);
        }
    } else if (find_v1(controllers[i].v1, &v1)) {
        probe_limit_v1(d, &v1, controllers[i].file, f);
    } else {
        probe_say(f, DOCTOR_FAIL, "no hierarchy has the controller %s", controllers[i].name);
        fix_delegation(d, f);
    }
    if (f->status == DOCTOR_FAIL && !f->fix[0] && !d->root)
        probe_fix(f, "sudo cove doctor (and run cove as root)");
}

/* What waits in sockets is memory, too: who counts it? */
static void probe_sockets(const struct doctor *d, struct finding *f)
{
    static const char theirs[] =
        "nobody counts netlink's, so the keeper looks, and ends who is above the limit with them";
    struct place v1, v2;
    struct err err;
    struct queues q;

    if (d->root && queues_sum(getpid(), &q, &err)) {
        probe_say(f, DOCTOR_WARN,
                  "what waits in netlink sockets is counted by nobody, and cannot be seen: %s",
                  err.msg);
        probe_fix_root(d, f, "modprobe netlink_diag");
    } else if (!d->root) {
        probe_say(f, DOCTOR_WARN, "without root nobody looks at what waits in sockets");
        probe_fix(f, "sudo cove doctor (and run cove as root)");
    } else if (find_v2(d, &v2) && v2_has(&v2, "memory")) {
        probe_say(f, DOCTOR_OK, "version 2 counts TCP's and UDP's as memory; %s", theirs);
    } else if (find_v1("memory", &v1)) {
        probe_say(f, DOCTOR_WARN,
                  "version 1 has a limit of TCP's and UDP's beside that of memory: with few "
                  "sockets a sandbox may hold as much again in them; %s",
                  theirs);
        probe_fix(f, "boot with cgroup_no_v1=memory on the kernel's command line");
    } else {
        probe_say(f, DOCTOR_WARN, "no hierarchy has the controller memory");
    }
}

static void probe_delegation(const struct doctor *d, struct finding *f)
{
    struct place v2;

    if (d->root)
        probe_say(f, DOCTOR_OK, "root needs none");
    else if (!find_v2(d, &v2))
        probe_say(f, DOCTOR_FAIL, "cgroup version 2 is not mounted");
    else if (access(v2.dir, W_OK)) {
        probe_fail(f, "%s", v2.dir);
        fix_delegation(d, f);
    } else {
        probe_say(f, DOCTOR_OK, "%s is this user's", v2.dir);
    }
}

/* Once more and everywhere: the probe may have been killed between making and removing. */
static void clean_up(const struct doctor *d)
{
    struct place p;

    for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
        if (find_v1(controllers[i].v1, &p))
            remove_scratch(d, &p);
    if (find_v2(d, &p))
        remove_scratch(d, &p);
}

const struct doctor_check doctor_cgroup[] = {
    { "cgroup.v2", "cgroup version 2", .need = DOCTOR_ROOT, .probe = probe_v2,
      .without = "killing a sandbox as one" },
    { "cgroup.into", "starting inside a cgroup", .need = DOCTOR_ROOT, .arg = "into",
      .probe = probe_deed, .after = clean_up, .without = "limits from the first instruction on" },
    { "cgroup.freeze", "cgroup.freeze", .need = DOCTOR_ROOT, .arg = "freeze", .probe = probe_deed,
      .after = clean_up, .without = "pause and consistent snapshots" },
    { "cgroup.kill", "cgroup.kill", .arg = "kill", .probe = probe_deed, .after = clean_up,
      .without = "killing a sandbox as one" },
    { "cgroup.memory", "limit of memory", .need = DOCTOR_ROOT, .arg = "memory",
      .probe = probe_limit, .after = clean_up, .without = "a limit of memory" },
    { "cgroup.cpu", "limit of processors", .need = DOCTOR_ROOT, .arg = "cpu", .probe = probe_limit,
      .after = clean_up, .without = "a limit of processors" },
    { "cgroup.pids", "limit of processes", .need = DOCTOR_ROOT, .arg = "pids", .probe = probe_limit,
      .after = clean_up, .without = "a limit of processes" },
    { "cgroup.io", "limit of disk I/O", .arg = "io", .probe = probe_limit, .after = clean_up,
      .without = "a limit of disk I/O" },
    { "cgroup.sockets", "limit of what waits in sockets", .probe = probe_sockets,
      .without = "a memory limit that holds for sockets" },
    { "cgroup.delegation", "a cgroup of one's own", .probe = probe_delegation },
    {}
};
