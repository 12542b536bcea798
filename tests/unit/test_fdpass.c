/* test_fdpass.c - records and descriptors over a Unix socket. */
#include "io/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static int pair[2];

static void connect_pair(int type)
{
    CHECK_INT(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
}

static void close_pair(void)
{
    close(pair[0]);
    close(pair[1]);
}

static int open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void open_many(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
}

static void close_many(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

TEST(a_record_and_its_descriptors_arrive_together)
{
    char got[16];
    int file[2], fds[4];
    size_t n = 4;
    struct stat a, b;

    connect_pair(SOCK_SEQPACKET);
    CHECK_INT(pipe2(file, O_CLOEXEC), 0);
    CHECK_INT(fdpass_send(pair[0], "hello", 5, file, 2, 0), 5);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), fds, &n, 0), 5);
    CHECK_INT(n, 2);
    CHECK(!memcmp(got, "hello", 5));
    CHECK_INT(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    CHECK(!fstat(fds[1], &a) && !fstat(file[1], &b) && a.st_ino == b.st_ino);
    CHECK_INT(write(fds[1], "x", 1), 1);
    CHECK_INT(read(file[0], got, 1), 1);
    close_many(fds, n);
    close_many(file, 2);
    close_pair();
}

TEST(none_is_a_number_too)
{
    char got[4];
    int fds[2];
    size_t n = 2;

    connect_pair(SOCK_SEQPACKET);
    CHECK_INT(fdpass_send(pair[0], "a", 1, NULL, 0, 0), 1);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), fds, &n, 0), 1);
    CHECK_INT(n, 0);
    n = 0;
    CHECK_INT(fdpass_send(pair[0], "b", 1, NULL, 0, 0), 1);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), NULL, &n, 0), 1);
    CHECK_INT(*got, 'b');
    close_pair();
}

TEST(as_many_as_the_bound_and_no_more)
{
    char got[4];
    int fds[FDPASS_MAX + 1], out[FDPASS_MAX];
    size_t n = FDPASS_MAX;

    connect_pair(SOCK_SEQPACKET);
    open_many(fds, FDPASS_MAX + 1);
    CHECK_INT(fdpass_send(pair[0], "a", 1, fds, FDPASS_MAX, 0), 1);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), 1);
    CHECK_INT(n, FDPASS_MAX);
    close_many(out, n);
    CHECK_INT(fdpass_send(pair[0], "a", 1, fds, FDPASS_MAX + 1, 0), -1);
    CHECK_INT(errno, EINVAL);
    close_many(fds, FDPASS_MAX + 1);
    close_pair();
}

TEST(more_descriptors_than_room_are_refused_whole_and_closed)
{
    char got[4];
    int fds[5], out[4];
    size_t n;
    int before;

    connect_pair(SOCK_SEQPACKET);
    open_many(fds, 5);
    before = open_descriptors();
    for (size_t room = 0; room < 5; room++) { /* odd rooms meet the padding of the header */
        n = room;
        CHECK_INT(fdpass_send(pair[0], "a", 1, fds, room + 1, 0), 1);
        CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), -1);
        CHECK_INT(errno, EPROTO);
        CHECK_INT(open_descriptors(), before);
    }
    n = 4; /* the next one is not disturbed */
    CHECK_INT(fdpass_send(pair[0], "b", 1, fds, 1, 0), 1);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), 1);
    CHECK_INT(n, 1);
    close_many(out, n);
    close_many(fds, 5);
    close_pair();
}

/* Everything below the limit is open, but so many. */
static rlim_t leave_room(rlim_t room)
{
    struct rlimit l;
    rlim_t before;
    int top = dup(0);

    CHECK_INT(getrlimit(RLIMIT_NOFILE, &l), 0);
    before = l.rlim_cur;
    l.rlim_cur = (rlim_t)top + room; /* the lowest free one, so all below it are taken */
    close(top);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &l), 0);
    return before;
}

TEST(a_process_that_may_open_no_more_gets_the_record_without_its_descriptors)
{
    char got[8];
    int fds[3], out[4];
    int before;

    connect_pair(SOCK_SEQPACKET);
    open_many(fds, 3);
    before = open_descriptors();
    for (rlim_t room = 0; room < 3; room++) { /* a part of them is none */
        struct rlimit l;
        size_t n = 4;
        rlim_t limit;

        CHECK_INT(fdpass_send(pair[0], "first", 5, fds, 3, 0), 5);
        CHECK_INT(fdpass_send(pair[0], "next", 4, NULL, 0, 0), 4);
        limit = leave_room(room);
        CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), 5);
        CHECK_INT(n, 0);
        CHECK(!memcmp(got, "first", 5));
        CHECK_INT(open_descriptors(), before);
        n = 4;
        CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), 4);
        CHECK_INT(getrlimit(RLIMIT_NOFILE, &l), 0);
        l.rlim_cur = limit;
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &l), 0);
    }
    close_many(fds, 3);
    close_pair();
}

TEST(a_record_that_is_cut_is_refused_whole)
{
    char got[4];
    int fds[1], out[2];
    size_t n = 2;
    int before;

    connect_pair(SOCK_SEQPACKET);
    open_many(fds, 1);
    before = open_descriptors();
    CHECK_INT(fdpass_send(pair[0], "longer", 6, fds, 1, 0), 6);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), out, &n, 0), -1);
    CHECK_INT(errno, EPROTO);
    CHECK_INT(open_descriptors(), before);
    close_many(fds, 1);
    close_pair();
}

TEST(the_end_is_zero_and_a_gone_reader_an_error_without_a_signal)
{
    char got[4];
    size_t n = 0;

    connect_pair(SOCK_SEQPACKET);
    close(pair[0]);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), NULL, &n, 0), 0);
    CHECK_INT(fdpass_send(pair[1], "a", 1, NULL, 0, 0), -1);
    CHECK_INT(errno, EPIPE);
    close(pair[1]);
}

TEST(nothing_there_is_said_when_asked_not_to_wait)
{
    char got[4];
    size_t n = 0;

    connect_pair(SOCK_SEQPACKET);
    CHECK_INT(fdpass_recv(pair[1], got, sizeof(got), NULL, &n, MSG_DONTWAIT), -1);
    CHECK_INT(errno, EAGAIN);
    close_pair();
}
