/* doctor_namespace.c - user namespaces (really made, and with power over them), the other six, and
 * the id ranges an ordinary user needs. */
#include <errno.h>
#include <linux/sched.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/probe.h"

/* The switches of distributions and the value with which they forbid. */
static const struct {
    const char *name, *path;
    int64_t forbids;
    const char *fix;
} switches[] = {
    { "user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", 0,
      "sysctl -w user.max_user_namespaces=65536" },
    { "kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", 0,
      "sysctl -w kernel.unprivileged_userns_clone=1" },
    { "kernel.apparmor_restrict_unprivileged_userns",
      "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1,
      "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
};

/* Names the switch that is to blame for a failure, where one is. */
static void blame_switch(const struct doctor *d, struct finding *f)
{
    size_t n = strlen(f->seen);
    int64_t v;

    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        if (probe_read_number(switches[i].path, &v) || v != switches[i].forbids)
            continue;
        snprintf(f->seen + n, sizeof(f->seen) - n, "; %s is %lld", switches[i].name, (long long)v);
        probe_fix_root(d, f, "%s", switches[i].fix);
        return;
    }
}

/* Ubuntu lets everybody make one and takes the capabilities inside: so try one of them. */
static void inside_user(const struct doctor *d, struct finding *f)
{
    (void)d;
    if (geteuid() != 0)
        probe_say(f, DOCTOR_FAIL, "not root inside a new user namespace, but uid %u", geteuid());
    else if (mount("cove", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k"))
        probe_fail(f, "mount inside a new user namespace");
    else
        probe_say(f, DOCTOR_OK, "made one and mounted inside it");
}

static void probe_user(const struct doctor *d, struct finding *f)
{
    probe_inside(d, CLONE_NEWUSER | CLONE_NEWNS, inside_user, f);
    if (f->status == DOCTOR_FAIL)
        blame_switch(d, f);
}

static const struct {
    const char *name;
    uint64_t flag;
} kinds[] = {
    { "mount", CLONE_NEWNS }, { "pid", CLONE_NEWPID }, { "net", CLONE_NEWNET },
    { "ipc", CLONE_NEWIPC },  { "uts", CLONE_NEWUTS }, { "cgroup", CLONE_NEWCGROUP },
};

static int try_clone(uint64_t flags)
{
    pid_t pid = probe_clone(flags, -1, NULL);

    if (pid == 0)
        _exit(0);
    return pid < 0 ? -1 : probe_wait(pid);
}

/* At once, as a sandbox is made; one by one only to name the one that is missing. */
static void probe_all(const struct doctor *d, struct finding *f)
{
    uint64_t all = CLONE_NEWUSER;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        all |= kinds[i].flag;
    if (!try_clone(all)) {
        probe_say(f, DOCTOR_OK, "user, mount, pid, net, ipc, uts and cgroup at once");
        return;
    }
    probe_fail(f, "clone3 with all seven");
    blame_switch(d, f);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (try_clone(CLONE_NEWUSER | kinds[i].flag)) {
            size_t n = strlen(f->seen);

            snprintf(f->seen + n, sizeof(f->seen) - n, "; no %s namespace", kinds[i].name);
        }
}

static void probe_limit(const struct doctor *d, struct finding *f)
{
    int64_t v;

    if (probe_read_number(switches[0].path, &v)) {
        probe_fail(f, "%s", switches[0].path);
        return;
    }
    probe_say(f, v < 1024 ? DOCTOR_WARN : DOCTOR_OK, "%s is %lld", switches[0].name, (long long)v);
    probe_fix_root(d, f, "%s", switches[0].fix);
}

/* ---- id ranges: newuidmap really maps one ---- */

struct range {
    uint64_t start, count;
};

/* "name:start:count" */
static bool parse_range(char *line, struct str *name, struct range *out)
{
    struct str rest, start, count;

    line[strcspn(line, "\n")] = 0;
    return str_cut(str_of(line), ':', name, &rest) && str_cut(rest, ':', &start, &count) &&
           !str_u64(start, &out->start) && !str_u64(count, &out->count) && out->count;
}

/* The first range of a user in /etc/subuid, who may be there by name or by number. *end becomes
 * the first id above all ranges of the file, where it is higher. */
static bool find_range(const char *file, const char *user, struct range *out, uint64_t *end)
{
    FILE *in = fopen(file, "re");
    char line[256];
    bool found = false;

    while (in && fgets(line, sizeof(line), in)) {
        struct range r;
        struct str name;
        uint64_t number;

        if (!parse_range(line, &name, &r))
            continue;
        *end = MAX(*end, r.start + r.count);
        if (found || (!str_is(name, user) && (str_u64(name, &number) || number != geteuid())))
            continue;
        *out = r;
        found = true;
    }
    if (in)
        fclose(in);
    return found;
}

/* 0 inside is this user, 1 and above are the range: as rootless mode will do it. */
static int map_range(const char *program, pid_t pid, unsigned id, const struct range *r,
                     char *message, size_t n)
{
    char texts[3][24];
    const char *argv[] = { program, texts[0], "0", texts[1], "1", "1", texts[2], NULL, NULL };
    char count[24];

    snprintf(texts[0], sizeof(texts[0]), "%d", pid);
    snprintf(texts[1], sizeof(texts[1]), "%u", id);
    snprintf(texts[2], sizeof(texts[2]), "%llu", (unsigned long long)r->start);
    snprintf(count, sizeof(count), "%llu", (unsigned long long)r->count);
    argv[7] = count;
    return probe_program(argv, message, n);
}

static void try_range(const struct range *uids, const struct range *gids, struct finding *f)
{
    char message[256];
    pid_t pid = probe_clone(CLONE_NEWUSER, -1, NULL);

    if (pid == 0)
        for (;;)
            pause();
    if (pid < 0)
        probe_fail(f, "clone3 with a user namespace");
    else if (map_range("newuidmap", pid, geteuid(), uids, message, sizeof(message)) ||
             map_range("newgidmap", pid, getegid(), gids, message, sizeof(message)))
        probe_say(f, DOCTOR_FAIL, "%s", message);
    else
        probe_say(f, uids->count < 65536 ? DOCTOR_WARN : DOCTOR_OK, "mapped %llu ids from %llu",
                  (unsigned long long)uids->count, (unsigned long long)uids->start);
    if (pid > 0) {
        kill(pid, SIGKILL);
        probe_wait(pid);
    }
}

static void probe_subids(const struct doctor *d, struct finding *f)
{
    static const char *const programs[] = { "newuidmap", "newgidmap" };
    char room[4096];
    struct passwd entry, *who = NULL;
    const char *name = "";
    struct range uids, gids;
    uint64_t free_id = 100000; /* where useradd begins */
    char path[512];
    bool found;

    if (d->root) {
        probe_say(f, DOCTOR_OK, "root maps any range");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (!probe_find_program(programs[i], path, sizeof(path))) {
            probe_say(f, DOCTOR_FAIL, "the program %s is missing", programs[i]);
            probe_fix_package(d, f, programs[i]);
            return;
        }
    /* A user whom no database knows can still be there by number. */
    if (!getpwuid_r(geteuid(), &entry, room, sizeof(room), &who) && who)
        name = who->pw_name;
    found = find_range("/etc/subuid", name, &uids, &free_id);
    if (!find_range("/etc/subgid", name, &gids, &free_id) || !found) {
        unsigned long long from = free_id, to = free_id + 65535;

        probe_say(f, DOCTOR_FAIL, "%s has no range in /etc/subuid and /etc/subgid",
                  who ? name : "this user");
        probe_fix_root(d, f, "usermod --add-subuids %llu-%llu --add-subgids %llu-%llu %s", from, to,
                       from, to, who ? name : "NAME");
        return;
    }
    try_range(&uids, &gids, f);
}

const struct doctor_check doctor_namespace[] = {
    { "namespaces.user", "user namespaces", .need = DOCTOR_BOTH, .probe = probe_user,
      .without = "sandboxes" },
    { "namespaces.all", "all seven namespaces", .need = DOCTOR_BOTH, .probe = probe_all,
      .without = "sandboxes" },
    { "namespaces.limit", "number of user namespaces", .probe = probe_limit,
      .without = "many sandboxes at a time" },
    { "namespaces.subids", "ranges of ids", .probe = probe_subids,
      .without = "users beside root inside (apt-get, sudo)" },
    {}
};
