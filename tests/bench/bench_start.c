/* bench_start.c - bench-start COUNT NOOP GUEST: how long a program takes to say that it is ready.
 *
 * The clock starts just before posix_spawn and stops when the byte on the ready descriptor is read.
 * The guest and the static program that does nothing else take turns, so that both meet the same
 * machine. The guest listens on a port of the kernel's choice; its log goes to our stderr. */
#include "bench.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_UP = 5 };

/* {fd} in an argument becomes the number of the ready descriptor. */
static int64_t time_start(char *const *argv)
{
    char ready[12], byte;
    char *args[8] = { 0 };
    int fd[2];
    pid_t pid;
    int64_t began, took;

    if (pipe(fd) || fcntl(fd[0], F_SETFD, FD_CLOEXEC))
        die("pipe: %s", strerror(errno));
    snprintf(ready, sizeof(ready), "%d", fd[1]);
    for (int i = 0; argv[i]; i++)
        args[i] = strcmp(argv[i], "{fd}") ? argv[i] : ready;
    began = now_ns();
    errno = posix_spawn(&pid, args[0], NULL, NULL, args, (char *[]){ NULL });
    if (errno)
        die("start %s: %s", args[0], strerror(errno));
    close(fd[1]);
    if (read(fd[0], &byte, 1) != 1)
        die("%s ended before it was ready", args[0]);
    took = now_ns() - began;
    close(fd[0]);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    return took;
}

int main(int argc, char **argv)
{
    char listen[] = "--listen", address[] = "127.0.0.1:0", ready[] = "--ready-fd", fd[] = "{fd}";
    int count;

    if (argc != 4)
        die("usage: bench-start COUNT NOOP GUEST");
    count = count_of(argv[1]);
    for (int i = -WARM_UP; i < count; i++) {
        int64_t noop = time_start((char *[]){ argv[2], fd, NULL });
        int64_t guest = time_start((char *[]){ argv[3], listen, address, ready, fd, NULL });

        if (i < 0)
            continue;
        sample("noop", noop);
        sample("guest", guest);
    }
    return 0;
}
