/* bench_spawn.c - bench-spawn COUNT PROGRAM [ARGUMENT...]: starts a program and waits for its end,
 * COUNT times, output to /dev/null: how whole programs are compared with each other. */
#include "bench_guest.h"

enum { WARM_UP = 2 };

int main(int argc, char **argv)
{
    posix_spawn_file_actions_t streams;
    int count;

    if (argc < 3)
        die("usage: bench-spawn COUNT PROGRAM [ARGUMENT...]");
    count = count_of(argv[1]);
    open_null(&streams);
    for (int i = -WARM_UP; i < count; i++) {
        int64_t began = now_ns();
        int status;
        pid_t pid;

        errno = posix_spawnp(&pid, argv[2], &streams, NULL, argv + 2, environ);
        if (errno || waitpid(pid, &status, 0) != pid)
            die("%s: %s", argv[2], strerror(errno));
        if (status)
            die("%s ended with status %d", argv[2], WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        if (i >= 0)
            sample("spawn", now_ns() - began);
    }
    return 0;
}
