/* test.c - main() of every unit-test program; see test.h. */
#include "test.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "io/co.h"

struct test_case *test_first, **test_last = &test_first;
jmp_buf test_leave;
const char *const test_once[1];
static int in_co;
static int number;
static const char *running; /* the case's name */

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
    printf("not ok %d - %s\nBail out! It failed inside a coroutine.\n", number, running);
    fflush(stdout);
    _Exit(1);
}

/* Adds "[row" or "-row" to a case's name, in letters that mean nothing to TAP. */
static void add_to_name(struct buf *name, const char *row)
{
    if (!row)
        return;
    buf_putc(name, strchr(name->data, '[') ? '-' : '[');
    for (int i = 0; row[i] && i < 40; i++)
        buf_putc(name, row[i] <= ' ' || row[i] > '~' || row[i] == '#' ? '_' : row[i]);
}

void test_add_rows(const char *name, void (*fn)(const void *row, const void *other),
                   struct test_rows rows, struct test_rows others)
{
    for (size_t i = 0; i < rows.count * others.count; i++) {
        const void *row = (const char *)rows.rows + i % rows.count * rows.size;
        const void *other = (const char *)others.rows + i / rows.count * others.size;
        struct test_case *c = xcalloc(1, sizeof(*c));
        struct buf full = { 0 };

        buf_puts(&full, name);
        add_to_name(&full, *(const char *const *)row);
        add_to_name(&full, *(const char *const *)other);
        if (strchr(full.data, '['))
            buf_putc(&full, ']');
        *c = (struct test_case){ .name = full.data, .row_fn = fn, .row = row, .other = other };
        *test_last = c;
        test_last = &c->next;
    }
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

void test_await(const bool *flag)
{
    for (int i = 0; i < 1000 && !*flag; i++)
        co_sleep(co_in(5));
    CHECK(*flag);
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
        running = t->name;
        if (setjmp(test_leave)) {
            failed++;
            printf("not ok %d - %s\n", number, t->name);
        } else {
            if (t->fn)
                t->fn();
            else
                t->row_fn(t->row, t->other);
            printf("ok %d - %s\n", number, t->name);
        }
        fflush(stdout);
    }
    return failed != 0;
}

int test_fork(unsigned long long namespaces)
{
    struct clone_args args = { .flags = namespaces, .exit_signal = SIGCHLD };

    return (int)syscall(SYS_clone3, &args, sizeof(args));
}
