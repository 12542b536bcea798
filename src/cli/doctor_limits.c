/* doctor_limits.c - numbers of this machine that bound how many sandboxes it holds. */
#include <sys/resource.h>

#include "cli/probe.h"

/* A sandbox costs keep and serve about eight descriptors: these are for a thousand. */
enum { FILES_WANTED = 16384, PIDS_WANTED = 65536, MAPS_WANTED = 65530 };
enum { WATCHES_WANTED = 8192, INSTANCES_WANTED = 128 };

static void print_limit(rlim_t v, char *out, size_t n)
{
    if (v == RLIM_INFINITY)
        snprintf(out, n, "unlimited");
    else
        snprintf(out, n, "%llu", (unsigned long long)v);
}

/* The hard limit counts: a program that needs more raises its soft one itself. */
static void probe_files(const struct doctor *d, struct finding *f)
{
    struct rlimit limit;
    char soft[32], hard[32];

    (void)d;
    if (getrlimit(RLIMIT_NOFILE, &limit)) {
        probe_fail(f, "RLIMIT_NOFILE");
        return;
    }
    print_limit(limit.rlim_cur, soft, sizeof(soft));
    print_limit(limit.rlim_max, hard, sizeof(hard));
    probe_say(f, limit.rlim_max < FILES_WANTED ? DOCTOR_WARN : DOCTOR_OK, "%s, can be raised to %s",
              soft, hard);
    probe_fix(f, "ulimit -Hn %d (as root), or LimitNOFILE=%d in the unit", FILES_WANTED * 4,
              FILES_WANTED * 4);
}

static void probe_pids(const struct doctor *d, struct finding *f)
{
    struct rlimit limit;
    char hard[32];
    int64_t max;

    if (probe_read_number("/proc/sys/kernel/pid_max", &max) || getrlimit(RLIMIT_NPROC, &limit)) {
        probe_fail(f, "kernel.pid_max");
        return;
    }
    print_limit(limit.rlim_cur, hard, sizeof(hard));
    probe_say(f, max < PIDS_WANTED ? DOCTOR_WARN : DOCTOR_OK,
              "kernel.pid_max is %lld, this user may have %s", (long long)max, hard);
    probe_fix_root(d, f, "sysctl -w kernel.pid_max=4194304");
    /* Root is exempt from the second; each sandbox of an ordinary user counts as that user. */
    if (!d->root && f->status == DOCTOR_OK && limit.rlim_cur < 4096) {
        f->status = DOCTOR_WARN;
        probe_fix(f, "ulimit -u 16384, or a line in /etc/security/limits.conf");
    }
}

/* The limits are those of each user, and a sandbox's users are its own: so per sandbox. */
static void probe_inotify(const struct doctor *d, struct finding *f)
{
    int64_t watches, instances;

    if (probe_read_number("/proc/sys/fs/inotify/max_user_watches", &watches) ||
        probe_read_number("/proc/sys/fs/inotify/max_user_instances", &instances)) {
        probe_fail(f, "fs.inotify");
        return;
    }
    probe_say(f, watches < WATCHES_WANTED || instances < INSTANCES_WANTED ? DOCTOR_WARN : DOCTOR_OK,
              "%lld watches and %lld instances a user", (long long)watches, (long long)instances);
    probe_fix_root(
        d, f, "sysctl -w fs.inotify.max_user_watches=65536 fs.inotify.max_user_instances=1024");
}

/* The kernel's default is enough for most; databases and JVMs ask for four times as much. */
static void probe_maps(const struct doctor *d, struct finding *f)
{
    int64_t v;

    if (probe_read_number("/proc/sys/vm/max_map_count", &v)) {
        probe_fail(f, "vm.max_map_count");
        return;
    }
    probe_say(f, v < MAPS_WANTED ? DOCTOR_WARN : DOCTOR_OK, "vm.max_map_count is %lld",
              (long long)v);
    probe_fix_root(d, f, "sysctl -w vm.max_map_count=262144");
}

/* Tried by the probe's own process, which ends with it. */
static void probe_oom(const struct doctor *d, struct finding *f)
{
    if (!probe_write("/proc/self/oom_score_adj", "-900")) {
        probe_say(f, DOCTOR_OK, "server and keeper are the last to be killed");
        return;
    }
    probe_say(f, DOCTOR_WARN, "server and keeper are killed like any other process");
    if (d->root)
        probe_fix(f, "run cove with CAP_SYS_RESOURCE, or with OOMScoreAdjust=-900 in its unit");
    else
        probe_fix(f, "sudo cove doctor (and run cove as root)");
}

const struct doctor_check doctor_limits[] = {
    { "limits.files", "open files", .probe = probe_files, .without = "many sandboxes at a time" },
    { "limits.pids", "processes", .probe = probe_pids, .without = "many sandboxes at a time" },
    { "limits.inotify", "inotify", .probe = probe_inotify, .without = "watches on many files" },
    { "limits.maps", "memory maps", .probe = probe_maps, .without = "programs with many maps" },
    { "limits.oom", "want of memory", .probe = probe_oom,
      .without = "a server that outlives want of memory" },
    {}
};
