/* test.c - main() of every unit-test program; see test.h. */
#include "test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "io/co.h"

struct test_case *test_first, **test_last = &test_first;
jmp_buf test_leave;
static int in_co;
static int number;

void test_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    printf("# %s:%d: ", file, line);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    if (!in_co)
        longjmp(test_leave, 1);
    printf("not ok %d - failed inside a coroutine\nBail out!\n", number);
    fflush(stdout);
    _Exit(1);
}

void test_co(void (*fn)(void *), void *arg)
{
    in_co = 1;
    if (co_run(fn, arg)) {
        in_co = 0;
        test_fail(__FILE__, __LINE__, "co_run failed");
    }
    in_co = 0;
}

/* A /tmp in memory that nobody else sees: programs run side by side cannot meet in it, nothing
 * stays behind, and no case waits for a disk. Without root, or when the program itself is below
 * /tmp, it is the machine's. */
static void own_tmp(void)
{
    char self[4096] = "";

    if (geteuid() || readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ||
        !strncmp(self, "/tmp/", 5) || unshare(CLONE_NEWNS))
        return;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"))
        printf("# /tmp is the machine's: %s\n", strerror(errno));
}

int main(void)
{
    volatile int failed = 0, total = 0;

    signal(SIGPIPE, SIG_IGN);
    own_tmp();
    for (struct test_case *t = test_first; t; t = t->next)
        total++;
    printf("TAP version 13\n1..%d\n", total);
    fflush(stdout);
    for (struct test_case *volatile t = test_first; t; t = t->next) {
        number++;
        if (setjmp(test_leave)) {
            failed++;
            printf("not ok %d - %s\n", number, t->name);
        } else {
            t->fn();
            printf("ok %d - %s\n", number, t->name);
        }
        fflush(stdout);
    }
    return failed != 0;
}
