/* cgroup.c - see cgroup.h: directories, limits, membership, freezing. What is read back is in
 * cgroup_read.c. */
#include "jail/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "jail/cgroup_files.h"
#include "jail/weaken.h"

enum { CPU_PERIOD_US = 100000, FREEZE_TRIES = 5000, REMOVE_TRIES = 2000, PAUSE_US = 20 };

#define SWAP_MAX "memory.swap.max" /* not there without swap accounting */

static const struct controller {
    const char *v1, *v2; /* names in /proc/self/mountinfo and in cgroup.controllers */
    const char *probe;   /* version 1: only useful where this file exists in a child */
} controllers[CGROUP_CONTROLLERS] = {
    [CGROUP_MEMORY] = { "memory", "memory", "memory.limit_in_bytes" },
    [CGROUP_CPU] = { "cpu", "cpu", "cpu.cfs_quota_us" },
    [CGROUP_PIDS] = { "pids", "pids", "pids.max" },
    [CGROUP_IO] = { "blkio", "io", "blkio.bfq.weight" }, /* there only under the bfq scheduler */
};

/* One file of one limit. The memsw file does not exist without swap accounting, and must be written
 * after the plain one; version 2 counts swap apart, so that a running sandbox has none there. What
 * waits in TCP and UDP sockets version 2 counts as memory, and version 1 only under this limit. */
static const struct limit_file {
    enum cgroup_controller controller;
    enum limit_id limit;
    const char *v1, *v2;
    bool optional;     /* whatever refuses it */
    bool newer;        /* an older kernel has no such file */
    const char *fixed; /* whatever the limit is */
} limit_files[] = {
    { CGROUP_MEMORY, LIMIT_MEMORY, "memory.limit_in_bytes", "memory.max", false },
    { CGROUP_MEMORY, LIMIT_MEMORY, "memory.memsw.limit_in_bytes", NULL, true },
    { CGROUP_MEMORY, LIMIT_MEMORY, "memory.kmem.tcp.limit_in_bytes", NULL, .newer = true },
    { CGROUP_MEMORY, LIMIT_MEMORY, NULL, SWAP_MAX, .newer = true, .fixed = "0" },
    { CGROUP_CPU, LIMIT_CPU, "cpu.cfs_quota_us", "cpu.max", false },
    { CGROUP_PIDS, LIMIT_PIDS, "pids.max", "pids.max", false },
    { CGROUP_IO, LIMIT_IO, "blkio.bfq.weight", "io.weight", true },
};

int cgroup_write(int dir, const char *name, const char *file, const char *text)
{
    char path[160];
    AUTO(closep) int fd = -1;

    snprintf(path, sizeof(path), "%s%s%s", name ? name : "", name ? "/" : "", file);
    fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* ---- finding the hierarchies ---- */

static int open_cove(int root)
{
    if (mkdirat(root, "cove", 0755) && errno != EEXIST)
        return -1;
    if (faccessat(root, "cove", W_OK, AT_EACCESS))
        return -1; /* root's, and we are not */
    return openat(root, "cove", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool has_file(int cove, const char *file) { return !faccessat(cove, file, F_OK, 0); }

/* Weights are the business of one scheduler, and mean nothing where no disk uses it. */
static bool weights_work(void)
{
    DIR *d = opendir("/sys/block");
    const struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        char path[300], text[128];
        AUTO(closep) int fd = -1;
        ssize_t n;

        if (*e->d_name == '.' || !strncmp(e->d_name, "loop", 4) || !strncmp(e->d_name, "ram", 3))
            continue;
        snprintf(path, sizeof(path), "/sys/block/%.64s/queue/scheduler", e->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[MAX(n, 0)] = 0;
        found = strstr(text, "[bfq]") != NULL;
    }
    if (d)
        closedir(d);
    return found;
}

static void use_v1(struct cgroups *c, enum cgroup_controller k, const char *mount_point)
{
    int root = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cove = root < 0 ? -1 : open_cove(root);

    if (cove >= 0 && !has_file(cove, controllers[k].probe)) {
        close(TAKE(cove, -1));
        unlinkat(root, "cove", AT_REMOVEDIR);
    }
    if (cove < 0 && root >= 0)
        close(TAKE(root, -1));
    c->v1[k] = cove;
    c->parents[k] = root;
}

/* Controllers must be switched on from the root down before a child has their files. */
static void switch_on(struct cgroups *c, int dir)
{
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++) {
        char on[16];

        snprintf(on, sizeof(on), "+%s", controllers[k].v2);
        if (c->v2[k] && cgroup_write(dir, NULL, "cgroup.subtree_control", on))
            c->v2[k] = false;
    }
}

static void use_v2(struct cgroups *c, const char *mount_point)
{
    int root = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO(closep)
    int list = root < 0 ? -1 : openat(root, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t n = list < 0 ? -1 : read(list, text, sizeof(text));
    struct str rest = { text, n > 0 ? (size_t)n - 1 : 0 }, name;

    if (root < 0)
        return;
    while (str_next(&rest, ' ', &name))
        for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
            c->v2[k] |= str_is(name, controllers[k].v2);
    switch_on(c, root);
    c->unified = open_cove(root);
    c->parents[CGROUP_CONTROLLERS] = root;
    if (c->unified >= 0)
        switch_on(c, c->unified);
    else
        memset(c->v2, 0, sizeof(c->v2));
}

/* A line of mountinfo: "... mount-point options ... - type source super-options". */
static void take_mount(struct cgroups *c, char *line)
{
    char *field[5], *save = NULL, *tail = strstr(line, " - "), *type, *options;
    struct str rest, option;

    if (!tail)
        return;
    *tail = 0;
    for (int i = 0; i < 5; i++)
        if (!(field[i] = strtok_r(i ? NULL : line, " ", &save)))
            return;
    type = strtok_r(tail + 3, " ", &save);
    if (type && !strcmp(type, "cgroup2") && c->unified < 0)
        use_v2(c, field[4]);
    if (!type || strcmp(type, "cgroup") || !strtok_r(NULL, " ", &save) ||
        !(options = strtok_r(NULL, " \n", &save)))
        return;
    rest = str_of(options);
    while (str_next(&rest, ',', &option))
        for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
            if (str_is(option, controllers[k].v1) && c->v1[k] < 0 &&
                (k != CGROUP_IO || weights_work()))
                use_v1(c, k, field[4]);
}

int cgroups_open(struct cgroups *c, struct err *err)
{
    AUTO(freep) char *line = NULL;
    size_t room = 0;
    FILE *f = fopen("/proc/self/mountinfo", "re");

    c->unified = -1;
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++) {
        c->v1[k] = c->parents[k] = -1;
        c->v2[k] = false;
    }
    c->parents[CGROUP_CONTROLLERS] = -1;
    if (!f)
        return err_sys(err, "open /proc/self/mountinfo");
    while (getline(&line, &room, f) > 0)
        take_mount(c, line);
    fclose(f);
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
        if (c->v2[k] && c->v1[k] >= 0)
            close(TAKE(c->v1[k], -1));
    return 0;
}

void cgroups_close(struct cgroups *c)
{
    for (int k = 0; k <= CGROUP_CONTROLLERS; k++) {
        int *cove = k == CGROUP_CONTROLLERS ? &c->unified : &c->v1[k];

        if (*cove >= 0)
            close(TAKE(*cove, -1));
        if (c->parents[k] < 0)
            continue;
        unlinkat(c->parents[k], "cove", AT_REMOVEDIR); /* refused while a sandbox is in it */
        close(TAKE(c->parents[k], -1));
    }
}

static bool uses_v1(const struct cgroups *c)
{
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
        if (c->v1[k] >= 0)
            return true;
    return false;
}

/* Moving a process between version 1 cgroups takes a lock whose writers wait for an RCU grace
 * period, milliseconds, unless somebody held it a moment ago. favordynmods, an option of any
 * hierarchy's mount, keeps it ready for writers while the mount exists. */
void cgroups_favor_moves(const struct cgroups *c, const char *dir)
{
    if (uses_v1(c) &&
        (mkdir(dir, 0700) || mount("cove", dir, "cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                                   "none,name=cove,favordynmods")))
        errno = 0; /* an older kernel: it works without, slower */
}

/* The same for one move that is about to come: a child waits that period out meanwhile, by moving
 * itself to where it probably is. */
pid_t cgroups_expect_move(void)
{
    static const char file[] = "/sys/fs/cgroup/memory/cgroup.procs";
    AUTO(closep) int fd = open(file, O_WRONLY | O_CLOEXEC);
    pid_t pid = fd < 0 ? -1 : fork();

    if (!pid)
        _exit(write(fd, "0", 1) < 0 ? 1 : 0);
    return MAX(pid, 0);
}

bool cgroups_enforce(const struct cgroups *c, enum cgroup_controller k)
{
    return c->v2[k] || c->v1[k] >= 0;
}

/* ---- one sandbox ---- */

static void format_limit(const struct limit_file *f, const struct limits *l, bool v2, char out[64])
{
    unsigned long long v = limits_get(l, f->limit);

    if (f->limit != LIMIT_CPU)
        snprintf(out, 64, "%llu", v);
    else if (v2)
        snprintf(out, 64, "%llu %d", v * (CPU_PERIOD_US / 1000), CPU_PERIOD_US);
    else
        snprintf(out, 64, "%llu", v * (CPU_PERIOD_US / 1000));
}

static int write_limit(const struct cgroups *c, const char *name, const struct limit_file *f,
                       const struct limits *l)
{
    bool v2 = c->v2[f->controller];
    int dir = v2 ? c->unified : c->v1[f->controller];
    const char *file = v2 ? f->v2 : f->v1;
    char text[64];

    if (dir < 0 || !file)
        return 0;
    format_limit(f, l, v2, text);
    if (!cgroup_write(dir, name, file, f->fixed ? f->fixed : text) || f->optional)
        return 0;
    return f->newer && errno == ENOENT ? 0 : -1;
}

/* Lowering memory below memsw and raising it above need opposite orders: the second round settles
 * whichever was refused in the first. */
int cgroup_limit(const struct cgroups *c, const char *name, const struct limits *l,
                 const struct limits *had, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(limit_files); i++) {
        const struct limit_file *f = &limit_files[i];
        bool first = i + 1 < ARRAY_LEN(limit_files) && limit_files[i + 1].limit == f->limit;

        if (had && limits_get(had, f->limit) == limits_get(l, f->limit))
            continue;
        if (weakened("limits") || !write_limit(c, name, f, l))
            continue;
        if (first && !write_limit(c, name, f + 1, l) && !write_limit(c, name, f, l))
            continue;
        if (errno == EBUSY || errno == EINVAL)
            return err_set(err, ERR_CONFLICT, "limit '%s' is below what the sandbox uses now",
                           limit_rows[f->limit].name);
        return err_sys(err, "set limit '%s' of cgroup %s", limit_rows[f->limit].name, name);
    }
    return 0;
}

/* The parent may have been removed by a keeper that thought itself the last. */
static int make_dir(int cove, int parent, const char *name)
{
    int again;

    if (!mkdirat(cove, name, 0755))
        return cove;
    if (errno != ENOENT || parent < 0)
        return -1;
    again = open_cove(parent);
    if (again < 0 || mkdirat(again, name, 0755)) {
        closep(&again);
        return -1;
    }
    dup3(again, cove, O_CLOEXEC); /* the descriptor of the same number now names the new one */
    close(again);
    return cove;
}

int cgroup_create(const struct cgroups *c, const char *name, int *into, struct err *err)
{
    *into = -1;
    if (c->unified < 0)
        return 0;
    if (make_dir(c->unified, c->parents[CGROUP_CONTROLLERS], name) < 0)
        return err_sys(err, "make cgroup cove/%s", name);
    *into = openat(c->unified, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *into < 0 ? err_sys(err, "open cgroup cove/%s", name) : 0;
}

int cgroup_set_up(const struct cgroups *c, const char *name, const struct limits *l,
                  struct err *err)
{
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
        if (c->v1[k] >= 0 && make_dir(c->v1[k], c->parents[k], name) < 0)
            return err_sys(err, "make cgroup %s/cove/%s", controllers[k].v1, name);
    return cgroup_limit(c, name, l, NULL, err);
}

int cgroup_attach(const struct cgroups *c, const char *name, pid_t pid, struct err *err)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", pid);
    for (enum cgroup_controller k = 0; k < CGROUP_CONTROLLERS; k++)
        if (c->v1[k] >= 0 && cgroup_write(c->v1[k], name, "cgroup.procs", text))
            return err_sys(err, "move process %d into cgroup %s/cove/%s", pid, controllers[k].v1,
                           name);
    return 0;
}

bool cgroup_try_remove(const struct cgroups *c, const char *name)
{
    bool gone = true;

    for (int k = 0; k <= CGROUP_CONTROLLERS; k++) {
        int cove = k == CGROUP_CONTROLLERS ? c->unified : c->v1[k];

        /* EBUSY: the last process is gone, its accounting not quite */
        if (cove >= 0 && unlinkat(cove, name, AT_REMOVEDIR) && errno != ENOENT)
            gone = false;
    }
    return gone;
}

void cgroup_remove(const struct cgroups *c, const char *name)
{
    for (int i = 0; i < REMOVE_TRIES && !cgroup_try_remove(c, name); i++)
        usleep(PAUSE_US);
}

/* How many are old enough to be nobody's, but for those that are gone now. */
static size_t sweep_hierarchy(int cove, const char *prefix, int64_t older_than_s, bool remove)
{
    int fd = openat(cove, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    struct stat st;
    size_t left = 0;

    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, prefix, strlen(prefix)) &&
            !fstatat(cove, e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode) &&
            st.st_ctime + older_than_s < time(NULL))
            left += !remove || unlinkat(cove, e->d_name, AT_REMOVEDIR); /* EBUSY: somebody lives */
    if (d)
        closedir(d);
    return left;
}

size_t cgroups_sweep(const struct cgroups *c, const char *prefix, int64_t older_than_s, bool remove)
{
    size_t left = 0;

    for (int k = 0; k <= CGROUP_CONTROLLERS; k++) {
        int cove = k == CGROUP_CONTROLLERS ? c->unified : c->v1[k];

        if (cove >= 0)
            left += sweep_hierarchy(cove, prefix, older_than_s, remove);
    }
    return left;
}

void cgroup_allow_swap(const struct cgroups *c, const char *name, bool allow)
{
    if (c->v2[CGROUP_MEMORY] && cgroup_write(c->unified, name, SWAP_MAX, allow ? "max" : "0"))
        errno = 0; /* no accounting of swap: then there is no limit to lift */
}

int cgroup_freeze_ask(const struct cgroups *c, const char *name, bool frozen, struct err *err)
{
    if (!frozen)
        cgroup_allow_swap(c, name, false);
    if (c->unified < 0)
        return err_set(err, ERR_UNSUPPORTED, "this machine has no cgroup v2 to freeze with");
    if (cgroup_write(c->unified, name, "cgroup.freeze", frozen ? "1" : "0"))
        return err_sys(err, "freeze cgroup %s", name);
    return 0;
}

int cgroup_freeze_done(const struct cgroups *c, const char *name, bool frozen, struct err *err)
{
    uint64_t now;

    if (cgroup_read_key(c->unified, name, "cgroup.events", "frozen", &now))
        return err_sys(err, "read cgroup.events of %s", name);
    return now == frozen;
}

/* The kernel limits the rate of notices about cgroup.events, so waiting by poll makes a freeze of
 * 0.1 ms one of 12 ms: look again instead. */
int cgroup_freeze(const struct cgroups *c, const char *name, bool frozen, struct err *err)
{
    if (cgroup_freeze_ask(c, name, frozen, err))
        return -1;
    for (int i = 0; i < FREEZE_TRIES; i++) {
        int done = cgroup_freeze_done(c, name, frozen, err);

        if (done)
            return done < 0 ? -1 : 0;
        usleep(PAUSE_US);
    }
    return err_set(err, ERR_TIMEOUT, "sandbox %s did not freeze within %d ms", name,
                   FREEZE_TRIES * PAUSE_US / 1000);
}

/* Version 2 wants to know how much; version 1 takes what it can get. */
void cgroup_reclaim(const struct cgroups *c, const char *name)
{
    char bytes[24];
    uint64_t used;

    if (c->v1[CGROUP_MEMORY] >= 0)
        cgroup_write(c->v1[CGROUP_MEMORY], name, "memory.force_empty", "0");
    else if (c->v2[CGROUP_MEMORY] &&
             !cgroup_read_number(c->unified, name, "memory.current", &used)) {
        snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)used);
        cgroup_write(c->unified, name, "memory.reclaim", bytes);
    }
}
