/* test_co.c - the coroutine runtime. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "io/co.h"
#include "test.h"

static int pair[2];

static void writer(void *arg)
{
    (void)arg;
    co_sleep(co_in(20));
    CHECK_INT(co_write(pair[1], "hello", 5, co_in(1000)), 0);
}

static void reader(void *arg)
{
    char b[8];

    (void)arg;
    CHECK_INT(co_go(writer, NULL, NULL), 0);
    CHECK_INT(co_read(pair[0], b, sizeof(b), co_in(2000)), 5);
    CHECK_INT(co_read(pair[0], b, sizeof(b), co_in(10)), -1);
    CHECK_INT(errno, ETIMEDOUT);
    co_close(pair[0]);
    co_close(pair[1]);
}

TEST(a_read_parks_until_the_writer_writes)
{
    CHECK_INT(pipe2(pair, O_NONBLOCK | O_CLOEXEC), 0);
    test_co(reader, NULL);
}
