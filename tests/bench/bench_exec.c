/* bench_exec.c - bench-exec ADDR:PORT COUNT PROGRAM: one command through the guest and the same one
 * by a bare posix_spawn, in turns.
 *
 * Through the guest: from before the first byte of the Start request is written to the last byte of
 * the stream, on a connection that is kept. Bare: from before posix_spawn to the return of waitpid.
 * Both run the program without a shell, with /dev/null as its input and a like environment; the
 * guest also collects its output in two pipes, which the bare run does not. */
#include "bench_guest.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

enum { WARM_UP = 50 };

int main(int argc, char **argv)
{
    posix_spawn_file_actions_t streams;
    char request[1024];
    struct addr to;
    size_t size;
    int fd, count, one = 1;

    if (argc != 4)
        die("usage: bench-exec ADDR:PORT COUNT PROGRAM");
    to = address_of(argv[1]);
    count = count_of(argv[2]);
    size = build_request(request, sizeof(request), argv[3]);
    fd = connect_to(&to);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    open_null(&streams);
    for (int i = -WARM_UP; i < count; i++) {
        int64_t guest = time_guest(fd, request, size), bare = time_bare(argv[3], &streams);

        if (i < 0)
            continue;
        sample("guest", guest);
        sample("bare", bare);
    }
    return 0;
}
