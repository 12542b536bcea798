/* shim.c - preloaded into `cove serve`, so that a test can make one call of libc fail, and shift
 * the wall clock of one of its processes. The machine's own clock stays as it is.
 *
 * Both are told to it by a file that the test and all processes share (struct block; shim.py has
 * the same layout). A call site is the address that a call returns to, as an offset in the program;
 * calls that libraries make for us (SQLite) have the offset 0 and are told apart by their count.
 *
 * Every function here has the name of libc's by an assembler label: C knows the real ones by other
 * types. All take what fits into registers and pass it on as it came, which holds for ints,
 * pointers and variable arguments alike on the machines that Linux runs on. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum role { ANYBODY, MONITOR, SERVER, KEEPER, NETMAKER, REAPER, ROLES };
enum mode { OFF, RECORD, FAIL };
enum { MAGIC = 0x46415553, SITES = 4096 };

struct site {
    uint32_t role, function;
    uint64_t offset;
    atomic_uint count;
    uint32_t unused;
};

struct block {
    uint32_t magic, mode;
    int64_t shift_ms[ROLES];                    /* of the wall clock */
    uint32_t role, function, occurrence, error; /* FAIL: the n-th call, from 1 on */
    uint64_t offset;
    atomic_uint seen, failed;
    atomic_uint nsites;
    uint32_t unused;
    struct site sites[SITES];
};

static struct block *block;
static enum role role;
static uintptr_t program_start, program_end;

#define CALL(name, failure) F_##name,
enum function {
#include "calls.def"
    FUNCTION_COUNT
};
#undef CALL

typedef long call(long, long, long, long, long, long, long);
static call *real[FUNCTION_COUNT];

static uint64_t offset_of(uintptr_t at)
{
    return at >= program_start && at < program_end ? at - program_start : 0;
}

static void note(enum function function, uint64_t offset)
{
    unsigned n = atomic_load(&block->nsites);

    for (unsigned i = 0; i < n && i < SITES; i++) {
        struct site *s = &block->sites[i];

        if (s->role == role && s->function == function && s->offset == offset) {
            atomic_fetch_add(&s->count, 1);
            return;
        }
    }
    n = atomic_fetch_add(&block->nsites,
                         1); /* two threads may add the same one: the test adds up */
    if (n >= SITES)
        return;
    block->sites[n].role = role;
    block->sites[n].function = function;
    block->sites[n].offset = offset;
    atomic_store(&block->sites[n].count, 1);
}

/* Is this the call that has to fail? Once only. */
static int fails(enum function function, uintptr_t from)
{
    if (!block || block->mode == OFF)
        return 0;
    if (block->mode == RECORD) {
        note(function, offset_of(from));
        return 0;
    }
    if (block->role != role || block->function != function || block->offset != offset_of(from) ||
        atomic_fetch_add(&block->seen, 1) + 1 != block->occurrence)
        return 0;
    atomic_fetch_add(&block->failed, 1);
    return (int)block->error;
}

static call *find(enum function function, const char *name)
{
    if (!real[function]) {
        void *found = dlsym(RTLD_NEXT, name);

        if (!found)
            abort();
        memcpy(&real[function], &found, sizeof(found));
    }
    return real[function];
}

/* close() closes whatever it says, and pthread_create() returns its error. */
#define CALL(name, failure)                                                                        \
    __attribute__((visibility("default"))) long wrap_##name(long, long, long, long, long, long,    \
                                                            long) __asm__(#name);                  \
    long wrap_##name(long a, long b, long c, long d, long e, long f, long g)                       \
    {                                                                                              \
        int error = fails(F_##name, (uintptr_t)__builtin_return_address(0));                       \
                                                                                                   \
        if (!error)                                                                                \
            return find(F_##name, #name)(a, b, c, d, e, f, g);                                     \
        if (F_##name == F_pthread_create)                                                          \
            return error;                                                                          \
        if (F_##name == F_close)                                                                   \
            find(F_##name, #name)(a, b, c, d, e, f, g);                                            \
        errno = error;                                                                             \
        return failure;                                                                            \
    }
#include "calls.def"
#undef CALL

/* ---- roles ---- */

static void take_role(const char *name)
{
    static const char *const names[ROLES] = { "",          "cove-monitor", "cove-serve",
                                              "cove-keep", "cove-net",     "cove-reaper" };

    role = ANYBODY;
    for (enum role r = MONITOR; r < ROLES; r++)
        if (!strcmp(name, names[r]))
            role = r;
}

__attribute__((visibility("default"))) long wrap_prctl(long, long, long, long,
                                                       long) __asm__("prctl");
long wrap_prctl(long option, long a, long b, long c, long d)
{
    static call *next;

    if (option == PR_SET_NAME)
        take_role((const char *)a); // NOLINT(performance-no-int-to-ptr): what it was
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "prctl");

        memcpy(&next, &found, sizeof(found));
    }
    return next(option, a, b, c, d, 0, 0);
}

/* ---- the wall clock ---- */

static int64_t shift_ms(void) { return block ? block->shift_ms[role] : 0; }

static void shift(struct timespec *t)
{
    t->tv_sec += shift_ms() / 1000; /* whole seconds are enough */
}

__attribute__((visibility("default"))) int wrap_clock_gettime(clockid_t, struct timespec *) __asm__(
    "clock_gettime");
int wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*next)(clockid_t, struct timespec *);
    int r;

    if (!next) {
        void *found = dlsym(RTLD_NEXT, "clock_gettime");

        memcpy(&next, &found, sizeof(found));
    }
    r = next(clock, t);
    if (!r && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(t);
    return r;
}

__attribute__((visibility("default"))) time_t wrap_time(time_t *) __asm__("time");
time_t wrap_time(time_t *out)
{
    struct timespec t;

    wrap_clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

__attribute__((visibility("default"))) int wrap_gettimeofday(struct timeval *,
                                                             void *) __asm__("gettimeofday");
int wrap_gettimeofday(struct timeval *out, void *zone)
{
    struct timespec t;

    (void)zone;
    wrap_clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = (struct timeval){ t.tv_sec, t.tv_nsec / 1000 };
    return 0;
}

/* ---- the beginning ---- */

static int measure(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    program_start = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t end =
                info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;

            program_end = end > program_end ? end : program_end;
        }
    return 1; /* the program itself comes first */
}

/* Every name is looked up here: later, in a worker or behind a fork, is no place for the loader. */
#define CALL(name, failure) find(F_##name, #name);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("COVE_FAULTS_BLOCK");
    struct timespec t;
    int fd;
    void *at;

    dl_iterate_phdr(measure, NULL);
#include "calls.def"
    wrap_prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    wrap_clock_gettime(CLOCK_REALTIME, &t);
    fd = path ? (int)real[F_open]((long)path, O_RDWR | O_CLOEXEC, 0, 0, 0, 0, 0) : -1;
    if (fd < 0)
        return;
    at = mmap(NULL, sizeof(*block), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    real[F_close](fd, 0, 0, 0, 0, 0, 0);
    if (at != MAP_FAILED && ((struct block *)at)->magic == MAGIC)
        block = at;
}
