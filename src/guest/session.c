/* session.c - see session.h. */
#include "guest/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"

/* The session of a process: field 6 of its stat line, behind the ')' of a name that may hold any.
 */
static pid_t session_of(int proc, const char *pid)
{
    char path[32], line[512];
    AUTO(closep) int fd = -1;
    struct str rest, field;
    const char *at;
    uint64_t id;
    ssize_t n;

    snprintf(path, sizeof(path), "%.16s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, line, sizeof(line));
    at = n > 0 ? memrchr(line, ')', (size_t)n) : NULL;
    if (!at)
        return -1;
    rest = (struct str){ at + 2, (size_t)(line + n - at) - 2 };
    for (int i = 0; i < 4; i++) /* state, parent, group, session */
        if (!str_next(&rest, ' ', &field))
            return -1;
    return str_u64(field, &id) ? -1 : (pid_t)id;
}

void session_kill(pid_t session)
{
    DIR *dir = opendir("/proc");

    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        uint64_t pid;

        if (!str_u64(str_of(e->d_name), &pid) && session_of(dirfd(dir), e->d_name) == session)
            kill((pid_t)pid, SIGKILL);
    }
    closedir(dir);
}
