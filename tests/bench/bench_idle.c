/* bench_idle.c - bench-idle ADDR:PORT COUNT: holds many connections that have each made a request.
 *
 * Prints "open N" when all stand. For each line on its standard input it counts them again: the
 * server may have closed some, and then the figures are not what they seem. Ends with its input. */
#include "bench.h"

#include <sys/resource.h>

static void raise_limit(int count)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < (rlim_t)count + 16)
        die("the limit of open files is %lld, %d connections need more", (long long)limit.rlim_cur,
            count);
}

/* One request and its whole answer. */
static void make_request(int fd)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: idle\r\n\r\n";
    char answer[4096], *length, *body = NULL;
    size_t n = 0, want = sizeof(answer);

    if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        die("send: %s", strerror(errno));
    while (n < want) {
        ssize_t r = recv(fd, answer + n, sizeof(answer) - 1 - n, 0);

        if (r <= 0)
            die("the server closed a connection instead of answering");
        n += (size_t)r;
        answer[n] = 0;
        if (body || !(body = strstr(answer, "\r\n\r\n")))
            continue;
        length = strcasestr(answer, "\r\nContent-Length:");
        if (strncmp(answer, "HTTP/1.1 200", 12) != 0 || !length)
            die("not the answer that was expected: %.100s", answer);
        want = (size_t)(body + 4 - answer) + strtoul(length + 17, NULL, 10);
    }
}

static int still_open(const int *fd, int count)
{
    int open = 0;
    char byte;

    for (int i = 0; i < count; i++)
        if (recv(fd[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
            open++;
    return open;
}

int main(int argc, char **argv)
{
    char line[16];
    struct addr to;
    int count, *fd;

    if (argc != 3)
        die("usage: bench-idle ADDR:PORT COUNT");
    to = address_of(argv[1]);
    count = count_of(argv[2]);
    raise_limit(count);
    fd = calloc((size_t)count, sizeof(*fd));
    if (!fd)
        die("out of memory");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < count; i++) {
        fd[i] = connect_to(&to);
        make_request(fd[i]);
    }
    do
        printf("open %d\n", still_open(fd, count));
    while (fgets(line, sizeof(line), stdin));
    return 0;
}
