/* bench.h - what the measuring programs share. They print every sample, one per line, as a name and
 * nanoseconds; medians and judgements are the script's business. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "io/sock.h"

static inline int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void sample(const char *name, int64_t ns)
{
    printf("%s %lld\n", name, (long long)ns);
}

__attribute__((format(printf, 1, 2))) static inline _Noreturn void die(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

static inline int count_of(const char *text)
{
    long n = strtol(text, NULL, 10);

    if (n < 1 || n > 1000000)
        die("'%s' is not a count", text);
    return (int)n;
}

static inline struct addr address_of(const char *text)
{
    struct err err = { 0 };
    struct addr a;

    if (addr_parse(str_of(text), &a, &err))
        die("%s", err.msg);
    return a;
}

/* A blocking connection: these programs wait for one thing at a time. */
static inline int connect_to(const struct addr *a)
{
    int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&a->sa, a->len))
        die("connect: %s", strerror(errno));
    return fd;
}

#endif
