/* idmap.c - see idmap.h. With privilege one write each; without, the distribution's newuidmap and
 * newgidmap are asked, and where they or a range are missing only the caller itself is mapped. */
#include "jail/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/ids.h"

static int write_proc(pid_t pid, const char *file, const char *text, struct err *err)
{
    char path[64];
    AUTO(closep) int fd = -1;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return err_sys(err, "write %s", path);
    return 0;
}

/* The first entry of at least 65,535 ids for this user, by name or number. */
static int find_range(const char *file, const char *name, uid_t uid, uint32_t *first)
{
    char text[16384];
    AUTO(closep) int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    struct str rest = { text, n > 0 ? (size_t)n : 0 }, line;

    while (str_next(&rest, '\n', &line)) {
        struct str who, tail, from, count;
        uint64_t f, c, number;

        if (!str_cut(line, ':', &who, &tail) || !str_cut(tail, ':', &from, &count) ||
            str_u64(from, &f) || str_u64(count, &c) || c < IDS_RANGE - 1 ||
            f > UINT32_MAX - IDS_RANGE)
            continue;
        if (str_is(who, name) || (!str_u64(who, &number) && number == uid)) {
            *first = (uint32_t)f;
            return 0;
        }
    }
    return -1;
}

int idmap_ranges(uint32_t *first_uid, uint32_t *first_gid)
{
    // cppcheck-suppress getpwuidCalled  ; before any thread exists
    const struct passwd *p = getpwuid(getuid());
    const char *name = p ? p->pw_name : "";

    if (access("/usr/bin/newuidmap", X_OK) || access("/usr/bin/newgidmap", X_OK))
        return -1;
    return find_range("/etc/subuid", name, getuid(), first_uid) ||
           find_range("/etc/subgid", name, getuid(), first_gid);
}

static int run_mapper(const char *program, pid_t pid, uint32_t own, uint32_t first)
{
    char p[16], o[16], f[16];
    char *argv[] = { (char *)(size_t)program, p, (char[]){ "0" },     o,   (char[]){ "1" },
                     (char[]){ "1" },         f, (char[]){ "65535" }, NULL };
    char *envp[] = { NULL };
    pid_t child;
    int status;

    snprintf(p, sizeof(p), "%d", pid);
    snprintf(o, sizeof(o), "%u", own);
    snprintf(f, sizeof(f), "%u", first);
    if (posix_spawn(&child, program, NULL, NULL, argv, envp))
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status ? -1 : 0;
}

static int write_own(pid_t pid, struct err *err)
{
    uint32_t uids, gids;
    char text[64];

    if (!idmap_ranges(&uids, &gids) && !run_mapper("/usr/bin/newuidmap", pid, getuid(), uids) &&
        !run_mapper("/usr/bin/newgidmap", pid, getgid(), gids))
        return 0;
    if (write_proc(pid, "setgroups", "deny", err))
        return -1;
    snprintf(text, sizeof(text), "0 %u 1", getuid());
    if (write_proc(pid, "uid_map", text, err))
        return -1;
    snprintf(text, sizeof(text), "0 %u 1", getgid());
    return write_proc(pid, "gid_map", text, err);
}

int idmap_write(pid_t pid, uint32_t first, struct err *err)
{
    char text[64];

    if (first == IDMAP_OWN)
        return write_own(pid, err);
    snprintf(text, sizeof(text), "0 %u %d", first, IDS_RANGE);
    return write_proc(pid, "uid_map", text, err) || write_proc(pid, "gid_map", text, err) ? -1 : 0;
}

static int write_lines(pid_t pid, const char *file, const struct idmap_line *lines, struct err *err)
{
    AUTO(buf_free) struct buf text = { 0 };

    for (size_t i = 0; i < IDMAP_LINES; i++)
        if (lines[i].count)
            buf_printf(&text, "%u %u %u\n", lines[i].on_disk, lines[i].seen, lines[i].count);
    return write_proc(pid, file, buf_cstr(&text), err);
}

/* A namespace is made by a process; ours ends when we have a descriptor of it. */
int idmap_namespace(const struct idmap_line *users, const struct idmap_line *groups,
                    struct err *err)
{
    struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    char path[64];
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof(a));
    int fd = -1;

    if (!pid)
        for (;;)
            pause();
    if (pid < 0)
        return err_sys(err, "make a user namespace");
    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    if (!write_lines(pid, "uid_map", users, err) && !write_lines(pid, "gid_map", groups, err)) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            err_sys(err, "open %s", path);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return fd;
}
