/* serve_filter.c - the system calls of the part that strangers talk to: sockets, files below its
 * own directory, threads, time. No program is ever executed, nothing is traced, mounted or entered.
 * What is not listed is EPERM (jail/walls.h). */
#include <asm/unistd.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/serve.h"

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

static void allow_some(struct walls_filter *f)
{
    static const unsigned families[] = { AF_UNIX, AF_INET, AF_INET6 };
    static const unsigned pairs[] = { AF_UNIX };
    /* no TIOCSTI: our terminal is the administrator's */
    static const unsigned ioctls[] = { TCGETS, FIONREAD, FIONBIO };
    const unsigned self[] = { 0, (unsigned)getpid() };

    walls_filter_values(f, __NR_socket, 0, families, ARRAY_LEN(families), EAFNOSUPPORT);
    walls_filter_values(f, __NR_socketpair, 0, pairs, ARRAY_LEN(pairs), EAFNOSUPPORT);
    walls_filter_values(f, __NR_ioctl, 1, ioctls, ARRAY_LEN(ioctls), ENOTTY);
    walls_filter_values(f, __NR_prlimit64, 0, self, ARRAY_LEN(self), EPERM);
    walls_filter_values(f, __NR_tgkill, 0, self + 1, 1, EPERM);
}

int serve_filter(struct err *err)
{
    static struct walls_filter f;

    walls_filter_begin(&f);
    walls_filter_allow(&f, allowed, ARRAY_LEN(allowed));
    allow_some(&f);
    walls_filter_memory(&f);
    walls_filter_threads(&f);
    return walls_filter_load(&f, err);
}
