/* serve_filter.c - the system calls of the part that strangers talk to: sockets, files below its
 * own directory, threads, time. No program is ever executed, nothing is traced, mounted or entered.
 *
 * Made at start, not at build time like a sandbox's: the kernel remembers the verdict of a call
 * whose arguments do not matter (since 5.11), so the length of the list costs nothing later. What
 * is not listed is EPERM, which a library takes for no; that shows in the tests, not as a crash. */
#include <asm/unistd.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/serve.h"

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this architecture: add it here"
#endif

static const unsigned allowed[] = {
    /* descriptors and files: SQLite's, certificates' */
    __NR_read,
    __NR_write,
    __NR_readv,
    __NR_writev,
    __NR_pread64,
    __NR_pwrite64,
    __NR_close,
    __NR_close_range,
    __NR_lseek,
    __NR_fstat,
    __NR_newfstatat,
    __NR_statx,
    __NR_statfs,
    __NR_fstatfs,
    __NR_openat,
    __NR_fcntl,
    __NR_flock,
    __NR_fsync,
    __NR_fdatasync,
    __NR_ftruncate,
    __NR_fallocate,
    __NR_fadvise64,
    __NR_unlinkat,
    __NR_mkdirat,
    __NR_renameat2,
    __NR_faccessat,
    __NR_faccessat2,
    __NR_readlinkat,
    __NR_fchmod,
    __NR_fchmodat,
    __NR_fchown,
    __NR_getdents64,
    __NR_getcwd,
    __NR_umask,
    __NR_dup,
    __NR_dup3,
    __NR_pipe2,
    __NR_sendfile,
    __NR_splice,
    /* sockets */
    __NR_bind,
    __NR_listen,
    __NR_accept4,
    __NR_connect,
    __NR_getsockname,
    __NR_getpeername,
    __NR_getsockopt,
    __NR_setsockopt,
    __NR_shutdown,
    __NR_sendto,
    __NR_recvfrom,
    __NR_sendmsg,
    __NR_recvmsg,
    __NR_sendmmsg,
    __NR_recvmmsg,
    /* waiting and time */
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_pwait,
    __NR_ppoll,
    __NR_pselect6,
    __NR_eventfd2,
    __NR_signalfd4,
    __NR_timerfd_create,
    __NR_timerfd_settime,
    __NR_nanosleep,
    __NR_clock_nanosleep,
    __NR_clock_gettime,
    __NR_clock_getres,
    __NR_gettimeofday,
    __NR_inotify_init1,
    __NR_inotify_add_watch,
    __NR_inotify_rm_watch,
    /* memory and threads */
    __NR_brk,
    __NR_munmap,
    __NR_mremap,
    __NR_madvise,
    __NR_futex,
    __NR_set_robust_list,
    __NR_get_robust_list,
    __NR_rseq,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_membarrier,
    __NR_set_tid_address,
    __NR_gettid,
    __NR_exit,
    __NR_exit_group,
    /* signals */
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_rt_sigtimedwait,
    __NR_sigaltstack,
    __NR_restart_syscall,
    /* who and how much */
    __NR_getpid,
    __NR_getppid,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getrandom,
    __NR_getrusage,
    __NR_sysinfo,
    __NR_uname,
#ifdef __x86_64__ /* the old names that libraries still use */
    __NR_open,
    __NR_stat,
    __NR_lstat,
    __NR_access,
    __NR_poll,
    __NR_select,
    __NR_epoll_wait,
    __NR_unlink,
    __NR_mkdir,
    __NR_rmdir,
    __NR_rename,
    __NR_readlink,
    __NR_chmod,
    __NR_getdents,
    __NR_dup2,
    __NR_pipe,
    __NR_eventfd,
    __NR_time,
    __NR_arch_prctl,
#endif
};

enum { ROOM = 2 * ARRAY_LEN(allowed) + 60 };

struct program {
    struct sock_filter code[ROOM];
    unsigned short n;
};

static void put(struct program *p, struct sock_filter insn)
{
    if (p->n == ROOM)
        abort(); /* our own table, at every start */
    p->code[p->n++] = insn;
}

#define LOAD(what)                                                                                 \
    put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,                                  \
                                        offsetof(struct seccomp_data, what)))
#define IF(test, value, yes, no)                                                                   \
    put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | (test) | BPF_K, (value), (yes), (no)))
#define RETURN(verdict) put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (verdict)))
#define REFUSE(error)   RETURN(SECCOMP_RET_ERRNO | (error))

/* In what follows the number is in the accumulator before and, for all but its own call, behind. */

/* One of these values in an argument, else the error. The kernel takes all of them as 32 bits. */
static void allow_values(struct program *p, unsigned nr, unsigned arg, const unsigned *values,
                         unsigned char n, unsigned error)
{
    IF(BPF_JEQ, nr, 0, (unsigned char)(n + 3));
    put(p, (struct sock_filter)BPF_STMT(
               BPF_LD | BPF_W | BPF_ABS,
               (unsigned)(offsetof(struct seccomp_data, args) + arg * sizeof(__u64))));
    for (unsigned char i = 0; i < n; i++)
        IF(BPF_JEQ, values[i], (unsigned char)(n - i), 0);
    REFUSE(error);
    RETURN(SECCOMP_RET_ALLOW);
}

static void allow_some(struct program *p)
{
    static const unsigned families[] = { AF_UNIX, AF_INET, AF_INET6 };
    static const unsigned pairs[] = { AF_UNIX };
    /* no TIOCSTI: our terminal is the administrator's */
    static const unsigned ioctls[] = { TCGETS, FIONREAD, FIONBIO };
    const unsigned self[] = { 0, (unsigned)getpid() };

    allow_values(p, __NR_socket, 0, families, ARRAY_LEN(families), EAFNOSUPPORT);
    allow_values(p, __NR_socketpair, 0, pairs, ARRAY_LEN(pairs), EAFNOSUPPORT);
    allow_values(p, __NR_ioctl, 1, ioctls, ARRAY_LEN(ioctls), ENOTTY);
    allow_values(p, __NR_prlimit64, 0, self, ARRAY_LEN(self), EPERM);
    allow_values(p, __NR_tgkill, 0, self + 1, 1, EPERM);
}

/* Code comes from libraries and stays as it is: nothing is both written and executed. */
static void allow_memory(struct program *p)
{
    IF(BPF_JEQ, __NR_mprotect, 0, 4);
    LOAD(args[2]);
    IF(BPF_JSET, PROT_EXEC, 0, 1);
    REFUSE(EACCES);
    RETURN(SECCOMP_RET_ALLOW);
    IF(BPF_JEQ, __NR_mmap, 0, 5);
    LOAD(args[2]);
    put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC));
    IF(BPF_JEQ, PROT_WRITE | PROT_EXEC, 0, 1);
    REFUSE(EACCES);
    RETURN(SECCOMP_RET_ALLOW);
}

/* Threads, no namespace and no process: CLONE_THREAD must be there. clone3's flags are in memory,
 * where no filter sees them: libc takes ENOSYS and falls back. */
static void allow_thread(struct program *p)
{
    IF(BPF_JEQ, __NR_clone, 0, 4);
    LOAD(args[0]);
    IF(BPF_JSET, CLONE_THREAD, 0, 1);
    RETURN(SECCOMP_RET_ALLOW);
    REFUSE(EPERM);
    IF(BPF_JEQ, __NR_clone3, 0, 1);
    REFUSE(ENOSYS);
}

int serve_filter(struct err *err)
{
    static struct program program;
    struct program *p = &program;
    struct sock_fprog loaded = { .filter = p->code };

    LOAD(arch);
    IF(BPF_JEQ, ARCH, 1, 0);
    REFUSE(ENOSYS);
    LOAD(nr);
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        IF(BPF_JEQ, allowed[i], 0, 1);
        RETURN(SECCOMP_RET_ALLOW);
    }
    allow_some(p);
    allow_memory(p);
    allow_thread(p);
    REFUSE(EPERM);
    loaded.len = p->n;
    if (SERVE_SANITIZED)
        return 0;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &loaded))
        return err_sys(err, "load the system call filter");
    return 0;
}
