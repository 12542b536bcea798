/* test_seccomp.c - the filter as the kernel runs it: each case loads it in a child of its own and
 * compares what the calls answer with the table.
 *
 * With CAP_SYS_ADMIN the filter is loaded as keep loads it; all others set no_new_privs first. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/seccomp.h"
#include "jail/seccomp_table.h"
#include "test.h"

#define HIGH 0xdeadbeef00000000u /* the half of an argument that the kernel ignores */

struct attempt {
    const char *what;
    long nr;
    uint64_t args[6];
    int want; /* 0 or the errno */
};

static int errors[2048]; /* of the last run, by attempt; shared with its child */
static int *got = errors;

static bool privileged(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2] = { 0 };

    return !syscall(SYS_capget, &header, caps) && caps[0].effective & 1u << CAP_SYS_ADMIN;
}

static int load(void)
{
    struct err err = { 0 };

    if (!privileged() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    if (seccomp_load(&err) < 0) {
        printf("# %s\n", err.msg);
        fflush(stdout);
        return -1;
    }
    return 0;
}

/* Where results of children come back; once, before the first child. */
static void share_results(void)
{
    if (got == errors)
        got = mmap(NULL, sizeof(errors), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(got != MAP_FAILED);
    memset(got, 0xff, sizeof(errors));
}

/* Runs fn under the filter in a child; its result is the exit status. */
static int in_child(int (*fn)(void))
{
    int status;
    pid_t pid;

    share_results();
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        /* Should the filter ever fail us, sethostname(NULL, 0) and its like must hit nobody. */
        if (privileged() && unshare(CLONE_NEWUTS | CLONE_NEWIPC))
            _exit(99);
        setsid();
        _exit(load() ? 98 : fn());
    }
    CHECK(pid > 0);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        return 1000 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

static int error_of(long result) { return result < 0 ? errno : 0; }

/* What a caller sees of a verdict: a call that was not made has succeeded. */
static int seen_of(int verdict) { return verdict == SECCOMP_IDLE ? 0 : verdict; }

static const struct attempt *attempts;
static size_t attempt_count;

static int make_attempts(void)
{
    for (size_t i = 0; i < attempt_count; i++) {
        const uint64_t *a = attempts[i].args;
        long result = syscall(attempts[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);

        if (attempts[i].nr == SYS_clone && result == 0)
            _exit(0);
        got[i] = error_of(result);
    }
    return 0;
}

static void check_attempts(const struct attempt *list, size_t n)
{
    attempts = list;
    attempt_count = n;
    CHECK(n <= ARRAY_LEN(errors));
    CHECK_INT(in_child(make_attempts), 0);
    for (size_t i = 0; i < n; i++)
        if (got[i] != list[i].want)
            test_fail(__FILE__, __LINE__, "%s (number %ld) is %s, expected %s", list[i].what,
                      list[i].nr, strerror(got[i]), strerror(list[i].want));
}
#define CHECK_ATTEMPTS(list) check_attempts((list), ARRAY_LEN(list))

/* --- the whole table ------------------------------------------------------------------------- */

static int call_what_is_refused(void)
{
    static const uint64_t zero[6];

    for (size_t i = 0; i < ARRAY_LEN(seccomp_table); i++)
        if (seccomp_verdict(&seccomp_table[i], zero))
            got[i] = error_of(syscall(seccomp_table[i].nr, 0, 0, 0, 0, 0, 0));
    return 0;
}

TEST(every_call_that_the_table_refuses_answers_with_its_errno)
{
    static const uint64_t zero[6];
    int refused = 0;

    CHECK_INT(in_child(call_what_is_refused), 0);
    for (size_t i = 0; i < ARRAY_LEN(seccomp_table); i++) {
        int want = seccomp_verdict(&seccomp_table[i], zero);

        if (want && got[i] != seen_of(want))
            test_fail(__FILE__, __LINE__, "%s is %s, expected %s", seccomp_table[i].name,
                      strerror(got[i]), strerror(seen_of(want)));
        refused += want != 0;
    }
    CHECK(refused > 80);
}

static int call_unknown_numbers(void)
{
    for (long nr = 472; nr < 1100; nr++)
        got[nr] = error_of(syscall(nr, 0, 0, 0, 0, 0, 0));
    got[0] = error_of(syscall(-1, 0, 0, 0, 0, 0, 0));
    return 0;
}

TEST(a_number_that_the_table_does_not_know_is_enosys)
{
    CHECK_INT(in_child(call_unknown_numbers), 0);
    for (long nr = 472; nr < 1100; nr++)
        CHECK_INT(got[nr], ENOSYS);
    CHECK_INT(got[0], ENOSYS);
}

/* Arguments that make exactly the tests of one rule hold, with rubbish in all other bits. */
static void fill_args(const struct seccomp_rule *rule, uint64_t *args)
{
    for (int i = 0; i < 6; i++)
        args[i] = HIGH | 0x5a5a5a5a;
    for (int t = 0; t < SECCOMP_TESTS && rule->when[t].mask; t++) {
        uint64_t *arg = &args[rule->when[t].arg];

        *arg = (*arg & ~(uint64_t)rule->when[t].mask) | rule->when[t].value;
    }
}

/* Only refusals can be tried with rubbish: what is allowed would be done. */
TEST(every_rule_that_refuses_does_so_whatever_the_other_bits_are)
{
    static struct attempt list[128];
    size_t n = 0;

    for (size_t r = 0; r < ARRAY_LEN(seccomp_table); r++) {
        const struct seccomp_row *row = &seccomp_table[r];

        for (size_t i = 0; i < row->rule_count; i++) {
            struct attempt a = { .what = row->name, .nr = row->nr };

            fill_args(&row->rules[i], a.args);
            a.want = seccomp_verdict(row, a.args);
            if (!a.want || n == ARRAY_LEN(list))
                continue;
            a.want = seen_of(a.want);
            list[n++] = a;
        }
    }
    CHECK(n > 15 && n < ARRAY_LEN(list));
    check_attempts(list, n);
}

/* --- rules, one by one ------------------------------------------------------------------------ */

TEST(sockets_are_those_of_the_listed_families_and_protocols)
{
    static const struct attempt list[] = {
        { "unix stream", SYS_socket, { AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC }, 0 },
        { "unix seqpacket", SYS_socket, { AF_UNIX, SOCK_SEQPACKET }, 0 },
        { "unix pair", SYS_socketpair, { AF_UNIX, SOCK_STREAM, 0, 0 }, EFAULT },
        { "tcp", SYS_socket, { AF_INET, SOCK_STREAM | SOCK_NONBLOCK }, 0 },
        { "tcp by number", SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_TCP }, 0 },
        { "udp", SYS_socket, { AF_INET, SOCK_DGRAM, IPPROTO_UDP }, 0 },
        { "tcp, high bits set", SYS_socket, { HIGH | AF_INET, HIGH | SOCK_STREAM, HIGH }, 0 },
        { "route netlink", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE }, 0 },
        { "raw", SYS_socket, { AF_INET, SOCK_RAW, IPPROTO_ICMP }, EPERM },
        { "raw with flags", SYS_socket, { AF_INET, SOCK_RAW | SOCK_CLOEXEC, 255 }, EPERM },
        { "raw 6", SYS_socket, { AF_INET6, SOCK_RAW, IPPROTO_ICMPV6 }, EPERM },
        { "inet as packet", SYS_socket, { AF_INET, SOCK_PACKET, 0x300 }, EPROTONOSUPPORT },
        { "sctp", SYS_socket, { AF_INET, SOCK_STREAM, IPPROTO_SCTP }, EPROTONOSUPPORT },
        { "mptcp", SYS_socket, { AF_INET6, SOCK_STREAM, IPPROTO_MPTCP }, EPROTONOSUPPORT },
        { "alg", SYS_socket, { AF_ALG, SOCK_SEQPACKET }, EAFNOSUPPORT },
        { "alg, high bits set", SYS_socket, { HIGH | AF_ALG, SOCK_SEQPACKET }, EAFNOSUPPORT },
        { "vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM }, EAFNOSUPPORT },
        { "packet", SYS_socket, { AF_PACKET, SOCK_RAW }, EAFNOSUPPORT },
        { "xdp", SYS_socket, { AF_XDP, SOCK_RAW }, EAFNOSUPPORT },
        { "key", SYS_socket, { AF_KEY, SOCK_RAW, 2 }, EAFNOSUPPORT },
        { "tipc", SYS_socket, { AF_TIPC, SOCK_STREAM }, EAFNOSUPPORT },
        { "tipc pair", SYS_socketpair, { AF_TIPC, SOCK_STREAM }, EAFNOSUPPORT },
        { "netfilter", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER }, EAFNOSUPPORT },
        { "audit", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_AUDIT }, EAFNOSUPPORT },
        { "sock_diag", SYS_socket, { AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG }, EAFNOSUPPORT },
    };

    CHECK_ATTEMPTS(list);
}

/* On no socket at all: what was passed on to the kernel is EBADF. */
TEST(the_size_of_a_queue_is_not_changed_and_that_is_no_error)
{
    static const struct attempt list[] = {
        { "receive", SYS_setsockopt, { 999, SOL_SOCKET, SO_RCVBUF }, 0 },
        { "send", SYS_setsockopt, { 999, SOL_SOCKET, SO_SNDBUF }, 0 },
        { "receive, forced", SYS_setsockopt, { 999, SOL_SOCKET, SO_RCVBUFFORCE }, 0 },
        { "send, forced", SYS_setsockopt, { 999, SOL_SOCKET, SO_SNDBUFFORCE }, 0 },
        { "high bits set", SYS_setsockopt, { 999, HIGH | SOL_SOCKET, HIGH | SO_RCVBUF }, 0 },
        { "another option", SYS_setsockopt, { 999, SOL_SOCKET, SO_REUSEADDR }, EBADF },
        { "another level", SYS_setsockopt, { 999, IPPROTO_TCP, SO_RCVBUF }, EBADF },
        { "asking", SYS_getsockopt, { 999, SOL_SOCKET, SO_RCVBUF }, EBADF },
    };

    CHECK_ATTEMPTS(list);
}

static int open_and_sync(void)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);

    got[0] = error_of(syscall(SYS_sync));
    got[1] = error_of(syscall(SYS_syncfs, -1));
    got[2] = error_of(syscall(SYS_fsync, -1));
    got[3] = fd < 0 ? errno : error_of(fsync(fd));
    return 0;
}

/* That nothing was written out by it is seen in tests/escape/test_sockets.py. */
TEST(sync_is_answered_and_a_file_can_still_be_written_out)
{
    CHECK_INT(in_child(open_and_sync), 0);
    CHECK_INT(got[0], 0);
    CHECK_INT(got[1], EBADF);
    CHECK_INT(got[2], EBADF);
    CHECK_INT(got[3], 0);
}

TEST(no_call_makes_or_enters_a_namespace)
{
    static const struct attempt list[] = {
        { "plain clone", SYS_clone, { SIGCHLD }, 0 },
        { "clone NEWNS", SYS_clone, { CLONE_NEWNS | SIGCHLD }, EPERM },
        { "clone NEWCGROUP", SYS_clone, { CLONE_NEWCGROUP | SIGCHLD }, EPERM },
        { "clone NEWUTS", SYS_clone, { CLONE_NEWUTS | SIGCHLD }, EPERM },
        { "clone NEWIPC", SYS_clone, { CLONE_NEWIPC | SIGCHLD }, EPERM },
        { "clone NEWUSER", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM },
        { "clone NEWPID", SYS_clone, { CLONE_NEWPID | SIGCHLD }, EPERM },
        { "clone NEWNET", SYS_clone, { CLONE_NEWNET | SIGCHLD }, EPERM },
        { "clone NEWUSER, high bits", SYS_clone, { HIGH | CLONE_NEWUSER | SIGCHLD }, EPERM },
        { "clone3", SYS_clone3, { 0, 88 }, ENOSYS },
        { "unshare", SYS_unshare, { CLONE_NEWUSER }, EPERM },
        { "setns", SYS_setns, { 0, CLONE_NEWNS }, EPERM },
    };

    CHECK_ATTEMPTS(list);
}

TEST(terminal_ioctls_are_refused_by_their_low_half)
{
    static const struct attempt list[] = {
        { "TIOCSTI", SYS_ioctl, { 0, TIOCSTI }, EPERM },
        { "TIOCSTI, high bits", SYS_ioctl, { 0, 0x100000000u | TIOCSTI }, EPERM },
        { "TIOCLINUX, high bits", SYS_ioctl, { 0, HIGH | TIOCLINUX }, EPERM },
        { "TIOCSETD, high bits", SYS_ioctl, { 0, HIGH | TIOCSETD }, EPERM },
        { "NS_GET_PARENT", SYS_ioctl, { 0, 0xb702 }, EPERM },
        { "TIOCGWINSZ", SYS_ioctl, { (uint64_t)-1, TIOCGWINSZ }, EBADF },
    };

    CHECK_ATTEMPTS(list);
}

TEST(personality_may_only_be_asked_or_stop_randomization)
{
    static const struct attempt list[] = {
        { "ask", SYS_personality, { 0xffffffff }, 0 },
        { "no randomization", SYS_personality, { ADDR_NO_RANDOMIZE }, 0 },
        { "none", SYS_personality, { 0 }, 0 },
        { "linux32", SYS_personality, { PER_LINUX32 }, EPERM },
        { "svr4", SYS_personality, { PER_SVR4 }, EPERM },
        { "readable is executable", SYS_personality, { READ_IMPLIES_EXEC }, EPERM },
    };

    CHECK_ATTEMPTS(list);
}

TEST(prctl_serves_programs_and_not_forgers)
{
    static char name[16] = "renamed";
    const struct attempt list[] = {
        { "set name", SYS_prctl, { PR_SET_NAME, (uintptr_t)name }, 0 },
        { "no new privileges", SYS_prctl, { PR_SET_NO_NEW_PRIVS, 1 }, 0 },
        { "new privileges again", SYS_prctl, { PR_SET_NO_NEW_PRIVS, 0 }, EINVAL },
        { "set mm", SYS_prctl, { PR_SET_MM, PR_SET_MM_EXE_FILE }, EPERM },
        { "securebits", SYS_prctl, { PR_SET_SECUREBITS, 0 }, EPERM },
        { "securebits, high bits", SYS_prctl, { HIGH | PR_SET_SECUREBITS, 0 }, EPERM },
        { "core scheduling", SYS_prctl, { PR_SCHED_CORE, 1 }, EINVAL },
        { "merge memory", SYS_prctl, { 67, 1 }, EINVAL },
    };

    CHECK_ATTEMPTS(list);
}

TEST(fifos_can_be_made_and_devices_cannot)
{
    static char path[] = "/tmp/test-seccomp-fifo-XXXXXX/f";
    const struct attempt list[] = {
        { "fifo", SYS_mknodat, { (uint64_t)AT_FDCWD, (uintptr_t)path, S_IFIFO | 0600 }, 0 },
        { "char", SYS_mknodat, { (uint64_t)AT_FDCWD, 0, S_IFCHR | 0600, 0x105 }, EPERM },
        { "block", SYS_mknodat, { (uint64_t)AT_FDCWD, 0, S_IFBLK | 0600, 0x700 }, EPERM },
        { "block, high bits", SYS_mknodat, { 0, 0, HIGH | S_IFBLK | 0600, 0x700 }, EPERM },
    };
    char *slash = strrchr(path, '/');

    *slash = 0;
    CHECK(mkdtemp(path));
    *slash = '/';
    attempts = list;
    attempt_count = ARRAY_LEN(list);
    CHECK_INT(in_child(make_attempts), 0);
    unlink(path);
    *slash = 0;
    rmdir(path);
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        CHECK_INT(got[i], list[i].want);
}

/* --- other entries ---------------------------------------------------------------------------- */

#ifdef __x86_64__
static int call_i386(void)
{
    static const int numbers[] = { 20, 102, 117, 136,
                                   1 }; /* getpid socketcall ipc personality exit */

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        long result = numbers[i];

        __asm__ volatile("int $0x80"
                         : "+a"(result)
                         : "b"(0), "c"(0), "d"(0)
                         : "memory", "r8", "r9", "r10", "r11");
        got[i] = (int)-result;
    }
    return 0;
}

TEST(the_i386_entry_answers_enosys_to_everything)
{
    int status = in_child(call_i386);

    if (status == 1000 + SIGSEGV) { /* a kernel without that entry */
        printf("# this kernel has no int 0x80\n");
        return;
    }
    CHECK_INT(status, 0);
    for (int i = 0; i < 5; i++)
        CHECK_INT(got[i], ENOSYS);
}

static int call_x32(void)
{
    for (long nr = 0; nr < 600; nr++)
        got[nr] = error_of(syscall(0x40000000 | nr, 0, 0, 0, 0, 0, 0));
    return 0;
}

TEST(x32_numbers_answer_enosys)
{
    CHECK_INT(in_child(call_x32), 0);
    for (int nr = 0; nr < 600; nr++)
        CHECK_INT(got[nr], ENOSYS);
}
#endif

/* --- who has it ------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void *in_thread(void *arg)
{
    int *out = arg;

    out[0] = error_of(syscall(SYS_unshare, 0));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the filter comes in between */
    out[1] = error_of(syscall(SYS_unshare, 0));
    return NULL;
}

TEST(threads_that_ran_before_and_threads_started_later_have_it)
{
    int status;
    pid_t pid;

    share_results();
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        pthread_t before, after;

        pthread_barrier_init(&barrier, NULL, 2);
        if (pthread_create(&before, NULL, in_thread, got))
            _exit(1);
        pthread_barrier_wait(&barrier);
        if (load())
            _exit(2);
        pthread_barrier_wait(&barrier);
        pthread_join(before, NULL);
        if (pthread_create(&after, NULL, in_thread, got + 2))
            _exit(3);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        pthread_join(after, NULL);
        _exit(0);
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    CHECK_INT(got[0], 0);
    CHECK_INT(got[1], EPERM);
    CHECK_INT(got[2], EPERM);
    CHECK_INT(got[3], EPERM);
}

static int output[2];

static int exec_grep(void)
{
    dup2(output[1], 1);
    execl("/bin/grep", "grep", "-E", "^Seccomp:|^NoNewPrivs:", "/proc/self/status", (char *)NULL);
    return 97;
}

TEST(a_program_started_under_it_has_it_and_may_still_gain_privileges)
{
    char text[256];
    ssize_t n;

    CHECK_INT(pipe2(output, O_CLOEXEC), 0);
    CHECK_INT(in_child(exec_grep), 0);
    close(output[1]);
    n = read(output[0], text, sizeof(text) - 1);
    close(output[0]);
    CHECK(n > 0);
    text[n] = 0;
    CHECK(strstr(text, "Seccomp:\t2\n"));
    CHECK(strstr(text, privileged() ? "NoNewPrivs:\t0\n" : "NoNewPrivs:\t1\n"));
}

static int drop_all_and_load_again(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };
    struct err err = { 0 };

    if (syscall(SYS_capset, &header, none))
        return 1;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return 0; /* had no capability: there is nothing to drop */
    return seccomp_load(&err) == -1 && err.code == ERR_DENIED && strstr(err.msg, "CAP_SYS_ADMIN")
               ? 0
               : 2;
}

TEST(loading_without_the_right_to_is_an_error_that_says_what_is_missing)
{
    CHECK_INT(in_child(drop_all_and_load_again), 0);
}
