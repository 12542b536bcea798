/* test.h - the whole unit-test framework: TEST() registers itself, CHECK_*() print both sides and
 * leave the case, output is TAP. The name of a case is the sentence that is true; TEST_ROWS() makes
 * a case of each row of a table. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*fn)(void);
    struct test_case *next;
    void (*row_fn)(const void *row, const void *other); /* for a row of a table, instead of fn */
    const void *row, *other;
};

extern struct test_case *test_first, **test_last;
extern jmp_buf test_leave;
void test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));

#define TEST(case_name)                                                                            \
    static void case_name(void);                                                                   \
    __attribute__((constructor)) static void register_##case_name(void)                            \
    {                                                                                              \
        static struct test_case c = { .name = #case_name, .fn = case_name };                       \
        *test_last = &c;                                                                           \
        test_last = &c.next;                                                                       \
    }                                                                                              \
    static void case_name(void)

struct test_rows {
    const void *rows; /* each begins with its name, a const char * */
    size_t count, size;
};
#define TEST_TABLE(rows)                                                                           \
    ((struct test_rows){ (rows), sizeof(rows) / sizeof(*(rows)), sizeof(*(rows)) })

void test_add_rows(const char *name, void (*fn)(const void *row, const void *other),
                   struct test_rows rows, struct test_rows others);

/* A case for each pair of rows of two tables, called name[row-other]; the body has `row` and
 * `other`. A table with a nameless row, like test_once, leaves its part of the name out. */
#define TEST_ROWS(case_name, rows, others)                                                         \
    static void case_name(__attribute__((unused)) const typeof(*(rows)) *row,                      \
                          __attribute__((unused)) const typeof(*(others)) *other);                 \
    static void call_##case_name(const void *row, const void *other) { case_name(row, other); }    \
    __attribute__((constructor)) static void register_##case_name(void)                            \
    {                                                                                              \
        test_add_rows(#case_name, call_##case_name, TEST_TABLE(rows), TEST_TABLE(others));         \
    }                                                                                              \
    static void case_name(__attribute__((unused)) const typeof(*(rows)) *row,                      \
                          __attribute__((unused)) const typeof(*(others)) *other)
extern const char *const test_once[1];

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, "%s is false", #cond);                                   \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %lld, expected %lld", #got, got_, want_);         \
    } while (0)
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (!got_ || strcmp(got_, want_))                                                          \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #got,                   \
                      got_ ? got_ : "(null)", want_);                                              \
    } while (0)

/* fork(), into new namespaces, of a process with one thread: a sanitizer's run-time starts one of
 * its own after fork(), which counts as a task and may not call unshare(). */
int test_fork(unsigned long long namespaces);

/* Runs fn as the first coroutine and returns when all have ended. CHECK inside it ends the whole
 * program (a jump between stacks would be no test), after printing what failed. */
void test_co(void (*fn)(void *), void *arg);

/* Parks until another coroutine has set the flag; fails when it does not within seconds. */
void test_await(const bool *flag);

#endif
