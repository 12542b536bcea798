/* attack_ids.c - becoming somebody else: namespaces, user ids, capabilities, priorities, limits. */
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attack.h"
#include "base/util.h"

/* What the declared set is: src/jail/privilege.c, and design of the two profiles. */
static const uint64_t declared = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                                 1u << CAP_FSETID | 1u << CAP_KILL | 1u << CAP_SETUID |
                                 1u << CAP_SETGID | 1u << CAP_SETPCAP | 1u << CAP_SETFCAP |
                                 1u << CAP_NET_BIND_SERVICE | 1u << CAP_AUDIT_WRITE;

enum { PLAIN_USER = 1000, NOT_MAPPED = 65536, OVERFLOW_ID = 65534 };

/* ---- namespaces ---- */

static long leave(const struct attempt *a) { return unshare((int)a->nr); }

static long clone_into(const struct attempt *a)
{
    long pid = syscall(SYS_clone, (unsigned long)a->nr | SIGCHLD, NULL, NULL, NULL, 0);

    if (!pid)
        _exit(0);
    return pid;
}

static long clone3_into(const struct attempt *a)
{
    struct clone_args how = { .flags = (uint64_t)a->nr, .exit_signal = SIGCHLD };
    long pid = syscall(SYS_clone3, &how, sizeof(how));

    if (!pid)
        _exit(0);
    return pid;
}

static long enter(const struct attempt *a)
{
    int ns = open(a->path, O_RDONLY | O_CLOEXEC);

    if (ns < 0)
        return -1;
    return setns(ns, 0);
}

/* ---- capabilities ---- */

static uint64_t set_named(const char *word)
{
    char text[32];

    if (!status_field("/proc/self/status", word, text, sizeof(text)))
        unclear("/proc/self/status has no %s", word);
    return strtoull(text, NULL, 16);
}

static long declared_sets(const struct attempt *a)
{
    uint64_t most = strict() ? 0 : declared, mine = strict() || getuid() ? 0 : declared;
    char nnp[8];

    (void)a;
    if (set_named("CapBnd") != most)
        escaped("CapBnd %llx", (unsigned long long)set_named("CapBnd"));
    if (set_named("CapPrm") != mine || set_named("CapEff") != mine)
        escaped("CapPrm %llx", (unsigned long long)set_named("CapPrm"));
    if (set_named("CapInh") || set_named("CapAmb"))
        escaped("CapInh %llx", (unsigned long long)set_named("CapInh"));
    if (!status_field("/proc/self/status", "NoNewPrivs", nnp, sizeof(nnp)) ||
        strcmp(nnp, strict() ? "1" : "0"))
        escaped("NoNewPrivs %s", nnp);
    held("CapBnd %llx CapPrm %llx", (unsigned long long)most, (unsigned long long)mine);
}

static long raise_all(const struct attempt *a)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct all[2];

    (void)a;
    if (syscall(SYS_capget, &header, all))
        return -1;
    all[0].permitted |= 1u << CAP_SYS_ADMIN;
    all[0].effective |= 1u << CAP_SYS_ADMIN;
    return syscall(SYS_capset, &header, all);
}

static long raise_ambient(const struct attempt *a)
{
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, a->nr, 0, 0);
}

static long control_process(const struct attempt *a)
{
    return prctl((int)a->nr, a->args[0], a->args[1], a->args[2], a->args[3]);
}

static long forge_map(const struct attempt *a)
{
    unsigned size = 0;

    return prctl((int)a->nr, PR_SET_MM_MAP_SIZE, &size, 0, 0);
}

/* ---- programs that give rights ---- */

/* attacker gained EUID: executed with a right; says what it got. The first argument is the user id
 * it must not be above of: -1 when becoming root of the sandbox is as it should be. */
bool run_helper(int argc, char **argv)
{
    uint64_t caps;

    if (argc != 3 || strcmp(argv[1], "gained"))
        return false;
    caps = set_named("CapPrm") | set_named("CapEff");
    if (caps & ~(strict() ? 0 : declared))
        printf("ESCAPED: capabilities %llx\n", (unsigned long long)caps);
    else if ((int)strtol(argv[2], NULL, 10) >= 0 &&
             ((int)geteuid() != (int)strtol(argv[2], NULL, 10) || caps))
        printf("ESCAPED: user %u, capabilities %llx\n", geteuid(), (unsigned long long)caps);
    else
        printf("held: user %u, capabilities %llx\n", geteuid(), (unsigned long long)caps);
    return true;
}

/* Runs it as the plain user and takes its word for our own. */
static _Noreturn void execute(const char *path, bool may_be_root)
{
    char told[160], self[16];
    int out[2];
    ssize_t n;
    pid_t pid;

    if (pipe(out))
        unclear("pipe");
    if (!(pid = fork())) {
        dup2(out[1], 1);
        if (!getuid() && !strict() &&
            (setresgid(PLAIN_USER, PLAIN_USER, PLAIN_USER) ||
             setresuid(PLAIN_USER, PLAIN_USER, PLAIN_USER)))
            _exit(1);
        snprintf(self, sizeof(self), "%d", may_be_root ? -1 : (int)getuid());
        execl(path, path, "gained", self, NULL);
        dprintf(1, "held: %s\n", strerrorname_np(errno));
        _exit(1);
    }
    close(out[1]);
    n = read(out[0], told, sizeof(told) - 1);
    waitpid(pid, NULL, 0);
    told[MAX(n, (ssize_t)0)] = 0;
    told[strcspn(told, "\n")] = 0;
    if (!strncmp(told, "held: ", 6))
        held("%s", told + 6);
    if (!strncmp(told, "ESCAPED: ", 9))
        escaped("%s", told + 9);
    unclear("it said '%s'", told);
}

static long setuid_file(const struct attempt *a)
{
    if (copy_self(a->path, 0755) || chown(a->path, 0, 0) || chmod(a->path, 04755))
        return -1; /* the plain user cannot give a file away */
    execute(a->path, !strict());
}

struct file_capability { /* revision 2 of security.capability */
    uint32_t magic, permitted_low, inheritable_low, permitted_high, inheritable_high;
};

static long capability_file(const struct attempt *a)
{
    struct file_capability all = { 0x02000001, UINT32_MAX, 0, 0x1ff, 0 };

    if (copy_self(a->path, 0755))
        unclear("cannot write %s", a->path);
    if (setxattr(a->path, "security.capability", &all, sizeof(all), 0))
        return -1;
    execute(a->path, false);
}

/* On a directory of the host that is shown inside, such files mean nothing. */
static long shown_file(const struct attempt *a) { execute(a->path, false); }

/* ---- user ids ---- */

static long become(const struct attempt *a) { return setuid((uid_t)a->nr); }

static long join_group(const struct attempt *a)
{
    gid_t group = (gid_t)a->nr;

    return syscall(SYS_setgroups, 1, &group);
}

/* From the plain user; root becomes that first. Strict root cannot, and keeps nothing but its id.
 */
static long back_to_root(const struct attempt *a)
{
    if (!getuid() && setresuid(PLAIN_USER, PLAIN_USER, PLAIN_USER))
        return -1;
    return setuid((uid_t)a->nr);
}

static long give_away(const struct attempt *a)
{
    int fd = open("/tmp/mine", O_CREAT | O_RDWR, 0600);

    if (fd < 0)
        unclear("cannot make a file");
    return fchown(fd, (uid_t)a->nr, (gid_t)-1);
}

static long stranger(const struct attempt *a)
{
    struct stat st;

    if (stat(a->path, &st))
        return -1;
    if (st.st_uid != OVERFLOW_ID)
        escaped("%s belongs to %u", a->path, st.st_uid);
    held("nobody");
}

/* Never a number that means somebody outside: neither here nor in the part below 65536. */
static long host_ids(const struct attempt *a)
{
    char text[256];
    unsigned long inside = 0, outside = 0, count = 0;

    if (read_text(a->path, text, sizeof(text)) < 0)
        return -1;
    if (sscanf(text, "%lu %lu %lu", &inside, &outside, &count) != 3)
        unclear("%s: %s", a->path, text);
    if (outside < 1u << 20 || count > 65536 || strchr(text, '\n') != strrchr(text, '\n'))
        escaped("%s: %s", a->path, text);
    held("%lu ids from %lu", count, outside);
}

/* ---- priority and limits ---- */

static long realtime(const struct attempt *a)
{
    struct sched_param p = { .sched_priority = 1 };

    return sched_setscheduler(0, (int)a->nr, &p);
}

static long deadline(const struct attempt *a)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } d = { sizeof(d), (uint32_t)a->nr, 0, 0, 0, 1000000, 10000000, 10000000 };

    return syscall(SYS_sched_setattr, 0, &d, 0);
}

static long nicer(const struct attempt *a) { return setpriority(PRIO_PROCESS, 0, (int)a->nr); }

static long disk_priority(const struct attempt *a)
{
    return syscall(SYS_ioprio_set, 1, 0, a->nr); /* 1: a process, 0: this one */
}

static long processor(const struct attempt *a)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)a->nr, &set);
    return sched_setaffinity(0, sizeof(set), &set);
}

static long raise_limit(const struct attempt *a)
{
    struct rlimit limit;

    if (getrlimit((unsigned)a->nr, &limit))
        return -1;
    limit.rlim_max++;
    return setrlimit((unsigned)a->nr, &limit);
}

static long given_limits(const struct attempt *a)
{
    struct rlimit files, core;

    if (getrlimit(RLIMIT_NOFILE, &files) || getrlimit(RLIMIT_CORE, &core))
        return -1;
    if (files.rlim_max > (rlim_t)a->nr ||
        core.rlim_max > 1) /* one byte: no core, and no core handler */
        escaped("%lu files, %lu bytes of core", files.rlim_max, core.rlim_max);
    held("%lu files, no core", files.rlim_max);
}

static long spare_me(const struct attempt *a)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);

    return fd < 0 ? -1 : write(fd, a->path, strlen(a->path));
}

#define LEAVE(name, flag)                                                                          \
    {                                                                                              \
        "unshare-" name, leave, { EPERM }, NULL, flag                                              \
    }
enum { RT_CLASS = 1 << 13 };

const struct attempt attack_ids[] = {
    LEAVE("user", CLONE_NEWUSER),
    LEAVE("mount", CLONE_NEWNS),
    LEAVE("pid", CLONE_NEWPID),
    LEAVE("net", CLONE_NEWNET),
    LEAVE("ipc", CLONE_NEWIPC),
    LEAVE("uts", CLONE_NEWUTS),
    LEAVE("cgroup", CLONE_NEWCGROUP),
    LEAVE("time", CLONE_NEWTIME),
    { "clone-user", clone_into, { EPERM }, NULL, CLONE_NEWUSER },
    { "clone-all",
      clone_into,
      { EPERM },
      NULL,
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID },
    { "clone3-user", clone3_into, { ENOSYS }, NULL, CLONE_NEWUSER },
    { "setns-own", enter, { EPERM }, "/proc/self/ns/uts" },
    { "setns-pid1", enter, { EACCES, EPERM }, "/proc/1/ns/mnt" },
    { "declared-sets", declared_sets, {} },
    { "capset", raise_all, { EPERM } },
    { "ambient", raise_ambient, { EPERM }, NULL, CAP_SYS_ADMIN },
    { "securebits", control_process, { EPERM }, NULL, PR_SET_SECUREBITS, { 1 } },
    { "no-new-privs-off", control_process, { EINVAL }, NULL, PR_SET_NO_NEW_PRIVS, { 0 } },
    { "set-mm", forge_map, { EPERM }, NULL, PR_SET_MM },
    { "setuid-file", setuid_file, { EPERM }, "/tmp/setuid" },
    { "capability-file", capability_file, { EPERM }, "/tmp/capability" },
    { "setuid-shown", shown_file, {}, "/attack/setuid" },
    { "capability-shown", shown_file, {}, "/attack/capability" },
    { "setuid-unmapped", become, { EINVAL }, NULL, NOT_MAPPED },
    { "setuid-host-user", become, { EINVAL }, NULL, 0x7fffffff },
    { "setgroups-unmapped", join_group, { EINVAL, EPERM }, NULL, NOT_MAPPED },
    { "setuid-root", back_to_root, { EPERM }, NULL, 0 },
    { "chown-unmapped", give_away, { EINVAL, EPERM }, NULL, NOT_MAPPED },
    { "stranger", stranger, {}, "/attack/stranger" },
    { "uid-map", host_ids, {}, "/proc/self/uid_map" },
    { "gid-map", host_ids, {}, "/proc/self/gid_map" },
    { "sched-fifo", realtime, { EPERM }, NULL, SCHED_FIFO },
    { "sched-rr", realtime, { EPERM }, NULL, SCHED_RR },
    { "sched-deadline", deadline, { EPERM }, NULL, 6 },
    { "nice", nicer, { EACCES, EPERM }, NULL, -5 },
    { "ioprio-realtime", disk_priority, { EPERM }, NULL, RT_CLASS },
    { "affinity", processor, { EINVAL }, NULL, 1000 },
    { "rlimit-files", raise_limit, { EPERM }, NULL, RLIMIT_NOFILE },
    { "rlimit-core", raise_limit, { EPERM }, NULL, RLIMIT_CORE },
    { "rlimits", given_limits, {}, NULL, 4096 },
    { "oom-score", spare_me, { EACCES }, "-1000" },
    {}
};
