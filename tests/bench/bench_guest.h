/* bench_guest.h - one command through a guest's kept connection, and the same one by posix_spawn.
 */
#ifndef BENCH_GUEST_H
#define BENCH_GUEST_H

#include "bench.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

/* A request is always the same: built once. */
static inline size_t build_request(char *out, size_t size, const char *program)
{
    char body[256];
    int n = snprintf(body, sizeof(body),
                     "{\"process\":{\"cmd\":\"%s\",\"args\":[],\"cwd\":\"/\"},\"stdin\":false}",
                     program);
    int head = snprintf(out, size,
                        "POST /process.Process/Start HTTP/1.1\r\nHost: guest\r\n"
                        "Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n"
                        "Content-Length: %d\r\n\r\n",
                        n + 5);

    if (n >= (int)sizeof(body) || head + 5 + n >= (int)size)
        die("the program's name is too long");
    memcpy(out + head, (char[]){ 0, 0, 0, (char)(n >> 8), (char)n }, 5);
    memcpy(out + head + 5, body, (size_t)n);
    return (size_t)(head + 5 + n);
}

static inline int64_t time_guest(int fd, const char *request, size_t size)
{
    static const char last[] = "\r\n0\r\n\r\n";
    char answer[4096];
    size_t n = 0, tail = strlen(last);
    int64_t began = now_ns(), took;

    if (write(fd, request, size) != (ssize_t)size)
        die("write: %s", strerror(errno));
    do {
        ssize_t r = read(fd, answer + n, sizeof(answer) - 1 - n);

        if (r <= 0)
            die("the answer broke off after %zu bytes", n);
        n += (size_t)r;
    } while (n < tail || memcmp(answer + n - tail, last, tail) != 0);
    took = now_ns() - began;
    if (!memmem(answer, n, "\"exitCode\":0", 12))
        die("the command failed: %.*s", (int)n, answer);
    return took;
}

static inline void open_null(posix_spawn_file_actions_t *streams)
{
    posix_spawn_file_actions_init(streams);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(streams, i, "/dev/null", i ? O_WRONLY : O_RDONLY, 0);
}

static inline int64_t time_bare(char *program, posix_spawn_file_actions_t *streams)
{
    char path[] = "PATH=/usr/bin:/bin", home[] = "HOME=/root", user[] = "USER=root",
         name[] = "LOGNAME=root";
    char *argv[] = { program, NULL }, *envp[] = { path, home, user, name, NULL };
    int64_t began = now_ns();
    int status;
    pid_t pid;

    errno = posix_spawn(&pid, program, streams, NULL, argv, envp);
    if (errno || waitpid(pid, &status, 0) != pid || status)
        die("%s failed: %s", program, strerror(errno));
    return now_ns() - began;
}

#endif
