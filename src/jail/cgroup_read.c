/* cgroup_read.c - what a sandbox uses, and the notice that it met its memory limit. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "jail/cgroup.h"
#include "jail/cgroup_files.h"

static ssize_t read_file(int dir, const char *name, const char *file, char *out, size_t room)
{
    char path[160];
    AUTO(closep) int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%s%s%s", name ? name : "", name ? "/" : "", file);
    fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    n = fd < 0 ? -1 : read(fd, out, room - 1);
    if (n >= 0)
        out[n] = 0;
    return n;
}

int cgroup_read_number(int dir, const char *name, const char *file, uint64_t *out)
{
    char text[64];

    if (read_file(dir, name, file, text, sizeof(text)) < 0)
        return -1;
    *out = strtoull(text, NULL, 10);
    return 0;
}

int cgroup_read_key(int dir, const char *name, const char *file, const char *key, uint64_t *out)
{
    char text[4096];
    struct str rest, line, word, value;

    if (read_file(dir, name, file, text, sizeof(text)) < 0)
        return -1;
    rest = str_of(text);
    while (str_next(&rest, '\n', &line))
        if (str_cut(line, ' ', &word, &value) && str_is(word, key))
            return str_u64(value, out);
    errno = ENODATA;
    return -1;
}

/* Where each figure is. A file that a kernel does not have leaves its figure 0. */
static const struct usage_file {
    enum cgroup_controller controller;
    size_t field;
    const char *v1, *v1_key, *v2, *v2_key;
    uint64_t v1_divide;
} usage_files[] = {
    { CGROUP_MEMORY, offsetof(struct cgroup_usage, memory_bytes), "memory.usage_in_bytes", NULL,
      "memory.current", NULL, 1 },
    { CGROUP_MEMORY, offsetof(struct cgroup_usage, memory_peak_bytes), "memory.max_usage_in_bytes",
      NULL, "memory.peak", NULL, 1 },
    { CGROUP_MEMORY, offsetof(struct cgroup_usage, oom_kills), "memory.oom_control", "oom_kill",
      "memory.events", "oom_kill", 1 },
    { CGROUP_CPU, offsetof(struct cgroup_usage, cpu_us), "cpuacct.usage", NULL, "cpu.stat",
      "usage_usec", 1000 },
    { CGROUP_CPU, offsetof(struct cgroup_usage, throttled_us), "cpu.stat", "throttled_time",
      "cpu.stat", "throttled_usec", 1000 },
    { CGROUP_PIDS, offsetof(struct cgroup_usage, pids), "pids.current", NULL, "pids.current", NULL,
      1 },
    { CGROUP_PIDS, offsetof(struct cgroup_usage, pids_refused), "pids.events", "max", "pids.events",
      "max", 1 },
};

static uint64_t read_usage(const struct cgroups *c, const char *name, const struct usage_file *f)
{
    bool v2 = c->v2[f->controller];
    int dir = v2 ? c->unified : c->v1[f->controller];
    const char *file = v2 ? f->v2 : f->v1, *key = v2 ? f->v2_key : f->v1_key;
    uint64_t v = 0;

    if (dir < 0 ||
        (key ? cgroup_read_key(dir, name, file, key, &v) : cgroup_read_number(dir, name, file, &v)))
        return 0;
    return v2 ? v : v / f->v1_divide;
}

void cgroup_usage(const struct cgroups *c, const char *name, struct cgroup_usage *out)
{
    for (size_t i = 0; i < ARRAY_LEN(usage_files); i++) {
        uint64_t v = read_usage(c, name, &usage_files[i]);

        memcpy((char *)out + usage_files[i].field, &v, sizeof(v));
    }
    /* Where cpuacct is a hierarchy of its own, version 2 counts time even without controllers. */
    if (!out->cpu_us && c->unified >= 0)
        if (cgroup_read_key(c->unified, name, "cpu.stat", "usage_usec", &out->cpu_us))
            out->cpu_us = 0;
}

/* Apart from the others: the file has a hundred lines, and writing them costs more than all the
 * rest together. */
uint64_t cgroup_cache_bytes(const struct cgroups *c, const char *name)
{
    static const struct usage_file row = { CGROUP_MEMORY, 0, "memory.stat", "cache", "memory.stat",
                                           "file",        1 };

    return read_usage(c, name, &row);
}

/* These two are pages that are in files by name: not shared memory, which version 1 calls cache. */
uint64_t cgroup_files_bytes(const struct cgroups *c, const char *name)
{
    static const struct usage_file rows[] = {
        { CGROUP_MEMORY, 0, "memory.stat", "inactive_file", "memory.stat", "inactive_file", 1 },
        { CGROUP_MEMORY, 0, "memory.stat", "active_file", "memory.stat", "active_file", 1 },
    };

    return read_usage(c, name, &rows[0]) + read_usage(c, name, &rows[1]);
}

uint64_t cgroup_sockets_bytes(const struct cgroups *c, const char *name, bool *in_memory)
{
    static const struct usage_file row = {
        CGROUP_MEMORY, 0, "memory.kmem.tcp.usage_in_bytes", NULL, "memory.stat", "sock", 1
    };

    *in_memory = c->v2[CGROUP_MEMORY];
    return read_usage(c, name, &row);
}

static int watch_v1(int cove, const char *name)
{
    char path[128], text[32];
    AUTO(closep) int control = -1;
    AUTO(closep) int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    snprintf(path, sizeof(path), "%s/memory.oom_control", name);
    control = openat(cove, path, O_RDONLY | O_CLOEXEC);
    if (control < 0 || event < 0)
        return -1;
    snprintf(text, sizeof(text), "%d %d", event, control);
    return cgroup_write(cove, name, "cgroup.event_control", text) ? -1 : TAKE(event, -1);
}

int cgroup_watch_memory(const struct cgroups *c, const char *name, bool *urgent)
{
    char path[128];

    *urgent = c->v2[CGROUP_MEMORY];
    if (!*urgent)
        return c->v1[CGROUP_MEMORY] < 0 ? -1 : watch_v1(c->v1[CGROUP_MEMORY], name);
    snprintf(path, sizeof(path), "%s/memory.events", name);
    return openat(c->unified, path, O_RDONLY | O_CLOEXEC);
}
