/* test_serve_filter.c - what the part of `cove serve` that strangers talk to may ask of the kernel:
 * each case loads the filter in a child of its own. Needs no privilege, as it sets no_new_privs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/serve.h"
#include "test.h"

enum { NO_FILTER = 97, SETUP_FAILED = 98 };

/* A sanitizer's build does not load it: the leak check at the end traces its own process. */
static bool is_loaded(void) { return syscall(SYS_execve, NULL, NULL, NULL) && errno == EPERM; }

/* Runs fn under the filter in a child; its result is the exit status. */
static int in_child(int (*fn)(void))
{
    struct err err = { 0 };
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (!pid) {
        setsid();
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || serve_filter(&err))
            _exit(SETUP_FAILED);
        _exit(is_loaded() ? fn() : NO_FILTER);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int check(int (*fn)(void))
{
    int r = in_child(fn);

    if (r != NO_FILTER)
        return r;
    printf("# skipped: a sanitizer's build runs without the filter\n");
    return 0;
}

static const struct {
    const char *name;
    long nr;
    long args[4];
    int want;
} refused[] = {
    { "execve", SYS_execve, { 0 }, EPERM },
    { "execveat", SYS_execveat, { -1 }, EPERM },
#ifdef SYS_fork
    { "fork", SYS_fork, { 0 }, EPERM },
    { "vfork", SYS_vfork, { 0 }, EPERM },
#endif
    { "clone, a process", SYS_clone, { SIGCHLD }, EPERM },
    { "clone, a user namespace", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, EPERM },
    { "clone3", SYS_clone3, { 0, 64 }, ENOSYS },
    { "ptrace", SYS_ptrace, { 0 }, EPERM },
    { "process_vm_readv", SYS_process_vm_readv, { 1 }, EPERM },
    { "process_vm_writev", SYS_process_vm_writev, { 1 }, EPERM },
    { "process_madvise", SYS_process_madvise, { -1 }, EPERM },
    { "kcmp", SYS_kcmp, { 1, 1 }, EPERM },
    { "pidfd_open", SYS_pidfd_open, { 1 }, EPERM },
    { "pidfd_getfd", SYS_pidfd_getfd, { -1 }, EPERM },
    { "pidfd_send_signal", SYS_pidfd_send_signal, { -1 }, EPERM },
    { "kill", SYS_kill, { 1, 0 }, EPERM },
    { "tkill", SYS_tkill, { 1, 0 }, EPERM },
    { "tgkill of another", SYS_tgkill, { 1, 1, 0 }, EPERM },
    { "prlimit64 of another", SYS_prlimit64, { 1, RLIMIT_CORE }, EPERM },
    { "mount", SYS_mount, { 0 }, EPERM },
    { "umount2", SYS_umount2, { 0 }, EPERM },
    { "pivot_root", SYS_pivot_root, { 0 }, EPERM },
    { "chroot", SYS_chroot, { 0 }, EPERM },
    { "open_tree", SYS_open_tree, { -1 }, EPERM },
    { "move_mount", SYS_move_mount, { -1 }, EPERM },
    { "fsopen", SYS_fsopen, { 0 }, EPERM },
    { "mount_setattr", SYS_mount_setattr, { -1 }, EPERM },
    { "unshare", SYS_unshare, { CLONE_NEWUSER }, EPERM },
    { "setns", SYS_setns, { -1 }, EPERM },
    { "open_by_handle_at", SYS_open_by_handle_at, { -1 }, EPERM },
    { "name_to_handle_at", SYS_name_to_handle_at, { -1 }, EPERM },
    { "bpf", SYS_bpf, { 0 }, EPERM },
    { "perf_event_open", SYS_perf_event_open, { 0 }, EPERM },
    { "userfaultfd", SYS_userfaultfd, { 0 }, EPERM },
    { "io_uring_setup", SYS_io_uring_setup, { 1 }, EPERM },
    { "keyctl", SYS_keyctl, { 0 }, EPERM },
    { "add_key", SYS_add_key, { 0 }, EPERM },
    { "request_key", SYS_request_key, { 0 }, EPERM },
    { "memfd_create", SYS_memfd_create, { 0 }, EPERM },
    { "setuid", SYS_setuid, { 0 }, EPERM },
    { "setresuid", SYS_setresuid, { 0 }, EPERM },
    { "capset", SYS_capset, { 0 }, EPERM },
    { "prctl", SYS_prctl, { PR_SET_DUMPABLE, 1 }, EPERM },
    { "seccomp", SYS_seccomp, { 0 }, EPERM },
    { "personality", SYS_personality, { 0 }, EPERM },
    { "fanotify_init", SYS_fanotify_init, { 0 }, EPERM },
    { "linkat", SYS_linkat, { -1 }, EPERM },
    { "symlinkat", SYS_symlinkat, { 0 }, EPERM },
    { "mknodat", SYS_mknodat, { -1 }, EPERM },
    { "init_module", SYS_init_module, { 0 }, EPERM },
    { "kexec_load", SYS_kexec_load, { 0 }, EPERM },
    { "reboot", SYS_reboot, { 0 }, EPERM },
    { "clock_settime", SYS_clock_settime, { 0 }, EPERM },
    { "socket, packet", SYS_socket, { AF_PACKET, SOCK_RAW }, EAFNOSUPPORT },
    { "socket, netlink", SYS_socket, { AF_NETLINK, SOCK_RAW }, EAFNOSUPPORT },
    { "socket, alg", SYS_socket, { AF_ALG, SOCK_SEQPACKET }, EAFNOSUPPORT },
    { "socket, vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM }, EAFNOSUPPORT },
    { "socketpair, inet", SYS_socketpair, { AF_INET, SOCK_STREAM }, EAFNOSUPPORT },
    { "ioctl, terminal input", SYS_ioctl, { 0, TIOCSTI }, ENOTTY },
    { "ioctl, a controlling terminal", SYS_ioctl, { 0, TIOCSCTTY }, ENOTTY },
    { "mmap, written and executed",
      SYS_mmap,
      { 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS },
      EACCES },
    { "mprotect, executed", SYS_mprotect, { 0, 4096, PROT_READ | PROT_EXEC }, EACCES },
#ifdef __x86_64__ /* the same numbers by the other table */
    { "execve, x32", SYS_execve | 0x40000000, { 0 }, EPERM },
    { "read, x32", SYS_read | 0x40000000, { 0 }, EPERM },
#endif
};

static int try_refused(void)
{
    int failed = 0;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const long *a = refused[i].args;

        errno = 0;
        syscall(refused[i].nr, a[0], a[1], a[2], a[3], 0, 0);
        if (errno == refused[i].want)
            continue;
        printf("# %s: errno %d, not %d\n", refused[i].name, errno, refused[i].want);
        failed = 1;
    }
    fflush(stdout);
    return failed;
}

TEST(what_leads_out_is_refused) { CHECK_INT(check(try_refused), 0); }

static void *work(void *arg)
{
    *(int *)arg += 1;
    return NULL;
}

static int use_threads(void)
{
    pthread_t t[4];
    int n[4] = { 0 };

    for (int i = 0; i < 4; i++)
        if (pthread_create(&t[i], NULL, work, &n[i]))
            return 1;
    for (int i = 0; i < 4; i++)
        if (pthread_join(t[i], NULL) || n[i] != 1)
            return 2;
    return 0;
}

TEST(threads_start_and_end) { CHECK_INT(check(use_threads), 0); }

static int use_sockets(void)
{
    static const int families[] = { AF_INET, AF_UNIX };
    int pair[2], fd;

    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        fd = socket(families[i], SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || close(fd))
            return 1;
    }
    fd = socket(AF_INET6, SOCK_STREAM, 0); /* the machine may have none: but it is not we */
    if (fd < 0 && errno == EPERM)
        return 2;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || write(pair[0], "x", 1) != 1)
        return 3;
    return epoll_create1(0) < 0 || eventfd(0, 0) < 0 ? 4 : 0;
}

TEST(sockets_that_it_serves_with_are_there) { CHECK_INT(check(use_sockets), 0); }

static int use_itself(void)
{
    struct rlimit l;
    char name[] = "/tmp/cove-test-XXXXXX";
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd;

    if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ) || munmap(page, 4096))
        return 1;
    if (getrlimit(RLIMIT_NOFILE, &l))
        return 2;
    signal(SIGUSR1, SIG_IGN);
    if (raise(SIGUSR1)) /* abort() does it so too */
        return 3;
    fd = mkstemp(name);
    if (fd < 0 || write(fd, "x", 1) != 1 || ftruncate(fd, 0) || fsync(fd) || close(fd) ||
        unlink(name))
        return 4;
    return 0;
}

TEST(its_own_memory_signals_and_files_are_its_own) { CHECK_INT(check(use_itself), 0); }

#ifdef __x86_64__
static int use_old_table(void)
{
    long r;

    /* 11 is execve there */
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(11L), "b"(0L), "c"(0L), "d"(0L) : "memory");
    return r == -ENOSYS ? 0 : 1;
}

TEST(the_table_of_another_architecture_is_closed) { CHECK_INT(check(use_old_table), 0); }
#endif
